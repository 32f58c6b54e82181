# frozen_string_literal: true

require "test_helper"

# Through pgbouncer in transaction mode; config/database.yml has the settings for it.
class PooledConnectionTest < CommittingTest
  setup { ActiveRecord::Base.establish_connection(:pooled) }
  teardown { ActiveRecord::Base.establish_connection(:development) }

  test "documents are written, read and expire" do
    session = Session.create!(user: new_user, data: { page: "/home" })
    assert_equal({ "page" => "/home" }, Session.find(session.id).data)
    assert session.touch
    assert_equal true, later(1799) { Session.exists?(session.id) }
    assert_equal false, later(1800) { Session.exists?(session.id) }
    assert_equal true, Session.exists?(session.id)
  end

  test "upserts replace live and expired records" do
    token = Token.create!(code: "A", ttl: 60)
    upsert = -> { Token.upsert({ code: "A", data: { ttl: 60 } }, unique_by: :code).rows.first.first }
    assert_equal token.id, later(59, &upsert)
    assert_not_equal token.id, later(600, &upsert)
  end

  test "clients that share a server connection can run the same statement" do
    token = Token.create!(code: "A")
    find = -> { Token.connection_pool.with_connection { Token.find_by!(code: "A") } }
    assert_equal [token, token], [find.call, Thread.new(&find).value]
  end

  test "migrations run" do
    migration = Class.new(ActiveRecord::Migration[6.1]) do
      def change
        create_table(:visits) { |t| t.jsonb :data }
        reversible { |direction| direction.up { execute "SELECT ttl_docs.adopt('visits', 60)" } }
      end
    end
    migration.suppress_messages { migration.migrate(:up) }
    assert_equal 60, connection.select_value("SELECT ttl_docs.get_default_ttl('visits')")
    migration.suppress_messages { migration.migrate(:down) }
    assert_not connection.table_exists?("visits")
  end

  private

  # Moves the clock of one transaction: the next one may use another server connection.
  def later(seconds)
    ActiveRecord::Base.transaction do
      connection.execute("SET LOCAL ttl_docs.clock_offset = '#{seconds}s'")
      yield
    end
  end
end

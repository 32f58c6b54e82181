# frozen_string_literal: true

require "test_helper"

# Through pgbouncer in transaction mode; config/database.yml has what ActiveRecord needs for that.
class PooledConnectionTest < CommittingTest
  setup { ActiveRecord::Base.establish_connection(:pooled) }
  teardown { ActiveRecord::Base.establish_connection(:development) }

  test "writes, reads and expires" do
    session = Session.create!(user: new_user, data: { page: "/home" })
    assert_equal({ "page" => "/home" }, Session.find(session.id).data)
    assert session.touch
    assert_equal true, later(1799) { Session.exists?(session.id) }
    assert_equal false, later(1800) { Session.exists?(session.id) }
    assert_equal true, Session.exists?(session.id)
  end

  test "upserts over live and expired records" do
    token = Token.create!(code: "A", ttl: 60)
    upsert = -> { Token.upsert({ code: "A", data: { ttl: 60 } }, unique_by: :code).rows.first.first }
    assert_equal token.id, later(59, &upsert)
    assert_not_equal token.id, later(600, &upsert)
  end

  test "clients that share a connection of the server run the same statement" do
    token = Token.create!(code: "A")
    find = -> { Token.connection_pool.with_connection { Token.find_by!(code: "A") } }
    assert_equal [token, token], [find.call, Thread.new(&find).value]
  end

  test "migrates" do
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

  # The clock of one transaction: the next one may be on another connection of the server.
  def later(seconds)
    ActiveRecord::Base.transaction do
      connection.execute("SET LOCAL ttl_docs.clock_offset = '#{seconds}s'")
      yield
    end
  end
end

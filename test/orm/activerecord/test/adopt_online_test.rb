# frozen_string_literal: true

require "test_helper"

# A migration that adopts a table while the application uses it.
class AdoptOnlineTest < CommittingTest
  setup do
    connection.create_table(:visits) { |t| t.jsonb :data, null: false }
    execute %q(INSERT INTO visits (data) VALUES ('{"page": "/"}'), ('{"ttl": -1}'))
  end

  teardown { connection.drop_table(:visits) }

  test "the migration adopts the table, and back" do
    migrations.up
    assert_equal 2, count
    let_pass 1800.seconds
    assert_equal 1, count
    migrations.down
    assert_equal 1, count
    assert_equal %w[id data], connection.columns(:visits).map(&:name)
  end

  private

  def migrations
    ActiveRecord::Migration.verbose = false
    ActiveRecord::MigrationContext.new(File.expand_path("../db/online", __dir__), ActiveRecord::SchemaMigration)
  end

  def execute(sql)
    connection.execute(sql)
  end

  def count
    connection.select_value("SELECT count(*) FROM visits")
  end
end

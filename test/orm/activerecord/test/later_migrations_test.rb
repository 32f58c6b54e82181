# frozen_string_literal: true

require "test_helper"

# Later migrations of a collection.  The tests roll back their DDL.
class LaterMigrationsTest < ApplicationTest
  test "a migration cannot remove the system columns, the purge index or the ttl_docs trigger" do
    assert_refused('cannot drop or rename column "_ttl"') { remove_column :tokens, :_ttl }
    assert_refused('cannot drop or rename column "_ts"') { rename_column :tokens, :_ts, :written_at }
    assert_refused("cannot drop the purge index") { remove_index :tokens, name: "tokens__slot_idx" }
    assert_refused('cannot drop trigger "zzz_ttl_docs"') { execute "DROP TRIGGER zzz_ttl_docs ON tokens" }
  end

  test "a migration can add, rename and remove other columns and indexes" do
    migrate do
      add_column :tokens, :purpose, :string, default: "login", null: false
      add_index :tokens, :purpose
      rename_column :tokens, :data, :document
      remove_column :tokens, :updated_at
    end
    token = model("tokens").create!(code: "A", document: { ttl: 60 })
    let_pass 60.seconds
    assert_not model("tokens").exists?(token.id)
  end

  test "a renamed table is the same collection" do
    migrate { rename_table :tokens, :codes }
    code = model("codes").create!(code: "A", data: { ttl: 60 })
    let_pass 60.seconds
    assert_not model("codes").exists?(code.id)
  end

  test "a table can be adopted while an application runs that ignores the new columns" do
    visit = read_while_adopted { self.ignored_columns += %w[_ts _ttl _slot] }
    assert_equal({ "page" => "/home" }, visit.data)
  end

  test "without ignored_columns, a prepared SELECT * fails after the table is adopted" do
    assert_raises(ActiveRecord::PreparedStatementCacheExpired) { read_while_adopted }
  end

  test "a collection can become a plain table again" do
    migrate { execute "SELECT ttl_docs.release('tokens')" }
    assert_equal %w[id code data created_at updated_at], connection.columns(:tokens).map(&:name)
  end

  # ActiveRecord has cached columns that the rollback has removed.
  def after_teardown
    super
    connection.schema_cache.clear!
  end

  private

  def migrate(&change)
    migration = Class.new(ActiveRecord::Migration[6.1]) { define_method(:up) { instance_exec(&change) } }
    migration.suppress_messages { migration.migrate(:up) }
  end

  def assert_refused(message, &change)
    error = assert_raises(ActiveRecord::StatementInvalid) do
      connection.transaction(requires_new: true) { migrate(&change) }
    end
    assert_includes error.message, message
    assert_includes error.message, "HINT:"
  end

  # Reads a record with the same statement before and after its table becomes a collection.
  def read_while_adopted(&model_body)
    migrate { create_table(:visits) { |t| t.jsonb :data } }
    visits = model("visits", &model_body)
    id = visits.create!(data: { page: "/home" }).id
    visits.find(id)
    migrate { execute "SELECT ttl_docs.adopt('visits', 60)" }
    visits.find(id)
  end

  # Returns a model without cached columns.
  def model(table, &body)
    connection.schema_cache.clear!
    Class.new(ActiveRecord::Base) { self.table_name = table }.tap { |model| model.class_exec(&body) if body }
  end
end

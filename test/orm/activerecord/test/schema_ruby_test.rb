# frozen_string_literal: true

require "schema_test_case"

# db/schema.rb, which ActiveRecord writes after each migration.
class SchemaRubyTest < SchemaTestCase
  test "without the recipe, schema.rb has the columns but not the collections" do
    schema, = capture_subprocess_io { ActiveRecord::SchemaDumper.dump }
    assert_match(/t\.\w+ "_ts"/, schema)
    assert_no_match(/adopt/, schema)

    ActiveRecord::Tasks::DatabaseTasks.create(configuration("test"))
    connect_to_test_database
    ActiveRecord::Migration.suppress_messages { eval(without_schemas(schema)) }
    assert_empty collections
    session = Session.create!(user: new_user)
    let_pass 10.years
    assert Session.exists?(session.id) # never expires, and there was no error
  end

  test "with the recipe, a database created from schema.rb has the collections" do
    rake("db:schema:dump")
    assert_no_match(/"_(ts|ttl|slot)"/, File.read(schema_file))

    rake("db:create", "db:schema:load", env: "test")
    connect_to_test_database
    assert_equal COLLECTIONS, collections
    assert_empty held_from_purge
    assert_documents_expire
  end

  test "with the recipe, dumping that database gives the same schema.rb" do
    rake("db:schema:dump")
    before = File.read(schema_file)
    assert_equal 4, before.scan("SELECT ttl_docs.adopt(").size
    rake("db:create", "db:schema:load", "db:schema:dump", env: "test")
    assert_equal before, File.read(schema_file)
  end

  test "with the recipe, schema.rb keeps the indexing, and the application's indexes on _ts" do
    rake("db:create", "db:migrate", env: "test")
    connect_to_test_database
    connection.add_index(:tokens, %i[code _ts], name: "tokens_by_time")
    connection.execute("SELECT ttl_docs.set_indexing('tokens', 'lazy')")

    rake("db:schema:dump", "db:schema:load", env: "test")
    assert_equal %w[index_tokens_on_code tokens__slot_idx tokens_by_time], connection.indexes(:tokens).map(&:name).sort
    assert_equal "lazy", connection.select_value("SELECT indexing FROM ttl_docs.collections WHERE collection = 'tokens'::regclass")
  end

  test "db:test:prepare creates the test database again" do
    rake("db:schema:dump")
    2.times { rake("db:test:prepare") }
    connect_to_test_database
    assert_equal COLLECTIONS, collections
    assert_documents_expire
  end

  private

  # Since 7.1, ActiveRecord cannot load the file without this change: it creates schemas that the
  # extension has created already.
  def without_schemas(schema)
    schema.gsub(/^  create_schema .*\n/, "")
  end
end

# frozen_string_literal: true

require "schema_test_case"

# db/structure.sql, which pg_dump writes.
class StructureSqlTest < SchemaTestCase
  test "without the recipe, structure.sql has the collections, but an ordinary role cannot load it" do
    ActiveRecord::Tasks::DatabaseTasks.structure_dump(configuration("development"), schema_file)
    dump = File.read(schema_file)
    assert_equal 4, dump.scan(/^SECURITY LABEL FOR ttl_docs ON TABLE /).size
    assert_equal 4, dump.scan(/^ALTER TABLE .* ENABLE ALWAYS TRIGGER zzz_ttl_docs;/).size

    ActiveRecord::Tasks::DatabaseTasks.create(configuration("test"))
    database, role = configuration("test").configuration_hash.values_at(:database, :username)
    output, status = Open3.capture2e("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", schema_file, "-U", role, database)
    assert_not_predicate status, :success?
    assert_match(/must be owner of extension ttl_docs/, output)
  end

  test "with the recipe, a database created from structure.sql has the collections, without a hold" do
    rake("db:schema:dump", format: "sql")
    rake("db:create", "db:schema:load", env: "test", format: "sql")
    connect_to_test_database
    assert_equal COLLECTIONS, collections
    assert_empty held_from_purge
    assert_documents_expire
  end

  test "with the recipe, dumping that database gives the same structure.sql" do
    rake("db:schema:dump", format: "sql")
    before = File.read(schema_file)
    rake("db:create", "db:schema:load", env: "test", format: "sql")
    connect_to_test_database
    # Change the DefaultTTL and change it back: this leaves a floor in the label.
    connection.execute("SELECT ttl_docs.set_default_ttl('sessions', 3600), ttl_docs.set_default_ttl('sessions', 1800)")
    rake("db:schema:dump", env: "test", format: "sql")
    assert_equal before, File.read(schema_file)
  end

  test "db:test:prepare creates the test database again; the hold of the purge does not affect tests" do
    rake("db:schema:dump", format: "sql")
    2.times { rake("db:test:prepare", format: "sql") }
    connect_to_test_database
    assert_equal COLLECTIONS, collections
    assert_equal COLLECTIONS.map(&:first), held_from_purge
    assert_documents_expire
  end
end

# frozen_string_literal: true

require "schema_test_case"

class MigrationsTest < SchemaTestCase
  test "the migrations create the collections in an empty database" do
    rake("db:create", "db:migrate", env: "test")
    connect_to_test_database
    assert_equal COLLECTIONS, collections
    assert_documents_expire
  end

  test "the migrations can be rolled back, and run again" do
    rake("db:create", "db:migrate", env: "test")
    rake("db:rollback", "STEP=3", env: "test")
    connect_to_test_database
    assert_empty collections
    rake("db:migrate", env: "test")
    assert_equal COLLECTIONS, collections
  end
end

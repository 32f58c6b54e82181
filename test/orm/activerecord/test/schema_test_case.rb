# frozen_string_literal: true

require "test_helper"
require "open3"
require "tmpdir"

# For tests that create a database: by the migrations, or from a schema file that was dumped
# from a migrated database.
class SchemaTestCase < CommittingTest
  COLLECTIONS = [["cart_items", 900], ["carts", 86_400], ["sessions", 1800], ["tokens", -1]].freeze

  setup do
    ENV["VERBOSE"] = "false"
    @directory = Dir.mktmpdir
  end

  teardown do
    FileUtils.remove_entry(@directory)
    ActiveRecord::Tasks::DatabaseTasks.drop(configuration("test"))
    ActiveRecord::Base.establish_connection(:development)
  end

  private

  # Runs tasks of the Rakefile, as from a shell.
  def rake(*tasks, env: "development", format: "ruby")
    environment = { "RAILS_ENV" => env, "SCHEMA_FORMAT" => format, "SCHEMA" => schema_file }
    output, status = Open3.capture2e(environment, RbConfig.ruby, "-S", "rake", *tasks)
    assert_predicate status, :success?, output
  end

  def schema_file
    File.join(@directory, "schema")
  end

  def configuration(name)
    ActiveRecord::Base.configurations.configs_for(env_name: name).first
  end

  def connect_to_test_database
    ActiveRecord::Base.establish_connection(:test)
    ActiveRecord::Base.descendants.each(&:reset_column_information)
  end

  def collections
    connection.select_rows("SELECT collection::text, default_ttl FROM ttl_docs.collections ORDER BY 1")
  end

  def held_from_purge
    connection.select_values("SELECT collection::text FROM ttl_docs.collections WHERE holds <> '{}' ORDER BY 1")
  end

  def assert_documents_expire
    session = Session.create!(user: new_user)
    let_pass 1799.seconds
    assert Session.exists?(session.id)
    let_pass 1.second
    assert_not Session.exists?(session.id)
  end
end

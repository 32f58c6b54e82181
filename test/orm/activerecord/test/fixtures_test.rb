# frozen_string_literal: true

require "test_helper"

FIXTURES = File.join(__dir__, "fixtures")

# Transactional tests write fixtures once, before the first test.
class FixturesTest < ApplicationTest
  respond_to?(:fixture_paths=) ? self.fixture_paths = [FIXTURES] : self.fixture_path = FIXTURES
  fixtures :tokens

  test "fixtures are documents that expire" do
    assert_equal %w[A B], Token.order(:code).pluck(:code)
    let_pass 60.seconds
    assert_equal [tokens(:lasting)], Token.all
  end

  # Fixtures stay after a test, but the other tests need empty tables.
  def after_teardown
    super
    connection.truncate_tables("tokens")
  end
end

class TestDataTest < CommittingTest
  test "fixtures that a superuser writes, with triggers disabled, are documents that expire" do
    superuser = ActiveRecord::Base.connection_db_config.configuration_hash.merge(username: "postgres")
    ActiveRecord::Base.establish_connection(superuser)
    # The foreign key would refuse this order if triggers were enabled.
    ActiveRecord::FixtureSet.create_fixtures(FIXTURES, %w[sessions users])
    assert_equal 1, Session.count
    let_pass 1800.seconds
    assert_equal 0, Session.count
  ensure
    ActiveRecord::Base.establish_connection(:development)
  end

  test "truncation removes expired documents, too" do
    ago(1.hour) { Token.create!(code: "A", ttl: 60) }
    connection.truncate_tables("tokens")
    let_pass(-1.hour)
    assert_equal 0, Token.count
  end
end

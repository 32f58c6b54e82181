# frozen_string_literal: true

require "minitest/autorun"
require_relative "../config/environment"
require_relative "server_clock"

class ApplicationTest < ActiveSupport::TestCase
  include ActiveRecord::TestFixtures # runs each test in a transaction that is rolled back
  include ServerClock

  private

  def connection
    ActiveRecord::Base.connection
  end

  def new_user
    User.create!(email: "#{SecureRandom.hex}@example.org")
  end
end

# For tests that need several connections, or commit.
class CommittingTest < ApplicationTest
  self.use_transactional_tests = false

  def after_teardown
    super
    connection.truncate_tables("users", "sessions", "tokens", "carts", "cart_items")
  end
end

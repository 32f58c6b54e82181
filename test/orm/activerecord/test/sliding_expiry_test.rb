# frozen_string_literal: true

require "test_helper"

class SlidingExpiryTest < ApplicationTest
  setup do
    @session = Session.create!(user: new_user, data: { page: "/home" })
  end

  test "touch restarts the countdown and does not send the document" do
    let_pass 20.minutes
    statement = capture_update { assert @session.touch }
    assert_match(/SET "updated_at" = /, statement)
    assert_no_match(/"data"/, statement)

    let_pass 20.minutes
    assert_equal({ "page" => "/home" }, Session.find(@session.id).data)
    let_pass 10.minutes
    assert_nil Session.find_by(id: @session.id)
  end

  test "touch_all restarts the countdown of many records without loading them" do
    let_pass 20.minutes
    assert_equal 1, Session.where(user: @session.user).touch_all
    let_pass 20.minutes
    assert Session.exists?(@session.id)
    let_pass 10.minutes
    assert_not Session.exists?(@session.id)
  end

  test "a save without a change does not write, so the countdown continues" do
    let_pass 20.minutes
    assert @session.save
    let_pass 10.minutes
    assert_not Session.exists?(@session.id)
  end

  test "touch needs updated_at, or the name of a column" do
    model = Class.new(ActiveRecord::Base) do
      self.table_name = "tokens"
      self.ignored_columns += %w[updated_at]
    end
    token = model.create!(code: "A", data: { ttl: 60 })
    let_pass 40.seconds
    assert token.touch # true, but there was nothing to write
    let_pass 19.seconds
    assert token.touch(:_ts) # the server sets its own time
    let_pass 59.seconds
    assert model.exists?(token.id)
    let_pass 1.second
    assert_not model.exists?(token.id)
  end

  private

  # Returns the UPDATE statement that the block runs.
  def capture_update
    statements = []
    record = ->(*, payload) { statements << payload[:sql] if payload[:sql].start_with?("UPDATE") }
    ActiveSupport::Notifications.subscribed(record, "sql.active_record") { yield }
    assert_equal 1, statements.size
    statements.first
  end
end

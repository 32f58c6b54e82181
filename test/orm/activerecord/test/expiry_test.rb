# frozen_string_literal: true

require "test_helper"

class ExpiryTest < ApplicationTest
  test "a document without a ttl inherits the DefaultTTL" do
    session = Session.create!(user: new_user, data: { page: "/home" })
    let_pass 1799.seconds
    assert_equal({ "page" => "/home" }, Session.find(session.id).data)
    let_pass 1.second
    assert_nil Session.find_by(id: session.id)
  end

  test "a document can have its own ttl" do
    session = Session.create!(user: new_user, ttl: 7200)
    let_pass 7199.seconds
    assert_equal 7200, session.reload.ttl
    let_pass 1.second
    assert_nil Session.find_by(id: session.id)
  end

  test "a document with a ttl of -1 never expires" do
    session = Session.create!(user: new_user, ttl: -1)
    let_pass 10.years
    assert_equal session, Session.find(session.id)
  end

  test "after its ttl is set to nil, a document inherits the DefaultTTL again" do
    session = Session.create!(user: new_user, ttl: -1)
    session.update!(ttl: nil)
    let_pass 1800.seconds
    assert_not Session.exists?(session.id)
  end

  test "the model has a read-only _ts and no other system columns" do
    assert_equal %w[id user_id data created_at updated_at _ts], Session.column_names
    session = Session.create!(user: new_user)
    assert_raises(ActiveRecord::ActiveRecordError) { session.update_columns(_ts: 1.day.ago) }
  end

  test "the server sets _ts, and a reload reads it" do
    before = server_time
    session = Session.create!(user: new_user)
    assert_includes before..server_time, session.reload._ts
  end

  test "the server replaces a _ts from the client" do
    before = server_time
    session = Session.create!(user: new_user, _ts: 10.years.from_now)
    assert_includes before..server_time, session.reload._ts

    assert_equal 1, Session.where(id: session.id).update_all(_ts: 10.years.from_now)
    assert_includes before..server_time, session.reload._ts
  end

  test "a model without special code for the system columns may write all columns" do
    naive = Class.new(ActiveRecord::Base) do
      self.table_name = "tokens"
      # Rails 7 writes all columns in inserts by default, Rails 6 only with this setting.
      respond_to?(:partial_inserts=) ? self.partial_inserts = self.partial_updates = false : self.partial_writes = false
    end
    token = naive.create!(code: "A", data: { ttl: 60 })
    written = token.reload._ts
    token.update!(data: { ttl: 120 }) # also sends the old _ts, _ttl and _slot
    assert_operator token.reload._ts, :>, written
    assert_equal 120, token._ttl
  end

  test "an expired record is not found" do
    session = Session.create!(user: new_user)
    let_pass 1800.seconds
    assert_raises(ActiveRecord::RecordNotFound) { Session.find(session.id) }
    assert_raises(ActiveRecord::RecordNotFound) { session.reload }
    assert_raises(ActiveRecord::RecordNotFound) { session.lock! }
    assert_nil Session.find_by(id: session.id)
    assert_not Session.exists?(session.id)
    assert_empty Session.where(id: session.id)
  end

  test "the query cache of a request still returns a record that has expired" do
    session = Session.create!(user: new_user)
    Session.cache do
      assert Session.find_by(id: session.id)
      let_pass 1800.seconds
      assert Session.find_by(id: session.id)
      assert_nil Session.uncached { Session.find_by(id: session.id) }
    end
  end

  private

  def server_time
    connection.select_value("SELECT clock_timestamp()")
  end
end

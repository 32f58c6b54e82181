# frozen_string_literal: true

require "test_helper"

class UpsertTest < ApplicationTest
  test "upsert updates a live record" do
    token = Token.create!(code: "A", ttl: 60)
    let_pass 59.seconds
    assert_equal token.id, upsert("A", { ttl: 60, uses: 2 })
    let_pass 59.seconds # the upsert restarted the countdown
    assert_equal 2, token.reload.data["uses"]
  end

  test "upsert inserts a new record in place of an expired one" do
    token = Token.create!(code: "A", ttl: 60, created_at: 1.year.ago)
    let_pass 60.seconds
    id = upsert("A", { ttl: 60, uses: 1 })
    assert_not_equal token.id, id
    assert_operator Token.find(id).created_at, :>, 1.minute.ago # not the value of the expired record
    assert_equal [id], Token.where(code: "A").ids
  end

  test "upsert_all updates live records and replaces expired ones" do
    expired = Token.create!(code: "A", ttl: 60)
    live = Token.create!(code: "B")
    let_pass 60.seconds
    rows = %w[A B C].map { |code| { code: code, data: { by: "upsert" } } }
    ids = Token.upsert_all(rows, unique_by: :code, returning: %w[code id]).rows.to_h
    assert_equal %w[A B C], ids.keys
    assert_equal live.id, ids["B"]
    assert_not_equal expired.id, ids["A"]
    assert_equal ["upsert"] * 3, Token.order(:code).pluck(Arel.sql("data ->> 'by'"))
  end

  test "insert_all skips live records and replaces expired ones" do
    Token.create!(code: "A", ttl: 60)
    Token.create!(code: "B")
    let_pass 60.seconds
    inserted = Token.insert_all([{ code: "A" }, { code: "B" }, { code: "C" }], unique_by: :code, returning: :code)
    assert_equal [["A"], ["C"]], inserted.rows
    assert_equal %w[A B C], Token.order(:code).pluck(:code)
  end

  test "insert_all! inserts many documents, each with its own ttl" do
    Token.insert_all!((1..100).map { |n| { code: "T#{n}", data: { ttl: n } } })
    let_pass 40.seconds
    assert_equal 60, Token.count
  end

  private

  # Returns the id: that of the existing record after an update, a new one after an insert.
  def upsert(code, data)
    Token.upsert({ code: code, data: data }, unique_by: :code, returning: :id).rows.first.first
  end
end

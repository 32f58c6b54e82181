# frozen_string_literal: true

require "test_helper"

class InvalidTtlTest < ApplicationTest
  test "an invalid ttl is a statement error with the message and the hint of the server" do
    error = assert_raises(ActiveRecord::StatementInvalid) { Token.create!(code: "A", ttl: 0) }
    assert_kind_of PG::InvalidParameterValue, error.cause
    assert_match(/invalid "ttl" in a document of "tokens": 0$/, error.message)
    assert_match(/HINT:  A ttl is an integer from 1 to 2147483647 \(seconds\) or -1/, error.message)
  end

  test "a ttl that is a string, for example from a form, is invalid" do
    error = assert_raises(ActiveRecord::StatementInvalid) { Token.create!(code: "A", ttl: "60") }
    assert_match(/invalid "ttl" in a document of "tokens": "60"$/, error.message)
  end

  test "an update to an invalid ttl does not change the record" do
    token = Token.create!(code: "A", ttl: 60)
    assert_raises(ActiveRecord::StatementInvalid) do
      Token.transaction(requires_new: true) { token.update!(ttl: 1.5) }
    end
    assert_equal 60, token.reload.ttl
  end

  test "an invalid ttl in a savepoint does not abort the surrounding transaction" do
    Token.transaction do
      Token.create!(code: "A")
      assert_raises(ActiveRecord::StatementInvalid) do
        Token.transaction(requires_new: true) { Token.create!(code: "B", ttl: 0) }
      end
      Token.create!(code: "C")
    end
    assert_equal %w[A C], Token.order(:code).pluck(:code)
  end
end

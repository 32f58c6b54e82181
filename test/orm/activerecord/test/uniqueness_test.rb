# frozen_string_literal: true

require "test_helper"

class UniquenessTest < ApplicationTest
  test "a key that a live record holds is taken" do
    Token.create!(code: "A", ttl: 60)
    let_pass 59.seconds
    assert_equal ["Code has already been taken"], Token.create(code: "A").errors.full_messages
    assert_raises(ActiveRecord::RecordNotUnique) { Token.new(code: "A").save!(validate: false) }
  end

  test "a key that an expired record holds is free, and the validation agrees" do
    old = Token.create!(code: "A", ttl: 60)
    let_pass 60.seconds
    token = Token.create!(code: "A", ttl: 60)
    assert_not_equal old.id, token.id
    assert_equal [token], Token.where(code: "A")
  end

  test "an update can take the key of an expired record" do
    Token.create!(code: "A", ttl: 60)
    token = Token.create!(code: "B")
    let_pass 60.seconds
    token.update!(code: "A")
    assert_equal token, Token.find_by!(code: "A")
  end

  test "find_or_create_by and create_or_find_by replace an expired record" do
    old = Token.create!(code: "A", ttl: 60)
    assert_equal old, Token.find_or_create_by!(code: "A")
    let_pass 60.seconds
    new = Token.create_or_find_by!(code: "A")
    assert_not_equal old, new
    assert_equal new, Token.find_or_create_by!(code: "A")
  end
end

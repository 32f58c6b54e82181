# frozen_string_literal: true

require "test_helper"

class PaginationTest < ApplicationTest
  setup do
    # Every second of ten tokens expires after a minute.
    Token.insert_all!((0..9).map { |n| { code: "T#{n}", data: n.odd? ? { ttl: 60 } : {} } })
    let_pass 60.seconds
  end

  test "counts and aggregates leave out expired records" do
    assert_equal 5, Token.count
    assert_equal 5, Token.all.load.size
    assert_equal "T8", Token.maximum(:code)
    assert_equal({ nil => 5 }, Token.group("data ->> 'ttl'").count)
  end

  test "pages by limit and offset are full" do
    pages = (0..2).map { |page| Token.order(:code).limit(2).offset(2 * page).pluck(:code) }
    assert_equal [%w[T0 T2], %w[T4 T6], %w[T8]], pages
  end

  test "pages by key are full" do
    pages = [Token.order(:code).first(2)]
    pages << Token.where("code > ?", pages.last.last.code).order(:code).first(2) until pages.last.size < 2
    assert_equal [%w[T0 T2], %w[T4 T6], %w[T8]], pages.map { |page| page.map(&:code) }
  end

  test "batches are full" do
    assert_equal [%w[T0 T2], %w[T4 T6], %w[T8]],
                 Token.find_in_batches(batch_size: 2).map { |batch| batch.map(&:code) }
  end
end

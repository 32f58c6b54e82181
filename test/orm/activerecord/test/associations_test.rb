# frozen_string_literal: true

require "test_helper"

class AssociationsTest < ApplicationTest
  setup do
    @cart = Cart.create!
    @item = @cart.items.create!(data: { sku: "lamp" })
    @brief = @cart.items.create!(data: { sku: "chair", ttl: 60 })
  end

  test "every way to load an association skips expired children" do
    let_pass 60.seconds
    assert_equal [@item], Cart.find(@cart.id).items
    assert_equal [@item], Cart.preload(:items).find(@cart.id).items
    assert_equal [@item], Cart.includes(:items).find(@cart.id).items
    assert_equal [@item], Cart.eager_load(:items).find(@cart.id).items
    assert_equal [@cart], Cart.joins(:items)
    assert_equal 1, @cart.items.count
  end

  test "a cart whose items have all expired is a cart without items" do
    let_pass 900.seconds
    assert_empty Cart.eager_load(:items).find(@cart.id).items
    assert_equal [@cart], Cart.where.missing(:items)
  end

  test "the parent of a record is nil once it has expired" do
    @item.update!(ttl: -1)
    let_pass 1.day
    item = CartItem.includes(:cart).find(@item.id)
    assert_nil item.cart
    assert_empty CartItem.joins(:cart)
  end

  test "an expired parent gets no new children" do
    let_pass 1.day
    # belongs_to looks for it when it has only the key ...
    assert_equal ["Cart must exist"], CartItem.new(cart_id: @cart.id).tap(&:validate).errors.full_messages
    # ... and the foreign key holds when it has an object that was loaded before.
    assert_raises(ActiveRecord::InvalidForeignKey) { CartItem.create!(cart: @cart) }
  end

  test "a parent with a live child cannot be deleted, one with an expired child can" do
    session = Session.create!(user: new_user)
    assert_raises(ActiveRecord::InvalidForeignKey) do
      User.transaction(requires_new: true) { session.user.destroy }
    end
    let_pass 1800.seconds
    assert_predicate session.user.destroy, :destroyed?
  end

  test "on_delete: :cascade takes live children along" do
    @cart.reload.destroy
    assert_empty CartItem.where(cart_id: @cart.id)
  end

  test "on_delete: :cascade lets the purge take children along that would live longer" do
    @item.update!(ttl: -1)
    let_pass 1.day
    assert CartItem.exists?(@item.id)
    connection.execute("CALL ttl_docs.purge('carts')") # what happens in the background, soon
    assert_not CartItem.exists?(@item.id)
  end

  test "a change of an item keeps its cart alive, by touch: true" do
    let_pass 23.hours
    @cart.items.create!(data: { sku: "desk" })
    let_pass 23.hours
    assert Cart.exists?(@cart.id)
    let_pass 1.hour
    assert_not Cart.exists?(@cart.id)
  end
end

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

  test "an expired parent is nil" do
    @item.update!(ttl: -1)
    let_pass 1.day
    item = CartItem.includes(:cart).find(@item.id)
    assert_nil item.cart
    assert_empty CartItem.joins(:cart)
  end

  test "an expired parent gets no new children" do
    let_pass 1.day
    # With only the key, the validation of belongs_to looks up the cart.
    assert_equal ["Cart must exist"], CartItem.new(cart_id: @cart.id).tap(&:validate).errors.full_messages
    # With a cart that was loaded earlier, the foreign key refuses the item.
    assert_raises(ActiveRecord::InvalidForeignKey) { CartItem.create!(cart: @cart) }
  end

  test "a parent with a live child cannot be deleted, a parent with an expired child can" do
    session = Session.create!(user: new_user)
    assert_raises(ActiveRecord::InvalidForeignKey) do
      User.transaction(requires_new: true) { session.user.destroy }
    end
    let_pass 1800.seconds
    assert_predicate session.user.destroy, :destroyed?
  end

  test "on_delete: :cascade deletes live children" do
    @cart.reload.destroy
    assert_empty CartItem.where(cart_id: @cart.id)
  end

  test "with on_delete: :cascade, the purge of a parent deletes its live children" do
    @item.update!(ttl: -1)
    let_pass 1.day
    assert CartItem.exists?(@item.id)
    connection.execute("CALL ttl_docs.purge('carts')") # as a worker does in the background
    assert_not CartItem.exists?(@item.id)
  end

  test "with touch: true, a change of an item restarts the countdown of its cart" do
    let_pass 23.hours
    @cart.items.create!(data: { sku: "desk" })
    let_pass 23.hours
    assert Cart.exists?(@cart.id)
    let_pass 1.hour
    assert_not Cart.exists?(@cart.id)
  end
end

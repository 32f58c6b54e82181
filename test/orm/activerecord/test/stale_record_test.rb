# frozen_string_literal: true

require "test_helper"

# Records that expire after they were loaded.
class StaleRecordTest < ApplicationTest
  test "without a lock_version, saving an expired record succeeds and writes nothing" do
    session = Session.create!(user: new_user)
    let_pass 1800.seconds
    assert session.update(data: { page: "/cart" }) # as for a deleted row
    assert_not Session.exists?(session.id)
  end

  test "update_all and touch report that they did not find an expired record" do
    session = Session.create!(user: new_user)
    let_pass 1800.seconds
    assert_equal 0, Session.where(id: session.id).update_all(data: { page: "/cart" })
    assert_equal 0, Session.where(id: session.id).touch_all
    assert_equal false, session.touch
  end

  test "with a lock_version, saving an expired record raises" do
    cart = Cart.create!
    let_pass 1.day
    assert_raises(ActiveRecord::StaleObjectError) { cart.update(data: { note: "gift" }) }
    assert_raises(ActiveRecord::StaleObjectError) { cart.touch }
  end

  test "with a lock_version, saving a live record writes it" do
    cart = Cart.create!
    let_pass 1.day - 1.second
    cart.update!(data: { note: "gift" })
    assert_equal({ "note" => "gift" }, cart.reload.data)
    assert_equal 1, cart.lock_version
  end

  test "with_lock does not find an expired record" do
    session = Session.create!(user: new_user)
    let_pass 1800.seconds
    assert_raises(ActiveRecord::RecordNotFound) { session.with_lock { flunk } }
  end

  test "without a lock_version, destroying an expired record succeeds" do
    session = Session.create!(user: new_user)
    let_pass 1800.seconds
    assert_predicate session.destroy, :destroyed?
  end

  test "with a lock_version, destroying an expired record raises" do
    cart = Cart.create!
    let_pass 1.day
    assert_raises(ActiveRecord::StaleObjectError) { cart.destroy }
  end

  test "delete and destroy by condition do not count expired records" do
    old = ago(1.hour) { Session.create!(user: new_user) }
    live = Session.create!(user: new_user)
    assert_equal 0, Session.delete(old.id)
    assert_equal [live], Session.destroy_by(id: [old.id, live.id])
  end
end

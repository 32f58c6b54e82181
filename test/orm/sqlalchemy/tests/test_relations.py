from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import joinedload, selectinload

from shop.models import Cart, CartItem, User, UserSession
from tests.support import HOUR, DatabaseTest


class RelationTest(DatabaseTest):
    def new_cart(self, cart_ttl=-1, item_ttls=(60, -1)):
        items = [CartItem(doc={"n": n, "ttl": ttl}) for n, ttl in enumerate(item_ttls)]
        return self.save(Cart(doc={"ttl": cart_ttl}, items=items)).id

    def count(self, model):
        return self.session.scalar(select(func.count()).select_from(model))


class Loading(RelationTest):
    def test_eager_and_lazy_loads_leave_out_expired_children(self):
        self.new_cart()
        self.travel(HOUR)
        for name, options in (
            ("selectinload", [selectinload(Cart.items)]),
            ("joinedload", [joinedload(Cart.items)]),
            ("lazy", []),
        ):
            with self.subTest(name):
                cart = self.session.execute(select(Cart).options(*options)).unique().scalar_one()
                self.assertEqual([item.doc["n"] for item in cart.items], [1])
                self.session.close()

    def test_a_parent_whose_children_have_all_expired_is_still_loaded(self):
        self.new_cart(item_ttls=[60, 60])
        self.travel(HOUR)
        cart = self.session.execute(select(Cart).options(joinedload(Cart.items))).unique().scalar_one()
        self.assertEqual(cart.items, [])

    def test_the_expired_parent_of_a_live_child_is_none(self):
        self.new_cart(cart_ttl=60, item_ttls=[-1])
        self.travel(HOUR)
        for name, options in (
            ("selectinload", [selectinload(CartItem.cart)]),
            ("joinedload", [joinedload(CartItem.cart)]),
            ("lazy", []),
        ):
            with self.subTest(name):
                item = self.session.scalars(select(CartItem).options(*options)).one()
                self.assertIsNone(item.cart)
                self.session.close()

    def test_an_inner_join_leaves_out_a_child_of_an_expired_parent(self):
        self.new_cart(cart_ttl=60, item_ttls=[-1])
        self.travel(HOUR)
        for name, items in (
            ("join", select(CartItem).join(CartItem.cart)),
            ("joinedload", select(CartItem).options(joinedload(CartItem.cart, innerjoin=True))),
        ):
            with self.subTest(name):
                self.assertEqual(self.session.scalars(items).all(), [])


class ForeignKeys(RelationTest):
    def test_an_expired_parent_gets_no_children(self):
        cart_id = self.new_cart(cart_ttl=60)
        self.travel(HOUR)
        self.session.add(CartItem(cart_id=cart_id, doc={}))
        with self.assertRaisesRegex(IntegrityError, "cart_items_cart_id_fkey"):
            self.session.commit()

    def test_a_loaded_parent_that_has_expired_gets_no_children(self):
        cart = self.session.get(Cart, self.new_cart(cart_ttl=60))
        self.assertEqual(len(cart.items), 2)
        self.travel(HOUR)
        cart.items.append(CartItem(doc={}))
        with self.assertRaisesRegex(IntegrityError, "cart_items_cart_id_fkey"):
            self.session.commit()

    def test_deleting_a_parent_deletes_live_and_expired_children(self):
        cart = self.session.get(Cart, self.new_cart())
        self.travel(HOUR)
        self.session.delete(cart)
        self.session.commit()
        self.assertEqual((self.count(Cart), self.count(CartItem)), (0, 0))

    def test_deleting_a_parent_with_loaded_expired_children_raises_no_warning(self):
        cart = self.session.get(Cart, self.new_cart())
        self.assertEqual(len(cart.items), 2)
        self.travel(HOUR)
        self.session.delete(cart)
        with self.assertNoWarnings():
            self.session.commit()
        self.assertEqual((self.count(Cart), self.count(CartItem)), (0, 0))

    def test_a_live_child_blocks_the_delete_of_its_parent(self):
        user = self.new_user()
        self.save(UserSession(user=user, doc={}))
        self.session.delete(user)
        with self.assertRaisesRegex(IntegrityError, "sessions_user_id_fkey"):
            self.session.commit()

    def test_an_expired_child_does_not_block_the_delete_of_its_parent(self):
        user = self.new_user()
        self.save(UserSession(user=user, doc={}))
        self.travel(HOUR)
        self.session.delete(user)
        self.session.commit()
        self.assertEqual(self.count(User), 0)

    def test_a_new_parent_with_the_key_of_an_expired_one_does_not_get_its_children(self):
        cart_id = self.new_cart(cart_ttl=60, item_ttls=[-1])
        self.travel(HOUR)
        self.session.close()
        cart = self.save(Cart(id=cart_id, doc={}))
        self.assertEqual(cart.items, [])
        self.assertEqual(self.count(CartItem), 0)

"""Foreign keys.  Django creates them as DEFERRABLE INITIALLY DEFERRED, so COMMIT checks them."""

from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.test import TestCase, TransactionTestCase

from shop.models import Cart, CartItem, Session

from .clock import TimeTravelMixin, travel

FOR_EVER = {"ttl": -1}
A_MINUTE = {"ttl": 60}


class LoadingTests(TimeTravelMixin, TestCase):
    def test_prefetching_skips_expired_children(self):
        cart = Cart.objects.create(data=FOR_EVER)
        CartItem.objects.create(cart=cart, sku="short", data=A_MINUTE)
        CartItem.objects.create(cart=cart, sku="long", data=FOR_EVER)
        travel(60)
        cart = Cart.objects.prefetch_related("items").get()
        self.assertEqual([item.sku for item in cart.items.all()], ["long"])

    def test_a_child_can_outlive_its_parent(self):
        cart = Cart.objects.create(data=A_MINUTE)
        CartItem.objects.create(cart=cart, sku="long", data=FOR_EVER)
        travel(60)
        item = CartItem.objects.get()
        with self.assertRaises(Cart.DoesNotExist):
            item.cart
        # select_related() leaves the item out: the column is not null, so Django uses an inner join.
        self.assertEqual(CartItem.objects.select_related("cart").count(), 1)
        self.assertEqual(list(CartItem.objects.select_related("cart")), [])

    def test_a_filter_over_the_relation_finds_only_live_children(self):
        cart = Cart.objects.create(data=FOR_EVER)
        CartItem.objects.create(cart=cart, sku="short", data=A_MINUTE)
        self.assertEqual(Cart.objects.get(items__sku="short"), cart)
        travel(60)
        self.assertIs(Cart.objects.filter(items__sku="short").exists(), False)


class DeferredForeignKeyTests(TimeTravelMixin, TransactionTestCase):
    def setUp(self):
        super().setUp()
        self.cart = Cart.objects.create(data=A_MINUTE)

    def test_a_child_of_an_expired_parent_cannot_be_created(self):
        travel(60)
        with self.assertRaisesMessage(IntegrityError, "violates foreign key constraint"):
            CartItem.objects.create(cart=self.cart, sku="late")
        self.assertEqual(CartItem.objects.count(), 0)

    def test_in_a_transaction_the_commit_fails(self):
        travel(60)
        with self.assertRaisesMessage(IntegrityError, "violates foreign key constraint"):
            with transaction.atomic():
                CartItem.objects.create(cart=self.cart, sku="late")
                self.assertEqual(CartItem.objects.count(), 1)
        self.assertEqual(CartItem.objects.count(), 0)

    def test_constraints_can_be_checked_before_the_commit(self):
        travel(60)
        with transaction.atomic():
            CartItem.objects.create(cart=self.cart, sku="late")
            with self.assertRaisesMessage(IntegrityError, "violates foreign key constraint"), transaction.atomic():
                connection.check_constraints()
            transaction.set_rollback(True)

    def test_a_parent_that_expires_before_the_commit_is_missing(self):
        with self.assertRaisesMessage(IntegrityError, "violates foreign key constraint"):
            with transaction.atomic():
                CartItem.objects.create(cart=self.cart, sku="late")
                travel(60)
        self.assertEqual(CartItem.objects.count(), 0)

    def test_a_child_can_be_created_before_the_parent_that_takes_the_expired_key(self):
        travel(60)
        with transaction.atomic():
            CartItem.objects.create(cart_id=self.cart.pk, sku="early")
            Cart.objects.create(pk=self.cart.pk, data=FOR_EVER)
        self.assertEqual(CartItem.objects.select_related("cart").get().cart.data, FOR_EVER)

    def test_live_children_of_an_expired_parent_belong_to_the_parent_that_takes_its_key(self):
        item = CartItem.objects.create(cart=self.cart, sku="long", data=FOR_EVER)
        travel(60)
        cart = Cart.objects.create(pk=self.cart.pk)
        self.assertEqual(cart.items.get(), item)

    def test_with_immediate_constraints_live_children_block_the_key_of_an_expired_parent(self):
        CartItem.objects.create(cart=self.cart, sku="long", data=FOR_EVER)
        travel(60)
        with self.assertRaisesMessage(IntegrityError, "violates foreign key constraint"), transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            Cart.objects.create(pk=self.cart.pk)


class DeletingTests(TimeTravelMixin, TransactionTestCase):
    def setUp(self):
        super().setUp()
        self.ann = User.objects.create(username="ann")
        self.cart = Cart.objects.create(data=FOR_EVER)

    def test_live_children_are_deleted_and_counted(self):
        CartItem.objects.create(cart=self.cart, sku="long", data=FOR_EVER)
        self.assertEqual(self.cart.delete(), (2, {"shop.CartItem": 1, "shop.Cart": 1}))

    def test_expired_children_do_not_block_the_delete_and_are_not_counted(self):
        CartItem.objects.create(cart=self.cart, sku="short", data=A_MINUTE)
        travel(60)
        self.assertEqual(self.cart.delete(), (1, {"shop.Cart": 1}))
        self.assertEqual(Cart.objects.count(), 0)

    def test_expired_children_do_not_block_the_delete_of_a_row_in_a_plain_table(self):
        Session.objects.create(user=self.ann)
        travel(1800)
        self.assertEqual(self.ann.delete(), (1, {"auth.User": 1}))
        self.assertEqual(User.objects.count(), 0)

    def test_the_foreign_key_refuses_a_delete_that_skips_djangos_cascade(self):
        CartItem.objects.create(cart=self.cart, sku="long", data=FOR_EVER)
        with self.assertRaisesMessage(IntegrityError, "violates foreign key constraint"):
            Cart.objects.all()._raw_delete("default")

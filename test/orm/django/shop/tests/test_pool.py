"""Through pgbouncer in transaction mode: the alias "pool" of the settings."""

from django.db import DataError, connections, transaction
from django.test import TransactionTestCase

from shop.models import Cart, Token


def travel_in_transaction(seconds):
    """SET LOCAL: the next transaction may be in another session, which must not notice."""
    with connections["pool"].cursor() as cursor:
        cursor.execute("SET LOCAL ttl_docs.clock_offset = %s", [seconds])


class PoolTests(TransactionTestCase):
    databases = {"default", "pool"}

    def setUp(self):
        super().setUp()
        self.cart = Cart.objects.using("pool").create(data={"note": "gift"})

    def test_reads_and_writes(self):
        self.cart.data["note"] = "no gift"
        self.cart.save()
        self.assertEqual(Cart.objects.using("pool").get().data, {"note": "no gift"})
        self.assertEqual(Cart.objects.using("default").get().data, {"note": "no gift"})
        self.assertEqual(self.cart.delete(), (1, {"shop.Cart": 1}))

    def test_it_expires(self):
        with transaction.atomic(using="pool"):
            travel_in_transaction(1500)
            self.assertEqual(Cart.objects.using("pool").count(), 1)
            travel_in_transaction(1800)
            self.assertEqual(Cart.objects.using("pool").count(), 0)
        self.assertEqual(Cart.objects.using("pool").count(), 1)

    def test_an_upsert_over_an_expired_one_inserts(self):
        token = Token.objects.using("pool").create(email="ann@example.org", data={"ttl": 60})
        with transaction.atomic(using="pool"):
            travel_in_transaction(60)
            again = Token.objects.using("pool").upsert("ann@example.org", {"ttl": 60})
        self.assertGreater(again.pk, token.pk)

    def test_iterators_go_without_a_server_side_cursor(self):
        Cart.objects.using("pool").bulk_create([Cart() for _ in range(10)])
        carts = Cart.objects.using("pool").iterator(chunk_size=2)
        next(carts)
        with connections["pool"].cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_cursors")
            self.assertEqual(cursor.fetchone(), (0,))
        self.assertEqual(len(list(carts)), 10)

    def test_an_error_leaves_the_connection_usable(self):
        with self.assertRaises(DataError):
            Cart.objects.using("pool").create(data={"ttl": 0})
        self.assertEqual(Cart.objects.using("pool").count(), 1)

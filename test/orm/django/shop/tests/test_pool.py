"""Through pgbouncer in transaction mode: the database "pool" of the settings."""

from django.db import DataError, connections, transaction
from django.test import TransactionTestCase

from shop.models import Cart, Token


def travel_in_transaction(seconds):
    """Moves the clock with SET LOCAL, because other clients share the server connection."""
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

    def test_documents_expire(self):
        with transaction.atomic(using="pool"):
            travel_in_transaction(1500)
            self.assertEqual(Cart.objects.using("pool").count(), 1)
            travel_in_transaction(1800)
            self.assertEqual(Cart.objects.using("pool").count(), 0)
        self.assertEqual(Cart.objects.using("pool").count(), 1)

    def test_an_upsert_replaces_an_expired_token(self):
        token = Token.objects.using("pool").create(email="ann@example.org", data={"ttl": 60})
        with transaction.atomic(using="pool"):
            travel_in_transaction(60)
            again = Token.objects.using("pool").upsert("ann@example.org", {"ttl": 60})
        self.assertGreater(again.pk, token.pk)

    def test_iterators_use_no_server_side_cursor(self):
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

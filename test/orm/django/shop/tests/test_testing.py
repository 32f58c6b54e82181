"""Django's own test tools with collections."""

from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from django.core.management import call_command
from django.test import TestCase, TransactionTestCase

from shop.models import Cart

from .clock import TimeTravelMixin, travel


class ClassDataTests(TimeTravelMixin, TestCase):
    """Each test finds the data of setUpTestData(), wherever other tests moved the clock."""

    @classmethod
    def setUpTestData(cls):
        cls.cart = Cart.objects.create(data={"ttl": 60})

    def test_one_test_moves_the_clock(self):
        travel(60)
        self.assertEqual(Cart.objects.count(), 0)

    def test_another_test_moves_the_clock_and_takes_the_key(self):
        travel(60)
        Cart.objects.create(pk=self.cart.pk, data={"note": "new"})
        self.assertEqual(Cart.objects.get().data, {"note": "new"})

    def test_another_test_leaves_the_clock_alone(self):
        self.assertEqual(Cart.objects.get(), self.cart)
        self.assertEqual(Cart.objects.get().data, {"ttl": 60})


class FixtureTests(TimeTravelMixin, TestCase):
    def setUp(self):
        super().setUp()
        directory = TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.fixture = Path(directory.name) / "carts.json"

    def test_dumpdata_leaves_out_expired_documents_and_loaddata_restarts_the_countdown(self):
        Cart.objects.create(data={"ttl": 60})
        cart = Cart.objects.create(data={"ttl": 600})
        travel(500)
        call_command("dumpdata", "shop.cart", output=str(self.fixture), verbosity=0)
        Cart.objects.all().delete()

        call_command("loaddata", str(self.fixture), verbosity=0)
        loaded = Cart.objects.get()
        self.assertEqual((loaded.pk, loaded.data), (cart.pk, {"ttl": 600}))
        self.assertGreaterEqual(loaded.written_at, cart.written_at + timedelta(seconds=500))


class FlushTests(TimeTravelMixin, TransactionTestCase):
    """Every TransactionTestCase ends with TRUNCATE."""

    def test_a_truncated_table_is_still_a_collection(self):
        Cart.objects.create()
        call_command("flush", interactive=False, verbosity=0)
        self.assertEqual(Cart.objects.count(), 0)
        Cart.objects.create()
        travel(1500)
        self.assertEqual(Cart.objects.count(), 1)
        travel(1800)
        self.assertEqual(Cart.objects.count(), 0)

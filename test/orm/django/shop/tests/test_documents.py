"""Expiry of single documents, and Django's behaviour with expired ones."""

from datetime import datetime, timedelta, timezone

from django.contrib.auth.models import User
from django.db import DatabaseError, DataError, connection, transaction
from django.test import TestCase, TransactionTestCase

from shop.models import Cart, Session

from .clock import TimeTravelMixin, travel

HALF_AN_HOUR = 1800  # the DefaultTTL of sessions and carts
LONG_AGO = datetime(2001, 1, 1, tzinfo=timezone.utc)


def server_time():
    with connection.cursor() as cursor:
        cursor.execute("SELECT ttl_docs.now()")
        return cursor.fetchone()[0]


class TimeToLiveTests(TimeTravelMixin, TestCase):
    def test_a_document_without_a_ttl_inherits_the_default_ttl(self):
        Cart.objects.create()
        travel(HALF_AN_HOUR - 300)
        self.assertEqual(Cart.objects.count(), 1)
        travel(HALF_AN_HOUR)
        self.assertEqual(Cart.objects.count(), 0)

    def test_a_document_can_have_its_own_ttl(self):
        Cart.objects.create(data={"ttl": 7200})
        travel(6900)
        self.assertEqual(Cart.objects.count(), 1)
        travel(7200)
        self.assertEqual(Cart.objects.count(), 0)

    def test_a_document_with_ttl_minus_one_never_expires(self):
        Cart.objects.create(data={"ttl": -1})
        travel(50 * 365 * 86400)
        self.assertEqual(Cart.objects.count(), 1)

    def test_the_insert_returns_written_at(self):
        before = server_time()
        cart = Cart.objects.create()
        self.assertLess(before, cart.written_at)
        self.assertLess(cart.written_at, server_time())
        with self.assertNumQueries(1):
            cart.refresh_from_db(fields=["written_at"])

    def test_written_at_is_stale_after_an_update_until_it_is_refreshed(self):
        cart = Cart.objects.create()
        first = cart.written_at
        travel(60)
        cart.save()
        self.assertEqual(cart.written_at, first)
        cart.refresh_from_db()
        self.assertGreaterEqual(cart.written_at, first + timedelta(seconds=60))

    def test_the_server_replaces_a_written_at_from_the_client(self):
        before = server_time()
        cart = Cart.objects.create(written_at=LONG_AGO)
        self.assertLess(before, cart.written_at)

        cart.written_at = LONG_AGO
        cart.save()
        cart.refresh_from_db()
        self.assertLess(before, cart.written_at)

        Cart.objects.update(written_at=LONG_AGO)
        cart.refresh_from_db()
        self.assertLess(before, cart.written_at)


class ExpiredTests(TimeTravelMixin, TestCase):
    """Objects that expired after they were loaded."""

    def setUp(self):
        super().setUp()
        ann = User.objects.create(username="ann")
        self.session = Session.objects.create(user=ann, data={"device": "phone"})
        self.cart = Cart.objects.create(data={"note": "gift"})
        travel(HALF_AN_HOUR)

    def test_reading_an_expired_object_raises_does_not_exist(self):
        with self.assertRaises(Session.DoesNotExist):
            Session.objects.get(pk=self.session.pk)
        with self.assertRaises(Session.DoesNotExist):
            self.session.refresh_from_db()
        self.assertIsNone(Session.objects.filter(data__device="phone").first())
        self.assertIs(Session.objects.filter(pk=self.session.pk).exists(), False)

    def test_djangos_save_inserts_an_expired_object_again(self):
        self.cart.data["note"] = "no gift"
        with self.assertNumQueries(2) as context:
            self.cart.save()
        statements = [query["sql"].split()[0] for query in context.captured_queries]
        self.assertEqual(statements, ["UPDATE", "INSERT"])
        again = Cart.objects.get()
        self.assertEqual((again.pk, again.data), (self.cart.pk, {"note": "no gift"}))

    def test_a_forced_update_raises_database_error(self):
        with self.assertRaisesMessage(DatabaseError, "Forced update did not affect any rows."):
            with transaction.atomic():  # every error of save() aborts the transaction
                self.cart.save(force_update=True)
        self.assertEqual(Cart.objects.count(), 0)

    def test_an_update_of_some_fields_raises_database_error(self):
        with self.assertRaisesMessage(DatabaseError, "Save with update_fields did not affect any rows."):
            with transaction.atomic():
                self.cart.save(update_fields=["data"])
        self.assertEqual(Cart.objects.count(), 0)

    def test_a_model_can_force_its_updates(self):
        with self.assertRaisesMessage(DatabaseError, "Forced update did not affect any rows."):
            with transaction.atomic():
                self.session.save()
        self.assertEqual(Session.objects.count(), 0)

    def test_update_of_a_queryset_reports_zero_rows(self):
        self.assertEqual(Cart.objects.filter(pk=self.cart.pk).update(data={}), 0)

    def test_deleting_an_expired_object_reports_zero_rows(self):
        self.assertEqual(self.session.delete(), (0, {"shop.Session": 0}))
        self.assertEqual(Session.objects.all().delete(), (0, {}))


class OptimisticLockingTests(TimeTravelMixin, TestCase):
    """written_at changes with every write, so it can serve as the version of a row."""

    def setUp(self):
        super().setUp()
        self.cart = Cart.objects.create()

    def update_if_unchanged(self):
        return Cart.objects.filter(pk=self.cart.pk, written_at=self.cart.written_at).update(data={"note": "mine"})

    def test_an_unchanged_document_is_updated(self):
        self.assertEqual(self.update_if_unchanged(), 1)

    def test_a_changed_document_is_not_updated(self):
        Cart.objects.get().save()
        self.assertEqual(self.update_if_unchanged(), 0)

    def test_an_expired_document_is_not_updated(self):
        travel(HALF_AN_HOUR)
        self.assertEqual(self.update_if_unchanged(), 0)

    def test_a_new_document_with_the_same_key_is_not_updated(self):
        travel(HALF_AN_HOUR)
        Cart.objects.create(pk=self.cart.pk)
        self.assertEqual(self.update_if_unchanged(), 0)


class TouchTests(TimeTravelMixin, TestCase):
    """Sliding expiry: each use of a session restarts its countdown."""

    def setUp(self):
        super().setUp()
        ann = User.objects.create(username="ann")
        self.session = Session.objects.create(user=ann, data={"device": "phone"})

    def test_touching_restarts_the_countdown(self):
        travel(1000)
        self.assertEqual(Session.objects.filter(pk=self.session.pk).touch(), 1)
        travel(2000)
        self.assertEqual(Session.objects.filter(pk=self.session.pk).touch(), 1)
        travel(3500)
        self.assertEqual(Session.objects.get().data, {"device": "phone"})
        travel(3800)
        self.assertEqual(Session.objects.filter(pk=self.session.pk).touch(), 0)

    def test_save_with_update_fields_touches_an_instance(self):
        travel(1000)
        self.session.save(update_fields=["written_at"])
        travel(2500)
        self.assertEqual(Session.objects.count(), 1)
        travel(2800)
        with self.assertRaises(DatabaseError), transaction.atomic():
            self.session.save(update_fields=["written_at"])

    def test_touching_does_not_send_the_document(self):
        with self.assertNumQueries(1) as context:
            Session.objects.filter(pk=self.session.pk).touch()
        self.assertNotIn("data", context.captured_queries[0]["sql"])


class InvalidTtlTests(TransactionTestCase):
    MESSAGES = {
        0: 'invalid "ttl" in a document of "shop_cart": 0',
        "60": 'invalid "ttl" in a document of "shop_cart": "60"',
    }

    def test_an_invalid_ttl_raises_data_error_with_the_servers_message(self):
        for ttl, message in self.MESSAGES.items():
            with self.subTest(ttl=ttl):
                with self.assertRaisesMessage(DataError, message):
                    Cart.objects.create(data={"ttl": ttl})
        self.assertEqual(Cart.objects.count(), 0)

    def test_an_update_to_an_invalid_ttl_changes_nothing(self):
        cart = Cart.objects.create(data={"ttl": 60})
        with self.assertRaises(DataError):
            Cart.objects.update(data={"ttl": 0})
        cart.refresh_from_db()
        self.assertEqual(cart.data, {"ttl": 60})

    def test_with_a_savepoint_the_transaction_continues(self):
        with transaction.atomic():
            Cart.objects.create(data={"note": "before"})
            with self.assertRaises(DataError), transaction.atomic():
                Cart.objects.create(data={"ttl": 0})
            Cart.objects.create(data={"note": "after"})
        self.assertEqual(Cart.objects.count(), 2)

    def test_without_a_savepoint_the_transaction_is_aborted(self):
        with transaction.atomic():
            Cart.objects.create()
            with self.assertRaises(DataError):
                Cart.objects.create(data={"ttl": 0})
            with self.assertRaises(transaction.TransactionManagementError):
                Cart.objects.count()
            transaction.set_rollback(True)
        self.assertEqual(Cart.objects.count(), 0)

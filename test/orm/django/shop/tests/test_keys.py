"""Unique keys and upserts."""

import django
from django.core.exceptions import ValidationError
from django.db import IntegrityError, OperationalError, connection, transaction
from django.forms import modelform_factory
from django.test import TestCase, TransactionTestCase

from shop.models import Cart, CartItem, Token
from shop.retry import SERIALIZATION_FAILURE, retry_serialization_failures

from .clock import TimeTravelMixin, travel

ANN = "ann@example.org"


class UniqueKeyTests(TimeTravelMixin, TestCase):
    def setUp(self):
        super().setUp()
        self.token = Token.objects.create(email=ANN, data={"ttl": 60})

    def test_the_key_of_a_live_token_is_taken(self):
        with self.assertRaises(IntegrityError), transaction.atomic():
            Token.objects.create(email=ANN)

    def test_the_key_of_an_expired_token_is_free(self):
        travel(60)
        token = Token.objects.create(email=ANN)
        self.assertEqual(Token.objects.get(), token)
        self.assertNotEqual(token.pk, self.token.pk)

    def test_the_primary_key_of_an_expired_token_is_free(self):
        travel(60)
        Token.objects.create(pk=self.token.pk, email=ANN, data={"note": "new"})
        self.assertEqual(Token.objects.get().data, {"note": "new"})

    def test_an_update_can_take_the_key_of_an_expired_token(self):
        bob = Token.objects.create(email="bob@example.org")
        travel(60)
        bob.email = ANN
        bob.save()
        self.assertEqual(Token.objects.get(email=ANN), bob)

    def test_validation_ignores_an_expired_token(self):
        with self.assertRaisesMessage(ValidationError, "Token with this Email already exists."):
            Token(email=ANN, data={"ttl": 60}).full_clean()
        travel(60)
        Token(email=ANN, data={"ttl": 60}).full_clean()

    def test_a_form_ignores_an_expired_token(self):
        TokenForm = modelform_factory(Token, fields=["email"])
        self.assertIs(TokenForm({"email": ANN}).is_valid(), False)
        travel(60)
        form = TokenForm({"email": ANN})
        self.assertIs(form.is_valid(), True)
        self.assertNotEqual(form.save().pk, self.token.pk)


class UpsertTests(TimeTravelMixin, TestCase):
    """All kinds of upserts keep a live token, and insert a new token in place of an expired one."""

    def setUp(self):
        super().setUp()
        self.token = Token.objects.create(email=ANN, data={"uses": 1, "ttl": 60})

    def assertKept(self, token, data):
        self.assertEqual(token, self.token)
        self.assertEqual(Token.objects.get().data, data)

    def assertNew(self, token, data):
        self.assertGreater(token.pk, self.token.pk)
        self.assertEqual(Token.objects.get(), token)
        self.assertEqual(Token.objects.get().data, data)

    def test_get_or_create_over_a_live_one(self):
        token, created = Token.objects.get_or_create(email=ANN, defaults={"data": {"uses": 0}})
        self.assertIs(created, False)
        self.assertKept(token, {"uses": 1, "ttl": 60})

    def test_get_or_create_over_an_expired_one(self):
        travel(60)
        token, created = Token.objects.get_or_create(email=ANN, defaults={"data": {"uses": 0}})
        self.assertIs(created, True)
        self.assertNew(token, {"uses": 0})

    def test_update_or_create_over_a_live_one(self):
        token, created = Token.objects.update_or_create(email=ANN, defaults={"data": {"uses": 2}})
        self.assertIs(created, False)
        self.assertKept(token, {"uses": 2})

    def test_update_or_create_over_an_expired_one(self):
        travel(60)
        token, created = Token.objects.update_or_create(email=ANN, defaults={"data": {"uses": 2}})
        self.assertIs(created, True)
        self.assertNew(token, {"uses": 2})

    def test_on_conflict_do_update_over_a_live_one(self):
        written_at = self.token.written_at
        token = Token.objects.upsert(ANN, {"uses": 3})
        self.assertKept(token, {"uses": 3})
        self.assertGreater(token.written_at, written_at)

    def test_on_conflict_do_update_over_an_expired_one(self):
        travel(60)
        self.assertNew(Token.objects.upsert(ANN, {"uses": 3}), {"uses": 3})

    def test_ignore_conflicts_over_a_live_one(self):
        Token.objects.bulk_create([Token(email=ANN, data={"uses": 4})], ignore_conflicts=True)
        self.assertKept(Token.objects.get(), {"uses": 1, "ttl": 60})

    def test_ignore_conflicts_over_an_expired_one(self):
        travel(60)
        Token.objects.bulk_create([Token(email=ANN, data={"uses": 4})], ignore_conflicts=True)
        self.assertNew(Token.objects.get(), {"uses": 4})

    if django.VERSION >= (4, 1):

        def bulk_upsert(self, data):
            Token.objects.bulk_create(
                [Token(email=ANN, data=data)],
                update_conflicts=True,
                unique_fields=["email"],
                update_fields=["data"],
            )

        def test_update_conflicts_over_a_live_one(self):
            self.bulk_upsert({"uses": 5})
            self.assertKept(Token.objects.get(), {"uses": 5})

        def test_update_conflicts_over_an_expired_one(self):
            travel(60)
            self.bulk_upsert({"uses": 5})
            self.assertNew(Token.objects.get(), {"uses": 5})


class RetryTests(TimeTravelMixin, TransactionTestCase):
    """SQLSTATE 40001: the token expires after the upsert finds it and before the upsert writes it."""

    def setUp(self):
        super().setUp()
        self.token = Token.objects.create(email=ANN, data={"ttl": 60})
        self.attempts = 0

    def let_updates_of_tokens_take_a_minute(self):
        with connection.cursor() as cursor:
            cursor.execute(
                """
                CREATE FUNCTION take_a_minute() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN
                    PERFORM set_config('ttl_docs.clock_offset', '60', false);
                    RETURN NEW;
                END $$;
                CREATE TRIGGER slow BEFORE UPDATE ON shop_token FOR EACH ROW EXECUTE FUNCTION take_a_minute()
                """
            )
        self.addCleanup(self.let_updates_be_quick)

    def let_updates_be_quick(self):
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION take_a_minute CASCADE")

    def upsert(self, late_attempts):
        self.attempts += 1
        if self.attempts > late_attempts:
            travel(60)
        return Token.objects.upsert(ANN, {"uses": 1})

    def test_on_conflict_do_update_fails_if_the_token_expires_meanwhile(self):
        self.let_updates_of_tokens_take_a_minute()
        with self.assertRaises(OperationalError) as context:
            Token.objects.upsert(ANN, {"uses": 1})
        self.assertEqual(context.exception.__cause__.diag.sqlstate, SERIALIZATION_FAILURE)

    def test_the_retry_inserts(self):
        self.let_updates_of_tokens_take_a_minute()
        token = retry_serialization_failures(self.upsert)(late_attempts=2)
        self.assertEqual(self.attempts, 3)
        self.assertGreater(token.pk, self.token.pk)

    def test_the_number_of_attempts_is_limited(self):
        self.let_updates_of_tokens_take_a_minute()
        with self.assertRaises(OperationalError):
            retry_serialization_failures(self.upsert)(late_attempts=3)
        self.assertEqual(self.attempts, 3)

    def test_other_errors_are_not_retried(self):
        @retry_serialization_failures
        def insert_twice():
            self.attempts += 1
            Token.objects.create(email=ANN)

        with self.assertRaises(IntegrityError):
            insert_twice()
        self.assertEqual(self.attempts, 1)

    def test_above_read_committed_any_update_may_fail_with_a_serialization_failure(self):
        with self.assertRaises(OperationalError) as context, transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            self.assertEqual(Token.objects.count(), 1)  # from here on this transaction sees the token
            travel(60)
            Token.objects.update_or_create(email=ANN, defaults={"data": {"uses": 1}})
        self.assertEqual(context.exception.__cause__.diag.sqlstate, SERIALIZATION_FAILURE)


class BulkTests(TimeTravelMixin, TestCase):
    def test_bulk_create_returns_keys_and_written_at(self):
        carts = Cart.objects.bulk_create([Cart(data={"ttl": ttl}) for ttl in (60, 120, -1)])
        self.assertEqual(
            [(cart.pk, cart.written_at) for cart in carts],
            list(Cart.objects.order_by("pk").values_list("pk", "written_at")),
        )
        for seconds, alive in (0, 3), (60, 2), (120, 1):
            travel(seconds)
            self.assertEqual(Cart.objects.count(), alive)

    def test_bulk_create_replaces_expired_documents(self):
        cart = Cart.objects.create(data={"ttl": -1})
        skus = [f"sku-{number}" for number in range(100)]
        CartItem.objects.bulk_create([CartItem(cart=cart, sku=sku, data={"round": 1}) for sku in skus])
        travel(1800)
        CartItem.objects.bulk_create([CartItem(cart=cart, sku=sku, data={"round": 2}) for sku in skus])
        self.assertEqual(CartItem.objects.filter(data__round=2).count(), 100)
        self.assertEqual(CartItem.objects.count(), 100)

"""Saving and deleting objects that expired, or that others wrote, after they were loaded."""
from datetime import timedelta

from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import OperationalError, SAWarning
from sqlalchemy.orm import sessionmaker
from sqlalchemy.orm.exc import ObjectDeletedError, StaleDataError

from shop.database import SERIALIZATION_FAILURE, Session, engine
from shop.models import Cart, CartItem, Token
from tests.support import DAY, HOUR, DatabaseTest


class WithoutVersion(DatabaseTest):
    def setUp(self):
        super().setUp()
        self.token = self.save(Token(code="old", doc={"ttl": 60}))
        self.assertEqual(self.token.code, "old")
        self.travel(HOUR)

    def test_saving_an_expired_object_raises_stale_data_error(self):
        self.token.doc["used"] = True
        with self.assertRaisesRegex(StaleDataError, r"expected to update 1 row\(s\); 0 were matched"):
            self.session.commit()
        self.session.rollback()
        self.assertEqual(self.session.scalar(select(func.count()).select_from(Token)), 0)

    def test_touching_an_expired_object_raises_stale_data_error(self):
        self.token.touch()
        with self.assertRaises(StaleDataError):
            self.session.commit()

    def test_saving_an_expired_object_that_was_unloaded_raises_object_deleted_error(self):
        self.session.expire_all()
        self.token.doc = {"used": True}
        with self.assertRaises(ObjectDeletedError):
            self.session.commit()

    def test_setting_ttl_minus_one_on_an_expired_object_raises_stale_data_error(self):
        self.token.doc["ttl"] = -1
        with self.assertRaises(StaleDataError):
            self.session.commit()

    def test_deleting_an_expired_object_raises_only_a_warning(self):
        self.session.delete(self.token)
        with self.assertWarnsRegex(SAWarning, r"expected to delete 1 row\(s\); 0 were matched"):
            self.session.commit()

    def test_statements_report_zero_rows(self):
        self.assertEqual(self.session.execute(update(Token).values(code="new")).rowcount, 0)
        self.assertEqual(self.session.execute(delete(Token)).rowcount, 0)

    def test_merging_an_expired_object_inserts_a_new_one(self):
        self.session.close()
        expired_at = self.token._ts + timedelta(seconds=60)
        merged = self.session.merge(self.token)
        self.session.commit()
        self.assertEqual((merged.id, merged.code), (self.token.id, "old"))
        self.assertGreater(merged._ts, expired_at)


class WithConfirmDeletedRowsOff(DatabaseTest):
    def test_deleting_an_expired_object_raises_no_warning(self):
        item = self.save(CartItem(cart=Cart(doc={"ttl": -1}), doc={"ttl": 60}))
        self.assertEqual(item._ttl, 60)
        self.travel(HOUR)
        self.session.delete(item)
        with self.assertNoWarnings():
            self.session.commit()


class WithTsAsVersion(DatabaseTest):
    def setUp(self):
        super().setUp()
        self.cart = self.save(Cart(doc={"owner": "ann"}))
        self.assertEqual(self.cart.doc, {"owner": "ann"})

    def test_saving_an_expired_object_raises_stale_data_error(self):
        self.travel(2 * DAY)
        self.cart.doc["owner"] = "bob"
        with self.assertRaises(StaleDataError):
            self.session.commit()

    def test_deleting_an_expired_object_raises_stale_data_error(self):
        self.travel(2 * DAY)
        self.session.delete(self.cart)
        with self.assertRaises(StaleDataError):
            self.session.commit()

    def test_saving_an_object_that_another_session_has_saved_raises_stale_data_error(self):
        with Session.begin() as somebody_else:
            theirs = somebody_else.get(Cart, self.cart.id)
            theirs.doc["owner"] = "bob"
        self.cart.doc["owner"] = "cleo"
        with self.assertRaises(StaleDataError):
            self.session.commit()
        self.session.rollback()
        self.assertEqual(self.cart.doc, {"owner": "bob"})

    def test_one_session_can_save_several_times(self):
        stamps = [self.cart._ts]
        for owner in ("bob", "cleo"):
            self.cart.doc["owner"] = owner
            self.session.flush()
            stamps.append(self.cart._ts)
        self.cart.touch()
        self.session.flush()
        stamps.append(self.cart._ts)
        self.assertEqual(stamps, sorted(set(stamps)))

        self.session.delete(self.cart)
        self.session.commit()
        self.assertEqual(self.session.scalar(select(func.count()).select_from(Cart)), 0)


class InRepeatableRead(DatabaseTest):
    """The transaction still sees an object after it expires, but a write to it fails."""

    def setUp(self):
        super().setUp()
        self.save(Token(code="old", doc={"ttl": 60}))
        repeatable_read = sessionmaker(engine.execution_options(isolation_level="REPEATABLE READ"), future=True)
        self.session = repeatable_read()
        self.addCleanup(self.session.close)
        self.token = self.session.scalars(select(Token)).one()
        self.travel(HOUR)

    def assert_serialization_failure(self):
        with self.assertRaises(OperationalError) as caught:
            self.session.commit()
        self.assertEqual(caught.exception.orig.pgcode, SERIALIZATION_FAILURE)

    def test_an_expired_object_stays_visible(self):
        self.session.refresh(self.token)
        self.assertEqual(self.session.scalar(select(func.count()).select_from(Token)), 1)
        self.session.commit()
        self.assertEqual(self.session.scalar(select(func.count()).select_from(Token)), 0)

    def test_saving_an_expired_object_raises_a_serialization_failure(self):
        self.token.doc["used"] = True
        self.assert_serialization_failure()

    def test_deleting_an_expired_object_raises_a_serialization_failure(self):
        self.session.delete(self.token)
        self.assert_serialization_failure()

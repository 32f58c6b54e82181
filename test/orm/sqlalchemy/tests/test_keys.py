"""The keys of expired documents are free for INSERT, merge() and upserts."""
from uuid import uuid4


from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError, OperationalError

from shop.database import SERIALIZATION_FAILURE, run_in_transaction
from shop.models import Token, UserSession
from shop.tokens import issue_token
from tests.support import HOUR, DatabaseTest, clock


class UniqueKeys(DatabaseTest):
    def test_the_key_of_a_live_document_is_taken(self):
        self.save(Token(code="welcome", doc={"ttl": 60}))
        self.session.add(Token(code="welcome", doc={"ttl": 60}))
        with self.assertRaises(IntegrityError):
            self.session.commit()

    def test_the_key_of_an_expired_document_is_free(self):
        old = self.save(Token(code="welcome", doc={"ttl": 60}))
        old_id = old.id
        self.travel(HOUR)
        new = self.save(Token(code="welcome", doc={"ttl": 60}))
        self.assertNotEqual(new.id, old_id)
        self.assertEqual(self.session.scalars(select(Token)).all(), [new])

    def test_an_update_can_take_the_key_of_an_expired_document(self):
        self.save(Token(code="welcome", doc={"ttl": 60}))
        other = self.save(Token(code="other", doc={}))
        self.travel(HOUR)
        other.code = "welcome"
        self.session.commit()
        self.assertEqual(self.session.scalars(select(Token.code)).all(), ["welcome"])

    def test_merge_updates_a_live_document_and_replaces_an_expired_one(self):
        key = {"id": uuid4(), "user_id": self.new_user().id}
        for passing, doc in ((0, {"page": "/home"}), (0, {"page": "/cart"}), (HOUR, {"page": "/login"})):
            self.travel(passing)
            self.session.merge(UserSession(**key, doc=doc))
            self.session.commit()
            self.assertEqual(self.session.scalars(select(UserSession.doc)).all(), [doc])


class Upserts(DatabaseTest):
    def test_an_upsert_updates_a_live_document(self):
        first = issue_token(self.session, "welcome", {"ttl": 600, "n": 1})
        first_id, first_ts = first.id, first._ts
        second = issue_token(self.session, "welcome", {"ttl": 600, "n": 2})
        self.assertEqual((second.id, second.doc["n"]), (first_id, 2))
        self.assertGreater(second._ts, first_ts)

    def test_an_upsert_replaces_an_expired_document(self):
        first_id = issue_token(self.session, "welcome", {"ttl": 600, "n": 1}).id
        self.session.commit()
        self.travel(HOUR)
        second = issue_token(self.session, "welcome", {"ttl": 600, "n": 2})
        # The id is new, like any value that a server default sets.
        self.assertGreater(second.id, first_id)
        self.assertEqual(self.session.scalar(select(func.count()).select_from(Token)), 1)

    def test_do_nothing_replaces_an_expired_document(self):
        welcome = insert(Token).values(code="welcome", doc={"ttl": 600}).on_conflict_do_nothing().returning(Token.id)
        first = self.session.scalar(welcome)
        self.assertIsNone(self.session.scalar(welcome))
        self.session.commit()
        self.travel(HOUR)
        self.assertGreater(self.session.scalar(welcome), first)


class Retries(DatabaseTest):
    def setUp(self):
        super().setUp()
        self.old_id = self.save(Token(code="welcome", doc={"ttl": 600})).id
        self.session.close()
        self.attempts = 0

    def issue_while_the_old_one_expires(self, session):
        """Run an upsert that finds the old token before it expires, and writes it after."""
        self.attempts += 1
        session.connection()  # begin the transaction with the current clock
        clock.offset = HOUR
        an_hour_passes = func.set_config("ttl_docs.clock_offset", str(HOUR), True) != ""
        new = insert(Token).values(code="welcome", doc={"ttl": 600})
        upsert = new.on_conflict_do_update(
            index_elements=[Token.code], set_={"doc": new.excluded.doc}, where=an_hour_passes
        )
        return session.scalar(upsert.returning(Token.id))

    def test_an_upsert_is_retried_if_its_document_expires_meanwhile(self):
        new_id = run_in_transaction(self.issue_while_the_old_one_expires)
        self.assertEqual(self.attempts, 2)
        self.assertGreater(new_id, self.old_id)
        self.assertEqual(self.session.scalars(select(Token.id)).all(), [new_id])

    def test_the_number_of_attempts_is_limited(self):
        with self.assertRaises(OperationalError) as caught:
            run_in_transaction(self.issue_while_the_old_one_expires, attempts=1)
        self.assertEqual(caught.exception.orig.pgcode, SERIALIZATION_FAILURE)

    def test_other_errors_are_not_retried(self):
        def take_the_key(session):
            self.attempts += 1
            session.add(Token(code="welcome", doc={}))

        with self.assertRaises(IntegrityError):
            run_in_transaction(take_the_key)
        self.assertEqual(self.attempts, 1)

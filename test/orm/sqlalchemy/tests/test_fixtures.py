"""Common ways to start each test with an empty database."""
from sqlalchemy import delete, func, select, text

from shop.database import Session, engine
from shop.models import Base, Token, UserSession
from tests.support import HOUR, DatabaseTest


def count(session, model):
    return session.scalar(select(func.count()).select_from(model))


def count_on_disk(session, model):
    """Count the expired documents, too; pg_dump reads them with the same setting."""
    session.execute(text("SET LOCAL row_security = off"))
    on_disk = count(session, model)
    session.execute(text("SET LOCAL row_security = on"))
    return on_disk


class RollBack(DatabaseTest):
    """Each test runs in one transaction, and commits of the session do not end it."""

    def setUp(self):
        super().setUp()
        self.connection = engine.connect()
        self.addCleanup(self.connection.close)
        self.connection.begin()
        self.session = Session(bind=self.connection)
        self.addCleanup(self.session.close)

    def test_documents_expire_within_the_transaction(self):
        first = self.save(Token(code="welcome", doc={"ttl": 60}))
        second = self.save(Token(code="other", doc={"ttl": 60}))
        # _ts is the time of the write, not the start time of the transaction.
        self.assertGreater(second._ts, first._ts)

        self.travel(HOUR)
        self.assertEqual(count(self.session, Token), 0)
        self.save(Token(code="welcome", doc={"ttl": 60}))
        self.assertEqual(count(self.session, Token), 1)

    def test_the_rollback_leaves_nothing(self):
        self.save(Token(code="welcome", doc={"ttl": 60}))
        self.travel(HOUR)
        self.save(Token(code="welcome", doc={"ttl": 60}))
        self.connection.get_transaction().rollback()
        with Session() as session:
            self.assertEqual(count_on_disk(session, Token), 0)


class CleanUp(DatabaseTest):
    def setUp(self):
        super().setUp()
        self.save(UserSession(user=self.new_user(), doc={"ttl": 60}), Token(code="gone", doc={"ttl": 60}))
        self.travel(HOUR)

    def test_deleting_from_all_tables_leaves_expired_documents_on_disk_but_hidden(self):
        for table in reversed(Base.metadata.sorted_tables):
            self.session.execute(delete(table))
        self.session.commit()
        self.assertEqual(count_on_disk(self.session, Token), 1)
        self.assertEqual(count(self.session, Token), 0)
        # Their keys are free, so they do not affect the next test.
        self.save(UserSession(user=self.new_user(), doc={}), Token(code="gone", doc={}))

    def test_truncate_removes_expired_documents(self):
        self.session.execute(text("TRUNCATE sessions, tokens"))
        self.assertEqual(count_on_disk(self.session, UserSession), 0)
        self.assertEqual(count_on_disk(self.session, Token), 0)

"""Test cases with an empty database, a session and a clock that can be moved."""
import unittest
import warnings
from contextlib import contextmanager

from sqlalchemy import create_engine, event, select, text
from sqlalchemy.engine import Engine
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import NullPool

from shop.database import Session, engine
from shop.models import Base, User

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR


class Clock:
    """Sets the clock of all transactions of this program; other clients of the server are not affected."""

    offset = 0

    def set(self, connection):
        # LOCAL, because behind pgbouncer the next transaction may use another connection.
        connection.execute(text(f"SET LOCAL ttl_docs.clock_offset = {self.offset}"))


clock = Clock()
event.listen(Engine, "begin", clock.set)


class DatabaseTest(unittest.TestCase):
    def setUp(self):
        clock.offset = 0
        with engine.begin() as connection:
            tables = ", ".join(Base.metadata.tables)
            connection.execute(text(f"TRUNCATE {tables} RESTART IDENTITY"))
        self.session = Session()
        self.addCleanup(self.session.close)

    def travel(self, seconds):
        """Move the clock ahead, for the transaction of self.session and for later transactions."""
        clock.offset += seconds
        clock.set(self.session.connection())

    def save(self, *instances):
        """Commit the instances and return the first.  The commit unloads their attributes."""
        self.session.add_all(instances)
        self.session.commit()
        return instances[0]

    def new_user(self, email="ann@example.com"):
        return self.save(User(email=email))

    @contextmanager
    def assertNoWarnings(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield


class EmptySchemaTest(unittest.TestCase):
    """Its own empty schema stands for a new database that has the extension."""

    def setUp(self):
        clock.offset = 0
        with engine.begin() as connection:
            connection.execute(text("CREATE SCHEMA scratch"))
        self.addCleanup(self.drop_schema)
        self.engine = create_engine(
            "postgresql+psycopg2://",
            connect_args={"options": "-c search_path=scratch"},
            poolclass=NullPool,
            future=True,
        )
        self.sessions = sessionmaker(self.engine, future=True)

    def drop_schema(self):
        with engine.begin() as connection:
            connection.execute(text("DROP SCHEMA scratch CASCADE"))

    def default_ttls(self):
        """Return the DefaultTTL of each collection by name."""
        with self.engine.begin() as connection:
            collections = text(
                "SELECT relname, default_ttl FROM ttl_docs.collections JOIN pg_class ON pg_class.oid = collection"
                " WHERE relnamespace = 'scratch'::regnamespace"
            )
            return dict(connection.execute(collections).all())

    def assert_documents_expire(self, model, **values):
        """Write a document with a ttl of an hour, and check that it expires."""
        with self.sessions.begin() as session:
            session.add(model(doc={"ttl": HOUR}, **values))
        for passing, count in ((HOUR - MINUTE, 1), (2 * MINUTE, 0)):
            clock.offset += passing
            with self.sessions() as session:
                self.assertEqual(len(session.scalars(select(model)).all()), count)

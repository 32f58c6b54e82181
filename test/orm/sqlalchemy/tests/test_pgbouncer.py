"""Through pgbouncer in transaction mode, with the engine of shop/database.py."""
import os
from contextlib import ExitStack

from sqlalchemy import insert, select
from sqlalchemy.exc import DataError, OperationalError
from sqlalchemy.orm import sessionmaker
from sqlalchemy.orm.exc import StaleDataError

from shop.database import SERIALIZATION_FAILURE, run_in_transaction, pgbouncer_engine
from shop.models import Token
from shop.tokens import issue_token
from tests.support import HOUR, DatabaseTest


class ThroughPgbouncer(DatabaseTest):
    def setUp(self):
        super().setUp()
        self.engine = pgbouncer_engine(os.environ["POOL_HOST"], os.environ["POOL_PORT"])
        self.sessions = sessionmaker(self.engine, future=True)
        self.session = self.sessions()
        self.addCleanup(self.session.close)

    def test_documents_are_written_read_and_expire(self):
        token = self.save(Token(code="pooled", doc={"ttl": 60}))
        self.assertEqual((token.code, token._ttl), ("pooled", 60))
        token.doc["used"] = True
        self.session.commit()
        self.assertEqual(token.doc, {"used": True, "ttl": 60})

        self.travel(HOUR)
        self.assertIsNone(self.session.scalar(select(Token)))
        token.touch()
        with self.assertRaises(StaleDataError):
            self.session.commit()

    def test_more_clients_than_connections(self):
        # pgbouncer has four connections; each transaction gets a free one.
        with ExitStack() as stack:
            clients = [stack.enter_context(self.engine.connect()) for _ in range(10)]
            for n, client in enumerate(clients):
                with client.begin():
                    client.execute(insert(Token), {"code": f"client-{n}", "doc": {"ttl": 60}})
            for passing, count in ((0, 10), (HOUR, 0)):
                self.travel(passing)
                for client in clients:
                    with client.begin():
                        self.assertEqual(len(client.execute(select(Token.id)).all()), count)

    def test_upserts(self):
        def issue(session):
            return issue_token(session, "welcome", {"ttl": 600}).id

        first = run_in_transaction(issue, self.sessions)
        self.assertEqual(run_in_transaction(issue, self.sessions), first)
        self.travel(HOUR)
        self.assertGreater(run_in_transaction(issue, self.sessions), first)

    def test_an_invalid_ttl(self):
        self.session.add(Token(code="bad", doc={"ttl": 0}))
        with self.assertRaises(DataError):
            self.session.commit()
        self.session.rollback()
        self.save(Token(code="good", doc={"ttl": 60}))

    def test_server_side_cursors(self):
        self.save(*(Token(code=f"row-{n}", doc={"ttl": 60}) for n in range(10)))
        rows = self.session.scalars(select(Token.code), execution_options={"yield_per": 2})
        self.assertEqual(len(list(rows)), 10)

    def test_repeatable_read(self):
        self.save(Token(code="old", doc={"ttl": 60}))
        repeatable_read = self.engine.execution_options(isolation_level="REPEATABLE READ")
        with sessionmaker(repeatable_read, future=True)() as self.session:
            token = self.session.scalars(select(Token)).one()
            self.travel(HOUR)
            token.touch()
            with self.assertRaises(OperationalError) as caught:
                self.session.commit()
        self.assertEqual(caught.exception.orig.pgcode, SERIALIZATION_FAILURE)

"""The way to the database: engines, sessions, transactions."""
from sqlalchemy import create_engine
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import NullPool

SERIALIZATION_FAILURE = "40001"

# Without a host in the URL, libpq goes by PGHOST, PGDATABASE and so on.
engine = create_engine("postgresql+psycopg2://", future=True)
Session = sessionmaker(engine, future=True)


def pgbouncer_engine(host, port):
    """An engine for a pgbouncer in transaction mode.

    pgbouncer is the pool, so there is none here.  psycopg2 has nothing to be
    turned off: it prepares no statements on the server, and its server-side
    cursors end with their transaction.
    """
    url = URL.create("postgresql+psycopg2", query={"host": host, "port": port})
    return create_engine(url, poolclass=NullPool, future=True)


def run_in_transaction(work, sessions=Session, attempts=3):
    """Return work(session), done in a transaction of its own.

    It is done again from the start where the database asks for that: also
    ON CONFLICT DO UPDATE does so, when a document expires under its hands.
    """
    for attempt in range(1, attempts + 1):
        try:
            with sessions.begin() as session:
                return work(session)
        except DBAPIError as error:
            if error.orig.pgcode != SERIALIZATION_FAILURE or attempt == attempts:
                raise

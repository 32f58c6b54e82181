"""Engines, sessions and transactions."""
from sqlalchemy import create_engine
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import NullPool

SERIALIZATION_FAILURE = "40001"

# Without a host in the URL, libpq uses PGHOST, PGDATABASE and so on.
engine = create_engine("postgresql+psycopg2://", future=True)
Session = sessionmaker(engine, future=True)


def pgbouncer_engine(host, port):
    """Return an engine for a pgbouncer in transaction mode.

    pgbouncer is the pool, so the engine has none.  psycopg2 needs no settings:
    it prepares no statements on the server, and its server-side cursors end
    with their transaction.
    """
    url = URL.create("postgresql+psycopg2", query={"host": host, "port": port})
    return create_engine(url, poolclass=NullPool, future=True)


def run_in_transaction(work, sessions=Session, attempts=3):
    """Run work(session) in its own transaction and return the result.

    Retry the transaction after a serialization failure.  ON CONFLICT DO UPDATE
    fails this way if its document expires during the statement.
    """
    for attempt in range(1, attempts + 1):
        try:
            with sessions.begin() as session:
                return work(session)
        except DBAPIError as error:
            if error.orig.pgcode != SERIALIZATION_FAILURE or attempt == attempts:
                raise

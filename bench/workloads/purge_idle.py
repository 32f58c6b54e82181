"""The purge on an idle server, against one DELETE of as many rows by an index.

The purge counts from the moment it is allowed to, until the last document is gone, with
the start of its worker.  The DELETE is what a user would run by hand: one transaction.
"""

from measure import Line, at_least
from tables import drop_all, make_docs

AGE = 100000        # seconds; all is expired


def measure(bench):
    ours, theirs = [], []
    for _ in range(max(3, bench.scale.rounds // 2)):
        drop_all(bench.server)
        make_docs(bench.server, bench.scale.rows, age=AGE)
        theirs.append(bench.scale.rows / delete_by_hand(bench.server))
        ours.append(bench.scale.rows / purge(bench.server, bench.scale.rows))
    return [Line('purge of %s expired, idle server' % format(bench.scale.rows, ','),
                 'one DELETE of the same rows by index', 'rows/s', ours, theirs, at_least(0.90))]


def delete_by_hand(server):
    """Seconds for a copy of the table with the same columns and indexes."""
    everything = server.connect(ttl_docs__show_expired='on')
    server.sql('CREATE TABLE plain AS SELECT * FROM docs', everything)
    everything.close()
    server.sql('ALTER TABLE plain ADD PRIMARY KEY (id)')
    server.sql('CREATE INDEX ON plain (_slot) WHERE _slot IS NOT NULL')
    server.sql('VACUUM ANALYZE plain')
    server.sql('CHECKPOINT')
    server.sql('SET enable_seqscan = off')
    taken = server.seconds('DELETE FROM plain WHERE _slot < 0')
    server.sql('RESET enable_seqscan')
    server.sql('DROP TABLE plain')
    server.sql('CHECKPOINT')
    return taken


def purge(server, count):
    """Seconds until all is purged."""
    server.sql("ALTER SYSTEM SET ttl_docs.purge = on")
    began = server.sql('SELECT clock_timestamp()')
    server.sql('SELECT pg_reload_conf()')
    server.wait_until("purged >= %d FROM ttl_docs.stat_collections WHERE collection = 'docs'::regclass" % count)
    ended = server.sql("SELECT last_purge FROM ttl_docs.stat_collections WHERE collection = 'docs'::regclass")
    server.configure(ttl_docs__purge='off')
    return (ended - began).total_seconds()

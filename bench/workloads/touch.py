"""Sessions: documents of 30 minutes, each touched every five seconds.

As many documents as one client touches in five seconds, so that real time has its part:
the slot in the purge index changes with it, and then an update cannot be HOT.  WAL is that
of touches in between by EXPLAIN, without the commit, which is the same on both sides.
"""

from measure import Line, at_least, at_most, compare_transactions
from tables import make_docs, make_plain, random_id

TTL = 1800
INTERVAL = 5
WAL_SAMPLES = 3000

TOUCH = ('UPDATE docs SET _ts = DEFAULT WHERE id = :i;', 'UPDATE plain SET ts = now() WHERE id = :i;')


def measure(bench):
    server = bench.server
    count = how_many(bench)
    make_tables(server, count)
    scripts = [random_id(count) + script for script in TOUCH]
    compare_transactions(server, scripts, bench.scale)      # until pages are as they stay
    server.sql('VACUUM docs, plain')
    before = updates(server)
    docs, plain = compare_transactions(server, scripts, bench.scale)
    wal_docs, wal_plain = wal_bytes(server, count)
    hot = 100 * (updates(server)[1] - before[1]) / (updates(server)[0] - before[0])
    what = 'touch every 5 s, ttl 30 min'
    return [
        Line(what, 'same table, no TTL', 'tps', docs, plain, at_least(0.90)),
        Line(what + ': WAL', 'same table, no TTL', 'bytes', [wal_docs], [wal_plain], at_most(1.15)),
        Line(what + ': HOT', '', '%', [hot], goal=at_least(90)),
    ]


def make_tables(server, count):
    make_docs(server, 0, default_ttl=TTL)
    make_plain(server, 0, columns=', ts timestamptz')
    for table in ('docs', 'plain'):
        server.sql('ALTER TABLE %s SET (fillfactor = 80)' % table)
        server.sql("INSERT INTO %s (id, doc) SELECT n::text, jsonb_build_object('user', n, 'cart', repeat('x', 120))"
                   " FROM generate_series(1, %d) AS n" % (table, count))
        server.sql('VACUUM ANALYZE ' + table)


def how_many(bench):
    """As many documents as one of two sides that take turns touches in the interval."""
    make_tables(bench.server, 10000)
    docs, plain = compare_transactions(bench.server, [random_id(10000) + script for script in TOUCH],
                                       bench.scale.with_rounds(1))
    bench.empty()
    return int(INTERVAL / (1 / docs[0] + 1 / plain[0]))


def updates(server):
    """Updates of the collection so far, and those of them that were HOT."""
    connection = server.connect()       # a new one, which sees the newest statistics
    found = server.rows("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'docs'", connection)
    connection.close()
    return found[0]


def wal_bytes(server, count):
    """The mean WAL of a touch, on both sides, while a load touches the others."""
    scripts = [random_id(count) + script for script in TOUCH]
    load = server.pgbench(scripts, '-c', '1', '-T', '5')
    total = [0, 0]
    for sample in range(WAL_SAMPLES):
        for side, script in enumerate(TOUCH):
            ident = "'%d'" % (sample * 7919 % count + 1)
            plan = server.sql('EXPLAIN (ANALYZE, WAL, TIMING off, FORMAT json) ' + script.replace(':i', ident))
            total[side] += plan[0]['Plan']['WAL Bytes']
    load.transactions()
    return [wal / WAL_SAMPLES for wal in total]

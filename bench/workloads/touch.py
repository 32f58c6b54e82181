"""Sessions: documents that live for 30 minutes, each touched every five seconds.

Throughput is that of one client, which touches random documents.  HOT updates and WAL are those of some
minutes in which each document is touched every five seconds.  Every 64 seconds a document moves to another
slot of the purge index, and then its update cannot be HOT.  The workload moves the clock instead of waiting.

The third table has a BEFORE UPDATE trigger of core, in C, that does nothing here.  Core locks the row before
it calls any such trigger, and writes this lock to WAL.
"""

import time

from measure import Line, at_least, at_most, compare_transactions
from tables import make_docs, make_plain, random_id

TTL = 1800
INTERVAL = 5
ROWS = 10000
TOUCHED = 1000      # rows that are touched to measure HOT updates and WAL
TURNS = 64          # this number of intervals is a whole number of slots

TOUCH = {'docs': 'UPDATE docs SET _ts = DEFAULT WHERE id = :i;',
         'plain': 'UPDATE plain SET ts = now() WHERE id = :i;',
         'triggered': 'UPDATE triggered SET ts = now() WHERE id = :i;'}
TRIGGERED = (
    'CREATE TABLE triggered (LIKE plain INCLUDING ALL)',
    'CREATE TRIGGER nothing BEFORE UPDATE ON triggered FOR EACH ROW'
    ' EXECUTE FUNCTION suppress_redundant_updates_trigger()')


def measure(bench):
    server = bench.server
    make_docs(server, 0, default_ttl=TTL)
    make_plain(server, 0, columns=', ts timestamptz')
    for statement in TRIGGERED:
        server.sql(statement)
    for table in TOUCH:
        server.sql('ALTER TABLE %s SET (fillfactor = 80)' % table)
        server.sql("INSERT INTO %s (id, doc) SELECT n::text, jsonb_build_object('user', n, 'cart', repeat('x', 120))"
                   " FROM generate_series(1, %d) AS n" % (table, ROWS))
        server.sql('VACUUM ANALYZE ' + table)
    docs, plain, triggered = compare_transactions(
        server, [random_id(ROWS) + script for script in TOUCH.values()], bench.scale)
    before = updates(server)
    wal = {'docs': some_minutes(server, 'docs', TURNS)}
    after = updates(server)
    # these tables have no slots
    wal.update({table: some_minutes(server, table, TURNS // 4) for table in ('plain', 'triggered')})
    server.sql('DROP TABLE triggered')
    what = 'touch every 5 s, ttl 30 min'
    return [
        Line(what, 'same table, no TTL', 'tps', docs, plain, at_least(0.90)),
        Line(what, 'same table, a trigger that does nothing', 'tps', docs, triggered),
        Line(what + ': WAL of a touch', 'same table, no TTL', 'bytes', [wal['docs']], [wal['plain']]),
        Line(what + ': WAL of a touch', 'same table, a trigger that does nothing', 'bytes', [wal['docs']],
             [wal['triggered']], at_most(1.10)),
        Line(what + ': HOT', '', '%', [100 * (after[1] - before[1]) / (after[0] - before[0])], goal=at_least(90)),
    ]


def some_minutes(server, table, turns):
    """Touches each document every five seconds.  Returns the mean WAL of a touch."""
    script = '\\set i :i + 1\n' + TOUCH[table]
    before = server.wal_bytes()
    began = time.monotonic()
    for turn in range(turns):
        passed = round(time.monotonic() - began)
        server.pgbench([script], '-c', '1', '-t', str(TOUCHED), '-D', 'i=0',
                       settings={'ttl_docs__clock_offset': turn * INTERVAL - passed}).transactions()
    return (server.wal_bytes() - before) / (turns * TOUCHED)


def updates(server):
    """Number of updates of the collection so far, and of HOT updates."""
    connection = server.connect()       # a new connection sees the newest statistics
    found = server.rows("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'docs'", connection)
    connection.close()
    return found[0]

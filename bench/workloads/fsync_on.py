"""The cost of a collection on a server that syncs its WAL to disk at every commit, as servers do by default.

All other workloads run with fsync off.  Here each commit waits for the disk, on both sides.  With one client, both
sides take turns after each transaction.  With several clients, both sides take turns after each run of pgbench: the
commits of clients that run at the same time share a sync, so the sides must not run at the same time.

The workers of the purge commit with synchronous_commit = off, and the DELETE is one transaction.  So neither side of
that line waits for the disk after each row.
"""

import os
import time

from measure import Line, compare_clients, compare_transactions
from tables import insert_into, make_docs, make_plain, random_id, sent_document
from workloads.purge_idle import purge_and_delete

SECTION = ('With fsync on',
           '`fsync` and `synchronous_commit` are on, as by default, so each commit waits for the disk. How much a collection'
           ' costs then depends on the disk: the first line shows how long a sync takes on this one. The slower the sync,'
           ' the closer the ratio of small transactions comes to 1.')
SETTINGS = 'fsync = on\nsynchronous_commit = on\n'
CLIENTS = 8
SYNCS = 200

MANY_ROWS = 'INSERT INTO {0} (id, doc) SELECT gen_random_uuid(), :doc::jsonb FROM generate_series(1, 1000);'


def measure(bench):
    server = bench.another_server('fsync_on', 'ttl_docs', settings=SETTINGS)
    count = bench.scale.rows // 10
    make_docs(server, count)
    make_plain(server, count, columns=', ts timestamptz')
    syncs = [seconds_of_sync(server.directory) * 1000 for _ in range(bench.scale.rounds)]
    lines = [Line('a write of 8 kB and a sync of the file', '', 'ms', syncs)]
    for what, script in operations(count):
        scripts = [script('docs', '_ts = DEFAULT'), script('plain', 'ts = now()')]
        server.sql('CHECKPOINT')
        one = compare_transactions(server, scripts, bench.scale, options=sent_document())
        lines.append(Line(what + ', 1 client', 'same table, no TTL', 'tps', *one))
        many = compare_clients(server, scripts, bench.scale, CLIENTS, options=sent_document())
        lines.append(Line('%s, %d clients' % (what, CLIENTS), 'same table, no TTL', 'tps', *many))
    lines.append(Line('purge of %s expired, idle server' % format(bench.scale.rows, ','),
                      'one DELETE of the same rows by index', 'rows/s', *purge_and_delete(server, bench.scale)))
    server.stop()
    return lines


def operations(count):
    """Names, and functions that make a script of pgbench for a table and the SET clause of its touch."""
    return (
        ('SELECT by primary key',
         lambda table, touch: random_id(count) + 'SELECT doc FROM %s WHERE id = (:i)::text;' % table),
        ('INSERT one row', lambda table, touch: insert_into(table)),
        ('UPDATE of the document',
         lambda table, touch: random_id(count) + 'UPDATE %s SET doc = :doc WHERE id = (:i)::text;' % table),
        ('touch', lambda table, touch: random_id(count) + 'UPDATE %s SET %s WHERE id = (:i)::text;' % (table, touch)),
        ('INSERT 1,000 rows a statement', lambda table, touch: MANY_ROWS.format(table)),
    )


def seconds_of_sync(directory):
    """Mean seconds to overwrite a page of a file and sync it, as a commit does with WAL."""
    path = os.path.join(directory, 'sync')
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.pwrite(file, bytes(8192), 0)
        os.fsync(file)
        began = time.perf_counter()
        for _ in range(SYNCS):
            os.pwrite(file, bytes(8192), 0)
            os.fdatasync(file)
        return (time.perf_counter() - began) / SYNCS
    finally:
        os.close(file)
        os.remove(path)

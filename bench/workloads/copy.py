"""COPY FROM into a table with a primary key: speed, WAL and space; also while documents are expired."""

import os

from measure import Line, at_least, compare_statements
from tables import LONG_AGO, add_docs, make_docs, make_indexed, make_plain, rows

# No expired document has the key of a new one, but COPY has to check this for each row.
EXPIRED = {'docs_expired': 'consistent', 'lazy_docs_expired': 'lazy'}
TABLES = ('docs', 'lazy_docs', 'plain', 'indexed', *EXPIRED)


def measure(bench):
    server = bench.server
    path = os.path.join(server.directory, 'rows')
    make_docs(server, 0)
    make_docs(server, 0, name='lazy_docs', indexing='lazy')
    for name, indexing in EXPIRED.items():
        make_docs(server, 0, name=name, indexing=indexing)
        server.sql("SELECT ttl_docs.pause_purge('%s')" % name)
    make_plain(server, 0)
    make_indexed(server, 0)
    server.sql("COPY (%s) TO '%s'" % (rows(1, bench.scale.rows), path))

    def empty(statement):
        table = statement.split()[1]
        server.sql('TRUNCATE ' + table)
        if table in EXPIRED:
            add_docs(server, -100, -1, age=LONG_AGO, name=table)
        server.sql('CHECKPOINT')

    seconds = compare_statements(
        server, ["COPY %s (id, doc) FROM '%s'" % (table, path) for table in TABLES],
        max(3, bench.scale.rounds // 2), empty)
    wal = [wal_of_copy(server, table, path) for table in TABLES[:3]]
    size = [server.sql("SELECT pg_total_relation_size('%s')" % table) for table in TABLES[:3]]
    os.remove(path)
    docs, lazy, plain, indexed, docs_expired, lazy_expired = ([bench.scale.rows / s for s in side] for side in seconds)
    what = 'COPY %s rows, primary key, ' % format(bench.scale.rows, ',')
    return [
        Line(what + 'consistent', 'same table, no TTL', 'rows/s', docs, plain, at_least(0.70)),
        Line(what + 'consistent', 'same table, one more index', 'rows/s', docs, indexed),
        Line(what + 'lazy', 'same table, no TTL', 'rows/s', lazy, plain, at_least(0.80)),
        Line('COPY while the table has expired documents, consistent', 'same table, no TTL', 'rows/s', docs_expired, plain,
             at_least(0.75)),
        Line('COPY while the table has expired documents, lazy', 'same table, no TTL', 'rows/s', lazy_expired, plain),
        Line('COPY: WAL, consistent', 'same table, no TTL', 'bytes', wal[:1], wal[2:3]),
        Line('COPY: WAL, lazy', 'same table, no TTL', 'bytes', wal[1:2], wal[2:3]),
        Line('COPY: space on disk, consistent', 'same table, no TTL', 'bytes', size[:1], size[2:3]),
        Line('COPY: space on disk, lazy', 'same table, no TTL', 'bytes', size[1:2], size[2:3]),
    ]


def wal_of_copy(server, table, path):
    server.sql('TRUNCATE ' + table)
    server.sql('CHECKPOINT')
    before = server.wal_bytes()
    server.sql("COPY %s (id, doc) FROM '%s'" % (table, path))
    return server.wal_bytes() - before

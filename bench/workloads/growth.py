"""How the cost grows with the number of rows, the expired share, the size of documents, and indexes.

Each figure is a ratio to a plain table with the same live documents.  1.00 is the plain table; higher is
better.  Touches stay in one slot of the purge index, so that they are HOT on both sides; touch.py measures
the cost of slots.
"""

import time

from measure import Line, compare_statements, compare_transactions
from tables import LONG_AGO, add_docs, insert_into, make_docs, make_plain, random_id, sent_document

COLUMNS = ('', 'SELECT by key', 'count(*)', 'INSERT', 'UPDATE of doc', 'touch')
SLOT_WIDTH = 64     # seconds, for this ttl


def measure(bench):
    scale = bench.scale
    bench.table('Throughput by number of rows; 1.00 is the same table without TTL', COLUMNS,
                [ratios(bench, format(n, ','), n) for n in scale.sizes])
    bench.table('Throughput by share of expired documents on disk (%s rows in all)' % format(scale.few_rows, ','), COLUMNS,
                [ratios(bench, '%d %%' % share, scale.few_rows, expired=share) for share in (0, 1, 50, 99)])
    bench.table('Throughput by size of documents', COLUMNS,
                [ratios(bench, '%s B' % format(size, ','), max(2000, 20 * scale.few_rows // size), size=size)
                 for size in (200, 2000, 20000)])
    bench.table('Throughput by number of secondary indexes (%s rows)' % format(scale.few_rows, ','), COLUMNS,
                [ratios(bench, str(number), scale.few_rows, indexes=number) for number in range(6)])
    return []


def ratios(bench, label, count, size=200, expired=0, indexes=0):
    """Measures one row of a table."""
    server, scale = bench.server, bench.scale.short()
    bench.empty()
    live = max(1, count * (100 - expired) // 100)
    make_docs(server, live, size)
    make_plain(server, live, size, ', ts timestamptz')
    if expired:
        add_docs(server, live + 1, count, size, LONG_AGO)
    for number in range(indexes):
        for table in ('docs', 'plain'):
            server.sql("CREATE INDEX ON %s ((doc ->> 'n'), (%d))" % (table, number))
    server.sql('VACUUM ANALYZE docs, plain')
    server.sql('CHECKPOINT')
    found = [label]
    for script in ('SELECT doc FROM {0} WHERE id = :i;', None, 'INSERT',
                   'UPDATE {0} SET doc = :doc WHERE id = :i;',
                   'UPDATE {0} SET {1} WHERE id = :i;'):
        found.append('%.2f' % (count_ratio(server, scale) if script is None else
                               script_ratio(server, scale, script, live, size)))
    return found


def script_ratio(server, scale, script, live, size):
    if script == 'INSERT':
        scripts = [insert_into(table) for table in ('docs', 'plain')]
    else:
        scripts = [random_id(live) + script.format(table, column)
                   for table, column in (('docs', '_ts = DEFAULT'), ('plain', 'ts = now()'))]
    docs, plain = compare_transactions(server, scripts, scale, options=sent_document(size),
                                       settings=at_begin_of_slot() if '_ts' in scripts[0] else None)
    return Line('', '', 'tps', docs, plain).ratio


def at_begin_of_slot():
    """Setting for a clock at the beginning of a slot: no slot ends for a minute."""
    return {'ttl_docs__clock_offset': -(int(time.time()) % SLOT_WIDTH)}


def count_ratio(server, scale):
    docs, plain = compare_statements(server, ['SELECT count(*) FROM docs', 'SELECT count(*) FROM plain'],
                                     scale.rounds)
    return Line('', '', 's', plain, docs).ratio

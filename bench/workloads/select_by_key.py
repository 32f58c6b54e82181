"""SELECT by primary key, prepared: the cost of reading one document."""

from measure import Line, at_least, compare_transactions
from tables import make_docs, make_plain, random_id


def measure(bench):
    count = bench.scale.rows
    make_docs(bench.server, count)
    make_plain(bench.server, count)
    scripts = [random_id(count) + 'SELECT doc FROM %s WHERE id = (:i)::text;' % table for table in ('docs', 'plain')]
    lines = []
    for mode, goal in (('prepared', at_least(0.97)), ('simple', None)):
        docs, plain = compare_transactions(bench.server, scripts, bench.scale, mode)
        lines.append(Line('SELECT by primary key, %s' % ('prepared' if goal else 'planned each time'),
                          'same table, no TTL', 'tps', docs, plain, goal))
    return lines

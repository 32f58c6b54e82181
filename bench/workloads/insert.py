"""INSERT of one document per transaction, compared with a plain table and a trigger in PL/pgSQL."""

from measure import Line, at_least, compare_transactions
from tables import insert_into, make_by_hand, make_docs, make_indexed, make_plain, sent_document


def measure(bench):
    count = bench.scale.rows // 10
    make_docs(bench.server, count)
    make_docs(bench.server, count, name='lazy_docs', indexing='lazy')
    make_plain(bench.server, count)
    make_indexed(bench.server, count)
    make_by_hand(bench.server, count)
    docs, lazy, plain, indexed, by_hand = compare_transactions(
        bench.server, [insert_into(table) for table in ('docs', 'lazy_docs', 'plain', 'indexed', 'by_hand')],
        bench.scale, options=sent_document())
    return [
        Line('INSERT one row, primary key', 'same table, no TTL', 'tps', docs, plain, at_least(0.93)),
        Line('INSERT one row, primary key', 'same table, one more index', 'tps', docs, indexed),
        Line('INSERT one row, indexing lazy', 'same table, no TTL', 'tps', lazy, plain),
        Line('INSERT one row', 'a PL/pgSQL trigger that does the same', 'tps', docs, by_hand),
        Line('INSERT one row into a table without TTL', 'a PL/pgSQL trigger that does the same', 'tps', plain, by_hand),
    ] + many_rows(bench)


def many_rows(bench):
    """The same with 1,000 rows per statement, so that the cost of the statement itself does not matter."""
    statement = ("INSERT INTO {0} (id, doc) SELECT gen_random_uuid(), :doc::jsonb FROM generate_series(1, 1000);")
    docs, plain, indexed, by_hand = compare_transactions(
        bench.server, [statement.format(table) for table in ('docs', 'plain', 'indexed', 'by_hand')],
        bench.scale, options=sent_document())
    return [
        Line('INSERT 1,000 rows a statement', 'same table, no TTL', 'tps', docs, plain),
        Line('INSERT 1,000 rows a statement', 'same table, one more index', 'tps', docs, indexed, at_least(0.93)),
        Line('INSERT 1,000 rows a statement', 'a PL/pgSQL trigger that does the same', 'tps', docs, by_hand, at_least(1.5)),
    ]

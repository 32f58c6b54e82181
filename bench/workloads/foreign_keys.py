"""Writes to a child table whose foreign key references a collection, compared with one that references a plain table.

Up to PostgreSQL 18, core checks both with the same query.  Since 19, core probes the index of the plain table, and the
child table of the collection has a trigger of ttl_docs, which runs that query.
"""

from measure import Line, compare_transactions
from tables import make_docs, make_plain

CHILD = """
CREATE TABLE child_of_{0} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, parent text REFERENCES {0}, note int);
INSERT INTO child_of_{0} (parent) SELECT id FROM {0} LIMIT 10000;
VACUUM ANALYZE child_of_{0};
"""
PARENT = "(1 + floor(random() * %d))::int::text"


def measure(bench):
    count = bench.scale.few_rows
    make_docs(bench.server, count)
    make_plain(bench.server, count)
    for parent in ('docs', 'plain'):
        for command in CHILD.format(parent).strip().split('\n'):
            bench.server.sql(command)
    parent = PARENT % count
    lines = [line for name, statement in (
        ('INSERT one child row', 'INSERT INTO child_of_{0} (parent) VALUES (%s);' % parent),
        ('INSERT 1,000 child rows a statement',
         'INSERT INTO child_of_{0} (parent) SELECT %s FROM generate_series(1, 1000);' % parent),
        ('UPDATE of a child row, same parent',
         'UPDATE child_of_{0} SET note = 1 WHERE id = 1 + floor(random() * 10000)::int;'),
    ) for line in compare(bench, name, statement)]
    bench.server.sql('DROP TABLE child_of_docs, child_of_plain')
    return lines


def compare(bench, name, statement):
    docs, plain = compare_transactions(bench.server, [statement.format(parent) for parent in ('docs', 'plain')],
                                       bench.scale)
    return [Line(name, 'the parent is a plain table', 'tps', docs, plain)]

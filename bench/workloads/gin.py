"""A containment query with a GIN index, which returns ten documents."""

from measure import Line, at_least, compare_transactions
from tables import make_docs, make_plain


def measure(bench):
    count = bench.scale.rows
    make_docs(bench.server, count)
    make_plain(bench.server, count)
    for table in ('docs', 'plain'):
        bench.server.sql('CREATE INDEX ON %s USING gin (doc jsonb_path_ops) WITH (fastupdate = off)' % table)
        bench.server.sql('VACUUM ANALYZE ' + table)
    docs, plain = compare_transactions(bench.server, [
        "\\set i random(1, %d)\nSELECT id, doc FROM %s WHERE doc @> jsonb_build_object('user', 'u' || (:i)::int);"
        % (count // 10 - 1, table) for table in ('docs', 'plain')], bench.scale)
    return [Line('GIN containment query', 'same table, no TTL', 'tps', docs, plain, at_least(0.95))]

"""count(*) of a table with live documents only: the cost of our filter for each row.

Documents are small, so that the cost of reading them does not hide the cost of the filter.
"""

from measure import Line, at_most, compare_statements
from tables import LIVE, LIVE_BY_CASE, make_by_hand, make_docs, make_plain


SIZE = 100


def measure(bench):
    make_docs(bench.server, bench.scale.rows, SIZE)
    make_by_hand(bench.server, bench.scale.rows, SIZE)
    make_plain(bench.server, bench.scale.rows, SIZE)
    docs, by_hand, by_case, simple, plain = compare_statements(bench.server, (
        'SELECT count(*) FROM docs', 'SELECT count(*) FROM by_hand WHERE ' + LIVE,
        'SELECT count(*) FROM by_hand WHERE ' + LIVE_BY_CASE,
        'SELECT count(*) FROM by_hand WHERE expires > now() OR expires IS NULL',
        'SELECT count(*) FROM plain'), 3 * bench.scale.rounds)
    return [
        Line('count(*), all live', 'a predicate in SQL', 'ms', in_ms(docs), in_ms(by_hand), at_most(0.70)),
        Line('count(*), all live', 'a predicate with CASE', 'ms', in_ms(docs), in_ms(by_case)),
        Line('count(*), all live', 'a predicate on a stored time of expiry', 'ms', in_ms(docs), in_ms(simple)),
        Line('count(*), all live', 'same table, no TTL', 'ms', in_ms(docs), in_ms(plain)),
    ]


def in_ms(seconds):
    return [s * 1000 for s in seconds]

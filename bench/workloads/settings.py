"""set_default_ttl() on a large collection: no row is touched."""

from measure import Line, at_most
from tables import make_docs


def measure(bench):
    count = bench.scale.most_rows
    make_docs(bench.server, count)
    changes = [7200, 3600] * bench.scale.rounds
    taken = [1000 * bench.server.seconds("SELECT ttl_docs.set_default_ttl('docs', %d)" % (86400 + ttl))
             for ttl in changes]
    return [Line('set_default_ttl n to m, %s rows' % format(count, ','), '', 'ms', taken, goal=at_most(20, ' ms'))]

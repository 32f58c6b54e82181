"""set_default_ttl() on a large collection: it writes no row, and reads few."""

from measure import Line, at_most
from tables import make_docs


def measure(bench):
    count = bench.scale.most_rows
    make_docs(bench.server, count, age=3600)
    changes = [7200, 3600] * bench.scale.rounds
    taken = [1000 * bench.server.seconds("SELECT ttl_docs.set_default_ttl('docs', %d)" % (86400 + ttl))
             for ttl in changes]
    expiring = [1000 * seconds_to_expire_all(bench.server) for _ in changes]
    rows = '%s rows' % format(count, ',')
    return [Line('set_default_ttl n to m, ' + rows, '', 'ms', taken, goal=at_most(20, ' ms')),
            Line('set_default_ttl, all of %s expire' % rows, '', 'ms', expiring, goal=at_most(20, ' ms'))]


def seconds_to_expire_all(server):
    """Seconds of a change that makes every document expire, and counts them.  The change is rolled back."""
    server.sql('BEGIN')
    seconds = server.seconds("SELECT ttl_docs.set_default_ttl('docs', 60)")
    server.sql('ROLLBACK')
    return seconds

"""The pages that a pass of the purge reads: they grow with the expired documents, not with the live ones."""

from measure import Line, at_most
from tables import LONG_AGO, add_docs, drop_all, make_docs

EXPIRED = 1000


def measure(bench):
    sizes = bench.scale.sizes
    buffers = {(live, expired): pass_over(bench.server, live, expired)
               for live, expired in [(size, EXPIRED) for size in sizes] + [(sizes[0], 10 * EXPIRED)]}
    bench.table('Pages of the table and its indexes that a purge accesses', ('live', 'expired', 'pages'),
                [(format(live, ','), format(expired, ','), format(pages, ','))
                 for (live, expired), pages in buffers.items()])
    return [Line('purge of 1,000 expired among %s live' % format(sizes[-1], ','),
                 'among %s live' % format(sizes[0], ','), 'pages',
                 [buffers[sizes[-1], EXPIRED]], [buffers[sizes[0], EXPIRED]], at_most(1.5))]


def pass_over(server, live, expired):
    """Purges this number of expired documents in a table with live ones.  Returns the number of pages read."""
    drop_all(server)
    make_docs(server, live)
    add_docs(server, live + 1, live + expired, age=LONG_AGO)
    before = touched(server)
    server.purge(expired)
    server.wait_until("count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'ttl_docs purge worker'")
    return touched(server) - before


def touched(server):
    connection = server.connect()
    pages = server.sql("""SELECT (sum(heap_blks_hit + heap_blks_read + coalesce(toast_blks_hit + toast_blks_read, 0)) +
        sum(idx_blks_hit + idx_blks_read))::bigint FROM pg_statio_user_tables WHERE relname = 'docs'""", connection)
    connection.close()
    return pages

"""Memory of a backend and of a worker: the same for few documents and for many.

The kernel counts private memory, without shared buffers.  A backend reads, updates and inserts in the
collection, or in a plain table.  A worker purges the collection.
"""

from tables import LONG_AGO, drop_all, make_docs, make_plain


def measure(bench):
    table = []
    for count in (2 * bench.scale.few_rows, bench.scale.rows):
        drop_all(bench.server)
        make_docs(bench.server, count)
        make_plain(bench.server, count)
        ours, theirs = (backend(bench.server, name, count) for name in ('docs', 'plain'))
        drop_all(bench.server)
        make_docs(bench.server, count, age=LONG_AGO)
        table.append((format(count, ','), ours, theirs, worker(bench.server, count)))
    bench.table('Private memory, kB', ('documents', 'backend, collection', 'backend, plain table',
                                       'purge worker, maximum'), table)
    return []


def private_kb(pid):
    """Private memory of a process: without shared buffers, with its part of other shared memory."""
    with open('/proc/%d/smaps_rollup' % pid) as maps:
        return next(int(line.split()[1]) for line in maps if line.startswith('Pss_Anon:'))


def backend(server, table, count):
    connection = server.connect()
    for statement in ('SELECT count(doc) FROM {0}', "UPDATE {0} SET doc = doc WHERE id = '{1}'",
                      "INSERT INTO {0} (id, doc) SELECT 'x' || n, '{{}}' FROM generate_series(1, {1} / 10) AS n",
                      "DELETE FROM {0} WHERE id LIKE 'x%'"):
        server.sql(statement.format(table, count), connection)
    used = private_kb(connection.get_backend_pid())
    connection.close()
    return used


def worker(server, count):
    """Maximum of the memory of workers, in samples."""
    most = 0
    server.configure(ttl_docs__purge='on')
    while not server.sql('SELECT purged >= %d FROM ttl_docs.stat_collections' % count):
        for pid, in server.rows("SELECT pid FROM pg_stat_activity WHERE backend_type = 'ttl_docs purge worker'"):
            most = max(most, sample(pid))
    server.configure(ttl_docs__purge='off')
    return most


def sample(pid):
    try:
        return private_kb(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0            # the worker has ended

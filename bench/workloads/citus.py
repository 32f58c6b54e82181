"""A distributed collection on Citus, compared with the same distributed table without TTL.

A coordinator and worker nodes run on one machine.  Two processors show no scale-out of throughput.  Instead,
two tables show that the work of each node falls as the number of nodes grows.  The second one has instructions,
which callgrind counts: other work on the machine does not change them.

The ratios are compared with those of the same statements on one server without Citus, measured in the same run:
they may be worse by 0.03 at most.
"""

import json
import os
import statistics
import time

from measure import Line, at_least, compare_statements, compare_transactions
from tables import DEFAULT_TTL, LONG_AGO, drop_all, insert_into, make_docs, make_plain, random_id, rows, sent_document
from workloads.instructions import total

ALLOWANCE = 0.03
SHARDS = 8
NODES = (1, 2, 4)       # numbers of worker nodes that the purge is measured with
SETTINGS = """
max_prepared_transactions = 100
max_worker_processes = 16
citus.node_conninfo = 'sslmode=disable'
citus.shard_count = %d
citus.enable_statistics_collection = off
citus.max_cached_conns_per_worker = 8
""" % SHARDS
TABLES = ('docs', 'plain')
COUNTED_ROWS = 8000     # documents of the purge under callgrind, which makes servers slow
# A batch also ends after a time.  Batches of this size end before, even under callgrind.
COUNTED_BATCH = 10
# Purges the shards of this node, as CALL purge() does on every node.
PURGE_SHARDS = "CALL ttl_docs_internal.purge_shards('%s', %d, NULL, 3600000, NULL)"
LONG_BEFORE, LATER = 0, 1 << 62     # instants: no document has expired yet, and all have


class Cluster:
    """A coordinator without shards, and worker nodes."""

    def __init__(self, bench, nodes):
        self.coordinator, *self.workers = [
            bench.another_server('citus%d' % number, 'citus, ttl_docs', settings=SETTINGS) for number in range(nodes + 1)]
        for server in self.servers():
            server.sql('CREATE EXTENSION citus')
        self.coordinator.sql("SELECT citus_set_coordinator_host('%s', 5432)" % self.coordinator.directory)
        for server in self.workers:
            self.coordinator.sql("SELECT citus_add_node('%s', 5432)" % server.directory)

    def servers(self):
        return [self.coordinator, *self.workers]

    def use_workers(self, count):
        """New tables have shards on the first worker nodes only."""
        for number, server in enumerate(self.workers):
            self.coordinator.sql("SELECT citus_set_node_property('%s', 5432, 'shouldhaveshards', %s)"
                                 % (server.directory, number < count))

    def distribute(self, *tables):
        for table in tables:
            self.coordinator.sql("SELECT create_distributed_table('%s', 'id', colocate_with => 'none')" % table)
            self.coordinator.sql("SELECT truncate_local_data_after_distributing_table('%s')" % table)
        for server in self.workers:
            server.sql('VACUUM ANALYZE')

    def stop(self):
        for server in self.servers():
            server.stop()


def measure(bench):
    if not bench.has_library('citus'):
        return []
    cluster = Cluster(bench, max(NODES))
    cluster.use_workers(2)
    lines = statements(bench, cluster)
    drop_all(cluster.coordinator)
    bench.table('Purge of %s expired documents by the background workers of each node' % format(bench.scale.rows, ','),
                ('worker nodes with shards', 'documents/s in all', 'WAL of a node, MB', 'buffers of a node, thousands',
                 'processor time of a node, s'),
                [purge(bench, cluster, count) for count in NODES])
    spread(bench, cluster)
    if bench.has_program('valgrind'):
        bench.table('Instructions for the purge of the shards of a node, %s expired documents in all' % format(COUNTED_ROWS, ','),
                    ('worker nodes with shards', 'documents of a node', 'instructions of a node, millions',
                     'instructions per document'),
                    instructions(bench, cluster))
    cluster.stop()
    return lines


def make_tables(server, count):
    make_docs(server, count)
    make_plain(server, count)


def statements(bench, cluster):
    """Compares both tables on Citus, and on one server."""
    count = bench.scale.few_rows
    make_tables(bench.server, count)
    make_tables(cluster.coordinator, count)
    cluster.distribute(*TABLES)
    lines = []
    for what, compare in (('SELECT by primary key', select_by_key), ('count(*) of all shards', count_all),
                          ('INSERT one row', insert_one), ('COPY %s rows' % format(count, ','), copy_rows)):
        alone = ratio(compare(bench, bench.server, count))
        docs, plain = compare(bench, cluster.coordinator, count)
        lines.append(Line('Citus: ' + what, 'same distributed table, no TTL (one server: %.2f)' % alone, 'per second',
                          docs, plain, at_least(round(alone - ALLOWANCE, 2))))
    return lines


def ratio(sides):
    docs, plain = sides
    return statistics.median(a / b for a, b in zip(docs, plain))


def select_by_key(bench, server, count):
    scripts = [random_id(count) + 'SELECT doc FROM %s WHERE id = (:i)::text;' % table for table in TABLES]
    return compare_transactions(server, scripts, bench.scale)


def count_all(bench, server, _):
    scripts = ['SELECT count(*) FROM %s;' % table for table in TABLES]
    return compare_transactions(server, scripts, bench.scale)


def insert_one(bench, server, _):
    return compare_transactions(server, [insert_into(table) for table in TABLES], bench.scale, options=sent_document())


def copy_rows(bench, server, count):
    path = os.path.join(server.directory, 'rows')
    server.sql("COPY (%s) TO '%s'" % (rows(1, count), path))
    seconds = compare_statements(server, ["COPY %s (id, doc) FROM '%s'" % (table, path) for table in TABLES],
                                 max(3, bench.scale.rounds // 2),
                                 lambda statement: server.sql('TRUNCATE ' + statement.split()[1]))
    os.remove(path)
    return [[count / s for s in side] for side in seconds]


def purge(bench, cluster, count):
    """Purges a collection with shards on some worker nodes.  Returns a row of the table."""
    cluster.use_workers(count)
    make_docs(cluster.coordinator, bench.scale.rows, age=LONG_AGO)
    cluster.distribute('docs')
    busy = cluster.workers[:count]
    before = [(server.wal_bytes(), buffers(server), processor_time(server)) for server in busy]
    began = time.time()
    for server in busy:
        server.configure(ttl_docs__purge='on')
    cluster.coordinator.wait_until('sum(purged) >= %d FROM ttl_docs.stat_collections' % bench.scale.rows)
    for server in busy:
        server.configure(ttl_docs__purge='off')
    ended = cluster.coordinator.sql('SELECT extract(epoch FROM max(last_purge))::float8 FROM ttl_docs.stat_collections')
    after = [(server.wal_bytes(), buffers(server), processor_time(server)) for server in busy]
    wal, blocks, seconds = (statistics.fmean(b[i] - a[i] for a, b in zip(before, after)) for i in range(3))
    drop_all(cluster.coordinator)
    return [str(count), '%.0f' % (bench.scale.rows / (ended - began)), '%.0f' % (wal / 1e6), '%.0f' % (blocks / 1e3),
            '%.1f' % seconds]


def instructions(bench, cluster):
    """Counts the instructions of a session on each worker node that purges the shards of the node.  Returns the rows of the
    table: the means of all nodes.

    The worker nodes start again under callgrind when the tables are filled."""
    for count in NODES:
        cluster.use_workers(count)
        make_docs(cluster.coordinator, COUNTED_ROWS, age=LONG_AGO, name='docs%d' % count)
        cluster.distribute('docs%d' % count)
    calls = os.path.join(bench.arguments.scratch, 'calls.%d')
    for server in cluster.workers:
        server.configure(ttl_docs__purge_batch_size=COUNTED_BATCH)
        server.restart('valgrind --tool=callgrind --callgrind-out-file=' + calls.replace('%d', '%p'))
    found = []
    for count in NODES:
        purged, spent = zip(*[purge_of_node(server, 'docs%d' % count, calls) for server in cluster.workers[:count]])
        if sum(purged) != COUNTED_ROWS:
            raise RuntimeError('purged %d documents instead of %d' % (sum(purged), COUNTED_ROWS))
        found.append((str(count), '%.0f' % statistics.fmean(purged), '%.1f' % (statistics.fmean(spent) / 1e6),
                      format(round(sum(spent) / COUNTED_ROWS), ',')))
    return found


def purge_of_node(server, table, calls):
    """Purges the shards of a node.  Returns the number of documents, and the instructions for them: of a session that
    purges, without those of a session for which no document has expired."""
    (_, nothing), (purged, all_of_it) = (purge_in_session(server, table, instant, calls) for instant in (LONG_BEFORE, LATER))
    return purged, all_of_it - nothing


def purge_in_session(server, table, instant, calls):
    connection = server.connect()
    pid = connection.get_backend_pid()
    answer = json.loads(server.sql(PURGE_SHARDS % (table, instant), connection))
    connection.close()
    return answer['deleted'], total(calls % pid)


def buffers(server):
    """Buffers that all sessions of the server have read so far."""
    server.sql('SELECT pg_stat_force_next_flush()')
    return int(server.sql('SELECT sum(blks_hit + blks_read) FROM pg_stat_database'))


def processor_time(server):
    """Seconds of processor time of the server and of all processes that it has ended so far."""
    with open(os.path.join(server.data, 'postmaster.pid')) as file:
        pid = int(file.readline())
    with open('/proc/%d/stat' % pid) as file:
        fields = file.read().rsplit(')', 1)[1].split()
    return sum(int(field) for field in fields[11:15]) / os.sysconf('SC_CLK_TCK')


def spread(bench, cluster):
    """How far the instants of a query are apart between nodes, in READ COMMITTED."""
    cluster.use_workers(max(NODES))
    make_docs(cluster.coordinator, 1000, default_ttl=DEFAULT_TTL)
    cluster.distribute('docs')
    found = []
    for isolation in ('READ COMMITTED', 'REPEATABLE READ'):
        micros = []
        for _ in range(20 * bench.scale.rounds):
            cluster.coordinator.sql('BEGIN ISOLATION LEVEL ' + isolation)
            micros.append(int(cluster.coordinator.sql(
                'SELECT extract(epoch FROM max(n) - min(n)) * 1000000 FROM (SELECT ttl_docs.now() AS n FROM docs) AS d')))
            cluster.coordinator.sql('COMMIT')
        found.append((isolation, '%.1f' % (statistics.median(micros) / 1e3), '%.1f' % (max(micros) / 1e3)))
    bench.table('How far the instants of a query on %d nodes are apart' % max(NODES),
                ('isolation level', 'median, ms', 'maximum, ms'), found)
    drop_all(cluster.coordinator)

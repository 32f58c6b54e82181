"""Ways to delete expired documents: ttl_docs, and what a user would do instead.

A load saturates the server.  Then the expired documents are deleted: by ttl_docs, by a job of pg_cron that
runs DELETE, or by dropping the partition of their hour.
"""

import time

from tables import LONG_AGO, make_docs, rows
from workloads.purge_load import CLIENTS, LOAD

SECONDS_BEFORE = 5
LOAD_SECONDS = 100

BY_HOUR = """
CREATE TABLE by_hour (id text, doc jsonb NOT NULL, ts timestamptz NOT NULL, PRIMARY KEY (id, ts)) PARTITION BY RANGE (ts);
CREATE TABLE by_hour_old PARTITION OF by_hour FOR VALUES FROM ('2020-01-01 00:00') TO ('2020-01-01 01:00');
CREATE TABLE by_hour_new PARTITION OF by_hour FOR VALUES FROM ('2020-01-01 01:00') TO (MAXVALUE);
"""
BY_CRON = """
CREATE EXTENSION pg_cron;
CREATE TABLE by_cron (id text PRIMARY KEY, doc jsonb NOT NULL, expires timestamptz);
CREATE INDEX ON by_cron (expires);
"""


def measure(bench):
    found = [ttl_docs(bench), by_hour(bench)]
    if bench.has_library('pg_cron'):
        found.append(by_cron(bench))
    bench.table('Removal of %s expired documents under a load that saturates the server'
                % format(bench.scale.rows, ','),
                ('', 'seconds to remove', 'throughput of the load, compared with before',
                 'longest transaction of the load, ms', 'WAL, MB',
                 'queries see expired documents for'), found)
    return []


def beside_load(server, remove):
    """Seconds of a removal; throughput of the load during it, divided by that before; its longest transaction."""
    load = server.pgbench([LOAD], '-c', str(CLIENTS), '-j', '2', '-T', str(LOAD_SECONDS))
    time.sleep(SECONDS_BEFORE + 1)
    began, ended = remove()
    done = load.transactions()
    before = [t for t in done if began - SECONDS_BEFORE < t.ended < began]
    meanwhile = [t for t in done if began <= t.ended <= max(ended, began + 1)]
    ratio = (len(meanwhile) / max(ended - began, 1)) / (len(before) / SECONDS_BEFORE)
    return ['%.1f' % (ended - began), '%.2f' % ratio, '%.0f' % (max(t.micros for t in meanwhile) / 1000)]


def wal_of(server, remove):
    """MB of WAL that a removal writes without load."""
    before = server.wal_bytes()
    remove()
    return '%.0f' % ((server.wal_bytes() - before) / 1e6)


def twice(server, make, remove):
    """Runs the removal under load, then again without load to measure its WAL."""
    make()
    result = beside_load(server, remove)
    make()
    return result + [wal_of(server, remove)]


def ttl_docs(bench):
    server, count = bench.server, bench.scale.rows
    server.fill_pgbench(10)

    def make():
        bench.empty()
        make_docs(server, count, age=LONG_AGO)
        server.sql('CHECKPOINT')

    return ['ttl_docs'] + twice(server, make, lambda: server.purge(count)) + ['never']


def by_hour(bench):
    server = bench.server

    def make():
        server.sql('DROP TABLE IF EXISTS by_hour')
        server.sql(BY_HOUR)
        server.sql("INSERT INTO by_hour SELECT id, doc, '2020-01-01 00:30' FROM (%s) AS r (id, doc)"
                   % rows(1, bench.scale.rows))
        server.sql('VACUUM ANALYZE by_hour')
        server.sql('CHECKPOINT')

    def remove():
        began = time.time()
        server.sql('DROP TABLE by_hour_old')
        return began, time.time()

    found = ['DROP of a partition of one hour'] + twice(server, make, remove) + ['up to an hour']
    server.sql('DROP TABLE by_hour')
    return found


def by_cron(bench):
    server = bench.another_server('cron', preload='pg_cron')
    server.fill_pgbench(10)
    server.sql(BY_CRON)

    def make():
        server.sql('SELECT cron.unschedule(jobid) FROM cron.job')
        server.sql('DELETE FROM cron.job_run_details')
        server.sql('TRUNCATE by_cron')
        server.sql("INSERT INTO by_cron SELECT id, doc, now() FROM (%s) AS r (id, doc)" % rows(1, bench.scale.rows))
        server.sql('VACUUM ANALYZE by_cron')
        server.sql('CHECKPOINT')

    def remove():
        server.sql("SELECT cron.schedule('* * * * *', 'DELETE FROM by_cron WHERE expires < now()')")
        server.wait_until("count(*) > 0 FROM cron.job_run_details WHERE status = 'succeeded'")
        began, ended = server.rows('SELECT extract(epoch FROM start_time)::float8, extract(epoch FROM end_time)::float8'
                                  " FROM cron.job_run_details WHERE status = 'succeeded' ORDER BY 1 LIMIT 1")[0]
        return began, ended

    found = ['pg_cron, DELETE every minute'] + twice(server, make, remove) + ['up to a minute, plus the time of the DELETE']
    server.stop()
    return found

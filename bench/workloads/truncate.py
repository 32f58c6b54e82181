"""The truncation of a partition all of whose documents have expired, compared with DROP of the partition by hand; and
a load beside truncations.

The worker logs how long its transaction took, from the lock to the end of the commit, and how much WAL it wrote.  In
the load, pgbench saturates the server all the time.  In every second window of some seconds a large collection is
truncated, so both sides are parts of one run.
"""

import os
import re
import time

from measure import Line, at_least, at_most
from tables import LONG_AGO, add_docs, drop_all, make_docs
from workloads.purge_load import CLIENTS, LOAD, SETTLE, throughput

PARTITIONED = """CREATE TABLE docs (id text, part int NOT NULL DEFAULT %d, doc jsonb, PRIMARY KEY (part, id)) PARTITION BY LIST (part);
CREATE TABLE docs_1 PARTITION OF docs FOR VALUES IN (1);
CREATE TABLE docs_2 PARTITION OF docs FOR VALUES IN (2);
SELECT ttl_docs.adopt('docs', 86400)"""
LARGE = 50000       # documents: enough for 1,000 pages
MESSAGE = re.compile(r'ttl_docs: truncated public\.docs_1 in (\d+) microseconds with (\d+) bytes of WAL')


def measure(bench):
    server = bench.server
    server.configure(ttl_docs__purge_truncate='on', log_min_messages='debug1')
    try:
        ours, theirs, wal = [], [], []
        for _ in range(max(3, bench.scale.rounds // 2)):
            fill(server, bench.scale.rows)
            theirs.append(1000 * server.seconds('DROP TABLE docs_2'))
            micros, written = truncate(server)
            ours.append(micros / 1000)
            wal.append(written / 1048576)
        with_truncations, without = windows(bench)
    finally:
        server.configure(ttl_docs__purge_truncate='off', log_min_messages='warning')
    rows = format(bench.scale.rows, ',')
    return [Line('truncation of a partition of %s expired documents' % rows, 'DROP of the partition by hand', 'ms',
                 ours, theirs, at_most(3)),
            Line('its WAL', '', 'MB', wal, goal=at_most(1, ' MB')),
            Line('throughput of clients that saturate the server, beside truncations', 'windows without, same run', 'tps',
                 with_truncations, without, at_least(0.97))]


def fill(server, count):
    """A partitioned collection: two partitions with the same expired documents.  Its purge is paused."""
    drop_all(server)
    for statement in (PARTITIONED % 1).split(';\n'):
        server.sql(statement)
    server.sql("SELECT ttl_docs.pause_purge('docs')")
    add_docs(server, 1, count, age=LONG_AGO)
    server.sql('ALTER TABLE ONLY docs ALTER part SET DEFAULT 2')
    add_docs(server, 1, count, age=LONG_AGO)
    server.sql('VACUUM ANALYZE docs')
    server.sql('CHECKPOINT')


def truncate(server):
    """Lets a worker truncate docs_1.  Returns microseconds and bytes of WAL of its transaction."""
    log = os.path.join(server.directory, 'log')
    end = os.path.getsize(log)
    server.configure(ttl_docs__purge='on')
    server.sql("SELECT ttl_docs.resume_purge('docs')")
    server.wait_until("truncations = 1 FROM ttl_docs.stat_collections WHERE collection = 'docs'::regclass")
    server.configure(ttl_docs__purge='off')
    with open(log) as file:
        file.seek(end)
        return [int(number) for number in MESSAGE.search(file.read()).groups()]


def windows(bench):
    """Throughput in windows with a truncation, and in windows without: two lists."""
    server = bench.server
    rounds = bench.scale.rounds
    drop_all(server)
    server.fill_pgbench(10)
    for number in range(rounds):
        make_docs(server, max(bench.scale.rows // 5, LARGE), age=LONG_AGO, name='docs_%d' % number)
        server.sql("SELECT ttl_docs.pause_purge('docs_%d')" % number)
    server.sql('VACUUM ANALYZE pgbench_accounts')
    server.sql('CHECKPOINT')
    server.configure(ttl_docs__purge='on')
    length = 2 * rounds * (bench.scale.window + SETTLE) + 3
    load = server.pgbench([LOAD], '-c', str(CLIENTS), '-j', '2', '-T', str(length))
    time.sleep(2)
    found = []
    for turn in range(2 * rounds):
        time.sleep(SETTLE)
        found.append({'from': time.time(), 'to': time.time() + bench.scale.window, 'done': []})
        if turn % 2:
            server.sql("SELECT ttl_docs.resume_purge('docs_%d')" % (turn // 2))
        time.sleep(bench.scale.window)
    for transaction in load.transactions():
        for window in found:
            if window['from'] <= transaction.ended < window['to']:
                window['done'].append(transaction)
    server.wait_until('sum(truncations) = %d FROM ttl_docs.stat_collections' % rounds)
    server.configure(ttl_docs__purge='off')
    server.sql('DROP TABLE pgbench_accounts, pgbench_branches, pgbench_tellers, pgbench_history')
    tps = [throughput(window) for window in found]
    return tps[1::2], tps[0::2]

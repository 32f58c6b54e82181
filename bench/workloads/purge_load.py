"""A load during the purge of a backlog: its throughput when it saturates the server, its latency at a fixed rate.

pgbench runs all the time.  The purge is on in every second window of some seconds, so both sides are parts
of one run.  A plot shows another run second by second, in which a purge begins and ends.
"""

import statistics
import time

from measure import Line, at_least, at_most, percentile
from tables import LONG_AGO, drop_all, make_docs

CLIENTS = 8
SETTLE = 1          # seconds after a change that count for no side

LOAD = """\\set aid random(1, 1000000)
\\set tid random(1, 100)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, 1, :aid, :delta, CURRENT_TIMESTAMP);
END;"""


def measure(bench):
    server = bench.server
    server.fill_pgbench(10)
    saturated = windows(bench, 2 * bench.scale.rows)
    tps = [throughput(window) for window in saturated]
    rate = statistics.median(tps[0::2]) / 2
    paced = windows(bench, 4 * bench.scale.rows, '-R', '%d' % rate, rounds=2 * bench.scale.rounds)
    p99 = [percentile([t.micros for t in window['done']], 0.99) / 1000 for window in paced]
    draw(bench, rate)
    server.sql('DROP TABLE pgbench_accounts, pgbench_branches, pgbench_tellers, pgbench_history')
    note = ' (%s documents purged)'
    return [
        Line('throughput of clients that saturate the server, during a purge' + note % format(saturated[-1]['purged'], ','),
             'windows without purge, same run', 'tps', tps[1::2], tps[0::2], at_least(0.93)),
        Line('p99 of clients at half that rate, during a purge' + note % format(paced[-1]['purged'], ','),
             'windows without purge, same run', 'ms', p99[1::2], p99[0::2], at_most(1.3)),
    ]


def backlog(server, count):
    drop_all(server)
    make_docs(server, count, age=LONG_AGO)
    server.sql('VACUUM ANALYZE pgbench_accounts')
    server.sql('CHECKPOINT')


def purged(server):
    return int(server.sql("SELECT coalesce(sum(purged), 0) FROM ttl_docs.stat_collections"))


def windows(bench, count, *options, rounds=None):
    """Windows without and with purge, in turns, until all documents are purged.  Each has its transactions, and the
    number of documents purged so far."""
    server = bench.server
    backlog(server, count)
    found = []
    rounds = rounds or bench.scale.rounds
    length = 2 * rounds * (bench.scale.window + SETTLE) + 3
    load = server.pgbench([LOAD], '-c', str(CLIENTS), '-j', '2', '-T', str(length), *options)
    time.sleep(2)
    for turn in range(2 * rounds):
        server.configure(ttl_docs__purge='on' if turn % 2 else 'off')
        time.sleep(SETTLE)
        found.append({'from': time.time(), 'to': time.time() + bench.scale.window, 'done': []})
        time.sleep(bench.scale.window)
        found[-1]['purged'] = purged(server)
    server.configure(ttl_docs__purge='off')
    for transaction in load.transactions():
        for window in found:
            if window['from'] <= transaction.ended < window['to']:
                window['done'].append(transaction)
    lasted = [window for window in found if window['purged'] < count]
    return lasted[:max(len(lasted) // 2, 1) * 2] if len(lasted) > 1 else found[:2]


def throughput(window):
    return len(window['done']) / (window['to'] - window['from'])


def draw(bench, rate):
    """Plots throughput and p99 at a fixed rate, and the purged documents, during a purge."""
    server = bench.server
    backlog(server, bench.scale.rows)
    load = server.pgbench([LOAD], '-c', str(CLIENTS), '-j', '2', '-T', str(bench.scale.curve), '-R', '%d' % rate)
    began = time.time()
    counts = []
    switched_on = False
    while load.process.poll() is None and time.time() < began + bench.scale.curve:
        if not switched_on and time.time() > began + bench.scale.curve / 6:
            server.configure(ttl_docs__purge='on')
            switched_on = True
        counts.append((time.time() - began, purged(server)))
        time.sleep(1)
    seconds = [[] for _ in range(bench.scale.curve)]
    for transaction in load.transactions():
        second = int(transaction.ended - began)
        if 0 <= second < len(seconds):
            seconds[second].append(transaction.micros)
    server.configure(ttl_docs__purge='off')
    seconds = seconds[1:-1]
    bench.plot('purge', 'A purge of %s documents during a load of %d transactions/s'
               % (format(bench.scale.rows, ','), rate), 'seconds', [
                   ('transactions/s', [(i + 1, len(s)) for i, s in enumerate(seconds)]),
                   ('p99, ms', [(i + 1, percentile(s, 0.99) / 1000) for i, s in enumerate(seconds) if s]),
                   ('documents purged', counts)])

"""Queries on tables that are not collections, compared with a server without the library.

Two servers take turns.  Each query is planned each time, so planning counts, too.
"""

from measure import Line, at_least, trimmed_mean

READ = '\\set i random(1, 100000)\nSELECT abalance FROM pgbench_accounts WHERE aid = :i;'
WRITE = '\\set i random(1, 100000)\nUPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :i;'
JOIN = ('\\set i random(1, 100000)\nSELECT count(*) FROM pgbench_accounts AS a JOIN pgbench_branches AS b USING (bid)'
        ' JOIN pgbench_tellers AS t USING (bid) WHERE a.aid = :i;')


def measure(bench):
    without = bench.another_server('without', preload='')
    servers = (bench.server, without)
    for server in servers:
        server.fill_pgbench()
    lines = [Line('other tables: ' + what, 'library not loaded', 'tps', *turns(bench, servers, script), at_least(0.98))
             for what, script in (('SELECT', READ), ('UPDATE', WRITE), ('join of three', JOIN))]
    without.stop()
    return lines


def turns(bench, servers, script):
    """Transactions per second of each server in each round.  The servers alternate in running first."""
    tps = ([], [])
    for turn in range(bench.scale.turns + 1):
        for number in ((0, 1), (1, 0))[turn % 2]:
            done = servers[number].pgbench([script], '-c', '1', '-T', '1', mode='simple').transactions()
            if turn > 0:
                tps[number].append(1e6 / trimmed_mean([t.micros for t in done]))
    return tps

#!/usr/bin/env python3
"""Kills server processes at random moments under load, and compares the recovered data with the acknowledged
writes.

Each round has these steps:
    1. Sessions write, and the purge deletes.
    2. After a random delay, the program kills a process with SIGKILL: the postmaster with all its children,
       a backend, a purge worker, the launcher or an adoption.  Or it kills the postmaster twice, the second time during
       recovery.
    3. The server restarts by itself, or pg_ctl starts it.
    4. The program checks everything.  The next round continues with the same documents.

Journal.  Every session writes only to its own keys, so it knows the acknowledged state of each key.  It also
knows the one transaction that was open at the crash.  If COMMIT was not sent, the server must have lost that
transaction.  If COMMIT was sent but not answered, the server may have kept or lost the transaction, but only
as a whole.  Each transaction writes its number to a plain table, and this number tells which it was.  The
comparison is exact: content, ttl, second key, child row, and _ts to the microsecond.

Time.  A document either lives for days, or is written days in the past with ttl_docs.clock_offset and is
expired at commit.  So nothing has to wait, and the real time does not decide which documents are live.

Checks after each recovery:
    docs     Exactly the live documents of the journal are visible.  Expired documents cannot be read,
             updated, deleted or locked, and block neither of their keys.  The child rows are those of the
             journal, without orphans.  With a clock far ahead, only documents with ttl -1 are visible.
    events   (lazy indexing) Acknowledged live events are visible.  Every expired event is either on disk or
             in the archive, which a trigger on its purge fills: never in both, never in neither, never twice.
    floors   Documents that expired under an earlier DefaultTTL stay expired after the DefaultTTL is raised or
             turned off.  The label is the acknowledged one, byte by byte.
    days     Partitions full of expired documents are truncated, unless they have a live one.  Exactly the live
             documents of the journal are visible.
    online   A table that is adopted concurrently and released, again and again.  Its rows are those of the journal,
             in each state.  If it is a collection, _ttl and _slot are right, _ts is the time in the column
             "changed" or a later write, and no invalid index is left over.  Any adoption can be completed.
    purge    The purge continues: all expired documents leave the disk.
    storage  pg_amcheck --heapallindexed finds no error.  The log has no PANIC and no failed assertion.

The program connects by PGHOST, PGPORT, PGDATABASE and PGUSER as a superuser.  The database must have the
extensions ttl_docs and amcheck.  The program must run as the server's operating system user, with pg_ctl and
pg_amcheck on the PATH.  It leaves the server running.  Exit status: 0 or 1.

The files:
    crash_load.py       the collections, the sessions, the journals
    crash_server.py     kills and starts the server
    crash_checks.py     the checks

The seed determines the writes, the killed processes and the delays.  It does not determine how far the server
gets before it is killed.
"""

import argparse
import collections
import os
import random
import signal
import subprocess
import sys
import time

import psycopg2

from crash_checks import Checks, amcheck, read_log
from crash_load import Adopter, Days, Floors, Janitor, PAST, Session, make_collections
from crash_server import PATIENCE, Server, Wrong, require

BULK = 1000                     # expired documents at the start of each round

# Weights of the processes to kill; "recovery" is the postmaster, and again during recovery, "adoption" the
# process of adopt_concurrently().
VICTIMS = {'postmaster': 35, 'recovery': 10, 'backend': 20, 'worker': 25, 'launcher': 10, 'adoption': 15}
PHASES = ('waiting for a lock', 'filling rows', 'building the index', 'switching')      # of an adoption
PATIENCE_FOR_PHASE = 1          # seconds until any phase will do


class Torture:
    """Plays the rounds, and counts."""

    def __init__(self, options):
        self.random = random.Random(options.seed)
        self.server = Server(options.data, options.log)
        self.sessions = [Session(number, options.seed) for number in range(1, options.sessions + 1)]
        self.floors = Floors(options.seed)
        self.janitor = Janitor('janitor', options.seed)
        self.days = Days(options.seed)
        self.adopter = Adopter(options.seed)
        self.workers = self.sessions + [self.floors, self.days, self.adopter, self.janitor]
        self.phases = collections.Counter()     # in which an adoption was killed
        self.truncations = 0
        self.killed = collections.Counter()
        self.round = 0
        with open(options.log, 'rb') as file:
            self.log_offset = file.seek(0, 2)
        make_collections(self.server.connect_again(), self.workers)

    def play(self, drain):
        """One round: load, crash, recovery, checks."""
        self.round += 1
        self.expired_bulk()
        for worker in self.workers:
            worker.again(self.round)
        time.sleep(self.random.uniform(0.02, 1.2))
        crashed = time.monotonic()
        victim = self.crash()
        for worker in self.workers:
            worker.join(PATIENCE)
            require(not worker.is_alive(), f'{worker.name} is hung')
            require(worker.wrong is None, worker.wrong)
        connection = self.server.connect_again()
        recovered = time.monotonic()
        checks = Checks(connection, self.sessions, self.floors, self.random, self.days)
        checks.all()
        amcheck()
        if drain:
            checks.purge_goes_on()
            checks.adoption_goes_on()
            checks.all()
        self.truncations += checks.number('SELECT sum(truncations) FROM ttl_docs.stat_collections')
        connection.close()
        read_log(self.server.log, self.log_offset)
        print(f'round {self.round}: killed {victim}, server back after {recovered - crashed:.1f} s, '
              f'checked in {time.monotonic() - recovered:.1f} s', flush=True)

    def expired_bulk(self):
        """Writes expired documents, so that the purge is busy when it is killed."""
        connection = self.server.connect_again()
        cursor = connection.cursor()
        cursor.execute(f'''
            SET ttl_docs.clock_offset = {PAST};
            INSERT INTO docs (id, doc)
                SELECT 'bulk ' || gen_random_uuid(), '{{}}' FROM generate_series(1, {BULK})''')
        connection.close()

    def crash(self):
        """Kills a process, restarts the server if needed, and returns the kind of process.

        The first rounds kill each kind once; later rounds choose by weight."""
        if len(self.killed) < len(VICTIMS):
            victim = self.random.choice([victim for victim in VICTIMS if victim not in self.killed])
        else:
            victim, = self.random.choices(list(VICTIMS), VICTIMS.values())
        self.killed[victim] += 1
        if victim == 'backend':
            os.kill(self.random.choice(self.workers).pid, signal.SIGKILL)
        elif victim == 'worker':
            require(self.server.kill_child('ttl_docs purge worker'), 'there is no worker, although much is expired')
        elif victim == 'launcher':
            require(self.server.kill_child('ttl_docs launcher'), 'there is no launcher')
        elif victim == 'adoption':
            self.kill_adoption()
        else:
            self.server.kill_all(self.server.postmaster())
            if victim == 'recovery':
                self.server.start_and_kill(self.random.uniform(0, 0.15))
            self.server.start()
        return victim

    def kill_adoption(self):
        """Kills an adoption, if possible in the phase in which the fewest were killed."""
        connection = self.server.connect_again()
        cursor = connection.cursor()
        fewest = min(self.phases[phase] for phase in PHASES)
        deadline = time.monotonic() + PATIENCE_FOR_PHASE

        def is_in_phase():
            cursor.execute('SELECT pid, phase FROM ttl_docs.stat_progress')
            found = cursor.fetchall()
            if not found or (self.phases[found[0][1]] > fewest and time.monotonic() < deadline):
                return False
            os.kill(found[0][0], signal.SIGKILL)
            self.phases[found[0][1]] += 1
            return True
        self.server.wait_until('there is an adoption', is_in_phase, pause=0)
        connection.close()

    def summary(self):
        resolved = sum((worker.resolved for worker in self.workers), collections.Counter())
        return (f'{sum(self.killed.values())} crashes {dict(self.killed)}; '
                f'{sum(worker.acknowledged for worker in self.workers)} acknowledged transactions, '
                f'{self.floors.changes} changes of DefaultTTL; {self.adopter.adoptions} adoptions, killed in '
                f'{dict(self.phases)}, {self.adopter.releases} releases; open at a crash: {dict(resolved)}; '
                f'{self.truncations} truncations in recovered servers; '
                f'{sum(len(session.events["expired"]) for session in self.sessions)} expired events; '
                f'{sum(worker.retries for worker in self.workers)} retries after 40001 or 40P01')


def parse_options():
    parser = argparse.ArgumentParser(description='Kills server processes under load, and checks the data.')
    parser.add_argument('--data', required=True, help='data directory')
    parser.add_argument('--log', required=True, help="the server's log file")
    parser.add_argument('--crashes', type=int, default=300, help='maximum number of rounds')
    parser.add_argument('--seconds', type=int, default=3600, help='start no round after this time')
    parser.add_argument('--sessions', type=int, default=5)
    parser.add_argument('--seed', type=int, default=1)
    return parser.parse_args()


def main():
    options = parse_options()
    print(f'crash: seed {options.seed}, {options.sessions} sessions, up to {options.crashes} crashes')
    started = time.monotonic()
    torture = Torture(options)
    try:
        while torture.round < options.crashes and (
                torture.round < len(VICTIMS) or time.monotonic() < started + options.seconds):
            torture.play(drain=torture.round % 3 == 2)
            if torture.round % 10 == 0:
                print(f'{time.monotonic() - started:.0f} s: {torture.summary()}', flush=True)
        checks = Checks(torture.server.connect_again(), torture.sessions, torture.floors, torture.random, torture.days)
        checks.purge_goes_on()
        checks.adoption_goes_on()
        checks.all()
    except (Wrong, psycopg2.Error, subprocess.SubprocessError) as error:
        print(f'{time.monotonic() - started:.0f} s: {torture.summary()}')
        print(f'not ok: seed {options.seed}, round {torture.round}: {error}', flush=True)
        return 1
    print(f'{time.monotonic() - started:.0f} s: {torture.summary()}')
    print('all checks passed', flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())

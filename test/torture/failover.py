#!/usr/bin/env python3
"""Makes failovers and switchovers of a Patroni cluster under load, and compares the new primary and its standbys
with the acknowledged writes.

The load, the journal and the checks are those of crash.py.  Replication is synchronous
(synchronous_mode_strict), so the new primary must have every acknowledged write.  Each round has these steps:
    1. Sessions write, and the purge deletes.  There is a backlog, so each event meets a purge.
    2. After a random delay, the program makes one of these events:
           switchover      Patroni makes the synchronous standby the primary.
           server          SIGKILL to all processes of the primary.  Patroni promotes the synchronous standby.
           node            The same, and Patroni dies with its server.
           isolated        Patroni of the primary is stopped.  When its lock has expired, the others promote a
                           standby, while the old primary accepts connections, and its workers purge.
           cancelled       The standbys stop receiving.  Commits wait, and the waits are cancelled, so that commits
                           exist on the primary only.  Then all processes of the primary are killed.
           standby         SIGKILL to all processes of the synchronous standby.
    3. All members come back.  The old primary becomes a standby, by pg_rewind if it has diverged.
    4. The program checks the primary and both standbys.  The next round continues with the same documents.

A commit whose wait for the standby was cancelled is acknowledged with a warning.  The program takes this for "not
acknowledged", so the new primary may have the transaction or not, but only as a whole.

Checks of crash.py (docs, events, floors, storage) on the primary, and all of them that do not write on each
standby, when it has replayed everything.  A standby has neither a launcher nor a worker.  Every third round waits
until the purge has removed all expired documents.

At the end, the program measures what a promoted server with a wrong clock does (failover_clock.py).

The program connects by PGDATABASE and PGUSER as a superuser.  It must run as the server's operating system user,
with patroni and the programs of PostgreSQL on the PATH.  It starts the cluster in a new directory, and stops it.
Exit status: 0 or 1.  The seed determines the writes and the events, but not how far they get.
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
import psycopg2.errorcodes as codes

import crash_checks
import crash_load
from crash_load import PAST
from crash_server import PATIENCE, Wrong, require
from failover_clock import measure_wrong_clocks
from failover_nodes import Cluster

# Weights of the events
EVENTS = {'switchover': 45, 'server': 25, 'node': 5, 'isolated': 8, 'cancelled': 12, 'standby': 5}
BULK = 5000                     # expired documents at the start of each round

WAITING_COMMITS = ("SELECT pid FROM pg_stat_activity"
                   " WHERE wait_event = 'SyncRep' AND application_name ~ '^(session|floors)'")


class Unreplicated(psycopg2.OperationalError):
    """The server has committed a transaction, but only here: its wait for the standby was cancelled."""


class CarefulMixin:
    """Takes a commit with a warning for a broken connection: the outcome is unknown until the failover."""

    def is_lost(self, error):
        return super().is_lost(error) or error.pgcode == codes.QUERY_CANCELED

    def execute(self, statement, *values):
        rows = super().execute(statement, *values)
        if self.connection.autocommit:
            self.require_replicated()
        return rows

    def commit(self):
        before = self.committed
        super().commit()
        try:
            self.require_replicated()
        except Unreplicated:
            self.committed = before
            raise

    def require_replicated(self):
        if any('canceling wait for synchronous replication' in notice for notice in self.connection.notices):
            self.unreplicated += 1
            raise Unreplicated('a commit was not replicated')


class Session(CarefulMixin, crash_load.Session):
    unreplicated = 0


class Floors(CarefulMixin, crash_load.Floors):
    unreplicated = 0


class Janitor(crash_load.Janitor):
    """Its statements need no journal."""

    def is_lost(self, error):
        return super().is_lost(error) or error.pgcode == codes.QUERY_CANCELED


class StandbyChecks(crash_checks.Checks):
    """The checks that do not write."""

    def all(self):
        self.documents()
        self.future()
        self.event_log()
        found = {row[0] for row in self.query('SELECT id FROM floors')}
        require(found == self.floors.alive(), f'floors: {found ^ self.floors.alive()} differ')
        processes = self.number("SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^ttl_docs'")
        require(processes == 0, f'{processes} processes of ttl_docs on a standby')


class Reader:
    """A REPEATABLE READ transaction that begins on a standby, and ends when this server is the primary."""

    def __init__(self, standby):
        self.connection = standby.connect()
        self.connection.set_session(isolation_level='REPEATABLE READ', autocommit=False)
        self.rows = self.read()

    def read(self):
        cursor = self.connection.cursor()
        cursor.execute("SELECT id, doc ->> 'token', _ts FROM docs ORDER BY id")
        return cursor.fetchall()

    def end(self):
        """Returns what has become of the transaction; replication can cancel it, as any query on a standby."""
        try:
            rows = self.read()
        except psycopg2.OperationalError:
            return 'readers cancelled'
        require(rows == self.rows, 'a snapshot of a standby has changed with its promotion')
        self.connection.commit()
        # The session can write now.
        self.connection.cursor().execute("INSERT INTO docs (id, doc) VALUES ('reader', '{}')")
        self.connection.rollback()
        self.connection.close()
        return 'readers across a promotion'


class Torture:
    """Plays the rounds, and counts."""

    def __init__(self, options, cluster):
        self.random = random.Random(options.seed)
        self.cluster = cluster
        self.sessions = [Session(number, options.seed) for number in range(1, options.sessions + 1)]
        self.floors = Floors(options.seed)
        self.janitor = Janitor('janitor', options.seed)
        self.workers = self.sessions + [self.floors, self.janitor]
        self.events = collections.Counter()
        self.counted = collections.Counter()
        self.round = 0
        self.log_offsets = {member: 0 for member in self.cluster.members}
        cursor = self.connect().cursor()
        cursor.execute('CREATE EXTENSION ttl_docs; CREATE EXTENSION amcheck')
        crash_load.make_collections(self.connect(), self.workers)

    def connect(self):
        """Connects to the primary."""
        return self.cluster.primary().connect()

    # ---- Rounds ----

    def play(self, event, drain):
        self.round += 1
        self.expired_bulk()
        for worker in self.workers:
            worker.stopping.clear()
            worker.again(self.round)
        time.sleep(self.random.uniform(0.1, 1.5))
        old = self.cluster.primary()
        began = time.monotonic()
        getattr(self, 'event_' + event)(old)
        self.events[event] += 1
        for worker in self.workers:
            worker.stopping.set()
        self.cluster.wait_until_complete()
        back = time.monotonic()
        for worker in self.workers:
            worker.join(PATIENCE)
            require(not worker.is_alive(), f'{worker.name} is hung')
            require(worker.wrong is None, worker.wrong)
        new = self.cluster.primary()
        self.counted['changes of the primary'] += new is not old
        require((new is old) == (event == 'standby'), f'{new.name} is the primary after {event} of {old.name}')
        resolved = self.resolved()
        self.check(new, drain)
        print(f'round {self.round}: {event}, {old.name} to {new.name}, complete after {back - began:.1f} s, '
              f'checked in {time.monotonic() - back:.1f} s, open: {dict(self.resolved() - resolved)}', flush=True)

    def resolved(self):
        """Counts the outcomes of transactions that were open at an event."""
        return sum((worker.resolved for worker in self.workers), collections.Counter())

    def check(self, primary, drain):
        connection = primary.connect()
        checks = crash_checks.Checks(connection, self.sessions, self.floors, self.random)
        checks.all()
        crash_checks.amcheck()
        if drain:
            checks.purge_goes_on()
            checks.all()
        connection.close()
        self.cluster.wait_for_standbys()
        for standby in self.cluster.standbys():
            connection = standby.connect()
            StandbyChecks(connection, self.sessions, self.floors, self.random).all()
            connection.close()
            self.amcheck_standby(standby)
            self.counted['checked standbys'] += 1
        for member in self.cluster.members:
            crash_checks.read_log(member.log, self.log_offsets[member])
            self.log_offsets[member] = os.path.getsize(member.log)

    @staticmethod
    def amcheck_standby(standby):
        saved = dict(os.environ)
        os.environ.update(PGHOST=standby.socket, PGPORT=str(standby.port), PGTARGETSESSIONATTRS='any')
        try:
            crash_checks.amcheck()
        finally:
            os.environ.update(saved)

    def expired_bulk(self):
        """Writes expired documents, so that the purge is busy."""
        cursor = self.connect().cursor()
        cursor.execute(f'''
            SET ttl_docs.clock_offset = {PAST};
            INSERT INTO docs (id, doc)
                SELECT 'bulk ' || gen_random_uuid(), '{{}}' FROM generate_series(1, {BULK})''')

    # ---- Events ----

    def note_purge(self, primary):
        """Counts the events that meet a purge."""
        self.counted['during a purge'] += any(
            'ttl_docs purge worker' in primary.title(pid) for pid in primary.children(primary.postmaster()))

    def event_switchover(self, old):
        reader = Reader(self.cluster.sync_standby())
        self.note_purge(old)
        self.cluster.switch_over()
        self.counted[reader.end()] += 1

    def event_server(self, old):
        self.note_purge(old)
        old.kill_server()
        self.cluster.wait_for_another_primary(old)

    def event_node(self, old):
        self.note_purge(old)
        old.kill_patroni()
        old.kill_server()
        self.cluster.wait_for_another_primary(old)
        old.remove_empty_locks()
        old.start_patroni(self.cluster)

    def event_isolated(self, old):
        """For a moment there are two primaries.  No commit on the old one may be acknowledged then."""
        self.note_purge(old)
        old.signal_patroni(signal.SIGSTOP)
        try:
            self.cluster.wait_for_another_primary(old)
            acknowledged = self.acknowledged()
            require(old.is_primary(), f'{old.name} is no primary, although nobody has stopped it')
            time.sleep(1)
            # A session that has its answer counts it a moment later.
            late = self.acknowledged() - acknowledged
            require(late <= len(self.workers), f'{late} transactions were acknowledged by an isolated primary')
            self.counted['two primaries'] += 1
            self.counted['commits that wait on an isolated primary'] += len(old.ask(WAITING_COMMITS))
        finally:
            old.signal_patroni(signal.SIGCONT)

    def acknowledged(self):
        return sum(worker.acknowledged for worker in self.sessions + [self.floors])

    def event_cancelled(self, old):
        self.note_purge(old)
        receivers = [pid for member in self.cluster.standbys() for pid in member.children(member.postmaster())
                     if 'walreceiver' in member.title(pid)]
        for pid in receivers:
            os.kill(pid, signal.SIGSTOP)
        try:
            old.wait_until('commits wait for the standby', lambda: len(old.ask(WAITING_COMMITS) or []) > 1)
            old.ask(f'SELECT pg_cancel_backend(pid) FROM ({WAITING_COMMITS}) AS waiting')
            time.sleep(0.2)
            old.kill_server()
        finally:
            for pid in receivers:
                # They must not receive what has arrived meanwhile.
                os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGCONT)
        self.cluster.wait_for_another_primary(old)

    def event_standby(self, _):
        self.cluster.sync_standby().kill_server()

    def summary(self):
        return (f'{self.round} rounds {dict(self.events)}; {dict(self.counted)}; '
                f'{self.cluster.rewinds()} times pg_rewind, {self.cluster.copies()} new copies of a server; '
                f'{sum(worker.acknowledged for worker in self.workers)} acknowledged transactions, '
                f'{self.floors.changes} changes of DefaultTTL; open at an event: {dict(self.resolved())}; '
                f'{sum(worker.unreplicated for worker in self.sessions + [self.floors])} cancelled waits; '
                f'{sum(len(session.events["expired"]) for session in self.sessions)} expired events; '
                f'{sum(worker.retries for worker in self.workers)} retries after 40001 or 40P01')


def parse_options():
    parser = argparse.ArgumentParser(description='Makes failovers under load, and checks the data.')
    parser.add_argument('--directory', required=True, help='an empty directory for the cluster')
    parser.add_argument('--ports', type=int, nargs=9, required=True, help='three ports for each member')
    parser.add_argument('--rounds', type=int, default=100, help='maximum number of rounds')
    parser.add_argument('--seconds', type=int, default=3600, help='start no round after this time')
    parser.add_argument('--sessions', type=int, default=5)
    parser.add_argument('--seed', type=int, default=1)
    return parser.parse_args()


def kinds(chance):
    """Returns the events without end: first each kind once, then by weight."""
    first = list(EVENTS)
    chance.shuffle(first)
    yield from first
    while True:
        yield chance.choices(list(EVENTS), EVENTS.values())[0]


def play_all(torture, options, started):
    for event in kinds(torture.random):
        if torture.round >= options.rounds or time.monotonic() > started + options.seconds:
            break
        torture.play(event, drain=torture.round % 3 == 2)
        if torture.round % 10 == 0:
            print(f'{time.monotonic() - started:.0f} s: {torture.summary()}', flush=True)
    require(torture.round < len(EVENTS) or torture.cluster.rewinds() > 0, 'no server needed pg_rewind')


def main():
    options = parse_options()
    print(f'failover: seed {options.seed}, {options.sessions} sessions, up to {options.rounds} rounds', flush=True)
    started = time.monotonic()
    cluster = Cluster(options.directory, options.ports)
    torture = None
    try:
        cluster.start()
        torture = Torture(options, cluster)
        play_all(torture, options, started)
        print(f'{time.monotonic() - started:.0f} s: {torture.summary()}', flush=True)
        measure_wrong_clocks(cluster)
    except (Wrong, psycopg2.Error, OSError, subprocess.SubprocessError) as error:
        if torture is not None:
            print(f'{time.monotonic() - started:.0f} s: {torture.summary()}')
        print(f'not ok: seed {options.seed}, round {torture and torture.round}: {error}', flush=True)
        return 1
    finally:
        cluster.stop()
    print('all checks passed', flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())

#!/usr/bin/env python3
"""Tortures collections in a Citus cluster: moves, splits and converts tables under load, and kills nodes.

Each round has these steps:
    1. Sessions write.  Meanwhile, a "mover" moves and splits shards, changes the number of shards, removes
       and adds a node, makes the tables plain tables and back, and changes the DefaultTTL (citus_mover.py).
       The clock of all nodes moves ahead in steps, so that documents expire.
    2. The program kills something with SIGKILL: nodes, or processes of nodes.  Some rounds kill nothing.
    3. The killed nodes restart.  Each node decides about its prepared transactions with
       recover_prepared_transactions().
    4. The program checks everything.  The next round continues with the same documents.

Journal.  As in crash.py, every session writes only to its own keys, and knows the acknowledged state of each
key and the one transaction that was open at the crash.  The number of each transaction is in a distributed
table.  Citus commits transactions on several nodes in two phases.  So after recovery, a transaction whose
COMMIT was sent is there as a whole, or not at all.

Time.  The clock of a cluster is that of its nodes: ttl_docs.clock_offset in their configurations.  The program
raises it in steps, between transactions.  In real time, a step takes less than half of its length.  If a step
takes longer, the program ends with status 2, because it cannot judge then, whatever it has found.  A document
with a ttl of "two steps" was written in some step, and expires when the second step after it begins.  Sessions
touch documents in the step before.  Nothing waits for expiry.

Two-phase commit.  Some kills hit the time between PREPARE TRANSACTION and COMMIT PREPARED, because a node waits
in its commit for a standby that does not exist:
    undecided       A worker waits in PREPARE TRANSACTION, the coordinator is killed: nothing may be left.
    decided         The coordinator waits in its own commit, and is killed: the transaction must be complete.
    worker          The coordinator waits in its own commit, a worker is killed: the same.
Other kills hit it by chance.  The program counts how often a node had prepared transactions after a kill.

Checks after each round (citus_checks.py):
    docs      Exactly the live documents of the journal are visible, from the coordinator and from workers.
              Content, ttl, child row and _ts are equal.  Expired keys can be used again.
    archive   A trigger on the shards archives each deleted document, in a plain table of the node.  Each
              expired document is on disk or in one archive, each deleted one in one archive: never twice.
    floors    Documents that expired under an earlier DefaultTTL stay expired.
    catalogs  Labels of all shells and shards are equal.  All shards have their triggers.
    logs      No PANIC, no failed assertion, no process that ended by a signal which is not ours.

Every third round, all expired documents are purged: by the workers of the purge, or by CALL purge() on the nodes.

The program must run as the server's operating system user, with pg_ctl on the PATH, and connects by PGDATABASE
and PGUSER as a superuser.  The nodes must form a cluster with ttl_docs.  It leaves them running.  Exit status:
0, 1 (a check has failed) or 2 (the machine was too slow).  The seed determines the writes, the operations and
the kills, but not how far they get.
"""

import argparse
import collections
import random
import subprocess
import sys
import threading
import time

import psycopg2

from citus_checks import Checks
from citus_load import DEFAULT_TTLS, FLOOR_TTLS, Floors, Gate, Janitor, Session
from citus_mover import DISTRIBUTE, Mover, run_transaction
from citus_nodes import HOLD_COMMITS, PATIENCE, Cluster, Node, TooSlow, Wrong, first_line, require, seconds

# Weights of the kinds of kills.
KILLS = {
    'nothing': 20, 'coordinator': 10, 'worker': 10, 'all nodes': 5, 'backend of the coordinator': 6,
    'backend of a worker': 8, 'replication': 6, 'purge worker': 4, 'two-phase, undecided': 10,
    'two-phase, decided': 10, 'two-phase, worker': 8}
FUTURE = 20                     # steps after which only documents without expiry are left


def make_tables(cluster, workers, shards):
    for node in cluster.nodes:
        node.ask('CREATE TABLE archive (token text, purging boolean, shard text)')
    cluster.coordinator.ask(f"""
        CREATE TABLE ballast (id text PRIMARY KEY, filler text);
        INSERT INTO ballast SELECT i, 'x' FROM generate_series(1, 100) AS i;
        SELECT ttl_docs.create_collection('docs', {seconds(DEFAULT_TTLS[0])});
        CREATE TABLE items (doc_id text PRIMARY KEY CONSTRAINT items_doc_id_fkey REFERENCES docs ON DELETE CASCADE,
                            token text);
        SELECT ttl_docs.create_collection('floors', {seconds(FLOOR_TTLS[0])});
        CREATE FUNCTION archive_doc() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO public.archive VALUES (OLD.doc ->> 'token', ttl_docs.purging(), TG_RELID::regclass);
            RETURN NULL;
        END $$;
        CREATE TRIGGER archive_doc AFTER DELETE ON docs FOR EACH ROW EXECUTE FUNCTION archive_doc()""")
    run_transaction(cluster.coordinator.ask, DISTRIBUTE, shards)
    cluster.coordinator.ask("""
        CREATE TABLE journal (worker text PRIMARY KEY, turn int);
        SELECT create_distributed_table('journal', 'worker', shard_count => 4, colocate_with => 'none')""")
    cluster.coordinator.ask('INSERT INTO journal SELECT unnest(%s), 0', [worker.name for worker in workers])


class Torture:
    """Plays the rounds, and counts."""

    def __init__(self, options, nodes):
        self.random = random.Random(options.seed)
        self.purge = options.purge
        self.cluster = Cluster(nodes)
        self.gate = Gate()
        self.clock = threading.Lock()           # held while the clock moves, or a process is killed
        self.killing = False
        self.default_ttl = DEFAULT_TTLS[0]
        self.new_default_ttl = None
        # A session uses the coordinator, or a worker that is never removed.
        ways_in = nodes[:-1]
        self.sessions = [Session(number, options.seed, ways_in[0 if number % 3 else number % len(ways_in)], self)
                         for number in range(1, options.sessions + 1)]
        self.floors = Floors(options.seed, nodes[0], self)
        self.janitors = [Janitor(f'janitor {node.number}', options.seed, node, self) for node in nodes]
        self.workers = self.sessions + [self.floors] + self.janitors
        self.mover = Mover(options.seed, self)
        self.checks = Checks(self, self.random)
        self.kills = collections.Counter()
        self.windows = collections.Counter()
        self.steps = self.round = 0
        for node in nodes:
            node.set('ttl_docs.purge', 'on' if self.purge else 'off')
            node.set(HOLD_COMMITS, "''")
        make_tables(self.cluster, self.workers, self.random.choice((2, 4)))

    # ---- Time ----

    def next_step(self):
        """Moves the clock while no transaction is open.

        After a kill the clock stands still until the checks have decided about the transactions that were open
        then: their documents were written in the step of the kill."""
        with self.gate.shut(), self.clock:
            if self.killing:
                return
            self.cluster.next_step()
            self.steps += 1
            self.expire()

    def expire(self):
        for worker in self.sessions + [self.floors]:
            worker.expire()

    def accept_default_ttl(self):
        """The new DefaultTTL of docs is in force."""
        self.default_ttl, self.new_default_ttl = self.new_default_ttl, None
        for session in self.sessions:
            session.expire()

    def resolve_default_ttl(self, found):
        """After a crash: was the DefaultTTL changed, or not?"""
        if self.new_default_ttl is not None and found == seconds(self.new_default_ttl):
            self.accept_default_ttl()
        self.new_default_ttl = None

    # ---- Rounds ----

    def play(self, kind):
        self.round += 1
        report = threading.Timer(PATIENCE / 3, self.report)
        report.daemon = True
        report.start()
        try:
            self.play_round(kind)
        finally:
            report.cancel()

    def report(self):
        """Tells what all nodes do in a round that takes long."""
        for node in self.cluster.nodes:
            try:
                print('\n'.join(node.waiting()), flush=True)
            except psycopg2.Error as error:
                print(f'{node.name}: {first_line(error)}', flush=True)

    def play_round(self, kind):
        if self.cluster.step_is_old():
            self.next_step()
        self.mover.repair()
        self.cluster.hang_up()
        for worker in self.workers + [self.mover]:
            worker.again(self.round)
        for _ in range(self.random.randint(1, 2)):
            time.sleep(self.random.uniform(0.1, 1.2))
            self.next_step()
        time.sleep(self.random.uniform(0.05, 0.8))
        doing = self.mover.doing
        with self.clock:
            self.killing = True
            self.kill(kind)
        self.end_load()
        self.killing = False
        self.kills[kind] += 1
        ended = time.monotonic()
        self.cluster.wait_until_quiet()
        self.cluster.recover_all()
        if self.random.random() < 0.7:
            self.cluster.clean_up()
        self.checks.all()
        if self.round % 3 == 0:
            self.drain()
        print(f'round {self.round}: {kind} during {doing}, checked in {time.monotonic() - ended:.1f} s', flush=True)

    def stop_load(self):
        for worker in self.workers + [self.mover]:
            worker.stopping.set()

    def end_load(self):
        """Waits until all threads have ended.  They may wait for locks of prepared transactions."""
        self.stop_load()
        deadline = time.monotonic() + PATIENCE
        for worker in self.workers + [self.mover]:
            while worker.is_alive():
                worker.join(0.5)
                require(time.monotonic() < deadline, f'{worker.name} is hung')
                if worker.is_alive():
                    self.cluster.recover()
            require(worker.wrong is None, worker.wrong)

    def drain(self):
        """Purges all expired documents."""
        self.cluster.coordinator.ask("CALL ttl_docs.purge('docs')")
        if self.purge:
            Node.wait_until('all expired documents are purged', lambda: not self.checks.expired_on_disk())
        left = self.checks.expired_on_disk()
        require(not left, f'CALL purge leaves {left}')
        self.checks.archives()
        self.checks.documents()
        self.checks.forget_archives()

    # ---- Kills ----

    def kill(self, kind):
        """Kills, and restarts.  Sessions run one more transaction at most: see end_load()."""
        coordinator, workers = self.cluster.coordinator, self.cluster.nodes[1:]
        worker = self.random.choice(workers)
        victims = []
        if kind == 'coordinator':
            victims = [coordinator]
        elif kind == 'worker':
            victims = [worker]
        elif kind == 'all nodes':
            victims = self.random.sample(self.cluster.nodes, len(self.cluster.nodes))
        elif kind == 'backend of the coordinator':
            self.kill_process(coordinator, "backend_type = 'client backend'")
        elif kind == 'backend of a worker':
            self.kill_process(worker, "backend_type = 'client backend'")
        elif kind == 'replication':
            self.kill_process(worker, "backend_type IN ('walsender', 'logical replication worker')")
        elif kind == 'purge worker':
            self.kill_process(worker, "backend_type = 'ttl_docs purge worker'")
        elif kind.startswith('two-phase'):
            self.kill_in_window(kind, coordinator, worker)
        self.stop_load()
        for node in victims:
            node.kill()
        if victims:
            self.count_window(kind, [node for node in self.cluster.nodes if node not in victims])
        for node in victims:
            node.start()

    def kill_process(self, node, condition):
        """Kills a process of a node, any client backend if there is none of this kind."""
        for wanted in (condition, "backend_type = 'client backend'"):
            pids = [row[0] for row in node.ask(f"""
                SELECT pid FROM pg_stat_activity
                 WHERE {wanted} AND pid <> pg_backend_pid() ORDER BY state = 'idle', random()""")]
            if pids:
                break
        node.hang_up()
        if pids:
            self.stop_load()
            node.kill_child_and_wait(pids[0])
            self.count_window(f'{node.name[:6]} process', self.cluster.nodes)

    def kill_in_window(self, kind, coordinator, worker):
        """Kills a node after PREPARE TRANSACTION, and before COMMIT PREPARED."""
        holder = worker if kind == 'two-phase, undecided' else coordinator
        victim = worker if kind == 'two-phase, worker' else coordinator
        holder.set(HOLD_COMMITS, "'nobody'")
        try:
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline and not self.is_in_window(holder):
                time.sleep(0.01)
            self.stop_load()
            victim.kill()
            self.count_window(kind, [node for node in self.cluster.nodes if node is not victim])
            victim.start()
        finally:
            holder.set(HOLD_COMMITS, "''")

    def is_in_window(self, holder):
        """Does the node wait in its commit, and are there prepared transactions?"""
        waiting = holder.number_of("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        prepared = [node.prepared() for node in self.cluster.nodes]
        return waiting and any(prepared)

    def count_window(self, kind, nodes):
        prepared = sum(node.prepared() for node in nodes)
        if prepared:
            self.windows[kind] += 1
            self.windows['prepared transactions'] += prepared

    def summary(self):
        resolved = sum((worker.resolved for worker in self.workers), collections.Counter())
        errors = sum((worker.errors for worker in self.workers), collections.Counter())
        lines = [
            f'{self.round} rounds, {self.steps} steps of the clock; kills: {dict(self.kills)}',
            f'prepared transactions after a kill: {dict(self.windows)}',
            f'{sum(session.acknowledged for session in self.sessions)} acknowledged transactions, '
            f'{sum(session.looks for session in self.sessions)} reads under load, '
            f'{sum(session.missed for session in self.sessions)} documents missed, '
            f'{self.floors.changes} changes of DefaultTTL; open at a kill: {dict(resolved)}',
            f'operations: {dict(sorted(self.mover.done.items()))}',
            f'checks: {dict(self.checks.counted)}']
        lines += [f'{count} x retried: {text}' for text, count in errors.most_common(20)]
        lines += [f'{count} x failed: {text}' for text, count in self.mover.errors.most_common(20)]
        return '\n'.join(lines)


def parse_options():
    parser = argparse.ArgumentParser(description='Moves and kills under load in a Citus cluster.')
    parser.add_argument('--node', nargs=4, action='append', required=True, metavar=('HOST', 'PORT', 'DATA', 'LOG'),
                        help='a node, the coordinator first')
    parser.add_argument('--rounds', type=int, default=300, help='maximum number of rounds')
    parser.add_argument('--seconds', type=int, default=3600, help='start no round after this time')
    parser.add_argument('--sessions', type=int, default=4)
    parser.add_argument('--purge', action='store_true', help='let the workers of the purge run')
    parser.add_argument('--seed', type=int, default=1)
    return parser.parse_args()


def kinds(chance):
    """Returns the kinds of kills without end: first each kind once, then by weight."""
    first = list(KILLS)
    chance.shuffle(first)
    yield from first
    while True:
        yield chance.choices(list(KILLS), KILLS.values())[0]


def give_up(torture, reason):
    print(torture.summary())
    print(f'undecided in round {torture.round}: {reason}', flush=True)
    return 2


def main():
    options = parse_options()
    nodes = [Node(number, *values) for number, values in enumerate(options.node)]
    print(f'citus: seed {options.seed}, {len(nodes)} nodes, {options.sessions} sessions, '
          f'purge {"on" if options.purge else "off"}, up to {options.rounds} rounds')
    started = time.monotonic()
    torture = Torture(options, nodes)
    try:
        for kind in kinds(torture.random):
            if torture.round >= options.rounds or time.monotonic() > started + options.seconds:
                break
            torture.play(kind)
            if torture.round % 10 == 0:
                print(f'{time.monotonic() - started:.0f} s: {torture.summary()}', flush=True)
        for _ in range(FUTURE):
            torture.next_step()
        torture.checks.future()
        torture.checks.all()
    except TooSlow as error:
        return give_up(torture, error)
    except (Wrong, psycopg2.Error, subprocess.SubprocessError) as error:
        try:
            torture.cluster.require_short_step()
        except TooSlow as slow:
            return give_up(torture, f'{slow}; found {error}')
        print(f'{time.monotonic() - started:.0f} s: {torture.summary()}')
        print(f'not ok: seed {options.seed}, round {torture.round}: {type(error).__name__}: {error}', flush=True)
        return 1
    print(f'{time.monotonic() - started:.0f} s: {torture.summary()}')
    print('all checks passed', flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())

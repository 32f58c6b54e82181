"""The servers of a Citus cluster: clock, connections, crashes.  For citus.py."""

import collections
import os
import time

import psycopg2

from crash_server import Server, Wrong, require

PATIENCE = 60                   # seconds until something counts as hung
# Seconds of a step of the clock.  The purge is held after a jump of more than 300 seconds.
STEP = 280
# A step must not take longer than this in real time.
LONGEST_STEP = STEP // 2 - 20

HOLD_COMMITS = 'synchronous_standby_names'      # with a standby that does not exist, commits wait

# The clocks of the server and of the program may drift apart by so many seconds, for example if a virtual
# machine is suspended.
MOST_DRIFT = 10

Placement = collections.namedtuple('Placement', 'shard table node')


class TooSlow(Exception):
    """A step of the clock took too long, so nothing is known about the documents that expire."""


def seconds(steps):
    """Returns a ttl of some steps.  A document of step S with this ttl expires when step S + steps begins."""
    return steps if steps in (None, -1) else steps * STEP - STEP // 2


class Node(Server):
    """One server of the cluster."""

    def __init__(self, number, host, port, data, log):
        super().__init__(data, log)
        self.number, self.host, self.port = number, host, int(port)
        self.name = 'coordinator' if number == 0 else f'worker {number}'
        self.connection = None
        with open(log, 'rb') as file:
            self.log_offset = file.seek(0, 2)

    def connect(self, name):
        connection = psycopg2.connect(host=self.host, port=self.port, application_name=name)
        connection.autocommit = True
        return connection

    def connect_again(self):
        """Connects as soon as the server accepts connections."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self.connect('checks')
            except psycopg2.OperationalError as error:
                require(time.monotonic() < deadline, f'the {self.name} does not accept connections: {error}')
                time.sleep(0.02)

    def ask(self, statement, *values):
        """Runs a statement in a connection that stays open until hang_up()."""
        if self.connection is None or self.connection.closed:
            self.connection = self.connect_again()
            self.ask(f"SET statement_timeout = '{PATIENCE}s'")
        cursor = self.connection.cursor()
        cursor.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []

    def ask_with_expired(self, query):
        """Runs a query that also sees expired documents of this node."""
        self.ask('SET ttl_docs.show_expired = on')
        rows = self.ask(query)
        self.ask('RESET ttl_docs.show_expired')
        return rows

    def number_of(self, statement, *values):
        return self.ask(statement, *values)[0][0]

    def hang_up(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def set(self, setting, value):
        """Changes the configuration, and waits until the server has signalled all its processes."""
        connection = self.connect_again()
        cursor = connection.cursor()
        cursor.execute(f'ALTER SYSTEM SET {setting} = {value}')
        cursor.execute('SELECT pg_reload_conf()')
        connection.close()

        def is_set():
            # The server signals its processes before it starts a session with the new value.
            connection = self.connect_again()
            cursor = connection.cursor()
            cursor.execute('SELECT setting FROM pg_settings WHERE name = %s', (setting,))
            found = cursor.fetchone()[0]
            connection.close()
            return found == str(value).strip("'")

        self.wait_until(f'the {self.name} has {setting} = {value}', is_set)

    # ---- Crashes ----

    def kill(self):
        """Kills the postmaster with all its children."""
        self.hang_up()
        self.kill_all(self.postmaster())

    def kill_child_and_wait(self, pid):
        """Kills a process, and waits until the server has restarted all its processes."""
        self.hang_up()
        before = self.checkpointer()
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass
        # A process that was about to exit does not make the server restart.
        deadline = time.monotonic() + 3
        while self.checkpointer() in (None, before) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.connect_again().close()

    def checkpointer(self):
        for pid in self.children(self.postmaster()):
            if 'checkpointer' in self.title(pid):
                return pid
        return None

    def remove_empty_locks(self):
        for path in (os.path.join(self.host, f'.s.PGSQL.{self.port}.lock'),
                     os.path.join(self.data, 'postmaster.pid')):
            if os.path.exists(path) and os.path.getsize(path) == 0:
                os.remove(path)

    def busy(self):
        """Returns the sessions that are doing something, apart from this one."""
        return self.ask("""
            SELECT pid, application_name, state, wait_event, query FROM pg_stat_activity
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'""")

    def waiting(self):
        """Returns what the sessions of this server do, for a report about a round that takes too long."""
        connection = self.connect('report')
        cursor = connection.cursor()
        cursor.execute(r"""
            SELECT concat_ws(' ', pid, application_name, backend_type, state, wait_event,
                             'blocked by', pg_blocking_pids(pid), left(regexp_replace(query, '\s+', ' ', 'g'), 150))
              FROM pg_stat_activity
             WHERE state <> 'idle' AND pid <> pg_backend_pid() OR backend_type ~ 'logical replication worker'
             UNION ALL
            SELECT concat_ws(' ', 'prepared', gid, prepared) FROM pg_prepared_xacts
             UNION ALL
            SELECT concat_ws(' ', 'subscription', s.subname, subenabled, received_lsn, latest_end_lsn)
              FROM pg_subscription AS s LEFT JOIN pg_stat_subscription ON s.oid = subid
             UNION ALL
            SELECT concat_ws(' ', 'slot', slot_name, active, confirmed_flush_lsn, pg_current_wal_lsn())
              FROM pg_replication_slots""")
        rows = [f'{self.name}: {row[0]}' for row in cursor.fetchall()]
        connection.close()
        return rows

    def prepared(self):
        """Returns the number of prepared transactions."""
        return self.number_of('SELECT count(*) FROM pg_prepared_xacts')


class Cluster:
    """All servers.  The first one is the coordinator.  The last one is sometimes removed from the cluster."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.coordinator = nodes[0]
        self.removable = nodes[-1]
        self.step = 0
        self.started = time.time()
        self.program_began = time.monotonic()
        self.step_began = time.monotonic()

    def hang_up(self):
        for node in self.nodes:
            node.hang_up()

    # ---- Time ----

    def next_step(self):
        """Moves the clock of all nodes to the next step."""
        self.require_short_step()
        self.step += 1
        offset = int(self.started + self.step * STEP - time.time())
        for node in self.nodes:
            node.set('ttl_docs.clock_offset', offset)
        self.step_began = time.monotonic()

    def require_short_step(self):
        """In a step that takes too long, documents expire that should expire in the next step."""
        took = time.monotonic() - self.step_began
        drift = abs(time.time() - self.started - (time.monotonic() - self.program_began))
        if took >= LONGEST_STEP or drift > MOST_DRIFT:
            raise TooSlow(f'step {self.step} of the clock took {took:.0f} s, and the clock was off by {drift:.0f} s:'
                          ' the machine is too slow')

    def is_in_step(self, ts):
        """Is this a time of the current step?"""
        began = self.started + self.step * STEP
        return began - 1 <= ts.timestamp() < began + STEP if ts.year > 1 else False

    def step_is_old(self):
        return time.monotonic() - self.step_began > LONGEST_STEP / 2

    # ---- Catalogs ----

    def members(self):
        """Returns the nodes of the cluster by the number that Citus gives them."""
        by_port = {node.port: node for node in self.nodes}
        return {nodeid: by_port[port] for nodeid, port in self.coordinator.ask(
            'SELECT nodeid, nodeport FROM pg_dist_node WHERE isactive ORDER BY nodeid')}

    def placements(self, table):
        """Returns where the shards of a table are.  A plain table is one shard on the coordinator."""
        by_port = {node.port: node for node in self.nodes}
        rows = self.coordinator.ask("""
            SELECT shard_name(logicalrelid, shardid), nodeport
              FROM pg_dist_shard JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node USING (groupid)
             WHERE logicalrelid = to_regclass(%s) AND noderole = 'primary' ORDER BY shardid""", table)
        return ([Placement(shard, table, by_port[port]) for shard, port in rows] or
                [Placement(table, table, self.coordinator)])

    def is_distributed(self, table):
        return bool(self.coordinator.ask(
            "SELECT 1 FROM pg_dist_partition WHERE logicalrelid = to_regclass(%s)", table))

    def on_shards(self, table, query):
        """Runs a query for each shard of a table on its node, expired documents included.  In the query, {}
        is the name of the shard.  Returns the rows of all shards."""
        by_node = collections.defaultdict(list)
        for placement in self.placements(table):
            by_node[placement.node].append(query.format(placement.shard))
        return [row for node, queries in by_node.items() for row in node.ask_with_expired(' UNION ALL '.join(queries))]

    # ---- After a crash ----

    def wait_until_quiet(self):
        """Waits until no session does anything.  A session can commit after the node that began its
        transaction was killed."""
        deadline = time.monotonic() + PATIENCE
        for node in self.nodes:
            while True:
                try:
                    busy = node.busy()
                except psycopg2.OperationalError:
                    node.hang_up()
                    busy = ['the connection is lost']
                if not busy:
                    break
                require(time.monotonic() < deadline, f'the {node.name} is still busy: {busy}')
                time.sleep(0.02)

    def recover(self):
        """Each node decides about the transactions that it has prepared on other nodes."""
        for node in self.nodes:
            node.ask('SELECT recover_prepared_transactions()')

    def recover_all(self):
        deadline = time.monotonic() + PATIENCE
        while True:
            self.recover()
            self.roll_back_on_strangers()
            left = [(node.name, row) for node in self.nodes
                    for row in node.ask('SELECT gid, prepared FROM pg_prepared_xacts')]
            if not left:
                return
            require(time.monotonic() < deadline, f'prepared transactions stay behind: {left}')
            time.sleep(0.05)

    def roll_back_on_strangers(self):
        """Rolls back transactions on nodes that are not in the cluster.  Citus does not look at such nodes: the
        transaction that should have added the node was lost."""
        for node in set(self.nodes) - set(self.members().values()):
            for gid, in node.ask("SELECT gid FROM pg_prepared_xacts WHERE gid ~ '^citus_0_'"):
                node.ask(f"ROLLBACK PREPARED '{gid}'")

    def clean_up(self):
        """Lets Citus drop the old shards, and what is left of moves that failed."""
        self.coordinator.ask('CALL citus_cleanup_orphaned_resources()')


def first_line(error):
    return str(error).strip().split('\n', maxsplit=1)[0]


__all__ = ['Cluster', 'HOLD_COMMITS', 'Node', 'PATIENCE', 'Placement', 'STEP', 'TooSlow', 'Wrong', 'first_line',
           'require', 'seconds']

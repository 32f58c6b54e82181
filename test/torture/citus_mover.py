"""Moves, splits and converts the tables of a Citus cluster.  For citus.py."""

import collections
import random
import threading
import time

import psycopg2

from citus_load import DEFAULT_TTLS
from citus_nodes import PATIENCE, Wrong, first_line, seconds

MOST_SHARDS = 10                # more are not made by splits
MODES = ('block_writes', 'force_logical')

# Citus sends the text of some commands to other nodes, so each command is sent alone.
SEQUENTIAL = "SET LOCAL citus.multi_shard_modify_mode = 'sequential'"
DISTRIBUTE = (
    SEQUENTIAL,
    'ALTER TABLE items DROP CONSTRAINT IF EXISTS items_doc_id_fkey',
    "SELECT create_distributed_table('docs', 'id', shard_count => {}, colocate_with => 'none')",
    "SELECT create_distributed_table('items', 'doc_id', colocate_with => 'docs')",
    'ALTER TABLE items ADD CONSTRAINT items_doc_id_fkey FOREIGN KEY (doc_id) REFERENCES docs ON DELETE CASCADE',
    "SELECT create_distributed_table('floors', 'id', colocate_with => 'docs')",
    "SELECT create_distributed_table('ballast', 'id', colocate_with => 'docs')")
UNDISTRIBUTE = (
    SEQUENTIAL,
    "SELECT undistribute_table('docs', cascade_via_foreign_keys => true)",
    "SELECT undistribute_table('floors')",
    "SELECT undistribute_table('ballast')")

# Errors of Citus that no operation can avoid while sessions write.
BUSY = (psycopg2.errors.DeadlockDetected, psycopg2.errors.SerializationFailure, psycopg2.errors.LockNotAvailable,
        psycopg2.errors.QueryCanceled)


def run_transaction(execute, statements, shards=None):
    """Runs statements in a transaction; {} in them is the number of shards."""
    execute('BEGIN')
    try:
        for statement in statements:
            execute(statement.format(shards))
        execute('COMMIT')
    except psycopg2.Error:
        execute('ROLLBACK')
        raise


class Mover(threading.Thread):
    """A thread that runs one operation of Citus after another."""

    def __init__(self, seed, stage):
        super().__init__(name='mover', daemon=True)
        self.random = random.Random(f'{seed} mover')
        self.stage = stage
        self.cluster = stage.cluster
        self.stopping = threading.Event()
        self.done = collections.Counter()
        self.failed = collections.Counter()
        self.errors = collections.Counter()
        self.wrong = None
        self.doing = None
        self.connection = None
        self.pid = None
        self.operations = {
            'move': (self.move, 6), 'held move': (self.held_move, 3), 'split': (self.split, 3),
            'rebalance': (self.rebalance, 2), 'shard count': (self.shard_count, 3),
            'undistribute': (self.undistribute, 2), 'remove node': (self.remove_node, 2),
            'add node': (self.add_node, 3), 'coordinator': (self.coordinator_shards, 1),
            'default ttl': (self.default_ttl, 3)}

    def again(self, round_number):
        threading.Thread.__init__(self, name='mover', daemon=True)
        self.stopping.clear()
        self.connect(f'mover {round_number}')
        self.start()

    def connect(self, name):
        self.connection = self.cluster.coordinator.connect(name)
        self.pid = self.connection.get_backend_pid()
        self.execute(f"SET statement_timeout = '{PATIENCE}s'")

    def execute(self, statement, *values):
        cursor = self.connection.cursor()
        cursor.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []

    def run(self):
        try:
            while not self.stopping.is_set():
                self.operate()
        except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
            if not self.stage.killing:
                self.wrong = f'{self.doing}: {error}'
        except Wrong as error:
            self.wrong = f'{self.doing}: {error}'
        except Exception as error:
            self.wrong = f'{self.doing}: {type(error).__name__}: {error}'
        finally:
            self.connection.close()

    def operate(self):
        """Runs one operation."""
        names = list(self.operations)
        name, = self.random.choices(names, [self.operations[name][1] for name in names])
        self.doing = name
        try:
            detail = self.operations[name][0]()
            if detail is None:
                return                  # there was nothing to do
            self.done[f'{name} {detail}'.strip()] += 1
        except psycopg2.Error as error:
            self.failed[name] += 1
            self.errors[f'{name}: {error.pgcode} {first_line(error)}'] += 1
            if self.connection.closed:
                raise
        if self.random.random() < 0.7 and not self.stopping.is_set():
            self.execute('CALL citus_cleanup_orphaned_resources()')

    # ---- Shards ----

    def hosts(self):
        """Returns the nodes that may have shards: number, host, port."""
        return self.execute('SELECT nodeid, nodename, nodeport FROM pg_dist_node'
                            ' WHERE isactive AND shouldhaveshards ORDER BY nodeid')

    def shards(self):
        """Returns the shards of docs: number, range, host, port."""
        return self.execute("""
            SELECT shardid, shardminvalue::bigint, shardmaxvalue::bigint, nodename, nodeport
              FROM pg_dist_shard JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node USING (groupid)
             WHERE logicalrelid = 'docs'::regclass ORDER BY shardid""")

    def choose_move(self):
        """Returns the arguments of a move; None if there is only one node with shards."""
        shard, _, _, host, port = self.random.choice(self.shards())
        targets = [node for node in self.hosts() if node[1:] != (host, port)]
        if not targets:
            return None
        _, new_host, new_port = self.random.choice(targets)
        return shard, host, port, new_host, new_port

    def move(self):
        arguments, mode = self.choose_move(), self.random.choice(MODES)
        if arguments is None:
            return None
        self.execute('SELECT citus_move_shard_placement(%s, %s, %s, %s, %s, %s)', *arguments, mode)
        return mode

    def held_move(self):
        """Holds the copy of a move after its snapshot was taken, until the clock is in its next step.

        Meanwhile, sessions touch documents.  In the snapshot, the old versions of these documents are
        expired, but the documents are live: the move must not lose them."""
        arguments = self.choose_move()
        if arguments is None:
            return None
        target = next(node for node in self.cluster.nodes if node.port == arguments[4])
        mover = threading.Thread(target=self.move_sequentially, args=arguments, daemon=True)
        holder = target.connect('holder')
        cursor = holder.cursor()
        cursor.execute('SET citus.enable_manual_changes_to_shards = on')
        holder.autocommit = False
        shard = self.execute("""
            SELECT shard_name('ballast', b.shardid) FROM pg_dist_shard AS d
              JOIN pg_dist_shard AS b ON (b.shardminvalue, b.logicalrelid) = (d.shardminvalue, 'ballast'::regclass)
             WHERE d.shardid = %s""", arguments[0])[0][0]
        self.move_error = None
        mover.start()
        held = False
        try:
            while mover.is_alive() and not held:
                cursor.execute('SELECT to_regclass(%s) IS NOT NULL', (shard,))
                held = cursor.fetchone()[0]
                holder.rollback()
            if held:
                cursor.execute(f'LOCK TABLE {shard} IN EXCLUSIVE MODE')
                waits = False
                while mover.is_alive() and not waits:
                    cursor.execute('SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND relation = %s::regclass',
                                   (shard,))
                    waits = cursor.fetchone()[0]
                if waits:
                    self.stopping.wait(0.2)
                    if not self.stopping.is_set():
                        self.stage.next_step()
                        self.stopping.wait(0.05)
                held = waits
        finally:
            holder.close()
            mover.join(PATIENCE)
        if mover.is_alive():
            raise Wrong('the move is hung')
        if self.move_error is not None:
            raise self.move_error
        return 'hit' if held else 'missed'

    def move_sequentially(self, *arguments):
        try:
            # The copy of ballast comes before the copies of the other tables, or after them.
            self.execute('SET citus.max_adaptive_executor_pool_size = 1')
            self.execute("SELECT citus_move_shard_placement(%s, %s, %s, %s, %s, 'force_logical')", *arguments)
            self.execute('RESET citus.max_adaptive_executor_pool_size')
        except psycopg2.Error as error:
            self.move_error = error

    def split(self):
        shards = self.shards()
        if len(shards) >= MOST_SHARDS:
            return None
        shard, low, high, host, port = self.random.choice(shards)
        mode = self.random.choice(MODES)
        point = self.random.randint(low, high - 1)
        nodes = [node[0] for node in self.hosts() if mode == 'block_writes' or node[1:] != (host, port)]
        # A logical split to the node itself can hang, also without ttl_docs: for a while, the new shard has no
        # replica identity, and an UPDATE cannot be applied ("publisher did not send replica identity column").
        if not nodes:
            return None
        nodes = [self.random.choice(nodes) for _ in range(2)]
        self.execute('SELECT citus_split_shard_by_split_points(%s, %s, %s, %s)', shard, [str(point)], nodes, mode)
        return mode

    def rebalance(self):
        mode = self.random.choice(MODES)
        self.execute("SELECT rebalance_table_shards('docs', shard_transfer_mode => %s)", mode)
        return mode

    # ---- Conversions ----

    def shard_count(self):
        now = len(self.shards())
        count = self.random.choice([count for count in (2, 3, 4, 5) if count != now])
        self.execute("SELECT alter_distributed_table('docs', shard_count => %s, cascade_to_colocated => true)", count)
        return ''

    def undistribute(self):
        """Makes the tables plain tables, and distributes them again, in one transaction or in two."""
        with self.stage.gate.shut():
            together = self.random.random() < 0.5
            count = self.random.choice((2, 4))
            if together:
                run_transaction(self.execute, UNDISTRIBUTE + DISTRIBUTE, count)
            else:
                run_transaction(self.execute, UNDISTRIBUTE)
                self.stopping.wait(self.random.random() / 4)
                run_transaction(self.execute, DISTRIBUTE, count)
        return 'in one transaction' if together else 'in two'

    def repair(self):
        """After a crash, the tables may still be plain tables."""
        if not self.cluster.is_distributed('docs'):
            self.connect('repair')
            run_transaction(self.execute, DISTRIBUTE, 4)
            self.connection.close()

    # ---- Nodes ----

    def last_node(self):
        return self.cluster.removable.host, self.cluster.removable.port

    def has_last_node(self):
        return bool(self.execute('SELECT 1 FROM pg_dist_node WHERE (nodename, nodeport) = (%s, %s)', *self.last_node()))

    def remove_node(self):
        if not self.has_last_node():
            return None
        mode = self.random.choice(MODES)
        self.execute('SELECT citus_drain_node(%s, %s, shard_transfer_mode => %s)', *self.last_node(), mode)
        self.execute('CALL citus_cleanup_orphaned_resources()')
        self.execute('SELECT citus_remove_node(%s, %s)', *self.last_node())
        return mode

    def add_node(self):
        if not self.has_last_node():
            self.execute('SELECT citus_add_node(%s, %s)', *self.last_node())
            return ''
        # An operation that failed may have left the node without shards.
        if self.last_node() in [node[1:] for node in self.hosts()]:
            return None
        self.execute("SELECT citus_set_node_property(%s, %s, 'shouldhaveshards', true)", *self.last_node())
        return 'again'

    def coordinator_shards(self):
        """The coordinator may have shards from now on, or gets no new ones."""
        coordinator = self.cluster.coordinator
        self.execute("SELECT citus_set_node_property(%s, %s, 'shouldhaveshards', %s)",
                     coordinator.host, coordinator.port, self.random.random() < 0.5)
        return ''

    def default_ttl(self):
        """Changes the DefaultTTL of docs.  Documents that expire by the change stay expired."""
        with self.stage.gate.shut():
            ttl = self.random.choice(DEFAULT_TTLS)
            self.stage.new_default_ttl = ttl
            self.execute("SELECT ttl_docs.set_default_ttl('docs', %s)", seconds(ttl))
            self.stage.accept_default_ttl()
        return ''

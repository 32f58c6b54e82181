"""Sessions that write documents in a Citus cluster, and keep a journal.  For citus.py."""

import collections
import contextlib
import re
import threading

import psycopg2

from crash_load import Worker
from citus_nodes import first_line, require, seconds

KEYS = 25                       # of a session
TTLS = (None, None, -1, 1, 1, 2, 2, 3, 5)       # in steps of the clock; None is the DefaultTTL
DEFAULT_TTLS = (2, 4, -1)       # of "docs"
FLOOR_TTLS = (1, 3, -1, None)   # of "floors"; None turns TTL off
LABEL = "SELECT label FROM pg_seclabel WHERE objoid = %s::regclass AND provider = 'ttl_docs'"

# A live document in a journal.  ttl and step are in steps of the clock.  ts is None if the statement that
# wrote the document was not answered.
Live = collections.namedtuple('Live', 'token ttl item step ts')

# Errors of a statement that needed a node which was killed.  Citus reports some of them as internal errors.
NODE_IS_LOST = re.compile('server closed the connection|connection to the remote node|connection not open'
                          '|failure on connection|terminating connection|the database system is'
                          '|could not commit transaction for shard|could not query all nodes of Citus')


# Internal errors of a statement whose table Citus has replaced meanwhile
TABLE_IS_REPLACED = re.compile('could not find valid entry for shard')


def matches(live, row):
    """Does a row (token, ttl in seconds, item, ts) match the journal?"""
    return (row is not None and (live.token, seconds(live.ttl), live.item) == tuple(row[:3]) and
            live.ts in (None, row[3]))


def is_expired(step, ttl, default_ttl, now):
    """Is a document expired that was written in a step with its own ttl?  A DefaultTTL of None is off."""
    ttl = default_ttl if ttl is None else ttl
    return default_ttl is not None and ttl != -1 and now - step >= ttl


class NotYetVisible(Exception):
    """A statement has missed live documents."""


class Gate:
    """Sessions pass the gate before each transaction.  While the gate is shut, no transaction is open."""

    def __init__(self):
        self.changed = threading.Condition()
        self.one_at_a_time = threading.RLock()
        self.is_shut = False
        self.inside = self.waiting = 0

    @contextlib.contextmanager
    def session(self):
        with self.changed:
            self.inside += 1
        try:
            yield
        finally:
            with self.changed:
                self.inside -= 1
                self.changed.notify_all()

    def pass_through(self):
        with self.changed:
            self.waiting += 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: not self.is_shut)
            self.waiting -= 1

    @contextlib.contextmanager
    def shut(self):
        with self.one_at_a_time:
            with self.changed:
                self.is_shut = True
                self.changed.wait_for(lambda: self.waiting == self.inside)
            try:
                yield
            finally:
                with self.changed:
                    self.is_shut = False
                    self.changed.notify_all()


class Client(Worker):
    """A thread with one connection to a node."""

    to_retry = (psycopg2.errors.SerializationFailure, psycopg2.errors.DeadlockDetected,
                psycopg2.errors.LockNotAvailable, psycopg2.errors.UndefinedTable)
    settings = {}
    writes = True               # does it pass the gate?

    def __init__(self, name, seed, node, stage):
        super().__init__(name, seed)
        self.node = node
        self.stage = stage              # has the gate, the cluster, and "killing"
        self.errors = collections.Counter()

    def again(self, round_number):
        threading.Thread.__init__(self, name=self.name, daemon=True)
        self.stopping.clear()
        self.connection = self.node.connect(f'{self.name} {round_number}')
        self.cursor = self.connection.cursor()
        self.pid = self.connection.get_backend_pid()
        for setting, value in self.settings.items():
            self.execute(f'SET {setting} = %s', value)
        self.start()

    def run(self):
        with self.stage.gate.session() if self.writes else contextlib.nullcontext():
            super().run()

    def turn_or_retry(self):
        if self.writes:
            self.stage.gate.pass_through()
        if self.stopping.is_set():
            return
        try:
            self.turn()
        except (psycopg2.Error, NotYetVisible) as error:
            if not isinstance(error, self.to_retry + (NotYetVisible,)) and not TABLE_IS_REPLACED.search(str(error)):
                raise
            self.retries += 1
            self.errors[re.sub('[0-9]+', 'N', first_line(error))] += 1
            self.connection.rollback()
            self.forget()

    def is_lost(self, error):
        return (self.stage.killing and NODE_IS_LOST.search(str(error))) or super().is_lost(error)

    def commit(self):
        self.turns += 1
        self.execute('UPDATE journal SET turn = %s WHERE worker = %s', self.turns, self.name)
        if self.cursor.rowcount != 1:
            self.turns -= 1
            raise NotYetVisible('the journal is not yet visible at its new place')
        self.sent = True
        self.connection.commit()
        self.committed = self.turns

    @property
    def now(self):
        return self.stage.cluster.step


class Session(Client):
    """Writes its own documents, and keeps their journal."""

    def __init__(self, number, seed, node, stage):
        super().__init__(f'session {number}', seed, node, stage)
        self.number = number
        self.keys = [f's{number}-{i}' for i in range(KEYS)]
        self.docs = {}          # key: Live, as acknowledged
        self.used = set()       # keys that may be on disk
        self.expired = set()    # tokens of expired documents
        self.deleted = set()    # tokens of live documents that were deleted
        self.counter = 0
        self.looks = self.missed = 0
        self.forget()

    def forget(self):
        self.effects = {}       # changes of the open transaction: key: Live, or None if it deletes the document
        self.new_deleted = set()
        self.sent = False       # was the server asked to commit the transaction?
        self.single = False     # is the transaction a single statement?

    def apply(self):
        for key, state in self.effects.items():
            self.used.add(key)
            if state is None:
                self.docs.pop(key, None)
            else:
                self.docs[key] = state
        self.deleted |= self.new_deleted
        self.forget()

    def state(self, key):
        return self.effects[key] if key in self.effects else self.docs.get(key)

    def expire(self):
        """Some documents expire because of a new step or a new DefaultTTL."""
        for key, live in list(self.docs.items()):
            if is_expired(live.step, live.ttl, self.stage.default_ttl, self.now):
                self.expired.add(live.token)
                del self.docs[key]

    # ---- Transactions ----

    def turn(self):
        if self.random.random() < 0.35:
            self.connection.autocommit = self.sent = self.single = True
            self.random.choice((self.insert, self.insert_many, self.upsert, self.update, self.update_many,
                                self.touch, self.touch, self.touch_many, self.delete, self.delete_many))()
        else:
            self.connection.autocommit = False
            if self.random.random() < 0.2:
                self.execute('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ')
            for _ in range(self.random.randint(1, 6)):
                self.random.choice((
                    self.insert, self.insert_many, self.insert_with_item, self.upsert, self.update,
                    self.update_many, self.touch, self.touch, self.touch_many, self.delete, self.delete_many,
                    self.look))()
            if self.random.random() < 0.1:
                self.connection.rollback()
                self.forget()
                return
            self.commit()
        self.apply()
        self.acknowledged += 1

    def pick(self, alive, most=1):
        """Returns some keys with or without a live document."""
        keys = [key for key in self.keys if (self.state(key) is not None) == alive]
        return self.random.sample(keys, min(len(keys), self.random.randint(1, most)))

    def new_doc(self, key, ttl):
        self.counter += 1
        token = f'{key}:{self.counter}'
        filler = 'x' * self.random.choice((1, 50, 500))
        ttl_part = '' if ttl is None else f', "ttl": {seconds(ttl)}'
        return token, f'{{"token": "{token}", "filler": "{filler}"{ttl_part}}}'

    def write(self, statement, values, new):
        """Runs a statement that returns the id and _ts of the documents in new, which has their new state."""
        self.effects.update(new)
        rows = dict(self.execute(statement + ' RETURNING id, _ts', *values))
        require(rows.keys() <= new.keys(),
                f'{self.name}: in step {self.now}: {statement} of {sorted(new)} finds {sorted(rows)}')
        self.miss(new.keys() - rows.keys())
        for key, ts in rows.items():
            if new[key] is not None:
                self.effects[key] = new[key]._replace(ts=ts)
                require(self.stage.cluster.is_in_step(ts),
                        f'{self.name}: in step {self.now}: {statement} of {key} returns the _ts {ts}')

    def miss(self, keys):
        """A statement has not found these live documents.

        Citus moves rows, and has no common snapshot of all nodes.  So a statement may use the new place of a
        shard, but not see the rows there.  It happens without ttl_docs, too: for sessions on a worker, for
        snapshots that are older than the move, and for shards on the coordinator.  Later statements must find
        the documents."""
        if keys and not self.single:
            raise NotYetVisible('rows are not yet visible at their new place')
        self.missed += len(keys)
        for key in keys:
            del self.effects[key]
            self.new_deleted.discard(self.docs[key].token)

    def new_docs(self, keys):
        """Returns documents for an INSERT, and their states."""
        docs, new = [], {}
        for key in keys:
            ttl = self.random.choice(TTLS)
            token, doc = self.new_doc(key, ttl)
            old = self.state(key)
            docs.append(doc)
            new[key] = Live(token, ttl, old.item if old else None, self.now, None)
        return docs, new

    def insert(self):
        """Inserts a document whose id is unused, or that of an expired document."""
        keys = self.pick(alive=False)
        docs, new = self.new_docs(keys)
        if keys:
            self.write('INSERT INTO docs (id, doc) VALUES (%s, %s)', (keys[0], docs[0]), new)
        return keys

    def insert_many(self):
        keys = self.pick(alive=False, most=5)
        docs, new = self.new_docs(keys)
        if keys:
            self.write('INSERT INTO docs (id, doc) VALUES ' + ', '.join(['(%s, %s)'] * len(keys)),
                       [value for pair in zip(keys, docs) for value in pair], new)

    def insert_with_item(self):
        for key in self.insert():
            token = self.effects[key].token
            self.execute('INSERT INTO items VALUES (%s, %s)', key, token)
            self.effects[key] = self.effects[key]._replace(item=token)

    def upsert(self):
        keys = [self.random.choice(self.keys)]
        docs, new = self.new_docs(keys)
        self.write('INSERT INTO docs (id, doc) VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET doc = excluded.doc',
                   (keys[0], docs[0]), new)

    def update(self):
        """Updates a key.  Finds nothing if the document is expired."""
        key = self.random.choice(self.keys)
        docs, new = self.new_docs([key])
        self.write('UPDATE docs SET doc = %s WHERE id = %s', (docs[0], key),
                   new if self.state(key) else {})

    def update_many(self):
        self.counter += 1
        new = {key: self.state(key)._replace(token=f'{key}:{self.counter}', step=self.now, ts=None)
               for key in self.pick(alive=True, most=6)}
        keys = sorted(new.keys() | set(self.pick(alive=False)))
        self.write("UPDATE docs SET doc = jsonb_set(doc, '{token}', ('\"' || id || %s)::jsonb) WHERE id = ANY (%s)",
                   (f':{self.counter}"', keys), new)

    def soon_expired(self):
        """Returns live keys, those that expire in the next step first."""
        keys = [key for key in self.keys if self.state(key)]
        self.random.shuffle(keys)
        return sorted(keys, reverse=True, key=lambda key: is_expired(
            self.state(key).step, self.state(key).ttl, self.stage.default_ttl, self.now + 1))

    def touch(self):
        """Touches a document that expires in the next step, if there is one."""
        self.touch_these(self.soon_expired()[:1])

    def touch_many(self):
        self.touch_these(self.soon_expired()[:self.random.randint(2, 5)])

    def touch_these(self, keys):
        new = {key: self.state(key)._replace(step=self.now, ts=None) for key in keys}
        if len(keys) == 1:
            self.write('UPDATE docs SET _ts = DEFAULT WHERE id = %s', (keys[0],), new)
        elif keys:
            self.write('UPDATE docs SET _ts = DEFAULT WHERE id = ANY (%s)', (keys,), new)

    def delete(self):
        key = self.random.choice(self.keys)
        self.note_deleted([key])
        self.write('DELETE FROM docs WHERE id = %s', (key,), {key: None} if self.state(key) else {})

    def delete_many(self):
        keys = self.pick(alive=True, most=3)
        self.note_deleted(keys)
        self.write('DELETE FROM docs WHERE id = ANY (%s)', (keys,), {key: None for key in keys})

    def note_deleted(self, keys):
        self.new_deleted |= {self.state(key).token for key in keys if self.state(key)}

    def look(self):
        """Reads all keys, while other sessions write, and Citus moves shards."""
        self.looks += 1
        rows = {row[0]: row[1:] for row in self.execute(
            "SELECT id, doc ->> 'token', _ttl, _ts FROM docs WHERE id = ANY (%s)", self.keys)}
        for key in self.keys:
            live, row = self.state(key), rows.get(key)
            require(row is None or (live is not None and row == (live.token, seconds(live.ttl), live.ts)),
                    f'{self.name}: in step {self.now}: reads {row} for {key} but should read {live}')
        self.miss({key for key in self.keys if self.state(key)} - rows.keys())

    # ---- After a crash ----

    def resolve(self, turn, docs):
        """Decides after a crash about the open transaction.

        turn is the last number in the table, docs are this session's documents that were found."""
        if not self.single:
            self.resolve_turn(turn)
            return
        require(turn == self.committed,
                f'{self.name}: transaction {self.committed} was acknowledged last, but the last one found is {turn}')
        old = {key for key in self.effects if self.is_as_before(key, docs.get(key))}
        new = {key for key in self.effects if self.is_as_after(key, docs.get(key))}
        if old == self.effects.keys():
            self.settle(False)
            return
        require(new == self.effects.keys(), f'{self.name}: a statement changed only some documents: '
                                            f'{sorted(old)} are old, {sorted(new)} are new, of {self.effects}')
        for key, state in self.effects.items():
            if state is not None:
                self.effects[key] = state._replace(ts=docs[key][3])
        self.settle(True)

    def is_as_before(self, key, row):
        return matches(self.docs[key], row) if key in self.docs else row is None

    def is_as_after(self, key, row):
        return matches(self.effects[key], row) if self.effects[key] is not None else row is None


class Floors(Client):
    """Changes a DefaultTTL again and again, and writes documents that expire under it or not."""

    # Citus does not detect a deadlock of the rebalancer with any command that needs an exclusive lock: the
    # rebalancer holds a lock on the table, and waits for another session of its own that needs the same lock.
    settings = {'lock_timeout': '2s'}

    def __init__(self, seed, node, stage):
        super().__init__('floors', seed, node, stage)
        self.default_ttl = FLOOR_TTLS[0]
        self.docs = {}          # key: (step, its own ttl, is it expired)
        self.changes = 0
        self.forget()

    def forget(self):
        self.new_docs = self.new_default_ttl = None
        self.sent = False

    def apply(self):
        self.docs, self.default_ttl = self.new_docs, self.new_default_ttl
        self.forget()

    def alive(self):
        return {key for key, doc in self.docs.items() if not doc[2]}

    def after(self, docs, default_ttl):
        """Returns the documents under a DefaultTTL.  A document that is expired stays expired."""
        return {key: (step, ttl, dead or is_expired(step, ttl, default_ttl, self.now))
                for key, (step, ttl, dead) in docs.items()}

    def expire(self):
        self.docs = self.after(self.docs, self.default_ttl)

    def turn(self):
        self.connection.autocommit = False
        self.new_docs, self.new_default_ttl = dict(self.docs), self.default_ttl
        if self.random.random() < 0.3:
            self.changes += 1
            self.new_default_ttl = self.random.choice(FLOOR_TTLS)
            self.execute("SELECT ttl_docs.set_default_ttl('floors', %s)", seconds(self.new_default_ttl))
            self.new_docs = self.after(self.new_docs, self.new_default_ttl)
        for _ in range(self.random.randint(0, 5)):
            key = f'f{self.random.randrange(KEYS)}'
            ttl = self.random.choice(TTLS)
            doc = '{}' if ttl is None else f'{{"ttl": {seconds(ttl)}}}'
            self.execute('INSERT INTO floors (id, doc) VALUES (%s, %s)'
                         ' ON CONFLICT (id) DO UPDATE SET doc = excluded.doc', key, doc)
            self.new_docs[key] = (self.now, ttl, False)
        self.commit()
        self.apply()
        self.acknowledged += 1
        found = {row[0] for row in self.execute('SELECT id FROM floors')}
        self.connection.commit()
        # A node that was killed has the new DefaultTTL only after it has decided about its prepared transactions.
        require(self.stage.killing or found <= self.alive(),
                f'floors: under DefaultTTL {self.default_ttl}, {found - self.alive()} have come back')


class Janitor(Client):
    """Vacuums and makes checkpoints on a node, so that recovery starts at varying points."""

    settings = {'lock_timeout': '1s', 'citus.enable_ddl_propagation': 'off'}
    writes = False

    def turn(self):
        self.execute(self.random.choice(('VACUUM', 'CHECKPOINT', 'SELECT pg_switch_wal()')))
        self.acknowledged += 1
        self.stopping.wait(self.random.random() / 2)



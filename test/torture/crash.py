#!/usr/bin/env python3
"""Kills server processes at random moments under load, and compares the recovered data with the acknowledged
writes.

Each round has these steps:
    1. Sessions write, and the purge deletes.
    2. After a random delay, the program kills a process with SIGKILL: the postmaster with all its children,
       a backend, a purge worker or the launcher.  Or it kills the postmaster twice, the second time during
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
    purge    The purge continues: all expired documents leave the disk.
    storage  pg_amcheck --heapallindexed finds no error.  The log has no PANIC and no failed assertion.

The program connects by PGHOST, PGPORT, PGDATABASE and PGUSER as a superuser.  The database must have the
extensions ttl_docs and amcheck.  The program must run as the server's operating system user, with pg_ctl and
pg_amcheck on the PATH.  It leaves the server running.  Exit status: 0 or 1.

The seed determines the writes, the killed processes and the delays.  It does not determine how far the server
gets before it is killed.
"""

import argparse
import collections
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

import psycopg2
import psycopg2.errorcodes as codes

DAY = 86400
PAST = -20 * DAY                # clock offset for writing documents that are expired
DEFAULT_TTL = 10 * DAY          # of docs and events
SHORT_TTL = 60                  # of documents written in the past with their own ttl
LONG_TTLS = (None, -1, 50 * DAY, 100 * DAY)
FUTURE = 200 * DAY              # clock offset at which all of these except -1 have expired
FLOOR_TTLS = (DEFAULT_TTL, -1, None, 100 * DAY)         # DefaultTTLs that "floors" switches between
KEYS = 40                       # of a session
DAY_SIZE = 4400                 # documents of a partition of days: more than 1,000 pages
BULK = 1000                     # expired documents at the start of each round
PATIENCE = 180                  # seconds until something counts as hung
OUR_SIGNALS = ('9', '3')        # SIGKILL from us; SIGQUIT from the postmaster to the other processes
LABEL_OF_FLOORS = "SELECT label FROM pg_seclabels WHERE objoid = 'floors'::regclass AND provider = 'ttl_docs'"

# Weights of the processes to kill; "recovery" is the postmaster, and again during recovery.
VICTIMS = {'postmaster': 35, 'recovery': 10, 'backend': 20, 'worker': 25, 'launcher': 10}


class Wrong(Exception):
    """The server did something wrong."""


def require(condition, text):
    if not condition:
        raise Wrong(text)


# A live document in a journal.  ts is None if the statement that wrote it was not answered.
Live = collections.namedtuple('Live', 'token ttl k item ts')


def same(live, row):
    """Does a row match the journal?  Any _ts matches if the server never returned it."""
    return row is not None and live[:4] == row[:4] and live.ts in (None, row.ts)


# ---- The load ----

class Worker(threading.Thread):
    """A thread with one connection, which works until it is told to stop or the connection breaks."""

    to_retry = (psycopg2.errors.SerializationFailure,)

    def __init__(self, name, seed):
        super().__init__(name=name, daemon=True)
        self.random = random.Random(f'{seed} {name}')
        self.stopping = threading.Event()
        self.turns = 0          # number of the last transaction that tried to commit
        self.committed = 0      # number of the last acknowledged transaction
        self.acknowledged = 0
        self.resolved = collections.Counter()           # outcomes of transactions that were open at a crash
        self.retries = 0
        self.wrong = None
        self.connection = None
        self.cursor = None
        self.pid = None

    def again(self, round_number):
        """Starts a new thread with the same journal for the next round, because a thread runs only once."""
        threading.Thread.__init__(self, name=self.name, daemon=True)
        self.connection = psycopg2.connect(application_name=f'{self.name} {round_number}')
        self.cursor = self.connection.cursor()
        self.pid = self.connection.get_backend_pid()
        self.start()

    def run(self):
        try:
            while not self.stopping.is_set():
                self.turn_or_retry()
        except psycopg2.Error as error:
            if not self.is_lost(error):
                self.wrong = f'{self.name}: {error.pgcode} {error}'
        except Exception as error:
            self.wrong = f'{self.name}: {type(error).__name__}: {error}'
        finally:
            self.connection.close()

    def is_lost(self, error):
        """Did the connection break, as opposed to a statement that failed?"""
        return error.pgcode in (codes.ADMIN_SHUTDOWN, codes.CRASH_SHUTDOWN) or (
            error.pgcode is None and not isinstance(error, psycopg2.ProgrammingError))

    def turn_or_retry(self):
        try:
            self.turn()
        except self.to_retry:
            self.retries += 1
            self.connection.rollback()
            self.forget()

    def execute(self, statement, *values):
        self.cursor.execute(statement, values)
        return self.cursor.fetchall() if self.cursor.description else []

    def in_the_past(self, statement, *values):
        self.execute('SET LOCAL ttl_docs.clock_offset = %s', PAST)
        rows = self.execute(statement, *values)
        self.execute('SET LOCAL ttl_docs.clock_offset = 0')
        return rows

    def commit(self):
        """Commits the transaction, and records its number in a table where it is found after a crash."""
        self.turns += 1
        self.execute('UPDATE journal SET turn = %s WHERE worker = %s', self.turns, self.name)
        self.sent = True
        self.connection.commit()
        self.committed = self.turns

    def turn(self):
        raise NotImplementedError

    def forget(self):
        """Discards the open transaction from the journal."""

    def apply(self):
        """Adds the open transaction to the journal: it was acknowledged, or found after a crash."""

    def resolve_turn(self, turn):
        """Decides after a crash about the open transaction; turn is the last number in the table."""
        require(turn >= self.committed,
                f'{self.name}: transaction {self.committed} was acknowledged, but the last one found is {turn}')
        came_through = turn > self.committed
        self.committed = turn
        self.settle(came_through)

    def settle(self, came_through):
        """Updates the journal with the outcome of the open transaction."""
        require(self.sent or not came_through, f'{self.name}: found a transaction without a COMMIT')
        if came_through:
            self.resolved['there'] += 1
            self.apply()
        else:
            self.resolved['absent' if self.sent else 'not sent'] += 1
            self.forget()


class Session(Worker):
    """Writes its own documents and events, and keeps their journal."""

    def __init__(self, number, seed):
        super().__init__(f'session {number}', seed)
        self.number = number
        self.keys = [f's{number}-{i}' for i in range(KEYS)]
        self.docs = {}          # key: Live, as acknowledged
        self.used = set()       # keys that were written and may be on disk
        self.events = {'live': set(), 'expired': set()}
        self.counter = 0
        self.forget()

    def forget(self):
        self.effects = {}       # changes of the open transaction: key: Live, or None if it removes the document
        self.new_events = {'live': set(), 'expired': set()}
        self.sent = False       # was the server asked to commit the transaction?
        self.single = False     # is the transaction a single statement?

    def apply(self):
        for key, state in self.effects.items():
            self.used.add(key)
            if state is None:
                self.docs.pop(key, None)
            else:
                self.docs[key] = state
        for kind, numbers in self.new_events.items():
            self.events[kind] |= numbers
        self.forget()

    def state(self, key):
        return self.effects[key] if key in self.effects else self.docs.get(key)

    def number_of(self):
        self.counter += 1
        return self.counter

    def free_k(self):
        """Returns a second key that no live document of this session has; an expired one may have it."""
        taken = {self.state(key).k for key in self.keys if self.state(key)}
        ours = range(self.number * 1000, self.number * 1000 + 2 * KEYS)
        return self.random.choice([k for k in ours if k not in taken])

    def turn(self):
        if self.random.random() < 0.4:
            self.connection.autocommit = self.sent = self.single = True
            self.random.choice((self.insert, self.upsert, self.update, self.touch, self.delete))()
        else:
            self.connection.autocommit = False
            for _ in range(self.random.randint(1, 6)):
                self.random.choice((
                    self.insert, self.insert_with_item, self.upsert, self.update, self.touch, self.delete,
                    self.rename, self.expire, self.expire, self.insert_expired, self.event,
                    self.expired_event))()
            if self.random.random() < 0.15:
                self.connection.rollback()
                self.forget()
                return
            self.commit()
        self.apply()
        self.acknowledged += 1

    def pick(self, alive):
        keys = [key for key in self.keys if (self.state(key) is not None) == alive]
        return self.random.choice(keys) if keys else None

    def new_doc(self, ttl):
        token = f'{self.number}:{self.number_of()}'
        filler = 'x' * self.random.choice((1, 50, 500))
        ttl_part = '' if ttl is None else f', "ttl": {ttl}'
        return token, f'{{"token": "{token}", "filler": "{filler}"{ttl_part}}}'

    def insert(self):
        """Inserts a document with an id and a second key that are unused or held by an expired document."""
        key = self.pick(alive=False)
        if key is None:
            return None
        k, ttl = self.free_k(), self.random.choice(LONG_TTLS)
        token, doc = self.new_doc(ttl)
        self.effects[key] = Live(token, ttl, k, None, None)
        rows = self.execute('INSERT INTO docs (id, k, doc) VALUES (%s, %s, %s) RETURNING _ts', key, k, doc)
        self.effects[key] = self.effects[key]._replace(ts=rows[0][0])
        return key

    def insert_with_item(self):
        key = self.insert()
        if key is not None:
            token = self.effects[key].token
            self.execute('INSERT INTO items VALUES (%s, %s)', key, token)
            self.effects[key] = self.effects[key]._replace(item=token)

    def upsert(self):
        key = self.random.choice(self.keys)
        old = self.state(key)
        k, ttl = old.k if old else self.free_k(), self.random.choice(LONG_TTLS)
        token, doc = self.new_doc(ttl)
        self.effects[key] = Live(token, ttl, k, old.item if old else None, None)
        rows = self.execute('INSERT INTO docs (id, k, doc) VALUES (%s, %s, %s)'
                            ' ON CONFLICT (id) DO UPDATE SET doc = excluded.doc RETURNING _ts', key, k, doc)
        self.effects[key] = self.effects[key]._replace(ts=rows[0][0])

    def write(self, key, statement, *values, state):
        """Runs an UPDATE or DELETE, which must find the document if it is live; state is the new state."""
        alive = self.state(key) is not None
        if alive:
            self.effects[key] = state
        rows = self.execute(statement, *values)
        require(len(rows) == alive,
                f'{self.name}: {statement} of {key} found {len(rows)} rows, expected {int(alive)}')
        if alive and state is not None:
            self.effects[key] = state._replace(ts=rows[0][0])

    def update(self):
        key = self.random.choice(self.keys)
        ttl = self.random.choice(LONG_TTLS)
        token, doc = self.new_doc(ttl)
        old = self.state(key)
        self.write(key, 'UPDATE docs SET doc = %s WHERE id = %s RETURNING _ts', doc, key,
                   state=old and old._replace(token=token, ttl=ttl, ts=None))

    def touch(self):
        key = self.random.choice(self.keys)
        old = self.state(key)
        self.write(key, 'UPDATE docs SET _ts = DEFAULT WHERE id = %s RETURNING _ts', key,
                   state=old and old._replace(ts=None))

    def delete(self):
        key = self.random.choice(self.keys)
        self.write(key, 'DELETE FROM docs WHERE id = %s RETURNING _ts', key, state=None)

    def rename(self):
        """Moves a live document to a key that is unused or held by an expired document."""
        old_key, new_key = self.pick(alive=True), self.pick(alive=False)
        if old_key is None or new_key is None or self.state(old_key).item:
            return
        state = self.state(old_key)
        rows = self.execute('UPDATE docs SET id = %s WHERE id = %s RETURNING _ts', new_key, old_key)
        require(len(rows) == 1, f'{self.name}: moving {old_key} to {new_key} found {len(rows)} rows')
        self.effects[old_key] = None
        self.effects[new_key] = state._replace(ts=rows[0][0])

    def expired_doc(self):
        return self.new_doc(self.random.choice((None, SHORT_TTL)))[1]

    def expire(self):
        """Makes a live document expire by writing it in the past."""
        key = self.pick(alive=True)
        if key is not None:
            self.in_the_past('UPDATE docs SET doc = %s WHERE id = %s', self.expired_doc(), key)
            self.effects[key] = None

    def insert_expired(self):
        key = self.pick(alive=False)
        if key is not None:
            self.in_the_past('INSERT INTO docs (id, doc) VALUES (%s, %s)'
                             ' ON CONFLICT (id) DO UPDATE SET doc = excluded.doc', key, self.expired_doc())
            self.effects[key] = None

    def event(self):
        number = self.number_of()
        self.new_events['live'].add(number)
        self.execute('INSERT INTO events (doc) VALUES (%s)', f'{{"s": {self.number}, "n": {number}}}')

    def expired_event(self):
        numbers = [self.number_of() for _ in range(self.random.randint(1, 20))]
        self.new_events['expired'].update(numbers)
        self.in_the_past(
            "INSERT INTO events (doc) SELECT jsonb_build_object('s', %s, 'n', n) FROM unnest(%s) AS n",
            self.number, numbers)

    def resolve(self, turn, docs):
        """Decides after a crash about the open transaction.

        turn is the last number in the table, docs are this session's documents that were found."""
        if not self.single:
            self.resolve_turn(turn)
            return
        require(turn == self.committed,
                f'{self.name}: transaction {self.committed} was acknowledged last, but the last one found is {turn}')
        if self.effects:
            (key, new), = self.effects.items()
            row = docs.get(key)
            if new is None:
                self.settle(row is None)
            elif not same(new, row) or (key in self.docs and same(self.docs[key], row)):
                self.settle(False)
            else:
                self.effects[key] = new._replace(ts=row.ts)
                self.settle(True)
        else:
            self.forget()


class Floors(Worker):
    """Changes a DefaultTTL again and again, and writes documents that are live or expired under it."""

    def __init__(self, seed):
        super().__init__('floors', seed)
        self.default_ttl = DEFAULT_TTL
        self.label = None
        self.docs = {}          # key: (was it written in the past, its own ttl, is it expired)
        self.changes = 0
        self.forget()

    def forget(self):
        self.new_docs = self.new_label = self.new_default_ttl = None
        self.sent = False

    def alive(self):
        return {key for key, doc in self.docs.items() if not doc[2]}

    @staticmethod
    def kills(default_ttl, past, ttl):
        """Is such a document expired under this DefaultTTL?"""
        return past and (default_ttl == DEFAULT_TTL if ttl is None else default_ttl is not None)

    def read_label(self):
        return self.execute(LABEL_OF_FLOORS)[0][0]

    def turn(self):
        if self.label is None:
            self.label = self.read_label()
        self.new_docs, self.new_label, self.new_default_ttl = dict(self.docs), self.label, self.default_ttl
        if self.random.random() < 0.3:
            self.change()
        for _ in range(self.random.randint(0, 5)):
            self.write()
        self.commit()
        self.apply()
        self.acknowledged += 1
        found = {row[0] for row in self.execute('SELECT id FROM floors')}
        self.connection.commit()
        require(found == self.alive(), f'floors: under DefaultTTL {self.default_ttl}, {found - self.alive()} '
                                       f'have come back, {self.alive() - found} are lost')

    def apply(self):
        self.docs, self.label, self.default_ttl = self.new_docs, self.new_label, self.new_default_ttl
        self.forget()

    def change(self):
        if self.random.random() < 0.1:
            indexing = self.random.choice(('lazy', 'consistent'))
            self.execute("SELECT ttl_docs.set_indexing('floors', %s)", indexing)
        else:
            self.changes += 1
            ttl = self.random.choice(FLOOR_TTLS)
            self.execute("SELECT ttl_docs.set_default_ttl('floors', %s)", ttl)
            self.new_default_ttl = ttl
            self.new_docs = {key: (past, own, dead or self.kills(ttl, past, own))
                             for key, (past, own, dead) in self.new_docs.items()}
        self.new_label = self.read_label()

    def write(self):
        key = f'f{self.random.randrange(KEYS)}'
        past = self.random.random() < 0.6
        ttl = self.random.choice((None, SHORT_TTL if past else 100 * DAY))
        doc = '{}' if ttl is None else f'{{"ttl": {ttl}}}'
        execute = self.in_the_past if past else self.execute
        execute('INSERT INTO floors (id, doc) VALUES (%s, %s)'
                ' ON CONFLICT (id) DO UPDATE SET doc = excluded.doc', key, doc)
        self.new_docs[key] = (past, ttl, self.kills(self.new_default_ttl, past, ttl))


class Days(Worker):
    """Adds partitions that are full of expired documents, so that the purge truncates them.  Some also have a
    live document."""

    def __init__(self, seed):
        super().__init__('days', seed)
        self.days = []          # numbers of the partitions
        self.alive = set()      # partitions with a live document
        self.forget()

    def forget(self):
        self.new_days = self.new_alive = None
        self.sent = False

    def turn(self):
        self.new_days, self.new_alive = list(self.days), set(self.alive)
        day = max(self.days, default=0) + 1
        self.execute(f'CREATE TABLE day_{day} PARTITION OF days FOR VALUES IN ({day})')
        self.new_days.append(day)
        if self.random.random() < 0.3:
            self.execute('INSERT INTO days VALUES (%s, %s, %s)', day, 'live', '{}')
            self.new_alive.add(day)
        self.in_the_past("""
            INSERT INTO days SELECT %s, i::text, jsonb_build_object('text', repeat('x', 1900))
                FROM generate_series(1, %s) AS i""", day, DAY_SIZE)
        if len(self.new_days) > 5:
            oldest = self.new_days.pop(0)
            self.execute(f'DROP TABLE day_{oldest}')
            self.new_alive.discard(oldest)
        self.commit()
        self.apply()
        self.acknowledged += 1
        self.stopping.wait(self.random.random() / 4)

    def apply(self):
        self.days, self.alive = self.new_days, self.new_alive
        self.forget()


class Janitor(Worker):
    """Purges by hand, vacuums and makes checkpoints, so that recovery starts at varying points."""

    def turn(self):
        self.connection.autocommit = True
        self.execute(self.random.choice((
            'CALL ttl_docs.purge()', "CALL ttl_docs.purge('docs')", "CALL ttl_docs.purge('events')",
            'VACUUM docs', 'VACUUM events, archive', 'CHECKPOINT', 'SELECT pg_switch_wal()')))
        self.acknowledged += 1
        self.stopping.wait(self.random.random() / 4)


# ---- The server ----

class Server:
    """Kills and starts the server of a data directory."""

    def __init__(self, data, log):
        self.data = os.path.realpath(data)
        self.log = log

    def postmaster(self):
        with open(os.path.join(self.data, 'postmaster.pid'), encoding='utf-8') as file:
            pid = int(file.readline())
        require(os.readlink(f'/proc/{pid}/cwd') == self.data, f'{pid} is not the server of {self.data}')
        return pid

    @staticmethod
    def children(pid):
        try:
            with open(f'/proc/{pid}/task/{pid}/children', encoding='ascii') as file:
                return [int(child) for child in file.read().split()]
        except FileNotFoundError:
            return []

    @staticmethod
    def title(pid):
        try:
            with open(f'/proc/{pid}/cmdline', encoding='utf-8', errors='replace') as file:
                return file.read()
        except (FileNotFoundError, ProcessLookupError):
            return ''

    def kill_all(self, postmaster, reap=lambda: None):
        """Kills the postmaster and all its children at once."""
        os.kill(postmaster, signal.SIGSTOP)             # it starts no more children
        victims = self.children(postmaster) + [postmaster]
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        # To pg_ctl a zombie is a running server.
        self.wait_until('the killed processes are gone',
                        lambda: not any(os.path.exists(f'/proc/{pid}') for pid in victims))

    def kill_child(self, title):
        """Kills a child with that title as soon as there is one; workers live only for milliseconds."""
        postmaster = self.postmaster()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for pid in self.children(postmaster):
                if title in self.title(pid):
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False

    @staticmethod
    def environment():
        """Returns the environment of a server.

        A server must not inherit settings for clients.  PGAPPNAME would change the name of its replication
        connections, by which Citus recognises them: a logical move would lose writes."""
        return {name: value for name, value in os.environ.items() if not name.startswith('PG')}

    def start(self):
        self.remove_empty_locks()
        # Use no pipes: the server would keep them open.
        subprocess.run(['pg_ctl', '-D', self.data, '-l', self.log, '-w', '-t', str(PATIENCE), 'start'],
                       check=True, env=self.environment(), stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def remove_empty_locks(self):
        """Removes empty lock files, with which the server refuses to start.

        A server leaves one if it is killed after it creates the file and before it writes to it."""
        socket = os.path.join(os.environ.get('PGHOST', ''), '.s.PGSQL.%s.lock' % os.environ.get('PGPORT', ''))
        for path in (socket, os.path.join(self.data, 'postmaster.pid')):
            if os.path.exists(path) and os.path.getsize(path) == 0:
                os.remove(path)

    def start_and_kill(self, seconds):
        """Starts recovery, and kills the server during it."""
        with open(self.log, 'ab') as log:
            with subprocess.Popen(['postgres', '-D', self.data], start_new_session=True,
                                  env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log) as postmaster:
                time.sleep(seconds)
                self.kill_all(postmaster.pid, reap=postmaster.wait)

    def connect_again(self):
        """Connects as soon as the server accepts connections."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                connection = psycopg2.connect(application_name='checks')
                connection.autocommit = True
                return connection
            except psycopg2.OperationalError as error:
                require(time.monotonic() < deadline, f'the server does not accept connections: {error}')
                time.sleep(0.02)

    @staticmethod
    def wait_until(what, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            require(time.monotonic() < deadline, f'still not true after {PATIENCE} s: {what}')
            time.sleep(0.02)


# ---- Checks ----

class Checks:
    """Checks after a recovery, with a connection of its own; their writes are rolled back."""

    def __init__(self, connection, sessions, floors, days, chance):
        self.connection = connection
        self.cursor = connection.cursor()
        self.sessions = sessions
        self.floors = floors
        self.days = days
        self.random = chance

    def query(self, statement, *values):
        self.cursor.execute(statement, values)
        return self.cursor.fetchall() if self.cursor.description else []

    def number(self, statement, *values):
        return self.query(statement, *values)[0][0]

    def all(self):
        self.query(f"SET statement_timeout = '{PATIENCE}s'")
        self.journal()
        self.documents()
        self.expired_documents()
        self.future()
        self.event_log()
        self.floor_values()
        self.day_values()

    def visible(self):
        """Returns the visible documents by key."""
        rows = self.query("""
            SELECT id, doc ->> 'token', _ttl, k,
                   (SELECT string_agg(token, ',') FROM items WHERE doc_id = id), _ts
              FROM docs""")
        found = {row[0]: Live(*row[1:]) for row in rows}
        require(len(found) == len(rows), 'two documents have the same key')
        return found

    def events_of(self, session):
        live = {row[0] for row in self.query("SELECT (doc ->> 'n')::int FROM events WHERE doc @> %s",
                                             f'{{"s": {session.number}}}')}
        expired = {row[0] for row in self.query("""
            SELECT (doc ->> 'n')::int FROM on_disk_events() AS doc WHERE doc @> %s
            UNION SELECT n FROM archive WHERE s = %s""", f'{{"s": {session.number}}}', session.number)}
        return {'live': live, 'expired': expired - live}

    def journal(self):
        """Decides about the transactions that were open at the crash."""
        turns = dict(self.query('SELECT worker, turn FROM journal'))
        found = self.visible()
        for session in self.sessions:
            session.resolve(turns[session.name], {key: found[key] for key in session.keys if key in found})
        self.floors.resolve_turn(turns[self.floors.name])
        self.days.resolve_turn(turns[self.days.name])

    def documents(self):
        found = self.visible()
        expected = {key: state for session in self.sessions for key, state in session.docs.items()}
        for key in expected.keys() | found.keys():
            require(key in expected, f'docs: {key} is visible but should not be: {found.get(key)}')
            require(same(expected[key], found.get(key)),
                    f'docs: {key} is {found.get(key)} but should be {expected[key]}')
        self.query('SET enable_seqscan = off')
        count = self.number("SELECT count(*) FROM docs WHERE id >= ''")
        self.query('RESET enable_seqscan')
        require(count == len(expected), f'docs: the index finds {count} but should find {len(expected)}')
        orphans = self.number('SELECT count(*) FROM items WHERE doc_id NOT IN (SELECT on_disk_docs())')
        require(orphans == 0, f'docs: {orphans} child rows have no parent')

    def expired_documents(self):
        """Tries some used keys without a live document: no statement finds a document or is blocked."""
        gone = [key for session in self.sessions for key in session.used if key not in session.docs]
        free_ks = [session.free_k() for session in self.sessions]
        self.connection.autocommit = False
        for key in self.random.sample(gone, min(len(gone), 15)):
            for statement in ('SELECT 1 FROM docs WHERE id = %s FOR UPDATE',
                              'UPDATE docs SET doc = doc WHERE id = %s RETURNING 1',
                              'DELETE FROM docs WHERE id = %s RETURNING 1'):
                require(not self.query(statement, key), f'expired: {statement} finds {key}')
            arm = self.random.choice(('', 'ON CONFLICT DO NOTHING',
                                      'ON CONFLICT (id) DO UPDATE SET doc = NULL'))
            rows = self.query(f"INSERT INTO docs (id, k, doc) VALUES (%s, %s, '{{}}') {arm} RETURNING 1",
                              key, self.random.choice(free_ks))
            require(len(rows) == 1, f'expired: {key} blocks INSERT {arm}')
            self.connection.rollback()
        self.connection.autocommit = True

    def future(self):
        self.query('SET ttl_docs.clock_offset = %s', FUTURE)
        found = {row[0] for row in self.query('SELECT id FROM docs')}
        self.query('RESET ttl_docs.clock_offset')
        forever = {key for session in self.sessions for key, state in session.docs.items() if state.ttl == -1}
        require(found == forever, f'in the future: {found - forever} are visible but should not be, '
                                  f'{forever - found} are lost')

    def event_log(self):
        for session in self.sessions:
            found = self.events_of(session)
            for kind, numbers in session.events.items():
                require(found[kind] == numbers,
                        f'{kind} events of {session.name}: {sorted(numbers - found[kind])} are lost, '
                        f'{sorted(found[kind] - numbers)} should not be there')
        twice = self.number("""
            SELECT count(*) FROM (
                SELECT FROM (
                    SELECT (doc ->> 's')::int AS s, (doc ->> 'n')::int AS n FROM on_disk_events() AS doc
                    UNION ALL SELECT s, n FROM archive) AS both_places
                GROUP BY s, n HAVING count(*) > 1) AS twice""")
        require(twice == 0, f'events: {twice} are on disk twice, in the archive twice, or in both')

    def floor_values(self):
        """Checks that no DefaultTTL brings an expired document back, and that turning TTL off hides none."""
        alive = self.floors.alive()
        label = self.number(LABEL_OF_FLOORS)
        require(self.floors.label in (None, label),
                f'floors: the label is {label} but should be {self.floors.label}')
        found = {row[0] for row in self.query('SELECT id FROM floors')}
        require(found == alive, f'floors: {found - alive} have come back, {alive - found} are lost')
        self.connection.autocommit = False
        for ttl in FLOOR_TTLS:
            self.query("SELECT ttl_docs.set_default_ttl('floors', %s)", ttl)
            found = {row[0] for row in self.query('SELECT id FROM floors')}
            self.connection.rollback()
            require(found <= alive, f'floors: DefaultTTL {ttl} brings {found - alive} back')
            require(ttl is not None or found == alive, f'floors: turning TTL off hides {alive - found}')
        self.connection.autocommit = True

    def day_values(self):
        found = {row[0] for row in self.query('SELECT day FROM days')}
        require(found == self.days.alive, f'days: documents of {found - self.days.alive} have come back, '
                                          f'{self.days.alive - found} are lost')

    def expired_on_disk(self):
        return self.number('SELECT count(*) FROM on_disk_expired()')

    def purge_goes_on(self):
        launcher = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'ttl_docs launcher'"
        Server.wait_until('there is a launcher', lambda: self.number(launcher) == 1)
        Server.wait_until('all expired documents are purged', lambda: self.expired_on_disk() == 0)


def amcheck():
    result = subprocess.run(['pg_amcheck', '--heapallindexed', '--schema=public', os.environ['PGDATABASE']],
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    require(result.returncode == 0, f'pg_amcheck: {result.stdout}{result.stderr}')


def read_log(path, offset):
    with open(path, encoding='utf-8', errors='replace') as file:
        file.seek(offset)
        for line in file:
            killed = re.search(r'was terminated by signal (\d+)', line)
            failed = re.search(r'PANIC: |TRAP: ', line) or (killed and killed.group(1) not in OUR_SIGNALS)
            require(not failed, f'in the log: {line.rstrip()}')


# ---- Rounds ----

def make_collections(connection, workers):
    connection.cursor().execute(f"""
        CREATE TABLE journal (worker text PRIMARY KEY, turn int);
        CREATE TABLE docs (id text PRIMARY KEY, k int UNIQUE, doc jsonb NOT NULL);
        SELECT ttl_docs.adopt('docs', {DEFAULT_TTL});
        CREATE TABLE items (doc_id text REFERENCES docs ON DELETE CASCADE, token text);
        CREATE INDEX ON items (doc_id);

        SELECT ttl_docs.create_collection('events', {DEFAULT_TTL}, indexing => 'lazy');
        CREATE TABLE archive (s int, n int);
        CREATE FUNCTION archive_event() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF ttl_docs.purging() THEN
                INSERT INTO public.archive VALUES ((OLD.doc ->> 's')::int, (OLD.doc ->> 'n')::int);
            END IF;
            RETURN NULL;
        END $$;
        CREATE TRIGGER archive_event AFTER DELETE ON events FOR EACH ROW EXECUTE FUNCTION archive_event();

        SELECT ttl_docs.create_collection('floors', {DEFAULT_TTL});

        CREATE TABLE days (day int, id text, doc jsonb, PRIMARY KEY (day, id)) PARTITION BY LIST (day);
        SELECT ttl_docs.adopt('days', {DEFAULT_TTL});

        CREATE FUNCTION on_disk_docs() RETURNS SETOF text LANGUAGE sql STABLE SET ttl_docs.show_expired = on
            AS 'SELECT id FROM docs';
        CREATE FUNCTION on_disk_events() RETURNS SETOF jsonb LANGUAGE sql STABLE SET ttl_docs.show_expired = on
            AS 'SELECT doc FROM events';
        CREATE FUNCTION on_disk_expired() RETURNS SETOF text LANGUAGE sql STABLE SET ttl_docs.show_expired = on AS $$
            SELECT id FROM docs WHERE ttl_docs.is_expired('docs', _ts, _ttl) UNION ALL
            SELECT id FROM events WHERE ttl_docs.is_expired('events', _ts, _ttl) UNION ALL
            SELECT id FROM floors WHERE ttl_docs.is_expired('floors', _ts, _ttl) UNION ALL
            SELECT id FROM days WHERE ttl_docs.is_expired('days', _ts, _ttl) $$;
        INSERT INTO journal SELECT unnest(%s), 0""", ([worker.name for worker in workers],))


class Torture:
    """Plays the rounds, and counts."""

    def __init__(self, options):
        self.random = random.Random(options.seed)
        self.server = Server(options.data, options.log)
        self.sessions = [Session(number, options.seed) for number in range(1, options.sessions + 1)]
        self.floors = Floors(options.seed)
        self.janitor = Janitor('janitor', options.seed)
        self.days = Days(options.seed)
        self.workers = self.sessions + [self.floors, self.days, self.janitor]
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
        checks = Checks(connection, self.sessions, self.floors, self.days, self.random)
        checks.all()
        amcheck()
        if drain:
            checks.purge_goes_on()
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
        else:
            self.server.kill_all(self.server.postmaster())
            if victim == 'recovery':
                self.server.start_and_kill(self.random.uniform(0, 0.15))
            self.server.start()
        return victim

    def summary(self):
        resolved = sum((worker.resolved for worker in self.workers), collections.Counter())
        return (f'{sum(self.killed.values())} crashes {dict(self.killed)}; '
                f'{sum(worker.acknowledged for worker in self.workers)} acknowledged transactions, '
                f'{self.floors.changes} changes of DefaultTTL; open at a crash: {dict(resolved)}; '
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
        checks = Checks(torture.server.connect_again(), torture.sessions, torture.floors, torture.days, torture.random)
        checks.purge_goes_on()
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

#!/usr/bin/env python3
"""Crashes: processes of the server are killed at random moments under load, and what is there afterwards is
compared with what was acknowledged.

A round: sessions write, the purge deletes, and after a moment somebody is killed with SIGKILL: the
postmaster with all its children at once, a backend, a purge worker, or the launcher; or the postmaster
twice, the second time in the middle of the recovery.  The server comes back (by itself, or by pg_ctl), and
everything is checked, before the next round goes on with the same documents.

Journal.  Every session writes to keys of its own, so it knows the state of each: what the server has
acknowledged, and besides the one transaction that was under way.  If COMMIT was not sent, that transaction
must be absent; if it was sent and not answered, it may be there or not, but whole: it also leaves its
number in a plain table, which tells what all the rest has to be.  A state is exact: content, ttl, second
key, child row, and _ts to the microsecond.

Time.  Documents either live for days or are written days ago, by ttl_docs.clock_offset, and so have expired
when they are committed.  Nothing waits, and what is alive depends on no clock.

What is checked after each recovery:
    docs     visible is exactly what is alive by the journal; expired documents cannot be read, updated,
             deleted or locked, and block neither of their keys; child rows are those of the journal,
             without orphans; with a clock far ahead only documents with ttl -1 are there
    events   (lazy indexing) an acknowledged live event is there; an expired one is either on disk or was
             archived by the trigger on its purge: never both, never neither, never twice
    floors   what was dead under a former DefaultTTL stays dead, also if the DefaultTTL is raised again or
             turned off; the label is the acknowledged one to the letter
    purge    it goes on: all expired documents leave the disk
    storage  pg_amcheck --heapallindexed of tables and indexes; no PANIC, no failed assertion in the log

Connects by PGHOST, PGPORT, PGDATABASE, PGUSER, as a superuser, to a database with the extension and
amcheck; runs as the user of the server, with pg_ctl and pg_amcheck on the PATH.  It leaves the server
running.  Exits with 0 or 1.

The seed decides what is written and who is killed when; how far the server has come by then, it does not.
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
PAST = -20 * DAY                # the clock of those who write what has expired
DEFAULT_TTL = 10 * DAY          # of docs and events
SHORT_TTL = 60                  # of documents from the past that have one of their own
LONG_TTLS = (None, -1, 50 * DAY, 100 * DAY)
FUTURE = 200 * DAY              # then all of these but -1 are over
FLOOR_TTLS = (DEFAULT_TTL, -1, None, 100 * DAY)         # the DefaultTTLs of floors, as they come and go
KEYS = 40                       # of a session
BULK = 1000                     # expired documents that each round begins with
PATIENCE = 180                  # seconds until something counts as hung
OUR_SIGNALS = ('9', '3')        # ours, and what the postmaster sends to the others then
LABEL_OF_FLOORS = "SELECT label FROM pg_seclabels WHERE objoid = 'floors'::regclass AND provider = 'ttl_docs'"

# Who is killed how often; "recovery" is the postmaster, and again when it recovers.
VICTIMS = {'postmaster': 35, 'recovery': 10, 'backend': 20, 'worker': 25, 'launcher': 10}


class Wrong(Exception):
    """The server has done what it must not do."""


def require(condition, text):
    if not condition:
        raise Wrong(text)


# What a journal knows of a live document.  ts is None if it was written by a statement that was not answered.
Live = collections.namedtuple('Live', 'token ttl k item ts')


def same(live, row):
    """Is a row what the journal says?  A _ts that nobody was told can be any."""
    return row is not None and live[:4] == row[:4] and live.ts in (None, row.ts)


# ---- The load ----

class Worker(threading.Thread):
    """One connection at work until it is told to stop, or the connection breaks."""

    to_retry = (psycopg2.errors.SerializationFailure,)

    def __init__(self, name, seed):
        super().__init__(name=name, daemon=True)
        self.random = random.Random(f'{seed} {name}')
        self.stopping = threading.Event()
        self.turns = 0          # transactions that were to be committed, by their numbers
        self.committed = 0      # the last of them that was acknowledged
        self.acknowledged = 0
        self.resolved = collections.Counter()           # what had become of transactions under way
        self.retries = 0
        self.wrong = None
        self.connection = None
        self.cursor = None
        self.pid = None

    def again(self, round_number):
        """A thread runs once: the same journal in a new thread, for the next round."""
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
        """Is this the end of the connection, and no error of a statement?"""
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
        """Commits a transaction, which has left its number where it is found after a crash."""
        self.turns += 1
        self.execute('UPDATE journal SET turn = %s WHERE worker = %s', self.turns, self.name)
        self.sent = True
        self.connection.commit()
        self.committed = self.turns

    def turn(self):
        raise NotImplementedError

    def forget(self):
        """The transaction under way has come to nothing."""

    def apply(self):
        """The transaction under way is acknowledged, or was found to have come through."""

    def resolve_turn(self, turn):
        """After a crash, with the number that the last transaction of ours has left."""
        require(turn >= self.committed,
                f'{self.name}: transaction {self.committed} is lost, {turn} is the last')
        came_through = turn > self.committed
        self.committed = turn
        self.settle(came_through)

    def settle(self, came_through):
        """It is known now what has become of the transaction under way."""
        require(self.sent or not came_through, f'{self.name}: there is what was never committed')
        if came_through:
            self.resolved['there'] += 1
            self.apply()
        else:
            self.resolved['absent' if self.sent else 'not sent'] += 1
            self.forget()


class Session(Worker):
    """Writes to documents and events of its own, and keeps the journal of them."""

    def __init__(self, number, seed):
        super().__init__(f'session {number}', seed)
        self.number = number
        self.keys = [f's{number}-{i}' for i in range(KEYS)]
        self.docs = {}          # key: Live, as acknowledged
        self.used = set()       # keys that have been written, and may be on disk
        self.events = {'live': set(), 'expired': set()}
        self.counter = 0
        self.forget()

    def forget(self):
        self.effects = {}       # what the transaction under way does: key: Live, or None if it is gone then
        self.new_events = {'live': set(), 'expired': set()}
        self.sent = False       # was the server asked to commit it?
        self.single = False     # is it a statement by itself?

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
        """A second key that no live document of ours has; an expired one may have it."""
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
        """A key that nobody has, or an expired document has; and so for the second key."""
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
        """An UPDATE or DELETE of a document, which finds it if it is alive; state is what becomes of it."""
        alive = self.state(key) is not None
        if alive:
            self.effects[key] = state
        rows = self.execute(statement, *values)
        require(len(rows) == alive,
                f'{self.name}: {statement} of {key} found {len(rows)} rows, alive: {alive}')
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
        """Moves a live document onto a key that nobody has, or an expired document has."""
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
        """Turns a live document into one that was written long ago."""
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
        """After a crash, with the number of our last transaction and our documents that are there."""
        if not self.single:
            self.resolve_turn(turn)
            return
        require(turn == self.committed, f'{self.name}: {turn} is the last turn, and not {self.committed}')
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
    """Changes a DefaultTTL again and again, and writes documents that are dead or alive by it."""

    # set_indexing() keeps writers out, and takes a stronger lock to drop an index: docs/limits.md
    to_retry = Worker.to_retry + (psycopg2.errors.DeadlockDetected,)

    def __init__(self, seed):
        super().__init__('floors', seed)
        self.default_ttl = DEFAULT_TTL
        self.label = None
        self.docs = {}          # key: (is it from the past, its own ttl, is it dead)
        self.changes = 0
        self.forget()

    def forget(self):
        self.new_docs = self.new_label = self.new_default_ttl = None
        self.sent = False

    def alive(self):
        return {key for key, doc in self.docs.items() if not doc[2]}

    @staticmethod
    def kills(default_ttl, past, ttl):
        """Does this DefaultTTL end a document?"""
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
                                       f'are back, {self.alive() - found} are lost')

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


class Janitor(Worker):
    """Purges by hand, vacuums and makes checkpoints, so that recovery begins anywhere."""

    to_retry = Floors.to_retry

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
        """The postmaster and all its children at once."""
        os.kill(postmaster, signal.SIGSTOP)             # no child is born from here on
        victims = self.children(postmaster) + [postmaster]
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        # A zombie still counts as a server that runs.
        self.wait_until('the killed processes are gone',
                        lambda: not any(os.path.exists(f'/proc/{pid}') for pid in victims))

    def kill_child(self, title):
        """Kills a child of that title, as soon as there is one; workers live for milliseconds."""
        postmaster = self.postmaster()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for pid in self.children(postmaster):
                if title in self.title(pid):
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False

    def start(self):
        self.remove_empty_locks()
        # Not by pipes, which the server would keep open.
        subprocess.run(['pg_ctl', '-D', self.data, '-l', self.log, '-w', '-t', str(PATIENCE), 'start'],
                       check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def remove_empty_locks(self):
        """A server that was killed between making a lock file and filling it leaves it empty.  The next
        one then refuses to start, and asks for an administrator: that is us."""
        socket = os.path.join(os.environ.get('PGHOST', ''), '.s.PGSQL.%s.lock' % os.environ.get('PGPORT', ''))
        for path in (socket, os.path.join(self.data, 'postmaster.pid')):
            if os.path.exists(path) and os.path.getsize(path) == 0:
                os.remove(path)

    def start_and_kill(self, seconds):
        """Lets recovery begin, and kills it."""
        with open(self.log, 'ab') as log:
            with subprocess.Popen(['postgres', '-D', self.data], start_new_session=True,
                                  stdin=subprocess.DEVNULL, stdout=log, stderr=log) as postmaster:
                time.sleep(seconds)
                self.kill_all(postmaster.pid, reap=postmaster.wait)

    def connect_again(self):
        """A connection as soon as the server gives one."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                connection = psycopg2.connect(application_name='checks')
                connection.autocommit = True
                return connection
            except psycopg2.OperationalError as error:
                require(time.monotonic() < deadline, f'the server does not come back: {error}')
                time.sleep(0.02)

    @staticmethod
    def wait_until(what, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            require(time.monotonic() < deadline, f'not within {PATIENCE} s: {what}')
            time.sleep(0.02)


# ---- Checks ----

class Checks:
    """What must hold after a recovery.  Uses a connection of its own, which rolls back what it tries."""

    def __init__(self, connection, sessions, floors, chance):
        self.connection = connection
        self.cursor = connection.cursor()
        self.sessions = sessions
        self.floors = floors
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

    def visible(self):
        """The documents by their keys, as a user sees them."""
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
        """Settles what was under way when the server went down."""
        turns = dict(self.query('SELECT worker, turn FROM journal'))
        found = self.visible()
        for session in self.sessions:
            session.resolve(turns[session.name], {key: found[key] for key in session.keys if key in found})
        self.floors.resolve_turn(turns[self.floors.name])

    def documents(self):
        found = self.visible()
        expected = {key: state for session in self.sessions for key, state in session.docs.items()}
        for key in expected.keys() | found.keys():
            require(key in expected, f'docs: {key} is visible and should not be: {found.get(key)}')
            require(same(expected[key], found.get(key)),
                    f'docs: {key} is {found.get(key)} and should be {expected[key]}')
        self.query('SET enable_seqscan = off')
        count = self.number("SELECT count(*) FROM docs WHERE id >= ''")
        self.query('RESET enable_seqscan')
        require(count == len(expected), f'docs: {count} by the index, and should be {len(expected)}')
        orphans = self.number('SELECT count(*) FROM items WHERE doc_id NOT IN (SELECT on_disk_docs())')
        require(orphans == 0, f'docs: {orphans} child rows have lost their parent')

    def expired_documents(self):
        """Of some keys that were used and are not alive: nothing finds them, and nothing blocks."""
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
        require(found == forever, f'in the future: {found ^ forever} are there or not, wrongly')

    def event_log(self):
        for session in self.sessions:
            found = self.events_of(session)
            for kind, numbers in session.events.items():
                require(found[kind] == numbers,
                        f'events: of {session.name}, {kind}: {sorted(numbers - found[kind])} are lost, '
                        f'{sorted(found[kind] - numbers)} are too many')
        twice = self.number("""
            SELECT count(*) FROM (
                SELECT FROM (
                    SELECT (doc ->> 's')::int AS s, (doc ->> 'n')::int AS n FROM on_disk_events() AS doc
                    UNION ALL SELECT s, n FROM archive) AS both_places
                GROUP BY s, n HAVING count(*) > 1) AS twice""")
        require(twice == 0, f'events: {twice} are there twice, or on disk and in the archive')

    def floor_values(self):
        """Raising a DefaultTTL brings nothing back.  What is alive stays so if TTL is turned off."""
        alive = self.floors.alive()
        label = self.number(LABEL_OF_FLOORS)
        require(self.floors.label in (None, label),
                f'floors: the label is {label}, and should be {self.floors.label}')
        found = {row[0] for row in self.query('SELECT id FROM floors')}
        require(found == alive, f'floors: {found - alive} have come back, {alive - found} are lost')
        self.connection.autocommit = False
        for ttl in FLOOR_TTLS:
            self.query("SELECT ttl_docs.set_default_ttl('floors', %s)", ttl)
            found = {row[0] for row in self.query('SELECT id FROM floors')}
            self.connection.rollback()
            require(found <= alive, f'floors: DefaultTTL {ttl} brings {found - alive} back')
            require(ttl is not None or found == alive, f'floors: turning TTL off ends {alive - found}')
        self.connection.autocommit = True

    def expired_on_disk(self):
        return self.number('SELECT count(*) FROM on_disk_expired()')

    def purge_goes_on(self):
        launcher = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'ttl_docs launcher'"
        Server.wait_until('there is a launcher', lambda: self.number(launcher) == 1)
        Server.wait_until('all that has expired is purged', lambda: self.expired_on_disk() == 0)


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

        CREATE FUNCTION on_disk_docs() RETURNS SETOF text LANGUAGE sql STABLE SET ttl_docs.show_expired = on
            AS 'SELECT id FROM docs';
        CREATE FUNCTION on_disk_events() RETURNS SETOF jsonb LANGUAGE sql STABLE SET ttl_docs.show_expired = on
            AS 'SELECT doc FROM events';
        CREATE FUNCTION on_disk_expired() RETURNS SETOF text LANGUAGE sql STABLE SET ttl_docs.show_expired = on AS $$
            SELECT id FROM docs WHERE ttl_docs.is_expired('docs', _ts, _ttl) UNION ALL
            SELECT id FROM events WHERE ttl_docs.is_expired('events', _ts, _ttl) UNION ALL
            SELECT id FROM floors WHERE ttl_docs.is_expired('floors', _ts, _ttl) $$;
        INSERT INTO journal SELECT unnest(%s), 0""", ([worker.name for worker in workers],))


class Torture:
    """The rounds, and what is counted."""

    def __init__(self, options):
        self.random = random.Random(options.seed)
        self.server = Server(options.data, options.log)
        self.sessions = [Session(number, options.seed) for number in range(1, options.sessions + 1)]
        self.floors = Floors(options.seed)
        self.janitor = Janitor('janitor', options.seed)
        self.workers = self.sessions + [self.floors, self.janitor]
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
            require(not worker.is_alive(), f'{worker.name} hangs')
            require(worker.wrong is None, worker.wrong)
        connection = self.server.connect_again()
        recovered = time.monotonic()
        checks = Checks(connection, self.sessions, self.floors, self.random)
        checks.all()
        amcheck()
        if drain:
            checks.purge_goes_on()
            checks.all()
        connection.close()
        read_log(self.server.log, self.log_offset)
        print(f'round {self.round}: kill -9 of {victim}, back after {recovered - crashed:.1f} s, '
              f'checked in {time.monotonic() - recovered:.1f} s', flush=True)

    def expired_bulk(self):
        """Something for the purge to do, in the middle of which it is killed."""
        connection = self.server.connect_again()
        cursor = connection.cursor()
        cursor.execute(f'''
            SET ttl_docs.clock_offset = {PAST};
            INSERT INTO docs (id, doc)
                SELECT 'bulk ' || gen_random_uuid(), '{{}}' FROM generate_series(1, {BULK})''')
        connection.close()

    def crash(self):
        """Kills somebody, and has the server come back; returns who it was.

        Each kind of victim has its turn first, then chance decides."""
        if len(self.killed) < len(VICTIMS):
            victim = self.random.choice([victim for victim in VICTIMS if victim not in self.killed])
        else:
            victim, = self.random.choices(list(VICTIMS), VICTIMS.values())
        self.killed[victim] += 1
        if victim == 'backend':
            os.kill(self.random.choice(self.workers).pid, signal.SIGKILL)
        elif victim == 'worker':
            require(self.server.kill_child('ttl_docs purge worker'), 'much to purge, and no worker')
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
                f'{self.floors.changes} changes of DefaultTTL; under way: {dict(resolved)}; '
                f'{sum(len(session.events["expired"]) for session in self.sessions)} expired events; '
                f'{sum(worker.retries for worker in self.workers)} tried again after 40001 or 40P01')


def parse_options():
    parser = argparse.ArgumentParser(description='Kills processes of the server under load, and compares.')
    parser.add_argument('--data', required=True, help='the data directory')
    parser.add_argument('--log', required=True, help="the server's log")
    parser.add_argument('--crashes', type=int, default=300, help='how many rounds, at the most')
    parser.add_argument('--seconds', type=int, default=3600, help='no further round after that time')
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
        checks = Checks(torture.server.connect_again(), torture.sessions, torture.floors, torture.random)
        checks.purge_goes_on()
        checks.all()
    except (Wrong, psycopg2.Error, subprocess.SubprocessError) as error:
        print(f'{time.monotonic() - started:.0f} s: {torture.summary()}')
        print(f'not ok: seed {options.seed}, round {torture.round}: {error}', flush=True)
        return 1
    print(f'{time.monotonic() - started:.0f} s: {torture.summary()}')
    print('all is well', flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())

"""The collections, the sessions that write to them, and their journals.  For crash.py, which describes both."""

import collections
import random
import threading

import psycopg2
import psycopg2.errorcodes as codes

from crash_server import require

DAY = 86400
PAST = -20 * DAY                # clock offset for writing documents that are expired
DEFAULT_TTL = 10 * DAY          # of docs, events and online
SHORT_TTL = 60                  # of documents written in the past with their own ttl
LONG_TTLS = (None, -1, 50 * DAY, 100 * DAY)
FLOOR_TTLS = (DEFAULT_TTL, -1, None, 100 * DAY)         # DefaultTTLs that "floors" switches between
KEYS = 40                       # of a session
DAY_SIZE = 4400                 # documents of a partition of days: more than 1,000 pages
STILL_ROWS = 3000               # rows of "online" that nobody writes
LABEL_OF_FLOORS = "SELECT label FROM pg_seclabels WHERE objoid = 'floors'::regclass AND provider = 'ttl_docs'"
ADOPT_ONLINE = f"CALL ttl_docs.adopt_concurrently('online', {DEFAULT_TTL}, last_modified => 'changed')"
RELEASE_ONLINE = "SELECT ttl_docs.release('online')"
# 'table', 'half adopted' or 'collection'
STATE_OF_ONLINE = """
    SELECT coalesce(max(CASE WHEN hint ~ 'not completely adopted' THEN 'half adopted' ELSE 'collection' END), 'table')
      FROM ttl_docs.collections WHERE collection = 'online'::regclass"""

# A live document in a journal.  ts is None if the statement that wrote it was not answered.
Live = collections.namedtuple('Live', 'token ttl k item ts')


def same(live, row):
    """Does a row match the journal?  Any _ts matches if the server never returned it."""
    return row is not None and live[:4] == row[:4] and live.ts in (None, row.ts)


# ---- Sessions ----

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
        self.online = {}        # key: (n, ttl) of its rows of "online"
        self.counter = 0
        self.forget()

    def forget(self):
        self.effects = {}       # changes of the open transaction: key: Live, or None if it removes the document
        self.new_events = {'live': set(), 'expired': set()}
        self.new_online = {}    # key: (n, ttl), or None if it removes the row
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
        for key, state in self.new_online.items():
            if state is None:
                self.online.pop(key, None)
            else:
                self.online[key] = state
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
                    self.expired_event, self.write_online, self.write_online))()
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

    def write_online(self):
        """Writes a row of "online", which others adopt and release meanwhile."""
        key, number, ttl = self.random.choice(self.keys), self.number_of(), self.random.choice(LONG_TTLS)
        old = self.new_online[key] if key in self.new_online else self.online.get(key)
        kind = self.random.choice(('delete', 'update', 'upsert', 'upsert')) if old else 'upsert'
        if kind == 'delete':
            self.new_online[key] = None
            self.execute('DELETE FROM online WHERE id = %s', key)
        elif kind == 'update':
            # leaves the document alone
            self.new_online[key] = (number, old[1])
            self.execute("UPDATE online SET n = %s, changed = clock_timestamp() - interval '1 hour' WHERE id = %s",
                         number, key)
        else:
            self.new_online[key] = (number, ttl)
            self.execute("""
                INSERT INTO online VALUES (%s, %s, clock_timestamp() - interval '1 hour', %s)
                    ON CONFLICT (id) DO UPDATE SET doc = excluded.doc, changed = excluded.changed, n = excluded.n""",
                         key, '{}' if ttl is None else f'{{"ttl": {ttl}}}', number)
        require(self.cursor.rowcount == 1, f'{self.name}: {kind} of {key} in online found {self.cursor.rowcount} rows')

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


class Adopter(Worker):
    """Adopts the table "online" and releases it, again and again.  After a crash, an adoption continues."""

    def __init__(self, seed):
        super().__init__('adopter', seed)
        self.adoptions = self.releases = 0

    def turn(self):
        self.connection.autocommit = True
        state = self.execute(STATE_OF_ONLINE)[0][0]
        if state == 'collection' or (state == 'half adopted' and self.random.random() < 0.1):
            self.execute(RELEASE_ONLINE)
            self.releases += 1
        else:
            self.execute(ADOPT_ONLINE)
            self.adoptions += 1
        self.acknowledged += 1


class Janitor(Worker):
    """Purges by hand, vacuums and makes checkpoints, so that recovery starts at varying points."""

    def turn(self):
        self.connection.autocommit = True
        self.execute(self.random.choice((
            'CALL ttl_docs.purge()', "CALL ttl_docs.purge('docs')", "CALL ttl_docs.purge('events')",
            'VACUUM docs', 'VACUUM events, archive', 'CHECKPOINT', 'SELECT pg_switch_wal()')))
        self.acknowledged += 1
        self.stopping.wait(self.random.random() / 4)


# ---- Collections ----

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

        CREATE TABLE online (id text PRIMARY KEY, doc jsonb NOT NULL, changed timestamptz, n int);
        INSERT INTO online
            SELECT 'still ' || i, CASE WHEN mod(i, 2) = 0 THEN '{{"ttl": {50 * DAY}}}' ELSE '{{}}' END::jsonb,
                   now() - interval '1 hour', 0 FROM generate_series(1, {STILL_ROWS}) AS i;

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

#!/usr/bin/env python3
"""Runs the load of a web application with sessions for a given time, and checks that the server stays stable.

Load.  Each session of the load is a thread with one lasting connection.  It logs users in (INSERT), touches,
reads and logs out (DELETE) its own web sessions, and reuses the keys of expired ones.  It also upserts shared
cache entries, and appends to an event log with lazy indexing.  Documents live for seconds of real time.
Another thread changes a DefaultTTL again and again, each time from a new connection.  The rate is limited, so
that samples are comparable.

Answers.  A thread knows when it wrote each of its documents: after it sent the statement and before the answer
arrived.  So it knows until when the document must be visible and from when it must be gone.  Between these
times both answers are correct.  A query must not return any document that expired before the query was sent.

Samples.  The program reads the memory of the load's backends and of the launcher from /proc every second.  A
worker lives only for milliseconds, so a statement trigger records the worker's memory at the end of each
batch.  At every sample the program also reads memory contexts, sizes on disk, dead rows, expired documents on
disk, and stat_collections.

Verdict.  The program compares the median of the last third of the samples after the warm-up with the median
of the first third.  A value that grows by more than its limit is a failure, because leaks and backlogs grow.
The server's log may contain only errors that the sessions expected, and canceled autovacuums.

The program connects by PGHOST, PGPORT, PGDATABASE and PGUSER as a superuser, to a database that contains only
the extension.  Exit status: 0 if all checks passed, otherwise 1.
"""

import argparse
import collections
import random
import re
import statistics
import sys
import threading
import time

import psycopg2
import psycopg2.errorcodes

CACHE_KEYS = 500
LIVE_PER_SESSION = 200          # beyond this number, sessions are abandoned and expire
# The target of an upsert expires during the upsert: retry, as the README says.
RETRY = psycopg2.errorcodes.SERIALIZATION_FAILURE
# The parent of a new child row has expired.
NO_PARENT = psycopg2.errorcodes.FOREIGN_KEY_VIOLATION

# A log line that reports a problem; the prefix of a line ends with the SQLSTATE.
TROUBLE_IN_LOG = re.compile(r'(?:(\w{5}) )?(?:(?:WARNING|ERROR|FATAL|PANIC): |TRAP: |.*terminated by signal)')
# PostgreSQL cancels an autovacuum that blocks DDL.
CANCELED_AUTOVACUUM = 'ERROR:  canceling autovacuum task'

# Limits: the last third may be at most factor * first third + extra.  "long" is for soaks of ten minutes and
# more, "short" for those that only show that the program works.
Limit = collections.namedtuple('Limit', 'long_factor long_extra short_factor short_extra')
LIMITS = {
    'backend_kb': Limit(1.10, 512, 1.2, 512),
    'launcher_kb': Limit(1.05, 128, 1.2, 128),
    'worker_kb': Limit(1.20, 512, 1.5, 1024),
    'contexts_kb': Limit(1.05, 64, 1.1, 128),
    'table_kb': Limit(1.25, 1024, 2.0, 2048),
    'index_kb': Limit(1.25, 1024, 2.0, 2048),
    'catalog_kb': Limit(1.25, 512, 1.5, 512),
    'dead': Limit(2.0, 5000, 4.0, 10000),
    'expired': Limit(2.0, 500, 3.0, 500),
    'overdue_s': Limit(2.0, 10, 3.0, 10),
}
LONG_SOAK = 600                 # seconds
COLUMNS = ['second', 'tps', 'retries', 'backend_kb', 'backend_rss', 'backend_pss', 'launcher_kb', 'worker_kb',
           'contexts_kb', 'table_kb', 'index_kb', 'catalog_kb', 'live', 'expired', 'backlog', 'overdue_s',
           'dead', 'purged', 'vacuums']


class Trouble:
    """Collects failures from all threads; keeps the first few for the report."""

    def __init__(self):
        self.count = 0
        self.shown = []
        self.lock = threading.Lock()

    def add(self, text):
        with self.lock:
            self.count += 1
            if len(self.shown) < 20:
                self.shown.append(text)


def connect(name, **settings):
    connection = psycopg2.connect(application_name=name, **settings)
    connection.autocommit = True
    return connection


# ---- The load ----

class Document:
    """A document as its writer knows it: its ttl, and the times before and after the write."""

    def __init__(self, ttl, before, after):
        self.ttl = ttl
        self.written(before, after)

    def written(self, before, after):
        self.alive_until = before + self.ttl
        self.gone_from = after + self.ttl


class Session(threading.Thread):
    """A thread with one connection, which runs statements until it is told to stop."""

    def __init__(self, number, options, trouble):
        super().__init__(name=f'session {number}', daemon=True)
        self.number = number
        self.options = options
        self.trouble = trouble
        self.random = random.Random(options.seed * 1000 + number)
        self.stopping = threading.Event()
        self.context_wanted = threading.Event()
        self.contexts_kb = None
        self.statements = 0
        self.met = collections.Counter()        # expected errors, by SQLSTATE
        self.last_id = 0
        self.documents = {}     # documents of this session that may be live
        self.left = collections.deque()         # its abandoned documents, oldest first
        self.actions = [
            (self.log_in, 20), (self.touch, 40), (self.read, 12), (self.log_out, 5), (self.come_back, 6),
            (self.put_into_cache, 9), (self.read_cache, 3), (self.append_events, 4), (self.query_all, 1),
        ]
        self.connection = connect(self.name)
        self.cursor = self.connection.cursor()
        self.pid = self.connection.get_backend_pid()
        # Prepared statements, as an application has them.  After five executions their plans are generic.
        self.cursor.execute(
            'PREPARE touch(text) AS UPDATE sessions SET _ts = DEFAULT WHERE id = $1 RETURNING id')
        self.cursor.execute('PREPARE read(text) AS SELECT doc FROM sessions WHERE id = $1')

    def run(self):
        actions, weights = zip(*self.actions)
        started = time.monotonic()
        turns = 0
        try:
            while not self.stopping.is_set():
                if self.context_wanted.is_set():
                    self.measure_contexts()
                self.random.choices(actions, weights)[0]()
                turns += 1
                ahead = started + turns / self.options.rate * self.options.sessions - time.monotonic()
                if ahead > 0:
                    time.sleep(ahead)
                elif ahead < -1:        # the machine is too slow: do not try to catch up
                    started, turns = time.monotonic(), 0
        except Exception as error:      # any exception is a failure of the soak
            self.trouble.add(f'{self.name}: {type(error).__name__}: {error}')

    def execute(self, statement, *values):
        """Runs a statement, and retries after a serialization failure.

        Returns its rows, and the times before and after it.  The rows are None if the statement returns no
        rows, or if it failed because the parent was missing."""
        while True:
            before = time.time()
            try:
                self.cursor.execute(statement, values)
                break
            except psycopg2.Error as error:
                if error.pgcode not in (RETRY, NO_PARENT):
                    raise
                self.met[error.pgcode] += 1
                if error.pgcode != RETRY:
                    return None, before, time.time()
        rows = self.cursor.fetchall() if self.cursor.description else None
        self.statements += 1
        return rows, before, time.time()

    def measure_contexts(self):
        rows, _, _ = self.execute('SELECT sum(total_bytes) / 1024 FROM pg_backend_memory_contexts')
        self.contexts_kb = float(rows[0][0])
        self.context_wanted.clear()

    def some_ttl(self):
        if self.random.random() < 0.3:
            return None
        return self.random.randint(self.options.ttl_min, self.options.ttl_max)

    @staticmethod
    def body(ttl, filler):
        ttl_part = '' if ttl is None else f', "ttl": {ttl}'
        return f'{{"user": "ann", "page": "{filler}"{ttl_part}}}'

    def log_in(self, key=None):
        if key is None:
            self.last_id += 1
            key = f's{self.number}-{self.last_id}'
        ttl = self.some_ttl()
        body = self.body(ttl, '/' * self.random.randint(1, 400))
        _, before, after = self.execute('INSERT INTO sessions (id, doc) VALUES (%s, %s)', key, body)
        self.documents[key] = Document(ttl or self.options.default_ttl, before, after)
        if self.random.random() < 0.2:
            # Add a child row, which is deleted with the document.
            rows, before, after = self.execute('INSERT INTO items VALUES (%s) RETURNING 1', key)
            self.judge('a foreign key', key, self.documents[key], rows is not None, before, after)
        if len(self.documents) > LIVE_PER_SESSION:
            self.leave(self.random.choice(list(self.documents)))

    def leave(self, key):
        self.left.append((key, self.documents.pop(key)))

    def judge(self, what, key, document, found, before, after):
        """Checks that a statement found a live document, or did not find an expired one."""
        if found and before >= document.gone_from:
            self.trouble.add(f'{what} found {key} {before - document.gone_from:.6f} s after it expired')
        if not found and after < document.alive_until:
            self.trouble.add(f'{what} did not find {key} {document.alive_until - after:.6f} s before it expired')

    def some_key(self):
        return self.random.choice(list(self.documents)) if self.documents else None

    def touch(self):
        key = self.some_key()
        if key is None:
            return
        if self.random.random() < 0.5:
            rows, before, after = self.execute('EXECUTE touch(%s)', key)
            found = bool(rows)
        else:
            rows, before, after = self.execute("SELECT ttl_docs.touch_document('sessions', %s)", key)
            found = rows[0][0]
        document = self.documents[key]
        self.judge('touch', key, document, found, before, after)
        if found:
            document.written(before, after)
        else:
            self.leave(key)

    def read(self):
        key = self.some_key()
        if key is None:
            return
        rows, before, after = self.execute('EXECUTE read(%s)', key)
        self.judge('read', key, self.documents[key], bool(rows), before, after)

    def log_out(self):
        key = self.some_key()
        if key is None:
            return
        rows, before, after = self.execute('DELETE FROM sessions WHERE id = %s RETURNING id', key)
        self.judge('delete', key, self.documents.pop(key), bool(rows), before, after)

    def come_back(self):
        """Reuses the key of an abandoned, expired session, whether it was purged or not."""
        while self.left and self.left[0][1].gone_from <= time.time():
            key, document = self.left.popleft()
            if self.random.random() < 0.3:
                rows, before, after = self.execute('EXECUTE read(%s)', key)
                self.judge('late read', key, document, bool(rows), before, after)
                self.log_in(key)
                return

    def put_into_cache(self):
        key = f'k{self.random.randrange(CACHE_KEYS)}'
        self.execute('INSERT INTO cache (id, doc) VALUES (%s, %s)'
                     ' ON CONFLICT (id) DO UPDATE SET doc = excluded.doc',
                     key, self.body(self.some_ttl(), 'x' * self.random.randint(1, 1000)))

    def read_cache(self):
        rows, before, _ = self.execute(
            'SELECT id, extract(epoch FROM _ts)::float8 + _ttl FROM cache WHERE id = %s',
            f'k{self.random.randrange(CACHE_KEYS)}')
        for key, due in rows:
            if due is not None and due + 0.001 < before:        # the floats are exact to a microsecond
                self.trouble.add(f'read of the cache found {key} {before - due:.6f} s after it expired')

    def append_events(self):
        self.execute('INSERT INTO events (doc) SELECT %s FROM generate_series(1, %s)',
                     self.body(self.some_ttl(), 'event'), self.random.randint(1, 5))

    def query_all(self):
        """Checks that a query returns no document that expired before the query."""
        rows, _, _ = self.execute(
            'SELECT count(*), count(*) FILTER ('
            '     WHERE extract(epoch FROM _ts)::float8 + coalesce(_ttl, %s) + 0.001 < %s)'
            ' FROM (SELECT _ts, _ttl FROM sessions UNION ALL SELECT _ts, _ttl FROM events) AS seen',
            self.options.default_ttl, time.time())
        if rows[0][1] != 0:
            self.trouble.add(f'a query found {rows[0][1]} expired documents of {rows[0][0]}')


class Settings(threading.Thread):
    """Changes the DefaultTTL of the cache again and again, each time from a new connection."""

    def __init__(self, options, trouble):
        super().__init__(name='settings', daemon=True)
        self.options = options
        self.trouble = trouble
        self.stopping = threading.Event()
        self.changes = 0

    def run(self):
        try:
            while not self.stopping.wait(self.options.sample * 1.5):
                connection = connect(self.name)
                ttl = (self.options.ttl_max, self.options.ttl_min, -1)[self.changes % 3]
                connection.cursor().execute("SELECT ttl_docs.set_default_ttl('cache', %s)", (ttl,))
                connection.close()
                self.changes += 1
        except Exception as error:
            self.trouble.add(f'{self.name}: {type(error).__name__}: {error}')


def make_collections(connection, default_ttl):
    connection.cursor().execute(f"""
        SELECT ttl_docs.create_collection('sessions', {default_ttl});
        CREATE TABLE items (session text REFERENCES sessions ON DELETE CASCADE);
        CREATE INDEX ON items (session);
        SELECT ttl_docs.create_collection('cache', {default_ttl});
        SELECT ttl_docs.create_collection('events', {default_ttl}, indexing => 'lazy');

        CREATE TABLE worker_memory (smaps_rollup text);
        CREATE FUNCTION note_memory() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF ttl_docs.purging() THEN
                INSERT INTO public.worker_memory VALUES (pg_read_file('/proc/self/smaps_rollup'));
            END IF;
            RETURN NULL;
        END $$;
        CREATE TRIGGER note_memory AFTER DELETE ON sessions EXECUTE FUNCTION note_memory();
        CREATE TRIGGER note_memory AFTER DELETE ON events EXECUTE FUNCTION note_memory()""")


# ---- Samples ----

def memory_of(smaps_rollup):
    """Returns the memory of a process in kB: its own (anonymous) memory, RSS and PSS.

    RSS and PSS include the shared buffers that the process has touched, so they grow until it has touched
    all of them.  A leak makes the anonymous memory grow."""
    lines = re.findall(r'^(\w+): +(\d+) kB$', smaps_rollup, re.MULTILINE)
    fields = {name: int(value) for name, value in lines}
    own = fields.get('Pss_Anon', fields['Private_Clean'] + fields['Private_Dirty'])
    return own, fields['Rss'], fields['Pss']


class Sampler:
    """Takes the samples with its own connection."""

    def __init__(self, sessions, trouble):
        self.sessions = sessions
        self.trouble = trouble
        self.connection = connect('sampler', options='-c ttl_docs.show_expired=on')
        self.cursor = self.connection.cursor()
        self.started = time.monotonic()
        self.samples = []
        self.peak = {}
        self.last = (self.started, 0)

    def query(self, statement):
        self.cursor.execute(statement)
        return self.cursor.fetchall()

    def note(self, kind, smaps_rollup):
        """Keeps the peak memory of each kind of process."""
        for name, value in zip((kind + '_kb', kind + '_rss', kind + '_pss'), memory_of(smaps_rollup)):
            self.peak[name] = max(self.peak.get(name, 0), value)

    def watch(self):
        """Reads the memory of all lasting processes, and the memory that workers have recorded."""
        kinds = {session.pid: 'backend' for session in self.sessions}
        for pid, in self.query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'ttl_docs launcher'"):
            kinds[pid] = 'launcher'
        for pid, kind in kinds.items():
            with open(f'/proc/{pid}/smaps_rollup', encoding='ascii') as file:
                self.note(kind, file.read())
        for smaps_rollup, in self.query('DELETE FROM worker_memory RETURNING smaps_rollup'):
            self.note('worker', smaps_rollup)

    def sizes(self):
        return dict(self.query("""
            SELECT CASE WHEN relnamespace = 'pg_catalog'::regnamespace THEN 'catalog_kb'
                        WHEN relkind = 'i' THEN 'index_kb' ELSE 'table_kb' END AS kind,
                   (sum(pg_relation_size(oid)) / 1024)::int
              FROM pg_class
             WHERE relkind IN ('r', 'i')
               AND relnamespace IN ('public'::regnamespace, 'pg_catalog'::regnamespace)
             GROUP BY kind"""))

    def documents(self, names=('sessions', 'cache', 'events')):
        """Counts the live and the expired documents of these collections on disk."""
        live = expired = 0
        for collection in names:
            row, = self.query(f"""
                SELECT count(*), count(*) FILTER (WHERE ttl_docs.is_expired('{collection}', _ts, _ttl))
                  FROM {collection}""")
            live += row[0] - row[1]
            expired += row[1]
        return {'live': live, 'expired': expired}

    def statistics(self):
        backlog, overdue, purged, undeletable, error = self.query("""
            SELECT sum(estimated_backlog)::int, coalesce(extract(epoch FROM max(oldest_overdue)), 0)::float8,
                   sum(purged)::int, sum(undeletable)::int, max(last_error)
              FROM ttl_docs.stat_collections""")[0]
        if undeletable or error:
            self.trouble.add(f'the purge failed: {undeletable} undeletable documents, last error: {error}')
        dead, vacuums = self.query(
            'SELECT sum(n_dead_tup)::int, sum(autovacuum_count)::int FROM pg_stat_user_tables')[0]
        return {'backlog': backlog, 'overdue_s': overdue, 'purged': purged, 'dead': dead, 'vacuums': vacuums}

    def contexts(self):
        """Returns the size of the memory contexts of the first session.  Only that session can see them."""
        session = self.sessions[0]
        session.context_wanted.set()
        limit = time.monotonic() + 60
        while session.context_wanted.is_set() and session.is_alive() and time.monotonic() < limit:
            time.sleep(0.01)
        return session.contexts_kb or 0

    def take(self):
        now = time.monotonic()
        statements = sum(session.statements for session in self.sessions)
        sample = {
            'second': round(now - self.started),
            'tps': (statements - self.last[1]) / (now - self.last[0]),
            'retries': sum(session.met[RETRY] for session in self.sessions),
            'worker_kb': 0,
        }
        self.last = (now, statements)
        sample.update(self.sizes())
        sample.update(self.documents())
        sample.update(self.statistics())
        sample['contexts_kb'] = self.contexts()
        sample.update(self.peak)
        self.peak = {}
        if 'launcher_kb' not in sample:
            self.trouble.add(f'second {sample["second"]}: there is no launcher')
            sample['launcher_kb'] = 0
        if not statements or not sample['tps']:
            self.trouble.add(f'second {sample["second"]}: no statement ran since the last sample')
        self.samples.append(sample)
        return sample


# ---- Verdict ----

class Report:
    """Prints lines, and appends them to a file if one is given."""

    def __init__(self, path):
        self.file = open(path, 'a', encoding='utf-8') if path else None

    def line(self, text=''):
        print(text, flush=True)
        if self.file:
            print(text, file=self.file, flush=True)

    def row(self, values):
        self.line(' '.join(f'{value:>11}' for value in values))

    def sample(self, sample):
        self.row(f'{sample[name]:.0f}' for name in COLUMNS)


def thirds(samples, name):
    """Returns the medians of the first, the middle and the last third.

    Samples without a worker do not count for worker_kb."""
    values = [sample[name] for sample in samples if name != 'worker_kb' or sample[name] > 0]
    if len(values) < 3:
        return None
    third = len(values) // 3
    return [statistics.median(part) for part in (values[:third], values[third:-third], values[-third:])]


def compare(samples, seconds, report, trouble):
    long_soak = seconds >= LONG_SOAK
    report.row(['value', 'first third', 'middle', 'last third', 'limit', ''])
    for name, growth in LIMITS.items():
        medians = thirds(samples, name)
        if medians is None:
            trouble.add(f'{name}: not enough samples')
            continue
        factor, extra = growth[:2] if long_soak else growth[2:]
        limit = factor * medians[0] + extra
        flat = medians[-1] <= limit
        report.row([name] + [f'{value:.0f}' for value in medians + [limit]] + ['ok' if flat else 'GROWS'])
        if not flat:
            trouble.add(f'{name} grows: {medians[0]:.0f} in the first third, {medians[-1]:.0f} in the last')


def read_log(path, offset, met, report, trouble):
    """Checks that the log has exactly the errors that the sessions expected."""
    logged = collections.Counter()
    with open(path, encoding='utf-8', errors='replace') as file:
        file.seek(offset)
        for line in file:
            match = TROUBLE_IN_LOG.search(line)
            if match and CANCELED_AUTOVACUUM in line:
                logged['canceled autovacuum'] += 1
            elif match and match.group(1) in met:
                logged[match.group(1)] += 1
            elif match:
                trouble.add(f'in the log: {line.rstrip()}')
    report.line(f'expected errors by SQLSTATE: {dict(met)}; in the log: {dict(logged)}')
    for code, count in met.items():
        if logged[code] != count:
            trouble.add(f'the log has {code} {logged[code]} times, but the sessions got it {count} times')


def check_end(sampler, names, limit, trouble):
    """Checks that all expired documents are purged after the load has ended."""
    deadline = time.monotonic() + limit
    while True:
        expired = sampler.documents(names)['expired']
        if expired == 0:
            return
        if time.monotonic() > deadline:
            trouble.add(f'{expired} expired documents are still on disk {limit} s after the end of the load')
            return
        time.sleep(0.2)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seconds', type=int, default=3600)
    parser.add_argument('--sessions', type=int, default=6)
    parser.add_argument('--rate', type=float, default=600, help='maximum number of actions per second')
    parser.add_argument('--sample', type=float, default=10, help='seconds between samples')
    parser.add_argument('--warm-up', type=float, help='seconds; default: a tenth of --seconds')
    parser.add_argument('--ttl-min', type=int, default=5)
    parser.add_argument('--ttl-max', type=int, default=60)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--log', required=True, help="the server's log file")
    parser.add_argument('--report', help='also append the report to this file')
    options = parser.parse_args()
    if options.warm_up is None:
        options.warm_up = options.seconds / 10
    options.default_ttl = (options.ttl_min + options.ttl_max) // 2
    return options


def soak(options, sampler, report):
    """Watches every second, and takes samples, until the time is over or a session has ended."""
    report.row(COLUMNS)
    end = sampler.started + options.seconds
    next_sample = sampler.started + options.sample
    while time.monotonic() < end and all(session.is_alive() for session in sampler.sessions):
        sampler.watch()
        if time.monotonic() >= next_sample:
            report.sample(sampler.take())
            next_sample += options.sample
        time.sleep(min(1, options.sample / 4))


def main():
    options = parse_options()
    report = Report(options.report)
    trouble = Trouble()
    report.line(f'soak: seed {options.seed}, {options.seconds} s, {options.sessions} sessions, '
                f'ttl {options.ttl_min} to {options.ttl_max} s, at most {options.rate:.0f} actions/s')
    with open(options.log, 'rb') as file:
        offset = file.seek(0, 2)
    make_collections(connect('setup'), options.default_ttl)
    sessions = [Session(number, options, trouble) for number in range(options.sessions)]
    settings = Settings(options, trouble)
    sampler = Sampler(sessions, trouble)
    for thread in sessions + [settings]:
        thread.start()
    try:
        soak(options, sampler, report)
    finally:
        for thread in sessions + [settings]:
            thread.stopping.set()
        for thread in sessions + [settings]:
            thread.join(60)

    # A cache document written while DefaultTTL was -1 may stay on disk for 64 s.  The purge scans the lazy
    # index once a minute.
    if options.seconds >= LONG_SOAK:
        check_end(sampler, ('sessions', 'cache', 'events'), 240, trouble)
    else:
        check_end(sampler, ('sessions',), 60, trouble)
    report.line()
    warm = [sample for sample in sampler.samples if sample['second'] > options.warm_up]
    compare(warm, options.seconds, report, trouble)
    report.line()
    statements = sum(session.statements for session in sessions)
    met = sum((session.met for session in sessions), collections.Counter())
    report.line(f'{statements} statements, {settings.changes} changes of DefaultTTL, '
                f'{sampler.samples[-1]["purged"] if sampler.samples else 0} documents purged')
    if sum(met.values()) > statements / 100:
        trouble.add(f'{sum(met.values())} of {statements} statements failed')
    read_log(options.log, offset, met, report, trouble)
    for text in trouble.shown:
        report.line(f'not ok: {text}')
    report.line(f'{trouble.count} not ok' if trouble.count else 'all checks passed')
    return 1 if trouble.count else 0


if __name__ == '__main__':
    sys.exit(main())

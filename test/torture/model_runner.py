"""Runs steps against a server and against the model, and compares.

One thread drives all sessions, so a history is a list.  A step is run in the
model first.  What the model is not sure about is left out, and so is mostly what
would have to wait; of the latter some are run with a short lock_timeout, which
has to strike, and some wait indeed until the other session has ended its
transaction (Race).  All other statements must not wait at all.

Each session has planner settings of its own, so that the same question is
answered by different plans.  Beside them are two observers: one asks for all that
is visible, the other, with show_expired, for all that is on disk.
"""

import collections
import io
import math
import re
import threading
import time

import psycopg2

from model_steps import Check, Copy, End, Race, in_order, of_model, of_server, shown
from model_store import Blocked, LOCK_NOT_AVAILABLE, OutOfPlace, Refused, Unsure
from model_world import World

SCHEMA = 'model'
# A wait that the model did not foresee ends with an error after so long.
PATIENCE = '10s'
SHORT_PATIENCE = '500ms'    # while a history is shortened
# One that it did foresee has to be cut short.
SHORT = '5ms'
WAITS = ('error', LOCK_NOT_AVAILABLE)
# A server that has crashed is back after so many seconds.
RECOVERY_SECONDS = 60

PLANS = (
    ('',),
    ('enable_seqscan = off', 'plan_cache_mode = force_generic_plan'),
    ('enable_seqscan = off', 'enable_indexscan = off', 'enable_indexonlyscan = off'),
    ('enable_indexscan = off', 'enable_bitmapscan = off', 'enable_hashjoin = off',
     'plan_cache_mode = force_custom_plan'),
)


class Difference(Exception):
    """Server and model do not agree; in what way is its sort."""

    def __init__(self, sort, text):
        super().__init__(text)
        self.sort = sort


class OutOfTime(Exception):
    """The history has taken so long that real time could matter."""


class Frame:
    """Translates the server's times to the model's."""

    def __init__(self, base, unit):
        self.base = base
        self.unit = unit

    def stamp(self, epoch):
        return math.floor((epoch - self.base) / self.unit) * self.unit

    def document(self, doc):
        if isinstance(doc, dict):
            doc['_ts'] = self.stamp(doc['_ts'])
        return doc

    @staticmethod
    def purged(notices, table):
        """How many documents CALL purge() says that it has purged."""
        for notice in notices:
            found = re.search(r'purged (\d+) documents? of "%s"' % table, notice)
            if found:
                return int(found.group(1))
        return 0


def connect():
    """A connection; if the server has crashed, when it is back."""
    deadline = time.monotonic() + RECOVERY_SECONDS
    while True:
        try:
            return psycopg2.connect('')
        except psycopg2.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


class Session:
    """A connection, and the clock that it was last told."""

    def __init__(self, settings=(), patience=PATIENCE):
        self.connection = connect()
        self.connection.autocommit = True
        self.cursor = self.connection.cursor()
        self.offset = None
        for setting in settings:
            if setting:
                self.cursor.execute('SET ' + setting)
        self.cursor.execute("SET search_path = %s; SET lock_timeout = '%s'; SET jit = off"
                            % (SCHEMA, patience))

    def set_clock(self, clock):
        if self.offset != clock:
            self.cursor.execute('SET ttl_docs.clock_offset = %d' % clock)
            self.offset = clock

    def close(self):
        self.connection.close()


def create_statements(tables):
    """The statements that make the tables."""
    yield 'DROP SCHEMA IF EXISTS %s CASCADE' % SCHEMA
    yield 'CREATE SCHEMA %s' % SCHEMA
    yield 'SET search_path = ' + SCHEMA
    for table in tables:
        columns = ['id text PRIMARY KEY', 'n int NOT NULL DEFAULT 0']
        if table.second_key == 'unique':
            columns.append('u int UNIQUE')
        elif table.second_key == 'exclude':
            columns.append('u int, EXCLUDE (u WITH =)')
        if table.parent:
            columns.append('par text REFERENCES %s ON DELETE %s' % (table.parent.name, table.on_delete))
        columns.append('doc jsonb NOT NULL')
        yield 'CREATE TABLE %s (%s)%s' % (table.name, ', '.join(columns),
                                          ' PARTITION BY HASH (id)' if table.partitions else '')
        for i in range(table.partitions):
            yield 'CREATE TABLE {0}_{1} PARTITION OF {0} FOR VALUES WITH (MODULUS {2}, REMAINDER {1})'.format(
                table.name, i, table.partitions)
        yield "SELECT ttl_docs.adopt('%s', %s, indexing => '%s')" % (
            table.name, 'NULL' if table.default_ttl is None else table.default_ttl, table.indexing)
        if table.second_key:
            yield 'CREATE INDEX ON %s (n, id) INCLUDE (_ts, _ttl)' % table.name
        elif table.parent:
            yield 'CREATE INDEX ON %s (par)' % table.name
        else:
            yield 'CREATE INDEX ON %s USING gin (doc jsonb_path_ops)' % table.name


def prepare_statements(world):
    """The statements that each session prepares."""
    for table in world.tables.values():
        for name, types, condition in (('all', '', 'true'), ('by_id', '(text)', 'id = $1'),
                                       ('by_n', '(int)', 'n = $1')):
            yield 'PREPARE %s_%s%s AS SELECT %s FROM %s WHERE %s' % (
                name, table.name, types, shown(table), table.name, condition)


class Runner:
    """A world beside a server."""

    def __init__(self, tables, unit, sessions, patience=PATIENCE):
        setup = Session()
        version = setup.connection.server_version
        self.world = World(tables, sessions, version)
        for statement in create_statements(tables):
            setup.cursor.execute(statement)
        setup.close()
        self.sessions = [Session(PLANS[i % len(PLANS)], patience) for i in range(sessions)]
        for session in self.sessions:
            for statement in prepare_statements(self.world):
                session.cursor.execute(statement)
        self.observer = Session()
        self.disk = Session(('ttl_docs.show_expired = on',))
        self.started = time.monotonic()
        self.unit = unit
        self.observer.cursor.execute('SELECT extract(epoch FROM clock_timestamp())::float8')
        self.frame = Frame(math.floor(self.observer.cursor.fetchone()[0]) - 2, unit)
        self.script = []        # (session, SQL) of what was run
        self.outcomes = collections.Counter()   # of the statements that were compared
        self.left_out = collections.Counter()   # why others were not run

    def close(self):
        for session in self.sessions + [self.observer, self.disk]:
            session.close()

    # ---- A step ----

    def step(self, step):
        """Runs a step, and returns whether it did.

        Raises Difference; or Blocked, if it would have to wait and is not a probe.
        """
        if time.monotonic() - self.started > self.unit / 4:
            raise OutOfTime
        if isinstance(step, Race):
            return self.race(step)
        if isinstance(step, Check):
            self.check_all()
            return True
        sql = step.sql(self.world)
        if sql is None:
            step.run(self.world)
            return True
        failed = self.is_failed(step.session)
        expected = self.predict(step)
        if expected is None:
            return False
        self.tell_clock(step, failed)
        timeout = SHORT if expected == WAITS else None
        self.compare(step, expected, self.ask(step, sql, timeout))
        if isinstance(step, End) or sql.startswith('ROLLBACK'):
            self.sessions[step.session].offset = None
        return True

    def predict(self, step):
        """What the model makes of a step; None if it is not sure."""
        try:
            return ('answer', step.run(self.world))
        except Refused as refused:
            return ('error', refused.sqlstate)
        except Unsure as unsure:
            self.left_out['out of place' if isinstance(unsure, OutOfPlace) else 'unsure'] += 1
            return None
        except Blocked:
            if not step.probe:
                self.left_out['would wait'] += 1
                raise
            self.world.fail_blocked(step.session)
            return WAITS

    def is_failed(self, session):
        transaction = self.world.open[session]
        return transaction is not None and transaction.failed

    def tell_clock(self, step, failed):
        """Tells the session the time, unless its transaction has failed and it would not listen."""
        session = self.sessions[step.session]
        clock = self.world.clock
        if failed or not step.uses_snapshot or session.offset == clock:
            return
        self.script.append((step.session, 'SET ttl_docs.clock_offset = %d' % clock))
        session.set_clock(clock)

    def ask(self, step, sql, timeout=None):
        """Runs SQL for a step, and returns ('answer', ...) or ('error', sqlstate)."""
        session = self.sessions[step.session]
        if timeout is not None:
            sql = "SET LOCAL lock_timeout = '%s'; %s" % (timeout, sql)
        self.script.append((step.session, sql))
        session.connection.notices.clear()
        try:
            if isinstance(step, Copy):
                return ('answer', self.copy(session, sql))
            session.cursor.execute(sql)
            return ('answer', step.answer(session.cursor, self.frame))
        except psycopg2.Error as error:
            return ('error', error.pgcode or 'connection lost')

    @staticmethod
    def copy(session, sql):
        lines = io.StringIO()
        session.cursor.copy_expert(sql, lines)
        return sorted(lines.getvalue().split())

    def compare(self, step, expected, actual):
        self.outcomes[expected[1] if expected[0] == 'error' else 'success'] += 1
        if expected != actual:
            sort = [outcome[1] if outcome[0] == 'error' else outcome[0] for outcome in (expected, actual)]
            raise Difference(sort, 'session %s: %s\n  model:  %s\n  server: %s'
                             % (step.session, self.script[-1][1], describe(expected), describe(actual)))

    # ---- A step that waits ----

    def race(self, race):
        """Lets a statement wait for another session.  Left out unless the model says that it waits."""
        other = self.world.open[race.other]
        if other is None or race.other == race.session or self.is_failed(race.session):
            return False
        blocked = self.world.blocks(race.session, lambda t: race.step.work(self.world, t))
        if blocked is None or blocked.by != {other} or blocked.what == 'table' or \
                (race.how == 'COMMIT' and self.goes_on_unsure(race, blocked)):
            return False
        return self.wait_and_end(race)

    def goes_on_unsure(self, race, blocked):
        """A foreign key that has waited may fail, by what its query, not the statement, saw before."""
        transaction = self.world.open[race.session]
        return blocked.what == 'parent' or \
            (blocked.what == 'child' and transaction is not None and transaction.keeps_snapshot)

    def wait_and_end(self, race):
        """The model says that the statement waits: so let it."""
        self.tell_clock(race, False)
        sql = race.sql(self.world)
        try:
            expected = ('answer', race.run(self.world))
        except Refused as refused:
            expected = ('error', refused.sqlstate)
        except (Blocked, Unsure):
            # the other session has ended in the model; what waits is not run
            self.left_out['unsure'] += 1
            self.compare(race.end(), ('answer', None), self.ask(race.end(), race.how))
            self.sessions[race.other].offset = None
            return True
        outcome = []
        waiting = threading.Thread(target=lambda: outcome.append(self.ask(race, sql)))
        waiting.start()
        self.wait_until_it_waits(race, waiting)
        self.compare(race.end(), ('answer', None), self.ask(race.end(), race.how))
        self.sessions[race.other].offset = None
        waiting.join()
        self.outcomes['wait'] += 1
        self.script.append((race.session, '-- goes on'))
        self.compare(race, expected, outcome[0] if outcome else ('nothing', None))
        return True

    def wait_until_it_waits(self, race, waiting):
        pid = self.sessions[race.session].connection.get_backend_pid()
        while waiting.is_alive():
            self.observer.cursor.execute('SELECT FROM pg_locks WHERE pid = %d AND NOT granted' % pid)
            if self.observer.cursor.rowcount:
                return
        raise Difference('no wait', 'session %s did not wait: %s' % (race.session, race.sql(self.world)))

    # ---- Everything ----

    def check_all(self):
        """Compares all that is visible, and all that is on disk, with the model."""
        tables = [table for table in self.world.tables.values()
                  if not any('access exclusive' in modes for modes in table.locks.values())]
        if not tables:
            return
        self.script.append((None, '-- all is compared, at %d' % self.world.clock))
        visible = self.content(self.observer, tables, (
            "ttl_docs.is_expired('{0}', _ts, _ttl)",
            "ttl_docs.expires_at('{0}', _ts, _ttl) <= ttl_docs.now()"))
        on_disk = self.content(self.disk, tables, ('false', 'false'))
        for table in tables:
            expected = self.world.execute_apart(lambda t, table=table: self.world.visible(table, t))
            self.compare_content('visible', table, expected, visible)
            self.compare_content('on disk', table, self.world.on_disk(table), on_disk)

    def content(self, session, tables, judgements):
        """The rows of all tables in one query: the name, two judgements, and what the table shows."""
        session.set_clock(self.world.clock)
        session.cursor.execute(' UNION ALL '.join(
            "SELECT '{0}', {1}, ARRAY[{2}], {3} FROM {0}".format(
                table.name, ', '.join(judgements).format(table.name),
                ', '.join(column + '::text' for column in table.columns()[:-1]),
                'doc, extract(epoch FROM _ts)::float8, _ttl') for table in tables))
        rows = session.cursor.fetchall()
        for row in rows:
            if row[1] or row[2]:
                raise Difference('judgement', 'visible, but not by is_expired() or expires_at(): %s' % (row,))
        return rows

    def compare_content(self, what, table, versions, rows):
        expected = of_model(table, versions)
        expected = in_order(tuple(None if c is None else str(c) for c in row[:-3]) + row[-3:]
                            for row in expected)
        actual = of_server([tuple(row[3]) + row[4:] for row in rows if row[0] == table.name], self.frame)
        if expected == actual:
            return
        raise Difference(what, '%s in %s at %d\n  only model:  %s\n  only server: %s' % (
            what, table.name, self.world.clock, [r for r in expected if r not in actual],
            [r for r in actual if r not in expected]))


def describe(result):
    return '%s %s' % result

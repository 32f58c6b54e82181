"""Runs steps on a server and in the model, and compares.

One thread drives all sessions, so a history is a list.  The runner runs each step in the
model first:
- It skips a step about which the model is unsure.
- It skips most steps that are blocked.  Some it runs with a short lock_timeout, and they
  must time out.  Others it runs until the blocking transaction ends (Race).  An adoption waits
  for an older transaction in the same way (AdoptConcurrently).
- All other statements must not wait, except for queries that the runner itself stops in
  the middle (Pause).

Each session has its own planner settings, so that different plans answer the same query.
There are two more connections: one reads all visible documents, the other, with
show_expired, all documents on disk.
"""

import collections
import io
import threading
import time

import psycopg2

from model_adoption import AdoptConcurrently
from model_steps import Check, Copy, CopyFrom, MoveClock, in_order, of_model, of_server, shown
from model_store import Blocked, LOCK_NOT_AVAILABLE, OutOfPlace, RC, Refused, Unsure
from model_time import OutOfTime, RealTime, Travel
from model_transactions import End, EndPrepared, Prepare, Savepoint
from model_waits import Pause, Race
from model_world import World

SCHEMA = 'model'
# lock_timeout for statements that must not wait.
PATIENCE = '10s'
SHORT_PATIENCE = '500ms'    # while a history is shortened
# lock_timeout for statements that must wait.
SHORT = '5ms'
WAITS = ('error', LOCK_NOT_AVAILABLE)
# Maximum time in which a crashed server accepts connections again.
RECOVERY_SECONDS = 60

PLANS = (
    ('',),
    ('enable_seqscan = off', 'plan_cache_mode = force_generic_plan'),
    ('enable_seqscan = off', 'enable_indexscan = off', 'enable_indexonlyscan = off'),
    ('enable_indexscan = off', 'enable_bitmapscan = off', 'enable_hashjoin = off',
     'plan_cache_mode = force_custom_plan'),
    ('parallel_setup_cost = 0', 'parallel_tuple_cost = 0', 'min_parallel_table_scan_size = 0',
     'min_parallel_index_scan_size = 0', 'parallel_leader_participation = off', 'force_parallel_mode = on'),
)


class Difference(Exception):
    """Server and model differ; sort says in what way."""

    def __init__(self, sort, text):
        super().__init__(text)
        self.sort = sort


def connect():
    """Connects; after a crash, waits until the server accepts connections."""
    deadline = time.monotonic() + RECOVERY_SECONDS
    while True:
        try:
            return psycopg2.connect('')
        except psycopg2.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


class Session:
    """A connection, and its current clock_offset."""

    def __init__(self, settings=(), patience=PATIENCE):
        self.connection = connect()
        self.connection.autocommit = True
        self.cursor = self.connection.cursor()
        self.offset = None
        for setting in settings:
            if setting:
                self.cursor.execute('SET ' + self.of_version(setting))
        self.cursor.execute("SET search_path = %s; SET lock_timeout = '%s'; SET jit = off"
                            % (SCHEMA, patience))

    def of_version(self, setting):
        """Returns the setting with its name in this version of PostgreSQL."""
        if self.connection.server_version < 160000:
            return setting
        return setting.replace('force_parallel_mode', 'debug_parallel_query')

    def set_clock(self, clock):
        if self.offset != clock:
            self.cursor.execute('SET ttl_docs.clock_offset = %d' % clock)
            self.offset = clock

    def close(self):
        self.connection.close()


class InBackground:
    """Runs a statement that waits in another thread."""

    def __init__(self, runner, step, sql):
        self.runner = runner
        self.step = step
        self.sql = sql
        self.outcome = ('nothing', None)
        self.thread = threading.Thread(target=self.run)

    def run(self):
        self.outcome = self.runner.ask(self.step, self.sql)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, error, trace):
        """Waits for the statement to end; after an exception, terminates its session first."""
        if kind is not None:
            try:
                self.runner.observer.cursor.execute('SELECT pg_terminate_backend(%d)' % self.pid())
            except psycopg2.Error:
                pass        # the server has crashed
        self.thread.join()

    def pid(self):
        return self.runner.sessions[self.step.session].connection.get_backend_pid()

    def wait_until_it_waits(self):
        cursor = self.runner.observer.cursor
        while self.thread.is_alive():
            cursor.execute('SELECT FROM pg_locks WHERE pid = %d AND NOT granted' % self.pid())
            if cursor.rowcount:
                return
        self.runner.differ('no wait', 'session %s did not wait: %s\n  server: %s' % (
            self.step.session, self.sql, describe(self.outcome)))


def create_statements(tables):
    """Yields the statements that create the tables."""
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
            columns.append('par text CONSTRAINT %s_par REFERENCES %s ON DELETE %s%s' % (
                table.name, table.parent.name, table.on_delete,
                ' DEFERRABLE INITIALLY DEFERRED' if table.deferred else ''))
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
        yield ('CREATE FUNCTION seen_{0}() RETURNS SETOF {0} LANGUAGE plpgsql STABLE'
               " AS 'BEGIN RETURN QUERY SELECT * FROM {0}; END'").format(table.name)
    yield 'CREATE TABLE up (id int PRIMARY KEY)'
    yield 'CREATE TABLE down (id int CONSTRAINT down_par REFERENCES up DEFERRABLE INITIALLY DEFERRED)'


def prepare_statements(world):
    """Yields the statements that each session prepares."""
    for table in world.tables.values():
        for name, types, condition in (('all', '', 'true'), ('by_id', '(text)', 'id = $1'),
                                       ('by_n', '(int)', 'n = $1')):
            yield 'PREPARE %s_%s%s AS SELECT %s FROM %s WHERE %s' % (
                name, table.name, types, shown(table), table.name, condition)


class Runner:
    """Runs steps in a world, which is the model, and on a server."""

    def __init__(self, tables, unit, sessions, patience=PATIENCE, is_real=False):
        setup = Session()
        self.observer = Session()
        self.end_prepared()
        self.world = World(tables, sessions, setup.connection.server_version, unit, is_real)
        for statement in create_statements(tables):
            setup.cursor.execute(statement)
        setup.close()
        self.sessions = [Session(PLANS[i % len(PLANS)], PATIENCE if is_real else patience)
                         for i in range(sessions)]
        for session in self.sessions:
            for statement in prepare_statements(self.world):
                session.cursor.execute(statement)
        self.disk = Session(('ttl_docs.show_expired = on',))
        ids = self.world.snapshot_ids
        self.frame = RealTime(ids, self.server_time) if is_real else Travel(ids, self.server_time, unit)
        self.script = []        # (session, SQL) of each statement that was run
        self.outcomes = collections.Counter()   # outcomes of the statements that were compared
        self.left_out = collections.Counter()   # reasons why other steps were not run

    def server_time(self):
        self.observer.cursor.execute('SELECT extract(epoch FROM clock_timestamp())::float8')
        return self.observer.cursor.fetchone()[0]

    def end_prepared(self):
        """Rolls back prepared transactions, which outlive their sessions and keep the tables locked."""
        self.observer.cursor.execute('SELECT gid FROM pg_prepared_xacts WHERE database = current_database()')
        for gid, in self.observer.cursor.fetchall():
            self.observer.cursor.execute("ROLLBACK PREPARED '%s'" % gid)

    def close(self):
        try:
            self.end_prepared()
        except psycopg2.Error:
            pass        # the server has crashed
        for session in self.sessions + [self.observer, self.disk]:
            session.close()

    # ---- A step ----

    def step(self, step):
        """Runs a step; returns false if it was skipped.

        Raises Difference; or Blocked, if the step is blocked and is not a probe.
        """
        self.frame.require_time()
        if isinstance(step, Race):
            return self.race(step)
        if isinstance(step, Pause):
            return self.pause(step)
        if isinstance(step, AdoptConcurrently):
            return self.adopt_concurrently(step)
        if isinstance(step, Check):
            self.check_all()
            return True
        if isinstance(step, MoveClock):
            step.run(self.world)
            self.script += [(None, sql) for sql in self.frame.move(self.world.clock)]
            return True
        sql = step.sql(self.world)
        failed = self.is_failed(step.session)
        checks = self.has_deferred(step.session)
        expected = self.predict(step)
        if expected is None:
            return False
        self.tell_clock(step, failed, checks)
        timeout = SHORT if expected == WAITS else None
        self.compare(step, expected, self.ask(step, sql, timeout))
        self.forget_clock(step)
        return True

    def predict(self, step):
        """Returns the outcome of a step in the model; None if the model is unsure."""
        try:
            return self.run_in_model(step)
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

    def run_in_model(self, step):
        """Returns ('answer', the answer), or ('one of', pairs of a possible instant and the answer at it)."""
        transaction = self.world.open[step.session]
        if transaction is None or transaction.instants is None or isinstance(step, (End, Savepoint)):
            return ('answer', step.run(self.world))
        if not step.only_reads:
            raise Unsure
        answers = []
        for transaction.instant in transaction.instants:
            answers.append((transaction.instant, step.run(self.world)))
        return ('one of', answers)

    def is_failed(self, session):
        transaction = self.world.open[session]
        return transaction is not None and transaction.failed

    def has_deferred(self, session):
        transaction = self.world.open[session]
        return transaction is not None and bool(transaction.deferred)

    def tell_clock(self, step, failed=False, checks=False):
        """Sets the clock of the session, unless its transaction has failed and refuses statements."""
        session = self.sessions[step.session]
        clock = self.world.clock
        if failed or self.world.is_real or session.offset == clock or not (step.uses_snapshot or checks):
            return
        self.script.append((step.session, 'SET ttl_docs.clock_offset = %d' % clock))
        session.set_clock(clock)

    def forget_clock(self, step):
        """Forgets the clock of the session, because the end of a transaction may undo the SET."""
        if isinstance(step, (End, Prepare, Savepoint)):
            self.sessions[step.session].offset = None

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
        if expected[0] == 'one of':
            expected = self.choose_instants(step, expected[1], actual)
        if expected != actual:
            sort = [outcome[1] if outcome[0] == 'error' else outcome[0] for outcome in (expected, actual)]
            self.differ(sort, 'session %s: %s\n  model:  %s\n  server: %s'
                        % (step.session, self.script[-1][1], describe(expected), describe(actual)))
        self.frame.require_time()

    def choose_instants(self, step, answers, actual):
        """Keeps those possible instants of a transaction that fit the answer."""
        fitting = [(instant, answer) for instant, answer in answers if ('answer', answer) == actual]
        transaction = self.world.open[step.session]
        transaction.instants = [instant for instant, _ in fitting or answers]
        transaction.instant = transaction.instants[0]
        if len(transaction.instants) == 1:
            transaction.instants = None
        return ('answer', (fitting or answers)[0][1])

    def differ(self, sort, text):
        """Raises Difference; or OutOfTime, if real time may have caused the difference."""
        self.frame.require_time()
        raise Difference(sort, text)

    # ---- A step that waits ----

    def race(self, race):
        """Lets a statement wait for another transaction.  Skips it unless the model says that it waits."""
        other = race.other(self.world)
        transaction = self.world.open[race.session]
        if other is None or race.session in race.ending.sessions() or other.deferred or \
                self.is_failed(race.session) or (transaction is not None and transaction.instants is not None):
            return False
        blocked = self.world.blocks(race.session, lambda t: race.step.work(self.world, t))
        if blocked is None or blocked.by != {other} or blocked.what == 'table' or \
                (race.ending.how == 'COMMIT' and self.goes_on_unsure(race, blocked)):
            return False
        if isinstance(race.ending, EndPrepared) and self.world.open[race.ending.session] is not None:
            return False
        if race.meanwhile:
            return self.can_wait_long(race, other) and self.wait_meanwhile(race)
        return self.wait_and_end(race)

    def goes_on_unsure(self, race, blocked):
        """Is the outcome after the wait unsure?

        A foreign key check that has waited may fail, depending on the snapshot of its own query.
        """
        transaction = self.world.open[race.session]
        return blocked.what == 'parent' or \
            (blocked.what == 'child' and transaction is not None and transaction.keeps_snapshot)

    def wait_and_end(self, race):
        """Runs a statement that waits, and ends the other transaction."""
        self.tell_clock(race)
        sql = race.sql(self.world)
        try:
            expected = ('answer', race.run(self.world))
        except Refused as refused:
            expected = ('error', refused.sqlstate)
        except (Blocked, Unsure):
            # the other transaction has ended in the model; do not run the waiting statement
            self.left_out['unsure'] += 1
            self.end_blocker(race)
            return True
        with InBackground(self, race, sql) as waiting:
            waiting.wait_until_it_waits()
            self.end_blocker(race)
        self.outcomes['wait'] += 1
        self.script.append((race.session, '-- continues'))
        self.compare(race, expected, waiting.outcome)
        return True

    def end_blocker(self, race):
        """Ends the other transaction on the server; in the model it has ended already."""
        self.compare(race.ending, ('answer', None), self.ask(race.ending, race.ending.sql(self.world)))
        self.forget_clock(race.ending)

    # ---- A step that waits while other sessions continue ----

    def can_wait_long(self, race, other):
        """Is the outcome of a statement known if time passes while it waits?

        It is known only for an INSERT of one row whose key only the other transaction holds,
        if that transaction rolls back.
        """
        rows = getattr(race.step, 'rows', ())
        table = self.world.tables[race.table]
        if self.world.is_real and self.world.open[race.session] is not None:
            return False        # the runner reads the row's _ts, so the row must be committed
        return len(rows) == 1 and race.ending.how == 'ROLLBACK' and not table.second_key and not table.parent and \
            not any(v.values['id'] == rows[0]['id'] and v.xmin is not other and
                    (v.xmax is None or v.xmax.number is None) for v in table.versions)

    def wait_meanwhile(self, race):
        """Runs steps of other sessions and moves the clock before the wait ends."""
        self.tell_clock(race)
        clock = self.world.clock
        with InBackground(self, race, race.sql(self.world)) as waiting:
            def late_end():
                waiting.wait_until_it_waits()
                self.run_meanwhile(race)
                race.ending.run(self.world)
                self.end_blocker(race)

            def work(transaction):
                # the waiting session still has the old clock
                with self.world.at_clock(clock):
                    return race.step.work(self.world, transaction)
            try:
                expected = ('answer', self.world.execute(race.session, work, late_end))
            except Refused as refused:
                expected = ('error', refused.sqlstate)
            except (Blocked, Unsure):
                raise OutOfTime from None       # the model cannot continue
        self.outcomes['long wait'] += 1
        self.script.append((race.session, '-- continues'))
        if self.world.is_real and waiting.outcome[0] == expected[0] == 'answer':
            expected = self.with_stamp_of_server(race, clock, expected)
        self.compare(race, expected, waiting.outcome)
        return True

    def with_stamp_of_server(self, race, clock, expected):
        """Takes the _ts of a row that has waited from the server: the times before and after the wait are correct."""
        ident = race.step.rows[0]['id']
        version = [v for v in self.world.tables[race.table].versions if v.values['id'] == ident][-1]
        self.disk.cursor.execute("SELECT extract(epoch FROM _ts)::float8 FROM %s WHERE id = '%s'" % (race.table, ident))
        stamp = self.frame.stamp(self.disk.cursor.fetchone()[0])
        if stamp not in (clock, self.world.clock):
            self.differ('stamp', '_ts of "%s" in %s is %d' % (ident, race.table, stamp))
        version.ts = version.shown_ts = stamp
        if isinstance(race.step, CopyFrom):
            return expected
        return ('answer', of_model(self.world.tables[race.table], [version]))

    def run_meanwhile(self, waiting):
        """Runs the steps of other sessions during a wait; skips those that are blocked."""
        for step in waiting.meanwhile:
            if waiting.session in step.sessions():
                continue
            try:
                self.step(step)
            except Blocked:
                pass

    def pause(self, pause):
        """Stops a query between its scans, runs steps of other sessions, and lets the query continue."""
        self.world.pauses += 1
        sql = pause.sql(self.world)
        implicit = self.world.open[pause.session] is None
        if implicit:
            self.world.begin(pause.session, RC)     # so that the model keeps its locks during the pause
        try:
            expected = self.predict(pause)
            if expected is None or expected[0] == 'error':
                return False
            self.tell_clock(pause)
            self.observer.cursor.execute('SELECT pg_advisory_lock(%d)' % self.world.pauses)
            with InBackground(self, pause, sql) as waiting:
                waiting.wait_until_it_waits()
                self.run_meanwhile(pause)
                self.observer.cursor.execute('SELECT pg_advisory_unlock_all()')
        finally:
            if implicit:
                self.world.commit(pause.session)
        self.outcomes['pause'] += 1
        self.script.append((pause.session, '-- continues'))
        self.compare(pause, expected, waiting.outcome)
        return True

    # ---- An adoption while other sessions continue ----

    def adopt_concurrently(self, step):
        """Runs an adoption.  If a transaction keeps it in a phase, runs steps of other sessions, and ends it."""
        if not step.is_possible(self.world):
            self.left_out['out of place'] += 1
            return False
        self.end_others(step)
        clock = self.world.clock
        self.tell_clock(step)
        with InBackground(self, step, step.sql(self.world)) as adoption:
            if step.ending is not None:
                self.wait_for_phase(adoption, step.phase)
                step.begin(self.world)
                self.run_meanwhile(step)
                self.step(step.ending)
        if step.ending is None:
            step.begin(self.world)
        expected = self.predict(step.end(self.world, clock))
        self.outcomes['adoption, ' + (step.phase or 'alone')] += 1
        self.script.append((step.session, '-- continues'))
        self.compare(step, expected, adoption.outcome)
        return True

    def end_others(self, step):
        """Rolls back all transactions that an adoption would wait for, except the one that is to keep it."""
        for number, transaction in enumerate(self.world.open):
            if transaction is not None and transaction is not step.holder(self.world):
                self.step(End(number, 'ROLLBACK'))
        for name in list(self.world.prepared):
            self.step(EndPrepared(step.session, name, 'ROLLBACK'))

    def wait_for_phase(self, adoption, phase):
        cursor = self.observer.cursor
        while adoption.thread.is_alive():
            cursor.execute('SELECT phase FROM ttl_docs.stat_progress WHERE pid = %d' % adoption.pid())
            if (phase,) in cursor.fetchall():
                return
        self.differ('no wait', 'session %s was not kept in the phase "%s": %s\n  server: %s' % (
            adoption.step.session, phase, adoption.sql, describe(adoption.outcome)))

    # ---- All documents ----

    def check_all(self):
        """Compares all visible documents, and all documents on disk, with the model."""
        tables = [table for table in self.world.tables.values()
                  if not any('access exclusive' in modes for modes in table.locks.values())]
        if not tables:
            return
        self.script.append((None, '-- all documents are compared, at %d' % self.world.clock))
        visible = self.content(self.observer, tables, (
            "ttl_docs.is_expired('{0}', _ts, _ttl)",
            "ttl_docs.expires_at('{0}', _ts, _ttl) <= ttl_docs.now()"))
        on_disk = self.content(self.disk, tables, ('false', 'false'))
        for table in tables:
            expected = self.world.execute_apart(lambda t, table=table: self.world.visible(table, t))
            self.compare_content('visible', table, expected, visible)
            self.compare_content('on disk', table, self.world.on_disk(table), on_disk)

    def content(self, session, tables, judgements):
        """Returns the rows of all tables from one query: the table name, two judgements, and the columns."""
        session.set_clock(0 if self.world.is_real else self.world.clock)
        session.cursor.execute(' UNION ALL '.join(
            "SELECT '{0}', {1}, ARRAY[{2}], {3} FROM {0}".format(
                table.name, ', '.join(judgements).format(table.name),
                ', '.join(column + '::text' for column in table.columns()[:-1]),
                'doc, extract(epoch FROM _ts)::float8, _ttl') for table in tables))
        rows = session.cursor.fetchall()
        for row in rows:
            if row[1] or row[2]:
                self.differ('judgement', 'visible, but expired according to is_expired() or expires_at(): %s' % (row,))
        return rows

    def compare_content(self, what, table, versions, rows):
        expected = of_model(table, versions)
        expected = in_order(tuple(None if c is None else str(c) for c in row[:-3]) + row[-3:]
                            for row in expected)
        actual = of_server([tuple(row[3]) + row[4:] for row in rows if row[0] == table.name], self.frame)
        if expected == actual:
            return
        self.differ(what, '%s in %s at %d\n  only model:  %s\n  only server: %s' % (
            what, table.name, self.world.clock, [r for r in expected if r not in actual],
            [r for r in actual if r not in expected]))


def describe(result):
    return '%s %s' % result

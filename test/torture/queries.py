#!/usr/bin/python3
"""Checks that queries return the same results as if expired documents did not exist.

	queries.py [--seed N] [--cases N] [--seconds N] [--case N]

The program runs the same random statements twice: over collections with expired rows on
disk, and over plain tables that hold only the live rows (query_world.py).  It compares the
returned rows, the row counts, the contents of the tables afterwards, and the SQLSTATEs of
errors.  Expired documents carry a mark.  No row, message or error from the collections may
contain the mark.  Functions of a user look for the mark, too (query_spies.py).

query_cases.py, query_attacks.py and query_grammar.py make the statements.  Each case runs
in a transaction that is rolled back, so every case can run alone: --seed and --case
reproduce it.

When the program finds a difference, it simplifies the case (query_choices.py), and prints
the settings, both answers and the plan.  For further differences in the same kind of case
it prints only the case number.

"No difference" means little if the cases test little.  So the program also fails
- if a kind of scan never occurred in a plan,
- if no query called some function of ttl_docs,
- if too many queries were invalid SQL, or
- if too few rows are expired.

The program connects by the environment variables of libpq as a superuser, to a database with
ttl_docs.  It owns the schemas ttl and plain.  The purge must be off.
"""
import argparse
import collections
import io
import sys
import threading
import time

import psycopg2
import psycopg2.errors
import psycopg2.extras

from query_attacks import AttackMaker
from query_calls import Calls
from query_choices import Choices, shrink
from query_spies import GUEST, MARK
from query_world import COLUMNS, DAY, World

CASES_OF_WORLD = 750
CASES_TO_TIDY = 250
ROWS = 200
CLOCKS = (5, -3, 0)         # days
TIME_LIMIT = 1000           # of a statement, in milliseconds
TIMEOUT = '57014'
# SQLSTATEs that valid queries of the grammar may cause; any other one is a bug of the grammar.
EXPECTED_ERRORS = {'23505', '23503', '23514', '23P01', '21000', '42501', '40001', '24000'}
# SQLSTATEs of invalid SQL.
NOT_RUN = {'42601', '42883', '42804', '42703', '42P01', '42846', '42725', '42P18'}
SCANS = {'Seq Scan', 'Sample Scan', 'Index Scan', 'Index Only Scan', 'Bitmap Heap Scan', 'Tid Scan',
         'Tid Range Scan', 'Parallel Seq Scan', 'Parallel Index Scan', 'Parallel Index Only Scan',
         'Parallel Bitmap Heap Scan'}
SHOWN_ROWS = 5
SHOWN_TEXT = 300


class Messages:
    """The messages of a session; keeps those that contain the mark of an expired document."""

    def __init__(self):
        self.marked = []

    def append(self, message):
        if MARK in message:
            self.marked.append(message)


class Side:
    """One of the two schemas, with a session that runs cases and another session that blocks it."""

    def __init__(self, schema, clock_offset):
        options = (f'-c search_path={schema} -c ttl_docs.clock_offset={clock_offset}'
                   ' -c client_min_messages=notice -c jit=off')
        self.schema = schema
        self.clock_offset = clock_offset
        self.session, self.other = (connect(options) for _ in range(2))
        self.session.notices = self.messages = Messages()
        self.cursor = self.session.cursor()

    def close(self):
        self.session.close()
        self.other.close()

    def run(self, case):
        """Returns the outcomes of the steps up to the first error, and the texts with the mark."""
        self.messages.marked.clear()
        self.begin(case)
        try:
            outcomes = self.meet(case) if case.ended is not None else self.run_steps(case.steps)
        finally:
            self.end(case)
        for outcome in outcomes:
            for text in [outcome[2]] if outcome[0] == 'error' else outcome[2]:
                self.messages.append(text)
        return outcomes, list(self.messages.marked)

    def begin(self, case):
        settings = ''.join(f'; SET LOCAL {setting}' for setting in case.settings)
        self.cursor.execute(f'BEGIN ISOLATION LEVEL {case.isolation}{settings};'
                            f' SET LOCAL statement_timeout = {TIME_LIMIT}')

    def end(self, case):
        self.roll_back()
        if any(step.sql.startswith('PREPARE') for step in case.steps):
            self.cursor.execute('DEALLOCATE ALL')

    def roll_back(self):
        """Ends the transaction, if there is one.  Retries, because ROLLBACK can hit the time limit, too."""
        while True:
            try:
                self.cursor.execute('ROLLBACK')
                return
            except psycopg2.errors.QueryCanceled:
                pass

    def run_steps(self, steps):
        outcomes = []
        for step in steps:
            try:
                outcomes.append(self.run_step(step))
            except psycopg2.Error as error:
                outcomes.append(('error', error.pgcode, str(error).strip()))
                break
        return outcomes

    def run_step(self, step):
        if step.kind == 'copy_out':
            out = io.StringIO()
            self.cursor.copy_expert(step.sql, out)
            return ('rows', self.cursor.rowcount, sorted(out.getvalue().splitlines()))
        if step.kind == 'copy_in':
            self.cursor.copy_expert(step.sql, io.StringIO(step.data))
            return ('rows', self.cursor.rowcount, [])
        self.cursor.execute(step.sql)
        rows = self.cursor.fetchall() if self.cursor.description else []
        return ('rows', self.cursor.rowcount, sorted(map(repr, rows)))

    # ---- Two sessions ----

    def meet(self, case):
        """Runs the steps while the other session has changed rows of "busy".

        The other session commits when the first step waits for it.
        """
        other = self.other.cursor()
        other.execute('BEGIN')
        self.end_rows(other, case.ended)
        other.execute('UPDATE busy SET a = (a + 7) %% 20, b = 50 WHERE id = ANY (%s)', (case.changed,))
        outcomes = []
        thread = threading.Thread(target=lambda: outcomes.extend(self.run_steps(case.steps[:1])))
        thread.start()
        while thread.is_alive() and not self.waits(other):
            thread.join(0.001)
        other.execute('COMMIT')
        thread.join()
        if outcomes[-1][0] != 'error':
            outcomes += self.run_steps(case.steps[1:])
        self.roll_back()
        return outcomes + self.restore(other)

    def end_rows(self, other, ids):
        """Makes these rows expire by writing them in the past; in the plain table, deletes them."""
        if self.schema == 'plain':
            other.execute('DELETE FROM busy WHERE id = ANY (%s)', (ids,))
        else:
            other.execute(f"SET LOCAL ttl_docs.clock_offset = {self.clock_offset - 10 * DAY};"
                          "UPDATE busy SET doc = doc - 'ttl' WHERE id = ANY (%s);"
                          f"SET LOCAL ttl_docs.clock_offset = {self.clock_offset}", (ids,))

    def waits(self, other):
        other.execute('SELECT cardinality(pg_blocking_pids(%s)) > 0', (self.session.info.backend_pid,))
        return other.fetchone()[0]

    def remember(self):
        """Saves the rows of "busy" for restore()."""
        self.cursor.execute(f"SELECT {', '.join(COLUMNS)} FROM busy")
        self.content = self.cursor.fetchall()

    def restore(self, other):
        """Restores the rows of "busy", also those that end_rows() ended.  Returns an outcome if that fails."""
        try:
            other.execute('BEGIN; DELETE FROM busy')
            psycopg2.extras.execute_values(other, f"INSERT INTO busy ({', '.join(COLUMNS)}) VALUES %s",
                                           self.content)
            other.execute('COMMIT')
            return []
        except psycopg2.Error as error:
            other.execute('ROLLBACK')
            return [('error', error.pgcode, f'while restoring the rows: {error}')]

    # ---- For reports ----

    def explain(self, case, form='COSTS OFF'):
        """Returns the plan of the last step that has one, or None."""
        steps = [number for number, step in enumerate(case.steps) if step.explain]
        if not steps:
            return None
        self.begin(case)
        try:
            self.run_steps(case.steps[:steps[-1]])
            self.cursor.execute(f'EXPLAIN ({form}) {case.steps[steps[-1]].explain}')
            return self.cursor.fetchall()
        except psycopg2.Error:
            return None
        finally:
            self.end(case)


def connect(options):
    connection = psycopg2.connect('', options=options)
    connection.autocommit = True
    # Leave jsonb as text: dictionaries cannot be sorted, and parsing takes time.
    psycopg2.extras.register_default_jsonb(connection, loads=lambda text: text)
    return connection


class Checker:
    """Runs cases, compares the outcomes, and counts."""

    def __init__(self, seed):
        self.seed = seed
        self.admin = connect('')
        self.version = self.admin.info.server_version // 10000
        with self.admin.cursor() as cursor:
            cursor.execute("""SELECT name FROM pg_settings WHERE name LIKE 'enable%' AND vartype = 'bool'
                ORDER BY name""")
            self.switches = [name for name, in cursor.fetchall()]
            for role in ('query_reader', GUEST):
                cursor.execute('SELECT FROM pg_roles WHERE rolname = %s', (role,))
                if cursor.rowcount == 0:
                    cursor.execute(f'CREATE ROLE {role}')
        self.sides = []
        self.calls = None
        self.number = None      # of the world
        self.statements = 0
        self.rows = 0
        self.counts = collections.Counter()     # cases by kind
        self.errors = collections.Counter()     # by SQLSTATE
        self.nodes = collections.Counter()      # of plans
        self.called = collections.Counter()     # functions of ttl_docs
        self.differences = collections.Counter()    # by kind

    # ---- Cases ----

    def enter_world(self, number):
        if number == self.number:
            return
        self.leave_world()
        self.number = number
        self.world = World(Choices(f'{self.seed}/{number}'), ROWS, CLOCKS[number % len(CLOCKS)])
        self.world.create(self.admin)
        if self.calls is None:
            self.calls = Calls(self.admin)
        self.sides = [Side(schema, self.world.clock_offset) for schema in ('ttl', 'plain')]
        for side in self.sides:
            side.remember()
        on_disk, dead = self.world.counts
        print(f'world {number}: {on_disk} rows in {len(self.world.tables)} tables, {dead} expired; '
              f'clock {self.world.base_day:+d} days', flush=True)
        if dead < on_disk // 4:
            raise AssertionError('too few rows are expired')

    def leave_world(self):
        for side in self.sides:
            side.close()
        self.sides = []

    def case(self, choices):
        return AttackMaker(choices, self.world, self.version, self.switches, self.calls).case()

    def run(self, number):
        """Runs the case with that number; returns false if there was a difference."""
        self.enter_world(number // CASES_OF_WORLD)
        if number % CASES_TO_TIDY == CASES_TO_TIDY - 1:
            self.tidy()
        choices = Choices(f'{self.seed}/case/{number}')
        case = self.case(choices)
        outcomes = self.run_both(case)
        self.count(case, outcomes[0])
        if number % 4 == 0 or case.kind == 'scan':
            self.count_nodes(case)
        if same(*outcomes) and not self.marked:
            return True
        self.differences[case.kind] += 1
        if self.differences[case.kind] == 1:
            self.report(number, choices, case, outcomes)
        else:
            print(f'\nDIFFERENCE in case {number}, again of the kind {case.kind}', flush=True)
        return False

    def run_both(self, case):
        """Returns the outcomes on both sides.  Skips the second side if the first took too long."""
        ttl, plain = self.sides
        outcome, self.marked = ttl.run(case)
        if case.alone or outcome[-1][1] == TIMEOUT:
            return [outcome, outcome]
        return [outcome, plain.run(case)[0]]

    def tidy(self):
        """Vacuums, because every case leaves dead rows."""
        with self.admin.cursor() as cursor:
            for side in self.sides:
                self.world.tidy(cursor, side.schema)
            cursor.execute('VACUUM pg_class, pg_attribute, pg_type, pg_depend, pg_proc')

    # ---- Counting ----

    def count(self, case, outcomes):
        self.counts[case.kind] += 1
        self.statements += len(outcomes)
        for outcome, step in zip(outcomes, case.steps):
            if outcome[0] == 'error':
                self.errors[outcome[1]] += 1
            else:
                self.rows += len(outcome[2])
            if outcome[0] != 'error' or outcome[1] not in NOT_RUN:
                self.called.update(self.calls.called(step.sql))
        if case.alone:
            return
        if outcomes[-1][0] == 'error' and outcomes[-1][1] not in EXPECTED_ERRORS | {TIMEOUT}:
            self.errors['unexpected'] += 1
            if self.errors['unexpected'] <= 3:
                print('unexpected error:', outcomes[-1][2][:SHOWN_TEXT], '\n', case.steps[len(outcomes) - 1].sql)

    def count_nodes(self, case):
        rows = self.sides[0].explain(case, 'FORMAT JSON, COSTS OFF')
        if rows is not None:
            for statement in rows[0][0]:
                self.count_node(statement.get('Plan', {}))

    def count_node(self, node):
        if 'Node Type' in node:
            parallel = 'Parallel ' if node.get('Parallel Aware') else ''
            self.nodes[parallel + node['Node Type']] += 1
        for below in node.get('Plans', ()):
            self.count_node(below)

    def summary(self, seconds):
        cases = sum(self.counts.values())
        print(f'{cases} cases, {self.statements} statements on each side, {self.rows} rows compared '
              f'in {seconds:.0f} s; {sum(self.differences.values())} differences')
        for title, counter in (('cases', self.counts), ('errors', self.errors), ('plan nodes', self.nodes),
                               ('functions of ttl_docs', self.called), ('differences', self.differences)):
            listed = ', '.join(f'{name} {count}' for name, count in counter.most_common())
            print(f'{title}:', listed or 'none')

    def shortcomings(self):
        """Yields the reasons why "no difference" would mean little."""
        cases = sum(self.counts.values())
        if self.errors['unexpected'] * 200 > cases:
            yield 'too many queries of the grammar fail'
        if self.errors[TIMEOUT] * 2 > cases:
            yield 'most queries were too slow'
        missing = SCANS - self.nodes.keys()
        if missing and cases >= 1500:
            yield f"no plan had a {', '.join(sorted(missing))}"
        missing = self.calls.missing(self.called)
        if missing and cases >= 1500:
            yield f"no query called {', '.join(missing)}"

    # ---- Differences ----

    def report(self, number, choices, case, outcomes):
        print(f'\nDIFFERENCE in case {number}; to reproduce: queries.py --seed {self.seed} --case {number}')
        self.show(case, outcomes)

        def still_differs(made):
            simpler = self.case(Choices(replay=made))
            return not same(*self.run_both(simpler)) or self.marked

        made = shrink(choices.made, still_differs, 400)
        case = self.case(Choices(replay=made))
        print(f'\nThe simplified case ({len(made)} of {len(choices.made)} choices):')
        self.show(case, self.run_both(case))
        for side in self.sides:
            plan = side.explain(case)
            if plan is not None:
                print(f'plan in {side.schema}:', *(line for line, in plan), sep='\n    ')
        sys.stdout.flush()

    def show(self, case, outcomes):
        self.show_marked()
        settings = '; '.join(case.settings) or 'none'
        print(f'kind: {case.kind}; isolation: {case.isolation}; settings: {settings}')
        if case.ended is not None:
            print(f'another session changes {case.changed} and makes {case.ended} expire')
        for number, step in enumerate(case.steps):
            pair = [outcome[number] if number < len(outcome) else None for outcome in outcomes]
            print(f'  {step.sql};', *step.data.splitlines(), sep='\n      ')
            if not same([pair[0]], [pair[1]]):
                show_outcomes(*pair)
                return
        print('  afterwards:', [outcome[len(case.steps):] for outcome in outcomes])

    def show_marked(self):
        if self.marked:
            print(f'  {len(self.marked)} rows or messages contain the mark of an expired document:')
        for text in self.marked[:SHOWN_ROWS]:
            print(f'        {text.strip()[:SHOWN_TEXT]}')


def same(one, other):
    """Are the outcomes the same?  A timeout on either side counts as the same."""
    for left, right in zip(one, other):
        if left is None or right is None:
            return left == right
        if TIMEOUT in (left[1], right[1]) and 'error' in (left[0], right[0]):
            return True
        if left[:2] != right[:2] or (left[0] == 'rows' and left[2] != right[2]):
            return False
        # Both failed alike, but an internal error is always a difference.
        if left[0] == 'error' and left[1].startswith('XX'):
            return False
    return len(one) == len(other)


def show_outcomes(ttl, plain):
    for schema, outcome, other in (('ttl', ttl, plain), ('plain', plain, ttl)):
        if outcome is None or outcome[0] == 'error':
            print(f'    {schema}: {outcome}')
            continue
        others = collections.Counter(other[2] if other and other[0] == 'rows' else ())
        only = list((collections.Counter(outcome[2]) - others).elements())
        print(f'    {schema}: {outcome[1]} rows; only here: {len(only)}')
        for row in only[:SHOWN_ROWS]:
            print(f'        {row[:SHOWN_TEXT]}')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--cases', type=int, default=3000)
    parser.add_argument('--seconds', type=float, default=float('inf'), help='stop after this time')
    parser.add_argument('--case', type=int, help='run only this case')
    parser.add_argument('--differences', type=int, default=10, help='stop after this number of differences')
    arguments = parser.parse_args()

    checker = Checker(arguments.seed)
    print(f'seed {arguments.seed}, PostgreSQL {checker.version}')
    start = time.monotonic()
    numbers = range(arguments.cases) if arguments.case is None else [arguments.case]
    for number in numbers:
        checker.run(number)
        found = sum(checker.differences.values())
        if found >= arguments.differences or time.monotonic() - start > arguments.seconds:
            break
    checker.leave_world()
    checker.summary(time.monotonic() - start)
    shortcomings = [] if arguments.case is not None or checker.differences else list(checker.shortcomings())
    for shortcoming in shortcomings:
        print('failed:', shortcoming)
    return 1 if checker.differences or shortcomings else 0


if __name__ == '__main__':
    sys.exit(main())

"""Steps that wait while other sessions continue.

A Race is a statement that waits for another transaction.  A Pause is a query that waits
between two of its scans, for a lock that the runner holds.  In both cases the runner runs
other steps at the same time (model_runner.py).
"""

from model_steps import Step, has_duplicates, of_model, of_server, shown
from model_store import Unsure

COLUMN_TYPES = {'id': 'text', 'n': 'int', 'u': 'int', 'par': 'text', 'doc': 'jsonb'}


class Waiting(Step):
    """Base class of Race and Pause, with the steps of other sessions during the wait."""

    def __init__(self, session, table, meanwhile):
        super().__init__(session, table)
        self.meanwhile = list(meanwhile)

    def sessions(self):
        return super().sessions() + [s for step in self.meanwhile for s in step.sessions()]

    def move(self, source, target):
        super().move(source, target)
        for step in self.meanwhile:
            step.move(source, target)


class Race(Waiting):
    """A statement that waits until another transaction ends."""

    def __init__(self, step, ending, meanwhile=()):
        super().__init__(step.session, step.table, meanwhile)
        self.step = step
        self.ending = ending        # an End or an EndPrepared

    def sql(self, world):
        return self.step.sql(world)

    def other(self, world):
        """Returns the transaction that the statement waits for."""
        name = getattr(self.ending, 'name', None)
        return world.open[self.ending.session] if name is None else world.prepared.get(name)

    def sessions(self):
        return super().sessions() + self.ending.sessions()

    def move(self, source, target):
        super().move(source, target)
        self.step.move(source, target)
        self.ending.move(source, target)

    def run(self, world):
        return world.execute(self.session, lambda transaction: self.step.work(world, transaction),
                             late_end=lambda: self.ending.run(world))

    def answer(self, cursor, frame):
        return self.step.answer(cursor, frame)


class Pause(Waiting):
    """A query that reads a table, waits, and reads the table again: both scans see the same documents.

    The query waits for an advisory lock.  pg_advisory_xact_lock_shared() never runs in a parallel
    worker, but the scans after it may, in a session with parallel settings.  OFFSET 0 makes the
    planner plan them separately.
    """

    only_reads = True
    GATE = 'SELECT pg_advisory_xact_lock_shared({key}) AS gate OFFSET 0'
    FORMS = {
        'union': 'SELECT {columns} FROM {table} UNION ALL SELECT {nulls} FROM ({gate}) AS g WHERE gate IS NULL'
                 ' UNION ALL (SELECT {columns} FROM {table} OFFSET 0)',
        'first': 'SELECT {nulls} FROM ({gate}) AS g WHERE gate IS NULL'
                 ' UNION ALL (SELECT {columns} FROM {table} OFFSET 0)',
        'function': 'SELECT {nulls} FROM ({gate}) AS g WHERE gate IS NULL'
                    ' UNION ALL SELECT {columns} FROM seen_{table}()',
        'join': 'WITH d AS MATERIALIZED (SELECT id FROM {table}),'
                ' g AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared({key}) FROM (SELECT count(*) FROM d) AS c)'
                ' SELECT {columns} FROM {table} WHERE (SELECT count(*) FROM g) = 1 AND id IN (SELECT id FROM d)',
        'anti join': 'WITH d AS MATERIALIZED (SELECT * FROM {table}),'
                     ' g AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared({key})'
                     ' FROM (SELECT count(*) FROM d) AS c)'
                     ' SELECT {columns} FROM d WHERE (SELECT count(*) FROM g) = 1'
                     ' AND NOT EXISTS (SELECT FROM {table} AS e WHERE e.id = d.id)',
    }

    def __init__(self, session, table, form, meanwhile):
        super().__init__(session, table, meanwhile)
        self.form = form

    def sql(self, world):
        table = self.of(world)
        types = [COLUMN_TYPES[c] for c in table.columns()] + ['float8', 'int']
        gate = self.GATE.format(key=world.pauses)
        return self.FORMS[self.form].format(
            columns=shown(table), table=self.table, gate=gate, key=world.pauses,
            nulls=', '.join('NULL::' + t for t in types))

    def work(self, world, transaction):
        table = self.of(world)
        found = world.select(transaction, table)
        if self.form in ('join', 'anti join') and has_duplicates(found):
            raise Unsure
        times = {'union': 2, 'anti join': 0}.get(self.form, 1)
        return of_model(table, found * times)

    def answer(self, cursor, frame):
        return of_server(cursor.fetchall(), frame)

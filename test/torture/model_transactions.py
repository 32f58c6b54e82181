"""Steps for transactions: begin and end, savepoints, two-phase commit, exported snapshots, constraints.

A prepared transaction belongs to no session.  It keeps its locks, and any session can end
it.  An exported snapshot can be imported while its transaction is open.
"""

from model_steps import Step
from model_store import Exported, OutOfPlace, RR, Unsure

CONSTRAINTS = ('late', 'down')      # the tables of the constraints, which are named TABLE_par


class Begin(Step):
    uses_snapshot = False

    def __init__(self, session, level):
        super().__init__(session)
        self.level = level

    def sql(self, world):
        return 'BEGIN ISOLATION LEVEL ' + self.level

    def run(self, world):
        world.begin(self.session, self.level)


class End(Step):
    uses_snapshot = False

    def __init__(self, session, how):
        super().__init__(session)
        self.how = how

    def sql(self, world):
        return self.how

    def run(self, world):
        if self.how == 'COMMIT':
            world.commit(self.session)
        else:
            world.rollback(self.session)


class Savepoint(Step):
    uses_snapshot = False

    def __init__(self, session, verb, name):
        super().__init__(session)
        self.verb = verb
        self.name = name

    def sql(self, world):
        return '%s %s' % (self.verb, self.name)

    def run(self, world):
        {'SAVEPOINT': world.savepoint, 'ROLLBACK TO SAVEPOINT': world.rollback_to,
         'RELEASE SAVEPOINT': world.release}[self.verb](self.session, self.name)


# ---- Two-phase commit ----

class Prepare(Step):
    """PREPARE TRANSACTION: the transaction stays open without its session."""

    uses_snapshot = False

    def __init__(self, session, name):
        super().__init__(session)
        self.name = name

    def sql(self, world):
        return "PREPARE TRANSACTION '%s'" % self.name

    def run(self, world):
        world.prepare(self.session, self.name)


class EndPrepared(Step):
    """COMMIT or ROLLBACK PREPARED."""

    uses_snapshot = False

    def __init__(self, session, name, how):
        super().__init__(session)
        self.name = name
        self.how = how

    def sql(self, world):
        return "%s PREPARED '%s'" % (self.how, self.name)

    def run(self, world):
        world.end_prepared(self.session, self.name, self.how)


# ---- Exported snapshots ----

class ExportSnapshot(Step):
    def __init__(self, session, name):
        super().__init__(session)
        self.name = name

    def sql(self, world):
        return 'SELECT pg_export_snapshot()'

    def work(self, world, transaction):
        if transaction.implicit or transaction.savepoints or transaction.instants is not None:
            raise OutOfPlace
        world.exported[self.name] = Exported(transaction, transaction.snapshot, transaction.instant)

    def answer(self, cursor, frame):
        frame.snapshot_ids[self.name] = cursor.fetchone()[0]


class ImportSnapshot(Step):
    """BEGIN with the snapshot of another transaction, without seeing that transaction's writes.

    The model does not know the exact instant.  It is not earlier than the start of the other
    transaction, and not later than its snapshot.
    """

    def __init__(self, session, name):
        super().__init__(session)
        self.name = name

    def sql(self, world):
        # SELECT 1 fixes the instant now: a later statement would have another clock_offset
        return "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '%s'%s" % (
            world.snapshot_ids.get(self.name), '' if world.is_real else '; SELECT 1')

    def run(self, world):
        exported = world.exported.get(self.name)
        if exported is None or exported.transaction not in world.open or exported.transaction.failed:
            raise OutOfPlace
        started = min(exported.transaction.started, exported.instant)
        if not world.is_real and started != world.clock:
            raise Unsure        # the two sessions have different clocks
        world.begin(self.session, RR)
        transaction = world.open[self.session]
        transaction.snapshot, transaction.instant = exported.snapshot, exported.instant
        transaction.started = started       # in case this transaction exports the snapshot again
        if started != exported.instant:
            transaction.instants = list(range(started, exported.instant + 1, world.unit))


# ---- Deferred constraints ----

class SetConstraints(Step):
    def __init__(self, session, constraints, immediate):
        super().__init__(session)
        self.constraints = constraints
        self.immediate = immediate

    def sql(self, world):
        names = 'ALL' if self.constraints == CONSTRAINTS else ', '.join(c + '_par' for c in self.constraints)
        return 'SET CONSTRAINTS %s %s' % (names, 'IMMEDIATE' if self.immediate else 'DEFERRED')

    def run(self, world):
        return world.execute(self.session, lambda transaction: self.work(world, transaction), takes_snapshot=False)

    def work(self, world, transaction):
        if transaction.implicit:
            raise OutOfPlace
        world.set_constraints(transaction, self.constraints, self.immediate)


class Orphan(Step):
    """Inserts a row into the plain table "down" before its parent exists."""

    def __init__(self, session, number):
        super().__init__(session)
        self.number = number

    def sql(self, world):
        return 'INSERT INTO down VALUES (%d)' % self.number

    def work(self, world, transaction):
        world.orphan(transaction, self.number)


class Mend(Step):
    """Inserts the parent of an orphan."""

    def __init__(self, session, number):
        super().__init__(session)
        self.number = number

    def sql(self, world):
        return 'INSERT INTO up VALUES (%d)' % self.number

    def work(self, world, transaction):
        if ('down', 'orphan', self.number) not in transaction.deferred:
            raise OutOfPlace
        world.mend(transaction, self.number)


class Release(Step):
    """Releases a new collection with an expired document, which release() must delete."""

    def __init__(self, session, number):
        super().__init__(session)
        self.number = number        # unique, because a prepared transaction keeps its table name

    def sql(self, world):
        return ("SELECT ttl_docs.create_collection('spare_{0}', 1); INSERT INTO spare_{0} VALUES ('a', '{{}}');"
                " SET LOCAL ttl_docs.clock_offset = {2}; SELECT ttl_docs.release('spare_{0}');"
                " SET LOCAL ttl_docs.clock_offset = {1}; DROP TABLE spare_{0}").format(
                    self.number, 0 if world.is_real else world.clock, world.clock + world.unit)

    def work(self, world, transaction):
        pass

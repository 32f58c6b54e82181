"""The state of the model: tables, row versions, transactions and locks.

A row is a list of versions, as in PostgreSQL.  A version knows the transaction that made it
(xmin), the transaction that replaced or deleted it (xmax), and the next version.  A
transaction gets a number when it commits, and a snapshot is the number of the last commit.
An undo log reverts uncommitted changes, to a savepoint or to the start of the transaction.
So there are no aborted versions.

Settings have versions, too: each change has the number of its commit.  A query uses the
settings of its snapshot, a write uses the latest settings.

The model keeps locks as far as they decide whether a statement is blocked: row locks of the
four strengths, and table locks.  A statement has one of these outcomes:

	a result            rows, a number of rows, or a value
	Refused(sqlstate)   the statement fails and changes nothing
	Blocked(by)         the statement waits for these transactions
	Unsure              the model does not know; the statement is not run

model_world.py implements the statements.
"""

import collections
import contextlib
import math

RC, RR, SER = 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'

# Row locks, from weak to strong; each has all conflicts of the weaker ones.
KEY_SHARE, SHARE, NO_KEY_UPDATE, UPDATE = range(4)
ROW_CONFLICTS = {
    KEY_SHARE: {UPDATE},
    SHARE: {NO_KEY_UPDATE, UPDATE},
    NO_KEY_UPDATE: {SHARE, NO_KEY_UPDATE, UPDATE},
    UPDATE: {KEY_SHARE, SHARE, NO_KEY_UPDATE, UPDATE},
}

# The conflicts of the table locks that the model uses, by PostgreSQL's names.
TABLE_CONFLICTS = {
    'access share': {'access exclusive'},
    'row share': {'access exclusive'},
    'row exclusive': {'share row exclusive', 'access exclusive'},
    'share update exclusive': {'share update exclusive', 'share row exclusive', 'access exclusive'},
    'share row exclusive': {'row exclusive', 'share update exclusive', 'share row exclusive',
                            'access exclusive'},
    'access exclusive': {'access share', 'row share', 'row exclusive', 'share update exclusive',
                         'share row exclusive', 'access exclusive'},
}

UNIQUE_VIOLATION = '23505'
EXCLUSION_VIOLATION = '23P01'
FOREIGN_KEY_VIOLATION = '23503'
RESTRICT_VIOLATION = '23001'
SERIALIZATION_FAILURE = '40001'
INVALID_VALUE = '22023'
NO_DATA_FOUND = 'P0002'
IN_FAILED_TRANSACTION = '25P02'
LOCK_NOT_AVAILABLE = '55P03'
OBJECT_IN_USE = '55006'

TTL_MAX = 2147483647
INVALID_TTL = 0         # the value of _ttl for an invalid ttl

# The settings of a collection.  The floors matter if the clock moves back: a change made
# when the clock was ahead must not make a new document expire.
Settings = collections.namedtuple('Settings', 'default_ttl written_floor due_floor')


class Refused(Exception):
    """The statement fails with this SQLSTATE."""

    def __init__(self, sqlstate):
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


class Blocked(Exception):
    """The statement waits for these transactions: for a row, a table, a parent or a child."""

    def __init__(self, by, what='row'):
        super().__init__('blocked')
        self.by = by
        self.what = what


class Unsure(Exception):
    """The model does not know the outcome."""


class OutOfPlace(Unsure):
    """The step makes no sense here, such as a COMMIT without its BEGIN."""


def document_ttl(doc):
    """Returns the ttl of a document: None if it inherits, INVALID_TTL if it is invalid."""
    ttl = doc.get('ttl')
    if ttl is None:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or ttl != int(ttl):
        return INVALID_TTL
    return int(ttl) if ttl == -1 or 1 <= ttl <= TTL_MAX else INVALID_TTL


class Table:
    """A collection: its columns, its settings, and all versions that a session may still see."""

    def __init__(self, name, default_ttl, indexing='consistent', second_key=None, parent=None,
                 on_delete=None, deferred=False, partitions=0):
        self.name = name
        # (number of the commit, settings), in the order of commits
        self.committed = [(0, Settings(default_ttl, -math.inf, -math.inf))]
        self.pending = None                 # (transaction, settings) of an uncommitted change
        self.indexing = indexing
        self.second_key = second_key        # None, 'unique' or 'exclude': the column u
        self.parent = parent                # the table that the column par refers to
        self.on_delete = on_delete          # 'cascade', 'restrict' or 'no action'
        self.deferred = deferred            # is the foreign key initially deferred?
        self.partitions = partitions
        self.children = []
        self.versions = []
        self.locks = {}                     # transaction -> set of table locks
        if parent is not None:
            parent.children.append(self)

    @property
    def default_ttl(self):
        return self.committed[-1][1].default_ttl

    def keys(self):
        """Returns the columns with a unique or exclusion constraint, in the order of their checks."""
        return ('id', 'u') if self.second_key else ('id',)

    def columns(self):
        """Returns the columns without the system columns."""
        return (['id', 'n'] + (['u'] if self.second_key else []) + (['par'] if self.parent else []) +
                ['doc'])

    def violation(self, key):
        """Returns the SQLSTATE for a key that is taken."""
        return EXCLUSION_VIOLATION if key == 'u' and self.second_key == 'exclude' else UNIQUE_VIOLATION

    def lock_mode(self, columns):
        """Returns the row lock that an UPDATE of these columns takes."""
        keys = {'id'} | ({'u'} if self.second_key == 'unique' else set())
        return UPDATE if keys & set(columns) else NO_KEY_UPDATE


class Row:
    """The locks of a row, which its versions share."""

    __slots__ = ('locks',)

    def __init__(self):
        self.locks = {}


class Version:
    """A row version."""

    __slots__ = ('row', 'values', 'ts', 'shown_ts', 'ttl', 'xmin', 'xmax', 'next', 'moved', 'key_changed',
                 'dead_by')

    def __init__(self, row, values, ts, shown_ts, xmin):
        self.row = row
        self.values = values
        self.ts = ts
        self.shown_ts = shown_ts    # _ts in answers, rounded to units
        self.ttl = document_ttl(values['doc'])
        self.xmin = xmin
        self.xmax = None
        self.next = None
        self.moved = False      # an update may have moved the row to another partition
        self.key_changed = False    # was it ended under the strongest row lock?
        self.dead_by = None     # the transaction that raised the DefaultTTL after the version had expired


class Transaction:
    """A transaction: its snapshot, its instant, and its undo log."""

    def __init__(self, level, implicit=False, started=None):
        self.level = level
        self.implicit = implicit
        self.started = started  # the clock at its BEGIN
        self.snapshot = None
        self.instant = None
        self.number = None      # of its commit; None before
        self.failed = False
        self.log = []           # functions that undo its changes
        self.savepoints = []    # (name, length of the log)
        self.cursors = {}       # name -> Cursor
        self.unsure_locks = set()
        self.known = {}         # table -> settings at the start of a statement that waits
        self.instants = None    # possible instants of an imported snapshot
        self.immediate = set()  # constraints that SET CONSTRAINTS has made immediate
        self.deferred = []      # deferred checks: (constraint, kind, subject)

    @property
    def keeps_snapshot(self):
        return self.level != RC

    def tables_of_cursors(self):
        return [cursor.table for cursor in self.cursors.values()]

    def note(self, undo):
        self.log.append(undo)

    def undo_to(self, length):
        while len(self.log) > length:
            self.log.pop()()


# An open cursor: the rows of FETCH ALL, and whether FetchAll reads from the beginning each time.
Cursor = collections.namedtuple('Cursor', 'table rows scrolls')

# A snapshot that a transaction has exported, and its instant.
Exported = collections.namedtuple('Exported', 'transaction snapshot instant')


class Store:
    """Tables, the transactions of sessions, the clock."""

    def __init__(self, tables, sessions, server_version, unit, is_real):
        self.tables = {table.name: table for table in tables}
        self.open = [None] * sessions       # the open transaction of each session
        self.prepared = {}                  # name -> transaction
        self.exported = {}                  # name -> Exported
        self.snapshot_ids = {}              # name -> the server's identifier of the snapshot
        self.loose = {}                     # number -> Loose (model_adoption.py)
        self.pauses = 0                     # number of queries that have waited for the runner
        self.unit = unit
        self.is_real = is_real              # does the history run in real time (model_time.py)?
        self.clock = 0
        self.number = 0                     # of the last commit
        self.restrict_violation = RESTRICT_VIOLATION if server_version >= 180000 else FOREIGN_KEY_VIOLATION
        self.has_parent_triggers = server_version >= 190000    # on child tables of collections

    # ---- Transactions ----

    def begin(self, session, level):
        if self.open[session] is not None:
            raise OutOfPlace
        if level == SER and any(t.level == SER for t in self.under_way()):
            raise Unsure        # two serializable transactions may conflict
        self.open[session] = Transaction(level, started=self.clock)

    def under_way(self):
        """Returns all transactions that have neither committed nor rolled back."""
        return [t for t in self.open if t is not None] + list(self.prepared.values())

    def commit(self, session):
        transaction = self.finish(session)
        if transaction is not None:
            self.make_permanent(transaction)

    def finish(self, session):
        """Detaches the transaction from its session; returns None if it has failed and is rolled back."""
        transaction = self.require_open(session)
        mark = len(transaction.log)
        try:
            if not transaction.failed:
                self.check_deferred(transaction)
        except Refused:
            self.open[session] = None
            self.roll_back(transaction)
            raise
        except (Blocked, Unsure):
            transaction.undo_to(mark)
            raise
        self.open[session] = None
        if transaction.failed:
            self.roll_back(transaction)
            return None
        return transaction

    def check_deferred(self, transaction, constraints=None):
        raise NotImplementedError

    def prepare(self, session, name):
        if name in self.prepared or any(e.transaction is self.open[session] for e in self.exported.values()):
            raise OutOfPlace
        transaction = self.finish(session)
        if transaction is not None:
            self.prepared[name] = transaction

    def end_prepared(self, session, name, how):
        if name not in self.prepared or self.open[session] is not None:
            raise OutOfPlace
        transaction = self.prepared.pop(name)
        if how == 'COMMIT':
            self.make_permanent(transaction)
        else:
            self.roll_back(transaction)

    def rollback(self, session):
        transaction = self.require_open(session)
        self.open[session] = None
        self.roll_back(transaction)

    def savepoint(self, session, name):
        transaction = self.require_open(session)
        if transaction.failed:
            raise Refused(IN_FAILED_TRANSACTION)
        transaction.savepoints.append((name, len(transaction.log)))

    def rollback_to(self, session, name):
        transaction = self.require_open(session)
        position = self.find_savepoint(transaction, name)
        transaction.undo_to(transaction.savepoints[position][1])
        del transaction.savepoints[position + 1:]
        transaction.failed = False

    def release(self, session, name):
        transaction = self.require_open(session)
        if transaction.failed:
            raise Refused(IN_FAILED_TRANSACTION)
        del transaction.savepoints[self.find_savepoint(transaction, name):]

    def require_open(self, session):
        if self.open[session] is None:
            raise OutOfPlace
        return self.open[session]

    @staticmethod
    def find_savepoint(transaction, name):
        for position in reversed(range(len(transaction.savepoints))):
            if transaction.savepoints[position][0] == name:
                return position
        raise OutOfPlace

    def make_permanent(self, transaction):
        self.number += 1
        transaction.number = self.number
        for table in self.tables.values():
            if table.pending is not None and table.pending[0] is transaction:
                table.committed.append((self.number, table.pending[1]))
                table.pending = None
        transaction.log = []
        self.release_locks(transaction)

    def roll_back(self, transaction):
        transaction.undo_to(0)
        self.release_locks(transaction)

    def release_locks(self, transaction):
        for table in self.tables.values():
            table.locks.pop(transaction, None)
            for version in table.versions:
                version.row.locks.pop(transaction, None)

    def fail(self, transaction):
        """Aborts the innermost subtransaction."""
        transaction.undo_to(transaction.savepoints[-1][1] if transaction.savepoints else 0)
        transaction.failed = True

    def forget_unreachable(self):
        """Drops versions that no current or future snapshot can see."""
        self.exported = {name: e for name, e in self.exported.items() if e.transaction in self.open}
        oldest = min([t.snapshot for t in self.open if t is not None and t.snapshot is not None] +
                     [e.snapshot for e in self.exported.values()], default=self.number)
        for table in self.tables.values():
            table.versions = [v for v in table.versions
                              if v.xmax is None or v.xmax.number is None or v.xmax.number > oldest]

    # ---- Running a statement ----

    def execute(self, session, statement, late_end=None, takes_snapshot=True):
        """Runs a statement, which is a function of a transaction, and returns its result.

        late_end is called between the snapshot of the statement and its work.  It does what
        other sessions do while this statement waits.  If another session lowers a DefaultTTL
        at that time, the new value does not apply to this statement.
        """
        transaction = self.open[session] or Transaction(RC, implicit=True)
        if transaction.failed:
            raise Refused(IN_FAILED_TRANSACTION)
        mark = len(transaction.log)
        had_snapshot = transaction.snapshot, transaction.instant
        if takes_snapshot:
            self.take_snapshot(transaction)
        if late_end is not None:
            transaction.known = {t: t.committed[-1][1] for t in self.tables.values()}
            late_end()
        try:
            result = statement(transaction)
            if transaction.implicit:
                self.check_deferred(transaction)
        except Refused:
            transaction.undo_to(mark)
            if not transaction.implicit:
                self.fail(transaction)
            raise
        except (Blocked, Unsure):
            transaction.undo_to(mark)
            transaction.snapshot, transaction.instant = had_snapshot
            raise
        else:
            if transaction.implicit:
                self.make_permanent(transaction)
            return result
        finally:
            transaction.known = {}
            if transaction.implicit:
                self.release_locks(transaction)

    def blocks(self, session, statement):
        """Returns the Blocked exception if the statement is blocked, otherwise None; changes nothing."""
        transaction = self.open[session] or Transaction(RC, implicit=True)
        mark = len(transaction.log)
        had_snapshot = transaction.snapshot, transaction.instant
        self.take_snapshot(transaction)
        try:
            statement(transaction)
        except Blocked as blocked:
            return blocked
        except (Refused, Unsure):
            pass
        finally:
            transaction.undo_to(mark)
            transaction.snapshot, transaction.instant = had_snapshot
            if transaction.implicit:
                self.release_locks(transaction)
        return None

    def execute_apart(self, statement):
        """Runs a query in its own transaction, without any effect on the model."""
        transaction = Transaction(RC, implicit=True)
        self.take_snapshot(transaction)
        return statement(transaction)

    def fail_blocked(self, session):
        """Fails the transaction of a session whose statement ran into lock_timeout."""
        transaction = self.open[session]
        if transaction is not None:
            self.take_snapshot(transaction)
            self.fail(transaction)

    @contextlib.contextmanager
    def at_clock(self, clock):
        """Sets the clock of the model during a "with" block."""
        now, self.clock = self.clock, clock
        try:
            yield
        finally:
            self.clock = now

    def take_snapshot(self, transaction):
        if transaction.snapshot is None or not transaction.keeps_snapshot:
            transaction.snapshot = self.number
            transaction.instant = self.clock

    # ---- Visibility and expiry ----

    @staticmethod
    def has_happened(by, transaction, snapshot):
        return by is transaction or (by.number is not None and by.number <= snapshot)

    def is_visible(self, version, transaction, snapshot):
        return (self.has_happened(version.xmin, transaction, snapshot) and
                not (version.xmax is not None and
                     self.has_happened(version.xmax, transaction, snapshot)))

    @staticmethod
    def settings(table, transaction):
        """Returns the settings for a write: the transaction's own change, or the last committed ones."""
        if table.pending is not None and table.pending[0] is transaction:
            return table.pending[1]
        return transaction.known.get(table, table.committed[-1][1])

    def default_ttl(self, table, transaction):
        return self.settings(table, transaction).default_ttl

    @staticmethod
    def has_changed_since(table, transaction):
        """Has another transaction changed the settings since the snapshot?"""
        return table.committed[-1][0] > transaction.snapshot

    def settings_of_query(self, table, transaction):
        """Returns the settings for a query: the transaction's own change, or those of its snapshot."""
        if table.pending is not None and table.pending[0] is transaction:
            if self.has_changed_since(table, transaction):
                raise Unsure        # it changed settings that are newer than its snapshot
            return table.pending[1]
        return next(s for number, s in reversed(table.committed) if number <= transaction.snapshot)

    @staticmethod
    def is_over(version, settings, instant):
        if settings.default_ttl is None:
            return False
        ttl = settings.default_ttl if version.ttl is None else version.ttl
        return ttl > 0 and version.ts + ttl <= instant

    def is_expired(self, table, version, transaction):
        """Is a version expired for a write, a foreign key or the purge?  They judge by the clock."""
        return version.dead_by is not None or \
            self.is_over(version, self.settings(table, transaction), self.clock)

    def is_expired_to_query(self, table, version, transaction):
        """Is a version expired for a query?  It judges by its instant and the settings of its snapshot."""
        settings = self.settings_of_query(table, transaction)
        return (version.dead_by is not None and
                self.has_happened(version.dead_by, transaction, transaction.snapshot)) or \
            self.is_over(version, settings, transaction.instant)

    def is_expired_to_check(self, table, version, transaction):
        """Is a version expired for a foreign key check?  It uses the settings when the check starts."""
        known, transaction.known = transaction.known, {}
        try:
            return self.is_expired(table, version, transaction)
        finally:
            transaction.known = known

    def visible(self, table, transaction, matches=None):
        """Returns the versions that a query of the transaction sees."""
        return [v for v in table.versions
                if self.is_visible(v, transaction, transaction.snapshot) and
                not self.is_expired_to_query(table, v, transaction) and
                (matches is None or matches(v.values))]

    def latest(self, table, transaction, column, value):
        """Returns the versions with that value that the newest snapshot sees, expired or not."""
        return [v for v in table.versions
                if v.values[column] == value and self.is_visible(v, transaction, self.number)]

    def on_disk(self, table):
        """Returns all committed versions, expired or not."""
        return [v for v in table.versions if self.is_visible(v, None, self.number)]

    # ---- Locks ----

    def lock_table(self, transaction, table, mode, unsure=False):
        others = {t for t, modes in table.locks.items()
                  if t is not transaction and modes & TABLE_CONFLICTS[mode]}
        if others:
            if unsure or any(table in t.unsure_locks for t in others):
                raise Unsure
            raise Blocked(others, 'table')
        held = table.locks.setdefault(transaction, set())
        if mode in held:
            return
        held.add(mode)

        def unlock():
            held.discard(mode)
        transaction.note(unlock)

    @staticmethod
    def row_lockers(transaction, version, mode):
        return {t for t, m in version.row.locks.items()
                if t is not transaction and m in ROW_CONFLICTS[mode]}

    def lock_row(self, transaction, version, mode, what='row'):
        others = self.row_lockers(transaction, version, mode)
        if others:
            raise Blocked(others, what)
        locks = version.row.locks
        before = locks.get(transaction)
        if before is not None and before >= mode:
            return
        locks[transaction] = mode

        def unlock():
            if before is None:
                del locks[transaction]
            else:
                locks[transaction] = before
        transaction.note(unlock)

    def claim(self, transaction, table, version, mode, matches):
        """Locks the row of a version that a query has found; returns its last version, or None.

        If the row has changed since the snapshot, READ COMMITTED follows it to the last version
        and judges only that version again.  Higher isolation levels fail.
        """
        if transaction.keeps_snapshot:
            self.require_up_to_date(transaction, version, mode)
        self.lock_row(transaction, version, mode)
        if not self.is_outdated(version, mode):
            return version
        while version is not None and self.is_outdated(version, mode):
            if version.moved:
                raise Unsure
            version = version.next
        if version is None or self.is_expired_to_query(table, version, transaction) or \
                (matches is not None and not matches(version.values)):
            return None
        return version

    @staticmethod
    def is_outdated(version, mode):
        """Has a committed transaction ended this or a later version in a way that conflicts with the lock?"""
        while version is not None and version.xmax is not None and version.xmax.number is not None:
            if mode != KEY_SHARE or version.key_changed:
                return True
            version = version.next
        return False

    def require_up_to_date(self, transaction, version, mode):
        """Requires that a version found by an old snapshot is still the last one."""
        if self.is_outdated(version, mode):
            # whether the statement waits first depends on which version is locked
            raise Unsure if self.row_lockers(transaction, version, mode) else Refused(SERIALIZATION_FAILURE)

    # ---- Changing versions ----

    def stamp(self, transaction, table, ttl):
        """Returns _ts for a new document: the clock, or the earliest time that is not below a floor."""
        settings = self.settings(table, transaction)
        if ttl is None:
            return max(self.clock, settings.written_floor)
        if ttl > 0 and self.clock + ttl <= settings.due_floor:
            return settings.due_floor - ttl
        return self.clock

    def add_version(self, transaction, table, values, old=None):
        ts = self.stamp(transaction, table, document_ttl(values['doc']))
        new = Version(Row() if old is None else old.row, values, ts, ts - ts % self.unit, transaction)
        table.versions.append(new)
        transaction.note(lambda: table.versions.remove(new))
        if old is not None:
            old.next = new
        return new

    @staticmethod
    def end_version(transaction, version, moved=False):
        version.xmax = transaction
        version.moved = moved
        version.key_changed = version.row.locks[transaction] == UPDATE

        def undo():
            version.xmax = version.next = None
            version.moved = version.key_changed = False
        transaction.note(undo)

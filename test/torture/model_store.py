"""What the model keeps: tables, row versions, transactions and locks.

Documents are versions, as in PostgreSQL: who made it (xmin), who replaced or
deleted it (xmax), what came after it.  A transaction that commits gets a number;
a snapshot is such a number.  What is not committed is undone from a log, to a
savepoint or to the beginning, so there are no aborted versions.

Settings have versions, too: each change has the number of the commit that made
it.  A query goes by the settings of its snapshot, a write by the last ones.

Locks are kept as far as needed to tell whether a statement has to wait: row
locks of the four strengths, and table locks.  A statement ends in one of these:

	a result            rows, or a number of rows, or a value
	Refused(sqlstate)   it fails, and changes nothing
	Blocked(by)         it has to wait for these transactions
	Unsure              the model does not say; such a statement is not run

model_world.py says what statements do to all this.
"""

import collections
import contextlib
import math

RC, RR, SER = 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'

# Row locks, from weak to strong; each conflicts with whatever the weaker ones do.
KEY_SHARE, SHARE, NO_KEY_UPDATE, UPDATE = range(4)
ROW_CONFLICTS = {
    KEY_SHARE: {UPDATE},
    SHARE: {NO_KEY_UPDATE, UPDATE},
    NO_KEY_UPDATE: {SHARE, NO_KEY_UPDATE, UPDATE},
    UPDATE: {KEY_SHARE, SHARE, NO_KEY_UPDATE, UPDATE},
}

# Table locks that are taken here, by the name of their PostgreSQL mode.
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
INVALID_TTL = 0         # what the column _ttl has for one that is not valid

# The settings of a collection.  The floors are for a clock that has gone back: a new
# document must not be dead by a change that was made when the clock was ahead.
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
    """The model makes no statement about this."""


class OutOfPlace(Unsure):
    """There is nothing to say: a COMMIT without its BEGIN, and the like."""


def document_ttl(doc):
    """The ttl of a document: None inherits, INVALID_TTL is not valid."""
    ttl = doc.get('ttl')
    if ttl is None:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or ttl != int(ttl):
        return INVALID_TTL
    return int(ttl) if ttl == -1 or 1 <= ttl <= TTL_MAX else INVALID_TTL


class Table:
    """A collection: its shape, its setting, and all versions that anybody can still reach."""

    def __init__(self, name, default_ttl, indexing='consistent', second_key=None, parent=None,
                 on_delete=None, deferred=False, partitions=0):
        self.name = name
        # (number of the commit, settings), the last one last
        self.committed = [(0, Settings(default_ttl, -math.inf, -math.inf))]
        self.pending = None                 # (transaction, settings) before it commits
        self.indexing = indexing
        self.second_key = second_key        # None, 'unique' or 'exclude': the column u
        self.parent = parent                # the table that the column par refers to
        self.on_delete = on_delete          # 'cascade', 'restrict' or 'no action'
        self.deferred = deferred            # that foreign key is, unless SET CONSTRAINTS says otherwise
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
        """The columns with a unique or exclusion constraint, in the order core checks them."""
        return ('id', 'u') if self.second_key else ('id',)

    def columns(self):
        """The columns that statements of ours read and write, without the system columns."""
        return (['id', 'n'] + (['u'] if self.second_key else []) + (['par'] if self.parent else []) +
                ['doc'])

    def violation(self, key):
        """The SQLSTATE for a key that is taken."""
        return EXCLUSION_VIOLATION if key == 'u' and self.second_key == 'exclude' else UNIQUE_VIOLATION

    def lock_mode(self, columns):
        """The row lock that an UPDATE of these columns takes."""
        keys = {'id'} | ({'u'} if self.second_key == 'unique' else set())
        return UPDATE if keys & set(columns) else NO_KEY_UPDATE


class Row:
    """What the versions of a row share: who has it locked, and how."""

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
        self.shown_ts = shown_ts    # what answers are compared with
        self.ttl = document_ttl(values['doc'])
        self.xmin = xmin
        self.xmax = None
        self.next = None
        self.moved = False      # perhaps to another partition
        self.key_changed = False    # when it ended; core goes by the lock that was held
        self.dead_by = None     # the transaction that changed the DefaultTTL after it had expired


class Transaction:
    """A transaction: its snapshot, its instant, and how to undo it."""

    def __init__(self, level, implicit=False, started=None):
        self.level = level
        self.implicit = implicit
        self.started = started  # the clock at its BEGIN
        self.snapshot = None
        self.instant = None
        self.number = None      # when it committed
        self.failed = False
        self.log = []           # functions that undo, or (release, undo) pairs
        self.savepoints = []    # (name, length of the log)
        self.cursors = {}       # name -> Cursor
        self.unsure_locks = set()
        self.known = {}         # table -> settings, while a statement goes by those of its start
        self.instants = None    # of an imported snapshot: those that it may have
        self.immediate = set()  # constraints that SET CONSTRAINTS has made immediate
        self.deferred = []      # checks that are left for the end: (constraint, kind, subject)

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


# An open cursor: what FETCH ALL returns, and whether it begins anew each time.
Cursor = collections.namedtuple('Cursor', 'table rows scrolls')

# A snapshot that a transaction has exported, and the clock at that moment.
Exported = collections.namedtuple('Exported', 'transaction snapshot instant')


class Store:
    """Tables, the transactions of sessions, the clock."""

    def __init__(self, tables, sessions, server_version, unit, is_real):
        self.tables = {table.name: table for table in tables}
        self.open = [None] * sessions       # the open transaction of each session
        self.prepared = {}                  # name -> transaction
        self.exported = {}                  # name -> Exported
        self.snapshot_ids = {}              # name -> what the server calls it
        self.loose = {}                     # number -> Loose (model_adoption.py)
        self.pauses = 0                     # so many queries have waited for the runner
        self.unit = unit
        self.is_real = is_real              # the clock is that of the server (model_time.py)
        self.clock = 0
        self.number = 0                     # of the last commit
        self.restrict_violation = RESTRICT_VIOLATION if server_version >= 180000 else FOREIGN_KEY_VIOLATION

    # ---- Transactions ----

    def begin(self, session, level):
        if self.open[session] is not None:
            raise OutOfPlace
        if level == SER and any(t.level == SER for t in self.under_way()):
            raise Unsure        # two of them could fail for each other's sake
        self.open[session] = Transaction(level, started=self.clock)

    def under_way(self):
        """All transactions that have neither committed nor rolled back."""
        return [t for t in self.open if t is not None] + list(self.prepared.values())

    def commit(self, session):
        transaction = self.finish(session)
        if transaction is not None:
            self.make_permanent(transaction)

    def finish(self, session):
        """Ends the part of the session in a transaction; None if there is nothing to commit."""
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
        """An error aborts the innermost subtransaction at once."""
        transaction.undo_to(transaction.savepoints[-1][1] if transaction.savepoints else 0)
        transaction.failed = True

    def forget_unreachable(self):
        """Drops versions that no snapshot, present or future, can see."""
        self.exported = {name: e for name, e in self.exported.items() if e.transaction in self.open}
        oldest = min([t.snapshot for t in self.open if t is not None and t.snapshot is not None] +
                     [e.snapshot for e in self.exported.values()], default=self.number)
        for table in self.tables.values():
            table.versions = [v for v in table.versions
                              if v.xmax is None or v.xmax.number is None or v.xmax.number > oldest]

    # ---- Running a statement ----

    def execute(self, session, statement, late_end=None, takes_snapshot=True):
        """Runs a statement, a function of a transaction, and returns its result.

        late_end is called between its snapshot and its work: what another session
        does while this one waits for it.  A DefaultTTL that is lowered meanwhile, which
        lets readers go on, is not for a statement that has begun.
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
        """Blocked, if the statement would have to wait, else None; changes nothing."""
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
        """Runs a query in a transaction of its own that leaves nothing."""
        transaction = Transaction(RC, implicit=True)
        self.take_snapshot(transaction)
        return statement(transaction)

    def fail_blocked(self, session):
        """The session gave up waiting for a lock."""
        transaction = self.open[session]
        if transaction is not None:
            self.take_snapshot(transaction)
            self.fail(transaction)

    @contextlib.contextmanager
    def at_clock(self, clock):
        """For what happens in a session whose clock is another one."""
        now, self.clock = self.clock, clock
        try:
            yield
        finally:
            self.clock = now

    def take_snapshot(self, transaction):
        if transaction.snapshot is None or not transaction.keeps_snapshot:
            transaction.snapshot = self.number
            transaction.instant = self.clock

    # ---- What is there, and what is expired ----

    @staticmethod
    def has_happened(by, transaction, snapshot):
        return by is transaction or (by.number is not None and by.number <= snapshot)

    def is_visible(self, version, transaction, snapshot):
        return (self.has_happened(version.xmin, transaction, snapshot) and
                not (version.xmax is not None and
                     self.has_happened(version.xmax, transaction, snapshot)))

    @staticmethod
    def settings(table, transaction):
        """The settings that judge a write: the transaction's own, or those that were committed last."""
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
        """The settings that judge a query: those in force at its snapshot, or the transaction's own."""
        if table.pending is not None and table.pending[0] is transaction:
            if self.has_changed_since(table, transaction):
                raise Unsure        # its own change is one of settings that its snapshot does not know
            return table.pending[1]
        return next(s for number, s in reversed(table.committed) if number <= transaction.snapshot)

    @staticmethod
    def is_over(version, settings, instant):
        if settings.default_ttl is None:
            return False
        ttl = settings.default_ttl if version.ttl is None else version.ttl
        return ttl > 0 and version.ts + ttl <= instant

    def is_expired(self, table, version, transaction):
        """To a write, a foreign key or the purge: at the clock."""
        return version.dead_by is not None or \
            self.is_over(version, self.settings(table, transaction), self.clock)

    def is_expired_to_query(self, table, version, transaction):
        """To a query: at its instant, by the settings of its snapshot."""
        settings = self.settings_of_query(table, transaction)
        return (version.dead_by is not None and
                self.has_happened(version.dead_by, transaction, transaction.snapshot)) or \
            self.is_over(version, settings, transaction.instant)

    def is_expired_to_check(self, table, version, transaction):
        """To the query of a foreign key, which begins when it is its turn: by what is set then."""
        known, transaction.known = transaction.known, {}
        try:
            return self.is_expired(table, version, transaction)
        finally:
            transaction.known = known

    def visible(self, table, transaction, matches=None):
        """The versions that a query of the transaction sees."""
        return [v for v in table.versions
                if self.is_visible(v, transaction, transaction.snapshot) and
                not self.is_expired_to_query(table, v, transaction) and
                (matches is None or matches(v.values))]

    def latest(self, table, transaction, column, value):
        """The versions with that value that the newest snapshot sees, expired or not."""
        return [v for v in table.versions
                if v.values[column] == value and self.is_visible(v, transaction, self.number)]

    def on_disk(self, table):
        """All that is committed, expired or not."""
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

        What has changed since the snapshot is followed in READ COMMITTED, to the last
        version, which alone is judged again; above it is a failure.
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
        """Has somebody ended it, or what came after it, in a way that conflicts with the lock?"""
        while version is not None and version.xmax is not None and version.xmax.number is not None:
            if mode != KEY_SHARE or version.key_changed:
                return True
            version = version.next
        return False

    def require_up_to_date(self, transaction, version, mode):
        """A version that an old snapshot has found must still be the last one."""
        if self.is_outdated(version, mode):
            # whether it waits first depends on which of the versions others have locked
            raise Unsure if self.row_lockers(transaction, version, mode) else Refused(SERIALIZATION_FAILURE)

    # ---- Changing versions ----

    def stamp(self, transaction, table, ttl):
        """The stamp of a new document: the clock, or the first moment at which no floor makes it dead."""
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

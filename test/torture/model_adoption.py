"""Steps for tables that become collections while other sessions use them.

Each table has two rows, and only one scene uses it.  adopt() may rewrite the table, and
PostgreSQL shows a rewritten table as empty to older snapshots.  So a query with an older
snapshot must fail with a serialization failure: it must not miss a live document.

adopt_concurrently() does not rewrite.  A session can keep it in a phase, while other sessions
read and write.  Until its end, TTL is off, but what is written gets its _ts.
"""

from model_steps import Step, literal
from model_store import INVALID_TTL, INVALID_VALUE, OutOfPlace, Refused, SERIALIZATION_FAILURE, Unsure, document_ttl
from model_waits import Waiting

WAITING_FOR_A_LOCK = 'waiting for a lock'
BUILDING_THE_INDEX = 'building the index'


class Row:
    def __init__(self):
        self.doc = {}
        self.ts = None              # time of the model's clock; None in a plain table
        self.writer = None          # the last transaction that wrote it

    def is_expired(self, default_ttl, clock):
        if default_ttl is None or self.ts is None:
            return False
        ttl = document_ttl(self.doc)
        ttl = default_ttl if ttl is None else ttl
        return ttl != -1 and self.ts + ttl <= clock


class Loose:
    """A plain table, which may become a collection later, and a plain table again."""

    def __init__(self, created_by):
        self.created_by = created_by
        self.changed_by = None      # the last transaction that adopted or released it
        self.is_rewritten = False   # may this transaction have rewritten it?
        self.is_collection = False
        self.default_ttl = None
        self.target_ttl = None      # the DefaultTTL that comes at the end of the adoption, or has come
        self.rows = {'a': Row(), 'b': Row()}
        self.readers = []           # transactions that have locked it

    def is_in_use(self, world, but=None):
        return any(t in world.under_way() and t is not but for t in self.readers)

    def become_collection(self, clock):
        self.is_collection = True
        for row in self.rows.values():
            row.ts = clock

    def live(self, clock):
        return {ident: row for ident, row in self.rows.items() if not row.is_expired(self.default_ttl, clock)}


class LooseStep(Step):
    def __init__(self, session, number):
        super().__init__(session)
        self.number = number

    def find(self, world):
        if self.number not in world.loose:
            raise OutOfPlace
        return world.loose[self.number]

    def find_plain(self, world, transaction):
        """Returns the table if this transaction of one statement can adopt it."""
        table = self.find(world)
        if not transaction.implicit or table.is_collection or table.is_in_use(world):
            raise OutOfPlace
        return table


class MakeTable(LooseStep):
    def sql(self, world):
        return ("CREATE TABLE loose_{0} (id text PRIMARY KEY, doc jsonb NOT NULL);"
                " INSERT INTO loose_{0} VALUES ('a', '{{}}'), ('b', '{{}}')").format(self.number)

    def work(self, world, transaction):
        if not transaction.implicit or self.number in world.loose:
            raise OutOfPlace
        world.loose[self.number] = Loose(transaction)


class Adopt(LooseStep):
    def __init__(self, session, number, default_ttl):
        super().__init__(session, number)
        self.default_ttl = default_ttl

    def sql(self, world):
        return "SELECT ttl_docs.adopt('loose_%d', %s)" % (self.number, literal(self.default_ttl))

    def work(self, world, transaction):
        table = self.find_plain(world, transaction)
        table.become_collection(world.clock)
        table.default_ttl = table.target_ttl = self.default_ttl
        table.changed_by, table.is_rewritten = transaction, True


class AdoptConcurrently(Waiting, LooseStep):
    """An adoption that another session may keep in a phase, until the runner ends its transaction.

    In BUILDING_THE_INDEX, this is a transaction with a snapshot.  In WAITING_FOR_A_LOCK, it has read
    the table, which is a plain table until this transaction ends.
    """

    def __init__(self, session, number, default_ttl, phase=None, ending=None, meanwhile=()):
        Waiting.__init__(self, session, None, meanwhile)
        self.number = number
        self.default_ttl = default_ttl
        self.phase = phase
        self.ending = ending        # an End; None if nothing keeps the adoption

    def sql(self, world):
        return "CALL ttl_docs.adopt_concurrently('loose_%d', %s)" % (self.number, literal(self.default_ttl))

    def sessions(self):
        return super().sessions() + (self.ending.sessions() if self.ending else [])

    def move(self, source, target):
        super().move(source, target)
        if self.ending:
            self.ending.move(source, target)

    def holder(self, world):
        return world.open[self.ending.session] if self.ending else None

    def is_possible(self, world):
        """Is the table a plain one, and does the holder keep the adoption in its phase?"""
        table, holder = world.loose.get(self.number), self.holder(world)
        if table is None or table.is_collection or world.open[self.session] is not None:
            return False
        if self.ending is None:
            return True
        if holder is None or holder.failed or holder.deferred or self.session in self.ending.sessions():
            return False
        if self.phase == WAITING_FOR_A_LOCK:
            return holder in table.readers
        return holder.keeps_snapshot and holder.snapshot is not None and holder not in table.readers

    def begin(self, world):
        """The adoption is in its phase, and so is the model."""
        table = world.loose[self.number]
        table.target_ttl = self.default_ttl
        if self.phase != WAITING_FOR_A_LOCK:
            table.become_collection(world.clock)

    def end(self, world, clock):
        """Returns the step that completes the adoption, which began at that time."""
        return CompleteAdoption(self.session, self.number, clock)


class CompleteAdoption(LooseStep):
    """The end of an adoption in the model."""

    def __init__(self, session, number, clock):
        super().__init__(session, number)
        self.clock = clock

    def work(self, world, transaction):
        table = self.find(world)
        if not table.is_collection:
            table.become_collection(self.clock)
        table.default_ttl = table.target_ttl
        table.changed_by, table.is_rewritten = transaction, False


class ReleaseTable(LooseStep):
    def sql(self, world):
        return "SELECT ttl_docs.release('loose_%d')" % self.number

    def work(self, world, transaction):
        table = self.find(world)
        if not transaction.implicit or not table.is_collection or table.is_in_use(world):
            raise OutOfPlace
        before = table.rows
        table.rows = table.live(world.clock)
        for row in table.rows.values():
            row.ts = None
        if len(table.rows) < len(before):
            for row in table.rows.values():
                row.writer = transaction
        table.is_collection = table.is_rewritten = False
        table.default_ttl = table.target_ttl = None
        table.changed_by = transaction


class WriteTable(LooseStep):
    """Writes a row; doc is None for an UPDATE that leaves the document alone."""

    def __init__(self, session, number, ident, doc):
        super().__init__(session, number)
        self.ident = ident
        self.doc = doc

    def sql(self, world):
        return "UPDATE loose_%d SET %s WHERE id = '%s'" % (
            self.number, 'id = id' if self.doc is None else 'doc = ' + literal(self.doc), self.ident)

    def work(self, world, transaction):
        table = self.find(world)
        is_invalid = self.doc is not None and document_ttl(self.doc) == INVALID_TTL
        if not transaction.implicit or (is_invalid and table.target_ttl is None):
            raise OutOfPlace        # an invalid ttl in a plain table would stop the adoption
        row = table.live(world.clock).get(self.ident)
        if row is None:
            return 0
        if is_invalid:
            if not table.is_collection:
                raise OutOfPlace
            raise Refused(INVALID_VALUE)
        row.writer = transaction
        row.ts = world.clock if table.is_collection else None
        if self.doc is not None:
            row.doc = self.doc
        return 1

    def answer(self, cursor, frame):
        return cursor.rowcount


class ReadTable(LooseStep):
    def __init__(self, session, number, what):
        super().__init__(session, number)
        self.what = what            # 'id', 'count(*)' or 'all'

    def shows_system_columns(self, world):
        return self.what == 'all' and self.number in world.loose and world.loose[self.number].is_collection

    def sql(self, world):
        columns = 'id, doc' if self.what == 'all' else self.what
        if self.shows_system_columns(world):
            columns += ', extract(epoch FROM _ts)::float8, _ttl'
        return 'SELECT %s FROM loose_%d' % (columns, self.number)

    def work(self, world, transaction):
        table = self.find(world)
        if not world.has_happened(table.created_by, transaction, transaction.snapshot):
            raise OutOfPlace
        is_old = table.changed_by is not None and \
            not world.has_happened(table.changed_by, transaction, transaction.snapshot)
        if (is_old and not table.is_rewritten) or self.what == 'all' and transaction.keeps_snapshot or any(
                row.writer is not None and not world.has_happened(row.writer, transaction, transaction.snapshot)
                for row in table.rows.values()):
            raise Unsure            # the model has only the last rows
        table.readers.append(transaction)
        transaction.note(lambda: table.readers.remove(transaction))
        if is_old:
            raise Refused(SERIALIZATION_FAILURE)
        return self.answer_of(table.live(transaction.instant), table.is_collection)

    def answer_of(self, live, is_collection):
        if self.what == 'id':
            return sorted(live)
        if self.what == 'count(*)':
            return [len(live)]
        return [(ident, row.doc) + ((row.ts, document_ttl(row.doc)) if is_collection else ())
                for ident, row in sorted(live.items())]

    def answer(self, cursor, frame):
        rows = sorted(cursor.fetchall())
        if self.what != 'all':
            return [row[0] for row in rows]
        return [row[:2] + tuple(frame.stamp(ts) for ts in row[2:3]) + row[3:] for row in rows]

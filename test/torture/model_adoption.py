"""Steps for tables that become collections while other sessions have a snapshot.

Each table has two rows, and only one scene uses it.  adopt() may rewrite the table, and
PostgreSQL shows a rewritten table as empty to older snapshots.  So a query with an older
snapshot must fail with a serialization failure: it must not miss a live document.
"""

from model_steps import Step
from model_store import OutOfPlace, Refused, SERIALIZATION_FAILURE


class Loose:
    """A plain table, which may become a collection later."""

    def __init__(self, created_by):
        self.created_by = created_by
        self.adopted_by = None
        self.expires = None         # time of the model's clock
        self.readers = []           # transactions that have locked it


class LooseStep(Step):
    def __init__(self, session, number):
        super().__init__(session)
        self.number = number

    def find(self, world):
        if self.number not in world.loose:
            raise OutOfPlace
        return world.loose[self.number]


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
        return "SELECT ttl_docs.adopt('loose_%d', %s)" % (
            self.number, 'NULL' if self.default_ttl is None else self.default_ttl)

    def work(self, world, transaction):
        table = self.find(world)
        if not transaction.implicit or table.adopted_by is not None or any(t in world.open for t in table.readers):
            raise OutOfPlace
        table.adopted_by = transaction
        if self.default_ttl not in (None, -1):
            table.expires = world.clock + self.default_ttl


class ReadTable(LooseStep):
    def __init__(self, session, number, what):
        super().__init__(session, number)
        self.what = what            # 'id' or 'count(*)'

    def sql(self, world):
        return 'SELECT %s FROM loose_%d' % (self.what, self.number)

    def work(self, world, transaction):
        table = self.find(world)
        if not world.has_happened(table.created_by, transaction, transaction.snapshot):
            raise OutOfPlace
        table.readers.append(transaction)
        if table.adopted_by is not None and \
                not world.has_happened(table.adopted_by, transaction, transaction.snapshot):
            raise Refused(SERIALIZATION_FAILURE)
        ids = [] if table.expires is not None and table.expires <= transaction.instant else ['a', 'b']
        return ids if self.what == 'id' else [len(ids)]

    def answer(self, cursor, frame):
        return sorted(row[0] for row in cursor.fetchall())

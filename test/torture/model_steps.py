"""The steps of a history.  Each step is a statement for the server and the same for the model.

A step belongs to a session.  It makes its statement (sql), runs in the model (run), and
translates the server's answer to the form of the model's answer (answer).  Steps consist of
plain values and have no state, so a history can be run again, and parts of it can be left
out.

A document in an answer is a tuple of its columns, its _ts by the model's clock, and _ttl.

model_transactions.py has the steps of transactions, model_waits.py the steps that wait.
"""

import base64
import json

from model_store import (Cursor, KEY_SHARE, NO_DATA_FOUND, NO_KEY_UPDATE, OutOfPlace, Refused, SHARE, UPDATE, Unsure)

ROW_LOCKS = {'KEY SHARE': KEY_SHARE, 'SHARE': SHARE, 'NO KEY UPDATE': NO_KEY_UPDATE, 'UPDATE': UPDATE}


def literal(value):
    """Returns a value as SQL."""
    if value is None:
        return 'NULL'
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict):
        value = json.dumps(value)
    return "'%s'" % value.replace("'", "''")


def field(value):
    """Returns a value as a field of COPY."""
    if value is None:
        return '\\N'
    text = json.dumps(value) if isinstance(value, dict) else str(value)
    return text.replace('\\', '\\\\')


def shown(table):
    """Returns the select list for a table."""
    return ', '.join(table.columns() + ['extract(epoch FROM _ts)::float8', '_ttl'])


def of_model(table, versions):
    """Returns versions as the rows of an answer."""
    return in_order(tuple(v.values[c] for c in table.columns()) + (v.shown_ts, v.ttl) for v in versions)


def of_server(rows, frame):
    """Returns rows from the server as the rows of an answer."""
    return in_order(tuple(row[:-2]) + (frame.stamp(row[-2]), row[-1]) for row in rows)


def in_order(rows):
    """Sorts rows; the order of the properties in a document does not matter."""
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def returned_document(version, world):
    """Returns a document in the form in which the document functions return it."""
    doc = dict(version.values['doc'], id=version.values['id'])
    return doc if world.is_real else dict(doc, _ts=version.shown_ts)


class Condition:
    """A WHERE clause: a column and its value, or true."""

    def __init__(self, column=None, value=None):
        self.column = column
        self.value = value

    def sql(self):
        if self.column is None:
            return 'true'
        if self.column == 'doc':
            return 'doc @> ' + literal(self.value)
        return '%s = %s' % (self.column, literal(self.value))

    def __call__(self, values):
        if self.column is None:
            return True
        if self.column == 'doc':
            return all(values['doc'].get(k) == v for k, v in self.value.items())
        return values[self.column] == self.value and self.value is not None


class Step:
    """One statement of one session."""

    can_race = False        # the model knows its outcome after a wait
    probe = False           # run it with a short lock_timeout even if it is blocked
    uses_snapshot = True
    only_reads = False      # the answer depends only on the snapshot and its instant

    def __init__(self, session, table=None):
        self.session = session
        self.table = table      # its name

    def sql(self, world):
        raise NotImplementedError

    def run(self, world):
        """Runs the step in the model; returns the answer, or raises Refused, Blocked or Unsure."""
        return world.execute(self.session, lambda transaction: self.work(world, transaction))

    def work(self, world, transaction):
        raise NotImplementedError

    def answer(self, cursor, frame):
        """Returns the server's answer in the form of the model's."""
        return None

    def of(self, world):
        return world.tables[self.table]

    def sessions(self):
        """Returns the sessions that the step uses."""
        return [] if self.session is None else [self.session]

    def move(self, source, target):
        """Moves the step from one session to another."""
        if self.session == source:
            self.session = target


# ---- Time ----

class MoveClock(Step):
    """Moves the clock of all sessions.  The runner sets the clock of a session before its next statement."""

    def __init__(self, seconds):
        super().__init__(None)
        self.seconds = seconds

    def sql(self, world):
        return None

    def run(self, world):
        world.clock += self.seconds
        if self.seconds < 0:
            world.loose.clear()     # what expires again may have been purged


# ---- Reading ----

class Select(Step):
    """Reads all columns of matching documents, in one of several ways."""

    only_reads = True

    FORMS = {
        'plain': 'SELECT {columns} FROM {table} WHERE {condition}',
        # all possible ctids, so that those of expired rows are among them
        'by tid': "SELECT {columns} FROM {table} WHERE ctid = ANY (ARRAY("
                  "SELECT format('(%s,%s)', block, item)::tid FROM generate_series(0,"
                  " (SELECT coalesce(max(pg_relation_size(relid)), pg_relation_size('{table}')) / 8192"
                  " FROM pg_partition_tree('{table}'))) AS block, generate_series(1, 291) AS item))"
                  " AND {condition}",
        'by range of tids': "SELECT {columns} FROM {table} WHERE ctid >= '(0,0)' AND {condition}",
        'twice': 'SELECT {columns} FROM {table} WHERE id IN (SELECT id FROM {table}) AND {condition}',
        'cte': 'WITH d AS MATERIALIZED (SELECT * FROM {table}) SELECT {columns} FROM d WHERE {condition}',
        'judged': "SELECT {columns} FROM {table} WHERE NOT ttl_docs.is_expired('{table}', _ts, _ttl)"
                  " AND ttl_docs.expires_at('{table}', _ts, _ttl) > ttl_docs.now() AND {condition}",
        'sample': 'SELECT {columns} FROM {table} TABLESAMPLE SYSTEM (100) WHERE {condition}',
    }

    def __init__(self, session, table, condition, form):
        super().__init__(session, table)
        self.condition = condition
        self.form = form

    def sql(self, world):
        if self.form == 'prepared':
            return 'EXECUTE all_%s' % self.table if self.condition.column is None else \
                'EXECUTE by_%s_%s(%s)' % (self.condition.column, self.table, literal(self.condition.value))
        return self.FORMS[self.form].format(columns=shown(self.of(world)), table=self.table,
                                            condition=self.condition.sql())

    def work(self, world, transaction):
        table = self.of(world)
        if self.form == 'twice' and has_duplicates(world.select(transaction, table)):
            raise Unsure        # PostgreSQL assumes unique ids, and may use a join
        return of_model(table, world.select(transaction, table, self.condition))

    def answer(self, cursor, frame):
        return of_server(cursor.fetchall(), frame)


def has_duplicates(versions):
    """Do two versions have the same id?  An old snapshot can see a deleted row and its own new row."""
    return len({v.values['id'] for v in versions}) < len(versions)


class Aggregate(Step):
    """Reads the number of documents, or the greatest id."""

    only_reads = True

    def __init__(self, session, table, function, condition):
        super().__init__(session, table)
        self.function = function
        self.condition = condition

    def sql(self, world):
        return 'SELECT %s FROM %s WHERE %s' % (self.function, self.table, self.condition.sql())

    def work(self, world, transaction):
        found = world.select(transaction, self.of(world), self.condition)
        if self.function == 'count(*)':
            return len(found)
        return max((v.values['id'] for v in found), default=None)

    def answer(self, cursor, frame):
        return cursor.fetchone()[0]


class Join(Step):
    """Reads children with their parents, by a LEFT JOIN."""

    only_reads = True

    def sql(self, world):
        return 'SELECT c.id, p.id FROM %s AS c LEFT JOIN %s AS p ON p.id = c.par' % (
            self.table, self.of(world).parent.name)

    def work(self, world, transaction):
        child = self.of(world)
        parents = world.select(transaction, child.parent)
        if has_duplicates(parents):
            raise Unsure        # PostgreSQL assumes unique ids, and may stop at the first match
        parents = {v.values['id'] for v in parents}
        return in_order((v.values['id'], v.values['par'] if v.values['par'] in parents else None)
                        for v in world.select(transaction, child))

    def answer(self, cursor, frame):
        return in_order(cursor.fetchall())


class SelectFor(Step):
    """SELECT FOR UPDATE, and the other row locks."""

    can_race = True

    def __init__(self, session, table, condition, strength):
        super().__init__(session, table)
        self.condition = condition
        self.strength = strength

    def sql(self, world):
        return 'SELECT %s FROM %s WHERE %s FOR %s' % (shown(self.of(world)), self.table,
                                                      self.condition.sql(), self.strength)

    def work(self, world, transaction):
        table = self.of(world)
        return of_model(table, world.select_for(transaction, table, self.condition,
                                                ROW_LOCKS[self.strength]))

    def answer(self, cursor, frame):
        return of_server(cursor.fetchall(), frame)


class Copy(Step):
    """COPY TO; the runner reads its lines."""

    only_reads = True

    def sql(self, world):
        return 'COPY %s (id) TO STDOUT' % self.table

    def work(self, world, transaction):
        return sorted(v.values['id'] for v in world.select(transaction, self.of(world)))


class OpenCursor(Step):
    """Opens a cursor, all of whose scans see the documents that were visible when it was opened.

    The form "ordered" fetches its first row at once, and "unread" fetches none.  The others read
    the table twice, and move to the first row, so that the second scan starts later.  FetchAll
    reads them from the beginning each time.
    """

    FORMS = {
        'ordered': 'DECLARE {name} CURSOR FOR SELECT {columns} FROM {table} ORDER BY id; FETCH 1 FROM {name}',
        'unread': 'DECLARE {name} CURSOR FOR SELECT {columns} FROM {table}',
        'union': 'DECLARE {name} SCROLL CURSOR FOR SELECT {columns} FROM {table}'
                 ' UNION ALL SELECT {columns} FROM {table}; MOVE 1 IN {name}',
        'join': 'DECLARE {name} SCROLL CURSOR FOR SELECT {columns} FROM {table}'
                ' JOIN (SELECT id AS other FROM {table} OFFSET 0) AS d ON other = id; MOVE 1 IN {name}',
    }

    def __init__(self, session, table, name, form):
        super().__init__(session, table)
        self.name = name
        self.form = form

    def sql(self, world):
        return self.FORMS[self.form].format(name=self.name, columns=shown(self.of(world)), table=self.table)

    def work(self, world, transaction):
        if transaction.implicit or self.name in transaction.cursors:
            raise OutOfPlace
        table = self.of(world)
        rows = sorted(world.select(transaction, table), key=lambda v: v.values['id'])
        if has_duplicates(rows):
            raise Unsure        # the order of two rows with the same id is not known
        first = 1 if self.form == 'ordered' else 0
        transaction.cursors[self.name] = Cursor(table, rows[first:] * (2 if self.form == 'union' else 1),
                                                self.form in ('union', 'join'))
        transaction.note(lambda: transaction.cursors.pop(self.name))
        return of_model(table, rows[:first])

    def answer(self, cursor, frame):
        return of_server(cursor.fetchall(), frame) if self.form == 'ordered' else []


class FetchAll(Step):
    """Fetches the remaining rows of a cursor, or all rows of a scrollable cursor."""

    def __init__(self, session, name):
        super().__init__(session)
        self.name = name

    def sql(self, world):
        transaction = world.open[self.session]
        cursor = transaction and transaction.cursors.get(self.name)
        again = 'MOVE ABSOLUTE 0 IN %s; ' % self.name if cursor and cursor.scrolls else ''
        return again + 'FETCH ALL FROM ' + self.name

    def work(self, world, transaction):
        if self.name not in transaction.cursors:
            raise OutOfPlace
        cursor = transaction.cursors[self.name]
        if not cursor.scrolls:
            transaction.cursors[self.name] = cursor._replace(rows=[])
        return of_model(cursor.table, cursor.rows)

    def answer(self, cursor, frame):
        return of_server(cursor.fetchall(), frame)


# ---- Writing ----

class Returning(Step):
    """A write with RETURNING, whose answer is the returned rows."""

    can_race = True

    def answer(self, cursor, frame):
        return of_server(cursor.fetchall(), frame)


class Insert(Returning):
    """INSERT of one or more rows; on_conflict is None, 'nothing' or 'update'."""

    def __init__(self, session, table, rows, on_conflict=None):
        super().__init__(session, table)
        self.rows = rows
        self.on_conflict = on_conflict

    def sql(self, world):
        columns = self.of(world).columns()
        rows = ', '.join('(%s)' % ', '.join(literal(row[c]) for c in columns) for row in self.rows)
        conflict = {None: '', 'nothing': ' ON CONFLICT DO NOTHING',
                    'update': ' ON CONFLICT (id) DO UPDATE SET doc = excluded.doc, n = excluded.n'}
        return 'INSERT INTO %s (%s) VALUES %s%s RETURNING %s' % (
            self.table, ', '.join(columns), rows, conflict[self.on_conflict], shown(self.of(world)))

    def work(self, world, transaction):
        table = self.of(world)
        return of_model(table, world.insert(transaction, table, self.rows, self.on_conflict,
                                            lambda old, new: {'doc': new['doc'], 'n': new['n']}))


class CopyFrom(Step):
    """COPY FROM PROGRAM of one or more rows; unlike COPY FROM STDIN, it is a single statement."""

    can_race = True

    def __init__(self, session, table, rows):
        super().__init__(session, table)
        self.rows = rows

    def sql(self, world):
        columns = self.of(world).columns()
        lines = ''.join('\t'.join(field(row[c]) for c in columns) + '\n' for row in self.rows)
        return "COPY %s (%s) FROM PROGRAM 'echo %s | base64 -d'" % (
            self.table, ', '.join(columns), base64.b64encode(lines.encode()).decode())

    def work(self, world, transaction):
        table = self.of(world)
        if not table.partitions:    # COPY checks all rows before it inserts the first
            world.lock_table(transaction, table, 'row exclusive')
            for row in self.rows:
                world.check_ttl(transaction, table, row['doc'])
        return len(world.insert(transaction, table, self.rows))

    def answer(self, cursor, frame):
        return cursor.rowcount


class Update(Returning):
    """UPDATE; without columns to set, a touch."""

    def __init__(self, session, table, condition, changed):
        super().__init__(session, table)
        self.condition = condition
        self.changed = changed

    def sql(self, world):
        changes = ['%s = %s' % (c, literal(v)) for c, v in self.changed.items()] or ['_ts = DEFAULT']
        return 'UPDATE %s SET %s WHERE %s RETURNING %s' % (
            self.table, ', '.join(changes), self.condition.sql(), shown(self.of(world)))

    def work(self, world, transaction):
        table = self.of(world)
        return of_model(table, world.update(transaction, table, self.condition, lambda old: self.changed))


class Delete(Returning):
    def __init__(self, session, table, condition):
        super().__init__(session, table)
        self.condition = condition

    def sql(self, world):
        return 'DELETE FROM %s WHERE %s RETURNING %s' % (self.table, self.condition.sql(),
                                                         shown(self.of(world)))

    def work(self, world, transaction):
        table = self.of(world)
        return of_model(table, world.delete(transaction, table, self.condition))


class Merge(Step):
    """MERGE of one new row."""

    def __init__(self, session, table, row):
        super().__init__(session, table)
        self.row = row

    def sql(self, world):
        columns = self.of(world).columns()
        return ('MERGE INTO %s AS t USING (VALUES (%s)) AS s (id) ON t.id = s.id'
                ' WHEN MATCHED THEN UPDATE SET doc = %s, n = %s'
                ' WHEN NOT MATCHED THEN INSERT (%s) VALUES (%s)') % (
                    self.table, literal(self.row['id']), literal(self.row['doc']), self.row['n'],
                    ', '.join(columns), ', '.join(literal(self.row[c]) for c in columns))

    def work(self, world, transaction):
        changed = {'doc': self.row['doc'], 'n': self.row['n']}
        return len(world.merge(transaction, self.of(world), self.row, lambda old: changed))

    def answer(self, cursor, frame):
        return cursor.rowcount


# ---- Document functions ----

class Document(Step):
    """A call of a document function; the verb determines the arguments."""

    can_race = True

    def __init__(self, session, table, verb, ident, doc=None):
        super().__init__(session, table)
        self.verb = verb
        self.ident = ident
        self.doc = doc

    def sql(self, world):
        arguments = {'create': [self.with_id()], 'upsert': [self.with_id()], 'replace': [self.with_id()],
                     'patch': [self.ident, self.doc]}.get(self.verb, [self.ident])
        return "SELECT ttl_docs.%s_document('%s', %s)" % (
            self.verb, self.table, ', '.join(literal(a) for a in arguments))

    def with_id(self):
        return dict(self.doc, id=self.ident)

    def work(self, world, transaction):
        made = getattr(self, self.verb)(world, transaction, self.of(world), Condition('id', self.ident))
        if self.verb in ('delete', 'touch'):
            return bool(made)
        if not made:
            if self.verb == 'read':
                return None
            raise Refused(NO_DATA_FOUND)
        if has_duplicates(made):
            raise Unsure        # the contract does not say which one is returned
        return returned_document(made[0], world)

    def new_row(self):
        return {'id': self.ident, 'n': 0, 'u': None, 'par': None, 'doc': self.with_id()}

    def create(self, world, transaction, table, condition):
        return world.insert(transaction, table, [self.new_row()])

    def upsert(self, world, transaction, table, condition):
        return world.insert(transaction, table, [self.new_row()], 'update',
                            lambda old, new: {'doc': new['doc']})

    def read(self, world, transaction, table, condition):
        return world.select(transaction, table, condition)

    def replace(self, world, transaction, table, condition):
        return world.update(transaction, table, condition, lambda old: {'doc': self.with_id()})

    def patch(self, world, transaction, table, condition):
        def merged(old):
            doc = dict(old['doc'], **self.doc)
            return {'doc': {k: v for k, v in doc.items() if v is not None or k not in self.doc}}
        return world.update(transaction, table, condition, merged)

    def touch(self, world, transaction, table, condition):
        return world.update(transaction, table, condition, lambda old: {})

    def delete(self, world, transaction, table, condition):
        return world.delete(transaction, table, condition)

    def answer(self, cursor, frame):
        return frame.document(cursor.fetchone()[0])


class Documents(Step):
    """documents(): all documents that contain a filter."""

    def __init__(self, session, table, wanted):
        super().__init__(session, table)
        self.wanted = wanted

    def sql(self, world):
        return "SELECT ttl_docs.documents('%s', %s)" % (self.table, literal(self.wanted))

    def work(self, world, transaction):
        found = world.select(transaction, self.of(world), Condition('doc', self.wanted))
        return in_order(sorted(returned_document(v, world).items()) for v in found)

    def answer(self, cursor, frame):
        return in_order(sorted(frame.document(row[0]).items()) for row in cursor.fetchall())


# ---- Settings and purge ----

class SetDefaultTtl(Step):
    def __init__(self, session, table, default_ttl):
        super().__init__(session, table)
        self.default_ttl = default_ttl

    def sql(self, world):
        return "SELECT ttl_docs.set_default_ttl('%s', %s)" % (self.table, literal(self.default_ttl))

    def work(self, world, transaction):
        world.set_default_ttl(transaction, self.of(world), self.default_ttl)


class GetDefaultTtl(Step):
    def sql(self, world):
        return "SELECT ttl_docs.get_default_ttl('%s')" % self.table

    def work(self, world, transaction):
        table = self.of(world)
        if any(t is not transaction and 'access exclusive' in modes for t, modes in table.locks.items()):
            raise Unsure
        if world.has_changed_since(table, transaction):
            raise Unsure        # the contract does not say whether the last setting or that of the snapshot counts
        return world.default_ttl(table, transaction)

    def answer(self, cursor, frame):
        return cursor.fetchone()[0]


class SetIndexing(Step):
    def __init__(self, session, table, indexing):
        super().__init__(session, table)
        self.indexing = indexing

    def sql(self, world):
        return "SELECT ttl_docs.set_indexing('%s', '%s')" % (self.table, self.indexing)

    def work(self, world, transaction):
        world.set_indexing(transaction, self.of(world), self.indexing)


class Preview(Step):
    def __init__(self, session, table, default_ttl):
        super().__init__(session, table)
        self.default_ttl = default_ttl

    def sql(self, world):
        return "SELECT live, expire_now, expire_later, never_expire, invalid_ttl" \
            " FROM ttl_docs.preview('%s', %s)" % (self.table, literal(self.default_ttl))

    def work(self, world, transaction):
        return world.preview(transaction, self.of(world), self.default_ttl)

    def answer(self, cursor, frame):
        return cursor.fetchone()


class Edge(Step):
    """is_expired() for a document that expires at this microsecond, and for one that expires at the next."""

    def __init__(self, session, table, ttl):
        super().__init__(session, table)
        self.ttl = ttl

    def sql(self, world):
        due = "ttl_docs.now() - make_interval(secs => %d)" % self.ttl
        return "SELECT ttl_docs.is_expired('{0}', {1}, {2})," \
            " ttl_docs.is_expired('{0}', {1} + interval '1 microsecond', {2})".format(
                self.table, due, self.ttl)

    def work(self, world, transaction):
        table = self.of(world)
        if transaction.keeps_snapshot or any(t is not transaction for t in table.locks) or \
                world.settings(table, transaction).due_floor > world.clock:
            raise Unsure        # a change of the DefaultTTL may have raised the floor above these times
        return (world.default_ttl(table, transaction) is not None, False)

    def answer(self, cursor, frame):
        return cursor.fetchone()


class InheritingEdge(Step):
    """is_expired() for a document without a ttl that expires at this microsecond."""

    def sql(self, world):
        return "SELECT ttl_docs.is_expired('{0}', ttl_docs.now() -" \
            " make_interval(secs => ttl_docs.get_default_ttl('{0}')), NULL)".format(self.table)

    def work(self, world, transaction):
        default_ttl = world.default_ttl(self.of(world), transaction)
        if default_ttl == -1:
            raise OutOfPlace
        if world.has_changed_since(self.of(world), transaction):
            raise Unsure
        return None if default_ttl is None else True

    def answer(self, cursor, frame):
        return cursor.fetchone()[0]


class Purge(Step):
    """CALL purge(), for one table or all tables."""

    def sql(self, world):
        return "CALL ttl_docs.purge(%s)" % ("'%s'" % self.table if self.table else '')

    def work(self, world, transaction):
        if transaction.keeps_snapshot and (self.table is None or self.of(world).children):
            raise Unsure        # a cascade may reach rows that are newer than the snapshot
        tables = list(world.tables.values()) if self.table is None else [self.of(world)]
        if any(table in tables for table in transaction.tables_of_cursors()):
            raise Unsure
        counts = world.purge(transaction, tables)
        # with several tables, a child may be counted for its own table or not, if a cascade deletes it first
        return counts[self.table] if self.table else None

    def answer(self, cursor, frame):
        return frame.purged(cursor.connection.notices, self.table) if self.table else None


class Vacuum(Step):
    """VACUUM, which removes dead rows and makes pages all-visible."""

    def sql(self, world):
        return 'VACUUM ' + self.table

    def run(self, world):
        if world.open[self.session] is not None:
            raise OutOfPlace
        super().run(world)

    def work(self, world, transaction):
        world.lock_table(transaction, self.of(world), 'share update exclusive', unsure=True)


class Check(Step):
    """Compares all documents."""

    def __init__(self):
        super().__init__(None)

"""The tables that the query checker reads, with and without expired rows.

A world has the same relations in two schemas.  In "ttl" they are collections; about half
of their rows are expired and still on disk.  In "plain" they are plain tables that hold
only the live rows.  The program computes here which rows are live, from the history of
each collection in days.  This does not use ttl_docs.  All writes happen a whole number of
days ago, and every ttl is a whole number of days plus a half.  So the result does not depend
on the speed of the machine.

Every expired document carries a mark, which must not appear anywhere.  Three out of four
expired rows also carry poison, which no live row has: -777 in column a, and a "p" that is
not a number.  Some expressions fail for these values.  So the program also detects a
condition of the user that is evaluated for an expired row before the row is filtered out.

The plain tables also have the columns _ts, _ttl and _slot, with the values of the same
rows.  So indexes can be the same, and queries can read these columns.

Three roles run queries: a superuser; query_reader, which has all privileges on the tables;
and query_guest, which may only read them, and owns the spies (query_spies.py).
"""
import json
from dataclasses import dataclass, field

from query_spies import COLOURS, GUEST, MARK, POISON, WORKBENCH_SQL

FIRST_DAY = -12
DAY = 86400
COLUMNS = {'id': 'text', 'doc': 'json', 'a': 'int', 'b': 'int', 'c': 'text', 'u': 'int', 'ref': 'text'}
SYSTEM_COLUMNS = {'_ts': 'time', '_ttl': 'int', '_slot': 'slot'}
OFF = 'NULL'
NO_DEFAULT = -1


@dataclass
class Relation:
    """A relation that a query can read: its columns with their types, and its key."""
    name: str
    columns: dict
    key: list


@dataclass
class Table(Relation):
    """A table, and its story: changes of the DefaultTTL, as [(day, DefaultTTL in days), ...]."""
    ddl: list = field(default_factory=list)
    story: list = field(default_factory=list)
    indexing: str = 'consistent'
    conflict: list = field(default_factory=list)    # conflict targets for ON CONFLICT
    partitioned: bool = False
    rows: list = field(default_factory=list)

    @property
    def is_collection(self):
        return bool(self.story)


@dataclass
class Row:
    values: dict
    ttl: object                 # in days; None means that the row inherits
    written: int = 0
    dead: bool = False
    history: list = field(default_factory=list)     # (day, document) of each write


PLAIN_DDL = """CREATE TABLE {name} (id text PRIMARY KEY, doc jsonb NOT NULL, a int, b int, c text,
    u int UNIQUE, ref text)"""
SPAN_DDL = """CREATE TABLE {name} (id text PRIMARY KEY, doc jsonb NOT NULL, a int, b int, c text, u int,
    ref text, EXCLUDE USING gist (int4range(u, u + 1) WITH &&) WHERE (u IS NOT NULL))"""
HASH_DDL = """CREATE TABLE {name} (id text PRIMARY KEY, doc jsonb NOT NULL, a int, b int, c text, u int,
    ref text) PARTITION BY HASH (id)"""
RANGE_DDL = """CREATE TABLE {name} (id text, doc jsonb NOT NULL, a int NOT NULL, b int, c text, u int,
    ref text, PRIMARY KEY (id, a)) PARTITION BY RANGE (a)"""
CHILD_DDL = """CREATE TABLE {name} (id text PRIMARY KEY, doc jsonb NOT NULL, a int, b int, c text,
    u int UNIQUE, ref text REFERENCES parent ON DELETE CASCADE)"""


def hash_partitions(name, count):
    return [f'CREATE TABLE {name}_{number} PARTITION OF {name}'
            f' FOR VALUES WITH (MODULUS {count}, REMAINDER {number})' for number in range(count)]


def describe_tables(choices):
    """Returns all tables of a world; choices varies the stories and some indexes."""
    day = choices.pick([3.5, 1.5, 5.5, 7.5])
    covering = choices.pick(['(b) INCLUDE (_ts, _ttl)', '(b, a) INCLUDE (id, _ts, _ttl)',
                             '(b, _ttl, _ts, id, a)'])
    family = [(FIRST_DAY, choices.pick([4.5, 2.5, 6.5]))]

    def table(name, ddl, story, **more):
        return Table(name, COLUMNS | SYSTEM_COLUMNS, ['id'], ddl=[line.format(name=name) for line in ddl],
                     story=story, **{'conflict': ['(id)', '(u)']} | more)

    return [
        table('docs', [PLAIN_DDL, 'CREATE INDEX ON {name} USING gin (doc)', 'CREATE INDEX ON {name} (a)',
                       'CREATE INDEX ON {name} ' + covering, 'CREATE INDEX ON {name} USING hash (c)'],
              [(FIRST_DAY, day)]),
        table('own', [SPAN_DDL, 'CREATE INDEX ON {name} USING gin (doc jsonb_path_ops)',
                      "CREATE INDEX ON {name} (((doc ->> 'k')::int))", 'CREATE INDEX ON {name} (lower(c), b)',
                      'CREATE INDEX ON {name} (b) INCLUDE (_ts, _ttl) WHERE a > 5',
                      'CREATE INDEX ON {name} (ref)'],
              [(FIRST_DAY, NO_DEFAULT)], conflict=['(id)']),
        table('hashed', [HASH_DDL, *hash_partitions('{name}', 3), 'CREATE INDEX ON {name} (a, id, _ts, _ttl)',
                         'CREATE INDEX ON {name} (b)'],
              [(FIRST_DAY, choices.pick([5.5, 2.5]))], conflict=['(id)'], partitioned=True),
        table('ranged', [RANGE_DDL, 'CREATE TABLE {name}_1 PARTITION OF {name} FOR VALUES FROM (0) TO (7)',
                         'CREATE TABLE {name}_2 PARTITION OF {name} FOR VALUES FROM (7) TO (14)'
                         ' PARTITION BY HASH (id)',
                         *hash_partitions('{name}_2', 2), 'CREATE TABLE {name}_3 PARTITION OF {name} DEFAULT',
                         'CREATE INDEX ON {name} USING brin (b)', 'CREATE INDEX ON {name} USING gin (doc)',
                         'CREATE INDEX ON {name} (a)'],
              [(FIRST_DAY, 2.5), (choices.pick([-4, -7]), 6.5)], conflict=['(id, a)'], partitioned=True),
        table('lazy', [PLAIN_DDL, 'CREATE INDEX ON {name} USING brin (b) WITH (pages_per_range = 1)',
                       'CREATE INDEX ON {name} (c, b)', 'CREATE INDEX ON {name} (a DESC NULLS LAST)'],
              [(FIRST_DAY, choices.pick([4.5, 6.5]))], indexing='lazy'),
        table('floors', [PLAIN_DDL, 'CREATE INDEX ON {name} (a) INCLUDE (_ts, _ttl, b)',
                         "CREATE INDEX ON {name} ((doc ->> 's'))"],
              choices.pick([[(FIRST_DAY, 1.5), (-8, 9.5), (-5, NO_DEFAULT), (-2, OFF)],
                            [(FIRST_DAY, OFF), (-6, 3.5), (-3, 8.5)],
                            [(FIRST_DAY, NO_DEFAULT), (-7, 1.5), (-4, OFF), (-1, NO_DEFAULT)]])),
        table('big', [PLAIN_DDL, 'ALTER TABLE {name} ALTER doc SET STORAGE EXTERNAL',
                      'CREATE INDEX ON {name} USING gin (doc jsonb_path_ops)',
                      'CREATE INDEX ON {name} (a, b)'],
              [(FIRST_DAY, choices.pick([5.5, 3.5]))]),
        table('parent', [PLAIN_DDL, 'CREATE INDEX ON {name} (a)'], family),
        table('child', [CHILD_DDL, 'CREATE INDEX ON {name} (ref) INCLUDE (_ts, _ttl)'], family),
        table('guarded', [PLAIN_DDL, 'ALTER TABLE {name} ENABLE ROW LEVEL SECURITY',
                          'CREATE POLICY two_thirds ON {name} USING (a % 3 <> 1)',
                          'CREATE INDEX ON {name} (b)'],
              [(FIRST_DAY, choices.pick([3.5, 6.5]))]),
        table('aux', [PLAIN_DDL, 'CREATE INDEX ON {name} (a)'], []),
        # For cases with two sessions, which commit.
        table('busy', [PLAIN_DDL, 'CREATE INDEX ON {name} (a)'], [(FIRST_DAY, 4.5)]),
    ]


VIEWS = [
    Relation('v_plain', {'id': 'text', 'a': 'int', 'b': 'int', 'c': 'text', 'doc': 'json'}, ['id']),
    Relation('v_barrier', {'id': 'text', 'a': 'int', 'b': 'int', 'c': 'text'}, ['id']),
    Relation('v_union', {'id': 'text', 'a': 'int', 'b': 'int', 'c': 'text'}, ['id']),
    Relation('v_grouped', {'c': 'text', 'n': 'int', 'm': 'int'}, ['c']),
    Relation('v_join', {'id': 'text', 'a': 'int', 'id2': 'text', 'a2': 'int'}, ['id', 'id2']),
    Relation('m_view', {'id': 'text', 'a': 'int', 'b': 'int', 'c': 'text'}, ['id']),
]
# Each takes an integer.
FUNCTIONS = [Relation(name, {'id': 'text', 'a': 'int', 'b': 'int', 'c': 'text'}, ['id'])
             for name in ('f_inlined', 'f_atomic', 'f_plpgsql')]

# The functions name the schema, because REFRESH MATERIALIZED VIEW may use another search_path.
VIEWS_SQL = """
CREATE VIEW v_plain AS SELECT id, a, b, c, doc FROM docs WHERE a > 3;
CREATE VIEW v_barrier WITH (security_barrier) AS SELECT id, a, b, c FROM own WHERE b < 80;
CREATE VIEW v_union AS SELECT id, a, b, c FROM lazy UNION ALL SELECT id, a, b, c FROM hashed
    UNION ALL SELECT id, a, b, c FROM aux;
CREATE VIEW v_grouped AS SELECT c, count(*) AS n, max(b) AS m FROM ranged GROUP BY c;
CREATE VIEW v_join AS SELECT x.id, x.a, y.id AS id2, y.a AS a2 FROM floors x LEFT JOIN docs y ON y.id = x.ref;
CREATE MATERIALIZED VIEW m_view AS SELECT id, a, b, c FROM ranged WHERE b IS NOT NULL;
CREATE INDEX ON m_view (a);
CREATE FUNCTION f_inlined(int) RETURNS TABLE (id text, a int, b int, c text) LANGUAGE sql STABLE PARALLEL SAFE
    AS 'SELECT id, a, b, c FROM {schema}.docs WHERE a >= $1';
CREATE FUNCTION f_atomic(int) RETURNS TABLE (id text, a int, b int, c text) LANGUAGE sql STABLE
    BEGIN ATOMIC SELECT id, a, b, c FROM {schema}.hashed WHERE a >= $1; END;
CREATE FUNCTION f_plpgsql(int) RETURNS TABLE (id text, a int, b int, c text) LANGUAGE plpgsql VOLATILE
    AS 'BEGIN RETURN QUERY SELECT x.id, x.a, x.b, x.c FROM {schema}.floors x WHERE x.a >= $1; END';
CREATE FUNCTION f_count(text) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
    AS 'SELECT count(*) FROM {schema}.own WHERE c = $1';
CREATE FUNCTION f_max(int) RETURNS int LANGUAGE plpgsql STABLE PARALLEL SAFE
    AS 'BEGIN RETURN (SELECT max(b) FROM {schema}.docs WHERE a = $1); END';
"""


class World:
    """Creates the tables, and describes them for the grammar."""

    def __init__(self, choices, rows, base_day):
        self.tables = describe_tables(choices)
        self.choices = choices
        self.base_day = base_day        # clock offset of the sessions, in days
        self.collections = [table for table in self.tables if table.is_collection]
        self.readable = [table for table in self.tables if table.name != 'busy']
        self.writable = [table for table in self.readable if table.name != 'aux']
        self.views = VIEWS
        self.functions = FUNCTIONS
        for table in self.tables:
            self._write_rows(table, rows // 4 if table.name in ('big', 'busy') else rows)
        self.ids = [row.values['id'] for table in self.readable for row in table.rows]

    def table(self, name):
        return next(table for table in self.tables if table.name == name)

    @property
    def clock_offset(self):
        return self.base_day * DAY

    @property
    def counts(self):
        """The number of rows on disk, and the number of expired rows."""
        rows = [row for table in self.tables for row in table.rows]
        return len(rows), sum(row.dead for row in rows)

    # ---- The history of the rows, and which rows are expired ----

    def _write_rows(self, table, count):
        table.rows.clear()
        for number in range(count):
            row = self._new_row(table, number)
            self._live_on(table, row)
            if row.dead:
                for _, document in row.history:
                    document['mark'] = MARK
            if row.dead and self.choices.chance(75):
                row.values['a'] = POISON
                for _, document in row.history:
                    document['p'] = 'boom'
            table.rows.append(row)

    def _new_row(self, table, number):
        choices = self.choices
        row = Row({'id': f'{table.name}{number}', 'a': self._maybe(choices.below(20), table.name != 'ranged'),
                   'b': self._maybe(choices.below(100)), 'c': self._maybe(choices.pick(COLOURS)),
                   'u': self._maybe(number), 'ref': self._maybe(self._any_id())}, None)
        row.written = FIRST_DAY + choices.below(-FIRST_DAY + 1)
        row.ttl = choices.pick([None, None, None, 1.5, 1.5, 4.5, 30.5, -1])
        if table.name == 'child':
            self._follow_parent(row, self.table('parent').rows[choices.below(len(self.table('parent').rows))])
        row.history.append((row.written, self._document(table, row, number)))
        return row

    def _follow_parent(self, row, parent):
        """Lets a child expire no later than its parent, because the plain tables enforce the foreign key."""
        row.values['ref'] = parent.values['id']
        row.written, row.ttl = parent.written, parent.ttl
        if self.choices.chance(40):
            row.ttl = 1.5 if parent.ttl is None or parent.ttl == -1 or parent.ttl > 1.5 else parent.ttl

    def _maybe(self, value, can_be_null=True):
        return None if can_be_null and self.choices.chance(8) else value

    def _any_id(self):
        return f'{self.choices.pick(self.readable).name}{self.choices.below(250)}'

    def _document(self, table, row, number):
        choices = self.choices
        document = {'k': number % 50, 's': choices.pick(COLOURS) + str(choices.below(10)),
                    'o': {'x': choices.below(10)},
                    'tags': [choices.pick(COLOURS) for _ in range(choices.below(3))],
                    'p': str(choices.below(100))}
        if table.name == 'big':
            document['text'] = ''.join(choices.pick(COLOURS) + str(choices.below(100)) for _ in range(800))
        self._set_ttl(document, row.ttl)
        return document

    def _set_ttl(self, document, ttl):
        if ttl is not None:
            document['ttl'] = ttl if ttl == -1 else int(ttl * DAY)
        elif self.choices.chance(10):
            document['ttl'] = None

    def _live_on(self, table, row):
        """Lets the days pass: the row expires or is sometimes written again."""
        if not table.is_collection:
            return
        for day in range(row.written, 1):
            if day > row.written and self._is_over(table, row, day):
                row.dead = True
                return
            if day > row.written and table.name not in ('parent', 'child') and self.choices.chance(4):
                self._write_again(row, day)

    def _write_again(self, row, day):
        row.written = day
        row.ttl = self.choices.pick([row.ttl, None, 1.5, 30.5])
        document = {key: value for key, value in row.history[-1][1].items() if key != 'ttl'}
        document['again'] = day
        self._set_ttl(document, row.ttl)
        row.history.append((day, document))

    def _is_over(self, table, row, day):
        """Has the row expired by that day, under the DefaultTTL before or after the changes of that day?"""
        in_force = [default for changed, default in table.story if changed < day][-1:]
        in_force += [default for changed, default in table.story if changed == day]
        return any(expires(row, default) <= day for default in in_force)

    # ---- Creating the tables ----

    def create(self, connection):
        """Creates both schemas; drops existing ones first."""
        cursor = connection.cursor()
        cursor.execute("""SET client_min_messages = error; RESET search_path;
            DROP SCHEMA IF EXISTS ttl CASCADE; DROP SCHEMA IF EXISTS plain CASCADE;
            DROP TABLE IF EXISTS public.tids; CREATE SCHEMA ttl; CREATE SCHEMA plain;""")
        for schema in ('ttl', 'plain'):
            cursor.execute(f'SET search_path = {schema}')
            for table in self.tables:
                cursor.execute(table.ddl[0])
                self._make_collection(cursor, schema, table)
                for statement in table.ddl[1:]:
                    cursor.execute(statement)
        self._tell_stories(cursor)
        self._copy_live_rows(cursor)
        for schema in ('ttl', 'plain'):
            self._finish(cursor, schema)
        cursor.execute('RESET search_path; RESET client_min_messages')

    def _make_collection(self, cursor, schema, table):
        if schema == 'plain' or not table.is_collection:
            cursor.execute(f'ALTER TABLE {table.name} ADD COLUMN _ts timestamptz, ADD COLUMN _ttl int,'
                           ' ADD COLUMN _slot bigint')
        else:
            self._at(cursor, FIRST_DAY, "SELECT ttl_docs.adopt(%s, %s, indexing => %s)",
                     (table.name, in_seconds(table.story[0][1]), table.indexing))

    def _at(self, cursor, day, statement, values=None):
        cursor.execute(f"BEGIN; SET LOCAL ttl_docs.clock_offset = {(self.base_day + day) * DAY}")
        cursor.execute(statement, values)
        cursor.execute('COMMIT')

    def _tell_stories(self, cursor):
        """Writes the rows day after day, parents before children."""
        cursor.execute('SET search_path = ttl')
        for table in self.tables:
            for day in range(FIRST_DAY, 1):
                for changed, default in table.story[1:]:
                    if changed == day:
                        self._at(cursor, day, 'SELECT ttl_docs.set_default_ttl(%s, %s)',
                                 (table.name, in_seconds(default)))
                self._write_day(cursor, table, day)

    def _write_day(self, cursor, table, day):
        inserts, updates = [], []
        for row in table.rows:
            for position, (written, document) in enumerate(row.history):
                if written == day and position == 0:
                    values = [json.dumps(document) if name == 'doc' else row.values[name] for name in COLUMNS]
                    inserts.append(cursor.mogrify('(%s,%s,%s,%s,%s,%s,%s)', values).decode())
                elif written == day:
                    updates.append(cursor.mogrify(f'UPDATE {table.name} SET doc = %s WHERE id = %s',
                                                  (json.dumps(document), row.values['id'])).decode())
        if inserts:
            updates.append(f"INSERT INTO {table.name} (id,doc,a,b,c,u,ref) VALUES {','.join(inserts)}")
        if updates:
            self._at(cursor, day, ';'.join(updates))

    def _copy_live_rows(self, cursor):
        columns = ', '.join(COLUMNS | SYSTEM_COLUMNS)
        cursor.execute('SET ttl_docs.show_expired = on')
        for table in self.tables:
            live = [row.values['id'] for row in table.rows if not row.dead]
            cursor.execute(f'INSERT INTO plain.{table.name} ({columns})'
                           f' SELECT {columns} FROM ttl.{table.name} WHERE id = ANY (%s)', (live,))
            if cursor.rowcount != len(live):
                raise AssertionError(f'{table.name}: {len(live)} rows should be live, but {cursor.rowcount} '
                                     'of them are on disk')
            cursor.execute(f'SELECT count(*) FROM ttl.{table.name}')
            if cursor.fetchone()[0] != len(table.rows):
                raise AssertionError(f'{table.name}: some rows are no longer on disk')
        cursor.execute("""CREATE TABLE public.tids AS
            SELECT format('(%s,%s)', page, item)::tid AS tid
              FROM (SELECT max((ctid::text::point)[0])::int AS pages,
                           max((ctid::text::point)[1])::int AS items FROM ("""
                       + ' UNION ALL '.join(f'SELECT ctid FROM {schema}.{table.name}'
                                            for schema in ('ttl', 'plain') for table in self.tables)
                       + """) AS x) AS y,
                   generate_series(0, pages) AS page, generate_series(1, items) AS item;
            ANALYZE public.tids; GRANT SELECT ON public.tids TO PUBLIC;
            RESET ttl_docs.show_expired""")

    def _finish(self, cursor, schema):
        """Creates views and functions, grants privileges, and analyzes, with the clock at the last day."""
        self.tidy(cursor, schema)
        cursor.execute(f'SET search_path = {schema}; SET ttl_docs.clock_offset = {self.clock_offset}')
        cursor.execute(VIEWS_SQL.format(schema=schema))
        cursor.execute(f"""ANALYZE m_view; RESET ttl_docs.clock_offset;
            GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {GUEST};
            GRANT ALL ON SCHEMA {schema} TO query_reader, {GUEST}""")
        cursor.execute(WORKBENCH_SQL.replace('{schema}', schema))
        cursor.execute(f'GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO query_reader')

    def tidy(self, cursor, schema):
        for table in self.tables:
            cursor.execute(f'VACUUM (ANALYZE) {schema}.{table.name}')


def in_seconds(default):
    if default == OFF:
        return None
    return default if default == NO_DEFAULT else int(default * DAY)


def expires(row, default):
    """Returns the day on which a row expires under a DefaultTTL."""
    never = float('inf')
    if default == OFF:
        return never
    ttl = default if row.ttl is None else row.ttl
    return never if ttl == -1 else row.written + ttl

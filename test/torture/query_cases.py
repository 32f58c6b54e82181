"""Random cases: a transaction with some statements, under random planner settings.

There are three sorts of cases.  A case reads in one of many ways (plain, prepared, by a cursor,
through views and functions, COPY, ...).  Or it writes, and then reads the written tables.  Or
two sessions compete for a row.  The transaction is rolled back.  Writes have one correct result,
too: a row gets its new values from at most one row, and rows that may conflict come in a fixed
order.
"""
import json
from dataclasses import dataclass, field

from query_grammar import Grammar, Item, Scope, SQL_TYPES, TYPES
from query_spies import GUEST
from query_world import COLOURS, COLUMNS

FAMILY = ('parent', 'child')


@dataclass
class Step:
    sql: str
    kind: str = 'query'         # or copy_out, copy_in
    data: str = ''
    explain: str = ''           # the statement for EXPLAIN, if any


@dataclass
class Case:
    kind: str
    steps: list
    settings: list = field(default_factory=list)
    # For a case with two sessions: rows that the other session changes, and rows that it makes expire.
    changed: list = None
    ended: list = None
    isolation: str = 'READ COMMITTED'
    # Not run on plain tables, only checked for the mark of an expired document.
    alone: bool = False


class CaseMaker(Grammar):
    """Makes a case out of choices."""

    def __init__(self, choices, world, version, switches, calls):
        super().__init__(choices, world, calls)
        self.version = version          # major version of the server
        self.switches = switches        # names of its enable_... settings

    def case(self):
        settings = self.settings()
        reading = self.reading()
        maker = self.weighted(reading + self.writing_cases())
        settings += self.role(maker in [reader for _, reader in reading])
        case = maker()
        case.kind = maker.__name__.removesuffix('_case')
        case.settings = settings + case.settings
        return case

    def role(self, reads):
        """Chooses the role: the superuser, or a role with fewer privileges."""
        name = self.weighted([(9, None), (1, 'query_reader'), (3 if reads else 0, GUEST)])
        return [f'role = {name}'] if name else []

    def reading(self):
        return [(40, self.select_case), (20, self.scan_case), (4, self.lock_case), (6, self.prepared_case),
                (4, self.cursor_case), (5, self.view_case), (6, self.function_case), (3, self.stored_case),
                (3, self.copy_out_case)]

    def writing_cases(self):
        return [(4, self.insert_case), (4, self.insert_select_case),
                (6, self.update_case), (3, self.move_case), (5, self.delete_case), (6, self.merge_case),
                (5, self.chain_case), (2, self.copy_in_case),
                (2, self.current_of_case), (2, self.view_write_case), (2, self.function_write_case),
                (3, self.meeting_case)]

    # ---- Settings ----

    def settings(self):
        form = self.weighted([(8, 'none'), (8, 'switches'), (3, 'parallel'), (3, 'costs')])
        settings = []
        if form != 'none':
            settings += [f'{name} = {self.pick(["off", "on"])}' for name in self.switches
                         if self.chance(20 if form == 'switches' else 6)]
            settings += self.scan_settings()
        if form == 'parallel':
            settings += self.parallel_settings()
        if form == 'costs':
            settings += [self.pick(['random_page_cost = 0.1', 'seq_page_cost = 100', 'cpu_tuple_cost = 10']),
                         self.pick(['work_mem = 64', 'join_collapse_limit = 1', 'geqo_threshold = 2',
                                    'from_collapse_limit = 1', 'constraint_exclusion = on'])]
        if self.below(300) == 299:      # rarely, because JIT is slow
            settings += ['jit = on', 'jit_above_cost = 0', 'jit_inline_above_cost = 0',
                         'jit_optimize_above_cost = 0']
        if self.chance(30):
            settings.append(f'plan_cache_mode = {self.pick(["force_generic_plan", "force_custom_plan"])}')
        return settings

    def parallel_settings(self):
        force = 'debug_parallel_query' if self.version >= 16 else 'force_parallel_mode'
        return ['parallel_setup_cost = 0', 'parallel_tuple_cost = 0', 'min_parallel_table_scan_size = 0',
                'min_parallel_index_scan_size = 0', 'max_parallel_workers_per_gather = 2',
                f'parallel_leader_participation = {self.pick(["on", "off"])}',
                f'{force} = {self.pick(["off", "off", "on"])}']

    def scan_settings(self):
        """Leaves the planner one kind of scan, where that is possible."""
        if not self.chance(50):
            return []
        wanted = self.pick(['bitmapscan', 'indexscan', 'indexonlyscan', 'tidscan'])
        unwanted = ['seqscan', 'indexscan', 'indexonlyscan', 'bitmapscan', 'tidscan']
        # enable_indexscan = off disables index-only scans, too.
        keep = {wanted, 'indexscan'} if wanted == 'indexonlyscan' else {wanted}
        return [f'enable_{name} = off' for name in unwanted if name not in keep]

    # ---- Reading ----

    def kinds(self):
        return [self.pick(TYPES + (['time'] if self.system_columns else []))
                for _ in range(1 + self.below(4))]

    def any_query(self):
        """Returns a query and the types of its columns."""
        kinds = self.kinds()
        return self.query(kinds, 1 + self.below(3)), kinds

    def select_case(self):
        sql, _ = self.any_query()
        return Case('', [Step(sql, explain=sql)])

    def scan_case(self):
        """Reads one table with a simple query, to test each kind of scan."""
        form = self.weighted([(4, self.any_scan), (3, self.covered_scan), (3, self.place_scan),
                              (2, self.bitmap_scan)])
        sql, settings = form()
        if self.chance(25):
            settings += self.parallel_settings()
        return Case('', [Step(sql, explain=sql)], settings)

    def any_scan(self):
        """Reads few columns, which an index may contain, with any conditions."""
        table = self.pick(self.world.readable)
        scope = Scope([Item('t', self.readable_columns(table), ['id'], True)])
        columns = self.pick(['t.b', 'count(*)', 't.a', 't.a, t.id', 't.ref', 'max(t.a), min(t.b)',
                             't.b, t.a, t.id',
                             't.a, t.b', 'count(t.b), sum(t.a)', 't.a, count(*)', 't.c, t.b',
                             't.id, t.doc'])
        conditions = [self.simple_condition(scope) for _ in range(self.below(3))]
        where = f" WHERE {self.pick([' AND ', ' OR ']).join(conditions)}" if conditions else ''
        group = ' GROUP BY 1' if columns == 't.a, count(*)' else ''
        return f'SELECT {columns} FROM {table.name} AS t{where}{group}', self.scan_settings()

    def covered_scan(self):
        """Reads columns of an index that includes _ts and _ttl, for an index-only scan."""
        table, column, more = self.pick([('docs', 'b', 'b'), ('floors', 'a', 'a, b'),
                                         ('hashed', 'a', 'a, id'), ('child', 'ref', 'ref')])
        columns = self.pick([more, f'count({column})', f'max({column}), min({column})', f'{column}, _ttl'])
        condition = self.pick(['IS NOT NULL', f"> '{self.below(20)}'", 'IS NULL'])
        return (f'SELECT {columns} FROM {table} WHERE {column} {condition}',
                ['enable_seqscan = off', 'enable_bitmapscan = off'])

    def place_scan(self):
        """Reads all rows by ctid."""
        sql, [item] = self.ctid_item(self.pick(self.world.readable))
        condition = self.pick(['', f' WHERE {self.simple_condition(Scope([item]))}'])
        return f'SELECT {item.alias}.id, {item.alias}.a FROM {sql}{condition}', []

    def bitmap_scan(self):
        """Reads rows with conditions for btree, GIN and BRIN indexes, alone and combined."""
        table = self.pick(['docs', 'own', 'hashed', 'ranged', 'lazy', 'floors', 'big'])
        conditions = [self.pick([f't.a < {self.number(20)}', f't.b > {self.number(60)}',
                                 f't.c = {self.colour()}',
                                 f"t.doc @> '{{\"k\": {self.below(50)}}}'"])
                      for _ in range(1 + self.below(2))]
        columns = self.pick(['t.id', 'count(*)', 't.a, t.doc'])
        return (f"SELECT {columns} FROM {table} AS t WHERE {self.pick([' AND ', ' OR ']).join(conditions)}",
                ['enable_seqscan = off', 'enable_indexscan = off', 'enable_indexonlyscan = off'])

    def lock_case(self):
        """Locks rows of a table, alone, joined, or in a WITH query."""
        sql = self.locking_query(self.pick(self.world.readable).name)
        if self.chance(30):
            return Case('', [Step(f'WITH w AS ({sql}) SELECT count(*), max(id), sum(a) FROM w', explain=sql)])
        return Case('', [Step(sql, explain=sql)])

    def locking_query(self, table, strengths=('UPDATE', 'NO KEY UPDATE', 'SHARE', 'KEY SHARE')):
        self.system_columns = False
        items = [Item('t', COLUMNS, ['id'], True)]
        joined = ''
        if self.chance(40):
            items.append(Item('s', COLUMNS, ['id'], True))
            joined = f' JOIN {self.pick(self.world.readable).name} AS s ON s.id = t.ref'
        return (f'SELECT t.id, t.a, t.b, t.doc FROM {table} AS t{joined}'
                f' WHERE {self.bool_expr(Scope(items), 2)}'
                f' FOR {self.pick(strengths)} OF {self.pick(items).alias}')

    def prepared_case(self):
        self.parameters = []
        sql, _ = self.any_query()
        kinds, self.parameters = self.parameters, None
        arguments = lambda: ', '.join(self.number() if kind == 'int' else
                                      self.pick([self.colour, self.some_id])() for kind in kinds)
        types = f" ({', '.join('int' if kind == 'int' else 'text' for kind in kinds)})" if kinds else ''
        executions = [Step(f'EXECUTE p({arguments()})' if kinds else 'EXECUTE p')
                      for _ in range(self.pick([1, 3, 7]))]
        executions[-1].explain = executions[-1].sql
        return Case('', [Step(f'PREPARE p{types} AS {sql}')] + executions)

    def cursor_case(self):
        sql, kinds = self.any_query()
        order = ', '.join(str(number + 1) for number in range(len(kinds)))
        scroll = self.pick(['NO SCROLL', 'SCROLL'])
        fetches = ['FETCH 3 FROM c', 'MOVE 2 FROM c', 'FETCH ALL FROM c']
        if scroll == 'SCROLL':
            fetches += [f'FETCH {where} FROM c' for where in ('BACKWARD 4', 'FIRST', 'RELATIVE 3', 'LAST')]
        return Case('', [Step(f'DECLARE c {scroll} CURSOR FOR SELECT * FROM ({sql}) AS q ORDER BY {order}')]
                    + [Step(fetch) for fetch in fetches])

    def view_case(self):
        sql, kinds = self.any_query()
        barrier = self.pick(['', ' WITH (security_barrier)'])
        item = Item('v', {f'x{number + 1}': kind for number, kind in enumerate(kinds)}, [])
        select = f'SELECT * FROM v_new AS v WHERE {self.bool_expr(Scope([item]), 1)}'
        return Case('', [Step(f'CREATE VIEW v_new{barrier} AS {sql}'), Step(select, explain=select)])

    def function_case(self):
        """Reads through a function in SQL or PL/pgSQL."""
        self.cast = True
        sql, kinds = self.any_query()
        self.cast = False
        columns = ', '.join(f'x{number + 1} {SQL_TYPES[kind]}' for number, kind in enumerate(kinds))
        head = (f'CREATE FUNCTION f_new() RETURNS TABLE ({columns}) '
                f'{self.pick(["STABLE", "VOLATILE"])} {self.pick(["", "PARALLEL SAFE"])} ')
        body = self.pick([f'LANGUAGE sql AS $body$ {sql} $body$',
                          f'LANGUAGE sql BEGIN ATOMIC {sql}; END',
                          f'LANGUAGE plpgsql AS $body$ #variable_conflict use_column\n'
                          f'BEGIN RETURN QUERY {sql}; END $body$'])
        call = self.pick(['SELECT * FROM f_new()',
                          'SELECT f.* FROM aux AS t LEFT JOIN f_new() AS f ON t.a = 1',
                          'SELECT count(*) FROM f_new()'])
        return Case('', [Step(head + body), Step(call, explain=call)])

    def stored_case(self):
        """Stores the result of a query, and reads the stored rows."""
        self.cast = True
        sql, _ = self.any_query()
        self.cast = False
        steps = self.pick([
            [f'CREATE MATERIALIZED VIEW m_new AS {sql}',
             'REFRESH MATERIALIZED VIEW m_new', 'SELECT * FROM m_new'],
            [f'CREATE TEMP TABLE t_new AS {sql}', f'INSERT INTO t_new {sql}', 'SELECT * FROM t_new'],
            ['REFRESH MATERIALIZED VIEW m_view', 'SELECT * FROM m_view']])
        case = Case('', [Step(step) for step in steps])
        case.settings.append('role = none')     # only the owner may refresh a materialized view
        return case

    def copy_out_case(self):
        if self.chance(50):
            sql, _ = self.any_query()
            return Case('', [Step(f'COPY ({sql}) TO STDOUT', 'copy_out')])
        table = self.pick([table for table in self.world.readable if not table.partitioned])
        return Case('', [Step(f"COPY {table.name} ({', '.join(COLUMNS)}) TO STDOUT", 'copy_out')])

    # ---- Writing ----

    def target(self):
        self.system_columns = False
        return self.pick(self.world.writable)

    def look(self, *tables):
        """Reads tables, and those that a foreign key connects with them."""
        names = {table.name for table in tables}
        if names & set(FAMILY):
            names |= set(FAMILY)
        return [Step(f"SELECT {', '.join(COLUMNS)} FROM {name}") for name in sorted(names)]

    def writing(self, sql, *tables):
        return Case('', [Step(sql, explain=sql)] + self.look(*tables))

    def returning(self, scope):
        if not self.chance(80):
            return ''
        kinds = self.kinds()
        return f' RETURNING {self.output([self.expression(kind, scope, 1) for kind in kinds], kinds)}'

    def target_scope(self, *more):
        return Scope([Item('t', COLUMNS, ['id'], True), *more])

    def where(self, scope):
        return f' WHERE {self.bool_expr(scope, 2)}' if self.chance(85) else ''

    def id_of(self, table):
        """Chooses an id that is live, expired, or was never used."""
        return f'{table.name}{self.below(len(table.rows) + 20)}'

    def document(self):
        """Makes a document that does not expire during the test."""
        document = {'k': self.below(50), 's': self.pick(COLOURS)}
        if self.chance(40):
            document['ttl'] = self.pick([-1, 500000, None])
        return f"'{json.dumps(document)}'::jsonb"

    def assignments(self, table, scope):
        """Makes a SET list that can be applied to any number of rows."""
        forms = [lambda: f'b = ({self.int_expr(scope, 1)}) % 100',
                 lambda: f'a = {self.below(40)}',
                 lambda: f'c = {self.text_expr(scope, 1)}',
                 lambda: f'doc = t.doc || {self.document()}',
                 lambda: "doc = t.doc - 's'",
                 lambda: "doc = jsonb_set(t.doc, '{o,x}', '5')",
                 lambda: "id = 'x-' || t.id",
                 lambda: f'ref = {self.some_id()}',
                 lambda: 'u = NULL']
        chosen = {}
        for _ in range(1 + self.below(2)):
            text = self.pick(forms)()
            chosen[text.split(' ')[0]] = text
        return ', '.join(chosen.values())

    def update_sql(self, table):
        """Makes an UPDATE, with or without other tables.

        Another table either gives at most one row for each updated row, or is not used in SET.
        """
        form = self.weighted([(5, 'alone'), (3, 'from'), (2, 'any')])
        if form == 'from':
            other = Item('s', COLUMNS, ['id'], True)
            scope = self.target_scope(other)
            return (f'UPDATE {table.name} AS t SET {self.assignments(table, scope)}'
                    f' FROM {self.pick(self.world.readable).name} AS s WHERE s.id = t.ref'
                    f' AND {self.bool_expr(scope, 1)}'), scope
        scope = self.target_scope()
        if form == 'any':
            sql, [other] = self.from_item(1, None)
            condition = self.join_condition(scope.items, other)
            return (f'UPDATE {table.name} AS t SET {self.assignments(table, scope)} FROM {sql}'
                    f' WHERE {condition}'), scope
        return f'UPDATE {table.name} AS t SET {self.assignments(table, scope)}{self.where(scope)}', scope

    def delete_sql(self, table):
        form = self.weighted([(5, 'alone'), (3, 'using'), (2, 'any')])
        if form == 'using':
            scope = self.target_scope(Item('s', COLUMNS, ['id'], True))
            return (f'DELETE FROM {table.name} AS t USING {self.pick(self.world.readable).name} AS s'
                    f' WHERE s.id = t.ref AND {self.bool_expr(scope, 1)}'), scope
        scope = self.target_scope()
        if form == 'any':
            sql, [other] = self.from_item(1, None)
            condition = self.join_condition(scope.items, other)
            return f'DELETE FROM {table.name} AS t USING {sql} WHERE {condition}', scope
        return f'DELETE FROM {table.name} AS t{self.where(scope)}', scope

    def update_case(self):
        table = self.target()
        sql, scope = self.update_sql(table)
        return self.maybe_prepared(sql + self.returning(scope), table)

    def delete_case(self):
        table = self.target()
        sql, scope = self.delete_sql(table)
        return self.maybe_prepared(sql + self.returning(scope), table)

    def maybe_prepared(self, sql, table):
        if not self.chance(20):
            return self.writing(sql, table)
        return Case('', [Step(f'PREPARE p AS {sql}'), Step('EXECUTE p', explain=sql)] + self.look(table))

    def move_case(self):
        """Updates one row to an id or a u that is unused, expired, or taken."""
        table = self.target()
        to = self.pick([f"id = '{self.id_of(table)}'", f'u = {self.below(len(table.rows) + 20)}'])
        sql = f"UPDATE {table.name} AS t SET {to} WHERE t.id = '{self.id_of(table)}' RETURNING t.id, t.u, t.a"
        return self.writing(sql, table)

    def values(self, table):
        """Makes VALUES to insert.  Some rows of "child" have no parent."""
        ref = lambda: f"'parent{self.below(len(table.rows) + 20)}'" if self.chance(50) else 'NULL'
        u = lambda: str(self.below(len(table.rows) + 20)) if self.chance(30) else 'NULL'
        rows = [f"('{self.id_of(table)}', {self.document()}, {self.below(30)}, {self.below(100)},"
                f" '{self.pick(COLOURS)}', {u()}, {ref()})" for _ in range(1 + self.below(4))]
        return 'VALUES ' + ', '.join(rows)

    def on_conflict(self, table):
        scope = self.target_scope(Item('excluded', COLUMNS, ['id'], True))
        target = self.pick(table.conflict)
        forms = ['', ' ON CONFLICT DO NOTHING', f' ON CONFLICT {target} DO NOTHING',
                 f' ON CONFLICT {target} DO UPDATE SET doc = excluded.doc, b = t.b + excluded.b',
                 f' ON CONFLICT {target} DO UPDATE SET b = 7 WHERE {self.bool_expr(scope, 1)}']
        return self.pick(forms)

    def insert_case(self):
        table = self.target()
        sql = (f"INSERT INTO {table.name} AS t ({', '.join(COLUMNS)}) {self.values(table)}"
               f'{self.on_conflict(table)}')
        return self.writing(sql + self.returning(self.target_scope()), table)

    def insert_select_case(self):
        """Inserts the result of a query.

        Either all ids are new, or they are values of ref, each one once and with an ON CONFLICT clause.
        """
        table, source = self.target(), self.pick(self.world.readable)
        scope = Scope([Item('s', COLUMNS, ['id'], True)])
        b = f'({self.int_expr(scope, 2)}) % 100'
        if self.chance(50):
            select = f"SELECT 'n-' || s.id, s.doc, abs(s.a), {b} FROM {source.name} AS s{self.where(scope)}"
            conflict = ''
        else:
            select = (f'SELECT DISTINCT ON (s.ref) s.ref, {self.document()}, 5, s.b FROM {source.name} AS s'
                      f' WHERE s.ref IS NOT NULL AND {self.bool_expr(scope, 1)} ORDER BY s.ref, s.id')
            conflict = self.pick([' ON CONFLICT DO NOTHING', f' ON CONFLICT {table.conflict[0]} DO UPDATE'
                                  ' SET b = excluded.b'])
        # A partition key cannot be null.
        select = select.replace('abs(s.a)', 'coalesce(s.a, 1)')
        sql = f'INSERT INTO {table.name} AS t (id, doc, a, b) {select}{conflict}'
        return self.writing(sql + self.returning(self.target_scope()), table)

    def merge_case(self):
        table = self.target()
        return self.writing(self.merge_sql(table), table)

    def merge_sql(self, table):
        source = Item('s', {'id': 'text', 'n': 'int'}, ['id'])
        scope = self.target_scope(source)
        ids = sorted({self.id_of(table) for _ in range(1 + self.below(8))})
        values = ', '.join(f"('{name}', {self.below(30)})" for name in ids)
        using = self.pick([
            f'(VALUES {values}) AS s (id, n)',
            f'(SELECT x.ref AS id, count(*)::int AS n FROM {self.pick(self.world.readable).name} AS x'
            f' WHERE x.ref IS NOT NULL GROUP BY x.ref) AS s',
            f'(SELECT x.id, coalesce(x.b, 1) AS n FROM {table.name} AS x WHERE x.a < {self.below(20)}) AS s'])
        clauses = self.merge_clauses('WHEN MATCHED', scope, [
            f'UPDATE SET b = s.n, doc = t.doc || {self.document()}', 'DELETE', 'DO NOTHING'])
        clauses += self.merge_clauses('WHEN NOT MATCHED', Scope([source]), [
            f'INSERT (id, doc, a) VALUES (s.id, {self.document()}, s.n)', 'DO NOTHING'])
        returning = ''
        if self.version >= 17:
            if self.chance(30):
                clauses += self.merge_clauses('WHEN NOT MATCHED BY SOURCE', self.target_scope(),
                                              ['UPDATE SET b = 3', 'DELETE'])
            if self.chance(50):
                returning = ' RETURNING merge_action(), t.id, t.a, t.b'
        if not clauses:
            clauses = ['WHEN MATCHED THEN DELETE']
        return f"MERGE INTO {table.name} AS t USING {using} ON t.id = s.id {' '.join(clauses)}{returning}"

    def merge_clauses(self, when, scope, actions):
        clauses = []
        if self.chance(40):
            clauses.append(f'{when} AND {self.bool_expr(scope, 1)} THEN {self.pick(actions)}')
        if self.chance(70):
            clauses.append(f'{when} THEN {self.pick(actions)}')
        return clauses

    def chain_case(self):
        """WITH queries write to two tables, and a query reads their results and the tables."""
        first = self.target()
        second = self.pick([table for table in self.world.writable if table.name != first.name
                            and not {table.name, first.name} <= set(FAMILY)])
        one, _ = self.pick([self.update_sql, self.delete_sql])(first)
        two = self.pick([
            lambda: self.update_sql(second)[0], lambda: self.delete_sql(second)[0],
            lambda: f"INSERT INTO {second.name} AS t (id, doc, a)"
                    f" SELECT 'm-' || w1.id, {self.document()}, abs(coalesce(w1.a, 1)) FROM w1"])()
        last = self.pick([
            'SELECT w1.id, w1.a, w2.id AS id2, w2.a AS a2 FROM w1 FULL JOIN w2 ON w1.a = w2.a',
            f'SELECT t.id, t.b, w1.a FROM {first.name} AS t JOIN w1 ON w1.id = t.id',
            f'SELECT t.id, t.b FROM {second.name} AS t WHERE NOT EXISTS (SELECT FROM w2 WHERE w2.id = t.id)',
            'SELECT count(*) FROM w1'])
        sql = f'WITH w1 AS ({one} RETURNING t.id, t.a), w2 AS ({two} RETURNING t.id, t.a) {last}'
        return self.writing(sql, first, second)

    def copy_in_case(self):
        table = self.target()
        rows = [f'{self.id_of(table)}\t{{"k": {self.below(50)}}}\t{self.below(30)}\n'
                for _ in range(1 + self.below(5))]
        # As the owner: COPY FROM is not allowed where policies apply.
        return Case('', [Step(f'COPY {table.name} (id, doc, a) FROM STDIN', 'copy_in', ''.join(rows))]
                    + self.look(table), ['role = none'])

    def current_of_case(self):
        table = self.target()
        row = self.pick([row for row in table.rows if not row.dead])
        name = row.values['id'] if self.chance(70) else self.id_of(table)
        condition = self.pick([f"t.id = '{name}'", f"t.id = '{name}' AND t.ctid >= '(0,0)'"])
        write = self.pick([f'UPDATE {table.name} SET b = 5, a = 3', f'DELETE FROM {table.name}'])
        lock = self.pick(['', ' FOR UPDATE'])
        steps = [f'DECLARE c CURSOR FOR SELECT t.id, t.a FROM {table.name} AS t WHERE {condition}{lock}',
                 'FETCH c', f'{write} WHERE CURRENT OF c RETURNING id, a, b']
        return Case('', [Step(step) for step in steps] + self.look(table))

    def view_write_case(self):
        self.system_columns = False
        view, table = self.pick([('v_plain', 'docs'), ('v_barrier', 'own')])
        columns = {'id': 'text', 'a': 'int', 'b': 'int', 'c': 'text'}
        scope = Scope([Item('t', columns, ['id'], True)])
        write = self.pick([f'UPDATE {view} AS t SET b = 6, a = {self.below(20)}', f'DELETE FROM {view} AS t'])
        sql = f'{write} WHERE {self.bool_expr(scope, 2)} RETURNING t.id, t.a'
        return self.writing(sql, self.world.table(table))

    def function_write_case(self):
        """A function writes, and then reads the table row by row."""
        table = self.target()
        sql, _ = self.pick([self.update_sql, self.delete_sql])(table)
        body = (f'DECLARE r record; n int := 0; BEGIN {sql}; GET DIAGNOSTICS n = ROW_COUNT;'
                f' FOR r IN SELECT x.id FROM {table.name} AS x LOOP n := n + 1000; END LOOP; RETURN n; END')
        create = f'CREATE FUNCTION f_new() RETURNS int LANGUAGE plpgsql AS $body$ {body} $body$'
        return Case('', [Step(create), Step('SELECT f_new()')] + self.look(table))

    # ---- Two sessions ----

    def meeting_case(self):
        """Another session changes rows and makes some expire; this session waits, and rechecks the rows."""
        busy = self.world.table('busy')
        live = [row.values['id'] for row in busy.rows if not row.dead]
        ended = sorted({self.pick(live) for _ in range(1 + self.below(5))})
        changed = sorted({self.pick(live) for _ in range(self.below(5))} - set(ended))
        self.system_columns = False
        scope = self.target_scope()
        # No KEY SHARE: it waits for the delete in the plain table, but not for the update of the collection.
        forms = [lambda: self.locking_query('busy', ('UPDATE', 'NO KEY UPDATE', 'SHARE')),
                 lambda: self.update_sql(busy)[0] + self.returning(scope),
                 lambda: self.delete_sql(busy)[0] + self.returning(scope)]
        sql = self.pick(forms)()
        case = Case('', [Step(sql, explain=sql)] + self.look(busy), changed=changed, ended=ended)
        if self.chance(15):
            case.isolation = 'REPEATABLE READ'
        return case

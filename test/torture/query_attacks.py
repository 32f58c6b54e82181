"""Cases that try to read expired documents with function calls wherever SQL allows an expression.

The calls are to functions and operators of ttl_docs, of the server and of a user (query_calls.py,
query_spies.py).  The caller is query_guest, who may only read the collections, or a superuser.
The calls are in these places:
- conditions of a scan (first or later), a join, a group, an update, an upsert or a MERGE;
- ORDER BY, RETURNING and the columns of a query;
- policies and views;
- USING, DEFAULT and CHECK in an ALTER TABLE of a table that the guest owns.  The functions there
  run queries.  Some of these imitate the server's own queries that validate a foreign key, which
  must see expired rows.

Each case must give the same answer over plain tables.  The exception is command_case(): its cases
have no counterpart in plain tables, and must only not show the mark of an expired document.
"""
from query_cases import Case, CaseMaker, Step
from query_grammar import Item, Scope
from query_spies import GUEST
from query_world import COLUMNS, SYSTEM_COLUMNS

AS_GUEST = [f'role = {GUEST}']
AS_ADMIN = ['role = none']
LOCK = ' FOR KEY SHARE OF x'
CAUGHT = 'EXCEPTION WHEN others THEN RAISE NOTICE $m$%$m$, SQLERRM;'
SPIED = Step('SELECT * FROM spied')


class AttackMaker(CaseMaker):
    """Makes the cases of CaseMaker and those of this file."""
    sought = None       # the id of a document that may be expired, for checking_query()

    def reading(self):
        return super().reading() + [(36, self.call_case), (4, self.view_call_case), (3, self.text_query_case)]

    def writing_cases(self):
        return super().writing_cases() + [
            (8, self.call_write_case), (4, self.policy_case), (3, self.own_policy_case), (14, self.alter_case),
            (10, self.command_case)]

    # ---- Calls in a query ----

    def any_scope(self, alias='t', but=('aux',)):
        """Returns a table, and a scope for expressions over it."""
        table = self.pick([table for table in self.world.readable if table.name not in but])
        return table, Scope([Item(alias, COLUMNS | SYSTEM_COLUMNS, ['id'], table)])

    def condition(self, scope):
        return self.call('bool', scope) or self.spied(scope.items[0])

    def value(self, scope):
        kind = self.pick(['int', 'json', 'time', 'text'])
        return self.call(kind, scope) or self.condition(scope)

    def call_case(self):
        """A call in one place of a simple query."""
        table, scope = self.any_scope()
        form = self.weighted([(6, self.in_where), (3, self.in_on), (2, self.in_having), (2, self.in_order),
                              (2, self.in_columns), (1, self.in_lock)])
        sql = form(table, scope)
        return Case('', [Step(sql, explain=sql), SPIED])

    def in_where(self, table, scope):
        """Puts the call into WHERE, alone or with another condition before or after it."""
        call = self.condition(scope)
        conditions = self.pick([[call], [call, self.simple_condition(scope)],
                                [self.simple_condition(scope), call], [call, self.condition(scope)]])
        columns = self.pick(['*', 't.id, t.doc', 'count(*)', 't.a, t.id'])
        if columns == '*':
            columns = ', '.join(f't.{name}' for name in COLUMNS | SYSTEM_COLUMNS)
        return f"SELECT {columns} FROM {table.name} AS t WHERE {self.pick([' AND ', ' OR ']).join(conditions)}"

    def in_on(self, table, scope):
        other, others = self.any_scope('s')
        both = Scope(scope.items + others.items)
        join = self.pick(['JOIN', 'LEFT JOIN', 'RIGHT JOIN'])
        conditions = self.pick([['s.id = t.ref', self.condition(both)], [self.condition(both), 's.ref = t.id'],
                                ['s.b = t.b', self.condition(scope), self.condition(others)]])
        return (f'SELECT t.id, s.id AS id2, s.doc FROM {table.name} AS t {join} {other.name} AS s'
                f" ON {' AND '.join(conditions)}")

    def in_having(self, table, scope):
        where = f' WHERE {self.condition(scope)}' if self.chance(30) else ''
        having = self.pick([f'bool_or({self.condition(scope)})', f'every({self.condition(scope)})',
                            f'count(*) FILTER (WHERE {self.condition(scope)}) > {self.below(5)}',
                            f'spy_count(t.doc) > {self.below(20)}'])
        return (f'SELECT t.c, count(*), max(t.id) FROM {table.name} AS t{where} GROUP BY t.c'
                f' HAVING {having}')

    def in_order(self, table, scope):
        return (f'SELECT t.id, t.doc FROM {table.name} AS t ORDER BY {self.value(scope)}'
                f"{self.pick(['', ' DESC', ' NULLS FIRST'])}, t.id LIMIT {1 + self.below(30)}")

    def in_columns(self, table, scope):
        value = self.value(scope)
        columns = self.pick([f't.id, {value} AS x', f'DISTINCT {value} AS x', f'count(DISTINCT {value}) AS x',
                             f't.id, CASE WHEN {self.condition(scope)} THEN t.doc END AS x',
                             f't.id, count(*) OVER (PARTITION BY {value}) AS x'])
        return f'SELECT {columns} FROM {table.name} AS t'

    def in_lock(self, table, scope):
        return f'SELECT t.id, t.doc FROM {table.name} AS t WHERE {self.condition(scope)} FOR SHARE'

    def view_call_case(self):
        table, scope = self.any_scope()
        barrier = self.pick(['', ' WITH (security_barrier)'])
        names = ', '.join(f't.{name}' for name in COLUMNS | SYSTEM_COLUMNS)
        select = f'SELECT t.id, t.doc FROM v_new AS t WHERE {self.condition(scope)}'
        return Case('', [Step(f'CREATE VIEW v_new{barrier} AS SELECT {names} FROM {table.name} AS t'
                              f' WHERE {self.condition(scope)}'),
                         Step(select, explain=select), SPIED])

    def text_query_case(self):
        """Functions of the server that read a query or a table which is given as text."""
        table, scope = self.any_scope()
        query = f'SELECT t.doc FROM {table.name} AS t WHERE {self.condition(scope)}'
        sql = self.pick([
            f"SELECT word, ndoc FROM ts_stat($q$SELECT to_tsvector('simple', q.doc) FROM ({query}) AS q$q$)",
            f"SELECT cardinality(xpath('//row', query_to_xml($q${query}$q$, true, false, '')))",
            f"SELECT cardinality(xpath('//row', table_to_xml('{table.name}', true, false, '')))",
            f"SELECT strpos(table_to_xml('{table.name}', true, true, '')::text, 'mark-of')"])
        return Case('', [Step(sql), SPIED])

    # ---- Calls in writes ----

    def call_write_case(self):
        table = self.pick(self.world.writable)
        scope = Scope([Item('t', COLUMNS | SYSTEM_COLUMNS, ['id'], table)])
        new = Scope([Item('t', COLUMNS, ['id'], table)])        # a new row has a different _ts on each side
        returning = f' RETURNING t.id, {self.value(new)} AS x'
        source = f"(VALUES ('{self.id_of(table)}', 1), ('{self.id_of(table)}x', 2)) AS s (id, n)"
        sql = self.pick([
            lambda: f'UPDATE {table.name} AS t SET b = 5 WHERE {self.condition(scope)}{returning}',
            lambda: f'DELETE FROM {table.name} AS t WHERE {self.condition(scope)}{returning}',
            lambda: f"INSERT INTO {table.name} AS t ({', '.join(COLUMNS)}) {self.values(table)} ON CONFLICT"
                    f' {table.conflict[0]} DO UPDATE SET b = 3 WHERE {self.condition(new)}{returning}',
            lambda: f'MERGE INTO {table.name} AS t USING {source} ON t.id = s.id AND {self.condition(scope)}'
                    f' WHEN MATCHED AND {self.condition(scope)} THEN UPDATE SET b = s.n'
                    ' WHEN NOT MATCHED AND s.n < 0 THEN DO NOTHING'])()
        return Case('', [Step(sql, explain=sql)] + self.look(table) + [SPIED], AS_ADMIN)

    # ---- Policies ----

    def policy_case(self):
        """The owner's policy has a call, and the guest reads the table."""
        # s_refers() reads "own", so in a policy of "own" it would call itself.
        table, scope = self.any_scope('t', ('aux', 'own'))
        column = Scope([Item(table.name, COLUMNS | SYSTEM_COLUMNS, ['id'], table)])
        select = f'SELECT t.id, t.doc FROM {table.name} AS t'
        if self.chance(50):
            select += f' WHERE {self.condition(scope)}'
        return Case('', [Step(f'ALTER TABLE {table.name} ENABLE ROW LEVEL SECURITY'),
                         Step(f'CREATE POLICY p_new ON {table.name} USING ({self.condition(column)})'),
                         Step(f'SET LOCAL ROLE {GUEST}'), Step(select, explain=select), SPIED], AS_ADMIN)

    def own_policy_case(self):
        """The guest reads its own table, whose policy reads a collection."""
        table, scope = self.any_scope()
        names = ', '.join(f't.{name}' for name in COLUMNS)
        exists = f'EXISTS (SELECT FROM {table.name} AS t WHERE t.id = t_new.id AND {self.condition(scope)})'
        return Case('', [Step(f'CREATE TABLE t_new AS SELECT {names} FROM {table.name} AS t'),
                         Step('ALTER TABLE t_new ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY'),
                         Step(f'CREATE POLICY p_new ON t_new USING ({exists})'),
                         Step('SELECT t.id, t.doc FROM t_new AS t'), SPIED], AS_GUEST)

    # ---- ALTER TABLE ----

    def alter_case(self):
        """ALTER TABLE of a table that the guest owns evaluates expressions that read collections."""
        form = self.weighted([(4, self.using), (4, self.default), (3, self.check), (2, self.nested),
                              (2, self.folded), (2, self.action), (1, self.stored_call)])
        commands = form()
        function = self.new_function(['IMMUTABLE'] if form == self.folded else ['VOLATILE', 'STABLE'],
                                     form in (self.folded, self.stored_call))
        find = f"UPDATE my_fk SET id = '{self.sought}'"
        steps = [find, function, *commands, 'SELECT * FROM mine']
        return Case('', [Step(step) for step in steps] + [SPIED], self.pick([AS_GUEST, AS_GUEST, AS_ADMIN]))

    def new_value(self):
        return self.pick(['f_new()', "coalesce(f_new(), 'red')", "CASE WHEN n > 1 THEN f_new() ELSE 'red' END"])

    def new_key(self, columns):
        """Returns a new constraint, for which the server scans the table again."""
        column = self.pick(columns)
        return self.pick([f'ADD FOREIGN KEY ({column}) REFERENCES my_pk', 'ADD CHECK (n > 0)'])

    def using(self):
        more = self.pick(['', f', {self.new_key(["x"])}'])
        return [f'ALTER TABLE mine ALTER x TYPE text USING {self.new_value()}{more}']

    def default(self):
        default = self.pick(['f_new()', "coalesce(f_new(), 'red')"])
        more = self.pick([f', {self.new_key(["y", "x"])}', ' REFERENCES my_pk', ''])
        return [f'ALTER TABLE mine ADD COLUMN y text DEFAULT {default}{more}']

    def check(self):
        condition = self.pick([f'{self.new_value()} IS DISTINCT FROM x', f"{self.new_value()} <> 'none'"])
        return self.pick([
            [f'ALTER TABLE mine ADD CHECK ({condition}), {self.new_key(["x"])}'],
            [f'ALTER TABLE mine ADD CONSTRAINT k CHECK ({condition}) NOT VALID',
             'ALTER TABLE mine VALIDATE CONSTRAINT k'],
            [f'ALTER TABLE mine ADD CHECK ({condition})',
             'ALTER TABLE my_parts ATTACH PARTITION mine FOR VALUES IN (1, 2, 3)']])

    def nested(self):
        """ALTER TABLE runs a function that reads, runs another ALTER TABLE, and reads again."""
        inner = self.pick(['ALTER x TYPE text USING f_new()', 'ALTER x SET NOT NULL'])
        return ['CREATE FUNCTION f_outer() RETURNS text LANGUAGE plpgsql AS $outer$ BEGIN'
                f' PERFORM f_new(); ALTER TABLE my_other {inner}; RETURN f_new(); END $outer$',
                'ALTER TABLE mine ALTER x TYPE text USING f_outer()']

    def action(self):
        """The server runs the function in the action of a foreign key."""
        action = self.pick(['SET DEFAULT', 'CASCADE', 'SET NULL'])
        piece = self.pick([
            ['ALTER TABLE my_fk ALTER k SET DEFAULT f_new()'],
            ['CREATE FUNCTION f_trigger() RETURNS trigger LANGUAGE plpgsql AS'
             ' $t$ BEGIN INSERT INTO my_other VALUES (f_new()); RETURN coalesce(new, old); END $t$',
             'CREATE TRIGGER t BEFORE UPDATE OR DELETE ON my_fk FOR EACH ROW EXECUTE FUNCTION f_trigger()'],
            ['CREATE RULE r AS ON DELETE TO my_fk DO ALSO INSERT INTO my_other SELECT f_new()',
             'CREATE RULE r2 AS ON UPDATE TO my_fk DO INSTEAD UPDATE my_other SET x = f_new()']])
        return ['ALTER TABLE my_fk DROP CONSTRAINT my_fk_k_fkey',
                f'ALTER TABLE my_fk ADD FOREIGN KEY (k) REFERENCES my_pk ON DELETE {action}', *piece,
                "DELETE FROM my_pk WHERE k = 'red'", 'SELECT k FROM my_fk', 'SELECT * FROM my_other']

    def folded(self):
        """The planner calls the function while it plans the server's own check of a foreign key."""
        piece = self.pick(["ALTER TABLE mine ADD CHECK (f_new() || x <> 'none')",
                           'CREATE INDEX ON mine ((f_new() || x))',
                           'CREATE INDEX ON mine (x) WHERE f_new() <> x',
                           'ALTER TABLE mine ADD COLUMN y text GENERATED ALWAYS AS (f_new() || x) STORED'])
        return ['SET LOCAL constraint_exclusion = on', piece,
                'ALTER TABLE mine ADD FOREIGN KEY (x) REFERENCES my_pk', 'SELECT x FROM mine ORDER BY x']

    def stored_call(self):
        return [f'CREATE MATERIALIZED VIEW m_new AS SELECT n, {self.new_value()} AS x FROM mine',
                'REFRESH MATERIALIZED VIEW m_new', 'SELECT * FROM m_new']

    def new_function(self, volatilities, keeps_path):
        """Creates a function that returns a text from a query over collections.

        keeps_path is for functions in indexes and materialized views, which the server may build with
        another search_path than the caller's.
        """
        sql = self.weighted([(6, self.checking_query), (2, self.parent_query), (3, self.one_value),
                             (2, self.spied_value)])()
        volatility = self.pick(volatilities)
        if volatility != 'VOLATILE':
            sql = sql.removesuffix(LOCK)
        path = 'SET search_path FROM CURRENT ' if keeps_path else ''
        return f'CREATE FUNCTION f_new() RETURNS text {volatility} {path}' + self.weighted([
            (4, f'LANGUAGE sql AS $body$ {sql} $body$'),
            (2, f'LANGUAGE sql BEGIN ATOMIC {sql}; END'),
            (2, f'LANGUAGE plpgsql AS $body$ BEGIN RETURN ({sql}); END $body$')])

    def checking_query(self):
        """Imitates the query by which the server finds children without a parent."""
        table, scope = self.any_scope('pk')
        one = self.pick(['pk.doc <~ fk.k', 'fk.k ~> pk.doc', 'pk.doc::spy_enum = fk.e', 'pk.a <~ 3',
                         'pk.id = fk.id', 'pk.doc @> fk.d', 's_first(pk.doc)', self.condition(scope)])
        more = self.pick(['', '', f' AND {self.condition(scope)}', ' AND fk.k IS NOT NULL'])
        where = self.pick(['pk.id IS NULL', 'pk.id IS NULL AND fk.k IS NOT NULL', 'pk.doc IS NULL',
                           'pk.id IS NULL AND (fk.k IS NOT NULL)'])
        only = self.pick(['ONLY ', ''])
        name = self.pick(['hashed', 'hashed_1']) if table.name == 'hashed' else table.name
        self.sought = self.id_of(table)
        return f'SELECT fk.k FROM ONLY my_fk fk LEFT OUTER JOIN {only}{name} pk ON ({one}{more}) WHERE {where}'

    def parent_query(self):
        """Imitates the query by which the server finds the parent of one child."""
        table, scope = self.any_scope('x')
        lock = self.pick(['', LOCK])
        condition = self.pick(["x.doc <~ 'red'", self.condition(scope)])
        return f"SELECT '1'::text FROM ONLY {table.name} x WHERE {condition}{lock}"

    def one_value(self):
        """Returns a query for the largest value of a random query."""
        self.cast = True
        sql = self.query(['text'], 2)
        self.cast = False
        return f'SELECT max(q.x1) FROM ({sql}) AS q'

    def spied_value(self):
        table, scope = self.any_scope()
        return f"SELECT max(t.c) FROM {table.name} AS t WHERE {self.condition(scope)}"

    # ---- Commands ----

    def command_case(self):
        """Queries call functions that change something; afterwards a query reads a table."""
        table = self.pick(self.world.readable)
        commands = [self.command(table, True) for _ in range(self.below(3))] + [self.command(table, False)]
        steps = [Step(command) for command in commands]
        if commands[-1].startswith('DO'):
            steps.append(Step(f'SELECT x.* FROM {table.name} AS x'))
        return Case('', steps + [SPIED], self.pick([AS_ADMIN, AS_GUEST]), alone=True)

    def command(self, table, goes_on):
        """Returns a query that calls such a function, or a block that calls it and catches its error."""
        call = self.pick(self.calls.commands)
        text = call.text(self.hostile_arguments(call))
        if call.is_procedure:
            return f'DO $do$ BEGIN CALL {text}; {CAUGHT} END $do$'
        if call.result == 'record':
            text = f'(SELECT to_jsonb(r) FROM {text} AS r)'
        from_table = f'FROM {table.name} AS t'
        no_table = f'FROM (VALUES ({self.some_id()}, NULL, 1, NULL::jsonb)) AS t (id, ref, a, doc)'
        sql = self.pick([f'SELECT t.id, t.doc, {text}::text {from_table} ORDER BY t.id LIMIT 3',
                         f'SELECT t.id, t.doc {from_table} WHERE {text} IS NOT NULL',
                         f'SELECT t.doc {from_table} ORDER BY {text}::text LIMIT 5',
                         f'SELECT t.doc, {text}::text {from_table} WHERE t.id = {self.some_id()} FOR UPDATE',
                         f'SELECT {text}::text {no_table}'])
        if not goes_on and self.chance(70):
            return sql
        return ('DO $do$ DECLARE r record; BEGIN'
                f' FOR r IN {sql} LOOP RAISE NOTICE $m$%$m$, r; END LOOP; {CAUGHT} END $do$')

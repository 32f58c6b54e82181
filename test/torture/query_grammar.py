"""Random SELECTs over the relations of a world.

The grammar knows the types of columns (int, text, json, time), so its queries are valid.
Each query has one correct answer, whatever the plan:
- LIMIT, DISTINCT ON, and window functions and aggregates that depend on an order get a
  total order.
- There are no floating point numbers, whose sums depend on the order of rows.
- No expression can fail for a live row.  Some fail for expired rows: see query_world.py.

Any expression can be a call of a function or operator (query_calls.py).  The first
alternative of each choice is the simplest (query_choices.py).
"""
from query_calls import CallGrammar
from query_world import COLOURS

TYPES = ['int', 'text', 'json']
SQL_TYPES = {'int': 'bigint', 'text': 'text', 'json': 'jsonb', 'time': 'timestamptz'}
COMPARISONS = ['=', '<', '>', '<=', '>=', '<>']


class Item:
    """An item of FROM: its alias, columns and key, and its table, if it is one."""

    def __init__(self, alias, columns, key, base=None):
        self.alias = alias
        self.columns = columns
        self.key = [f'{alias}.{name}' for name in key]
        self.base = base


class Scope:
    """The names that an expression can use: items of this query and of outer queries, and WITH queries."""

    def __init__(self, items=(), outer=None, ctes=()):
        self.items = list(items)
        self.outer = outer
        self.ctes = list(ctes)

    def columns(self, wanted):
        return [f'{item.alias}.{name}' for item in self.items
                for name, kind in item.columns.items() if kind == wanted]

    def inside(self):
        """Returns the scope of a sub-query."""
        return Scope((), self, self.ctes)

    def alone(self):
        """Returns this scope without outer queries, because an aggregate over them would belong to them."""
        return Scope(self.items, None, self.ctes)

    def key(self):
        return [column for item in self.items for column in item.key]


class Grammar(CallGrammar):
    def __init__(self, choices, world, calls):
        self.below, self.chance = choices.below, choices.chance
        self.pick, self.weighted = choices.pick, choices.weighted
        self.world = world
        self.calls = calls          # functions and operators to call
        self.aliases = 0
        self.parameters = None      # types of the parameters of a prepared statement, None outside of one
        self.cast = False           # cast columns to exactly the types of SQL_TYPES
        self.system_columns = True  # queries may read the system columns

    def alias(self, prefix='t'):
        self.aliases += 1
        return f'{prefix}{self.aliases}'

    # ---- Constants ----

    def parameter(self, kind, text):
        """Returns the constant, or a parameter in its place."""
        if self.parameters is None or not self.chance(60):
            return text
        self.parameters.append(kind)
        return f'${len(self.parameters)}'

    def number(self, limit=100):
        return self.parameter('int', str(self.below(limit)))

    def some_id(self):
        return self.parameter('text', f"'{self.pick(self.world.ids)}'::text")

    def colour(self):
        return self.parameter('text', f"'{self.pick(COLOURS)}'::text")

    # ---- Expressions ----

    def expression(self, kind, scope, depth):
        if depth > 0 and self.chance(8):
            call = self.call(kind, scope)
            if call:
                return call
        return {'int': self.int_expr, 'text': self.text_expr, 'json': self.json_expr,
                'time': self.time_expr}[kind](scope, depth)

    def column(self, kind, scope):
        """Chooses a column of that type, mostly of this query and sometimes of an outer one."""
        while scope is not None:
            columns = scope.columns(kind)
            if columns and not (scope.outer is not None and self.chance(30)):
                return self.pick(columns)
            scope = scope.outer
        return None

    def base_column(self, name, scope):
        """Returns that column of a table in FROM, or None."""
        items = [item for item in scope.items if item.base and name in item.columns]
        return f'{self.pick(items).alias}.{name}' if items else None

    def int_expr(self, scope, depth):
        column = self.column('int', scope)
        if depth <= 0:
            return column or self.number()
        form = self.weighted([
            (12, 'column'), (3, 'constant'), (3, 'sum'), (2, 'coalesce'), (3, 'document'), (2, 'length'),
            (2, 'case'), (2, 'poison'), (3, 'subquery'), (1, 'function')])
        doc = self.base_column('doc', scope)
        if form == 'sum':
            return f'({self.int_expr(scope, depth - 1)} + {self.int_expr(scope, depth - 1)})'
        if form == 'coalesce':
            return f'coalesce({self.int_expr(scope, depth - 1)}, {self.number()})'
        if form == 'document' and doc:
            return f"({doc} ->> 'k')::int"
        if form == 'length':
            return f'length({self.text_expr(scope, depth - 1)})'
        if form == 'case':
            return (f'CASE WHEN {self.bool_expr(scope, depth - 1)} THEN {self.int_expr(scope, depth - 1)}'
                    f' ELSE {self.int_expr(scope, depth - 1)} END')
        if form == 'poison':
            poisoned = self.poisoned(scope)
            if poisoned:
                return poisoned
        if form == 'subquery':
            return f'({self.scalar("int", scope, depth - 1)})'
        if form == 'function':
            return self.pick([f'f_count({self.text_expr(scope, depth - 1)})', f'f_max({self.number(20)})'])
        return self.number() if form == 'constant' or column is None else column

    def poisoned(self, scope):
        """Makes an expression that fails for some expired rows."""
        a, doc = self.base_column('a', scope), self.base_column('doc', scope)
        forms = ([f'(1000 / ({a} + 777))'] if a else []) + ([f"({doc} ->> 'p')::int"] if doc else [])
        return self.pick(forms) if forms else None

    def text_expr(self, scope, depth):
        column = self.column('text', scope)
        if depth <= 0:
            return column or self.colour()
        form = self.weighted([(12, 'column'), (2, 'constant'), (2, 'lower'), (2, 'concatenate'),
                              (3, 'document'), (1, 'digest'), (2, 'subquery'), (1, 'coalesce')])
        doc = self.base_column('doc', scope)
        if form == 'lower':
            return f'lower({self.text_expr(scope, depth - 1)})'
        if form == 'concatenate':
            return f"({self.text_expr(scope, depth - 1)} || '-' || {self.text_expr(scope, depth - 1)})"
        if form == 'document' and doc:
            return f"({doc} ->> 's')"
        if form == 'digest':
            return f'md5({self.json_expr(scope, depth - 1)}::text)'
        if form == 'subquery':
            return f'({self.scalar("text", scope, depth - 1)})'
        if form == 'coalesce':
            return f'coalesce({self.text_expr(scope, depth - 1)}, {self.colour()})'
        return self.colour() if form == 'constant' or column is None else column

    def json_expr(self, scope, depth):
        column = self.column('json', scope)
        if column is None or (depth > 0 and self.chance(20)):
            return f"jsonb_build_object('k', {self.int_expr(scope, depth - 1)})"
        if depth > 0 and self.chance(30):
            return f"({column} -> '{self.pick(['o', 'tags', 's'])}')"
        return column

    def time_expr(self, scope, depth):
        return self.column('time', scope) or "'2001-01-01'::timestamptz"

    def scalar(self, kind, scope, depth):
        """Makes a sub-query that returns one row, mostly with an aggregate."""
        if self.chance(25):
            return self.select([kind], depth, scope, limit=1)
        inside, where = self.from_where(depth, scope)
        local = inside.alone()
        value = self.expression(kind, local, 0)
        aggregates = {'int': ['count(*)', f'max({value})', f'min({value})', f'sum({value})'],
                      'text': [f'max({value})', f'min({value})',
                               f"string_agg({value}, ',' ORDER BY {value})"]}
        return f'SELECT {self.pick(aggregates[kind])} {where}'

    # ---- Conditions ----

    def bool_expr(self, scope, depth):
        if depth <= 0:
            return self.simple_condition(scope)
        form = self.weighted([(12, 'simple'), (4, 'and'), (4, 'or'), (2, 'not'), (3, 'exists'), (3, 'in'),
                              (2, 'any'), (3, 'compare')])
        if form in ('and', 'or'):
            return f'({self.bool_expr(scope, depth - 1)} {form.upper()} {self.bool_expr(scope, depth - 1)})'
        if form == 'not':
            return f'NOT ({self.bool_expr(scope, depth - 1)})'
        if form == 'exists':
            inside, where = self.from_where(depth - 1, scope)
            return f'{self.pick(["", "NOT "])}EXISTS (SELECT {where})'
        if form == 'in':
            kind = self.pick(['int', 'text'])
            return (f'{self.expression(kind, scope, 0)} {self.pick(["", "NOT "])}'
                    f'IN ({self.select([kind], depth - 1, scope)})')
        if form == 'any':
            return (f'{self.int_expr(scope, 0)} {self.pick(COMPARISONS)} {self.pick(["ANY", "ALL"])}'
                    f' ({self.select(["int"], depth - 1, scope)})')
        if form == 'compare':
            kind = self.pick(['int', 'text'])
            operator = self.pick(COMPARISONS + ['IS DISTINCT FROM'])
            one, other = (self.expression(kind, scope, depth - 1) for _ in range(2))
            return f'{one} {operator} {other}'
        return self.simple_condition(scope)

    def simple_condition(self, scope):
        """Makes a condition that an index may serve."""
        item = self.pick(scope.items) if scope.items else None
        if item is None or not item.base:
            return self.comparison(scope)
        alias = item.alias
        forms = [lambda: self.comparison(scope),
                 lambda: f'{alias}.id = {self.some_id()}',
                 lambda: f'{alias}.id IN ({self.some_id()}, {self.some_id()}, {self.some_id()})',
                 lambda: f'{alias}.a {self.pick(COMPARISONS)} {self.number(20)}',
                 lambda: f'{alias}.b BETWEEN {self.number(50)} AND {self.number()}',
                 lambda: f'({alias}.a = {self.number(20)} OR {alias}.b = {self.number()})',
                 lambda: f'{alias}.a IN ({self.number(20)}, {self.number(20)}, {self.number(20)})',
                 lambda: f'{alias}.c = {self.colour()}',
                 lambda: f'{alias}.{self.pick(["a", "b", "c"])} IS {self.pick(["", "NOT "])}NULL',
                 lambda: self.call('bool', scope) or self.comparison(scope),
                 lambda: self.spied(item) or self.comparison(scope)]
        if 'ref' in item.columns:
            forms += [lambda: f'lower({alias}.c) = lower({self.colour()})',
                      lambda: f'{alias}.ref = {self.some_id()}',
                      lambda: f'{alias}.u < {self.number(200)}',
                      lambda: f"({alias}.doc ->> 'k')::int = {self.number(50)}",
                      lambda: f"{alias}.doc @> '{{\"k\": {self.below(50)}}}'",
                      lambda: f"{alias}.doc @> '{{\"tags\": [\"{self.pick(COLOURS)}\"]}}'",
                      lambda: f"{alias}.doc @? '$.o.x ? (@ > {self.below(10)})'",
                      lambda: f"{alias}.doc ? '{self.pick(['ttl', 'again', 's'])}'"]
        if '_ts' in item.columns:
            forms += [lambda: f'{alias}._ttl {self.pick(["IS NULL", "> 100000", "= -1"])}',
                      lambda: f"{alias}._ts < '{self.pick(['2001-01-01', '2999-01-01'])}'"]
        poisoned = self.poisoned(scope)
        if poisoned:
            forms.append(lambda: f'{poisoned} {self.pick(COMPARISONS)} {self.number(50)}')
        return self.pick(forms)()

    def comparison(self, scope):
        if self.chance(30):
            return f'{self.text_expr(scope, 0)} {self.pick(COMPARISONS)} {self.colour()}'
        return f'{self.int_expr(scope, 0)} {self.pick(COMPARISONS)} {self.number()}'

    def spied(self, item):
        """Makes a condition that passes the document to a domain or a cast of a user."""
        if 'doc' not in item.columns:
            return None
        return self.pick([f'({item.alias}.doc::spy_domain IS NOT NULL)', f"{item.alias}.doc::spy_enum = 'odd'"])

    # ---- FROM ----

    def from_where(self, depth, outer):
        """Makes FROM and WHERE of a query; returns its scope and the text."""
        sql, items = self.from_clause(depth, outer)
        scope = Scope(items, outer, outer.ctes if outer else ())
        if not self.chance(70):
            return scope, f'FROM {sql}'
        return scope, f'FROM {sql} WHERE {self.bool_expr(scope, depth)}'

    def from_clause(self, depth, outer):
        sql, items = self.from_item(depth, outer)
        for _ in range(self.weighted([(5, 0), (4, 1), (2, 2)]) if depth > 0 else 0):
            sql, items = self.join(sql, items, depth - 1, outer)
        return sql, items

    def join(self, left, items, depth, outer):
        kind = self.weighted([(4, 'JOIN'), (3, 'LEFT JOIN'), (2, 'RIGHT JOIN'), (2, 'FULL JOIN'),
                              (2, 'JOIN LATERAL'), (2, 'LEFT JOIN LATERAL'), (1, 'CROSS JOIN')])
        scope = Scope(items, outer, outer.ctes if outer else ())
        if kind.endswith('LATERAL'):
            right, item = self.derived(depth, scope)
        elif kind == 'CROSS JOIN':
            right, item = self.small_item(outer)
            return f'{left} CROSS JOIN {right}', items + [item]
        else:
            right, [item] = self.from_item(depth, outer)
        condition = self.join_condition(items, item)
        both = Scope(items + [item], outer, scope.ctes)
        if kind != 'FULL JOIN' and self.chance(25):
            condition += f' AND {self.bool_expr(both, min(depth, 1))}'
        return f'{left} {kind} {right} ON {condition}', items + [item]

    def join_condition(self, items, item):
        """Makes an equality, preferably of columns with many values."""
        likely = (('ref', 'id'), ('id', 'ref'), ('b', 'b'), ('u', 'u'), ('a', 'a'), ('id', 'id'))
        pairs = []
        for other in items:
            pairs += [f'{other.alias}.{one} = {item.alias}.{two}'
                      for one, two in likely if one in other.columns and two in item.columns]
        if pairs and self.chance(85):
            return self.pick(pairs)
        here, there = Scope(items), Scope([item])
        both = [kind for kind in ('int', 'text', 'json') if here.columns(kind) and there.columns(kind)]
        if not both:
            return '1 = 1'
        return f'{self.column(both[0], here)} = {self.column(both[0], there)}'

    def small_item(self, outer):
        """Makes an item with at most two rows, which can be joined with any other."""
        alias = self.alias('v')
        if self.chance(40):
            return (f'(SELECT max(x.a) AS n, max(x.id) AS s FROM {self.pick(self.world.readable).name} AS x)'
                    f' AS {alias}', Item(alias, {'n': 'int', 's': 'text'}, ['n', 's']))
        rows = ', '.join(f'({self.number()}, {self.some_id()})' for _ in range(2))
        return f'(VALUES {rows}) AS {alias} (n, s)', Item(alias, {'n': 'int', 's': 'text'}, ['n', 's'])

    def from_item(self, depth, outer):
        form = self.weighted([(10, 'table'), (2, 'view'), (2, 'sample'), (3, 'ctid'), (1, 'function'),
                              (1, 'values'), (4, 'derived'), (4, 'with'), (1, 'documents')])
        ctes = outer.ctes if outer else ()
        if form == 'with' and ctes:
            cte = self.pick(ctes)
            alias = self.alias()
            return f'{cte.alias} AS {alias}', [Item(alias, cte.columns, list(cte.columns))]
        if form == 'view':
            return self.relation_item(self.pick(self.world.views))
        if form == 'function':
            return self.relation_item(self.pick(self.world.functions), f'({self.below(20)})')
        if form == 'values':
            sql, item = self.small_item(outer)
            return sql, [item]
        if form == 'documents':
            alias = self.alias()
            return (f"ttl_docs.documents({self.collection(None, True)}, {self.pick(['NULL', self.filter()])})"
                    f' AS {alias} (doc)', [Item(alias, {'doc': 'json'}, ['doc'])])
        if form == 'derived' and depth > 0:
            sql, item = self.derived(depth - 1, Scope((), None, ctes))
            return sql, [item]
        table = self.pick(self.world.readable)
        if form == 'ctid':
            return self.ctid_item(table)
        sample = ' TABLESAMPLE ' + self.pick(['SYSTEM', 'BERNOULLI']) + ' (100)' if form == 'sample' else ''
        return self.relation_item(table, after=sample)

    def filter(self):
        return f"'{{\"k\": {self.below(50)}}}'"

    def readable_columns(self, relation):
        return {name: kind for name, kind in relation.columns.items()
                if self.system_columns or not name.startswith('_')}

    def relation_item(self, relation, arguments='', after=''):
        alias = self.alias()
        base = relation if {'id', 'a', 'b', 'c'} <= relation.columns.keys() else None
        return (f'{relation.name}{arguments} AS {alias}{after}',
                [Item(alias, self.readable_columns(relation), relation.key, base)])

    def ctid_item(self, table):
        """Makes an item that reads a table by ctid.

        It reads all rows, or, if ctids are unique in the table, also those that match a condition.
        """
        alias = self.alias()
        columns = self.readable_columns(table)
        names = ', '.join(f'x.{name}' for name in columns)
        forms = [f"FROM {table.name} AS x WHERE x.ctid >= '(0,0)'",
                 f"FROM {table.name} AS x WHERE x.ctid > '(0,0)' AND x.ctid < '(999999,1)'",
                 f'FROM {table.name} AS x WHERE x.ctid = ANY (ARRAY(SELECT tid FROM public.tids))',
                 f'FROM public.tids AS y JOIN {table.name} AS x ON x.ctid = y.tid']
        if not table.partitioned:
            forms.append(f'FROM {table.name} AS x WHERE x.ctid IN (SELECT y.ctid FROM {table.name} AS y'
                         f' WHERE y.a < {self.number(20)})')
        return f'(SELECT {names} {self.pick(forms)}) AS {alias}', [Item(alias, columns, table.key, table)]

    def derived(self, depth, outer):
        kinds = [self.pick(TYPES) for _ in range(1 + self.below(3))]
        alias = self.alias('d')
        sql = self.select(kinds, depth, outer, limit=self.pick([None, None, 10]))
        columns = {f'x{number + 1}': kind for number, kind in enumerate(kinds)}
        return f'({sql}) AS {alias}', Item(alias, columns, list(columns))

    # ---- SELECT ----

    def select(self, kinds, depth, outer, limit=None):
        """Makes a query with columns x1, x2, ... of these types.  limit is the maximum number of rows."""
        form = self.weighted([(10, self.plain), (3, self.distinct), (5, self.grouped), (3, self.windowed),
                              (3 if depth > 0 else 0, self.combined), (2, self.distinct_on)])
        sql = form(kinds, depth, outer)
        if limit is None and self.chance(20):
            limit = 1 + self.below(20)
        if limit is None:
            return sql
        order = ', '.join(str(number + 1) for number in range(len(kinds)))
        if form == self.distinct_on:
            sql = f'SELECT * FROM ({sql}) AS o'
        if limit > 1 and self.chance(20):
            return f'{sql} ORDER BY {order} FETCH FIRST {limit} ROWS WITH TIES'
        direction = self.pick(['', ' DESC'])
        offset = f' OFFSET {self.below(4)}' if self.chance(25) else ''
        return f'{sql} ORDER BY {order}{direction} LIMIT {limit}{offset}'

    def output(self, expressions, kinds):
        """Makes the select list, with column names."""
        if self.cast:
            expressions = [f'({text})::{SQL_TYPES[kind]}' for text, kind in zip(expressions, kinds)]
        return ', '.join(f'{text} AS x{number + 1}' for number, text in enumerate(expressions))

    def expressions(self, kinds, scope, depth):
        return [self.expression(kind, scope, min(depth, 2)) for kind in kinds]

    def plain(self, kinds, depth, outer, distinct=''):
        scope, where = self.from_where(depth, outer)
        return f'SELECT {distinct}{self.output(self.expressions(kinds, scope, depth), kinds)} {where}'

    def distinct(self, kinds, depth, outer):
        return self.plain(kinds, depth, outer, 'DISTINCT ')

    def distinct_on(self, kinds, depth, outer):
        order = ', '.join(str(number + 1) for number in range(len(kinds)))
        return f'{self.plain(kinds, depth, outer, "DISTINCT ON (1) ")} ORDER BY {order}'

    def combined(self, kinds, depth, outer):
        operator = self.pick(['UNION ALL', 'UNION', 'INTERSECT', 'EXCEPT', 'INTERSECT ALL', 'EXCEPT ALL'])
        one, other = (self.select(kinds, depth - 1, outer) for _ in range(2))
        return f'SELECT * FROM (({one}) {operator} ({other})) AS {self.alias("u")}'

    def windowed(self, kinds, depth, outer):
        scope, where = self.from_where(depth, outer)
        order = ', '.join(scope.key())
        partition = f'PARTITION BY {self.text_expr(scope, 0)} ' if self.chance(60) else ''
        over = f'OVER ({partition}ORDER BY {order})'
        value = self.int_expr(scope, 0)
        windows = [f'row_number() {over}', f'count(*) {over}', f'sum({value}) {over}', f'rank() {over}',
                   f'lag({value}) {over}', f'ntile(3) {over}', f'first_value({value}) {over}',
                   f'sum({value}) OVER ({partition}ORDER BY {order} ROWS 2 PRECEDING)',
                   f'count(*) OVER ({partition.strip()})']
        outputs = [self.pick(windows) if kind == 'int' else self.expression(kind, scope, 1) for kind in kinds]
        return f'SELECT {self.output(outputs, kinds)} {where}'

    def grouped(self, kinds, depth, outer):
        """Makes a query with aggregates.  Columns without an aggregate are in GROUP BY."""
        scope, where = self.from_where(depth, outer)
        local = scope.alone()
        groups, outputs = [], []
        for number, kind in enumerate(kinds):
            if self.chance(50):
                outputs.append(self.aggregate(kind, local, depth))
            else:
                outputs.append(self.expression(kind, local, 0))
                groups.append(str(number + 1))
        having = ''
        if self.chance(25):
            having = f' HAVING {self.aggregate("int", local, 0)} {self.pick(COMPARISONS)} {self.number()}'
        elif self.chance(15):
            having = f' HAVING {self.pick(["bool_or", "bool_and"])}({self.bool_expr(local, 0)})'
        return f'SELECT {self.output(outputs, kinds)} {where}{self.group_by(groups)}{having}'

    def group_by(self, groups):
        if not groups:
            return self.pick(['', ' GROUP BY ()'])
        listed = ', '.join(groups)
        return ' GROUP BY ' + self.weighted([
            (6, listed), (1, f'ROLLUP ({listed})'), (1, f'CUBE ({listed})'),
            (1, f'GROUPING SETS (({listed}), ())')])

    def aggregate(self, kind, scope, depth):
        value = self.expression(kind, scope, min(depth, 1))
        condition = ''
        if self.chance(15):
            condition = f' FILTER (WHERE {self.bool_expr(scope, 0)})'
        if kind == 'json':
            return f'jsonb_agg({value} ORDER BY {value}){condition}'
        if kind == 'time':
            return self.pick([f'max({value}){condition}', f'min({value}){condition}'])
        if kind == 'text':
            return self.pick([f'max({value}){condition}', f'min({value}){condition}',
                              f"string_agg({value}, ',' ORDER BY {value}){condition}",
                              f"string_agg(DISTINCT {value}, ','){condition}"])
        return self.pick([f'count(*){condition}', f'max({value}){condition}', f'min({value}){condition}',
                          f'sum({value}){condition}', f'count(DISTINCT {value}){condition}',
                          f'count({value}){condition}', f'trunc(avg({value}){condition})::bigint',
                          f'(percentile_disc(0.5) WITHIN GROUP (ORDER BY {value}){condition})',
                          f'spy_count({self.json_expr(scope, 0)}){condition}'])

    # ---- A whole query ----

    def query(self, kinds, depth):
        """Makes a query that may begin with WITH."""
        ctes, texts, recursive = [], [], False
        while len(ctes) < 2 and self.chance(25):
            item, text, is_recursive = self.with_query(depth - 1, ctes)
            ctes.append(item)
            texts.append(text)
            recursive |= is_recursive
        sql = self.select(kinds, depth, Scope((), None, ctes))
        if not texts:
            return sql
        return f"WITH {'RECURSIVE ' if recursive else ''}{', '.join(texts)} {sql}"

    def with_query(self, depth, ctes):
        name = self.alias('w')
        if self.chance(30):
            columns = {'id': 'text', 'ref': 'text', 'n': 'int'}
            return Item(name, columns, []), f'{name} AS ({self.recursion(name)})', True
        kinds = [self.pick(TYPES) for _ in range(1 + self.below(3))]
        columns = {f'x{number + 1}': kind for number, kind in enumerate(kinds)}
        materialized = self.pick(['', 'MATERIALIZED ', 'NOT MATERIALIZED '])
        sql = self.select(kinds, depth, Scope((), None, ctes))
        return Item(name, columns, []), f'{name} AS {materialized}({sql})', False

    def recursion(self, name):
        """Makes a recursive query that follows ref from row to row."""
        first, then = self.pick(self.world.readable), self.pick(self.world.readable)
        condition = self.pick(['x.id = y.ref', 'x.ref = y.id'])
        return (f'SELECT x.id, x.ref, 0 AS n FROM {first.name} AS x WHERE x.b < {self.number()} '
                f'{self.pick(["UNION", "UNION ALL"])} '
                f'SELECT x.id, x.ref, y.n + 1 FROM {name} AS y JOIN {then.name} AS x ON {condition}'
                ' WHERE y.n < 4')

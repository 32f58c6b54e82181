"""The functions and operators that random queries call, read from the catalogs.

There are three sources:
- ours: every function of the schemas ttl_docs and ttl_docs_internal;
- spies: functions and operators of a user (query_spies.py);
- core: functions and operators of pg_catalog that PUBLIC may call, with types that the tables have.

The program compares the answers of queries that call functions of ttl_docs, with the exceptions
listed below.  On both sides it passes the same collection, of the schema ttl, so the function gives
the same answer for a live row.  A new function of ttl_docs is included automatically.  The program
fails if it does not know the type of an argument, or if no query of a long run has called the
function (missing()).

Like every expression of the grammar, a call must not fail for a live row.  So the program first
tries each function of pg_catalog with some values, and excludes those that fail.
"""
import re
from dataclasses import dataclass

SCHEMAS = ('ttl_docs', 'ttl_docs_internal')
# These change something, or only the owner may call them.  Queries that call them have no
# counterpart in plain tables, but must not show an expired document.
COMMANDS = {'create_collection', 'drop_collection', 'adopt', 'adopt_concurrently', 'release',
            'set_default_ttl', 'set_indexing', 'set_indexing_concurrently', 'preview', 'create_document',
            'replace_document', 'upsert_document', 'patch_document', 'delete_document', 'touch_document',
            'pause_purge', 'resume_purge', 'set_purge_subscribed', 'collection_stats', 'newly_expired',
            'node_stats', 'shard_stats', 'purge_shards', 'online_progress'}
# Functions that are not called, with the reason.
EXCLUDED = {'write_document': 'a trigger function, which no query can call',
            'node_clock': 'the clock, so every call has another result'} | {
    f'ttl_interval_{name}': 'the I/O function of a type' for name in ('in', 'out', 'recv', 'send')}
# now() differs between the two sides.  So it is only an argument of tests for which a moment does not matter.
INSTANT = 'now'
# Fails for an expired row, so it is called with the arguments of a live row.
FAILS_IF_EXPIRED = 'require_live'
# These need a primary key of one column.
OF_ONE_KEY = {'read_document', 'documents'}

# Kinds of the grammar by SQL type.
KINDS = {'boolean': 'bool', 'integer': 'int', 'bigint': 'int', 'text': 'text', 'jsonb': 'json',
         'timestamp with time zone': 'time'}
# The columns that have exactly that type.
COLUMNS_OF_TYPE = {'integer': ('_ttl', 'a', 'b'), 'bigint': ('_slot',), 'text': ('id', 'c', 'ref'),
                   'jsonb': ('doc',), 'timestamp with time zone': ('_ts',)}
# Columns that are not passed to functions of ttl_docs, which take an integer as a ttl.  With a ttl of a few
# seconds, a row written on the last day would be live or expired depending on how long the test has run.
NOT_FOR_OURS = {'a', 'b', '_slot'}
CONSTANTS = {
    'boolean': ('true', 'false', 'NULL::boolean'),
    'integer': ('-1', 'NULL::int', '129600', '2147483647'),
    'bigint': ('0', 'NULL::bigint', '7'),
    'text': ("'red'::text", "'docs7'::text", 'NULL::text', "''::text"),
    'jsonb': ("'{\"k\": 1}'::jsonb", "'{\"ttl\": 5}'::jsonb", "'{}'::jsonb", 'NULL::jsonb'),
    'timestamp with time zone': ("'infinity'::timestamptz", 'NULL::timestamptz', "'2001-01-01'::timestamptz",
                                 "'-infinity'::timestamptz"),
    'timestamp without time zone': ("'infinity'::timestamp", "'2001-01-01'::timestamp", 'NULL::timestamp'),
    'name': ("'doc'::name", "'_ts'::name", 'NULL::name'),
    'anyelement': ("'red'::text",),
    'anynonarray': ('7::bigint', 'NULL::int', '\'"docs7"\'::jsonb', "'c3b5a8f0-0000-4000-8000-000000000001'::uuid"),
    'double precision': ('-1::float8', 'NULL::float8', '129600::float8', '2147483647::float8'),
    'ttl_docs_internal.ttl_interval': ("interval '1 day'", 'NULL::interval', "interval '1 month'"),
}
# Further column values, to find the functions of pg_catalog that fail for some value.
TRIED = {'integer': ('0', '1', '19', '99', '200', '2635200'), 'bigint': ('-1', '1000000000'),
         'text': ("'Black'", "'ranged199'"),
         'jsonb': ("""'{"k": 7, "s": "red3", "o": {"x": 1}, "tags": ["red"], "p": "5", "ttl": null}'""",)}

# Excluded names: functions that depend on the server or on other objects of the database, and to_char(), which
# fails for some patterns.
NO_CORE = r'^(pg_|has_|to_|txid_|current_|lo_|inet_|binary_upgrade|.*_description|.*xml|format_type)'

FUNCTIONS_SQL = r"""
SELECT p.pronamespace::regnamespace::text, p.proname, p.prokind, p.proretset,
       ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY AS x (t, n) ORDER BY n),
       format_type(p.prorettype, NULL)
  FROM pg_proc AS p WHERE {} ORDER BY 1, 2, 5"""
OPERATORS_SQL = """
SELECT oprnamespace::regnamespace::text, oprname,
       ARRAY[format_type(oprleft, NULL), format_type(oprright, NULL)], format_type(oprresult, NULL)
  FROM pg_operator WHERE oprnamespace = %s::regnamespace AND oprkind = 'b' AND oprcode <> 0 ORDER BY 2, 3"""
# A function that runs queries, and returns those that do not fail.
TRY_SQL = """
CREATE FUNCTION pg_temp.try(queries text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE q text;
BEGIN
    FOREACH q IN ARRAY queries LOOP
        BEGIN EXECUTE q; RETURN NEXT q; EXCEPTION WHEN others THEN NULL; END;
    END LOOP;
END $$"""


@dataclass
class Call:
    """A function or operator."""
    schema: str
    name: str
    types: list
    result: str
    is_operator: bool = False
    is_set: bool = False
    is_procedure: bool = False

    @property
    def qualified(self):
        # The search_path finds the functions of the user, on each side in its own schema.
        return self.name if self.schema in ('ttl', 'plain') else f'{self.schema}.{self.name}'

    def text(self, arguments):
        if not self.is_operator:
            return f"{self.qualified}({', '.join(arguments)})"
        operator = self.name if self.schema in ('ttl', 'plain') else f'OPERATOR({self.schema}.{self.name})'
        return f'({arguments[0]} {operator} {arguments[1]})'


class Calls:
    """All functions and operators to call, by source and by kind of result."""

    def __init__(self, connection):
        self.cursor = connection.cursor()
        ours = self.functions(f'p.pronamespace::regnamespace::text IN {SCHEMAS}', True)
        self.required = {call.name for call in ours}
        self.commands = [call for call in ours if call.name in COMMANDS or call.is_procedure]
        compared = [call for call in ours
                    if call not in self.commands and call.name != INSTANT and not call.is_set]
        spies = self.functions("p.pronamespace = 'ttl'::regnamespace AND p.proname LIKE 's\\_%'")
        spies += self.operators('ttl')
        self.by_kind = {}
        for source, calls in (('ours', compared), ('spies', spies), ('core', self.core())):
            for call in calls:
                self.by_kind.setdefault((source, KINDS.get(call.result)), []).append(call)

    def of(self, source, kind):
        return self.by_kind.get((source, kind), ())

    def functions(self, condition, all_known=False):
        """Returns the functions with known argument types.  With all_known, fails if there is another one."""
        self.cursor.execute(FUNCTIONS_SQL.format(condition))
        calls = []
        for schema, name, kind, is_set, types, result in self.cursor.fetchall():
            if all_known and name in EXCLUDED:
                continue
            if kind in 'fp' and result != 'trigger' and set(types) <= CONSTANTS.keys() | {'regclass'}:
                calls.append(Call(schema, name, types, result, is_set=is_set, is_procedure=kind == 'p'))
            elif all_known:
                raise AssertionError(f"{schema}.{name}({', '.join(types)}): query_calls.py does not know the types"
                                     ' of its arguments; add them to CONSTANTS, or the function to EXCLUDED')
        return calls

    def operators(self, schema):
        self.cursor.execute(OPERATORS_SQL, (schema,))
        return [Call(*row, is_operator=True) for row in self.cursor.fetchall()]

    def core(self):
        """Returns functions and operators of pg_catalog that are not volatile and do not fail for any tried value."""
        calls = self.functions(f"""p.pronamespace = 'pg_catalog'::regnamespace AND p.provolatile IN ('i', 's')
            AND NOT p.proretset AND p.provariadic = 0 AND p.pronargs BETWEEN 1 AND 3
            AND has_function_privilege('public', p.oid, 'execute') AND p.proname !~ '{NO_CORE}'""")
        calls += self.operators('pg_catalog')
        queries = {self.trial(call): call for call in calls
                   if call.result in KINDS and set(call.types) <= KINDS.keys()}
        self.cursor.execute(TRY_SQL)
        self.cursor.execute('SELECT pg_temp.try(%s)', (list(queries),))
        return [queries[query] for query, in self.cursor.fetchall()]

    @staticmethod
    def trial(call):
        """Returns a query that makes the call with all combinations of values."""
        columns = [f'x{number}.v' for number in range(len(call.types))]
        values = [', '.join(f'({value}::{kind})' for value in CONSTANTS[kind] + TRIED.get(kind, ()))
                  for kind in call.types]
        pools = [f'(VALUES {rows}) AS x{number} (v)' for number, rows in enumerate(values)]
        return f"SELECT count({call.text(columns)}) FROM {', '.join(pools)}"

    @staticmethod
    def called(sql):
        """Returns the names of the functions of ttl_docs in a statement."""
        return set(re.findall(r'\bttl_docs(?:_internal)?\.(\w+)\(', sql))

    def missing(self, called):
        return sorted(self.required - set(called))


class CallGrammar:
    """The part of the grammar that makes calls."""

    def call(self, kind, scope):
        """Makes a call with a result of that kind, or returns None if there is none."""
        sources = [(weight, calls) for weight, source in ((6, 'ours'), (3, 'spies'), (2, 'core'))
                   if (calls := self.calls.of(source, kind))]
        if not sources:
            return None
        call = self.pick(self.weighted(sources))
        items = [item for item in scope.items if item.base]
        item = self.pick(items) if items else None
        return call.text(self.arguments(call, item))

    def arguments(self, call, item):
        if call.name == FAILS_IF_EXPIRED:
            return [self.pick(["'infinity'::timestamptz", 'ttl_docs.now()', 'NULL::timestamptz']),
                    self.pick(['NULL::int', '-1', '129600']), self.collection(item)]
        arguments = [self.argument(kind, item, call) for kind in call.types]
        if call.result == 'boolean' and self.chance(15):
            arguments = ['ttl_docs.now()' if kind == 'timestamp with time zone' else argument
                         for kind, argument in zip(call.types, arguments)]
        return arguments

    def argument(self, kind, item, call):
        """Chooses a column of an item of FROM, or a constant."""
        if kind == 'regclass':
            return self.collection(item, call.name in OF_ONE_KEY)
        names = [name for name in COLUMNS_OF_TYPE.get(kind, ()) if item and name in item.columns
                 and not (call.schema in SCHEMAS and name in NOT_FOR_OURS)]
        columns = [f'{item.alias}.{name}' for name in names]
        if item and kind == 'anyelement':
            columns = [item.alias]          # the whole row
        # Not for functions of the server: the text may be an invalid pattern.
        if item and kind == 'text' and 'doc' in item.columns and call.schema != 'pg_catalog':
            columns.append(f'{item.alias}.doc::text')
        if columns and not self.chance(40):
            return self.pick(columns)
        return self.pick(CONSTANTS[kind])

    def collection(self, item, has_one_key=False):
        """Chooses a collection: mostly the table of the item, if it is one, or any other."""
        names = [table.name for table in self.world.collections
                 if table.name != 'busy' and not (has_one_key and table.name == 'ranged')]
        here = getattr(item.base, 'name', None) if item else None
        if here in names and not self.chance(40):
            return f"'ttl.{here}'::regclass"
        return f"'ttl.{self.pick(names)}'::regclass"

    def hostile_arguments(self, call):
        """Chooses arguments of a command, also invalid ones.  In a query they can use columns of t."""
        pools = CONSTANTS | {
            'regclass': tuple(f"'ttl.{table.name}'::regclass" for table in self.world.readable)
            + ("'ttl.hashed_1'::regclass", 'NULL::regclass', '0::regclass'),
            'text': CONSTANTS['text'] + ("'none'", "'lazy'", "'consistent'")}
        if not call.is_procedure:
            pools['text'] += ('t.id', 't.ref')
            pools['jsonb'] += ('t.doc', "jsonb_build_object('id', t.ref)")
            pools['integer'] += ('t.a', '1')
        return [self.pick(pools[kind]) for kind in call.types]

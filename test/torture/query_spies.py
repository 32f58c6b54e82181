"""Spies: functions and operators of a user that report when they are called with an expired document.

The spies belong to the role query_guest, which may only read the collections, and has its own
tables.  Each expired document carries a mark, and three out of four expired rows have a value
in column a that no live row has (query_world.py).  A spy that is called with the mark or the
value raises a notice with the mark, or writes the mark to the table "spied".  So the program
detects that an expired row reached a spy, whatever the query returns, and even if it fails.

The spies are functions in SQL and PL/pgSQL of every volatility and of different costs, operators,
a domain, a cast and an aggregate.  query_calls.py finds the operators, and the functions whose
name begins with s_.  query_grammar.py and query_attacks.py name the others.

No operator has a RESTRICT function.  A RESTRICT function may call the operator with values from
pg_statistic, which contains values of expired documents.  The documentation says so.
"""
MARK = 'mark-of-the-expired'
POISON = -777
GUEST = 'query_guest'
COLOURS = ['red', 'green', 'blue', 'Black', 'white']

# The code with which a spy reports a text that contains the mark.
TELL = f"IF strpos(%s, '{MARK}') > 0 THEN RAISE NOTICE 'shown: {MARK}'; END IF;"
TELL_DOC, TELL_TEXT = TELL % '$1::text', TELL % '$1'
RECORD_DOC = f"IF strpos($1::text, '{MARK}') > 0 THEN INSERT INTO {{schema}}.spied VALUES ($1::text); END IF;"
TELL_INT = f"IF $1 = {POISON} THEN RAISE NOTICE 'shown: {MARK}'; END IF;"


def plpgsql(name, arguments, result, properties, tell, value):
    return (f'CREATE FUNCTION {name}({arguments}) RETURNS {result} LANGUAGE plpgsql {properties}'
            f' AS $f$ BEGIN {tell} RETURN {value}; END $f$;\n')


def sql(name, arguments, result, properties, value):
    return (f'CREATE FUNCTION {name}({arguments}) RETURNS {result} LANGUAGE sql {properties}'
            f' AS $f$ SELECT {value} $f$;\n')


ODD = "coalesce(($1 ->> 'k')::int % 2 = 1, false)"
FUNCTIONS = ''.join([
    plpgsql('s_first', 'jsonb', 'boolean', 'IMMUTABLE PARALLEL SAFE COST 0.0001', TELL_DOC, ODD),
    plpgsql('s_strict', 'jsonb', 'boolean', 'STABLE STRICT PARALLEL SAFE', TELL_DOC, 'true'),
    plpgsql('s_volatile', 'jsonb', 'boolean', 'VOLATILE', TELL_DOC, ODD),
    plpgsql('s_record', 'jsonb', 'boolean', 'VOLATILE', RECORD_DOC, ODD),
    plpgsql('s_row', 'anyelement', 'boolean', 'STABLE PARALLEL SAFE', TELL_DOC, 'true'),
    plpgsql('s_int', 'int', 'boolean', 'IMMUTABLE PARALLEL SAFE COST 0.01', TELL_INT, 'coalesce($1 > 5, true)'),
    plpgsql('s_text', 'text', 'text', 'IMMUTABLE PARALLEL SAFE', TELL_TEXT, 'md5($1)'),
    plpgsql('s_k', 'jsonb', 'int', 'IMMUTABLE PARALLEL SAFE', TELL_DOC, "($1 ->> 'k')::int"),
    plpgsql('s_same', 'jsonb', 'jsonb', 'STABLE', TELL_DOC, '$1'),
    plpgsql('s_match', 'jsonb, text', 'boolean', 'STABLE COST 0.0001', TELL_DOC,
            "coalesce($1 ->> 's', '') LIKE $2 || '%'"),
    plpgsql('s_less', 'int, int', 'boolean', 'IMMUTABLE PARALLEL SAFE', TELL_INT, '$1 < $2'),
    sql('s_inlined', 'jsonb', 'boolean', 'VOLATILE', '{schema}.s_first($1) OR {schema}.s_strict($1)'),
    sql('s_atomic', 'jsonb', 'boolean', 'STABLE SET enable_seqscan = off', '{schema}.s_first($1)'),
    sql('s_matched', 'text, jsonb', 'boolean', 'STABLE', '{schema}.s_match($2, $1)'),
    sql('s_refers', 'text', 'boolean', 'STABLE',
        'EXISTS (SELECT FROM {schema}.own AS o WHERE o.ref = $1 AND {schema}.s_first(o.doc))'),
])

WORKBENCH_SQL = f"""
SET ROLE {GUEST};
CREATE TABLE spied (shown text);
{FUNCTIONS}
CREATE OPERATOR <~ (LEFTARG = jsonb, RIGHTARG = text, FUNCTION = s_match, COMMUTATOR = ~>);
CREATE OPERATOR ~> (LEFTARG = text, RIGHTARG = jsonb, FUNCTION = s_matched, COMMUTATOR = <~);
CREATE OPERATOR <~ (LEFTARG = int, RIGHTARG = int, FUNCTION = s_less);
CREATE DOMAIN spy_domain AS jsonb CHECK (s_strict(VALUE));
CREATE TYPE spy_enum AS ENUM ('odd', 'even');
CREATE FUNCTION spy_cast(jsonb) RETURNS spy_enum LANGUAGE plpgsql STABLE AS
    $f$ BEGIN {TELL_DOC} RETURN CASE WHEN {ODD} THEN 'odd' ELSE 'even' END; END $f$;
CREATE CAST (jsonb AS spy_enum) WITH FUNCTION spy_cast(jsonb) AS IMPLICIT;
CREATE FUNCTION spy_step(bigint, jsonb) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS
    $f$ BEGIN {TELL % '$2::text'} RETURN $1 + 1; END $f$;
CREATE AGGREGATE spy_count(jsonb) (SFUNC = spy_step, STYPE = bigint, INITCOND = 0);
CREATE TABLE my_pk (k text PRIMARY KEY);
INSERT INTO my_pk VALUES ('{"'), ('".join(COLOURS)}');
CREATE TABLE my_fk (k text REFERENCES my_pk, e spy_enum, id text, d jsonb DEFAULT '{{"p": "boom"}}');
INSERT INTO my_fk VALUES ('red', 'odd');
CREATE TABLE mine (x text, n int);
INSERT INTO mine VALUES ('red', 1), ('blue', 2), (NULL, 3);
CREATE TABLE my_other (x text);
INSERT INTO my_other VALUES ('green');
CREATE TABLE my_parts (x text, n int) PARTITION BY LIST (n);
RESET ROLE;
"""

-- Several calls in one query: each call returns its own document, even if other calls
-- run before the query uses the result.
SELECT ttl_docs.create_collection('t', 1000);
SELECT count(ttl_docs.create_document('t', jsonb_build_object('id', chr(96 + i), 'v', repeat(chr(96 + i), i * 10)))) FROM generate_series(1, 20) AS i;

-- Is this the document with this id?
CREATE FUNCTION is_right(d jsonb, id text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN d ->> 'id' = id AND d ->> 'v' = repeat(id, (ascii(id) - 96) * 10) AND d ? '_ts';
END $$;

-- Side by side
SELECT is_right(a, 'a') AS a, is_right(b, 'b') AS b, is_right(c, 'c') AS c
  FROM (SELECT ttl_docs.read_document('t', 'a') AS a, ttl_docs.read_document('t', 'b') AS b, ttl_docs.read_document('t', 'c') AS c OFFSET 0) AS r;
SELECT is_right(r[1], 'a') AS a, is_right(r[2], 'b') AS b, is_right(r[3], 'c') AS c
  FROM (SELECT ARRAY[ttl_docs.read_document('t', 'a'), ttl_docs.read_document('t', 'b'), ttl_docs.read_document('t', 'c')] AS r OFFSET 0) AS r;
SELECT is_right(d -> 0, 'a') AS a, is_right(d -> 1, 'b') AS b
  FROM (SELECT jsonb_build_array(ttl_docs.read_document('t', 'a'), ttl_docs.read_document('t', 'b')) AS d OFFSET 0) AS r;
-- In one row with other queries
SELECT id, is_right(d, id) AS is_right, n
  FROM (SELECT id, ttl_docs.read_document('t', id) AS d, (SELECT count(*) FROM ttl_docs.documents('t', jsonb_build_object('id', id))) AS n
          FROM unnest(ARRAY['a', 'f', 't']) AS id OFFSET 0) AS r;
-- Many rows, short and long
SELECT count(*), bool_and(is_right(d, id)) FROM (SELECT id, ttl_docs.read_document('t', id) AS d FROM t OFFSET 0) AS r;
SELECT count(*), bool_and(is_right(d, d ->> 'id')) FROM ttl_docs.documents('t') AS d;
SELECT count(*), bool_and(is_right(a, x.id) AND is_right(b, y.id))
  FROM t AS x, t AS y, LATERAL (SELECT ttl_docs.read_document('t', x.id) AS a, ttl_docs.read_document('t', y.id) AS b OFFSET 0) AS r;
-- Functions that write
SELECT is_right(a, 'a') AS a, is_right(b, 'b') AS b, is_right(c, 'c') AS c, is_right(d, 'd') AS d, is_right(e, 'e') AS e
  FROM (SELECT ttl_docs.patch_document('t', 'a', '{}') AS a, ttl_docs.replace_document('t', ttl_docs.read_document('t', 'b')) AS b,
               ttl_docs.upsert_document('t', ttl_docs.read_document('t', 'c')) AS c, ttl_docs.read_document('t', 'd') AS d,
               ttl_docs.patch_document('t', 'e', '{}') AS e OFFSET 0) AS r;
-- Results kept in variables
DO $$
DECLARE
    a jsonb := ttl_docs.read_document('t', 'a');
    b jsonb := ttl_docs.patch_document('t', 'b', '{}');
    c jsonb := ttl_docs.read_document('t', 'c');
BEGIN
    RAISE NOTICE '% % %', is_right(a, 'a'), is_right(b, 'b'), is_right(c, 'c');
END $$;

DROP FUNCTION is_right(jsonb, text);
DROP TABLE t;

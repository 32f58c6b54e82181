--
-- Valid values of the DefaultTTL and of a document's ttl.  Every other value is refused
-- with a message that shows it and SQLSTATE 22023, and changes nothing.
--

-- DefaultTTL: NULL, -1 or 1..2147483647.  PostgreSQL refuses values outside the range
-- of type integer.
SELECT ttl_docs.create_collection('ttl_values', 2147483647);
SELECT ttl_docs.set_default_ttl('ttl_values', 0);
\echo :SQLSTATE
SELECT ttl_docs.set_default_ttl('ttl_values', -2);
\echo :SQLSTATE
SELECT ttl_docs.set_default_ttl('ttl_values', -2147483648);
\echo :SQLSTATE
SELECT ttl_docs.set_default_ttl('ttl_values', 2147483648);
\echo :SQLSTATE
SELECT ttl_docs.set_default_ttl(NULL, 60);
\echo :SQLSTATE
SELECT ttl_docs.get_default_ttl('ttl_values') AS unchanged;
SELECT ttl_docs.create_collection('ttl_values_bad', 0);
SELECT ttl_docs.create_collection('ttl_values_bad', -2);
SELECT to_regclass('ttl_values_bad') IS NULL AS not_created;
CREATE TABLE ttl_values_bad (doc jsonb);
SELECT ttl_docs.adopt('ttl_values_bad', 0);
SELECT ttl_docs.adopt('ttl_values_bad', -2);
SELECT count(*) AS columns FROM pg_attribute
 WHERE attrelid = 'ttl_values_bad'::regclass AND attnum > 0;
DROP TABLE ttl_values_bad;
SELECT * FROM ttl_docs.preview('ttl_values', 0);
SELECT ttl_docs.set_default_ttl('ttl_values', 1);
SELECT ttl_docs.get_default_ttl('ttl_values') AS smallest;

-- One complete error; a table lists the others.
SELECT ttl_docs.set_default_ttl('ttl_values', -1);
INSERT INTO ttl_values (id, doc) VALUES ('bad', '{"ttl": "60"}');
\echo :SQLSTATE

CREATE FUNCTION attempt(command text, value jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE command USING value;
	RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
CREATE TABLE ttl_candidates (no int GENERATED ALWAYS AS IDENTITY, ttl jsonb);
INSERT INTO ttl_candidates (ttl) VALUES
	-- Valid: an integer from 1 to 2147483647 in any notation, -1, or null
	('1'), ('60'), ('60.0'), ('60.000'), ('1e2'), ('2147483647'), ('2147483647.0'), ('-1'), ('-1.0'), ('null'),
	-- Invalid numbers
	('0'), ('0.0'), ('-0'), ('-2'), ('1.5'), ('0.9'), ('-1.5'), ('-0.5'), ('60.0000001'), ('2147483646.5'),
	('2147483647.4'), ('2147483648'), ('-2147483648'), ('-2147483649'), ('4294967297'), ('4294967295'),
	('9223372036854775807'), ('18446744073709551617'), ('1e20'), ('1e-20'), ('-1e300'),
	('123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890'),
	-- Not numbers
	('"60"'), ('""'), ('"-1"'), ('"never"'), ('true'), ('false'), ('[]'), ('[60]'), ('{}'), ('{"ttl": 60}'),
	-- Long values, which the message truncates
	(to_jsonb(repeat('x', 100))), (to_jsonb(repeat('x', 62) || chr(223) || repeat('x', 10))),
	(to_jsonb(array_fill(7, ARRAY[40])));
SELECT CASE WHEN length(ttl::text) > 40 THEN left(ttl::text, 37) || '...' ELSE ttl::text END AS ttl,
       attempt('INSERT INTO ttl_values (doc) VALUES (jsonb_build_object(''ttl'', $1))', ttl) AS "insert"
  FROM ttl_candidates ORDER BY no;
-- The message is truncated between characters; psql would not show half a character.
SELECT attempt('INSERT INTO ttl_values (doc) VALUES (jsonb_build_object(''ttl'', $1))', ttl) LIKE '%xxxx...' AS cut_between_characters
  FROM ttl_candidates WHERE ttl::text LIKE '%' || chr(223) || '%';
-- On a slow machine, a document with a ttl of one second may have expired already.
SET ttl_docs.show_expired = on;
SELECT doc ->> 'ttl' AS ttl, _ttl FROM ttl_values ORDER BY _ttl, (doc ->> 'ttl') COLLATE "C";
RESET ttl_docs.show_expired;

-- UPDATE, upsert, MERGE and COPY accept and refuse the same values.
TRUNCATE ttl_values;
INSERT INTO ttl_values (id, doc) VALUES ('a', '{"ttl": 500, "n": 1}');
SELECT attempt('UPDATE ttl_values SET doc = jsonb_build_object(''ttl'', $1) WHERE id = ''a''', ttl) AS "update",
       attempt('INSERT INTO ttl_values (id, doc) VALUES (''a'', ''{}'')
                ON CONFLICT (id) DO UPDATE SET doc = jsonb_build_object(''ttl'', $1)', ttl) AS upsert,
       attempt('MERGE INTO ttl_values AS t USING (VALUES (''a'')) AS s (id) ON t.id = s.id
                WHEN MATCHED THEN UPDATE SET doc = jsonb_build_object(''ttl'', $1)', ttl) AS merge
  FROM unnest(ARRAY['0', '1.5', '"60"', '{}']::jsonb[]) AS ttl;
SELECT doc, _ttl FROM ttl_values;
COPY ttl_values (id, doc) FROM stdin;
b	{"ttl": 600}
c	{"ttl": 0}
\.
-- One invalid row prevents the insert of all rows.
INSERT INTO ttl_values (id, doc) VALUES ('b', '{"ttl": 600}'), ('c', '{"ttl": -2}'), ('d', '{}');
SELECT id, doc, _ttl FROM ttl_values ORDER BY id;
-- A user's trigger fires before the ttl_docs trigger, so its changes to the document
-- are checked.
CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.doc := NEW.doc || '{"ttl": 0}';
	RETURN NEW;
END $$;
CREATE TRIGGER spoil BEFORE INSERT OR UPDATE ON ttl_values FOR EACH ROW EXECUTE FUNCTION spoil();
INSERT INTO ttl_values (id, doc) VALUES ('spoiled', '{"ttl": 600}');
UPDATE ttl_values SET id = 'b' WHERE id = 'a';
DROP TRIGGER spoil ON ttl_values;
DROP FUNCTION spoil();

-- Only a top-level property of an object with exactly this name counts.  For a
-- duplicate name, jsonb keeps the last value.
TRUNCATE ttl_values;
INSERT INTO ttl_values (id, doc) VALUES
	('array', '[{"ttl": 0}]'), ('case', '{"TTL": 0, "Ttl": 0}'), ('name', '["ttl"]'), ('nested', '{"a": {"ttl": 0}}'),
	('number', '0'), ('pair', '["ttl", 0]'), ('scalar', '"ttl"'), ('spaces', '{" ttl": 0, "ttl ": 0}'),
	('twice', '{"ttl": 0, "ttl": 700}'), ('jsonnull', 'null');
SELECT id, _ttl FROM ttl_values ORDER BY id;
UPDATE ttl_values SET doc = jsonb_set('{"a": {}}', '{a,ttl}', '0') WHERE id = 'nested';
SELECT id, doc, _ttl FROM ttl_values WHERE id = 'nested';
-- An adopted table may have NULL documents.
CREATE TABLE ttl_null (id int PRIMARY KEY, body jsonb);
SELECT ttl_docs.adopt('ttl_null', 3600);
INSERT INTO ttl_null (id) VALUES (1);
INSERT INTO ttl_null VALUES (2, '{"ttl": 60}');
UPDATE ttl_null SET body = NULL WHERE id = 2;
SELECT id, body, _ttl FROM ttl_null ORDER BY id;
DROP TABLE ttl_null;

-- The ttl also works in documents that are compressed or stored out of line.
TRUNCATE ttl_values;
INSERT INTO ttl_values (id, doc) VALUES
	('compressed', jsonb_build_object('ttl', 600, 'a', repeat('x', 100000))),
	('toasted', jsonb_build_object('ttl', 600, 'a', (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 3000) AS n)));
UPDATE ttl_values SET id = id || '!';
SELECT id, _ttl FROM ttl_values ORDER BY id;
UPDATE ttl_values SET doc = doc || '{"ttl": 700}';
SELECT id, _ttl FROM ttl_values ORDER BY id;
UPDATE ttl_values SET doc = doc || '{"ttl": "x"}';
UPDATE ttl_values SET doc = doc - 'ttl', id = left(id, -1);
SELECT id, _ttl FROM ttl_values ORDER BY id;
-- document_ttl() helps to find invalid documents: NULL means inherited, 0 means
-- invalid.
SELECT no, ttl_docs.document_ttl(jsonb_build_object('ttl', ttl)) AS document_ttl
  FROM ttl_candidates WHERE no IN (1, 3, 5, 6, 8, 10, 11, 15, 22, 33, 37, 39, 41) ORDER BY no;
SELECT ttl_docs.document_ttl('[]') IS NULL AS array, ttl_docs.document_ttl(NULL) IS NULL AS "null";

-- While TTL is off, any value is accepted.
TRUNCATE ttl_values;
SELECT ttl_docs.set_default_ttl('ttl_values', NULL);
INSERT INTO ttl_values (id, doc) SELECT no, jsonb_build_object('ttl', ttl) FROM ttl_candidates;
UPDATE ttl_values SET doc = doc || '{"a": 1}';
SELECT count(*), count(*) FILTER (WHERE _ttl = 0) AS not_valid FROM ttl_values;
-- TTL cannot be turned on while invalid values exist.  The error gives their number and
-- shows one, and nothing changes.
DELETE FROM ttl_values WHERE _ttl = 0 AND doc -> 'ttl' NOT IN ('0', '1.5', '"60"');
DELETE FROM ttl_values WHERE doc -> 'ttl' = '0' AND id <> '11';
SELECT id, doc -> 'ttl' AS ttl FROM ttl_values WHERE _ttl = 0 ORDER BY id;
SELECT regexp_replace(attempt('SELECT ttl_docs.set_default_ttl(''ttl_values'', 3600), $1', '0'),
                      'one of them (0|1\.5|"60")$', 'one of them (shown)') AS refused;
SELECT attempt('SELECT ttl_docs.set_default_ttl(''ttl_values'', -1), $1', '0') LIKE '22023 %' AS refused_too;
SELECT default_ttl, mode FROM ttl_docs.collections WHERE collection = 'ttl_values'::regclass;
SELECT invalid_ttl FROM ttl_docs.preview('ttl_values', 3600);
DELETE FROM ttl_values WHERE _ttl = 0 AND id <> '11';
SELECT ttl_docs.set_default_ttl('ttl_values', 3600);
\echo :SQLSTATE
UPDATE ttl_values SET doc = doc - 'ttl' WHERE ttl_docs.document_ttl(doc) = 0;
SELECT ttl_docs.set_default_ttl('ttl_values', 3600);
SELECT default_ttl, mode FROM ttl_docs.collections WHERE collection = 'ttl_values'::regclass;
-- An invalid document that was rolled back does not count.
SELECT ttl_docs.set_default_ttl('ttl_values', NULL);
BEGIN;
INSERT INTO ttl_values (doc) VALUES ('{"ttl": 0}');
ROLLBACK;
SELECT ttl_docs.set_default_ttl('ttl_values', -1);
-- adopt() checks existing documents in the same way.
CREATE TABLE ttl_adopt (doc jsonb);
INSERT INTO ttl_adopt VALUES ('{}'), ('{"ttl": 1.5}'), ('{"ttl": 60}');
SELECT ttl_docs.adopt('ttl_adopt', 3600);
\echo :SQLSTATE
SELECT ttl_docs.adopt('ttl_adopt', NULL);
SELECT doc, _ttl FROM ttl_adopt ORDER BY doc;
SELECT ttl_docs.set_default_ttl('ttl_adopt', 3600);
DROP TABLE ttl_adopt;
DROP TABLE ttl_values, ttl_candidates;
DROP FUNCTION attempt;

--
-- Arithmetic in 64 bits.  Neither the largest ttl, own or inherited, nor the first and
-- last possible timestamps overflow.
--
SELECT ttl_docs.create_collection('ttl_large', 2147483647);
INSERT INTO ttl_large (id, doc) VALUES ('inherits', '{}'), ('own', '{"ttl": 2147483647}');
SELECT id, ttl_docs.expires_at('ttl_large', _ts, _ttl) - _ts AS lives FROM ttl_large ORDER BY id;
SET ttl_docs.clock_offset = 2147483600;
SELECT string_agg(id, ' ' ORDER BY id) AS nearly FROM ttl_large;
SET ttl_docs.clock_offset = 2147483647;
INSERT INTO ttl_large (id, doc) VALUES ('new', '{"ttl": 2147483647}');
SELECT string_agg(id, ' ' ORDER BY id) AS over FROM ttl_large;
SELECT ttl_docs.expires_at('ttl_large', _ts, _ttl) > '2140-01-01' AS far_away FROM ttl_large;
SET ttl_docs.clock_offset = 2147483648;
RESET ttl_docs.clock_offset;
TRUNCATE ttl_large;
SET session_replication_role = replica;
INSERT INTO ttl_large (id, doc, _ts, _ttl) VALUES
	('first', '{}', '4713-01-01 BC', NULL), ('firstown', '{"ttl": 1}', '4713-01-01 BC', 1),
	('infinity', '{}', 'infinity', NULL), ('infinityown', '{"ttl": 1}', 'infinity', 1),
	('last', '{}', '294276-12-31', NULL), ('lastown', '{"ttl": 2147483647}', '294276-12-31', 2147483647),
	('minus', '{}', '-infinity', NULL), ('minusown', '{"ttl": 1}', '-infinity', 1);
RESET session_replication_role;
-- A document with an infinite _ts never expires.
SELECT id, ttl_docs.expires_at('ttl_large', _ts, _ttl) AS expires, _slot IS NULL AS not_indexed
  FROM ttl_large ORDER BY id;
SELECT extract(year FROM ttl_docs.expires_at('ttl_large', '4713-01-01 BC', 1)) AS year,
       ttl_docs.is_expired('ttl_large', '4713-01-01 BC', 1) AS is_expired;
DROP TABLE ttl_large;

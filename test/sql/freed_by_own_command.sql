--
-- A command frees keys whose documents its own scan has yet to come to.  They
-- were live when it began and are expired when it gets there; to it they are
-- rows that are gone, not rows that a trigger changed behind its back.
--
SELECT ttl_docs.create_collection('own', 600);
CREATE TABLE own_child (ref text REFERENCES own ON DELETE CASCADE ON UPDATE CASCADE);
INSERT INTO own (id, doc) VALUES ('a1', '{}'), ('a2', '{}'), ('b', '{"ttl": 60}'), ('c', '{"ttl": 60}');
-- the cascades make commands of their own, so the second key is freed later
INSERT INTO own_child VALUES ('b'), ('c');
CREATE FUNCTION later(text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN PERFORM set_config('ttl_docs.clock_offset', '120', false); RETURN $1; END $$;

UPDATE own SET id = CASE id WHEN 'a1' THEN later('b') WHEN 'a2' THEN 'c' ELSE id || ' touched' END;
SELECT id, doc FROM own ORDER BY id;
SELECT count(*) AS children FROM own_child;

RESET ttl_docs.clock_offset;
DROP TABLE own_child, own;

--
-- A document that expires within the statement that wrote it keeps its key until the
-- statement is through: a command cannot delete a row that it has written itself.
--
\set VERBOSITY terse
CREATE TABLE own (id text PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('own', 600);
INSERT INTO own VALUES ('k', '{"v": 1, "ttl": 60}'), (later('k'), '{"v": 2}');
\echo :SQLSTATE
RESET ttl_docs.clock_offset;
INSERT INTO own VALUES ('k', '{"v": 1, "ttl": 60}'), (later('k'), '{"v": 2}') ON CONFLICT (id) DO UPDATE SET doc = excluded.doc;
\echo :SQLSTATE
RESET ttl_docs.clock_offset;
BEGIN;
INSERT INTO own VALUES ('k', '{"v": 1, "ttl": 60}'), (later('k'), '{"v": 2}') ON CONFLICT DO NOTHING RETURNING id, doc;
-- the next statement finds nothing, and the key is free
SELECT id FROM own;
INSERT INTO own VALUES ('k', '{"v": 3}') RETURNING id, doc;
ROLLBACK;
RESET ttl_docs.clock_offset;
-- one that an UPDATE has renewed, where others come to its key
INSERT INTO own VALUES ('k', '{"v": 1, "ttl": 60}'), ('l', '{"v": 2}');
UPDATE own SET id = CASE id WHEN 'l' THEN later('k') ELSE id END;
\echo :SQLSTATE
RESET ttl_docs.clock_offset;
TRUNCATE own;
-- COPY that takes longer than the ttl of its first line: many rows at a time, where that line
-- still waits and where it is in already, and row by row
ALTER TABLE own ADD CONSTRAINT time_passes CHECK (doc->>'v' <> '2' OR set_config('ttl_docs.clock_offset', '120', false) IS NOT NULL);
COPY own (id, doc) FROM stdin;
k	{"v": 1, "ttl": 60}
k	{"v": 2}
\.
RESET ttl_docs.clock_offset;
COPY own (id, doc) FROM PROGRAM $$echo 'k	{"v": 1, "ttl": 60}'; seq -f '%g	{}' 1 1500; echo 'k	{"v": 2}'$$;
RESET ttl_docs.clock_offset;
COPY own (id, doc) FROM stdin WHERE doc->>'v' <> '2' OR set_config('ttl_docs.clock_offset', '120', false) IS NOT NULL;
k	{"v": 1, "ttl": 60}
k	{"v": 2}
\.
RESET ttl_docs.clock_offset;
-- where an earlier statement wrote the first line, it works
INSERT INTO own VALUES ('k', '{"v": 1, "ttl": 60}');
COPY own (id, doc) FROM stdin;
k	{"v": 2}
\.
SELECT id, doc FROM own;
RESET ttl_docs.clock_offset;
TRUNCATE own;
-- without a conflict, all goes in, and those that live are seen
COPY own (id, doc) FROM stdin;
k	{"v": 1, "ttl": 60}
l	{"v": 2}
\.
SELECT id FROM own;
INSERT INTO own VALUES ('k', '{"v": 3}');
SELECT id, doc FROM own ORDER BY id;

RESET ttl_docs.clock_offset;
DROP TABLE own;
DROP FUNCTION later(text);

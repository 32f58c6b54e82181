--
-- A command frees the key of a document that its own scan has not reached yet.  The
-- document was live when the command began and has expired when the scan reaches it.
-- The command treats the document as deleted, not as changed by a trigger.
--
SELECT ttl_docs.create_collection('own', 600);
CREATE TABLE own_child (ref text REFERENCES own ON DELETE CASCADE ON UPDATE CASCADE);
INSERT INTO own (id, doc) VALUES ('a1', '{}'), ('a2', '{}'), ('b', '{"ttl": 60}'), ('c', '{"ttl": 60}');
-- Each cascade runs commands of its own, so the second key is freed by a later command.
INSERT INTO own_child VALUES ('b'), ('c');
CREATE FUNCTION later(text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN PERFORM set_config('ttl_docs.clock_offset', '120', false); RETURN $1; END $$;

UPDATE own SET id = CASE id WHEN 'a1' THEN later('b') WHEN 'a2' THEN 'c' ELSE id || ' touched' END;
SELECT id, doc FROM own ORDER BY id;
SELECT count(*) AS children FROM own_child;

RESET ttl_docs.clock_offset;
DROP TABLE own_child, own;

--
-- If a document expires within the statement that wrote it, it keeps its key until the
-- statement ends.  A command cannot delete a row that it has written itself.
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
-- The next statement does not see the document, and the key is free.
SELECT id FROM own;
INSERT INTO own VALUES ('k', '{"v": 3}') RETURNING id, doc;
ROLLBACK;
RESET ttl_docs.clock_offset;
-- An UPDATE renews the document, and another document moves to its key.
INSERT INTO own VALUES ('k', '{"v": 1, "ttl": 60}'), ('l', '{"v": 2}');
UPDATE own SET id = CASE id WHEN 'l' THEN later('k') ELSE id END;
\echo :SQLSTATE
RESET ttl_docs.clock_offset;
TRUNCATE own;
-- A COPY takes longer than the ttl of its first line.  The three cases: the first line
-- is still buffered, the first line is already inserted, and COPY works row by row.
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
-- If an earlier statement wrote the first line, COPY succeeds.
INSERT INTO own VALUES ('k', '{"v": 1, "ttl": 60}');
COPY own (id, doc) FROM stdin;
k	{"v": 2}
\.
SELECT id, doc FROM own;
RESET ttl_docs.clock_offset;
TRUNCATE own;
-- Without a conflict, COPY inserts all lines, and queries see the live documents.
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

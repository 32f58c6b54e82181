--
-- COPY TO leaves expired documents out, in every form of it, and is otherwise
-- the COPY that it was.
--
-- The documents have fixed stamps, so that the system columns can be shown: the
-- live ones never expire, the others expired long ago.
--
CREATE SCHEMA "Copy";
SET search_path = "Copy";
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE TABLE docs (gone int, id text PRIMARY KEY, "Odd ""name" text DEFAULT 'a,b', doc jsonb, twice text GENERATED ALWAYS AS (id || id) STORED);
ALTER TABLE docs DROP COLUMN gone;
SELECT ttl_docs.adopt('docs', 3600);
SET session_replication_role = replica;
INSERT INTO docs (id, doc, _ts, _ttl) VALUES
	('expired', '{}', '2001-02-03 04:05:06.789', NULL), ('live', '{"ttl": -1}', '2001-02-03 04:05:06.789', -1),
	('old', '{"ttl": 60}', '2001-02-03 04:05:06.789', 60), ('too', '{"ttl": -1, "a": null}', '2001-02-03 04:05:06.789', -1);
RESET session_replication_role;

-- All columns but generated ones, in their order
COPY docs TO stdout;
COPY docs TO stdout WITH (FORMAT csv, HEADER);
COPY "Copy".docs TO stdout WITH (FORMAT csv, HEADER, FORCE_QUOTE *, DELIMITER ';', NULL '-');
\copy docs to stdout with (format csv)
-- the columns named, in the order named
COPY docs (doc, id) TO stdout WITH (FORMAT csv, FORCE_QUOTE (id));
COPY docs ("Odd ""name", _ttl) TO stdout WITH (FORMAT csv, HEADER);
-- a query, also one that writes
COPY (SELECT id FROM docs ORDER BY id) TO stdout;
COPY (SELECT count(*) FROM docs) TO stdout;
COPY (TABLE docs) TO stdout;
COPY (UPDATE docs SET doc = doc WHERE id = 'expired' RETURNING id) TO stdout;
COPY (DELETE FROM docs WHERE id IN ('old', 'too') RETURNING id) TO stdout;
-- in a transaction with one instant, read only, and twice by the same session
BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;
COPY docs (id) TO stdout;
COPY docs (id) TO stdout;
ROLLBACK;
-- A superuser can ask for all of it.  (row_security = off: see settings.)
SET ttl_docs.show_expired = on;
COPY docs (id) TO stdout;
RESET ttl_docs.show_expired;
-- What is expired depends on the clock.
SET ttl_docs.clock_offset = '-90 min';
INSERT INTO docs (id, doc) VALUES ('hour', '{}');
COPY docs (id) TO stdout;
RESET ttl_docs.clock_offset;
COPY docs (id) TO stdout;

-- Errors are errors still.
\set VERBOSITY terse
COPY docs (id, nonsense) TO stdout;
\echo :SQLSTATE
COPY docs (id, ctid) TO stdout;
\echo :SQLSTATE
COPY docs (id, id) TO stdout;
\echo :SQLSTATE
COPY docs (id, twice) TO stdout;
\echo :SQLSTATE
COPY nonsense TO stdout;
\echo :SQLSTATE
-- A table of the same name that is no collection is copied as it is.
CREATE TEMP TABLE docs (id text);
INSERT INTO pg_temp.docs VALUES ('temporary');
SET search_path = pg_temp, "Copy";
COPY docs TO stdout;
COPY "Copy".docs (id) TO stdout;
SET search_path = "Copy";
DROP TABLE pg_temp.docs;

-- It needs the rights that COPY needs, and no more: the columns that the test
-- reads are not the user's affair.
CREATE ROLE regress_ttl_docs_reader;
GRANT USAGE ON SCHEMA "Copy" TO regress_ttl_docs_reader;
GRANT SELECT (id, doc) ON docs TO regress_ttl_docs_reader;
SET ROLE regress_ttl_docs_reader;
COPY docs (id, doc) TO stdout;
COPY docs (id, _ts) TO stdout;
\echo :SQLSTATE
COPY docs TO stdout;
\echo :SQLSTATE
SELECT id, doc FROM docs;
SELECT _ts FROM docs;
\echo :SQLSTATE
RESET ROLE;
REVOKE ALL ON docs FROM regress_ttl_docs_reader;
-- With row level security, both it and expiry hold.
INSERT INTO docs (id, doc) VALUES ('hidden', '{}');
CREATE POLICY not_hidden ON docs USING (id <> 'hidden');
ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
GRANT SELECT ON docs TO regress_ttl_docs_reader;
SET ROLE regress_ttl_docs_reader;
COPY docs (id) TO stdout;
RESET ROLE;
COPY docs (id) TO stdout;

-- Partitions by themselves; the partitioned table cannot be copied, as ever.
CREATE TABLE parts (id int, doc jsonb) PARTITION BY LIST (id);
CREATE TABLE parts_1 (doc jsonb, id int);
SELECT ttl_docs.adopt('parts', 3600);
ALTER TABLE parts_1 ADD COLUMN _slot bigint, ADD COLUMN _ttl int, ADD COLUMN _ts timestamptz NOT NULL DEFAULT now();
ALTER TABLE parts ATTACH PARTITION parts_1 FOR VALUES IN (1);
SET ttl_docs.clock_offset = '-90 min';
INSERT INTO parts (id, doc) VALUES (1, '{"expired": true}'), (1, '{"ttl": -1}');
RESET ttl_docs.clock_offset;
COPY parts TO stdout;
COPY parts_1 (id, doc) TO stdout;
COPY (SELECT id, doc FROM parts) TO stdout;

-- COPY FROM is a write like any other: it stamps, and frees keys.
COPY docs (id, doc, _ts, _ttl) FROM stdin;
expired	{"new": true}	2001-02-03	-1
new	{"ttl": 60}	2001-02-03	\N
\.
SELECT id, doc, _ttl, _ts > '2002-01-01' AS stamped FROM docs WHERE id IN ('expired', 'new') ORDER BY id;

\set VERBOSITY default
SET client_min_messages = warning;
DROP SCHEMA "Copy" CASCADE;
DROP ROLE regress_ttl_docs_reader;

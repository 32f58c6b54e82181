--
-- COPY TO leaves out expired documents in all its forms, and otherwise works as usual.
--
-- The documents have a fixed _ts, so that the output can show the system columns.  The
-- live documents never expire; the others expired long ago.
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

-- All columns except generated ones, in table order
COPY docs TO stdout;
COPY docs TO stdout WITH (FORMAT csv, HEADER);
COPY "Copy".docs TO stdout WITH (FORMAT csv, HEADER, FORCE_QUOTE *, DELIMITER ';', NULL '-');
\copy docs to stdout with (format csv)
-- The named columns, in the order given
COPY docs (doc, id) TO stdout WITH (FORMAT csv, FORCE_QUOTE (id));
COPY docs ("Odd ""name", _ttl) TO stdout WITH (FORMAT csv, HEADER);
-- A query, also one that writes
COPY (SELECT id FROM docs ORDER BY id) TO stdout;
COPY (SELECT count(*) FROM docs) TO stdout;
COPY (TABLE docs) TO stdout;
COPY (UPDATE docs SET doc = doc WHERE id = 'expired' RETURNING id) TO stdout;
COPY (DELETE FROM docs WHERE id IN ('old', 'too') RETURNING id) TO stdout;
-- In a READ ONLY transaction with one instant, twice in the same session
BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;
COPY docs (id) TO stdout;
COPY docs (id) TO stdout;
ROLLBACK;
-- A superuser can ask for all documents.  The test "settings" covers
-- row_security = off.
SET ttl_docs.show_expired = on;
COPY docs (id) TO stdout;
RESET ttl_docs.show_expired;
-- The clock determines which documents have expired.
SET ttl_docs.clock_offset = '-90 min';
INSERT INTO docs (id, doc) VALUES ('hour', '{}');
COPY docs (id) TO stdout;
RESET ttl_docs.clock_offset;
COPY docs (id) TO stdout;

-- COPY reports its usual errors.
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
-- A plain table of the same name is copied as usual.
CREATE TEMP TABLE docs (id text);
INSERT INTO pg_temp.docs VALUES ('temporary');
SET search_path = pg_temp, "Copy";
COPY docs TO stdout;
COPY "Copy".docs (id) TO stdout;
SET search_path = "Copy";
DROP TABLE pg_temp.docs;

-- COPY TO needs only its usual privileges.  The user needs no privilege on the system
-- columns that the expiry check reads.
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
-- Row-level security and expiry both apply.
INSERT INTO docs (id, doc) VALUES ('hidden', '{}');
CREATE POLICY not_hidden ON docs USING (id <> 'hidden');
ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
GRANT SELECT ON docs TO regress_ttl_docs_reader;
SET ROLE regress_ttl_docs_reader;
COPY docs (id) TO stdout;
RESET ROLE;
COPY docs (id) TO stdout;

-- A single partition can be copied.  The partitioned table itself cannot, as usual.
CREATE TABLE parts (id int, doc jsonb) PARTITION BY LIST (id);
CREATE TABLE parts_1 (doc jsonb, id int);
SELECT ttl_docs.adopt('parts', 3600);
ALTER TABLE parts_1 ADD COLUMN _slot bigint, ADD COLUMN _ttl int, ADD COLUMN _ts timestamptz NOT NULL DEFAULT now();
ALTER TABLE parts ATTACH PARTITION parts_1 FOR VALUES IN (1);
SET ttl_docs.clock_offset = '-90 min';
INSERT INTO parts (id, doc) VALUES (1, '{"expired": true}'), (1, '{"ttl": -1}');
RESET ttl_docs.clock_offset;
COPY parts_1 (id, doc) TO stdout;
COPY (SELECT id, doc FROM parts) TO stdout;

-- COPY FROM is a write like any other: it sets _ts and frees keys.
COPY docs (id, doc, _ts, _ttl) FROM stdin;
expired	{"new": true}	2001-02-03	-1
new	{"ttl": 60}	2001-02-03	\N
\.
SELECT id, doc, _ttl, _ts > '2002-01-01' AS stamped FROM docs WHERE id IN ('expired', 'new') ORDER BY id;

\set VERBOSITY default
SET client_min_messages = warning;
DROP SCHEMA "Copy" CASCADE;
DROP ROLE regress_ttl_docs_reader;

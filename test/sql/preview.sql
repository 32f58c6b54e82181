--
-- preview() shows the effect of a DefaultTTL on the documents that are live now,
-- without changing anything.
--
SELECT ttl_docs.create_collection('preview', 36000);
SET ttl_docs.clock_offset = '-11 h';
INSERT INTO preview (id, doc) VALUES ('dead', '{}'), ('deadown', '{"ttl": 60}');
SET ttl_docs.clock_offset = '-90 min';
INSERT INTO preview (id, doc) VALUES ('old', '{}'), ('oldown', '{"ttl": 36000}'), ('never', '{"ttl": -1}');
RESET ttl_docs.clock_offset;
INSERT INTO preview (id, doc) VALUES ('young', '{}');
SELECT label AS before FROM pg_seclabel WHERE objoid = 'preview'::regclass \gset
SELECT * FROM ttl_docs.preview('preview', 36000);
SELECT * FROM ttl_docs.preview('preview', 3600);
SELECT * FROM ttl_docs.preview('preview', -1);
SELECT * FROM ttl_docs.preview('preview', NULL);
-- A dry run: neither the label nor the documents change.
SELECT label = :'before' AS unchanged FROM pg_seclabel WHERE objoid = 'preview'::regclass;
SELECT string_agg(id, ' ' ORDER BY id) AS live FROM preview;
-- set_default_ttl() has the announced effect.
BEGIN;
SELECT ttl_docs.set_default_ttl('preview', 3600);
SELECT string_agg(id, ' ' ORDER BY id) AS live FROM preview;
ROLLBACK;
-- While TTL is off, a document may have an invalid ttl, which prevents turning TTL on.
BEGIN;
SELECT ttl_docs.set_default_ttl('preview', NULL);
INSERT INTO preview (id, doc) VALUES ('invalid', '{"ttl": "x"}');
SELECT * FROM ttl_docs.preview('preview', 3600);
ROLLBACK;
SELECT ttl_docs.preview('preview', 0);
SELECT ttl_docs.preview('preview', -2);
SELECT ttl_docs.preview(NULL, 60);
SELECT ttl_docs.preview('pg_class', 60);

-- preview() names up to five documents, by primary key or by ctid.
SET ttl_docs.clock_offset = '-90 min';
INSERT INTO preview (id, doc) SELECT 'd' || n, '{}' FROM generate_series(1, 10) AS n;
RESET ttl_docs.clock_offset;
SELECT expire_now, cardinality(examples) AS examples FROM ttl_docs.preview('preview', 3600);
DROP TABLE preview;
CREATE TABLE preview (a int, "B c" text, doc jsonb, PRIMARY KEY ("B c", a));
SELECT ttl_docs.adopt('preview', -1);
SET ttl_docs.clock_offset = '-90 min';
INSERT INTO preview VALUES (1, 'x, y', '{}');
RESET ttl_docs.clock_offset;
SELECT expire_now, examples FROM ttl_docs.preview('preview', 3600);
DROP TABLE preview;
CREATE TABLE preview (a int, doc jsonb) PARTITION BY LIST (a);
CREATE TABLE preview_1 PARTITION OF preview FOR VALUES IN (1);
CREATE TABLE preview_2 PARTITION OF preview FOR VALUES IN (2);
SELECT ttl_docs.adopt('preview', -1);
SET ttl_docs.clock_offset = '-90 min';
INSERT INTO preview VALUES (1, '{}'), (2, '{}');
RESET ttl_docs.clock_offset;
SELECT live, expire_now, examples FROM ttl_docs.preview('preview', 3600);
SELECT live, expire_now, examples FROM ttl_docs.preview('preview_1', 3600);
-- preview() shows only rows that the caller may read.
CREATE ROLE regress_ttl_docs_reader;
SET ROLE regress_ttl_docs_reader;
\set VERBOSITY terse
SELECT live FROM ttl_docs.preview('preview', 3600);
RESET ROLE;
GRANT SELECT ON preview TO regress_ttl_docs_reader;
SET ROLE regress_ttl_docs_reader;
SELECT live FROM ttl_docs.preview('preview', 3600);
RESET ROLE;
DROP TABLE preview;
DROP ROLE regress_ttl_docs_reader;

-- Messages to writers about the ttl of their documents: an invalid ttl is an error that
-- names table and key, a ttl while TTL is off gives a NOTICE once a session, and a
-- value for the column _ttl gives a WARNING at most once a statement.

SELECT ttl_docs.create_collection('m', 6000);

---- The error for an invalid ttl names the table and the key of the row.
\set VERBOSITY default
INSERT INTO m VALUES ('inserted', '{"ttl": 0}');
INSERT INTO m VALUES ('there', '{}');
UPDATE m SET doc = '{"ttl": "x"}';
INSERT INTO m VALUES ('there', '{}') ON CONFLICT (id) DO UPDATE SET doc = '{"ttl": 1.5}';
MERGE INTO m USING (VALUES ('merged')) AS v(id) ON m.id = v.id
    WHEN NOT MATCHED THEN INSERT (id, doc) VALUES (v.id, '{"ttl": []}');
SELECT ttl_docs.create_document('m', '{"id": "created", "ttl": 0}');
SELECT ttl_docs.patch_document('m', 'there', '{"ttl": true}');
-- COPY, without and with calls of the trigger
COPY m (id, doc) FROM stdin;
copied	{"ttl": 0}
\.
COPY m (doc, id) FROM stdin WHERE id <> 'y';
{"ttl": 0}	copied by core
\.
-- A restore
SET row_security = off;
INSERT INTO m (id, doc) VALUES ('restored', '{"ttl": 0}');
RESET row_security;
-- Programs find the table in separate error fields.
DO $$
DECLARE
    schema_name text;
    table_name text;
BEGIN
    INSERT INTO m VALUES ('by a program', '{"ttl": 0}');
EXCEPTION WHEN invalid_parameter_value THEN
    GET STACKED DIAGNOSTICS schema_name = SCHEMA_NAME, table_name = TABLE_NAME;
    RAISE NOTICE '% %.%', SQLSTATE, schema_name, table_name;
END $$;
-- A long key is truncated between characters.
INSERT INTO m VALUES (repeat('ü', 1000), '{"ttl": 0}');

-- Keys with several columns; the replica identity if there is no primary key; no key
CREATE TABLE keyed (a int, "B" text, doc jsonb, PRIMARY KEY ("B", a));
SELECT ttl_docs.adopt('keyed', 6000);
INSERT INTO keyed VALUES (1, 'x', '{"ttl": 0}');
INSERT INTO keyed VALUES (1, NULL, '{"ttl": 0}');
CREATE TABLE identified (a int NOT NULL, b int NOT NULL, doc jsonb);
CREATE UNIQUE INDEX first ON identified (b);
CREATE UNIQUE INDEX second ON identified (a) INCLUDE (b);
SELECT ttl_docs.adopt('identified', 6000);
INSERT INTO identified VALUES (1, 2, '{"ttl": 0}');
ALTER TABLE identified REPLICA IDENTITY USING INDEX second;
INSERT INTO identified VALUES (1, 2, '{"ttl": 0}');
-- A generated key is not known yet.
CREATE TABLE generated (a int, id int GENERATED ALWAYS AS (a + 1) STORED PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('generated', 6000);
INSERT INTO generated (a, doc) VALUES (1, '{"ttl": 0}');
COPY generated (a, doc) FROM stdin;
1	{"ttl": 0}
\.
-- For partitions, the error names the partition and uses its columns.
CREATE TABLE parted (id int PRIMARY KEY, doc jsonb) PARTITION BY RANGE (id);
CREATE TABLE parted1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE TABLE parted2 (gone int, doc jsonb, id int NOT NULL);
ALTER TABLE parted2 DROP COLUMN gone;
ALTER TABLE parted ATTACH PARTITION parted2 FOR VALUES FROM (10) TO (20);
SELECT ttl_docs.adopt('parted', 6000);
INSERT INTO parted VALUES (1, '{"ttl": 0}');
INSERT INTO parted VALUES (11, '{"ttl": 0}');
COPY parted (id, doc) FROM stdin;
12	{"ttl": 0}
\.
-- A user who may not read the key does not see it, because a trigger may have set it.
CREATE ROLE regress_ttl_writer;
CREATE TABLE secret (id text PRIMARY KEY, note text, doc jsonb);
SELECT ttl_docs.adopt('secret', 6000);
GRANT INSERT ON secret TO regress_ttl_writer;
SET ROLE regress_ttl_writer;
INSERT INTO secret VALUES ('hidden', 'n', '{"ttl": 0}');
RESET ROLE;
GRANT SELECT (note) ON secret TO regress_ttl_writer;
SET ROLE regress_ttl_writer;
INSERT INTO secret VALUES ('hidden', 'n', '{"ttl": 0}');
RESET ROLE;
GRANT SELECT (id) ON secret TO regress_ttl_writer;
SET ROLE regress_ttl_writer;
INSERT INTO secret VALUES ('shown', 'n', '{"ttl": 0}');
RESET ROLE;
ALTER TABLE secret ENABLE ROW LEVEL SECURITY;
CREATE POLICY all_rows ON secret USING (true);
SET ROLE regress_ttl_writer;
INSERT INTO secret VALUES ('hidden', 'n', '{"ttl": 0}');
RESET ROLE;
DROP TABLE secret, keyed, identified, generated, parted;
DROP ROLE regress_ttl_writer;

---- While TTL is off, the first document with a ttl gets a NOTICE, once a session.
SELECT ttl_docs.create_collection('"Off"');
SELECT ttl_docs.create_collection('off2');
INSERT INTO "Off" VALUES ('no ttl', '{}'), ('null', '{"ttl": null}'), ('not at the top', '{"a": {"ttl": 5}}');
INSERT INTO m VALUES ('TTL is on', '{"ttl": 500}');
-- Sessions that keep the _ts they bring get no NOTICE.
SET session_replication_role = replica;
INSERT INTO "Off" VALUES ('replicated', '{"ttl": 5}');
UPDATE "Off" SET doc = doc || '{"a": 1}' WHERE id = 'replicated';
RESET session_replication_role;
SET row_security = off;
INSERT INTO "Off" VALUES ('restored', '{"ttl": 5}');
COPY "Off" (id, doc) FROM stdin;
restored too	{"ttl": 5}
\.
RESET row_security;
SELECT FROM pg_replication_origin_create('regress_ttl_origin');
SELECT FROM pg_replication_origin_session_setup('regress_ttl_origin');
INSERT INTO "Off" VALUES ('by another system', '{"ttl": 5}');
SELECT FROM pg_replication_origin_session_reset();
INSERT INTO "Off" SELECT i, '{"ttl": 5}' FROM generate_series(1, 1000) AS i;
INSERT INTO "Off" VALUES ('more', '{"ttl": 5}');
UPDATE "Off" SET doc = doc || '{"a": 1}';
COPY off2 (id, doc) FROM stdin;
1	{}
2	{"ttl": 5}
3	{"ttl": 5}
\.
INSERT INTO off2 VALUES ('more', '{"ttl": 5}');
-- A new session gets the NOTICE again, even for a write that does not change the
-- document.
\c -
UPDATE "Off" SET _ts = DEFAULT WHERE id = 'more';
SELECT ttl_docs.touch_document('"Off"', 'more');
\c -
SELECT ttl_docs.upsert_document('"Off"', '{"id": "more", "ttl": 7}') - '_ts' AS upserted;
-- Follow the hint.
SELECT ttl_docs.set_default_ttl('public."Off"', -1);
INSERT INTO "Off" VALUES ('on', '{"ttl": 5}');
-- A partitioned collection gets one NOTICE, and a session gets at most eight.
CREATE TABLE parted (id int, doc jsonb) PARTITION BY HASH (id);
CREATE TABLE parted1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parted2 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1);
SELECT ttl_docs.adopt('parted');
INSERT INTO parted SELECT i, '{"ttl": 5}' FROM generate_series(1, 10) AS i;
\set VERBOSITY terse
DO $$ BEGIN
    FOR i IN 1..10 LOOP
        PERFORM ttl_docs.create_collection('many' || i);
        PERFORM ttl_docs.create_document('many' || i, '{"ttl": 5}');
    END LOOP;
    FOR i IN 1..10 LOOP
        PERFORM ttl_docs.drop_collection('many' || i);
    END LOOP;
END $$;
\set VERBOSITY default
DROP TABLE parted, "Off", off2;

---- A value for _ttl gets a WARNING, if it is neither the old value nor the document's
---- ttl.
\c -
\set QUIET off
TRUNCATE m;
INSERT INTO m VALUES ('a', '{"ttl": 500}'), ('b', '{}');
UPDATE m SET _ttl = 5;
UPDATE m SET _ttl = 5 WHERE id = 'b';
UPDATE m SET doc = '{"ttl": 600}', _ttl = 5 WHERE id = 'a';
SELECT id, doc, _ttl FROM m ORDER BY id;
-- No warning: the old value, the document's ttl, NULL, and the other system columns
UPDATE m SET _ttl = _ttl;
UPDATE m SET _ttl = 700, doc = '{"ttl": 700}' WHERE id = 'a';
UPDATE m SET _ttl = 700, doc = '{"ttl": 800}' WHERE id = 'a';
UPDATE m SET _ttl = 800;
UPDATE m SET _ttl = NULL;
UPDATE m SET _ttl = DEFAULT, _ts = DEFAULT, _slot = DEFAULT;
UPDATE m SET _ts = '2000-01-01', _slot = 7;
-- INSERT has no old row.
INSERT INTO m VALUES ('c', '{}', NULL, NULL, NULL), ('d', '{"ttl": 500}', NULL, 500, 7);
INSERT INTO m VALUES ('e', '{}', NULL, 500, NULL);
INSERT INTO m VALUES ('f', '{"ttl": 500}', NULL, -1, NULL);
SELECT id, doc, _ttl FROM m WHERE id IN ('e', 'f') ORDER BY id;

-- An ORM reads a row and writes all its columns back.
SELECT id, doc, _ts, _ttl, _slot FROM m WHERE id = 'a' \gset orm_
UPDATE m SET id = :'orm_id', doc = :'orm_doc', _ts = :'orm__ts', _ttl = :orm__ttl, _slot = :orm__slot WHERE id = 'a';
UPDATE m SET id = :'orm_id', doc = '{"ttl": 900}', _ts = :'orm__ts', _ttl = :orm__ttl, _slot = :orm__slot WHERE id = 'a';
SELECT id, doc, _ts, _ttl, _slot FROM m WHERE id = 'a' \gset orm_
UPDATE m SET id = :'orm_id', doc = '{}', _ts = :'orm__ts', _ttl = :orm__ttl, _slot = :orm__slot WHERE id = 'a';
INSERT INTO m VALUES (:'orm_id', :'orm_doc', :'orm__ts', :orm__ttl, :orm__slot)
    ON CONFLICT (id) DO UPDATE SET doc = EXCLUDED.doc, _ts = EXCLUDED._ts, _ttl = EXCLUDED._ttl, _slot = EXCLUDED._slot;

-- Rows of another collection, with any settings
SELECT ttl_docs.create_collection('copy', -1);
INSERT INTO copy SELECT * FROM m;
SELECT ttl_docs.set_default_ttl('copy', NULL);
TRUNCATE copy;
INSERT INTO copy SELECT * FROM m;
SELECT ttl_docs.set_default_ttl('copy', 100);
MERGE INTO copy USING m ON copy.id = m.id
    WHEN MATCHED THEN UPDATE SET doc = m.doc, _ttl = m._ttl
    WHEN NOT MATCHED THEN INSERT VALUES (m.id, m.doc, m._ts, m._ttl, m._slot);
DROP TABLE copy;

-- Many rows, one warning
INSERT INTO m SELECT i, CASE WHEN i % 2 = 0 THEN '{}' ELSE '{"ttl": 500}' END::jsonb, NULL, 7, NULL
    FROM generate_series(1, 100000) AS i;
UPDATE m SET _ttl = 8 WHERE id ~ '^[0-9]+$';
-- One statement that writes in several ways
WITH one AS (INSERT INTO m VALUES ('one', '{}', NULL, 7, NULL)),
     two AS (UPDATE m SET _ttl = 7 WHERE id IN ('a', 'b'))
    INSERT INTO m VALUES ('a new one', '{}', NULL, 7, NULL), ('b', '{}', NULL, 7, NULL)
    ON CONFLICT (id) DO NOTHING;
MERGE INTO m USING (VALUES ('c'), ('merged')) AS v(id) ON m.id = v.id
    WHEN MATCHED THEN UPDATE SET _ttl = 7
    WHEN NOT MATCHED THEN INSERT VALUES (v.id, '{}', NULL, 7, NULL);
-- Many partitions: INSERT, UPDATE, a move, and COPY
CREATE TABLE parted (id int, doc jsonb) PARTITION BY HASH (id);
CREATE TABLE parted1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parted2 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1);
SELECT ttl_docs.adopt('parted', 6000);
INSERT INTO parted SELECT i, '{"ttl": 500}', NULL, 7 FROM generate_series(1, 10) AS i;
UPDATE parted SET _ttl = 7;
UPDATE parted SET id = id + 10, _ttl = 500;
UPDATE parted SET id = id + 10, _ttl = 7;
COPY parted (id, doc, _ttl) FROM stdin;
31	{}	7
32	{}	7
33	{}	7
34	{}	7
\.
DROP TABLE parted;
-- COPY without and with calls of the trigger, and of rows that COPY TO has written
COPY m (id, doc, _ttl) FROM stdin;
copy 1	{}	\N
copy 2	{"ttl": 5}	5
copy 3	{"ttl": 5}	6
copy 4	{"ttl": 5}	7
\.
COPY m (id, doc, _ttl) FROM stdin WHERE id <> 'x';
copy 5	{}	\N
copy 6	{"ttl": 5}	5
copy 7	{"ttl": 5}	6
copy 8	{"ttl": 5}	7
\.
COPY m (id, doc, _ttl) FROM stdin;
copy 9	{"ttl": 5}	5
copy 10	{}	\N
\.
-- Statements in triggers and functions belong to the client's statement.
CREATE TABLE plain (id int);
CREATE FUNCTION set_ttl() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN UPDATE m SET _ttl = NEW.id WHERE id = 'a'; RETURN NULL; END $$;
CREATE TRIGGER set_ttl AFTER INSERT ON plain FOR EACH ROW EXECUTE FUNCTION set_ttl();
INSERT INTO plain SELECT generate_series(1, 100);
DO $$ BEGIN FOR i IN 1..100 LOOP UPDATE m SET _ttl = i WHERE id = 'a'; END LOOP; END $$;
DROP TABLE plain;
DROP FUNCTION set_ttl();
-- A later statement gets a new warning, also in the same transaction, and after a
-- failed statement.
BEGIN;
UPDATE m SET _ttl = 7 WHERE id = 'a';
UPDATE m SET _ttl = 7 WHERE id = 'a';
SAVEPOINT s;
UPDATE m SET _ttl = 1 / (length(id) - 1) WHERE id = 'a';
ROLLBACK TO s;
UPDATE m SET _ttl = 7 WHERE id = 'a';
COMMIT;
PREPARE again AS UPDATE m SET _ttl = $1 WHERE id = 'a';
EXECUTE again(7);
EXECUTE again(8);
-- Sessions that keep the _ts they bring get no warning.
SET session_replication_role = replica;
UPDATE m SET _ttl = 9 WHERE id = 'a';
INSERT INTO m VALUES ('replicated', '{}', now(), 9, NULL);
RESET session_replication_role;
SET row_security = off;
INSERT INTO m VALUES ('restored', '{}', now(), 9, NULL);
COPY m (id, doc, _ttl) FROM stdin;
restored too	{}	9
\.
RESET row_security;
SELECT FROM pg_replication_origin_session_setup('regress_ttl_origin');
UPDATE m SET _ttl = 9 WHERE id = 'b';
SELECT FROM pg_replication_origin_session_reset();
SELECT FROM pg_replication_origin_drop('regress_ttl_origin');
\set QUIET on
DROP TABLE m;

-- A user sees no expired documents and no documents without the privilege to read them.
-- The test tries foreign key actions and their rules, privileges of other users, views
-- and errors of ttl_docs, and freed keys.  Only the owner can remove a collection's
-- trigger.
\set SHOW_CONTEXT never
\set VERBOSITY terse
CREATE ROLE regress_ttl_sec_owner;
CREATE ROLE regress_ttl_sec_reader;
CREATE SCHEMA sec AUTHORIZATION regress_ttl_sec_owner;
CREATE SCHEMA sec_reader AUTHORIZATION regress_ttl_sec_reader;
GRANT USAGE ON SCHEMA sec TO PUBLIC;
SET ROLE regress_ttl_sec_owner;
SELECT ttl_docs.create_collection('sec.c', 1000);
INSERT INTO sec.c VALUES ('dead', '{"ttl": 100, "secret": 1}'), ('live', '{"secret": 2}');
GRANT SELECT, UPDATE, DELETE ON sec.c TO regress_ttl_sec_reader;
RESET ROLE;
SET ttl_docs.clock_offset = 200;

--
-- Rules under a foreign key action
--
-- Foreign key actions see expired children.  The queries of a rule do not.
SET ROLE regress_ttl_sec_reader;
CREATE TABLE sec_reader.parent (id int PRIMARY KEY);
CREATE TABLE sec_reader.child (id int REFERENCES sec_reader.parent ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE sec_reader.stolen (id text, doc jsonb);
CREATE FUNCTION sec_reader.look(id text, doc jsonb) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'seen: %', id; RETURN false; END $$;
INSERT INTO sec_reader.stolen VALUES ('dead'), ('live');
\set cascade 'INSERT INTO sec_reader.parent VALUES (1); INSERT INTO sec_reader.child VALUES (1); DELETE FROM sec_reader.parent;'
CREATE RULE r AS ON DELETE TO sec_reader.child DO ALSO UPDATE sec_reader.stolen SET doc = c.doc FROM sec.c WHERE c.id = stolen.id;
:cascade
SELECT * FROM sec_reader.stolen ORDER BY id;
CREATE OR REPLACE RULE r AS ON DELETE TO sec_reader.child DO ALSO DELETE FROM sec.c WHERE sec_reader.look(c.id, c.doc);
:cascade
CREATE OR REPLACE RULE r AS ON DELETE TO sec_reader.child DO ALSO UPDATE sec.c SET doc = doc WHERE sec_reader.look(c.id, c.doc);
:cascade
CREATE OR REPLACE RULE r AS ON DELETE TO sec_reader.child DO INSTEAD DELETE FROM sec.c WHERE sec_reader.look(c.id, c.doc);
INSERT INTO sec_reader.parent VALUES (1);
INSERT INTO sec_reader.child VALUES (1);
DELETE FROM sec_reader.parent;
CREATE OR REPLACE RULE r AS ON DELETE TO sec_reader.child DO ALSO INSERT INTO sec_reader.stolen SELECT c.id, c.doc FROM sec.c;
TRUNCATE sec_reader.parent, sec_reader.child, sec_reader.stolen;
:cascade
SELECT * FROM sec_reader.stolen ORDER BY id;
DROP RULE r ON sec_reader.child;
CREATE RULE r AS ON UPDATE TO sec_reader.child DO ALSO UPDATE sec_reader.stolen SET doc = c.doc FROM sec.c WHERE c.id = 'dead';
INSERT INTO sec_reader.parent VALUES (1);
INSERT INTO sec_reader.child VALUES (1);
UPDATE sec_reader.parent SET id = 2;
SELECT * FROM sec_reader.stolen ORDER BY id;
DROP TABLE sec_reader.child;
-- A trigger on the child table, and a cast in the query of the action
CREATE TYPE sec_reader.number AS ENUM ('1', '2');
CREATE FUNCTION sec_reader.cast(sec_reader.number) RETURNS int LANGUAGE plpgsql AS $$ 
BEGIN
    IF EXISTS (SELECT FROM sec.c WHERE id = 'dead') THEN
        RAISE 'a cast sees it';
    END IF;
    RETURN $1::text;
END $$;
CREATE CAST (sec_reader.number AS int) WITH FUNCTION sec_reader.cast(sec_reader.number) AS IMPLICIT;
CREATE FUNCTION sec_reader.trigger() RETURNS trigger LANGUAGE plpgsql AS $$ 
BEGIN
    IF EXISTS (SELECT FROM sec.c WHERE id = 'dead') THEN
        RAISE 'a trigger sees it';
    END IF;
    RETURN OLD;
END $$;
CREATE TABLE sec_reader.child (id sec_reader.number REFERENCES sec_reader.parent ON DELETE CASCADE);
CREATE TRIGGER t BEFORE DELETE ON sec_reader.child FOR EACH ROW EXECUTE FUNCTION sec_reader.trigger();
INSERT INTO sec_reader.child VALUES ('2');
DELETE FROM sec_reader.parent;
SELECT count(*) FROM sec_reader.child;
RESET ROLE;
-- Foreign key actions still work: expired children are deleted with their parent.
SET ROLE regress_ttl_sec_owner;
CREATE TABLE sec.parent (id int PRIMARY KEY);
CREATE TABLE sec.children (id text PRIMARY KEY, doc jsonb, parent int REFERENCES sec.parent ON DELETE CASCADE) PARTITION BY HASH (id);
CREATE TABLE sec.children_1 PARTITION OF sec.children FOR VALUES WITH (modulus 2, remainder 0);
CREATE TABLE sec.children_2 PARTITION OF sec.children FOR VALUES WITH (modulus 2, remainder 1);
SELECT ttl_docs.adopt('sec.children', 1000);
RESET ROLE;
RESET ttl_docs.clock_offset;
INSERT INTO sec.parent VALUES (1);
INSERT INTO sec.children SELECT i, '{"ttl": 100}', 1 FROM generate_series(1, 5) AS i;
SET ttl_docs.clock_offset = 200;
DELETE FROM sec.parent;
SET ttl_docs.show_expired = on;
SELECT count(*) FROM sec.children;
RESET ttl_docs.show_expired;

--
-- With the privileges of the owner
--
-- row_security = off shows expired documents to the owner, but not to users who use the
-- owner's privileges.
SET ROLE regress_ttl_sec_owner;
CREATE VIEW sec.view AS SELECT id FROM sec.c;
CREATE VIEW sec.definer AS SELECT * FROM sec.c;
CREATE FUNCTION sec.definer() RETURNS SETOF text LANGUAGE sql SECURITY DEFINER AS $$ SELECT id FROM sec.c $$;
CREATE FUNCTION sec.definer_off() RETURNS SETOF text LANGUAGE sql SECURITY DEFINER SET row_security = off AS $$ SELECT id FROM sec.c $$;
CREATE FUNCTION sec.definer_verb() RETURNS jsonb LANGUAGE sql SECURITY DEFINER AS $$ SELECT ttl_docs.read_document('sec.c', 'dead') $$;
CREATE MATERIALIZED VIEW sec.materialized AS SELECT id FROM sec.c;
GRANT SELECT ON ALL TABLES IN SCHEMA sec TO regress_ttl_sec_reader;
SET ROLE regress_ttl_sec_reader;
SET row_security = off;
SELECT * FROM sec.view;
SELECT id FROM sec.definer;
SELECT sec.definer();
SELECT sec.definer_off();
SELECT sec.definer_verb();
SELECT * FROM sec.materialized;
SELECT ttl_docs.read_document('sec.c', 'dead');
COPY sec.c (id) TO stdout;
RESET row_security;
-- A writer cannot set _ts either.
SET ROLE regress_ttl_sec_owner;
GRANT INSERT ON sec.c TO regress_ttl_sec_reader;
SET ROLE regress_ttl_sec_reader;
SET row_security = off;
INSERT INTO sec.c (id, doc, _ts, _ttl, _slot) VALUES ('stamped', '{}', 'epoch', 5, 5);
UPDATE sec.c SET _ts = 'epoch', _ttl = 5, _slot = 5 WHERE id = 'stamped';
SELECT id, _ts > '2020-01-01' AS is_new, _ttl FROM sec.c WHERE id = 'stamped';
RESET row_security;
RESET ROLE;

--
-- The ttl_docs trigger and a user with the TRIGGER privilege
--
SET ROLE regress_ttl_sec_owner;
GRANT TRIGGER ON sec.c TO regress_ttl_sec_reader;
SET ROLE regress_ttl_sec_reader;
CREATE OR REPLACE TRIGGER zzz_ttl_docs BEFORE INSERT OR UPDATE OR DELETE ON sec.c FOR EACH ROW EXECUTE FUNCTION ttl_docs_internal.write_document();
CREATE OR REPLACE TRIGGER zzz_ttl_docs BEFORE INSERT ON sec.c FOR EACH ROW EXECUTE FUNCTION ttl_docs_internal.write_document();
CREATE OR REPLACE TRIGGER zzz_ttl_docs BEFORE INSERT OR UPDATE OR DELETE ON sec.c FOR EACH ROW EXECUTE FUNCTION sec_reader.trigger();
CREATE TRIGGER zzzz BEFORE INSERT ON sec.c FOR EACH ROW EXECUTE FUNCTION sec_reader.trigger();
CREATE TRIGGER aaa BEFORE INSERT ON sec.c FOR EACH ROW EXECUTE FUNCTION ttl_docs_internal.write_document();
DROP TRIGGER zzz_ttl_docs ON sec.c;
ALTER TABLE sec.c DISABLE TRIGGER zzz_ttl_docs;
RESET ROLE;
SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = 'sec.c'::regclass AND NOT tgisinternal;
REVOKE TRIGGER ON sec.c FROM regress_ttl_sec_reader;

--
-- Views, statistics and errors
--
-- Only the owner and pg_read_all_stats see why a purge could not delete a document.
SET ROLE regress_ttl_sec_owner;
CREATE FUNCTION sec.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'the secret of % is %', OLD.id, OLD.doc ->> 'secret'; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON sec.c FOR EACH ROW EXECUTE FUNCTION sec.refuse();
RESET ROLE;
CALL ttl_docs.purge('sec.c');
SELECT undeletable, last_error FROM ttl_docs.stat_collections WHERE collection = 'sec.c'::regclass;
SET ROLE regress_ttl_sec_reader;
SELECT undeletable, last_error, last_error_at FROM ttl_docs.stat_collections WHERE collection = 'sec.c'::regclass;
SELECT undeletable, last_error, last_error_at FROM ttl_docs_internal.collection_stats('sec.c');
SELECT * FROM ttl_docs.collections WHERE collection = 'sec.c'::regclass;
RESET ROLE;
DROP TRIGGER refuse ON sec.c;
-- If an upsert or a foreign key conflicts with an expired document, the error shows no
-- value of the document.
SET ROLE regress_ttl_sec_owner;
ALTER TABLE sec.c ADD other text UNIQUE;
UPDATE sec.c SET other = 'x' WHERE id = 'live';
CREATE TABLE sec.keeps (id text REFERENCES sec.c);
REVOKE ALL ON sec.c FROM regress_ttl_sec_reader;
GRANT INSERT ON sec.c TO regress_ttl_sec_reader;
INSERT INTO sec.keeps VALUES ('live');
RESET ROLE;
SET ttl_docs.clock_offset = 2000;
SET ROLE regress_ttl_sec_reader;
\set VERBOSITY default
DO $$ BEGIN INSERT INTO sec.c (id, doc, other) VALUES ('mine', '{}', 'x'); EXCEPTION WHEN foreign_key_violation OR restrict_violation THEN RAISE NOTICE 'kept by a child'; END $$;
DO $$
DECLARE
    detail text;
BEGIN
    INSERT INTO sec.c (id, doc, other) VALUES ('mine', '{}', 'x');
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    RAISE NOTICE 'names it: %', detail LIKE '%live%';
END $$;
\set VERBOSITY terse
RESET ROLE;

--
-- Freeing a key
--
-- Freeing a key needs only the INSERT privilege.  It returns no document, and never
-- affects a live one.
DROP TABLE sec.keeps;
SET ROLE regress_ttl_sec_reader;
SELECT count(*) FROM sec.c;
INSERT INTO sec.c (id, doc) VALUES ('live', '{}');
INSERT INTO sec.c (id, doc) VALUES ('live', '{}');
INSERT INTO sec.c (id, doc) VALUES ('dead', '{}') RETURNING id;
INSERT INTO sec.c (id, doc) VALUES ('dead', '{}') ON CONFLICT DO NOTHING;
DELETE FROM sec.c;
RESET ROLE;
SELECT id, doc FROM sec.c ORDER BY id;

--
-- A tester may set the clock
--
-- The SET privilege on ttl_docs.clock_offset is a privilege to expire documents: it
-- frees the keys of live ones.
GRANT SET ON PARAMETER ttl_docs.clock_offset TO regress_ttl_sec_reader;
RESET ttl_docs.clock_offset;
TRUNCATE sec.c;
INSERT INTO sec.c VALUES ('live', '{}');
SET ROLE regress_ttl_sec_reader;
SET ttl_docs.clock_offset = 2000;
INSERT INTO sec.c (id, doc) VALUES ('live', '{"by": "the tester"}');
CALL ttl_docs.purge('sec.c');
RESET ttl_docs.clock_offset;
RESET ROLE;
SELECT id, doc FROM sec.c;
REVOKE SET ON PARAMETER ttl_docs.clock_offset FROM regress_ttl_sec_reader;

SET client_min_messages = warning;
DROP SCHEMA sec, sec_reader CASCADE;
DROP ROLE regress_ttl_sec_owner, regress_ttl_sec_reader;

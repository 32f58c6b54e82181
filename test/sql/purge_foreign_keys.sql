-- Foreign keys to a purged document: the purge runs foreign key actions.  If a child
-- prevents the delete, the expired document stays on disk and stays invisible.
\set SHOW_CONTEXT never
SELECT ttl_docs.create_collection('pf', 1000);
CREATE TABLE pf_cascade (id int PRIMARY KEY, pf text REFERENCES pf ON DELETE CASCADE);
CREATE TABLE pf_grandchild (id int REFERENCES pf_cascade ON DELETE CASCADE);
CREATE TABLE pf_set_null (id int, pf text REFERENCES pf ON DELETE SET NULL);
CREATE TABLE pf_set_default (id int, pf text DEFAULT 'live' REFERENCES pf ON DELETE SET DEFAULT);
CREATE TABLE pf_deferred (id int, pf text REFERENCES pf ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE pf_log (n int GENERATED ALWAYS AS IDENTITY, line text);
CREATE FUNCTION pf_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.pf_log (line) VALUES (format('%s of %s, purging %s', TG_OP, TG_TABLE_NAME, ttl_docs.purging()));
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER DELETE OR UPDATE ON pf_cascade FOR EACH ROW EXECUTE FUNCTION pf_note();
CREATE TRIGGER note AFTER DELETE OR UPDATE ON pf_grandchild FOR EACH ROW EXECUTE FUNCTION pf_note();
CREATE TRIGGER note AFTER DELETE OR UPDATE ON pf_set_null FOR EACH ROW EXECUTE FUNCTION pf_note();
INSERT INTO pf VALUES ('dead', '{"ttl": 100}'), ('live', '{}');
INSERT INTO pf_cascade VALUES (1, 'dead'), (2, 'live');
INSERT INTO pf_grandchild VALUES (1), (1), (2);
INSERT INTO pf_set_null VALUES (1, 'dead'), (2, 'live');
INSERT INTO pf_set_default VALUES (1, 'dead'), (2, 'live');
INSERT INTO pf_deferred VALUES (1, 'dead'), (2, 'live');
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('pf');
SELECT * FROM pf_cascade;
SELECT * FROM pf_grandchild;
SELECT * FROM pf_set_null ORDER BY id;
SELECT * FROM pf_set_default ORDER BY id;
SELECT * FROM pf_deferred;
SELECT line FROM pf_log ORDER BY n;
DROP TABLE pf_cascade, pf_grandchild, pf_set_null, pf_set_default, pf_deferred;

-- Only the document whose child prevents the delete stays, and the error names the
-- foreign key.  For RESTRICT, the message, detail and code of the error differ between
-- PostgreSQL versions.
CREATE VIEW pf_stat AS SELECT undeletable,
    regexp_replace(last_error, 'RESTRICT setting of |foreign key |still ', '', 'g') AS last_error
    FROM ttl_docs.stat_collections WHERE collection = 'pf'::regclass;
CREATE PROCEDURE pf_make(action text) LANGUAGE plpgsql SET ttl_docs.clock_offset = 0 SET client_min_messages = warning AS $$
BEGIN
    DROP TABLE IF EXISTS public.pf_child;
    TRUNCATE public.pf;
    PERFORM ttl_docs.resume_purge('public.pf');
    EXECUTE 'CREATE TABLE public.pf_child (id int, pf text REFERENCES public.pf ' || action || ')';
    INSERT INTO public.pf SELECT 'd' || i, jsonb_build_object('ttl', 100 + i) FROM generate_series(1, 9) AS i;
    INSERT INTO public.pf_child VALUES (1, 'd4'), (2, 'd7');
    SET CONSTRAINTS ALL IMMEDIATE;
END $$;
CREATE FUNCTION pf_left(OUT on_disk text, OUT children bigint) LANGUAGE plpgsql SET ttl_docs.show_expired = on AS $$
BEGIN
    SELECT string_agg(id, ', ' ORDER BY id) INTO on_disk FROM public.pf;
    SELECT count(*) INTO children FROM public.pf_child;
END $$;
CALL pf_make('ON DELETE NO ACTION');
CALL ttl_docs.purge('pf');
SELECT * FROM pf_left(), pf_stat;
SELECT count(*) FROM pf;
-- Without the child, the document is purged.
DELETE FROM pf_child WHERE id = 1;
CALL ttl_docs.purge('pf');
SELECT * FROM pf_left(), pf_stat;
TRUNCATE pf_child;
CALL ttl_docs.purge('pf');
SELECT * FROM pf_left(), pf_stat;
-- The same with a deferred constraint, also in a transaction block
\set try 'SET client_min_messages = error; CALL ttl_docs.purge(''pf''); RESET client_min_messages; SELECT * FROM pf_left(), pf_stat;'
CALL pf_make('ON DELETE NO ACTION DEFERRABLE INITIALLY DEFERRED');
:try
BEGIN;
:try
COMMIT;
-- RESTRICT; SET NULL on a NOT NULL column; SET DEFAULT to a missing document
CALL pf_make('ON DELETE RESTRICT');
:try
CALL pf_make('ON DELETE SET NULL NOT NULL');
:try
CALL pf_make('ON DELETE SET DEFAULT DEFAULT ''nowhere''');
:try
-- SET DEFAULT to an expired document, and to a live one
CALL pf_make('ON DELETE SET DEFAULT DEFAULT ''d9''');
:try
CALL pf_make('ON DELETE SET DEFAULT DEFAULT ''live''');
INSERT INTO pf VALUES ('live', '{}');
:try
SELECT * FROM pf_child ORDER BY id;
DROP TABLE pf_child;
DROP PROCEDURE pf_make(text);
DROP FUNCTION pf_left();
DROP VIEW pf_stat;
DROP TABLE pf;

-- A collection that references itself: the purge deletes the whole tree below an
-- expired document, live documents included, to any depth.  Triggers fire once for each
-- document.
RESET ttl_docs.clock_offset;
SELECT ttl_docs.create_collection('pf', 1000);
ALTER TABLE pf ADD parent text REFERENCES pf ON DELETE CASCADE;
CREATE TRIGGER note AFTER DELETE ON pf FOR EACH ROW EXECUTE FUNCTION pf_note();
TRUNCATE pf_log;
INSERT INTO pf (id, doc, parent) VALUES ('root', '{"ttl": 100}', NULL), ('dead child', '{"ttl": 110}', 'root'), ('live child', '{}', 'root'),
    ('live grandchild', '{}', 'live child'), ('dead grandchild', '{"ttl": 120}', 'live child'), ('itself', '{"ttl": 100}', 'itself'),
    ('other', '{}', NULL), ('child of other', '{}', 'other');
SET ttl_docs.clock_offset = 200;
SET client_min_messages = warning;
CALL ttl_docs.purge('pf');
RESET client_min_messages;
SET ttl_docs.show_expired = on;
SELECT id FROM pf ORDER BY id;
RESET ttl_docs.show_expired;
SELECT line, count(*) FROM pf_log GROUP BY line;
-- With RESTRICT, expired children do not prevent the delete; live children do.
RESET ttl_docs.clock_offset;
DROP TABLE pf;
SELECT ttl_docs.create_collection('pf', 1000);
ALTER TABLE pf ADD parent text REFERENCES pf ON DELETE RESTRICT;
INSERT INTO pf (id, doc, parent) VALUES ('root', '{"ttl": 100}', NULL), ('dead child', '{"ttl": 110}', 'root'),
    ('kept', '{"ttl": 100}', NULL), ('live child', '{}', 'kept');
SET ttl_docs.clock_offset = 200;
SET client_min_messages = error;
CALL ttl_docs.purge('pf');
RESET client_min_messages;
SET ttl_docs.show_expired = on;
SELECT id FROM pf ORDER BY id;
RESET ttl_docs.show_expired;
DROP TABLE pf;

-- The children are a collection: expired children do not prevent the delete.
RESET ttl_docs.clock_offset;
SELECT ttl_docs.create_collection('pf', 1000);
SELECT ttl_docs.create_collection('pf_child', 1000);
ALTER TABLE pf_child ADD pf text REFERENCES pf ON DELETE RESTRICT;
INSERT INTO pf VALUES ('a', '{"ttl": 100}'), ('b', '{"ttl": 100}');
INSERT INTO pf_child (id, doc, pf) VALUES (1, '{"ttl": 50}', 'a'), (2, '{}', 'b');
SET ttl_docs.clock_offset = 200;
SET client_min_messages = error;
CALL ttl_docs.purge('pf');
RESET client_min_messages;
SET ttl_docs.show_expired = on;
SELECT id FROM pf;
SELECT id FROM pf_child ORDER BY id;
CALL ttl_docs.purge('pf_child');
SELECT id FROM pf_child ORDER BY id;
RESET ttl_docs.show_expired;
RESET ttl_docs.clock_offset;
DROP TABLE pf_child, pf, pf_log;
DROP FUNCTION pf_note();

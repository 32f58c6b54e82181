-- A purge and release() fire their deferred triggers at once.  The user's own deferred
-- constraints stay deferred.
\set VERBOSITY terse
\set SHOW_CONTEXT never
CREATE TABLE df_parent (id int PRIMARY KEY);
CREATE TABLE df_child (id int CONSTRAINT df_late REFERENCES df_parent DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE df_early (id int CONSTRAINT df_early REFERENCES df_parent DEFERRABLE INITIALLY IMMEDIATE);
CREATE TABLE df_log (n int GENERATED ALWAYS AS IDENTITY, line text);
CREATE FUNCTION df_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.df_log (line) VALUES (format('%s: %s of %s, purging %s', TG_NAME, TG_OP, TG_TABLE_NAME, ttl_docs.purging()));
    RETURN NULL;
END $$;
-- Returns the lines of the log in order, and empties the log.
CREATE FUNCTION df_lines() RETURNS SETOF text LANGUAGE sql AS $$
    WITH lines AS (DELETE FROM df_log RETURNING n, line) SELECT line FROM lines ORDER BY n
$$;
SELECT ttl_docs.create_collection('df', 1000);
CREATE CONSTRAINT TRIGGER of_collection AFTER DELETE ON df DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION df_note();
-- Writes documents at offset 0 that expire after 100 seconds.
CREATE PROCEDURE df_documents(VARIADIC ids text[]) LANGUAGE sql SET ttl_docs.clock_offset = 0 AS $$
    INSERT INTO df SELECT id, '{"ttl": 100}' FROM unnest(ids) AS id;
$$;
SET ttl_docs.clock_offset = 200;

--
-- A violation that the user deferred stays pending, and fails at COMMIT
--
CALL df_documents('a');
BEGIN;
INSERT INTO df_child VALUES (1);
CALL ttl_docs.purge('df');
SELECT df_lines();
INSERT INTO df_child VALUES (2);
COMMIT;
\echo :SQLSTATE
-- The user can fix the violation before COMMIT.
BEGIN;
INSERT INTO df_child VALUES (1);
CALL ttl_docs.purge('df');
SELECT df_lines();
INSERT INTO df_parent VALUES (1);
COMMIT;
SELECT * FROM df_child;
SELECT undeletable, last_error FROM ttl_docs.stat_collections WHERE collection = 'df'::regclass;
-- The same with release()
SELECT ttl_docs.create_collection('df_released', 60);
CREATE CONSTRAINT TRIGGER of_released AFTER DELETE ON df_released DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION df_note();
INSERT INTO df_released VALUES ('a', '{}');
SET ttl_docs.clock_offset = 400;
BEGIN;
INSERT INTO df_child VALUES (3);
SELECT ttl_docs.release('df_released');
SELECT df_lines();
COMMIT;
\echo :SQLSTATE
BEGIN;
INSERT INTO df_child VALUES (3);
SELECT ttl_docs.release('df_released');
SELECT df_lines();
INSERT INTO df_parent VALUES (3);
COMMIT;
SELECT count(*) FROM df_released;
DROP TABLE df_released;
SET ttl_docs.clock_offset = 200;
-- In a procedure, the purge commits, so the procedure's own deferred constraints are
-- checked when the purge begins.
CREATE PROCEDURE df_procedure(child int) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO df_child VALUES (child);
    CALL ttl_docs.purge('df');
END $$;
CALL df_documents('a');
CALL df_procedure(5);
CALL df_procedure(3);
SELECT df_lines();
SELECT undeletable, last_error FROM ttl_docs.stat_collections WHERE collection = 'df'::regclass;

--
-- SET CONSTRAINTS of the user stays in effect
--
CALL df_documents('a');
BEGIN;
SET CONSTRAINTS df_early DEFERRED;
SET CONSTRAINTS df_late IMMEDIATE;
CALL ttl_docs.purge('df');
INSERT INTO df_early VALUES (7);
SAVEPOINT s;
INSERT INTO df_child VALUES (7);
ROLLBACK TO s;
COMMIT;
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
CALL ttl_docs.purge('df');
INSERT INTO df_early VALUES (7);
INSERT INTO df_child VALUES (7);
INSERT INTO df_parent VALUES (7);
COMMIT;
SELECT df_lines();
SELECT ttl_docs.create_collection('df_released', 60);
INSERT INTO df_released VALUES ('a', '{}');
SET ttl_docs.clock_offset = 400;
BEGIN;
SET CONSTRAINTS df_early DEFERRED;
SET CONSTRAINTS df_late IMMEDIATE;
SELECT ttl_docs.release('df_released');
INSERT INTO df_early VALUES (8);
INSERT INTO df_child VALUES (8);
ROLLBACK;
DROP TABLE df_released;
SET ttl_docs.clock_offset = 200;

--
-- Triggers that the delete causes: a cascade, deferred triggers of the cascade, and
-- checks of references to the rows that the cascade deletes
--
CREATE TABLE df_cascade (id int PRIMARY KEY, df text REFERENCES df ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE df_grandchild (id int CONSTRAINT df_grandchild REFERENCES df_cascade DEFERRABLE INITIALLY DEFERRED);
CREATE CONSTRAINT TRIGGER of_cascade AFTER DELETE ON df_cascade DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION df_note();
CALL df_documents('a', 'b', 'kept');
CREATE PROCEDURE df_children() LANGUAGE sql SET ttl_docs.clock_offset = 0 AS $$
    TRUNCATE df_cascade, df_grandchild;
    INSERT INTO df_cascade VALUES (1, 'a'), (2, 'b'), (3, 'kept');
    INSERT INTO df_grandchild VALUES (3);
    SET CONSTRAINTS ALL IMMEDIATE;
$$;
CALL df_children();
BEGIN;
INSERT INTO df_child VALUES (9);
CALL ttl_docs.purge('df');
SELECT df_lines();
SELECT * FROM df_cascade;
INSERT INTO df_parent VALUES (9);
COMMIT;
SELECT undeletable, last_error FROM ttl_docs.stat_collections WHERE collection = 'df'::regclass;
-- Outside a transaction block
CALL df_documents('a', 'b');
CALL df_children();
CALL ttl_docs.purge('df');
SELECT df_lines();
SELECT * FROM df_cascade;
TRUNCATE df_grandchild;
CALL ttl_docs.purge('df');
SELECT df_lines();
-- release()
SELECT ttl_docs.create_collection('df_released', 60);
CREATE TABLE df_of_released (id int PRIMARY KEY, df text REFERENCES df_released ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED);
CREATE CONSTRAINT TRIGGER of_cascade AFTER DELETE ON df_of_released DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION df_note();
CREATE TABLE df_below (id int CONSTRAINT df_below REFERENCES df_of_released DEFERRABLE INITIALLY DEFERRED);
INSERT INTO df_released VALUES ('a', '{}');
INSERT INTO df_of_released VALUES (1, 'a');
INSERT INTO df_below VALUES (1);
SET ttl_docs.clock_offset = 400;
BEGIN;
SELECT ttl_docs.release('df_released');
ROLLBACK;
TRUNCATE df_below;
SELECT ttl_docs.release('df_released');
SELECT df_lines();
DROP TABLE df_below, df_of_released, df_released;
SET ttl_docs.clock_offset = 200;

--
-- All foreign keys are deferred, as Django creates them
--
CREATE TABLE df_item (id int PRIMARY KEY, df text CONSTRAINT df_item REFERENCES df DEFERRABLE INITIALLY DEFERRED);
CALL df_documents('free', 'held');
BEGIN;
SET LOCAL ttl_docs.clock_offset = 0;
INSERT INTO df_item VALUES (1, 'held');
COMMIT;
BEGIN;
SET LOCAL ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('df');
-- The child is inserted before its parent.
INSERT INTO df_item VALUES (2, 'new');
INSERT INTO df VALUES ('new', '{}');
DELETE FROM df_item WHERE id = 1;
CALL ttl_docs.purge('df');
COMMIT;
SELECT * FROM df_item;
DROP TABLE df_item;
DELETE FROM df;
SELECT df_lines();

--
-- A trigger writes to tables with deferred foreign keys and deferred unique keys
--
CREATE TABLE df_archive (id text CONSTRAINT df_unique UNIQUE DEFERRABLE INITIALLY DEFERRED, parent int);
ALTER TABLE df_archive ADD CONSTRAINT df_archive FOREIGN KEY (parent) REFERENCES df_parent DEFERRABLE INITIALLY DEFERRED;
CREATE FUNCTION df_archive() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.df_archive VALUES (left(OLD.id, 1), CASE OLD.id WHEN 'orphan' THEN 100 ELSE 1 END);
    RETURN OLD;
END $$;
CREATE TRIGGER archive BEFORE DELETE ON df FOR EACH ROW EXECUTE FUNCTION df_archive();
CALL df_documents('archived');
BEGIN;
CALL ttl_docs.purge('df');
SELECT * FROM df_archive;
COMMIT;
CALL df_documents('orphan');
BEGIN;
CALL ttl_docs.purge('df');
COMMIT;
CALL df_documents('again', 'other');
BEGIN;
CALL ttl_docs.purge('df');
COMMIT;
SELECT * FROM df_archive;
SET ttl_docs.show_expired = on;
SELECT id FROM df;
RESET ttl_docs.show_expired;
TRUNCATE df, df_cascade, df_grandchild;
SELECT ttl_docs.resume_purge('df');
DROP TABLE df_archive;
SELECT count(*) FROM df_lines();
-- The trigger writes to a partitioned table.  In a transaction block, this works only
-- after SET CONSTRAINTS.
CREATE TABLE df_archive (id text, parent int) PARTITION BY LIST (id);
CREATE TABLE df_archive_a PARTITION OF df_archive DEFAULT;
ALTER TABLE df_archive ADD CONSTRAINT df_archive FOREIGN KEY (parent) REFERENCES df_parent DEFERRABLE INITIALLY DEFERRED;
CALL df_documents('archived');
BEGIN;
CALL ttl_docs.purge('df');
SELECT last_error FROM ttl_docs.stat_collections WHERE collection = 'df'::regclass;
SET CONSTRAINTS ALL IMMEDIATE;
CALL ttl_docs.purge('df');
ROLLBACK;
CALL ttl_docs.purge('df');
SELECT * FROM df_archive;
CALL df_documents('orphan');
CALL ttl_docs.purge('df');
SELECT last_error FROM ttl_docs.stat_collections WHERE collection = 'df'::regclass;
DROP TRIGGER archive ON df;
CALL ttl_docs.purge('df');
SELECT count(*) FROM df_lines();

--
-- A delete that frees a key belongs to the user's statement: its deferred triggers stay
-- deferred
--
CALL df_documents('a');
BEGIN;
INSERT INTO df VALUES ('a', '{}');
SELECT df_lines();
COMMIT;
SELECT df_lines();

--
-- release() while deferred triggers of the collection are pending
--
CREATE CONSTRAINT TRIGGER of_insert AFTER INSERT ON df DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION df_note();
\set VERBOSITY default
BEGIN;
INSERT INTO df VALUES ('b', '{}');
SELECT ttl_docs.release('df');
ROLLBACK;
\set VERBOSITY terse
BEGIN;
INSERT INTO df VALUES ('b', '{}');
SET CONSTRAINTS ALL IMMEDIATE;
SELECT df_lines();
SELECT ttl_docs.release('df');
COMMIT;
DROP TABLE df_cascade, df_grandchild, df_archive, df, df_log, df_child, df_early, df_parent;
DROP FUNCTION df_note, df_archive, df_lines;
DROP PROCEDURE df_documents, df_procedure, df_children;

-- Triggers run as the owner of the table.  If the owner is a superuser and another user
-- owns the code, the purge does not run the code.  The collection is blocked until one
-- of the two owners changes.
\set SHOW_CONTEXT never
\set VERBOSITY terse
CREATE ROLE regress_ttl_purge_attacker;
CREATE ROLE regress_ttl_purge_super SUPERUSER;
CREATE SCHEMA pk AUTHORIZATION regress_ttl_purge_attacker;
CREATE TABLE pk_log (line text);
GRANT INSERT ON pk_log TO PUBLIC;
CREATE TABLE pk_c (id text PRIMARY KEY, doc jsonb) PARTITION BY LIST (id);
CREATE TABLE pk_leaf PARTITION OF pk_c FOR VALUES IN ('a');
SELECT ttl_docs.adopt('pk_c', 1000);
SELECT ttl_docs.create_collection('pk_plain', 1000);
GRANT TRIGGER, REFERENCES ON pk_c, pk_leaf, pk_plain TO regress_ttl_purge_attacker;
\set make 'RESET ttl_docs.clock_offset; SET client_min_messages = warning; TRUNCATE pk_c, pk_plain, pk_log CASCADE; RESET client_min_messages; INSERT INTO pk_c VALUES (''a'', ''{"ttl": 100}''); INSERT INTO pk_plain VALUES (''a'', ''{"ttl": 100}''); SET ttl_docs.clock_offset = 200;'
\set purge 'CALL ttl_docs.purge(''pk_plain''); CALL ttl_docs.purge(''pk_c''); SELECT line FROM pk_log ORDER BY 1;'

CREATE FUNCTION pk_me() RETURNS text LANGUAGE plpgsql AS
    $$ BEGIN RETURN CASE WHEN (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN 'a superuser' ELSE current_user END; END $$;
SET ROLE regress_ttl_purge_attacker;
CREATE FUNCTION pk.trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.pk_log VALUES (format('%s %s of %s as %s', TG_WHEN, TG_LEVEL, TG_TABLE_NAME, public.pk_me()));
    RETURN OLD;
END $$;
CREATE FUNCTION pk.condition(text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.pk_log VALUES ('WHEN as ' || public.pk_me());
    RETURN true;
END $$;
CREATE FUNCTION pk.equals(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT pk.condition($1)';
CREATE OPERATOR pk.=== (LEFTARG = text, RIGHTARG = text, FUNCTION = texteq);
CREATE OPERATOR pk.==== (LEFTARG = text, RIGHTARG = text, FUNCTION = pk.equals);
RESET ROLE;
CREATE FUNCTION pk_trusted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.pk_log VALUES (format('trusted %s %s of %s as %s', TG_WHEN, TG_LEVEL, TG_TABLE_NAME, public.pk_me()));
    RETURN OLD;
END $$;
GRANT USAGE ON SCHEMA pk TO PUBLIC;

-- A superuser's own code runs as that superuser.  So does the code of another
-- superuser.
CREATE TRIGGER t BEFORE DELETE ON pk_plain FOR EACH ROW EXECUTE FUNCTION pk_trusted();
CREATE TRIGGER t AFTER DELETE ON pk_c FOR EACH STATEMENT EXECUTE FUNCTION pk_trusted();
:make
:purge
ALTER FUNCTION pk_trusted() OWNER TO regress_ttl_purge_super;
:make
:purge
DROP TRIGGER t ON pk_plain;
DROP TRIGGER t ON pk_c;

-- Code of another user: row triggers, before and after
\set VERBOSITY default
SET ROLE regress_ttl_purge_attacker;
CREATE TRIGGER t BEFORE DELETE ON pk_plain FOR EACH ROW EXECUTE FUNCTION pk.trigger();
CREATE TRIGGER t BEFORE DELETE ON pk_leaf FOR EACH ROW EXECUTE FUNCTION pk.trigger();
RESET ROLE;
:make
:purge
-- The message is the same when purging all collections, and in a transaction block.
TRUNCATE pk_c;
ALTER TABLE pk_leaf DISABLE TRIGGER t;
CALL ttl_docs.purge();
ALTER TABLE pk_leaf ENABLE TRIGGER t;
:make
BEGIN;
CALL ttl_docs.purge('pk_plain');
COMMIT;
\set VERBOSITY terse
SET ttl_docs.show_expired = on;
SELECT (SELECT count(*) FROM pk_plain) AS plain, (SELECT count(*) FROM pk_c) AS partitioned;
RESET ttl_docs.show_expired;
-- No document counts as undeletable.
SELECT collection, undeletable, last_error FROM ttl_docs.stat_collections WHERE collection::text LIKE 'pk%' ORDER BY collection::text;
-- resume_purge() does not end the block, and says so.
\set VERBOSITY default
SELECT ttl_docs.resume_purge('pk_plain');
\set VERBOSITY terse
-- Disabled triggers do not block the purge.
ALTER TABLE pk_plain DISABLE TRIGGER t;
ALTER TABLE pk_leaf DISABLE TRIGGER t;
:purge
ALTER TABLE pk_plain ENABLE ALWAYS TRIGGER t;
ALTER TABLE pk_leaf ENABLE REPLICA TRIGGER t;
:make
:purge
DROP TRIGGER t ON pk_plain;
DROP TRIGGER t ON pk_leaf;
SET ROLE regress_ttl_purge_attacker;
CREATE TRIGGER t AFTER DELETE ON pk_plain FOR EACH ROW EXECUTE FUNCTION pk.trigger();
CREATE CONSTRAINT TRIGGER t AFTER DELETE ON pk_leaf DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pk.trigger();
RESET ROLE;
:purge
-- SECURITY DEFINER does not help: the owner of the function can revert it at any time.
ALTER FUNCTION pk.trigger() SECURITY DEFINER;
:purge
ALTER FUNCTION pk.trigger() SECURITY INVOKER;
-- Changing the owner of the function or of the table helps.
:make
:purge
ALTER FUNCTION pk.trigger() OWNER TO regress_ttl_purge_super;
CALL ttl_docs.purge('pk_plain');
ALTER FUNCTION pk.trigger() OWNER TO regress_ttl_purge_attacker;
CALL ttl_docs.purge('pk_c');
ALTER TABLE pk_leaf OWNER TO regress_ttl_purge_attacker;
CALL ttl_docs.purge('pk_c');
ALTER TABLE pk_leaf OWNER TO CURRENT_USER;
GRANT TRIGGER ON pk_leaf TO regress_ttl_purge_attacker;
SELECT line FROM pk_log ORDER BY 1;
DROP TRIGGER t ON pk_plain;
DROP TRIGGER t ON pk_leaf;

-- Statement triggers of the table, and of the root of a partition
SET ROLE regress_ttl_purge_attacker;
CREATE TRIGGER t BEFORE DELETE ON pk_plain FOR EACH STATEMENT EXECUTE FUNCTION pk.trigger();
CREATE TRIGGER t AFTER DELETE ON pk_c FOR EACH STATEMENT EXECUTE FUNCTION pk.trigger();
RESET ROLE;
:make
:purge
DROP TRIGGER t ON pk_plain;
DROP TRIGGER t ON pk_c;
-- Triggers for other commands do not matter.
SET ROLE regress_ttl_purge_attacker;
CREATE TRIGGER t AFTER INSERT OR UPDATE ON pk_plain FOR EACH ROW EXECUTE FUNCTION pk.trigger();
CREATE TRIGGER t AFTER TRUNCATE ON pk_c FOR EACH STATEMENT EXECUTE FUNCTION pk.trigger();
RESET ROLE;
:purge
DROP TRIGGER t ON pk_plain;
DROP TRIGGER t ON pk_c;

-- The WHEN condition of a trigger is code as well.
SET ROLE regress_ttl_purge_attacker;
CREATE TRIGGER t AFTER DELETE ON pk_plain FOR EACH ROW WHEN (pk.condition(OLD.id)) EXECUTE FUNCTION suppress_redundant_updates_trigger();
CREATE TRIGGER t AFTER DELETE ON pk_leaf FOR EACH ROW WHEN (OLD.id = 'b' OR CASE WHEN OLD.doc ? 'x' THEN true ELSE coalesce(pk.condition(OLD.id), false) END)
    EXECUTE FUNCTION suppress_redundant_updates_trigger();
RESET ROLE;
:make
:purge
DROP TRIGGER t ON pk_plain;
DROP TRIGGER t ON pk_leaf;
-- An operator counts as its function.
SET ROLE regress_ttl_purge_attacker;
CREATE TRIGGER t AFTER DELETE ON pk_plain FOR EACH ROW WHEN (OLD.id OPERATOR(pk.===) 'b') EXECUTE FUNCTION suppress_redundant_updates_trigger();
CREATE TRIGGER t AFTER DELETE ON pk_leaf FOR EACH ROW WHEN ((OLD.id = ANY ('{}')) IS NOT TRUE AND OLD.id OPERATOR(pk.====) ANY ('{b,c}'))
    EXECUTE FUNCTION suppress_redundant_updates_trigger();
RESET ROLE;
:purge
DROP TRIGGER t ON pk_plain;
DROP TRIGGER t ON pk_leaf;

-- Triggers of tables that a foreign key action reaches, directly or indirectly
SET ROLE regress_ttl_purge_attacker;
CREATE TABLE pk.child (id text PRIMARY KEY REFERENCES pk_plain ON DELETE CASCADE);
CREATE TABLE pk.grandchild (id text REFERENCES pk.child ON DELETE SET NULL);
CREATE TRIGGER t AFTER UPDATE ON pk.grandchild FOR EACH ROW EXECUTE FUNCTION pk.trigger();
RESET ROLE;
:make
RESET ttl_docs.clock_offset;
INSERT INTO pk.child VALUES ('a');
INSERT INTO pk.grandchild VALUES ('a');
SET ttl_docs.clock_offset = 200;
\set VERBOSITY default
CALL ttl_docs.purge('pk_plain');
\set VERBOSITY terse
DROP TRIGGER t ON pk.grandchild;
SET ROLE regress_ttl_purge_attacker;
CREATE TRIGGER t BEFORE DELETE ON pk.child FOR EACH STATEMENT EXECUTE FUNCTION pk.trigger();
RESET ROLE;
CALL ttl_docs.purge('pk_plain');
DROP TRIGGER t ON pk.child;
SET ROLE regress_ttl_purge_attacker;
CREATE TRIGGER t AFTER DELETE ON pk.child FOR EACH ROW WHEN (pk.condition(OLD.id)) EXECUTE FUNCTION suppress_redundant_updates_trigger();
RESET ROLE;
CALL ttl_docs.purge('pk_plain');
DROP TRIGGER t ON pk.child;
-- Without the trigger, the purge works.
CALL ttl_docs.purge('pk_plain');
SELECT * FROM pk.grandchild;
SELECT line FROM pk_log ORDER BY 1;
:make
-- The purge does not write to a table with ON DELETE RESTRICT.
DROP TABLE pk.grandchild, pk.child;
SET ROLE regress_ttl_purge_attacker;
CREATE TABLE pk.child (id text REFERENCES pk_plain ON DELETE RESTRICT);
CREATE TRIGGER t AFTER DELETE OR UPDATE ON pk.child FOR EACH ROW EXECUTE FUNCTION pk.trigger();
RESET ROLE;
CALL ttl_docs.purge('pk_plain');
-- A partition of a table that the purge writes to
DROP TABLE pk.child;
SET ROLE regress_ttl_purge_attacker;
CREATE TABLE pk.child (id text REFERENCES pk_plain ON DELETE CASCADE) PARTITION BY LIST (id);
CREATE TABLE pk.child_leaf PARTITION OF pk.child FOR VALUES IN ('a');
CREATE TRIGGER t AFTER DELETE ON pk.child_leaf FOR EACH ROW EXECUTE FUNCTION pk.trigger();
RESET ROLE;
:make
CALL ttl_docs.purge('pk_plain');
-- The check terminates for tables that reference each other.
DROP TABLE pk.child;
CREATE TABLE pk.child (id text PRIMARY KEY REFERENCES pk_plain ON DELETE CASCADE, other text);
CREATE TABLE pk.grandchild (id text PRIMARY KEY REFERENCES pk.child ON DELETE CASCADE);
ALTER TABLE pk.child ADD FOREIGN KEY (other) REFERENCES pk.grandchild ON DELETE CASCADE;
:make
CALL ttl_docs.purge('pk_plain');
SELECT line FROM pk_log ORDER BY 1;

RESET ttl_docs.clock_offset;
SET client_min_messages = warning;
DROP SCHEMA pk CASCADE;
DROP TABLE pk_c, pk_plain, pk_log;
DROP FUNCTION pk_trusted(), pk_me();
DROP ROLE regress_ttl_purge_attacker, regress_ttl_purge_super;

-- A user who may create a trigger on a table, or a child of it, must not become its
-- owner through a purge.  Each of these attempts would run the attacker's code as
-- another user, and is blocked.  Some attempts call no function of the attacker
-- directly: they use built-in functions that run SQL, domains, casts, rules, and rows
-- that move between partitions.
\set SHOW_CONTEXT never
\set VERBOSITY terse
CREATE ROLE regress_ttl_esc_attacker;
CREATE ROLE regress_ttl_esc_owner;
CREATE SCHEMA esc AUTHORIZATION regress_ttl_esc_attacker;
GRANT USAGE ON SCHEMA esc TO PUBLIC;
CREATE TABLE esc_gained (who text, how text);
GRANT INSERT ON esc_gained TO PUBLIC;
SELECT ttl_docs.create_collection('esc_c', 1000);
GRANT TRIGGER, REFERENCES ON esc_c TO regress_ttl_esc_attacker;

SET ROLE regress_ttl_esc_attacker;
CREATE FUNCTION esc.gain(how text) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.esc_gained VALUES (current_user, how);
    RETURN true;
END $$;
CREATE FUNCTION esc.trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM esc.gain(concat_ws(' ', TG_TABLE_NAME, TG_OP, TG_WHEN));
    RETURN NULL;
END $$;
CREATE DOMAIN esc.domain AS text CHECK (esc.gain('domain'));
CREATE TYPE esc.enum AS ENUM ('a');
CREATE FUNCTION esc.to_json(value esc.enum) RETURNS json LANGUAGE plpgsql AS $$ BEGIN PERFORM esc.gain('cast'); RETURN '1'; END $$;
CREATE CAST (esc.enum AS json) WITH FUNCTION esc.to_json(esc.enum);
RESET ROLE;
-- The superuser's trigger function executes its argument.
CREATE FUNCTION esc_do() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE TG_ARGV[0]; RETURN NULL; END $$;

-- Purges after the attacker has created a trigger or a child that would run code as
-- another user.
CREATE PROCEDURE esc_try() LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE public.esc_gained;
    CALL ttl_docs.purge('public.esc_c');
END $$;
\set document 'RESET ttl_docs.clock_offset; TRUNCATE esc_c CASCADE; INSERT INTO esc_c VALUES (''a'', ''{"ttl": 100}'');'
\set try 'SET ttl_docs.clock_offset = 200; CALL esc_try(); SELECT * FROM esc_gained WHERE who <> ''regress_ttl_esc_attacker'';'
SET client_min_messages = warning;

-- WHEN conditions
SET ROLE regress_ttl_esc_attacker;
CREATE TRIGGER t AFTER DELETE ON esc_c FOR EACH ROW WHEN (OLD.id::esc.domain IS NULL) EXECUTE FUNCTION suppress_redundant_updates_trigger();
RESET ROLE;
:document
:try
DROP TRIGGER t ON esc_c;
SET ROLE regress_ttl_esc_attacker;
CREATE TRIGGER t AFTER DELETE ON esc_c FOR EACH ROW WHEN (query_to_xml('SELECT esc.gain(''query_to_xml'')', true, true, '') IS NULL) EXECUTE FUNCTION suppress_redundant_updates_trigger();
RESET ROLE;
:document
:try
DROP TRIGGER t ON esc_c;
SET ROLE regress_ttl_esc_attacker;
CREATE TRIGGER t AFTER DELETE ON esc_c FOR EACH ROW WHEN (to_json(OLD.id::esc.enum) IS NULL) EXECUTE FUNCTION suppress_redundant_updates_trigger();
RESET ROLE;
:document
:try
DROP TRIGGER t ON esc_c;
SET ROLE regress_ttl_esc_attacker;
CREATE TRIGGER t AFTER DELETE ON esc_c FOR EACH ROW WHEN (ts_rewrite('a'::tsquery, 'SELECT ''a''::tsquery, ''b''::tsquery WHERE esc.gain(''ts_rewrite'')') IS NULL) EXECUTE FUNCTION suppress_redundant_updates_trigger();
RESET ROLE;
:document
:try
DROP TRIGGER t ON esc_c;
-- A condition that only computes is allowed.
CREATE TRIGGER t AFTER DELETE ON esc_c FOR EACH ROW WHEN (coalesce((OLD.doc->>'ttl')::int, 0) BETWEEN 1 AND 1000 AND OLD.id LIKE 'a%' AND OLD.id IN ('a', 'b')) EXECUTE FUNCTION esc.trigger();
ALTER FUNCTION esc.trigger() OWNER TO CURRENT_USER;
:document
:try
ALTER FUNCTION esc.trigger() OWNER TO regress_ttl_esc_attacker;
DROP TRIGGER t ON esc_c;

-- Trigger arguments: first of the superuser, then of the attacker
CREATE TRIGGER t AFTER DELETE ON esc_c FOR EACH ROW EXECUTE FUNCTION esc_do('SELECT 1');
:document
:try
DROP TRIGGER t ON esc_c;
ALTER FUNCTION esc_do() OWNER TO regress_ttl_esc_owner;
ALTER ROLE regress_ttl_esc_owner SUPERUSER;
SET ROLE regress_ttl_esc_attacker;
CREATE TRIGGER t AFTER DELETE ON esc_c FOR EACH ROW EXECUTE FUNCTION esc_do('SELECT esc.gain(''argument'')');
RESET ROLE;
:document
:try
DROP TRIGGER t ON esc_c;
ALTER ROLE regress_ttl_esc_owner NOSUPERUSER;

-- Children
SET ROLE regress_ttl_esc_attacker;
CREATE TABLE esc.child (id text REFERENCES esc_c ON DELETE CASCADE) PARTITION BY LIST (id);
CREATE TABLE esc.part PARTITION OF esc.child FOR VALUES IN ('a');
CREATE TRIGGER t AFTER DELETE ON esc.part FOR EACH ROW EXECUTE FUNCTION esc.trigger();
RESET ROLE;
:document
INSERT INTO esc.child VALUES ('a');
:try
DROP TABLE esc.child;
SET ROLE regress_ttl_esc_attacker;
CREATE TABLE esc.child (id text REFERENCES esc_c ON DELETE CASCADE);
CREATE TABLE esc.log (id text);
CREATE TRIGGER t AFTER INSERT ON esc.log FOR EACH ROW EXECUTE FUNCTION esc.trigger();
CREATE RULE r AS ON DELETE TO esc.child DO ALSO INSERT INTO esc.log VALUES (OLD.id);
RESET ROLE;
:document
INSERT INTO esc.child VALUES ('a');
:try
DROP TABLE esc.child, esc.log;
SET ROLE regress_ttl_esc_attacker;
CREATE TABLE esc.child (id text REFERENCES esc_c ON DELETE SET NULL) PARTITION BY LIST (id);
CREATE TABLE esc.part PARTITION OF esc.child FOR VALUES IN ('a');
CREATE TABLE esc.others PARTITION OF esc.child DEFAULT;
CREATE TRIGGER t AFTER INSERT ON esc.child FOR EACH ROW EXECUTE FUNCTION esc.trigger();
RESET ROLE;
:document
INSERT INTO esc.child VALUES ('a');
:try
DROP TABLE esc.child;
-- The purge deletes a harmless child.
SET ROLE regress_ttl_esc_attacker;
CREATE TABLE esc.child (id text REFERENCES esc_c ON DELETE CASCADE);
RESET ROLE;
:document
INSERT INTO esc.child VALUES ('a');
:try
SELECT count(*) FROM esc.child;
DROP TABLE esc.child;

-- The collection references itself
ALTER TABLE esc_c ADD parent text REFERENCES esc_c ON DELETE SET NULL;
SET ROLE regress_ttl_esc_attacker;
CREATE TRIGGER t AFTER UPDATE ON esc_c FOR EACH ROW EXECUTE FUNCTION esc.trigger();
RESET ROLE;
:document
INSERT INTO esc_c (id, doc, parent) VALUES ('b', '{"ttl": -1}', 'a');
:try
DROP TRIGGER t ON esc_c;
ALTER TABLE esc_c DROP parent;

-- An owner who is not a superuser is protected in the same way, but may run their own
-- code
GRANT INSERT ON esc_gained TO regress_ttl_esc_owner;
GRANT CREATE ON SCHEMA public TO regress_ttl_esc_owner;
ALTER TABLE esc_c OWNER TO regress_ttl_esc_owner;
SET ROLE regress_ttl_esc_owner;
GRANT TRIGGER, REFERENCES ON esc_c TO regress_ttl_esc_attacker;
SET ROLE regress_ttl_esc_attacker;
CREATE TRIGGER t AFTER DELETE ON esc_c FOR EACH ROW EXECUTE FUNCTION esc.trigger();
RESET ROLE;
:document
:try
-- The attacker is a member of the owner's role now, so the trigger runs as the owner of
-- the table.
GRANT regress_ttl_esc_owner TO regress_ttl_esc_attacker;
:try
REVOKE regress_ttl_esc_owner FROM regress_ttl_esc_attacker;
-- SECURITY DEFINER does not help: the owner of the function could revert it while a
-- batch runs.
ALTER FUNCTION esc.trigger() SECURITY DEFINER;
:document
:try
DROP TRIGGER t ON esc_c;
ALTER FUNCTION esc.trigger() SECURITY INVOKER;

-- A deferred constraint evaluates its expression as the user who ends the statement
SET ROLE regress_ttl_esc_attacker;
CREATE FUNCTION esc.immutable(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM esc.gain('expression'); RETURN $1; END $$;
CREATE TABLE esc.child (id text REFERENCES esc_c ON DELETE SET NULL, EXCLUDE (esc.immutable(coalesce(id, '')) WITH =) DEFERRABLE INITIALLY DEFERRED);
RESET ROLE;
:document
INSERT INTO esc.child VALUES ('a');
:try
DROP TABLE esc.child;

-- The search for the purge index runs no code, whatever functions index predicates call
SET ROLE regress_ttl_esc_attacker;
SELECT ttl_docs.create_collection('esc.own', 1000);
CREATE INDEX aaa ON esc.own (_slot) WHERE esc.immutable('x') IS NOT NULL;
REINDEX INDEX CONCURRENTLY esc.own__slot_idx;
RESET ROLE;
RESET ttl_docs.clock_offset;
INSERT INTO esc.own VALUES ('a', '{"ttl": 100}');
TRUNCATE esc_gained;
\c
SET client_min_messages = warning;
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('esc.own');
SELECT DISTINCT who FROM esc_gained WHERE who <> 'regress_ttl_esc_attacker';
SET ttl_docs.show_expired = on;
SELECT count(*) FROM esc.own;
RESET ttl_docs.show_expired;
DROP TABLE esc.own;

-- The owner of the root does not act as the owner of a partition
CREATE TABLE esc_root (id text PRIMARY KEY, doc jsonb) PARTITION BY LIST (id);
CREATE TABLE esc_leaf PARTITION OF esc_root FOR VALUES IN ('a');
CREATE TABLE esc_mine PARTITION OF esc_root FOR VALUES IN ('b');
RESET ttl_docs.clock_offset;
SELECT ttl_docs.adopt('esc_root', 1000);
ALTER TABLE esc_root OWNER TO regress_ttl_esc_attacker;
ALTER TABLE esc_mine OWNER TO regress_ttl_esc_attacker;
INSERT INTO esc_root VALUES ('a', '{"ttl": 100}'), ('b', '{"ttl": 100}');
SET ttl_docs.clock_offset = 200;
SET ROLE regress_ttl_esc_attacker;
SET client_min_messages = notice;
CALL ttl_docs.purge('esc_root');
RESET ROLE;
SET ttl_docs.show_expired = on;
SELECT id FROM esc_root;
RESET ttl_docs.show_expired;
DROP TABLE esc_root;

SET client_min_messages = error;
RESET ttl_docs.clock_offset;
DROP TABLE esc_c, esc_gained;
DROP PROCEDURE esc_try;
DROP FUNCTION esc_do;
DROP SCHEMA esc CASCADE;
REVOKE CREATE ON SCHEMA public FROM regress_ttl_esc_owner;
DROP ROLE regress_ttl_esc_attacker, regress_ttl_esc_owner;

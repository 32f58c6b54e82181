-- A superuser works on the table of an attacker, who has put code everywhere in a
-- table: constraints, defaults, generated columns, indexes, statistics, triggers,
-- policies, rules and domains.  None of this code runs as the superuser, except in
-- functions that correspond to a SELECT by the superuser.
\set SHOW_CONTEXT never
\set VERBOSITY terse
CREATE ROLE regress_ttl_sec_attacker;
CREATE ROLE regress_ttl_sec_other;
CREATE SCHEMA sec AUTHORIZATION regress_ttl_sec_attacker;
CREATE TABLE sec_gained (who text, how text);
GRANT INSERT ON sec_gained TO PUBLIC;

SET ROLE regress_ttl_sec_attacker;
CREATE FUNCTION sec.gain(how text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.sec_gained VALUES (current_user, how);
    RETURN true;
END $$;
CREATE FUNCTION sec.pass(how text, value text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
    PERFORM sec.gain(how);
    RETURN value;
EXCEPTION WHEN OTHERS THEN
    RETURN value;
END $$;
CREATE FUNCTION sec.trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM sec.gain(TG_NAME);
    RETURN coalesce(NEW, OLD);
END $$;
CREATE DOMAIN sec.moment AS timestamptz CHECK (sec.gain('domain'));
CREATE PROCEDURE sec.make(name text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE replace($sql$
        CREATE TABLE @ (id text PRIMARY KEY, doc jsonb CHECK (sec.pass('check', doc::text) IS NOT NULL), changed sec.moment,
            generated text UNIQUE GENERATED ALWAYS AS (sec.pass('generated column', id)) STORED, d text DEFAULT sec.pass('default', 'x'),
            CHECK (sec.pass('constant check', 'x') IS NOT NULL));
        CREATE INDEX ON @ (sec.pass('index expression', id));
        CREATE INDEX ON @ ((sec.pass('constant index expression', 'x') || id));
        CREATE INDEX ON @ (id) WHERE sec.pass('index predicate', id) IS NOT NULL;
        CREATE INDEX ON @ (id) WHERE sec.pass('constant index predicate', 'x') IS NOT NULL;
        CREATE STATISTICS @_statistics ON (sec.pass('statistics', id)), (sec.pass('constant statistics', 'x') || id) FROM @;
        CREATE TRIGGER row_trigger BEFORE INSERT OR UPDATE OR DELETE ON @ FOR EACH ROW EXECUTE FUNCTION sec.trigger();
        CREATE TRIGGER after_trigger AFTER INSERT OR UPDATE OR DELETE ON @ FOR EACH ROW WHEN (sec.pass('when', 'x') IS NOT NULL) EXECUTE FUNCTION sec.trigger();
        CREATE CONSTRAINT TRIGGER deferred_trigger AFTER INSERT OR UPDATE OR DELETE ON @ DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION sec.trigger();
        CREATE TRIGGER statement_trigger AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON @ FOR EACH STATEMENT EXECUTE FUNCTION sec.trigger();
        CREATE POLICY p ON @ USING (sec.pass('policy', id) IS NOT NULL);
        ALTER TABLE @ ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
        CREATE RULE r AS ON DELETE TO @ DO ALSO SELECT sec.gain('rule');
        INSERT INTO @ (id, doc, changed) VALUES ('a', '{"ttl": 100}', now()), ('b', '{}', now());
    $sql$, '@', 'sec.' || name);
END $$;
CALL sec.make('t');
CALL sec.make('u');
-- A table with its own _ts, which is not yet NOT NULL
CALL sec.make('w');
ALTER TABLE sec.w ADD COLUMN _ts timestamptz;
UPDATE sec.w SET _ts = now();
RESET ROLE;
TRUNCATE sec_gained;
-- Each test uses a new session, because constant expressions are evaluated once in a
-- session.

--
-- Changing collections
--
\c
\set VERBOSITY terse
SELECT ttl_docs.adopt('sec.t', 1000, last_modified => 'changed');
SELECT DISTINCT how FROM sec_gained WHERE who <> 'regress_ttl_sec_attacker' ORDER BY 1;
\c
SELECT ttl_docs.adopt('sec.w', 1000);
SELECT DISTINCT how FROM sec_gained WHERE who <> 'regress_ttl_sec_attacker' ORDER BY 1;
\c
SELECT ttl_docs.set_default_ttl('sec.t', NULL);
SELECT ttl_docs.set_default_ttl('sec.t', -1);
SELECT ttl_docs.set_default_ttl('sec.t', 1000);
SELECT DISTINCT how FROM sec_gained WHERE who <> 'regress_ttl_sec_attacker' ORDER BY 1;
\c
SELECT ttl_docs.set_indexing('sec.t', 'lazy');
SELECT ttl_docs.set_indexing('sec.t', 'consistent');
SELECT DISTINCT how FROM sec_gained WHERE who <> 'regress_ttl_sec_attacker' ORDER BY 1;
\c
SELECT ttl_docs.pause_purge('sec.t');
SELECT ttl_docs.resume_purge('sec.t');
SELECT ttl_docs.get_default_ttl('sec.t'), ttl_docs.expires_at('sec.t', 'epoch', 1) < now() AS at, ttl_docs.is_expired('sec.t', 'epoch', 1);
SELECT count(*) FROM ttl_docs.collections WHERE collection = 'sec.t'::regclass;
SELECT count(*) FROM ttl_docs.stat_collections WHERE collection = 'sec.t'::regclass;
SELECT DISTINCT how FROM sec_gained WHERE who <> 'regress_ttl_sec_attacker' ORDER BY 1;

--
-- A purge
--
-- The WHEN condition runs code of another user, so the purge is blocked.  Without the
-- condition, code runs as the owner.
\c
\set VERBOSITY terse
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('sec.t');
DROP TRIGGER after_trigger ON sec.t;
TRUNCATE sec_gained;
CALL ttl_docs.purge('sec.t');
SELECT DISTINCT who, how FROM sec_gained ORDER BY 1, 2;

--
-- Release
--
-- An administrator who uninstalls ttl_docs calls release() for the tables of all users.
\c
\set VERBOSITY terse
SET ttl_docs.clock_offset = 2000;
TRUNCATE sec_gained;
SELECT ttl_docs.release('sec.t');
SELECT DISTINCT who, how FROM sec_gained ORDER BY 1, 2;
SELECT count(*) FROM sec.t;
-- A user with the TRIGGER privilege does not become the owner either.
RESET ttl_docs.clock_offset;
CREATE SCHEMA sec_other AUTHORIZATION regress_ttl_sec_other;
SET ROLE regress_ttl_sec_other;
SELECT ttl_docs.create_collection('sec_other.c', 1000);
INSERT INTO sec_other.c VALUES ('a', '{"ttl": 100}');
GRANT USAGE ON SCHEMA sec_other TO regress_ttl_sec_attacker;
GRANT TRIGGER ON sec_other.c TO regress_ttl_sec_attacker;
RESET ROLE;
GRANT USAGE ON SCHEMA sec TO regress_ttl_sec_other;
SET ROLE regress_ttl_sec_attacker;
CREATE TRIGGER t AFTER DELETE ON sec_other.c FOR EACH ROW EXECUTE FUNCTION sec.trigger();
RESET ROLE;
TRUNCATE sec_gained;
SET ttl_docs.clock_offset = 200;
\set VERBOSITY default
SELECT ttl_docs.release('sec_other.c');
SET ROLE regress_ttl_sec_other;
SELECT ttl_docs.release('sec_other.c');
\set VERBOSITY terse
DROP TRIGGER t ON sec_other.c;
SELECT ttl_docs.release('sec_other.c');
RESET ROLE;
SELECT * FROM sec_gained;

--
-- Partitions of another user
--
-- ATTACH PARTITION runs the same code as for plain tables.  Nobody should attach
-- another user's table.
\c
\set VERBOSITY terse
CREATE TABLE sec_root (id text, doc jsonb, changed timestamptz, generated text, d text) PARTITION BY LIST (id);
SELECT ttl_docs.adopt('sec_root', 1000);
CREATE TABLE sec_plain (LIKE sec_root) PARTITION BY LIST (id);
SET ROLE regress_ttl_sec_attacker;
CREATE TABLE sec.part (id text NOT NULL, doc jsonb, changed timestamptz, generated text, d text, _ts timestamptz NOT NULL, _ttl int, _slot bigint);
INSERT INTO sec.part VALUES ('a', '{"ttl": 100}', NULL, NULL, NULL, now(), 7, 7);
CREATE INDEX ON sec.part (sec.pass('index expression', id));
CREATE INDEX ON sec.part ((sec.pass('constant index expression', 'x') || id));
CREATE TRIGGER row_trigger BEFORE INSERT OR UPDATE OR DELETE ON sec.part FOR EACH ROW EXECUTE FUNCTION sec.trigger();
RESET ROLE;
CREATE TABLE sec_usual (how text);
\c
TRUNCATE sec_gained;
ALTER TABLE sec_plain ATTACH PARTITION sec.part FOR VALUES IN ('a');
INSERT INTO sec_usual SELECT how FROM sec_gained WHERE who <> 'regress_ttl_sec_attacker';
ALTER TABLE sec_plain DETACH PARTITION sec.part;
\c
TRUNCATE sec_gained;
ALTER TABLE sec_root ATTACH PARTITION sec.part FOR VALUES IN ('a');
SELECT how FROM sec_gained WHERE who <> 'regress_ttl_sec_attacker' EXCEPT SELECT how FROM sec_usual;
SELECT id, _ttl FROM sec_root;
\c
TRUNCATE sec_gained;
ALTER TABLE sec_root DETACH PARTITION sec.part;
SELECT DISTINCT how FROM sec_gained WHERE who <> 'regress_ttl_sec_attacker' ORDER BY 1;
DROP TABLE sec_root, sec_plain;

--
-- Functions that correspond to a SELECT run the same code as a SELECT
--
-- PostgreSQL evaluates constant expressions in indexes and statistics as the user who
-- plans a query.
TRUNCATE sec_usual;
\c
\set VERBOSITY terse
TRUNCATE sec_gained;
SELECT count(*) FROM sec.u;
INSERT INTO sec_usual SELECT how FROM sec_gained WHERE who <> 'regress_ttl_sec_attacker';
SELECT DISTINCT how FROM sec_usual WHERE how = 'constant index predicate';
TRUNCATE sec_gained;
\c
SELECT ttl_docs.adopt('sec.u', 1000);
SELECT DISTINCT how FROM sec_gained WHERE who <> 'regress_ttl_sec_attacker' ORDER BY 1;
\c
SELECT live FROM ttl_docs.preview('sec.u', 5);
SELECT ttl_docs.read_document('sec.u', 'a') - '_ts';
SELECT how FROM sec_gained WHERE who <> 'regress_ttl_sec_attacker' EXCEPT SELECT how FROM sec_usual;
DROP TABLE sec_usual;

--
-- A column changes its type during a write to the table
--
-- A document must not be read as another type.  That could read arbitrary memory.
\c
\set VERBOSITY terse
\set SHOW_CONTEXT never
SET ROLE regress_ttl_sec_attacker;
SELECT ttl_docs.create_collection('sec.g', 1000);
INSERT INTO sec.g VALUES ('a', '{}');
CREATE FUNCTION sec.insert_document() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO sec.g (id, doc) VALUES ('x', 1094795585); RETURN 1; END $$;
ALTER TABLE sec.g ALTER COLUMN doc TYPE int USING sec.insert_document();
CREATE FUNCTION sec.insert_any() RETURNS text LANGUAGE plpgsql AS $$ BEGIN INSERT INTO sec.g (id, doc) VALUES ('x', '{}'); RETURN 'x'; END $$;
ALTER TABLE sec.g ALTER COLUMN _ts TYPE text USING sec.insert_any();
ALTER TABLE sec.g ALTER COLUMN _ttl TYPE text USING sec.insert_any();
ALTER TABLE sec.g ALTER COLUMN _slot TYPE text USING sec.insert_any();
CREATE FUNCTION sec.update_any() RETURNS text LANGUAGE plpgsql AS $$ BEGIN UPDATE sec.g SET id = id; RETURN 'x'; END $$;
\set VERBOSITY sqlstate
ALTER TABLE sec.g ALTER COLUMN _ts TYPE text USING sec.update_any();
ALTER TABLE sec.g ALTER COLUMN _ttl TYPE text USING sec.update_any();
\set VERBOSITY terse
SELECT id, doc FROM sec.g;
RESET ROLE;

SET client_min_messages = warning;
DROP SCHEMA sec, sec_other CASCADE;
DROP TABLE sec_gained;
DROP ROLE regress_ttl_sec_attacker, regress_ttl_sec_other;

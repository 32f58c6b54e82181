-- Who may purge, and as which user triggers run: as the owner of the table, in a
-- restricted context, whoever calls.
\set SHOW_CONTEXT never
CREATE ROLE regress_ttl_purge_owner;
CREATE ROLE regress_ttl_purge_member IN ROLE regress_ttl_purge_owner;
CREATE ROLE regress_ttl_purge_other;
CREATE ROLE regress_ttl_purge_stats IN ROLE pg_read_all_stats;
CREATE SCHEMA pr AUTHORIZATION regress_ttl_purge_owner;
GRANT USAGE ON SCHEMA pr TO PUBLIC;
CREATE TABLE pr_log (n int GENERATED ALWAYS AS IDENTITY, line text);
GRANT INSERT ON pr_log TO PUBLIC;
SET ROLE regress_ttl_purge_owner;
SELECT ttl_docs.create_collection('pr.c', 1000);
RESET ROLE;
SELECT ttl_docs.create_collection('pr_super', 1000);
GRANT ALL ON pr.c, pr_super TO regress_ttl_purge_other;
INSERT INTO pr.c VALUES ('a', '{"ttl": 100}'), ('b', '{"ttl": 100}');
INSERT INTO pr_super VALUES ('a', '{"ttl": 100}');
CREATE FUNCTION pr_left() RETURNS text LANGUAGE plpgsql SET ttl_docs.show_expired = on AS
    $$ BEGIN RETURN format('%s of pr.c, %s of pr_super', (SELECT count(*) FROM pr.c), (SELECT count(*) FROM public.pr_super)); END $$;
SET ttl_docs.clock_offset = 200;

--
-- Who may purge
--
SET ROLE regress_ttl_purge_other;
CALL ttl_docs.purge('pr.c');
\echo :SQLSTATE
-- All collections of this user: none
CALL ttl_docs.purge();
SELECT ttl_docs.pause_purge('pr.c');
\echo :SQLSTATE
SELECT ttl_docs.resume_purge('pr.c');
\echo :SQLSTATE
SELECT holds FROM ttl_docs.collections WHERE collection = 'pr.c'::regclass;
-- A user without the privilege cannot block others.
BEGIN;
SAVEPOINT s;
CALL ttl_docs.purge('pr.c');
ROLLBACK TO s;
SELECT ttl_docs.pause_purge('pr.c');
ROLLBACK TO s;
SELECT count(*) FROM pg_locks WHERE relation = 'pr.c'::regclass AND mode NOT IN ('AccessShareLock');
COMMIT;
RESET ROLE;
SELECT pr_left();
-- A member of the owner's role can purge the owner's collections, and no others.
SET ROLE regress_ttl_purge_member;
CALL ttl_docs.purge();
SELECT ttl_docs.pause_purge('pr.c');
SELECT ttl_docs.resume_purge('pr.c');
CALL ttl_docs.purge('pr_super');
\echo :SQLSTATE
RESET ROLE;
SELECT pr_left();
-- SECURITY DEFINER gives the privileges of the owner.
CREATE PROCEDURE pr_definer() LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN CALL ttl_docs.purge('public.pr_super'); END $$;
SET ROLE regress_ttl_purge_other;
CALL pr_definer();
RESET ROLE;
SELECT pr_left();
DROP PROCEDURE pr_definer();
-- A table that is not a collection, and NULL
SELECT ttl_docs.pause_purge('pr_log');
\echo :SQLSTATE
SELECT ttl_docs.resume_purge('pr_log');
\echo :SQLSTATE
SELECT ttl_docs.pause_purge(NULL);
\echo :SQLSTATE
SELECT ttl_docs.resume_purge(NULL);
\echo :SQLSTATE

--
-- As which user triggers run
--
CREATE FUNCTION pr_do() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    sql text;
BEGIN
    IF TG_LEVEL = 'STATEMENT' THEN
        INSERT INTO public.pr_log (line) VALUES (format('%s %s as %s', TG_WHEN, TG_LEVEL, current_user));
        RETURN NULL;
    END IF;
    sql := OLD.doc ->> 'do';
    IF sql IS NOT NULL THEN
        BEGIN
            EXECUTE sql;
            INSERT INTO public.pr_log (line) VALUES (format('%s %s: done', TG_WHEN, sql));
        EXCEPTION WHEN OTHERS THEN
            INSERT INTO public.pr_log (line) VALUES (format('%s %s: %s', TG_WHEN, sql, sqlerrm));
        END;
    ELSE
        INSERT INTO public.pr_log (line) VALUES (format('%s %s as %s, path %s', TG_WHEN, TG_LEVEL, current_user, current_setting('search_path')));
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER before_row BEFORE DELETE ON pr.c FOR EACH ROW EXECUTE FUNCTION pr_do();
CREATE TRIGGER after_row AFTER DELETE ON pr.c FOR EACH ROW EXECUTE FUNCTION pr_do();
CREATE TRIGGER before_statement BEFORE DELETE ON pr.c FOR EACH STATEMENT EXECUTE FUNCTION pr_do();
CREATE TRIGGER after_statement AFTER DELETE ON pr.c FOR EACH STATEMENT EXECUTE FUNCTION pr_do();
CREATE CONSTRAINT TRIGGER deferred AFTER DELETE ON pr.c DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pr_do();
RESET ttl_docs.clock_offset;
INSERT INTO pr.c VALUES ('a', '{"ttl": 100}');
SET ttl_docs.clock_offset = 200;
SET search_path = pr, public;
BEGIN;
CALL ttl_docs.purge('pr.c');
COMMIT;
SELECT current_user = session_user AS myself, current_setting('search_path');
RESET search_path;
SELECT line FROM pr_log ORDER BY n;
-- Called by a member of the owner's role, triggers run as the owner, too.
TRUNCATE pr_log;
RESET ttl_docs.clock_offset;
INSERT INTO pr.c VALUES ('a', '{"ttl": 100}');
SET ttl_docs.clock_offset = 200;
SET ROLE regress_ttl_purge_member;
CALL ttl_docs.purge('pr.c');
SELECT current_user;
RESET ROLE;
SELECT line FROM pr_log ORDER BY n;

-- Commands that triggers may not run, and settings that end with the trigger
DROP TRIGGER before_statement ON pr.c;
DROP TRIGGER after_statement ON pr.c;
DROP TRIGGER deferred ON pr.c;
CREATE TABLE pr_secret (id int);
TRUNCATE pr_log;
RESET ttl_docs.clock_offset;
INSERT INTO pr.c SELECT n, jsonb_build_object('ttl', 100, 'do', sql) FROM unnest(ARRAY[
    'SET ROLE regress_ttl_purge_owner', 'SET SESSION AUTHORIZATION regress_ttl_purge_other', 'RESET ROLE',
    'CREATE TEMP TABLE pr_temp (id int)', 'SELECT * FROM public.pr_secret', 'DECLARE pr_cursor CURSOR WITH HOLD FOR SELECT 1',
    'SET ttl_docs.show_expired = on', 'SET ttl_docs.clock_offset = 0',
    'SET work_mem = ''77MB''', 'SELECT set_config(''search_path'', ''pr'', false)', 'SET LOCAL statement_timeout = ''1h''',
    'LISTEN pr_channel', 'PREPARE pr_statement AS SELECT 1', 'COMMIT']) WITH ORDINALITY AS t(sql, n);
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('pr.c');
SELECT line FROM pr_log ORDER BY line;
SELECT current_user = session_user AS myself, current_setting('search_path'), current_setting('work_mem') = '77MB' AS work_mem,
    current_setting('statement_timeout'), current_setting('ttl_docs.clock_offset');
SELECT pg_listening_channels();
SELECT name FROM pg_cursors;
-- The same in a transaction block, and settings of a trigger that fails
BEGIN;
SET LOCAL ttl_docs.clock_offset = 0;
INSERT INTO pr.c VALUES ('a', '{"ttl": 100, "do": "SET work_mem = ''77MB''"}');
INSERT INTO pr.c VALUES ('b', '{"ttl": 100, "do": "SELECT set_config(''work_mem'', ''77MB'', false)"}');
COMMIT;
BEGIN;
CALL ttl_docs.purge('pr.c');
SELECT current_setting('work_mem') = '77MB' AS work_mem;
COMMIT;
SELECT current_setting('work_mem') = '77MB' AS work_mem, current_setting('search_path'), current_user = session_user AS myself;
CREATE FUNCTION pr_set_and_raise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN SET work_mem = '77MB'; RAISE 'no'; END $$;
CREATE TRIGGER raise AFTER DELETE ON pr.c FOR EACH ROW EXECUTE FUNCTION pr_set_and_raise();
RESET ttl_docs.clock_offset;
INSERT INTO pr.c VALUES ('a', '{"ttl": 100}');
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('pr.c');
SELECT current_setting('work_mem') = '77MB' AS work_mem, current_setting('search_path'), current_user = session_user AS myself;
-- A trigger cannot defer work until another user is active.
DROP TRIGGER raise ON pr.c;
DROP TRIGGER before_row ON pr.c;
DROP TRIGGER after_row ON pr.c;
TRUNCATE pr_log;
CREATE FUNCTION pr_defer() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN SET CONSTRAINTS ALL DEFERRED; RETURN OLD; END $$;
CREATE TRIGGER a_defer BEFORE DELETE ON pr.c FOR EACH ROW EXECUTE FUNCTION pr_defer();
CREATE CONSTRAINT TRIGGER deferred AFTER DELETE ON pr.c DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pr_do();
CALL ttl_docs.purge('pr.c');
SELECT line FROM pr_log ORDER BY n;
DROP TRIGGER deferred ON pr.c;
-- Nor can a trigger defer work through a partition that is not known when its query
-- starts.
CREATE TABLE pr.parted (id int) PARTITION BY LIST (id);
CREATE TABLE pr.parted_all PARTITION OF pr.parted DEFAULT;
ALTER TABLE pr.parted OWNER TO regress_ttl_purge_owner;
CREATE CONSTRAINT TRIGGER deferred AFTER INSERT ON pr.parted DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pr_do();
CREATE FUNCTION pr_route() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO pr.parted VALUES (1); RETURN OLD; END $$;
CREATE TRIGGER b_route BEFORE DELETE ON pr.c FOR EACH ROW EXECUTE FUNCTION pr_route();
RESET ttl_docs.clock_offset;
INSERT INTO pr.c VALUES ('a', '{"ttl": 100}');
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('pr.c');
DROP TRIGGER a_defer ON pr.c;
DROP TRIGGER b_route ON pr.c;
DROP TABLE pr.parted;
CALL ttl_docs.purge('pr.c');
-- A table of the same name comes first in search_path.
CREATE FUNCTION pr_unqualified() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO pr_log (line) VALUES ('found'); RETURN OLD; END $$;
CREATE TRIGGER unqualified AFTER DELETE ON pr.c FOR EACH ROW EXECUTE FUNCTION pr_unqualified();
CREATE TABLE pr.pr_log (line text);
RESET ttl_docs.clock_offset;
INSERT INTO pr.c VALUES ('a', '{"ttl": 100}');
SET ttl_docs.clock_offset = 200;
SET search_path = pr, public;
CALL ttl_docs.purge('pr.c');
RESET search_path;
SELECT count(*) FROM pr.pr_log;

--
-- An error may show the contents of a document, so only some users see it
--
\set stat 'SELECT undeletable, last_error, last_error_at IS NOT NULL AS has_time FROM ttl_docs.stat_collections WHERE collection = ''pr.c''::regclass;'
SET ROLE regress_ttl_purge_owner;
:stat
SET ROLE regress_ttl_purge_member;
:stat
SET ROLE regress_ttl_purge_other;
:stat
SET ROLE regress_ttl_purge_stats;
:stat
RESET ROLE;

RESET ttl_docs.clock_offset;
SET client_min_messages = warning;
DROP SCHEMA pr CASCADE;
DROP TABLE pr_super, pr_log, pr_secret;
DROP FUNCTION pr_left(), pr_do(), pr_set_and_raise(), pr_defer(), pr_unqualified();
DROP ROLE regress_ttl_purge_owner, regress_ttl_purge_member, regress_ttl_purge_other, regress_ttl_purge_stats;

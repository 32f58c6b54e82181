--
-- A partition stays consistent at every moment of ATTACH and DETACH, whoever runs the
-- command.  No user's code runs as another user.
--
CREATE ROLE regress_ttl_docs_parent;
CREATE ROLE regress_ttl_docs_child;
CREATE ROLE regress_ttl_docs_stranger;
CREATE SCHEMA links AUTHORIZATION regress_ttl_docs_parent;
GRANT USAGE ON SCHEMA links TO regress_ttl_docs_stranger;

-- Records what event triggers see during the command, and as which user they run.
CREATE TABLE seen (tag text, expired_shown bool, by_role name);
GRANT ALL ON seen TO PUBLIC;
CREATE FUNCTION look() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.seen
		SELECT tg_event || ' ' || tg_tag, EXISTS (SELECT FROM links.part), current_user;
END $$;

SET ROLE regress_ttl_docs_parent;
CREATE TABLE links.docs (id int PRIMARY KEY, doc jsonb) PARTITION BY RANGE (id);
CREATE TABLE links.part PARTITION OF links.docs FOR VALUES FROM (0) TO (10);
SELECT ttl_docs.adopt('links.docs', 60);
INSERT INTO links.docs VALUES (1, '{}'), (2, '{"ttl": 10}');
GRANT SELECT ON links.docs, links.part TO PUBLIC;
RESET ROLE;
-- The partition has another owner, who lacks USAGE on the schema.
ALTER TABLE links.part OWNER TO regress_ttl_docs_child;
SET ttl_docs.clock_offset = '1 h';
CREATE EVENT TRIGGER look_start ON ddl_command_start EXECUTE FUNCTION look();
CREATE EVENT TRIGGER look_end ON ddl_command_end EXECUTE FUNCTION look();
CREATE EVENT TRIGGER look_drop ON sql_drop EXECUTE FUNCTION look();

SET ROLE regress_ttl_docs_parent;
ALTER TABLE links.docs DETACH PARTITION links.part;
RESET ROLE;
SELECT * FROM seen ORDER BY tag;
SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = 'links.part'::regclass;
SELECT count(*) FROM links.part;
TRUNCATE seen;
ALTER TABLE links.docs ATTACH PARTITION links.part FOR VALUES FROM (0) TO (10);
SELECT * FROM seen ORDER BY tag;
DROP EVENT TRIGGER look_start;
DROP EVENT TRIGGER look_end;
DROP EVENT TRIGGER look_drop;
SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = 'links.part'::regclass;
SELECT collection FROM ttl_docs.collections ORDER BY collection::text;
SELECT count(*) FROM links.part;

-- Another user gets PostgreSQL's own error, and no lock is taken.
CREATE TABLE mine (id int PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('mine', 60);
ALTER TABLE mine OWNER TO regress_ttl_docs_stranger;
BEGIN;
SET LOCAL ROLE regress_ttl_docs_stranger;
SAVEPOINT s;
ALTER TABLE links.docs ATTACH PARTITION mine FOR VALUES FROM (10) TO (20);
ROLLBACK TO s;
ROLLBACK;

-- The table uses another document column, so its floors do not apply here.
CREATE TABLE two (id int PRIMARY KEY, a jsonb, b jsonb) PARTITION BY RANGE (id);
CREATE TABLE two_1 (id int PRIMARY KEY, a jsonb, b jsonb);
SELECT ttl_docs.adopt('two', 60, 'b');
SELECT ttl_docs.adopt('two_1', 60, 'a');
ALTER TABLE two ATTACH PARTITION two_1 FOR VALUES FROM (0) TO (10);
\echo :SQLSTATE

-- ATTACH does not rewrite rows while deferred checks are pending.
CREATE TABLE target (k int PRIMARY KEY);
CREATE TABLE late (id int PRIMARY KEY, k int, doc jsonb) PARTITION BY RANGE (id);
SELECT ttl_docs.adopt('late', 60);
CREATE TABLE late_1 (id int NOT NULL, k int REFERENCES target DEFERRABLE INITIALLY DEFERRED, doc jsonb,
	_ts timestamptz NOT NULL DEFAULT now(), _ttl int, _slot bigint,
	twice int GENERATED ALWAYS AS (2 * _ttl) STORED);
ALTER TABLE late ADD COLUMN twice int GENERATED ALWAYS AS (2 * _ttl) STORED;
BEGIN;
INSERT INTO late_1 (id, k, doc) VALUES (1, 999, '{"ttl": 7200}');
ALTER TABLE late ATTACH PARTITION late_1 FOR VALUES FROM (0) TO (10);
\echo :SQLSTATE
ROLLBACK;
-- ATTACH corrects _ttl, and generated columns follow.
INSERT INTO late_1 (id, doc) VALUES (1, '{"ttl": 7200}');
ALTER TABLE late ATTACH PARTITION late_1 FOR VALUES FROM (0) TO (10);
SELECT id, _ttl, twice FROM late;

-- PostgreSQL resolves the names in ATTACH after ttl_docs does.  If they mean other
-- tables by then, nothing is attached, and the collection keeps its trigger.
CREATE SCHEMA before_links;
CREATE TABLE named (id int, doc jsonb) PARTITION BY RANGE (id);
SELECT ttl_docs.adopt('named', 60);
CREATE TABLE named_1 (id int, doc jsonb);
SELECT ttl_docs.adopt('named_1', 60);
CREATE FUNCTION shadow() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_class WHERE relnamespace = 'before_links'::regnamespace) THEN
		EXECUTE current_setting('links.shadow');
	END IF;
END $$;
SET search_path = before_links, public;
CREATE EVENT TRIGGER shadow ON ddl_command_start WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION shadow();
SET links.shadow = 'CREATE TABLE before_links.named_1 (LIKE public.named)';
ALTER TABLE named ATTACH PARTITION named_1 FOR VALUES FROM (0) TO (10);
\echo :SQLSTATE
SET links.shadow = 'CREATE TABLE before_links.named (LIKE public.named) PARTITION BY RANGE (id)';
ALTER TABLE named ATTACH PARTITION named_1 FOR VALUES FROM (0) TO (10);
\echo :SQLSTATE
DROP EVENT TRIGGER shadow;
RESET search_path;
SELECT tgname FROM pg_trigger WHERE tgrelid = 'named_1'::regclass;
ALTER TABLE named ATTACH PARTITION named_1 FOR VALUES FROM (0) TO (10);
DROP TABLE named;
DROP FUNCTION shadow;
DROP SCHEMA before_links;

RESET ttl_docs.clock_offset;
DROP TABLE mine, two, two_1, late, target, seen;
DROP FUNCTION look;
DROP SCHEMA links CASCADE;
DROP ROLE regress_ttl_docs_parent, regress_ttl_docs_child, regress_ttl_docs_stranger;

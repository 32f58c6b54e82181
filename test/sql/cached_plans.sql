--
-- Cached plans follow every change: settings of the collection and of the session, the
-- clock, the current user, and whether the table is a collection at all.  The isolation
-- tests cover changes made by another session.
--
CREATE SCHEMA cached_plans;
SET search_path = cached_plans;
SET plan_cache_mode = force_generic_plan;
SELECT ttl_docs.create_collection('docs', 3600);
SET ttl_docs.clock_offset = '-90 min';
INSERT INTO docs (id, doc) VALUES ('expired', '{}'), ('old', '{"ttl": 60}');
RESET ttl_docs.clock_offset;
INSERT INTO docs (id, doc) VALUES ('live', '{}'), ('short', '{"ttl": 600}');

PREPARE ids (text) AS SELECT string_agg(id, ' ' ORDER BY id) AS ids FROM docs WHERE id >= $1;
PREPARE by_key (text) AS SELECT id FROM docs WHERE id = $1;
PREPARE touch (text) AS UPDATE docs SET doc = doc WHERE id = $1 RETURNING id;
CREATE FUNCTION ids_pl() RETURNS text LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT string_agg(id, ' ' ORDER BY id) FROM cached_plans.docs); END $$;
CREATE FUNCTION ids_sql() RETURNS SETOF text LANGUAGE sql AS 'SELECT id FROM cached_plans.docs';
\pset tuples_only on
EXECUTE ids('');
SELECT ids_pl();
SELECT array_agg(id ORDER BY id) FROM ids_sql() AS id;
EXECUTE by_key('expired');
EXECUTE by_key('live');
EXECUTE touch('old');
EXECUTE touch('short');

-- The clock
SET ttl_docs.clock_offset = '20 min';
EXECUTE ids('');
SELECT ids_pl();
SELECT array_agg(id ORDER BY id) FROM ids_sql() AS id;
EXECUTE touch('short');
SET ttl_docs.clock_offset = '2 h';
EXECUTE ids('');
EXECUTE by_key('live');
EXECUTE touch('live');
RESET ttl_docs.clock_offset;
-- show_expired, which has no effect on writes
SET ttl_docs.show_expired = on;
EXECUTE ids('');
SELECT ids_pl();
EXECUTE touch('old');
RESET ttl_docs.show_expired;
EXECUTE ids('');
SELECT ids_pl();
-- One instant under REPEATABLE READ
BEGIN ISOLATION LEVEL REPEATABLE READ;
EXECUTE ids('');
SET LOCAL ttl_docs.clock_offset = '2 h';
EXECUTE ids('');
SELECT ids_pl();
COMMIT;

-- The DefaultTTL, also when the change is rolled back
SET ttl_docs.clock_offset = '30 min';
EXECUTE ids('');
SELECT ttl_docs.set_default_ttl('docs', 900);
EXECUTE ids('');
SELECT ids_pl();
RESET ttl_docs.clock_offset;
EXECUTE ids('');
BEGIN;
SELECT ttl_docs.set_default_ttl('docs', NULL);
SET LOCAL ttl_docs.clock_offset = '2 h';
EXECUTE ids('');
SELECT ids_pl();
SAVEPOINT s;
SELECT ttl_docs.set_default_ttl('docs', 900);
EXECUTE ids('');
ROLLBACK TO s;
EXECUTE ids('');
SELECT ids_pl();
ROLLBACK;
SET ttl_docs.clock_offset = '2 h';
EXECUTE ids('');
SELECT ids_pl();
RESET ttl_docs.clock_offset;
EXECUTE ids('');
-- One generic plan served all of these queries; PostgreSQL replanned only when the
-- label changed.
SELECT name, generic_plans > 0 AS generic, custom_plans FROM pg_prepared_statements WHERE name = 'ids';

-- The current user, under row_security = off
CREATE ROLE regress_ttl_docs_owner;
CREATE ROLE regress_ttl_docs_other;
GRANT USAGE ON SCHEMA cached_plans TO regress_ttl_docs_owner, regress_ttl_docs_other;
ALTER TABLE docs OWNER TO regress_ttl_docs_owner;
GRANT SELECT ON docs TO regress_ttl_docs_other;
EXECUTE ids('');
SET row_security = off;
EXECUTE ids('');
SET ROLE regress_ttl_docs_owner;
EXECUTE ids('');
SET ROLE regress_ttl_docs_other;
EXECUTE ids('');
SET ROLE regress_ttl_docs_owner;
EXECUTE ids('');
RESET row_security;
EXECUTE ids('');
RESET ROLE;

-- A table becomes a collection, and later a plain table again
CREATE TABLE plain (id int PRIMARY KEY, doc jsonb, seen timestamptz DEFAULT now());
INSERT INTO plain VALUES (1, '{}', '2001-01-01'), (2, '{}', now()), (3, '{"ttl": 60}', '2001-01-01');
PREPARE plain_ids AS SELECT array_agg(id ORDER BY id) FROM plain;
PREPARE plain_update AS UPDATE plain SET id = id RETURNING id;
CREATE FUNCTION plain_pl() RETURNS int[] LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT array_agg(id ORDER BY id) FROM cached_plans.plain); END $$;
EXECUTE plain_ids;
SELECT plain_pl();
BEGIN;
SELECT ttl_docs.adopt('plain', 3600, last_modified => 'seen');
EXECUTE plain_ids;
SELECT plain_pl();
ROLLBACK;
EXECUTE plain_ids;
SELECT plain_pl();
EXECUTE plain_update;
SELECT ttl_docs.adopt('plain', 3600, last_modified => 'seen');
EXECUTE plain_ids;
SELECT plain_pl();
EXECUTE plain_update;
BEGIN;
SELECT ttl_docs.release('plain');
EXECUTE plain_ids;
ROLLBACK;
EXECUTE plain_ids;
SET ttl_docs.clock_offset = '2 h';
EXECUTE plain_ids;
SELECT plain_pl();
RESET ttl_docs.clock_offset;
SELECT ttl_docs.release('plain');
EXECUTE plain_ids;
SELECT plain_pl();
-- Without the extension there are no collections.
SET client_min_messages = warning;
BEGIN;
DROP EXTENSION ttl_docs CASCADE;
EXECUTE ids('');
SELECT ids_pl();
CREATE EXTENSION ttl_docs;
EXECUTE ids('');
ROLLBACK;
RESET client_min_messages;
EXECUTE ids('');
SELECT ids_pl();

-- Partitions: the plan for a leaf depends on the settings of its root, and on which
-- root it belongs to
CREATE TABLE root (n int, doc jsonb) PARTITION BY LIST (n);
CREATE TABLE leaf PARTITION OF root FOR VALUES IN (1, 2, 3);
INSERT INTO root VALUES (1, '{}'), (2, '{"ttl": 60}');
PREPARE leaf_ids AS SELECT array_agg(n ORDER BY n) FROM leaf;
PREPARE root_ids AS SELECT array_agg(n ORDER BY n) FROM root;
EXECUTE leaf_ids;
EXECUTE root_ids;
SELECT ttl_docs.adopt('root', -1);
EXECUTE leaf_ids;
SET ttl_docs.clock_offset = '10 min';
EXECUTE leaf_ids;
EXECUTE root_ids;
SELECT ttl_docs.set_default_ttl('root', 300);
EXECUTE leaf_ids;
EXECUTE root_ids;
SELECT ttl_docs.set_default_ttl('root', NULL);
INSERT INTO leaf VALUES (3, '{"ttl": 60}');
EXECUTE leaf_ids;
EXECUTE root_ids;
ALTER TABLE root DETACH PARTITION leaf;
EXECUTE leaf_ids;
EXECUTE root_ids;
SELECT ttl_docs.set_default_ttl('leaf', 60);
SET ttl_docs.clock_offset = '20 min';
EXECUTE leaf_ids;
RESET ttl_docs.clock_offset;
CREATE TABLE new_leaf PARTITION OF root FOR VALUES IN (4);
INSERT INTO root VALUES (4, '{"ttl": 60}');
EXECUTE root_ids;
SELECT ttl_docs.set_default_ttl('root', -1);
SET ttl_docs.clock_offset = '30 min';
EXECUTE root_ids;
RESET ttl_docs.clock_offset;

\pset tuples_only off
SET client_min_messages = warning;
DROP SCHEMA cached_plans CASCADE;
DROP ROLE regress_ttl_docs_owner, regress_ttl_docs_other;

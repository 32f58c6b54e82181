--
-- UPDATE, DELETE, MERGE and SELECT FOR UPDATE do not affect expired documents, whatever
-- plan finds the rows.  If a document expires between the scan and the write, the write
-- treats it like a row that was deleted in between.
--
-- Documents: "expired" by the DefaultTTL, "old" by its own ttl, "live", "never".
--
SELECT current_setting('server_version_num')::int >= 170000 AS has_by_source,
       current_setting('server_version_num')::int >= 180000 AS has_old_new \gset
CREATE SCHEMA modify;
SET search_path = modify;
SELECT ttl_docs.create_collection('docs', 3600);
ALTER TABLE docs ADD COLUMN n int DEFAULT 0;
CREATE FUNCTION fill() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	TRUNCATE modify.docs;
	PERFORM set_config('ttl_docs.clock_offset', (-90 * 60)::text, false);
	INSERT INTO modify.docs (id, doc) VALUES ('expired', '{}'), ('old', '{"ttl": 60}'), ('never', '{"ttl": -1}');
	PERFORM set_config('ttl_docs.clock_offset', '0', false);
	INSERT INTO modify.docs (id, doc) VALUES ('live', '{}');
END $$;
-- The documents on disk: the live ones, and the number of expired ones
CREATE FUNCTION disk() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	PERFORM set_config('ttl_docs.show_expired', 'on', true);
	SELECT string_agg(id || ' ' || n, ', ' ORDER BY id) INTO answer FROM modify.docs;
	PERFORM set_config('ttl_docs.show_expired', 'off', true);
	RETURN answer;
END $$;
CREATE TABLE plain (id text, n int);
INSERT INTO plain VALUES ('expired', 1), ('live', 2), ('missing', 3), ('old', 4);
SELECT fill();
\pset tuples_only on
SELECT disk();

--
-- UPDATE and DELETE
--
EXPLAIN (COSTS OFF) UPDATE docs SET n = 1 WHERE id = 'expired';
UPDATE docs SET n = 1 WHERE id = 'expired' RETURNING id;
UPDATE docs SET n = 1;
\echo :ROW_COUNT rows updated
UPDATE docs SET n = 2 WHERE ctid = '(0,1)';
\echo :ROW_COUNT rows updated
UPDATE docs SET n = docs.n + plain.n FROM plain WHERE plain.id = docs.id RETURNING docs.id, docs.n;
UPDATE docs SET (n, doc) = (SELECT n + 10, docs.doc FROM plain WHERE plain.id = docs.id) WHERE id IN (SELECT id FROM plain) RETURNING id, n;
-- A collection as the source of an update
UPDATE plain SET n = -plain.n FROM docs WHERE docs.id = plain.id RETURNING plain.id, plain.n;
UPDATE plain SET n = -n WHERE EXISTS (SELECT FROM docs WHERE docs.id = plain.id) RETURNING id, n;
WITH u AS (UPDATE plain SET n = n WHERE NOT EXISTS (SELECT FROM docs WHERE docs.id = plain.id) RETURNING id)
SELECT array_agg(id ORDER BY id) FROM u;
SELECT disk();
EXPLAIN (COSTS OFF) DELETE FROM docs WHERE id = 'expired';
DELETE FROM docs WHERE id = 'expired' RETURNING id;
DELETE FROM docs USING plain WHERE docs.id = plain.id AND plain.id <> 'live' RETURNING docs.id;
DELETE FROM plain USING docs WHERE docs.id = plain.id RETURNING plain.id;
DELETE FROM docs;
\echo :ROW_COUNT rows deleted
SELECT disk();
INSERT INTO plain VALUES ('live', 2);
-- The same in replica role, where the ttl_docs trigger does not check expiry or set
-- system columns
SELECT fill();
SET session_replication_role = replica;
UPDATE docs SET n = 1 WHERE id = 'expired';
\echo :ROW_COUNT rows updated
DELETE FROM docs WHERE id = 'old';
\echo :ROW_COUNT rows deleted
RESET session_replication_role;
-- Old and new values of the row, with RETURNING of PostgreSQL 18 and without
\if :has_old_new
UPDATE docs SET n = 7 WHERE id IN ('live', 'old') RETURNING docs.id, old.n AS before, new.n AS after \gset
\else
WITH before AS (SELECT id, n FROM docs)
UPDATE docs SET n = 7 FROM before WHERE docs.id = before.id AND docs.id IN ('live', 'old')
RETURNING docs.id, before.n AS before, docs.n AS after \gset
\endif
\echo :id was :before and is :after
SELECT disk();

--
-- MERGE: an expired target does not match, and an expired source row does not exist
--
SELECT fill();
EXPLAIN (COSTS OFF) MERGE INTO docs AS d USING plain AS p ON d.id = p.id WHEN MATCHED THEN DELETE;
MERGE INTO docs AS d USING plain AS p ON d.id = p.id
 WHEN MATCHED THEN UPDATE SET n = 100 + p.n
 WHEN NOT MATCHED THEN INSERT (id, doc, n) VALUES (p.id, '{}', 200 + p.n);
SELECT disk();
SELECT fill();
MERGE INTO docs AS d USING plain AS p ON d.id = p.id
 WHEN MATCHED AND p.id = 'live' THEN DELETE
 WHEN MATCHED THEN DO NOTHING
 WHEN NOT MATCHED AND p.id = 'old' THEN DO NOTHING
 WHEN NOT MATCHED THEN INSERT (id, doc, n) VALUES (p.id, '{}', 200 + p.n);
SELECT disk();
SELECT fill();
MERGE INTO plain AS p USING docs AS d ON d.id = p.id
 WHEN MATCHED THEN UPDATE SET n = 1000
 WHEN NOT MATCHED THEN INSERT VALUES (d.id, 2000);
SELECT array_agg(id || ' ' || n ORDER BY id) FROM plain;
-- PostgreSQL 17 has NOT MATCHED BY SOURCE.
\if :has_by_source
MERGE INTO docs AS d USING (SELECT * FROM plain WHERE id <> 'never') AS p ON d.id = p.id
 WHEN NOT MATCHED BY SOURCE THEN UPDATE SET n = 3
 WHEN MATCHED THEN UPDATE SET n = 4;
MERGE INTO plain AS p USING docs AS d ON d.id = p.id
 WHEN NOT MATCHED BY SOURCE THEN DELETE;
\else
UPDATE docs AS d SET n = CASE WHEN id = 'never' THEN 3 ELSE 4 END;
DELETE FROM plain AS p WHERE NOT EXISTS (SELECT FROM docs AS d WHERE d.id = p.id);
\endif
SELECT disk();
SELECT array_agg(id || ' ' || n ORDER BY id) FROM plain;

--
-- SELECT FOR UPDATE and the other lock modes, and WHERE CURRENT OF
--
SELECT fill();
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE id = 'expired' FOR UPDATE;
SELECT id FROM docs WHERE id = 'expired' FOR UPDATE;
SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM docs FOR UPDATE) AS d;
SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM docs FOR NO KEY UPDATE NOWAIT) AS d;
SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM docs FOR SHARE SKIP LOCKED) AS d;
SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM docs FOR KEY SHARE) AS d;
SELECT array_agg(id ORDER BY id) FROM (SELECT docs.id FROM docs RIGHT JOIN plain USING (id) FOR UPDATE OF plain) AS d;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM docs ORDER BY id FOR UPDATE;
FETCH c;
UPDATE docs SET n = 5 WHERE CURRENT OF c RETURNING id, n;
EXPLAIN (COSTS OFF) UPDATE docs SET n = 5 WHERE CURRENT OF c;
-- The cursor keeps its instant; the write uses the clock.
SET LOCAL ttl_docs.clock_offset = '2 h';
FETCH c;
UPDATE docs SET n = 6 WHERE CURRENT OF c RETURNING id, n;
DECLARE d CURSOR FOR SELECT id FROM docs;
FETCH d;
DELETE FROM docs WHERE CURRENT OF d RETURNING id;
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM docs WHERE id = 'live';
FETCH c;
SET LOCAL ttl_docs.clock_offset = '2 h';
DELETE FROM docs WHERE CURRENT OF c RETURNING id;
ROLLBACK;
SELECT disk();

--
-- Data-modifying CTEs
--
WITH gone AS (DELETE FROM docs RETURNING id, doc), kept AS (INSERT INTO plain SELECT id, 9 FROM gone RETURNING id)
SELECT array_agg(id ORDER BY id) FROM kept;
SELECT disk();
SELECT fill();
WITH touched AS (UPDATE docs SET n = 1 RETURNING id) SELECT count(*), (SELECT count(*) FROM docs) FROM touched;
-- A CTE that the main query does not read runs at the end of the query, after the main
-- query has moved the clock.  The CTE still reads at the query's instant, and writes at
-- the clock.
CREATE FUNCTION travel(hours int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('ttl_docs.clock_offset', (hours * 3600)::text, false);
	RETURN hours;
END $$;
CREATE TABLE kept (id text);
WITH kept AS (INSERT INTO kept SELECT id FROM docs), touched AS (UPDATE docs SET n = 2) SELECT travel(2);
RESET ttl_docs.clock_offset;
SELECT array_agg(id ORDER BY id) FROM kept;
SELECT disk();
-- In a function that another query calls, the CTE uses the instant of its own
-- statement.
TRUNCATE kept;
CREATE FUNCTION keep_later() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM travel(2);
	WITH kept AS (INSERT INTO kept SELECT id FROM docs) UPDATE plain SET n = n;
END $$;
SELECT keep_later() FROM docs LIMIT 1;
RESET ttl_docs.clock_offset;
SELECT array_agg(id ORDER BY id) FROM kept;

--
-- Views, INSERT ... SELECT and TRUNCATE
--
SELECT fill();
CREATE VIEW docs_view AS SELECT id, doc, n FROM docs WHERE n = 0 WITH CHECK OPTION;
WITH u AS (UPDATE docs_view SET doc = doc || '{"a": 1}' RETURNING id) SELECT array_agg(id ORDER BY id) FROM u;
UPDATE docs_view SET n = 1 WHERE id = 'expired';
\set VERBOSITY terse
UPDATE docs_view SET n = 1 WHERE id = 'live';
DELETE FROM docs_view WHERE id IN ('expired', 'old', 'live') RETURNING id;
INSERT INTO docs_view VALUES ('expired', '{"new": true}', 0) RETURNING *;
SELECT fill();
INSERT INTO docs (id, doc) SELECT id || ' too', doc FROM docs;
SELECT disk();
TRUNCATE docs;
SELECT disk() IS NULL;

--
-- The user's triggers see the written documents, and no expired ones
--
SELECT fill();
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_LEVEL = 'ROW' THEN
		RAISE NOTICE '% % %', TG_WHEN, TG_OP, coalesce(NEW.id, OLD.id);
		RETURN coalesce(NEW, OLD);
	END IF;
	RAISE NOTICE '%: % rows, % documents are live', TG_OP, (SELECT count(*) FROM transition LEFT JOIN modify.docs USING (id)), (SELECT count(*) FROM modify.docs);
	RETURN NULL;
END $$;
CREATE TRIGGER before_row BEFORE UPDATE OR DELETE ON docs FOR EACH ROW EXECUTE FUNCTION tell();
CREATE TRIGGER after_row AFTER UPDATE OR DELETE ON docs FOR EACH ROW EXECUTE FUNCTION tell();
CREATE TRIGGER after_update AFTER UPDATE ON docs REFERENCING NEW TABLE AS transition FOR EACH STATEMENT EXECUTE FUNCTION tell();
CREATE TRIGGER after_delete AFTER DELETE ON docs REFERENCING OLD TABLE AS transition FOR EACH STATEMENT EXECUTE FUNCTION tell();
UPDATE docs SET n = 1 WHERE id IN ('live', 'old');
UPDATE docs SET n = 1 WHERE id = 'expired';
DELETE FROM docs WHERE id IN ('live', 'expired');
DROP TRIGGER before_row ON docs;
DROP TRIGGER after_row ON docs;
DROP TRIGGER after_update ON docs;
DROP TRIGGER after_delete ON docs;

--
-- Too late.  A user's trigger moves the clock after the query has found the document.
-- In practice, a wait for a lock has the same effect.
--
CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('ttl_docs.clock_offset', '7200', true);
	RETURN coalesce(NEW, OLD);
END $$;
CREATE TRIGGER dawdle BEFORE UPDATE OR DELETE ON docs FOR EACH ROW EXECUTE FUNCTION dawdle();
\pset tuples_only off
SELECT fill();
-- READ COMMITTED: the write affects no rows.
UPDATE docs SET n = 1 WHERE id = 'live' RETURNING id;
DELETE FROM docs WHERE id = 'live' RETURNING id;
-- A document that never expires can still be written.
UPDATE docs SET n = 1 WHERE id = 'never' RETURNING id;
-- REPEATABLE READ and SERIALIZABLE: a serialization failure
BEGIN ISOLATION LEVEL REPEATABLE READ;
UPDATE docs SET n = 1 WHERE id = 'live';
\echo :SQLSTATE
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
DELETE FROM docs WHERE id = 'live';
\echo :SQLSTATE
ROLLBACK;
-- An upsert that affected no row would lose the document, so it is a serialization
-- failure at every level.
INSERT INTO docs (id, doc) VALUES ('live', '{}') ON CONFLICT (id) DO UPDATE SET n = 1;
\echo :SQLSTATE
MERGE INTO docs AS d USING (VALUES ('live')) AS s (id) ON d.id = s.id WHEN MATCHED THEN UPDATE SET n = 1;
\echo :SQLSTATE
MERGE INTO docs AS d USING (VALUES ('live')) AS s (id) ON d.id = s.id WHEN MATCHED THEN DELETE;
\echo :SQLSTATE
WITH upsert AS (INSERT INTO docs (id, doc) VALUES ('live', '{}') ON CONFLICT (id) DO UPDATE SET n = 1 RETURNING id)
SELECT * FROM upsert;
\echo :SQLSTATE
-- The same for an upsert in a CTE that runs at the end of the query
WITH upsert AS (INSERT INTO docs (id, doc) VALUES ('live', '{}') ON CONFLICT (id) DO UPDATE SET n = 1) SELECT 1 AS one;
\echo :SQLSTATE
-- ON CONFLICT DO NOTHING never updates.
INSERT INTO docs (id, doc) VALUES ('live', '{}') ON CONFLICT (id) DO NOTHING;
\echo :ROW_COUNT rows inserted
-- The document may expire after the ttl_docs trigger has searched for it, and before
-- the WHERE clause decides whether to update.  Here it expires in a constraint.
DROP TRIGGER dawdle ON docs;
CREATE FUNCTION dawdle_at_77(n int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF n = 77 THEN PERFORM set_config('ttl_docs.clock_offset', '7200', true); END IF;
	RETURN true;
END $$;
ALTER TABLE docs ADD CONSTRAINT dawdle CHECK (dawdle_at_77(n));
INSERT INTO docs (id, doc, n) VALUES ('live', '{}', 77) ON CONFLICT (id) DO UPDATE SET n = 1;
\echo :SQLSTATE
INSERT INTO docs (id, doc, n) VALUES ('live', '{}', 77) ON CONFLICT (id) DO UPDATE SET n = 1 WHERE docs.n = 1000;
\echo :SQLSTATE
INSERT INTO docs (id, doc, n) VALUES ('live', '{}', 78) ON CONFLICT (id) DO UPDATE SET n = 1 WHERE docs.n = 1000;
\echo :ROW_COUNT rows
INSERT INTO docs (id, doc, n) VALUES ('never', '{}', 77) ON CONFLICT (id) DO UPDATE SET n = docs.n WHERE docs.n = 1;
\echo :ROW_COUNT rows
ALTER TABLE docs DROP CONSTRAINT dawdle;
-- An old REPEATABLE READ transaction still reads the document, but cannot write to it.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT id FROM docs WHERE id = 'live';
SET LOCAL ttl_docs.clock_offset = '2 h';
SELECT id FROM docs WHERE id = 'live';
SAVEPOINT s;
UPDATE docs SET n = 1 WHERE id = 'live';
\echo :SQLSTATE
ROLLBACK TO s;
DELETE FROM docs WHERE id = 'live';
\echo :SQLSTATE
ROLLBACK;
SELECT disk();

SET client_min_messages = warning;
DROP SCHEMA modify CASCADE;

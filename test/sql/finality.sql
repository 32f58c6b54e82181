--
-- Expired is final: no change of the DefaultTTL brings a document back, and the floors
-- that guarantee this never affect a live document.
--
-- The documents of these tests are 90 minutes old.  Those whose name begins with "dead"
-- expired before the change; the others did not.
--
CREATE FUNCTION new_documents() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM ttl_docs.create_collection('finality', 3600);
	PERFORM set_config('ttl_docs.clock_offset', (-90 * 60)::text, false);
	INSERT INTO finality (id, doc) VALUES
		('dead', '{}'), ('deadnull', '{"ttl": null}'), ('deadown', '{"ttl": 60}'),
		('never', '{"ttl": -1}'), ('own', '{"ttl": 36000}');
	PERFORM set_config('ttl_docs.clock_offset', '0', false);
	INSERT INTO finality (id, doc) VALUES ('young', '{}'), ('youngown', '{"ttl": 60}');
END $$;
CREATE VIEW floors AS
SELECT label::jsonb ->> 'default_ttl' AS default_ttl,
       (label::jsonb ->> 'written_floor')::timestamptz AS written_floor,
       (label::jsonb ->> 'due_floor')::timestamptz AS due_floor
  FROM pg_seclabel WHERE objoid = to_regclass('finality') AND provider = 'ttl_docs';

-- The DefaultTTL is raised
SELECT new_documents();
SELECT * FROM floors;
SELECT string_agg(id, ' ' ORDER BY id) AS before FROM finality;
SELECT ttl_docs.set_default_ttl('finality', 36000);
SELECT string_agg(id, ' ' ORDER BY id) AS raised FROM finality;
-- is_expired() is true for them, and expires_at() returns a time in the past.
SET ttl_docs.show_expired = on;
SELECT id, ttl_docs.is_expired('finality', _ts, _ttl), ttl_docs.expires_at('finality', _ts, _ttl) <= ttl_docs.now() AS is_over
  FROM finality ORDER BY id;
RESET ttl_docs.show_expired;
-- The floors follow from the setting that was in force before the change.
SELECT default_ttl, clock_timestamp() - written_floor BETWEEN '1 h' AND '1 h 5 min' AS written_an_hour_ago,
       clock_timestamp() - due_floor BETWEEN '0' AND '5 min' AS due_now
  FROM floors;
DROP TABLE finality;

-- The DefaultTTL is set to -1
SELECT new_documents();
SELECT ttl_docs.set_default_ttl('finality', -1);
SELECT string_agg(id, ' ' ORDER BY id) AS unset FROM finality;
SET ttl_docs.clock_offset = '2 h';
SELECT string_agg(id, ' ' ORDER BY id) AS later FROM finality;
RESET ttl_docs.clock_offset;
DROP TABLE finality;

-- TTL is turned off, and on again with each kind of setting
SELECT new_documents();
SELECT ttl_docs.set_default_ttl('finality', NULL);
SELECT string_agg(id, ' ' ORDER BY id) AS off FROM finality;
-- While TTL is off, nothing more expires.
SET ttl_docs.clock_offset = '2 h';
SELECT string_agg(id, ' ' ORDER BY id) AS off_later FROM finality;
RESET ttl_docs.clock_offset;
SELECT ttl_docs.set_default_ttl('finality', -1);
SELECT string_agg(id, ' ' ORDER BY id) AS on_without_default FROM finality;
SELECT ttl_docs.set_default_ttl('finality', NULL);
SELECT ttl_docs.set_default_ttl('finality', 2147483647);
SELECT string_agg(id, ' ' ORDER BY id) AS on_with_a_large_one FROM finality;
DROP TABLE finality;

-- Several changes in one transaction, and in one statement
SELECT new_documents();
BEGIN;
SELECT ttl_docs.set_default_ttl('finality', NULL);
SELECT ttl_docs.set_default_ttl('finality', -1);
SELECT string_agg(id, ' ' ORDER BY id) AS inside FROM finality;
ROLLBACK;
SELECT ttl_docs.get_default_ttl('finality') AS rolled_back;
SELECT string_agg(id, ' ' ORDER BY id) AS rolled_back FROM finality;
SELECT ttl_docs.set_default_ttl('finality', NULL), ttl_docs.set_default_ttl('finality', 36000);
SELECT string_agg(id, ' ' ORDER BY id) AS at_once FROM finality;
DROP TABLE finality;

-- The DefaultTTL is lowered and raised again: documents that expired in between stay
-- expired.
SELECT ttl_docs.create_collection('finality', 36000);
SET ttl_docs.clock_offset = '-90 min';
INSERT INTO finality (id, doc) VALUES ('dead', '{}'), ('own', '{"ttl": 36000}');
RESET ttl_docs.clock_offset;
INSERT INTO finality (id, doc) VALUES ('young', '{}');
SELECT string_agg(id, ' ' ORDER BY id) AS before FROM finality;
SELECT ttl_docs.set_default_ttl('finality', 3600);
SELECT string_agg(id, ' ' ORDER BY id) AS lowered FROM finality;
SELECT ttl_docs.set_default_ttl('finality', 36000);
SELECT string_agg(id, ' ' ORDER BY id) AS raised FROM finality;
SELECT ttl_docs.set_default_ttl('finality', 3600);
SELECT ttl_docs.set_default_ttl('finality', NULL);
SELECT string_agg(id, ' ' ORDER BY id) AS off FROM finality;
DROP TABLE finality;

-- Writes and other sessions do not see expired documents either.
SELECT new_documents();
SELECT ttl_docs.set_default_ttl('finality', NULL);
UPDATE finality SET doc = '{}' WHERE id LIKE 'dead%' RETURNING id;
DELETE FROM finality WHERE id LIKE 'dead%' RETURNING id;
INSERT INTO finality (id, doc) VALUES ('dead', '{"new": true}')
    ON CONFLICT (id) DO UPDATE SET doc = '{"new": false}' RETURNING id, doc;
\c -
SELECT string_agg(id, ' ' ORDER BY id) AS elsewhere FROM finality;
-- release() deletes the expired documents.
SELECT ttl_docs.release('finality');
SELECT id, doc FROM finality ORDER BY id;
DROP TABLE finality;

-- If a write locks a document before it expires, the write succeeds, even if it commits
-- later.
SELECT ttl_docs.create_collection('finality', 3600);
INSERT INTO finality (id, doc) VALUES ('a', '{}'), ('b', '{}');
BEGIN;
SET LOCAL ttl_docs.clock_offset = '50 min';
UPDATE finality SET id = id WHERE id = 'a';
SET LOCAL ttl_docs.clock_offset = '70 min';
UPDATE finality SET id = id WHERE id = 'b' RETURNING id;
COMMIT;
SET ttl_docs.clock_offset = '70 min';
SELECT string_agg(id, ' ' ORDER BY id) AS in_time FROM finality;
RESET ttl_docs.clock_offset;
DROP TABLE finality;

--
-- The floors are exact to the microsecond.  A document whose _ts equals written_floor
-- has expired; one with a later _ts has not.  The same applies to due_floor and the
-- expiry time.
--
SELECT ttl_docs.create_collection('finality', 3600);
SELECT ttl_docs.set_default_ttl('finality', NULL);
SET session_replication_role = replica;
INSERT INTO finality (id, doc, _ts, _ttl)
SELECT 'written ' || s, '{}'::jsonb, written_floor + s * interval '1 microsecond', NULL::int FROM floors, generate_series(-1, 1) AS s
UNION ALL
SELECT 'due ' || s, '{"ttl": 60}', due_floor + s * interval '1 microsecond' - interval '1 min', 60 FROM floors, generate_series(-1, 1) AS s
UNION ALL
SELECT 'never ' || s, '{"ttl": -1}', written_floor + s * interval '1 microsecond', -1 FROM floors, generate_series(-1, 1) AS s
UNION ALL
-- While TTL is off, a document may have an invalid ttl.  A document with an invalid ttl
-- never expires.
SELECT 'invalid ' || s, '{"ttl": 0}', written_floor + s * interval '1 microsecond', 0 FROM floors, generate_series(-1, 1) AS s;
RESET session_replication_role;
SELECT id FROM finality ORDER BY id COLLATE "C";
-- The floors are the clock at the change, without rounding.  Rounding would bring back
-- a document that has just expired.
CREATE FUNCTION floor_is_the_clock() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	before timestamptz;
BEGIN
	PERFORM ttl_docs.set_default_ttl('floor_docs', 60);
	before := clock_timestamp();
	PERFORM ttl_docs.set_default_ttl('floor_docs', NULL);
	RETURN (label::jsonb ->> 'due_floor')::timestamptz BETWEEN before AND clock_timestamp()
	   AND (label::jsonb ->> 'written_floor')::timestamptz = (label::jsonb ->> 'due_floor')::timestamptz - interval '60 s'
	  FROM pg_seclabel WHERE objoid = 'floor_docs'::regclass;
END $$;
SELECT ttl_docs.create_collection('floor_docs', NULL);
SELECT count(*) FILTER (WHERE floor_is_the_clock()) AS right_of_ten FROM generate_series(1, 10);
DROP FUNCTION floor_is_the_clock;
DROP TABLE floor_docs;
-- Floors only rise, even if the clock is temporarily wrong.
CREATE TEMP TABLE before AS SELECT * FROM floors;
SET ttl_docs.clock_offset = '-10 h';
DELETE FROM finality WHERE id LIKE 'invalid%';
SELECT ttl_docs.set_default_ttl('finality', 60);
SELECT ttl_docs.set_default_ttl('finality', 3600);
SELECT f.written_floor = b.written_floor AS written, f.due_floor = b.due_floor AS due FROM floors AS f, before AS b;
RESET ttl_docs.clock_offset;
-- Lowering the DefaultTTL does not move the floors, because readers may use them at the
-- same time.
SELECT ttl_docs.set_default_ttl('finality', 60);
SELECT f.written_floor = b.written_floor AS written, f.due_floor = b.due_floor AS due FROM floors AS f, before AS b;
SELECT ttl_docs.set_default_ttl('finality', 3600);
SELECT f.written_floor > b.written_floor AS written, f.due_floor > b.due_floor AS due FROM floors AS f, before AS b;
DROP TABLE before;
DROP VIEW floors;
DROP TABLE finality;

--
-- A clock that goes back.  A change made while the clock was ahead has moved the floors
-- into the future.  A document written now is still live with any ttl, and can be
-- written again.
--
SELECT ttl_docs.create_collection('finality', 3600);
SET ttl_docs.clock_offset = '10 h';
SELECT ttl_docs.set_default_ttl('finality', 7200);
RESET ttl_docs.clock_offset;
INSERT INTO finality (id, doc) VALUES ('inherits', '{}'), ('long', '{"ttl": 86400}'), ('never', '{"ttl": -1}'), ('short', '{"ttl": 60}');
SELECT string_agg(id, ' ' ORDER BY id) AS written FROM finality;
-- Only documents that would be expired otherwise get a _ts ahead of the clock.
SELECT id, _ts <= clock_timestamp() AS is_the_clock FROM finality ORDER BY id;
UPDATE finality SET doc = doc || '{"a": 1}' WHERE id <> 'never';
UPDATE finality SET doc = doc - 'ttl' WHERE id = 'long';
SELECT id, doc FROM finality ORDER BY id;
SELECT ttl_docs.set_default_ttl('finality', NULL);
INSERT INTO finality (id, doc) VALUES ('off', '{}'), ('offshort', '{"ttl": 60}');
SELECT string_agg(id, ' ' ORDER BY id) AS written FROM finality;
DROP TABLE finality;

--
-- A change that extends the life of documents locks out readers until it commits.
-- Other changes do not.
--
SELECT ttl_docs.create_collection('finality');
CREATE FUNCTION lock_of_change_to(default_ttl int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM ttl_docs.set_default_ttl('finality', default_ttl);
	RETURN string_agg(mode, ', ' ORDER BY mode) FROM pg_locks
	 WHERE relation = 'finality'::regclass AND pid = pg_backend_pid() AND mode <> 'AccessShareLock';
END $$;
SELECT lock_of_change_to(-1) AS "off to -1";
SELECT lock_of_change_to(60) AS "-1 to 60";
SELECT lock_of_change_to(60) AS "60 to 60";
SELECT lock_of_change_to(30) AS "60 to 30";
SELECT lock_of_change_to(31) AS "30 to 31";
SELECT lock_of_change_to(-1) AS "31 to -1";
SELECT lock_of_change_to(NULL) AS "-1 to off";
SELECT lock_of_change_to(60) AS "off to 60";
SELECT lock_of_change_to(NULL) AS "60 to off";
DROP FUNCTION lock_of_change_to;
-- A session that is reading the collection cannot extend the life of its documents.
INSERT INTO finality (id, doc) VALUES ('a', '{}');
SELECT ttl_docs.set_default_ttl('finality', 60) FROM finality;
\echo :SQLSTATE
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM finality;
SELECT ttl_docs.set_default_ttl('finality', 60);
\echo :SQLSTATE
ROLLBACK;
SELECT ttl_docs.get_default_ttl('finality') IS NULL AS unchanged;
DROP TABLE finality;
DROP FUNCTION new_documents;

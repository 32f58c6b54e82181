--
-- The matrix of DefaultTTL and document ttl: its nine cells to the microsecond, and the
-- writes that move a document from one cell to another.
--
SELECT ttl_docs.create_collection('matrix_off', NULL);
SELECT ttl_docs.create_collection('matrix_on', -1);
SELECT ttl_docs.create_collection('matrix_60', 60);
SELECT collection, doc_column, default_ttl, mode, indexing
  FROM ttl_docs.collections WHERE collection::text LIKE 'matrix%' ORDER BY default_ttl NULLS FIRST;
SELECT ttl_docs.get_default_ttl('matrix_off') AS off,
       ttl_docs.get_default_ttl('matrix_on') AS on_without,
       ttl_docs.get_default_ttl('matrix_60') AS sixty;

-- The nine cells.  Under REPEATABLE READ the instant does not move, and in replica role
-- a row keeps the _ts that the client sends.  Therefore a document can have an exact
-- age.  It has expired at _ts + ttl, inclusive.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SET LOCAL session_replication_role = replica;
CREATE TEMP TABLE written ON COMMIT DROP AS
SELECT d.ttl, d.doc, a.age, d.ttl || ', ' || a.age AS id,
       ttl_docs.now() - a.age AS ts, ttl_docs.document_ttl(d.doc) AS own
  FROM (VALUES ('absent', '{}'::jsonb), ('-1', '{"ttl": -1}'), ('100', '{"ttl": 100}')) AS d (ttl, doc),
       (VALUES (interval '0'), ('59.999999 s'), ('60 s'), ('99.999999 s'), ('100 s'), ('100 years')) AS a (age);
INSERT INTO matrix_off (id, doc, _ts, _ttl) SELECT id, doc, ts, own FROM written;
INSERT INTO matrix_on (id, doc, _ts, _ttl) SELECT id, doc, ts, own FROM written;
INSERT INTO matrix_60 (id, doc, _ts, _ttl) SELECT id, doc, ts, own FROM written;
SELECT ttl, age,
       EXISTS (SELECT FROM matrix_off AS c WHERE c.id = w.id) AS live_when_off,
       EXISTS (SELECT FROM matrix_on AS c WHERE c.id = w.id) AS live_under_minus_1,
       EXISTS (SELECT FROM matrix_60 AS c WHERE c.id = w.id) AS live_under_60
  FROM written AS w ORDER BY ttl COLLATE "C" DESC, age;
-- is_expired() and expires_at() agree.
SELECT count(*) AS asked,
       count(*) FILTER (WHERE ttl_docs.is_expired(c.name, w.ts, w.own) IS DISTINCT FROM NOT c.visible) AS is_expired_differs,
       count(*) FILTER (WHERE (ttl_docs.expires_at(c.name, w.ts, w.own) > ttl_docs.now()) IS DISTINCT FROM c.visible) AS expires_at_differs
  FROM written AS w,
       LATERAL (VALUES ('matrix_off'::regclass, EXISTS (SELECT FROM matrix_off AS c WHERE c.id = w.id)),
                       ('matrix_on', EXISTS (SELECT FROM matrix_on AS c WHERE c.id = w.id)),
                       ('matrix_60', EXISTS (SELECT FROM matrix_60 AS c WHERE c.id = w.id))) AS c (name, visible);
SELECT c.name, w.ttl, ttl_docs.expires_at(c.name, w.ts, w.own) - w.ts AS lives
  FROM written AS w, (VALUES ('matrix_on'::regclass), ('matrix_60')) AS c (name)
 WHERE w.age = '0' AND isfinite(ttl_docs.expires_at(c.name, w.ts, w.own))
 ORDER BY ttl_docs.get_default_ttl(c.name) NULLS FIRST, w.ttl COLLATE "C";
SELECT c.name, w.ttl, ttl_docs.expires_at(c.name, w.ts, w.own) AS expires
  FROM written AS w, (VALUES ('matrix_off'::regclass), ('matrix_on'), ('matrix_60')) AS c (name)
 WHERE w.age = '0' AND NOT isfinite(ttl_docs.expires_at(c.name, w.ts, w.own))
 ORDER BY ttl_docs.get_default_ttl(c.name) NULLS FIRST, w.ttl COLLATE "C";
ROLLBACK;

-- Both functions require a collection, and return NULL without a time.
SELECT ttl_docs.is_expired('matrix_60', NULL, 60) IS NULL AS is_expired,
       ttl_docs.expires_at('matrix_60', NULL, 60) IS NULL AS expires_at,
       ttl_docs.is_expired(NULL, now(), 60) IS NULL AS of_nothing;
SELECT ttl_docs.is_expired('pg_class', now(), 60);
SELECT ttl_docs.expires_at('pg_class', now(), 60);
SELECT ttl_docs.get_default_ttl('pg_class');

DROP TABLE matrix_off, matrix_on, matrix_60;

--
-- Any write restarts the countdown.  Each document gets a different kind of write 50
-- minutes after its creation.  After 100 minutes, the written documents are live; after
-- 120 minutes, none is.
--
CREATE TABLE matrix_writes (id text PRIMARY KEY, doc jsonb, note text);
SELECT ttl_docs.adopt('matrix_writes', 3600);
INSERT INTO matrix_writes (id, doc, note)
SELECT id, '{"a": 1}', 'x' FROM unnest(ARRAY['document', 'left', 'locked', 'merged', 'nothing', 'othercolumn',
                                             'rolledback', 'samedocument', 'upserted']) AS id;
-- Only the server sets the system columns.
INSERT INTO matrix_writes (id, doc, _ts, _ttl, _slot) VALUES ('stamped', '{}', 'infinity', -1, NULL);
SELECT id, _ts <= clock_timestamp() AS _ts_is_ours, _ttl, _slot IS NOT NULL AS has_slot
  FROM matrix_writes WHERE id = 'stamped';
SET ttl_docs.clock_offset = '50 min';
UPDATE matrix_writes SET _ts = 'infinity', _ttl = -1, _slot = NULL WHERE id = 'stamped';
UPDATE matrix_writes SET id = id WHERE id = 'nothing';
UPDATE matrix_writes SET doc = doc WHERE id = 'samedocument';
UPDATE matrix_writes SET doc = doc || '{"b": 2}' WHERE id = 'document';
UPDATE matrix_writes SET note = 'y' WHERE id = 'othercolumn';
INSERT INTO matrix_writes (id, doc) VALUES ('upserted', '{}') ON CONFLICT (id) DO UPDATE SET note = 'z';
MERGE INTO matrix_writes AS t USING (VALUES ('merged')) AS s (id) ON t.id = s.id
 WHEN MATCHED THEN UPDATE SET note = 'z';
-- These are not writes.
SELECT id FROM matrix_writes WHERE id = 'locked' FOR UPDATE;
BEGIN;
UPDATE matrix_writes SET id = id WHERE id = 'rolledback';
ROLLBACK;
SET ttl_docs.clock_offset = '100 min';
SELECT id FROM matrix_writes ORDER BY id;
SET ttl_docs.clock_offset = '120 min';
SELECT id FROM matrix_writes ORDER BY id;
RESET ttl_docs.clock_offset;
DROP TABLE matrix_writes;

--
-- A live document can change its ttl.  All documents start with a ttl of one hour, in a
-- collection with a DefaultTTL of two hours.
--
SELECT ttl_docs.create_collection('matrix_changes', 7200);
INSERT INTO matrix_changes (id, doc)
SELECT id, '{"ttl": 3600, "a": 1}' FROM unnest(ARRAY['inherit', 'kept', 'late', 'longer', 'never', 'null', 'shorter']) AS id;
SET ttl_docs.clock_offset = '30 min';
UPDATE matrix_changes SET doc = doc - 'ttl' WHERE id = 'inherit';
UPDATE matrix_changes SET doc = doc || '{"ttl": null}' WHERE id = 'null';
UPDATE matrix_changes SET doc = doc || '{"ttl": -1}' WHERE id = 'never';
UPDATE matrix_changes SET doc = doc || '{"ttl": 600}' WHERE id = 'shorter';
UPDATE matrix_changes SET doc = doc || '{"ttl": 14400}' WHERE id = 'longer';
UPDATE matrix_changes SET doc = doc || '{"a": 2}' WHERE id = 'kept';
SELECT id, _ttl, ttl_docs.expires_at('matrix_changes', _ts, _ttl) - _ts AS lives
  FROM matrix_changes WHERE id <> 'never' ORDER BY id;
SET ttl_docs.clock_offset = '50 min';
SELECT string_agg(id, ' ' ORDER BY id) AS at_50 FROM matrix_changes;
SET ttl_docs.clock_offset = '70 min';
SELECT string_agg(id, ' ' ORDER BY id) AS at_70 FROM matrix_changes;
-- Too late: the document has expired.
UPDATE matrix_changes SET doc = doc || '{"ttl": -1}' WHERE id = 'late';
SET ttl_docs.clock_offset = '100 min';
SELECT string_agg(id, ' ' ORDER BY id) AS at_100 FROM matrix_changes;
SET ttl_docs.clock_offset = '160 min';
SELECT string_agg(id, ' ' ORDER BY id) AS at_160 FROM matrix_changes;
SET ttl_docs.clock_offset = '280 min';
SELECT string_agg(id, ' ' ORDER BY id) AS at_280 FROM matrix_changes;
SET ttl_docs.clock_offset = '1000000 min';
SELECT string_agg(id, ' ' ORDER BY id) AS much_later FROM matrix_changes;
RESET ttl_docs.clock_offset;
DROP TABLE matrix_changes;

--
-- TTL off and on again.  While TTL is off, the ttl of a document is not interpreted.
-- When TTL is turned on, ttl counts from _ts, as if TTL had never been off.
--
SELECT ttl_docs.create_collection('matrix_switch', 3600);
INSERT INTO matrix_switch (id, doc)
VALUES ('inherits', '{}'), ('never', '{"ttl": -1}'), ('ten', '{"ttl": 36000}'), ('two', '{"ttl": 7200}');
SET ttl_docs.clock_offset = '30 min';
SELECT ttl_docs.set_default_ttl('matrix_switch', NULL);
SELECT default_ttl, mode FROM ttl_docs.collections WHERE collection = 'matrix_switch'::regclass;
SET ttl_docs.clock_offset = '180 min';
SELECT string_agg(id, ' ' ORDER BY id) AS off FROM matrix_switch;
SELECT DISTINCT ttl_docs.expires_at('matrix_switch', _ts, _ttl) AS expires FROM matrix_switch;
-- A write while TTL is off also sets _ts.
INSERT INTO matrix_switch (id, doc) VALUES ('whileoff', '{"ttl": 7200}');
SET ttl_docs.clock_offset = '240 min';
SELECT ttl_docs.set_default_ttl('matrix_switch', -1);
SELECT default_ttl, mode FROM ttl_docs.collections WHERE collection = 'matrix_switch'::regclass;
SELECT string_agg(id, ' ' ORDER BY id) AS on_without_default FROM matrix_switch;
SELECT ttl_docs.set_default_ttl('matrix_switch', 3600);
SELECT default_ttl, mode FROM ttl_docs.collections WHERE collection = 'matrix_switch'::regclass;
SELECT string_agg(id, ' ' ORDER BY id) AS on_again FROM matrix_switch;
SET ttl_docs.clock_offset = '330 min';
SELECT string_agg(id, ' ' ORDER BY id) AS later FROM matrix_switch;
SET ttl_docs.clock_offset = '700 min';
SELECT string_agg(id, ' ' ORDER BY id) AS much_later FROM matrix_switch;
RESET ttl_docs.clock_offset;
DROP TABLE matrix_switch;

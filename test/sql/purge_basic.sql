-- CALL ttl_docs.purge() deletes expired documents from disk, and nothing else: those of
-- one collection, or of all collections that the caller owns.  ttl_docs.show_expired
-- shows the documents on disk.
\set SHOW_CONTEXT never
SELECT ttl_docs.create_collection('pb', 1000);
SELECT ttl_docs.create_collection('pb_no_default', -1);
SELECT ttl_docs.create_collection('pb_off');
INSERT INTO pb VALUES ('own 100', '{"ttl": 100}'), ('own 300', '{"ttl": 300}'), ('never', '{"ttl": -1}'),
    ('inherits', '{}'), ('null inherits', '{"ttl": null}'), ('renewed', '{"ttl": 100}'), ('longer', '{"ttl": 100}'),
    ('shorter', '{"ttl": 300}'), ('kept', '{"ttl": 100}');
INSERT INTO pb_no_default VALUES ('own', '{"ttl": 100}'), ('none', '{}'), ('never', '{"ttl": -1}');
INSERT INTO pb_off VALUES ('own', '{"ttl": 100}'), ('none', '{}'), ('any', '{"ttl": "x"}');
CREATE VIEW pb_disk AS SELECT 'pb' AS collection, id FROM pb UNION ALL SELECT 'pb_no_default', id FROM pb_no_default
    UNION ALL SELECT 'pb_off', id FROM pb_off;
CREATE VIEW pb_stat AS SELECT collection, purged, batches, estimated_backlog AS backlog, oldest_overdue,
    last_purge IS NOT NULL AS has_last, undeletable, last_error FROM ttl_docs.stat_collections WHERE collection::text LIKE 'pb%';

-- Nothing has expired yet.
CALL ttl_docs.purge();
CALL ttl_docs.purge('pb');
SELECT * FROM pb_stat ORDER BY collection::text;
-- Documents renewed in time: by any write, by a longer ttl, by a ttl of -1
SET ttl_docs.clock_offset = 50;
UPDATE pb SET doc = doc WHERE id = 'renewed';
UPDATE pb SET doc = '{"ttl": 1000}' WHERE id = 'longer';
UPDATE pb SET doc = '{"ttl": 1}' WHERE id = 'shorter';
UPDATE pb SET doc = '{"ttl": -1}' WHERE id = 'kept';
-- The purge index may still have the entry of the first version of a renewed document.
SET ttl_docs.clock_offset = 130;
SET ttl_docs.show_expired = on;
SELECT id FROM pb ORDER BY id;
CALL ttl_docs.purge('pb');
SELECT * FROM pb_disk ORDER BY 1, 2;
-- A second purge finds nothing.
CALL ttl_docs.purge('pb');
SELECT * FROM pb_stat ORDER BY collection::text;
-- All collections; NULL means the same
CALL ttl_docs.purge(NULL);
SELECT * FROM pb_disk ORDER BY 1, 2;
SET ttl_docs.clock_offset = 400;
CALL ttl_docs.purge();
SELECT * FROM pb_disk ORDER BY 1, 2;
-- Documents with a new ttl, and documents that inherit
SET ttl_docs.clock_offset = 1200;
CALL ttl_docs.purge(collection => 'pb');
SELECT * FROM pb_disk ORDER BY 1, 2;
SELECT * FROM pb_stat ORDER BY collection::text;
-- Far in the future, documents that never expire remain.
SET ttl_docs.clock_offset = 2000000000;
CALL ttl_docs.purge();
SELECT * FROM pb_disk ORDER BY 1, 2;
-- If the clock goes back, no live document is purged.
SET ttl_docs.clock_offset = 0;
INSERT INTO pb VALUES ('new', '{"ttl": 100}');
CALL ttl_docs.purge();
SELECT id FROM pb ORDER BY id;

-- Objects that cannot be purged
CREATE TABLE pb_plain (id int, doc jsonb);
CALL ttl_docs.purge('pb_plain');
\echo :SQLSTATE
CALL ttl_docs.purge('pb_disk');
\echo :SQLSTATE
CALL ttl_docs.purge('pb_pkey');
\echo :SQLSTATE
CALL ttl_docs.purge('pg_class');
\echo :SQLSTATE
\set VERBOSITY terse
CALL ttl_docs.purge(0::oid::regclass);
\echo :SQLSTATE
CALL ttl_docs.purge('pb_missing');
\echo :SQLSTATE
\set VERBOSITY default
DROP TABLE pb_plain;

-- The purge uses slots.  A slot is never early, and is late by at most an eighth of the
-- ttl or one second.
DELETE FROM pb;
INSERT INTO pb SELECT i, jsonb_build_object('ttl', i) FROM generate_series(1, 300) AS i;
CREATE TABLE pb_due AS SELECT id, ttl_docs.expires_at('pb', _ts, _ttl) AS due,
    ttl_docs.expires_at('pb', _ts, _ttl) + make_interval(secs => greatest(_ttl / 8, 1)) AS latest FROM pb;
SET client_min_messages = warning;
DO $$
DECLARE
    began timestamptz;
    wrong text;
BEGIN
    FOR i IN 0 .. 340 LOOP
        PERFORM set_config('ttl_docs.clock_offset', i::text, true);
        began := clock_timestamp() + make_interval(secs => i);
        CALL ttl_docs.purge('pb');
        SELECT min(id) INTO wrong FROM pb_due
            WHERE due > clock_timestamp() + make_interval(secs => i) AND id NOT IN (SELECT id FROM pb);
        IF wrong IS NOT NULL THEN
            RAISE 'at %: % was purged too early', i, wrong;
        END IF;
        SELECT min(id) INTO wrong FROM pb_due WHERE latest <= began AND id IN (SELECT id FROM pb);
        IF wrong IS NOT NULL THEN
            RAISE 'at %: % was not purged', i, wrong;
        END IF;
    END LOOP;
END $$;
RESET client_min_messages;
DROP TABLE pb_due;
SELECT count(*) FROM pb;
RESET ttl_docs.show_expired;
RESET ttl_docs.clock_offset;

-- Large documents and their TOAST rows
SELECT ttl_docs.create_collection('pb_large', 1000);
ALTER TABLE pb_large ALTER doc SET STORAGE EXTERNAL;
INSERT INTO pb_large SELECT i, jsonb_build_object('ttl', CASE WHEN i % 2 = 0 THEN 100 END, 'text', repeat('x', 20000))
    FROM generate_series(1, 20) AS i;
SELECT 'SELECT count(*) AS chunks, count(DISTINCT chunk_id) AS values FROM ' || reltoastrelid::regclass AS toasted
    FROM pg_class WHERE oid = 'pb_large'::regclass \gset
:toasted;
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('pb_large');
:toasted;
SELECT count(*), sum(length(doc ->> 'text')) FROM pb_large;
RESET ttl_docs.clock_offset;

DROP VIEW pb_disk, pb_stat;
DROP TABLE pb, pb_no_default, pb_off, pb_large;

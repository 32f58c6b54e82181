-- The purge with different settings of a collection: each kind of purge index and none,
-- TTL turned off, a DefaultTTL raised or lowered.  Expired documents stay expired and
-- are purged; live documents are not.
\set SHOW_CONTEXT never
-- Creates a new collection each time, because _ts is never set below the floor of an
-- old one.
CREATE PROCEDURE ps_make(indexing text DEFAULT 'consistent') LANGUAGE plpgsql SET ttl_docs.clock_offset = 0 AS $$
BEGIN
    DROP TABLE IF EXISTS public.ps;
    PERFORM ttl_docs.create_collection('public.ps', 1000, indexing);
    PERFORM set_config('ttl_docs.clock_offset', '-1000', true);
    INSERT INTO public.ps VALUES ('inherits, old', '{}');
    PERFORM set_config('ttl_docs.clock_offset', '0', true);
    INSERT INTO public.ps VALUES ('inherits, new', '{}'), ('never', '{"ttl": -1}');
    INSERT INTO public.ps SELECT 'own ' || ttl, jsonb_build_object('ttl', ttl) FROM unnest('{100,500,5000}'::int[]) AS ttl;
END $$;

-- Indexing 'lazy'
SET client_min_messages = warning;
CALL ps_make('lazy');
RESET client_min_messages;
SET ttl_docs.clock_offset = 200;
SET ttl_docs.show_expired = on;
CALL ttl_docs.purge('ps');
SELECT id FROM ps ORDER BY id;
SET ttl_docs.clock_offset = 600;
CALL ttl_docs.purge();
CALL ttl_docs.purge('ps');
SELECT id FROM ps ORDER BY id;
-- Many blocks, in ranges that VACUUM has summarized and in others
RESET ttl_docs.clock_offset;
TRUNCATE ps;
INSERT INTO ps SELECT i, jsonb_build_object('ttl', 100 + i % 2 * 1000, 'x', repeat('x', 300)) FROM generate_series(1, 4000) AS i;
VACUUM ps;
INSERT INTO ps SELECT i, jsonb_build_object('ttl', 100 + i % 2 * 1000, 'x', repeat('x', 300)) FROM generate_series(4001, 6000) AS i;
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('ps');
SELECT count(*), count(*) FILTER (WHERE _ttl = 100) AS dead FROM ps;
SET ttl_docs.clock_offset = 1300;
CALL ttl_docs.purge('ps');
SELECT count(*) FROM ps;

-- A lower DefaultTTL: inheriting documents expire earlier.
CALL ps_make();
RESET ttl_docs.clock_offset;
SELECT ttl_docs.set_default_ttl('ps', 300);
CALL ttl_docs.purge('ps');
SELECT id FROM ps ORDER BY id;
SET ttl_docs.clock_offset = 400;
CALL ttl_docs.purge('ps');
SELECT id FROM ps ORDER BY id;

-- A higher DefaultTTL, or -1: expired documents are purged; live documents stay and
-- expire later.
RESET ttl_docs.clock_offset;
CALL ps_make();
SET ttl_docs.clock_offset = 200;
SELECT ttl_docs.set_default_ttl('ps', 10000);
CALL ttl_docs.purge('ps');
SELECT id FROM ps ORDER BY id;
SET ttl_docs.clock_offset = 4000;
CALL ttl_docs.purge('ps');
SELECT id FROM ps ORDER BY id;
SET ttl_docs.clock_offset = 10300;
CALL ttl_docs.purge('ps');
SELECT id FROM ps ORDER BY id;
RESET ttl_docs.clock_offset;
CALL ps_make();
SET ttl_docs.clock_offset = 200;
SELECT ttl_docs.set_default_ttl('ps', -1);
SET ttl_docs.clock_offset = 100000;
CALL ttl_docs.purge('ps');
SELECT id FROM ps ORDER BY id;

-- TTL off: the purge deletes documents that had expired by then.  No other document is
-- ever purged.
RESET ttl_docs.clock_offset;
CALL ps_make();
SET ttl_docs.clock_offset = 200;
SELECT ttl_docs.set_default_ttl('ps', NULL);
RESET ttl_docs.show_expired;
SELECT id FROM ps ORDER BY id;
SET ttl_docs.show_expired = on;
SELECT id FROM ps ORDER BY id;
INSERT INTO ps VALUES ('while off', '{"ttl": 1}');
UPDATE ps SET doc = '{"ttl": 1}' WHERE id = 'own 500';
SET ttl_docs.clock_offset = 100000;
CALL ttl_docs.purge('ps');
SELECT id FROM ps ORDER BY id;
CALL ttl_docs.purge('ps');
SELECT state IN ('off', 'disabled') AS left_alone, estimated_backlog, undeletable FROM ttl_docs.stat_collections WHERE collection = 'ps'::regclass;
-- TTL on again: the ttl counts from _ts.
SELECT ttl_docs.set_default_ttl('ps', 200000);
CALL ttl_docs.purge('ps');
SELECT id FROM ps ORDER BY id;

-- TTL off, and no purge index: the purge cannot find the expired documents and says so.
-- They stay invisible, and are purged once there is an index.
RESET ttl_docs.clock_offset;
CALL ps_make();
SET ttl_docs.clock_offset = 200;
SELECT ttl_docs.set_default_ttl('ps', NULL);
SELECT ttl_docs.set_indexing('ps', 'none');
CALL ttl_docs.purge('ps');
\echo :SQLSTATE
CALL ttl_docs.purge();
SELECT count(*) FROM ps;
RESET ttl_docs.show_expired;
SELECT count(*) FROM ps;
SELECT ttl_docs.set_indexing('ps', 'lazy');
CALL ttl_docs.purge('ps');
SET ttl_docs.show_expired = on;
SELECT count(*) FROM ps;
-- A collection that never had TTL on has no expired documents.
SELECT ttl_docs.create_collection('ps_never', NULL, 'none');
INSERT INTO ps_never VALUES ('a', '{"ttl": 1}');
CALL ttl_docs.purge('ps_never');
SELECT count(*) FROM ps_never;

-- The table is rewritten, or its index is rebuilt
RESET ttl_docs.clock_offset;
CALL ps_make();
SET ttl_docs.clock_offset = 200;
SET client_min_messages = warning;
VACUUM FULL ps;
REINDEX TABLE ps;
CLUSTER ps USING ps_pkey;
RESET client_min_messages;
CALL ttl_docs.purge('ps');
SELECT id FROM ps ORDER BY id;
-- Dead index entries, and rows that are renewed many times
RESET ttl_docs.clock_offset;
CALL ps_make();
DO $$
BEGIN
    FOR i IN 1 .. 50 LOOP
        PERFORM set_config('ttl_docs.clock_offset', (i * 50)::text, true);
        UPDATE public.ps SET doc = doc WHERE id = 'own 100';
    END LOOP;
END $$;
SET ttl_docs.clock_offset = 2550;
CALL ttl_docs.purge('ps');
SELECT id FROM ps ORDER BY id;
SET ttl_docs.clock_offset = 2650;
CALL ttl_docs.purge('ps');
SELECT id FROM ps ORDER BY id;

RESET ttl_docs.show_expired;
RESET ttl_docs.clock_offset;
DROP TABLE ps, ps_never;
DROP PROCEDURE ps_make(text);

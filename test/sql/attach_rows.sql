-- ATTACH PARTITION of a table that has rows rewrites only the rows whose system columns
-- are wrong.
CREATE FUNCTION pg_temp.rewritten(before tid[], after tid[]) RETURNS text
LANGUAGE sql AS $$ SELECT CASE WHEN before = after THEN 'no row' ELSE 'some rows' END $$;

CREATE TABLE attached (id int, doc jsonb) PARTITION BY LIST (id);
CREATE TABLE attached_1 PARTITION OF attached FOR VALUES IN (1);
SELECT ttl_docs.adopt('attached', 100000);
INSERT INTO attached SELECT 1, '{}' FROM generate_series(1, 3);
INSERT INTO attached VALUES (1, '{"ttl": 500}');
SELECT array_agg(ctid ORDER BY ctid) AS before FROM attached_1 \gset

-- The rows keep the slots of the old DefaultTTL, which are wider than those of the new one.
ALTER TABLE attached DETACH PARTITION attached_1;
SELECT ttl_docs.set_default_ttl('attached', 100);
ALTER TABLE attached ATTACH PARTITION attached_1 FOR VALUES IN (1);
SELECT pg_temp.rewritten(:'before', array_agg(ctid ORDER BY ctid)) FROM attached_1;
SELECT count(*) FROM attached;

-- The purge finds the rows under these slots.
SET ttl_docs.clock_offset = 1000;
SELECT count(*) FROM attached;
CALL ttl_docs.purge('attached');
RESET ttl_docs.clock_offset;
SELECT count(*) FROM attached;

-- The rows of a plain table have no system columns yet.  ATTACH computes them.
CREATE TABLE attached_2 (id int, doc jsonb, _ts timestamptz NOT NULL DEFAULT clock_timestamp(),
                         _ttl int, _slot bigint);
INSERT INTO attached_2 VALUES (2, '{"ttl": 500}');
SELECT array_agg(ctid ORDER BY ctid) AS before FROM attached_2 \gset
ALTER TABLE attached ATTACH PARTITION attached_2 FOR VALUES IN (2);
SELECT pg_temp.rewritten(:'before', array_agg(ctid ORDER BY ctid)) FROM attached_2;
SELECT _ttl, _slot IS NOT NULL AS has_slot FROM attached_2;

DROP TABLE attached;

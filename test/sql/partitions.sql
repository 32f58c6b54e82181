--
-- A partitioned collection: access through its root, through a partition, and directly
-- in a leaf.  It has partitions with a different column order, and new, attached and
-- detached ones.
--
CREATE SCHEMA partitions;
SET search_path = partitions;
CREATE TABLE docs (tenant text, n int, doc jsonb) PARTITION BY LIST (tenant);
CREATE TABLE docs_a PARTITION OF docs FOR VALUES IN ('a');
CREATE TABLE docs_b PARTITION OF docs FOR VALUES IN ('b') PARTITION BY RANGE (n);
CREATE TABLE docs_b_1 PARTITION OF docs_b FOR VALUES FROM (1) TO (100);
CREATE TABLE docs_b_2 PARTITION OF docs_b FOR VALUES FROM (100) TO (200);
INSERT INTO docs VALUES ('a', 0, '{"before": "adopt"}'), ('b', 150, '{"before": "adopt", "ttl": -1}');
SELECT ttl_docs.adopt('docs', 3600);
SELECT collection, default_ttl, mode FROM ttl_docs.collections WHERE collection::text LIKE '%docs%' ORDER BY collection::text COLLATE "C";
-- Adds four documents: two that expired at least half an hour ago, and two live ones.
CREATE FUNCTION add(tenant text, first int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('session_replication_role', 'replica', true);
	INSERT INTO docs (tenant, n, doc, _ts, _ttl) VALUES
		(tenant, first, '{}', clock_timestamp() - interval '90 min', NULL),
		(tenant, first + 2, '{"ttl": 60}', clock_timestamp() - interval '90 min', 60);
	PERFORM set_config('session_replication_role', 'origin', true);
	INSERT INTO docs VALUES (tenant, first + 1, '{}'), (tenant, first + 3, '{"ttl": 60}');
END $$;
SELECT add('a', 1), add('b', 1), add('b', 101);
CREATE FUNCTION seen(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	live text;
	all_of_them text;
BEGIN
	query := 'SELECT string_agg(tenant || n, '' '' ORDER BY tenant, n) FROM ' || query;
	EXECUTE query INTO live;
	PERFORM set_config('ttl_docs.show_expired', 'on', true);
	EXECUTE query INTO all_of_them;
	PERFORM set_config('ttl_docs.show_expired', 'off', true);
	RETURN coalesce(live, '-') || '   of ' || coalesce(all_of_them, '-');
END $$;
\pset tuples_only on

--
-- Reads at every level
--
SELECT seen('docs');
SELECT seen('docs_a');
SELECT seen('docs_b');
SELECT seen('docs_b_1');
SELECT seen('docs_b_2');
SELECT seen('ONLY docs');
SELECT seen('docs WHERE tenant = ''b'' AND n < 100');
SELECT seen('docs AS x (tenant, n) JOIN docs_b AS y (t, n) USING (n)');
EXPLAIN (COSTS OFF) SELECT n FROM docs;
EXPLAIN (COSTS OFF) SELECT n FROM docs_b_2;
EXPLAIN (COSTS OFF) SELECT n FROM docs WHERE tenant = 'b' AND n = 150;
-- Partition pruning at the start of the query, and during the query
EXPLAIN (COSTS OFF) SELECT n FROM docs WHERE tenant = left(current_setting('search_path'), 0) || 'b' AND n > 100;
SET plan_cache_mode = force_generic_plan;
PREPARE of_tenant AS SELECT array_agg(n ORDER BY n) FROM docs WHERE tenant = $1;
EXECUTE of_tenant('a');
EXECUTE of_tenant('b');
DEALLOCATE of_tenant;
RESET plan_cache_mode;
SELECT t, ARRAY(SELECT n FROM docs WHERE tenant = t ORDER BY n) FROM (VALUES ('a'), ('b'), ('c')) AS v (t);
-- Partitionwise joins and aggregates
SET enable_partitionwise_join = on;
SET enable_partitionwise_aggregate = on;
SELECT array_agg(x.tenant || x.n ORDER BY x.tenant, x.n) FROM docs AS x JOIN docs AS y ON x.tenant = y.tenant AND x.n = y.n;
SELECT tenant, count(*), max(n) FROM docs GROUP BY tenant ORDER BY tenant;
RESET enable_partitionwise_join;
RESET enable_partitionwise_aggregate;
-- min and max, and a count that must not use an index-only scan of the narrow index
CREATE INDEX docs_n ON docs (n);
INSERT INTO docs SELECT 'b', 50, '{"ttl": -1}' FROM generate_series(1, 2000);
VACUUM ANALYZE docs;
SELECT min(n), max(n) FROM docs WHERE n > 0;
SELECT count(*) FROM docs;
SELECT count(*) FROM docs_b_1;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) FROM docs WHERE n < 50;
SELECT count(*) FROM docs_b_1 WHERE n < 50;
EXPLAIN (COSTS OFF) SELECT n FROM docs WHERE n < 50 ORDER BY n;
SELECT n FROM docs WHERE n < 50 AND n > 0 ORDER BY n;
RESET enable_seqscan;
RESET enable_bitmapscan;
DELETE FROM docs WHERE n = 50;

--
-- Writes at every level
--
UPDATE docs SET n = n WHERE n IN (1, 101) RETURNING n;
UPDATE docs_b SET n = n WHERE n IN (1, 101) RETURNING n;
UPDATE docs_b_1 SET n = n WHERE n = 1 RETURNING n;
DELETE FROM docs_b_1 WHERE n IN (1, 3) RETURNING n;
INSERT INTO docs_b_1 VALUES ('b', 60, '{"ttl": 700}') RETURNING _ttl, _ts > now() AS stamped, _slot IS NOT NULL AS slotted;
INSERT INTO docs_b_1 VALUES ('b', 61, '{"ttl": 0}');
-- The document moves to another partition.  This is a write, so the countdown restarts.
SET ttl_docs.clock_offset = '50 min';
UPDATE docs SET n = 102 + 50 WHERE tenant = 'b' AND n = 102 RETURNING tableoid::regclass, n;
UPDATE docs SET tenant = 'a', n = 22 WHERE tenant = 'b' AND n = 2 RETURNING tableoid::regclass, n;
UPDATE docs SET tenant = 'a' WHERE tenant = 'b' AND n = 1 RETURNING tableoid::regclass, n;
SET ttl_docs.clock_offset = '70 min';
SELECT seen('docs');
RESET ttl_docs.clock_offset;
TRUNCATE docs_b_1;
SELECT seen('docs_b');

--
-- New partitions belong to the collection automatically
--
CREATE TABLE docs_c PARTITION OF docs FOR VALUES IN ('c');
CREATE TABLE docs_other PARTITION OF docs DEFAULT;
CREATE TABLE docs_b_3 PARTITION OF docs_b FOR VALUES FROM (200) TO (300);
SELECT add('c', 1), add('x', 1), add('b', 201);
SELECT seen('docs_c');
SELECT seen('docs_other');
SELECT seen('docs_b_3');
SELECT seen('docs WHERE tenant IN (''c'', ''x'') OR n > 200');
INSERT INTO docs_c VALUES ('c', 5, '{"ttl": "x"}');

-- So do attached ones, with columns in any order.  Their rows keep their _ts; _ttl and
-- _slot are computed from the documents.
CREATE TABLE docs_d (extra int, _slot bigint, doc jsonb, _ttl int, n int, _ts timestamptz DEFAULT now() NOT NULL, tenant text);
ALTER TABLE docs_d DROP COLUMN extra;
INSERT INTO docs_d (tenant, n, doc, _ts, _ttl, _slot) VALUES
	('d', 1, '{"ttl": 60}', now() - interval '2 min', NULL, NULL), ('d', 2, '{"ttl": 600}', now() - interval '2 min', 1, 1),
	('d', 3, '{}', now() - interval '2 h', 100000, 3), ('d', 4, '{}', now() - interval '2 min', 1, 4);
ALTER TABLE docs ATTACH PARTITION docs_d FOR VALUES IN ('d');
SELECT seen('docs_d');
SELECT seen('docs WHERE tenant = ''d''');
SELECT n, _ttl, _slot = ttl_docs_internal.slot(_ts, _ttl, 3600) AS slotted FROM docs_d ORDER BY n;
SELECT add('d', 11);
SELECT seen('docs_d');
-- The expiry check uses the column positions of the partition, also in the index.
CREATE INDEX docs_d_cover ON docs_d (n, _ttl, tenant, _ts);
VACUUM ANALYZE docs_d;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT n FROM docs_d WHERE n < 10 ORDER BY n;
SELECT array_agg(n) FROM (SELECT n FROM docs_d WHERE n < 10 ORDER BY n) AS d;
RESET enable_seqscan;
RESET enable_bitmapscan;
-- While TTL is on, ATTACH refuses documents with an invalid ttl.
CREATE TABLE docs_e (LIKE docs INCLUDING DEFAULTS);
INSERT INTO docs_e (tenant, n, doc) VALUES ('e', 1, '{"ttl": 0}'), ('e', 2, '{"ttl": 1.5}'), ('e', 3, '{"ttl": 60}');
DO $$
BEGIN
	ALTER TABLE partitions.docs ATTACH PARTITION partitions.docs_e FOR VALUES IN ('e');
EXCEPTION WHEN invalid_parameter_value THEN
	RAISE NOTICE '%', regexp_replace(SQLERRM, 'one of them .*', 'one of them (shown)');
END $$;
SELECT count(*), count(_ttl) FROM docs_e;

--
-- The settings are those of the root
--
SELECT ttl_docs.get_default_ttl('docs_b_1');
SELECT ttl_docs.set_default_ttl('docs_b_1', 60);
SELECT ttl_docs.set_default_ttl('docs_b', 60);
-- Writes to a leaf use the settings of the root, also after a rollback of a change.
INSERT INTO docs_a VALUES ('a', 99, '{"ttl": "x"}');
BEGIN;
SELECT ttl_docs.set_default_ttl('docs', NULL);
INSERT INTO docs_a VALUES ('a', 99, '{"ttl": "x"}') RETURNING _ttl;
UPDATE docs_a SET n = n WHERE n = 1 RETURNING n;
ROLLBACK;
INSERT INTO docs_a VALUES ('a', 99, '{"ttl": "x"}');
SELECT ttl_docs.set_default_ttl('docs', NULL);
SELECT seen('docs_c');
SELECT seen('docs_d');
SET ttl_docs.clock_offset = '10 min';
SELECT ttl_docs.set_default_ttl('docs', 300);
SELECT seen('docs_c');
SELECT seen('docs_d');
RESET ttl_docs.clock_offset;
SELECT ttl_docs.set_default_ttl('docs', 3600);
SELECT seen('docs_c');

--
-- A detached partition stays a collection of its own: its expired documents do not come
-- back, and its live documents expire later.
--
SELECT add('c', 21);
ALTER TABLE docs DETACH PARTITION docs_c;
SELECT seen('docs_c');
SELECT collection, default_ttl, mode, holds FROM ttl_docs.collections WHERE collection = 'docs_c'::regclass;
SET ttl_docs.clock_offset = '30 min';
SELECT seen('docs_c WHERE n > 20');
RESET ttl_docs.clock_offset;
INSERT INTO docs_c VALUES ('c', 6, '{"ttl": 700}') RETURNING _ttl;
INSERT INTO docs_c VALUES ('c', 7, '{"ttl": 0}');
UPDATE docs_c SET n = n WHERE n = 1 RETURNING n;
SELECT ttl_docs.set_default_ttl('docs_c', -1);
SELECT ttl_docs.get_default_ttl('docs_c'), ttl_docs.get_default_ttl('docs');
SELECT seen('docs_c');
-- The partition can be attached again, but not if its expired documents would come
-- back.
ALTER TABLE docs ATTACH PARTITION docs_c FOR VALUES IN ('c');
SELECT count(*) FROM ttl_docs.collections WHERE collection = 'docs_c'::regclass;
SELECT seen('docs_c');
INSERT INTO docs_c VALUES ('c', 8, '{"ttl": 0}');
ALTER TABLE docs DETACH PARTITION docs_c;
SELECT ttl_docs.set_default_ttl('docs_c', 60);
ALTER TABLE docs ATTACH PARTITION docs_c FOR VALUES IN ('c');
SELECT seen('docs_c');
-- A partition with partitions of its own
SELECT add('b', 211);
ALTER TABLE docs DETACH PARTITION docs_b;
SELECT seen('docs_b');
SELECT seen('docs_b_3');
SELECT collection, default_ttl, mode FROM ttl_docs.collections WHERE collection::text LIKE '%docs%' ORDER BY collection::text COLLATE "C";
SELECT ttl_docs.set_default_ttl('docs_b', NULL);
SELECT seen('docs_b_3');
-- DETACH CONCURRENTLY, which commits in between
ALTER TABLE docs_b DETACH PARTITION docs_b_3 CONCURRENTLY;
SELECT seen('docs_b_3');
SELECT collection, default_ttl, mode FROM ttl_docs.collections WHERE collection = 'docs_b_3'::regclass;
-- A DETACH that is rolled back
BEGIN;
ALTER TABLE docs DETACH PARTITION docs_d;
SELECT count(*) FROM ttl_docs.collections WHERE collection = 'docs_d'::regclass;
SELECT seen('docs_d');
ROLLBACK;
SELECT count(*) FROM ttl_docs.collections WHERE collection = 'docs_d'::regclass;
SELECT seen('docs_d');
DROP TABLE docs_d;
SELECT seen('docs');
-- After release(), the root and its partitions are plain tables.
SELECT ttl_docs.release('docs');
SELECT string_agg(tenant || n, ' ' ORDER BY tenant, n) FROM docs;
SELECT count(*) FROM pg_attribute WHERE attrelid IN ('docs'::regclass, 'docs_a'::regclass) AND attname LIKE '\_%' AND NOT attisdropped;

\pset tuples_only off
SET client_min_messages = warning;
DROP SCHEMA partitions CASCADE;

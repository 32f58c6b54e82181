-- The purge index: its three modes and every change between them, and errors while a
-- DefaultTTL is set.  A change of the DefaultTTL does not change the index, the index
-- does not prevent HOT updates, and no mode changes a result.
\set SHOW_CONTEXT never

CREATE FUNCTION purge_index(t regclass) RETURNS text LANGUAGE sql AS $$
SELECT coalesce(string_agg(regexp_replace(pg_get_indexdef(indexrelid), '.* USING ', ''), ', '
                           ORDER BY pg_get_indexdef(indexrelid) COLLATE "C"), 'none') ||
       ' / ' || (SELECT indexing FROM ttl_docs.collections WHERE collection = t)
  FROM pg_index WHERE indrelid = t AND NOT indisprimary
$$;

-- Every change, with TTL on and off
SELECT ttl_docs.create_collection('c', 1000);
INSERT INTO c VALUES ('own', '{"ttl": 100}'), ('never', '{"ttl": -1}'), ('inherits', '{}');
SELECT purge_index('c');
SELECT ttl_docs.set_indexing('c', 'lazy');
SELECT purge_index('c');
SELECT ttl_docs.set_indexing('c', 'lazy');
SELECT purge_index('c');
SELECT ttl_docs.set_indexing('c', 'consistent');
SELECT purge_index('c');
SELECT ttl_docs.set_default_ttl('c', NULL);
SELECT ttl_docs.set_indexing('c', 'none');
SELECT purge_index('c');
SELECT ttl_docs.set_indexing('c', 'none');
SELECT ttl_docs.set_indexing('c', 'lazy');
SELECT purge_index('c');
SELECT ttl_docs.set_indexing('c', 'none');
SELECT ttl_docs.set_indexing('c', 'consistent');
SELECT purge_index('c');
SELECT ttl_docs.set_default_ttl('c', 1000);

-- A user's index on _slot is not used as purge index, and set_indexing() does not drop
-- it.
CREATE INDEX users_own ON c (_slot, id);
CREATE INDEX users_partial ON c (_slot) WHERE _slot > 5;
SELECT ttl_docs.set_indexing('c', 'lazy');
SELECT purge_index('c');
SELECT ttl_docs.set_indexing('c', 'consistent');
SELECT purge_index('c');
DROP INDEX users_own, users_partial;

-- Errors, which change nothing
SELECT ttl_docs.set_indexing('c', 'none');
\echo :SQLSTATE
SELECT ttl_docs.set_default_ttl('c', -1);
SELECT ttl_docs.set_indexing('c', 'none');
\echo :SQLSTATE
SELECT ttl_docs.set_indexing('c', 'Lazy');
\echo :SQLSTATE
SELECT ttl_docs.set_indexing('c', '');
\echo :SQLSTATE
\set VERBOSITY sqlstate
SELECT ttl_docs.set_indexing('c', NULL);
SELECT ttl_docs.set_indexing(NULL, 'lazy');
\set VERBOSITY default
SELECT ttl_docs.set_indexing(4294967295::oid::regclass, 'lazy');
\echo :SQLSTATE
SELECT ttl_docs.set_indexing('pg_class', 'lazy');
\echo :SQLSTATE
CREATE TABLE plain (id int, doc jsonb);
SELECT ttl_docs.set_indexing('plain', 'lazy');
\echo :SQLSTATE
DROP TABLE plain;
SELECT purge_index('c');
SELECT ttl_docs.set_default_ttl('c', NULL);
SELECT ttl_docs.set_indexing('c', 'none');
SELECT ttl_docs.set_default_ttl('c', 5);
\echo :SQLSTATE
SELECT ttl_docs.set_default_ttl('c', -1);
\echo :SQLSTATE
SELECT ttl_docs.get_default_ttl('c');
-- TTL can stay off.
SELECT ttl_docs.set_default_ttl('c', NULL);
DROP TABLE c;

-- No mode changes a result: visible documents, key conflicts and finality are the same.
CREATE FUNCTION check_mode(mode text) RETURNS TABLE (step text, ids text) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM ttl_docs.create_collection('m', 1000, mode);
    INSERT INTO m VALUES ('own', '{"ttl": 100}'), ('never', '{"ttl": -1}'), ('inherits', '{}');
    RETURN QUERY SELECT 'at once', string_agg(id, ' ' ORDER BY id) FROM m;
    PERFORM set_config('ttl_docs.clock_offset', '100', true);
    RETURN QUERY SELECT 'at 100', string_agg(id, ' ' ORDER BY id) FROM m;
    INSERT INTO m VALUES ('own', '{"again": true}');
    RETURN QUERY SELECT 'key taken', string_agg(id || doc::text, ' ' ORDER BY id) FROM m;
    PERFORM set_config('ttl_docs.clock_offset', '1000', true);
    RETURN QUERY SELECT 'at 1000', string_agg(id, ' ' ORDER BY id) FROM m;
    PERFORM ttl_docs.set_default_ttl('m', NULL);
    RETURN QUERY SELECT 'off', string_agg(id, ' ' ORDER BY id) FROM m;
    PERFORM ttl_docs.set_indexing('m', 'none');
    RETURN QUERY SELECT 'none', string_agg(id, ' ' ORDER BY id) FROM m;
    INSERT INTO m VALUES ('inherits', '{"again": true}');
    RETURN QUERY SELECT 'key taken', string_agg(id || doc::text, ' ' ORDER BY id) FROM m;
    PERFORM set_config('ttl_docs.clock_offset', '0', true);
    DROP TABLE m;
END $$;
SELECT * FROM check_mode('consistent');
SELECT * FROM check_mode('lazy');
DROP FUNCTION check_mode(text);

-- Partitions: the root determines the mode, also for new partitions.
CREATE TABLE p (id int PRIMARY KEY, doc jsonb) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
SELECT ttl_docs.adopt('p', 1000, indexing => 'lazy');
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);
SELECT regexp_replace(indexdef, ' INDEX .* ON ', ' INDEX ON ') FROM pg_indexes
 WHERE tablename IN ('p', 'p1', 'p2') AND indexdef LIKE '%\_slot%' ORDER BY tablename;
SELECT ttl_docs.set_indexing('p', 'consistent');
SELECT regexp_replace(indexdef, ' INDEX .* ON ', ' INDEX ON ') FROM pg_indexes
 WHERE tablename IN ('p', 'p1', 'p2') AND indexdef LIKE '%\_slot%' ORDER BY tablename;
SELECT ttl_docs.set_indexing('p1', 'lazy');
\echo :SQLSTATE
DROP TABLE p;

-- Older versions left documents that never expire out of the index.  Such an index
-- serves as purge index, and set_indexing() replaces it.
SELECT ttl_docs.create_collection('old', 1000);
CREATE INDEX old_partial ON old (_slot) WHERE _slot IS NOT NULL;
DROP INDEX old__slot_idx;
INSERT INTO old VALUES ('own', '{"ttl": 100}'), ('never', '{"ttl": -1}'), ('inherits', '{}');
SELECT purge_index('old');
SELECT ttl_docs.set_default_ttl('old', 2000);
BEGIN;
SET LOCAL ttl_docs.clock_offset = 3000;
CALL ttl_docs.purge('old');
SET LOCAL ttl_docs.show_expired = on;
SELECT id FROM old ORDER BY id;
ROLLBACK;
DROP INDEX old_partial;
\echo :SQLSTATE
SELECT ttl_docs.release('old');
ALTER TABLE old ADD COLUMN _slot bigint;
CREATE INDEX old_declared ON old (_slot) WHERE _slot IS NOT NULL;
SELECT ttl_docs.adopt('old', 1000);
SELECT purge_index('old');
SELECT ttl_docs.set_indexing('old', 'consistent');
SELECT purge_index('old');
-- If there are both, the partial one is not needed.
CREATE INDEX old_partial ON old (_slot) WHERE _slot IS NOT NULL;
DROP INDEX old_partial;
\echo :SQLSTATE
CREATE INDEX old_partial ON old (_slot) WHERE _slot IS NOT NULL;
SELECT ttl_docs.set_indexing('old', 'lazy');
SELECT purge_index('old');
DROP TABLE old;
CREATE TABLE p (id int PRIMARY KEY, doc jsonb) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
SELECT ttl_docs.adopt('p', 1000);
CREATE INDEX p_partial ON p (_slot) WHERE _slot IS NOT NULL;
DROP INDEX p__slot_idx;
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);
SELECT indexdef FROM pg_indexes WHERE tablename IN ('p1', 'p2') AND indexdef LIKE '%\_slot%' ORDER BY tablename;
SELECT ttl_docs.set_indexing('p', 'consistent');
SELECT indexdef FROM pg_indexes WHERE tablename IN ('p1', 'p2') AND indexdef LIKE '%\_slot%' ORDER BY tablename;
DROP TABLE p;

-- Entries of documents that never expire are at the end.  No scan for expired documents
-- reads them.
SELECT ttl_docs.create_collection('n', 1000);
INSERT INTO n SELECT g, '{"ttl": -1}' FROM generate_series(1, 5000) AS g;
INSERT INTO n VALUES ('own', '{"ttl": 100}'), ('inherits', '{}');
BEGIN;
SET LOCAL ttl_docs.clock_offset = 3000;
CALL ttl_docs.purge('n');
INSERT INTO n VALUES ('own', '{"ttl": -1}'), ('inherits', '{"ttl": -1}');
SELECT pg_stat_get_xact_tuples_returned('n__slot_idx'::regclass) < 100 AS has_read_few;
SET LOCAL ttl_docs.show_expired = on;
SELECT count(*) FROM n;
ROLLBACK;
DROP TABLE n;

-- A change from one DefaultTTL to another changes neither the table nor the index.
SELECT ttl_docs.create_collection('d', 1000);
INSERT INTO d SELECT g, '{}' FROM generate_series(1, 100) AS g;
CREATE TABLE nodes AS SELECT oid, relfilenode FROM pg_class
 WHERE oid = 'd'::regclass OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'd'::regclass);
CREATE TABLE rows_before AS SELECT ctid AS tid, xmin::text AS writer, * FROM d;
SELECT ttl_docs.set_default_ttl('d', 5000);
SELECT ttl_docs.set_default_ttl('d', -1);
SELECT ttl_docs.set_default_ttl('d', NULL);
SELECT ttl_docs.set_default_ttl('d', 2000);
SELECT count(*) AS changed FROM nodes JOIN pg_class AS c USING (oid) WHERE nodes.relfilenode <> c.relfilenode;
SELECT count(*) AS changed FROM
    (SELECT ctid AS tid, xmin::text AS writer, * FROM d EXCEPT TABLE rows_before) AS x;
DROP TABLE d, nodes, rows_before;

-- HOT: repeated writes of a document within its slot add no entries to the purge index,
-- with its own ttl or an inherited one.
SELECT ttl_docs.create_collection('h', 100000);
ALTER TABLE h SET (fillfactor = 50);
INSERT INTO h VALUES ('own', '{"ttl": 100000}'), ('inherits', '{}'), ('never', '{"ttl": -1}');
CREATE FUNCTION touch() RETURNS TABLE (updates bigint, hot bigint, slots int) LANGUAGE plpgsql AS $$
DECLARE
    first_updates bigint;
    first_hot bigint;
    slot_of_own bigint;
BEGIN
    first_updates := pg_stat_get_xact_tuples_updated('h'::regclass);
    first_hot := pg_stat_get_xact_tuples_hot_updated('h'::regclass);
    slots := 0;
    FOR i IN 1..10 LOOP
        SELECT _slot INTO slot_of_own FROM h WHERE id = 'own';
        UPDATE h SET doc = doc || jsonb_build_object('n', i);
        SELECT slots + count(*) INTO slots FROM h WHERE id = 'own' AND _slot <> slot_of_own;
    END LOOP;
    updates := pg_stat_get_xact_tuples_updated('h'::regclass) - first_updates;
    hot := pg_stat_get_xact_tuples_hot_updated('h'::regclass) - first_hot;
    RETURN NEXT;
END $$;
-- Slots are 64 s wide, so a run crosses at most one slot boundary for each of the two
-- kinds of ttl.
SELECT updates, hot >= updates - 2 AS all_hot, slots <= 1 AS same_slot FROM touch();
-- The updates did set _ts.
SELECT count(*) AS stamped FROM h WHERE _ts > clock_timestamp() - interval '100 s';
-- When the slot changes, the update adds an entry and is not HOT.
SET ttl_docs.clock_offset = 70;
SELECT updates, hot >= updates - 4 AS then_hot_again FROM touch();
RESET ttl_docs.clock_offset;
DROP FUNCTION touch();
DROP TABLE h;

-- Slots of own and inherited ttls are in two ranges of one index.  A slot is rounded
-- up, by at most an eighth of the ttl.
SELECT ttl, default_ttl, s.slot >= extract(epoch FROM x.due)::bigint - 946684800 AS not_early,
       s.slot - (extract(epoch FROM x.due)::bigint - 946684800) < greatest(1, ttl / 8) AS not_late
  FROM (VALUES (1, 1000), (10, -1), (100, 1000), (1000, 1000), (2147483647, NULL)) AS v(ttl, default_ttl),
       LATERAL (SELECT timestamptz '2026-01-02 03:04:05Z' + ttl * interval '1 s' AS due) AS x,
       LATERAL (SELECT ttl_docs_internal.slot('2026-01-02 03:04:05Z', ttl, default_ttl) AS slot) AS s;
SELECT ttl_docs_internal.slot('2026-01-02 03:04:05Z', NULL, 1000) < 0 AS inheriting_are_apart,
       ttl_docs_internal.slot('2026-01-02 03:04:05Z', -1, 1000) IS NULL AS never_has_none,
       ttl_docs_internal.slot('2026-01-02 03:04:05Z', NULL, 8) <> ttl_docs_internal.slot('2026-01-02 03:04:07Z', NULL, 8) AS fine,
       ttl_docs_internal.slot('2026-01-02 03:04:05Z', NULL, 1000) = ttl_docs_internal.slot('2026-01-02 03:04:07Z', NULL, 1000) AS coarse;

-- The new index gets the name of the old one, also a name that a user has given, in each
-- partition.  Indexes that a concurrent change left behind are dropped.
CREATE TABLE n (id int, doc jsonb) PARTITION BY LIST (id);
CREATE TABLE n1 PARTITION OF n FOR VALUES IN (1);
CREATE TABLE n2 PARTITION OF n FOR VALUES IN (2) PARTITION BY LIST (id);
CREATE TABLE n22 PARTITION OF n2 FOR VALUES IN (2);
SELECT ttl_docs.adopt('n', 1000);
ALTER INDEX n__slot_idx RENAME TO "Purge of ""n""";
ALTER INDEX n22__slot_idx RENAME TO purge_of_n22;
CREATE FUNCTION indexes() RETURNS TABLE (on_table regclass, index name, method name, valid bool) LANGUAGE sql AS $$
SELECT indrelid::regclass, c.relname, amname, indisvalid
  FROM pg_index JOIN pg_class AS c ON c.oid = indexrelid JOIN pg_am AS a ON a.oid = relam
 WHERE indrelid IN (SELECT relid FROM pg_partition_tree('n')) ORDER BY indrelid::regclass::text COLLATE "C", c.relname
$$;
SELECT coalesce('WHERE ' || pg_get_expr(indpred, indrelid), '') AS predicate
  FROM pg_index WHERE indexrelid = 'n1__slot_idx'::regclass \gset
SELECT ttl_docs.set_indexing('n', 'lazy');
SELECT * FROM indexes();
-- as an interrupted change to consistent leaves them
CREATE INDEX left_root ON ONLY n (_slot) :predicate;
CREATE INDEX left_n1 ON n1 (_slot) :predicate;
CREATE INDEX left_n22 ON n22 (_slot) :predicate;
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'left_n22'::regclass;
BEGIN;
SELECT ttl_docs.set_indexing('n', 'lazy');
SELECT * FROM indexes();
ROLLBACK;
SELECT ttl_docs.set_indexing('n', 'consistent');
SELECT * FROM indexes();
SELECT ttl_docs.set_default_ttl('n', NULL);
SELECT ttl_docs.set_indexing('n', 'none');
SELECT * FROM indexes();
-- Nothing has a name to pass on.
SELECT ttl_docs.set_indexing('n', 'consistent');
SELECT * FROM indexes();
DROP FUNCTION indexes();
DROP TABLE n;

DROP FUNCTION purge_index(regclass);

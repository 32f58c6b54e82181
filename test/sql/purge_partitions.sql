-- The purge of a partitioned collection.  It identifies rows by table and ctid, the
-- statement triggers of the root see rows of the root's type, and it works at any
-- depth.
\set SHOW_CONTEXT never
CREATE TABLE pp (id int, k text, doc jsonb, PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE pp_a PARTITION OF pp FOR VALUES IN ('a');
-- A partition with columns in a different order and dropped columns
CREATE TABLE pp_b (gone int, doc jsonb, also_gone text, k text NOT NULL, id int NOT NULL);
ALTER TABLE pp_b DROP gone, DROP also_gone;
ALTER TABLE pp ATTACH PARTITION pp_b FOR VALUES IN ('b');
CREATE TABLE pp_more PARTITION OF pp DEFAULT PARTITION BY RANGE (id);
CREATE TABLE pp_more_1 PARTITION OF pp_more FOR VALUES FROM (0) TO (10);
CREATE TABLE pp_more_2 (doc jsonb, id int NOT NULL, k text NOT NULL);
ALTER TABLE pp_more ATTACH PARTITION pp_more_2 FOR VALUES FROM (10) TO (100);
SELECT ttl_docs.adopt('pp', 1000);
CREATE VIEW pp_disk AS SELECT tableoid::regclass AS partition, string_agg(id::text, ', ' ORDER BY id) AS ids FROM pp GROUP BY 1;

-- Each ctid has an expired row in one partition, and live rows in the others.
INSERT INTO pp SELECT i, k, jsonb_build_object('ttl', CASE WHEN (i + n) % 4 = 0 THEN 100 ELSE 900 END)
    FROM generate_series(1, 8) AS i, (VALUES ('a', 0), ('b', 1), ('c', 2)) AS v(k, n);
INSERT INTO pp SELECT i, 'c', jsonb_build_object('ttl', CASE WHEN (i + 1) % 4 = 0 THEN 100 ELSE 900 END) FROM generate_series(11, 18) AS i;
SELECT ctid, count(*), count(*) FILTER (WHERE _ttl = 100) AS dead FROM pp GROUP BY ctid ORDER BY ctid;
SET ttl_docs.clock_offset = 200;
SELECT partition::text, ids FROM pp_disk ORDER BY 1;
SET ttl_docs.show_expired = on;
CALL ttl_docs.purge('pp');
-- The purge deleted exactly the documents that were invisible.
SELECT partition::text, ids FROM pp_disk ORDER BY 1;
SELECT purged, batches FROM ttl_docs.stat_collections WHERE collection = 'pp'::regclass;
RESET ttl_docs.show_expired;

-- A partition is not a collection of its own, and cannot be paused.
CALL ttl_docs.purge('pp_a');
\echo :SQLSTATE
CALL ttl_docs.purge('pp_more');
\echo :SQLSTATE
SELECT ttl_docs.pause_purge('pp_a');
\echo :SQLSTATE
SELECT ttl_docs.resume_purge('pp_more');
\echo :SQLSTATE

-- Triggers: row triggers belong to the partition.  Statement triggers belong to the
-- root and have its row type.  Statement triggers of a partition do not fire, as for a
-- DELETE of the root.
CREATE TABLE pp_log (n int GENERATED ALWAYS AS IDENTITY, line text);
CREATE FUNCTION pp_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.pp_log (line) VALUES (format('%s %s %s: %s', TG_WHEN, TG_LEVEL, TG_TABLE_NAME,
        CASE WHEN TG_LEVEL = 'ROW' THEN format('%s %s %s', OLD.id, OLD.k, OLD.doc) END));
    RETURN OLD;
END $$;
CREATE FUNCTION pp_rows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.pp_log (line) SELECT format('transition table of %s: %s', TG_TABLE_NAME,
        string_agg(format('%s %s %s %s', id, k, doc, _ttl), '; ' ORDER BY id)) FROM gone;
    -- The whole row, which depends on the column order
    INSERT INTO public.pp_log (line) SELECT format('its row type: %s', (to_jsonb(g) - '_ts' - '_slot')::text) FROM gone AS g ORDER BY id;
    RETURN NULL;
END $$;
CREATE TRIGGER before_row BEFORE DELETE ON pp FOR EACH ROW EXECUTE FUNCTION pp_note();
CREATE TRIGGER after_row AFTER DELETE ON pp FOR EACH ROW EXECUTE FUNCTION pp_note();
CREATE TRIGGER before_statement BEFORE DELETE ON pp FOR EACH STATEMENT EXECUTE FUNCTION pp_note();
CREATE TRIGGER transition AFTER DELETE ON pp REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION pp_rows();
CREATE TRIGGER of_partition AFTER DELETE ON pp_b FOR EACH STATEMENT EXECUTE FUNCTION pp_note();
CREATE TRIGGER of_middle AFTER DELETE ON pp_more FOR EACH STATEMENT EXECUTE FUNCTION pp_note();
CREATE TRIGGER own_row AFTER DELETE ON pp_more_2 FOR EACH ROW WHEN (OLD.id = 21) EXECUTE FUNCTION pp_note();
RESET ttl_docs.clock_offset;
TRUNCATE pp;
INSERT INTO pp VALUES (1, 'b', '{"ttl": 100}'), (2, 'b', '{"ttl": 100}'), (3, 'b', '{"ttl": 900}');
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('pp');
SELECT line FROM pp_log ORDER BY n;
TRUNCATE pp_log;
RESET ttl_docs.clock_offset;
INSERT INTO pp VALUES (21, 'c', '{"ttl": 100}');
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('pp');
SELECT line FROM pp_log ORDER BY n;
-- A DELETE of the same documents
TRUNCATE pp_log;
RESET ttl_docs.clock_offset;
INSERT INTO pp VALUES (21, 'c', '{"ttl": 100}');
DELETE FROM pp WHERE id = 21;
SELECT line FROM pp_log ORDER BY n;
DROP TRIGGER before_row ON pp;
DROP TRIGGER after_row ON pp;
DROP TRIGGER before_statement ON pp;
DROP TRIGGER transition ON pp;

-- A foreign key to the collection
CREATE TABLE pp_child (id int, k text, FOREIGN KEY (id, k) REFERENCES pp ON DELETE CASCADE);
CREATE TABLE pp_keeper (id int, k text, FOREIGN KEY (id, k) REFERENCES pp);
INSERT INTO pp VALUES (5, 'a', '{"ttl": 100}'), (5, 'b', '{"ttl": 100}'), (6, 'c', '{"ttl": 100}'), (16, 'c', '{"ttl": 100}');
INSERT INTO pp_child SELECT id, k FROM pp;
INSERT INTO pp_keeper VALUES (5, 'b'), (16, 'c');
SET ttl_docs.clock_offset = 200;
SET client_min_messages = error;
CALL ttl_docs.purge('pp');
RESET client_min_messages;
SELECT * FROM pp_child ORDER BY k, id;
SET ttl_docs.show_expired = on;
SELECT partition::text, ids FROM pp_disk ORDER BY 1;
-- The undeletable documents of all partitions count for the collection.
SELECT undeletable FROM ttl_docs.stat_collections WHERE collection = 'pp'::regclass;
SELECT ttl_docs.resume_purge('pp');
SELECT undeletable FROM ttl_docs.stat_collections WHERE collection = 'pp'::regclass;
DROP TABLE pp_keeper, pp_child;
CALL ttl_docs.purge('pp');
SELECT partition::text, ids FROM pp_disk ORDER BY 1;

-- A new partition, a detached leaf and a detached middle table.  The detached ones stay
-- collections and are purged separately.
RESET ttl_docs.clock_offset;
DROP VIEW pp_disk;
TRUNCATE pp;
CREATE TABLE pp_d (LIKE pp INCLUDING ALL);
INSERT INTO pp_d VALUES (1, 'd', '{"ttl": 100}'), (2, 'd', '{"ttl": 900}');
ALTER TABLE pp ATTACH PARTITION pp_d FOR VALUES IN ('d');
INSERT INTO pp VALUES (1, 'a', '{"ttl": 100}'), (2, 'a', '{"ttl": 900}'), (1, 'c', '{"ttl": 100}'), (12, 'c', '{"ttl": 100}'), (13, 'c', '{"ttl": 900}');
ALTER TABLE pp DETACH PARTITION pp_a;
ALTER TABLE pp DETACH PARTITION pp_more;
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('pp');
SELECT (SELECT count(*) FROM pp) AS pp, (SELECT count(*) FROM pp_a) AS a, (SELECT count(*) FROM pp_more) AS more;
CALL ttl_docs.purge('pp_a');
CALL ttl_docs.purge('pp_more');
SELECT (SELECT count(*) FROM pp) AS pp, (SELECT count(*) FROM pp_a) AS a, (SELECT count(*) FROM pp_more) AS more;
SELECT collection::text, purged FROM ttl_docs.stat_collections WHERE collection::text LIKE 'pp%' ORDER BY 1;
-- A detached partition is attached again.
RESET ttl_docs.clock_offset;
INSERT INTO pp_a VALUES (5, 'a', '{"ttl": 100}');
ALTER TABLE pp ATTACH PARTITION pp_a FOR VALUES IN ('a');
SET ttl_docs.clock_offset = 200;
CALL ttl_docs.purge('pp');
SELECT id, k FROM pp ORDER BY k, id;
RESET ttl_docs.show_expired;
RESET ttl_docs.clock_offset;
DROP TABLE pp, pp_more, pp_log;
-- A collection without partitions
CREATE TABLE pp (id int, doc jsonb) PARTITION BY LIST (id);
SELECT ttl_docs.adopt('pp', 1000);
CALL ttl_docs.purge('pp');
SELECT ttl_docs.pause_purge('pp');
CALL ttl_docs.purge('pp');
SELECT ttl_docs.resume_purge('pp');
SELECT purged, undeletable FROM ttl_docs.stat_collections WHERE collection = 'pp'::regclass;
DROP TABLE pp;
DROP FUNCTION pp_note(), pp_rows();

-- A dump of a distributed collection is restored on a server without Citus.  The dump has the label, but
-- not the trigger, which is hidden on Citus tables.
CREATE TABLE was_distributed (
    id text PRIMARY KEY, doc jsonb,
    _ts timestamptz NOT NULL DEFAULT '-infinity', _ttl int, _slot bigint);
SECURITY LABEL FOR ttl_docs ON TABLE was_distributed IS
    '{"version": 1, "document": "doc", "default_ttl": 60, "indexing": "consistent", "written_floor": null, "due_floor": null, "paused": false, "citus": true, "changing": true, "filling": true, "database": 1, "table": 1}';
-- The table is a plain collection now: the flags of Citus are gone, the trigger is there and visible, and
-- _ts has the usual default.  The purge is held.
SELECT label FROM pg_seclabel WHERE objoid = 'was_distributed'::regclass;
SELECT tgname, tgisinternal, tgenabled FROM pg_trigger WHERE tgrelid = 'was_distributed'::regclass;
SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'was_distributed'::regclass ORDER BY adnum;
SELECT holds FROM ttl_docs.collections WHERE collection = 'was_distributed'::regclass;
-- Clients cannot set _ts, although the label said that Citus was filling the table.
INSERT INTO was_distributed VALUES ('a', '{}', '2001-01-01') RETURNING _ts > now() - interval '1 minute' AS stamped;
-- Nobody but Citus changes a label with SECURITY LABEL.
SECURITY LABEL FOR ttl_docs ON TABLE was_distributed IS
    '{"version": 1, "document": "doc", "default_ttl": 60, "indexing": "consistent", "written_floor": null, "due_floor": null, "paused": false, "filling": true, "database": 1, "table": 1}';
SECURITY LABEL FOR ttl_docs ON TABLE was_distributed IS NULL;
SET application_name = 'citus_internal gpid=1';
SECURITY LABEL FOR ttl_docs ON TABLE was_distributed IS NULL;
SET ttl_docs.distributed_instant = '0';
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT ttl_docs.now() > now() - interval '1 minute' AS own_instant;
COMMIT;
RESET ttl_docs.distributed_instant;
RESET application_name;
DROP TABLE was_distributed;

-- Rows with _ts = -infinity have no stamp yet.  They come from a table that was created LIKE a Citus table.
-- The stamp is set when the table becomes part of a collection.
CREATE TABLE logs (id text, at date, doc jsonb, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
SELECT ttl_docs.adopt('logs', 60);
CREATE TABLE logs_2020 (LIKE logs INCLUDING ALL);
ALTER TABLE logs_2020 ALTER COLUMN _ts SET DEFAULT '-infinity';
INSERT INTO logs_2020 VALUES ('a', '2020-01-01', '{}'), ('b', '2020-01-01', '{"ttl": 50}');
INSERT INTO logs_2020 VALUES ('old', '2020-01-01', '{}', '2001-01-01');
ALTER TABLE logs ATTACH PARTITION logs_2020 FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
SELECT id, _ttl, _ts > now() - interval '1 minute' AS stamped, _slot IS NOT NULL AS has_slot FROM logs ORDER BY id;
DROP TABLE logs;

-- Only tables with the access method heap can be collections.
CREATE ACCESS METHOD another_heap TYPE TABLE HANDLER heap_tableam_handler;
CREATE TABLE other_method (id text PRIMARY KEY, doc jsonb) USING another_heap;
SELECT ttl_docs.adopt('other_method', 60);
\echo :SQLSTATE
CREATE TABLE parted (id text, at date, doc jsonb) PARTITION BY RANGE (at);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM ('2020-01-01') TO ('2021-01-01') USING another_heap;
SELECT ttl_docs.adopt('parted', 60);
DROP TABLE parted_1;
SELECT ttl_docs.adopt('parted', 60);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM ('2020-01-01') TO ('2021-01-01') USING another_heap;
CREATE TABLE parted_2 (LIKE parted) USING another_heap;
ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES FROM ('2022-01-01') TO ('2023-01-01');
SELECT ttl_docs.create_collection('docs', 60);
ALTER TABLE docs SET ACCESS METHOD another_heap;
ALTER TABLE docs SET ACCESS METHOD heap;
DROP TABLE parted, parted_2, other_method, docs;
DROP ACCESS METHOD another_heap;

-- Rows of this table expire after 3 seconds.  A row can say otherwise: cleo never expires.
CREATE EXTENSION ttl_docs;
SELECT ttl_docs.create_collection('sessions', 3);
INSERT INTO sessions (id, doc) VALUES ('ann', '{}'), ('cleo', '{"ttl": -1}');

-- We pause the purge, so nothing deletes rows.  Rows expire without it.
SELECT ttl_docs.pause_purge('sessions');
\! sleep 3

-- Ann has expired.  No query finds her row, not even one by a superuser.
SELECT id, doc FROM sessions;
SELECT count(*) FROM sessions;

-- Her row is still on disk.  With this setting, superusers see it.
SET ttl_docs.show_expired = on;
SELECT ctid, id, doc FROM sessions;
RESET ttl_docs.show_expired;

-- Her key is free.  With a view and a cron job, this INSERT would fail: duplicate key.
INSERT INTO sessions (id, doc) VALUES ('ann', '{"visit": 2}'), ('bob', '{}');

-- A touch restarts ann's 3 seconds.  Nobody touches bob, so bob expires.
\! sleep 1.5
SELECT ttl_docs.touch_document('sessions', 'ann');
\! sleep 1.5
SELECT id, doc FROM sessions ORDER BY id;

-- An existing table with a jsonb column.  The time to live of its rows counts from "changed".
CREATE TABLE carts (id int PRIMARY KEY, cart jsonb, changed timestamptz);
INSERT INTO carts VALUES (1, '{"item": "pen"}', now() - interval '2 days'),
                         (2, '{"item": "ink"}', now());
SELECT ttl_docs.adopt('carts', last_modified => 'changed');

-- First a dry run: what would a TTL of one day do?  Then the change itself.
SELECT live, expire_now, expire_later FROM ttl_docs.preview('carts', 86400);
SELECT ttl_docs.set_default_ttl('carts', 86400);
SELECT id, cart FROM carts;

-- The purge of carts now waits 10 minutes, in case the change was a mistake.  We resume both.
SELECT ttl_docs.resume_purge('sessions'), ttl_docs.resume_purge('carts');

-- A background worker deletes the expired rows.  We wait for it, at most 20 seconds.
DO $$ BEGIN FOR i IN 1..200 LOOP
  EXIT WHEN (SELECT sum(purged) >= 3 FROM ttl_docs.stat_collections);
  COMMIT; PERFORM pg_sleep(0.1);
END LOOP; END $$;
SELECT collection, purged, last_purge FROM ttl_docs.stat_collections ORDER BY purged DESC;

-- No expired row is left on disk.
SET ttl_docs.show_expired = on;
SELECT ctid, id, doc FROM sessions UNION ALL SELECT ctid, id::text, cart FROM carts;

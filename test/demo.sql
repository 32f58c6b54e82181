-- The demo of ttl_docs: documents that vanish while you watch.

CREATE EXTENSION ttl_docs;

-- Documents of this collection live for 3 seconds, unless they say otherwise.
SELECT ttl_docs.create_collection('sessions', 3);

-- Ann's document inherits the 3 seconds, Bob's asks for 6, Cleo's never expires.
INSERT INTO sessions (id, doc) VALUES
  ('ann',  '{"page": "/home"}'),
  ('bob',  '{"page": "/cart", "ttl": 6}'),
  ('cleo', '{"page": "/admin", "ttl": -1}');

SELECT id, doc, _ts FROM sessions ORDER BY id;

-- 4 seconds later Ann's is gone, to every query and at once.
\! sleep 4
SELECT id, doc, _ts FROM sessions ORDER BY id;
SELECT count(*) FROM sessions;

-- Her key is free again.  A new document has 3 seconds of its own.
INSERT INTO sessions (id, doc) VALUES ('ann', '{"page": "/login"}');
SELECT id, doc, _ts FROM sessions ORDER BY id;

-- 3 seconds more: Bob's 6 are over, and so are Ann's second 3.
\! sleep 3
SELECT id, doc, _ts FROM sessions ORDER BY id;
SELECT count(*) FROM sessions;

-- A background worker takes them off the disk, a moment later.
\! sleep 3
SELECT collection, state, purged, last_purge FROM ttl_docs.stat_collections;

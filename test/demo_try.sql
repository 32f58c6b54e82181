INSERT INTO sessions (id, doc) VALUES ('you', '{"ttl": 10}');
SELECT id, ttl_docs.expires_at('sessions', _ts, _ttl) FROM sessions \watch 1
EXPLAIN (COSTS OFF) SELECT * FROM sessions WHERE id = 'you';

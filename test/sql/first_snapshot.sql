--
-- The instant of a REPEATABLE READ transaction is that of its first snapshot, even if
-- no query has run yet.  The clock then moves ahead by two hours; a document that was
-- live at the first snapshot stays live for the whole transaction.
--
SELECT ttl_docs.create_collection('first', 3600);
INSERT INTO first (id, doc) VALUES ('a', '{}');

-- A statement that failed in a savepoint takes a snapshot.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SAVEPOINT s;
SELECT nonsense;
ROLLBACK TO s;
SET ttl_docs.clock_offset = '2 h';
SELECT count(*) FROM first;
ROLLBACK;

-- PREPARE takes a snapshot.
BEGIN ISOLATION LEVEL REPEATABLE READ;
PREPARE count_first AS SELECT count(*) FROM first;
SET ttl_docs.clock_offset = '2 h';
EXECUTE count_first;
ROLLBACK;
DEALLOCATE count_first;

-- SET and SHOW take no snapshot.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SET ttl_docs.clock_offset = '2 h';
SELECT count(*) FROM first;
ROLLBACK;

-- A transaction that waits for a safe snapshot takes its instant after the wait.
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE;
SET ttl_docs.clock_offset = '2 h';
SELECT count(*) FROM first;
ROLLBACK;

-- Lowering the DefaultTTL does not move the floors.
INSERT INTO first (id, doc) VALUES ('short', '{"ttl": 60}');
SELECT ttl_docs.set_default_ttl('first', 1800);
SELECT label::jsonb -> 'written_floor' AS written, label::jsonb -> 'due_floor' AS due
  FROM pg_seclabel WHERE objoid = 'first'::regclass;
DROP TABLE first;

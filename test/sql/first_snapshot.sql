--
-- The instant of a REPEATABLE READ transaction is that of its first snapshot,
-- also where no query has been executed yet.  The clock moves on by two hours
-- after it; what was live at first is live to the end.
--
SELECT ttl_docs.create_collection('first', 3600);
INSERT INTO first (id, doc) VALUES ('a', '{}');

-- a statement that failed in a savepoint
BEGIN ISOLATION LEVEL REPEATABLE READ;
SAVEPOINT s;
SELECT nonsense;
ROLLBACK TO s;
SET ttl_docs.clock_offset = '2 h';
SELECT count(*) FROM first;
ROLLBACK;

-- one that was only prepared
BEGIN ISOLATION LEVEL REPEATABLE READ;
PREPARE count_first AS SELECT count(*) FROM first;
SET ttl_docs.clock_offset = '2 h';
EXECUTE count_first;
ROLLBACK;
DEALLOCATE count_first;

-- SET and SHOW take no snapshot
BEGIN ISOLATION LEVEL REPEATABLE READ;
SET ttl_docs.clock_offset = '2 h';
SELECT count(*) FROM first;
ROLLBACK;

-- a transaction that waits for a safe snapshot has it only then
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE;
SET ttl_docs.clock_offset = '2 h';
SELECT count(*) FROM first;
ROLLBACK;

-- Lowering the DefaultTTL moves no floor under a reader.
INSERT INTO first (id, doc) VALUES ('short', '{"ttl": 60}');
SELECT ttl_docs.set_default_ttl('first', 1800);
SELECT label::jsonb -> 'written_floor' AS written, label::jsonb -> 'due_floor' AS due
  FROM pg_seclabel WHERE objoid = 'first'::regclass;
DROP TABLE first;

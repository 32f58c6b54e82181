--
-- One instant applies to a whole query and belongs to its snapshot.
--
-- The collection has one document that lives for an hour.  travel() moves the clock two
-- hours ahead during a test.  A scan with an earlier instant still sees the document; a
-- scan with a later instant does not.
--
SELECT ttl_docs.create_collection('instant_docs', 3600);
INSERT INTO instant_docs (id, doc) VALUES ('a', '{}');
CREATE FUNCTION travel(hours int) RETURNS int VOLATILE LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('ttl_docs.clock_offset', (hours * 3600)::text, false);
	RETURN hours;
END $$;
CREATE FUNCTION count_stable() RETURNS bigint STABLE LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT count(*) FROM instant_docs); END $$;
CREATE FUNCTION count_volatile() RETURNS bigint VOLATILE LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT count(*) FROM instant_docs); END $$;
-- SET prevents inlining, which would make these two functions part of the query.
CREATE FUNCTION count_stable_sql() RETURNS bigint STABLE LANGUAGE sql SET search_path = public AS
$$ SELECT count(*) FROM instant_docs $$;
CREATE FUNCTION count_volatile_sql() RETURNS bigint VOLATILE LANGUAGE sql SET search_path = public AS
$$ SELECT count(*) FROM instant_docs $$;

-- now() returns the instant.  It is the same for all rows of a query, even if the clock
-- moves, and is close to the clock at the start of the query.
SELECT count(DISTINCT ttl_docs.now()) AS instants, count(DISTINCT clock_timestamp()) > 1 AS time_passes
  FROM generate_series(1, 1000);
SELECT max(ttl_docs.now()) - min(ttl_docs.now()) AS moved FROM generate_series(0, 2) AS hours WHERE travel(hours) >= 0;
RESET ttl_docs.clock_offset;
SELECT ttl_docs.now() BETWEEN statement_timestamp() AND clock_timestamp() AS is_the_clock,
       ttl_docs.now() > transaction_timestamp() AS is_not_now;
SET ttl_docs.clock_offset = '2 h';
SELECT ttl_docs.now() - '2 hours'::interval BETWEEN statement_timestamp() AND clock_timestamp() AS follows_the_offset;
RESET ttl_docs.clock_offset;

-- A scan that starts after the clock has moved uses the instant of its query.  The
-- branches of UNION ALL run one after the other.
SELECT 'travelled' AS id, travel(2) UNION ALL SELECT id, 0 FROM instant_docs;
SELECT count(*) AS next_statement FROM instant_docs;
-- So do the settings that show expired documents, also in a cursor.
SELECT (SELECT count(*) FROM instant_docs) AS before, set_config('ttl_docs.show_expired', 'on', false) AS show_expired,
       (SELECT count(*) FROM instant_docs) AS after;
SELECT count(*) AS next_statement FROM instant_docs;
SELECT (SELECT count(*) FROM instant_docs) AS before, set_config('ttl_docs.show_expired', 'off', false) AS show_expired,
       (SELECT count(*) FROM instant_docs) AS after;
SELECT (SELECT count(*) FROM instant_docs) AS before, set_config('row_security', 'off', false) AS row_security,
       (SELECT count(*) FROM instant_docs) AS after;
SELECT count(*) AS next_statement FROM instant_docs;
SELECT (SELECT count(*) FROM instant_docs) AS before, set_config('row_security', 'on', false) AS row_security,
       (SELECT count(*) FROM instant_docs) AS after;
BEGIN;
DECLARE opened_before CURSOR FOR SELECT id FROM instant_docs;
SET LOCAL ttl_docs.show_expired = on;
DECLARE opened_after CURSOR FOR SELECT id FROM instant_docs;
SET LOCAL ttl_docs.show_expired = off;
FETCH opened_before;
FETCH opened_after;
COMMIT;
RESET ttl_docs.clock_offset;
-- Sub-queries that run late, and more than once, use the same instant.
SELECT hours, travel(hours), (SELECT count(*) FROM instant_docs WHERE hours >= 0) AS seen
  FROM generate_series(0, 4, 2) AS hours;
RESET ttl_docs.clock_offset;
-- So do CTEs.
WITH moved AS MATERIALIZED (SELECT travel(2)), seen AS MATERIALIZED (SELECT count(*) FROM instant_docs)
SELECT * FROM moved, seen;
RESET ttl_docs.clock_offset;
-- STABLE functions belong to the query.  VOLATILE functions have instants of their own.
SELECT travel(2), count_stable(), count_volatile(), count_stable_sql(), count_volatile_sql();
RESET ttl_docs.clock_offset;
-- A STABLE function called by a VOLATILE one shares the caller's instant.  A VOLATILE
-- function has its own instant, even if a STABLE one calls it.
CREATE FUNCTION outer_volatile() RETURNS text VOLATILE LANGUAGE plpgsql AS $$
DECLARE seen text;
BEGIN
	SELECT count_stable() || ' then ' || travel(2) || ' then ' || count_stable() INTO seen FROM generate_series(1, 1);
	RETURN seen || ' next ' || count_stable();
END $$;
SELECT outer_volatile();
RESET ttl_docs.clock_offset;
CREATE FUNCTION outer_stable() RETURNS text STABLE LANGUAGE plpgsql AS
$$ BEGIN RETURN count_stable() || ' ' || count_volatile(); END $$;
SELECT travel(2), outer_stable();
RESET ttl_docs.clock_offset;
-- Expressions in PL/pgSQL follow the same rule.
CREATE FUNCTION now_stable() RETURNS timestamptz STABLE LANGUAGE plpgsql AS $$ BEGIN RETURN ttl_docs.now(); END $$;
CREATE FUNCTION now_volatile() RETURNS timestamptz VOLATILE LANGUAGE plpgsql AS $$ BEGIN RETURN ttl_docs.now(); END $$;
SELECT travel(2), now_stable() = ttl_docs.now() AS stable_is_the_same,
       now_volatile() - ttl_docs.now() >= '2 hours' AS volatile_is_later;
RESET ttl_docs.clock_offset;

-- READ COMMITTED: every statement has its own instant, in a transaction block
BEGIN;
SELECT count(*) FROM instant_docs;
SET ttl_docs.clock_offset = '2 h';
SELECT count(*) FROM instant_docs;
COMMIT;
RESET ttl_docs.clock_offset;
-- In one string
SELECT travel(2) \; SELECT count(*) FROM instant_docs \; SELECT travel(0) \; SELECT count(*) FROM instant_docs;
-- In a DO block
DO $$
DECLARE
	before bigint := (SELECT count(*) FROM instant_docs);
	at_first timestamptz := ttl_docs.now();
BEGIN
	PERFORM travel(2);
	RAISE NOTICE 'before %, after %, now() moved: %', before, (SELECT count(*) FROM instant_docs),
		ttl_docs.now() - at_first >= '2 hours';
	PERFORM travel(0);
END $$;
-- In a loop of a procedure, with and without COMMIT
CREATE PROCEDURE watch() LANGUAGE plpgsql AS $$
BEGIN
	FOR hours IN 0..4 BY 2 LOOP
		PERFORM travel(hours);
		RAISE NOTICE 'after % hours: %', hours, (SELECT count(*) FROM instant_docs);
		IF hours = 2 THEN COMMIT; END IF;
	END LOOP;
	PERFORM travel(0);
END $$;
CALL watch();
-- Triggers fired by COPY FROM are VOLATILE functions, too.
CREATE TABLE instant_log (id int, seen bigint);
CREATE FUNCTION look_later() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM travel(2);
	NEW.seen := (SELECT count(*) FROM instant_docs);
	RETURN NEW;
END $$;
CREATE TRIGGER look_later BEFORE INSERT ON instant_log FOR EACH ROW EXECUTE FUNCTION look_later();
COPY instant_log (id) FROM stdin;
1
\.
RESET ttl_docs.clock_offset;
INSERT INTO instant_log (id) VALUES (2);
RESET ttl_docs.clock_offset;
SELECT * FROM instant_log ORDER BY id;
DROP TABLE instant_log;
DROP FUNCTION look_later;

-- REPEATABLE READ and SERIALIZABLE: the instant of the first snapshot applies to the
-- whole transaction.  SET takes no snapshot, so BEGIN and SET do not fix the instant.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SET ttl_docs.clock_offset = '1800 s';
SELECT ttl_docs.now() - clock_timestamp() > '1799 s' AS is_of_the_first_query;
SELECT count(*) FROM instant_docs;
SET ttl_docs.clock_offset = '2 h';
SELECT count(*), count_stable(), count_volatile(), count_volatile_sql() FROM instant_docs;
SELECT now_volatile() = ttl_docs.now() AS all_the_same, ttl_docs.now() < clock_timestamp() + '1 hour' AS as_at_first;
DO $$ BEGIN RAISE NOTICE 'seen %, now() is as at first: %', (SELECT count(*) FROM instant_docs),
	ttl_docs.now() < clock_timestamp() + '1 hour'; END $$;
SAVEPOINT s;
SELECT count(*) FROM instant_docs;
ROLLBACK TO s;
SELECT count(*) FROM instant_docs;
COMMIT AND CHAIN;
SELECT count(*) AS next_transaction FROM instant_docs;
ROLLBACK;
RESET ttl_docs.clock_offset;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM instant_docs;
SET ttl_docs.clock_offset = '2 h';
SELECT count(*) FROM instant_docs;
SELECT 1 / 0;
ROLLBACK;
SET ttl_docs.clock_offset = '2 h';
SELECT count(*) AS next_transaction FROM instant_docs;
RESET ttl_docs.clock_offset;
-- The snapshot can be older than the query, for example after a wait for a lock on the
-- table.  If another session touches the document meanwhile, the snapshot only sees the
-- old version.  With a later instant, that version would have expired, and the query
-- would miss the document.
PREPARE count_docs (int) AS SELECT count(*) FROM instant_docs WHERE $1 IS NOT NULL;
EXECUTE count_docs (travel(2));
EXECUTE count_docs (0);
RESET ttl_docs.clock_offset;
CREATE TABLE instant_counted AS EXECUTE count_docs (travel(2));
RESET ttl_docs.clock_offset;
SELECT * FROM instant_counted;
DROP TABLE instant_counted;
DEALLOCATE count_docs;
-- The first snapshot of a transaction can belong to a command that is not a query.
BEGIN ISOLATION LEVEL REPEATABLE READ;
CREATE TABLE instant_other ();
SET ttl_docs.clock_offset = '2 h';
SELECT count(*) FROM instant_docs;
ROLLBACK;

-- The first snapshot can also belong to a statement that then waits for locks.
-- Therefore the instant is never later than the arrival of the statement.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT ttl_docs.now() BETWEEN transaction_timestamp() AND statement_timestamp() AS not_after_the_snapshot;
ROLLBACK;
-- After COMMIT in a procedure, there is a new transaction with a new instant.
CREATE PROCEDURE commit_and_look() LANGUAGE plpgsql AS $$
DECLARE
	before timestamptz;
BEGIN
	COMMIT;
	before := clock_timestamp();
	COMMIT;
	RAISE NOTICE '%: the instant is that of the new transaction: %', current_setting('transaction_isolation'),
		(SELECT ttl_docs.now() >= before);
END $$;
CALL commit_and_look();
SET default_transaction_isolation = 'repeatable read';
CALL commit_and_look();
RESET default_transaction_isolation;
DROP PROCEDURE commit_and_look;

-- A cursor keeps the instant at which it was opened, even if the first FETCH comes
-- later.  STABLE functions in the cursor use the same instant.
INSERT INTO instant_docs (id, doc) VALUES ('b', '{}'), ('c', '{}');
BEGIN;
DECLARE opened CURSOR FOR SELECT id, count_stable(), count_volatile() FROM instant_docs ORDER BY id;
DECLARE halfway SCROLL CURSOR FOR SELECT id, ttl_docs.now() = now_stable() AS same FROM instant_docs;
FETCH 1 FROM halfway;
SET ttl_docs.clock_offset = '2 h';
FETCH ALL FROM opened;
FETCH ALL FROM halfway;
MOVE ABSOLUTE 0 FROM halfway;
FETCH 1 FROM halfway;
SELECT count(*) FROM instant_docs;
COMMIT;
RESET ttl_docs.clock_offset;
-- A cursor WITH HOLD keeps its instant across the COMMIT that stores its result.
BEGIN;
DECLARE held CURSOR WITH HOLD FOR SELECT id FROM instant_docs ORDER BY id;
SET ttl_docs.clock_offset = '2 h';
COMMIT;
FETCH ALL FROM held;
CLOSE held;
RESET ttl_docs.clock_offset;
-- The query of a FOR loop is a cursor.  Each statement in the loop has its own instant.
DO $$
DECLARE d record;
BEGIN
	FOR d IN SELECT id FROM instant_docs ORDER BY id LOOP
		RAISE NOTICE '% of %', d.id, (SELECT count(*) FROM instant_docs);
		PERFORM travel(2);
	END LOOP;
	PERFORM travel(0);
END $$;

-- Queries that run one after the other under one snapshot have one instant, too.  Otherwise a
-- later one would lose a document that another session has touched meanwhile.
-- The actions of a rule
CREATE TABLE instant_rule (hours int);
CREATE TABLE instant_seen (place text, seen bigint);
CREATE RULE look AS ON INSERT TO instant_rule DO ALSO
	(INSERT INTO instant_seen SELECT 'rule', count(*) FROM instant_docs; INSERT INTO instant_seen VALUES ('rule', count_stable()));
INSERT INTO instant_rule VALUES (travel(2));
SELECT count(*) AS next_statement FROM instant_docs;
RESET ttl_docs.clock_offset;
PREPARE with_rule (int) AS INSERT INTO instant_rule VALUES (travel($1));
EXECUTE with_rule (2);
RESET ttl_docs.clock_offset;
DEALLOCATE with_rule;
DO $$ BEGIN
	INSERT INTO instant_rule VALUES (travel(2));
	INSERT INTO instant_seen SELECT 'next', count(*) FROM instant_docs;
	PERFORM travel(0);
END $$;
CREATE FUNCTION insert_with_rule() RETURNS void LANGUAGE sql AS 'INSERT INTO instant_rule VALUES (travel(2))';
SELECT insert_with_rule();
RESET ttl_docs.clock_offset;
SELECT place, seen, count(*) FROM instant_seen GROUP BY place, seen ORDER BY place;
DROP TABLE instant_rule, instant_seen;
DROP FUNCTION insert_with_rule;
-- STABLE functions in an expression that PL/pgSQL evaluates by itself: their first query comes after a
-- wait, or there are several queries, or several functions
CREATE FUNCTION wait_and_look() RETURNS bigint STABLE LANGUAGE plpgsql AS
$$ DECLARE waited int; BEGIN waited := travel(2); RETURN (SELECT count(*) FROM instant_docs); END $$;
CREATE FUNCTION look_and_look() RETURNS bigint STABLE LANGUAGE plpgsql AS
$$ BEGIN PERFORM count(*) FROM instant_docs; PERFORM travel(2); RETURN (SELECT count(*) FROM instant_docs); END $$;
CREATE FUNCTION look_and_look_sql() RETURNS bigint STABLE LANGUAGE sql SET search_path = public AS
$$ SELECT travel(2); SELECT count(*) FROM instant_docs $$;
DO $$
DECLARE seen text;
BEGIN
	seen := wait_and_look();
	RAISE NOTICE 'after a wait: %, next: %', seen, count_stable();
	PERFORM travel(0);
	seen := look_and_look();
	RAISE NOTICE 'two queries: %, next: %', seen, count_stable();
	PERFORM travel(0);
	seen := look_and_look_sql();
	RAISE NOTICE 'in SQL: %, next: %', seen, count_stable();
	PERFORM travel(0);
	seen := count_stable() || ' ' || travel(2) || ' ' || count_stable() || ' ' || (now_stable() < clock_timestamp());
	RAISE NOTICE 'two functions: %, next: %', seen, count_stable();
	PERFORM travel(0);
	seen := (ttl_docs.read_document('instant_docs', 'a') IS NULL) || ' ' || travel(2) || ' ' ||
		(ttl_docs.read_document('instant_docs', 'a') IS NULL);
	RAISE NOTICE 'two documents are missing: %, next: %', seen, ttl_docs.read_document('instant_docs', 'a') IS NULL;
	PERFORM travel(0);
	-- the snapshot of an expression that failed is gone
	BEGIN
		seen := look_and_look() / (count_stable() - count_stable());
	EXCEPTION WHEN division_by_zero THEN
		seen := count_stable() || ' ' || travel(2);
		RAISE NOTICE 'after an error: %, next: %', seen, count_stable();
	END;
	PERFORM travel(0);
END $$;
DROP FUNCTION wait_and_look, look_and_look, look_and_look_sql;
-- A loop of such expressions keeps no snapshots, even if it runs no query.
CREATE FUNCTION add_one(n int) RETURNS int STABLE LANGUAGE plpgsql AS $$ BEGIN RETURN n + 1; END $$;
DO $$
DECLARE n int := 0; instant timestamptz; bytes bigint;
BEGIN
	WHILE n < 10000 LOOP
		n := add_one(n);
		instant := ttl_docs.now();
	END LOOP;
	SELECT total_bytes INTO STRICT bytes FROM pg_backend_memory_contexts WHERE name = 'TopTransactionContext';
	RAISE NOTICE 'memory stays small: %', bytes < 200000;
END $$;
DROP FUNCTION add_one;

-- A failed query leaves no instant behind that a later query could use.
CREATE FUNCTION fail_stable() RETURNS bigint STABLE LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT 1 / (count(*) - count(*)) FROM instant_docs); END $$;
DO $$
DECLARE seen bigint := 0;
BEGIN
	FOR attempt IN 1..50 LOOP
		PERFORM travel(0);
		BEGIN
			PERFORM fail_stable(), id FROM instant_docs;
		EXCEPTION WHEN division_by_zero THEN
			NULL;
		END;
		PERFORM travel(2);
		seen := seen + (SELECT count(*) FROM instant_docs) + count_volatile();
	END LOOP;
	RAISE NOTICE 'seen after a failure: %', seen;
	PERFORM travel(0);
END $$;
\set VERBOSITY terse
SELECT fail_stable();
SET ttl_docs.clock_offset = '2 h';
SELECT count(*) FROM instant_docs;
RESET ttl_docs.clock_offset;

-- _ts is the clock at the moment of the write, not at the start of the statement or
-- transaction, and has microseconds.
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO instant_docs (id, doc) SELECT 'w' || hours, '{"ttl": -1}' FROM generate_series(0, 2) AS hours WHERE travel(hours) >= 0;
SELECT id, _ts - first_value(_ts) OVER (ORDER BY _ts) >= (ordinality - 1) * interval '1 hour' AS later_by_an_hour
  FROM (SELECT id, _ts, row_number() OVER (ORDER BY id) AS ordinality FROM instant_docs WHERE id LIKE 'w%') AS w ORDER BY id;
RESET ttl_docs.clock_offset;
UPDATE instant_docs SET doc = doc WHERE id = 'w0';
SELECT _ts > now() AND _ts <= clock_timestamp() AS is_the_clock FROM instant_docs WHERE id = 'w0';
ROLLBACK;
INSERT INTO instant_docs (doc) SELECT '{}' FROM generate_series(1, 100);
SELECT count(*) FILTER (WHERE date_trunc('milliseconds', _ts) <> _ts) > 0 AS microseconds FROM instant_docs;

DROP TABLE instant_docs;
DROP FUNCTION travel, count_stable, count_volatile, count_stable_sql, count_volatile_sql,
	outer_volatile, outer_stable, now_stable, now_volatile, fail_stable;
DROP PROCEDURE watch;

-- When a function changes settings, its next expressions use the new settings, even if
-- a query calls the function.  Each expression has its own snapshot.
CREATE TABLE instant_later (id text PRIMARY KEY, doc jsonb);
CREATE FUNCTION adopt_and_tell() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    adopted interval;
    changed interval;
BEGIN
    PERFORM ttl_docs.adopt('instant_later', 100);
    adopted := ttl_docs.expires_at('instant_later', 'epoch', NULL) - 'epoch';
    PERFORM ttl_docs.set_default_ttl('instant_later', 200);
    changed := ttl_docs.expires_at('instant_later', 'epoch', NULL) - 'epoch';
    RETURN format('%s, %s', adopted, changed);
END $$;
SELECT adopt_and_tell();
DROP TABLE instant_later;
DROP FUNCTION adopt_and_tell;

-- A query uses the settings of its snapshot, even if its own transaction changes them
-- later.  It does not matter whether its transaction id is older than the snapshot.
SELECT ttl_docs.create_collection('own_change', 1000);
INSERT INTO own_change VALUES ('a', '{}');
CREATE FUNCTION how_many() RETURNS bigint STABLE LANGUAGE sql AS 'SELECT count(*) FROM own_change';
SET ttl_docs.clock_offset = 500;
BEGIN;
SELECT txid_current() > 0 AS has_id;
-- The id of this subtransaction is later than that of the transaction.
SAVEPOINT later;
CREATE TABLE instant_gone ();
ROLLBACK TO later;
DECLARE early CURSOR FOR SELECT n, how_many() FROM generate_series(1, 2) AS n;
FETCH 1 FROM early;
SELECT ttl_docs.set_default_ttl('own_change', 100);
FETCH 1 FROM early;
SELECT how_many();
ROLLBACK;
RESET ttl_docs.clock_offset;
DROP TABLE own_change;
DROP FUNCTION how_many;

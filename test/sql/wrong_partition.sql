-- A row sent directly to the wrong partition of a collection gets the same error as for
-- a plain table, with every kind of write.
\set SHOW_CONTEXT never
CREATE SCHEMA wrong_partition;
SET search_path = wrong_partition;
SET datestyle = ISO;
CREATE TABLE plain (id int PRIMARY KEY, doc jsonb) PARTITION BY RANGE (id);
CREATE TABLE docs (id int PRIMARY KEY, doc jsonb) PARTITION BY RANGE (id);
CREATE FUNCTION make_partitions(root text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE %1$s_1 PARTITION OF %1$s FOR VALUES FROM (0) TO (100)', root);
	EXECUTE format('CREATE TABLE %1$s_2 (doc jsonb, id int PRIMARY KEY)', root);
	EXECUTE format('ALTER TABLE %1$s ATTACH PARTITION %1$s_2 FOR VALUES FROM (100) TO (200)', root);
	EXECUTE format('CREATE TABLE %1$s_3 PARTITION OF %1$s FOR VALUES FROM (200) TO (300) PARTITION BY HASH (id)', root);
	EXECUTE format('CREATE TABLE %1$s_3_0 PARTITION OF %1$s_3 FOR VALUES WITH (MODULUS 1, REMAINDER 0)', root);
	EXECUTE format('CREATE TABLE %1$s_default PARTITION OF %1$s DEFAULT', root);
END $$;
SELECT make_partitions('plain'), make_partitions('docs');
SELECT ttl_docs.adopt('docs', 3600);

-- Runs a command, and returns its error or its number of rows.
CREATE FUNCTION says(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text;
	message text;
	detail text;
	count bigint;
BEGIN
	EXECUTE command;
	GET DIAGNOSTICS count = ROW_COUNT;
	RETURN format('%s rows', count);
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
	RETURN concat_ws(' | ', state, message, regexp_replace(detail, ', \d{4}-\d\d-\d\d .*', ', ...'));
END $$;
CREATE TABLE commands (n int GENERATED ALWAYS AS IDENTITY, command text);
INSERT INTO commands (command) VALUES
	('INSERT INTO %s_1 VALUES (150, ''{}'')'),
	('INSERT INTO %s_2 (id, doc) VALUES (1, ''{}'')'),
	('INSERT INTO %s_3 VALUES (1, ''{}'')'),
	('INSERT INTO %s_3_0 VALUES (1, ''{}'')'),
	('INSERT INTO %s_default VALUES (1, ''{}'')'),
	('INSERT INTO %s_1 SELECT i, ''{}'' FROM generate_series(90, 110) AS i'),
	('INSERT INTO %s_1 VALUES (150, ''{}'') ON CONFLICT DO NOTHING'),
	('INSERT INTO %s_1 VALUES (150, ''{}'') ON CONFLICT (id) DO UPDATE SET doc = ''{"x": 1}'''),
	('MERGE INTO %s_1 USING (VALUES (150)) AS v (id) ON %1$s_1.id = v.id WHEN NOT MATCHED THEN INSERT (id, doc) VALUES (v.id, ''{}'')'),
	('WITH w AS (INSERT INTO %s_1 (id, doc) VALUES (150, ''{}'') RETURNING id) SELECT FROM w'),
	('COPY %s_1 (id, doc) FROM PROGRAM ''echo 150,{}'' (FORMAT csv)'),
	('COPY %s_1 (id, doc) FROM PROGRAM ''echo 150,{}'' (FORMAT csv) WHERE id > 0'),
	('COPY %s (id, doc) FROM PROGRAM ''echo 99,{}'' (FORMAT csv)'),
	('INSERT INTO %s VALUES (1, ''{}''), (101, ''{}''), (201, ''{}''), (301, ''{}'')'),
	('INSERT INTO %s_1 VALUES (2, ''{}'')'),
	('INSERT INTO %s_2 (id, doc) VALUES (102, ''{}'')'),
	('INSERT INTO %s_3 (id, doc) VALUES (202, ''{}'')'),
	('INSERT INTO %s_default VALUES (302, ''{}'')'),
	('UPDATE %s_1 SET id = 150 WHERE id = 1'),
	('UPDATE %s SET id = 150 WHERE id = 1');
CREATE TABLE answers AS
	SELECT n, says(format(command, 'plain')) AS plain, says(format(command, 'docs')) AS docs FROM commands ORDER BY n;
SELECT n, docs FROM answers ORDER BY n;
-- The errors are the same, except for the system columns of the failing row.
SELECT n, plain, docs FROM answers
	WHERE replace(plain, 'plain', 'docs') <> regexp_replace(docs, ', \.\.\.$', ').') ORDER BY n;

-- The error is the same if the row also has a NULL _ts and an invalid ttl.
SELECT says('INSERT INTO docs_1 (id, doc, _ts) VALUES (150, ''{"ttl": 0}'', NULL)');
-- The same in replica role
SET session_replication_role = replica;
SELECT says('INSERT INTO docs_1 VALUES (150, ''{}'')');
RESET session_replication_role;
-- A user who may not read the table does not see its rows in the error.
CREATE ROLE wrong_partition_writer;
GRANT USAGE ON SCHEMA wrong_partition TO wrong_partition_writer;
GRANT INSERT ON docs_1 TO wrong_partition_writer;
SET ROLE wrong_partition_writer;
INSERT INTO wrong_partition.docs_1 (id, doc) VALUES (150, '{"secret": 1}');
RESET ROLE;

-- If a user's trigger moves the row to another partition, the error says so.
CREATE FUNCTION move() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.id := 150; RETURN NEW; END $$;
CREATE TRIGGER move BEFORE INSERT ON docs FOR EACH ROW EXECUTE FUNCTION move();
SELECT says('INSERT INTO docs_1 VALUES (50, ''{}'')');
SELECT says('INSERT INTO docs VALUES (50, ''{}'')');

SET client_min_messages = warning;
DROP SCHEMA wrong_partition CASCADE;
DROP ROLE wrong_partition_writer;

--
-- Foreign keys are validated against all parents on disk, expired or not, so that a
-- restore cannot fail because of an expired parent.  No code that ALTER TABLE runs can
-- use this to read expired documents.
--
CREATE TABLE parents (id int PRIMARY KEY, doc jsonb);
CREATE TABLE children (id int PRIMARY KEY, parent int, doc jsonb);
SELECT ttl_docs.adopt('parents', 60);
SELECT ttl_docs.adopt('children', -1);
INSERT INTO parents VALUES (1, '{}');
-- A live child of an expired parent, and an expired child without a parent
INSERT INTO children VALUES (1, 1, '{}'), (2, 2, '{"ttl": 10}');
SET ttl_docs.clock_offset = '1 h';

ALTER TABLE children ADD CONSTRAINT fk FOREIGN KEY (parent) REFERENCES parents;
ALTER TABLE children DROP CONSTRAINT fk;
ALTER TABLE children ADD CONSTRAINT fk FOREIGN KEY (parent) REFERENCES parents NOT VALID;
ALTER TABLE children VALIDATE CONSTRAINT fk;
ALTER TABLE children DROP CONSTRAINT fk;
-- ALTER CONSTRAINT ... ENFORCED, from PostgreSQL 18
DO $$
BEGIN
    IF current_setting('server_version_num')::int >= 180000 THEN
        EXECUTE 'ALTER TABLE children ADD CONSTRAINT fk FOREIGN KEY (parent) REFERENCES parents NOT ENFORCED';
        EXECUTE 'ALTER TABLE children ALTER CONSTRAINT fk ENFORCED';
        EXECUTE 'ALTER TABLE children DROP CONSTRAINT fk';
    END IF;
END $$;
-- SET EXPRESSION of a generated column, from PostgreSQL 17
CREATE TABLE computed (id int, parent int GENERATED ALWAYS AS (id) STORED, CONSTRAINT fk FOREIGN KEY (parent) REFERENCES parents);
SET session_replication_role = replica;
INSERT INTO computed VALUES (1);
RESET session_replication_role;
DO $$
BEGIN
    IF current_setting('server_version_num')::int >= 170000 THEN
        EXECUTE 'ALTER TABLE computed ALTER COLUMN parent SET EXPRESSION AS (id + 0)';
    END IF;
END $$;
DROP TABLE computed;
-- The same from a function that a query calls
CREATE FUNCTION add_fk() RETURNS void LANGUAGE plpgsql AS
$$ BEGIN ALTER TABLE children ADD CONSTRAINT fk FOREIGN KEY (parent) REFERENCES parents; END $$;
SELECT add_fk();
-- A new child cannot reference an expired parent.
INSERT INTO children VALUES (3, 1, '{}');
\echo :SQLSTATE
-- A live child without a parent is refused.
ALTER TABLE children DROP CONSTRAINT fk;
INSERT INTO children VALUES (4, 4, '{}');
SELECT add_fk();
\echo :SQLSTATE
DELETE FROM children WHERE id = 4;

-- Functions that ALTER TABLE runs see no expired documents, even if their queries look
-- like those of PostgreSQL.  They leave no cached plan that sees expired documents.
CREATE TABLE bait (i int);
INSERT INTO bait VALUES (1);
CREATE FUNCTION leak_pl(int) RETURNS boolean LANGUAGE plpgsql AS
$$ BEGIN RAISE NOTICE 'shown: %', (SELECT count(*) FROM parents pk); RETURN true; END $$;
CREATE FUNCTION leak_sql(int) RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM parents pk $$;
CREATE FUNCTION leak_shape(int) RETURNS int LANGUAGE sql AS
$$ SELECT fk.id FROM ONLY children fk LEFT OUTER JOIN ONLY parents pk ON (pk.id = fk.parent)
   WHERE pk.id IS NULL AND fk.parent IS NOT NULL $$;
ALTER TABLE bait ADD CHECK (leak_pl(i)), ADD CHECK (leak_sql(i) = 0),
	ADD FOREIGN KEY (i) REFERENCES parents;
SELECT leak_pl(1), leak_sql(1);
ALTER TABLE bait ADD COLUMN found int DEFAULT leak_shape(1);
SELECT found FROM bait;

-- These functions cannot insert a child of an expired parent either.
ALTER TABLE children ADD CONSTRAINT fk FOREIGN KEY (parent) REFERENCES parents DEFERRABLE INITIALLY DEFERRED;
CREATE FUNCTION sneak(int) RETURNS boolean LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO children VALUES (5, 1, '{}'); SET CONSTRAINTS ALL IMMEDIATE; RETURN true; END $$;
ALTER TABLE bait ADD CHECK (sneak(i));
\echo :SQLSTATE
SELECT id FROM children ORDER BY id;

RESET ttl_docs.clock_offset;
DROP TABLE bait, children, parents;
DROP FUNCTION add_fk, leak_pl, leak_sql, leak_shape, sneak;

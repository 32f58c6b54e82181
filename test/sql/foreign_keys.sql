-- Foreign keys.  For a check, an expired parent does not exist, at any isolation level.
-- An expired child does not exist either, so its parent can be deleted.  When a key is
-- freed, the actions of a delete run before the new document is inserted.  ADD FOREIGN
-- KEY and VALIDATE use the rows on disk.
\set SHOW_CONTEXT never

-- The documents on disk.  Parentheses mark expired ones.
CREATE FUNCTION disk(t regclass) RETURNS text LANGUAGE plpgsql SET ttl_docs.show_expired = on AS $$
DECLARE
    result text;
BEGIN
    EXECUTE format($q$SELECT string_agg(CASE WHEN ttl_docs.is_expired(%L, _ts, _ttl) THEN '(' || id || ')' ELSE id::text END,
                                        ' ' ORDER BY id) FROM %s$q$, t, t) INTO result;
    RETURN result;
END $$;

-- ON DELETE RESTRICT has its own error from PostgreSQL 18.
CREATE FUNCTION held_by_child(command text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE command;
    RETURN false;
EXCEPTION WHEN foreign_key_violation OR restrict_violation THEN
    RETURN true;
END $$;

CREATE TABLE parent (id int PRIMARY KEY, doc jsonb);
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent, note text);
SELECT ttl_docs.adopt('parent', 1000);

--
-- A child of an expired parent
--
INSERT INTO parent VALUES (1, '{"ttl": 100}'), (2, '{}'), (3, '{"ttl": -1}');
INSERT INTO child VALUES (1, 1), (2, 2);
SET ttl_docs.clock_offset = 100;
INSERT INTO child VALUES (3, 1);
\echo :SQLSTATE
UPDATE child SET parent = 1 WHERE id = 2;
\echo :SQLSTATE
INSERT INTO child VALUES (3, 2), (4, 3);
-- An existing child stays.  An update that does not change its foreign key is not
-- checked.
UPDATE child SET note = 'written' WHERE id = 1;
UPDATE child SET parent = 1 WHERE id = 1;
COPY child (id, parent) FROM stdin;
5	1
\.
-- These settings do not bypass the check.
SET ttl_docs.show_expired = on;
INSERT INTO child VALUES (5, 1);
\echo :SQLSTATE
RESET ttl_docs.show_expired;
SET row_security = off;
INSERT INTO child VALUES (5, 1);
\echo :SQLSTATE
RESET row_security;
-- Under REPEATABLE READ with an older snapshot, the check still uses the clock.
SET ttl_docs.clock_offset = 0;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT id FROM parent ORDER BY id;
SET LOCAL ttl_docs.clock_offset = 100;
SELECT id FROM parent ORDER BY id;
INSERT INTO child VALUES (5, 1);
\echo :SQLSTATE
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM parent;
SET LOCAL ttl_docs.clock_offset = 100;
INSERT INTO child VALUES (5, 1);
\echo :SQLSTATE
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM parent;
INSERT INTO child VALUES (5, 1);
ROLLBACK;
-- A deferred check uses the clock at the time of the check.
ALTER TABLE child ALTER CONSTRAINT child_parent_fkey DEFERRABLE INITIALLY DEFERRED;
BEGIN;
INSERT INTO child VALUES (5, 1);
SET LOCAL ttl_docs.clock_offset = 100;
COMMIT;
\echo :SQLSTATE
BEGIN;
INSERT INTO child VALUES (5, 1);
SET CONSTRAINTS ALL IMMEDIATE;
SET LOCAL ttl_docs.clock_offset = 100;
COMMIT;
SELECT id, parent FROM child ORDER BY id;
ALTER TABLE child ALTER CONSTRAINT child_parent_fkey NOT DEFERRABLE;
DROP TABLE child, parent;

-- A composite foreign key, a partitioned one, and one that references its own table
CREATE TABLE parent (a int, b int, doc jsonb, PRIMARY KEY (a, b)) PARTITION BY LIST (a);
CREATE TABLE parent1 PARTITION OF parent FOR VALUES IN (1);
CREATE TABLE parent2 PARTITION OF parent FOR VALUES IN (2);
CREATE TABLE child (id int, a int, b int, FOREIGN KEY (a, b) REFERENCES parent MATCH FULL) PARTITION BY LIST (id);
CREATE TABLE child1 PARTITION OF child DEFAULT;
SELECT ttl_docs.adopt('parent', 1000);
INSERT INTO parent VALUES (1, 1, '{"ttl": 100}'), (2, 1, '{}');
SET ttl_docs.clock_offset = 100;
INSERT INTO child VALUES (1, 1, 1);
\echo :SQLSTATE
INSERT INTO child VALUES (1, 2, 1), (2, NULL, NULL);
SET ttl_docs.clock_offset = 0;
DROP TABLE child, parent;
CREATE TABLE tree (id int PRIMARY KEY, parent int REFERENCES tree, doc jsonb);
SELECT ttl_docs.adopt('tree', 1000);
INSERT INTO tree VALUES (1, 1, '{"ttl": 100}'), (2, 1, '{}');
SET ttl_docs.clock_offset = 100;
INSERT INTO tree VALUES (3, 1, '{}');
\echo :SQLSTATE
INSERT INTO tree VALUES (3, 3, '{}');
UPDATE tree SET parent = 3 WHERE id = 2;
INSERT INTO tree VALUES (1, 1, '{"new": true}');
SELECT disk('tree');
SET ttl_docs.clock_offset = 0;
DROP TABLE tree;

--
-- An expired child
--
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE NO ACTION, doc jsonb);
CREATE TABLE child_restrict (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE RESTRICT ON UPDATE RESTRICT, doc jsonb);
SELECT ttl_docs.adopt('child', 1000);
SELECT ttl_docs.adopt('child_restrict', 1000);
INSERT INTO parent VALUES (1), (2), (3);
INSERT INTO child VALUES (1, 1, '{"ttl": 100}'), (2, 2, '{}');
INSERT INTO child_restrict VALUES (1, 1, '{"ttl": 100}'), (3, 3, '{}');
DELETE FROM parent WHERE id = 1;
\echo :SQLSTATE
SET ttl_docs.clock_offset = 100;
UPDATE parent SET id = 11 WHERE id = 1;
DELETE FROM parent WHERE id = 11;
DELETE FROM parent WHERE id = 2;
\echo :SQLSTATE
SELECT held_by_child('DELETE FROM parent WHERE id = 3');
SELECT disk('child') AS child, disk('child_restrict') AS child_restrict;
-- The expired children on disk do not conflict with new ones.
INSERT INTO child VALUES (1, 2, '{}');
SELECT disk('child');
SET ttl_docs.clock_offset = 0;
DROP TABLE child, child_restrict;
-- ON UPDATE CASCADE does not change an expired child.
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE, doc jsonb);
SELECT ttl_docs.adopt('child', 1000);
INSERT INTO child VALUES (1, 2, '{"ttl": 100}'), (2, 2, '{}');
SET ttl_docs.clock_offset = 100;
UPDATE parent SET id = 22 WHERE id = 2;
SELECT id, parent FROM child;
DELETE FROM parent WHERE id = 22;
SELECT disk('child');
SET ttl_docs.clock_offset = 0;
DROP TABLE child, parent;

--
-- The key of a parent is freed: children get the actions of a delete, before the new
-- parent is inserted
--
CREATE TABLE parent (id int PRIMARY KEY, doc jsonb);
SELECT ttl_docs.adopt('parent', 1000);
CREATE TABLE casc (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE);
CREATE TABLE nulled (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE SET NULL);
CREATE TABLE defaulted (id int PRIMARY KEY, parent int DEFAULT 9 REFERENCES parent ON DELETE SET DEFAULT);
INSERT INTO parent VALUES (1, '{"ttl": 100}'), (2, '{"ttl": 100}'), (9, '{"ttl": -1}');
INSERT INTO casc VALUES (1, 1), (2, 2), (9, 9);
INSERT INTO nulled VALUES (1, 1), (2, 2), (9, 9);
INSERT INTO defaulted VALUES (1, 1), (2, 2);
SET ttl_docs.clock_offset = 100;
-- The same statement also inserts a child of the new parent.
WITH p AS (INSERT INTO parent VALUES (1, '{"new": true}') RETURNING id)
    INSERT INTO casc SELECT 11, id FROM p;
SELECT * FROM casc ORDER BY id;
SELECT * FROM nulled ORDER BY id;
SELECT * FROM defaulted ORDER BY id;
SELECT disk('parent');
INSERT INTO parent VALUES (2, '{"new": true}') ON CONFLICT (id) DO UPDATE SET doc = '{"updated": true}' RETURNING doc;
SELECT * FROM casc ORDER BY id;
-- The new parent gets its own children.
INSERT INTO casc VALUES (22, 2);
SELECT * FROM casc ORDER BY id;
SET ttl_docs.clock_offset = 0;
DROP TABLE casc, nulled, defaulted;
TRUNCATE parent;

-- A child with ON DELETE RESTRICT
CREATE TABLE strict (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE RESTRICT);
INSERT INTO parent VALUES (1, '{"ttl": 100}'), (2, '{}');
INSERT INTO strict VALUES (1, 1);
SET ttl_docs.clock_offset = 100;
SELECT held_by_child($$INSERT INTO parent VALUES (1, '{"new": true}')$$);
SELECT held_by_child($$INSERT INTO parent VALUES (1, '{"new": true}') ON CONFLICT DO NOTHING$$);
SELECT held_by_child($$INSERT INTO parent VALUES (1, '{"new": true}') ON CONFLICT (id) DO UPDATE SET doc = excluded.doc$$);
SELECT held_by_child('UPDATE parent SET id = 1 WHERE id = 2');
SELECT disk('parent');
DELETE FROM strict;
INSERT INTO parent VALUES (1, '{"new": true}');
SELECT disk('parent');
SET ttl_docs.clock_offset = 0;
DROP TABLE strict;
TRUNCATE parent;
CREATE TABLE strict (id int PRIMARY KEY, parent int REFERENCES parent);
INSERT INTO parent VALUES (1, '{"ttl": 100}');
INSERT INTO strict VALUES (1, 1);
SET ttl_docs.clock_offset = 100;
INSERT INTO parent VALUES (1, '{"new": true}');
\echo :SQLSTATE
-- The same transaction removes the reference first.
BEGIN;
UPDATE strict SET parent = NULL;
INSERT INTO parent VALUES (1, '{"new": true}');
COMMIT;
SELECT disk('parent');
SET ttl_docs.clock_offset = 0;
-- An expired child does not prevent the delete.
DROP TABLE strict;
TRUNCATE parent;
CREATE TABLE strict (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE RESTRICT, doc jsonb);
SELECT ttl_docs.adopt('strict', 1000);
INSERT INTO parent VALUES (1, '{"ttl": 100}');
INSERT INTO strict VALUES (1, 1, '{"ttl": 100}');
SET ttl_docs.clock_offset = 100;
INSERT INTO parent VALUES (1, '{"new": true}');
SELECT disk('parent') AS parent, disk('strict') AS strict;
SET ttl_docs.clock_offset = 0;
DROP TABLE strict;
TRUNCATE parent;
-- A deferred check runs at COMMIT, where the new parent satisfies it.
CREATE TABLE strict (id int PRIMARY KEY, parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
INSERT INTO parent VALUES (1, '{"ttl": 100}'), (2, '{"ttl": 100}');
INSERT INTO strict VALUES (1, 1), (2, 2);
SET ttl_docs.clock_offset = 100;
BEGIN;
INSERT INTO parent VALUES (1, '{"new": true}');
COMMIT;
BEGIN;
INSERT INTO parent VALUES (2, '{"new": true}');
DELETE FROM parent WHERE id = 2;
COMMIT;
\echo :SQLSTATE
SELECT disk('parent');
SET ttl_docs.clock_offset = 0;
DROP TABLE strict;
TRUNCATE parent;
-- A cascade deletes a whole tree, also across several collections.
CREATE TABLE middle (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE, doc jsonb);
CREATE TABLE leaf (id int PRIMARY KEY, middle int REFERENCES middle ON DELETE CASCADE, doc jsonb);
SELECT ttl_docs.adopt('middle', 1000), ttl_docs.adopt('leaf', 1000);
INSERT INTO parent VALUES (1, '{"ttl": 100}');
INSERT INTO middle VALUES (1, 1, '{}'), (2, 1, '{"ttl": 100}');
INSERT INTO leaf VALUES (1, 1, '{}'), (2, 2, '{}');
SET ttl_docs.clock_offset = 100;
INSERT INTO parent VALUES (1, '{"new": true}');
SELECT disk('parent') AS parent, disk('middle') AS middle, disk('leaf') AS leaf;
SET ttl_docs.clock_offset = 0;
DROP TABLE leaf, middle, parent;

--
-- ADD FOREIGN KEY and VALIDATE check the rows on disk
--
CREATE TABLE parent (id int PRIMARY KEY, doc jsonb);
CREATE TABLE child (id int, parent int, doc jsonb);
SELECT ttl_docs.adopt('parent', 1000), ttl_docs.adopt('child', 1000);
INSERT INTO parent VALUES (1, '{"ttl": 100}'), (2, '{}');
INSERT INTO child VALUES (1, 1, '{}'), (2, 2, '{}');
SET ttl_docs.clock_offset = 100;
ALTER TABLE child ADD CONSTRAINT f FOREIGN KEY (parent) REFERENCES parent;
-- After that, a new child of an expired parent is refused as usual.
INSERT INTO child VALUES (3, 1, '{}');
\echo :SQLSTATE
ALTER TABLE child DROP CONSTRAINT f;
ALTER TABLE child ADD CONSTRAINT f FOREIGN KEY (parent) REFERENCES parent NOT VALID;
ALTER TABLE child VALIDATE CONSTRAINT f;
INSERT INTO child VALUES (3, 1, '{}');
\echo :SQLSTATE
ALTER TABLE child DROP CONSTRAINT f;
-- A parent that is not on disk at all is an error.
INSERT INTO child VALUES (4, 4, '{"ttl": 50}');
ALTER TABLE child ADD CONSTRAINT f FOREIGN KEY (parent) REFERENCES parent;
\echo :SQLSTATE
ALTER TABLE child ADD CONSTRAINT f FOREIGN KEY (parent) REFERENCES parent NOT VALID;
ALTER TABLE child VALIDATE CONSTRAINT f;
\echo :SQLSTATE
INSERT INTO child VALUES (3, 1, '{}');
\echo :SQLSTATE
-- A missing parent is not an error if the child has expired.
SET ttl_docs.clock_offset = 150;
ALTER TABLE child VALIDATE CONSTRAINT f;
ALTER TABLE child DROP CONSTRAINT f;
ALTER TABLE child ADD CONSTRAINT f FOREIGN KEY (parent) REFERENCES parent;
ALTER TABLE child DROP CONSTRAINT f;
SELECT ttl_docs.set_default_ttl('child', NULL);
TRUNCATE child;
INSERT INTO child VALUES (1, 1, '{}'), (2, 2, '{}');
-- If the owner of the child table cannot read the parents, PostgreSQL checks the rows
-- one by one.  The result is the same.
CREATE ROLE regress_ttl_referrer;
GRANT REFERENCES ON parent TO regress_ttl_referrer;
ALTER TABLE child OWNER TO regress_ttl_referrer;
SET ROLE regress_ttl_referrer;
ALTER TABLE child ADD CONSTRAINT f FOREIGN KEY (parent) REFERENCES parent;
INSERT INTO child VALUES (3, 1, '{}');
\echo :SQLSTATE
ALTER TABLE child DROP CONSTRAINT f;
INSERT INTO child VALUES (5, 5, '{}');
ALTER TABLE child ADD CONSTRAINT f FOREIGN KEY (parent) REFERENCES parent;
\echo :SQLSTATE
RESET ROLE;
SET ttl_docs.clock_offset = 0;
DROP TABLE child, parent;
DROP ROLE regress_ttl_referrer;
DROP FUNCTION disk(regclass), held_by_child(text);

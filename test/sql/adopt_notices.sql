-- Notices of adopt() about a table whose behavior may surprise its owner

-- The documents already have a "ttl" property, for example DNS records.
CREATE TABLE dns (name text PRIMARY KEY, doc jsonb);
INSERT INTO dns VALUES ('a', '{"type": "A", "value": "192.0.2.1"}'),
    ('b', '{"ttl": 300, "type": "CNAME", "value": "a"}');
BEGIN;
SELECT ttl_docs.adopt('dns', 86400);
-- Follow the hint.
SELECT name FROM public.dns WHERE _ttl IS NOT NULL;
UPDATE dns SET doc = doc || '{"ttl": -1}' WHERE _ttl IS NOT NULL RETURNING ttl_docs.expires_at('dns', _ts, _ttl);
ROLLBACK;
BEGIN;
SELECT ttl_docs.adopt('dns', -1);
ROLLBACK;
-- TTL stays off.
SELECT ttl_docs.adopt('dns');
SELECT ttl_docs.release('dns');
-- The notice truncates a long document.  JSON null and a nested "ttl" property do not
-- count as a ttl.
TRUNCATE dns;
INSERT INTO dns SELECT i, jsonb_build_object('ttl', i, 'v', repeat('ä', 100)) FROM generate_series(7, 7) AS i;
INSERT INTO dns VALUES ('null', '{"ttl": null}'), ('below', '{"a": {"ttl": 5}}'), ('none', NULL);
SELECT ttl_docs.adopt('dns', 60);
SELECT ttl_docs.release('dns');
TRUNCATE dns;
SELECT ttl_docs.adopt('dns', 60);
DROP TABLE dns;
-- Documents that have a ttl and have expired already
CREATE TABLE old (id int PRIMARY KEY, changed timestamptz, doc jsonb);
INSERT INTO old SELECT i, now() - interval '1 hour', '{"ttl": 60}' FROM generate_series(1, 3) AS i;
INSERT INTO old SELECT i, now(), '{}' FROM generate_series(4, 5) AS i;
SELECT ttl_docs.adopt('old', 600, last_modified => 'changed');
SELECT count(*) FROM old;
DROP TABLE old;

-- adopt() counts documents that policies hide from the owner.
CREATE ROLE regress_ttl_owner;
CREATE TABLE owned (id int, doc jsonb);
INSERT INTO owned VALUES (1, '{"ttl": 5000}');
ALTER TABLE owned ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY nothing ON owned USING (false);
ALTER TABLE owned OWNER TO regress_ttl_owner;
SELECT ttl_docs.adopt('owned', 6000);
DROP TABLE owned;

-- Foreign keys that prevent the delete of an expired document
CREATE TABLE parent (id int PRIMARY KEY, other int UNIQUE, self int REFERENCES parent, doc jsonb);
CREATE TABLE restricting (parent int REFERENCES parent ON DELETE RESTRICT);
CREATE TABLE "Idle" (parent int CONSTRAINT "Named" REFERENCES parent (other));
CREATE TABLE cascading (a int REFERENCES parent ON DELETE CASCADE, b int REFERENCES parent ON DELETE SET NULL,
    c int REFERENCES parent ON DELETE SET DEFAULT);
SELECT ttl_docs.adopt('parent', 60);
SELECT ttl_docs.release('parent');
-- No notice while TTL is off
SELECT ttl_docs.adopt('parent');
SELECT ttl_docs.release('parent');
ALTER TABLE parent DROP CONSTRAINT parent_self_fkey;
DROP TABLE restricting, "Idle";
SELECT ttl_docs.adopt('parent', 60);
DROP TABLE cascading, parent;
-- With partitions on both sides, each foreign key is listed once, also one that
-- references a single partition.
CREATE TABLE parent (id int PRIMARY KEY, doc jsonb) PARTITION BY RANGE (id);
CREATE TABLE parent1 PARTITION OF parent FOR VALUES FROM (0) TO (10);
CREATE TABLE parent2 PARTITION OF parent FOR VALUES FROM (10) TO (20);
CREATE TABLE child (parent int REFERENCES parent) PARTITION BY LIST (parent);
CREATE TABLE child1 PARTITION OF child FOR VALUES IN (1);
CREATE TABLE child2 PARTITION OF child FOR VALUES IN (2);
CREATE TABLE child_of_one (parent int REFERENCES parent2 ON DELETE RESTRICT);
SELECT ttl_docs.adopt('parent', 60);
DROP TABLE child, child_of_one, parent;
-- Many foreign keys
CREATE TABLE parent (id int PRIMARY KEY, doc jsonb);
DO $$ BEGIN
    FOR i IN 1..12 LOOP
        EXECUTE format('CREATE TABLE child%s (parent int REFERENCES parent)', i);
    END LOOP;
END $$;
SELECT ttl_docs.adopt('parent', 60);
DO $$ BEGIN FOR i IN 2..12 LOOP EXECUTE format('DROP TABLE child%s', i); END LOOP; END $$;

-- If an INSERT fails because a child references the expired parent, the hint says what
-- to do.
INSERT INTO parent VALUES (1, '{}'), (2, '{}');
INSERT INTO child1 VALUES (1);
SET ttl_docs.clock_offset = 100;
INSERT INTO parent VALUES (1, '{}');
INSERT INTO parent VALUES (1, '{}') ON CONFLICT (id) DO UPDATE SET doc = EXCLUDED.doc;
COPY parent (id, doc) FROM stdin;
1	{}
\.
-- PostgreSQL 18 changed the SQLSTATE of the RESTRICT error.
\set VERBOSITY terse
CREATE FUNCTION hint_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    hint text;
BEGIN
    EXECUTE statement;
    RETURN 'none';
EXCEPTION WHEN foreign_key_violation OR restrict_violation THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    RETURN hint;
END $$;
CREATE TABLE grandchild (id int);
ALTER TABLE child1 ADD UNIQUE (parent), DROP CONSTRAINT child1_parent_fkey,
    ADD FOREIGN KEY (parent) REFERENCES parent ON DELETE RESTRICT;
SELECT hint_of('INSERT INTO parent VALUES (1, ''{}'')');
-- A cascade reaches a row that another row references.
ALTER TABLE child1 DROP CONSTRAINT child1_parent_fkey,
    ADD FOREIGN KEY (parent) REFERENCES parent ON DELETE CASCADE;
ALTER TABLE grandchild ADD FOREIGN KEY (id) REFERENCES child1 (parent);
INSERT INTO grandchild VALUES (1);
SELECT hint_of('INSERT INTO parent VALUES (1, ''{}'')');
DELETE FROM grandchild;
SELECT hint_of('INSERT INTO parent VALUES (1, ''{}'')');
-- No hint if the violation comes from a statement in a trigger of the delete
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO grandchild VALUES (OLD.id); RETURN OLD; END $$;
CREATE TRIGGER audit AFTER DELETE ON parent FOR EACH ROW EXECUTE FUNCTION audit();
SELECT hint_of('INSERT INTO parent VALUES (2, ''{}'')');
DROP TRIGGER audit ON parent;
CREATE TRIGGER audit BEFORE DELETE ON parent FOR EACH ROW EXECUTE FUNCTION audit();
SELECT hint_of('INSERT INTO parent VALUES (2, ''{}'')');
DROP TRIGGER audit ON parent;
DROP FUNCTION audit();
-- The hint of a user's trigger is not replaced.
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE foreign_key_violation USING HINT = 'the hint of the trigger'; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON parent FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT hint_of('INSERT INTO parent VALUES (2, ''{}'')');
DROP TRIGGER refuse ON parent;
DROP FUNCTION refuse();
\set VERBOSITY default
RESET ttl_docs.clock_offset;
DROP TABLE grandchild, child1, parent;
DROP FUNCTION hint_of(text);

-- The notice names the chosen column if the documents may be in another one
CREATE DOMAIN document AS jsonb;
CREATE TABLE several (id int, payload json, "Doc" jsonb, dom document, list json[], dropped json);
ALTER TABLE several DROP COLUMN dropped;
SELECT ttl_docs.adopt('several');
-- Follow the hint.
SELECT ttl_docs.release('public.several');
ALTER TABLE several ALTER COLUMN payload TYPE jsonb;
SELECT ttl_docs.adopt('several', 60);
SELECT ttl_docs.adopt('several', 60, doc_column => 'payload');
SELECT doc_column FROM ttl_docs.collections WHERE collection = 'several'::regclass;
DROP TABLE several;
DROP DOMAIN document;
DROP ROLE regress_ttl_owner;

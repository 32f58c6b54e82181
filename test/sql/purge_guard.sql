-- The delete of a document runs code of other users as these users, such as a CHECK
-- constraint of a child table.  This code cannot add triggers, rules or partitions that
-- the delete would run as the owner of the collection.  It cannot change settings either,
-- such as the search_path of a trigger of the owner.
\set SHOW_CONTEXT never
CREATE ROLE regress_ttl_guard_owner;
CREATE ROLE regress_ttl_guard_attacker;
CREATE SCHEMA guard_owner AUTHORIZATION regress_ttl_guard_owner;
CREATE SCHEMA guard_attacker AUTHORIZATION regress_ttl_guard_attacker;
GRANT USAGE ON SCHEMA guard_owner, guard_attacker TO PUBLIC;
SET ROLE regress_ttl_guard_owner;
CREATE TABLE guard_owner.c (id int PRIMARY KEY, doc jsonb NOT NULL);
SELECT ttl_docs.adopt('guard_owner.c', 10);
GRANT REFERENCES, SELECT ON guard_owner.c TO regress_ttl_guard_attacker;
CREATE TABLE guard_owner.gained (line text);
-- A trusted trigger that calls a function without its schema, and changes a setting
CREATE FUNCTION guard_owner.audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('guard.audited', upper('x'), true);
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER DELETE ON guard_owner.c FOR EACH ROW EXECUTE FUNCTION guard_owner.audit();
RESET ROLE;

SET ROLE regress_ttl_guard_attacker;
CREATE FUNCTION guard_attacker.gain() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO guard_owner.gained VALUES ('as ' || current_user);
    RETURN NULL;
END $$;
CREATE FUNCTION guard_attacker.upper(text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO guard_owner.gained VALUES ('as ' || current_user);
    RETURN $1;
END $$;
CREATE AGGREGATE guard_attacker.set_config(text, boolean) (SFUNC = set_config, STYPE = text, INITCOND = 'search_path');
CREATE TABLE guard_attacker.ways (way int, command text, result text);
-- Runs a command, and records whether it succeeds.
CREATE FUNCTION guard_attacker.attack(r int) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    next record;
BEGIN
    IF r IS NOT NULL THEN RETURN true; END IF;
    FOR next IN SELECT * FROM guard_attacker.ways WHERE result IS NULL ORDER BY way LOOP
        BEGIN
            EXECUTE next.command;
            UPDATE guard_attacker.ways SET result = 'done' WHERE way = next.way;
        EXCEPTION WHEN OTHERS THEN
            UPDATE guard_attacker.ways SET result = SQLERRM WHERE way = next.way;
        END;
    END LOOP;
    RETURN true;
END $$;
CREATE TABLE guard_attacker.first (r int REFERENCES guard_owner.c ON DELETE SET NULL, CHECK (guard_attacker.attack(r)));
CREATE TABLE guard_attacker.second (r int REFERENCES guard_owner.c ON DELETE SET NULL) PARTITION BY LIST (r);
CREATE TABLE guard_attacker.second_1 PARTITION OF guard_attacker.second FOR VALUES IN (1, 2);
CREATE TABLE guard_attacker.third (r int);
CREATE TRIGGER gain AFTER INSERT OR UPDATE ON guard_attacker.third FOR EACH ROW EXECUTE FUNCTION guard_attacker.gain();
INSERT INTO guard_attacker.ways VALUES
    (1, 'CREATE TRIGGER gain AFTER UPDATE ON guard_attacker.second FOR EACH ROW EXECUTE FUNCTION guard_attacker.gain()'),
    (2, 'CREATE TRIGGER gain AFTER UPDATE ON guard_attacker.second_1 FOR EACH ROW EXECUTE FUNCTION guard_attacker.gain()'),
    (3, 'CREATE TRIGGER gain AFTER UPDATE ON guard_attacker.first FOR EACH ROW EXECUTE FUNCTION guard_attacker.gain()'),
    (4, 'CREATE RULE gain AS ON UPDATE TO guard_attacker.second DO ALSO INSERT INTO guard_attacker.third VALUES (1)'),
    (5, 'ALTER TABLE guard_attacker.second ATTACH PARTITION guard_attacker.third DEFAULT'),
    (6, 'CREATE TABLE guard_attacker.fourth (r int REFERENCES guard_owner.c ON DELETE CASCADE)'),
    (7, 'ALTER TABLE guard_attacker.second RENAME TO renamed'),
    (9, 'SET search_path = guard_attacker, pg_catalog'),
    (10, 'SET LOCAL search_path = guard_attacker, pg_catalog'),
    (11, $$SELECT set_config('search_path', 'guard_attacker, pg_catalog', false)$$),
    (12, $$UPDATE pg_settings SET setting = 'guard_attacker, pg_catalog' WHERE name = 'search_path'$$),
    (13, $$SELECT guard_attacker.set_config('guard_attacker, pg_catalog', false)$$),
    -- Not guarded
    (8, 'CREATE TABLE guard_attacker.fifth (i int)');
RESET ROLE;
INSERT INTO guard_owner.c VALUES (1, '{}'), (2, '{"ttl": -1}');
INSERT INTO guard_attacker.first VALUES (1);
INSERT INTO guard_attacker.second VALUES (1);
CREATE TABLE guard_attacker.second_null PARTITION OF guard_attacker.second FOR VALUES IN (NULL);
ALTER TABLE guard_attacker.second_null OWNER TO regress_ttl_guard_attacker;

SET ttl_docs.clock_offset = 100;
CALL ttl_docs.purge('guard_owner.c');
SELECT way, result FROM guard_attacker.ways ORDER BY way;
SELECT * FROM guard_owner.gained;

-- release()
RESET ttl_docs.clock_offset;
INSERT INTO guard_owner.c VALUES (1, '{}');
UPDATE guard_attacker.ways SET result = NULL WHERE way <> 8;
INSERT INTO guard_attacker.first VALUES (1);
INSERT INTO guard_attacker.second VALUES (1);
SET ttl_docs.clock_offset = 100;
SELECT ttl_docs.release('guard_owner.c');
SELECT way, result FROM guard_attacker.ways ORDER BY way;
SELECT * FROM guard_owner.gained;
-- Afterwards, the tables can be changed.
ALTER TABLE guard_attacker.second RENAME TO renamed;
RESET ttl_docs.clock_offset;
SET client_min_messages = warning;
DROP SCHEMA guard_owner, guard_attacker CASCADE;
DROP ROLE regress_ttl_guard_owner, regress_ttl_guard_attacker;

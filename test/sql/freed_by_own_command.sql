--
-- A command frees keys whose documents its own scan has yet to come to.  They
-- were live when it began and are expired when it gets there; to it they are
-- rows that are gone, not rows that a trigger changed behind its back.
--
SELECT ttl_docs.create_collection('own', 600);
CREATE TABLE own_child (ref text REFERENCES own ON DELETE CASCADE ON UPDATE CASCADE);
INSERT INTO own (id, doc) VALUES ('a1', '{}'), ('a2', '{}'), ('b', '{"ttl": 60}'), ('c', '{"ttl": 60}');
-- the cascades make commands of their own, so the second key is freed later
INSERT INTO own_child VALUES ('b'), ('c');
CREATE FUNCTION later(text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN PERFORM set_config('ttl_docs.clock_offset', '120', false); RETURN $1; END $$;

UPDATE own SET id = CASE id WHEN 'a1' THEN later('b') WHEN 'a2' THEN 'c' ELSE id || ' touched' END;
SELECT id, doc FROM own ORDER BY id;
SELECT count(*) AS children FROM own_child;

RESET ttl_docs.clock_offset;
DROP TABLE own_child, own;
DROP FUNCTION later(text);

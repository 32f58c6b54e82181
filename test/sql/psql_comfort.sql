-- The view of a user who only has psql: \df and \dv show the public functions and
-- views, each object has a comment, and \d+ of a collection describes its columns.
-- Some functions have several versions, for arguments of other types.
SELECT n.nspname, p.proname, p.prokind, count(*) AS versions
  FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
 WHERE n.nspname = 'ttl_docs'
 GROUP BY n.nspname, p.proname, p.prokind
 ORDER BY p.proname COLLATE "C";
-- All versions of a function have the same comment.
SELECT p.proname FROM pg_proc AS p WHERE p.pronamespace = 'ttl_docs'::regnamespace
 GROUP BY p.proname HAVING count(DISTINCT obj_description(p.oid, 'pg_proc')) > 1;

-- Every object of the extension has a comment.
SELECT pg_describe_object(d.classid, d.objid, 0)
  FROM pg_depend AS d
 WHERE d.refclassid = 'pg_extension'::regclass
   AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'ttl_docs')
   AND d.deptype = 'e'
   AND obj_description(d.objid, d.classid::regclass::name) IS NULL
   AND d.classid <> 'pg_type'::regclass;
-- The comment of an internal function says "internal", and internal functions are only
-- in the internal schema.
SELECT p.oid::regprocedure
  FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
 WHERE n.nspname IN ('ttl_docs', 'ttl_docs_internal')
   AND (n.nspname = 'ttl_docs_internal')
       <> (obj_description(p.oid, 'pg_proc') LIKE 'internal: %');

SELECT ttl_docs.create_collection('c', 60);
\d c
SELECT attname, col_description('c'::regclass, attnum) FROM pg_attribute
 WHERE attrelid = 'c'::regclass AND attname LIKE '\_%' ORDER BY attnum;

-- A ttl has no effect while TTL is off, and the view says so.
CREATE TABLE a (id int PRIMARY KEY, doc jsonb);
INSERT INTO a VALUES (1, '{"ttl": 60}'), (2, '{}');
SELECT ttl_docs.adopt('a');
SELECT ttl_docs.create_collection('o');
SELECT ttl_docs.pause_purge('c');
SELECT collection, mode, holds, hint FROM ttl_docs.collections ORDER BY collection::text;
-- The hints are commands that work.
SELECT ttl_docs.set_default_ttl('a', -1);
SELECT ttl_docs.resume_purge('c');
SELECT collection, mode, holds, hint FROM ttl_docs.collections ORDER BY collection::text;
DROP TABLE a, c, o;

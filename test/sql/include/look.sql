\set ECHO none
--
-- look(query) shows the plan of a query that returns one row, then the row, then the row
-- that the query would return with the expired documents.
--
-- Plans differ between versions in two lines, which look() leaves out: 18 marks the nodes
-- that are disabled, and before 17 EXPLAIN shows the parameter that carries the instant.
--
-- A test includes this file with:
--	\getenv abs_srcdir PG_ABS_SRCDIR
--	\set look :abs_srcdir '/sql/include/look.sql'
--	\i :look
-- pg_regress sets PG_ABS_SRCDIR to its input directory.
--
CREATE FUNCTION look(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	answer record;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line !~ 'Disabled|Params Evaluated' THEN RETURN NEXT line; END IF;
	END LOOP;
	EXECUTE query INTO answer;
	RETURN NEXT 'live: ' || answer;
	PERFORM set_config('ttl_docs.show_expired', 'on', true);
	EXECUTE query INTO answer;
	RETURN NEXT 'on disk: ' || answer;
	PERFORM set_config('ttl_docs.show_expired', 'off', true);
END $$;
\set ECHO all

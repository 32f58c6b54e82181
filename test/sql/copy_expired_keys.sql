-- COPY FROM learns once for each batch which keys expired documents hold, and searches an
-- index only for these keys.
CREATE FUNCTION scans(index regclass) RETURNS bigint LANGUAGE sql AS
    $$ SELECT coalesce(pg_stat_get_xact_numscans(index), 0) $$;

--
-- Which rows are searched for
--
SELECT ttl_docs.create_collection('docs', 1000);
SELECT ttl_docs.pause_purge('docs');
SET ttl_docs.clock_offset = -2000;
INSERT INTO docs SELECT 'old ' || n, '{}' FROM generate_series(1, 20) AS n;
RESET ttl_docs.clock_offset;
BEGIN;
COPY docs (id, doc) FROM PROGRAM 'seq -f "new %g	{}" 1 500';
SELECT scans('docs_pkey');
COPY docs (id, doc) FROM PROGRAM 'for i in 1 2 3; do printf "old $i\t{}\nother $i\t{}\n"; done';
SELECT scans('docs_pkey');
SELECT id FROM docs WHERE id LIKE 'o%' ORDER BY id;
ROLLBACK;
-- A live document still has its key.
COPY docs (id, doc) FROM stdin;
mine	{}
\.
COPY docs (id, doc) FROM stdin;
mine	{}
\.
-- A document with its own ttl is in another range of the purge index.
INSERT INTO docs VALUES ('own', '{"ttl": 5}');
BEGIN;
SET LOCAL ttl_docs.clock_offset = 6;
COPY docs (id, doc) FROM stdin;
own	{"new": 1}
\.
SELECT doc FROM docs WHERE id = 'own';
ROLLBACK;
-- With many expired documents, COPY searches for each row.
SET ttl_docs.clock_offset = -2000;
INSERT INTO docs SELECT 'many ' || n, '{}' FROM generate_series(1, 2000) AS n;
RESET ttl_docs.clock_offset;
BEGIN;
COPY docs (id, doc) FROM PROGRAM 'seq -f "many %g	{}" 1990 2010';
SELECT scans('docs_pkey') >= 21 AS for_all;
SELECT count(*) FROM docs WHERE id LIKE 'many %';
ROLLBACK;
-- The same with a BRIN index.
SELECT ttl_docs.set_indexing('docs', 'lazy');
BEGIN;
COPY docs (id, doc) FROM stdin;
old 1	{}
another	{}
\.
SELECT scans('docs_pkey') >= 2 AS for_all;
SELECT id FROM docs WHERE id = 'old 1';
ROLLBACK;
SELECT ttl_docs.drop_collection('docs');

--
-- Equal keys that are not equal bytes, and constraints of every kind
--
CREATE TABLE keys (n numeric PRIMARY KEY, word char(8) UNIQUE, doc jsonb, span int4range,
    twice numeric UNIQUE GENERATED ALWAYS AS (n * 2) STORED, a int, b text, EXCLUDE USING gist (span WITH &&));
CREATE UNIQUE INDEX keys_number ON keys (((doc ->> 'number')::int)) WHERE jsonb_typeof(doc -> 'number') = 'number';
CREATE UNIQUE INDEX keys_nulls ON keys (a, b) NULLS NOT DISTINCT WHERE a IS NOT NULL;
SELECT ttl_docs.adopt('keys', 1000);
SELECT ttl_docs.pause_purge('keys');
SET ttl_docs.clock_offset = -2000;
COPY keys (n, word, doc, span, a, b) FROM stdin;
1.0	one	{}	\N	\N	\N
2	two	{"number": "x"}	\N	\N	\N
3	three	{"number": 3}	\N	\N	\N
4	four	{}	[10,20)	\N	\N
5	five	{}	\N	5	\N
6	six	{}	\N	6	b
7	seven	{}	\N	\N	\N
\.
RESET ttl_docs.clock_offset;
COPY keys (n, word, doc, span, a, b) FROM stdin;
1.00	eins	{}	\N	\N	\N
12	two	{}	\N	\N	\N
13	drei	{"number": 3}	\N	\N	\N
14	vier	{}	[19,30)	\N	\N
15	fuenf	{}	\N	5	\N
16	sechs	{}	\N	6	b
17	sieben	{"number": "x"}	\N	7	\N
\.
SELECT n, word, doc, span, a, b FROM keys ORDER BY n;
SET ttl_docs.show_expired = on;
SELECT n FROM keys ORDER BY n;
RESET ttl_docs.show_expired;
SELECT ttl_docs.release('keys');
DROP TABLE keys;
DROP FUNCTION scans(regclass);

--
-- The settings: their names, who may set them, and their effects.  Also
-- row_security = off, which pg_dump sets: it shows expired documents to the table's
-- owner.
--
SELECT name, setting, unit, vartype, context, min_val, max_val, boot_val
  FROM pg_settings WHERE name LIKE 'ttl\_docs.%' ORDER BY name;
SET ttl_docs.show_expired = 'perhaps';
SET ttl_docs.clock_offset = 'tomorrow';
SET ttl_docs.clock_offset = '1.5 h';
SHOW ttl_docs.clock_offset;
RESET ttl_docs.clock_offset;
-- The prefix ttl_docs is reserved, so a misspelled name is an error.
SET ttl_docs.clock_ofset = 60;
SELECT set_config('ttl_docs.shows_expired', 'on', false);

CREATE ROLE regress_ttl_docs_owner;
CREATE ROLE regress_ttl_docs_other;
CREATE SCHEMA settings AUTHORIZATION regress_ttl_docs_owner;
GRANT USAGE ON SCHEMA settings TO regress_ttl_docs_other;
SET ROLE regress_ttl_docs_owner;
SELECT ttl_docs.create_collection('settings.docs', 3600);
GRANT ALL ON settings.docs TO regress_ttl_docs_other;
RESET ROLE;
SET search_path = settings;
SET ttl_docs.clock_offset = '-90 min';
INSERT INTO docs (id, doc) VALUES ('expired', '{}'), ('expiredown', '{"ttl": 60}');
RESET ttl_docs.clock_offset;
INSERT INTO docs (id, doc) VALUES ('live', '{}');

-- Superusers may set both settings, and so may users with the SET privilege.
SET ROLE regress_ttl_docs_owner;
SET ttl_docs.show_expired = on;
SET ttl_docs.clock_offset = -7200;
SELECT set_config('ttl_docs.show_expired', 'on', true);
SELECT string_agg(id, ' ' ORDER BY id) AS owner FROM docs;
RESET ROLE;
GRANT SET ON PARAMETER ttl_docs.clock_offset TO regress_ttl_docs_owner;
SET ROLE regress_ttl_docs_owner;
SET ttl_docs.clock_offset = '-90 min';
SELECT string_agg(id, ' ' ORDER BY id) AS earlier FROM docs;
RESET ttl_docs.clock_offset;
RESET ROLE;
REVOKE SET ON PARAMETER ttl_docs.clock_offset FROM regress_ttl_docs_owner;

--
-- show_expired affects reads by SELECT, COPY TO and INSERT ... SELECT
--
SET ttl_docs.show_expired = on;
SELECT string_agg(id, ' ' ORDER BY id) AS superuser FROM docs;
SELECT count(*) FROM docs AS a LEFT JOIN docs AS b USING (id) WHERE b.id IS NOT NULL;
WITH d AS MATERIALIZED (SELECT * FROM docs) SELECT count(*) FROM d;
COPY docs (id) TO stdout;
CREATE TABLE rescued (id text, doc jsonb);
INSERT INTO rescued SELECT id, doc FROM docs WHERE ttl_docs.is_expired('docs', _ts, _ttl);
SELECT string_agg(id, ' ' ORDER BY id) AS rescued FROM rescued;
DROP TABLE rescued;
CREATE TABLE rescued AS SELECT id FROM docs;
SELECT string_agg(id, ' ' ORDER BY id) AS rescued FROM rescued;
DROP TABLE rescued;
-- Writes ignore show_expired: an UPDATE or DELETE finds no expired document.
UPDATE docs SET doc = '{}' WHERE id LIKE 'expired%' RETURNING id;
DELETE FROM docs WHERE id LIKE 'expired%' RETURNING id;
MERGE INTO docs AS t USING (VALUES ('expired')) AS s (id) ON t.id = s.id WHEN MATCHED THEN DELETE;
WITH gone AS (DELETE FROM docs WHERE id LIKE 'expired%' RETURNING id) SELECT count(*) AS gone FROM gone;
WITH touched AS (UPDATE docs SET id = id WHERE id LIKE 'expired%' RETURNING id) SELECT count(*) AS touched FROM touched;
-- The same at every isolation level
BEGIN ISOLATION LEVEL REPEATABLE READ;
WITH gone AS (DELETE FROM docs WHERE id LIKE 'expired%' RETURNING id) SELECT count(*) AS gone FROM gone;
UPDATE docs SET doc = '{}' WHERE id LIKE 'expired%' RETURNING id;
COMMIT;
SELECT string_agg(id, ' ' ORDER BY id) AS all_there FROM docs;
-- The key of an expired document is free.
BEGIN;
INSERT INTO docs (id, doc) VALUES ('expired', '{"new": true}') ON CONFLICT (id) DO UPDATE SET doc = '{"new": false}';
SELECT doc FROM docs WHERE id = 'expired';
ROLLBACK;
RESET ttl_docs.show_expired;
SELECT string_agg(id, ' ' ORDER BY id) AS superuser FROM docs;

--
-- row_security = off applies to the owner and superusers, in SELECT and COPY TO
--
CREATE FUNCTION ids() RETURNS text LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT string_agg(id, ' ' ORDER BY id) FROM settings.docs); END $$;
CREATE FUNCTION ids_of_definer() RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS
$$ BEGIN RETURN (SELECT string_agg(id, ' ' ORDER BY id) FROM settings.docs); END $$;
ALTER FUNCTION ids_of_definer() OWNER TO regress_ttl_docs_owner;
CREATE VIEW view_of_owner AS SELECT id FROM docs;
ALTER VIEW view_of_owner OWNER TO regress_ttl_docs_owner;
GRANT SELECT ON view_of_owner TO regress_ttl_docs_other;
SET row_security = off;
SELECT string_agg(id, ' ' ORDER BY id) AS superuser FROM docs;
COPY docs (id) TO stdout;
SET ROLE regress_ttl_docs_owner;
SELECT string_agg(id, ' ' ORDER BY id) AS owner FROM docs;
SELECT ids() AS owner;
COPY docs (id) TO stdout;
COPY (SELECT id FROM docs) TO stdout;
-- row_security = off does not apply to writes, locking reads, or reads that write to
-- another table.  Backups run none of these.
SELECT id FROM docs FOR SHARE;
UPDATE docs SET id = id RETURNING id;
DELETE FROM docs WHERE id LIKE 'expired%' RETURNING id;
BEGIN ISOLATION LEVEL REPEATABLE READ;
WITH gone AS (DELETE FROM docs WHERE id LIKE 'expired%' RETURNING id) SELECT count(*) AS gone FROM gone;
COMMIT;
CREATE TABLE rescued (id text);
INSERT INTO rescued SELECT id FROM docs RETURNING id;
DROP TABLE rescued;
-- row_security = off does not apply to other users, even with the owner's privileges.
SET ROLE regress_ttl_docs_other;
SELECT string_agg(id, ' ' ORDER BY id) AS other FROM docs;
SELECT ids() AS other, ids_of_definer() AS other_as_owner;
SELECT string_agg(id, ' ' ORDER BY id) AS view_of_owner FROM view_of_owner;
COPY docs (id) TO stdout;
COPY view_of_owner TO stdout;
COPY (SELECT id FROM view_of_owner) TO stdout;
-- row_security = off does not apply in a SECURITY DEFINER function, even if the owner
-- calls it.
SET ROLE regress_ttl_docs_owner;
SELECT ids_of_definer() AS owner_as_owner;
RESET ROLE;
RESET row_security;
SET ROLE regress_ttl_docs_owner;
SELECT string_agg(id, ' ' ORDER BY id) AS as_usual FROM docs;

-- A restore also runs under row_security = off: for the owner, INSERT and COPY FROM
-- keep the _ts that they bring.  The ttl comes from the document and must be valid.
SET row_security = off;
INSERT INTO docs (id, doc, _ts, _ttl, _slot) VALUES ('restored', '{"ttl": 60}', '2001-02-03 04:05:06+00', -1, 7);
COPY docs (id, doc, _ts) FROM stdin;
copied	{}	2001-02-03 04:05:06+00
\.
INSERT INTO docs (id, doc, _ts) VALUES ('invalid', '{"ttl": 0}', '2001-02-03 04:05:06+00');
SELECT id, _ts AT TIME ZONE 'UTC' AS _ts, _ttl, _slot = ttl_docs_internal.slot(_ts, _ttl, 3600) AS slot
  FROM docs WHERE _ts < '2002-01-01' ORDER BY id;
RESET row_security;
SELECT string_agg(id, ' ' ORDER BY id) AS dead_on_arrival FROM docs;
-- For other users, and for any UPDATE, the server sets _ts.
SET ROLE regress_ttl_docs_other;
SET row_security = off;
INSERT INTO docs (id, doc, _ts) VALUES ('other', '{}', '2001-02-03 04:05:06+00') RETURNING _ts > '2002-01-01' AS stamped;
SET ROLE regress_ttl_docs_owner;
UPDATE docs SET _ts = '2001-02-03 04:05:06+00' WHERE id = 'other' RETURNING _ts > '2002-01-01' AS stamped;
RESET row_security;
INSERT INTO docs (id, doc, _ts) VALUES ('owner', '{}', '2001-02-03 04:05:06+00') RETURNING _ts > '2002-01-01' AS stamped;

-- Row-level security policies and expiry both apply.
INSERT INTO docs (id, doc) VALUES ('hidden', '{}');
ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
CREATE POLICY not_hidden ON docs FOR SELECT USING (id <> 'hidden');
SET ROLE regress_ttl_docs_other;
SELECT string_agg(id, ' ' ORDER BY id) AS other FROM docs;
SET row_security = off;
SELECT count(*) FROM docs;
SET ROLE regress_ttl_docs_owner;
SELECT string_agg(id, ' ' ORDER BY id) AS owner FROM docs;
RESET row_security;
SELECT string_agg(id, ' ' ORDER BY id) AS owner FROM docs;
ALTER TABLE docs FORCE ROW LEVEL SECURITY;
SELECT string_agg(id, ' ' ORDER BY id) AS owner_forced FROM docs;

RESET ROLE;
RESET search_path;
DROP SCHEMA settings CASCADE;
DROP ROLE regress_ttl_docs_owner, regress_ttl_docs_other;

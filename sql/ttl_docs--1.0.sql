/* ttl_docs--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION ttl_docs" to load this file. \quit

-- The schema is ours from the start: one made beforehand would be its maker's.
-- The control file names pg_catalog, as for plpgsql, so that the extension does
-- not go with whatever schema is first in the search_path now.
CREATE SCHEMA ttl_docs;
GRANT USAGE ON SCHEMA ttl_docs TO PUBLIC;
COMMENT ON SCHEMA ttl_docs IS 'documents that expire: collections, their DefaultTTL, time';

-- What nobody calls by hand, so that \df ttl_docs.* shows what somebody does.
CREATE SCHEMA ttl_docs_internal;
GRANT USAGE ON SCHEMA ttl_docs_internal TO PUBLIC;
COMMENT ON SCHEMA ttl_docs_internal IS 'what ttl_docs itself uses: not to be called';

-- Without the hooks of the preloaded library expired documents would show.  With
-- it, the background workers learn that there is something to do here.
CREATE FUNCTION ttl_docs.begin_install() RETURNS void
LANGUAGE C STRICT
AS 'MODULE_PATHNAME', 'ttl_docs_begin_install';
SELECT ttl_docs.begin_install();
DROP FUNCTION ttl_docs.begin_install();

--
-- Collections.  They check that the caller owns the table.
--
CREATE FUNCTION ttl_docs.create_collection(
    name text,
    default_ttl integer DEFAULT NULL,
    indexing text DEFAULT 'consistent')
RETURNS regclass
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_create_collection';
COMMENT ON FUNCTION ttl_docs.create_collection(text, integer, text) IS
'creates a table for documents that expire';

CREATE FUNCTION ttl_docs.drop_collection(collection regclass)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_drop_collection';
COMMENT ON FUNCTION ttl_docs.drop_collection(regclass) IS
'drops a collection and its documents';

CREATE FUNCTION ttl_docs.adopt(
    collection regclass,
    default_ttl integer DEFAULT NULL,
    doc_column name DEFAULT NULL,
    last_modified name DEFAULT NULL,
    indexing text DEFAULT 'consistent')
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_adopt';
COMMENT ON FUNCTION ttl_docs.adopt(regclass, integer, name, name, text) IS
'makes an existing table a collection';

CREATE FUNCTION ttl_docs.release(collection regclass)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_release';
COMMENT ON FUNCTION ttl_docs.release(regclass) IS
'makes a collection a plain table again, without its expired documents';

CREATE FUNCTION ttl_docs.set_default_ttl(collection regclass, default_ttl integer)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_set_default_ttl';
COMMENT ON FUNCTION ttl_docs.set_default_ttl(regclass, integer) IS
'sets the DefaultTTL: seconds, -1 (on, without a default) or NULL (off)';

CREATE FUNCTION ttl_docs.get_default_ttl(collection regclass)
RETURNS integer
LANGUAGE C STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_get_default_ttl';
COMMENT ON FUNCTION ttl_docs.get_default_ttl(regclass) IS
'the DefaultTTL of a collection; NULL is off';

CREATE FUNCTION ttl_docs.set_indexing(collection regclass, indexing text)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_set_indexing';
COMMENT ON FUNCTION ttl_docs.set_indexing(regclass, text) IS
'sets how the purge finds expired documents: consistent, lazy or none';

CREATE FUNCTION ttl_docs.preview(
    collection regclass,
    default_ttl integer,
    OUT live bigint,
    OUT expire_now bigint,
    OUT expire_later bigint,
    OUT never_expire bigint,
    OUT invalid_ttl bigint,
    OUT examples text[])
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_preview';
COMMENT ON FUNCTION ttl_docs.preview(regclass, integer) IS
'what a DefaultTTL would do to the documents that are live now; changes nothing';

--
-- Documents: the verbs of the Cosmos DB SDKs.  Each is one SQL statement, with
-- the rights of the caller.
--
CREATE FUNCTION ttl_docs.create_document(collection regclass, doc jsonb)
RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_create_document';
COMMENT ON FUNCTION ttl_docs.create_document(regclass, jsonb) IS
'stores a new document and returns it; an error if a live one has its id';

CREATE FUNCTION ttl_docs.read_document(collection regclass, id text)
RETURNS jsonb
LANGUAGE C STABLE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'ttl_docs_read_document';
COMMENT ON FUNCTION ttl_docs.read_document(regclass, text) IS
'the document with that id, NULL if there is none';

CREATE FUNCTION ttl_docs.replace_document(collection regclass, doc jsonb)
RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_replace_document';
COMMENT ON FUNCTION ttl_docs.replace_document(regclass, jsonb) IS
'stores a document in place of the one with its id; an error if there is none';

CREATE FUNCTION ttl_docs.upsert_document(collection regclass, doc jsonb)
RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_upsert_document';
COMMENT ON FUNCTION ttl_docs.upsert_document(regclass, jsonb) IS
'stores a document, in place of the one with its id if there is one';

CREATE FUNCTION ttl_docs.patch_document(collection regclass, id text, patch jsonb)
RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_patch_document';
COMMENT ON FUNCTION ttl_docs.patch_document(regclass, text, jsonb) IS
'merges a patch (RFC 7396) into the document with that id; an error if there is none';

CREATE FUNCTION ttl_docs.delete_document(collection regclass, id text)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_delete_document';
COMMENT ON FUNCTION ttl_docs.delete_document(regclass, text) IS
'deletes the document with that id; was there one?';

CREATE FUNCTION ttl_docs.touch_document(collection regclass, id text)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_touch_document';
COMMENT ON FUNCTION ttl_docs.touch_document(regclass, text) IS
'restarts the countdown of the document with that id; was there one?';

CREATE FUNCTION ttl_docs.documents(collection regclass, filter jsonb DEFAULT NULL)
RETURNS SETOF jsonb
LANGUAGE C STABLE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'ttl_docs_documents';
COMMENT ON FUNCTION ttl_docs.documents(regclass, jsonb) IS
'the live documents that contain the filter; all of them without one';

CREATE FUNCTION ttl_docs.merge_patch(target jsonb, patch jsonb)
RETURNS jsonb
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_merge_patch';
COMMENT ON FUNCTION ttl_docs.merge_patch(jsonb, jsonb) IS
'JSON merge patch (RFC 7396), for UPDATE';

--
-- Time
--
-- Parallel restricted: a worker learns the instant only when it begins to run,
-- and may have pruned partitions by then.
CREATE FUNCTION ttl_docs.now()
RETURNS timestamptz
LANGUAGE C STABLE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'ttl_docs_now';
COMMENT ON FUNCTION ttl_docs.now() IS
'the instant that judges this query';

CREATE FUNCTION ttl_docs.expires_at(collection regclass, ts timestamptz, ttl integer)
RETURNS timestamptz
LANGUAGE C STABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_sql_expires_at';
COMMENT ON FUNCTION ttl_docs.expires_at(regclass, timestamptz, integer) IS
'when a document with this _ts and _ttl expires; infinity is never';

CREATE FUNCTION ttl_docs.is_expired(collection regclass, ts timestamptz, ttl integer)
RETURNS boolean
LANGUAGE C STABLE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'ttl_docs_sql_is_expired';
COMMENT ON FUNCTION ttl_docs.is_expired(regclass, timestamptz, integer) IS
'is a document with this _ts and _ttl expired?';

CREATE FUNCTION ttl_docs.purging()
RETURNS boolean
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'ttl_docs_purging';
COMMENT ON FUNCTION ttl_docs.purging() IS
'true in a trigger that fires because an expired document is removed';

--
-- Purge
--
CREATE PROCEDURE ttl_docs.purge(collection regclass DEFAULT NULL)
LANGUAGE C
AS 'MODULE_PATHNAME', 'ttl_docs_purge_procedure';
COMMENT ON PROCEDURE ttl_docs.purge(regclass) IS
'deletes expired documents from disk now: of one collection, or of all that the caller owns';

CREATE FUNCTION ttl_docs.pause_purge(collection regclass)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_pause_purge';
COMMENT ON FUNCTION ttl_docs.pause_purge(regclass) IS
'keeps the expired documents of a collection on disk, invisible as they are';

CREATE FUNCTION ttl_docs.resume_purge(collection regclass)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_resume_purge';
COMMENT ON FUNCTION ttl_docs.resume_purge(regclass) IS
'ends a pause and the other holds of the purge: restored, clock jump, grace';

CREATE FUNCTION ttl_docs.set_purge_subscribed(collection regclass, purge_subscribed boolean)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_set_purge_subscribed';
COMMENT ON FUNCTION ttl_docs.set_purge_subscribed(regclass, boolean) IS
'lets this server purge a collection that a subscription writes, if no publisher does';

CREATE FUNCTION ttl_docs_internal.collection_stats(
    collection regclass,
    OUT state text,
    OUT hint text,
    OUT estimated_backlog bigint,
    OUT estimated_bytes bigint,
    OUT oldest_overdue interval,
    OUT purged bigint,
    OUT batches bigint,
    OUT last_purge timestamptz,
    OUT undeletable bigint,
    OUT last_error text,
    OUT last_error_at timestamptz)
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'ttl_docs_collection_stats';
COMMENT ON FUNCTION ttl_docs_internal.collection_stats(regclass) IS
'internal: a row of the view stat_collections';

--
-- What the extension itself uses
--
CREATE FUNCTION ttl_docs_internal.is_live(ts timestamptz, ttl integer, collection regclass)
RETURNS boolean
LANGUAGE C STABLE PARALLEL SAFE COST 1
AS 'MODULE_PATHNAME', 'ttl_docs_is_live';
COMMENT ON FUNCTION ttl_docs_internal.is_live(timestamptz, integer, regclass) IS
'internal: the test that every scan of a collection applies';

CREATE FUNCTION ttl_docs_internal.is_live_parent(ts timestamptz, ttl integer, collection regclass)
RETURNS boolean
LANGUAGE C STABLE PARALLEL SAFE COST 1
AS 'MODULE_PATHNAME', 'ttl_docs_is_live_parent';
COMMENT ON FUNCTION ttl_docs_internal.is_live_parent(timestamptz, integer, regclass) IS
'internal: the same test, for the parents when a foreign key is validated';

CREATE FUNCTION ttl_docs_internal.require_live(ts timestamptz, ttl integer, collection regclass)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL SAFE COST 1
AS 'MODULE_PATHNAME', 'ttl_docs_require_live';
COMMENT ON FUNCTION ttl_docs_internal.require_live(timestamptz, integer, regclass) IS
'internal: the test before the WHERE of ON CONFLICT DO UPDATE: raises a serialization failure';

CREATE FUNCTION ttl_docs.document_ttl(doc jsonb)
RETURNS integer
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_sql_document_ttl';
COMMENT ON FUNCTION ttl_docs.document_ttl(jsonb) IS
'the ttl of a document; NULL inherits, 0 is not valid';

CREATE FUNCTION ttl_docs_internal.slot(ts timestamptz, ttl integer, default_ttl integer)
RETURNS bigint
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_sql_slot';
COMMENT ON FUNCTION ttl_docs_internal.slot(timestamptz, integer, integer) IS
'internal: the position of a document in the purge index; NULL never expires';

CREATE FUNCTION ttl_docs_internal.expires_under(ts timestamptz, ttl integer, default_ttl integer)
RETURNS timestamptz
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_expires_under';
COMMENT ON FUNCTION ttl_docs_internal.expires_under(timestamptz, integer, integer) IS
'internal: when a document would expire under that DefaultTTL';

CREATE FUNCTION ttl_docs_internal.first_ts(last_modified timestamptz, adopted bigint)
RETURNS timestamptz
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_first_ts_tz';
COMMENT ON FUNCTION ttl_docs_internal.first_ts(timestamptz, bigint) IS
'internal: the first _ts of a document whose table is adopted';

CREATE FUNCTION ttl_docs_internal.first_ts(last_modified timestamp, adopted bigint)
RETURNS timestamptz
LANGUAGE C STABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_first_ts';
COMMENT ON FUNCTION ttl_docs_internal.first_ts(timestamp, bigint) IS
'internal: the first _ts of a document whose table is adopted';

CREATE FUNCTION ttl_docs_internal.returned_document(doc jsonb, id jsonb, ts timestamptz)
RETURNS jsonb
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_returned_document';
COMMENT ON FUNCTION ttl_docs_internal.returned_document(jsonb, jsonb, timestamptz) IS
'internal: a document as the document functions return it';

CREATE FUNCTION ttl_docs_internal.patchable(doc jsonb)
RETURNS jsonb
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_patchable';
COMMENT ON FUNCTION ttl_docs_internal.patchable(jsonb) IS
'internal: the document itself, if a patch can be merged into it';

CREATE FUNCTION ttl_docs_internal.write_document()
RETURNS trigger
LANGUAGE C VOLATILE
AS 'MODULE_PATHNAME', 'ttl_docs_write_document';
COMMENT ON FUNCTION ttl_docs_internal.write_document() IS
'internal: the row trigger of collections';

-- Everybody's queries contain is_live(), and the others check who calls them;
-- said here, because default privileges may say otherwise.
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA ttl_docs, ttl_docs_internal TO PUBLIC;

--
-- Views
--
CREATE VIEW ttl_docs.collections AS
SELECT c.collection,
       c.doc_column,
       c.default_ttl,
       CASE WHEN c.default_ttl IS NULL THEN 'off'
            WHEN c.default_ttl OPERATOR(pg_catalog.=) -1 THEN 'on (no default)'
            ELSE 'on'
       END AS mode,
       c.indexing,
       c.holds,
       -- without the library, no function of it can tell; a placeholder is not in pg_settings
       CASE WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_settings AS g
                              WHERE g.name OPERATOR(pg_catalog.=) 'ttl_docs.purge')
            THEN 'The library is not loaded, so expired documents are visible and nothing is stamped. Add ttl_docs to shared_preload_libraries in postgresql.conf, and restart the server.'
            WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS t
                              WHERE t.tgrelid OPERATOR(pg_catalog.=) c.collection
                                AND t.tgname OPERATOR(pg_catalog.=) 'zzz_ttl_docs')
            THEN pg_catalog.format('The table was restored without its trigger, so writes are refused. To create the trigger: SELECT ttl_docs.adopt(%L)',
                                   c.collection)
            WHEN c.default_ttl IS NULL
            THEN pg_catalog.format('Nothing expires, and "ttl" in documents is ignored. To turn TTL on: SELECT ttl_docs.set_default_ttl(%L, -1)',
                                   c.collection)
            WHEN c.holds OPERATOR(pg_catalog.=) '{grace}'
            THEN pg_catalog.format('A change of settings made documents expire. They can be copied out until the hold ends by itself. To purge them now: SELECT ttl_docs.resume_purge(%L)',
                                   c.collection)
            WHEN c.holds OPERATOR(pg_catalog.<>) '{}'
            THEN pg_catalog.format('Expired documents stay on disk, hidden. To purge them: SELECT ttl_docs.resume_purge(%L)',
                                   c.collection)
       END AS hint,
       c.purge_subscribed
  FROM (SELECT l.objoid::pg_catalog.regclass AS collection,
               (s.settings OPERATOR(pg_catalog.->>) 'document')::pg_catalog.name AS doc_column,
               (s.settings OPERATOR(pg_catalog.->>) 'default_ttl')::pg_catalog.int4 AS default_ttl,
               s.settings OPERATOR(pg_catalog.->>) 'indexing' AS indexing,
               pg_catalog.array_remove(ARRAY[
                   CASE WHEN (s.settings OPERATOR(pg_catalog.->>) 'paused')::pg_catalog.bool
                        THEN 'paused' END,
                   CASE WHEN (s.settings OPERATOR(pg_catalog.->>) 'table')::pg_catalog.oid
                             OPERATOR(pg_catalog.<>) l.objoid
                          OR (s.settings OPERATOR(pg_catalog.->>) 'database')::pg_catalog.oid
                             OPERATOR(pg_catalog.<>) d.oid
                        THEN 'restored' END,
                   CASE WHEN (s.settings OPERATOR(pg_catalog.->>) 'grace_until')::pg_catalog.timestamptz
                             OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()
                        THEN 'grace' END], NULL) AS holds,
               (s.settings OPERATOR(pg_catalog.->>) 'purge_subscribed')::pg_catalog.bool IS TRUE
               AS purge_subscribed
          FROM pg_catalog.pg_seclabel AS l
          JOIN pg_catalog.pg_database AS d
            ON d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database(),
               LATERAL (SELECT l.label::pg_catalog.jsonb AS settings) AS s
         WHERE l.provider OPERATOR(pg_catalog.=) 'ttl_docs'
           AND l.classoid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass
           AND l.objsubid OPERATOR(pg_catalog.=) 0
           -- the label of a partition is a copy of its root's
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits AS i
                             JOIN pg_catalog.pg_seclabel AS p
                               ON p.objoid OPERATOR(pg_catalog.=) i.inhparent
                              AND p.classoid OPERATOR(pg_catalog.=) l.classoid
                              AND p.objsubid OPERATOR(pg_catalog.=) 0
                              AND p.provider OPERATOR(pg_catalog.=) 'ttl_docs'
                            WHERE i.inhrelid OPERATOR(pg_catalog.=) l.objoid)) AS c;
COMMENT ON VIEW ttl_docs.collections IS 'the collections of this database and their settings';
GRANT SELECT ON ttl_docs.collections TO PUBLIC;

CREATE VIEW ttl_docs.stat_collections AS
SELECT c.collection,
       s.state,
       s.hint,
       s.estimated_backlog,
       s.estimated_bytes,
       s.oldest_overdue,
       s.purged,
       s.batches,
       s.last_purge,
       s.undeletable,
       s.last_error,
       s.last_error_at
  FROM ttl_docs.collections AS c,
       LATERAL ttl_docs_internal.collection_stats(c.collection) AS s;
COMMENT ON VIEW ttl_docs.stat_collections IS
'what the purge does with the collections of this database, since the server started';
GRANT SELECT ON ttl_docs.stat_collections TO PUBLIC;

/* ttl_docs--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION ttl_docs" to load this file. \quit

-- Create the schema here, so that it belongs to the extension.  A schema that
-- existed before would keep its owner.  The control file names pg_catalog as the
-- schema of the extension, as plpgsql does.  Otherwise dropping the first schema
-- of the current search_path would drop the extension, too.
CREATE SCHEMA ttl_docs;
GRANT USAGE ON SCHEMA ttl_docs TO PUBLIC;
COMMENT ON SCHEMA ttl_docs IS 'functions and views for documents that expire';

-- Functions that users do not call are in a schema of their own, so that
-- \df ttl_docs.* lists only the functions that users call.
CREATE SCHEMA ttl_docs_internal;
GRANT USAGE ON SCHEMA ttl_docs_internal TO PUBLIC;
COMMENT ON SCHEMA ttl_docs_internal IS 'internal functions of ttl_docs; do not call them';

-- Fails unless the library is preloaded: without its hooks, queries would show
-- expired documents.  Also notifies the launcher, so that the purge starts in this
-- database without a restart.
CREATE FUNCTION ttl_docs.begin_install() RETURNS void
LANGUAGE C STRICT
AS 'MODULE_PATHNAME', 'ttl_docs_begin_install';
SELECT ttl_docs.begin_install();
DROP FUNCTION ttl_docs.begin_install();

--
-- The type ttl_interval lets users pass an interval as a DefaultTTL.
--
-- Each function with an argument default_ttl has three versions:
--
-- version           is called for
-- integer           integer; only this version can be called without default_ttl
-- double precision  bigint, numeric, real, smallint, double precision, and every
--                   value of unknown type: NULL, '60', and $1 of a driver
-- ttl_interval      interval
--
-- PostgreSQL chooses the version by the category of the types.  It could not choose
-- for NULL between numbers (category N) and an interval (category T): the call would
-- fail as ambiguous.  So intervals come in as a type of category N.  A value of
-- unknown type then becomes double precision, the preferred type of this category.
-- The type ttl_interval is an interval in all other respects.  Its name is in the
-- dumps of views and functions that pass an interval, so the name never changes.
--
CREATE TYPE ttl_docs_internal.ttl_interval;

CREATE FUNCTION ttl_docs_internal.ttl_interval_in(cstring, oid, integer)
RETURNS ttl_docs_internal.ttl_interval
LANGUAGE internal STABLE STRICT PARALLEL SAFE
AS 'interval_in';
COMMENT ON FUNCTION ttl_docs_internal.ttl_interval_in(cstring, oid, integer) IS
'internal: I/O of ttl_interval';

CREATE FUNCTION ttl_docs_internal.ttl_interval_out(ttl_docs_internal.ttl_interval)
RETURNS cstring
LANGUAGE internal STABLE STRICT PARALLEL SAFE
AS 'interval_out';
COMMENT ON FUNCTION ttl_docs_internal.ttl_interval_out(ttl_docs_internal.ttl_interval) IS
'internal: I/O of ttl_interval';

CREATE FUNCTION ttl_docs_internal.ttl_interval_recv(internal, oid, integer)
RETURNS ttl_docs_internal.ttl_interval
LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE
AS 'interval_recv';
COMMENT ON FUNCTION ttl_docs_internal.ttl_interval_recv(internal, oid, integer) IS
'internal: I/O of ttl_interval';

CREATE FUNCTION ttl_docs_internal.ttl_interval_send(ttl_docs_internal.ttl_interval)
RETURNS bytea
LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE
AS 'interval_send';
COMMENT ON FUNCTION ttl_docs_internal.ttl_interval_send(ttl_docs_internal.ttl_interval) IS
'internal: I/O of ttl_interval';

CREATE TYPE ttl_docs_internal.ttl_interval (
    INPUT = ttl_docs_internal.ttl_interval_in,
    OUTPUT = ttl_docs_internal.ttl_interval_out,
    RECEIVE = ttl_docs_internal.ttl_interval_recv,
    SEND = ttl_docs_internal.ttl_interval_send,
    LIKE = pg_catalog.interval,
    CATEGORY = 'N',
    PREFERRED = false);
COMMENT ON TYPE ttl_docs_internal.ttl_interval IS
'internal: an interval that is passed as a DefaultTTL';

CREATE CAST (pg_catalog.interval AS ttl_docs_internal.ttl_interval) WITHOUT FUNCTION AS IMPLICIT;
COMMENT ON CAST (pg_catalog.interval AS ttl_docs_internal.ttl_interval) IS
'internal: an interval that is passed as a DefaultTTL';

--
-- Collections.  The functions that change a collection check that the caller owns
-- the table.
--
CREATE FUNCTION ttl_docs.create_collection(
    name text,
    default_ttl integer DEFAULT NULL,
    indexing text DEFAULT 'consistent')
RETURNS regclass
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_create_collection';
COMMENT ON FUNCTION ttl_docs.create_collection(text, integer, text) IS
'create a collection: a new table for documents that expire';

CREATE FUNCTION ttl_docs.create_collection(
    name text,
    default_ttl double precision,
    indexing text DEFAULT 'consistent')
RETURNS regclass
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_create_collection';
COMMENT ON FUNCTION ttl_docs.create_collection(text, double precision, text) IS
'create a collection: a new table for documents that expire';

CREATE FUNCTION ttl_docs.create_collection(
    name text,
    default_ttl ttl_docs_internal.ttl_interval,
    indexing text DEFAULT 'consistent')
RETURNS regclass
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_create_collection';
COMMENT ON FUNCTION ttl_docs.create_collection(text, ttl_docs_internal.ttl_interval, text) IS
'create a collection: a new table for documents that expire';

CREATE FUNCTION ttl_docs.drop_collection(collection regclass)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_drop_collection';
COMMENT ON FUNCTION ttl_docs.drop_collection(regclass) IS
'drop a collection with all its documents';

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
'make an existing table a collection';

CREATE FUNCTION ttl_docs.adopt(
    collection regclass,
    default_ttl double precision,
    doc_column name DEFAULT NULL,
    last_modified name DEFAULT NULL,
    indexing text DEFAULT 'consistent')
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_adopt';
COMMENT ON FUNCTION ttl_docs.adopt(regclass, double precision, name, name, text) IS
'make an existing table a collection';

CREATE FUNCTION ttl_docs.adopt(
    collection regclass,
    default_ttl ttl_docs_internal.ttl_interval,
    doc_column name DEFAULT NULL,
    last_modified name DEFAULT NULL,
    indexing text DEFAULT 'consistent')
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_adopt';
COMMENT ON FUNCTION ttl_docs.adopt(regclass, ttl_docs_internal.ttl_interval, name, name, text) IS
'make an existing table a collection';

CREATE PROCEDURE ttl_docs.adopt_concurrently(
    collection regclass,
    default_ttl integer DEFAULT NULL,
    doc_column name DEFAULT NULL,
    last_modified name DEFAULT NULL,
    indexing text DEFAULT 'consistent')
LANGUAGE C
AS 'MODULE_PATHNAME', 'ttl_docs_adopt_concurrently';
COMMENT ON PROCEDURE ttl_docs.adopt_concurrently(regclass, integer, name, name, text) IS
'make an existing table a collection while others use it';

CREATE PROCEDURE ttl_docs.adopt_concurrently(
    collection regclass,
    default_ttl double precision,
    doc_column name DEFAULT NULL,
    last_modified name DEFAULT NULL,
    indexing text DEFAULT 'consistent')
LANGUAGE C
AS 'MODULE_PATHNAME', 'ttl_docs_adopt_concurrently';
COMMENT ON PROCEDURE ttl_docs.adopt_concurrently(regclass, double precision, name, name, text) IS
'make an existing table a collection while others use it';

CREATE PROCEDURE ttl_docs.adopt_concurrently(
    collection regclass,
    default_ttl ttl_docs_internal.ttl_interval,
    doc_column name DEFAULT NULL,
    last_modified name DEFAULT NULL,
    indexing text DEFAULT 'consistent')
LANGUAGE C
AS 'MODULE_PATHNAME', 'ttl_docs_adopt_concurrently';
COMMENT ON PROCEDURE ttl_docs.adopt_concurrently(regclass, ttl_docs_internal.ttl_interval, name, name, text) IS
'make an existing table a collection while others use it';

CREATE FUNCTION ttl_docs.release(collection regclass)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_release';
COMMENT ON FUNCTION ttl_docs.release(regclass) IS
'make a collection a plain table again, after deleting its expired documents';

CREATE FUNCTION ttl_docs.set_default_ttl(collection regclass, default_ttl integer)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_set_default_ttl';
COMMENT ON FUNCTION ttl_docs.set_default_ttl(regclass, integer) IS
'set the DefaultTTL of a collection: seconds, -1 (on, without a default) or NULL (off)';

CREATE FUNCTION ttl_docs.set_default_ttl(collection regclass, default_ttl double precision)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_set_default_ttl';
COMMENT ON FUNCTION ttl_docs.set_default_ttl(regclass, double precision) IS
'set the DefaultTTL of a collection: seconds, -1 (on, without a default) or NULL (off)';

CREATE FUNCTION ttl_docs.set_default_ttl(collection regclass, default_ttl ttl_docs_internal.ttl_interval)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_set_default_ttl';
COMMENT ON FUNCTION ttl_docs.set_default_ttl(regclass, ttl_docs_internal.ttl_interval) IS
'set the DefaultTTL of a collection: seconds, -1 (on, without a default) or NULL (off)';

CREATE FUNCTION ttl_docs.get_default_ttl(collection regclass)
RETURNS integer
LANGUAGE C STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_get_default_ttl';
COMMENT ON FUNCTION ttl_docs.get_default_ttl(regclass) IS
'get the DefaultTTL of a collection: seconds, -1 (on, without a default) or NULL (off)';

CREATE FUNCTION ttl_docs.set_indexing(collection regclass, indexing text)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_set_indexing';
COMMENT ON FUNCTION ttl_docs.set_indexing(regclass, text) IS
'set how the purge finds expired documents: consistent, lazy or none';

CREATE PROCEDURE ttl_docs.set_indexing_concurrently(collection regclass, indexing text)
LANGUAGE C
AS 'MODULE_PATHNAME', 'ttl_docs_set_indexing_concurrently';
COMMENT ON PROCEDURE ttl_docs.set_indexing_concurrently(regclass, text) IS
'set how the purge finds expired documents, while others read and write the collection';

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
'count the live documents that would expire under a DefaultTTL, without setting it';

CREATE FUNCTION ttl_docs.preview(
    collection regclass,
    default_ttl double precision,
    OUT live bigint,
    OUT expire_now bigint,
    OUT expire_later bigint,
    OUT never_expire bigint,
    OUT invalid_ttl bigint,
    OUT examples text[])
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_preview';
COMMENT ON FUNCTION ttl_docs.preview(regclass, double precision) IS
'count the live documents that would expire under a DefaultTTL, without setting it';

CREATE FUNCTION ttl_docs.preview(
    collection regclass,
    default_ttl ttl_docs_internal.ttl_interval,
    OUT live bigint,
    OUT expire_now bigint,
    OUT expire_later bigint,
    OUT never_expire bigint,
    OUT invalid_ttl bigint,
    OUT examples text[])
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_preview';
COMMENT ON FUNCTION ttl_docs.preview(regclass, ttl_docs_internal.ttl_interval) IS
'count the live documents that would expire under a DefaultTTL, without setting it';

--
-- Documents: the verbs of the Cosmos DB SDKs.  Each function runs one SQL statement
-- with the caller's privileges.
--
-- An id is text.  The versions with anynonarray take ids of other types, such as
-- bigint, uuid and jsonb.  A value of unknown type is text.
--
CREATE FUNCTION ttl_docs.create_document(collection regclass, doc jsonb)
RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_create_document';
COMMENT ON FUNCTION ttl_docs.create_document(regclass, jsonb) IS
'store a new document and return it, or fail if a live document has the same id';

CREATE FUNCTION ttl_docs.read_document(collection regclass, id text)
RETURNS jsonb
LANGUAGE C STABLE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'ttl_docs_read_document';
COMMENT ON FUNCTION ttl_docs.read_document(regclass, text) IS
'get the live document with this id, or NULL if there is none';

CREATE FUNCTION ttl_docs.read_document(collection regclass, id anynonarray)
RETURNS jsonb
LANGUAGE C STABLE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'ttl_docs_read_document';
COMMENT ON FUNCTION ttl_docs.read_document(regclass, anynonarray) IS
'get the live document with this id, or NULL if there is none';

CREATE FUNCTION ttl_docs.replace_document(collection regclass, doc jsonb)
RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_replace_document';
COMMENT ON FUNCTION ttl_docs.replace_document(regclass, jsonb) IS
'replace the live document with the same id and return the new one, or fail if there is none';

CREATE FUNCTION ttl_docs.upsert_document(collection regclass, doc jsonb)
RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_upsert_document';
COMMENT ON FUNCTION ttl_docs.upsert_document(regclass, jsonb) IS
'store a document, or replace the live document with the same id, and return the new one';

CREATE FUNCTION ttl_docs.patch_document(collection regclass, id text, patch jsonb)
RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_patch_document';
COMMENT ON FUNCTION ttl_docs.patch_document(regclass, text, jsonb) IS
'apply a JSON merge patch (RFC 7396) to the live document with this id and return the result, or fail if there is none';

CREATE FUNCTION ttl_docs.patch_document(collection regclass, id anynonarray, patch jsonb)
RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_patch_document';
COMMENT ON FUNCTION ttl_docs.patch_document(regclass, anynonarray, jsonb) IS
'apply a JSON merge patch (RFC 7396) to the live document with this id and return the result, or fail if there is none';

CREATE FUNCTION ttl_docs.delete_document(collection regclass, id text)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_delete_document';
COMMENT ON FUNCTION ttl_docs.delete_document(regclass, text) IS
'delete the live document with this id, and return whether there was one';

CREATE FUNCTION ttl_docs.delete_document(collection regclass, id anynonarray)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_delete_document';
COMMENT ON FUNCTION ttl_docs.delete_document(regclass, anynonarray) IS
'delete the live document with this id, and return whether there was one';

CREATE FUNCTION ttl_docs.touch_document(collection regclass, id text)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_touch_document';
COMMENT ON FUNCTION ttl_docs.touch_document(regclass, text) IS
'restart the countdown of the live document with this id, and return whether there was one';

CREATE FUNCTION ttl_docs.touch_document(collection regclass, id anynonarray)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_touch_document';
COMMENT ON FUNCTION ttl_docs.touch_document(regclass, anynonarray) IS
'restart the countdown of the live document with this id, and return whether there was one';

CREATE FUNCTION ttl_docs.documents(collection regclass, filter jsonb DEFAULT NULL)
RETURNS SETOF jsonb
LANGUAGE C STABLE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'ttl_docs_documents';
COMMENT ON FUNCTION ttl_docs.documents(regclass, jsonb) IS
'get the live documents that contain the filter, or all live documents without a filter';

CREATE FUNCTION ttl_docs.merge_patch(target jsonb, patch jsonb)
RETURNS jsonb
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_merge_patch';
COMMENT ON FUNCTION ttl_docs.merge_patch(jsonb, jsonb) IS
'apply a JSON merge patch (RFC 7396) to a jsonb value and return the result';

--
-- Time
--
-- now() is parallel restricted: a parallel worker gets the instant only when it
-- starts to execute, and may have pruned partitions before.
CREATE FUNCTION ttl_docs.now()
RETURNS timestamptz
LANGUAGE C STABLE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'ttl_docs_now';
COMMENT ON FUNCTION ttl_docs.now() IS
'get the instant of this query: the time that decides whether a document is expired';

CREATE FUNCTION ttl_docs.expires_at(collection regclass, ts timestamptz, ttl integer)
RETURNS timestamptz
LANGUAGE C STABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_sql_expires_at';
COMMENT ON FUNCTION ttl_docs.expires_at(regclass, timestamptz, integer) IS
'get the time at which a document with this _ts and _ttl expires, or infinity if it never does';

CREATE FUNCTION ttl_docs.is_expired(collection regclass, ts timestamptz, ttl integer)
RETURNS boolean
LANGUAGE C STABLE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'ttl_docs_sql_is_expired';
COMMENT ON FUNCTION ttl_docs.is_expired(regclass, timestamptz, integer) IS
'test whether a document with this _ts and _ttl is expired';

CREATE FUNCTION ttl_docs.purging()
RETURNS boolean
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'ttl_docs_purging';
COMMENT ON FUNCTION ttl_docs.purging() IS
'test whether the current trigger fires because ttl_docs deletes an expired document';

--
-- Purge
--
CREATE PROCEDURE ttl_docs.purge(collection regclass DEFAULT NULL)
LANGUAGE C
AS 'MODULE_PATHNAME', 'ttl_docs_purge_procedure';
COMMENT ON PROCEDURE ttl_docs.purge(regclass) IS
'purge the expired documents of one collection, or of all collections that the caller owns';

CREATE FUNCTION ttl_docs.pause_purge(collection regclass)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_pause_purge';
COMMENT ON FUNCTION ttl_docs.pause_purge(regclass) IS
'hold the purge of a collection until resume_purge() is called';

CREATE FUNCTION ttl_docs.resume_purge(collection regclass)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_resume_purge';
COMMENT ON FUNCTION ttl_docs.resume_purge(regclass) IS
'resume the purge of a collection: end the holds paused, restored, grace and clock jump';

CREATE FUNCTION ttl_docs.set_purge_subscribed(collection regclass, purge_subscribed boolean)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_set_purge_subscribed';
COMMENT ON FUNCTION ttl_docs.set_purge_subscribed(regclass, boolean) IS
'set whether this server purges a collection that a subscription writes to';

CREATE FUNCTION ttl_docs_internal.collection_stats(
    collection regclass,
    OUT state text,
    OUT hint text,
    OUT estimated_backlog bigint,
    OUT estimated_bytes bigint,
    OUT oldest_overdue interval,
    OUT purged bigint,
    OUT batches bigint,
    OUT truncations bigint,
    OUT estimated_truncated bigint,
    OUT last_purge timestamptz,
    OUT undeletable bigint,
    OUT last_error text,
    OUT last_error_at timestamptz)
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'ttl_docs_collection_stats';
COMMENT ON FUNCTION ttl_docs_internal.collection_stats(regclass) IS
'internal: get a row of the view stat_collections';

CREATE FUNCTION ttl_docs_internal.node_clock()
RETURNS bigint
LANGUAGE C VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'ttl_docs_node_clock';
COMMENT ON FUNCTION ttl_docs_internal.node_clock() IS
'internal: the clock of this node of Citus, in microseconds';

CREATE FUNCTION ttl_docs_internal.has_open_instant(instant bigint)
RETURNS boolean
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'ttl_docs_sql_has_open_instant';
COMMENT ON FUNCTION ttl_docs_internal.has_open_instant(bigint) IS
'internal: test whether an open transaction of this role has handed this instant over to other nodes of Citus';

CREATE FUNCTION ttl_docs_internal.is_shard(collection regclass)
RETURNS boolean
LANGUAGE C STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_sql_is_shard';
COMMENT ON FUNCTION ttl_docs_internal.is_shard(regclass) IS
'internal: test whether a collection whose label has "citus" is a shard of Citus';

CREATE PROCEDURE ttl_docs_internal.purge_shards(
    collection text,
    instant bigint,
    positions text,
    milliseconds integer,
    INOUT result text)
LANGUAGE C
AS 'MODULE_PATHNAME', 'ttl_docs_purge_shards';
COMMENT ON PROCEDURE ttl_docs_internal.purge_shards(text, bigint, text, integer, text) IS
'internal: purge the shards of a distributed collection that are on this node of Citus';

CREATE FUNCTION ttl_docs_internal.newly_expired(collection text, label_before text, label_after text)
RETURNS text
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'ttl_docs_node_newly_expired';
COMMENT ON FUNCTION ttl_docs_internal.newly_expired(text, text, text) IS
'internal: count documents on this node of Citus that a change of settings makes expire';

CREATE FUNCTION ttl_docs_internal.node_stats()
RETURNS text
LANGUAGE C VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'ttl_docs_node_stats';
COMMENT ON FUNCTION ttl_docs_internal.node_stats() IS
'internal: get the statistics of all shards on this node of Citus';

CREATE FUNCTION ttl_docs_internal.shard_stats(
    OUT collection regclass,
    OUT node text,
    OUT shard text,
    OUT state text,
    OUT estimated_backlog bigint,
    OUT estimated_bytes bigint,
    OUT oldest_overdue interval,
    OUT purged bigint,
    OUT batches bigint,
    OUT truncations bigint,
    OUT estimated_truncated bigint,
    OUT last_purge timestamptz,
    OUT undeletable bigint,
    OUT last_error text,
    OUT last_error_at timestamptz)
RETURNS SETOF record
LANGUAGE C VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'ttl_docs_shard_stats';
COMMENT ON FUNCTION ttl_docs_internal.shard_stats() IS
'internal: get the rows of the view stat_shards';

--
-- Internal functions, and document_ttl(), which users may call, too
--
CREATE FUNCTION ttl_docs_internal.is_live(ts timestamptz, ttl integer, collection regclass)
RETURNS boolean
LANGUAGE C STABLE PARALLEL SAFE COST 1
AS 'MODULE_PATHNAME', 'ttl_docs_is_live';
COMMENT ON FUNCTION ttl_docs_internal.is_live(timestamptz, integer, regclass) IS
'internal: test whether a document is live, in every scan of a collection';

CREATE FUNCTION ttl_docs_internal.is_live_parent(ts timestamptz, ttl integer, collection regclass)
RETURNS boolean
LANGUAGE C STABLE PARALLEL SAFE COST 1
AS 'MODULE_PATHNAME', 'ttl_docs_is_live_parent';
COMMENT ON FUNCTION ttl_docs_internal.is_live_parent(timestamptz, integer, regclass) IS
'internal: test whether a parent is live, in the validation of a foreign key';

CREATE FUNCTION ttl_docs_internal.require_live(ts timestamptz, ttl integer, collection regclass)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL SAFE COST 1
AS 'MODULE_PATHNAME', 'ttl_docs_require_live';
COMMENT ON FUNCTION ttl_docs_internal.require_live(timestamptz, integer, regclass) IS
'internal: raise a serialization failure if the target of ON CONFLICT DO UPDATE is expired';

CREATE FUNCTION ttl_docs.document_ttl(doc jsonb)
RETURNS integer
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_sql_document_ttl';
COMMENT ON FUNCTION ttl_docs.document_ttl(jsonb) IS
'get the ttl of a document: NULL if the document inherits the DefaultTTL, 0 if the ttl is invalid';

CREATE FUNCTION ttl_docs_internal.slot(ts timestamptz, ttl integer, default_ttl integer)
RETURNS bigint
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_sql_slot';
COMMENT ON FUNCTION ttl_docs_internal.slot(timestamptz, integer, integer) IS
'internal: get the slot of a document in the purge index, or NULL if it never expires';

CREATE FUNCTION ttl_docs_internal.expires_under(ts timestamptz, ttl integer, default_ttl integer)
RETURNS timestamptz
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_expires_under';
COMMENT ON FUNCTION ttl_docs_internal.expires_under(timestamptz, integer, integer) IS
'internal: get the time at which a document would expire under this DefaultTTL';

CREATE FUNCTION ttl_docs_internal.first_ts(last_modified timestamptz, adopted bigint)
RETURNS timestamptz
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_first_ts_tz';
COMMENT ON FUNCTION ttl_docs_internal.first_ts(timestamptz, bigint) IS
'internal: get the first _ts of a document in a table that is being adopted';

CREATE FUNCTION ttl_docs_internal.first_ts(last_modified timestamp, adopted bigint)
RETURNS timestamptz
LANGUAGE C STABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_first_ts';
COMMENT ON FUNCTION ttl_docs_internal.first_ts(timestamp, bigint) IS
'internal: get the first _ts of a document in a table that is being adopted';

CREATE FUNCTION ttl_docs_internal.adoption_command(collection regclass)
RETURNS text
LANGUAGE C STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_sql_adoption_command';
COMMENT ON FUNCTION ttl_docs_internal.adoption_command(regclass) IS
'internal: get the command that continues an adoption; NULL if the adoption is complete';

CREATE FUNCTION ttl_docs_internal.online_progress(
    OUT collection regclass,
    OUT pid integer,
    OUT command text,
    OUT phase text,
    OUT blocks_done bigint,
    OUT blocks_total bigint,
    OUT rows_written bigint,
    OUT rows_busy bigint)
RETURNS SETOF record
LANGUAGE C VOLATILE
AS 'MODULE_PATHNAME', 'ttl_docs_online_progress';
COMMENT ON FUNCTION ttl_docs_internal.online_progress() IS
'internal: get the progress of concurrent changes in this database';

CREATE FUNCTION ttl_docs_internal.returned_document(doc jsonb, id jsonb, ts timestamptz)
RETURNS jsonb
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_returned_document';
COMMENT ON FUNCTION ttl_docs_internal.returned_document(jsonb, jsonb, timestamptz) IS
'internal: get a document in the form in which the document functions return it';

CREATE FUNCTION ttl_docs_internal.patchable(doc jsonb)
RETURNS jsonb
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'ttl_docs_patchable';
COMMENT ON FUNCTION ttl_docs_internal.patchable(jsonb) IS
'internal: return the document, or fail if it cannot be patched';

CREATE FUNCTION ttl_docs_internal.write_document()
RETURNS trigger
LANGUAGE C VOLATILE
AS 'MODULE_PATHNAME', 'ttl_docs_write_document';
COMMENT ON FUNCTION ttl_docs_internal.write_document() IS
'internal: trigger function of the ttl_docs trigger';

-- Grant EXECUTE explicitly, because default privileges may withhold it.  Every
-- user's queries contain is_live(); the other functions check the caller's privileges.
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
       -- To find out whether the library is loaded, look for one of its settings:
       -- its functions would fail.  pg_settings does not list placeholders.
       CASE WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_settings AS g
                              WHERE g.name OPERATOR(pg_catalog.=) 'ttl_docs.purge')
            THEN 'The library is not loaded, so expired documents are visible and writes fail. Add ttl_docs to shared_preload_libraries in postgresql.conf, and restart the server.'
            WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS t
                              WHERE t.tgrelid OPERATOR(pg_catalog.=) c.collection
                                AND t.tgname OPERATOR(pg_catalog.=) 'zzz_ttl_docs')
            THEN pg_catalog.format('The table was restored without the ttl_docs trigger, so writes fail. To create the trigger: SELECT ttl_docs.adopt(%L)',
                                   c.collection)
            WHEN c.is_adopting
            THEN pg_catalog.format('The table is not completely adopted, so TTL is off. If no session adopts it now (see ttl_docs.stat_progress), continue: %s',
                                   ttl_docs_internal.adoption_command(c.collection))
            WHEN c.default_ttl IS NULL
            THEN pg_catalog.format('Nothing expires, and "ttl" in documents is ignored. To turn TTL on: SELECT ttl_docs.set_default_ttl(%L, -1)',
                                   c.collection)
            WHEN c.holds OPERATOR(pg_catalog.=) '{grace}'
            THEN pg_catalog.format('A change of settings made documents expire. They can be copied out until the hold ends. To purge them now: SELECT ttl_docs.resume_purge(%L)',
                                   c.collection)
            WHEN c.holds OPERATOR(pg_catalog.<>) '{}'
            THEN pg_catalog.format('The purge is on hold, so expired documents stay on disk. To purge them: SELECT ttl_docs.resume_purge(%L)',
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
               AS purge_subscribed,
               s.settings OPERATOR(pg_catalog.?) 'adopting' AS is_adopting
          FROM pg_catalog.pg_seclabel AS l
          JOIN pg_catalog.pg_database AS d
            ON d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database(),
               LATERAL (SELECT l.label::pg_catalog.jsonb AS settings) AS s
         WHERE l.provider OPERATOR(pg_catalog.=) 'ttl_docs'
           AND l.classoid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass
           AND l.objsubid OPERATOR(pg_catalog.=) 0
           -- Omit shards of Citus: they belong to the distributed table.
           AND CASE WHEN (s.settings OPERATOR(pg_catalog.->>) 'citus')::pg_catalog.bool
                    THEN NOT ttl_docs_internal.is_shard(l.objoid)
                    ELSE true END
           -- Omit partitions: their label is a copy of the root's.
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits AS i
                             JOIN pg_catalog.pg_seclabel AS p
                               ON p.objoid OPERATOR(pg_catalog.=) i.inhparent
                              AND p.classoid OPERATOR(pg_catalog.=) l.classoid
                              AND p.objsubid OPERATOR(pg_catalog.=) 0
                              AND p.provider OPERATOR(pg_catalog.=) 'ttl_docs'
                            WHERE i.inhrelid OPERATOR(pg_catalog.=) l.objoid)) AS c;
COMMENT ON VIEW ttl_docs.collections IS 'collections of this database and their settings';
COMMENT ON COLUMN ttl_docs.collections.collection IS
'table of the collection';
COMMENT ON COLUMN ttl_docs.collections.doc_column IS
'column of type jsonb that holds the documents';
COMMENT ON COLUMN ttl_docs.collections.default_ttl IS
'DefaultTTL: seconds, -1 (on, without a default) or NULL (off)';
COMMENT ON COLUMN ttl_docs.collections.mode IS
'whether TTL is on: off, on, or on (no default) if the DefaultTTL is -1';
COMMENT ON COLUMN ttl_docs.collections.indexing IS
'how the purge finds expired documents: consistent, lazy or none';
COMMENT ON COLUMN ttl_docs.collections.holds IS
'reasons why the purge does not delete expired documents: paused, restored, grace';
COMMENT ON COLUMN ttl_docs.collections.hint IS
'what to do if documents do not expire or are not purged';
COMMENT ON COLUMN ttl_docs.collections.purge_subscribed IS
'whether this server purges the collection even if a subscription writes to it';
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
       s.truncations,
       s.estimated_truncated,
       s.last_purge,
       s.undeletable,
       s.last_error,
       s.last_error_at
  FROM ttl_docs.collections AS c,
       LATERAL ttl_docs_internal.collection_stats(c.collection) AS s;
COMMENT ON VIEW ttl_docs.stat_collections IS
'state of the purge of each collection of this database, and statistics since the server started';
COMMENT ON COLUMN ttl_docs.stat_collections.collection IS
'table of the collection';
COMMENT ON COLUMN ttl_docs.stat_collections.state IS
'what the purge does with the collection, or why it does nothing';
COMMENT ON COLUMN ttl_docs.stat_collections.hint IS
'what to do about the state';
COMMENT ON COLUMN ttl_docs.stat_collections.estimated_backlog IS
'estimated number of expired documents on disk, or NULL if some tables are not counted';
COMMENT ON COLUMN ttl_docs.stat_collections.estimated_bytes IS
'estimated disk space of these documents without indexes, in bytes, or NULL if it is unknown';
COMMENT ON COLUMN ttl_docs.stat_collections.oldest_overdue IS
'time since the first of these documents expired, or NULL if there is none, or if the indexing is lazy';
COMMENT ON COLUMN ttl_docs.stat_collections.purged IS
'number of documents that were purged';
COMMENT ON COLUMN ttl_docs.stat_collections.batches IS
'number of transactions that purged them';
COMMENT ON COLUMN ttl_docs.stat_collections.truncations IS
'number of times that a table was truncated because all its documents had expired';
COMMENT ON COLUMN ttl_docs.stat_collections.estimated_truncated IS
'estimated number of documents that these truncations removed; purged does not include them';
COMMENT ON COLUMN ttl_docs.stat_collections.last_purge IS
'when documents were last purged';
COMMENT ON COLUMN ttl_docs.stat_collections.undeletable IS
'number of expired documents that could not be deleted; the purge retries them';
COMMENT ON COLUMN ttl_docs.stat_collections.last_error IS
'last error of the purge; only the owner and members of pg_read_all_stats see it';
COMMENT ON COLUMN ttl_docs.stat_collections.last_error_at IS
'when the last error occurred';
GRANT SELECT ON ttl_docs.stat_collections TO PUBLIC;

-- While core builds an index, it counts the blocks itself.
CREATE VIEW ttl_docs.stat_progress AS
SELECT p.collection,
       p.pid,
       p.command,
       p.phase,
       p.blocks_done,
       p.blocks_total,
       p.rows_written,
       p.rows_busy,
       CASE WHEN p.blocks_total OPERATOR(pg_catalog.>) 0
            THEN pg_catalog.round(LEAST(100.0,
                     100.0 OPERATOR(pg_catalog.*) p.blocks_done OPERATOR(pg_catalog./) p.blocks_total), 1)
       END AS percent
  FROM (SELECT o.collection, o.pid, o.command, o.phase,
               CASE WHEN i.pid IS NULL THEN o.blocks_done ELSE i.blocks_done END AS blocks_done,
               CASE WHEN i.pid IS NULL THEN o.blocks_total ELSE i.blocks_total END AS blocks_total,
               o.rows_written, o.rows_busy
          FROM ttl_docs_internal.online_progress() AS o
          LEFT JOIN pg_catalog.pg_stat_progress_create_index AS i
            ON i.pid OPERATOR(pg_catalog.=) o.pid) AS p;
COMMENT ON VIEW ttl_docs.stat_progress IS
'progress of concurrent changes of collections in this database';
COMMENT ON COLUMN ttl_docs.stat_progress.collection IS
'table that is being changed';
COMMENT ON COLUMN ttl_docs.stat_progress.pid IS
'process ID of the session that changes it';
COMMENT ON COLUMN ttl_docs.stat_progress.command IS
'procedure that the session runs';
COMMENT ON COLUMN ttl_docs.stat_progress.phase IS
'what the procedure does now';
COMMENT ON COLUMN ttl_docs.stat_progress.blocks_done IS
'blocks that this phase has read';
COMMENT ON COLUMN ttl_docs.stat_progress.blocks_total IS
'blocks that this phase has to read';
COMMENT ON COLUMN ttl_docs.stat_progress.rows_written IS
'rows that the procedure has written so far';
COMMENT ON COLUMN ttl_docs.stat_progress.rows_busy IS
'rows that wait for other sessions';
COMMENT ON COLUMN ttl_docs.stat_progress.percent IS
'percentage of the blocks of this phase; NULL if there are none';
GRANT SELECT ON ttl_docs.stat_progress TO PUBLIC;

CREATE VIEW ttl_docs.stat_shards AS
SELECT s.collection,
       s.node,
       s.shard,
       s.state,
       s.estimated_backlog,
       s.estimated_bytes,
       s.oldest_overdue,
       s.purged,
       s.batches,
       s.truncations,
       s.estimated_truncated,
       s.last_purge,
       s.undeletable,
       s.last_error,
       s.last_error_at
  FROM ttl_docs_internal.shard_stats() AS s;
COMMENT ON VIEW ttl_docs.stat_shards IS
'state of the purge of each shard on each node of Citus, and statistics since the node started; empty without Citus';
COMMENT ON COLUMN ttl_docs.stat_shards.collection IS
'distributed table of the collection, or NULL if it is not known';
COMMENT ON COLUMN ttl_docs.stat_shards.node IS
'host and port of the node';
COMMENT ON COLUMN ttl_docs.stat_shards.shard IS
'table on that node that holds the documents of the shard';
COMMENT ON COLUMN ttl_docs.stat_shards.state IS
'what the purge does with the shard, or why it does nothing';
COMMENT ON COLUMN ttl_docs.stat_shards.estimated_backlog IS
'estimated number of expired documents on disk, or NULL if some tables are not counted';
COMMENT ON COLUMN ttl_docs.stat_shards.estimated_bytes IS
'estimated disk space of these documents without indexes, in bytes, or NULL if it is unknown';
COMMENT ON COLUMN ttl_docs.stat_shards.oldest_overdue IS
'time since the first of these documents expired, or NULL if there is none, or if the indexing is lazy';
COMMENT ON COLUMN ttl_docs.stat_shards.purged IS
'number of documents that were purged';
COMMENT ON COLUMN ttl_docs.stat_shards.batches IS
'number of transactions that purged them';
COMMENT ON COLUMN ttl_docs.stat_shards.truncations IS
'number of times that a table was truncated because all its documents had expired';
COMMENT ON COLUMN ttl_docs.stat_shards.estimated_truncated IS
'estimated number of documents that these truncations removed; purged does not include them';
COMMENT ON COLUMN ttl_docs.stat_shards.last_purge IS
'when documents were last purged';
COMMENT ON COLUMN ttl_docs.stat_shards.undeletable IS
'number of expired documents that could not be deleted; the purge retries them';
COMMENT ON COLUMN ttl_docs.stat_shards.last_error IS
'last error of the purge, or why the node did not answer; only the owner and members of pg_read_all_stats see errors of the purge';
COMMENT ON COLUMN ttl_docs.stat_shards.last_error_at IS
'when the last error occurred';
GRANT SELECT ON ttl_docs.stat_shards TO PUBLIC;

#!/usr/bin/env bash
# Measures the document functions against the SQL that they stand for, as ratios of
# transactions a second within one run.  Higher is better; 1.00 is the SQL.
#
#	bench/documents.sh
#	ROWS=100000 ROUNDS=9 SECONDS_EACH=2 ...
#	PG_CONFIG=/path/to/pg_config ...
#
# Prepared statements of one client, interleaved, medians of the ratios of each round.
# The function also puts id and _ts into the document that it returns.

# shellcheck source=bench/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

readonly ROWS=${ROWS:-100000}
readonly ROUNDS=${ROUNDS:-7}
readonly SECONDS_EACH=${SECONDS_EACH:-2}

tps() {
	"$PG_BIN/pgbench" -h "$SOCKET_DIR" -U postgres -n -M prepared -c 1 -T "$SECONDS_EACH" \
		-f "$1" bench 2>/dev/null | sed -n 's/^tps = \([0-9.]*\).*/\1/p'
}

# Compares two scripts of pgbench: name, function, SQL.
compare() {
	local round by_function by_sql
	{ say '\set i random(1, :rows)' "$2"; } | sed "s/:rows/$ROWS/" >"$SCRATCH/function.pgbench"
	{ say '\set i random(1, :rows)' "$3"; } | sed "s/:rows/$ROWS/" >"$SCRATCH/sql.pgbench"
	: >"$SCRATCH/ratios"
	for ((round = 1; round <= ROUNDS; round++)); do
		by_function=$(tps "$SCRATCH/function.pgbench")
		by_sql=$(tps "$SCRATCH/sql.pgbench")
		ratio "$by_function" "$by_sql" >>"$SCRATCH/ratios"
	done
	say "$1: $(median <"$SCRATCH/ratios") ($(sort -n "$SCRATCH/ratios" | head -n 1) to $(sort -n "$SCRATCH/ratios" | tail -n 1))"
}

bench_server
sql >/dev/null <<-SQL
	SELECT ttl_docs.create_collection('docs', 86400);
	INSERT INTO docs (id, doc)
	SELECT n::text, jsonb_build_object('id', n::text, 'n', n, 'text', repeat('x', 100))
	  FROM generate_series(1, $ROWS) AS n;
	CREATE INDEX ON docs USING gin (doc jsonb_path_ops) WITH (fastupdate = off);
	VACUUM ANALYZE docs;

	CREATE TABLE parts (id text PRIMARY KEY, doc jsonb) PARTITION BY HASH (id);
	SELECT format('CREATE TABLE parts%s PARTITION OF parts FOR VALUES WITH (MODULUS 64, REMAINDER %s)', i, i)
	  FROM generate_series(0, 63) AS i \gexec
	SELECT ttl_docs.adopt('parts', 86400);
	INSERT INTO parts SELECT id, doc FROM docs;
	VACUUM ANALYZE parts;
SQL
say "" "PostgreSQL $(sql -c 'SHOW server_version'), $(nproc) processors, $ROWS documents, medians of $ROUNDS rounds"

# :i is a number, which prepared statements send as text.
compare 'read_document   ' \
	"SELECT ttl_docs.read_document('docs', (:i)::text);" \
	"SELECT doc FROM docs WHERE id = (:i)::text;"
compare 'documents       ' \
	"SELECT ttl_docs.documents('docs', jsonb_build_object('n', (:i)::int));" \
	"SELECT doc FROM docs WHERE doc @> jsonb_build_object('n', (:i)::int);"
compare 'touch_document  ' \
	"SELECT ttl_docs.touch_document('docs', (:i)::text);" \
	"UPDATE docs SET _ts = DEFAULT WHERE id = (:i)::text;"
compare 'replace_document' \
	"SELECT ttl_docs.replace_document('docs', jsonb_build_object('id', (:i)::text, 'n', 1));" \
	"UPDATE docs SET doc = jsonb_build_object('id', (:i)::text, 'n', 1) WHERE id = (:i)::text RETURNING doc;"
compare 'patch_document  ' \
	"SELECT ttl_docs.patch_document('docs', (:i)::text, '{\"m\": 1}');" \
	"UPDATE docs SET doc = doc || '{\"m\": 1}' WHERE id = (:i)::text RETURNING doc;"
compare 'upsert_document ' \
	"SELECT ttl_docs.upsert_document('docs', jsonb_build_object('id', (:i)::text, 'n', 2));" \
	"INSERT INTO docs (id, doc) VALUES ((:i)::text, jsonb_build_object('id', (:i)::text, 'n', 2)) ON CONFLICT (id) DO UPDATE SET doc = excluded.doc RETURNING doc;"
compare 'create_document ' \
	"SELECT ttl_docs.create_document('docs', '{\"n\": 3, \"text\": \"new\"}');" \
	"INSERT INTO docs (id, doc) SELECT new.id, jsonb_build_object('id', new.id, 'n', 3, 'text', 'new') FROM (SELECT gen_random_uuid()::text AS id) AS new RETURNING doc;"
compare 'read, of 64 partitions ' \
	"SELECT ttl_docs.read_document('parts', (:i)::text);" \
	"SELECT doc FROM parts WHERE id = (:i)::text;"
compare 'touch, of 64 partitions' \
	"SELECT ttl_docs.touch_document('parts', (:i)::text);" \
	"UPDATE parts SET _ts = DEFAULT WHERE id = (:i)::text;"

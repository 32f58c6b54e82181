#!/usr/bin/env bash
# Measures the purge on a PostgreSQL of its own, as ratios within one run.
#
#	bench/purge.sh              everything ("make bench")
#	ROWS=200000 ROUNDS=3 ...    smaller, or more often
#	PG_CONFIG=/path/to/pg_config ...
#
# 1. Purge of expired documents on an idle server, against one DELETE of as many rows
#    of a plain table with the same columns and indexes.  Higher is better.
# 2. Throughput of a load that saturates the server while a backlog is purged, against
#    windows of the same run without purge.  Higher is better.
# 3. 99th percentile of the latency at a fixed rate (pgbench -R, about half of what the
#    server can do), likewise.  Lower is better.
#
# Windows alternate, and medians are compared: the machine may be noisy.
# shellcheck source=bench/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

readonly ROWS=${ROWS:-1000000}
readonly ROUNDS=${ROUNDS:-5}
readonly WINDOW=${WINDOW:-6}	# seconds
readonly CLIENTS=${CLIENTS:-8}

set_purge() {
	sql -c "ALTER SYSTEM SET ttl_docs.purge = $1" -c "SELECT pg_reload_conf()" >/dev/null
}

# Makes the collection "docs", whose documents expire while they are written, or soon
# after: as many as it is told.
make_backlog() {
	sql >/dev/null <<-SQL
		SELECT ttl_docs.drop_collection(collection) FROM ttl_docs.collections;
		SELECT ttl_docs.create_collection('docs', 10);
		INSERT INTO docs (id, doc)
		SELECT n::text, jsonb_build_object('n', n, 'text', repeat('x', 60))
		  FROM generate_series(1, $1) AS n;
		VACUUM ANALYZE docs;
		SELECT ttl_docs.set_default_ttl('docs', 1);
		SELECT pg_sleep(3);
	SQL
}

idle_purge() {
	local round delete_time purge_time began
	for ((round = 1; round <= ROUNDS; round++)); do
		set_purge off
		make_backlog "$ROWS"
		sql >/dev/null <<-SQL
			CREATE TABLE plain AS SELECT * FROM docs;
			ALTER TABLE plain ADD PRIMARY KEY (id);
			CREATE INDEX ON plain (_slot) WHERE _slot IS NOT NULL;
			VACUUM ANALYZE plain;
		SQL
		sql -c CHECKPOINT
		delete_time=$(sql <<-'SQL'
			SELECT clock_timestamp() AS began \gset
			DELETE FROM plain WHERE _slot < 0;
			SELECT extract(epoch FROM clock_timestamp() - :'began'::timestamptz);
		SQL
		)
		sql -c "DROP TABLE plain" -c CHECKPOINT
		# From the reload, which wakes the launcher, to the last batch.
		began=$(sql <<-'SQL'
			ALTER SYSTEM SET ttl_docs.purge = on;
			SELECT clock_timestamp();
			SELECT pg_reload_conf() \g /dev/null
		SQL
		)
		# Not too often: whoever asks is a client at work.
		until [[ $(sql -c "SELECT purged = $ROWS FROM ttl_docs.stat_collections") == t ]]; do
			sleep 3
		done
		purge_time=$(sql -c "SELECT extract(epoch FROM last_purge - '$began') FROM ttl_docs.stat_collections")
		say "$(ratio "$delete_time" "$purge_time")"
	done | tee "$SCRATCH/idle"
	say "purge of $ROWS documents, idle server: $(median <"$SCRATCH/idle") of the speed of one DELETE"
}

# Runs pgbench with the given options for two windows a round, and the purge on in
# every other.  Prints the epoch at which each window begins, and whether it purges.
windows() {
	local round
	"$PG_BIN/pgbench" -h "$SOCKET_DIR" -U postgres -n -N -c "$CLIENTS" -j 2 -M prepared \
		-T $((2 * ROUNDS * (WINDOW + 2) + 4)) "$@" bench >"$SCRATCH/pgbench.out" 2>"$SCRATCH/pgbench.err" &
	sleep 2
	for ((round = 1; round <= ROUNDS; round++)); do
		say "$(date +%s) off"
		sleep "$((WINDOW + 1))"
		set_purge on
		sleep 1
		say "$(date +%s) on"
		sleep "$((WINDOW + 1))"
		set_purge off
		sleep 1
	done
	wait
}

# Prints a number for each window, "off NUMBER" or "on NUMBER", from the log of pgbench:
# transactions a second, or the 99th percentile of their latency.
per_window() {
	local begin kind count
	while read -r begin kind; do
		cat "$SCRATCH"/log.* | awk -v begin="$begin" -v end="$((begin + WINDOW))" \
			'$5 >= begin && $5 < end { print $3 }' | sort -n >"$SCRATCH/latencies"
		count=$(wc -l <"$SCRATCH/latencies")
		case $1 in
			tps) say "$kind $((count / WINDOW))" ;;
			p99) say "$kind $(sed -n "$((count * 99 / 100))p" "$SCRATCH/latencies")" ;;
		esac
	done <"$SCRATCH/windows"
}

compare() {
	local with without purged
	without=$(awk '$1 == "off" { print $2 }' "$SCRATCH/numbers" | median)
	with=$(awk '$1 == "on" { print $2 }' "$SCRATCH/numbers" | median)
	purged=$(sql -c "SELECT purged FROM ttl_docs.stat_collections")
	say "$1: $(ratio "$with" "$without") ($with with purge, $without without; $purged documents purged meanwhile)"
	((purged < $2)) || say "    and the backlog was not enough for all windows: take more ROWS, or fewer ROUNDS"
}

loaded_purge() {
	local rate
	"$PG_BIN/pgbench" -h "$SOCKET_DIR" -U postgres -i -q -s 10 bench >/dev/null 2>&1

	set_purge off
	make_backlog "$ROWS"
	windows -l --log-prefix="$SCRATCH/log" >"$SCRATCH/windows"
	per_window tps >"$SCRATCH/numbers"
	compare "throughput, saturated, while documents are purged" "$ROWS"
	rate=$(awk '$1 == "off" { print $2 }' "$SCRATCH/numbers" | median)
	rm -f "$SCRATCH"/log.*

	# There is more time left over.
	make_backlog $((4 * ROWS))
	windows -l --log-prefix="$SCRATCH/log" -R "$(awk -v r="$rate" 'BEGIN { printf "%d", r / 2 }')" >"$SCRATCH/windows"
	per_window p99 >"$SCRATCH/numbers"
	compare "latency (99th percentile, microseconds) at half that rate" $((4 * ROWS))
}

bench_server
say "" "PostgreSQL $(sql -c 'SHOW server_version'), $(nproc) processors, $ROWS documents, medians of $ROUNDS rounds"
idle_purge
loaded_purge

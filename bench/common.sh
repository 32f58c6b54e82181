# shellcheck shell=bash
# What the benchmarks share: a private server that is built for speed, SQL, and numbers.
# To be sourced.
set -uo pipefail
export LC_ALL=C

# shellcheck source=test/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/../test/env.sh"

SCRATCH=

leave() {
	trap - EXIT
	if [[ -n $SCRATCH ]]; then
		stop_servers_below "$SCRATCH"
		cd / && rm -rf "$SCRATCH"
	fi
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Runs SQL from standard input; prints bare values.
sql() {
	PGOPTIONS='-c ttl_docs.show_expired=on' "$PG_BIN/psql" -h "$SOCKET_DIR" -U postgres -d bench -X -q -A -t -v ON_ERROR_STOP=1 "$@"
}

# The median of numbers, one a line.
median() {
	sort -n | awk '{ v[NR] = $1 } END { if (NR) print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

ratio() {
	awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.2f\n", a / b }'
}

# Starts a server with ttl_docs, and a database "bench" in it.
bench_server() {
	require_tools build
	become_unprivileged
	make_scratch ttl_docs-bench.XXXXXX
	private_postgres ''
	cat >"$SCRATCH/bench.conf" <<-'CONF'
		shared_preload_libraries = 'ttl_docs'
		shared_buffers = '1GB'
		max_wal_size = '8GB'
		checkpoint_timeout = '1h'
		autovacuum = off
		fsync = off
		ttl_docs.purge = off
	CONF
	start_server "$SCRATCH/bench.conf"
	"$PG_BIN/createdb" -h "$SOCKET_DIR" -U postgres bench || die "could not create a database: $(tail -n 20 "$SCRATCH/server.log")"
	sql -c 'CREATE EXTENSION ttl_docs'
}

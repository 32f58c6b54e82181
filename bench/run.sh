#!/usr/bin/env bash
# Measures ttl_docs on a PostgreSQL of its own, beside what a user would do instead.
#
#	bench/run.sh                       everything ("make bench"), half an hour; writes bench/RESULTS.md,
#	                                   bench/results.json and bench/plots
#	bench/run.sh insert copy           only these of bench/workloads; of the others, what was
#	                                   found last stays
#	bench/run.sh --quick ...           less data and fewer rounds ("make bench-quick"); prints only
#	PG_CONFIG=/path/to/pg_config ...   on that PostgreSQL
#
# pg_cron and valgrind take part where their packages can be had.
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

require_psycopg2() {
	have_psycopg2 || { require_apt && apt_install python3-psycopg2; } || die "needs python3 with psycopg2"
}

require_cron() {
	local library
	library=$("$PG_CONFIG" --pkglibdir)/pg_cron.so
	[[ -e $library ]] || { require_apt && apt_install "postgresql-$(pg_major "$PG_CONFIG")-cron"; } ||
		say "without pg_cron: found no package of it"
}

require_valgrind() {
	command -v valgrind >/dev/null || { require_apt && apt_install valgrind; } ||
		say "without counts of instructions: found no valgrind"
}

require_tools build
require_psycopg2
quick=no
case "${1:-}" in
	--quick) quick=yes ;;
	"")
		require_cron
		require_valgrind
		;;
esac
become_unprivileged
make_scratch ttl_docs-bench.XXXXXX
private_postgres ''
as_server env PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 "$SCRATCH/source/bench/bench.py" \
	--programs "$PG_BIN" --scratch "$SCRATCH/servers" --results "$SCRATCH/source/bench" "$@" || exit
if [[ $quick == no ]]; then
	mkdir -p "$REPO/bench/plots"
	cp "$SCRATCH/source/bench/RESULTS.md" "$SCRATCH/source/bench/results.json" "$REPO/bench"
	cp "$SCRATCH"/source/bench/plots/*.svg "$REPO/bench/plots"
fi

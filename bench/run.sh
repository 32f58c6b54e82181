#!/usr/bin/env bash
# Compares ttl_docs with what a user would do instead, on a private PostgreSQL.
#
#	bench/run.sh                       runs everything ("make bench") in about 40 minutes; writes
#	                                   bench/RESULTS.md, bench/results.json and bench/plots
#	bench/run.sh insert copy           runs these workloads of bench/workloads; keeps the last
#	                                   results of the others
#	bench/run.sh --quick ...           uses less data and fewer rounds ("make bench-quick"); only
#	                                   prints
#	PG_CONFIG=/path/to/pg_config ...   uses this PostgreSQL
#
# pg_cron and valgrind take part if their packages are available.
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

quick=no
if [[ ${1:-} == --quick ]]; then
	quick=yes
fi
if (($# == 0)); then
	require_packages bench
else
	require_packages bench_quick
fi
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

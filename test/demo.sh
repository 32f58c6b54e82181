#!/usr/bin/env bash
# Shows how documents expire, on a private PostgreSQL that keeps running.
#
#	test/demo.sh        starts a new demo ("make demo")
#	test/demo.sh stop   stops the server and removes it ("make demo-stop")
#
# Each user has one demo.  Its directory always has the same name, so that the next demo and "stop"
# find it.
set -uo pipefail

# shellcheck source=test/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

readonly DEMO_NAME=ttl_docs-demo-$EUID
readonly DATABASE=demo
SCRATCH=

# Removes an earlier demo of this user.  Skips a directory of this name that belongs to another
# user.
remove_demo() {
	local parent directory pid
	for parent in $(scratch_parents); do
		directory=$parent/$DEMO_NAME
		[[ -d $directory && ! -L $directory && $(stat -c %U "$directory") == "$SERVER_USER" ]] || continue
		if pid=$(server_pid "$directory/data"); then
			say "stopping the demo server, process $pid"
			# a fast shutdown, which ends open sessions
			kill -INT "$pid"
			for _ in {1..100}; do
				server_pid "$directory/data" >/dev/null || break
				sleep 0.1
			done
			! server_pid "$directory/data" >/dev/null || die "the demo server of $directory does not stop"
		fi
		rm -rf "$directory"
	done
}

# Removes everything after a failure or ^C, until the demo has been shown.
leave_nothing() {
	if [[ -n $SCRATCH ]]; then
		cd / && remove_demo
	fi
}

become_unprivileged
if [[ ${1:-} == stop ]]; then
	remove_demo
	exit
fi

require_packages build
# The packages may have created the user postgres.
become_unprivileged
remove_demo
trap leave_nothing EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

make_scratch "$DEMO_NAME"
private_postgres ''
rm -rf "$SCRATCH/source"
echo "shared_preload_libraries = 'ttl_docs'" | as_server tee "$SCRATCH/demo.conf" >/dev/null
start_server "$SCRATCH/demo.conf"

connect=(-h "$SOCKET_DIR" -p 5432 -U postgres)
"$PG_BIN/createdb" "${connect[@]}" "$DATABASE" || die "could not create a database"
say ""
"$PG_BIN/psql" "${connect[@]}" -d "$DATABASE" -X -q -a -P pager=off -v ON_ERROR_STOP=1 \
	-f "$REPO/test/demo.sql" ||
	die "the demo failed; the end of the server's log: $(tail -n 20 "$SCRATCH/server.log")"
trap - EXIT

psql=$PG_BIN/psql
if command -v psql >/dev/null; then
	psql=psql
fi
say "" "The server keeps running.  To connect:" \
	"    $psql ${connect[*]} $DATABASE" \
	"To stop and remove it:" \
	"    make demo-stop"

#!/usr/bin/env bash
# Runs the applications below test/orm, each with its ORM, on a private PostgreSQL with ttl_docs, and
# through a pgbouncer in transaction mode.
#
#	test/orm/run.sh               runs all of them ("make test-orm")
#	TESTS="django typeorm" ...    runs these applications
#	PG_CONFIG=/path/to/pg_config ...
#
# An application is a directory with a file app.sh.  The scripts source this file, which defines:
#	packages=(...)      the Debian packages that the application needs
#	have_packages       succeeds if these packages, or their programs, are there
#	prepare             optional: fetches other things, as the user who runs this script
#	run_tests           runs the tests of the application, as the server's user
# Some directories have adapters, one file for each ORM, driver or store.  adapter.py, behaviours.py and
# stores.py have the tests for them.
#
# The functions run in a copy of the directory.  An application whose packages are not available is
# skipped and named.
#
# Each application has a database of its name, which belongs to the role "app".  This is an ordinary
# role, which may set ttl_docs.clock_offset.  The environment has:
#	PGHOST PGPORT PGUSER PGDATABASE    the server, by its socket
#	POOL_HOST POOL_PORT                the same database through pgbouncer
#
# The last line is "N passed, N failed"; each application counts as one.
set -uo pipefail
export LC_ALL=C.UTF-8

# shellcheck source=test/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/../env.sh"

readonly TIME_LIMIT=${TEST_TIME_LIMIT:-600}
readonly CALLERS_HOME=$HOME
# The last lines of the test runners, which are printed after "ok".
readonly COUNTS='^ *\(== [A-Za-z.-]*$\|Ran [0-9]* tests\|[0-9]* runs, \|[#ℹ] pass [0-9]\)'
# Number of lines printed of the log of an application that failed.
readonly SHOWN_LINES=200

SCRATCH=
apps=()
passed=0
failures=()
skipped=()

select_apps() {
	local file name
	for file in "$REPO"/test/orm/*/app.sh; do
		name=$(basename "$(dirname "$file")")
		[[ -n ${TESTS:-} && " $TESTS " != *" $name "* ]] || apps+=("$name")
	done
	for name in ${TESTS:-}; do
		[[ " ${apps[*]} " == *" $name "* ]] || die "there is no application $name"
	done
	((${#apps[@]} > 0)) || die "there are no applications"
}

# Runs a function of an application, in its copy of the directory.
in_app() {
	local app=$1 function=$2
	(
		# shellcheck disable=SC2317
		prepare() { :; }
		cd "$SCRATCH/source/test/orm/$app" || exit
		# shellcheck source=/dev/null
		source ./app.sh && "$function"
	)
}

print_packages() {
	# shellcheck disable=SC2154
	say "${packages[@]}"
}

# Starts pgbouncer in transaction mode, with a private socket like the server.
start_pool() {
	local program
	program=$(PATH=$PATH:/usr/sbin type -P pgbouncer) || return 1
	as_server mkdir -m 700 "$SCRATCH/pool"
	as_server tee "$SCRATCH/pool/users.txt" >/dev/null <<<'"app" ""'
	as_server tee "$SCRATCH/pool/pgbouncer.ini" >/dev/null <<-EOF2
		[databases]
		* = host=$SOCKET_DIR port=5432
		[pgbouncer]
		unix_socket_dir = $SCRATCH/pool
		listen_port = 5432
		auth_type = trust
		auth_file = $SCRATCH/pool/users.txt
		pool_mode = transaction
		default_pool_size = 4
		ignore_startup_parameters = extra_float_digits,options
		logfile = $SCRATCH/pool/pgbouncer.log
		pidfile = $SCRATCH/pool/pgbouncer.pid
	EOF2
	as_server "$program" -q -d "$SCRATCH/pool/pgbouncer.ini" >/dev/null 2>&1 </dev/null || return 1
	export POOL_HOST=$SCRATCH/pool POOL_PORT=5432
}

stop_pool() {
	local pid
	[[ -f $SCRATCH/pool/pgbouncer.pid ]] && read -r pid <"$SCRATCH/pool/pgbouncer.pid" || return 0
	signal_server TERM "$pid" 2>/dev/null
}

admin() {
	as_server "$PG_BIN/psql" -h "$SOCKET_DIR" -p 5432 -U postgres -X -q -v ON_ERROR_STOP=1 "$@"
}

# Adapters of adapter.py move the clock of the server.  One that was killed has not moved it back.
make_database() {
	admin -d postgres -c 'ALTER SYSTEM RESET ttl_docs.clock_offset' -c 'SELECT pg_reload_conf()' \
		-c "CREATE DATABASE $1 OWNER app" >/dev/null &&
		admin -d "$1" -c 'CREATE EXTENSION ttl_docs'
}

run_app() {
	local app=$1 log=$SCRATCH/$1.log
	printf '%-20s ' "$app"
	if ! in_app "$app" have_packages >"$log" 2>&1; then
		say "skipped: these packages are not available: $(in_app "$app" print_packages | tr '\n' ' ')"
		skipped+=("$app")
	elif ! HOME=$CALLERS_HOME in_app "$app" prepare >"$log" 2>&1; then
		say "skipped: could not fetch what the application needs: $(grep -v '^$' "$log" | tail -n 1)"
		skipped+=("$app")
	elif make_database "$app" && run_as_server "$app" >"$log" 2>&1; then
		say "ok"
		sed -n 's/^/    /; /'"$COUNTS"'/p' "$log"
		passed=$((passed + 1))
	else
		say "FAILED"
		tail -n "$SHOWN_LINES" "$log"
		failures+=("$app")
	fi
}

run_as_server() {
	# shellcheck disable=SC2016
	PATH=$PG_BIN:$PATH PGHOST=$SOCKET_DIR PGPORT=5432 PGUSER=app PGDATABASE=$1 \
		"${SERVER_USER_PREFIX[@]}" timeout -k 10 "$TIME_LIMIT" \
		bash -c 'cd "$1" && source ./app.sh && run_tests' - "$SCRATCH/source/test/orm/$1" </dev/null
}

leave() {
	local status=$? name
	trap - EXIT
	if [[ -n $SCRATCH ]]; then
		stop_pool
		stop_servers_below "$SCRATCH"
		cd / && rm -rf "$SCRATCH"
	fi
	say ""
	for name in "${failures[@]}"; do
		say "failed: $name"
	done
	for name in "${skipped[@]}"; do
		say "skipped: $name"
	done
	say "$passed passed, $((${#apps[@]} - passed - ${#skipped[@]})) failed, ${#skipped[@]} skipped"
	if ((status == 0 && (passed == 0 || passed + ${#skipped[@]} < ${#apps[@]}))); then
		status=1
	fi
	exit "$status"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

select_apps
require_packages orm
become_unprivileged
make_scratch ttl_docs-orm.XXXXXX
private_postgres '-Werror -DUSE_ASSERT_CHECKING'
start_server "$SCRATCH/source/test/orm/server.conf"
start_pool || die "could not start pgbouncer, which all applications use; please install it"
admin -d postgres -c 'CREATE ROLE app LOGIN' \
	-c 'GRANT SET ON PARAMETER ttl_docs.clock_offset TO app' || die "could not create the role"
say "" "== applications"
for app in "${apps[@]}"; do
	run_app "$app"
done

#!/usr/bin/env bash
# Shows how documents expire, on a private PostgreSQL that keeps running.
#
#	test/demo.sh        starts a new demo ("make demo")
#	test/demo.sh stop   stops the server and removes it ("make demo-stop")
#
# Before it changes anything, it prints which packages it will install, where the server will be, and
# how to remove both.  If it has to install packages, it asks first, provided that somebody can answer.
#
# Each user has one demo.  Its directory always has the same name, so that the next demo and "stop"
# find it.
set -uo pipefail

# shellcheck source=test/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

readonly DEMO_NAME=ttl_docs-demo-$EUID
readonly DATABASE=demo
# The size of the directory with PostgreSQL 18, the largest one, rounded up.
readonly SERVER_SIZE="80 MB"
SCRATCH=
# The packages that this demo installs.
INSTALLED=()

# ---- The directory ----

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
			signal_server INT "$pid"
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

# Chooses the parent of the directory before make_scratch creates it, so that we can name it.
choose_parent() {
	local parent probe usable=no
	for parent in $(scratch_parents); do
		probe=$(mktemp -d "$parent/$DEMO_NAME.XXXXXX") || continue
		chown "$SERVER_USER" "$probe"
		if usable_by_server "$probe"; then
			usable=yes
		fi
		rm -rf "$probe"
		if [[ $usable == yes ]]; then
			TMPDIR=$parent
			return
		fi
	done
}

# ---- What the user reads ----

# Prints the command that removes the packages.  Not --autoremove: it would keep packages that others
# suggest, and remove packages that the user no longer needs.
removal() {
	say "${AS_ROOT[*]:+${AS_ROOT[*]} }apt-get purge ${INSTALLED[*]}" | fold -s -w 90 | sed -e 's/^/    /' -e '$!s/ *$/ \\/'
}

explain_removal() {
	say "To stop and remove the server:" "    make demo-stop"
	if ((${#INSTALLED[@]} > 0)); then
		say "To remove the packages of the demo:"
		removal
	fi
}

introduce() {
	say "This demo starts a private PostgreSQL with ttl_docs and shows how rows expire."
	if ((${#NEEDED[@]} > 0)); then
		say "It installs these packages, and the packages that they depend on:" "    ${NEEDED[*]}"
		print_size
		say "They create the user postgres, which stays if you remove them.  They start no server."
	else
		say "It installs no packages."
	fi
	say "Its server is in ${TMPDIR:-/tmp}/$DEMO_NAME, takes less than $SERVER_SIZE, and has no network port." \
		"Nothing else on this machine changes."
	explain_removal
	if ((${#NEEDED[@]} > 0)) && [[ -t 0 ]]; then
		read -rp "Press Enter to go on, or Ctrl-C to stop. " || exit 1
	fi
}

# Copies the output of psql, with an empty line before each step.  On a terminal, comments are bold.
# Leaves out the results of functions that return nothing: a header, a line, and a row of blanks.
show() {
	local line bold='' normal='' held=()
	local header='^ +[a-z_]+ +(\| +[a-z_]+ +)*$' empty='^[ |]+$'
	if [[ -t 1 && -z ${NO_COLOR:-} && ${TERM:-dumb} != dumb ]]; then
		bold=$'\e[1;36m' normal=$'\e[0m'
	fi
	while IFS= read -r line; do
		if ((${#held[@]} == 0)) && [[ $line =~ $header ]] || ((${#held[@]} == 1)); then
			held+=("$line")
			continue
		fi
		((${#held[@]} == 0)) || [[ $line =~ $empty ]] || say "${held[@]}"
		held=()
		if [[ $line == "-- "* ]]; then
			say "" "$bold$line$normal"
		elif [[ ! $line =~ ^[\ |]*$ ]]; then
			say "$line"
		fi
	done
}

# ---- The demo ----

become_unprivileged
if [[ ${1:-} == stop ]]; then
	remove_demo
	exit
fi

plan_packages build
((${#NEEDED[@]} == 0)) || mapfile -t INSTALLED < <(new_packages)
choose_parent
introduce
install_planned
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
as_server "$PG_BIN/createdb" "${connect[@]}" "$DATABASE" || die "could not create a database"
# From standard input, because psql puts the name of a file before messages.
as_server "$PG_BIN/psql" "${connect[@]}" -d "$DATABASE" -X -q -a -P pager=off -P footer=off \
	-v ON_ERROR_STOP=1 -v VERBOSITY=terse <"$REPO/test/demo.sql" 2>&1 | show
((PIPESTATUS[0] == 0)) ||
	die "the demo failed; the end of the server's log: $(tail -n 20 "$SCRATCH/server.log")"
trap - EXIT

psql=$PG_BIN/psql
if command -v psql >/dev/null; then
	psql=psql
fi
say "" "The server keeps running.  To connect:" \
	"    $psql ${connect[*]} $DATABASE" \
	"Three lines to try there.  The second one runs until Ctrl-C:"
sed 's/^/    /' "$REPO/test/demo_try.sql"
explain_removal

#!/usr/bin/env bash
# Builds the Debian packages of ttl_docs, one for each PostgreSQL, into dist/.
#
#	test/deb.sh                         for every version with development files here
#	                                    ("make deb")
#	PG_CONFIG=/path/to/pg_config ...    for this version
#	PG_SUPPORTED_VERSIONS="15 17" ...   for these versions
#	DEB_BUILD_OPTIONS=nocheck ...       without the tests, which take most of the time
#
# It runs dpkg-buildpackage, never as root, in a copy of the tree, which it removes afterwards.  In the
# copy it creates a new debian/control for the versions.  If lintian is installed, its errors fail the
# build.
set -uo pipefail
export LC_ALL=C.UTF-8

# test/env.sh unsets this variable, like other settings for PostgreSQL.
versions=${PG_SUPPORTED_VERSIONS:-}

# shellcheck source=test/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

readonly DIST=$REPO/dist
# Number of lines printed of the log after a failure.
readonly SHOWN_LINES=200

SCRATCH=
GROUP=

# Sets the versions, in the form that pg_buildext reads.
select_versions() {
	if [[ -z $versions && -n ${PG_CONFIG:-} ]]; then
		versions=$(pg_major "$PG_CONFIG")
		[[ -n $versions ]] || die "PG_CONFIG=$PG_CONFIG is not the pg_config of a PostgreSQL"
	fi
	unset PG_CONFIG
	export PG_SUPPORTED_VERSIONS=${versions:-installed}
}

# Runs a command in the copy as the server's user, in a process group of its own, which can be stopped
# as a whole.  A signal interrupts the wait.  The output goes to SCRATCH/log.
run_logged() {
	local status=0
	# This does not call as_server: for a function, $! would be a shell outside of the group.
	# shellcheck disable=SC2016
	"${SERVER_USER_PREFIX[@]}" perl -e 'setpgrp; $SIG{$_} = "DEFAULT" for qw(INT QUIT); exec @ARGV or die $!' \
		bash -c 'cd "$1" && shift && exec "$@" >../log 2>&1' - "$SCRATCH/source" "$@" </dev/null &
	GROUP=$!
	wait "$GROUP" || status=$?
	GROUP=
	return "$status"
}

leave() {
	local status=$?
	trap - EXIT
	trap '' INT TERM HUP
	if [[ -n $GROUP ]]; then
		kill -TERM -- "-$GROUP" 2>/dev/null
		wait "$GROUP" 2>/dev/null
	fi
	if [[ -n $SCRATCH ]]; then
		# for the servers of interrupted tests
		PG_BIN=$(dirname "$(printf '%s\n' /usr/lib/postgresql/*/bin/pg_ctl | tail -n 1)")
		stop_servers_below "$SCRATCH"
		cd / && rm -rf "$SCRATCH"
	fi
	exit "$status"
}

trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

require_packages deb
become_unprivileged
select_versions
make_scratch ttl_docs-deb.XXXXXX
copy_source
# The servers of the tests are here, so that they are removed with SCRATCH.
as_server mkdir "$SCRATCH/tmp"
export TMPDIR=$SCRATCH/tmp

run_logged pg_buildext updatecontrol || die "no control file: $(cat "$SCRATCH/log")"
say "building for PostgreSQL $(cd "$SCRATCH/source" && as_server pg_buildext supported-versions | xargs)"
run_logged dpkg-buildpackage -us -uc -b || {
	tail -n "$SHOWN_LINES" "$SCRATCH/log"
	die "could not build the packages"
}
# Print the test results of each version.
grep -E '^(### PostgreSQL .* installcheck|# All .* passed| All .* passed)' "$SCRATCH/log"
if command -v lintian >/dev/null; then
	as_server lintian --fail-on error "$SCRATCH"/*.changes || die "lintian found errors"
fi

mkdir -p "$DIST" || die "could not create $DIST"
rm -f "$DIST"/postgresql-*-ttl-docs*.deb
cp "$SCRATCH"/*.deb "$DIST" || die "could not write to $DIST"
say "" "packages:" "$DIST"/*.deb

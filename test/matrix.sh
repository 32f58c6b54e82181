#!/usr/bin/env bash
# Runs "make test", as README describes it, on each PostgreSQL that a Debian release has, in a bare
# Debian of that release: 15 (bookworm), 17 (trixie), 18 (testing) and 19 (experimental).  Needs root.
#
#	test/matrix.sh                    on all releases ("make matrix")
#	SUITES="trixie testing" ...       on these releases
#	SUITES="bookworm/i386 bookworm/s390x" ...  on these architectures of Debian, see test/roots.sh
#	TESTS="keys key_race" ...         runs these tests
#	FRESH=yes ...                     makes new roots, in which no package is installed yet
#	DEBIAN_MIRROR=http://... ...      uses this mirror instead of the one of this machine
#
# The roots stay in ROOTS for the next run, with the packages that the tests have installed.  Each run
# has its own namespaces: its mounts and processes end with it.  No Debian release has PostgreSQL 16.  Before
# the last line, the script names the supported versions that it did not test.  The last line is "N passed, N failed"; each
# release counts as one.
#
# Under qemu, a program takes about ten times as long.  TAP tests have time limits for a real
# processor, so there only the regression tests and the isolation tests run, unless TESTS names others.
set -uo pipefail
export LC_ALL=C

# shellcheck source=test/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

# shellcheck source=test/roots.sh
source "$(dirname "${BASH_SOURCE[0]}")/roots.sh"

read -ra suites <<<"${SUITES:-bookworm trixie testing experimental}"
readonly suites

readonly NEWEST_PG=19
tested=" "

test_in_root() {
	local status=0 prepare="apt-get update -q >/dev/null; cd /root/ttl_docs" TESTS=${TESTS:-}
	make_root "$1" && copy_tree "$1" || return
	if is_emulated "$1"; then
		TESTS=${TESTS:-$(names_of_sql_tests)}
		prepare+=" && export TEST_TIME_LIMIT=$ROOT_TIME_LIMIT"
	fi
	in_root "$1" "$prepare && make test" || status=$?
	tested+="$(tested_major "$1") "
	return "$status"
}

names_of_sql_tests() {
	local file
	for file in "$REPO"/test/{sql/*.sql,specs/*.spec}; do
		basename "${file%.*}"
	done | tr '\n' ' '
}

# Prints the major version that "make test" chose in a root: the newest one.
tested_major() {
	printf '%s\n' "$ROOTS/$(name_of "$1")$DEBIAN_POSTGRES"/*/bin/postgres |
		sed -n 's,.*/\([0-9]*\)/bin/postgres$,\1,p' | sort -n | tail -n 1
}

# for_suites prints the number of failures last, so this comes before it.
report_untested() {
	local major
	for ((major = OLDEST_PG; major <= NEWEST_PG; major++)); do
		[[ $tested == *" $major "* ]] ||
			say "not tested: PostgreSQL $major; no root of this run has its package"
	done
}
BEFORE_SUMMARY=report_untested

for_suites "" test_in_root "${suites[@]}"

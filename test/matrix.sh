#!/usr/bin/env bash
# Runs "make test", as README describes it, on each PostgreSQL that a Debian release has, in a bare
# Debian of that release: 15 (bookworm), 17 (trixie), 18 (testing).  Needs root.
#
#	test/matrix.sh                    on all releases ("make matrix")
#	SUITES="trixie testing" ...       on these releases
#	SUITES="bookworm/i386 bookworm/s390x" ...  on these architectures of Debian, see test/roots.sh
#	TESTS="keys key_race" ...         runs these tests
#	FRESH=yes ...                     makes new roots, in which no package is installed yet
#	DEBIAN_MIRROR=http://... ...      uses this mirror instead of the one of this machine
#
# The roots stay in ROOTS for the next run, with the packages that the tests have installed.  Each run
# has its own namespaces: its mounts and processes end with it.  The last line is "N passed, N failed";
# each release counts as one.
#
# Under qemu, a program takes about ten times as long.  TAP tests have time limits for a real
# processor, so there only the regression tests and the isolation tests run, unless TESTS names others.
set -uo pipefail
export LC_ALL=C

# shellcheck source=test/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

# shellcheck source=test/roots.sh
source "$(dirname "${BASH_SOURCE[0]}")/roots.sh"

read -ra suites <<<"${SUITES:-bookworm trixie testing}"
readonly suites

test_in_root() {
	local prepare="apt-get update -q >/dev/null; cd /root/ttl_docs" TESTS=${TESTS:-}
	make_root "$1" && copy_tree "$1" || return
	if is_emulated "$1"; then
		TESTS=${TESTS:-$(names_of_sql_tests)}
		prepare+=" && export TEST_TIME_LIMIT=$ROOT_TIME_LIMIT"
	fi
	in_root "$1" "$prepare && make test"
}

names_of_sql_tests() {
	local file
	for file in "$REPO"/test/{sql/*.sql,specs/*.spec}; do
		basename "${file%.*}"
	done | tr '\n' ' '
}

for_suites "" test_in_root "${suites[@]}"

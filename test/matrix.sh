#!/usr/bin/env bash
# Runs "make test", as README says it, on each PostgreSQL that a Debian release has, in
# a bare Debian of that release: 15 (bookworm), 17 (trixie), 18 (testing).  Needs root.
#
#	test/matrix.sh                    all of them ("make matrix")
#	SUITES="trixie testing" ...       only these
#	TESTS="keys key_race" ...         only these tests
#	FRESH=yes ...                     in new roots, so that nothing is installed yet
#	DEBIAN_MIRROR=http://... ...      from that mirror, else from the one of this machine
#
# The roots stay in ROOTS, for the next time: they have the packages that the tests
# install.  Each run is in namespaces of its own; its mounts and its processes end with
# it.  The last line is "N passed, N failed"; a suite is one.
set -uo pipefail
export LC_ALL=C

# shellcheck source=test/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

# shellcheck source=test/roots.sh
source "$(dirname "${BASH_SOURCE[0]}")/roots.sh"

read -ra suites <<<"${SUITES:-bookworm trixie testing}"
readonly suites

test_in_root() {
	make_root "$1" && copy_tree "$1" &&
		in_root "$1" "apt-get update -q >/dev/null; cd /root/ttl_docs && make test"
}

for_suites "" test_in_root "${suites[@]}"

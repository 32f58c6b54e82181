#!/usr/bin/env bash
# Runs test/t/019_pg_upgrade.pl on real pairs of PostgreSQL versions: from the version of the old Debian
# release to that of each newer one, 15 to 17, 15 to 18 and 15 to 19; and from 18 to 19.  Needs root.
#
#	test/upgrade_matrix.sh            runs all pairs
#	PAIRS="15:trixie" ...             runs these pairs: the old version, and the release of the new one
#	FRESH=yes ...                     makes new roots
#	DEBIAN_MIRROR=http://... ...      uses this mirror instead of the one of this machine
#
# It uses roots of the newer releases, and installs the older PostgreSQL there from its own release: 15 from
# bookworm, 18 from unstable, which the root of experimental has anyway.  So
# both servers use the same libraries, as on a machine that is upgraded.  It copies the roots of
# test/matrix.sh if they exist, because those must have only packages of their own release.  The last
# line is "N passed, N failed"; each pair counts as one.
set -uo pipefail
export LC_ALL=C

# shellcheck source=test/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

readonly PLAIN_ROOTS=${ROOTS:-/var/tmp/ttl_docs-matrix}
ROOTS=$PLAIN_ROOTS-upgrade
# shellcheck source=test/roots.sh
source "$(dirname "${BASH_SOURCE[0]}")/roots.sh"

readonly OLD_SUITE=bookworm
pairs=()
# SUITES can have the old release, and other architectures: see test/matrix.sh.
for pair in ${PAIRS:-15:trixie 15:testing 15:experimental 18:experimental}; do
	[[ -n ${SUITES:-} && " $SUITES " != *" ${pair#*:} "* ]] || pairs+=("$pair")
done
readonly pairs
((${#pairs[@]} > 0)) || exit 0

# Copies the root of test/matrix.sh, if there is one: it has most packages.
copy_root() {
	local suite=$1
	[[ -z ${FRESH:-} && ! -d $ROOTS/$suite && -d $PLAIN_ROOTS/$suite ]] || return 0
	say "copying the root of $suite"
	rm -rf --one-file-system "${ROOTS:?}/$suite.new"
	mkdir "$ROOTS/$suite.new" &&
		tar -C "$PLAIN_ROOTS/$suite" --one-file-system --exclude=./root/ttl_docs -cf - . |
		tar -C "$ROOTS/$suite.new" -xf - && mv "$ROOTS/$suite.new" "$ROOTS/$suite"
}

# Installs the PostgreSQL of the older release in addition to that of the root's release.
add_old_postgres() {
	local suite=$1 old=$2
	say "deb $(mirror) $OLD_SUITE main" >"$ROOTS/$suite/etc/apt/sources.list.d/$OLD_SUITE.list"
	# "make test" installs the compiler and the modules that tests need.
	in_root "$suite" "source /root/ttl_docs/test/env.sh && require_apt && apt_install \
		postgresql-$old postgresql-server-dev-$old" >"$ROOTS/$suite.log" 2>&1 || {
		tail -n 20 "$ROOTS/$suite.log"
		return 1
	}
}

# Upgrades to the newest PostgreSQL of the root, which has to be newer than the old one.
upgrade_in_root() {
	# shellcheck disable=SC2016
	TESTS=019_pg_upgrade in_root "$1" '
		major=$(ls /usr/lib/postgresql | sort -n | tail -n 1)
		((major > '"$2"')) || { echo "there is no newer PostgreSQL than '"$2"'"; exit 1; }
		cd /root/ttl_docs || exit 1
		[[ -e /usr/lib/postgresql/$major/lib/pgxs/src/makefiles/pgxs.mk ]] ||
			(source test/env.sh && require_apt && apt_install "postgresql-server-dev-$major") >/dev/null || exit 1
		PG_CONFIG=/usr/lib/postgresql/$major/bin/pg_config \
			PG_TEST_OLD_CONFIG=/usr/lib/postgresql/'"$2"'/bin/pg_config make test'
}

# The argument is a pair: old:suite.
test_upgrade() {
	local old=${1%%:*} suite=${1#*:}
	copy_root "$suite" && make_root "$suite" && copy_tree "$suite" && add_old_postgres "$suite" "$old" &&
		upgrade_in_root "$suite" "$old"
}

for_suites "pg_upgrade, old version and new release: " test_upgrade "${pairs[@]}"

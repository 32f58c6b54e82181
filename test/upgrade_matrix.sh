#!/usr/bin/env bash
# Runs test/t/019_pg_upgrade.pl on real pairs of PostgreSQL versions: from that of the old
# Debian release to that of each newer one, 15 to 17 and 15 to 18.  Needs root.
#
#	test/upgrade_matrix.sh            all of them
#	SUITES="trixie" ...               to the PostgreSQL of these releases only
#	FRESH=yes ...                     in new roots
#	DEBIAN_MIRROR=http://... ...      from that mirror, else from the one of this machine
#
# It happens in roots of the newer releases, made from those of test/matrix.sh where they
# are there, into which the packages of the older PostgreSQL are installed from its own
# release: both servers then run on the same libraries, as they do on a machine that is
# upgraded.  These roots are apart, so that the others keep nothing but their own
# release.  The last line is "N passed, N failed"; a pair is one.
set -uo pipefail
export LC_ALL=C

# shellcheck source=test/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

readonly PLAIN_ROOTS=${ROOTS:-/var/tmp/ttl_docs-matrix}
ROOTS=$PLAIN_ROOTS-upgrade
# shellcheck source=test/roots.sh
source "$(dirname "${BASH_SOURCE[0]}")/roots.sh"

readonly OLD_SUITE=bookworm
readonly OLD_MAJOR=15
read -ra suites <<<"${SUITES:-trixie testing}"
readonly suites

# Begins with the root of test/matrix.sh, if there is one: it has most packages.
copy_root() {
	local suite=$1
	[[ -z ${FRESH:-} && ! -d $ROOTS/$suite && -d $PLAIN_ROOTS/$suite ]] || return 0
	say "copying the root of $suite"
	rm -rf --one-file-system "${ROOTS:?}/$suite.new"
	mkdir "$ROOTS/$suite.new" &&
		tar -C "$PLAIN_ROOTS/$suite" --one-file-system --exclude=./root/ttl_docs -cf - . |
		tar -C "$ROOTS/$suite.new" -xf - && mv "$ROOTS/$suite.new" "$ROOTS/$suite"
}

# Installs the PostgreSQL of the older release beside that of the root's own.
add_old_postgres() {
	local suite=$1
	say "deb $(mirror) $OLD_SUITE main" >"$ROOTS/$suite/etc/apt/sources.list.d/$OLD_SUITE.list"
	# The compiler and the modules that tests need come with "make test".
	in_root "$suite" "apt-get update -q && apt-get install -q -y --no-install-recommends \
		postgresql postgresql-$OLD_MAJOR postgresql-server-dev-$OLD_MAJOR" >"$ROOTS/$suite.log" 2>&1 || {
		tail -n 20 "$ROOTS/$suite.log"
		return 1
	}
}

# The newest PostgreSQL of the root is the one to upgrade to, and has to be another one.
upgrade_in_root() {
	# shellcheck disable=SC2016
	TESTS=019_pg_upgrade in_root "$1" '
		major=$(ls /usr/lib/postgresql | sort -n | tail -n 1)
		((major > '"$OLD_MAJOR"')) || { echo "there is no newer PostgreSQL than '"$OLD_MAJOR"'"; exit 1; }
		[[ -e /usr/lib/postgresql/$major/lib/pgxs/src/makefiles/pgxs.mk ]] ||
			apt-get install -q -y --no-install-recommends "postgresql-server-dev-$major" >/dev/null || exit 1
		cd /root/ttl_docs && PG_CONFIG=/usr/lib/postgresql/$major/bin/pg_config \
			PG_TEST_OLD_CONFIG=/usr/lib/postgresql/'"$OLD_MAJOR"'/bin/pg_config make test'
}

test_upgrade() {
	copy_root "$1" && make_root "$1" && add_old_postgres "$1" && copy_tree "$1" && upgrade_in_root "$1"
}

for_suites "$OLD_MAJOR to that of " test_upgrade "${suites[@]}"

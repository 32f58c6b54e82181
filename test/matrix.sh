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

readonly ROOTS=${ROOTS:-/var/tmp/ttl_docs-matrix}
read -ra suites <<<"${SUITES:-bookworm trixie testing}"
readonly suites
# Seconds for the tests of one suite.
readonly TIME_LIMIT=${MATRIX_TIME_LIMIT:-3600}

passed=0
failures=()

# The mirror that this machine gets Debian from.
mirror() {
	if [[ -n ${DEBIAN_MIRROR:-} ]]; then
		say "$DEBIAN_MIRROR"
	else
		# shellcheck disable=SC2016
		apt-get indextargets --format '$(ORIGIN) $(LABEL) $(SITE)' 'Created-By: Packages' |
			sed -n 's/^Debian Debian //p' | head -n 1
	fi
}

# Makes a bare Debian, if there is none yet.
make_root() {
	local suite=$1 root=$ROOTS/$1
	[[ -z ${FRESH:-} ]] || rm -rf --one-file-system "$root"
	[[ ! -d $root ]] || return 0
	say "making a root for $suite"
	rm -rf --one-file-system "$root.new"
	# A snapshot of testing may be older than its release file says it may be.
	debootstrap --variant=minbase --include=ca-certificates,make,git "$suite" "$root.new" "$(mirror)" \
		>"$ROOTS/$suite.log" 2>&1 || {
		tail -n 20 "$ROOTS/$suite.log"
		return 1
	}
	say 'Acquire::Check-Valid-Until "false";' >"$root.new/etc/apt/apt.conf.d/90ttl_docs"
	mv "$root.new" "$root"
}

# Runs the tests in a root, which get a copy of the tree.
test_in_root() {
	local root=$ROOTS/$1
	rm -rf "$root/root/ttl_docs"
	mkdir -p "$root/root/ttl_docs"
	git -C "$REPO" ls-files -z --cached --others --exclude-standard |
		tar -C "$REPO" --null --files-from=- --ignore-failed-read -cf - |
		tar -C "$root/root/ttl_docs" --no-same-owner -xf - || return 1
	cp -L /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null
	# shellcheck disable=SC2016
	timeout -k 30 "$TIME_LIMIT" unshare --mount --pid --fork --kill-child bash -c '
		mount --make-rprivate / && mount --rbind /dev "$1/dev" && mount -t proc proc "$1/proc" &&
			mount -t tmpfs -o mode=1777 tmpfs "$1/tmp" &&
			exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb \
				TESTS="$2" bash -c "apt-get update -q >/dev/null; cd /root/ttl_docs && make test"' \
		- "$root" "${TESTS:-}" </dev/null
}

((EUID == 0)) || die "a root for each Debian release can only be made by root"
command -v debootstrap >/dev/null || { require_apt && apt_install debootstrap; } || die "there is no debootstrap"
mkdir -p "$ROOTS" || die "cannot write to $ROOTS"
for suite in "${suites[@]}"; do
	say "" "==== $suite"
	if make_root "$suite" && test_in_root "$suite"; then
		passed=$((passed + 1))
	else
		failures+=("$suite")
	fi
done
say ""
for suite in "${failures[@]}"; do
	say "failed: $suite"
done
say "$passed passed, ${#failures[@]} failed"
((${#failures[@]} == 0))

# shellcheck shell=bash
# Bare Debian roots, one for each release, and commands that run in them.  Scripts that need root source
# this file after test/env.sh.
#
#	require_roots       checks for root, debootstrap and the directory
#	make_root SUITE     makes the root of a release, unless there is one
#	copy_tree SUITE     copies the source into the root, to /root/ttl_docs
#	in_root SUITE TEXT  runs a shell command in the root
#	for_suites ...      runs a function for each release, and reports
#
# The roots stay in ROOTS for the next run, with the packages that were installed.  FRESH=yes makes new
# ones.  Each command has its own namespaces: its mounts and processes end with it.

readonly ROOTS=${ROOTS:-/var/tmp/ttl_docs-matrix}
# Maximum number of seconds for one command.
readonly ROOT_TIME_LIMIT=${MATRIX_TIME_LIMIT:-3600}

# Prints the mirror from which this machine gets Debian.
mirror() {
	if [[ -n ${DEBIAN_MIRROR:-} ]]; then
		say "$DEBIAN_MIRROR"
	else
		# shellcheck disable=SC2016
		apt-get indextargets --format '$(ORIGIN) $(LABEL) $(SITE)' 'Created-By: Packages' |
			sed -n 's/^Debian Debian //p' | head -n 1
	fi
}

require_roots() {
	((EUID == 0)) || die "only root can make a root for each Debian release"
	require_packages matrix
	mkdir -p "$ROOTS" || die "cannot write to $ROOTS"
	# We run programs in it as root, so nobody else may have made it.
	[[ -O $ROOTS && ! -L $ROOTS ]] || die "$ROOTS does not belong to root; remove it, or set ROOTS"
	chmod go-w "$ROOTS"
}

make_root() {
	local suite=$1 root=$ROOTS/$1 base=$1
	# Debian has test versions of PostgreSQL in experimental, which only adds to unstable.
	[[ $suite != experimental ]] || base=unstable
	[[ -z ${FRESH:-} ]] || rm -rf --one-file-system "$root"
	[[ ! -d $root ]] || return 0
	say "making a root for $suite"
	rm -rf --one-file-system "$root.new"
	# A mirror may have an old snapshot of testing, whose release file has expired.
	debootstrap --variant=minbase --include=ca-certificates,make,git "$base" "$root.new" "$(mirror)" \
		>"$ROOTS/$suite.log" 2>&1 || {
		tail -n 20 "$ROOTS/$suite.log"
		return 1
	}
	say 'Acquire::Check-Valid-Until "false";' >"$root.new/etc/apt/apt.conf.d/90ttl_docs"
	[[ $suite != experimental ]] || add_experimental "$suite.new" || return
	mv "$root.new" "$root"
}

# Installs the newest PostgreSQL of experimental.  "make test" then finds it, and takes the newest one.  The pin
# is needed because libpq-dev depends on a libpq5 that is as new.
add_experimental() {
	local root=$ROOTS/$1 major
	say "deb $(mirror) experimental main" >"$root/etc/apt/sources.list.d/experimental.list"
	major=$(in_root "$1" "apt-get update -q >/dev/null && apt-cache pkgnames postgresql-server-dev-" |
		sed -n 's/^postgresql-server-dev-\([0-9]*\)$/\1/p' | sort -n | tail -n 1)
	[[ -n $major ]] || return
	say "Package: src:postgresql-$major:any" "Pin: release a=experimental" "Pin-Priority: 990" \
		>"$root/etc/apt/preferences.d/ttl_docs"
	mkdir -p "$root/etc/postgresql-common/createcluster.d"
	say "create_main_cluster = false" >"$root/etc/postgresql-common/createcluster.d/zz-ttl_docs.conf"
	in_root "$1" "apt-get install -q -y --no-install-recommends postgresql-$major postgresql-server-dev-$major" \
		>"$ROOTS/$1.log" 2>&1 || {
		tail -n 20 "$ROOTS/$1.log"
		return 1
	}
}

copy_tree() {
	local root=$ROOTS/$1
	rm -rf "$root/root/ttl_docs"
	mkdir -p "$root/root/ttl_docs"
	git -C "$REPO" ls-files -z --cached --others --exclude-standard |
		tar -C "$REPO" --null --files-from=- --ignore-failed-read -cf - |
		tar -C "$root/root/ttl_docs" --no-same-owner -xf -
}

# Of our environment, the command gets only TESTS.
in_root() {
	local root=$ROOTS/$1
	cp -L /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null
	# shellcheck disable=SC2016
	timeout -k 30 "$ROOT_TIME_LIMIT" unshare --mount --pid --fork --kill-child bash -c '
		mount --make-rprivate / && mount --rbind /dev "$1/dev" && mount -t proc proc "$1/proc" &&
			mount -t tmpfs -o mode=1777 tmpfs "$1/tmp" &&
			exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb \
				DEBIAN_FRONTEND=noninteractive TESTS="$3" bash -c "$2"' \
		- "$root" "$2" "${TESTS:-}" </dev/null
}

# Runs a function for each release: for_suites title function suite ...  Before the result, it runs the
# function BEFORE_SUMMARY, if there is one.
# The last line is "N passed, N failed"; each release counts as one.
for_suites() {
	local title=$1 work=$2 suite passed=0 failures=()
	shift 2
	require_roots
	for suite in "$@"; do
		say "" "==== $title$suite"
		if "$work" "$suite"; then
			passed=$((passed + 1))
		else
			failures+=("$suite")
		fi
	done
	say ""
	${BEFORE_SUMMARY:-true}
	for suite in "${failures[@]}"; do
		say "failed: $title$suite"
	done
	say "$passed passed, ${#failures[@]} failed"
	((${#failures[@]} == 0))
}

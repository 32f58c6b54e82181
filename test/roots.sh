# shellcheck shell=bash
# Bare Debian roots, one for each release, and commands that run in them.  Scripts that need root source
# this file after test/env.sh.
#
#	require_roots SUITE ...  checks for root, debootstrap, qemu and the directory
#	make_root SUITE     makes the root of a release, unless there is one
#	copy_tree SUITE     copies the source into the root, to /root/ttl_docs
#	in_root SUITE TEXT  runs a shell command in the root
#	for_suites ...      runs a function for each release, and reports
#
# The roots stay in ROOTS for the next run, with the packages that were installed.  FRESH=yes makes new
# ones.  Each command has its own namespaces: its mounts and processes end with it.
#
# SUITE is a release, or a release and an architecture of Debian: "bookworm/s390x".  If the processor
# cannot run programs of the architecture, qemu runs them.  Linux finds qemu in a list, binfmt_misc.  From
# Linux 6.7 on, each user namespace has its own list.  So each command registers qemu in a namespace of
# its own, and the list of this machine does not change.

readonly ROOTS=${ROOTS:-/var/tmp/ttl_docs-matrix}
# Maximum number of seconds for one command.  With qemu, tests take hours.
readonly ROOT_TIME_LIMIT=${MATRIX_TIME_LIMIT:-14400}

# ---- Releases and architectures ----

# Prints the name of a root's directory.
name_of() {
	say "${1//\//-}"
}

# Prints the architecture of a root, if it is not that of this machine.
foreign_arch() {
	[[ $1 != */* || ${1#*/} == "$(dpkg --print-architecture)" ]] || say "${1#*/}"
}

# Prints the name by which qemu knows the architecture of a root, if qemu has to run its programs.
qemu_of() {
	case $(foreign_arch "$1") in
		'') ;;
		i386) [[ $(uname -m) == x86_64 ]] || say i386 ;;
		arm64) say aarch64 ;;
		armhf | armel) say arm ;;
		ppc64el) say ppc64le ;;
		amd64) say x86_64 ;;
		*) foreign_arch "$1" ;;
	esac
}

is_emulated() {
	[[ -n $(qemu_of "$1") ]]
}

# Prints a line for binfmt_misc that makes Linux run the programs of a root with qemu.  qemu-user-static has
# such a line for each architecture.
binfmt_of() {
	local qemu
	qemu=$(qemu_of "$1")
	[[ -z $qemu ]] || cat "/usr/lib/binfmt.d/qemu-$qemu.conf"
}

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

# Checks what is needed for these releases.
require_roots() {
	local suite
	((EUID == 0)) || die "only root can make a root for each Debian release"
	require_packages matrix
	for suite in "$@"; do
		is_emulated "$suite" || continue
		require_packages emulator
		[[ -n $(binfmt_of "$suite") ]] || die "qemu has no line for binfmt_misc for the architecture of $suite"
	done
	mkdir -p "$ROOTS" || die "cannot write to $ROOTS"
	# We run programs in it as root, so nobody else may have made it.
	[[ -O $ROOTS && ! -L $ROOTS ]] || die "$ROOTS does not belong to root; remove it, or set ROOTS"
	chmod go-w "$ROOTS"
}

# ---- Roots ----

make_root() {
	local suite=$1 root base=${1%/*} foreign=()
	root=$ROOTS/$(name_of "$suite")
	# Debian has test versions of PostgreSQL in experimental, which only adds to unstable.
	[[ $base != experimental ]] || base=unstable
	[[ -z ${FRESH:-} ]] || rm -rf --one-file-system "$root"
	[[ ! -d $root ]] || return 0
	say "making a root for $suite"
	rm -rf --one-file-system "$root.new"
	[[ -z $(foreign_arch "$suite") ]] || foreign=(--arch="$(foreign_arch "$suite")")
	! is_emulated "$suite" || foreign+=(--foreign)
	# A mirror may have an old snapshot of testing, whose release file has expired.
	{
		debootstrap "${foreign[@]}" --variant=minbase --include=ca-certificates,make,git \
			"$base" "$root.new" "$(mirror)" && complete_root "$suite"
	} >"$root.log" 2>&1 || {
		tail -n 20 "$root.log"
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

# debootstrap --foreign only unpacks the packages.  This function configures them, with qemu.  In a user
# namespace, debootstrap cannot create devices.  The value "lxc" tells it not to try.
complete_root() {
	! is_emulated "$1" ||
		in_directory "$1" "$ROOTS/$(name_of "$1").new" 'container=lxc /debootstrap/debootstrap --second-stage'
}

copy_tree() {
	local root
	root=$ROOTS/$(name_of "$1")
	rm -rf "$root/root/ttl_docs"
	mkdir -p "$root/root/ttl_docs"
	git -C "$REPO" ls-files -z --cached --others --exclude-standard |
		tar -C "$REPO" --null --files-from=- --ignore-failed-read -cf - |
		tar -C "$root/root/ttl_docs" --no-same-owner -xf -
}

# ---- Commands ----

# Of our environment, the command gets only TESTS.
in_root() {
	local root
	root=$ROOTS/$(name_of "$1")
	cp -L /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null
	in_directory "$1" "$root" "$2"
}

# Runs a command in a directory, in namespaces of its own.
in_directory() {
	local enter=() status
	! is_emulated "$1" || { make_user_namespace && enter=(nsenter "--user=/proc/$USER_NAMESPACE/ns/user"); } || return
	# shellcheck disable=SC2016
	timeout -k 30 "$ROOT_TIME_LIMIT" "${enter[@]}" unshare --mount --pid --fork --kill-child bash -c '
		mount --make-rprivate / &&
			if [[ -n $4 ]]; then
				mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc &&
					echo "$4" >/proc/sys/fs/binfmt_misc/register || {
					echo "error: cannot register qemu; this needs Linux 6.7 or later" >&2
					exit 1
				}
			fi &&
			mount --rbind /dev "$1/dev" && mount -t proc proc "$1/proc" &&
			mount -t tmpfs -o mode=1777 tmpfs "$1/tmp" &&
			exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb \
				DEBIAN_FRONTEND=noninteractive TESTS="$3" bash -c "$2"' \
		- "$2" "$3" "${TESTS:-}" "$(binfmt_of "$1")" </dev/null
	status=$?
	[[ -z $USER_NAMESPACE ]] || kill "$USER_NAMESPACE" 2>/dev/null
	USER_NAMESPACE=
	return "$status"
}

# Makes a user namespace in which all users are the same as outside.  USER_NAMESPACE is a process in it, which
# ends by itself if nobody stops it: the namespace stays as long as a command is in it.
make_user_namespace() {
	local map
	unshare --user sleep 60 &
	USER_NAMESPACE=$!
	until [[ $(readlink "/proc/$USER_NAMESPACE/ns/user") != "$(readlink /proc/self/ns/user)" ]]; do
		kill -0 "$USER_NAMESPACE" 2>/dev/null || die "cannot make a user namespace"
		sleep 0.01
	done
	for map in uid_map gid_map; do
		say '0 0 4294967295' >"/proc/$USER_NAMESPACE/$map" || return
	done
}
USER_NAMESPACE=

# Runs a function for each release: for_suites title function suite ...  Before the result, it runs the
# function BEFORE_SUMMARY, if there is one.  The last line is "N passed, N failed"; each release counts as one.
for_suites() {
	local title=$1 work=$2 suite passed=0 failures=()
	shift 2
	require_roots "$@"
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

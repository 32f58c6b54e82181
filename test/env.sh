# shellcheck shell=bash
# Gives scripts a PostgreSQL of their own with ttl_docs in it.  To be sourced.
#
# The steps, in the order of their use:
#	require_tools       finds a PostgreSQL and the build tools, installs what lacks
#	become_unprivileged decides who runs the server (never root)
#	make_scratch        makes the directory that everything below happens in
#	private_postgres    copies the server into it and builds and installs ttl_docs there
#	install_test_modules  adds the libraries that tests load beside it
#	wrap_postgres       has every server of it run under another command, such as valgrind
#	start_server        initdb and start, reachable by a private socket only
#
# The installation of the system is read, never written: PostgreSQL finds its
# libraries and scripts relative to its binary, so a copy of the binary uses the
# copies beside it.  Other servers on the machine notice nothing, and installing
# the extension needs no root.

readonly OLDEST_PG=15
REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly REPO

# Settings for other servers, and for the make that may have called us, would
# reach ours.
for name in $(compgen -e PG); do
	case $name in
		PG_CONFIG | PG_TEST_*) ;;
		*) unset "$name" ;;
	esac
done
unset name MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES

# Prints each argument as a line.
say() {
	printf '%s\n' "$@"
}

die() {
	printf 'error: %s\n' "$*" >&2
	exit 1
}

# ---- Finding or installing PostgreSQL and the tools ----

# Prints the major version of a pg_config's PostgreSQL, nothing if it has none.
pg_major() {
	"$1" --version 2>/dev/null | sed -n 's/^PostgreSQL \([0-9][0-9]*\).*/\1/p'
}

# Succeeds if an extension can be built for, and run in, a pg_config's PostgreSQL.
# On Debian a pg_config comes with the clients already, without either.
pg_is_complete() {
	local program
	for program in postgres initdb pg_ctl psql; do
		[[ -x $("$1" --bindir)/$program ]] || return 1
	done
	[[ -f $("$1" --includedir-server)/postgres.h && -f $("$1" --pgxs) ]]
}

# Sets PG_CONFIG to the first usable one: the caller's choice and no other if
# there is one, else that on the PATH, else the newest of Debian's directories.
find_postgres() {
	local candidate major candidates=()
	if [[ -n ${PG_CONFIG:-} ]]; then
		candidates=("$PG_CONFIG")
	else
		mapfile -t candidates < <(
			command -v pg_config
			printf '%s\n' /usr/lib/postgresql/*/bin/pg_config | sort -rV
		)
	fi
	for candidate in "${candidates[@]}"; do
		major=$(pg_major "$candidate")
		if ((${major:-0} >= OLDEST_PG)) && pg_is_complete "$candidate"; then
			PG_CONFIG=$(command -v "$candidate")
			return
		fi
	done
	return 1
}

# Succeeds if C programs can be compiled: the libc headers are a package apart.
have_compiler() {
	local cc=cc
	if [[ -n ${PG_CONFIG:-} ]]; then
		cc=$("$PG_CONFIG" --cc)
	fi
	# The compiler may be a command with arguments.
	# shellcheck disable=SC2086
	command -v make >/dev/null && echo '#include <stdio.h>' | $cc -E - >/dev/null 2>&1
}

have_tap() {
	command -v prove >/dev/null && perl -MIPC::Run -e 1 2>/dev/null
}

# For the programs of test/torture.
have_psycopg2() {
	/usr/bin/python3 -c 'import psycopg2' 2>/dev/null
}

# Prints the package of pg_repack for the PostgreSQL in use, if that is one of Debian's
# and lacks it.
repack_package() {
	local bin
	bin=$("$PG_CONFIG" --bindir)
	if [[ $bin == /usr/lib/postgresql/*/bin && ! -x $bin/pg_repack ]]; then
		echo "postgresql-$(pg_major "$PG_CONFIG")-repack"
	fi
}

# Prints the packages that complete a PostgreSQL: development files for a server
# that is there, else for the version that the distribution has.
postgres_packages() {
	local major
	major=$(printf '%s\n' /usr/lib/postgresql/*/bin/postgres |
		sed -n 's,^/usr/lib/postgresql/\([0-9]*\)/.*,\1,p' | sort -n | tail -n 1)
	if ((${major:-0} >= OLDEST_PG)); then
		echo "postgresql-server-dev-$major"
		return
	fi
	major=$(LC_ALL=C apt-cache depends postgresql 2>/dev/null |
		sed -n 's/^ *Depends: postgresql-\([0-9][0-9]*\)$/\1/p' | head -n 1)
	if ((${major:-0} < OLDEST_PG)); then
		die "this system's packages have PostgreSQL ${major:-none}, ttl_docs needs $OLDEST_PG or later:" \
			"install one and name its pg_config in PG_CONFIG"
	fi
	printf '%s\n' "postgresql-$major" "postgresql-server-dev-$major"
}

# Gets ready to install packages: finds out how to call apt-get as root, and has it
# read the lists.  Fails where that cannot be done.
require_apt() {
	local as_root=()
	((${#APT_GET[@]} == 0)) || return 0
	command -v apt-get >/dev/null || return 1
	if ((EUID != 0)); then
		# Without a terminal nobody can answer a question for the password.
		command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; } || return 1
		as_root=(sudo)
	fi
	APT_GET=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q)
	"${APT_GET[@]}" update || say "apt-get update failed; trying with the lists that are there"
}
APT_GET=()

# What to say where require_apt fails.
readonly WITHOUT_APT="please install them; on Debian and Ubuntu this is done for you, as root or with sudo"

apt_install() {
	say "installing: $*"
	"${APT_GET[@]}" install -y --no-install-recommends "$@" </dev/null && hash -r
}

# Makes sure of PostgreSQL and a compiler for "build", and for "tests" also of what
# TAP tests need.
require_tools() {
	require_needed_tools "$1"
	[[ $1 != tests ]] || add_useful_tools
}

# Without these, some tests are skipped.
add_useful_tools() {
	local package packages=()
	have_psycopg2 || packages+=(python3-psycopg2)
	mapfile -t -O "${#packages[@]}" packages < <(repack_package)
	for package in "${packages[@]}"; do
		require_apt || return 0
		apt_install "$package" || say "could not install $package"
	done
}

require_needed_tools() {
	local lacking=() packages=() of_postgres=()

	if ! find_postgres; then
		[[ -z ${PG_CONFIG:-} ]] ||
			die "PG_CONFIG=$PG_CONFIG is no PostgreSQL of version $OLDEST_PG or later with server, psql and development files"
		lacking+=("PostgreSQL $OLDEST_PG or later with its development files")
	fi
	if ! have_compiler; then
		lacking+=("a C compiler and make")
		packages+=(build-essential)
	fi
	if [[ $1 == tests ]] && ! have_tap; then
		lacking+=("prove and the Perl module IPC::Run")
		packages+=(libipc-run-perl)
	fi
	((${#lacking[@]} > 0)) || return 0

	printf 'missing: %s\n' "${lacking[@]}"
	require_apt || die "$WITHOUT_APT"
	if [[ -z ${PG_CONFIG:-} ]]; then
		mapfile -t of_postgres < <(postgres_packages)
		((${#of_postgres[@]} > 0)) || exit 1
		packages+=("${of_postgres[@]}")
	fi
	apt_install "${packages[@]}" || die "could not install ${packages[*]}"
	find_postgres || die "found no complete PostgreSQL even after installing ${packages[*]}"
}

# ---- Who, and where ----

# Sets SERVER_USER, and the prefix by which as_server runs commands as that user.
# PostgreSQL refuses to run as root, so root lends everything to somebody else.
become_unprivileged() {
	SERVER_USER=$(id -un)
	SERVER_USER_PREFIX=()
	((EUID == 0)) || return 0

	for SERVER_USER in postgres nobody; do
		! id -u "$SERVER_USER" >/dev/null 2>&1 || break
	done
	# setpriv becomes the command, where runuser stays between us and it.
	if command -v setpriv >/dev/null; then
		SERVER_USER_PREFIX=(setpriv "--reuid=$SERVER_USER" "--regid=$(id -g "$SERVER_USER")" --init-groups)
	else
		SERVER_USER_PREFIX=(runuser -u "$SERVER_USER" --)
	fi
}

as_server() {
	"${SERVER_USER_PREFIX[@]}" "$@"
}

# Succeeds if the server's user can write to a directory and run programs in it:
# root's TMPDIR may be closed to others, and a hardened /tmp is mounted noexec.
usable_by_server() {
	local probe=$1/probe
	as_server cp "$(type -P true)" "$probe" 2>/dev/null && as_server "$probe" 2>/dev/null &&
		rm -f "$probe"
}

# Prints the directories that may hold SCRATCH, the best one first.
scratch_parents() {
	local parent
	for parent in "${TMPDIR:-/tmp}" /tmp /var/tmp; do
		# The path of a socket further down must stay below some 100 bytes, and make
		# knows no names with blanks.
		if [[ -d $parent && $parent != *[[:space:]]* ]] && ((${#parent} <= 40)); then
			(cd "$parent" && pwd -P)
		fi
	done
}

# Sets SCRATCH to a new directory of the server's user, and enters it.  The name
# may end in XXXXXX, for one that is new each time.
make_scratch() {
	local parent
	for parent in $(scratch_parents); do
		SCRATCH=$parent/$1
		if [[ $1 == *XXXXXX ]]; then
			SCRATCH=$(mktemp -d "$SCRATCH") || continue
		else
			# Fails for a name that somebody else has taken in a public directory.
			mkdir -m 700 "$SCRATCH" || continue
		fi
		chown "$SERVER_USER" "$SCRATCH"
		if usable_by_server "$SCRATCH"; then
			# Our caller's directory may be closed to the server's user.
			cd "$SCRATCH" || die "cannot enter $SCRATCH"
			export HOME=$SCRATCH
			return
		fi
		rm -rf "$SCRATCH"
	done
	SCRATCH=
	die "found no directory for temporary files that $SERVER_USER can write to and run programs in; set TMPDIR"
}

# ---- A PostgreSQL of our own ----

# Copies the source tree to SCRATCH/source, since the server's user may not be
# able to read the original, and should not write to it.
copy_source() {
	as_server mkdir -p "$SCRATCH/source"
	{
		# Status 1 means that a file changed while it was read: good enough.
		tar -C "$REPO" --exclude=./.git --exclude=./test-results --exclude='*.o' --exclude='*.so' \
			--exclude='*.bc' -cf - . || (($? == 1))
	} | as_server tar -C "$SCRATCH/source" -xf - || die "could not copy $REPO"
}

# Copies PostgreSQL below SCRATCH/root, each file at the end of its old path, and
# builds and installs ttl_docs there with the given compiler flags on top of the
# usual.  Sets PG_BIN to the directory of the programs.
private_postgres() {
	local root=$SCRATCH/root bin lib share
	bin=$("$PG_CONFIG" --bindir)
	lib=$("$PG_CONFIG" --pkglibdir)
	share=$("$PG_CONFIG" --sharedir)
	PG_BIN=$root$bin

	as_server mkdir -p "$root$bin" "$root$lib" "$root$share" || die "could not create $root"
	(
		shopt -s nullglob
		# By name, because some distributions have them in /usr/bin.  As files, not
		# links: a program looks for the rest where it really is.
		cd "$bin" && as_server cp -L postgres initdb psql pg* {create,drop}{db,user} \
			{cluster,reindex,vacuum}db "$root$bin" || exit 1
		# Bitcode of the server itself only helps JIT, and is most of the bytes.
		tar -C "$lib" --exclude=./bitcode --exclude=./pgxs -cf - . |
			as_server tar -C "$root$lib" -xf - &&
			tar -C "$share" -cf - . | as_server tar -C "$root$share" -xf -
	) || die "could not copy the PostgreSQL of $PG_CONFIG"
	[[ $("$PG_BIN/pg_config" --pkglibdir) == "$root$lib" && $("$PG_BIN/pg_config" --sharedir) == "$root$share" ]] ||
		die "a copy of the PostgreSQL of $PG_CONFIG does not find its files"

	copy_source
	say "building ttl_docs for $("$PG_CONFIG" --version)"
	as_server make -C "$SCRATCH/source" -s -j "$(nproc)" --no-print-directory install \
		PG_CONFIG="$PG_CONFIG" DESTDIR="$root" COPT="$1" with_llvm=no ||
		die "could not build ttl_docs"
}

# Builds and installs the libraries of test/modules beside ttl_docs.
install_test_modules() {
	as_server make -C "$SCRATCH/source/test/modules" -s --no-print-directory install \
		PG_CONFIG="$PG_CONFIG" DESTDIR="$SCRATCH/root" COPT="-Werror" with_llvm=no ||
		die "could not build test/modules"
}

# Puts a command, as shell text, in front of every server that is started from
# PG_BIN, by us or by a TAP test.  Its $REPORTS is the given directory, which is made
# here: for what the command finds.  initdb's own processes run without: they take
# long, and do not load ttl_docs.
wrap_postgres() {
	local reports=$2
	as_server mkdir -p "$reports" && as_server mv "$PG_BIN/postgres" "$PG_BIN/postgres-unwrapped" &&
		as_server tee "$PG_BIN/postgres" >/dev/null <<-EOF && as_server chmod +x "$PG_BIN/postgres"
			#!/bin/sh
			REPORTS='$reports'
			case \$1 in
				-V | --version | -C | --boot | --check | --single) exec "\$0-unwrapped" "\$@" ;;
			esac
			exec $1 "\$0-unwrapped" "\$@"
		EOF
}

# Makes a database cluster in SCRATCH/data and starts it with the given settings
# file, on a socket in SCRATCH/socket that only the server's user and root reach.
# The superuser is postgres, who needs no password there.  Log: SCRATCH/server.log
start_server() {
	SOCKET_DIR=$SCRATCH/socket
	as_server mkdir -m 700 "$SOCKET_DIR"
	as_server "$PG_BIN/initdb" -D "$SCRATCH/data" -U postgres --auth=trust --no-sync \
		--encoding=UTF8 --locale=C >"$SCRATCH/initdb.log" 2>&1 ||
		die "initdb failed: $(cat "$SCRATCH/initdb.log")"
	{
		cat "$1"
		echo "listen_addresses = ''"
		echo "unix_socket_directories = '$SOCKET_DIR'"
	} | as_server tee -a "$SCRATCH/data/postgresql.conf" >/dev/null
	# Its own output goes to the log, else a pipe that reads ours would never end.
	as_server "$PG_BIN/pg_ctl" -D "$SCRATCH/data" -l "$SCRATCH/server.log" -w -t 60 start \
		>/dev/null 2>&1 </dev/null || {
		cat "$SCRATCH/server.log" >&2
		die "the server did not start"
	}
}

# Prints the pid of the server that runs on a data directory.  A pid file may be
# left from a crash and its number be somebody else's by now; but the server's
# main process works in its data directory.
server_pid() {
	local pid
	[[ -f $1/postmaster.pid ]] && read -r pid <"$1/postmaster.pid" || return 1
	[[ ! -d /proc/self || $(as_server readlink "/proc/$pid/cwd") == "$1" ]] && echo "$pid"
}

# Stops every server that runs on a data directory below a directory.
stop_servers_below() {
	local pidfile data
	while IFS= read -r -d '' pidfile; do
		data=$(dirname "$pidfile")
		server_pid "$data" >/dev/null || continue
		as_server "$PG_BIN/pg_ctl" -D "$data" -m immediate -w -t 60 stop >/dev/null 2>&1 </dev/null ||
			say "could not stop the server of $data" >&2
	done < <(find "$1" -name postmaster.pid -print0 2>/dev/null)
}

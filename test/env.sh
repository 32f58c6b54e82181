# shellcheck shell=bash
# Gives scripts a PostgreSQL of their own with ttl_docs in it.  Scripts source this file.
#
# The steps, in the order of their use:
#	require_packages    finds a PostgreSQL and tools, installs missing packages (packages.sh)
#	become_unprivileged chooses the user that runs the server (never root)
#	make_scratch        creates the directory for all other files
#	private_postgres    copies the server into it, builds ttl_docs and installs it there
#	install_test_modules  builds the libraries that tests load together with ttl_docs
#	wrap_postgres       runs every server under another command, such as valgrind
#	start_server        runs initdb and starts a server, which has a private socket only
#
# If root calls a script, SCRATCH and all programs in it belong to the server's user.  So root runs none
# of them, and opens no file there for writing: as_server does.
#
# Scripts read the PostgreSQL of the system, and never write to it.  PostgreSQL finds its
# libraries and scripts relative to its binary, so a copy of the binary uses the
# copies of these files.  This needs no root, and does not affect other servers on the machine.

readonly OLDEST_PG=15
REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly REPO

# Our servers must not get settings that are meant for other servers, or settings of a make
# that called us.
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

# shellcheck source=test/packages.sh
source "$REPO/test/packages.sh"

# ---- User and directory ----

# Sets SERVER_USER, and the prefix with which as_server runs commands as this user.
# PostgreSQL does not run as root, so root uses another user.
become_unprivileged() {
	SERVER_USER=$(id -un)
	SERVER_USER_PREFIX=()
	((EUID == 0)) || return 0

	for SERVER_USER in postgres nobody; do
		! id -u "$SERVER_USER" >/dev/null 2>&1 || break
	done
	# setpriv executes the command in its own process, runuser in a child.
	if command -v setpriv >/dev/null; then
		SERVER_USER_PREFIX=(setpriv "--reuid=$SERVER_USER" "--regid=$(id -g "$SERVER_USER")" --init-groups)
	else
		SERVER_USER_PREFIX=(runuser -u "$SERVER_USER" --)
	fi
}

as_server() {
	"${SERVER_USER_PREFIX[@]}" "$@"
}

# Sends a signal to a process of the server's user.  The pid may come from a file of that user, so root
# does not send it.  Without procps, there is no program kill.
signal_server() {
	# shellcheck disable=SC2016
	as_server bash -c 'kill -s "$1" "$2"' - "$@"
}

# Succeeds if the server's user can write to a directory and run programs in it.  Others may
# not enter root's TMPDIR, and /tmp may be mounted noexec.
usable_by_server() {
	local probe=$1/probe
	as_server cp "$(type -P true)" "$probe" 2>/dev/null && as_server "$probe" 2>/dev/null &&
		rm -f "$probe"
}

# Prints the directories that may hold SCRATCH, the best one first.
scratch_parents() {
	local parent
	for parent in "${TMPDIR:-/tmp}" /tmp /var/tmp; do
		# The path of a socket below must be shorter than some 100 bytes, and make does
		# not support blanks in names.
		if [[ -d $parent && $parent != *[[:space:]]* ]] && ((${#parent} <= 40)); then
			(cd "$parent" && pwd -P)
		fi
	done
}

# Sets SCRATCH to a new directory of the server's user, and enters it.  If the name ends in
# XXXXXX, the directory has a new name each time.
make_scratch() {
	local parent
	for parent in $(scratch_parents); do
		SCRATCH=$parent/$1
		if [[ $1 == *XXXXXX ]]; then
			SCRATCH=$(mktemp -d "$SCRATCH") || continue
		else
			# Fails if somebody else has a directory of this name.
			mkdir -m 700 "$SCRATCH" || continue
		fi
		chown "$SERVER_USER" "$SCRATCH"
		if usable_by_server "$SCRATCH"; then
			# The server's user may not be able to enter the caller's directory.
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

# Copies the source tree to SCRATCH/source: the server's user may not be able to read the
# original, and must not write to it.
copy_source() {
	as_server mkdir -p "$SCRATCH/source"
	{
		# Status 1: a file changed while tar read it.  That does not matter.
		tar -C "$REPO" --exclude=./.git --exclude=./test-results --exclude='*.o' --exclude='*.so' \
			--exclude='*.bc' -cf - . || (($? == 1))
	} | as_server tar -C "$SCRATCH/source" -xf - || die "could not copy $REPO"
}

# Copies PostgreSQL to SCRATCH/root, with the same paths below it.  Builds ttl_docs with
# additional compiler flags, and installs it there.  Sets PG_BIN to the directory of the
# programs.
private_postgres() {
	local root=$SCRATCH/root bin lib share
	bin=$("$PG_CONFIG" --bindir)
	lib=$("$PG_CONFIG" --pkglibdir)
	share=$("$PG_CONFIG" --sharedir)
	PG_BIN=$root$bin

	as_server mkdir -p "$root$bin" "$root$lib" "$root$share" || die "could not create $root"
	(
		shopt -s nullglob
		# By name, because some distributions have the programs in /usr/bin.  Files, not
		# links: a program finds its files relative to the real file.
		cd "$bin" && as_server cp -L postgres initdb psql pg* {create,drop}{db,user} \
			{cluster,reindex,vacuum}db "$root$bin" || exit 1
		# Leave out the bitcode of the server: it is large, and only JIT uses it.
		tar -C "$lib" --exclude=./bitcode --exclude=./pgxs -cf - . |
			as_server tar -C "$root$lib" -xf - &&
			tar -C "$share" -cf - . | as_server tar -C "$root$share" -xf -
	) || die "could not copy the PostgreSQL of $PG_CONFIG"
	[[ $(as_server "$PG_BIN/pg_config" --pkglibdir) == "$root$lib" &&
		$(as_server "$PG_BIN/pg_config" --sharedir) == "$root$share" ]] ||
		die "a copy of the PostgreSQL of $PG_CONFIG does not find its files"

	copy_source
	say "building ttl_docs for $("$PG_CONFIG" --version)"
	as_server make -C "$SCRATCH/source" -s -j "$(nproc)" --no-print-directory install \
		PG_CONFIG="$PG_CONFIG" DESTDIR="$root" COPT="$1" with_llvm=no ||
		die "could not build ttl_docs"
}

# Builds the libraries of test/modules, and installs them together with ttl_docs.
install_test_modules() {
	as_server make -C "$SCRATCH/source/test/modules" -s --no-print-directory install \
		PG_CONFIG="$PG_CONFIG" DESTDIR="$SCRATCH/root" COPT="-Werror" with_llvm=no ||
		die "could not build test/modules"
}

# Makes every server that we or a TAP test start from PG_BIN run under a command, which is
# shell text.  The command writes its reports to the directory $REPORTS, which is created
# here.  initdb does not run under the command, because it would take long and does not load
# ttl_docs.
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

# Creates a database cluster in SCRATCH/data, and starts it with a file of settings.  Its socket
# is in SCRATCH/socket, where only the server's user and root can connect.  The superuser is
# postgres, without a password.  The log is SCRATCH/server.log.
start_server() {
	local output
	SOCKET_DIR=$SCRATCH/socket
	as_server mkdir -m 700 "$SOCKET_DIR"
	output=$(as_server "$PG_BIN/initdb" -D "$SCRATCH/data" -U postgres --auth=trust --no-sync \
		--encoding=UTF8 --locale=C 2>&1) || die "initdb failed: $output"
	{
		cat "$1"
		echo "listen_addresses = ''"
		echo "unix_socket_directories = '$SOCKET_DIR'"
	} | as_server tee -a "$SCRATCH/data/postgresql.conf" >/dev/null
	# The server must not keep our output open: a pipe that reads it would never end.
	as_server "$PG_BIN/pg_ctl" -D "$SCRATCH/data" -l "$SCRATCH/server.log" -w -t 60 start \
		>/dev/null 2>&1 </dev/null || {
		cat "$SCRATCH/server.log" >&2
		die "the server did not start"
	}
}

# Prints the pid of the server that runs on a data directory.  After a crash, the pid file may
# have the number of another process.  But only the server's main process has the data
# directory as its working directory.
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

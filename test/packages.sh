# shellcheck shell=bash
# Finds PostgreSQL and other tools, and installs the Debian packages that are missing.
# test/env.sh sources this file.
#
#	require_packages PURPOSE ...   installs what the purposes lack; sets PG_CONFIG
#
# It has three steps, which a script can also call one by one:
#	plan_packages PURPOSE ...      finds out which packages to install: NEEDED and USEFUL
#	announce                       prints these packages and apt-get's own estimate of their size
#	install_planned                installs them; sets PG_CONFIG
#
# A purpose is the NAME of a function packages_for_NAME below: it finds out what is missing.
# Packages are needed or useful.  Without a needed package the script ends, and says what to do.
# Without a useful package the script leaves something out.
#
# If nothing is missing, all steps print nothing and do nothing.

# Debian has each version of PostgreSQL in a directory below this one.
DEBIAN_POSTGRES=/usr/lib/postgresql

# This file prevents postgresql-common from creating a cluster "main" that starts at boot.
readonly NO_CLUSTER_CONF=/etc/postgresql-common/createcluster.d/zz-ttl_docs.conf

# Packages of this name have a service of this name, which starts when the package is installed, and at boot.
readonly SERVICES="pgbouncer patroni"

# Debian's invoke-rc.d asks this program before it starts a service.
readonly POLICY=/usr/sbin/policy-rc.d

# ---- What is installed ----

# Prints the major version of a pg_config's PostgreSQL, or nothing if it has none.
pg_major() {
	"$1" --version 2>/dev/null | sed -n 's/^PostgreSQL \([0-9][0-9]*\).*/\1/p'
}

# Succeeds if an extension can be built for, and run in, a pg_config's PostgreSQL.
# Debian's client packages have a pg_config, but neither server nor development files.
pg_is_complete() {
	local program
	for program in postgres initdb pg_ctl psql; do
		[[ -x $("$1" --bindir)/$program ]] || return 1
	done
	[[ -f $("$1" --includedir-server)/postgres.h && -f $("$1" --pgxs) ]]
}

# Sets PG_CONFIG to the first usable one.  If the caller has set PG_CONFIG, no other one
# counts.  Otherwise: the one on the PATH, then the newest of Debian's directories.
find_postgres() {
	local candidate major candidates=()
	if [[ -n ${PG_CONFIG:-} ]]; then
		candidates=("$PG_CONFIG")
	else
		mapfile -t candidates < <(
			command -v pg_config
			printf '%s\n' "$DEBIAN_POSTGRES"/*/bin/pg_config | sort -rV
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

# Succeeds if C programs can be compiled.  The libc headers are a package of their own.
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

# The programs of test/torture and bench use it.
have_psycopg2() {
	/usr/bin/python3 -c 'import psycopg2' 2>/dev/null
}

have_pgbouncer() {
	[[ -x /usr/sbin/pgbouncer ]] || command -v pgbouncer >/dev/null
}

have_patroni() {
	command -v patroni >/dev/null && /usr/bin/python3 -c 'import pysyncobj' 2>/dev/null
}

# Succeeds if programs can be built with the sanitizers and run.
have_sanitizers() {
	local directory status
	directory=$(mktemp -d) || return 1
	echo 'int main(void) { return 0; }' |
		gcc -fsanitize=address,undefined -x c -o "$directory/probe" - 2>/dev/null && "$directory/probe"
	status=$?
	rm -rf "$directory"
	return "$status"
}

# memcheck has to know the C library's functions by name.
have_debug_symbols() {
	[[ -d /usr/lib/debug/.build-id ]]
}

is_installed() {
	# shellcheck disable=SC2016
	[[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# Succeeds if Debian has packages for the PostgreSQL in use, or for the one to be installed.
is_debian_postgres() {
	[[ -z ${PG_CONFIG:-} || $("$PG_CONFIG" --bindir) == "$DEBIAN_POSTGRES"/*/bin ]]
}

# ---- Purposes ----

# Notes what is missing: its description, then the packages.  In the name of a package, NN
# stands for the major version of PostgreSQL.
need() {
	say "missing: $1"
	NEEDED+=("${@:2}")
}

useful() {
	USEFUL+=("$@")
}

packages_for_build() {
	if ! find_postgres; then
		[[ -z ${PG_CONFIG:-} ]] ||
			die "PG_CONFIG=$PG_CONFIG is not a PostgreSQL of version $OLDEST_PG or later with server, psql and development files"
		need "PostgreSQL $OLDEST_PG or later: server, psql and development files (pg_config, headers, PGXS)" \
			postgresql-NN postgresql-server-dev-NN
	fi
	have_compiler || need "a C compiler and make" build-essential
}

packages_for_test() {
	packages_for_build
	have_tap || need "prove and the Perl module IPC::Run" libipc-run-perl
	have_psycopg2 || useful python3-psycopg2
	if is_debian_postgres && [[ -z ${PG_CONFIG:-} || ! -x $("$PG_CONFIG" --bindir)/pg_repack ]]; then
		useful postgresql-NN-repack
	fi
	if is_debian_postgres &&
		[[ -z ${PG_CONFIG:-} || ! -e $("$PG_CONFIG" --sharedir)/extension/pg_partman.control ]]; then
		useful postgresql-NN-partman
	fi
}

# For test/t/053_patroni.pl.  Patroni needs a store that all nodes share.  Its own one, with python3-pysyncobj, runs
# inside of Patroni.  All others, such as etcd, are servers.
packages_for_torture() {
	packages_for_test
	have_patroni || useful patroni python3-pysyncobj
}

packages_for_lint() {
	local tool
	packages_for_test
	for tool in cppcheck clang clang-tidy shellcheck; do
		command -v "$tool" >/dev/null || useful "$tool"
	done
}

# The applications of test/orm, or those of them that TESTS names.
packages_for_orm() {
	local directory packages=()
	packages_for_build
	have_pgbouncer || useful pgbouncer
	for directory in "$REPO"/test/orm/*/; do
		directory=${directory%/}
		[[ -z ${TESTS:-} || " $TESTS " == *" ${directory##*/} "* ]] || continue
		# shellcheck source=/dev/null
		(cd "$directory" && source ./app.sh && have_packages) >/dev/null 2>&1 && continue
		# shellcheck source=/dev/null
		mapfile -t packages < <(cd "$directory" && source ./app.sh && say "${packages[@]}")
		useful "${packages[@]}"
	done
}

packages_for_sanitize() {
	packages_for_test
	# gcc, because its runtime is a library that can be preloaded.  libgcc-NN-dev has it, and
	# gcc depends on that package.
	have_sanitizers || need "gcc with AddressSanitizer and UBSan" gcc
}

packages_for_valgrind() {
	packages_for_test
	command -v valgrind >/dev/null || need valgrind valgrind
	have_debug_symbols || need "debug symbols of the C library" libc6-dbg
}

packages_for_bench_quick() {
	packages_for_build
	have_psycopg2 || need "python3 with psycopg2" python3-psycopg2
}

packages_for_bench() {
	packages_for_bench_quick
	if is_debian_postgres && [[ -z ${PG_CONFIG:-} || ! -e $("$PG_CONFIG" --pkglibdir)/pg_cron.so ]]; then
		useful postgresql-NN-cron
	fi
	command -v valgrind >/dev/null || useful valgrind
}

# debian/control names these packages, too.
packages_for_deb() {
	local package packages=(build-essential debhelper postgresql-server-dev-all)
	command -v dpkg-query >/dev/null || die "Debian packages can be built on Debian and Ubuntu only"
	[[ " ${DEB_BUILD_PROFILES:-} " == *" nocheck "* ]] || packages+=(postgresql-all)
	for package in "${packages[@]}"; do
		is_installed "$package" || need "$package" "$package"
	done
}

packages_for_matrix() {
	command -v debootstrap >/dev/null || need debootstrap debootstrap
}

# The matrix of other architectures
packages_for_emulator() {
	[[ -e /usr/bin/qemu-s390x-static ]] || need "qemu for programs of other processors" qemu-user-static
}

# ---- Installing ----

# Installs what the given purposes lack.
require_packages() {
	plan_packages "$@"
	announce
	install_planned
}

# Sets NEEDED and USEFUL to the missing packages that can be installed here.  Ends the script if
# something needed cannot be installed.
plan_packages() {
	local purpose
	NEEDED=() USEFUL=()
	for purpose in "$@"; do
		"packages_for_$purpose"
	done
	((${#NEEDED[@]} + ${#USEFUL[@]} > 0)) || return 0
	if ! require_apt && ((${#NEEDED[@]} == 0)); then
		USEFUL=()
		return 0
	fi
	if ! command -v apt-get >/dev/null; then
		refuse "this script can install packages on Debian and Ubuntu only" \
			"Install the missing programs with the package manager of your system, then start again." \
			"If pg_config is not on the PATH, name it: PG_CONFIG=/path/to/pg_config"
	fi
	if [[ ${NEEDED[*]} == *-NN* ]]; then
		refuse_old_system
	fi
	mapfile -t NEEDED < <(resolve_packages "${NEEDED[@]}")
	mapfile -t USEFUL < <(resolve_packages "${USEFUL[@]}" | select_useful)
	((${#APT_GET[@]} > 0)) || refuse_without_root
}

# Installs the packages of plan_packages.
install_planned() {
	local package
	((${#NEEDED[@]} == 0)) || apt_install "${NEEDED[@]}" || die "could not install ${NEEDED[*]}"
	# One by one: a package that fails must not prevent the others.
	for package in "${USEFUL[@]}"; do
		apt_install "$package" || say "could not install $package"
	done
	if [[ " ${NEEDED[*]} " == *" postgresql-server-dev-"[0-9]* ]]; then
		find_postgres || die "found no complete PostgreSQL, although ${NEEDED[*]} are installed"
	fi
}

# Prints an error and the lines that explain it, without the empty ones, and ends the script.
refuse() {
	local line
	printf 'error: %s\n' "$1" >&2
	for line in "${@:2}"; do
		[[ -z $line ]] || say "$line" >&2
	done
	exit 1
}

# Sets APT_GET to the command that calls apt-get as root, and reads the package lists.
# Fails if there is no apt-get, or no way to become root.
require_apt() {
	((${#APT_GET[@]} == 0)) || return 0
	command -v apt-get >/dev/null || return 1
	if ((EUID != 0)); then
		command -v sudo >/dev/null || return 1
		# Without a terminal nobody can answer sudo's question for the password.
		sudo -n true 2>/dev/null || { [[ -t 0 ]] && sudo -v; } || return 1
		AS_ROOT=(sudo)
	fi
	APT_GET=("${AS_ROOT[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -q)
	say "reading the package lists"
	"${APT_GET[@]}" -q update || say "apt-get update failed; trying with the existing lists"
}
APT_GET=()
AS_ROOT=()

# Ends the script with the line that root has to run.
refuse_without_root() {
	local update='' optional='' server=''
	# A new container has no package lists.
	[[ -n $(apt-cache show postgresql 2>/dev/null) ]] || update="apt-get update && "
	if ((${#USEFUL[@]} > 0)); then
		optional="More tests run if these packages are installed, too: ${USEFUL[*]}"
	fi
	if [[ " ${NEEDED[*]} " == *" postgresql"* ]]; then
		server="Note: Debian's PostgreSQL package also creates and starts a server.  This script does not use it."
	fi
	refuse "only root can install packages, and you cannot use sudo here" \
		"Run this line as root, then start again:" \
		"    ${update}apt-get install --no-install-recommends ${NEEDED[*]}" \
		"$optional" "$server"
}

# Ends the script if the packages of this system are for an older PostgreSQL only.
refuse_old_system() {
	local major has="have PostgreSQL"
	major=$(debian_major)
	((major < OLDEST_PG)) || return 0
	if ((major == 0)); then
		# Without the package lists we do not know.
		((${#APT_GET[@]} > 0)) || return 0
		has="have no PostgreSQL"
		major=
	fi
	refuse "the packages of this system $has${major:+ $major}, but ttl_docs needs version $OLDEST_PG or later" \
		"The PostgreSQL project has newer packages: https://www.postgresql.org/download/" \
		"On Debian and Ubuntu, run this as root to use these packages, then start again:" \
		"    apt-get install postgresql-common" \
		"    /usr/share/postgresql-common/pgdg/apt.postgresql.org.sh" \
		"If PostgreSQL $OLDEST_PG or later is installed elsewhere, name its pg_config instead:" \
		"    PG_CONFIG=/path/to/pg_config"
}

# Reads names of useful packages, and prints those that are not needed and can be installed.
select_useful() {
	local package
	while read -r package; do
		if [[ " ${NEEDED[*]} " == *" $package "* ]]; then
			continue
		elif plan_of "$package" >/dev/null; then
			say "$package"
		else
			say "not available here: $package" >&2
		fi
	done
}

# Prints the packages that are not installed, each once, with a version for NN.  Without package
# lists, these are the packages that depend on the version of the system.
resolve_packages() {
	local package major=
	for package in "$@"; do
		if [[ $package == *-NN* ]]; then
			major=${major:-$(debian_major)}
			if ((major > 0)); then
				package=${package/NN/$major}
			elif [[ $package == postgresql-NN ]]; then
				package=postgresql
			else
				package=${package/NN/all}
			fi
		fi
		is_installed "$package" || say "$package"
	done | sort -u
}

# Prints the major version of PostgreSQL that packages are for: the one in use, else the
# newest server that is installed, else the one that the distribution has.
debian_major() {
	local major
	if [[ -n ${PG_CONFIG:-} ]]; then
		pg_major "$PG_CONFIG"
		return
	fi
	major=$(printf '%s\n' "$DEBIAN_POSTGRES"/*/bin/postgres |
		sed -n 's,.*/\([0-9]*\)/bin/postgres$,\1,p' | sort -n | tail -n 1)
	if ((${major:-0} < OLDEST_PG)); then
		major=$(LC_ALL=C apt-cache depends postgresql 2>/dev/null |
			sed -n 's/^ *Depends: postgresql-\([0-9][0-9]*\)$/\1/p' | head -n 1)
	fi
	say "${major:-0}"
}

# Prints what apt-get would do.  Fails if it cannot install these packages.
plan_of() {
	# Not --assume-no: if apt-get has no question, it would install.
	LC_ALL=C apt-get -q install --print-uris --no-install-recommends "$@" 2>/dev/null </dev/null
}

# Prints the packages of plan_packages and their size, if there are any.
announce() {
	((${#NEEDED[@]} + ${#USEFUL[@]} > 0)) || return 0
	say "to be installed: ${NEEDED[*]} ${USEFUL[*]}"
	print_size
}

# Prints the names of all packages that are not installed yet: those of plan_packages, and the packages
# that these depend on.
new_packages() {
	LC_ALL=C apt-get -q -s install --no-install-recommends "${NEEDED[@]}" "${USEFUL[@]}" 2>/dev/null </dev/null |
		sed -n 's/^Inst \([^ ]*\) (.*/\1/p' | sort
}

print_size() {
	plan_of "${NEEDED[@]}" "${USEFUL[@]}" | sed -n -e '/ newly installed, /s/^/    /p' -e '/^Need to get /s/^/    /p' \
		-e '/^After this operation, /s/^/    /p'
}

# Installs packages that are not installed yet.  Starts no server, and leaves none behind that starts at
# boot.  Runs in a subshell, whose traps undo all temporary changes, also after ^C.
apt_install() {
	(
		trap 'allow_clusters; allow_services' EXIT
		trap 'exit 130' INT
		trap 'exit 143' TERM HUP
		forbid_clusters && forbid_services && "${APT_GET[@]}" install -y --no-install-recommends "$@" </dev/null || exit
		disable_services "$@"
	) && hash -r
}

# Prevents postgresql-common from creating a cluster.  Its createcluster.conf includes the directory of
# NO_CLUSTER_CONF; files of the user stay as they are.
forbid_clusters() {
	local directory=${NO_CLUSTER_CONF%/*} main=${NO_CLUSTER_CONF%/*/*}/createcluster.conf
	if [[ -f $main ]] && ! grep -q "^ *include_dir.*$directory" "$main"; then
		say "note: $main does not include $directory, so a new PostgreSQL may get a cluster that starts at boot"
	fi
	CREATED_DIRECTORY=
	if [[ ! -d $directory ]]; then
		CREATED_DIRECTORY=$directory
		"${AS_ROOT[@]}" mkdir -p "$directory" || return
	fi
	echo 'create_main_cluster = false' | "${AS_ROOT[@]}" tee "$NO_CLUSTER_CONF" >/dev/null
}

allow_clusters() {
	"${AS_ROOT[@]}" rm -f "$NO_CLUSTER_CONF"
	# The directory may belong to a package that is installed by now.
	if [[ -n $CREATED_DIRECTORY ]] && ! dpkg-query -S "$CREATED_DIRECTORY" >/dev/null 2>&1; then
		"${AS_ROOT[@]}" rmdir -p --ignore-fail-on-non-empty "$CREATED_DIRECTORY" 2>/dev/null
	fi
	return 0
}

# Prevents packages from starting services.  A policy of the administrator stays as it is.
forbid_services() {
	CREATED_POLICY=
	[[ ! -e $POLICY ]] || return 0
	CREATED_POLICY=yes
	printf '#!/bin/sh\nexit 101\n' | "${AS_ROOT[@]}" tee "$POLICY" >/dev/null &&
		"${AS_ROOT[@]}" chmod 755 "$POLICY"
}

allow_services() {
	[[ -z ${CREATED_POLICY:-} ]] || "${AS_ROOT[@]}" rm -f "$POLICY"
}

# Stops the services of new packages, and prevents them from starting at boot.
disable_services() {
	local service
	for service in $SERVICES; do
		[[ " $* " == *" $service "* ]] || continue
		if [[ -d /run/systemd/system ]]; then
			"${AS_ROOT[@]}" systemctl disable --quiet --now "$service"
		else
			"${AS_ROOT[@]}" update-rc.d "$service" disable >/dev/null
			"${AS_ROOT[@]}" invoke-rc.d --quiet "$service" stop
		fi
	done
	return 0
}

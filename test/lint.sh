#!/usr/bin/env bash
# Checks the source without running it ("make lint"):
#	compiler    the compiler of the server, and clang: every warning is an error
#	layers      the parts of src include only what src/README.md allows
#	symbols     all symbols that the library exports begin with ttl_docs_: every process loads it,
#	            and on Linux all libraries share one name space
#	cppcheck    warnings, performance and portability
#	tidy        clang's analyzer, and checks that find bugs
#	shell       shellcheck of all scripts
#	perl, python  all files compile
# Each check is one test.  A check whose tool is missing and cannot be installed is skipped and named.
# The last line is "N passed, N failed".
set -uo pipefail
export LC_ALL=C

# shellcheck source=test/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

# Leaves out the bugprone checks that PostgreSQL's own style breaks.
readonly TIDY_CHECKS='-*,clang-analyzer-core.*,clang-analyzer-deadcode.*,clang-analyzer-unix.*,bugprone-*,misc-redundant-expression,misc-misleading-*,performance-*,-bugprone-easily-swappable-parameters,-bugprone-reserved-identifier,-bugprone-narrowing-conversions'

SCRATCH=
passed=0
failures=()
skipped=()

leave() {
	local status=$? name
	trap - EXIT
	[[ -z $SCRATCH ]] || rm -rf "$SCRATCH"
	say ""
	for name in "${failures[@]}"; do
		say "failed: $name"
	done
	say "$passed passed, ${#failures[@]} failed, ${#skipped[@]} skipped"
	((status != 0 || ${#failures[@]} > 0)) || exit 0
	exit 1
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Runs a check if its tool is installed: name, tool.
check() {
	local name=$1 tool=$2
	printf '%-12s ' "$name"
	if ! command -v "$tool" >/dev/null; then
		say "skipped: there is no $tool"
		skipped+=("$name")
	elif "check_$name" >"$SCRATCH/log" 2>&1; then
		say "ok"
		passed=$((passed + 1))
	else
		say "FAILED"
		cat "$SCRATCH/log"
		failures+=("$name")
	fi
}

build() {
	make -C "$SCRATCH/source" -s --no-print-directory clean PG_CONFIG="$PG_CONFIG" &&
		make -C "$SCRATCH/source" -s -j "$(nproc)" --no-print-directory PG_CONFIG="$PG_CONFIG" \
			with_llvm=no "$@"
}

check_compiler() {
	build COPT=-Werror
}

check_clang() {
	# The server's flags and headers may be for another compiler.  Unlike gcc, clang warns about
	# unused arguments of SQL functions.
	build CC=clang COPT=-Werror PG_CFLAGS='-Wall -Wextra -Wno-ignored-optimization-argument -Wno-unknown-warning-option -Wno-ignored-attributes -Wno-unused-parameter'
}

check_symbols() {
	! nm --dynamic --defined-only "$SCRATCH/source/ttl_docs.so" | awk '{ print $NF }' |
		grep -Ev '^(pg_finfo_)?ttl_docs_|^_PG_init$|^Pg_magic_func$'
}

check_layers() {
	test/layers.py
}

check_cppcheck() {
	cppcheck --quiet --error-exitcode=1 --std=c99 --enable=warning,performance,portability --inline-suppr \
		--include=test/lint.h -I src -D__GNUC__ -DPG_VERSION_NUM="$(pg_major "$PG_CONFIG")0000" src/*.c src/*/*.c
}

check_tidy() {
	clang-tidy --quiet --warnings-as-errors='*' --checks="$TIDY_CHECKS" src/*.c src/*/*.c -- \
		-I src -isystem "$("$PG_CONFIG" --includedir-server)" -D_GNU_SOURCE -DUSE_ASSERT_CHECKING
}

check_shell() {
	git ls-files -z --cached --others --exclude-standard -- '*.sh' .ci/run debian/tests debian/prerm.in |
		xargs -0 grep -lZE '^#!.*\b(ba)?sh$|^# shellcheck shell=' |
		xargs -0 shellcheck --external-sources --source-path=SCRIPTDIR:"$REPO"
}

check_perl() {
	local file
	# if PostgreSQL's modules are missing, Perl says so
	for file in test/t/*.pl test/perl/*.pm; do
		perl -I test/perl -I "$(dirname "$("$PG_CONFIG" --pgxs)")/../../src/test/perl" -c "$file" || return 1
	done
}

check_python() {
	git ls-files -z --cached --others --exclude-standard -- '*.py' |
		xargs -0 /usr/bin/python3 -W error -c 'import ast, sys; [ast.parse(open(name).read(), name) for name in sys.argv[1:]]'
}

require_packages lint
SCRATCH=$(mktemp -d)
mkdir "$SCRATCH/source"
cd "$REPO" || die "cannot enter $REPO"
git ls-files -z --cached --others --exclude-standard |
	tar --null --files-from=- --ignore-failed-read -cf - | tar -C "$SCRATCH/source" -xf -
say "" "== lint"
check clang clang
check compiler make
check layers /usr/bin/python3
check symbols nm
check cppcheck cppcheck
check tidy clang-tidy
check shell shellcheck
check perl perl
check python /usr/bin/python3

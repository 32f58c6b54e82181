#!/usr/bin/env bash
# Runs tests of ttl_docs with tools that find memory and arithmetic errors.  Any report fails the
# run.  Sanitizers write their reports into the server's log, valgrind into files; test-results/ has
# both.
#
#	test/sanitize.sh                    with AddressSanitizer and UBSan ("make sanitize")
#	VALGRIND=yes test/sanitize.sh       some tests, with every server under valgrind
#	TESTS="keys 022_fuzz" ...           runs these tests
#	PG_CONFIG=/path/to/pg_config ...    uses this PostgreSQL
#	PG_TEST_TORTURE=1 ...               with the long run of the fuzzer
#
# It runs test/run.sh with other compiler flags, and with a command in front of each server.  The server
# itself is an ordinary build.
#
# AddressSanitizer and UBSan check only the code of the extension, which is compiled with them.  Their
# runtime library has to be preloaded into the server.  They find:
# - accesses beyond variables on the stack and global variables;
# - use of a stack frame that has ended;
# - accesses beyond blocks of memory contexts, or after the end of such a block; an allocation of more
#   than some 8 kB has a block of its own;
# - the same accesses by memcpy, strlen and so on, if our code calls them;
# - signed overflow, invalid shifts, divisions, casts, null pointers, array bounds and alignment, in our
#   code and in functions that it inlines.
# They do not find an access from one small allocation into the next of the same block: palloc() takes
# both from one malloc().
#
# valgrind checks the whole server, with the code of PostgreSQL.  It also finds decisions and system
# calls that depend on uninitialized bytes.  It misses the same accesses inside a block: only a server
# that is built with USE_VALGRIND tells it what palloc() does.  Memory that palloc() uses again counts as
# initialized.  test/valgrind.supp has the known reports about PostgreSQL itself, with reasons.
set -uo pipefail
export LC_ALL=C

# shellcheck source=test/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

# The tests for valgrind, which takes 20 to 50 times as long: input, keys, COPY, stamps, purge.
readonly SHORT="ttl_values stamping keys copy create adopt preview purge_basic purge_cascade 022_fuzz"

# Prints the names of all tests in some directories of test/.
tests_in() {
	local directory
	for directory in "$@"; do
		find "$REPO/test/$directory" -maxdepth 1 -type f -printf '%f\n' | sed 's/\.[a-z]*$//'
	done
}

# Builds a library that initializes AddressSanitizer before anything else.  As a preloaded library,
# AddressSanitizer would start last, after constructors of the server's libraries have allocated
# memory, and would then wait for itself forever.
build_first() {
	echo 'void __asan_init(void); __attribute__((constructor)) static void first(void) { __asan_init(); }' |
		gcc -shared -fPIC -Wl,-z,initfirst -x c -o "$HELPERS/first.so" -
}

with_sanitizers() {
	local libraries tests
	require_packages sanitize
	have_sanitizers || die "programs that gcc builds with the sanitizers do not run"
	build_first || die "could not build a library"
	libraries=$(readlink -f "$(gcc -print-file-name=libasan.so)"):$HELPERS/first.so
	tests=$(tests_in sql specs)

	export TESTS="${TESTS:-${tests//$'\n'/ } 012_queries 022_fuzz 043_adopt_concurrently 050_partitions}"
	# With -fno-sanitize-recover a report of UBSan ends the process, so that the server's log names
	# the statement.  PostgreSQL is built with -fwrapv, which defines signed overflow.  Our arithmetic
	# on times must not rely on it, so -fno-wrapv is set.
	export TEST_COPT="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-wrapv -O1"
	# detect_leaks is off: memory in memory contexts is not a leak.
	# detect_stack_use_after_return is off: it moves variables off the stack, which check_stack_depth()
	# measures.
	# shellcheck disable=SC2016
	export TEST_WRAPPER='env LD_PRELOAD='"$libraries"' \
		ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=1 \
		UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1'
	export TEST_TIME_LIMIT=${TEST_TIME_LIMIT:-3600}
	"$REPO/test/run.sh"
}

with_valgrind() {
	require_packages valgrind
	export TESTS=${TESTS:-$SHORT}
	export TEST_COPT="-O1"
	# shellcheck disable=SC2016
	export TEST_WRAPPER='valgrind --quiet --leak-check=no --track-origins=yes --num-callers=30 \
		--gen-suppressions=all --suppressions='"$HELPERS/valgrind.supp"' --log-file=$REPORTS/valgrind.%p'
	cp "$REPO/test/valgrind.supp" "$HELPERS"
	# Maximum number of seconds that a test waits.
	export PG_TEST_TIMEOUT_DEFAULT=900
	export PG_TEST_FUZZ=${PG_TEST_FUZZ:---seed 1 --operations 40 --encodings EUC_JP --timeout 900}
	export TEST_TIME_LIMIT=${TEST_TIME_LIMIT:-3600}
	"$REPO/test/run.sh"
}

HELPERS=$(mktemp -d) || die "found no directory for temporary files"
readonly HELPERS
trap 'rm -rf "$HELPERS"' EXIT
# The server's user has to read it.
chmod 755 "$HELPERS"
if [[ -n ${VALGRIND:-} && $VALGRIND != no ]]; then
	with_valgrind
else
	with_sanitizers
fi

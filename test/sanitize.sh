#!/usr/bin/env bash
# Runs tests of ttl_docs with tools that find errors of memory and of arithmetic where
# the tests themselves see nothing.  Any report fails.  Sanitizers write theirs into the
# server's log, valgrind into files; test-results/ has both.
#
#	test/sanitize.sh                    with AddressSanitizer and UBSan ("make sanitize")
#	VALGRIND=yes test/sanitize.sh       some of them with every server under valgrind
#	TESTS="keys 022_fuzz" ...           only these
#	PG_CONFIG=/path/to/pg_config ...    on that PostgreSQL
#	PG_TEST_TORTURE=1 ...               with the long run of the fuzzer
#
# It is test/run.sh with other compiler flags, and with a command in front of each
# server.  Both tools meet a PostgreSQL that was built without them:
#
# AddressSanitizer and UBSan watch the code of the extension only, which is compiled
# with them.  The server is not, so their runtime library has to be preloaded into it.
# Found are: accesses beyond variables on the stack and global ones, use of a stack
# frame that is gone, accesses beyond, or after the end of, blocks of memory contexts (and of
# what is allocated in a block of its own: some 8 kB and more), those also where our code
# has memcpy, strlen and the like do it; signed overflow, shifts, divisions, casts,
# null pointers, array bounds, alignment in our code and in what it inlines.  Not found
# is what goes from one small allocation into the next of the same block: palloc()
# takes both from one malloc().
#
# valgrind watches all of the server, code of PostgreSQL included, and finds besides:
# decisions by, and system calls with, bytes that nobody has set.  It has the same
# blind spot: only a server that is built with USE_VALGRIND tells it what palloc() does,
# and memory that palloc() hands out again counts as set.  What PostgreSQL itself is
# known for is in test/valgrind.supp, each with its reason.
set -uo pipefail
export LC_ALL=C

# shellcheck source=test/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

# For valgrind, which takes 20 to 50 times as long: input, keys, COPY, stamps, purge.
readonly SHORT="ttl_values stamping keys copy create adopt preview purge_basic purge_cascade 022_fuzz"

# Installs a package unless a command succeeds.
require_package() {
	local package=$1
	shift
	"$@" >/dev/null 2>&1 && return
	say "missing: $package"
	require_apt || die "$WITHOUT_APT"
	apt_install "$package" || die "could not install $package"
	"$@" >/dev/null || die "$package is installed, but: $*: does not work"
}

# The names of all tests of the kinds that are given as directories of test/.
tests_in() {
	local directory
	for directory in "$@"; do
		find "$REPO/test/$directory" -type f -printf '%f\n' | sed 's/\.[a-z]*$//'
	done
}

# Succeeds if programs can be built with the sanitizers and run.
sanitizers_work() {
	echo 'int main(void) { return 0; }' |
		gcc -fsanitize=address,undefined -x c -o "$HELPERS/probe" - && "$HELPERS/probe"
}

# Builds a library that has AddressSanitizer begin before anything else.  As a preloaded
# library it would come last, after constructors of libraries of the server have
# allocated memory already, which it does not survive (it waits for itself).
build_first() {
	echo 'void __asan_init(void); __attribute__((constructor)) static void first(void) { __asan_init(); }' |
		gcc -shared -fPIC -Wl,-z,initfirst -x c -o "$HELPERS/first.so" -
}

with_sanitizers() {
	local libraries tests
	# gcc, because its runtime is a library that can be preloaded.  libgcc-NN-dev, which
	# gcc depends on, brings it.
	require_package gcc sanitizers_work
	build_first || die "could not build a library"
	libraries=$(readlink -f "$(gcc -print-file-name=libasan.so)"):$HELPERS/first.so
	tests=$(tests_in sql specs)

	export TESTS="${TESTS:-${tests//$'\n'/ } 022_fuzz}"
	# Not to recover makes a report of UBSan the end of the process, whose statement the
	# server's log then names.  PostgreSQL is built with -fwrapv, which defines signed
	# overflow; our arithmetic on times must do without, so that is taken back.
	export TEST_COPT="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-wrapv -O1"
	# detect_leaks: what memory contexts hold is no leak.  detect_stack_use_after_return
	# moves variables off the stack, where check_stack_depth() measures.
	# shellcheck disable=SC2016
	export TEST_WRAPPER='env LD_PRELOAD='"$libraries"' \
		ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=1 \
		UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1'
	export TEST_TIME_LIMIT=${TEST_TIME_LIMIT:-3600}
	"$REPO/test/run.sh"
}

with_valgrind() {
	require_package valgrind valgrind --version
	# memcheck has to know the C library's functions by name.
	require_package libc6-dbg test -d /usr/lib/debug/.build-id
	export TESTS=${TESTS:-$SHORT}
	export TEST_COPT="-O1"
	# shellcheck disable=SC2016
	export TEST_WRAPPER='valgrind --quiet --leak-check=no --track-origins=yes --num-callers=30 \
		--gen-suppressions=all --suppressions='"$HELPERS/valgrind.supp"' --log-file=$REPORTS/valgrind.%p'
	cp "$REPO/test/valgrind.supp" "$HELPERS"
	# Tests that wait give up after that many seconds.
	export PG_TEST_TIMEOUT_DEFAULT=900
	export PG_TEST_FUZZ=${PG_TEST_FUZZ:---seed 1 --operations 40 --encodings EUC_JP --timeout 900}
	export TEST_TIME_LIMIT=${TEST_TIME_LIMIT:-3600}
	"$REPO/test/run.sh"
}

HELPERS=$(mktemp -d) || die "found no directory for temporary files"
readonly HELPERS
trap 'rm -rf "$HELPERS"' EXIT
# The server's user reads it.
chmod 755 "$HELPERS"
if [[ -n ${VALGRIND:-} && $VALGRIND != no ]]; then
	with_valgrind
else
	with_sanitizers
fi

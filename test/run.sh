#!/usr/bin/env bash
# Runs all tests of ttl_docs on a private PostgreSQL, and counts them.
#
#	test/run.sh                        runs everything ("make test")
#	TESTS="keys key_race" test/run.sh   runs these tests; a TAP file also without its number, if no
#	                                   other test has that name
#	PG_CONFIG=/path/to/pg_config ...   uses this PostgreSQL
#	TEST_COPT="-fsanitize=..." ...     builds with additional compiler flags
#	TEST_WRAPPER="valgrind ..." ...    runs every server under this command, which writes its
#	                                   reports into $REPORTS; any report fails the run
#
# There are three kinds of tests, and each file is one test: test/sql/*.sql (pg_regress),
# test/specs/*.spec (isolation) and test/t/*.pl (TAP).  A test that does not say "ok" has failed,
# whatever the reason.  The last line is "N passed, N failed".
#
# The build has assertions, and warnings are errors.  After a failure, test-results/ has logs and
# diffs.  Nothing else stays behind.
set -uo pipefail
export LC_ALL=C

# shellcheck source=test/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

readonly RESULTS=$REPO/test-results
# Maximum number of seconds for one run of pg_regress, or for one TAP file.
readonly TIME_LIMIT=${TEST_TIME_LIMIT:-600}
# Number of lines printed of each diff or log; test-results/ has the rest.
readonly SHOWN_LINES=200

SCRATCH=
GROUP=
SERVER_STARTED=
selected=0
passed=0
failures=()
skipped=()

# ---- Selecting tests ----

# Succeeds if TESTS is empty or has one of the given names.
wanted() {
	local name
	[[ -n ${TESTS:-} ]] || return 0
	for name in "$@"; do
		[[ " $TESTS " != *" $name "* ]] || return 0
	done
	return 1
}

# Sets the lists of tests.  Refuses unknown names, and names that two tests have.
select_tests() {
	local file name short known=" "
	regress=() isolation=() tap=()
	for file in "$REPO"/test/{sql/*.sql,specs/*.spec,t/*.pl}; do
		[[ -e $file ]] || continue
		name=$(basename "${file%.*}")
		case $file in
			*.sql | *.spec)
				# Both compare with expected/NAME.out.
				[[ $known != *" $name "* ]] || die "two tests have the name $name"
				known+="$name "
				;;
			*.pl)
				short=${name#[0-9][0-9][0-9]_}
				[[ $known != *" $short "* ]] || short=$name
				known+="$name $short "
				;;
		esac
		wanted "$name" || { [[ $file == *.pl ]] && wanted "$short"; } || continue
		case $file in
			*.sql) regress+=("$name") ;;
			*.spec) isolation+=("$name") ;;
			*.pl) tap+=("$name") ;;
		esac
	done
	for name in ${TESTS:-}; do
		[[ $known == *" $name "* ]] || die "there is no test $name"
	done
	selected=$((${#regress[@]} + ${#isolation[@]} + ${#tap[@]}))
	((selected > 0)) || die "there are no tests"
}

# ---- Running ----

# Runs a command as the server's user, in a process group of its own, which can be stopped as a
# whole.  A signal interrupts the wait.  Do not redirect the output of this function: that would
# also redirect a trap that runs meanwhile.
run_group() {
	local status=0
	# A shell starts background commands with SIGINT ignored, but tests need the default.
	# This does not call as_server: for a function, $! would be a shell outside of the group.
	# shellcheck disable=SC2016
	"${SERVER_USER_PREFIX[@]}" perl -e 'setpgrp; $SIG{$_} = "DEFAULT" for qw(INT QUIT); exec @ARGV or die $!' \
		timeout --foreground -k 10 "$TIME_LIMIT" "$@" </dev/null &
	GROUP=$!
	wait "$GROUP" || status=$?
	# timeout ends only the command, not the processes that it has started.
	((status != 124 && status != 137)) || kill -KILL -- "-$GROUP" 2>/dev/null
	GROUP=
	return "$status"
}

# Runs pg_regress or its isolation variant: kind, program, database, tests.  Counts the tests that
# passed in its output, whose form depends on the version:
#	test keys                         ... ok           12 ms      (15)
#	ok 1         - keys                        12 ms              (16 and later)
run_regress() {
	local kind=$1 program=$2 database=$3 output=$SCRATCH/results/$1 oks test
	shift 3
	(($# > 0)) || return 0
	say "" "== $kind"

	# In another directory pg_regress would use the sql/ of the extension as its input.  All
	# versions find expected/ here.
	as_server mkdir -p "$output"
	as_server ln -s "$SCRATCH/source/expected" "$output/expected"
	# If an expected file is missing, pg_regress does not run the tests after it.
	as_server mkdir -p "$SCRATCH/source/expected"
	for test in "$@"; do
		as_server touch "$SCRATCH/source/expected/$test.out"
	done
	if [[ -x $program ]]; then
		cd "$output" || die "cannot enter $output"
		# shellcheck disable=SC2016
		run_group bash -c 'log=$1; shift; "$@" 2>&1 | tee "$log"' - "$output/run.log" \
			"$program" --inputdir="$SCRATCH/source/test" --outputdir=. --bindir="$PG_BIN" \
			--host="$SOCKET_DIR" --user=postgres --dbname="$database" \
			--load-extension=ttl_docs "$@"
		cd "$SCRATCH" || die "cannot enter $SCRATCH"
	else
		say "$program is missing from this PostgreSQL" | as_server tee "$output/run.log"
	fi

	oks=" $(sed -nE -e 's/^ok [0-9]+ +[-+] ([^ ]+) .*/\1/p' \
		-e 's/^(test| ) *([^ ]+) +\.\.\. ok .*/\2/p' "$output/run.log" | tr '\n' ' ') "
	for test in "$@"; do
		if [[ $oks == *" $test "* ]]; then
			passed=$((passed + 1))
		else
			failures+=("$kind $test")
		fi
	done
}

# Runs the TAP files one by one, with the environment that PGXS gives to prove.
run_tap() {
	local perl_modules test log output=$SCRATCH/results/tap status
	(($# > 0)) || return 0
	say "" "== tap"

	perl_modules=$PGXS_DIR/src/test/perl
	as_server mkdir -p "$output"
	cd "$SCRATCH/source" || die "cannot enter the source"
	for test in "$@"; do
		log=$output/$test.log
		printf '%-40s ' "$test"
		if [[ -f $perl_modules/PostgreSQL/Test/Cluster.pm ]]; then
			# Version 15 reads TESTDIR, later ones TESTDATADIR and TESTLOGDIR.
			# shellcheck disable=SC2016
			run_group bash -c 'log=$1; shift; exec "$@" >"$log" 2>&1' - "$log" \
				env TESTDIR="$output" TESTDATADIR="$output/tmp_check" \
				TESTLOGDIR="$output/tmp_check/log" TMPDIR="$SCRATCH/tmp" \
				PATH="$PG_BIN:$PATH" PGPORT=65432 \
				PG_REGRESS="$PGXS_DIR/src/test/regress/pg_regress" \
				prove --verbose -I "$perl_modules" -I . "test/t/$test.pl"
			status=$?
		else
			say "this PostgreSQL was built without --enable-tap-tests" | as_server tee "$log" >/dev/null
			status=1
		fi
		if ((status != 0)); then
			say "FAILED"
			failures+=("tap $test")
		elif grep -q '\.\. skipped: ' "$log"; then
			say "$(sed -n 's/.*\.\. skipped: /skipped: /p' "$log")"
			skipped+=("tap $test")
		else
			say "ok"
			passed=$((passed + 1))
		fi
	done
	cd "$SCRATCH" || die "cannot enter $SCRATCH"
}

# Adds a report to the failures, unless it is empty.
add_report() {
	[[ -n $2 ]] || return 0
	failures+=("$1: $2")
	selected=$((selected + 1))
}

# Crashes of background processes, leaks, and reports of a sanitizer or of TEST_WRAPPER do not fail
# a test.  Therefore this function searches the logs for them.
check_for_crashes() {
	local file
	add_report "server crashed" \
		"$(grep -m 1 -E '(was terminated by signal|TRAP: |PANIC: )' "$SCRATCH/server.log")"
	for file in "$SCRATCH/server.log" "$SCRATCH"/results/tap/tmp_check/log/*.log; do
		[[ -f $file ]] || continue
		add_report "leak, ${file##*/}" "$(grep -m 1 -E '(reference leak|resource was not closed): ' "$file")"
		add_report "sanitizer, ${file##*/}" \
			"$(grep -m 1 -E '(ERROR: AddressSanitizer|runtime error): ' "$file")"
	done
	for file in "$SCRATCH"/results/reports/*; do
		[[ ! -s $file ]] || add_report "report, ${file##*/}" "$(head -n 1 "$file")"
	done
}

# ---- Reporting and cleaning up ----

# Prints diffs and logs of the failures, and copies them to test-results/.
report_failures() {
	local failure diffs log
	((${#failures[@]} > 0)) && [[ -d $SCRATCH/results ]] || return 0

	rm -f "$SCRATCH"/results/*/expected
	cp "$SCRATCH/server.log" "$SCRATCH/results/" 2>/dev/null
	# Leave out the data directories of TAP tests, which are large.
	tar -C "$SCRATCH/results" --exclude='*_data' --exclude=portlock -cf - . |
		{ mkdir -p "$RESULTS" && tar -C "$RESULTS" --no-same-owner -xf -; }

	for diffs in "$SCRATCH"/results/*/regression.diffs; do
		[[ ! -s $diffs ]] || { say "" "== ${diffs#"$SCRATCH/results/"}" && head -n "$SHOWN_LINES" "$diffs"; }
	done
	for log in "$SCRATCH"/results/reports/*; do
		[[ ! -s $log ]] || { say "" "== ${log#"$SCRATCH/results/"}" && head -n 50 "$log"; }
	done
	for failure in "${failures[@]}"; do
		for log in "$SCRATCH/results/tap/${failure#tap }.log" \
			"$SCRATCH/results/tap/tmp_check/log/regress_log_${failure#tap }"; do
			[[ ! -s $log ]] || { say "" "== ${log#"$SCRATCH/results/"}" && tail -n 50 "$log"; }
		done
	done
	say "" "results and logs: $RESULTS"
}

leave() {
	local status=$? failed failure
	trap - EXIT
	trap '' INT TERM HUP
	if [[ -n $GROUP ]]; then
		kill -TERM -- "-$GROUP" 2>/dev/null
	fi
	if [[ -n $SCRATCH ]]; then
		stop_servers_below "$SCRATCH"
		if [[ -n $SERVER_STARTED ]]; then
			check_for_crashes
		fi
		report_failures
		rm -rf "$SCRATCH"
	fi

	failed=$((selected - passed - ${#skipped[@]}))
	say ""
	for failure in "${failures[@]}"; do
		say "failed: $failure"
	done
	for failure in "${skipped[@]}"; do
		say "skipped: $failure"
	done
	say "$passed passed, $failed failed"
	if ((status == 0 && (failed > 0 || passed == 0))); then
		status=1
	fi
	exit "$status"
}

trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

rm -rf "$RESULTS"
select_tests
# "make torture" sets PG_TEST_TORTURE.
purpose=${PG_TEST_TORTURE:+torture}
require_packages "${purpose:-test}"
become_unprivileged
make_scratch ttl_docs-test.XXXXXX
private_postgres "-Werror -DUSE_ASSERT_CHECKING ${TEST_COPT:-}"
install_test_modules
if [[ -n ${TEST_WRAPPER:-} ]]; then
	wrap_postgres "$TEST_WRAPPER" "$SCRATCH/results/reports"
fi
start_server "$SCRATCH/source/test/ttl_docs.conf"
SERVER_STARTED=yes
# TAP tests put sockets and files into temporary directories.  They are removed with SCRATCH.
as_server mkdir "$SCRATCH/tmp"

PGXS_DIR=$("$PG_CONFIG" --pgxs)
PGXS_DIR=${PGXS_DIR%/src/makefiles/pgxs.mk}
run_regress regress "$PGXS_DIR/src/test/regress/pg_regress" contrib_regression "${regress[@]}"
run_regress isolation "$PGXS_DIR/src/test/isolation/pg_isolation_regress" isolation_regression "${isolation[@]}"
run_tap "${tap[@]}"

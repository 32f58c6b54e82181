#!/usr/bin/env bash
# Runs all tests of ttl_docs against a PostgreSQL of its own, and counts them.
#
#	test/run.sh                        everything ("make test")
#	TESTS="keys key_race" test/run.sh   only these; TAP files also without their number
#	PG_CONFIG=/path/to/pg_config ...   on that PostgreSQL
#	TEST_COPT="-fsanitize=..." ...     built with more compiler flags
#	TEST_WRAPPER="valgrind ..." ...    with every server under that command, which writes what
#	                                   it finds into $REPORTS; any report fails the run
#
# Three kinds, and each file is one test: test/sql/*.sql (pg_regress), test/specs/*.spec
# (isolation) and test/t/*.pl (TAP).  A test that was asked for and did not say "ok"
# has failed, whatever the reason.  The last line is "N passed, N failed".
#
# The build has assertions on and warnings are errors.  Nothing stays behind but
# test-results/ after a failure.
set -uo pipefail
export LC_ALL=C

# shellcheck source=test/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

readonly RESULTS=$REPO/test-results
# Seconds for one run of pg_regress, or for one TAP file, until it counts as hung.
readonly TIME_LIMIT=${TEST_TIME_LIMIT:-600}
# Lines shown of each diff or log; test-results/ has the rest.
readonly SHOWN_LINES=200

SCRATCH=
GROUP=
SERVER_STARTED=
selected=0
passed=0
failures=()
skipped=()

# ---- What to run ----

# Succeeds if TESTS is empty or has one of the given names.
wanted() {
	local name
	[[ -n ${TESTS:-} ]] || return 0
	for name in "$@"; do
		[[ " $TESTS " != *" $name "* ]] || return 0
	done
	return 1
}

# Sets the lists of tests, and refuses names that would lead to confusion.
select_tests() {
	local file name known=" "
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
			*.pl) known+="$name ${name#[0-9][0-9][0-9]_} " ;;
		esac
		wanted "$name" || { [[ $file == *.pl ]] && wanted "${name#[0-9][0-9][0-9]_}"; } || continue
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

# Runs a command as the server's user in a process group of its own, so that all of
# it can be stopped by one number, and waits in a way that a signal interrupts.
# Do not redirect its output: a trap that runs meanwhile would be redirected, too.
run_group() {
	local status=0
	# A shell starts background commands with SIGINT ignored; tests expect otherwise.
	# Not by as_server: of a function, $! would be a shell outside of the group.
	# shellcheck disable=SC2016
	"${SERVER_USER_PREFIX[@]}" perl -e 'setpgrp; $SIG{$_} = "DEFAULT" for qw(INT QUIT); exec @ARGV or die $!' \
		timeout --foreground -k 10 "$TIME_LIMIT" "$@" </dev/null &
	GROUP=$!
	wait "$GROUP" || status=$?
	# timeout ends the command alone, not what that has started.
	((status != 124 && status != 137)) || kill -KILL -- "-$GROUP" 2>/dev/null
	GROUP=
	return "$status"
}

# Runs pg_regress or its isolation variant: kind, program, database, tests.
# Counts from its output, whose form depends on the version:
#	test keys                         ... ok           12 ms      (15)
#	ok 1         - keys                        12 ms              (16 and later)
run_regress() {
	local kind=$1 program=$2 database=$3 output=$SCRATCH/results/$1 oks test
	shift 3
	(($# > 0)) || return 0
	say "" "== $kind"

	# A directory of its own keeps pg_regress from taking the sql/ of the extension
	# for its input, and all versions look for expected/ here.
	as_server mkdir -p "$output"
	as_server ln -s "$SCRATCH/source/expected" "$output/expected"
	# Without a file to compare with, pg_regress would give up on the tests that follow.
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

# Runs each TAP file by itself, with the environment that PGXS gives to prove.
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

# Adds what was found in a file, if anything, to the failures.
add_report() {
	[[ -n $2 ]] || return 0
	failures+=("$1: $2")
	selected=$((selected + 1))
}

# A crash of a background process need not make any test differ, nor what it forgot to
# give back, what a sanitizer has to say, or a command that the servers run under.
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

# ---- Reporting and leaving ----

# Shows what failed, and keeps the evidence in test-results/.
report_failures() {
	local failure diffs log
	((${#failures[@]} > 0)) && [[ -d $SCRATCH/results ]] || return 0

	rm -f "$SCRATCH"/results/*/expected
	cp "$SCRATCH/server.log" "$SCRATCH/results/" 2>/dev/null
	# Of what TAP tests leave, only the logs: data directories are large.
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
require_tools tests
become_unprivileged
make_scratch ttl_docs-test.XXXXXX
private_postgres "-Werror -DUSE_ASSERT_CHECKING ${TEST_COPT:-}"
install_test_modules
if [[ -n ${TEST_WRAPPER:-} ]]; then
	wrap_postgres "$TEST_WRAPPER" "$SCRATCH/results/reports"
fi
start_server "$SCRATCH/source/test/ttl_docs.conf"
SERVER_STARTED=yes
# TAP tests put sockets and files into temporary directories, which go with ours.
as_server mkdir "$SCRATCH/tmp"

PGXS_DIR=$("$PG_CONFIG" --pgxs)
PGXS_DIR=${PGXS_DIR%/src/makefiles/pgxs.mk}
run_regress regress "$PGXS_DIR/src/test/regress/pg_regress" contrib_regression "${regress[@]}"
run_regress isolation "$PGXS_DIR/src/test/isolation/pg_isolation_regress" isolation_regression "${isolation[@]}"
run_tap "${tap[@]}"

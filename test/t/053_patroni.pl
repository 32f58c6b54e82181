# Failovers and switchovers of three servers under Patroni, with synchronous replication, under load.  No
# acknowledged write is lost, no expired document becomes visible again, pg_rewind brings old primaries back, and
# only the primary purges.  At the end: what a promoted server with a wrong clock does.
#
# test/torture/failover.py makes the load and the events, and checks the data.
# It only runs with PG_TEST_TORTURE: a run takes long, and Patroni needs a machine that answers in time.
#	PG_TEST_FAILOVERS        number of rounds, 100 unless set
#	PG_TEST_FAILOVER_SEED    decides what is written, and which event comes when

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Torture;

plan skip_all => 'this test takes long; set PG_TEST_TORTURE to run it' unless torture();
my $python = python_or_skip();
plan skip_all => 'Patroni with pysyncobj is not installed (Debian: patroni, python3-pysyncobj)'
  if grep { system("$_ >/dev/null 2>&1") != 0 } 'patroni --version', "$python -c 'import pysyncobj'";
plan skip_all => 'pg_amcheck is not installed' if system('pg_amcheck --version >/dev/null 2>&1') != 0;
plan skip_all => 'there is no /proc/PID/task/PID/children, which shows the processes of a server'
  unless -r "/proc/$$/task/$$/children";

my $directory = PostgreSQL::Test::Utils::tempdir_short();
my @ports = map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. 9;
ok( run_program(
		{ PGUSER => 'postgres', PGDATABASE => 'postgres' },
		$python, 'test/torture/failover.py',
		'--seed', $ENV{PG_TEST_FAILOVER_SEED} // 1,
		'--rounds', $ENV{PG_TEST_FAILOVERS} // 100,
		'--seconds', 9000, '--directory', $directory, '--ports', @ports),
	'failovers under load lose nothing, and revive nothing');

done_testing();

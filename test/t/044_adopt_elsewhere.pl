# adopt_concurrently(): a dump in the middle of an adoption is restored, and continues where it is
# called again; a standby follows; a subscriber gets the rows that are written; partitions come and go.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

my $settings = q{
	autovacuum = off
	ttl_docs.purge = off
	ttl_docs.purge_grace = 0
	wal_level = logical
};
my $primary = start_server('primary', $settings, allows_streaming => 1);
install_in($primary, 'postgres');
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

sub sql { return $primary->safe_psql('postgres', join('', @_)); }

my $call = q{CALL ttl_docs.adopt_concurrently('t', 6000, last_modified => 'changed')};

# Rows that are not as they should be after the adoption
my $wrong = q{SELECT count(*) FROM t WHERE _ttl IS DISTINCT FROM (doc ->> 'ttl')::int OR _ts <> changed
	OR _slot IS DISTINCT FROM ttl_docs_internal.slot(_ts, _ttl, 6000)};

# A table with an invalid ttl at its end, which stops the adoption when most rows are filled.
sql(q{
	CREATE TABLE t (id int PRIMARY KEY, doc jsonb, changed timestamptz, wide text);
	ALTER TABLE t ALTER wide SET STORAGE PLAIN;
	INSERT INTO t SELECT i, CASE WHEN i % 2 = 0 THEN '{"ttl": 5000}' ELSE '{}' END::jsonb, now() - interval '10 minutes', repeat('x', 2000)
		FROM generate_series(1, 9000) AS i;
	INSERT INTO t VALUES (0, '{"ttl": 0}', now() - interval '10 minutes');
});
like(error_of($primary, 'postgres', $call), qr/invalid "ttl": 0/, 'the adoption stops');
my $half = sql(q{SELECT count(*) FILTER (WHERE _ts = changed) || ' of ' || count(*) FROM t});
my ($filled) = $half =~ /^(\d+) of 9001$/;
ok($filled > 0 && $filled < 9000, "some rows are filled, others are not: $half");

# ---- A dump ----

for my $format ('plain', 'data later')
{
	my $database = $format eq 'plain' ? 'restored' : 'restored_later';
	my $dump = $primary->basedir . "/$database.sql";
	sql("CREATE DATABASE $database");
	if ($format eq 'plain')
	{
		$primary->command_ok([ 'pg_dump', '-f', $dump, 'postgres' ], "$format: pg_dump");
		$primary->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $database ], "$format: restore");
	}
	else
	{
		$primary->command_ok([ 'pg_dump', '-f', "$dump.1", '-s', 'postgres' ], "$format: pg_dump of the schema");
		$primary->command_ok([ 'pg_dump', '-f', "$dump.2", '-a', '-t', 't', 'postgres' ], "$format: pg_dump of the data");
		$primary->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', "$dump.$_", $database ], "$format: restore $_") for 1, 2;
	}
	my $query = sub { return $primary->safe_psql($database, $_[0]) };
	is($query->(q{SELECT count(*) FILTER (WHERE _ts = changed) || ' of ' || count(*) FROM t}), $half, "$format: the same rows are filled");
	like(error_of($primary, $database, $call), qr/continuing the adoption.*invalid "ttl": 0/s, "$format: the adoption stops there, too");
	$query->('DELETE FROM t WHERE id = 0');
	$query->($call);
	is($query->($wrong), '0', "$format: all rows are right");
	is($query->(q{SELECT default_ttl, holds FROM ttl_docs.collections WHERE collection = 't'::regclass}), '6000|{restored}',
		"$format: TTL is on, and the purge is held as after any restore");
}

# ---- The standby ----

$primary->wait_for_catchup($standby);
is($standby->safe_psql('postgres', q{SELECT count(*) FILTER (WHERE _ts = changed) || ' of ' || count(*) FROM t}), $half,
	'the standby has the same rows');
like(error_of($standby, 'postgres', $call), qr/ERROR:  cannot execute ttl_docs.adopt_concurrently\(\) during recovery/,
	'a standby cannot adopt');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM ttl_docs.stat_progress'), '0', 'nor has it progress to show');
sql('DELETE FROM t WHERE id = 0');
sql($call);
$primary->wait_for_catchup($standby);
is($standby->safe_psql('postgres', $wrong), '0', 'all rows are right on the standby');
is($standby->safe_psql('postgres', q{SET ttl_docs.clock_offset = 4900; SELECT count(*) FROM t}), '4500',
	'the standby hides what is expired');
sql('DROP TABLE t');

# ---- Logical replication ----

my $subscriber = start_server('subscriber', $settings);
install_in($subscriber, 'postgres');
for my $server ($primary, $subscriber)
{
	$server->safe_psql('postgres', 'CREATE TABLE t (id int PRIMARY KEY, doc jsonb, changed timestamptz)');
}
sql(q{INSERT INTO t SELECT i, CASE WHEN i % 2 = 0 THEN '{"ttl": 5000}' ELSE '{}' END::jsonb, now() - interval '10 minutes' FROM generate_series(1, 100) AS i});
sql('CREATE PUBLICATION p FOR TABLE t');
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION s CONNECTION '" . $primary->connstr . " dbname=postgres' PUBLICATION p");
$subscriber->poll_query_until('postgres', q{SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel});
$subscriber->safe_psql('postgres', q{CALL ttl_docs.adopt_concurrently('t', NULL)});
my $notices = error_of($primary, 'postgres', $call);
like($notices, qr/NOTICE:  logical replication sends each row of "t" that adopt_concurrently\(\) writes as an UPDATE/,
	'a notice says that the rows are sent');
$primary->wait_for_catchup('s');
is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM t WHERE _ttl IS NOT DISTINCT FROM (doc ->> \'ttl\')::int AND _ts = changed'), '100',
	'the subscriber has the stamps of the publisher');
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION s');
sql('DROP PUBLICATION p; DROP TABLE t');

# ---- Partitions come and go while an old snapshot keeps the adoption in the index build ----

sql(q{
	CREATE TABLE t (id int, doc jsonb, changed timestamptz DEFAULT now() - interval '10 minutes') PARTITION BY RANGE (id);
	CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (100);
	CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (100) TO (200);
	CREATE TABLE t3 PARTITION OF t FOR VALUES FROM (200) TO (300);
	CREATE TABLE t4 PARTITION OF t FOR VALUES FROM (300) TO (400);
	INSERT INTO t SELECT i, CASE WHEN i % 2 = 0 THEN '{"ttl": 5000}' ELSE '{}' END::jsonb FROM generate_series(1, 399) AS i;
});
my $snapshot = $primary->background_psql('postgres');
$snapshot->query_safe($_) for ('BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1');
my $run = IPC::Run::start([ 'psql', '-XAtq', '-d', $primary->connstr('postgres'), '-c', $call ], '<', \undef, '>', \my $out, '2>', \my $err);
$primary->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM ttl_docs.stat_progress WHERE phase = 'building the index')});
# t1 is being indexed: DDL on it waits for the end of the build, others do not
sql(q{
	CREATE TABLE t5 PARTITION OF t FOR VALUES FROM (400) TO (500);
	INSERT INTO t (id, doc, changed) VALUES (400, '{"ttl": 5000}', clock_timestamp());
	ALTER TABLE t DETACH PARTITION t3;
	DROP TABLE t4;
	CREATE TABLE t6 (LIKE t INCLUDING DEFAULTS);
	INSERT INTO t6 SELECT i, '{"ttl": 5000}' FROM generate_series(500, 510) AS i;
	UPDATE t6 SET _ts = changed;
	ALTER TABLE t ATTACH PARTITION t6 FOR VALUES FROM (500) TO (600);
});
$snapshot->quit;
$run->finish;
is($err =~ /ERROR/ ? $err : '', '', 'the adoption has ended');
is(sql(q{SELECT default_ttl, hint FROM ttl_docs.collections WHERE collection = 't'::regclass}), '6000|', 'TTL is on');
is(sql(q{SELECT string_agg(relid || ' ' || coalesce(bool_and::text, 'no index'), ', ' ORDER BY relid::text) FROM
	(SELECT relid, bool_and(indisvalid) FROM pg_partition_tree('t') LEFT JOIN pg_index ON indrelid = relid GROUP BY 1) AS x}),
	't true, t1 true, t2 true, t5 true, t6 true', 'each partition has a valid index');
is(sql(q{SELECT count(*) FROM t WHERE _ttl IS DISTINCT FROM (doc ->> 'ttl')::int OR id < 400 AND _ts <> changed}), '0', 'all rows are right');
is(sql(q{SELECT mode, hint ~ 'not completely adopted' FROM ttl_docs.collections WHERE collection = 't3'::regclass}), 'off|t',
	'the detached partition is a collection that is not completely adopted');
sql(q{CALL ttl_docs.adopt_concurrently('t3', 6000, last_modified => 'changed')});
sql('ALTER TABLE t ATTACH PARTITION t3 FOR VALUES FROM (200) TO (300)');
is(sql(q{SELECT count(*), count(*) FILTER (WHERE _ts = changed) FROM t3}), '100|100', 'its adoption is completed by itself');

# ---- The end waits for DETACH PARTITION CONCURRENTLY, which waits for a reader ----

sql(q{
	DROP TABLE t;
	CREATE TABLE t (id int, doc jsonb, changed timestamptz DEFAULT now() - interval '10 minutes') PARTITION BY RANGE (id);
	CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (100);
	CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (100) TO (200);
	INSERT INTO t SELECT i, CASE WHEN i % 2 = 0 THEN '{"ttl": 5000}' ELSE '{}' END::jsonb FROM generate_series(1, 199) AS i;
});
$snapshot = $primary->background_psql('postgres');
$snapshot->query_safe($_) for ('BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1');
($out, $err) = ('', '');
$run = IPC::Run::start([ 'psql', '-XAtq', '-d', $primary->connstr('postgres'), '-c', $call ], '<', \undef, '>', \$out, '2>', \$err);
$primary->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM ttl_docs.stat_progress WHERE phase = 'building the index')});
my $reader = $primary->background_psql('postgres');
# a query would also lock the new index of t1, and then the adoption waits for it
$reader->query_safe($_) for ('BEGIN', 'LOCK TABLE ONLY t IN ACCESS SHARE MODE');
my ($detach_out, $detach_err) = ('', '');
my $detach = IPC::Run::start([ 'psql', '-XAtq', '-d', $primary->connstr('postgres'), '-c', 'ALTER TABLE t DETACH PARTITION t2 CONCURRENTLY' ],
	'<', \undef, '>', \$detach_out, '2>', \$detach_err);
my $detaching = q{SELECT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = 't2'::regclass AND inhdetachpending)};
$primary->poll_query_until('postgres', $detaching);
$snapshot->quit;
$run->pump until $err =~ /waiting until partition/ || !$run->pumpable;
like($err, qr/NOTICE:  waiting until partition "t2" is detached/, 'a notice says that the end waits for the detaching');
is(sql(q{SELECT mode FROM ttl_docs.collections WHERE collection = 't'::regclass}), 'off', 'TTL is not on yet');
is(sql($detaching), 't', 'the adoption does not complete what it waits for');
$reader->quit;
$detach->finish;
$run->finish;
is($detach_err, '', 'the partition is detached');
is($err =~ /ERROR/ ? $err : '', '', 'then the adoption ends');
is(sql(q{SELECT default_ttl, hint FROM ttl_docs.collections WHERE collection = 't'::regclass}), '6000|', 'TTL is on');
is(sql($wrong), '0', 'all rows are right, without those of the partition');

nothing_crashed($primary);
nothing_crashed($standby);
done_testing();

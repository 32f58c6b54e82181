# adopt_concurrently() while other sessions use the table, and after interruptions.
#
# Other sessions keep the adoption in a phase: they lock a row, hold an old snapshot, or use the table.
# Meanwhile, others read and write, and everything that would interfere is refused at once.  In each
# phase, the adoption is cancelled, and its process is killed.  The table works, and the next call
# continues.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use Torture;
use TtlServer;

my $node = start_server('main', q{
	autovacuum = off
	restart_after_crash = on
	ttl_docs.purge = off
	ttl_docs.purge_grace = 0
	max_prepared_transactions = 5
});
install_in($node, 'postgres');

sub sql { return $node->safe_psql('postgres', join('', @_)); }
sub error { return error_of($node, 'postgres', @_); }

# ---- The table ----

# An odd id inherits, an even one has its own ttl.  A wide column makes the table larger than one batch.
sub make_table
{
	my ($width) = @_;
	sql(qq{
		DROP TABLE IF EXISTS t;
		CREATE TABLE t (id int PRIMARY KEY, doc jsonb, changed timestamptz, n int, wide text);
		ALTER TABLE t ALTER wide SET STORAGE PLAIN;
		INSERT INTO t SELECT i, CASE WHEN i % 2 = 0 THEN '{"ttl": 5000}' ELSE '{}' END::jsonb,
			now() - interval '10 minutes', 0, repeat('x', $width)
			FROM generate_series(1, CASE WHEN $width > 10 THEN 6000 ELSE 10 END) AS i;
	});
	return;
}

my $call = q{CALL ttl_docs.adopt_concurrently('t', 6000, last_modified => 'changed')};

# Rows that are not as they should be after the adoption.  n > 0 marks rows that were written meanwhile.
my $wrong = q{
	SELECT count(*) FROM t WHERE _ttl IS DISTINCT FROM (doc ->> 'ttl')::int
		OR _slot IS DISTINCT FROM ttl_docs_internal.slot(_ts, _ttl, 6000)
		OR CASE WHEN n > 0 THEN _ts < now() - interval '9 minutes' ELSE _ts <> changed END};

sub is_adopted
{
	my ($name) = @_;
	is(sql($wrong), '0', "$name: all rows are right");
	is(sql(q{SELECT default_ttl, hint FROM ttl_docs.collections WHERE collection = 't'::regclass}), '6000|',
		"$name: TTL is on");
	is(sql(q{SELECT count(*), bool_and(indisvalid) FROM pg_index WHERE indrelid = 't'::regclass}), '2|t',
		"$name: the index is valid, and none is left over");
	is(sql('SELECT count(*) FROM ttl_docs.stat_progress'), '0', "$name: no progress is left over");
	return;
}

# ---- Sessions ----

my %adoption;

# Starts the adoption, and waits until it is in a phase.
sub adopt_until
{
	my ($phase, $settings) = @_;
	%adoption = (out => '', err => '');
	$adoption{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', $settings // 'SET ttl_docs.adopt_pause = 0', '-c', $call ],
		'<', \undef, '>', \$adoption{out}, '2>', \$adoption{err});
	$node->poll_query_until('postgres', "SELECT EXISTS (SELECT FROM ttl_docs.stat_progress WHERE phase = '$phase')")
	  or diag("not in phase $phase: " . sql('SELECT * FROM ttl_docs.stat_progress'));
	return;
}

sub adoption_ends
{
	$adoption{run}->finish;
	return $adoption{err};
}

# Sessions that keep the adoption in a phase; each is ended with ROLLBACK.
my %holders = (
	'waiting for a lock' => [ 'BEGIN', 'SELECT count(*) FROM t' ],
	'waiting for busy rows' => ['BEGIN'],    # see hold()
	'building the index' => [ 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1' ]);

# A half-adopted table needs no lock before its rows are filled: an invalid ttl stops the first call.
sub half_adopt
{
	my ($width) = @_;
	make_table($width // 1);
	sql(q{INSERT INTO t VALUES (0, '{"ttl": 0}', now() - interval '10 minutes', 0)});
	like(error($call), qr/ERROR:  a document of "t" has an invalid "ttl": 0.*continue: CALL/s,
		'an invalid ttl stops the adoption, and the error says how to continue');
	sql('DELETE FROM t WHERE id = 0');
	return;
}

sub hold
{
	my (@statements) = @_;
	my $session = $node->background_psql('postgres');
	$session->query_safe($_) for @statements;
	return $session;
}

# Other sessions read and write.  They do not wait long for the adoption, whose locks are brief.
sub others_work
{
	my ($name) = @_;
	my $result = error(q{
		SET lock_timeout = '20s';
		SELECT count(*) FROM t;
		UPDATE t SET n = 1 WHERE id = 1;
		INSERT INTO t (id, doc, changed, n) VALUES (100001, '{"ttl": 777}', now(), 1), (100002, '{}', now(), 1);
		UPDATE t SET doc = '{"ttl": 778}', n = 1 WHERE id = 100002;
		DELETE FROM t WHERE id = 100001;
	});
	is($result, '', "$name: others read and write");
	return;
}

my $no_strong_lock = q{
	SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND pid IN (SELECT pid FROM ttl_docs.stat_progress)
	   AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')};

# ---- A busy row ----

for my $end ('COMMIT', 'ROLLBACK')
{
	half_adopt();
	my $session = hold('BEGIN', 'UPDATE t SET n = 2 WHERE id = 2', 'SELECT id FROM t WHERE id = 3 FOR UPDATE');
	adopt_until('waiting for busy rows');
	is(sql(q{SELECT collection, command, blocks_done, blocks_total, rows_written, rows_busy, percent FROM ttl_docs.stat_progress}),
		't|adopt_concurrently|1|1|8|2|100.0', "$end: the progress shows busy rows");
	is(sql($no_strong_lock), '0', "$end: no strong lock is held");
	others_work($end);
	$session->query_safe($end);
	$session->quit;
	like(adoption_ends(), qr/NOTICE:  continuing the adoption of "t"/, "$end: the adoption continues");
	is_adopted("busy row, $end");
}

# Writing one busy row takes longer than a batch.  The adoption does not forget the others of its block.
half_adopt();
sql(q{
	CREATE FUNCTION slowly(bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS
		$$ BEGIN PERFORM pg_sleep(0.05); RETURN $1; END $$;
	CREATE INDEX slow ON t (slowly(_slot))});
my $session = hold('BEGIN', 'SELECT id FROM t WHERE id IN (2, 4, 6) FOR UPDATE');
adopt_until('waiting for busy rows');
$session->quit;
adoption_ends();
sql('DROP INDEX slow; DROP FUNCTION slowly');
is_adopted('busy rows that are slow to write');

# A foreign key check locks a parent, but the adoption writes it.
half_adopt();
sql('CREATE TABLE child (id int REFERENCES t)');
$session = hold('BEGIN', 'INSERT INTO child VALUES (2)');
sql($call);
is_adopted('foreign key check');
$session->quit;
sql('DROP TABLE child');

# A unique index has a system column, so the adoption changes a key.  Then the lock of a foreign key check makes
# the row busy.
half_adopt();
sql('CREATE TABLE child (id int REFERENCES t); CREATE UNIQUE INDEX key ON t (id, _slot)');
$session = hold('BEGIN', 'INSERT INTO child VALUES (2)');
adopt_until('waiting for busy rows');
is(sql('SELECT rows_busy FROM ttl_docs.stat_progress'), '1', 'a row is busy if its key would change');
is(sql("SELECT count(*) FROM pg_locks WHERE NOT granted"), '0', 'the adoption does not wait for a lock');
$session->quit;
adoption_ends();
sql('DROP TABLE child; DROP INDEX key');
is_adopted('key with a system column');

# ---- Refused at once ----

half_adopt();
$session = hold('BEGIN', 'UPDATE t SET n = 2 WHERE id = 2');
adopt_until('waiting for busy rows');
my $concurrent = qr/ERROR:  another session is changing table "t" or its settings/;
like(error($_), $concurrent, "refused at once: $_")
  for ($call, q{SELECT ttl_docs.adopt('t')}, q{SELECT ttl_docs.release('t')}, q{SELECT ttl_docs.set_default_ttl('t', 60)},
	q{SELECT ttl_docs.set_indexing('t', 'lazy')}, q{SELECT ttl_docs.drop_collection('t')},
	q{SET row_security = off; INSERT INTO t (id, doc, _ts) VALUES (20, '{"ttl": 0}', '2020-01-01')});
like(error('ALTER TABLE t DROP COLUMN changed'), qr/ERROR:  cannot drop or change column "changed" while "t" is being adopted/,
	'the column "last_modified" cannot be dropped');
like(error(q{INSERT INTO t VALUES (21, '{"ttl": 0}')}), qr/ERROR:  invalid "ttl" in a document of "t": 0/,
	'an invalid ttl is refused');
$session->query_safe($_)
  for ('ALTER TABLE t RENAME COLUMN changed TO modified', 'ALTER TABLE t RENAME TO t2', 'ALTER TABLE t2 ADD COLUMN late int DEFAULT 5', 'COMMIT');
$session->quit;
adoption_ends();
sql('ALTER TABLE t2 RENAME TO t; ALTER TABLE t RENAME COLUMN modified TO changed');
is_adopted('renamed');

# A table that is rewritten or dropped, or changes its owner
half_adopt();
$session = hold('BEGIN', 'UPDATE t SET n = 2 WHERE id = 2');
adopt_until('waiting for busy rows');
$session->query_safe($_) for ('CLUSTER t USING t_pkey', 'COMMIT');
$session->quit;
adoption_ends();
is_adopted('rewritten');

half_adopt();
$session = hold('BEGIN', 'UPDATE t SET n = 2 WHERE id = 2');
adopt_until('waiting for busy rows');
$session->query_safe($_) for ('DROP TABLE t', 'COMMIT');
$session->quit;
like(adoption_ends(), qr/ERROR:  relation with OID \d+ does not exist/, 'the table was dropped');

sql('CREATE ROLE first; CREATE ROLE second');
half_adopt();
sql('ALTER TABLE t OWNER TO first');
$session = hold('BEGIN', 'UPDATE t SET n = 2 WHERE id = 2');
adopt_until('waiting for busy rows', 'SET ROLE first');
$session->query_safe($_) for ('ALTER TABLE t OWNER TO second', 'COMMIT');
like(adoption_ends(), qr/ERROR:  must be owner of table t/, 'the owner has changed');
$session->quit;
is(sql(q{SELECT mode FROM ttl_docs.collections}), 'off', 'the table is still a collection with TTL off');
sql(q{SELECT ttl_docs.release('t')});

# ---- Locks and old snapshots ----

make_table(1);
$session = hold(@{ $holders{'waiting for a lock'} });
adopt_until('waiting for a lock');
is(error(q{SET lock_timeout = '20s'; SELECT count(*) FROM t; UPDATE t SET n = 1 WHERE id = 1}), '',
	'nobody else waits while the adoption waits for a lock') for 1 .. 10;
# it is a plain table yet
sql('UPDATE t SET n = 0');
$adoption{run}->pump until $adoption{err} =~ /waiting for transactions/ || !$adoption{run}->pumpable;
like($adoption{err}, qr/NOTICE:  waiting for transactions that use "t": \d+/, 'a notice names the process');
$session->quit;
adoption_ends();
is_adopted('table in use');

make_table(1);
sql(q{BEGIN; INSERT INTO t VALUES (50, '{}', now() - interval '10 minutes', 0); PREPARE TRANSACTION 'p'});
adopt_until('waiting for a lock');
sql(q{COMMIT PREPARED 'p'});
adoption_ends();
is_adopted('prepared transaction');

make_table(1);
$session = hold(@{ $holders{'building the index'} });
adopt_until('building the index');
is(sql($no_strong_lock), '0', 'no strong lock is held while the index is built');
others_work('old snapshot');
like(error(q{SELECT ttl_docs.set_default_ttl('t', 60)}), $concurrent, 'set_default_ttl() does not queue behind the index');
is($session->query_safe('SELECT count(*) FROM t'), '10', 'a REPEATABLE READ transaction that is older reads the table');
$adoption{run}->pump until $adoption{err} =~ /have ended/ || !$adoption{run}->pumpable;
$session->quit;
like(adoption_ends(), qr/NOTICE:  the index of "t" will be complete when these transactions have ended: \d+/,
	'a notice names the transaction');
is_adopted('old snapshot');

# ---- Interruptions in each phase ----

# The phases, with what keeps the adoption there.  VACUUM sleeps after each page.  To keep the adoption
# before the switch, a session writes to the table while the index build waits for another one's snapshot.
sub keep_in
{
	my ($phase) = @_;
	if ($phase eq 'filling rows')
	{
		half_adopt(2000);
		my $active = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', 'SELECT pg_sleep(600)' ],
			'<', \undef, '>', \my $out, '2>', \my $err);
		adopt_until($phase, 'SET ttl_docs.adopt_pause = 60000');
		$node->poll_query_until('postgres', 'SELECT blocks_done BETWEEN 1 AND blocks_total - 1 FROM ttl_docs.stat_progress');
		return sub { sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ~ 'pg_sleep.600' AND pid <> pg_backend_pid()}); $active->finish; };
	}
	if ($phase eq 'vacuuming')
	{
		make_table(2000);
		adopt_until($phase, 'SET ttl_docs.adopt_pause = 0; SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1');
		return sub { };
	}
	if ($phase eq 'waiting for busy rows')
	{
		half_adopt();
		my $holder = hold('BEGIN', 'SELECT id FROM t WHERE id = 2 FOR UPDATE');
		adopt_until($phase);
		return sub { $holder->quit };
	}
	make_table(1);
	if ($phase ne 'switching')
	{
		my $holder = hold(@{ $holders{$phase} });
		adopt_until($phase);
		return sub { $holder->quit };
	}
	my $snapshot = hold(@{ $holders{'building the index'} });
	adopt_until('building the index');
	$node->poll_query_until('postgres', q{SELECT phase = 'waiting for old snapshots' FROM pg_stat_progress_create_index});
	my $writer = hold('BEGIN', 'UPDATE t SET n = 3 WHERE id = 3');
	$snapshot->quit;
	$node->poll_query_until('postgres', q{SELECT phase = 'switching' FROM ttl_docs.stat_progress});
	return sub { $writer->quit };
}

for my $phase ('waiting for a lock', 'filling rows', 'vacuuming', 'waiting for busy rows', 'building the index',
	'switching')
{
	my $let_go = keep_in($phase);
	sql('SELECT pg_cancel_backend(pid) FROM ttl_docs.stat_progress');
	my $error = adoption_ends();
	$let_go->();
	like($error, qr/ERROR:  canceling statement due to user request/, "$phase: cancelled");
	if ($phase eq 'waiting for a lock')
	{
		is(sql('SELECT count(*) FROM ttl_docs.collections'), '0', "$phase: the table is a plain table");
	}
	else
	{
		like($error, qr/adoption of table "t", which is usable but not complete; to continue: CALL/, "$phase: the error says what is missing");
		like(sql('SELECT hint FROM ttl_docs.collections'), qr/^The table is not completely adopted/, "$phase: so does the view");
	}
	others_work("$phase, cancelled");
	# writes to a plain table left no stamp
	sql('UPDATE t SET n = 0') if $phase eq 'waiting for a lock';
	sql($call);
	is_adopted("$phase, cancelled");

	# the process is killed
	$let_go = keep_in($phase);
	my $pid = sql('SELECT pid FROM ttl_docs.stat_progress');
	my $offset = -s $node->logfile;
	kill 'KILL', $pid;
	adoption_ends();
	eval { $let_go->() };
	wait_for_restart($node, $offset);
	others_work("$phase, killed");
	sql('UPDATE t SET n = 0') if $phase eq 'waiting for a lock';
	if ($phase eq 'building the index')
	{
		# release() takes it back
		sql(q{SELECT ttl_docs.release('t')});
		is(sql(q{SELECT count(*) FROM pg_attribute WHERE attrelid = 't'::regclass AND attname ~ '^_' AND NOT attisdropped}),
			'0', 'release() makes it a plain table again');
		sql('DELETE FROM t WHERE id > 100000; UPDATE t SET n = 0');
	}
	sql($call);
	is_adopted("$phase, killed");
}

# ---- Autovacuum yields ----

make_table(2000);
sql(q{
	UPDATE t SET n = 0;
	ALTER TABLE t SET (autovacuum_enabled, autovacuum_vacuum_threshold = 0, autovacuum_vacuum_scale_factor = 0,
		autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1);
});
reload_with($node, "autovacuum = on\nautovacuum_naptime = 1s");
$node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_stat_progress_vacuum WHERE relid = 't'::regclass)});
my $offset = -s $node->logfile;
sql($call);
ok(count_log($node, qr/canceling autovacuum task/, $offset) > 0, 'autovacuum yields');
reload_with($node, 'autovacuum = off');
is_adopted('autovacuum');

# ---- Interruptions at random moments ----

# test/torture/adoptions.py adopts and releases a table while sessions write to it, and checks each row.
my ($python) = grep { system("$_ -c 'import psycopg2' >/dev/null 2>&1") == 0 } '/usr/bin/python3', 'python3';
SKIP:
{
	skip 'Python 3 with psycopg2 is not installed', 2 unless $python;
	sql('DROP TABLE t; ALTER DATABASE postgres SET ttl_docs.adopt_pause = 5');
	ok(run_on($node, $python, 'test/torture/adoptions.py', '--seed', $_, '--seconds', torture() ? 3600 : 10),
		"adoptions that are interrupted under load, seed $_") for 1, 2;
}

no_assertion_failed($node);
$node->stop;
done_testing();

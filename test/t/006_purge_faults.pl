# The purge in trouble: crashes in the middle of a backlog, documents that cannot
# be deleted, and triggers that want more rights than their table's owner has.
#
# In each case the other documents and collections go on, nothing live is lost
# and nothing expired is shown.

use strict;
use warnings;

use IPC::Run;
use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PurgeNode;
use Test::More;

plan skip_all => 'this PostgreSQL::Test has no background sessions'
  unless eval { require PostgreSQL::Test::BackgroundPsql; };

my $node = start_node(q{
restart_after_crash = on
}, allows_streaming => 'logical');

# How often the log has something, from an offset on.
sub count_log
{
	my ($pattern, $offset) = @_;
	my $log = slurp_file($node->logfile, $offset);
	my @found = $log =~ /$pattern/g;
	return scalar @found;
}

# ---- Crashes in the middle of a backlog, under writers ----

# 60,000 expired documents.  Writers take their keys over, while the purge
# deletes them, and note in the same transaction that they did.
my $backlog = 60_000;
sql(qq{
	SELECT ttl_docs.create_collection('big', 60);
	CREATE TABLE audit (id text);
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO big (id, doc) SELECT i, '{}' FROM generate_series(1, $backlog) AS i;
	RESET ttl_docs.clock_offset;
	INSERT INTO big (id, doc)
		SELECT 'live ' || i, '{"ttl": 86400}' FROM generate_series(1, 1000) AS i;
});
my $script = $node->basedir . '/writer.sql';
append_to_file($script, qq{
\\set n random(1, $backlog)
\\set m random(1, 1000)
BEGIN;
INSERT INTO big (id, doc) VALUES (:n::text, '{"ttl": 86400}')
	ON CONFLICT (id) DO UPDATE SET doc = excluded.doc;
UPDATE big SET doc = doc WHERE id = 'live ' || :m::text;
INSERT INTO audit VALUES (:n::text);
COMMIT;
});
my $writers;
my $writers_log = $node->basedir . '/writers.log';

sub start_writers
{
	$writers = IPC::Run::start(
		[
			'pgbench', '-n', '-c', '4', '-T', '600', '--max-tries=0',
			'-f', $script, '-h', $node->host, '-p', $node->port, 'postgres'
		],
		'<', \undef, '>', $writers_log, '2>', $writers_log);
	return;
}

sub stop_writers
{
	$writers->kill_kill if $writers->pumpable;
	$writers->finish;
	return;
}

# Until the purge has deleted some, and not all, since the last start.
sub wait_for_middle
{
	my ($when) = @_;
	until_is(stat_of('purged > 500', 'big'), 't', "$when: the purge is at it");
	cmp_ok(sql("SELECT on_disk('big', 'WHERE _ttl IS NULL')"),
		'>', 0, "$when: and not through");
	is(sql('SELECT count(*) FROM big WHERE _ttl IS NULL'),
		'0', "$when: nothing expired is shown");
	return;
}

sub check_after
{
	my ($when) = @_;
	ok($node->poll_query_until('postgres', 'SELECT 1', '1'), "$when: the server is back");
	is(sql('SELECT count(*) FROM big WHERE _ttl IS NULL'),
		'0', "$when: nothing expired is shown");
	is(sql("SELECT count(*) FROM (SELECT id FROM audit EXCEPT SELECT id FROM big) AS lost"),
		'0', "$when: nothing that was written is lost");
	is(sql("SELECT count(*) FROM big WHERE id LIKE 'live %'"),
		'1000', "$when: nor what was there");
	return;
}

sub pid_of
{
	my ($type) = @_;
	my $query = "SELECT max(pid) FROM pg_stat_activity WHERE backend_type = '$type' AND pid <> pg_backend_pid()";
	my $pid;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$pid = sql($query);
		return $pid if $pid;
	}
	die "there is no $type";
}

# The cap makes the backlog last, on any machine, and the pace is not at stake.
configure("ttl_docs.purge_max_rate = 2000\nttl_docs.purge = on");
for my $victim ('ttl_docs purge worker', 'client backend')
{
	start_writers();
	wait_for_middle("kill -9 of a $victim");
	my $offset = -s $node->logfile;
	kill 'KILL', pid_of($victim);
	$node->wait_for_log(qr/all server processes terminated; reinitializing/, $offset);
	stop_writers();
	check_after("kill -9 of a $victim");
}
start_writers();
wait_for_middle('immediate shutdown');
$node->stop('immediate');
stop_writers();
$node->start;
check_after('immediate shutdown');

# A worker that somebody ends is no crash, and another one comes.
start_writers();
wait_for_middle('end of a worker');
sql('SELECT pg_terminate_backend(' . pid_of('ttl_docs purge worker') . ')');
my $purged = sql(stat_of('purged', 'big'));
until_is(stat_of("purged > $purged", 'big'), 't', 'end of a worker: the purge goes on');
configure('ttl_docs.purge_max_rate = 0');
until_is("SELECT on_disk('big', 'WHERE _ttl IS NULL')", '0', 'in the end all expired are purged');
stop_writers();
check_after('in the end');
is( sql(q{SELECT on_disk('big') = (SELECT count(*) FROM big)
			AND (SELECT count(*) FROM big) = (SELECT 1000 + count(DISTINCT id) FROM audit)}),
	't', 'on disk is what is live, and nothing else');
cmp_ok(sql('SELECT count(*) FROM audit'), '>', 0, 'there were writers');

SKIP:
{
	skip 'no amcheck', 2
	  unless sql("SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'");
	sql('CREATE EXTENSION amcheck');
	is( $node->psql(
			'postgres', q{
			SELECT bt_index_check(indexrelid, true) FROM pg_index
			 WHERE indrelid = 'big'::regclass}),
		0, 'amcheck: the indexes are in order');
	is(sql("SELECT count(*) FROM verify_heapam('big')"), '0', 'amcheck: so is the table');
}
sql('DROP TABLE big, audit');

# ---- Documents that cannot be deleted ----

# Each collection has 20 documents that can be purged and some that cannot, with
# an id of 'bad ...'.
sql(q{
	CREATE ROLE alice;
	GRANT CREATE ON SCHEMA public TO alice;
	CREATE TABLE troubles (name text PRIMARY KEY);
	GRANT SELECT ON troubles TO alice;
	CREATE FUNCTION trouble(name text) RETURNS boolean LANGUAGE sql
		AS 'SELECT EXISTS (SELECT FROM public.troubles AS t WHERE t.name = $1)';
	SET ROLE alice;

	SELECT ttl_docs.create_collection('healthy', 60);
	SELECT ttl_docs.create_collection('restricted', 60);
	CREATE TABLE restricted_child (parent text REFERENCES restricted ON DELETE RESTRICT);
	SELECT ttl_docs.create_collection('deferred', 60);
	CREATE TABLE deferred_child
		(parent text REFERENCES deferred DEFERRABLE INITIALLY DEFERRED);

	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF old.id LIKE 'bad%' AND public.trouble(tg_table_name) THEN
			RAISE EXCEPTION '% refuses', tg_table_name;
		END IF;
		RETURN old;
	END $$;
	SELECT ttl_docs.create_collection('before', 60);
	CREATE TRIGGER refuse BEFORE DELETE ON before FOR EACH ROW EXECUTE FUNCTION refuse();
	SELECT ttl_docs.create_collection('after', 60);
	CREATE TRIGGER refuse AFTER DELETE ON after FOR EACH ROW EXECUTE FUNCTION refuse();
	SELECT ttl_docs.create_collection('constraining', 60);
	CREATE CONSTRAINT TRIGGER refuse AFTER DELETE ON constraining
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse();

	CREATE FUNCTION refuse_statement() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF EXISTS (SELECT FROM gone WHERE id LIKE 'bad%') AND public.trouble(tg_table_name) THEN
			RAISE EXCEPTION '% refuses', tg_table_name;
		END IF;
		RETURN NULL;
	END $$;
	SELECT ttl_docs.create_collection('statement', 60);
	CREATE TRIGGER refuse AFTER DELETE ON statement REFERENCING OLD TABLE AS gone
		FOR EACH STATEMENT EXECUTE FUNCTION refuse_statement();

	CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF old.id LIKE 'bad%' AND public.trouble(tg_table_name) THEN
			RETURN NULL;
		END IF;
		RETURN old;
	END $$;
	SELECT ttl_docs.create_collection('keeping', 60);
	CREATE TRIGGER keep BEFORE DELETE ON keeping FOR EACH ROW EXECUTE FUNCTION keep();

	CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF old.id LIKE 'bad%' AND public.trouble(tg_table_name) THEN
			PERFORM pg_sleep(600);
		END IF;
		RETURN old;
	END $$;
	SELECT ttl_docs.create_collection('slow', 60);
	CREATE TRIGGER dawdle AFTER DELETE ON slow FOR EACH ROW EXECUTE FUNCTION dawdle();

	CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF old.id LIKE 'bad%' AND public.trouble(tg_table_name) THEN
			RAISE EXCEPTION 'somebody was first' USING ERRCODE = 'serialization_failure';
		END IF;
		RETURN old;
	END $$;
	SELECT ttl_docs.create_collection('conflicting', 60);
	CREATE TRIGGER conflict BEFORE DELETE ON conflicting
		FOR EACH ROW EXECUTE FUNCTION conflict();

	SELECT ttl_docs.create_collection('cascading', 60);
	CREATE TABLE cascading_child
		(parent text REFERENCES cascading ON DELETE CASCADE);

	CREATE TABLE unidentified (id text, doc jsonb);
	SELECT ttl_docs.adopt('unidentified', 60);
	RESET ROLE;
	CREATE PUBLICATION pub FOR TABLE unidentified;
	INSERT INTO troubles SELECT relname FROM pg_class WHERE relkind = 'r';
});

# What is to be seen of each: bad documents, state, undeletable, last_error
my %troubles = (
	restricted => [ 3, 'idle', 3, qr/violates.*foreign key constraint "restricted_child/ ],
	deferred => [ 3, 'idle', 3, qr/violates foreign key constraint "deferred_child/ ],
	before => [ 3, 'idle', 3, qr/^before refuses$/ ],
	after => [ 3, 'idle', 3, qr/^after refuses$/ ],
	constraining => [ 3, 'idle', 3, qr/^constraining refuses$/ ],
	statement => [ 3, 'idle', 3, qr/^statement refuses$/ ],
	keeping => [ 3, 'idle', 3, qr/BEFORE trigger keeps/ ],
	slow => [ 1, 'idle', 1, qr/statement timeout/ ],
	unidentified => [ 20, 'failing', 0, qr/replica identity/ ],
	# what is busy is no trouble
	conflicting => [ 1, 'waiting', 0, qr/^$/ ],
	cascading => [ 3, 'waiting', 0, qr/^$/ ],
	healthy => [ 0, 'idle', 0, qr/^$/ ]);

my $offset = -s $node->logfile;
sql("SELECT ttl_docs.pause_purge('cascading')");
for my $table (sort keys %troubles)
{
	my $bad = $troubles{$table}[0];
	my $children = $table =~ /restricted|deferred|cascading/
	  ? "INSERT INTO ${table}_child SELECT id FROM $table WHERE id LIKE 'bad%';"
	  : '';
	sql(qq{
		BEGIN;
		SET LOCAL ttl_docs.clock_offset = '-1h';
		INSERT INTO $table (id, doc)
			SELECT CASE WHEN i % 7 = 0 AND i / 7 <= $bad THEN 'bad ' ELSE 'good ' END || i, '{}'
			  FROM generate_series(1, CASE $bad WHEN 20 THEN 20 ELSE 28 END) AS i;
		$children
		COMMIT;
		INSERT INTO $table (id, doc) VALUES ('live', '{"ttl": 86400}');
	});
}
# A session has locked a row that a cascade wants to delete.
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; SELECT FROM cascading_child FOR UPDATE');
sql("SELECT ttl_docs.resume_purge('cascading')");

for my $table (sort keys %troubles)
{
	my ($bad, $state, $undeletable, $error) = @{ $troubles{$table} };
	until_is("SELECT on_disk('$table')", 1 + $bad, "$table: the others are purged");
	until_is(stat_of('undeletable', $table),
		$undeletable, "$table: those that cannot be are counted");
	until_is(stat_of('state', $table), $state, "$table: state is $state");
	like(sql(stat_of('last_error', $table)), $error, "$table: last_error");
	is(sql("SELECT on_disk('$table', 'WHERE id LIKE ''bad%''')"),
		$bad, "$table: what cannot be purged is there")
	  if $state ne 'failing';
	is(sql("SELECT string_agg(id, ',') FROM $table"),
		'live', "$table: only what is live is shown");
}

# The log has where the error comes from, too.
my $troubles_log = slurp_file($node->logfile, $offset);
like($troubles_log,
	qr/could not purge documents of public\.restricted: [^\n]*\n[^\n]*DETAIL:  Key \(id\)=\(bad /,
	'the log has the detail of an error');
like($troubles_log,
	qr/could not purge documents of public\.before: before refuses\n[^\n]*HINT: [^\n]*\n[^\n]*CONTEXT:  PL\/pgSQL function [^\n]*refuse\(\) line/,
	'the log has the context of an error');
like(sql(stat_of('last_error', 'restricted')),
	qr/\nDETAIL:  Key \(id\)=\(bad \d+\) is (still )?referenced from table "restricted_child"\.$/,
	'last_error has the detail of an error');

# Other documents of the same tables go on, though the tables have trouble.
for my $table (grep { $troubles{$_}[1] ne 'failing' } sort keys %troubles)
{
	sql("SET ttl_docs.clock_offset = '-1h'; INSERT INTO $table (id, doc) VALUES ('more', '{}')");
	until_is("SELECT on_disk('$table', 'WHERE id = ''more''')",
		'0', "$table: the next one is purged");
}

# Each in the log once, and what is busy not at all
for my $table (sort keys %troubles)
{
	my $expected = $troubles{$table}[3] eq qr/^$/ ? 0 : 1;
	is(count_log(qr/could not purge documents of [^:]*\b$table\b/, $offset),
		$expected, "$table: in the log $expected times");
}

# CALL purge() tells its caller of them.
for my $block ([ '', '' ], [ 'BEGIN;', 'COMMIT;' ])
{
	my ($ret, $stdout, $stderr) =
	  $node->psql('postgres', "$block->[0] CALL ttl_docs.purge('before'); $block->[1]");
	is($ret, 0, 'CALL purge() of undeletable documents is no error');
	like($stderr, qr/3 documents of "before" could not be purged.*before refuses/s,
		'but a warning, with the reason');
}
is(sql(stat_of('undeletable', 'before')), '3', 'and does not count them twice');

# The causes go: what was busy is purged by itself, the others are forgiven and
# tried as soon as resume_purge() says so.
sql(q{
	DELETE FROM troubles;
	DELETE FROM restricted_child;
	DELETE FROM deferred_child;
	ALTER TABLE unidentified REPLICA IDENTITY FULL;
});
$locker->query_safe('COMMIT');
$locker->quit;
for my $table (qw(conflicting cascading))
{
	until_is("SELECT on_disk('$table')", '1', "$table: purged by itself");
	is(sql(stat_of('undeletable', $table)), '0', "$table: nothing undeletable");
}
is(sql('SELECT count(*) FROM cascading_child'), '0', 'cascading: the children went with them');
for my $table (grep { $troubles{$_}[3] ne qr/^$/ } sort keys %troubles)
{
	is( sql("BEGIN; SELECT ttl_docs.resume_purge('$table'); "
			  . stat_of('undeletable', $table)
			  . '; COMMIT'),
		"\n0", "$table: resume_purge() forgives");
	until_is("SELECT on_disk('$table')", '1', "$table: and it is purged");
	is(sql("SELECT string_agg(id, ',') FROM $table"), 'live', "$table: what is live is kept");
}
is(count_log(qr/could not purge documents of/, $offset), 9, 'the log has nothing more');

# ---- Documents that come late ----

# A document that is written into a slot that the purge has passed is told of,
# whatever else its transaction does.
sql(q{
	SELECT ttl_docs.create_collection('late', 60);
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO late (id, doc) VALUES ('first', '{}');
});
until_is("SELECT on_disk('late')", '0', 'late: the purge has passed');
sql("SET ttl_docs.clock_offset = '-2h'; INSERT INTO late (id, doc) VALUES ('alone', '{}')");
until_is("SELECT on_disk('late')", '0', 'late: a document alone');
sql(q{
	BEGIN;
	SET LOCAL ttl_docs.clock_offset = '-3h';
	INSERT INTO late (id, doc) VALUES ('with ddl', '{}');
	SELECT ttl_docs.create_collection('another', 60);
	COMMIT;
});
until_is("SELECT on_disk('late')", '0', 'late: together with a new collection');

# So is one whose worker is ended before it was purged.
sql(q{
	CREATE TRIGGER dawdle AFTER DELETE ON late FOR EACH ROW EXECUTE FUNCTION dawdle();
	ALTER TABLE late OWNER TO alice;
	INSERT INTO troubles VALUES ('late');
	SET ttl_docs.clock_offset = '-4h';
	INSERT INTO late (id, doc) VALUES ('bad luck', '{}');
});
until_is("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'",
	'1', 'late: the worker is at it');
sql(q{
	DELETE FROM troubles;
	SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep';
});
# The table is left alone for a while; see the end of this file.

# ---- Triggers that take too long ----

# A statement trigger that takes too long is found out, too: batches become smaller,
# also from one visit to the next.
sql(q{
	SET ROLE alice;
	CREATE FUNCTION dawdle_statement() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_sleep(600);
		RETURN NULL;
	END $$;
	SELECT ttl_docs.create_collection('slow_statement', 60);
	CREATE TRIGGER dawdle AFTER DELETE ON slow_statement
		FOR EACH STATEMENT EXECUTE FUNCTION dawdle_statement();
	RESET ROLE;
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO slow_statement (id, doc) SELECT i, '{}' FROM generate_series(1, 2) AS i;
});
until_is(stat_of('last_error', 'slow_statement'),
	'canceling statement due to statement timeout',
	'slow_statement: the trouble is shown');
sql('DROP TABLE slow_statement');

# A trigger that does not let itself be cancelled keeps nobody else's documents.
sql(q{
	SET ROLE alice;
	CREATE FUNCTION resist() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. 600 LOOP
			BEGIN
				PERFORM pg_sleep(1);
			EXCEPTION WHEN query_canceled THEN
				NULL;
			END;
		END LOOP;
		RETURN old;
	END $$;
	SELECT ttl_docs.create_collection('resisting', 60);
	CREATE TRIGGER resist BEFORE DELETE ON resisting FOR EACH ROW EXECUTE FUNCTION resist();
	RESET ROLE;
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO resisting (id, doc) VALUES ('a', '{}');
});
until_is("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'",
	'1', 'resisting: the trigger is at it');
sql("SET ttl_docs.clock_offset = '-1h'; INSERT INTO healthy (id, doc) VALUES ('more', '{}')");
until_is("SELECT on_disk('healthy', 'WHERE id = ''more''')",
	'0', 'resisting: other collections go on');
cmp_ok(sql("SELECT on_disk('resisting')"), '>', 0, 'resisting: before that one is through');
sql('DROP TABLE resisting');

# Nor does it after the launcher that sent its worker has gone: the next launcher
# ends it, too.
sql(q{
	SET ROLE alice;
	SELECT ttl_docs.create_collection('resisting', 60);
	CREATE TRIGGER resist BEFORE DELETE ON resisting FOR EACH ROW EXECUTE FUNCTION resist();
	RESET ROLE;
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO resisting (id, doc) VALUES ('a', '{}');
});
until_is("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'",
	'1', 'resisting, no launcher: the trigger is at it');
my $resisting_worker = pid_of('ttl_docs purge worker');
sql('SELECT pg_terminate_backend(' . pid_of('ttl_docs launcher') . ')');
sql("SET ttl_docs.clock_offset = '-1h'; INSERT INTO healthy (id, doc) VALUES ('still more', '{}')");
until_is("SELECT on_disk('healthy', 'WHERE id = ''still more''')",
	'0', 'resisting, no launcher: other collections go on');
is(sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $resisting_worker"),
	'0', 'resisting, no launcher: the worker has gone');
cmp_ok(sql("SELECT on_disk('resisting')"), '>', 0, 'resisting, no launcher: before it was through');
sql('DROP TABLE resisting');

# ---- Partitions whose rows have the same ctids ----

sql(q{
	CREATE TABLE parts (part int, id text, doc jsonb, PRIMARY KEY (part, id))
		PARTITION BY LIST (part);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
	CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
	CREATE TABLE parts_3 PARTITION OF parts FOR VALUES IN (3);
	SELECT ttl_docs.adopt('parts', 60);
	SELECT ttl_docs.pause_purge('parts');
	ALTER TABLE parts OWNER TO alice;
	ALTER TABLE parts_1 OWNER TO alice;
	ALTER TABLE parts_2 OWNER TO alice;
	ALTER TABLE parts_3 OWNER TO alice;
	CREATE TRIGGER refuse BEFORE DELETE ON parts_1 FOR EACH ROW EXECUTE FUNCTION refuse();
	INSERT INTO troubles VALUES ('parts_1');

	-- expired in 1 and 2, live in 3, each at the same place
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO parts SELECT p, CASE WHEN i % 10 = 0 THEN 'bad ' ELSE 'good ' END || i, '{}'
	  FROM generate_series(1, 2) AS p, generate_series(1, 100) AS i;
	RESET ttl_docs.clock_offset;
	INSERT INTO parts SELECT 3, 'live ' || i, '{"ttl": 86400}' FROM generate_series(1, 100) AS i;
});
cmp_ok(
	sql(q{
		SET ttl_docs.show_expired = on;
		SELECT count(*) FROM parts_1 AS a, parts_2 AS b, parts_3 AS c
		 WHERE a.ctid = b.ctid AND b.ctid = c.ctid;
	}),
	'>', 50, 'partitions: the ctids collide');
sql("SELECT ttl_docs.resume_purge('parts')");
until_is("SELECT on_disk('parts_1')", '10', 'partitions: the first keeps what cannot be purged');
until_is("SELECT on_disk('parts_2')", '0', 'partitions: the second keeps nothing');
until_is(stat_of('undeletable', 'parts'),
	'10', 'partitions: those of the first are undeletable');
is(sql('SELECT count(*), count(*) FILTER (WHERE part = 3) FROM parts'),
	'100|100', 'partitions: the third keeps all');
sql("DELETE FROM troubles; SELECT ttl_docs.resume_purge('parts')");
until_is("SELECT on_disk('parts')", '100', 'partitions: purged in the end');
sql('DROP TABLE parts');

# ---- Rights ----

# What a trigger is and may: as the owner of the table, and no more.
sql(q{
	CREATE ROLE bob;
	CREATE ROLE mallory;
	GRANT CREATE ON SCHEMA public TO bob, mallory;
	CREATE TABLE seen (who text, what text, result text);
	GRANT SELECT, INSERT ON seen TO PUBLIC;
	CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.seen VALUES (tg_table_name, 'user', current_user),
			(tg_table_name, 'purging', ttl_docs.purging()),
			(tg_table_name, 'search_path', current_setting('search_path')),
			(tg_table_name, 'work_mem', current_setting('work_mem')),
			(tg_table_name, 'show_expired', current_setting('ttl_docs.show_expired'));
		RETURN old;
	END $$;
	CREATE FUNCTION try_out() RETURNS trigger LANGUAGE plpgsql AS $$
	DECLARE
		attempt text;
	BEGIN
		FOREACH attempt IN ARRAY ARRAY[
			'SET ROLE bob', 'RESET ROLE', 'SET LOCAL ROLE NONE',
			'SET SESSION AUTHORIZATION bob', 'RESET SESSION AUTHORIZATION',
			$q$SELECT set_config('role', 'bob', false)$q$,
			$q$SELECT set_config('session_authorization', 'bob', true)$q$,
			'CREATE TEMP TABLE trap (i int)', 'PREPARE trap AS SELECT 1',
			'DECLARE trap CURSOR WITH HOLD FOR SELECT 1', 'LISTEN trap',
			'ALTER ROLE alice SUPERUSER', $q$SELECT pg_read_file('PG_VERSION')$q$,
			$q$SELECT set_config('ttl_docs.show_expired', 'on', false)$q$,
			$q$SELECT set_config('ttl_docs.clock_offset', '0', false)$q$,
			'SELECT pg_terminate_backend(pg_backend_pid())',
			'CREATE TABLE pg_catalog.trap (i int)']
		LOOP
			BEGIN
				EXECUTE attempt;
				INSERT INTO public.seen VALUES (tg_table_name, attempt, 'done');
			EXCEPTION WHEN OTHERS THEN
				INSERT INTO public.seen VALUES (tg_table_name, attempt, 'refused');
			END;
		END LOOP;
		-- anybody's right, and must not outlive the batch, or the visit
		PERFORM set_config('work_mem', '123MB', false);
		PERFORM set_config('search_path', 'public', false);
		PERFORM set_config('lock_timeout', '0', false);
		PERFORM pg_advisory_lock(4711);
		RETURN old;
	END $$;

	SET ROLE alice;
	SELECT ttl_docs.create_collection('of_alice', 60);
	CREATE TRIGGER a BEFORE DELETE ON of_alice FOR EACH ROW EXECUTE FUNCTION look();
	CREATE TRIGGER b BEFORE DELETE ON of_alice FOR EACH ROW EXECUTE FUNCTION try_out();
	CREATE TRIGGER c AFTER DELETE ON of_alice FOR EACH ROW EXECUTE FUNCTION look();
	RESET ROLE;
	SET ROLE bob;
	SELECT ttl_docs.create_collection('of_bob', 60);
	CREATE TRIGGER a BEFORE DELETE ON of_bob FOR EACH ROW EXECUTE FUNCTION look();
	CREATE TRIGGER b AFTER DELETE ON of_bob FOR EACH STATEMENT EXECUTE FUNCTION look();
	RESET ROLE;
	-- in one go, so that one visit purges both
	BEGIN;
	SET LOCAL ttl_docs.clock_offset = '-1h';
	INSERT INTO of_alice (id, doc) SELECT i, '{}' FROM generate_series(1, 20) AS i;
	INSERT INTO of_bob (id, doc) SELECT i, '{}' FROM generate_series(1, 20) AS i;
	COMMIT;
});
until_is("SELECT on_disk('of_alice') + on_disk('of_bob')", '0', 'rights: both are purged');
is( sql(q{SELECT DISTINCT who, result FROM seen WHERE what = 'user' ORDER BY 1}),
	"of_alice|alice\nof_bob|bob", 'triggers run as the owner of their table');
is( sql(q{SELECT DISTINCT result FROM seen WHERE what = 'purging'}),
	'true', 'and know that it is a purge');
is( sql(q{SELECT what FROM seen WHERE result = 'done' GROUP BY 1}),
	'', 'none of the ways to more rights is open');
is(sql(q{SELECT count(DISTINCT what) FROM seen WHERE result = 'refused'}),
	'17', 'and all were tried');
is( sql(q{SELECT DISTINCT what, result FROM seen
		   WHERE who = 'of_bob' AND what NOT IN ('user', 'purging') ORDER BY 1}),
	"search_path|pg_catalog, pg_temp\nshow_expired|off\nwork_mem|4MB",
	'what one trigger sets does not reach those of other tables');
until_is("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
	'0', 'a lock that a trigger leaves behind goes with the worker');
is(sql("SELECT count(*) FROM pg_roles WHERE rolsuper AND rolname IN ('alice', 'bob')"),
	'0', 'nobody is a superuser now');

# Somebody else's code on a superuser's table does not run as the superuser: by
# its trigger, its WHEN, a child that a cascade reaches, a partition of that, one
# that a row is moved to, or an index that is checked late.
sql(q{
	SET ROLE mallory;
	CREATE FUNCTION rise() RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.seen VALUES ('mallory', 'ran', current_user);
		BEGIN
			ALTER ROLE mallory SUPERUSER;
		EXCEPTION WHEN insufficient_privilege THEN
			NULL;
		END;
		RETURN true;
	END $$;
	CREATE FUNCTION rise_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM public.rise();
		RETURN old;
	END $$;
	-- clashes with a row that is there, until it is checked again
	CREATE FUNCTION rise_index(parent text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$
	BEGIN
		IF parent IS NULL AND current_user <> 'mallory' THEN
			PERFORM public.rise();
			RETURN 'other';
		END IF;
		RETURN coalesce(parent, 'b');
	END $$;
	RESET ROLE;
	CREATE FUNCTION harmless() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN old; END';
	SELECT ttl_docs.create_collection(name, 60)
	  FROM unnest(ARRAY['by_trigger', 'by_when', 'by_child', 'by_partition', 'by_move', 'by_index'])
		AS name;
	GRANT TRIGGER, REFERENCES, SELECT
		ON by_trigger, by_when, by_child, by_partition, by_move, by_index TO mallory;
	SET ROLE mallory;
	CREATE TRIGGER rise BEFORE DELETE ON by_trigger FOR EACH ROW EXECUTE FUNCTION rise_trigger();
	CREATE TRIGGER rise AFTER DELETE ON by_when FOR EACH ROW WHEN (rise())
		EXECUTE FUNCTION harmless();
	CREATE TABLE by_child_child (parent text REFERENCES by_child ON DELETE CASCADE);
	CREATE TRIGGER rise AFTER DELETE ON by_child_child FOR EACH ROW EXECUTE FUNCTION rise_trigger();
	CREATE TABLE by_partition_child (parent text REFERENCES by_partition ON DELETE CASCADE)
		PARTITION BY LIST (parent);
	CREATE TABLE by_partition_leaf PARTITION OF by_partition_child DEFAULT;
	CREATE TRIGGER rise AFTER DELETE ON by_partition_leaf FOR EACH ROW
		EXECUTE FUNCTION rise_trigger();
	CREATE TABLE by_move_child (parent text REFERENCES by_move ON DELETE SET NULL)
		PARTITION BY LIST (parent);
	CREATE TABLE by_move_leaf PARTITION OF by_move_child DEFAULT;
	CREATE TABLE by_move_null PARTITION OF by_move_child FOR VALUES IN (NULL);
	CREATE TRIGGER rise AFTER INSERT ON by_move_null FOR EACH ROW EXECUTE FUNCTION rise_trigger();
	CREATE TABLE by_index_child (parent text REFERENCES by_index ON DELETE SET NULL,
		CONSTRAINT rise EXCLUDE (rise_index(parent) WITH =) DEFERRABLE);
	RESET ROLE;
	INSERT INTO by_index (id, doc) VALUES ('b', '{"ttl": 86400}');
	INSERT INTO by_index_child VALUES ('b');
});
for my $table (qw(by_trigger by_when by_child by_partition by_move by_index))
{
	my $child = $table !~ /trigger|when/ ? "INSERT INTO ${table}_child VALUES ('a');" : '';
	sql(qq{
		BEGIN;
		SET LOCAL ttl_docs.clock_offset = '-1h';
		INSERT INTO $table (id, doc) VALUES ('a', '{}');
		$child
		COMMIT;
	});
	until_is(stat_of("state = 'blocked' OR purged > 0", $table), 't', "$table: looked at");
	is(sql(stat_of('state', $table)), 'blocked', "$table: blocked");
	like(sql(stat_of('hint', $table)), qr/owner/, "$table: with the way out");
	is(sql("SELECT on_disk('$table', 'WHERE id = ''a''')"), '1', "$table: not purged");
	my ($ret, $stdout, $stderr) = $node->psql('postgres', "CALL ttl_docs.purge('$table')");
	like($stderr, qr/blocked/, "$table: nor by CALL purge()");
	is(sql("SELECT count(*) FROM seen WHERE who = 'mallory'"),
		'0', "$table: the function did not run");
	is(sql("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'"),
		'f', "$table: nobody became a superuser");
	sql("ALTER ROLE mallory NOSUPERUSER; DELETE FROM seen");
}
# Where table and function belong to the same user, it runs as that one.
sql(q{
	ALTER TABLE by_trigger OWNER TO alice;
	ALTER FUNCTION rise_trigger() OWNER TO alice;
	SELECT ttl_docs.resume_purge('by_trigger');
});
until_is("SELECT on_disk('by_trigger')", '0', 'the same owner: purged');
is(sql("SELECT DISTINCT result FROM seen WHERE who = 'mallory'"),
	'alice', 'and the function ran as that owner');
is(sql("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'"), 'f', 'in vain');

# The document whose worker was ended has not been forgotten.
until_is("SELECT on_disk('late')", '0', 'late: its worker was ended');

is(count_log(qr/TRAP: |PANIC: /, 0), 0, 'no assertion failed');
$node->stop;

done_testing();

# Problems during the purge: crashes in the middle of a backlog, documents that cannot be deleted,
# and triggers that try to get more privileges than the owner of their table has.
#
# In each case the purge of other documents and collections goes on, live documents stay, and
# expired documents stay hidden.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PurgeNode;
use Test::More;
use TtlServer;

plan skip_all => 'this PostgreSQL::Test has no background sessions'
  unless eval { require PostgreSQL::Test::BackgroundPsql; };

my $node = start_node(q{
restart_after_crash = on
}, allows_streaming => 'logical');

my $in_trigger = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";

# Writes one expired document to a collection.
sub add_expired
{
	my ($collection, $id) = @_;
	sql("SET ttl_docs.clock_offset = '-1h'; INSERT INTO $collection (id, doc) VALUES ('$id', '{}')");
	return;
}

# Only the live document of a collection is visible.  Counts as a test.
sub shows_only_live
{
	my ($collection) = @_;
	is(sql("SELECT string_agg(id, ',') FROM $collection"), 'live', "$collection: only the live document is visible");
	return;
}

# ---- Crashes in the middle of a backlog, under writers ----

# There are 60,000 expired documents.  Writers reuse their keys while the purge deletes them,
# and record this in the same transaction.
my $backlog = 60_000;
sql(qq{
	SELECT ttl_docs.create_collection('big', 60);
	CREATE TABLE audit (id text);
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO big (id, doc) SELECT i, '{}' FROM generate_series(1, $backlog) AS i;
	RESET ttl_docs.clock_offset;
} . live('big', 1000));
my $script = qq{
\\set n random(1, $backlog)
\\set m random(1, 1000)
BEGIN;
INSERT INTO big (id, doc) VALUES (:n::text, '{"ttl": 86400}')
	ON CONFLICT (id) DO UPDATE SET doc = excluded.doc;
UPDATE big SET doc = doc WHERE id = 'live ' || :m::text;
INSERT INTO audit VALUES (:n::text);
COMMIT;
};

sub start_writers
{
	return start_pgbench($node, $script, '-c', '4', '--max-tries=0');
}

# Waits until the purge has deleted some documents, but not all, since the last start.
sub wait_for_middle
{
	my ($when) = @_;
	until_is(stat_of('purged > 500', 'big'), 't', "$when: the purge has begun");
	cmp_ok(on_disk('big', 'WHERE _ttl IS NULL'), '>', 0, "$when: the purge has not finished");
	is(sql('SELECT count(*) FROM big WHERE _ttl IS NULL'), '0', "$when: expired documents are hidden");
	return;
}

sub check_after
{
	my ($when) = @_;
	is(sql('SELECT count(*) FROM big WHERE _ttl IS NULL'), '0', "$when: expired documents are hidden");
	is(sql("SELECT count(*) FROM (SELECT id FROM audit EXCEPT SELECT id FROM big) AS lost"),
		'0', "$when: every written document is visible");
	is(sql("SELECT count(*) FROM big WHERE id LIKE 'live %'"),
		'1000', "$when: every document that was live before is visible");
	return;
}

# Returns the pid of a process of some backend type.
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

# The maximum rate makes the backlog last long enough on any machine.
configure("ttl_docs.purge_max_rate = 2000\nttl_docs.purge = on");
for my $victim ('ttl_docs purge worker', 'client backend')
{
	my $writers = start_writers();
	wait_for_middle("kill -9 of a $victim");
	my $offset = -s $node->logfile;
	kill 'KILL', pid_of($victim);
	wait_for_restart($node, $offset);
	stop_pgbench($writers);
	check_after("kill -9 of a $victim");
}
my $writers = start_writers();
wait_for_middle('immediate shutdown');
$node->stop('immediate');
stop_pgbench($writers);
$node->start;
check_after('immediate shutdown');

# Terminating a worker is not a crash.  Another worker starts.
$writers = start_writers();
wait_for_middle('terminated worker');
sql('SELECT pg_terminate_backend(' . pid_of('ttl_docs purge worker') . ')');
my $purged = sql(stat_of('purged', 'big'));
until_is(stat_of("purged > $purged", 'big'), 't', 'terminated worker: the purge goes on');
configure('ttl_docs.purge_max_rate = 0');
until_on_disk('big', 0, 'at the end: all expired documents are purged', 'WHERE _ttl IS NULL');
stop_pgbench($writers);
check_after('at the end');
is( sql(q{SELECT on_disk('big') = (SELECT count(*) FROM big)
			AND (SELECT count(*) FROM big) = (SELECT 1000 + count(DISTINCT id) FROM audit)}),
	't', 'at the end: exactly the live documents are on disk');
cmp_ok(sql('SELECT count(*) FROM audit'), '>', 0, 'at the end: the writers have written');

SKIP:
{
	skip 'no amcheck', 2
	  unless has_extension($node, 'amcheck');
	sql('CREATE EXTENSION amcheck');
	is( $node->psql(
			'postgres', q{
			SELECT bt_index_check(indexrelid, true) FROM pg_index
			 WHERE indrelid = 'big'::regclass}),
		0, 'amcheck: the indexes are correct');
	is(sql("SELECT count(*) FROM verify_heapam('big')"), '0', 'amcheck: the table is correct');
}
sql('DROP TABLE big, audit');

# ---- Documents that cannot be deleted ----

# Each collection has documents that can be purged, and some with an id of 'bad ...' that cannot.
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

# For each collection: the number of bad documents, then state, undeletable and last_error in
# stat_collections
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
	# documents in use by other transactions are not undeletable
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
# A session locks a row that a cascade must delete.
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; SELECT FROM cascading_child FOR UPDATE');
sql("SELECT ttl_docs.resume_purge('cascading')");

for my $table (sort keys %troubles)
{
	my ($bad, $state, $undeletable, $error) = @{ $troubles{$table} };
	until_on_disk($table, 1 + $bad, "$table: the other documents are purged");
	until_is(stat_of('undeletable', $table),
		$undeletable, "$table: stat_collections counts the undeletable documents");
	until_state($table, $state, "$table: the state is $state");
	like(sql(stat_of('last_error', $table)), $error, "$table: last_error has the reason");
	is(on_disk($table, "WHERE id LIKE 'bad%'"), $bad, "$table: the bad documents are on disk")
	  if $state ne 'failing';
	shows_only_live($table);
}

# The log shows where an error comes from.
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

# In tables with undeletable documents, the purge of other documents goes on.
for my $table (grep { $troubles{$_}[1] ne 'failing' } sort keys %troubles)
{
	add_expired($table, 'more');
	until_on_disk($table, 0, "$table: the next document is purged", "WHERE id = 'more'");
}

# The log has one error for each collection with undeletable documents, and none for documents in use.
for my $table (sort keys %troubles)
{
	my $expected = $troubles{$table}[3] eq qr/^$/ ? 0 : 1;
	is(count_log($node, qr/could not purge documents of [^:]*\b$table\b/, $offset),
		$expected, "$table: the log has $expected errors");
}

# CALL purge() reports undeletable documents.
for my $block ([ '', '' ], [ 'BEGIN;', 'COMMIT;' ])
{
	my ($ret, $stdout, $stderr) =
	  $node->psql('postgres', "$block->[0] CALL ttl_docs.purge('before'); $block->[1]");
	is($ret, 0, 'CALL purge() succeeds although documents are undeletable');
	like($stderr, qr/3 documents of "before" could not be purged.*before refuses/s,
		'CALL purge() warns, with the reason');
}
is(sql(stat_of('undeletable', 'before')), '3', 'undeletable documents are counted once');

# The causes are removed.  Documents that were in use are purged without a command.  The purge
# retries the others after resume_purge(), which resets their count.
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
	until_on_disk($table, 1, "$table: documents that were in use are purged without a command");
	is(sql(stat_of('undeletable', $table)), '0', "$table: no document is undeletable");
}
is(sql('SELECT count(*) FROM cascading_child'), '0', 'cascading: the children are deleted, too');
for my $table (grep { $troubles{$_}[3] ne qr/^$/ } sort keys %troubles)
{
	is( sql("BEGIN; SELECT ttl_docs.resume_purge('$table'); "
			  . stat_of('undeletable', $table)
			  . '; COMMIT'),
		"\n0", "$table: resume_purge() resets the count of undeletable documents");
	until_on_disk($table, 1, "$table: the documents are purged after resume_purge()");
	shows_only_live($table);
}
is(count_log($node, qr/could not purge documents of/, $offset), 9, 'the log has no other error of the purge');

# ---- Documents in slots that the purge has passed ----

# The purge also finds a document in a slot that it has passed, whatever else the transaction
# does.
sql(q{
	SELECT ttl_docs.create_collection('late', 60);
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO late (id, doc) VALUES ('first', '{}');
});
until_on_disk('late', 0, 'late: the purge has passed the slots');
sql("SET ttl_docs.clock_offset = '-2h'; INSERT INTO late (id, doc) VALUES ('alone', '{}')");
until_on_disk('late', 0, 'late: a document that was written alone is purged');
sql(q{
	BEGIN;
	SET LOCAL ttl_docs.clock_offset = '-3h';
	INSERT INTO late (id, doc) VALUES ('with ddl', '{}');
	SELECT ttl_docs.create_collection('another', 60);
	COMMIT;
});
until_on_disk('late', 0, 'late: a document that was written together with a new collection is purged');

# The worker is terminated before it has purged the document.
sql(q{
	CREATE TRIGGER dawdle AFTER DELETE ON late FOR EACH ROW EXECUTE FUNCTION dawdle();
	ALTER TABLE late OWNER TO alice;
	INSERT INTO troubles VALUES ('late');
	SET ttl_docs.clock_offset = '-4h';
	INSERT INTO late (id, doc) VALUES ('bad luck', '{}');
});
until_is($in_trigger, '1', 'late: the worker is in the trigger');
sql(q{
	DELETE FROM troubles;
	SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep';
});
# The purge now skips the table for a while; the end of this file checks it again.

# ---- Triggers that take too long ----

# The purge also detects a statement trigger that takes too long.  Batches become smaller, even from
# one visit to the next.
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
	'slow_statement: last_error shows the timeout');
sql('DROP TABLE slow_statement');

# A trigger that cannot be cancelled does not stop the purge of other collections.
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
until_is($in_trigger, '1', 'resisting: a worker is in the trigger');
add_expired('healthy', 'more');
until_on_disk('healthy', 0, 'resisting: another collection is purged', "WHERE id = 'more'");
cmp_ok(on_disk('resisting'), '>', 0, 'resisting: its document is still on disk');
sql('DROP TABLE resisting');

# The launcher that started the worker ends.  The next launcher terminates the worker.
sql(q{
	SET ROLE alice;
	SELECT ttl_docs.create_collection('resisting', 60);
	CREATE TRIGGER resist BEFORE DELETE ON resisting FOR EACH ROW EXECUTE FUNCTION resist();
	RESET ROLE;
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO resisting (id, doc) VALUES ('a', '{}');
});
until_is($in_trigger, '1', 'resisting, new launcher: a worker is in the trigger');
my $resisting_worker = pid_of('ttl_docs purge worker');
sql('SELECT pg_terminate_backend(' . pid_of('ttl_docs launcher') . ')');
add_expired('healthy', 'still more');
until_on_disk('healthy', 0, 'resisting, new launcher: another collection is purged', "WHERE id = 'still more'");
is(sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $resisting_worker"),
	'0', 'resisting, new launcher: the worker has ended');
cmp_ok(on_disk('resisting'), '>', 0, 'resisting, new launcher: its document is still on disk');
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

	-- expired in 1 and 2, live in 3, all with the same ctids
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
	'>', 50, 'partitions: the ctids are the same');
sql("SELECT ttl_docs.resume_purge('parts')");
until_on_disk('parts_1', 10, 'partitions: the first keeps its undeletable documents');
until_on_disk('parts_2', 0, 'partitions: the second keeps nothing');
until_is(stat_of('undeletable', 'parts'),
	'10', 'partitions: stat_collections counts the undeletable documents of the first');
is(sql('SELECT count(*), count(*) FILTER (WHERE part = 3) FROM parts'),
	'100|100', 'partitions: the third keeps its live documents');
sql("DELETE FROM troubles; SELECT ttl_docs.resume_purge('parts')");
until_on_disk('parts', 100, 'partitions: the first is purged when its documents can be deleted');
sql('DROP TABLE parts');

# ---- Privileges ----

# Triggers run as the owner of the table, and get no other privileges.
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
		-- every user may do this, but the effect must end with the batch or the visit
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
	-- in one transaction, so that one visit purges both
	BEGIN;
	SET LOCAL ttl_docs.clock_offset = '-1h';
	INSERT INTO of_alice (id, doc) SELECT i, '{}' FROM generate_series(1, 20) AS i;
	INSERT INTO of_bob (id, doc) SELECT i, '{}' FROM generate_series(1, 20) AS i;
	COMMIT;
});
until_is("SELECT on_disk('of_alice') + on_disk('of_bob')", '0', 'privileges: both collections are purged');
is( sql(q{SELECT DISTINCT who, result FROM seen WHERE what = 'user' ORDER BY 1}),
	"of_alice|alice\nof_bob|bob", 'privileges: triggers run as the owner of their table');
is( sql(q{SELECT DISTINCT result FROM seen WHERE what = 'purging'}),
	'true', 'privileges: purging() is true in triggers');
is( sql(q{SELECT what FROM seen WHERE result = 'done' GROUP BY 1}),
	'', 'privileges: no attempt to get more privileges succeeds');
is(sql(q{SELECT count(DISTINCT what) FROM seen WHERE result = 'refused'}),
	'17', 'privileges: all attempts were made');
is( sql(q{SELECT DISTINCT what, result FROM seen
		   WHERE who = 'of_bob' AND what NOT IN ('user', 'purging') ORDER BY 1}),
	"search_path|pg_catalog, pg_temp\nshow_expired|off\nwork_mem|4MB",
	'privileges: settings of one trigger do not reach triggers of other tables');
until_is("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
	'0', 'privileges: a lock that a trigger takes ends with the visit');
is(sql("SELECT count(*) FROM pg_roles WHERE rolsuper AND rolname IN ('alice', 'bob')"),
	'0', 'privileges: nobody has become a superuser');

# Another user's code on a superuser's table does not run as the superuser.  The code is in a
# trigger, its WHEN condition, a child that a cascade reaches, a partition of a child, a partition
# that a row moves to, or an index of a deferred constraint.
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
	-- conflicts with an existing row, until the constraint is checked again
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
	until_is(stat_of("state = 'blocked' OR purged > 0", $table), 't', "$table: a worker has visited it");
	is(sql(stat_of('state', $table)), 'blocked', "$table: the state is blocked");
	like(sql(stat_of('hint', $table)), qr/owner/, "$table: the hint names the owner");
	is(on_disk($table, "WHERE id = 'a'"), '1', "$table: the document is not purged");
	like(error_of($node, 'postgres', "CALL ttl_docs.purge('$table')"),
		qr/blocked/, "$table: CALL purge() is blocked, too");
	is(sql("SELECT count(*) FROM seen WHERE who = 'mallory'"),
		'0', "$table: the function did not run");
	is(sql("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'"),
		'f', "$table: nobody has become a superuser");
	sql("ALTER ROLE mallory NOSUPERUSER; DELETE FROM seen");
}
# If one user owns the table and the function, the function runs as this user.
sql(q{
	ALTER TABLE by_trigger OWNER TO alice;
	ALTER FUNCTION rise_trigger() OWNER TO alice;
	SELECT ttl_docs.resume_purge('by_trigger');
});
until_on_disk('by_trigger', 0, 'same owner: the collection is purged');
is(sql("SELECT DISTINCT result FROM seen WHERE who = 'mallory'"),
	'alice', 'same owner: the function ran as this owner');
is(sql("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'"), 'f', 'same owner: nobody has become a superuser');

# The document whose worker was terminated is purged in the end.
until_on_disk('late', 0, 'late: a document whose worker was terminated is purged');

no_assertion_failed($node);
$node->stop;

done_testing();

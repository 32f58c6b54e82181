# New ways of PostgreSQL 19 to reach the rows of a table: no query sees an expired document, and no expired
# document comes back.  test/t/046_parent_triggers.pl has the foreign keys.
#
# Older servers run what they know of it, and refuse the rest.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

my $node = new_server('main', "ttl_docs.purge = off\nwal_level = logical\n", allows_streaming => 1);
my $is_19 = $node->pg_version->major >= 19;
$node->start;
install_in($node, 'postgres');

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

sub error
{
	my ($sql) = @_;
	return error_of($node, 'postgres', "\\set VERBOSITY verbose\n$sql");
}

# Half of the documents have expired.  The partitions have several levels, and another order of columns.
sql(q{
	CREATE TABLE docs (id int PRIMARY KEY, doc jsonb, note text);
	CREATE TABLE parts (id int, doc jsonb, note text) PARTITION BY RANGE (id);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
	CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (20) PARTITION BY LIST (id);
	CREATE TABLE parts_2a (doc jsonb, note text, id int);
	ALTER TABLE parts_2 ATTACH PARTITION parts_2a DEFAULT;
	SELECT ttl_docs.adopt('docs', 3600), ttl_docs.adopt('parts', 3600);
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO docs SELECT i, '{}', 'expired' FROM generate_series(1, 20, 2) AS i;
	INSERT INTO parts SELECT i, '{}', 'expired' FROM generate_series(1, 19, 2) AS i;
	RESET ttl_docs.clock_offset;
	INSERT INTO docs SELECT i, '{}', 'live' FROM generate_series(2, 20, 2) AS i;
	INSERT INTO parts SELECT i, '{}', 'live' FROM generate_series(2, 18, 2) AS i;
});

# ---- COPY of a partitioned table ----

if (!$is_19)
{
	like(error('COPY parts TO stdout'), qr/ERROR:  42809: cannot copy from partitioned table "parts"/,
		'COPY of a partitioned table is new in 19');
}
else
{
	for my $options ('', '(FORMAT csv, HEADER)', '(FORMAT json)', '(FORMAT json, FORCE_ARRAY)')
	{
		my $copied = sql("COPY parts (id, note) TO stdout $options");
		unlike($copied, qr/expired/, "COPY parts TO $options leaves out expired documents");
		is(() = $copied =~ /live/g, 9, "COPY parts TO $options has the live ones");
		is(() = sql("COPY parts_2 TO stdout $options") =~ /live/g, 5, "COPY of a partition that is partitioned, $options");
		is(() = sql("SET row_security = off; COPY parts TO stdout $options") =~ /expired/g, 10, "a backup has all documents, $options");
	}
	is(sql(q{COPY parts (id, note) TO stdout (FORMAT csv)}), sql(q{COPY (SELECT id, note FROM parts) TO stdout (FORMAT csv)}),
		'COPY of the table is COPY of the query');
	is(sql(q{COPY parts (note, id) TO stdout (FORMAT json)}) =~ /^\{"note":"live","id":\d+\}$/m ? 'yes' : 'no', 'yes', 'the columns in the order of the command');
	unlike(sql(q{COPY parts TO stdout}), qr/\tlive\t[^\t]*$/m, 'without a list, the columns are those of the table');

	# The first copy of a subscription is COPY of the root.
	my $subscriber = start_server('subscriber', 'ttl_docs.purge = off');
	$subscriber->safe_psql('postgres', 'CREATE TABLE parts (id int, doc jsonb, note text, _ts timestamptz, _ttl int, _slot bigint)');
	sql(q{CREATE PUBLICATION pub FOR TABLE parts WITH (publish_via_partition_root)});
	$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION sub CONNECTION \$c\$" . $node->connstr('postgres') . "\$c\$ PUBLICATION pub");
	$subscriber->wait_for_subscription_sync($node, 'sub');
	is($subscriber->safe_psql('postgres', 'SELECT note, count(*) FROM parts GROUP BY note'), 'live|9', 'the first copy of a subscription leaves out expired documents');
	$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION sub');
	$subscriber->stop;
	sql('DROP PUBLICATION pub');
}

# ---- ON CONFLICT DO SELECT ----

if (!$is_19)
{
	like(error('INSERT INTO docs VALUES (1) ON CONFLICT (id) DO SELECT RETURNING id'), qr/ERROR:  42601/, 'DO SELECT is new in 19');
}
else
{
	my $retry = qr/ERROR:  40001: could not select a document that expired meanwhile\n.*HINT:  Retry the transaction\./;

	is(sql(q{INSERT INTO docs VALUES (2, '{}', 'new') ON CONFLICT (id) DO SELECT RETURNING note}), 'live', 'DO SELECT returns a live document');
	is(sql(q{INSERT INTO docs VALUES (1, '{}', 'new') ON CONFLICT (id) DO SELECT RETURNING note}), 'new', 'DO SELECT inserts where the document has expired');
	is(sql(q{INSERT INTO docs VALUES (3, '{}', 'new') ON CONFLICT (id) DO SELECT FOR UPDATE WHERE docs.note = 'expired' RETURNING note}), 'new', 'the same with FOR UPDATE and WHERE');

	# The document expires after the trigger has freed expired keys.  Core evaluates CHECK constraints just after
	# the trigger; this one moves the clock.  Then core finds the conflict, waits for the lock and evaluates WHERE.
	sql(q{
		CREATE FUNCTION time_passes() RETURNS boolean VOLATILE LANGUAGE plpgsql AS $$
		BEGIN
			IF current_setting('test.time', true) = 'passes' THEN
				PERFORM set_config('ttl_docs.clock_offset', '2h', false);
			END IF;
			RETURN true;
		END $$;
		CREATE TABLE keys (id int, doc jsonb, note text, PRIMARY KEY (id)) PARTITION BY LIST (id);
		CREATE TABLE keys_1 (note text, doc jsonb, id int NOT NULL);
		ALTER TABLE keys ATTACH PARTITION keys_1 DEFAULT;
		SELECT ttl_docs.adopt('keys', 3600);
		ALTER TABLE docs ADD CONSTRAINT pass CHECK (time_passes());
		ALTER TABLE keys ADD CONSTRAINT pass CHECK (time_passes())});
	for my $table (qw(docs keys))
	{
		sql("INSERT INTO $table VALUES (100, '{}', 'live')");
		for my $lock ('', 'FOR UPDATE', 'FOR NO KEY UPDATE', 'FOR SHARE', 'FOR KEY SHARE')
		{
			for my $where ('', "WHERE $table.note = 'live'", "WHERE $table.note = 'none'")
			{
				my $upsert = "INSERT INTO $table VALUES (100, '{}', 'new') ON CONFLICT (id) DO SELECT $lock $where RETURNING $table.note";
				is(sql($upsert), $where =~ /none/ ? '' : 'live', "$table: DO SELECT $lock $where, a live document");
				like(error("SET test.time = passes;\n$upsert"), $retry, "$table: DO SELECT $lock $where, a document that has just expired");
				like(error("BEGIN ISOLATION LEVEL REPEATABLE READ; SET test.time = passes;\n$upsert"), $retry,
					"$table: the same in REPEATABLE READ") if $lock eq '';
			}
		}
		like(error("SET test.time = passes; INSERT INTO $table VALUES (100, '{}', 'new') ON CONFLICT (id) DO UPDATE SET note = 'back' WHERE $table.note = 'live'"),
			qr/ERROR:  40001: could not update a document/, "$table: DO UPDATE has another message");
	}
	sql('ALTER TABLE docs DROP CONSTRAINT pass');

	like(sql(q{EXPLAIN (COSTS OFF) INSERT INTO docs VALUES (2) ON CONFLICT (id) DO SELECT RETURNING id}), qr/Conflict Filter: ttl_docs_internal\.require_live/,
		'the plan has the check');
}

# ---- One instant in PL/pgSQL ----

# docs/limits.md: an assignment and, since 19, SELECT expression INTO are no queries.
sql(q{
	CREATE FUNCTION visible() RETURNS bigint STABLE LANGUAGE sql AS 'SELECT count(*) FROM parts';
	CREATE FUNCTION travel(hours int) RETURNS int VOLATILE LANGUAGE plpgsql AS
	$$ BEGIN PERFORM set_config('ttl_docs.clock_offset', hours || 'h', false); RETURN hours; END $$});
my %seen = (
	'assignment' => 'seen := visible() || travel(2)::text || visible();',
	'SELECT expression INTO' => 'SELECT visible() || travel(2)::text || visible() INTO seen;',
	'SELECT expression FROM ... INTO' => 'SELECT visible() || travel(2)::text || visible() INTO seen FROM generate_series(1, 1);');
for my $name (sort keys %seen)
{
	like(error(qq{DO \$\$ DECLARE seen text; BEGIN $seen{$name} RAISE NOTICE 'saw %', seen; END \$\$}), qr/saw 929\n/,
		"PL/pgSQL: one instant in $name");
}

# ---- What needs no change ----

is(sql(q{SELECT count(*) FROM docs WHERE ctid >= '(0,0)' AND ctid < '(100,0)' AND note = 'expired'}), '0', 'TID range');
my $parallel = q{
	SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2;
	SET enable_seqscan = off;};
sql(q{
	CREATE TABLE big (id int PRIMARY KEY, doc jsonb, grp int) WITH (parallel_workers = 2);
	CREATE TABLE groups (id int PRIMARY KEY, name text);
	INSERT INTO groups SELECT i, 'group ' || i FROM generate_series(0, 9) AS i;
	SELECT ttl_docs.adopt('big', 3600);
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO big SELECT i, '{}', i % 10 FROM generate_series(1, 20000, 2) AS i;
	RESET ttl_docs.clock_offset;
	INSERT INTO big SELECT i, '{}', i % 10 FROM generate_series(2, 20000, 2) AS i;
	ANALYZE big, groups});
my $tid_range = q{SELECT count(*), count(*) FILTER (WHERE id % 2 = 1) FROM big WHERE ctid >= '(0,0)' AND ctid < '(1000,0)'};
is(sql("$parallel $tid_range"), '10000|0', 'parallel TID range');
like(sql("$parallel EXPLAIN (COSTS OFF) $tid_range"), qr/Parallel Tid Range Scan/, 'the plan is parallel') if $is_19;
my $aggregate = q{SELECT g.name, count(*), min(b.id % 2) FROM big AS b JOIN groups AS g ON g.id = b.grp WHERE g.id = 4 GROUP BY g.name};
is(sql($aggregate), 'group 4|2000|0', 'aggregation before a join');
is(sql(q{SELECT count(*) FROM generate_series(1, 20000) AS i WHERE i NOT IN (SELECT id FROM big)}), '10000', 'NOT IN as an anti join');
if ($is_19)
{
	# each group of documents joins with 100 rows, so the planner counts the documents first
	sql(q{CREATE TABLE members AS SELECT i AS id, i % 10 AS grp FROM generate_series(1, 1000) AS i; ANALYZE members});
	my $eager = q{SELECT m.id, count(b.id) FROM members AS m JOIN big AS b USING (grp) GROUP BY m.id};
	like(sql("SET max_parallel_workers_per_gather = 0; EXPLAIN (COSTS OFF) $eager"), qr/Partial HashAggregate\n.*\n.*Seq Scan on big b\n *Filter: ttl_docs_internal\.is_live/,
		'the scan below an eager aggregation has the test');
	is(sql("SELECT sum(count) FROM ($eager) AS s"), '1000000', 'eager aggregation');
	is(sql(q{LOAD 'pg_plan_advice'; SET pg_plan_advice.advice = 'SEQ_SCAN(docs)'; SELECT count(*) FROM docs WHERE note = 'expired' AND id > 0}), '0', 'pg_plan_advice');

	for my $command ('REPACK docs', 'REPACK docs USING INDEX docs_pkey', 'REPACK (CONCURRENTLY) docs', 'REPACK (CONCURRENTLY) docs USING INDEX docs_pkey', 'REPACK (CONCURRENTLY, ANALYZE) docs')
	{
		my $on_disk = count_on_disk($node, 'postgres', 'docs');
		my $stamps = sql(q{SET row_security = off; SELECT md5(string_agg(format('%s %s %s %s %s', id, note, _ts, _ttl, _slot), ',' ORDER BY id)) FROM docs});
		sql($command);
		is(sql(q{SET row_security = off; SELECT md5(string_agg(format('%s %s %s %s %s', id, note, _ts, _ttl, _slot), ',' ORDER BY id)) FROM docs}), $stamps, "$command keeps rows and stamps");
		is(count_on_disk($node, 'postgres', 'docs'), $on_disk, "$command keeps expired documents on disk");
		is(sql(q{SELECT count(*) FROM docs WHERE note = 'expired'}), '0', "$command shows none");
	}
	is(sql(q{INSERT INTO docs VALUES (5, '{}', 'new') RETURNING note}), 'new', 'the trigger works after REPACK');

	# A standby that has replayed a write shows it, and no expired document.
	$node->backup('backup');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'backup', has_streaming => 1);
	$standby->start;
	sql(q{INSERT INTO docs VALUES (7, '{}', 'written')});
	my $lsn = $node->lsn('insert');
	is($standby->safe_psql('postgres', "WAIT FOR LSN '$lsn' WITH (TIMEOUT '60s'); SELECT note FROM docs WHERE id = 7; SELECT count(*) FROM docs WHERE note = 'expired'"),
		"success\nwritten\n0", 'WAIT FOR on a standby');
	$standby->stop;

	# DDL that checks rows sees the rows on disk.
	sql(q{ALTER TABLE parts ADD CONSTRAINT live_only CHECK (note <> 'expired') NOT ENFORCED});
	like(error('ALTER TABLE parts ALTER CONSTRAINT live_only ENFORCED'), qr/ERROR:  23514: check constraint "live_only" of relation "parts_1" is violated by some row/,
		'CHECK ... ENFORCED sees expired documents on disk, as ADD CHECK does');
	like(error(q{ALTER TABLE parts DROP CONSTRAINT live_only; ALTER TABLE parts ADD CHECK (note <> 'expired')}), qr/ERROR:  23514/, 'ADD CHECK does');
	sql(q{CALL ttl_docs.purge('parts'); ALTER TABLE parts DROP CONSTRAINT IF EXISTS live_only; ALTER TABLE parts ADD CONSTRAINT live_only CHECK (note <> 'expired') NOT ENFORCED; ALTER TABLE parts ALTER CONSTRAINT live_only ENFORCED});
	pass('CHECK ... ENFORCED succeeds after a purge');

	# Publications of all tables can leave a table out: adopt() then refuses nothing because of them.
	sql(q{
		CREATE TABLE unpublished (doc jsonb, updated timestamptz);
		CREATE PUBLICATION everything FOR ALL TABLES EXCEPT (TABLE unpublished)});
	is(sql(q{SELECT ttl_docs.adopt('unpublished', -1)}), '', 'a table that publications leave out');
	sql('DROP PUBLICATION everything');
}

# ---- What nobody has checked ----

# Test versions of 19 had these commands, and the release candidate has not.  src/compat.h says so.  Who adds a server
# that accepts one of them must first check what it does to collections.
for my $command (
	'ALTER TABLE parts SPLIT PARTITION parts_1 INTO (PARTITION a FOR VALUES FROM (0) TO (5), PARTITION b FOR VALUES FROM (5) TO (10))',
	'ALTER TABLE parts MERGE PARTITIONS (parts_1, parts_2) INTO merged',
	q{UPDATE docs FOR PORTION OF valid FROM 1 TO 2 SET note = ''},
	'DELETE FROM docs FOR PORTION OF valid FROM 1 TO 2',
	'SELECT * FROM GRAPH_TABLE (g MATCH (a) COLUMNS (a.id))',
	'CREATE PROPERTY GRAPH g VERTEX TABLES (docs)')
{
	like(error($command), qr/ERROR:  42601: syntax error/, "not known: $command");
}
nothing_crashed($node);

done_testing();

# pg_repack replaces a table by a copy, which it fills with INSERT ... SELECT.  The copy must contain
# the expired documents, too: only the purge may delete them, with triggers and foreign key actions,
# and not while it is held.

use strict;
use warnings;

use IPC::Run;
use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PurgeNode;
use Test::More;
use TtlServer;

my ($bindir) = run_command([ 'pg_config', '--bindir' ]);
my ($share) = run_command([ 'pg_config', '--sharedir' ]);
plan skip_all => 'pg_repack is not installed'
  unless -x "$bindir/pg_repack" && -e "$share/extension/pg_repack.control";
plan skip_all => 'this PostgreSQL::Test has no background sessions'
  unless eval { require PostgreSQL::Test::BackgroundPsql; };

my $node = start_node('');
my $dir = PostgreSQL::Test::Utils::tempdir();

# All rows on disk, expired or not, and all labels, for a comparison
my $picture = q{
	SET ttl_docs.show_expired = on;
	SELECT tableoid::regclass, md5(string_agg(r::text, '' ORDER BY r::text)), count(*) FROM
		(SELECT tableoid, to_jsonb(t) AS r FROM plain AS t UNION ALL SELECT tableoid, to_jsonb(t) FROM late AS t
		 UNION ALL SELECT tableoid, to_jsonb(t) FROM parts AS t UNION ALL SELECT tableoid, to_jsonb(t) FROM paused AS t
		 UNION ALL SELECT tableoid, to_jsonb(t) FROM parents AS t UNION ALL SELECT tableoid, to_jsonb(t) FROM children AS t
		) AS u GROUP BY 1 ORDER BY 1::text;
	SELECT objoid::regclass, label FROM pg_seclabel ORDER BY 1::text;
};
my $files = q{SELECT relname, relfilenode FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1};
my $live = q{SELECT (SELECT count(*) FROM plain), (SELECT count(*) FROM late), (SELECT count(*) FROM parts),
	(SELECT count(*) FROM paused), (SELECT count(*) FROM parents), (SELECT count(*) FROM children)};

sub repack_ok
{
	my ($database, $name, @options) = @_;
	$node->command_ok([ 'pg_repack', '-D', '-h', $node->host, '-p', $node->port, '-d', $database, @options ],
		"$name: pg_repack @options succeeds");
	return;
}

# Statements that write ten documents that expired an hour ago, and three live ones.
sub fill
{
	my ($table, $key) = @_;
	return qq{
		SET ttl_docs.clock_offset = '-2h';
		INSERT INTO $table ($key, doc) SELECT i, '{"expired": true}' FROM generate_series(1, 10) AS i;
		RESET ttl_docs.clock_offset;
		INSERT INTO $table ($key, doc) SELECT i, '{}' FROM generate_series(101, 103) AS i;
	};
}

sql('CREATE EXTENSION pg_repack');
sql(q{
	SELECT ttl_docs.create_collection('plain', 3600);
	SELECT ttl_docs.create_collection('late', 3600, indexing => 'lazy');
	SELECT ttl_docs.create_collection('paused', 3600);
	CREATE TABLE parts (id int PRIMARY KEY, gone int, doc jsonb) PARTITION BY RANGE (id);
	CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (5);
	CREATE TABLE part_2 (doc jsonb, id int PRIMARY KEY, gone int);
	ALTER TABLE parts ATTACH PARTITION part_2 FOR VALUES FROM (5) TO (1000);
	ALTER TABLE parts DROP COLUMN gone;
	SELECT ttl_docs.adopt('parts', 3600);
	SELECT ttl_docs.create_collection('parents', 3600);
	CREATE TABLE children (id int PRIMARY KEY, parent text REFERENCES parents);
	CLUSTER plain USING plain_pkey;
} . fill('plain', 'id') . fill('late', 'id') . fill('paused', 'id') . fill('parts', 'id') . q{
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO parents (id, doc) VALUES ('expired', '{}');
	INSERT INTO children VALUES (1, 'expired');
	RESET ttl_docs.clock_offset;
	SELECT ttl_docs.pause_purge('paused');
});

# ---- Nothing is lost ----

my $before = sql($picture);
my $files_before = sql($files);
repack_ok('postgres', 'all tables');
is(sql($picture), $before, 'all tables: rows and labels are the same as before');
my %file = map { split /\|/ } split /\n/, $files_before;
my @same = grep { my ($name, $file) = split /\|/; $file == $file{$name} && $name ne 'parts' } split /\n/, sql($files);
is("@same", '', 'all tables: each has a new file');
is(sql($live), '3|3|3|3|0|1', 'all tables: expired documents stay hidden');

repack_ok('postgres', 'ordered', '-t', 'plain', '-o', '_ts desc, id');
repack_ok('postgres', 'not ordered', '-t', 'plain', '-n');
repack_ok('postgres', 'partitions', '-I', 'parts');
repack_ok('postgres', 'indexes', '-t', 'plain', '-x');
is(sql($picture), $before, 'with options: rows and labels are the same as before');
is(sql('SELECT count(*) FROM pg_trigger WHERE tgname = $$repack_trigger$$'), '0', 'pg_repack has dropped its triggers');

# A child keeps an expired parent on disk: the dump can be restored.
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dir/all", $node->connstr('postgres') ], 'pg_dump succeeds');
sql('CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '-e', '-d', $node->connstr('restored'), "$dir/all" ], 'pg_restore succeeds');

# In the restored database the purge is held, and workers visit it.
configure('ttl_docs.purge = on');
$before = $node->safe_psql('restored', $picture);
repack_ok('restored', 'held', '-c', 'public');
is($node->safe_psql('restored', $picture), $before, 'held: rows and labels are the same as before');
is($node->safe_psql('restored', stat_of('state', 'plain')), 'restored', 'held: the collection is still held');

# In the first database, workers purge the new files.
until_is("SELECT on_disk('plain') + on_disk('late') + on_disk('parts')", 9, 'workers purge tables that were repacked');
is(sql("SELECT on_disk('paused'), on_disk('parents'), on_disk('children')"), '13|1|1', 'workers purge neither a paused collection nor a parent with a child');
until_is(stat_of('undeletable', 'parents'), 1, 'the parent counts as undeletable');

# ---- While pg_repack runs ----

# pg_repack waits for transactions that began earlier.  After it has made the copy, it only replays
# the changes that its trigger logs.
sql(q{SELECT ttl_docs.create_collection('busy', 3600)});
configure('ttl_docs.purge = off');
sql(fill('busy', 'id'));
my $old = $node->background_psql('postgres');
$old->query_safe('BEGIN; SELECT 1');
my $output = '';
my $repack = IPC::Run::start([ 'pg_repack', '-D', '-h', $node->host, '-p', $node->port, '-d', 'postgres', '-t', 'busy' ],
	'<', \undef, '>', \$output, '2>', \$output);
my $oid = sql(q{SELECT 'busy'::regclass::oid});
until_is("SELECT to_regclass('repack.table_$oid') IS NOT NULL", 't', 'pg_repack has made its copy');
sql(q{
	INSERT INTO busy (id, doc) VALUES (1, '{"new": 1}');
	INSERT INTO busy (id, doc) VALUES (2, '{"new": 2}') ON CONFLICT (id) DO UPDATE SET doc = '{"wrong": true}';
	UPDATE busy SET doc = '{"updated": true}' WHERE id = '101';
	DELETE FROM busy WHERE id = '102';
	COPY busy (id, doc) FROM PROGRAM 'printf "3\t{\"new\": 3}\n104\t{}\n"';
});
is(sql('SELECT count(*) FROM busy'), '6', 'keys of expired documents are free while pg_repack works');

# The purge waits for pg_repack, and reports this.
configure('ttl_docs.purge = on');
until_state('busy', 'pg_repack', 'the state is pg_repack');
like(sql(stat_of('hint', 'busy')), qr/^pg_repack is working on the table/, 'the hint names pg_repack');
like(error_of($node, 'postgres', q{CALL ttl_docs.purge('busy')}),
	qr/WARNING:  the purge of "busy" is held: pg_repack\n.*trigger "repack_trigger".*\nHINT:  pg_repack is working on the table/,
	'CALL purge() warns that pg_repack is working');
is(on_disk('busy'), '13', 'nothing is purged while pg_repack works');

my $busy = q{SET ttl_docs.show_expired = on; SELECT to_jsonb(b) FROM busy AS b ORDER BY id};
my $rows = sql($busy);
configure('ttl_docs.purge = off');
$old->query_safe('COMMIT');
$old->quit;
ok($repack->finish, 'pg_repack succeeds') or diag($output);
is(sql($busy), $rows, 'the new file has all writes, and no other change');
configure('ttl_docs.purge = on');
until_on_disk('busy', 6, 'the purge goes on after pg_repack');
is(sql(q{SELECT id, doc FROM busy WHERE doc <> '{}' ORDER BY id}),
	qq(1|{"new": 1}\n101|{"updated": true}\n2|{"new": 2}\n3|{"new": 3}), 'live documents stay');
configure('ttl_docs.purge = off');

# ---- Which user, and which query ----

sql(q{
	CREATE ROLE owner LOGIN;
	CREATE ROLE reader LOGIN;
	GRANT CREATE ON SCHEMA public TO owner;
	GRANT USAGE, CREATE ON SCHEMA repack TO owner, reader;
	GRANT SELECT ON ALL TABLES IN SCHEMA repack TO owner, reader;
	SET ROLE owner;
	SELECT ttl_docs.create_collection('mine', 3600);
	GRANT SELECT ON mine TO reader;
	RESET ROLE;
} . fill('mine', 'id'));
SKIP:
{
	my ($version) = run_command([ 'pg_repack', '--version' ]);
	skip 'before version 1.5, only a superuser can run pg_repack', 2 unless $version =~ /(\d+)\.(\d+)/ && $1 * 100 + $2 >= 105;
	repack_ok('postgres', 'the owner', '-k', '-U', 'owner', '-t', 'mine');
	is(on_disk('mine'), '13', 'the owner: all documents are on disk');
}

# Runs a query that copies rows into a new table in a schema.  Returns the number of rows, or the error.
sub copied
{
	my ($copy, %with) = @_;
	my $schema = $with{schema} // 'repack';
	my ($ret, $stdout, $stderr) = $node->psql(
		$with{database} // 'postgres', qq{
		SET client_min_messages = warning;
		SET ROLE ${\($with{role} // 'owner')};
		CREATE TABLE $schema.copy AS SELECT id FROM mine WITH NO DATA;
		$copy;
		SELECT count(*) FROM $schema.copy;
		DROP TABLE $schema.copy}, on_error_stop => 0);
	return $stderr ne '' ? $stderr : $stdout;
}
my $query = 'INSERT INTO repack.copy SELECT id FROM ONLY mine';
is(copied($query), '13', 'the owner copies all documents by the query of pg_repack');
is(copied($query, role => 'postgres'), '13', 'a superuser copies all documents');
is(copied("PREPARE p AS $query; SET plan_cache_mode = force_generic_plan; EXECUTE p; TRUNCATE repack.copy; EXECUTE p"), '13',
	'a cached plan copies all documents');
is(copied("DO \$\$BEGIN EXECUTE '$query'; DELETE FROM repack.copy; $query; END\$\$"), '13', 'PL/pgSQL copies all documents');
is(copied("LOAD 'rival'; SET rival.planner = on; $query", role => 'postgres'), '13', 'a plan without our planner hook copies all documents');
is(copied($query, role => 'reader'), '3', 'other users copy live documents only');
is(copied('INSERT INTO public.copy SELECT id FROM ONLY mine', schema => 'public'), '3', 'the owner copies live documents only into another schema');

# A cached plan of the owner copies no expired documents for other users.
is( sql(qq{
		CREATE TABLE repack.copy AS SELECT id FROM mine WITH NO DATA;
		GRANT INSERT ON repack.copy TO reader;
		SET plan_cache_mode = force_generic_plan;
		PREPARE p AS $query;
		EXECUTE p;
		SELECT count(*) FROM repack.copy;
		TRUNCATE repack.copy;
		SET ROLE reader;
		EXECUTE p;
		RESET ROLE;
		SELECT count(*) FROM repack.copy;
		DROP TABLE repack.copy;
	}), "13\n3", 'the user who executes a plan counts, not the user who made it');

# A query that differs from pg_repack's would lose documents, so it is refused.
my $refused = qr/cannot copy "mine" into the schema of pg_repack with this query/;
like(copied("GRANT INSERT ON repack.copy TO owner; SET ROLE owner; $query; RESET ROLE", role => 'postgres'),
	$refused, "another user's table is refused");
like(copied('INSERT INTO repack.copy SELECT a.id FROM ONLY mine AS a, ONLY mine AS b'), $refused, 'a join is refused');
like(copied('INSERT INTO repack.copy SELECT id FROM ONLY mine WHERE EXISTS (SELECT FROM plain OFFSET 0)', role => 'postgres'),
	$refused, 'a sub-query is refused');
like(
	copied(
		"CREATE FUNCTION leak() RETURNS void LANGUAGE sql SECURITY DEFINER AS '$query'; SELECT leak(); DROP FUNCTION leak()"),
	$refused, 'a SECURITY DEFINER function is refused');
# A function that the query calls sees live documents only.
is( copied(q{CREATE FUNCTION how_many() RETURNS text VOLATILE LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM mine); END';
		INSERT INTO repack.copy SELECT how_many() FROM ONLY mine;
		DELETE FROM repack.copy WHERE id <> '3'; DROP FUNCTION how_many()}),
	'13', 'a function in the query sees live documents only');

# A partition: the owner of the collection may copy it, the owner of the partition may not.
sql(q{
	SET ROLE owner;
	CREATE TABLE tree (id int PRIMARY KEY, doc jsonb) PARTITION BY RANGE (id);
	CREATE TABLE leaf PARTITION OF tree FOR VALUES FROM (0) TO (1000);
	SELECT ttl_docs.adopt('tree', 3600);
	RESET ROLE;
} . fill('tree', 'id'));
is(copied('INSERT INTO repack.copy SELECT id FROM ONLY leaf'), '13', 'the owner of the collection copies all documents of a partition');
like(copied('INSERT INTO repack.copy SELECT id FROM tree'), qr/cannot copy "leaf" into the schema of pg_repack/, 'a copy of all partitions at once is refused');
sql('GRANT CREATE ON SCHEMA public TO reader; ALTER TABLE leaf OWNER TO reader');
like(copied('INSERT INTO repack.copy SELECT id FROM ONLY leaf', role => 'reader'),
	qr/cannot copy "leaf".*HINT: .*as the owner of "tree"/s, 'a copy of a partition by its own owner is refused');

# A schema named repack that does not belong to pg_repack is an ordinary schema.
sql('CREATE DATABASE other');
$node->safe_psql('other', q{
	CREATE EXTENSION ttl_docs;
	CREATE SCHEMA repack;
	SELECT ttl_docs.create_collection('mine', 3600);
} . fill('mine', 'id'));
is(copied($query, database => 'other', role => 'postgres'), '3', 'only live documents are copied into a schema repack without pg_repack');

# ---- A trigger of pg_repack on a child that a purge reaches ----

sql(q{
	SELECT ttl_docs.create_collection('above', 3600);
	CREATE TABLE below (id text PRIMARY KEY REFERENCES above ON DELETE CASCADE);
} . fill('above', 'id') . q{
	CREATE TRIGGER repack_trigger AFTER INSERT OR DELETE OR UPDATE ON below FOR EACH ROW EXECUTE FUNCTION repack.repack_trigger('x');
});
like(error_of($node, 'postgres', q{CALL ttl_docs.purge('above')}),
	qr/held: pg_repack\n.*trigger "repack_trigger" on table "below"/, 'a trigger of pg_repack on a child holds the purge');
sql('DROP TRIGGER repack_trigger ON below');
like(error_of($node, 'postgres', q{CALL ttl_docs.purge('above')}),
	qr/purged 10 documents/, 'the purge goes on after the trigger is dropped');

$node->stop;
done_testing();

# pg_dump and pg_restore, in every form: a restore brings back what was dumped.
#
# For each way to dump and restore: stamps, settings, floors, triggers and indexes are kept;
# expired documents stay hidden, now and later; workers purge nothing before resume_purge(); then
# the collections work as before.  The documents include an expired parent with live children
# (SampleCollections.pm).
#
# Then the test covers partial dumps, dumps by other users, materialized views, and equal OIDs.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SampleCollections;
use Test::More;
use TtlServer;

my $dir = PostgreSQL::Test::Utils::tempdir();
# Forms that differ little from others run only in "make torture".
my $thorough = $ENV{PG_TEST_TORTURE};

sub start
{
	my ($name) = @_;
	return start_server($name, "ttl_docs.purge_naptime = '20ms'");
}

my $node = start('main');
make_sample($node, 'source');
my $before = picture($node, 'source');

sub dump_ok
{
	my ($name, $database, @options) = @_;
	$node->command_ok([ 'pg_dump', @options, '-f', "$dir/$name", $node->connstr($database) ],
		"$name: pg_dump @options");
	return;
}

sub restore_ok
{
	my ($name, $database, @options) = @_;
	$node->command_ok([ 'pg_restore', '-e', @options, '-d', $node->connstr($database), "$dir/$name" ],
		"$database: pg_restore @options");
	return;
}

sub script_ok
{
	my ($server, $name, $database) = @_;
	run_script_ok($server, "$dir/$name", $database, "$database: psql -f $name");
	return;
}

sub create_database
{
	my ($database, @sql) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, $_) for @sql;
	return;
}

# The databases are complete copies.  Their purge is held until resume_purge().
sub are_whole
{
	my ($server, @databases) = @_;
	pictures_agree(picture($server, $_), $before, $_) for @databases;
	let_workers_visit($server, @databases);
	for my $database (@databases)
	{
		is(states($server, $database), 'paused,restored', "$database: the purge is held");
		is(rows_on_disk($server, $database), $before->{'on disk'}, "$database: workers purge nothing");
		behaves($server, $database, $database);
	}
	return;
}

# ---- Whole databases ----

my %scripts = (
	plain => [],
	inserts => ['--inserts'],
	column_inserts => [ '--column-inserts', '--rows-per-insert=3', '--on-conflict-do-nothing' ]);
$scripts{quoted} = ['--quote-all-identifiers'] if $thorough;
for my $database (sort keys %scripts)
{
	dump_ok("$database.sql", 'source', @{ $scripts{$database} });
	create_database($database);
	script_ok($node, "$database.sql", $database);
}

dump_ok('custom', 'source', '-Fc');
dump_ok('tar', 'source', '-Ft') if $thorough;
dump_ok('directory', 'source', '-Fd', '-j', '2');
my %restores = (
	custom => ['custom'],
	custom_parallel => [ 'custom', '-j', '2' ],
	directory_parallel => [ 'directory', '-j', '2' ]);
%restores = (%restores, custom_at_once => [ 'custom', '--single-transaction' ], tar => ['tar']) if $thorough;
for my $database (sort keys %restores)
{
	my ($name, @options) = @{ $restores{$database} };
	create_database($database);
	restore_ok($name, $database, @options);
}

create_database('sections');
restore_ok('custom', 'sections', "--section=$_") for qw(pre-data data post-data);

# The owner is not a superuser.
$node->safe_psql('postgres', 'CREATE ROLE keeper LOGIN');
create_database('of_keeper', 'CREATE EXTENSION ttl_docs', 'GRANT CREATE ON SCHEMA public TO keeper');
$node->safe_psql('postgres', 'GRANT ALL ON DATABASE of_keeper TO keeper');
restore_ok('custom', 'of_keeper', '--no-owner', '--no-comments', '-U', 'keeper');
is( $node->safe_psql(
		'of_keeper', q{SELECT DISTINCT relowner::regrole FROM pg_class JOIN pg_seclabel ON objoid = pg_class.oid}),
	'keeper', 'of_keeper: the owner owns the tables');

my @whole = (sort(keys %scripts), sort(keys %restores), 'sections', 'of_keeper');
are_whole($node, @whole);
$node->safe_psql('postgres', "DROP DATABASE $_") for @whole;

# ---- A whole server ----

# The dump has the settings of the database, which turn the purge off.
my $second = start('second');
$node->command_ok([ 'pg_dumpall', '-f', "$dir/all.sql" ], 'pg_dumpall');
$second->command_ok([ 'psql', '-X', '-q', '-f', "$dir/all.sql", $second->connstr('postgres') ],
	'source: psql -f all.sql');
is($second->safe_psql('source', 'SHOW ttl_docs.purge'), 'off', 'source: the dump has the settings of the database');
$second->safe_psql('postgres', 'ALTER DATABASE source RESET ttl_docs.purge');
are_whole($second, 'source');
$second->stop;

# ---- Data only ----

# Into an empty schema.  Its foreign keys do not see the expired parent.  The purge is held,
# because the labels come from a restore, too.
dump_ok('data.sql', 'source', '--data-only', '--disable-triggers');
dump_ok('data_inserts.sql', 'source', '--data-only', '--disable-triggers', '--inserts');
my @filled;
for my $name ('custom', 'data.sql', 'data_inserts.sql')
{
	my $database = "into_schema_$name" =~ s/\.sql$//r;
	push @filled, $database;
	create_database($database);
	restore_ok('custom', $database, '--schema-only');
	is(states($node, $database), 'paused,restored', "$database: the purge is held after a restore of the schema");
	if ($name eq 'custom')
	{
		restore_ok('custom', $database, '--data-only', '--disable-triggers');
	}
	else
	{
		script_ok($node, $name, $database);
	}
}
are_whole($node, @filled);

# Without --disable-triggers, the foreign key refuses the child of an expired parent.
create_database('with_triggers');
restore_ok('custom', 'with_triggers', '--schema-only');
$node->command_fails_like(
	[ 'pg_restore', '-e', '--data-only', '-d', $node->connstr('with_triggers'), "$dir/custom" ],
	qr/violates foreign key constraint/,
	'with_triggers: children of an expired parent need --disable-triggers');

# Into collections that are in use and paused, as the documentation says.  They have floors,
# documents and DefaultTTLs of their own.
create_database(
	'in_use', q{
	CREATE EXTENSION ttl_docs;
	SELECT ttl_docs.create_collection('sessions', 600);
	SELECT ttl_docs.pause_purge('sessions');
	INSERT INTO sessions (id, doc) VALUES ('own', '{}');
});
restore_ok('custom', 'in_use', '--data-only', '-t', 'sessions');
my $stamps = q{SET ttl_docs.show_expired = on;
	SELECT id, _ts, _ttl FROM sessions WHERE id <> 'own' ORDER BY id};
is($node->safe_psql('in_use', $stamps), $node->safe_psql('source', $stamps), 'in_use: the stamps are kept');
is($node->safe_psql('in_use', q{SELECT string_agg(id, ',' ORDER BY id) FROM sessions}),
	'dies later,dies soon,never,own', 'in_use: expired documents are hidden');
is($node->safe_psql('in_use', q{SET ttl_docs.clock_offset = '15min';
		SELECT string_agg(id, ',' ORDER BY id) FROM sessions}),
	'never', 'in_use: the DefaultTTL of the existing collection decides when documents expire');
let_workers_visit($node, 'in_use');
is(count_on_disk($node, 'in_use', 'sessions'), '6', 'in_use: workers purge nothing');
$node->safe_psql('in_use', "SELECT ttl_docs.resume_purge('sessions')");
on_disk_becomes($node, 'in_use', 'sessions', 4, 'in_use: the collection is purged after resume_purge()');

# A data-only dump has no floors.  A document that only a floor keeps expired is live in the copy,
# unless it was purged before the dump.
create_database(
	'raised', q{
	CREATE EXTENSION ttl_docs;
	SELECT ttl_docs.create_collection('raised', 60);
	SELECT ttl_docs.pause_purge('raised');
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO raised (id, doc) VALUES ('dead', '{}');
	RESET ttl_docs.clock_offset;
	SELECT ttl_docs.set_default_ttl('raised', 86400);
	INSERT INTO raised (id, doc) VALUES ('live', '{}');
});
for my $purged (0, 1)
{
	my $database = "raised_$purged";
	$node->safe_psql('raised', "SELECT ttl_docs.resume_purge('raised'); CALL ttl_docs.purge()") if $purged;
	dump_ok("$database.sql", 'raised', '-a');
	create_database($database, "CREATE EXTENSION ttl_docs; SELECT ttl_docs.create_collection('raised', 86400)");
	script_ok($node, "$database.sql", $database);
	is( $node->safe_psql($database, q{SELECT string_agg(id, ',' ORDER BY id) FROM raised}),
		$purged ? 'live' : 'dead,live',
		$purged ? 'data only: after a purge, the copy has no expired document' : 'data only: without a purge, an expired document is live in the copy');
}

# ---- Some tables ----

dump_ok('family.sql', 'source', '-t', 'parents', '-t', 'children', '-t', 'notes');
create_database('family', 'CREATE EXTENSION ttl_docs');
script_ok($node, 'family.sql', 'family');
my $family = q{SELECT c.id, c.parent, p.id FROM children AS c LEFT JOIN parents AS p ON p.id = c.parent
	ORDER BY c.id; SELECT * FROM notes ORDER BY id; TABLE parents ORDER BY id;};
is($node->safe_psql('family', $family), $node->safe_psql('source', $family),
	'family: children are visible, and their expired parent is hidden');
is(states($node, 'family'), 'restored', 'family: the purge is held');

# With --clean, over existing tables.  Partitions are left out, because pg_restore --clean cannot
# drop their keys.
dump_ok('family', 'source', '-Fc', '-t', 'parents', '-t', 'children', '-t', 'notes');
$node->safe_psql('family', q{UPDATE children SET doc = '{"changed": 1}'});
restore_ok('family', 'family', '--clean');
is($node->safe_psql('family', $family), $node->safe_psql('source', $family), 'family: --clean restores all rows');
is(states($node, 'family'), 'restored', 'family: the purge is held after --clean');

dump_ok('odd.sql', 'source', '-n', '"Odd Schema"', '--inserts');
create_database('odd', 'CREATE EXTENSION ttl_docs');
script_ok($node, 'odd.sql', 'odd');
is($node->safe_psql('odd', 'SELECT "Name" FROM "Odd Schema"."My Docs"'), 'live', 'odd: expired documents are hidden');
is(states($node, 'odd'), 'paused', 'odd: the collection stays paused');

dump_ok('partition.sql', 'source', '-t', 'detached');
create_database('partition', 'CREATE EXTENSION ttl_docs');
script_ok($node, 'partition.sql', 'partition');
is($node->safe_psql('partition', q{SELECT string_agg(id::text, ',' ORDER BY id) FROM detached}),
	'202,203', 'partition: expired documents of a detached partition stay hidden');

# pg_restore -t restores the table and its label, without triggers and indexes.  A write must not
# store a document that does not expire.
create_database('piece', 'CREATE EXTENSION ttl_docs');
restore_ok('custom', 'piece', '-t', 'sessions');
is($node->safe_psql('piece', q{SELECT string_agg(id, ',' ORDER BY id) FROM sessions}),
	'dies later,dies soon,never', 'piece: expired documents are hidden');
my ($ret, $stdout, $stderr) =
  $node->psql('piece', q{INSERT INTO sessions (id, doc) VALUES ('x', '{"ttl": 60}') RETURNING _ttl});
ok($ret != 0 || $stdout eq '60', 'piece: a new document expires, or the write is refused')
  or diag("it was stored with a _ttl of '$stdout'");
($ret, $stdout, $stderr) = $node->psql('piece', q{SELECT ttl_docs.adopt('sessions', 1800)});
is($stderr, '', 'piece: adopt() completes the collection');

# ---- A partition alone ----

# It has the settings of its collection: expired documents are hidden, writes are refused until
# adopt() completes it, and the purge is held.  The dump also has ATTACH PARTITION, which fails
# without the partitioned table.
sub is_collection_alone
{
	my ($database, $table, $live, $key) = @_;
	is($node->safe_psql($database, "SELECT string_agg(id::text, ',' ORDER BY id) FROM $table"),
		$live, "$database: expired documents are hidden");
	is( $node->safe_psql(
			$database, q{SELECT collection, default_ttl, indexing, holds, hint LIKE '%ttl_docs.adopt(%' FROM ttl_docs.collections}),
		"$table|1800|lazy|{restored}|t", "$database: it is a collection, and the hint names adopt()");
	is(states($node, $database), 'restored', "$database: the purge is held");
	my $insert = qq{INSERT INTO $table (id, doc) VALUES ($key, '{"ttl": 60}') RETURNING _ttl};
	($ret, $stdout, $stderr) = $node->psql($database, $insert);
	like($stderr, qr/has lost its trigger.*SELECT ttl_docs\.adopt\('public\.\w+'\)/s, "$database: writes are refused, and the hint has the command");
	is($node->safe_psql($database, "SELECT ttl_docs.adopt('$table'); $insert"), "\n60", "$database: adopt() completes the collection");
	is($node->safe_psql($database, 'SELECT count(*) FROM ttl_docs.collections'), '1', "$database: it is one collection");
	return;
}

sub script_fails_only_by
{
	my ($database, $error) = @_;
	$node->command_checks_all([ 'psql', '-X', '-q', '-f', "$dir/$database.sql", $node->connstr($database) ],
		0, [qr//], [qr/\A(?:[^\n]*ERROR:  $error\n)+\z/], "$database: psql -f $database.sql");
	return;
}

dump_ok('leaf.sql', 'source', '-t', 'parts_1');
create_database('leaf', 'CREATE EXTENSION ttl_docs');
script_fails_only_by('leaf', qr/relation "public\.parts\w*" does not exist/);
is_collection_alone('leaf', 'parts_1', '2,3', 50);
create_database('leaf_of_all', 'CREATE EXTENSION ttl_docs');
restore_ok('custom', 'leaf_of_all', '-t', 'parts_1');
is_collection_alone('leaf_of_all', 'parts_1', '2,3', 50);

# A partition that has partitions is dumped together with them.
dump_ok('branch.sql', 'source', '-t', 'parts_2', '-t', 'parts_2_rest');
create_database('branch', 'CREATE EXTENSION ttl_docs');
script_fails_only_by('branch', qr/relation "public\.parts\w*" does not exist/);
is_collection_alone('branch', 'parts_2', '102,103', 150);

# Restored into a database with its partitioned table, it becomes a partition again.  ATTACH
# PARTITION creates the keys, so the commands in the dump that create them fail.
dump_ok('back.sql', 'source', '-t', 'parts_1');
create_database('back');
restore_ok('custom', 'back');
$node->safe_psql('back', 'DROP TABLE parts_1');
script_fails_only_by('back', qr/multiple primary keys .* are not allowed|relation "parts_1__slot_idx" already exists/);
pictures_agree(picture($node, 'back'), $before, 'back');

# ---- Dumps by other users ----

# If a user may read the tables but does not own them, the dump contains the documents that this
# user sees.
$node->safe_psql('source', 'GRANT SELECT ON ALL TABLES IN SCHEMA public TO keeper');
dump_ok('reader.sql', 'source', '-n', 'public', '-U', 'keeper');
unlike(slurp_file("$dir/reader.sql"), qr/^dead by/m, 'reader: the dump contains no expired documents');
like(slurp_file("$dir/reader.sql"), qr/^dies soon\t/m, 'reader: the dump contains the live documents');

# ---- A materialized view ----

# A restore refreshes it under row_security = off, as the owner of all tables.
$node->safe_psql('source', 'CREATE MATERIALIZED VIEW seen AS SELECT id FROM sessions');
dump_ok('refreshed.sql', 'source');
create_database('refreshed');
script_ok($node, 'refreshed.sql', 'refreshed');
is($node->safe_psql('refreshed', q{SELECT string_agg(id, ',' ORDER BY id) FROM seen}),
	'dies later,dies soon,never', 'refreshed: a materialized view has no expired documents');

# ---- The same OIDs ----

# In new servers, the first table of the database "postgres" has the same OID.  It still
# counts as restored.
my @twins = map { start("twin_$_") } (1, 2);
$twins[0]->safe_psql('postgres', 'ALTER DATABASE postgres SET ttl_docs.purge = off');
$twins[0]->safe_psql(
	'postgres', q{
	CREATE EXTENSION ttl_docs;
	SELECT ttl_docs.create_collection('sessions', 1800);
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO sessions (id, doc) VALUES ('dead', '{}');
});
$twins[0]->command_ok([ 'pg_dump', '-f', "$dir/twin.sql", $twins[0]->connstr('postgres') ], 'twin: pg_dump');
reload_with($twins[1], 'ttl_docs.purge = off');
script_ok($twins[1], 'twin.sql', 'postgres');
my $oid = q{SELECT 'sessions'::regclass::oid};
is($twins[1]->safe_psql('postgres', $oid), $twins[0]->safe_psql('postgres', $oid),
	'twin: the table has the same OID');
is($twins[1]->safe_psql('postgres', 'SELECT holds FROM ttl_docs.collections'), '{restored}', 'twin: the purge is held');
reload_with($twins[1], 'ttl_docs.purge = on');
let_workers_visit($twins[1], 'postgres');
is(count_on_disk($twins[1], 'postgres', 'sessions'), '1', 'twin: workers purge nothing');
$_->stop for (@twins, $node);

done_testing();

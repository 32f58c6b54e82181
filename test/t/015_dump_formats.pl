# pg_dump and pg_restore, in every form they have: what comes back is what there was.
#
# For each way of a dump and its restore: stamps, settings, floors, triggers and indexes
# are kept; nothing expired is live, now or at an instant to come; the workers purge
# nothing before resume_purge(); and then the collections work as the first ones did.
# Among the documents is an expired parent with live children (SampleCollections.pm).
#
# Partial dumps follow, and what a restore must not mistake for something else.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SampleCollections;
use Test::More;

my $conf = q{
shared_preload_libraries = 'ttl_docs'
ttl_docs.purge_naptime = '20ms'
};
my $dir = PostgreSQL::Test::Utils::tempdir();
# Forms that differ little from others are for make torture.
my $thorough = $ENV{PG_TEST_TORTURE};

sub start_server
{
	my ($name) = @_;
	my $server = PostgreSQL::Test::Cluster->new($name);
	$server->init;
	$server->append_conf('postgresql.conf', $conf);
	$server->start;
	return $server;
}

my $node = start_server('main');
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
	$server->command_ok(
		[ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/$name", $server->connstr($database) ],
		"$database: psql -f $name");
	return;
}

sub create_database
{
	my ($database, @sql) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, $_) for @sql;
	return;
}

# Whole databases have come back, whose purge is held until resume_purge(), also for
# the workers.
sub are_whole
{
	my ($server, @databases) = @_;
	pictures_agree(picture($server, $_), $before, $_) for @databases;
	let_workers_look($server, @databases);
	for my $database (@databases)
	{
		is(states($server, $database), 'paused,restored', "$database: the purge is held");
		is(on_disk($server, $database), $before->{'on disk'}, "$database: nothing is purged");
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

# By an owner who is no superuser
$node->safe_psql('postgres', 'CREATE ROLE keeper LOGIN');
create_database('of_keeper', 'CREATE EXTENSION ttl_docs', 'GRANT CREATE ON SCHEMA public TO keeper');
$node->safe_psql('postgres', 'GRANT ALL ON DATABASE of_keeper TO keeper');
restore_ok('custom', 'of_keeper', '--no-owner', '--no-comments', '-U', 'keeper');
is( $node->safe_psql(
		'of_keeper', q{SELECT DISTINCT relowner::regrole FROM pg_class JOIN pg_seclabel ON objoid = pg_class.oid}),
	'keeper', 'of_keeper: the tables are theirs');

my @whole = (sort(keys %scripts), sort(keys %restores), 'sections', 'of_keeper');
are_whole($node, @whole);
$node->safe_psql('postgres', "DROP DATABASE $_") for @whole;

# ---- A whole server ----

# With the settings of the database, which keep the workers away; then without.
my $second = start_server('second');
$node->command_ok([ 'pg_dumpall', '-f', "$dir/all.sql" ], 'pg_dumpall');
$second->command_ok([ 'psql', '-X', '-q', '-f', "$dir/all.sql", $second->connstr('postgres') ],
	'source: psql -f all.sql');
is($second->safe_psql('source', 'SHOW ttl_docs.purge'), 'off', 'source: its settings came along');
$second->safe_psql('postgres', 'ALTER DATABASE source RESET ttl_docs.purge');
are_whole($second, 'source');
$second->stop;

# ---- The data only ----

# Into an empty schema, whose foreign keys do not know the expired parent.  The workers
# are held: that label came by a restore, too.
dump_ok('data.sql', 'source', '--data-only', '--disable-triggers');
dump_ok('data_inserts.sql', 'source', '--data-only', '--disable-triggers', '--inserts');
my @filled;
for my $name ('custom', 'data.sql', 'data_inserts.sql')
{
	my $database = "into_schema_$name" =~ s/\.sql$//r;
	push @filled, $database;
	create_database($database);
	restore_ok('custom', $database, '--schema-only');
	is(states($node, $database), 'paused,restored', "$database: the schema alone is held");
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

# With triggers, the foreign key refuses the child of an expired parent, as documented.
create_database('with_triggers');
restore_ok('custom', 'with_triggers', '--schema-only');
$node->command_fails_like(
	[ 'pg_restore', '-e', '--data-only', '-d', $node->connstr('with_triggers'), "$dir/custom" ],
	qr/violates foreign key constraint/,
	'with_triggers: children of an expired parent need --disable-triggers');

# Into collections that are in use and paused, as the documentation says.  Those have
# floors and documents of their own, and other DefaultTTLs.
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
	'dies later,dies soon,never,own', 'in_use: nothing expired is live');
is($node->safe_psql('in_use', q{SET ttl_docs.clock_offset = '15min';
		SELECT string_agg(id, ',' ORDER BY id) FROM sessions}),
	'never', 'in_use: documents live as long as that collection says');
let_workers_look($node, 'in_use');
is($node->safe_psql('in_use', "SELECT on_disk('sessions')"), '6', 'in_use: nothing is purged');
$node->safe_psql('in_use', "SELECT ttl_docs.resume_purge('sessions')");
ok($node->poll_query_until('in_use', "SELECT on_disk('sessions')", '4'), 'in_use: purged when told to');

# A data-only dump has no floors: what a raised DefaultTTL keeps dead is live where the
# dump goes, unless it was purged before.
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
		$purged ? 'data only: the dead are left out after a purge' : 'data only: the dead are back without it');
}

# ---- Some tables ----

dump_ok('family.sql', 'source', '-t', 'parents', '-t', 'children', '-t', 'notes');
create_database('family', 'CREATE EXTENSION ttl_docs');
script_ok($node, 'family.sql', 'family');
my $family = q{SELECT c.id, c.parent, p.id FROM children AS c LEFT JOIN parents AS p ON p.id = c.parent
	ORDER BY c.id; SELECT * FROM notes ORDER BY id; TABLE parents ORDER BY id;};
is($node->safe_psql('family', $family), $node->safe_psql('source', $family),
	'family: children are there, and their expired parent is not');
is(states($node, 'family'), 'restored', 'family: the purge is held');

# Over what is there already.  Without partitions, whose keys pg_restore --clean cannot
# drop anywhere.
dump_ok('family', 'source', '-Fc', '-t', 'parents', '-t', 'children', '-t', 'notes');
$node->safe_psql('family', q{UPDATE children SET doc = '{"changed": 1}'});
restore_ok('family', 'family', '--clean');
is($node->safe_psql('family', $family), $node->safe_psql('source', $family), 'family: --clean, and all is back');
is(states($node, 'family'), 'restored', 'family: --clean, and the purge is held');

dump_ok('odd.sql', 'source', '-n', '"Odd Schema"', '--inserts');
create_database('odd', 'CREATE EXTENSION ttl_docs');
script_ok($node, 'odd.sql', 'odd');
is($node->safe_psql('odd', 'SELECT "Name" FROM "Odd Schema"."My Docs"'), 'live', 'odd: nothing expired is live');
is(states($node, 'odd'), 'paused', 'odd: the pause is kept');

dump_ok('partition.sql', 'source', '-t', 'detached');
create_database('partition', 'CREATE EXTENSION ttl_docs');
script_ok($node, 'partition.sql', 'partition');
is($node->safe_psql('partition', q{SELECT string_agg(id::text, ',' ORDER BY id) FROM detached}),
	'202,203', 'partition: what was one keeps its dead');

# pg_restore -t leaves triggers and indexes of the table behind, but not its label.
# Whoever writes to it then must not get documents that do not expire.
create_database('piece', 'CREATE EXTENSION ttl_docs');
restore_ok('custom', 'piece', '-t', 'sessions');
is($node->safe_psql('piece', q{SELECT string_agg(id, ',' ORDER BY id) FROM sessions}),
	'dies later,dies soon,never', 'piece: nothing expired is live');
my ($ret, $stdout, $stderr) =
  $node->psql('piece', q{INSERT INTO sessions (id, doc) VALUES ('x', '{"ttl": 60}') RETURNING _ttl});
ok($ret != 0 || $stdout eq '60', 'piece: a new document expires, or is refused')
  or diag("it was stored with a _ttl of '$stdout'");
($ret, $stdout, $stderr) = $node->psql('piece', q{SELECT ttl_docs.adopt('sessions', 1800)});
is($stderr, '', 'piece: adopt() completes it');

# ---- A partition alone ----

# It brings the settings of its collection along: nothing expired is live, writes are
# refused until adopt() has made it complete, and the purge is held.  A dump of it has
# ATTACH PARTITION, too, which fails where there is no such table.
sub is_collection_alone
{
	my ($database, $table, $live, $key) = @_;
	is($node->safe_psql($database, "SELECT string_agg(id::text, ',' ORDER BY id) FROM $table"),
		$live, "$database: nothing expired is live");
	is( $node->safe_psql(
			$database, q{SELECT collection, default_ttl, indexing, holds, hint LIKE '%ttl_docs.adopt(%' FROM ttl_docs.collections}),
		"$table|1800|lazy|{restored}|t", "$database: it is a collection, to be completed");
	is(states($node, $database), 'restored', "$database: the purge is held");
	my $insert = qq{INSERT INTO $table (id, doc) VALUES ($key, '{"ttl": 60}') RETURNING _ttl};
	($ret, $stdout, $stderr) = $node->psql($database, $insert);
	like($stderr, qr/has lost its trigger.*SELECT ttl_docs\.adopt\('public\.\w+'\)/s, "$database: writes are refused, with the way out");
	is($node->safe_psql($database, "SELECT ttl_docs.adopt('$table'); $insert"), "\n60", "$database: adopt() completes it");
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

# A partition that has partitions, and these
dump_ok('branch.sql', 'source', '-t', 'parts_2', '-t', 'parts_2_rest');
create_database('branch', 'CREATE EXTENSION ttl_docs');
script_fails_only_by('branch', qr/relation "public\.parts\w*" does not exist/);
is_collection_alone('branch', 'parts_2', '102,103', 150);

# Back to where it came from, it is a partition again.  Keys come with ATTACH PARTITION, and
# then once more.
dump_ok('back.sql', 'source', '-t', 'parts_1');
create_database('back');
restore_ok('custom', 'back');
$node->safe_psql('back', 'DROP TABLE parts_1');
script_fails_only_by('back', qr/multiple primary keys .* are not allowed|relation "parts_1__slot_idx" already exists/);
pictures_agree(picture($node, 'back'), $before, 'back');

# ---- By others ----

# Who may read the tables and owns none of them gets what they would see.
$node->safe_psql('source', 'GRANT SELECT ON ALL TABLES IN SCHEMA public TO keeper');
dump_ok('reader.sql', 'source', '-n', 'public', '-U', 'keeper');
unlike(slurp_file("$dir/reader.sql"), qr/^dead by/m, 'reader: expired documents are in no dump of others');
like(slurp_file("$dir/reader.sql"), qr/^dies soon\t/m, 'reader: live ones are');

# ---- A materialized view ----

# A restore refreshes it under row_security = off, as the owner of everything.
$node->safe_psql('source', 'CREATE MATERIALIZED VIEW seen AS SELECT id FROM sessions');
dump_ok('refreshed.sql', 'source');
create_database('refreshed');
script_ok($node, 'refreshed.sql', 'refreshed');
is($node->safe_psql('refreshed', q{SELECT string_agg(id, ',' ORDER BY id) FROM seen}),
	'dies later,dies soon,never', 'refreshed: a materialized view has nothing expired');

# ---- The same OIDs ----

# In new servers, the first table of the database "postgres" has the same OIDs.  It came
# by a restore nevertheless.
my @twins = map { start_server("twin_$_") } (1, 2);
$twins[0]->safe_psql('postgres', 'ALTER DATABASE postgres SET ttl_docs.purge = off');
$twins[0]->safe_psql(
	'postgres', q{
	CREATE EXTENSION ttl_docs;
	SELECT ttl_docs.create_collection('sessions', 1800);
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO sessions (id, doc) VALUES ('dead', '{}');
});
$twins[0]->command_ok([ 'pg_dump', '-f', "$dir/twin.sql", $twins[0]->connstr('postgres') ], 'twin: pg_dump');
$twins[1]->append_conf('postgresql.conf', 'ttl_docs.purge = off');
$twins[1]->reload;
script_ok($twins[1], 'twin.sql', 'postgres');
my $oid = q{SELECT 'sessions'::regclass::oid};
is($twins[1]->safe_psql('postgres', $oid), $twins[0]->safe_psql('postgres', $oid),
	'twin: the table has the same OID');
is($twins[1]->safe_psql('postgres', 'SELECT holds FROM ttl_docs.collections'), '{restored}', 'twin: the purge is held');
$twins[1]->append_conf('postgresql.conf', 'ttl_docs.purge = on');
$twins[1]->reload;
let_workers_look($twins[1], 'postgres');
is($twins[1]->safe_psql('postgres', "SELECT on_disk('sessions')"), '1', 'twin: nothing is purged');
$_->stop for (@twins, $node);

done_testing();

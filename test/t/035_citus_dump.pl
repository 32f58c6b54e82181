# The trigger of a collection is hidden on Citus tables only; dumps of a database with Citus tables.
#
# Citus does not distribute tables with visible triggers, so the trigger is hidden on the tables that Citus
# manages.  On other tables it is visible, because pg_dump leaves out hidden triggers, and owners could
# not run ALTER TABLE ... DISABLE TRIGGER ALL.
#
# A dump of a Citus table has its live documents only: pg_dump reads under row_security = off, but Citus
# does not send this setting to the other nodes.  A dump of a local collection has the expired documents,
# too.  Citus does not dump its own metadata, so a restored table is a plain one until somebody
# distributes it.

use strict;
use warnings;

use lib 'test/perl';
use CitusCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

skip_without_citus();
my $cluster = CitusCluster->new(name => 'old', workers => 1);
my $dir = PostgreSQL::Test::Utils::tempdir();

# ---- The trigger ----

$cluster->sql(
	q{
	CREATE ROLE owner LOGIN;
	GRANT ALL ON SCHEMA public TO owner;
	SET ROLE owner;
	SELECT ttl_docs.create_collection('local', 6000);
	SELECT ttl_docs.create_collection('distributed', 6000);
});
is($cluster->triggers($_), 'visible: 1', "$_: the trigger is visible before a table is distributed") for qw(local distributed);
$cluster->sql(q{SET ROLE owner; SELECT create_distributed_table('distributed', 'id')});
is($cluster->triggers('local'), 'visible: 1', 'the trigger of a local collection stays visible');
is($cluster->triggers('distributed'), 'hidden: 6', 'the trigger is hidden on shells and shards');
$cluster->sql(q{SELECT undistribute_table('distributed')});
is($cluster->triggers('distributed'), 'visible: 1', 'the trigger is visible after undistribute_table()');
$cluster->sql(q{SET ROLE owner; SELECT create_distributed_table('distributed', 'id')});

# DISABLE TRIGGER ALL, as the owner.  Our trigger stays enabled.
my $enabled = q{SELECT tgenabled FROM pg_trigger WHERE tgname = 'zzz_ttl_docs' AND tgrelid = '%s'::regclass};
like($cluster->error('SET ROLE owner; ALTER TABLE local DISABLE TRIGGER ALL'),
	qr/NOTICE:.*trigger/, 'a local collection: the owner can disable all triggers');
is($cluster->sql(sprintf $enabled, 'local'), 'A', 'a local collection: our trigger stays enabled');
$cluster->sql(
	q{
	SET ROLE owner;
	SELECT ttl_docs.create_collection('managed', 6000);
	SELECT citus_add_local_table_to_metadata('managed');
	CREATE TABLE plain (id text);
	SELECT citus_add_local_table_to_metadata('plain');
});
# The trigger with which Citus follows TRUNCATE is hidden, too.  So a plain table has the same error.
for my $table (qw(managed plain))
{
	like($cluster->error("SET ROLE owner; ALTER TABLE $table DISABLE TRIGGER ALL"),
		qr/ERROR:  permission denied: "\w+" is a system trigger/, "a Citus local table: the owner cannot disable all triggers of $table");
}
is($cluster->error('SET ROLE owner; ALTER TABLE managed DISABLE TRIGGER USER'), '',
	'a Citus local table: the owner can disable the triggers of users');
unlike($cluster->error('ALTER TABLE managed DISABLE TRIGGER ALL'), qr/ERROR/,
	'a Citus local table: a superuser can disable all triggers');
is($cluster->count_by('managed', q{SELECT tgenabled FROM t JOIN pg_trigger ON tgrelid = relid AND tgname = 'zzz_ttl_docs'}),
	'A: 3', 'a Citus local table: our trigger stays enabled');
like($cluster->error('ALTER TABLE distributed DISABLE TRIGGER ALL'),
	qr/ERROR:  triggers are not supported on distributed tables/, 'a distributed table: Citus refuses to disable triggers');
$cluster->sql('DROP TABLE managed, plain');

# ---- Dumps ----

# Each collection has an expired document, one that lives, and one that expired before the DefaultTTL was
# raised.
for my $table (qw(local distributed))
{
	$cluster->sql(qq{INSERT INTO $table (id, doc) VALUES ('dead', '{}')});
}
$cluster->set_clock(10000);
for my $table (qw(local distributed))
{
	$cluster->sql(
		qq{
		SELECT ttl_docs.set_default_ttl('$table', 100000);
		INSERT INTO $table (id, doc) VALUES ('short', '{"ttl": 1000}');
		INSERT INTO $table (id, doc) SELECT 'live' || i, '{"ttl": 10000000}' FROM generate_series(1, 5) AS i;
	});
}
$cluster->set_clock(20000);
my $coordinator = $cluster->coordinator;
my @live = map { "live$_" } 1 .. 5;
my $live = join("\n", @live);
my $stamps = q{SET timezone = 'UTC'; SELECT id, _ts, _ttl, _slot FROM %s ORDER BY id};
my %stamps;
for my $table (qw(local distributed))
{
	is($cluster->sql("SELECT id FROM $table ORDER BY id"), $live, "$table: the live documents");
	is($cluster->on_disk($table), 7, "$table: all documents on disk");
	$stamps{$table} = $cluster->sql(sprintf $stamps, $table);
}
my @dump = ('pg_dump', '-Fc', '-t', 'local', '-t', 'distributed', '-f', "$dir/tables.dump", $coordinator->connstr('postgres'));
$coordinator->command_ok(\@dump, 'pg_dump of the collections');
$coordinator->command_ok([ 'pg_dump', '-Fc', '-f', "$dir/all.dump", $coordinator->connstr('postgres') ], 'pg_dump of the database');
$cluster->stop;

# A restored collection has the settings, the documents and their stamps, and its purge is held.
sub is_restored
{
	my ($server, $database, $table, $name) = @_;
	my $sql = sub { $server->safe_psql($database, $_[0]) };
	is($sql->("SELECT default_ttl, holds FROM ttl_docs.collections WHERE collection = '$table'::regclass"),
		'100000|{restored}', "$name: settings, and the purge is held");
	is($sql->(sprintf $stamps, $table), $stamps{$table}, "$name: the live documents and their stamps");
	is($sql->(sprintf $enabled, $table), 'A', "$name: the trigger");
	return;
}

# Counts the documents on disk of a table that Citus does not manage.
sub disk
{
	my ($server, $database, $table) = @_;
	return $server->safe_psql($database, "SET ttl_docs.show_expired = on; SELECT count(*) FROM $table");
}

# A server with ttl_docs, but without Citus
my $server = start_server('single', "ttl_docs.purge = off\nttl_docs.clock_offset = 20000\n");
$server->safe_psql('postgres', 'CREATE ROLE owner LOGIN; CREATE EXTENSION ttl_docs; GRANT ALL ON SCHEMA public TO owner');
$server->command_ok([ 'pg_restore', '-e', '-d', $server->connstr('postgres'), "$dir/tables.dump" ], 'pg_restore without Citus');
for my $table (qw(local distributed))
{
	is_restored($server, 'postgres', $table, "without Citus: $table");
	is( $server->safe_psql('postgres', "SELECT tgisinternal FROM pg_trigger WHERE tgname = 'zzz_ttl_docs' AND tgrelid = '$table'::regclass"),
		'f', "without Citus: the trigger of $table is visible");
	is( $server->safe_psql(
			'postgres', qq{INSERT INTO $table (id, doc, _ts) VALUES ('new', '{}', '2000-01-01');
				SELECT _ts > ttl_docs.now() - interval '1 h' FROM $table WHERE id = 'new'}),
		't', "without Citus: $table stamps new documents");
	is( $server->safe_psql('postgres', "SELECT ttl_docs.resume_purge('$table'); SELECT holds FROM ttl_docs.collections WHERE collection = '$table'::regclass") =~ s/\n//r,
		'{}', "without Citus: resume_purge of $table ends the hold");
}
is(disk($server, 'postgres', 'local'), 8, 'a dump has the expired documents of a local collection');
is(disk($server, 'postgres', 'distributed'), 6, 'a dump has the live documents of a Citus table only');
$server->stop;

# A new Citus cluster: a table is distributed after its restore, or between its definition and its rows.
$cluster = CitusCluster->new(name => 'new', workers => 1, extension => 0);
$coordinator = $cluster->coordinator;
$cluster->set_clock(20000);
$cluster->sql('CREATE ROLE owner LOGIN');
$coordinator->command_ok([ 'pg_restore', '-e', '-d', $coordinator->connstr('postgres'), "$dir/all.dump" ], 'pg_restore with Citus');
for my $table (qw(local distributed))
{
	is($cluster->is_citus_table($table), 0, "with Citus: $table is a plain table after the restore");
	is_restored($coordinator, 'postgres', $table, "with Citus: $table");
	is($cluster->triggers($table), 'visible: 1', "with Citus: the trigger of $table is visible");
	my $rows = $cluster->rows($table);
	$cluster->sql("SELECT create_distributed_table('$table', 'id')");
	is($cluster->rows($table), $rows, "with Citus: $table has the same rows after it is distributed");
	is_restored($coordinator, 'postgres', $table, "with Citus: $table, distributed");
	is($cluster->triggers($table), 'hidden: 6', "with Citus: the trigger of $table is hidden when it is distributed");
	is($cluster->holds($table), '{restored}: 6', "with Citus: the purge of $table is held on all nodes and shards");
	$cluster->sql("SELECT ttl_docs.resume_purge('$table')");
	is($cluster->holds($table), '{}: 6', "with Citus: resume_purge of $table ends the hold on all nodes and shards");
}
is($cluster->on_disk('local'), 7, 'the expired documents of the dump are distributed, too');
is($cluster->on_disk('distributed'), 5, 'the dump had no expired documents of the Citus table');

# Rows cannot be restored into a table that is distributed already: row_security = off does not reach the
# shards, which would stamp expired documents as new ones.
$cluster->sql('DROP TABLE local, distributed');
for my $table (qw(local distributed))
{
	my @restore = ('pg_restore', '-e', '-d', $coordinator->connstr('postgres'), '-t', $table);
	$coordinator->command_ok([ @restore, '--section=pre-data', "$dir/tables.dump" ], "pg_restore of the table $table");
	$cluster->sql("SELECT create_distributed_table('$table', 'id')");
	$coordinator->command_fails_like(
		[ @restore, '--section=data', "$dir/tables.dump" ],
		qr/cannot restore documents into the distributed collection "$table".*distribute it afterwards/s,
		"pg_restore of the rows of $table into the distributed table is refused");
	like($cluster->error("SET row_security = off; INSERT INTO $table (id, doc) VALUES ('new', '{}')"),
		qr/cannot restore documents into the distributed collection "$table"/, "INSERT into $table under row_security = off");
	is($cluster->triggers($table), 'hidden: 6', "a refused restore into $table: the trigger");
	is($cluster->holds($table), '{restored}: 6', "a refused restore into $table: the purge is held");
	is($cluster->on_disk($table), 0, "a refused restore into $table: no rows");
}
$cluster->stop;

done_testing();

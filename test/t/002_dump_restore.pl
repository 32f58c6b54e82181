# Backups are complete: they contain the expired documents, which stay expired after a restore.
#
# pg_dump reads under row_security = off, so it sees every row on disk.  The dump contains the label of
# the table with its floors, and the stamps of the rows.  A data-only restore fires the trigger, but
# still keeps the stamps.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

my $node = start_server('main', '');
my $dir = PostgreSQL::Test::Utils::tempdir();

# The database "source".  Its expired documents were written an hour ago:
# - sessions: 'old' has expired by the DefaultTTL, 'short' by its own ttl, 'new' is live;
# - raised: 'dead' expired before the DefaultTTL was raised;
# - parents, children: a live child of an expired parent, and an expired child whose parent was
#   deleted;
# - parts: a partitioned collection.
$node->safe_psql(
	'postgres', q{
	CREATE DATABASE source;
	ALTER DATABASE source SET ttl_docs.purge = off;
});
$node->safe_psql(
	'source', q{
	CREATE EXTENSION ttl_docs;
	SELECT ttl_docs.create_collection('sessions', 1800);
	SELECT ttl_docs.create_collection('raised', 60);
	SELECT ttl_docs.create_collection('parents', 1800);
	CREATE TABLE children (id int PRIMARY KEY,
		parent text REFERENCES parents, doc jsonb);
	SELECT ttl_docs.adopt('children', -1);
	CREATE TABLE parts (id int PRIMARY KEY, doc jsonb) PARTITION BY RANGE (id);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (1) TO (100);
	SELECT ttl_docs.adopt('parts', 1800, indexing => 'lazy');

	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO sessions (id, doc) VALUES ('old', '{}'), ('short', '{"ttl": 5}');
	INSERT INTO raised (id, doc) VALUES ('dead', '{}');
	INSERT INTO parents (id, doc) VALUES ('gone', '{}'), ('expired', '{}');
	INSERT INTO children VALUES (1, 'gone', '{"ttl": 10}'), (2, 'expired', '{}');
	INSERT INTO parts VALUES (1, '{}'), (2, '{"ttl": -1}');
	RESET ttl_docs.clock_offset;
	INSERT INTO sessions (id, doc) VALUES ('new', '{"a": 1}');
	INSERT INTO parts VALUES (3, '{}');
	SELECT ttl_docs.set_default_ttl('raised', 86400);
	-- an expired child does not prevent the DELETE of its parent
	SET ttl_docs.clock_offset = '-1h';
	DELETE FROM children WHERE id = 1;
	INSERT INTO children VALUES (1, 'gone', '{"ttl": 10}');
	SET ttl_docs.clock_offset = '-59min';
	DELETE FROM parents WHERE id = 'gone';
});

my $everything = q{
	SELECT collection::text, doc_column, default_ttl, mode, indexing
	  FROM ttl_docs.collections ORDER BY 1;
	SELECT 'sessions', id, doc FROM sessions ORDER BY id;
	SELECT 'raised', id FROM raised ORDER BY id;
	SELECT 'parents', id FROM parents ORDER BY id;
	SELECT 'children', id FROM children ORDER BY id;
	SELECT 'parts', id FROM parts ORDER BY id;
};
my $on_disk = q{
	SET ttl_docs.show_expired = on;
	SELECT 'sessions', id, _ts, _ttl FROM sessions ORDER BY id;
	SELECT 'raised', id, _ts, _ttl FROM raised ORDER BY id;
	SELECT 'parents', id, _ts, _ttl FROM parents ORDER BY id;
	SELECT 'children', id, _ts, _ttl FROM children ORDER BY id;
	SELECT 'parts', id, _ts, _ttl FROM parts ORDER BY id;
};
my $live = $node->safe_psql('source', $everything);
my $disk = $node->safe_psql('source', $on_disk);
is( $live,
	join("\n",
		'children|doc|-1|on (no default)|consistent',
		'parents|doc|1800|on|consistent',
		'parts|doc|1800|on|lazy',
		'raised|doc|86400|on|consistent',
		'sessions|doc|1800|on|consistent',
		'sessions|new|{"a": 1}',
		'children|2',
		'parts|2', 'parts|3'),
	'the expected documents are live before the dump');
is(scalar(split(/\n/, $disk)), 10, 'the expired documents are on disk before the dump');

# A restored database is like the source, and its purge is held.  Counts as three tests.
sub check
{
	my ($database, $how) = @_;
	is($node->safe_psql($database, $everything), $live, "$how: the same documents are live");
	is($node->safe_psql($database, $on_disk), $disk,
		"$how: rows and stamps are the same");
	is($node->safe_psql($database, q{SELECT bool_and('restored' = ANY (holds)) FROM ttl_docs.collections}),
		't', "$how: the purge is held");
	return;
}

# A script, also with INSERTs
for my $option ('--no-comments', '--inserts')
{
	(my $database = "plain$option") =~ s/-//g;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->command_ok(
		[ 'pg_dump', '-f', "$dir/$database.sql", $option, $node->connstr('source') ],
		"pg_dump $option succeeds");
	run_script_ok($node, "$dir/$database.sql", $database, "restore after pg_dump $option succeeds");
	check($database, "plain $option");
}

# Custom format, in parallel
$node->safe_psql('postgres', 'CREATE DATABASE custom');
$node->command_ok(
	[ 'pg_dump', '-Fc', '-f', "$dir/custom.dump", $node->connstr('source') ],
	'pg_dump -Fc succeeds');
$node->command_ok(
	[ 'pg_restore', '-j', '2', '-e', '-d', $node->connstr('custom'), "$dir/custom.dump" ],
	'pg_restore -j succeeds');
check('custom', 'custom');

# Data only, with and without DISABLE TRIGGER ALL
for my $option ([], ['--disable-triggers'])
{
	my $database = @$option ? 'data_disabled' : 'data';
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->command_ok(
		[
			'pg_restore', '-e', '--schema-only', '-d',
			$node->connstr($database), "$dir/custom.dump"
		],
		"$database: restore of the schema succeeds");
	# the foreign key would refuse children of an expired parent
	$node->safe_psql($database, 'ALTER TABLE children DROP CONSTRAINT children_parent_fkey');
	$node->command_ok(
		[
			'pg_restore', '-e', '--data-only', @$option, '-d',
			$node->connstr($database), "$dir/custom.dump"
		],
		"$database: restore of the data succeeds");
	check($database, $database);
	is( $node->safe_psql(
			$database,
			q{SELECT count(*) FROM pg_trigger
			   WHERE tgname = 'zzz_ttl_docs' AND tgenabled <> 'A'}),
		'0',
		"$database: the triggers are enabled as before");
}

# A dump of one table, and one without its label
for my $option ([], ['--no-security-labels'])
{
	my $database = @$option ? 'unlabelled' : 'single';
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE EXTENSION ttl_docs');
	$node->command_ok(
		[
			'pg_dump', '-t', 'sessions', @$option, '-f',
			"$dir/$database.sql", $node->connstr('source')
		],
		"$database: pg_dump -t succeeds");
	run_script_ok($node, "$dir/$database.sql", $database, "$database: restore succeeds");
}
is($node->safe_psql('single', 'SELECT id FROM sessions'),
	'new', 'a dump of one table: the restored table is a collection');

# Without the label, the trigger refuses writes.
my $error = error_of($node, 'unlabelled',
	"INSERT INTO sessions (id, doc) VALUES ('x', '{}')");
like($error, qr/has the ttl_docs trigger but is not a collection/,
	'without its label: writes are refused');
like($error, qr/ttl_docs\.adopt\(\)/, 'without its label: the hint names adopt()');
$node->safe_psql('unlabelled', "SELECT ttl_docs.adopt('sessions', 1800)");
is($node->safe_psql('unlabelled', 'SELECT id FROM sessions'),
	'new', 'without its label: adopt() keeps the stamps');

$node->stop;

done_testing();

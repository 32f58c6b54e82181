# ALTER EXTENSION UPDATE from every version of the extension to the current one: the result is the
# same as that of CREATE EXTENSION, and collections of the old version work as before.
#
# An upgrade begins at every version that has a script of its own, and takes every step to the
# default version one by one.  The test compares all objects of the extension with their definitions,
# comments and privileges, and the documents, live and expired, before and after.  As long as only one
# version exists, the upgrade goes from this version to itself, and must change nothing.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SampleCollections;
use Test::More;
use TtlServer;

my $extension = 'ttl_docs';
my $node = start_server('main', 'ttl_docs.purge = off');

my $today = $node->safe_psql('postgres',
	"SELECT default_version FROM pg_available_extensions WHERE name = '$extension'");
ok($today, "there is a default version: $today");

# ---- Versions and paths ----

# The versions that have a script of their own.
my @installable = sort map { m{/$extension--([^-]+)\.sql$} ? $1 : () }
  glob($node->config_data('--sharedir') . "/extension/$extension--*.sql");
ok(scalar(@installable), "there are versions to start from: @installable");

# The steps from a version to the current one, in the order that PostgreSQL chooses.
sub steps_from
{
	my ($version) = @_;
	return ($today) if $version eq $today;
	my $path = $node->safe_psql('postgres',
		"SELECT path FROM pg_extension_update_paths('$extension') WHERE source = '$version' AND target = '$today'");
	return split /--/, $path;
}

# Every version has an update path, even a version that only an upgrade reaches.
for my $version (
	split /\n/,
	$node->safe_psql('postgres',
		"SELECT DISTINCT version FROM pg_available_extension_versions WHERE name = '$extension'"))
{
	ok(scalar(steps_from($version)), "ALTER EXTENSION UPDATE leads from $version to $today");
}

# ---- Objects ----

# A text with all objects of the extension: name, comment, privileges and definition.  It depends neither
# on search_path nor on OIDs.
my $objects = q{
	SET search_path = '';
	WITH members AS (
		SELECT d.classid, d.objid, i.type, i.identity
		  FROM pg_extension AS e
		  JOIN pg_depend AS d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e',
		       pg_identify_object(d.classid, d.objid, d.objsubid) AS i
		 WHERE e.extname = 'ttl_docs')
	SELECT m.type, m.identity,
	       'comment: ' || coalesce(obj_description(m.objid, c.relname), 'none'),
	       'rights: ' || coalesce((SELECT string_agg(a::text, ' ' ORDER BY a::text)
	          FROM unnest(coalesce(p.proacl, r.relacl, n.nspacl)) AS a), 'default'),
	       'definition: ' || coalesce(
	          CASE WHEN p.oid IS NOT NULL THEN pg_get_functiondef(p.oid) || ' ' || p.proowner::regrole::text END,
	          CASE WHEN r.oid IS NOT NULL THEN r.relkind::text || pg_get_viewdef(r.oid) || ' ' || r.relowner::regrole::text ||
	             coalesce(r.reloptions::text, '') ||
	             (SELECT string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod),
	                                          col_description(r.oid, a.attnum)), ', '
	                                ORDER BY a.attnum)
	                FROM pg_attribute AS a WHERE a.attrelid = r.oid AND a.attnum > 0) END,
	          n.nspowner::regrole::text, 'none')
	  FROM members AS m
	  JOIN pg_class AS c ON c.oid = m.classid
	  LEFT JOIN pg_proc AS p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
	  LEFT JOIN pg_class AS r ON m.classid = 'pg_class'::regclass AND r.oid = m.objid AND r.relkind = 'v'
	  LEFT JOIN pg_namespace AS n ON m.classid = 'pg_namespace'::regclass AND n.oid = m.objid
	 ORDER BY 1, 2;
	SELECT 'not of the extension', i.identity
	  FROM pg_proc AS p
	  JOIN pg_namespace AS n ON n.oid = p.pronamespace AND n.nspname ~ '^ttl_docs',
	       pg_identify_object('pg_proc'::regclass, p.oid, 0) AS i
	 WHERE NOT EXISTS (SELECT FROM pg_depend AS d
	                    WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
	 ORDER BY 2;
	SELECT extversion, extrelocatable, extconfig, obj_description(oid, 'pg_extension')
	  FROM pg_extension WHERE extname = 'ttl_docs';
};
$node->safe_psql('postgres', 'CREATE DATABASE fresh');
$node->safe_psql('fresh', "CREATE EXTENSION $extension");
my $fresh = $node->safe_psql('fresh', $objects);
like($fresh, qr/^function\|ttl_docs\.create_collection\([^)]*\)\|comment: create a collection: a new table/m,
	'objects: the text has functions with their comments');
like($fresh, qr/^view\|ttl_docs\.collections\|.*rights: .*=r\/.*definition: v +SELECT/m,
	'objects: the text has views with their privileges');
like($fresh, qr/^view\|ttl_docs\.collections\|.*(?:\n .*)*default_ttl integer DefaultTTL: seconds/m,
	'objects: the text has views with the comments of their columns');
unlike($fresh, qr/^not of the extension/m, 'objects: all functions in the schemas belong to the extension');

# ---- Every upgrade ----

for my $version (@installable)
{
	my $database = "from_$version" =~ s/\W/_/gr;
	my $how = "from $version";
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, "CREATE EXTENSION $extension VERSION '$version'");
	fill_sample($node, $database);
	$node->safe_psql($database, 'CREATE VIEW mine AS SELECT collection, default_ttl FROM ttl_docs.collections');
	my $before = picture($node, $database);
	for my $step (steps_from($version))
	{
		$node->safe_psql($database, "ALTER EXTENSION $extension UPDATE TO '$step'");
		pictures_agree(picture($node, $database), $before, "$how, at $step");
	}
	my ($ret, $stdout, $stderr) = $node->psql($database, "ALTER EXTENSION $extension UPDATE");
	is($ret, 0, "$how: another update succeeds");
	like($stderr, qr/version "\Q$today\E" of extension "$extension" is already installed/, "$how: another update says that there is nothing to do");
	is($node->safe_psql($database, $objects), $fresh, "$how: the objects are the same as in a new installation");
	is($node->safe_psql($database, 'SELECT count(*) FROM mine'), '10', "$how: a view of a user works");
	pictures_agree(picture($node, $database), $before, "$how, updated");
	behaves($node, $database, $how);

	# all steps at once, as an administrator does
	$node->safe_psql($database, "DROP EXTENSION $extension CASCADE");
	$node->safe_psql($database,
		"CREATE EXTENSION $extension VERSION '$version'; ALTER EXTENSION $extension UPDATE");
	is($node->safe_psql($database, $objects), $fresh, "$how: the objects are the same after an update in one command");
}

# An update to a version without an update path is refused, and changes nothing.
like(error_of($node, 'fresh', "ALTER EXTENSION $extension UPDATE TO '0.0'"),
	qr/has no update path from version "\Q$today\E" to version "0\.0"/, 'no path: the update fails');
is($node->safe_psql('fresh', $objects), $fresh, 'no path: nothing changes');

# ---- Labels of a newer version ----

# An older library meets a label with a newer format version.  Queries and commands on that collection fail,
# so that nothing is shown that has expired.  Other collections work.  docs/operations.md says so.
my $newer = q{
	SET allow_system_table_mods = on;
	UPDATE pg_seclabel SET label = replace(label, '"version": 1', '%s') WHERE objoid = '%s'::regclass;
};
$node->safe_psql('postgres', 'CREATE DATABASE newer');
$node->safe_psql(
	'newer', qq{
	CREATE EXTENSION $extension;
	SELECT ttl_docs.create_collection(name, 60) FROM unnest(ARRAY['newer', 'other']) AS name;
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO newer (id, doc) VALUES ('dead', '{}');
	INSERT INTO other (id, doc) VALUES ('dead', '{}');
	RESET ttl_docs.clock_offset;
	INSERT INTO other (id, doc) VALUES ('live', '{}');
} . sprintf($newer, '"version": 2', 'newer') . sprintf($newer, '"version": 1, "new": 7', 'other'));
# sessions that begin after a restart have no cached settings
$node->restart;
for my $command (
	'SELECT * FROM newer',
	'COPY newer TO STDOUT',
	q{INSERT INTO newer (id, doc) VALUES ('b', '{}')},
	q{SELECT ttl_docs.release('newer')},
	'SELECT * FROM ttl_docs.stat_collections')
{
	like(error_of($node, 'newer', $command), qr/invalid label for a collection of ttl_docs/, "a newer label: $command fails");
}
is($node->safe_psql('newer', 'SELECT id FROM other'), 'live', 'a newer label: another collection works');
$node->psql('newer', 'CALL ttl_docs.purge()');
is( $node->safe_psql('newer', 'SET ttl_docs.show_expired = on; SELECT id FROM other'),
	'live', 'a newer label: another collection is purged');
$node->safe_psql('newer', q{SELECT ttl_docs.set_default_ttl('other', 100)});
is( $node->safe_psql('newer', q{SELECT label::jsonb -> 'default_ttl', label::jsonb ? 'new' FROM pg_seclabel WHERE objoid = 'other'::regclass}),
	'100|f', 'an unknown key of a label is ignored, and dropped by the next change');

$node->stop;

done_testing();

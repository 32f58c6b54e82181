# From each version of the extension that there ever was to the one of today: ALTER
# EXTENSION UPDATE leaves what CREATE EXTENSION would have made, and collections that
# were made under the old version go on as they were.
#
# Every version with a script of its own is where an upgrade may begin, and every step
# on the way to the default version is gone one by one.  What is compared: all objects of
# the extension with their definitions, comments and rights, and the documents, live and
# expired, before and after.  While there is one version, an upgrade is one from it to
# itself, which must change nothing.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SampleCollections;
use Test::More;

my $extension = 'ttl_docs';
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
shared_preload_libraries = 'ttl_docs'
ttl_docs.purge = off
});
$node->start;

my $today = $node->safe_psql('postgres',
	"SELECT default_version FROM pg_available_extensions WHERE name = '$extension'");
ok($today, "the default version is $today");

# ---- Versions and paths ----

# Those with a script of their own can be installed without another one.
my @installable = sort map { m{/$extension--([^-]+)\.sql$} ? $1 : () }
  glob($node->config_data('--sharedir') . "/extension/$extension--*.sql");
ok(scalar(@installable), "there are versions to begin with: @installable");

# The versions on the way from one to that of today, as PostgreSQL would go.
sub steps_from
{
	my ($version) = @_;
	return ($today) if $version eq $today;
	my $path = $node->safe_psql('postgres',
		"SELECT path FROM pg_extension_update_paths('$extension') WHERE source = '$version' AND target = '$today'");
	return split /--/, $path;
}

# No version is left behind, also of those that only an upgrade leads to.
for my $version (
	split /\n/,
	$node->safe_psql('postgres',
		"SELECT DISTINCT version FROM pg_available_extension_versions WHERE name = '$extension'"))
{
	ok(scalar(steps_from($version)), "ALTER EXTENSION UPDATE finds its way from $version to $today");
}

# ---- Objects ----

# Each object of the extension by its name, with all that it is: a text.  Names do not
# depend on search_path, nor anything on OIDs.
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
	             (SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', '
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
like($fresh, qr/^function\|ttl_docs\.create_collection\([^)]*\)\|comment: creates a table/m,
	'objects: functions with their comments');
like($fresh, qr/^view\|ttl_docs\.collections\|.*rights: .*=r\/.*definition: v +SELECT/m,
	'objects: views with their rights');
unlike($fresh, qr/^not of the extension/m, 'objects: all in its schemas is its own');

# ---- Each way ----

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
	is($ret, 0, "$how: no more to update");
	like($stderr, qr/version "\Q$today\E" of extension "$extension" is already installed/, "$how: it says so");
	is($node->safe_psql($database, $objects), $fresh, "$how: the objects are those of a new installation");
	is($node->safe_psql($database, 'SELECT count(*) FROM mine'), '10', "$how: a view of a user works");
	pictures_agree(picture($node, $database), $before, "$how, updated");
	behaves($node, $database, $how);

	# all at once, as an administrator would
	$node->safe_psql($database, "DROP EXTENSION $extension CASCADE");
	$node->safe_psql($database,
		"CREATE EXTENSION $extension VERSION '$version'; ALTER EXTENSION $extension UPDATE");
	is($node->safe_psql($database, $objects), $fresh, "$how: in one go");
}

# A version that nothing leads to is refused, and nothing changes.
my ($ret, $stdout, $stderr) = $node->psql('fresh', "ALTER EXTENSION $extension UPDATE TO '0.0'");
like($stderr, qr/has no update path from version "\Q$today\E" to version "0\.0"/, 'no path: it is an error');
is($node->safe_psql('fresh', $objects), $fresh, 'no path: nothing has changed');

$node->stop;

done_testing();

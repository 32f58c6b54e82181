# pg_upgrade from an older PostgreSQL: collections work as before.
#
# PG_TEST_OLD_CONFIG names the pg_config of the older server.  The test copies that server and
# builds ttl_docs for it, as test/env.sh does for the server of the tests.  Without the variable the
# test is skipped; test/upgrade_matrix.sh runs it on real pairs of versions.
#
# The test upgrades by copy and by link.  Before the purge: stamps, settings and floors are the
# same; expired documents are hidden, now and later; no collection counts as restored, because tables and
# databases keep their OIDs.  Then the purge goes on, and everything works (SampleCollections.pm).
#
# Most owners are not superusers: while pg_upgrade attaches partitions and adds foreign keys, they do
# not have privileges on the functions of the extension yet.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SampleCollections;
use Test::More;
use TtlServer;

my $old_config = $ENV{PG_TEST_OLD_CONFIG}
  or plan skip_all => 'PG_TEST_OLD_CONFIG does not name the pg_config of an older PostgreSQL';
-x $old_config or die "PG_TEST_OLD_CONFIG=$old_config is not a program";

my $conf = q{
shared_preload_libraries = 'ttl_docs'
ttl_docs.purge_naptime = '20ms'
};

# ---- Two servers ----

# Installs the older PostgreSQL with ttl_docs in a directory, and returns its path.
sub install_old
{
	my $place = PostgreSQL::Test::Utils::tempdir();
	my $steps = q{
		PG_CONFIG=$1
		source test/env.sh
		SCRATCH=$2
		SERVER_USER_PREFIX=()
		private_postgres '-Werror -DUSE_ASSERT_CHECKING' >&2
		printf 'programs: %s\n' "$PG_BIN"
	};
	my ($stdout, $stderr) = run_command([ 'bash', '-euc', $steps, '-', $old_config, $place ]);
	my ($programs) = $stdout =~ /^programs: (.*)$/m
	  or die "could not make a copy of the older PostgreSQL: $stderr";
	return $programs =~ s{/bin$}{}r;
}

# Some versions have checksums by default.  Both servers need the same setting.
sub init_server
{
	my ($name, $preload, @where) = @_;
	my $server = PostgreSQL::Test::Cluster->new($name, @where);
	$server->init(extra => [ '--data-checksums', '--locale=C', '--encoding=UTF8' ]);
	$server->append_conf('postgresql.conf', $conf) if $preload;
	return $server;
}

my $install_path = install_old();

# ---- The old server ----

# The sample is in a database of its own.  The database "postgres" has a collection whose file number
# differs from its OID.
my $old = init_server('old', 1, install_path => $install_path);
$old->start;
make_sample($old, 'source');
$old->safe_psql(
	'postgres', q{
	ALTER DATABASE postgres SET ttl_docs.purge = off;
	CREATE EXTENSION ttl_docs;
	SELECT ttl_docs.create_collection('rewritten', 1800);
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO rewritten (id, doc) SELECT i::text, '{}' FROM generate_series(1, 50) AS i;
	RESET ttl_docs.clock_offset;
	INSERT INTO rewritten (id, doc) SELECT i::text, '{}' FROM generate_series(101, 120) AS i;
});
$old->safe_psql('postgres', 'VACUUM FULL rewritten');

# Tables of an application, with their own role: partitions of several levels, and foreign keys
# between collections.  One foreign key keeps an expired customer on disk; another one deletes the
# orders with their customer.
$old->safe_psql(
	'source', q{
	CREATE ROLE app;
	CREATE ROLE app_archive;
	CREATE SCHEMA app AUTHORIZATION app;
	SET ROLE app;
	CREATE TABLE app.customers (id int PRIMARY KEY, doc jsonb) PARTITION BY RANGE (id);
	CREATE TABLE app.customers_1 PARTITION OF app.customers FOR VALUES FROM (0) TO (10);
	CREATE TABLE app.customers_2 PARTITION OF app.customers FOR VALUES FROM (10) TO (20) PARTITION BY LIST (id);
	CREATE TABLE app.customers_2a PARTITION OF app.customers_2 DEFAULT;
	SELECT ttl_docs.adopt('app.customers', 1800);
	CREATE TABLE app.orders (id int, customer int REFERENCES app.customers ON DELETE CASCADE, doc jsonb)
		PARTITION BY RANGE (id);
	CREATE TABLE app.orders_1 PARTITION OF app.orders FOR VALUES FROM (0) TO (10);
	SELECT ttl_docs.adopt('app.orders', -1);
	CREATE TABLE app.bills (customer int REFERENCES app.customers);
	CREATE TABLE app.items (id int PRIMARY KEY, doc jsonb);
	SELECT ttl_docs.adopt('app.items', 1800);
	CREATE TABLE app.notes (item int REFERENCES app.items, customer int REFERENCES app.customers_1);
	CREATE TABLE app.archived_notes (item int REFERENCES app.items) PARTITION BY LIST (item);
	CREATE TABLE app.archived_notes_1 PARTITION OF app.archived_notes DEFAULT;
	RESET ROLE;
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO app.customers VALUES (1, '{}'), (2, '{}'), (11, '{"ttl": 5}'), (12, '{"ttl": 5}');
	INSERT INTO app.orders VALUES (1, 1, '{}'), (2, 11, '{}'), (3, 2, '{"ttl": 5}');
	INSERT INTO app.bills VALUES (2), (12);
	INSERT INTO app.items VALUES (1, '{}');
	RESET ttl_docs.clock_offset;
	INSERT INTO app.customers VALUES (3, '{}'), (13, '{"ttl": -1}');
	INSERT INTO app.orders VALUES (4, 3, '{}'), (5, 13, '{"ttl": 3000}');
	INSERT INTO app.items VALUES (2, '{}');
	INSERT INTO app.notes VALUES (2, 3);
	INSERT INTO app.archived_notes VALUES (2);
	-- tables of the sample, too; a partition has another owner than its root
	ALTER TABLE parts OWNER TO app;
	ALTER TABLE parts_1 OWNER TO app;
	ALTER TABLE parts_2 OWNER TO app;
	ALTER TABLE parts_2_rest OWNER TO app_archive;
	ALTER TABLE sessions OWNER TO app;
});
my $before = picture($old, 'source');
my $versions = $old->pg_version . ' to ' . PostgreSQL::Test::Cluster->new('versions')->pg_version;
my $labels = q{
	SELECT l.objoid, l.label, l.label::jsonb ->> 'table' = l.objoid::text AS is_table,
	       l.label::jsonb ->> 'database' = (SELECT oid::text FROM pg_database WHERE datname = current_database())
	  FROM pg_seclabel AS l WHERE l.provider = 'ttl_docs' ORDER BY l.objoid};
my $app_rows = q{
	SELECT 'customers', string_agg(id::text, ',' ORDER BY id) FROM app.customers;
	SELECT 'orders', string_agg(id::text, ',' ORDER BY id) FROM app.orders;
	SELECT 'bills', string_agg(customer::text, ',' ORDER BY customer) FROM app.bills;
	SELECT relname, relowner::regrole FROM pg_class
	 WHERE relnamespace = 'app'::regnamespace AND relkind IN ('r', 'p') ORDER BY relname};
my %app_before = map { ($_ => $old->safe_psql('source', "SET ttl_docs.show_expired = $_; $app_rows")) } qw(on off);
like($app_before{off}, qr/\Acustomers\|3,13\norders\|1,2,4,5\n/, 'the live documents of the application are visible');
like($app_before{on}, qr/\Acustomers\|1,2,3,11,12,13\norders\|1,2,3,4,5\n/, 'the expired documents of the application are on disk');
my %labels = map { ($_ => $old->safe_psql($_, $labels)) } qw(source postgres);
$old->stop;
note("pg_upgrade from $versions");

# ---- Without the library ----

# If the new server does not preload the library, pg_upgrade fails before it changes anything.
my $unprepared = init_server('unprepared', 0);
my ($ok, $output) = run_pg_upgrade($old, $unprepared, '--check');
ok(!$ok, "$versions: pg_upgrade refuses a new server that does not preload ttl_docs")
  or diag($output);

# ---- By copy and by link ----

# Both start from the same old server.  Linking is last, because it makes the old server unusable.
for ([ copied => () ], [ linked => '--link' ])
{
	my ($name, @options) = @$_;
	my $how = "$versions, $name";
	my $new = init_server($name, 1);
	($ok, $output) = run_pg_upgrade($old, $new, @options);
	ok($ok, "$how: pg_upgrade succeeds") or diag($output);

	# The new server has the settings of the databases, so nothing is purged yet.
	$new->start;
	pictures_agree(picture($new, 'source'), $before, $how);
	is($new->safe_psql($_, $labels), $labels{$_}, "$how: labels and OIDs in $_ are the same") for qw(source postgres);
	is(states($new, 'source'), 'disabled,paused', "$how: no collection counts as restored");
	is($new->safe_psql('postgres', 'SELECT count(*), min(id), max(id) FROM rewritten'),
		'20|101|120', "$how: expired documents are hidden");
	is($new->safe_psql('source', "SET ttl_docs.show_expired = $_; $app_rows"),
		$app_before{$_}, "$how: tables of other owners are the same with show_expired = $_") for qw(off on);

	# No foreign key references an expired document.  The parents are a table, a partition and a partitioned table.
	for my $child ('app.notes (item)', 'app.notes (customer)', 'app.archived_notes (item)', 'app.bills (customer)')
	{
		like(error_of($new, 'source', "INSERT INTO $child VALUES (1)"), qr/violates foreign key constraint/,
			"$how: no child of an expired parent in $child");
	}
	is($new->safe_psql('source', 'BEGIN; INSERT INTO app.notes VALUES (2, 3); INSERT INTO app.archived_notes VALUES (2) RETURNING item; ROLLBACK'),
		'2', "$how: children of live parents");
	is($new->safe_psql('source', q{
			SELECT count(*) FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
			 WHERE tgname LIKE 'RI_ConstraintTrigger_b_%' AND relnamespace = 'app'::regnamespace}),
		$new->pg_version->major >= 19 ? '3' : '0', "$how: the triggers of the foreign keys");

	# Workers purge as soon as the purge is on.
	$new->safe_psql('postgres', "ALTER DATABASE $_ RESET ttl_docs.purge") for qw(source postgres);
	let_workers_visit($new, 'postgres', 'source');
	is(count_on_disk($new, 'postgres', 'rewritten'), '20', "$how: workers purge");
	is($new->safe_psql('source', "SELECT on_disk('sessions'), on_disk('raised'), on_disk('detached')"),
		'3|3|2', "$how: workers purge in the other database, too");
	is(count_on_disk($new, 'source', '"Odd Schema"."My Docs"'), '2', "$how: workers do not purge a paused collection");
	like( $new->safe_psql('source', "SET ttl_docs.show_expired = on; $app_rows"),
		qr/\Acustomers\|2,3,12,13\norders\|4,5\nbills\|2,12\n/,
		"$how: tables of other owners are purged, and a foreign key keeps its documents");
	pictures_agree(picture($new, 'source'), $before, "$how, purged", grep { /^live/ } sort keys %$before);
	behaves($new, 'source', $how);
	is( $new->safe_psql(
			'postgres', q{
			SELECT ttl_docs.create_collection('made', 60);
			SELECT ttl_docs.create_document('made', '{"id": "a"}') ->> 'id';
			SET ttl_docs.clock_offset = '2min';
			SELECT count(*) FROM made;
			ALTER EXTENSION ttl_docs UPDATE;
			SELECT ttl_docs.release('rewritten')}),
		"made\na\n0\n", "$how: a new collection works, and an old one can be released");
	$new->stop;
}

done_testing();

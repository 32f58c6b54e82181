# pg_upgrade from an older PostgreSQL: collections go on as if nothing had happened.
#
# The older server is that of the pg_config in PG_TEST_OLD_CONFIG; it is copied, and
# ttl_docs built for it, as test/env.sh does for the server of the tests.  Without one,
# there is nothing to test; test/upgrade_matrix.sh runs this on real pairs of versions.
#
# By copy and by link, checked before the purge is let at it: the same stamps, settings
# and floors, what is expired stays expired at all instants to come, and no collection is
# taken for a restored one, since tables and databases keep their OIDs.  Then the purge
# goes on, and everything works (SampleCollections.pm).
#
# Most owners are no superusers: while pg_upgrade attaches partitions and adds foreign keys,
# they have no rights on the functions of the extension yet.

use strict;
use warnings;

use lib 'test/perl';
use Cwd qw(getcwd);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SampleCollections;
use Test::More;

my $old_config = $ENV{PG_TEST_OLD_CONFIG}
  or plan skip_all => 'PG_TEST_OLD_CONFIG does not name the pg_config of an older PostgreSQL';
-x $old_config or die "PG_TEST_OLD_CONFIG=$old_config is no program";

my $conf = q{
shared_preload_libraries = 'ttl_docs'
ttl_docs.purge_naptime = '20ms'
};

# ---- Two servers ----

# Makes an installation of the older PostgreSQL, with ttl_docs, and returns its path.
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

# Checksums are the default of some versions only, and have to be the same.
sub init_server
{
	my ($name, $preload, @where) = @_;
	my $server = PostgreSQL::Test::Cluster->new($name, @where);
	$server->init(extra => [ '--data-checksums', '--locale=C', '--encoding=UTF8' ]);
	$server->append_conf('postgresql.conf', $conf) if $preload;
	return $server;
}

# Runs pg_upgrade, in a directory of its own because older ones leave files there.
sub upgrade
{
	my ($old, $new, @options) = @_;
	my $here = getcwd();
	chdir $new->basedir or die $!;
	my @command = (
		'pg_upgrade', '--no-sync', @options,
		'-d', $old->data_dir, '-D', $new->data_dir,
		'-b', $old->config_data('--bindir'), '-B', $new->config_data('--bindir'),
		'-s', $new->host, '-p', $old->port, '-P', $new->port);
	my ($stdout, $stderr) = ('', '');
	my $ok = IPC::Run::run(\@command, '>', \$stdout, '2>', \$stderr);
	chdir $here or die $!;
	return ($ok, "$stdout\n$stderr");
}

my $install_path = install_old();

# ---- What there is before ----

# The sample in a database of its own, and a collection in that which every server has;
# and one that is older than a change of its OIDs could be.
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

# The tables of an application, whose role owns nothing else: partitions of several levels,
# and foreign keys between collections, by which a dead customer is kept or takes orders along.
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
	RESET ROLE;
	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO app.customers VALUES (1, '{}'), (2, '{}'), (11, '{"ttl": 5}'), (12, '{"ttl": 5}');
	INSERT INTO app.orders VALUES (1, 1, '{}'), (2, 11, '{}'), (3, 2, '{"ttl": 5}');
	INSERT INTO app.bills VALUES (2), (12);
	RESET ttl_docs.clock_offset;
	INSERT INTO app.customers VALUES (3, '{}'), (13, '{"ttl": -1}');
	INSERT INTO app.orders VALUES (4, 3, '{}'), (5, 13, '{"ttl": 3000}');
	-- of the sample, too, with a partition of another owner than its root
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
like($app_before{off}, qr/\Acustomers\|3,13\norders\|1,2,4,5\n/, 'what is live of the application');
like($app_before{on}, qr/\Acustomers\|1,2,3,11,12,13\norders\|1,2,3,4,5\n/, 'and what is on disk');
my %labels = map { ($_ => $old->safe_psql($_, $labels)) } qw(source postgres);
$old->stop;
note("pg_upgrade from $versions");

# ---- Without the library ----

# The new server has to have it preloaded.  That is found out before anything is done.
my $unprepared = init_server('unprepared', 0);
my ($ok, $output) = upgrade($old, $unprepared, '--check');
ok(!$ok, "$versions: refused, if the new server does not preload ttl_docs")
  or diag($output);

# ---- By copy and by link ----

# Of the same old server: linking is last, since it takes the files away.
for ([ copied => () ], [ linked => '--link' ])
{
	my ($name, @options) = @$_;
	my $how = "$versions, $name";
	my $new = init_server($name, 1);
	($ok, $output) = upgrade($old, $new, @options);
	ok($ok, "$how: pg_upgrade") or diag($output);

	# The settings of the databases came along, so nothing is purged yet.
	$new->start;
	pictures_agree(picture($new, 'source'), $before, $how);
	is($new->safe_psql($_, $labels), $labels{$_}, "$how: labels and OIDs in $_") for qw(source postgres);
	is(states($new, 'source'), 'disabled,paused', "$how: no collection counts as restored");
	is($new->safe_psql('postgres', 'SELECT count(*), min(id), max(id) FROM rewritten'),
		'20|101|120', "$how: what has expired is not live");
	is($new->safe_psql('source', "SET ttl_docs.show_expired = $_; $app_rows"),
		$app_before{$_}, "$how: tables of other owners, expired shown: $_") for qw(off on);

	# The purge goes on once it may, by the workers.
	$new->safe_psql('postgres', "ALTER DATABASE $_ RESET ttl_docs.purge") for qw(source postgres);
	let_workers_look($new, 'postgres', 'source');
	is($new->safe_psql('postgres', "SELECT on_disk('rewritten')"), '20', "$how: the workers purge");
	is($new->safe_psql('source', "SELECT on_disk('sessions'), on_disk('raised'), on_disk('detached')"),
		'3|3|2', "$how: in the other database, too");
	is($new->safe_psql('source', q{SELECT on_disk('"Odd Schema"."My Docs"')}), '2', "$how: but for what is paused");
	like( $new->safe_psql('source', "SET ttl_docs.show_expired = on; $app_rows"),
		qr/\Acustomers\|2,3,12,13\norders\|4,5\nbills\|2,12\n/,
		"$how: as their owners, but for what a foreign key keeps");
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
		"made\na\n0\n", "$how: new collections, and the end of old ones");
	$new->stop;
}

done_testing();

# Servers with ttl_docs, and functions with which TAP tests query them.
#
# PurgeNode.pm has short forms for tests with one server and one database.
package TtlServer;

use strict;
use warnings;

use Exporter qw(import);
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(new_server start_server wait_for_restart install_in reload_with has_extension
  error_of becomes count_on_disk on_disk_becomes count_log nothing_crashed no_assertion_failed
  stat_of expired live slow_function slow_trigger let_workers_visit
  run_script_ok run_pg_upgrade start_pgbench stop_pgbench is_running);

# ---- Servers ----

# Creates a server that loads ttl_docs, with additional settings and arguments for init().
sub new_server
{
	my ($name, $settings, %init) = @_;
	my $server = PostgreSQL::Test::Cluster->new($name);
	$server->init(%init);
	$server->append_conf('postgresql.conf', "shared_preload_libraries = 'ttl_docs'\n$settings");
	return $server;
}

sub start_server
{
	my $server = new_server(@_);
	$server->start;
	return $server;
}

# Waits until a server accepts connections again after a process of it has crashed.  The argument is the size of
# the log before the crash.  A query or pg_isready is not enough: the server may not have noticed the crash yet.
sub wait_for_restart
{
	my ($server, $offset) = @_;
	$server->wait_for_log(
		qr/all server processes terminated; reinitializing.*database system is ready to accept connections/s, $offset);
	return;
}

# Creates the extension in a database, and the SQL function on_disk(), which counts the rows
# of a table including the expired ones.  Tests poll this function, because poll_query_until() needs a
# query with a single result.
sub install_in
{
	my ($server, $database) = @_;
	$server->safe_psql(
		$database, q{
		SET client_min_messages = warning;
		CREATE EXTENSION IF NOT EXISTS ttl_docs;
		CREATE OR REPLACE FUNCTION on_disk(collection regclass, condition text DEFAULT '') RETURNS bigint
		LANGUAGE plpgsql SET ttl_docs.show_expired = on AS $$
		DECLARE result bigint;
		BEGIN
			EXECUTE format('SELECT count(*) FROM %s %s', collection, condition) INTO result;
			RETURN result;
		END $$;
	});
	return;
}

# Adds settings to the configuration, and reloads the server.
sub reload_with
{
	my ($server, $settings) = @_;
	$server->append_conf('postgresql.conf', $settings);
	$server->reload;
	return;
}

# Can this extension be created?
sub has_extension
{
	my ($server, $extension) = @_;
	return $server->safe_psql('postgres',
		"SELECT count(*) FROM pg_available_extensions WHERE name = '$extension'");
}

# ---- Queries ----

# The messages of a command: its error, its warnings and its notices.
sub error_of
{
	my ($server, $database, $sql, %parameters) = @_;
	my ($ret, $stdout, $stderr) = $server->psql($database, $sql, %parameters);
	return $stderr;
}

# Waits until a query returns the expected result.  Counts as a test.
sub becomes
{
	my ($server, $database, $query, $expected, $name) = @_;
	ok($server->poll_query_until($database, $query, $expected), $name) and return;
	# the database may not have the extension
	my ($ret, $stdout) = $server->psql($database, 'SELECT * FROM ttl_docs.stat_collections');
	diag($stdout);
	return;
}

# Returns the number of documents of a collection on disk, including the expired ones.
sub count_on_disk
{
	my ($server, $database, $collection) = @_;
	return $server->safe_psql($database, "SELECT on_disk('$collection')");
}

# Waits until a collection has this number of documents on disk.  Counts as a test.
sub on_disk_becomes
{
	my ($server, $database, $collection, $count, $name) = @_;
	becomes($server, $database, "SELECT on_disk('$collection')", $count, $name);
	return;
}

# Returns how often a pattern occurs in the log after an offset.
sub count_log
{
	my ($server, $pattern, $offset) = @_;
	my $count = () = slurp_file($server->logfile, $offset) =~ /$pattern/g;
	return $count;
}

# No process of the server has crashed.  Counts as a test.
sub nothing_crashed
{
	my ($server) = @_;
	is(count_log($server, qr/TRAP:|PANIC:|terminated by signal/, 0), 0, 'no process has crashed');
	return;
}

# The same for a server whose processes the test has killed.
sub no_assertion_failed
{
	my ($server) = @_;
	is(count_log($server, qr/TRAP:|PANIC:/, 0), 0, 'no assertion has failed');
	return;
}

# ---- SQL ----

# Returns a query for a column of ttl_docs.stat_collections.
sub stat_of
{
	my ($column, $collection) = @_;
	return "SELECT $column FROM ttl_docs.stat_collections WHERE collection = '$collection'::regclass";
}

# Returns statements that write expired documents, with a _ts of two hours ago.  The collection must
# have a DefaultTTL of at most an hour.  The ids are new each time.
sub expired
{
	my ($collection, $count) = @_;
	return qq{
		SET ttl_docs.clock_offset = '-2h';
		INSERT INTO $collection (id, doc)
			SELECT 'expired ' || i || ' ' || gen_random_uuid(), '{}' FROM generate_series(1, $count) AS i;
		RESET ttl_docs.clock_offset;
	};
}

# Returns a statement that writes documents that live for a day.
sub live
{
	my ($collection, $count) = @_;
	return qq{
		INSERT INTO $collection (id, doc)
			SELECT 'live ' || i, '{"ttl": 86400}' FROM generate_series(1, $count) AS i;
	};
}

# These two return statements that make each DELETE of a document take some seconds, so that a worker
# stays in the middle of a backlog: a trigger function, and the trigger.
sub slow_function
{
	my ($seconds) = @_;
	return qq{
		CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN PERFORM pg_sleep($seconds); RETURN NULL; END';
	};
}

sub slow_trigger
{
	my ($collection) = @_;
	return "CREATE TRIGGER slow AFTER DELETE ON $collection FOR EACH ROW EXECUTE FUNCTION slow();";
}

# ---- Workers ----

# Waits until workers have visited all collections of some databases: until they have purged a new
# collection.  Does this twice, because a visit may have begun earlier.  Creates on_disk() in the
# databases.
sub let_workers_visit
{
	my ($server, @databases) = @_;
	install_in($server, $_) for @databases;
	for my $i (1, 2)
	{
		$server->safe_psql(
			$_, q{
			SELECT ttl_docs.create_collection('probe', 60);
			SET ttl_docs.clock_offset = '-2d';
			INSERT INTO probe (id, doc) VALUES ('a', '{}');
		}) for @databases;
		for my $database (@databases)
		{
			$server->poll_query_until($database, "SELECT on_disk('probe')", '0')
			  or die "no worker purges the database $database";
			$server->safe_psql($database, "SELECT ttl_docs.drop_collection('probe')");
		}
	}
	return 1;
}

# ---- Programs ----

# Runs a script in a database with psql.  Any error fails the test.
sub run_script_ok
{
	my ($server, $file, $database, $name) = @_;
	$server->command_ok(
		[ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $file, $server->connstr($database) ], $name);
	return;
}

# Runs pg_upgrade from one server to another; both are stopped.  Returns whether it succeeded, and its
# output.
sub run_pg_upgrade
{
	my ($old, $new, @options) = @_;
	my @command = (
		'pg_upgrade', '--no-sync', @options,
		'-d', $old->data_dir, '-D', $new->data_dir,
		'-b', $old->config_data('--bindir'), '-B', $new->config_data('--bindir'),
		'-s', $new->host, '-p', $old->port, '-P', $new->port);
	my $output = '';
	# older versions leave files in the current directory
	my $ok = IPC::Run::run(\@command, '>', \$output, '2>&1', init => sub { chdir $new->basedir or die $! });
	return ($ok, $output);
}

# Starts pgbench with a script (SQL) and options.  It runs until stop_pgbench().
my $pgbench_runs = 0;

sub start_pgbench
{
	my ($server, $script, @options) = @_;
	my $base = $server->basedir . '/pgbench.' . ++$pgbench_runs;
	append_to_file("$base.sql", $script);
	my $process = IPC::Run::start(
		[
			'pgbench', '-n', '-T', '600', @options, '-f', "$base.sql",
			'-h', $server->host, '-p', $server->port, 'postgres'
		],
		'<', \undef, '>', "$base.log", '2>&1');
	return { process => $process, log => "$base.log" };
}

sub is_running
{
	my ($load) = @_;
	return $load->{process}->pumpable;
}

# Stops pgbench, and returns its output.
sub stop_pgbench
{
	my ($load) = @_;
	$load->{process}->kill_kill if is_running($load);
	$load->{process}->finish;
	return slurp_file($load->{log});
}

1;

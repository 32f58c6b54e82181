# A cluster of Citus: a coordinator and workers, with ttl_docs on all of them.
#
#	skip_without_citus();
#	my $cluster = CitusCluster->new(workers => 2);
#	$cluster->sql('SELECT 1');                # on the coordinator
#	$cluster->set_clock(3600);                # on all nodes
#	is($cluster->on_disk('sessions'), 10, 'rows in all shards');
#	$cluster->stop;
#
# All nodes are servers with private sockets.  A node reaches another one through its socket directory,
# which Citus takes as a host name.
package CitusCluster;

use strict;
use warnings;

use Exporter qw(import);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

our @EXPORT = qw(skip_without_citus);

# ---- Nodes ----

# Skips the whole test if this PostgreSQL has no Citus.
sub skip_without_citus
{
	my ($share) = run_command([ 'pg_config', '--sharedir' ]);
	plan skip_all => 'Citus is not installed for this PostgreSQL; '
	  . 'build and install it from its source, version 13.1 or later'
	  unless -e "$share/extension/citus.control";
	return;
}

# Creates a cluster and starts it.  Options:
#	name		prefix of the names of the servers; "citus" unless given
#	workers		number of workers; 2 unless given
#	settings	additional settings for all nodes
#	coordinator_has_shards	true if the coordinator stores shards, too
#	extension	false if the test itself creates ttl_docs
sub new
{
	my ($class, %options) = @_;
	my $name = $options{name} // 'citus';
	my @names = ('coordinator', map { "worker$_" } 1 .. $options{workers} // 2);
	my $self = bless { nodes => [] }, $class;

	for my $node (@names)
	{
		my $server = new_server("${name}_$node", settings_of_node() . ($options{settings} // ''));
		# by default, a node connects to itself by TCP
		$server->append_conf('postgresql.conf', "citus.local_hostname = '" . $server->host . "'");
		allow_output_plugins($server);
		$server->start;
		$server->safe_psql('postgres', 'CREATE EXTENSION citus');
		push @{ $self->{nodes} }, $server;
	}
	my ($coordinator, @workers) = $self->nodes;
	$coordinator->safe_psql('postgres',
		sprintf("SELECT citus_set_coordinator_host('%s', %d)", $coordinator->host, $coordinator->port));
	$coordinator->safe_psql('postgres', sprintf("SELECT citus_add_node('%s', %d)", $_->host, $_->port))
	  for @workers;
	$self->let_coordinator_have_shards if $options{coordinator_has_shards};
	# Citus creates the extension and the functions on the workers, too.
	$self->install_functions if $options{extension} // 1;
	return $self;
}

sub settings_of_node
{
	return q{
shared_preload_libraries = 'citus, ttl_docs'
max_connections = 100
max_prepared_transactions = 50
max_worker_processes = 20
max_wal_senders = 10
max_replication_slots = 10
wal_level = logical
citus.node_conninfo = 'sslmode=disable'
citus.shard_count = 4
citus.defer_shard_delete_interval = -1
citus.enable_statistics_collection = off
ttl_docs.purge = off
};
}

# Some versions of PostgreSQL load only those output plugins that a setting lists.
sub allow_output_plugins
{
	my ($server) = @_;
	my @show = ('postgres', '-C', 'output_plugin_libraries', '-D', $server->data_dir);
	my ($output, $error) = run_command(\@show);
	$server->append_conf('postgresql.conf', "output_plugin_libraries = 'citus, citus_pgoutput, pgoutput'")
	  unless $error =~ /unrecognized configuration parameter/;
	return;
}

sub let_coordinator_have_shards
{
	my ($self) = @_;
	$self->sql(sprintf("SELECT citus_set_node_property('%s', %d, 'shouldhaveshards', true)",
			$self->coordinator->host, $self->coordinator->port));
	return;
}

# All nodes, the coordinator first
sub nodes
{
	my ($self) = @_;
	return @{ $self->{nodes} };
}

sub coordinator
{
	my ($self) = @_;
	return $self->{nodes}[0];
}

# A worker by its number, from 1 on
sub worker
{
	my ($self, $number) = @_;
	return $self->{nodes}[$number];
}

# Stops all nodes.  Counts as a test for each node: nothing has crashed.
sub stop
{
	my ($self) = @_;
	for my $node ($self->nodes)
	{
		nothing_crashed($node);
		$node->stop;
	}
	return;
}

# ---- Queries ----

# Runs SQL on the coordinator without notices, and returns the output.  Any error fails the test.
sub sql
{
	my ($self, $sql) = @_;
	return quiet($self->coordinator, $sql);
}

# The same on any node.
sub quiet
{
	my ($node, $sql) = @_;
	return $node->safe_psql('postgres', "SET client_min_messages = warning;\n$sql");
}

# The error and the notices of SQL on the coordinator
sub error
{
	my ($self, $sql) = @_;
	return error_of($self->coordinator, 'postgres', $sql);
}

# Returns the output of SQL on each node, the coordinator first.
sub on_each_node
{
	my ($self, $sql) = @_;
	return map { quiet($_, $sql) } $self->nodes;
}

# Every node returns this output.  Counts as a test.
sub all_nodes_return
{
	my ($self, $sql, $expected, $name) = @_;
	is_deeply([ $self->on_each_node($sql) ], [ ($expected) x $self->nodes ], $name);
	return;
}

# Moves the clock of all nodes: so many seconds ahead.  A server signals its sessions before it starts a
# new one, so sessions that Citus keeps open use the new clock from their next command on.
sub set_clock
{
	my ($self, $seconds) = @_;
	reload_with($_, "ttl_docs.clock_offset = $seconds") for $self->nodes;
	for my $node ($self->nodes)
	{
		$node->poll_query_until('postgres',
			"SELECT setting FROM pg_settings WHERE name = 'ttl_docs.clock_offset'", $seconds)
		  or die 'a node has not moved its clock';
	}
	return;
}

# ---- Tables ----

# Creates functions on all nodes.  rows_on_disk() returns a line for each row of a table, expired
# documents included: the column id and the system columns.  A change of the DefaultTTL changes the _slot
# of the next copy of a row, so the function shows only whether there is one.
sub install_functions
{
	my ($self) = @_;
	install_in($self->coordinator, 'postgres');
	$self->sql(
		q{
		CREATE OR REPLACE FUNCTION rows_on_disk(collection regclass) RETURNS text
		LANGUAGE plpgsql SET ttl_docs.show_expired = on SET timezone = 'UTC' AS $$
		DECLARE result text;
		BEGIN
			EXECUTE format('SELECT string_agg(concat_ws('' '', id, _ts, _ttl, _slot IS NULL), E''\n'') FROM %s', collection)
				INTO result;
			RETURN result;
		END $$;
	});
	return;
}

sub is_citus_table
{
	my ($self, $table) = @_;
	return $self->sql("SELECT count(*) FROM pg_dist_partition WHERE logicalrelid = '$table'::regclass");
}

# Returns the rows of a table on disk, sorted, with their stamps.  The rows of a Citus table are those of
# all its shards.
sub rows
{
	my ($self, $table) = @_;
	my $rows = $self->sql(
		$self->is_citus_table($table)
		? "SELECT result FROM run_command_on_shards('$table', 'SELECT rows_on_disk(''%s'')') WHERE result <> ''"
		: "SELECT rows_on_disk('$table')");
	return join("\n", sort split(/\n/, $rows));
}

# Returns the number of rows of a table on disk.
sub on_disk
{
	my ($self, $table) = @_;
	return scalar(split(/\n/, $self->rows($table)));
}

# Runs a query on all nodes for a table, all its shards and all its partitions.  The query gets them as
# the table "t" with the column relid.  Returns the number of tables for each value that the query
# returns: "60: 7" if it is 60 for seven tables.
sub count_by
{
	my ($self, $table, $query) = @_;
	my ($schema, $name) = $table =~ /^(\w+)\.(\w+)$/ ? ($1, $2) : ('public', $table);
	my %count;

	# Citus hides shards from other programs than its own.
	$count{$_}++ for map { split /\n/ } $self->on_each_node(
		qq{
		SET citus.override_table_visibility = off;
		WITH t AS (SELECT oid AS relid FROM pg_class
			WHERE relname ~ '^${name}(_[a-z0-9]+)*\$' AND relkind IN ('r', 'p') AND relnamespace = '$schema'::regnamespace)
		$query
	});
	return join(', ', map { "$_: $count{$_}" } sort keys %count);
}

my $join_label = q{t LEFT JOIN pg_seclabel
	ON objoid = relid AND classoid = 'pg_class'::regclass AND provider = 'ttl_docs'};

# Counts the labels, without keys that differ between tables, or that matter only in a transaction.
sub labels
{
	my ($self, $table) = @_;
	return $self->count_by($table,
		"SELECT coalesce((label::jsonb - '{database, table, filling, changing}'::text[])::text, 'none') FROM $join_label");
}

# Counts the values of a key of the labels.
sub in_labels
{
	my ($self, $table, $key) = @_;
	return $self->count_by($table, "SELECT coalesce(label::jsonb ->> '$key', 'none') FROM $join_label");
}

# Counts the reasons for which the purge is held.
sub holds
{
	my ($self, $table) = @_;
	# the view ttl_docs.collections does not list shards
	return $self->count_by(
		$table, q{
		SELECT CASE WHEN (label::jsonb ->> 'table')::oid = relid THEN '{}' ELSE '{restored}' END
		  FROM t JOIN pg_seclabel ON objoid = relid AND provider = 'ttl_docs'});
}

# Counts the kinds of triggers: hidden, visible or missing.
sub triggers
{
	my ($self, $table) = @_;
	return $self->count_by(
		$table, q{
		SELECT CASE tgisinternal WHEN true THEN 'hidden' WHEN false THEN 'visible' ELSE 'missing' END
		  FROM t LEFT JOIN pg_trigger ON tgrelid = relid AND tgname = 'zzz_ttl_docs'});
}

1;

# Short forms of TtlServer.pm for tests of the purge that use one server and its database
# "postgres".
package PurgeNode;

use strict;
use warnings;

use Exporter qw(import);
use Test::More;
use TtlServer;

our @EXPORT = qw(start_node use_node sql on_disk until_is until_on_disk until_state configure no_worker_left
  stat_of expired live slow_function slow_trigger);

my $node;

# Starts the server with additional settings and arguments for init(), and returns it.  The purge
# is off; once a test turns it on, workers visit often.
sub start_node
{
	my ($settings, %init) = @_;
	use_node(
		start_server(
			'main', qq{
ttl_docs.purge_naptime = '20ms'
ttl_docs.purge = off
autovacuum = off
$settings}, %init));
	install_in($node, 'postgres');
	return $node;
}

# Sets the server that the functions below use.
sub use_node
{
	($node) = @_;
	return;
}

# Runs SQL, and returns its output.
sub sql
{
	my ($query) = @_;
	return $node->safe_psql('postgres', $query);
}

# Waits until a query returns the expected result.  Counts as a test.
sub until_is
{
	my ($query, $expected, $name) = @_;
	becomes($node, 'postgres', $query, $expected, $name);
	return;
}

sub query_on_disk
{
	my ($collection, $condition) = @_;
	return "SELECT on_disk('$collection', \$\$" . ($condition // '') . '$$)';
}

# Returns the number of documents of a collection on disk, including the expired ones.  An
# optional condition has the form 'WHERE ...'.
sub on_disk
{
	return sql(query_on_disk(@_));
}

# Waits until a collection has this number of documents on disk.  Counts as a test.
sub until_on_disk
{
	my ($collection, $count, $name, $condition) = @_;
	until_is(query_on_disk($collection, $condition), $count, $name);
	return;
}

# Waits until ttl_docs.stat_collections shows a state.  Counts as a test.
sub until_state
{
	my ($collection, $state, $name) = @_;
	until_is(stat_of('state', $collection), $state, $name);
	return;
}

# Changes settings of the server.
sub configure
{
	my ($settings) = @_;
	reload_with($node, $settings);
	return;
}

# Waits until no worker is running.  Counts as a test.
sub no_worker_left
{
	my ($name) = @_;
	until_is("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'ttl_docs purge worker'", '0', $name);
	return;
}

1;

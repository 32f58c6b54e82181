# A server whose purge a TAP test turns on and off, and what such tests ask it.
package PurgeNode;

use strict;
use warnings;

use Exporter qw(import);
use PostgreSQL::Test::Cluster;
use Test::More;

our @EXPORT = qw(start_node sql until_is configure stat_of);

my $node;

# Starts the server, with more settings and more arguments for init(), and returns
# it.  The purge is off, and quick once it is on.
sub start_node
{
	my ($settings, %init) = @_;
	$node = PostgreSQL::Test::Cluster->new('main');
	$node->init(%init);
	$node->append_conf(
		'postgresql.conf', qq{
shared_preload_libraries = 'ttl_docs'
ttl_docs.purge_naptime = '20ms'
ttl_docs.purge = off
autovacuum = off
$settings});
	$node->start;
	# A function, because poll_query_until() takes a single result.
	$node->safe_psql(
		'postgres', q{
		CREATE EXTENSION ttl_docs;
		CREATE FUNCTION on_disk(collection regclass, suffix text DEFAULT '') RETURNS bigint
		LANGUAGE plpgsql SET ttl_docs.show_expired = on AS $$
		DECLARE result bigint;
		BEGIN
			EXECUTE format('SELECT count(*) FROM %s %s', collection, suffix) INTO result;
			RETURN result;
		END $$;
	});
	return $node;
}

sub sql
{
	my ($query) = @_;
	return $node->safe_psql('postgres', $query);
}

# Waits until a query returns what is expected, and counts as a test.
sub until_is
{
	my ($query, $expected, $name) = @_;
	ok($node->poll_query_until('postgres', $query, $expected), $name)
	  or diag(sql('SELECT * FROM ttl_docs.stat_collections'));
	return;
}

sub configure
{
	my ($setting) = @_;
	$node->append_conf('postgresql.conf', $setting);
	$node->reload;
	return;
}

# A query for what the statistics say of a collection.
sub stat_of
{
	my ($column, $collection) = @_;
	return "SELECT $column FROM ttl_docs.stat_collections WHERE collection = '$collection'::regclass";
}

1;

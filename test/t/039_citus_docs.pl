# The examples in docs/citus.md are correct: this test executes every sql-citus block, in one session of
# psql on the coordinator of a cluster with two workers.  test/t/009_docs.pl explains output blocks and
# hidden comments.

use strict;
use warnings;

use lib 'test/perl';
use CitusCluster;
use DocExamples;
use Markdown;
use Test::More;
use TtlServer;

skip_without_citus();

my $file = 'docs/citus.md';
my @blocks = grep { $_->[0] =~ /^(?:sql-citus|hidden)$/ } joined($file, blocks_of($file));
cmp_ok(scalar @blocks, '>', 10, "$file has examples");

# The examples create the extension.
my $cluster = CitusCluster->new(extension => 0, settings => "ttl_docs.purge = on\n");
# To move a shard by logical replication, a node connects to itself under this name.
reload_with($_, "citus.local_hostname = '" . $_->host . "'") for $cluster->nodes;
check_examples($file, $cluster->coordinator, 'postgres', @blocks);

$cluster->stop;
done_testing();

# The purge is held after a change of settings that makes live documents expire: with workers,
# with the default of ttl_docs.purge_grace, across a restart, and until the hold ends by itself.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PurgeNode;
use Test::More;
use TtlServer;

# purge_grace has its default, as for every user.
my $node = start_node('ttl_docs.purge = on');

# Makes a collection with ten documents that were written half an hour ago.
sub create
{
	my ($table) = @_;
	sql(
		qq{
		SELECT ttl_docs.create_collection('$table', 3600);
		SET ttl_docs.clock_offset = '-30min';
		INSERT INTO $table (id, doc) SELECT i, '{}' FROM generate_series(1, 10) AS i;
	});
	return;
}

# Runs a command, and returns its messages.  Counts as a test.
sub change
{
	my ($query) = @_;
	my ($ret, $stdout, $stderr) = $node->psql('postgres', $query);
	is($ret, 0, "succeeds: $query") or diag($stderr);
	return $stderr;
}

# Workers visit the collection, and purge nothing.  Counts as a test.
sub is_not_purged
{
	my ($table, $count, $name) = @_;
	let_workers_visit($node, 'postgres');
	is(on_disk($table), $count, $name);
	return;
}

create('docs');
my $notice = change(q{SELECT ttl_docs.set_default_ttl('docs', 600)});
like($notice, qr/NOTICE:  this change makes 10 documents of "docs" expire/, 'the notice says how many documents expire');
like($notice, qr/The purge of "docs" is held for 10 min/, 'the notice says how long the purge is held');
is(sql('SELECT count(*) FROM docs'), '0', 'the documents are hidden at once');
until_state('docs', 'grace', 'the state is grace');
is_not_purged('docs', 10, 'workers do not purge the documents');
until_is(stat_of('estimated_backlog', 'docs'), '10', 'the held documents are counted as backlog');
like(sql(stat_of('hint', 'docs')), qr/for another (10 min|9 min( \d+ s)?)\./, 'the hint shows the time that is left');

# Documents that expire by themselves are held, too.
sql(q{SET ttl_docs.clock_offset = '-1h'; INSERT INTO docs (id, doc) VALUES ('usual', '{}')});
is_not_purged('docs', 11, 'the whole collection is held');

$node->restart;
is_not_purged('docs', 11, 'the hold survives a restart');
is(sql(q{SELECT holds FROM ttl_docs.collections WHERE collection = 'docs'::regclass}), '{grace}', 'the view shows the hold after a restart');

# Raising the DefaultTTL or turning TTL off does not end the hold.
change(q{SELECT ttl_docs.set_default_ttl('docs', NULL)});
is_not_purged('docs', 11, 'another change does not end the hold');

change(q{SELECT ttl_docs.resume_purge('docs')});
until_on_disk('docs', 0, 'resume_purge() ends the hold');

# A hold ends by itself.
create('short');
$notice = change(q{SET ttl_docs.purge_grace = '1s'; SELECT ttl_docs.set_default_ttl('short', 600)});
like($notice, qr/is held for 1 s/, 'the notice shows a short hold');
until_on_disk('short', 0, 'the hold ends by itself, and the documents are purged');
is(sql(q{SELECT holds FROM ttl_docs.collections WHERE collection = 'short'::regclass}), '{}', 'the view shows no hold then');

# Without a hold
create('quick');
$notice = change(q{SET ttl_docs.purge_grace = 0; SELECT ttl_docs.set_default_ttl('quick', 600)});
unlike($notice, qr/held/, 'purge_grace = 0: there is no hold');
until_on_disk('quick', 0, 'purge_grace = 0: the documents are purged');

# Workers count a held collection again when more documents expire, even shortly after a count, and
# even if there is a backlog already.  Without a reason they visit only every five minutes, which is
# longer than the test waits.
sql(q{SELECT ttl_docs.create_collection('counted', 600); SELECT ttl_docs.pause_purge('counted')});
for my $count (1 .. 3)
{
	sql(qq{SET ttl_docs.clock_offset = '-1h'; INSERT INTO counted (id, doc) VALUES ('late $count', '{}')});
	until_is(stat_of('estimated_backlog', 'counted'), $count, "counted: a paused collection with $count expired documents");
}

$node->stop;
done_testing();

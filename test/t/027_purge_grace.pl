# The purge is held after a change of settings that makes living documents expire: with
# workers at work, by the default of ttl_docs.purge_grace, through a restart, and until
# the hold ends by itself.
#
# "Not purged" is shown against a witness that is: a collection that was filled later.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PurgeNode;
use Test::More;

# purge_grace is not set: this is what every user gets.
my $node = start_node('ttl_docs.purge = on');

# Ten documents that were written half an hour ago
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

# Workers have looked at everything when two witnesses, one after the other, are purged.
my $witnesses = 0;

sub let_workers_look
{
	for (1 .. 2)
	{
		my $witness = 'witness' . ++$witnesses;
		sql(
			qq{
			SELECT ttl_docs.create_collection('$witness', 60);
			SET ttl_docs.clock_offset = '-1h';
			INSERT INTO $witness (id, doc) VALUES ('a', '{}');
		});
		until_is("SELECT on_disk('$witness')", '0', 'a witness is purged');
	}
	return;
}

sub change
{
	my ($query) = @_;
	my ($ret, $stdout, $stderr) = $node->psql('postgres', $query);
	is($ret, 0, 'the change is made') or diag($stderr);
	return $stderr;
}

create('docs');
my $notice = change(q{SELECT ttl_docs.set_default_ttl('docs', 600)});
like($notice, qr/NOTICE:  this change makes 10 documents of "docs" expire/, 'it says how many expire');
like($notice, qr/The purge of "docs" is held for 10 min/, 'and for how long they are kept');
is(sql('SELECT count(*) FROM docs'), '0', 'they are invisible at once');
until_is(stat_of('state', 'docs'), 'grace', 'the state shows the hold');
let_workers_look();
is(sql("SELECT on_disk('docs')"), '10', 'workers do not purge them');
until_is(stat_of('estimated_backlog', 'docs'), '10', 'the backlog is counted');
like(sql(stat_of('hint', 'docs')), qr/for another (10 min|9 min( \d+ s)?)\./, 'the hint shows the time that is left');

# Documents that expire in the usual way are held, too.
sql(q{SET ttl_docs.clock_offset = '-1h'; INSERT INTO docs (id, doc) VALUES ('usual', '{}')});
let_workers_look();
is(sql("SELECT on_disk('docs')"), '11', 'the whole collection is held');

$node->restart;
let_workers_look();
is(sql("SELECT on_disk('docs')"), '11', 'the hold survives a restart');
is(sql(q{SELECT holds FROM ttl_docs.collections WHERE collection = 'docs'::regclass}), '{grace}', 'and is shown');

# Raising the DefaultTTL, or turning it off, does not end the hold.
change(q{SELECT ttl_docs.set_default_ttl('docs', NULL)});
let_workers_look();
is(sql("SELECT on_disk('docs')"), '11', 'another change does not end the hold');

change(q{SELECT ttl_docs.resume_purge('docs')});
until_is("SELECT on_disk('docs')", '0', 'resume_purge() ends the hold');

# A hold ends by itself.
create('short');
$notice = change(q{SET ttl_docs.purge_grace = '1s'; SELECT ttl_docs.set_default_ttl('short', 600)});
like($notice, qr/is held for 1 s/, 'a short hold');
until_is("SELECT on_disk('short')", '0', 'it ends by itself, and the documents are purged');
is(sql(q{SELECT holds FROM ttl_docs.collections WHERE collection = 'short'::regclass}), '{}', 'the view knows that it has ended');

# Without a hold
create('quick');
$notice = change(q{SET ttl_docs.purge_grace = 0; SELECT ttl_docs.set_default_ttl('quick', 600)});
unlike($notice, qr/held/, 'purge_grace = 0 holds nothing');
until_is("SELECT on_disk('quick')", '0', 'and the documents are purged');

# A held collection is counted again when more of it expires, also shortly after a count,
# and also if there is a backlog already.  (A worker that nobody sends looks every five
# minutes, which is longer than the test waits.)
sql(q{SELECT ttl_docs.create_collection('counted', 600); SELECT ttl_docs.pause_purge('counted')});
for my $count (1 .. 3)
{
	sql(qq{SET ttl_docs.clock_offset = '-1h'; INSERT INTO counted (id, doc) VALUES ('late $count', '{}')});
	until_is(stat_of('estimated_backlog', 'counted'), $count, "counted: $count");
}

$node->stop;
done_testing();

# Collections of every kind, and functions that compare copies of them.
#
# make_sample() creates a database with the collections.  picture() reads everything that a backup, a
# standby or an upgrade must keep: the live documents, now and at later instants; the rows on
# disk, with their stamps; the settings, with the floors.  pictures_agree() compares two pictures.
# behaves() uses a copy as its users would.
#
# Documents have been expired for two hours, or live for at least ten minutes, so that no result
# depends on the speed of a test.  Set ttl_docs.purge = off for a database with a sample:
# otherwise the workers purge the expired documents.
package SampleCollections;

use strict;
use warnings;

use Exporter qw(import);
use Test::More;
use TtlServer;

our @EXPORT = qw(make_sample fill_sample picture rows_on_disk pictures_agree behaves states);

# The tables of the sample, and which of them are collections.
my @collections = (
	'archive', 'children', 'detached', 'on_again', 'parents', 'parts',
	'raised', 'sessions', 'turned_off', '"Odd Schema"."My Docs"');
my @tables = (@collections, 'notes');

# Later instants.  Between them, documents of the sample expire.
my @instants = ('0', '20min', '40min', '2h', '2d');

# The purpose of each collection:
# - sessions: documents that are expired, expire later, or never expire, in every way;
# - raised: documents that expired under a short DefaultTTL; a floor keeps them expired under a
#   long one; its purge index leaves out documents that never expire, as older versions made it;
# - turned_off: the same after TTL was turned off, and a document with an invalid ttl;
# - on_again: TTL was turned off and on again with a DefaultTTL of -1, so only the ttl of a
#   document counts;
# - archive: TTL was never on, and there is no purge index;
# - parents, children, notes: an expired parent has live children; one child keeps the parent on
#   disk; the purge of the parent would delete the other child;
# - parts, detached: a partitioned collection with a BRIN index, and a detached partition of it;
# - "My Docs": a table of an application that was adopted and paused, with a unique key.
my $sample = q{
	SELECT ttl_docs.create_collection('sessions', 1800);
	SELECT ttl_docs.create_collection('raised', 60);
	CREATE INDEX raised_old ON raised (_slot) WHERE _slot IS NOT NULL;
	DROP INDEX raised__slot_idx;
	ALTER INDEX raised_old RENAME TO raised__slot_idx;
	SELECT ttl_docs.create_collection('turned_off', 60);
	SELECT ttl_docs.create_collection('on_again', -1);
	SELECT ttl_docs.create_collection('archive', NULL, 'none');
	SELECT ttl_docs.create_collection('parents', 1800);
	CREATE TABLE children (id int PRIMARY KEY, parent text REFERENCES parents, doc jsonb);
	SELECT ttl_docs.adopt('children', -1);
	CREATE TABLE notes (id int PRIMARY KEY, parent text REFERENCES parents ON DELETE CASCADE);
	CREATE TABLE parts (id int PRIMARY KEY, doc jsonb) PARTITION BY RANGE (id);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (1) TO (100);
	CREATE TABLE detached PARTITION OF parts FOR VALUES FROM (200) TO (300);
	SELECT ttl_docs.adopt('parts', 1800, indexing => 'lazy');
	CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (100) TO (200) PARTITION BY LIST (id);
	CREATE TABLE parts_2_rest PARTITION OF parts_2 DEFAULT;
	CREATE SCHEMA "Odd Schema";
	CREATE TABLE "Odd Schema"."My Docs" ("Key" int PRIMARY KEY, "Name" text UNIQUE,
		"The Doc" jsonb NOT NULL, changed timestamp);
	INSERT INTO "Odd Schema"."My Docs" VALUES
		(1, 'dead', '{}', (now() AT TIME ZONE current_setting('TimeZone')) - interval '2 days'),
		(2, 'live', '{"ttl": -1}', (now() AT TIME ZONE current_setting('TimeZone')));
	SELECT ttl_docs.adopt('"Odd Schema"."My Docs"', 86400, last_modified => 'changed');
	SELECT ttl_docs.pause_purge('"Odd Schema"."My Docs"');

	SET ttl_docs.clock_offset = '-2h';
	INSERT INTO sessions (id, doc) VALUES ('dead by age', '{}'), ('dead by ttl', '{"ttl": 5}'),
		('dies soon', '{"ttl": 7800}'), ('never', '{"ttl": -1}');
	INSERT INTO raised (id, doc) VALUES ('dead by age', '{}'), ('dead by ttl', '{"ttl": 5}'),
		('dies soon', '{"ttl": 7800}');
	INSERT INTO turned_off (id, doc) VALUES ('dead by age', '{}'), ('dead by ttl', '{"ttl": 5}'),
		('kept', '{"ttl": 7800}');
	INSERT INTO on_again (id, doc) VALUES ('dead by ttl', '{"ttl": 5}'), ('dies later', '{"ttl": 10800}'),
		('never', '{}');
	INSERT INTO archive (id, doc) VALUES ('kept', '{"ttl": 5}');
	INSERT INTO parents (id, doc) VALUES ('dead', '{}'), ('dead and childless', '{}');
	INSERT INTO children VALUES (1, 'dead', '{}'), (2, 'dead', '{"ttl": 5}');
	INSERT INTO notes VALUES (1, 'dead');
	INSERT INTO parts VALUES (1, '{}'), (2, '{"ttl": -1}'), (101, '{"ttl": 5}'), (102, '{"ttl": 7800}'),
		(201, '{}'), (202, '{"ttl": 7800}');
	RESET ttl_docs.clock_offset;
	INSERT INTO sessions (id, doc) VALUES ('dies later', '{"a": [1, {"b": null}]}');
	INSERT INTO raised (id, doc) VALUES ('lives', '{}');
	INSERT INTO turned_off (id, doc) VALUES ('kept, too', '{}');
	INSERT INTO parents (id, doc) VALUES ('live', '{}');
	INSERT INTO children VALUES (3, 'live', '{"ttl": 3000}');
	INSERT INTO notes VALUES (2, 'live');
	INSERT INTO parts VALUES (3, '{}'), (103, '{}'), (203, '{}');

	SELECT ttl_docs.set_default_ttl('raised', 86400);
	INSERT INTO raised (id, doc) VALUES ('lives, too', '{}');
	SELECT ttl_docs.set_default_ttl('turned_off', NULL);
	INSERT INTO turned_off (id, doc) VALUES ('not valid', '{"ttl": "soon"}');
	SELECT ttl_docs.set_default_ttl('on_again', NULL);
	SELECT ttl_docs.set_default_ttl('on_again', -1);
	ALTER TABLE parts DETACH PARTITION detached;
};

# Makes a database with the sample.
sub make_sample
{
	my ($node, $database) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql('postgres', "ALTER DATABASE $database SET ttl_docs.purge = off");
	$node->safe_psql($database, 'CREATE EXTENSION ttl_docs');
	fill_sample($node, $database);
	return;
}

# The documents that are live now, and in two days.  Comparing the copies would not show a mistake
# that is in all of them.
my %live = (
	'0' => join("\n",
		'archive: kept', 'children: 1,3', 'detached: 202,203', 'on_again: dies later,never',
		'parents: live', 'parts: 102,103,2,3', 'raised: dies soon,lives,lives, too',
		'sessions: dies later,dies soon,never', 'turned_off: kept,kept, too,not valid',
		'"Odd Schema"."My Docs": 2'),
	'2d' => join("\n",
		'archive: kept', 'children: 1', 'detached: ', 'on_again: never', 'parents: ', 'parts: 2',
		'raised: ', 'sessions: never', 'turned_off: kept,kept, too,not valid',
		'"Odd Schema"."My Docs": 2'));
my $live_keys = join '', map {
	my $key = /My Docs/ ? '"Key"' : 'id';
	qq{SELECT '$_: ' || coalesce(string_agg(${key}::text, ',' ORDER BY ${key}::text COLLATE "C"), '') FROM $_;}
} @collections;

# Makes the sample in a database that has the extension, and checks it.
sub fill_sample
{
	my ($node, $database) = @_;
	$node->safe_psql($database, $sample);
	is($node->safe_psql($database, "SET ttl_docs.clock_offset = '$_'; $live_keys"),
		$live{$_}, "$database: the right documents of the new sample are live at $_")
	  for sort keys %live;
	return;
}

# Queries for the rows of all tables, and some that read an index.  The slot is left out: it
# depends on the other columns, and on the DefaultTTL at the time of the write.
my $rows = join '', map {
	my $name = s/'/''/gr;
	qq{SELECT '$name', to_jsonb(t) - '_slot' FROM $_ AS t ORDER BY 2;}
} @tables;
my $by_index = q{
	SET enable_seqscan = off;
	SELECT count(*) FROM sessions WHERE id > '';
	SELECT string_agg(c.id || coalesce(p.id, ' none'), ',' ORDER BY c.id)
	  FROM children AS c LEFT JOIN parents AS p ON p.id = c.parent;
	SELECT count(*) FROM parts WHERE id BETWEEN 1 AND 200;
	RESET enable_seqscan;
};

# Returns everything that a copy of the database must keep, read by one session: a hash of texts.
sub picture
{
	my ($node, $database) = @_;
	my @parts = (
		(map { [ "live at $_", "SET ttl_docs.clock_offset = '$_'; $rows $by_index" ] } @instants),
		[ 'on disk', "SET ttl_docs.show_expired = on; $rows" ],
		[
			'settings and floors',
			q{SELECT objoid::regclass, label::jsonb - '{database,table}'::text[] FROM pg_seclabel
			   WHERE provider = 'ttl_docs' ORDER BY objoid::regclass::text;}
		],
		[
			'triggers',
			q{SELECT tgrelid::regclass, tgenabled FROM pg_trigger
			   WHERE tgname = 'zzz_ttl_docs' ORDER BY tgrelid::regclass::text;}
		],
		[
			'indexes',
			q{SELECT indrelid::regclass, pg_get_indexdef(indexrelid), indisvalid FROM pg_index
			   WHERE pg_get_indexdef(indexrelid) LIKE '%_slot%' ORDER BY indrelid::regclass::text, 2;}
		]);
	my $all = $node->safe_psql($database,
		"SET TimeZone = 'UTC'; SET jit = off;" . join '', map { "SELECT '## $_->[0]'; $_->[1]" } @parts);
	my (undef, %picture) = split /^## (.*)\n/m, $all;
	return \%picture;
}

# Returns the rows on disk, in the same form as picture().
sub rows_on_disk
{
	my ($node, $database) = @_;
	return $node->safe_psql($database, "SET TimeZone = 'UTC'; SET ttl_docs.show_expired = on; $rows") . "\n";
}

# Compares two pictures, or only the named parts of them.  Each part counts as a test.
sub pictures_agree
{
	my ($got, $expected, $how, @parts) = @_;
	is($got->{$_}, $expected->{$_}, "$how: $_") for (@parts ? @parts : sort keys %$expected);
	return;
}

# The states of all collections in stat_collections, each once.
sub states
{
	my ($node, $database) = @_;
	return $node->safe_psql($database,
		q{SELECT string_agg(DISTINCT state, ',' ORDER BY state) FROM ttl_docs.stat_collections});
}

# Uses a copy as its users would: the collections are complete.  Then purges it: this deletes the
# expired documents, except the parent that a child keeps, and no live ones.
sub behaves
{
	my ($node, $database, $how) = @_;
	is( $node->safe_psql(
			$database, q{
			INSERT INTO sessions (id, doc) VALUES ('dead by age', '{"new": 1}'), ('x', '{"ttl": 60, "new": 1}');
			UPDATE sessions SET doc = '{"revived": 1}' WHERE id = 'dead by ttl';
			SELECT string_agg(id, ',' ORDER BY id) FROM sessions WHERE doc ? 'new' OR doc ? 'revived';
			SET ttl_docs.clock_offset = '2min';
			SELECT string_agg(id, ',' ORDER BY id) FROM sessions WHERE doc ? 'new';
			SELECT ttl_docs.read_document('sessions', 'dead by ttl') IS NULL;
		}),
		"dead by age,x\ndead by age\nt", "$how: keys of expired documents are free, new documents expire, late writes find nothing");
	like(error_of($node, $database, q{INSERT INTO parts VALUES (50, '{"ttl": 0}')}),
		qr/invalid "ttl" in a document of "parts_1": 0/, "$how: an invalid ttl is refused");
	like(error_of($node, $database, q{INSERT INTO children VALUES (9, 'dead', '{}')}),
		qr/violates foreign key constraint/, "$how: an expired parent gets no new children");
	is( $node->safe_psql(
			$database, q{
			SELECT ttl_docs.set_default_ttl('raised', -1);
			SELECT ttl_docs.set_default_ttl('on_again', 86400);
			SELECT string_agg(id, ',' ORDER BY id) FROM raised;
			SELECT string_agg(id, ',' ORDER BY id) FROM on_again;
		}),
		"\n\ndies soon,lives,lives, too\ndies later,never", "$how: expired documents stay expired under a new DefaultTTL");

	my $live = $node->safe_psql($database, $rows);
	$node->safe_psql($database,
		'SELECT ttl_docs.resume_purge(collection) FROM ttl_docs.collections; CALL ttl_docs.purge()');
	is( $node->safe_psql($database, "SET ttl_docs.show_expired = on; $rows") =~
		  s/^parents\|.*"id": "dead".*\n//mr,
		$live, "$how: the purge deletes the expired documents, and nothing else");
	return;
}

1;

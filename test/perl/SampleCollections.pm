# Collections of every kind, and what must be the same wherever a copy of them is.
#
# make_sample() makes a database with them.  picture() asks it for all that a backup, a standby or
# an upgrade has to keep: what is live, now and at some instants that are to come; what
# is on disk, with its stamps; and the settings, with the floors.  pictures_agree()
# compares two of them, and behaves() uses a copy as its users would.
#
# Documents are dead for two hours, or live for ten minutes at least, so that no answer
# depends on how long a test takes.  A database with a sample has to have
# ttl_docs.purge = off, or what has expired goes.
package SampleCollections;

use strict;
use warnings;

use Exporter qw(import);
use Test::More;

our @EXPORT = qw(make_sample fill_sample picture on_disk pictures_agree behaves let_workers_look states);

# The tables of the sample, and which of them are collections.
my @collections = (
	'archive', 'children', 'detached', 'on_again', 'parents', 'parts',
	'raised', 'sessions', 'turned_off', '"Odd Schema"."My Docs"');
my @tables = (@collections, 'notes');

# Instants to come, between which documents of the sample expire.
my @instants = ('0', '20min', '40min', '2h', '2d');

# What each collection is there for:
# - sessions: each way to be dead, to die later, and to stay;
# - raised: what died under a short DefaultTTL, which a floor keeps dead under a long one;
# - turned_off: the same, without any DefaultTTL, and a ttl that would not be valid;
# - on_again: turned off and on again, so that only ttls of documents count;
# - archive: never had TTL on, and has no purge index;
# - parents, children, notes: live children of an expired parent; the one keeps it on
#   disk, the other goes with it;
# - parts, detached: a partitioned collection, with a BRIN index, and what was a
#   partition of it;
# - "My Docs": a table of an application, adopted and paused, with a unique key.
my $sample = q{
	SELECT ttl_docs.create_collection('sessions', 1800);
	SELECT ttl_docs.create_collection('raised', 60);
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

# A function, because poll_query_until() takes a single result.
my $on_disk_function = q{
	CREATE OR REPLACE FUNCTION on_disk(collection regclass) RETURNS bigint
	LANGUAGE plpgsql SET ttl_docs.show_expired = on AS $$
	DECLARE result bigint;
	BEGIN
		EXECUTE format('SELECT count(*) FROM %s', collection) INTO result;
		RETURN result;
	END $$;
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

# What of it is live at first, and in two days: what no copy can be compared with.
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

# Makes the sample in a database that has the extension, and sees that it is right.
sub fill_sample
{
	my ($node, $database) = @_;
	$node->safe_psql($database, $sample);
	is($node->safe_psql($database, "SET ttl_docs.clock_offset = '$_'; $live_keys"),
		$live{$_}, "$database: what is live at $_, to begin with")
	  for sort keys %live;
	return;
}

# The rows of all tables, and how many of them there are by a plan that reads an index.
# The slot is left out: it follows from the rest, and from the DefaultTTL of its writer.
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

# All that a copy has to keep of the database: a hash of texts, by one session.
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

# What is on disk, as a picture has it.
sub on_disk
{
	my ($node, $database) = @_;
	return $node->safe_psql($database, "SET TimeZone = 'UTC'; SET ttl_docs.show_expired = on; $rows") . "\n";
}

# Counts as a test for each part of the picture.  Only those named, if any are.
sub pictures_agree
{
	my ($got, $expected, $how, @parts) = @_;
	is($got->{$_}, $expected->{$_}, "$how: $_") for (@parts ? @parts : sort keys %$expected);
	return;
}

# The states that the purge shows for the collections, each once.
sub states
{
	my ($node, $database) = @_;
	return $node->safe_psql($database,
		q{SELECT string_agg(DISTINCT state, ',' ORDER BY state) FROM ttl_docs.stat_collections});
}

# Has the workers look at all collections of some databases: "not purged" is shown
# against something that is purged, twice, so that a visit that began before is over.
sub let_workers_look
{
	my ($node, @databases) = @_;
	for my $i (1, 2)
	{
		$node->safe_psql(
			$_, $on_disk_function . q{
			SELECT ttl_docs.create_collection('probe', 60);
			SET ttl_docs.clock_offset = '-2d';
			INSERT INTO probe (id, doc) VALUES ('a', '{}');
		}) for @databases;
		for my $database (@databases)
		{
			$node->poll_query_until($database, "SELECT on_disk('probe')", '0')
			  or die 'the workers do not work';
			$node->safe_psql($database, "SELECT ttl_docs.drop_collection('probe')");
		}
	}
	return;
}

# Uses a copy as its users would, who find collections with all that belongs to one.
# Then lets it be purged: what is live stays, and what is dead goes, but for the
# parent that a child keeps.
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
		"dead by age,x\ndead by age\nt", "$how: keys are free, new documents expire, late writes find nothing");
	my ($ret, $stdout, $stderr) = $node->psql($database,
		q{INSERT INTO parts VALUES (50, '{"ttl": 0}')});
	like($stderr, qr/invalid "ttl" in a document of "parts_1": 0/, "$how: a wrong ttl is refused");
	($ret, $stdout, $stderr) = $node->psql($database,
		q{INSERT INTO children VALUES (9, 'dead', '{}')});
	like($stderr, qr/violates foreign key constraint/, "$how: an expired parent gets no more children");
	is( $node->safe_psql(
			$database, q{
			SELECT ttl_docs.set_default_ttl('raised', -1);
			SELECT ttl_docs.set_default_ttl('on_again', 86400);
			SELECT string_agg(id, ',' ORDER BY id) FROM raised;
			SELECT string_agg(id, ',' ORDER BY id) FROM on_again;
		}),
		"\n\ndies soon,lives,lives, too\ndies later,never", "$how: a new DefaultTTL revives nothing");

	my $live = $node->safe_psql($database, $rows);
	$node->safe_psql($database,
		'SELECT ttl_docs.resume_purge(collection) FROM ttl_docs.collections; CALL ttl_docs.purge()');
	is( $node->safe_psql($database, "SET ttl_docs.show_expired = on; $rows") =~
		  s/^parents\|.*"id": "dead".*\n//mr,
		$live, "$how: the purge takes what is dead, and nothing else");
	return;
}

1;

# A collection in daily partitions: new partitions are covered, old ones are emptied by the purge and
# dropped by whoever has made them.
#
# 1. Partitions by hand.
# 2. pg_partman.
#
# Documents of old days are written with a clock that is days behind.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PurgeNode;
use Test::More;
use TtlServer;

my $node = start_node(q{
ttl_docs.purge_grace = 0
max_worker_processes = 16
});
my $documents = 4400;

# Returns statements that write documents of two kilobytes on a day that many days ago: 1,100 pages.
sub fill
{
	my ($table, $days, $count) = @_;
	$count //= $documents;
	return qq{
		SET ttl_docs.clock_offset = '-${days}d';
		INSERT INTO $table (day, doc) SELECT CURRENT_DATE - $days, jsonb_build_object('text', repeat('x', 1900))
			FROM generate_series(1, $count);
		RESET ttl_docs.clock_offset;
	};
}

# The tables of a partitioned collection that have documents on disk, with their number.
sub filled
{
	my ($table) = @_;
	return sql(qq{
		SET ttl_docs.show_expired = on;
		SELECT string_agg(name || ': ' || count, ', ' ORDER BY name)
		FROM (SELECT CURRENT_DATE - day || ' days' AS name, count(*) FROM $table GROUP BY day) AS days});
}

# The bytes on disk of the partition for the day that many days ago.
sub bytes
{
	my ($table, $days) = @_;
	return sql(qq{SELECT pg_relation_size(format('%s', ${table}_of($days)))});
}

configure('ttl_docs.purge = on');

# ---- By hand ----

sql(q{
	CREATE TABLE clicks (day date NOT NULL, id uuid NOT NULL DEFAULT gen_random_uuid(), doc jsonb, PRIMARY KEY (day, id))
		PARTITION BY RANGE (day);
	CREATE FUNCTION clicks_of(days int) RETURNS text LANGUAGE sql AS
		$$SELECT 'clicks_' || to_char(CURRENT_DATE - days, 'YYYYMMDD')$$;
	CREATE PROCEDURE add_day(days int) LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE format('CREATE TABLE %I PARTITION OF clicks FOR VALUES FROM (%L) TO (%L)', clicks_of(days),
			CURRENT_DATE - days, CURRENT_DATE - days + 1);
	END $$;
	CALL add_day(31);
	CALL add_day(5);
	SELECT ttl_docs.adopt('clicks', interval '30 days');
	CALL add_day(40);
	CREATE TABLE attached (LIKE clicks INCLUDING ALL);
} . fill('attached', 50));
sql(q{
	SELECT ttl_docs.pause_purge('clicks');
	CALL add_day(0);
} . fill('clicks', 31) . fill('clicks', 40) . fill('clicks', 5) . fill('clicks', 0, 10));
# a document of an old day that has its own ttl
sql(q{INSERT INTO clicks (day, doc) VALUES (CURRENT_DATE - 40, '{"ttl": 86400, "kept": true}')});
is(sql('SELECT count(*) FROM clicks'), $documents + 11, 'by hand: expired documents of all partitions are invisible');
sql(q{SELECT ttl_docs.resume_purge('clicks')});
until_is(qq{SELECT sum(n)::bigint FROM (SELECT on_disk('clicks') AS n) AS s}, $documents + 11,
	'by hand: the expired documents are purged');
is(filled('clicks'), "0 days: 10, 40 days: 1, 5 days: $documents", 'by hand: the live documents of each partition are there');
is(sql(stat_of('truncations, estimated_truncated > 0, purged', 'clicks')), "1|t|$documents",
	'by hand: the partition that has expired is truncated, and the other one deleted document by document');
is(bytes('clicks', 31), 0, 'by hand: the disk space of the partition is back');
is(sql('SELECT to_regclass(clicks_of(31)) IS NOT NULL'), 't', 'by hand: the partition itself stays');

# An attached partition with expired documents
sql(q{UPDATE attached SET _ts = clock_timestamp() - interval '50 days'; SET client_min_messages = error; DO $$ BEGIN EXECUTE format(
	'ALTER TABLE clicks ATTACH PARTITION attached FOR VALUES FROM (%L) TO (%L)', CURRENT_DATE - 50, CURRENT_DATE - 49); END $$});
is(sql(q{SELECT count(*) > 0 FROM clicks WHERE day = CURRENT_DATE - 50}), 'f', 'an attached partition: its expired documents are invisible');
until_is(q{SELECT on_disk('attached')}, 0, 'an attached partition is purged');

# Old partitions go, and the purge forgets them.
sql(q{DO $$ BEGIN EXECUTE format('DROP TABLE %I', clicks_of(31)); EXECUTE format('ALTER TABLE clicks DETACH PARTITION %I', clicks_of(40)); END $$});
is(sql('SELECT count(*) FROM clicks'), $documents + 10, 'by hand: dropped and detached partitions are gone');
is(sql(q{SELECT count(*) FROM ttl_docs.collections WHERE collection = clicks_of(40)::regclass}), 1,
	'by hand: a detached partition stays a collection');
until_state('clicks', 'idle', 'by hand: the purge of the others is idle');
is(sql(stat_of('last_error IS NULL', 'clicks')), 't', 'by hand: there was no error');

# ---- Waiting for the last document of a day ----

sql(q{
	CREATE TABLE waits (LIKE clicks INCLUDING DEFAULTS) PARTITION BY RANGE (day);
	ALTER TABLE waits DROP COLUMN _ts, DROP COLUMN _ttl, DROP COLUMN _slot;
	CREATE TABLE waits_day PARTITION OF waits FOR VALUES FROM ('-infinity') TO ('infinity');
	SELECT ttl_docs.adopt('waits', interval '30 days');
	SELECT ttl_docs.pause_purge('waits');
} . fill('waits', 31) . q{
	SET ttl_docs.clock_offset = '-29d';
	INSERT INTO waits (day, doc) VALUES (CURRENT_DATE, '{}');
});
configure(q{ttl_docs.purge_truncate_wait = '2d'});
ok(let_workers_visit($node, 'postgres'), 'workers wait for two days');
sql(q{SELECT ttl_docs.resume_purge('waits')});
until_state('waits', 'truncating', 'the last document expires in a day: the purge waits');
is(on_disk('waits'), $documents + 1, 'the last document expires in a day: nothing is deleted');
is(sql('SELECT count(*) FROM waits'), 1, 'the last document expires in a day: the others are invisible');
sql('DELETE FROM waits');
until_is(stat_of('truncations', 'waits'), 1, 'without the last document, the partition is truncated');

# ---- pg_partman ----

SKIP:
{
	skip 'pg_partman is not installed', 1 unless has_extension($node, 'pg_partman');
	my $version = sql(q{CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman;
		SELECT split_part(extversion, '.', 1) FROM pg_extension WHERE extname = 'pg_partman'});
	# since 5, partitions are always native and an interval has no name
	my $arguments = q{'public.visits', 'day', } . ($version < 5 ? q{'native', 'daily'} : q{'1 day'});
	sql(qq{
		CREATE TABLE visits (day timestamptz NOT NULL, id uuid NOT NULL DEFAULT gen_random_uuid(), doc jsonb)
			PARTITION BY RANGE (day);
		SELECT ttl_docs.adopt('visits', interval '3 days');
		SELECT partman.create_parent($arguments, p_premake => 2,
			p_start_partition => (CURRENT_DATE - 6)::text);
		UPDATE partman.part_config SET retention = '5 days', retention_keep_table = false,
			infinite_time_partitions = true WHERE parent_table = 'public.visits';
		SELECT ttl_docs.pause_purge('visits');
	});
	sql(fill('visits', $_, $_ == 4 ? $documents : 10)) for 1, 4, 6;
	my $oldest = q{SELECT count(*) FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE inhparent = 'visits'::regclass
		AND regexp_replace(relname, '[^0-9]', '', 'g') = to_char(CURRENT_DATE - 6, 'YYYYMMDD')};
	is(sql($oldest), 1, 'pg_partman has created partitions');
	is(sql('SELECT count(*) FROM visits'), 10, 'pg_partman: expired documents are invisible');
	sql(q{SELECT ttl_docs.resume_purge('visits')});
	until_is(q{SELECT on_disk('visits')}, 10, 'pg_partman: the expired documents are purged');
	is(sql(stat_of('truncations, purged', 'visits')), '1|10', 'pg_partman: the large partition is truncated');
	sql(q{SELECT partman.run_maintenance('public.visits')});
	is(sql($oldest), 0, 'pg_partman drops the oldest partition');
	is(sql('SELECT count(*) FROM visits'), 10, 'pg_partman: the live documents are there');

	# its next partitions are covered
	sql(q{UPDATE partman.part_config SET premake = 4 WHERE parent_table = 'public.visits'; SELECT partman.run_maintenance('public.visits')});
	sql(q{SET ttl_docs.clock_offset = '-10d'; INSERT INTO visits (day, doc) VALUES (CURRENT_DATE + 4, '{}')});
	is(sql('SELECT count(*) FROM visits'), 10, 'pg_partman: an expired document in a new partition is invisible');
	until_is(q{SELECT on_disk('visits')}, 10, 'pg_partman: a new partition is purged');
	is(sql(stat_of('last_error IS NULL', 'visits')), 't', 'pg_partman: there was no error');
}

nothing_crashed($node);
done_testing();

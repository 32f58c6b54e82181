# Documents that the purge cannot delete: it purges the others, counts the undeletable ones exactly,
# and retries them less and less often.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PurgeNode;
use Test::More;
use TtlServer;

plan skip_all => 'this PostgreSQL::Test has no background sessions'
  unless eval { require PostgreSQL::Test::BackgroundPsql; };

my $node = start_node('');
my $offset = 0;

# A sequence counts the attempts to delete a bad document: a rollback does not undo nextval().
sql(q{
	CREATE SEQUENCE attempts;
	CREATE TABLE trouble (is_on boolean);
	INSERT INTO trouble VALUES (true);
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF OLD.id LIKE 'bad%' AND (SELECT is_on FROM public.trouble) THEN
			PERFORM nextval('public.attempts');
			RAISE '% is refused', OLD.id;
		END IF;
		RETURN OLD;
	END $$;
});

sub attempts
{
	return sql('SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM attempts');
}

# Moves the clock of the server.  Steps of five minutes or more would count as a jump.
sub advance
{
	my ($seconds) = @_;
	$offset += $seconds;
	configure("ttl_docs.clock_offset = ${offset}s");
	until_is('SHOW ttl_docs.clock_offset', sql("SELECT set_config('ttl_docs.clock_offset', '${offset}s', true)"),
		"the clock is $offset s ahead");
	return;
}

# Writes an expired document behind the bad ones, and waits until a worker has purged it.  Then the
# worker has made a pass.
sub purge_another
{
	my ($table, $name) = @_;
	my $written = $offset - 600;
	sql("SET ttl_docs.clock_offset = $written; INSERT INTO $table (id, doc) VALUES ('another', '{}')");
	until_on_disk($table, 0, "$name: another document is purged", "WHERE id = 'another'");
	return;
}

# Three documents that cannot be deleted, and others.
sub create
{
	my ($table, $indexing) = @_;
	sql(qq{
		SELECT ttl_docs.create_collection('$table', 60, '$indexing');
		CREATE TRIGGER refuse BEFORE DELETE ON $table FOR EACH ROW EXECUTE FUNCTION refuse();
		SET ttl_docs.clock_offset = '-1h';
		INSERT INTO $table (id, doc)
			SELECT CASE WHEN i % 10 = 0 THEN 'bad ' ELSE 'good ' END || i, '{}' FROM generate_series(1, 30) AS i;
	});
	return;
}

# ---- A btree ----

create('docs', 'consistent');
configure('ttl_docs.purge = on');
until_on_disk('docs', 3, 'btree: the other documents are purged');
until_is(stat_of('undeletable', 'docs'), '3', 'btree: the undeletable documents are counted');
is(attempts(), '3', 'btree: each was tried once');
purge_another('docs', 'btree, at once');
is(attempts(), '3', 'btree, at once: undeletable documents are not retried');
is(sql(stat_of('undeletable', 'docs')), '3', 'btree, at once: undeletable documents still count');

# The delay doubles: 30 s, 60 s, 120 s, 240 s, 480 s.  It is up to an eighth longer, depending on
# the row.
my $expected = 3;
for my $step (1 .. 6)
{
	advance(280);
	purge_another('docs', "btree, step $step");
	# Within 280 s the first four delays end, but not the fifth.
	$expected += 3 if $step != 5;
	until_is('SELECT last_value FROM attempts', $expected, "btree, step $step: retried only if it is time");
	until_is(stat_of('undeletable', 'docs'), '3', "btree, step $step: undeletable documents count once");
}

# A document is committed among the bad ones, so the purge finds these again.  It does not retry
# them.
my $before = attempts();
sql(q{
	BEGIN;
	SELECT set_config('ttl_docs.clock_offset', floor(extract(epoch FROM
		(SELECT min(_ts) FROM docs) - clock_timestamp()))::int::text, true)
	  FROM set_config('ttl_docs.show_expired', 'on', true);
	INSERT INTO docs (id, doc) VALUES ('between', '{}');
	COMMIT;
});
until_on_disk('docs', 0, 'btree: a document among the undeletable ones is purged', "WHERE id = 'between'");
until_is(stat_of('undeletable', 'docs'), '3', 'btree: documents that the purge finds again count once');
is(attempts(), $before, 'btree: a document among the undeletable ones causes no retry');

# A document that another session has locked is revisited soon.  The undeletable documents before it
# are not.
sql("SET ttl_docs.clock_offset = " . ($offset - 500) . "; INSERT INTO docs (id, doc) VALUES ('locked', '{\"ttl\": 1000}')");
my $session = $node->background_psql('postgres');
$session->query_safe("BEGIN; SELECT id FROM docs WHERE id = 'locked' FOR UPDATE");
sql("UPDATE trouble SET is_on = true");
advance(250);
advance(280);
until_state('docs', 'waiting', 'btree: a locked document is left');
$before = attempts();
let_workers_visit($node, 'postgres');
is(attempts(), $before, 'btree: a locked document causes no retry of the undeletable ones');
$session->query_safe('COMMIT');
until_on_disk('docs', 0, 'btree: the document is purged when it is no longer locked', "WHERE id = 'locked'");
is(attempts(), $before, 'btree: its purge causes no retry, either');

# The whole table is locked when a document expires.
sql("SET ttl_docs.clock_offset = $offset; INSERT INTO docs (id, doc) VALUES ('soon', '{\"ttl\": 100}')");
$session->query_safe('BEGIN; LOCK TABLE docs IN SHARE MODE');
advance(150);
until_state('docs', 'waiting', 'btree: the table is locked');
$session->query_safe('COMMIT');
$session->quit;
until_on_disk('docs', 0, 'btree: the document is purged soon after the table was locked', "WHERE id = 'soon'");

# CALL purge() deletes documents that a worker could not delete.
sql('UPDATE trouble SET is_on = false');
sql("CALL ttl_docs.purge('docs')");
is(sql(stat_of('undeletable', 'docs')), '0', 'btree: CALL purge() deletes them');
purge_another('docs', 'btree, after CALL purge()');
until_is(stat_of('undeletable', 'docs'), '0', 'btree: the workers count again after CALL purge()');

# A later visit purges undeletable documents when the cause is gone.
sql('UPDATE trouble SET is_on = true; DROP TABLE docs');
create('docs', 'consistent');
until_is(stat_of('undeletable', 'docs'), '3', 'btree, again: the undeletable documents are counted');
sql('UPDATE trouble SET is_on = false');
advance(250);
until_on_disk('docs', 0, 'btree: a later visit purges the documents when the cause is gone');
until_is(stat_of('undeletable', 'docs'), '0', 'btree: no document is undeletable any more');

# While the purge is held, the undeletable documents do not hide others that expire.
sql('UPDATE trouble SET is_on = true');
create('held', 'consistent');
until_is(stat_of('undeletable', 'held'), '3', 'held: the undeletable documents are counted');
sql("SELECT ttl_docs.pause_purge('held')");
until_state('held', 'paused', 'held: the purge is paused');
advance(100);
sql("SET ttl_docs.clock_offset = " . ($offset - 600) . "; INSERT INTO held (id, doc) SELECT i, '{}' FROM generate_series(1, 5) AS i");
advance(100);
until_is(stat_of('estimated_backlog', 'held'), '5', 'held: the other expired documents are counted');
sql('DROP TABLE held');

# ---- BRIN ----

# Each pass over a lazy collection finds the undeletable documents again.
sql('UPDATE trouble SET is_on = true');
create('lazy_docs', 'lazy');
until_on_disk('lazy_docs', 3, 'BRIN: the other documents are purged');
until_is(stat_of('undeletable', 'lazy_docs'), '3', 'BRIN: the undeletable documents are counted');
$before = attempts();
purge_another('lazy_docs', 'BRIN, at once');
is(attempts(), $before, 'BRIN, at once: the undeletable documents are not retried');
advance(100);
purge_another('lazy_docs', 'BRIN, later');
until_is('SELECT last_value FROM attempts', $before + 3, 'BRIN, later: the undeletable documents are retried');
until_is(stat_of('undeletable', 'lazy_docs'), '3', 'BRIN, later: the undeletable documents count once');
sql('UPDATE trouble SET is_on = false');
advance(100);
until_on_disk('lazy_docs', 0, 'BRIN: the documents are purged when the cause is gone');

# A document whose delete takes longer than a visit does not stop the others of its block.
sql(q{
	CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF OLD.id = '3' THEN PERFORM pg_sleep(600); END IF;
		RETURN OLD;
	END $$;
	SELECT ttl_docs.create_collection('lazy_slow', 60, 'lazy');
	CREATE TRIGGER dawdle BEFORE DELETE ON lazy_slow FOR EACH ROW EXECUTE FUNCTION dawdle();
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO lazy_slow (id, doc) SELECT i, '{}' FROM generate_series(1, 100) AS i;
});
until_on_disk('lazy_slow', 1, 'BRIN: a slow document does not stop the others');
until_is(stat_of('undeletable', 'lazy_slow'), '1', 'BRIN: a slow document is undeletable');
sql('DROP TABLE lazy_slow');

# ---- More than the quarantine has room for ----

sql(q{
	SELECT ttl_docs.create_collection('many', 60);
	CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		RETURN CASE WHEN OLD.id NOT LIKE 'bad%' OR NOT (SELECT is_on FROM public.trouble) THEN OLD END;
	END $$;
	CREATE TRIGGER keep BEFORE DELETE ON many FOR EACH ROW EXECUTE FUNCTION keep();
	UPDATE trouble SET is_on = true;
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO many (id, doc) SELECT 'bad ' || i, '{}' FROM generate_series(1, 10050) AS i;
});
until_is(stat_of('undeletable', 'many'), '10050', 'no room: all undeletable documents are counted');
purge_another('many', 'no room');
is(sql(stat_of('undeletable', 'many')), '10050', 'no room: undeletable documents still count');
advance(100);
until_is(stat_of('undeletable', 'many'), '10050', 'no room, later: undeletable documents count once');
sql("UPDATE trouble SET is_on = false; SELECT ttl_docs.resume_purge('many')");
until_on_disk('many', 0, 'no room: the documents are purged when the cause is gone');
until_is(stat_of('undeletable', 'many'), '0', 'no room: no document is undeletable any more');

no_assertion_failed($node);
$node->stop;

done_testing();

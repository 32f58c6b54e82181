# Citus tables as collections: reads and writes.
#
# Every node has shards, so that each kind of query also runs on shards of its own node.  Documents expire
# because the test moves the clock of all nodes.

use strict;
use warnings;

use lib 'test/perl';
use CitusCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

skip_without_citus();
my $cluster = CitusCluster->new(coordinator_has_shards => 1);

# Two collections with colocated shards: one is created and then distributed, the other is distributed
# and then adopted.
$cluster->sql(
	q{
	SELECT ttl_docs.create_collection('sessions', 6000);
	SELECT create_distributed_table('sessions', 'id');
	CREATE TABLE visits (id text PRIMARY KEY, session text, doc jsonb);
	SELECT create_distributed_table('visits', 'id', colocate_with => 'sessions');
	SELECT ttl_docs.adopt('visits', 6000);
	CREATE TABLE kinds (kind int PRIMARY KEY, name text);
	SELECT create_reference_table('kinds');
	INSERT INTO kinds VALUES (0, 'even'), (1, 'odd');
	CREATE TABLE notes (id text PRIMARY KEY);
	INSERT INTO notes SELECT i FROM generate_series(1, 40) AS i;
	CREATE VIEW odd_sessions AS SELECT id, doc FROM sessions WHERE (doc ->> 'n')::int % 2 = 1;

	-- 16 to 20 live longer
	INSERT INTO sessions (id, doc)
		SELECT i, jsonb_build_object('n', i, 'ttl', CASE WHEN i <= 15 THEN 6000 ELSE 100000 END) FROM generate_series(1, 20) AS i;
	INSERT INTO visits (id, session, doc)
		SELECT id, (id::int - 5)::text, doc FROM sessions;
});
$cluster->set_clock(10000);
$cluster->sql(
	q{
	INSERT INTO sessions (id, doc) SELECT i, jsonb_build_object('n', i) FROM generate_series(21, 30) AS i;
	INSERT INTO visits (id, session, doc) SELECT id, (id::int - 5)::text, doc FROM sessions WHERE id::int BETWEEN 21 AND 29;
});
is($cluster->on_disk($_), $_ eq 'visits' ? 29 : 30, "the shards of $_ have the expired documents, too")
  for qw(sessions visits);
is($cluster->sql(q{SELECT count(DISTINCT nodename || nodeport) FROM citus_shards WHERE table_name = 'sessions'::regclass}),
	3, 'every node has shards');

# ---- Reads ----

# Live are the sessions 16 to 30, and the visits 16 to 29.  Visit 16 is of session 11, which has expired.
my @reads = (
	[ 'an expired document by its key' => q{SELECT count(*) FROM sessions WHERE id = '1'}, 0 ],
	[ 'a live document by its key' => q{SELECT id FROM sessions WHERE id = '20'}, 20 ],
	[ 'several keys' => q{SELECT count(*) FROM sessions WHERE id IN ('1', '2', '20', '30')}, 2 ],
	[ 'all shards' => 'SELECT count(*) FROM sessions', 15 ],
	[ 'aggregates' => q{SELECT min(id::int), max(id::int), sum((doc ->> 'n')::int) FROM sessions}, '16|30|345' ],
	[ 'GROUP BY' => q{SELECT (doc ->> 'n')::int % 2, count(*) FROM sessions GROUP BY 1 ORDER BY 1}, "0|8\n1|7" ],
	[ 'GROUP BY the key' => 'SELECT count(*) FROM (SELECT id FROM sessions GROUP BY id HAVING count(*) > 0) AS s', 15 ],
	[ 'DISTINCT' => 'SELECT count(DISTINCT id) FROM sessions', 15 ],
	[ 'a window' => 'SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY id) AS n FROM sessions) AS s', 15 ],
	[ 'ORDER BY, LIMIT' => 'SELECT id FROM sessions ORDER BY id::int LIMIT 2', "16\n17" ],
	[ 'UNION ALL' => 'SELECT count(*) FROM (SELECT id FROM sessions UNION ALL SELECT id FROM visits) AS u', 29 ],
	[ 'EXCEPT' => 'SELECT id FROM sessions EXCEPT SELECT id FROM visits', 30 ],
	[ 'a colocated join' => 'SELECT count(*) FROM sessions JOIN visits USING (id)', 14 ],
	[ 'a left join' => 'SELECT count(*), count(v.id) FROM sessions AS s LEFT JOIN visits AS v USING (id)', '15|14' ],
	[ 'an anti-join' => 'SELECT id FROM sessions AS s WHERE NOT EXISTS (SELECT FROM visits AS v WHERE v.id = s.id)', 30 ],
	[ 'a repartition join' => q{SET citus.enable_repartition_joins = on; SELECT count(*) FROM sessions AS s JOIN visits AS v ON v.session = s.id}, 9 ],
	[ 'a reference table' => q{SELECT name, count(*) FROM sessions JOIN kinds ON (doc ->> 'n')::int % 2 = kind GROUP BY 1 ORDER BY 1}, "even|8\nodd|7" ],
	[ 'a subquery with LIMIT' => 'SELECT count(*) FROM sessions WHERE id IN (SELECT id FROM visits ORDER BY id::int LIMIT 3)', 3 ],
	[ 'CTE' => 'WITH v AS MATERIALIZED (SELECT id FROM visits LIMIT 100) SELECT count(*) FROM sessions JOIN v USING (id)', 14 ],
	[ 'a view' => 'SELECT count(*) FROM odd_sessions', 7 ],
	[ 'a cursor' => "BEGIN; DECLARE c CURSOR FOR SELECT id FROM sessions ORDER BY id::int; FETCH 2 FROM c; MOVE ALL FROM c; COMMIT", "16\n17" ],
	[ 'COPY TO' => q{COPY (SELECT id FROM sessions ORDER BY id::int LIMIT 2) TO STDOUT}, "16\n17" ],
	[ 'FOR UPDATE' => q{SELECT id FROM sessions WHERE id = '1' FOR UPDATE}, '' ],
	[ 'task assignment' => q{SET citus.task_assignment_policy = 'round-robin'; SELECT count(*) FROM sessions}, 15 ],
	[ 'a block' => q{BEGIN; SELECT count(*) FROM sessions; SELECT count(*) FROM sessions WHERE id = '1'; COMMIT}, "15\n0" ],
	[ 'no local execution' => q{SET citus.enable_local_execution = off; SELECT count(*) FROM sessions WHERE id::int <= 20}, 5 ],
	[ 'no fast path' => q{SET citus.enable_fast_path_router_planner = off; SELECT count(*) FROM sessions WHERE id = '1'}, 0 ],
);
for my $node ($cluster->nodes)
{
	my $name = $node->name =~ s/citus_//r;
	for my $read (@reads)
	{
		my ($what, $sql, $expected) = @$read;
		is(CitusCluster::quiet($node, $sql), $expected, "$name: $what");
	}
	# One of the keys is in a shard of this node, where Citus takes its shortest path.
	is( CitusCluster::quiet($node, join ';', map { "SELECT id FROM sessions WHERE id = '$_'" } 1 .. 30),
		join("\n", 16 .. 30),
		"$name: each document by its key");
	is( CitusCluster::quiet(
			$node,
			'PREPARE one (text) AS SELECT id FROM sessions WHERE id = $1; PREPARE every AS SELECT count(*) FROM sessions;'
			  . q{PREPARE constant AS SELECT count(*) FROM sessions WHERE id = '1';}
			  . join(';', map { "EXECUTE one ('$_')" } 1 .. 30)
			  . ';EXECUTE every' x 8
			  . ';EXECUTE constant' x 8),
		join("\n", 16 .. 30, (15) x 8, (0) x 8),
		"$name: prepared statements");
}
is($cluster->sql('SELECT count(*) FROM sessions JOIN notes USING (id)'), 15, 'a join with a local table');
is($cluster->sql('SELECT count(*) FROM notes WHERE id NOT IN (SELECT id FROM sessions)'),
	25, 'a local table and a subquery');
is( $cluster->sql(
		'CREATE MATERIALIZED VIEW copied AS SELECT id FROM sessions; SELECT count(*) FROM copied'),
	15, 'a materialized view');
like($cluster->sql('COPY sessions TO STDOUT'), qr/\A(?:\d+\t.*\n?){15}\z/, 'COPY of a table');

# Statements that a session has prepared use the clock of each execution.
my $session = $cluster->coordinator->background_psql('postgres');
$session->query(
	q{PREPARE one (text) AS SELECT count(*) FROM sessions WHERE id = $1;
	  PREPARE every AS SELECT count(*) FROM sessions;
	  CREATE FUNCTION count_sessions() RETURNS bigint LANGUAGE plpgsql AS
		'BEGIN RETURN (SELECT count(*) FROM sessions); END'});
my $executions = q{EXECUTE one ('21'); EXECUTE one ('22'); EXECUTE one ('23'); EXECUTE every; SELECT count_sessions()};
$session->query($executions) for 1 .. 7;
is($session->query($executions), "1\n1\n1\n15\n15", 'prepared statements, before documents expire');
$cluster->set_clock(20000);
is($session->query($executions), "0\n0\n0\n5\n5", 'prepared statements see that documents expire');
$session->quit;
$cluster->set_clock(10000);

# ---- Writes ----

sub is_sql
{
	my ($sql, $expected, $name) = @_;
	is($cluster->sql($sql), $expected, $name);
	return;
}

my $recent = q{_ts BETWEEN ttl_docs.now() - interval '1 h' AND ttl_docs.now() + interval '1 h'};
for my $node ($cluster->nodes)
{
	my $name = $node->name =~ s/citus_//r;
	is( CitusCluster::quiet(
			$node, qq{
			INSERT INTO sessions (id, doc, _ts, _ttl, _slot) VALUES ('w1', '{"ttl": 5}', '2000-01-01', 7, 7)
				RETURNING id, _ttl, _ts > '2001-01-01', _slot > 7;
			INSERT INTO sessions (id, doc, _ts) SELECT 'w' || i, '{}', 'infinity' FROM generate_series(2, 4) AS i;
			UPDATE sessions SET doc = '{"ttl": -1}', _ts = '2000-01-01' WHERE id = 'w3';
			UPDATE sessions SET _ts = '2000-01-01', _ttl = 1 WHERE id = 'w4';
			SELECT id, $recent, _ttl, _slot IS NOT NULL FROM sessions WHERE id LIKE 'w%' ORDER BY id;
			DELETE FROM sessions WHERE id LIKE 'w%';
			SELECT count(*) FROM sessions;
		}),
		"w1|5|t|t\nw1|t|5|t\nw2|t||t\nw3|t|-1|f\nw4|t||t\n15",
		"$name: the server stamps documents, not the client");
	is( CitusCluster::quiet(
			$node, q{
			UPDATE sessions SET doc = '{}' WHERE id = '1' RETURNING id;
			WITH u AS (UPDATE sessions SET doc = doc || '{"seen": true}' WHERE id::int <= 15 RETURNING id) SELECT count(*) FROM u;
			DELETE FROM sessions WHERE id = '2' RETURNING id;
			WITH d AS (DELETE FROM sessions WHERE id::int <= 15 RETURNING id) SELECT count(*) FROM d;
		}),
		"0\n0", "$name: UPDATE and DELETE find no expired documents");
	for my $sql (
		q{INSERT INTO sessions (id, doc) VALUES ('bad', '{"ttl": "soon"}')},
		q{INSERT INTO sessions (id, doc) SELECT 'bad' || i, '{"ttl": 0}' FROM generate_series(1, 5) AS i},
		q{UPDATE sessions SET doc = '{"ttl": 1.5}' WHERE id = '20'},
		q{COPY sessions (id, doc) FROM PROGRAM 'printf "bad\t{\"ttl\": -7}\n"'})
	{
		my ($ret, $stdout, $stderr) = $node->psql('postgres', $sql);
		like($stderr, qr/ERROR:.*ttl/, "$name: an invalid ttl is refused: $sql");
	}
}
is($cluster->on_disk('sessions'), 30, 'no expired document is lost');

# The keys of expired documents are free: 1 to 15.
is_sql(
	q{
	INSERT INTO sessions (id, doc) VALUES ('1', '{"new": 1}');
	INSERT INTO sessions (id, doc) VALUES ('2', '{"new": 2}') ON CONFLICT (id) DO NOTHING;
	INSERT INTO sessions (id, doc) VALUES ('3', '{"new": 3}') ON CONFLICT (id) DO UPDATE SET doc = '{"updated": true}';
	COPY sessions (id, doc) FROM PROGRAM 'printf "4\t{\"new\": 4}\n5\t{\"new\": 5}\n"';
	INSERT INTO sessions (id, doc) SELECT i, jsonb_build_object('new', i) FROM generate_series(6, 7) AS i;
	SELECT id, doc FROM sessions WHERE id::int < 16 ORDER BY id::int;
}, join("\n", map { qq{$_|{"new": $_}} } 1 .. 7), 'keys of expired documents can be used again');
is($cluster->on_disk('sessions'), 30, 'new documents replace the expired ones');
is_sql(
	q{
	INSERT INTO sessions (id, doc) VALUES ('1', '{}') ON CONFLICT (id) DO NOTHING;
	INSERT INTO sessions (id, doc) VALUES ('2', '{}') ON CONFLICT (id) DO UPDATE SET doc = '{"updated": true}';
	SELECT id, doc FROM sessions WHERE id IN ('1', '2') ORDER BY 1;
}, qq{1|{"new": 1}\n2|{"updated": true}}, 'an upsert finds live documents');
like($cluster->error(q{INSERT INTO sessions (id, doc) VALUES ('1', '{}')}), qr/duplicate key/,
	'keys of live documents are not free');

# INSERT ... SELECT: sent to the shards, repartitioned, and through the coordinator
$cluster->sql(
	q{
	SELECT ttl_docs.create_collection('copies', 100000);
	SELECT create_distributed_table('copies', 'id', colocate_with => 'sessions');
});
my $source = 'SELECT %s, doc FROM sessions WHERE id::int > 7';
my @copies = (
	[ 'sent to the shards', sprintf($source, 'id'), '\A(?!.*method:)' ],
	[ 'repartitioned', sprintf($source, q{id || 'x'}), 'method: repartition' ],
	[ 'through this node', sprintf($source, 'id') . ' ORDER BY id LIMIT 100', 'method: pull to coordinator' ]);
for my $copy (@copies)
{
	my ($what, $select, $plan) = @$copy;
	like($cluster->sql("EXPLAIN INSERT INTO copies (id, doc) $select"), qr/$plan/s, "INSERT ... SELECT can be $what");
	is_sql("INSERT INTO copies (id, doc) $select; SELECT count(*), bool_and($recent) FROM copies; DELETE FROM copies",
		'15|t', "INSERT ... SELECT copies the live documents, $what");
}

# MERGE: sessions 16 and 17 are live, session 8 has expired.  Visit 8 is new, and visits 9 to 15 have
# expired.
is_sql(
	q{
	INSERT INTO visits (id, doc) VALUES ('8', '{"new": 8}');
	MERGE INTO sessions AS s USING visits AS v ON s.id = v.id
		WHEN MATCHED AND v.id = '16' THEN UPDATE SET doc = '{"merged": true}'
		WHEN MATCHED AND v.id = '17' THEN DELETE
		WHEN NOT MATCHED THEN INSERT (id, doc) VALUES (v.id, v.doc);
	SELECT count(*) FROM sessions WHERE id::int > 7;
	SELECT doc FROM sessions WHERE id IN ('8', '16') ORDER BY id::int;
}, qq(15\n{"new": 8}\n{"merged": true}), 'MERGE finds live documents only, and can use the keys of expired ones again');

# ---- Foreign keys ----

# Parents 1 to 3 expire before the clock moves to 20000; children live longer.
$cluster->sql(
	q{
	SELECT ttl_docs.create_collection('parents', 6000);
	SELECT create_distributed_table('parents', 'id', colocate_with => 'sessions');
	CREATE TABLE children (parent text, id int, doc jsonb, PRIMARY KEY (parent, id));
	SELECT create_distributed_table('children', 'parent', colocate_with => 'parents');
	ALTER TABLE children ADD FOREIGN KEY (parent) REFERENCES parents ON DELETE CASCADE;
	SELECT ttl_docs.adopt('children', 100000);
	INSERT INTO parents (id, doc) SELECT i, '{}' FROM generate_series(1, 3) AS i;
	INSERT INTO children (parent, id, doc) SELECT i, i, '{}' FROM generate_series(1, 3) AS i;
});
$cluster->set_clock(20000);
like(
	$cluster->error(q{INSERT INTO children (parent, id, doc) VALUES ('1', 7, '{}')}),
	qr/violates foreign key constraint/,
	'an expired parent gets no child');
is_sql('SELECT count(*) FROM parents; SELECT count(*) FROM children', "0\n3", 'children of expired parents stay');
is_sql(
	q{
	INSERT INTO parents (id, doc) VALUES ('1', '{}');
	SELECT count(*) FROM children WHERE parent = '1';
	INSERT INTO children (parent, id, doc) VALUES ('1', 7, '{}');
	SELECT count(*) FROM children;
}, "0\n3", 'a new parent with the key of an expired one begins without children');
$cluster->stop;

done_testing();

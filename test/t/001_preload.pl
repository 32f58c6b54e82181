# A server that does not preload the library refuses to work with collections.  Otherwise its sessions
# would show expired documents.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

my $hint = qr/shared_preload_libraries = 'ttl_docs'/;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;

my ($ret, $stdout, $stderr) =
  $node->psql('postgres', 'CREATE EXTENSION ttl_docs');
isnt($ret, 0, 'CREATE EXTENSION fails if the library is not preloaded');
like($stderr, qr/must be loaded via "shared_preload_libraries"/, 'the error gives the reason');
like($stderr, $hint, 'the hint has the line to add');
like($stderr, qr/'citus, ttl_docs'/, 'the hint shows the order with Citus, which must come first');
is( $node->safe_psql(
		'postgres', "SELECT count(*) FROM pg_namespace WHERE nspname = 'ttl_docs'"),
	'0',
	'the failed CREATE EXTENSION leaves nothing behind');

$node->append_conf('postgresql.conf', "shared_preload_libraries = 'ttl_docs'");
$node->restart;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION ttl_docs;
	SELECT ttl_docs.create_collection('sessions', 60);
	INSERT INTO sessions (id, doc) VALUES ('a', '{}');
});

# A dump is restored on a server without the library.  The collections become plain tables, so
# expired documents are visible.  The hint warns about this.
$node->safe_psql(
	'postgres', q{
	SET ttl_docs.clock_offset = -100;
	INSERT INTO sessions (id, doc) VALUES ('expired', '{}');
});
is($node->safe_psql('postgres', 'SELECT id FROM sessions'), 'a', 'a document has expired');
$node->command_ok([ 'pg_dump', '-Fc', '-f', $node->basedir . '/a.dump', $node->connstr('postgres') ], 'pg_dump succeeds');
my $other = PostgreSQL::Test::Cluster->new('other');
$other->init;
$other->start;
$other->command_fails_like(
	[ 'pg_restore', '-d', $other->connstr('postgres'), $node->basedir . '/a.dump' ],
	qr/HINT: .*'ttl_docs'.* Do this before you restore a dump: .* becomes a plain table, and its expired documents are visible\./,
	'a restore without the library warns of expired documents');
is($other->safe_psql('postgres', 'SELECT id FROM sessions ORDER BY id'),
	"a\nexpired", 'after a restore without the library, expired documents are visible');
$other->stop;
$node->safe_psql('postgres', q{CALL ttl_docs.purge()});

# The line is removed again.
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
for my $call (
	"SELECT ttl_docs.create_collection('more')",
	"SELECT ttl_docs.drop_collection('sessions')",
	"SELECT ttl_docs.adopt('sessions')",
	"SELECT ttl_docs.release('sessions')",
	"SELECT ttl_docs.set_default_ttl('sessions', 1)",
	"SELECT ttl_docs.get_default_ttl('sessions')",
	"SELECT ttl_docs.set_indexing('sessions', 'lazy')",
	"SELECT * FROM ttl_docs.preview('sessions', 1)",
	"SELECT ttl_docs.now()",
	"SELECT ttl_docs.expires_at('sessions', _ts, _ttl) FROM sessions",
	"SELECT ttl_docs.is_expired('sessions', _ts, _ttl) FROM sessions",
	"SELECT ttl_docs_internal.is_live(_ts, _ttl, 'sessions') FROM sessions",
	"SELECT ttl_docs_internal.is_live_parent(_ts, _ttl, 'sessions') FROM sessions",
	"SELECT ttl_docs_internal.require_live(_ts, _ttl, 'sessions') FROM sessions",
	"SELECT ttl_docs.purging()",
	"INSERT INTO sessions (id, doc) VALUES ('b', '{}')",
	"UPDATE sessions SET doc = '{}'",
	"DELETE FROM sessions")
{
	like(error_of($node, 'postgres', $call), $hint, "refused, with the line to add: $call");
}

# The view of collections and LOAD work, and report that the library is not loaded, even if the
# configuration has settings of ttl_docs.
reload_with($node, 'ttl_docs.purge = on');
my $collections = q{SELECT collection, mode, hint FROM ttl_docs.collections};
my $not_loaded = qr/^sessions\|on\|The library is not loaded, so expired documents are visible.*shared_preload_libraries/;
like($node->safe_psql('postgres', $collections), $not_loaded, 'the view of collections has a hint');
$node->safe_psql('postgres', 'CREATE ROLE reader');
like($node->safe_psql('postgres', "SET ROLE reader; $collections"), $not_loaded, 'ordinary users see the hint, too');
($ret, $stdout, $stderr) = $node->psql('postgres', "LOAD 'ttl_docs'; $collections");
like($stderr, qr/WARNING:  ttl_docs has no effect.*HINT:  Add ttl_docs to shared_preload_libraries/s, 'LOAD warns that ttl_docs has no effect');
like($stdout, $not_loaded, 'the view has the hint after LOAD, too');

# With the library preloaded again, everything works.
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'ttl_docs'");
$node->restart;
is($node->safe_psql('postgres', 'SELECT id FROM sessions'),
	'a', 'the collection works again');
is($node->safe_psql('postgres', $collections), 'sessions|on|', 'with the library, the view has no hint');
is($node->safe_psql('postgres', "SET ROLE reader; $collections"), 'sessions|on|', 'with the library, ordinary users see no hint');

# Another library has a hook for utility commands.  The hook sees a COPY in either order of the
# libraries, but COPY inserts many rows at a time only if ttl_docs comes before the other library.
if (has_extension($node, 'pg_stat_statements'))
{
	for my $order ([ 'ttl_docs, pg_stat_statements', 'no' ], [ 'pg_stat_statements, ttl_docs', 'every' ])
	{
		my ($libraries, $row) = @$order;
		$node->append_conf('postgresql.conf', "shared_preload_libraries = '$libraries'");
		$node->restart;
		is( $node->safe_psql(
				'postgres', q{
				CREATE EXTENSION IF NOT EXISTS pg_stat_statements;
				SET client_min_messages = error;
				SET track_functions = 'all';
				TRUNCATE sessions;
				BEGIN;
				COPY sessions (id, doc) FROM PROGRAM 'printf "a\t{}\nb\t{}\n"';
				SELECT count(*) FROM sessions;
				SELECT sum(rows) FROM pg_stat_statements WHERE query LIKE 'COPY sessions%';
				SELECT coalesce(pg_stat_get_xact_function_calls('ttl_docs_internal.write_document'::regproc), 0);
				COMMIT;
				SELECT 1 FROM pg_stat_statements_reset();
			}),
			join("\n", 2, 2, $row eq 'no' ? 0 : 2, 1),
			"$libraries: pg_stat_statements counts COPY, and the trigger fires for $row row");
	}
}

# ---- A trigger that is disabled while the library is not loaded ----

# Without the library the trigger raises an error, so somebody disables it.  Then ENABLE TRIGGER ALL enables it, but not
# for replication, as in a script of pg_restore.
sub restart_with_libraries
{
	my ($libraries) = @_;
	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$libraries'");
	$node->restart;
	return;
}

restart_with_libraries('ttl_docs');
$node->safe_psql(
	'postgres', q{
	SELECT ttl_docs.create_collection('single', 60);
	CREATE TABLE parts (id text, doc jsonb) PARTITION BY LIST (id);
	CREATE TABLE part PARTITION OF parts DEFAULT;
	SELECT ttl_docs.adopt('parts', 60);
});
restart_with_libraries('');
my @tables = ([ 'single', 'single' ], [ 'parts', 'part' ]);
for my $case (@tables)
{
	my ($collection, $table) = @$case;
	$node->safe_psql(
		'postgres', qq{
		ALTER TABLE $table DISABLE TRIGGER ALL;
		INSERT INTO $table (id, doc, _slot) VALUES ('unseen', '{"ttl": 86400}', 0);
		ALTER TABLE $table ENABLE TRIGGER ALL;
	});
}
restart_with_libraries('ttl_docs');
for my $case (@tables)
{
	my ($collection, $table) = @$case;
	for my $write ("INSERT INTO $table (id, doc) VALUES ('b', '{}')", "COPY $table (id, doc) FROM PROGRAM 'true'")
	{
		like(error_of($node, 'postgres', $write), qr/has lost its trigger.*disabled while.*SELECT ttl_docs\.adopt\('public\.$collection'\)/s,
			"refused: $write");
	}
	$node->safe_psql('postgres', "SELECT ttl_docs.adopt('$collection'); INSERT INTO $table (id, doc) VALUES ('b', '{}')");
	is($node->safe_psql('postgres', "SELECT tgenabled FROM pg_trigger WHERE tgname = 'zzz_ttl_docs' AND tgrelid = '$table'::regclass"),
		'A', "$table: adopt() enables the trigger");
	is($node->safe_psql('postgres', "SELECT _ttl, _slot > 0 FROM $table WHERE id = 'unseen'"), '86400|t',
		"$table: adopt() computes the stamps of the rows that the trigger has not seen");
}

$node->stop;

done_testing();

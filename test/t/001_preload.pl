# A server that does not preload the library must not work with collections:
# its sessions would show expired documents.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $hint = qr/shared_preload_libraries = 'ttl_docs'/;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;

my ($ret, $stdout, $stderr) =
  $node->psql('postgres', 'CREATE EXTENSION ttl_docs');
isnt($ret, 0, 'CREATE EXTENSION is refused without the preloaded library');
like($stderr, qr/must be loaded by shared_preload_libraries/, 'and says why');
like($stderr, $hint, 'and gives the line to add');
like($stderr, qr/'citus, ttl_docs'/, 'and the order beside Citus, which insists on being first');
is( $node->safe_psql(
		'postgres', "SELECT count(*) FROM pg_namespace WHERE nspname = 'ttl_docs'"),
	'0',
	'nothing is left of it');

$node->append_conf('postgresql.conf', "shared_preload_libraries = 'ttl_docs'");
$node->restart;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION ttl_docs;
	SELECT ttl_docs.create_collection('sessions', 60);
	INSERT INTO sessions (id, doc) VALUES ('a', '{}');
});

# A dump that is restored on a server without the library: its tables are plain, and show
# what has expired.  The first hint says so.
$node->safe_psql(
	'postgres', q{
	SET ttl_docs.clock_offset = -100;
	INSERT INTO sessions (id, doc) VALUES ('expired', '{}');
});
is($node->safe_psql('postgres', 'SELECT id FROM sessions'), 'a', 'a document has expired');
$node->command_ok([ 'pg_dump', '-Fc', '-f', $node->basedir . '/a.dump', $node->connstr('postgres') ], 'a dump');
my $other = PostgreSQL::Test::Cluster->new('other');
$other->init;
$other->start;
$other->command_fails_like(
	[ 'pg_restore', '-d', $other->connstr('postgres'), $node->basedir . '/a.dump' ],
	qr/HINT: .*'ttl_docs'.* Do this before you restore a dump: .* plain tables, whose expired documents show\./,
	'a restore without the library says what will show');
is($other->safe_psql('postgres', 'SELECT id FROM sessions ORDER BY id'),
	"a\nexpired", 'and so it is');
$other->stop;
$node->safe_psql('postgres', q{CALL ttl_docs.purge()});

# Somebody takes the line out again.
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
	($ret, $stdout, $stderr) = $node->psql('postgres', $call);
	like($stderr, $hint, "refused with the line to add: $call");
}

# What works says so: the view, also to users, and LOAD.  Settings that were left in the
# configuration do not make it believe that the library is there.
$node->append_conf('postgresql.conf', "ttl_docs.purge = on");
$node->reload;
my $collections = q{SELECT collection, mode, hint FROM ttl_docs.collections};
my $not_loaded = qr/^sessions\|on\|The library is not loaded, so expired documents are visible.*shared_preload_libraries/;
like($node->safe_psql('postgres', $collections), $not_loaded, 'the view of collections has a hint');
$node->safe_psql('postgres', 'CREATE ROLE reader');
like($node->safe_psql('postgres', "SET ROLE reader; $collections"), $not_loaded, 'also for ordinary users');
($ret, $stdout, $stderr) = $node->psql('postgres', "LOAD 'ttl_docs'; $collections");
like($stderr, qr/WARNING:  ttl_docs has no effect.*HINT:  Add ttl_docs to shared_preload_libraries/s, 'LOAD warns');
like($stdout, $not_loaded, 'and changes nothing');

# And back: nothing was lost.
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'ttl_docs'");
$node->restart;
is($node->safe_psql('postgres', 'SELECT id FROM sessions'),
	'a', 'the collection works again');
is($node->safe_psql('postgres', $collections), 'sessions|on|', 'the hint is gone');
is($node->safe_psql('postgres', "SET ROLE reader; $collections"), 'sessions|on|', 'also for ordinary users');

# Beside a library that takes part in commands: whatever the order, it is told of a
# COPY; but many rows at a time are copied only if ttl_docs comes before that library.
if ($node->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_stat_statements'"))
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
			"$libraries: COPY is counted, and the trigger fires for $row row");
	}
}
$node->stop;

done_testing();

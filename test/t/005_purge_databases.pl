# The purge of many databases, and commands that need exclusive access to a database while a
# worker visits it.
#
# To keep a worker busy, a trigger takes some milliseconds for each document of a backlog.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use TtlServer;
use WorkerLog;

my $rounds = 3;

my $node = start_server(
	'main', q{
ttl_docs.purge_naptime = '20ms'
log_min_messages = debug1
max_logical_replication_workers = 0
autovacuum = off
});
$node->safe_psql('postgres', 'CREATE ROLE db_owner LOGIN CREATEDB');

sub sql
{
	my ($database, $sql, @parameters) = @_;
	return $node->safe_psql($database, $sql, extra_params => \@parameters);
}

# Runs a command that must succeed without a message.  Counts as two tests.
sub succeeds
{
	my ($sql, $name, @parameters) = @_;
	my ($ret, $stdout, $stderr) =
	  $node->psql('postgres', $sql, extra_params => \@parameters);
	is($stderr, '', "$name: no error");
	is($ret, 0, "$name: succeeds");
	return;
}

# How many documents the collection of a database has on disk.
sub on_disk
{
	my ($database) = @_;
	return count_on_disk($node, $database, 'docs');
}

# Waits until the collection has this number of documents on disk.  Counts as a test.
sub until_on_disk
{
	my ($database, $count, $name) = @_;
	on_disk_becomes($node, $database, 'docs', $count, $name);
	return;
}

# Makes a database with a collection.  Its purge is off.
sub create_database
{
	my ($database, $owner) = @_;
	sql('postgres', "CREATE DATABASE $database" . (defined $owner ? " OWNER $owner" : ''));
	sql('postgres', "ALTER DATABASE $database SET ttl_docs.purge = off");
	install_in($node, $database);
	sql($database, q{SELECT ttl_docs.create_collection('docs', 60);} . slow_function(0.01));
	return;
}

sub write_expired
{
	my ($database, $count) = @_;
	sql($database, expired('docs', $count));
	return;
}

# Turns the purge of a database on.
sub start_purge
{
	my ($database) = @_;
	sql('postgres', "ALTER DATABASE $database RESET ttl_docs.purge");
	return;
}

# Makes a database with a backlog that lasts for a minute or more.
sub create_slow_database
{
	my ($database, $owner) = @_;
	create_database($database, $owner);
	sql($database, slow_trigger('docs'));
	write_expired($database, 8000);
	start_purge($database);
	return;
}

# Waits until a worker deletes documents in a database.  Counts as a test.
sub until_purging
{
	my ($database, $name) = @_;
	becomes($node, 'postgres', qq{
		SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE backend_type = 'ttl_docs purge worker' AND datname = '$database' AND
				query LIKE 'ttl_docs: purging %docs%')}, 't', $name);
	return;
}

sub fatal_lines
{
	my ($offset) = @_;
	# since 19, core ends our workers for commands that need a database
	return join("\n", grep { /FATAL: / && !/terminating background worker "ttl_docs purge worker" due to administrator command/ }
		split(/\n/, slurp_file($node->logfile, $offset)));
}

#
# Many databases, one worker
#

my @databases = map { "many_$_" } 1 .. 12;
for my $database (@databases)
{
	create_database($database);
	write_expired($database, 1500);
	sql($database, q{INSERT INTO docs (id, doc) VALUES ('live', '{"ttl": 86400}')});
}
start_purge($_) for @databases;
until_on_disk($_, 1, "$_ is purged") for @databases;
is(sql('many_1', 'SELECT id FROM docs'), 'live', 'live documents stay');

# A slow database does not delay the others, nor does one without the extension.
sql('postgres', 'CREATE DATABASE plain');
create_slow_database('slow');
until_purging('slow', 'a worker is busy in one database');
write_expired($_, 10) for @databases;
until_on_disk($_, 1, "$_ is purged at the same time") for @databases;
cmp_ok(on_disk('slow'), '>', 0, 'the slow database has documents left');

#
# Commands that need exclusive access to a database
#

for my $round (1 .. $rounds)
{
	until_purging('slow', "round $round: a worker purges the database");
	succeeds('CREATE DATABASE copy TEMPLATE slow', 'CREATE DATABASE ... TEMPLATE');
	until_purging('slow', 'the purge goes on after it');
	succeeds('ALTER DATABASE slow RENAME TO renamed', 'ALTER DATABASE ... RENAME');
	until_purging('renamed', 'the purge goes on after it');
	succeeds('ALTER DATABASE renamed RENAME TO slow', 'ALTER DATABASE ... RENAME back');
	succeeds('DROP DATABASE copy', 'DROP DATABASE of the copy');

	create_slow_database('dropped');
	until_purging('dropped', 'a worker purges the database');
	succeeds('DROP DATABASE dropped', 'DROP DATABASE');

	create_slow_database('forced', 'db_owner');
	until_purging('forced', 'a worker purges the database');
	succeeds('DROP DATABASE forced WITH (FORCE)',
		'DROP DATABASE WITH (FORCE) by its owner', '-U', 'db_owner');
}

my $tablespace = PostgreSQL::Test::Utils::tempdir();
sql('postgres', "CREATE TABLESPACE space LOCATION '$tablespace'");
for my $round (1 .. $rounds)
{
	until_purging('slow', "round $round: a worker purges the database");
	succeeds('ALTER DATABASE slow SET TABLESPACE space', 'ALTER DATABASE ... SET TABLESPACE');
	until_purging('slow', 'the purge goes on after it');
	succeeds('ALTER DATABASE slow SET TABLESPACE pg_default', 'ALTER DATABASE ... SET TABLESPACE back');
}

# After a command that fails, workers visit the database again.
my $session = $node->background_psql('slow');
my ($ret, $stdout, $stderr) = $node->psql('postgres', 'ALTER DATABASE slow RENAME TO other');
isnt($ret, 0, 'a command fails because another session uses the database');
$session->quit;
until_purging('slow', 'the purge goes on after it');

# A user who may not run the command does not stop the workers.
sql('postgres', 'CREATE ROLE stranger LOGIN');
($ret, $stdout, $stderr) =
  $node->psql('postgres', 'DROP DATABASE slow', extra_params => [ '-U', 'stranger' ]);
like($stderr, qr/must be owner of database/, 'a stranger may not drop the database');
until_purging('slow', 'the purge goes on after the attempt');

#
# A copy of a database is held until resume_purge()
#

succeeds('CREATE DATABASE copy TEMPLATE slow', 'copy of a database');
my $copied = on_disk('copy');
cmp_ok($copied, '>', 0, 'the copy has expired documents');
ok(let_workers_visit($node, 'copy'), 'workers visit the copy');
is(on_disk('copy'), $copied, 'workers purge nothing in the copy');
is( sql('copy', q{SELECT state, hint LIKE '%resume_purge%' FROM ttl_docs.stat_collections}),
	'restored|t', 'the state is restored, and the hint names resume_purge()');
sql('copy', 'DROP TRIGGER slow ON docs');
sql('copy', q{SELECT ttl_docs.resume_purge('docs')});
until_on_disk('copy', 0, 'the copy is purged after resume_purge()');

#
# DROP EXTENSION
#

for my $round (1 .. $rounds)
{
	create_slow_database('dropping');
	until_purging('dropping', "round $round: a worker purges the database");
	($ret, $stdout, $stderr) = $node->psql('dropping', 'DROP EXTENSION ttl_docs CASCADE');
	is($ret, 0, 'DROP EXTENSION CASCADE succeeds');
	unlike($stderr, qr/ERROR|FATAL/, 'DROP EXTENSION CASCADE raises no error');
	is(sql('dropping', q{SELECT count(*) FROM pg_seclabel}), '0', 'the collection has lost its label');
	my $left = sql('dropping', 'SELECT count(*) FROM docs');
	cmp_ok($left, '>', 0, 'its table stays, with the rest of the documents');
	sql('dropping', q{CREATE EXTENSION ttl_docs});
	ok(let_workers_visit($node, 'dropping'), 'workers visit the database after CREATE EXTENSION');
	is(sql('dropping', 'SELECT count(*) FROM docs'), $left, 'workers purge nothing from the former collection');
	sql('postgres', 'DROP DATABASE dropping');
}
sql('postgres', 'DROP DATABASE slow');

#
# A database that allows no connections, and a new database of the same name
#

create_database('closed');
write_expired('closed', 10);
sql('postgres', 'ALTER DATABASE closed ALLOW_CONNECTIONS false');
my $offset = log_size($node);
start_purge('closed');
ok(let_workers_visit($node, 'many_1'), 'workers visit other databases');
sql('postgres', 'ALTER DATABASE closed ALLOW_CONNECTIONS true');
is(fatal_lines($offset), '', 'no worker connects to a database that allows no connections');
until_on_disk('closed', 0, 'the database is purged when it allows connections again');

for my $round (1 .. $rounds)
{
	sql('postgres', 'DROP DATABASE closed');
	create_database('closed');
	write_expired('closed', 10);
	start_purge('closed');
	until_on_disk('closed', 0, "round $round: a new database of the same name is purged");
}

is(fatal_lines(0), '', 'no worker has ended with an error');

# The launcher does not notice an UPDATE of pg_database.  Workers cannot connect, but the launcher
# does not start one after another.
sql('closed', q{INSERT INTO docs (id, doc) VALUES ('soon', '{"ttl": 2}')});
sql('postgres', q{UPDATE pg_database SET datallowconn = false WHERE datname = 'closed'});
$offset = log_size($node);
$node->wait_for_log(qr/FATAL: .*database "closed" is not currently accepting connections/, $offset);
sql('many_1', 'SELECT 1') for 1 .. 50;
my $tries = () = fatal_lines($offset) =~ /accepting connections/g;
cmp_ok($tries, '<', 5, 'the launcher seldom tries a database whose connections fail');
sql('postgres', q{UPDATE pg_database SET datallowconn = true WHERE datname = 'closed'});
until_on_disk('closed', 0, 'the database is purged when connections succeed again');

#
# No free slot for a worker
#

my $no_slot = qr/could not start a worker to purge expired documents/;
$node->append_conf('postgresql.conf', 'max_worker_processes = 1');
$node->restart;
write_expired('many_1', 10);
$node->wait_for_log($no_slot, 0);
# The launcher tries each second.
my $began = time;
becomes($node, 'postgres', "SELECT clock_timestamp() > to_timestamp($began) + interval '4s'", 't', 'four seconds pass');
is(count_log($node, $no_slot, 0), 1, 'the log reports once that no slot is free');
like(slurp_file($node->logfile), qr/HINT:  Raise max_worker_processes/, 'the log has a hint');
is(on_disk('many_1'), '11', 'nothing is purged without a slot');

# Another process uses the slot, and then frees it.
$node->append_conf('postgresql.conf', 'max_worker_processes = 2');
$offset = log_size($node);
$node->restart;
until_on_disk('many_1', 1, 'one slot is enough to purge');
ok(wait_until_idle($node, 2), 'workers have visited all databases');
is(count_log($node, $no_slot, $offset), 0, 'with one slot, the log reports no missing slot');
$session = $node->background_psql('postgres');
$session->query_safe('SET '
	  . ($node->pg_version < 16 ? 'force_parallel_mode' : 'debug_parallel_query') . ' = on');
$offset = log_size($node);
$session->query_until(qr/sleeps/, "\\echo sleeps\nSELECT pg_sleep(600);\n");
becomes($node, 'postgres',
	q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'parallel worker')},
	't', 'a parallel query uses the slot');
write_expired('many_1', 10);
$node->wait_for_log($no_slot, $offset);
sql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity
	WHERE query LIKE '%pg_sleep(600)%' AND backend_type = 'client backend' AND pid <> pg_backend_pid()});
until_on_disk('many_1', 1, 'a worker uses the slot as soon as it is free');
eval { $session->quit };

nothing_crashed($node);
$node->stop;

done_testing();

# The purge and databases: many of them, and commands that want one of them for
# themselves while a worker is in it.
#
# To be there when such a command comes, a worker is kept busy by a trigger that
# takes some milliseconds for each document of a backlog.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $rounds = 3;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
shared_preload_libraries = 'ttl_docs'
ttl_docs.purge_naptime = '20ms'
log_min_messages = debug1
max_logical_replication_workers = 0
autovacuum = off
});
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE db_owner LOGIN CREATEDB');

my $worker_start = qr/starting background worker process "ttl_docs purge worker"/;

sub sql
{
	my ($database, $sql, @parameters) = @_;
	return $node->safe_psql($database, $sql, extra_params => \@parameters);
}

# Runs a command, which has to succeed.
sub succeeds
{
	my ($sql, $name, @parameters) = @_;
	my ($ret, $stdout, $stderr) =
	  $node->psql('postgres', $sql, extra_params => \@parameters);
	is($stderr, '', "$name: no error");
	is($ret, 0, "$name: succeeds");
	return;
}

# Waits until a query returns true in a database; it sees what is on disk.
sub becomes
{
	my ($database, $query, $name) = @_;
	ok(wait_until($database, $query), $name);
	return;
}

sub wait_until
{
	my ($database, $query) = @_;
	local $ENV{PGOPTIONS} = '-c ttl_docs.show_expired=on';
	return $node->poll_query_until($database, $query);
}

sub on_disk
{
	my ($database, $collection) = @_;
	return sql($database, "SET ttl_docs.show_expired = on; SELECT count(*) FROM $collection");
}

# Makes a database with a collection that is not purged yet.
sub create_database
{
	my ($database, $owner) = @_;
	sql('postgres', "CREATE DATABASE $database" . (defined $owner ? " OWNER $owner" : ''));
	sql('postgres', "ALTER DATABASE $database SET ttl_docs.purge = off");
	sql( $database, q{
		CREATE EXTENSION ttl_docs;
		SELECT ttl_docs.create_collection('docs', 60);
		CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN PERFORM pg_sleep(0.01); RETURN NULL; END';
	});
	return;
}

sub write_expired
{
	my ($database, $count) = @_;
	sql( $database, qq{
		SET ttl_docs.clock_offset = '-1h';
		INSERT INTO docs (id, doc)
			SELECT 'expired ' || i, '{}' FROM generate_series(1, $count) AS i;
	});
	return;
}

# Lets workers in.
sub start_purge
{
	my ($database) = @_;
	sql('postgres', "ALTER DATABASE $database RESET ttl_docs.purge");
	return;
}

# A database with a backlog that lasts for a minute or more.
sub create_slow_database
{
	my ($database, $owner) = @_;
	create_database($database, $owner);
	sql($database, 'CREATE TRIGGER slow AFTER DELETE ON docs FOR EACH ROW EXECUTE FUNCTION slow()');
	write_expired($database, 8000);
	start_purge($database);
	return;
}

# Waits until a worker deletes documents in it.
sub wait_for_worker
{
	my ($database) = @_;
	return wait_until('postgres', qq{
		SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE backend_type = 'ttl_docs purge worker' AND datname = '$database' AND
				query LIKE 'ttl_docs: purging %docs%')});
}

# A collection that nobody has heard of before is purged: workers come and go.
sub is_visited
{
	my ($database, $name) = @_;
	sql($database, q{SELECT ttl_docs.create_collection('witness', 60)});
	sql( $database, q{
		SET ttl_docs.clock_offset = '-1h';
		INSERT INTO witness (id, doc) VALUES ('expired', '{}');
	});
	becomes($database, 'SELECT count(*) = 0 FROM witness', $name);
	sql($database, q{SELECT ttl_docs.drop_collection('witness')});
	return;
}

# Waits until no worker has been started for two seconds.
sub wait_until_idle
{
	my $quiet = 0;
	my $seen = -1;
	for (my $i = 0; $i < 600 && $quiet < 20; $i++)
	{
		my $now = () = slurp_file($node->logfile) =~ /$worker_start/g;
		$quiet = $now == $seen ? $quiet + 1 : 0;
		$seen = $now;
		usleep(100_000);
	}
	return $quiet == 20;
}

sub fatal_lines
{
	my ($offset) = @_;
	return join("\n", grep { /FATAL: / } split(/\n/, slurp_file($node->logfile, $offset)));
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
becomes($_, 'SELECT count(*) = 1 FROM docs', "$_ is purged") for @databases;
is(sql('many_1', 'SELECT id FROM docs'), 'live', 'live documents stay');

# One that is slow does not keep the others, nor does one without the extension.
sql('postgres', 'CREATE DATABASE plain');
create_slow_database('slow');
ok(wait_for_worker('slow'), 'a worker is busy in one database');
write_expired($_, 10) for @databases;
becomes($_, 'SELECT count(*) = 1 FROM docs', "$_ is purged meanwhile") for @databases;
cmp_ok(on_disk('slow', 'docs'), '>', 0, 'and that one still has some');

#
# Commands that want a database for themselves
#

for my $round (1 .. $rounds)
{
	ok(wait_for_worker('slow'), "round $round: a worker is there");
	succeeds('CREATE DATABASE copy TEMPLATE slow', 'CREATE DATABASE ... TEMPLATE');
	ok(wait_for_worker('slow'), 'the purge goes on after it');
	succeeds('ALTER DATABASE slow RENAME TO renamed', 'ALTER DATABASE ... RENAME');
	ok(wait_for_worker('renamed'), 'the purge goes on after it');
	succeeds('ALTER DATABASE renamed RENAME TO slow', 'ALTER DATABASE ... RENAME back');
	succeeds('DROP DATABASE copy', 'DROP DATABASE of the copy');

	create_slow_database('dropped');
	ok(wait_for_worker('dropped'), 'a worker is there');
	succeeds('DROP DATABASE dropped', 'DROP DATABASE');

	create_slow_database('forced', 'db_owner');
	ok(wait_for_worker('forced'), 'a worker is there');
	succeeds('DROP DATABASE forced WITH (FORCE)',
		'DROP DATABASE WITH (FORCE) by its owner', '-U', 'db_owner');
}

my $tablespace = PostgreSQL::Test::Utils::tempdir();
sql('postgres', "CREATE TABLESPACE space LOCATION '$tablespace'");
for my $round (1 .. $rounds)
{
	ok(wait_for_worker('slow'), "round $round: a worker is there");
	succeeds('ALTER DATABASE slow SET TABLESPACE space', 'ALTER DATABASE ... SET TABLESPACE');
	ok(wait_for_worker('slow'), 'the purge goes on after it');
	succeeds('ALTER DATABASE slow SET TABLESPACE pg_default', 'and back');
}

# A command that fails lets the workers in again.
my $session = $node->background_psql('slow');
my ($ret, $stdout, $stderr) = $node->psql('postgres', 'ALTER DATABASE slow RENAME TO other');
isnt($ret, 0, 'a command fails because of somebody else');
$session->quit;
ok(wait_for_worker('slow'), 'the purge goes on after it');

# Whoever may not run the command does not keep the workers out.
sql('postgres', 'CREATE ROLE stranger LOGIN');
($ret, $stdout, $stderr) =
  $node->psql('postgres', 'DROP DATABASE slow', extra_params => [ '-U', 'stranger' ]);
like($stderr, qr/must be owner of database/, 'a stranger may not drop it');
ok(wait_for_worker('slow'), 'and the purge goes on');

#
# A copy of a database is not purged before somebody has had a look
#

succeeds('CREATE DATABASE copy TEMPLATE slow', 'a copy');
my $copied = on_disk('copy', 'docs');
cmp_ok($copied, '>', 0, 'the copy has expired documents');
is_visited('copy', 'workers come to the copy');
is(on_disk('copy', 'docs'), $copied, 'and leave its collections alone');
is( sql('copy', q{SELECT state, hint LIKE '%resume_purge%' FROM ttl_docs.stat_collections}),
	'restored|t', 'which are shown as restored');
sql('copy', 'DROP TRIGGER slow ON docs');
sql('copy', q{SELECT ttl_docs.resume_purge('docs')});
becomes('copy', 'SELECT count(*) = 0 FROM docs', 'resume_purge() has them purged');

#
# DROP EXTENSION
#

for my $round (1 .. $rounds)
{
	create_slow_database('dropping');
	ok(wait_for_worker('dropping'), "round $round: a worker is there");
	($ret, $stdout, $stderr) = $node->psql('dropping', 'DROP EXTENSION ttl_docs CASCADE');
	is($ret, 0, 'DROP EXTENSION CASCADE succeeds');
	unlike($stderr, qr/ERROR|FATAL/, 'without an error');
	is(sql('dropping', q{SELECT count(*) FROM pg_seclabel}), '0', 'nothing is left of the collection');
	my $left = sql('dropping', 'SELECT count(*) FROM docs');
	cmp_ok($left, '>', 0, 'but its table, with the rest');
	sql('dropping', q{CREATE EXTENSION ttl_docs});
	is_visited('dropping', 'with the extension back, so are the workers');
	is(sql('dropping', 'SELECT count(*) FROM docs'), $left, 'and leave that table alone');
	sql('postgres', 'DROP DATABASE dropping');
}
sql('postgres', 'DROP DATABASE slow');

#
# No connections, and the same name again
#

create_database('closed');
write_expired('closed', 10);
sql('postgres', 'ALTER DATABASE closed ALLOW_CONNECTIONS false');
my $offset = -s $node->logfile;
start_purge('closed');
is_visited('many_1', 'workers come to other databases');
sql('postgres', 'ALTER DATABASE closed ALLOW_CONNECTIONS true');
is(fatal_lines($offset), '', 'none has tried the one that allows no connections');
becomes('closed', 'SELECT count(*) = 0 FROM docs', 'it is purged when it does');

for my $round (1 .. $rounds)
{
	sql('postgres', 'DROP DATABASE closed');
	create_database('closed');
	write_expired('closed', 10);
	start_purge('closed');
	becomes('closed', 'SELECT count(*) = 0 FROM docs', "round $round: a database of the same name is purged");
}

is(fatal_lines(0), '', 'no worker has ended with an error so far');

# Closed behind our back: a worker that cannot connect is not sent all the time.
sql('closed', q{INSERT INTO docs (id, doc) VALUES ('soon', '{"ttl": 2}')});
sql('postgres', q{UPDATE pg_database SET datallowconn = false WHERE datname = 'closed'});
$offset = -s $node->logfile;
$node->wait_for_log(qr/FATAL: .*database "closed" is not currently accepting connections/, $offset);
sql('many_1', 'SELECT 1') for 1 .. 50;
my $tries = () = fatal_lines($offset) =~ /accepting connections/g;
cmp_ok($tries, '<', 5, 'a database that cannot be connected to is tried now and then');
sql('postgres', q{UPDATE pg_database SET datallowconn = true WHERE datname = 'closed'});
becomes('closed', 'SELECT count(*) = 0 FROM docs', 'until it can be');

#
# No worker to be had
#

my $no_slot = qr/could not start a worker to purge expired documents/;
$node->append_conf('postgresql.conf', 'max_worker_processes = 1');
$node->restart;
$offset = -s $node->logfile;
write_expired('many_1', 10);
$node->wait_for_log($no_slot, 0);
# It tries each second.
my $began = time;
wait_until('postgres', "SELECT clock_timestamp() > to_timestamp($began) + interval '4s'");
my $log = slurp_file($node->logfile);
is(scalar(() = $log =~ /$no_slot/g), 1, 'without a free worker slot: logged once');
like($log, qr/HINT:  Raise max_worker_processes/, 'with a hint');
is(on_disk('many_1', 'docs'), '11', 'nothing is purged');

# A slot that others have taken, and give back
$node->append_conf('postgresql.conf', 'max_worker_processes = 2');
$offset = -s $node->logfile;
$node->restart;
becomes('many_1', 'SELECT count(*) = 1 FROM docs', 'with a slot all is purged');
ok(wait_until_idle(), 'and all databases have been visited');
unlike(slurp_file($node->logfile, $offset), $no_slot, 'one slot is enough for one worker');
$session = $node->background_psql('postgres');
$session->query_safe('SET '
	  . ($node->pg_version < 16 ? 'force_parallel_mode' : 'debug_parallel_query') . ' = on');
$offset = -s $node->logfile;
$session->query_until(qr/sleeps/, "\\echo sleeps\nSELECT pg_sleep(600);\n");
wait_until('postgres',
	q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'parallel worker')});
write_expired('many_1', 10);
$node->wait_for_log($no_slot, $offset);
sql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity
	WHERE query LIKE '%pg_sleep(600)%' AND backend_type = 'client backend' AND pid <> pg_backend_pid()});
becomes('many_1', 'SELECT count(*) = 1 FROM docs', 'when others give it back, it is taken');
eval { $session->quit };

$log = slurp_file($node->logfile);
unlike($log, qr/TRAP:|PANIC:|terminated by signal/, 'nothing has crashed');
$node->stop;

done_testing();

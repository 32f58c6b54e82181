# Citus tables as collections: every kind of table, in both orders, and every conversion from one kind to
# another.  A conversion keeps the stamps of all documents.  Expired ones stay expired, and stay on disk.

use strict;
use warnings;

use lib 'test/perl';
use CitusCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

skip_without_citus();
my $cluster = CitusCluster->new;

# Converts a collection.  Its rows and stamps stay, and the same documents are live.  Counts as three
# tests.
sub converts
{
	my ($table, $sql, $triggers, $name) = @_;
	my $rows = $cluster->rows($table);
	my $live = $cluster->sql("SELECT id FROM $table ORDER BY id");
	my $error = $cluster->error("SET client_min_messages = warning; $sql");
	is($error, '', "$name: no error");
	is($cluster->rows($table), $rows, "$name: rows and stamps are the same");
	is($cluster->sql("SELECT id FROM $table ORDER BY id"), $live, "$name: the same documents are live");
	is($cluster->triggers($table), $triggers, "$name: the triggers");
	return;
}

# Installs an extension with this script.  The tests run a copy of PostgreSQL.
my @scripts;
END { unlink @scripts }

sub extension_script
{
	my ($name, $script) = @_;
	my $path = $cluster->coordinator->config_data('--sharedir') . "/extension/$name";
	append_to_file("$path.control", "default_version = '1'\nrelocatable = false\nschema = public\n");
	append_to_file("$path--1.sql", "$script\n");
	push @scripts, "$path.control", "$path--1.sql";
	return;
}

# ---- Kinds of tables ----

# Each kind: a call that makes a table of this kind, and the number of tables on all nodes that the
# collection then has: shells, shards and partitions.
my %kinds = (
	hash => [ q{create_distributed_table('%s', 'id')}, 7 ],
	single => [ q{create_distributed_table('%s', NULL)}, 4 ],
	local => [ q{citus_add_local_table_to_metadata('%s')}, 4 ],
	parts => [ q{create_distributed_table('%s', 'id')}, 21 ]);
my @names;

sub create_table
{
	my ($name) = @_;
	return "CREATE TABLE $name (id text PRIMARY KEY, doc jsonb);" unless $name =~ /parts/;
	return qq{
		CREATE TABLE $name (id text, at date DEFAULT '2020-05-05', doc jsonb, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
		CREATE TABLE ${name}_20 PARTITION OF $name FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
		CREATE TABLE ${name}_21 PARTITION OF $name FOR VALUES FROM ('2021-01-01') TO ('2022-01-01');
	};
}

sub insert_into
{
	my ($name) = @_;
	return qq{INSERT INTO $name (id, doc) SELECT 'short' || i, '{}' FROM generate_series(1, 5) AS i;
		INSERT INTO $name (id, doc) SELECT 'long' || i, '{"ttl": 100000}' FROM generate_series(1, 5) AS i;};
}

for my $kind (sort keys %kinds)
{
	my ($call, $count) = @{ $kinds{$kind} };
	$cluster->sql(create_table("a_$kind") . "SELECT ttl_docs.adopt('a_$kind', 6000);" . insert_into("a_$kind"));
	converts("a_$kind", 'SELECT ' . sprintf($call, "a_$kind"), "hidden: $count", "adopt, then $kind");

	$cluster->sql(create_table("b_$kind") . insert_into("b_$kind"));
	$cluster->sql('SELECT ' . sprintf($call, "b_$kind"));
	$cluster->sql("SELECT ttl_docs.adopt('b_$kind', 6000)");
	is($cluster->triggers("b_$kind"), "hidden: $count", "$kind, then adopt: every table has the trigger");
	push @names, "a_$kind", "b_$kind";
}

# Tenant schemas: a collection is created there, adopted there, or distributed with its schema.
$cluster->sql(
	q{
	CREATE SCHEMA later;
	SELECT ttl_docs.create_collection('later.c', 6000);
	SET citus.enable_schema_based_sharding = on;
	CREATE SCHEMA tenant;
	SELECT ttl_docs.create_collection('tenant.c', 6000);
} . create_table('tenant.d'));
$cluster->sql(insert_into($_)) for qw(later.c tenant.c tenant.d);
$cluster->sql(q{SELECT ttl_docs.adopt('tenant.d', 6000)});
converts('later.c', q{SELECT citus_schema_distribute('later')}, 'hidden: 4', 'a schema is distributed');
is($cluster->triggers("tenant.$_"), 'hidden: 4', "a tenant schema: every table of $_ has the trigger") for qw(c d);
push @names, qw(later.c tenant.c tenant.d);
is( $cluster->sql(q{SELECT string_agg(citus_table_type, ' ') FROM citus_tables WHERE table_name::text ~ '^(later|tenant)'}),
	'schema schema schema', 'create_collection() creates a table of the tenant');

# create_collection() and a key of another type
$cluster->sql(
	q{
	SELECT ttl_docs.create_collection('created', 6000);
	SELECT create_distributed_table('created', 'id');
} . insert_into('created'));
push @names, 'created';

for my $name (@names)
{
	is($cluster->in_labels($name, 'default_ttl') =~ s/: \d+//r, 6000, "$name: every table has the DefaultTTL");
	is($cluster->on_disk($name), 10, "$name: the documents are on disk");
	$cluster->all_nodes_return("SELECT count(*) FROM $name", 10, "$name: all documents are live");
}
$cluster->set_clock(10000);
for my $name (@names)
{
	$cluster->all_nodes_return("SELECT count(*) FROM $name", 5, "$name: documents have expired");
	is($cluster->on_disk($name), 10, "$name: the expired documents are on disk");
	is($cluster->sql("INSERT INTO $name (id, doc) VALUES ('short1', '{}'); SELECT count(*) FROM $name"),
		6, "$name: the key of an expired document can be used again");
}

# ---- Conversions ----

# The tables have live and expired documents, of two times.
for my $kind (qw(hash single local))
{
	my ($call, $count) = @{ $kinds{$kind} };
	converts("a_$kind", "SELECT undistribute_table('a_$kind')", 'visible: 1', "undistribute_table, $kind");
	is($cluster->in_labels("a_$kind", 'citus'), 'none: 1', "undistribute_table, $kind: it is a plain collection");
	is( $cluster->sql(
			"INSERT INTO a_$kind (id, doc) VALUES ('short2', '{}'); SELECT _ts > now() + interval '5000 s' FROM a_$kind WHERE id = 'short2'"),
		't', "undistribute_table, $kind: documents are stamped, and keys are free");
	converts("a_$kind", 'SELECT ' . sprintf($call, "a_$kind"), "hidden: $count", "$kind again");
}
converts('a_parts', q{SELECT undistribute_table('a_parts')}, 'visible: 3', 'undistribute_table, partitioned');
converts('a_parts', q{SELECT create_distributed_table('a_parts', 'id')}, 'hidden: 21', 'partitioned again');
converts('a_hash', q{SELECT alter_distributed_table('a_hash', shard_count => 6, cascade_to_colocated => false)},
	'hidden: 9', 'another number of shards');
converts('a_hash', q{SELECT alter_distributed_table('a_hash', colocate_with => 'b_hash')},
	'hidden: 7', 'colocated with another table');
converts('b_parts', q{SELECT alter_distributed_table('b_parts', shard_count => 2, cascade_to_colocated => false)},
	'hidden: 15', 'another number of shards, partitioned');
converts('b_single', q{SELECT undistribute_table('b_single'); SELECT create_distributed_table('b_single', 'id')},
	'hidden: 7', 'from one shard to several');
converts('b_local', q{SELECT create_distributed_table('b_local', 'id')}, 'hidden: 7',
	'from Citus local to distributed');
converts('later.c', q{SELECT citus_schema_undistribute('later')}, 'visible: 1', 'citus_schema_undistribute');
converts('later.c', q{SELECT citus_schema_distribute('later')}, 'hidden: 4', 'citus_schema_distribute');
{
	my $rows = $cluster->rows('tenant.c');
	$cluster->sql('ALTER TABLE tenant.c RENAME TO moved; ALTER TABLE tenant.moved SET SCHEMA public');
	is($cluster->rows('moved'), $rows, 'ALTER TABLE SET SCHEMA out of a tenant schema keeps rows and stamps');
	is($cluster->triggers('moved'), 'visible: 1', 'ALTER TABLE SET SCHEMA makes it a plain collection');
	$cluster->sql('ALTER TABLE moved SET SCHEMA tenant');
	is($cluster->rows('tenant.moved'), $rows, 'ALTER TABLE SET SCHEMA into a tenant schema keeps rows and stamps');
	is($cluster->triggers('tenant.moved'), 'hidden: 4', 'ALTER TABLE SET SCHEMA makes it a table of the tenant');
}

# Citus converts a table that gets a foreign key to a reference table, and converts it back.
$cluster->sql(
	q{
	CREATE TABLE kinds (kind int PRIMARY KEY);
	SELECT create_reference_table('kinds');
	CREATE TABLE keyed (id text PRIMARY KEY, kind int, doc jsonb);
	SELECT ttl_docs.adopt('keyed', 6000);
} . insert_into('keyed'));
$cluster->set_clock(20000);
converts('keyed', 'ALTER TABLE keyed ADD CONSTRAINT k FOREIGN KEY (kind) REFERENCES kinds', 'hidden: 4',
	'a foreign key to a reference table');
is($cluster->is_citus_table('keyed'), 1, 'the foreign key makes a collection a Citus table');
converts('keyed', 'ALTER TABLE keyed DROP CONSTRAINT k', 'visible: 1', 'the foreign key is dropped');
is($cluster->is_citus_table('keyed'), 0, 'without the foreign key the collection is a plain table again');

# The comments of the system columns, which Citus loses
my $comments = q{
	SELECT col_description(attrelid, attnum) FROM pg_attribute
	 WHERE attrelid = '%s'::regclass AND attname IN ('_ts', '_ttl', '_slot') ORDER BY attnum};
is( $cluster->sql(sprintf($comments, $_)),
	$cluster->sql("SELECT ttl_docs.create_collection('never_distributed_$_') \\gset\n" . sprintf($comments, "never_distributed_$_")),
	"$_: the system columns have their comments after conversions")
  for qw(a_hash keyed);

# Citus would make keyed plain, which needs the rights of its owner, and preparation.
$cluster->sql(
	q{
	ALTER TABLE keyed ADD CONSTRAINT k FOREIGN KEY (kind) REFERENCES kinds;
	CREATE ROLE other LOGIN;
	ALTER TABLE kinds OWNER TO other;
	GRANT ALL ON SCHEMA public TO other;
});
{
	my $rows = $cluster->rows('keyed');
	like($cluster->error('SET ROLE other; DROP TABLE kinds CASCADE'),
		qr/must be owner of table keyed/, 'another user cannot drop the reference table of a collection');
	extension_script('ttl_docs_test_drop', 'ALTER TABLE public.keyed DROP CONSTRAINT k;');
	like($cluster->error('CREATE EXTENSION ttl_docs_test_drop'),
		qr/cannot make collection "keyed" a plain table in the script of an extension/,
		'an extension script cannot make a collection a plain table');
	extension_script('ttl_docs_test_change', q{SELECT ttl_docs.set_default_ttl('a_hash', 1);});
	like($cluster->error('CREATE EXTENSION ttl_docs_test_change'),
		qr/cannot change collection "a_hash" in the script of an extension/,
		'an extension script cannot change the settings of a Citus table');
	extension_script('ttl_docs_test_other', 'CREATE TABLE dropped (id int PRIMARY KEY); DROP TABLE dropped CASCADE;');
	is($cluster->error('SET client_min_messages = warning; CREATE EXTENSION ttl_docs_test_other'),
		'', 'an extension script can drop other tables');
	is($cluster->rows('keyed'), $rows, 'the rows of the collection are the same');
	is($cluster->triggers('keyed'), 'hidden: 4', 'the collection is the same kind of table');
	is($cluster->in_labels('a_hash', 'default_ttl') =~ s/: \d+//r, 6000, 'the settings are the same');
}
$cluster->sql('ALTER TABLE keyed DROP CONSTRAINT k; DROP EXTENSION ttl_docs_test_other');

# A conversion that is rolled back
{
	my $rows = $cluster->rows('keyed');
	$cluster->sql(q{BEGIN; SELECT create_distributed_table('keyed', 'id'); ROLLBACK});
	is($cluster->triggers('keyed'), 'visible: 1', 'a conversion is rolled back: the trigger');
	is($cluster->rows('keyed'), $rows, 'a conversion is rolled back: the rows');
	is($cluster->sql(q{INSERT INTO keyed (id, doc, _ts) VALUES ('k', '{}', '2000-01-01') RETURNING _ts > '2001-01-01'}),
		't', 'a conversion is rolled back: documents are stamped');
}

# Writes in the transaction of a conversion
$cluster->sql(
	q{
	BEGIN;
	SELECT create_distributed_table('keyed', 'id');
	INSERT INTO keyed (id, doc, _ts) VALUES ('old', '{}', '2000-01-01');
	INSERT INTO keyed (id, doc) SELECT 'new' || i, '{}' FROM generate_series(1, 5) AS i;
	COMMIT;
});
is($cluster->sql(q{SELECT count(*), bool_and(_ts > '2001-01-01') FROM keyed WHERE id ~ 'old|new'}),
	'6|t', 'documents are stamped after a conversion in the same transaction');

# Two conversions in one transaction.  Citus can do this with plain tables.
$cluster->sql(
	q{
	SELECT ttl_docs.create_collection('first', 6000);
	CREATE TABLE second (id text PRIMARY KEY REFERENCES first, doc jsonb);
});
is( $cluster->error(
		q{
		SET client_min_messages = warning;
		BEGIN;
		SELECT create_distributed_table('first', 'id');
		SELECT create_distributed_table('second', 'id');
		COMMIT;
	}),
	'', 'a collection and a child are distributed in one transaction');

# ---- Partitions ----

for my $name (qw(a_parts b_parts))
{
	my $before = $cluster->sql("SELECT count(*) FROM $name");
	my $tables = $name eq 'a_parts' ? 7 : 5;
	$cluster->sql(
		qq{
		CREATE TABLE ${name}_22 PARTITION OF $name FOR VALUES FROM ('2022-01-01') TO ('2023-01-01');
		INSERT INTO $name (id, at, doc, _ts) VALUES ('p22', '2022-05-05', '{}', '2000-01-01');
		CREATE TABLE ${name}_23 (LIKE $name INCLUDING DEFAULTS, PRIMARY KEY (id, at));
		INSERT INTO ${name}_23 (id, at, doc) VALUES ('p23', '2023-05-05', '{}'), ('p23 long', '2023-05-05', '{"ttl": 100000}');
		ALTER TABLE $name ATTACH PARTITION ${name}_23 FOR VALUES FROM ('2023-01-01') TO ('2024-01-01');
		CREATE TABLE ${name}_24 (LIKE $name INCLUDING DEFAULTS, PRIMARY KEY (id, at));
		SELECT create_distributed_table('${name}_24', 'id', colocate_with => '$name');
		INSERT INTO ${name}_24 (id, at, doc) VALUES ('p24', '2024-05-05', '{}'), ('p24 long', '2024-05-05', '{"ttl": 100000}');
		ALTER TABLE $name ATTACH PARTITION ${name}_24 FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
	});
	is($cluster->triggers($name), 'hidden: ' . 6 * $tables, "$name: new and attached partitions have triggers");
	is($cluster->in_labels($name, 'default_ttl'), '6000: ' . 6 * $tables,
		"$name: new and attached partitions have labels");
	$cluster->all_nodes_return("SELECT count(*) - $before FROM $name", 5, "$name: their documents are live");
	is( $cluster->sql("SELECT bool_and(_ts > now() + interval '15000 s') FROM $name WHERE at > '2022-01-01'"),
		't', "$name: their documents have stamps");
	$cluster->sql("ALTER TABLE $name DETACH PARTITION ${name}_24");
	is($cluster->sql("SELECT ttl_docs.get_default_ttl('${name}_24')"), 6000,
		"$name: a detached partition is a collection");
}
$cluster->set_clock(27000);
for my $name (qw(a_parts b_parts))
{
	$cluster->all_nodes_return("SELECT id FROM $name WHERE at > '2022-01-01'", 'p23 long',
		"$name: documents of new and attached partitions expire");
	$cluster->all_nodes_return("SELECT id FROM ${name}_24", 'p24 long',
		"$name: documents of a detached partition expire");
	is($cluster->sql(qq{INSERT INTO ${name}_24 (id, at, doc) VALUES ('p24', '2024-05-05', '{}'); SELECT count(*) FROM ${name}_24}),
		2, "$name: a detached partition stamps documents, and frees keys");
	is($cluster->in_labels("${name}_24", 'citus') =~ s/: \d+//r, 'true',
		"$name: a detached partition stays a Citus table");
}

# ---- Foreign keys between collections ----

# Parents and children become distributed collections, in several orders.  Counts as three tests.
sub distribute_families
{
	my ($p, $where) = @_;
	$cluster->sql(
		qq{
		SELECT ttl_docs.create_collection('${p}_1', 6000);
		SELECT create_distributed_table('${p}_1', 'id', colocate_with => 'none');
		CREATE TABLE ${p}_child1 (id text PRIMARY KEY REFERENCES ${p}_1, doc jsonb);
		CREATE TABLE ${p}_child2 (id text PRIMARY KEY, doc jsonb);
		SELECT create_distributed_table('${p}_child2', 'id', colocate_with => '${p}_1');
		SELECT ttl_docs.adopt('${p}_child2', 6000);
		SELECT ttl_docs.create_collection('${p}_3', 6000);
		CREATE TABLE ${p}_child3 (id text PRIMARY KEY REFERENCES ${p}_3, doc jsonb);
		SELECT ttl_docs.adopt('${p}_child3', 6000);
		SELECT create_distributed_table('${p}_3', 'id', colocate_with => 'none');
	});
	is($cluster->error("SELECT create_distributed_table('${p}_child1', 'id', colocate_with => '${p}_1')"),
		'', "$where: a child of a distributed collection is distributed");
	is($cluster->error("ALTER TABLE ${p}_child2 ADD FOREIGN KEY (id) REFERENCES ${p}_1"),
		'', "$where: a foreign key between distributed collections");
	is($cluster->error("SELECT create_distributed_table('${p}_child3', 'id', colocate_with => '${p}_3')"),
		'', "$where: parent and child are distributed one after the other");
	return;
}

distribute_families('family', 'shards on workers');

# ---- Shards on the coordinator ----

$cluster->let_coordinator_have_shards;
$cluster->sql(
	q{
	SELECT ttl_docs.create_collection('everywhere', 6000);
	SELECT create_distributed_table('everywhere', 'id', colocate_with => 'none');
} . create_table('all_parts') . q{
	SELECT create_distributed_table('all_parts', 'id', colocate_with => 'none');
	SELECT ttl_docs.adopt('all_parts', 6000);
} . insert_into('everywhere') . insert_into('all_parts'));
$cluster->set_clock(40000);
distribute_families('family_everywhere', 'shards on all nodes');
converts('everywhere', q{SELECT alter_distributed_table('everywhere', shard_count => 6)},
	'hidden: 9', 'another number of shards, also on the coordinator');
converts('all_parts', q{SELECT undistribute_table('all_parts')}, 'visible: 3',
	'undistribute_table, also on the coordinator, partitioned');
converts('everywhere', q{SELECT undistribute_table('everywhere')}, 'visible: 1',
	'undistribute_table, also on the coordinator');
converts('everywhere', q{SELECT create_distributed_table('everywhere', 'id')}, 'hidden: 7',
	'distributed again, also on the coordinator');
$cluster->stop;

done_testing();

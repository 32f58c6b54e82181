# Foreign keys to collections on PostgreSQL 19.  Core checks them there without a query, so child tables
# have a trigger of ttl_docs (src/collection/parent_triggers.c).  This test checks where these triggers
# come from, what they are, and when they go.
#
# Older servers run the same commands.  They have no such trigger, and the same children are refused.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

my $node = start_server('main', q{
ttl_docs.purge = off
wal_level = logical
});
my $has_triggers = $node->pg_version->major >= 19;
my $db = 'postgres';

# Each section has a database of its own.
sub begin_section
{
	my ($name) = @_;
	$db = $name;
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	install_in($node, $db);
	$node->safe_psql(
		$db, q{
		CREATE TABLE plain (id int PRIMARY KEY, doc jsonb);
		CREATE TABLE parent (id int PRIMARY KEY, doc jsonb);
		INSERT INTO plain VALUES (1, '{}'), (2, '{}');
		INSERT INTO parent VALUES (1, '{"ttl": 3000}'), (2, '{}');
	});
	return;
}

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql($db, $sql);
}

# The tables with parent triggers, with the constraint of each.
sub triggers
{
	return sql(q{
		SELECT string_agg(format('%s:%s', tgrelid::regclass, conname), ' ' ORDER BY tgrelid::regclass::text, conname)
		  FROM pg_trigger AS t JOIN pg_constraint AS c ON c.oid = t.tgconstraint
		 WHERE tgfoid::regproc = 'ttl_docs_internal.write_document'::regproc AND tgtype = 21 AND tgisinternal});
}

# Checks which tables have parent triggers.  Counts as a test.
sub has_triggers
{
	my ($expected, $name) = @_;
	is(triggers(), $has_triggers ? $expected : '', $name);
	return;
}

# Checks that a command cannot create a child of an expired parent.  Counts as a test.
sub refused
{
	my ($command, $name) = @_;
	like(error_of($node, $db, "\\set VERBOSITY verbose\nSET ttl_docs.clock_offset = '1h'; $command"),
		qr/ERROR:  23503: insert or update on table .* violates foreign key constraint/, $name);
	return;
}

# ---- Where the triggers come from ----

begin_section('comes');
sql(q{
	CREATE TABLE before (id int, parent int REFERENCES parent, other int REFERENCES plain);
	SELECT ttl_docs.adopt('parent', -1);
	CREATE TABLE created (id int, parent int REFERENCES parent ON UPDATE CASCADE, other int REFERENCES plain);
	CREATE TABLE altered (id int, parent int);
	ALTER TABLE altered ADD FOREIGN KEY (parent) REFERENCES parent NOT VALID;
	CREATE TABLE column_added (id int);
	ALTER TABLE column_added ADD parent int REFERENCES parent;
	CREATE TABLE two (a int REFERENCES parent, b int REFERENCES parent);
});
has_triggers('altered:altered_parent_fkey before:before_parent_fkey column_added:column_added_parent_fkey '
	  . 'created:created_parent_fkey two:two_a_fkey two:two_b_fkey',
	'a foreign key to a collection brings a trigger, adopt() too');
refused("INSERT INTO $_ (parent) VALUES (1)", "INSERT into $_") for qw(before created altered column_added);
refused('INSERT INTO two VALUES (2, 1)', 'INSERT with two foreign keys');
is(sql(q{SET ttl_docs.clock_offset = '1h'; INSERT INTO before VALUES (1, 2, 1) RETURNING parent}), '2',
	'a live parent is found');
sql('ALTER TABLE created ALTER parent TYPE bigint');
has_triggers('altered:altered_parent_fkey before:before_parent_fkey column_added:column_added_parent_fkey '
	  . 'created:created_parent_fkey two:two_a_fkey two:two_b_fkey', 'ALTER TYPE keeps the trigger');
refused('INSERT INTO created (parent) VALUES (1)', 'keys of two types');

# All commands that write
sql(q{CREATE UNIQUE INDEX ON before (id)});
refused('UPDATE before SET parent = 1', 'UPDATE');
refused('MERGE INTO before USING (VALUES (7)) AS v (id) ON before.id = v.id WHEN NOT MATCHED THEN INSERT (id, parent) VALUES (7, 1)', 'MERGE');
refused('INSERT INTO before VALUES (1, 2) ON CONFLICT (id) DO UPDATE SET parent = 1', 'ON CONFLICT DO UPDATE');
refused("COPY before (id, parent) FROM stdin;\n8\t1\n\\.\n", 'COPY FROM');
refused("BEGIN ISOLATION LEVEL $_; INSERT INTO before VALUES (9, 1); COMMIT", "INSERT in $_")
  for 'REPEATABLE READ', 'SERIALIZABLE';
is(sql(q{INSERT INTO before VALUES (18, 1); SET ttl_docs.clock_offset = '1h'; UPDATE before SET other = 2 WHERE id = 18 RETURNING parent}), '1',
	'an update that leaves the key is not checked');
is(sql(q{SET ttl_docs.clock_offset = '1h'; INSERT INTO before VALUES (10, NULL) RETURNING id}), '10', 'nor is a null');
is(sql(q{SET session_replication_role = replica; SET ttl_docs.clock_offset = '1h'; INSERT INTO before VALUES (11, 1) RETURNING id}),
	'11', 'replication checks no foreign keys');
like(error_of($node, $db, q{INSERT INTO before VALUES (12, 3)}),
	qr/DETAIL:  Key \(parent\)=\(3\) is not present in table "parent"\./, 'a parent that never existed');

# The message shows the key only to users who may read it.
sql(q{CREATE ROLE writer; GRANT INSERT ON before TO writer});
like(error_of($node, $db, q{SET ttl_docs.clock_offset = '1h'; SET ROLE writer; INSERT INTO before VALUES (13, 1)}),
	qr/DETAIL:  Key is not present in table "parent"\./, 'no right to read: the message does not show the key');

# Renaming a column or the constraint makes a new query.
is( sql(q{
		INSERT INTO before VALUES (14, 1);
		ALTER TABLE parent RENAME id TO key;
		INSERT INTO before VALUES (15, 1);
		ALTER TABLE before RENAME CONSTRAINT before_parent_fkey TO renamed;
		ALTER TABLE parent RENAME TO renamed;
		INSERT INTO before VALUES (16, 1) RETURNING id}), '16', 'a session that has checked the key survives renames');
refused('INSERT INTO before VALUES (17, 1)', 'INSERT after renames');
like(error_of($node, $db, q{
		SET ttl_docs.clock_offset = '1h';
		INSERT INTO before VALUES (19, 2);
		ALTER TABLE before RENAME CONSTRAINT renamed TO again;
		INSERT INTO before VALUES (20, 1)}), qr/violates foreign key constraint "again"/, 'the message has the new name');

# Core checks a key with PERIOD by a query on 19, too.
begin_section('periods');
SKIP:
{
	skip 'foreign keys can have a PERIOD from 18', 3 if $node->pg_version < 18;
	sql(q{
		CREATE TABLE temporal (id int4range, valid int4range, doc jsonb, PRIMARY KEY (id, valid WITHOUT OVERLAPS));
		SELECT ttl_docs.adopt('temporal', -1);
		INSERT INTO temporal VALUES ('[1,2)', '[1,9)', '{"ttl": 3000}');
		CREATE TABLE child (id int4range, valid int4range, FOREIGN KEY (id, PERIOD valid) REFERENCES temporal (id, PERIOD valid))});
	is(triggers(), '', 'a foreign key with PERIOD brings no trigger');
	is(sql(q{INSERT INTO child VALUES ('[1,2)', '[2,3)') RETURNING valid}), '[2,3)', 'a live parent for a PERIOD');
	refused(q{INSERT INTO child VALUES ('[1,2)', '[3,4)')}, 'a foreign key with PERIOD');
}

# ---- Partitions ----

begin_section('partitions');
sql(q{
	SELECT ttl_docs.adopt('parent', -1);
	CREATE TABLE child (id int, parent int REFERENCES parent) PARTITION BY RANGE (id);
	CREATE TABLE child_1 PARTITION OF child FOR VALUES FROM (0) TO (10);
	CREATE TABLE child_2 PARTITION OF child FOR VALUES FROM (10) TO (20) PARTITION BY LIST (id);
	CREATE TABLE child_2a PARTITION OF child_2 DEFAULT;
	CREATE TABLE child_3 (id int, parent int);
	CREATE TABLE child_4 (id int, parent int REFERENCES parent);
	ALTER TABLE child ATTACH PARTITION child_3 FOR VALUES FROM (20) TO (30);
	ALTER TABLE child ATTACH PARTITION child_4 FOR VALUES FROM (30) TO (40);
});
has_triggers('child_1:child_parent_fkey child_2a:child_parent_fkey child_3:child_parent_fkey child_4:child_4_parent_fkey',
	'each partition with rows has the trigger');
refused("INSERT INTO child VALUES ($_, 1)", "a row for a partition: $_") for 1, 11, 21, 31;
refused("INSERT INTO child_2a VALUES (11, 1)", 'a row for a partition that is named');
sql('INSERT INTO child VALUES (1, 2)');
refused('UPDATE child SET id = 15, parent = 1', 'an update that moves a row to another partition');
sql('ALTER TABLE child DETACH PARTITION child_3');
refused('INSERT INTO child_3 VALUES (21, 1)', 'a detached partition');
sql(q{ALTER TABLE child ALTER CONSTRAINT child_parent_fkey DEFERRABLE INITIALLY DEFERRED});
like(error_of($node, $db, q{
		SET ttl_docs.clock_offset = '1h';
		BEGIN;
		INSERT INTO child VALUES (2, 1), (12, 1);
		SELECT 'not checked yet';
		SET CONSTRAINTS child_parent_fkey IMMEDIATE}), qr/ERROR:  insert or update on table "child_1" violates/,
	'the partitions are deferred with their root');
sql(q{
	CREATE TABLE docs (id int, doc jsonb, PRIMARY KEY (id)) PARTITION BY LIST (id);
	CREATE TABLE docs_1 PARTITION OF docs FOR VALUES IN (1);
	CREATE TABLE docs_2 (id int PRIMARY KEY, doc jsonb, _slot bigint, _ttl int, _ts timestamptz NOT NULL DEFAULT now());
	SELECT ttl_docs.adopt('docs', -1);
	CREATE TABLE to_root (doc int REFERENCES docs);
	CREATE TABLE to_leaf (doc int REFERENCES docs_1);
	CREATE TABLE to_next (doc int REFERENCES docs_2);
	INSERT INTO docs VALUES (1, '{"ttl": 3000}');
	INSERT INTO docs_2 VALUES (2, '{"ttl": 3000}');
});
like(triggers() || 'to_leaf:', qr/to_leaf:/, 'a foreign key to a partition of a collection');
unlike(triggers(), qr/to_root|to_next/, 'core checks a partitioned parent with a query, and a plain table is no collection');
refused('INSERT INTO to_root VALUES (1)', 'the parent is partitioned');
refused('INSERT INTO to_leaf VALUES (1)', 'the parent is a partition');
sql('ALTER TABLE docs ATTACH PARTITION docs_2 FOR VALUES IN (2)');
refused('INSERT INTO to_next VALUES (2)', 'the parent was attached to a collection');
sql('ALTER TABLE docs DETACH PARTITION docs_2');
refused('INSERT INTO to_next VALUES (2)', 'the parent was detached, and is a collection');

# ---- The constraint decides ----

begin_section('follows');
sql(q{
	SELECT ttl_docs.adopt('parent', -1);
	CREATE TABLE child (id int PRIMARY KEY, parent int CONSTRAINT fk REFERENCES parent);
	CREATE TABLE child_2 (id int PRIMARY KEY, parent int CONSTRAINT fk REFERENCES parent DEFERRABLE);
});
my $definition = q{
	SELECT string_agg(format('%s %s %s', tgrelid::regclass, tgdeferrable, tginitdeferred), ',' ORDER BY tgrelid)
	  FROM pg_trigger WHERE tgname LIKE 'RI_ConstraintTrigger_b_%'};
is(sql($definition), $has_triggers ? 'child f f,child_2 t f' : '', 'the trigger is as deferrable as its constraint');
sql(q{
	ALTER TABLE child ALTER CONSTRAINT fk DEFERRABLE INITIALLY DEFERRED;
	ALTER TABLE child_2 ALTER CONSTRAINT fk NOT DEFERRABLE});
is(sql($definition), $has_triggers ? 'child t t,child_2 f f' : '', 'also after ALTER CONSTRAINT');
is( sql(q{
		BEGIN;
		SET LOCAL ttl_docs.clock_offset = '1h';
		INSERT INTO child VALUES (1, 1);
		DELETE FROM child;
		INSERT INTO child VALUES (2, 1);
		UPDATE child SET parent = 2;
		COMMIT;
		SELECT parent FROM child}), '2', 'a deferred check looks at the last version of a row');
like(error_of($node, $db, q{
		BEGIN;
		INSERT INTO child VALUES (3, 1);
		SET LOCAL ttl_docs.clock_offset = '1h';
		SET CONSTRAINTS fk IMMEDIATE}), qr/violates foreign key constraint "fk"/, 'SET CONSTRAINTS runs it');

SKIP:
{
	skip 'foreign keys can be NOT ENFORCED from 18', 4 if $node->pg_version < 18;
	sql('ALTER TABLE child_2 ALTER CONSTRAINT fk NOT ENFORCED');
	has_triggers('child:fk', 'NOT ENFORCED drops the trigger');
	is(sql(q{SET ttl_docs.clock_offset = '1h'; INSERT INTO child_2 VALUES (1, 1), (2, 77) RETURNING id}), "1\n2", 'and nothing is checked');
	sql('DELETE FROM child_2 WHERE id = 2');
	sql(q{SET ttl_docs.clock_offset = '1h'; ALTER TABLE child_2 ALTER CONSTRAINT fk ENFORCED});
	has_triggers('child:fk child_2:fk', 'ENFORCED creates it, and accepts an expired parent that is on disk');
	refused('INSERT INTO child_2 VALUES (3, 1)', 'after ENFORCED');
}

SKIP:
{
	skip 'only 19 has the trigger', 7 if !$has_triggers;
	my $name = sql(q{SELECT tgname FROM pg_trigger WHERE tgname LIKE 'RI_ConstraintTrigger_b_%' AND tgrelid = 'child'::regclass});
	for my $command ("DROP TRIGGER \"$name\" ON child", map { "ALTER TABLE child $_ TRIGGER \"$name\"" } 'DISABLE', 'ENABLE REPLICA')
	{
		like(error_of($node, $db, "\\set VERBOSITY verbose\n$command"),
			qr/ERROR:  2BP01: cannot change the ttl_docs trigger of foreign key "fk" of table "child"/, "refused: $command");
	}
	sql(q{ALTER TABLE child DISABLE TRIGGER ALL; INSERT INTO child VALUES (20, 99); DELETE FROM child WHERE id = 20; ALTER TABLE child ENABLE TRIGGER ALL});
	refused('INSERT INTO child VALUES (21, 1)', 'after DISABLE and ENABLE TRIGGER ALL');
	like(error_of($node, $db, q{
			CREATE CONSTRAINT TRIGGER own AFTER INSERT ON child FOR EACH ROW EXECUTE FUNCTION ttl_docs_internal.write_document();
			INSERT INTO child VALUES (22, 2)}), qr/works only as the trigger of a collection/, 'users cannot create such a trigger');
	sql('DROP TRIGGER IF EXISTS own ON child');
	# one statement that adopts the parent and has already begun to write to the child
	is(sql(q{SELECT ttl_docs.release('parent')}), '', 'release() works');
	like(error_of($node, $db, q{
			CREATE FUNCTION adopts() RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM ttl_docs.adopt('parent', -1); RETURN 2; END $$;
			INSERT INTO child VALUES (23, adopts())}), qr/because it is being used by active queries in this session/,
		'a child that is being written keeps the parent from becoming a collection');
	sql(q{SELECT ttl_docs.adopt('parent', -1)});
}
sql('ALTER TABLE child_2 DROP CONSTRAINT fk');
has_triggers('child:fk', 'DROP CONSTRAINT drops the trigger');
sql(q{SELECT ttl_docs.release('parent')});
is(triggers(), '', 'release() drops the triggers');
sql(q{SELECT ttl_docs.adopt('parent', -1); INSERT INTO parent VALUES (1, '{"ttl": 3000}') ON CONFLICT (id) DO UPDATE SET doc = excluded.doc});
has_triggers('child:fk', 'adopt() brings them back');
is(sql(q{SELECT convalidated FROM pg_constraint WHERE conname = 'fk'}), 't', 'the foreign key is there');

# ---- Backups ----

my $dump = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, $node->connstr($db) ], 'pg_dump succeeds');
unlike(slurp_file($dump), qr/RI_ConstraintTrigger/, 'a dump does not contain the trigger');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$db = 'restored';
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr($db) ], 'the dump can be restored');
has_triggers('child:fk', 'the restored foreign key has the trigger');
like(error_of($node, $db, q{SET ttl_docs.clock_offset = '1h'; INSERT INTO child VALUES (30, 1)}),
	qr/violates foreign key constraint "fk"/, 'the restored foreign key finds no expired parent');

# The label can come after the foreign key.
my $label = sql(q{SELECT label FROM pg_seclabel WHERE objoid = 'parent'::regclass});
begin_section('labelled');
sql(qq{
	ALTER TABLE parent ADD _ts timestamptz NOT NULL DEFAULT now(), ADD _ttl int DEFAULT 3000, ADD _slot bigint;
	CREATE TABLE child (id int, parent int CONSTRAINT fk REFERENCES parent);
	SECURITY LABEL FOR ttl_docs ON TABLE parent IS '$label'});
has_triggers('child:fk', 'SECURITY LABEL brings the trigger');
refused('INSERT INTO child VALUES (1, 1)', 'after SECURITY LABEL');

# ---- DROP EXTENSION ----

like(error_of($node, $db, 'DROP EXTENSION ttl_docs CASCADE'), qr/1 collection is now a plain table/, 'DROP EXTENSION ... CASCADE');
is(sql(q{SELECT count(*) FROM pg_constraint WHERE conname = 'fk'}), '1', 'DROP EXTENSION leaves the foreign key');
is(sql(q{SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'RI_ConstraintTrigger_b_%'}), '0', 'and drops the trigger');
like(error_of($node, $db, 'INSERT INTO child VALUES (1, 99)'), qr/violates foreign key constraint "fk"/, 'core checks it');
is(sql('INSERT INTO child VALUES (1, 1) RETURNING id'), '1', 'a document that had expired is a row again');

# ---- Rights ----

# The purge runs the actions of a foreign key as the owner of the parent.  The child table belongs to another
# user, and has a foreign key to another collection.
begin_section('rights');
sql(q{
	CREATE ROLE child_owner;
	SELECT ttl_docs.adopt('parent', 3000), ttl_docs.adopt('plain', -1);
	GRANT REFERENCES ON parent, plain TO child_owner;
	GRANT CREATE ON SCHEMA public TO child_owner;
	SET ROLE child_owner;
	CREATE TABLE child (id int, parent int REFERENCES parent ON DELETE SET NULL, other int REFERENCES plain);
	RESET ROLE;
	INSERT INTO child VALUES (1, 1, 2);
	ALTER SYSTEM SET ttl_docs.purge = on;
	SELECT pg_reload_conf();
});
like(error_of($node, $db, q{
		CREATE CONSTRAINT TRIGGER own AFTER UPDATE ON child FOR EACH ROW EXECUTE FUNCTION ttl_docs_internal.write_document();
		SET ttl_docs.clock_offset = '1h';
		CALL ttl_docs.purge('parent')}), qr/WARNING:  the purge of "parent" is held: blocked/,
	'a trigger that somebody has created with our function blocks the purge');
sql(q{
	DROP TRIGGER own ON child;
	SET ttl_docs.clock_offset = '1h';
	CALL ttl_docs.purge('parent');
});
is(sql('SELECT id, parent, other FROM child'), '1||2', 'the purge runs the action on a child table of another owner');
is(sql(q{SELECT on_disk('parent')}), '0', 'and deletes the documents');
sql(q{ALTER SYSTEM RESET ttl_docs.purge; SELECT pg_reload_conf()});

# ---- Disabled triggers ----

# A superuser can enable core's check alone.  The session has found the table complete before.
begin_section('disabled');
SKIP:
{
	skip 'only 19 has the trigger', 8 if !$has_triggers;
	sql(q{
		SELECT ttl_docs.adopt('parent', -1);
		CREATE TABLE single (parent int REFERENCES parent);
		CREATE TABLE child (parent int REFERENCES parent) PARTITION BY LIST (parent);
		CREATE TABLE child_1 PARTITION OF child DEFAULT});
	for my $tables ([ 'single', 'single' ], [ 'child', 'child_1' ])
	{
		my ($written, $table) = @$tables;
		my ($ours, $check) = split /\n/, sql(qq{
			SELECT tgname FROM pg_trigger
			 WHERE tgrelid = '$table'::regclass AND tgfoid::regproc::text IN ('ttl_docs_internal.write_document', '"RI_FKey_check_ins"')
			 ORDER BY tgname});
		for my $how ('DISABLE', 'ENABLE REPLICA')
		{
			like(error_of($node, $db, qq{
					ALTER TABLE $table $how TRIGGER "$check", $how TRIGGER "$ours";
					INSERT INTO $written VALUES (2);
					ALTER TABLE $table ENABLE TRIGGER "$check";
					SET ttl_docs.clock_offset = '1h';
					INSERT INTO $written VALUES (1)}), qr/ERROR:  cannot write to table "$table" because its foreign key/,
				"$how TRIGGER for $written, then only core's check is enabled");
			sql(q{SELECT ttl_docs.adopt('parent', -1)});
			refused("INSERT INTO $written VALUES (1)", 'adopt() repairs it');
			# it has made a new trigger
			$ours = sql(qq{SELECT tgname FROM pg_trigger WHERE tgrelid = '$table'::regclass AND tgname LIKE 'RI_ConstraintTrigger_b_%'});
		}
	}
}

# ---- Without the library ----

begin_section('unloaded');
sql(q{
	SELECT ttl_docs.adopt('parent', -1);
	CREATE TABLE child (id int) PARTITION BY LIST (id)});
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
$node->restart;
sql(q{
	CREATE TABLE child_1 (id int, parent int REFERENCES parent);
	ALTER TABLE child ADD parent int;
	ALTER TABLE child ATTACH PARTITION child_1 DEFAULT;
	CREATE TABLE single (id int PRIMARY KEY, parent int REFERENCES parent)});
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'ttl_docs'");
$node->restart;
is(triggers(), '', 'foreign keys that were created without the library have no trigger');

SKIP:
{
	skip 'only 19 has the trigger', 9 if !$has_triggers;
	my %writes = (
		'INSERT' => 'INSERT INTO single VALUES (1, 2)',
		'UPDATE' => 'UPDATE single SET id = 2',
		'a data-modifying CTE' => 'WITH w AS (INSERT INTO single VALUES (1, 2) RETURNING id) SELECT * FROM w',
		'COPY' => "COPY single FROM stdin;\n\\.\n",
		'INSERT into a partitioned table' => 'INSERT INTO child VALUES (1, 2)',
		'COPY into a partitioned table' => "COPY child FROM stdin;\n\\.\n",
	);
	for my $name (sort keys %writes)
	{
		my $error = error_of($node, $db, "\\set VERBOSITY verbose\n$writes{$name}");
		like($error, qr/ERROR:  55000: cannot write to table "(single|child_1)" because its foreign key .* lacks the trigger of ttl_docs/,
			"$name is refused");
	}
	is(sql('DELETE FROM single RETURNING 1'), '', 'DELETE is not');
	my ($hint) = error_of($node, $db, $writes{INSERT}) =~ /HINT:  To create the trigger: (SELECT .*\))\./;
	is($hint, "SELECT ttl_docs.adopt('public.parent')", 'the hint has the command');
	sql($hint);
	is(sql("$writes{INSERT}; INSERT INTO child VALUES (1, 2) RETURNING id"), '1', 'it repairs the foreign keys');
}
refused('INSERT INTO single VALUES (3, 1)', 'a foreign key that was created without the library');
refused('INSERT INTO child VALUES (3, 1)', 'the same for a partition');
nothing_crashed($node);

done_testing();

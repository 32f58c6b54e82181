# The parts of docs/security.md that SQL tests cannot check.
#
# - Every threat in its tables names an existing test, with the section that it quotes.
# - The extension script follows pgspot's rules, so users who prepared the database before gain
#   nothing: it uses no search_path that others can write to, takes over no existing object, and has no
#   SECURITY DEFINER or LEAKPROOF function.  Scripts that break a rule show that the checker works.
# - CREATE EXTENSION is safe under a search_path full of traps, and fails if its schema exists already.
# - A client that is not a superuser cannot set privileged settings when it connects.
# - The workers, which are superusers, purge a table that has code wherever a table can have code, in
#   a database with hostile settings of its owner.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PurgeNode;
use Test::More;
use TtlServer;

my $script = 'sql/ttl_docs--1.0.sql';

# ---- docs/security.md ----

# A line of a table: | threat | what stops it | `file` "section"; `file` "section" |
my $threats = 0;
my %named;
for my $line (split /\n/, slurp_file('docs/security.md'))
{
	next unless $line =~ /^\|/;
	my @cells = split /\s*\|\s*/, $line;
	shift @cells;
	next if $cells[0] =~ /^(-+|threat)$/;
	$threats++;
	my $tests = 0;
	my $cell = $cells[-1];
	while ($cell =~ s/^`(test\/[\w.\/]+)`(?: "([^"]+)")?(?:; |$)//)
	{
		my ($file, $section) = ($1, $2);
		$tests++;
		$named{$file} = 1;
		ok(-f $file, "$file exists") or next;
		ok(index(slurp_file($file), $section) >= 0, "$file has \"$section\"")
		  if defined $section;
	}
	is($cell, '', "the threat names its tests in the right form: $cells[0]");
	cmp_ok($tests, '>', 0, "the threat names a test: $cells[0]");
}
cmp_ok($threats, '>', 30, 'docs/security.md has tables of threats');
is_deeply([ grep { !$named{$_} } sort glob('test/sql/security_*.sql') ],
	[], 'docs/security.md names every security test');

# ---- The extension script ----

# Splits a script into statements without comments.  Strings become '', dollar-quoted strings $$.
# The name of the library stays, and so do the names of the I/O functions of interval.
my $kept = qr/^'(?:MODULE_PATHNAME|interval_(?:in|out|recv|send))'$/;
sub statements_of
{
	my ($sql) = @_;
	$sql =~ s/^\\echo.*$//mg;
	my $bare = '';
	while ($sql =~ /\G('(?:[^']|'')*'|\$(\w*)\$.*?\$\2\$|--[^\n]*|\/\*.*?\*\/|.)/gs)
	{
		my $token = $1;
		$bare .=
			$token =~ /^(--|\/\*)/ ? ' '
		  : $token =~ $kept ? $token
		  : $token =~ /^'/ ? "''"
		  : $token =~ /^\$/ && length $token > 1 ? '$$'
		  :                                        $token;
	}
	$bare =~ s/\s+/ /g;
	$bare =~ s/^ //;
	return split /\s*;\s*/, $bare;
}

# Returns the rules that a statement breaks.  %$made has the schemas that the script has created.
sub faults_of
{
	my ($statement, $made) = @_;
	my @faults;
	my $name = qr/(\w+)\.(\w+)/;
	my $object;

	push @faults, 'takes over an existing object'
	  if $statement =~ /\b(OR REPLACE|IF (NOT )?EXISTS|CASCADE)\b/i;
	push @faults, 'lends rights' if $statement =~ /\bSECURITY DEFINER\b|\bLEAKPROOF\b/i;
	push @faults, 'runs a statement that it builds' if $statement =~ /\bEXECUTE\b(?! ON)|^DO\b/i;
	push @faults, 'changes a setting' if $statement =~ /^(SET|RESET)\b|\bset_config\b/i;

	if ($statement =~ /^CREATE SCHEMA (\w+)$/i)
	{
		$made->{$1} = 1;
		return @faults;
	}
	if ($statement =~ /^(CREATE|DROP) (?:OR REPLACE )?(FUNCTION|PROCEDURE|VIEW) (?:IF (?:NOT )?EXISTS )?(\S+?)\s*(\(| AS)/i)
	{
		my ($verb, $kind, $target) = ($1, uc $2, $3);
		push @faults, 'creates something outside of its schemas'
		  unless $target =~ /^$name$/ && $made->{$1};
		push @faults, 'has a function that is not in C'
		  if $verb =~ /CREATE/i
		  && $kind ne 'VIEW'
		  && $statement !~ /\bLANGUAGE C\b.*AS 'MODULE_PATHNAME'|\bLANGUAGE internal\b.*AS 'interval_/;
		push @faults, faults_of_query($statement =~ /\bAS (SELECT .*)$/i ? $1 : '')
		  if $kind eq 'VIEW';
	}
	elsif ($statement =~ /^CREATE TYPE (\S+)(?: \((.*)\))?$/i)
	{
		my ($target, $functions) = ($1, $2 // '');
		push @faults, 'creates something outside of its schemas'
		  unless $target =~ /^$name$/ && $made->{$1};
		while ($functions =~ /\b(?:INPUT|OUTPUT|RECEIVE|SEND) = (\S+?),?(?: |$)/gi)
		{
			my $function = $1;
			push @faults, 'has a type with a function that is not its own'
			  unless $function =~ /^$name$/ && $made->{$1};
		}
	}
	elsif ($statement =~ /^CREATE CAST\b/i)
	{
		push @faults, 'has a cast to a type that is not its own, or with a function'
		  unless $statement =~ /^CREATE CAST \(pg_catalog\.\w+ AS $name\) WITHOUT FUNCTION AS IMPLICIT$/
		  && $made->{$1};
	}
	elsif ($statement =~ /^SELECT\b/i)
	{
		push @faults, faults_of_query($statement);
	}
	elsif ($statement !~ /^(GRANT|COMMENT ON)\b/i)
	{
		push @faults, 'is not an expected statement';
	}
	return @faults;
}

# In a query, every name has its schema: functions, operators, types and tables.
sub faults_of_query
{
	my ($query) = @_;
	my @faults;
	my $keyword = qr/^(?:SELECT|FROM|AS|CASE|WHEN|THEN|ELSE|AND|OR|ON|IN|NOT|EXISTS|LATERAL|JOIN|WHERE|OPERATOR|LEAST)$/i;

	$query =~ s/\bOPERATOR\(pg_catalog\.[-+*\/<>=~!@#%^&|`?]+\)/,/g;
	push @faults, 'has an operator without its schema'
	  if $query =~ /\bOPERATOR\(/ || $query =~ s/::/ CAST_TO /gr =~ /[+*\/<>=~!@#%^&|`?]|-(?!\d)/;
	while ($query =~ /(?<![\w.])(\w+)\s*\(/g)
	{
		push @faults, "calls $1() without its schema" unless $1 =~ $keyword;
	}
	while ($query =~ /::(\S+)/g)
	{
		push @faults, 'has a type without its schema' unless $1 =~ /^pg_catalog\.\w+/;
	}
	while ($query =~ /\b(?:FROM|JOIN) (?!LATERAL|\()([\w.]+)/gi)
	{
		push @faults, "reads $1 without its schema" unless $1 =~ /\./;
	}
	return @faults;
}

sub faults_of_script
{
	my ($sql) = @_;
	my %made;
	my @faults;
	for my $statement (statements_of($sql))
	{
		push @faults, map { "$_: " . substr($statement, 0, 60) } faults_of($statement, \%made);
	}
	return @faults;
}

is_deeply([ faults_of_script(slurp_file($script)) ], [], "$script breaks no rule");
cmp_ok(scalar(statements_of(slurp_file($script))), '>', 50, "$script has many statements");

# Scripts that break one rule each.
my $c = q{LANGUAGE C AS 'MODULE_PATHNAME', 'x'};
for my $bad (
	[ "CREATE OR REPLACE FUNCTION s.f() RETURNS int $c", qr/takes over/ ],
	[ 'CREATE SCHEMA IF NOT EXISTS s', qr/takes over/ ],
	[ 'DROP FUNCTION s.f() CASCADE', qr/takes over/ ],
	[ "CREATE FUNCTION s.f() RETURNS int SECURITY DEFINER $c", qr/lends rights/ ],
	[ "CREATE FUNCTION s.f() RETURNS int LEAKPROOF $c", qr/lends rights/ ],
	[ 'DO $$ BEGIN NULL; END $$', qr/it builds/ ],
	[ 'SET search_path = public', qr/a setting/ ],
	[ "SELECT pg_catalog.set_config('search_path', 'public', false)", qr/a setting/ ],
	[ "CREATE FUNCTION f() RETURNS int $c", qr/outside/ ],
	[ "CREATE FUNCTION other.f() RETURNS int $c", qr/outside/ ],
	[ 'CREATE FUNCTION s.f() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$', qr/not in C/ ],
	[ q{CREATE FUNCTION s.f(cstring) RETURNS int LANGUAGE internal AS 'int4in'}, qr/not in C/ ],
	[ 'CREATE TYPE t', qr/outside/ ],
	[ 'CREATE TYPE public.t (INPUT = s.f, OUTPUT = s.g)', qr/outside/ ],
	[ 'CREATE TYPE s.t (INPUT = s.f, OUTPUT = g)', qr/function that is not its own/ ],
	[ 'CREATE TYPE s.t (INPUT = public.f, OUTPUT = s.g)', qr/function that is not its own/ ],
	[ 'CREATE CAST (pg_catalog.int4 AS pg_catalog.text) WITHOUT FUNCTION AS IMPLICIT', qr/a cast/ ],
	[ 'CREATE CAST (int4 AS s.t) WITHOUT FUNCTION AS IMPLICIT', qr/a cast/ ],
	[ 'CREATE CAST (pg_catalog.int4 AS s.t) WITH FUNCTION s.f(int4) AS IMPLICIT', qr/a cast/ ],
	[ 'CREATE VIEW s.v AS SELECT a FROM pg_catalog.t WHERE a = 1', qr/an operator/ ],
	[ 'CREATE VIEW s.v AS SELECT a OPERATOR(public.=) 1 FROM pg_catalog.t', qr/an operator/ ],
	[ 'CREATE VIEW s.v AS SELECT lower(a) FROM pg_catalog.t', qr/calls lower/ ],
	[ 'CREATE VIEW s.v AS SELECT a::text FROM pg_catalog.t', qr/a type/ ],
	[ 'CREATE VIEW s.v AS SELECT a FROM t', qr/reads t/ ],
	[ 'CREATE VIEW s.v AS SELECT a FROM pg_catalog.t JOIN u ON true', qr/reads u/ ],
	[ 'CREATE VIEW v AS SELECT 1', qr/outside/ ],
	[ 'CREATE TABLE s.t (a int)', qr/expected/ ],
	[ 'CREATE OPERATOR s.= (LEFTARG = int)', qr/expected/ ],
	[ 'ALTER DATABASE x SET search_path = y', qr/expected/ ])
{
	like(join("\n", faults_of_script("CREATE SCHEMA s; -- ; '\n$bad->[0];")),
		$bad->[1], "the checker finds: $bad->[0]");
}

# The script grants the expected privileges, and no others.
is_deeply(
	[ sort grep { /^GRANT/ } statements_of(slurp_file($script)) ],
	[
		'GRANT EXECUTE ON ALL ROUTINES IN SCHEMA ttl_docs, ttl_docs_internal TO PUBLIC',
		'GRANT SELECT ON ttl_docs.collections TO PUBLIC',
		'GRANT SELECT ON ttl_docs.stat_collections TO PUBLIC',
		'GRANT SELECT ON ttl_docs.stat_progress TO PUBLIC',
		'GRANT SELECT ON ttl_docs.stat_shards TO PUBLIC',
		'GRANT USAGE ON SCHEMA ttl_docs TO PUBLIC',
		'GRANT USAGE ON SCHEMA ttl_docs_internal TO PUBLIC'
	],
	'the script grants the expected privileges, and no others');
# The script runs with this schema as its search_path.  Nobody can add objects to it.
like(slurp_file('ttl_docs.control'), qr/^schema = pg_catalog$/m, 'the control file names pg_catalog');
like(slurp_file('ttl_docs.control'), qr/^relocatable = false$/m, 'the extension cannot be moved to another schema');
like(slurp_file('ttl_docs.control'), qr/^trusted = false$/m, 'only superusers can install the extension');

# ---- Installing ----

my $node = start_node('');
my $traps = q{
	CREATE FUNCTION %1$s.gain(how text) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.gained VALUES (current_user, how);
		RETURN true;
	END $$;
};
# Creates a database that mallory owns, with traps.
sub database
{
	my ($name) = @_;
	sql("CREATE DATABASE $name OWNER mallory");
	$node->safe_psql($name, q{
		CREATE TABLE gained (who text, how text);
		GRANT INSERT ON gained TO PUBLIC;
		CREATE SCHEMA m AUTHORIZATION mallory;
	});
	$node->safe_psql($name, 'SET ROLE mallory; ' . sprintf($traps, 'm'));
	return;
}

sql('CREATE ROLE mallory LOGIN');
database('installed');
$node->safe_psql('installed', q{
	SET ROLE mallory;
	CREATE DOMAIN m.text AS pg_catalog.text CHECK (m.gain('type'));
	CREATE DOMAIN m.regclass AS pg_catalog.regclass CHECK (m.gain('type'));
	CREATE FUNCTION m.eq(pg_catalog.int4, pg_catalog.int4) RETURNS boolean LANGUAGE plpgsql AS
		$$ BEGIN RETURN m.gain('operator'); END $$;
	CREATE OPERATOR m.= (LEFTARG = pg_catalog.int4, RIGHTARG = pg_catalog.int4, FUNCTION = m.eq);
	CREATE FUNCTION m.format(VARIADIC pg_catalog.text[]) RETURNS text LANGUAGE plpgsql AS
		$$ BEGIN PERFORM m.gain('function'); RETURN ''; END $$;
	ALTER DATABASE installed SET search_path = m, pg_catalog;
});
$node->safe_psql('installed', q{
	CREATE EXTENSION ttl_docs;
	SELECT ttl_docs.create_collection('public.c', 60);
	SELECT * FROM ttl_docs.collections;
	SELECT * FROM ttl_docs.stat_collections;
});
is($node->safe_psql('installed', 'SELECT how FROM public.gained'),
	'', 'CREATE EXTENSION runs no function that it finds by search_path');
is($node->safe_psql('installed', q{
		SELECT DISTINCT t.typnamespace::pg_catalog.regnamespace::pg_catalog.text FROM pg_catalog.pg_proc AS p, pg_catalog.unnest(p.proargtypes) AS a (type), pg_catalog.pg_type AS t
		 WHERE p.pronamespace IN ('ttl_docs'::pg_catalog.regnamespace, 'ttl_docs_internal'::pg_catalog.regnamespace) AND t.oid OPERATOR(pg_catalog.=) a.type ORDER BY 1
	}), "pg_catalog\nttl_docs_internal", 'no function has an argument of a type that was found by search_path');
is($node->safe_psql('installed', q{
		SELECT pg_catalog.count(*) FROM pg_catalog.pg_namespace
		 WHERE nspname LIKE 'ttl\_docs%' AND pg_catalog.has_schema_privilege('mallory', oid, 'CREATE')
	}), '0', 'nobody can add to its schemas, not even the owner of the database');

database('squatted');
$node->safe_psql('squatted', 'SET ROLE mallory; CREATE SCHEMA ttl_docs');
my ($ret, $stdout, $stderr) = $node->psql('squatted', 'CREATE EXTENSION ttl_docs');
isnt($ret, 0, 'CREATE EXTENSION fails if its schema exists');
like($stderr, qr/schema "ttl_docs" already exists/, 'the error names the schema');
like(error_of($node, 'squatted', 'SET ROLE mallory; DROP SCHEMA ttl_docs; CREATE EXTENSION ttl_docs'),
	qr/permission denied to create extension/, 'the owner of a database cannot install the extension');

# ---- Settings that a client sends when it connects ----

for my $setting ('show_expired=on', 'clock_offset=5', 'purge=off')
{
	local $ENV{PGOPTIONS} = "-c ttl_docs.$setting";
	($ret, $stdout, $stderr) = $node->psql('postgres', 'SELECT 1', extra_params => [ '-U', 'mallory' ]);
	isnt($ret, 0, "$setting: an ordinary user cannot connect with it");
	like($stderr, qr/permission denied to set parameter/, "$setting: the error names the missing privilege");
	is($node->safe_psql('postgres', 'SELECT 1'), '1', "$setting: a superuser can connect with it");
}
{
	# the prefix is reserved, so there are no placeholders
	local $ENV{PGOPTIONS} = '-c ttl_docs.anything=1';
	($ret, $stdout, $stderr) =
	  $node->psql('postgres', 'SHOW ttl_docs.anything', extra_params => [ '-U', 'mallory' ]);
	isnt($ret, 0, 'an unknown setting of this prefix is refused');
}

# ---- The workers ----

database('hostile');
$node->safe_psql('hostile', q{
	CREATE EXTENSION ttl_docs;
	SET ROLE mallory;
	CREATE FUNCTION m.pass(how text, value text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM m.gain(how);
		RETURN value;
	EXCEPTION WHEN OTHERS THEN
		RETURN value;
	END $$;
	CREATE FUNCTION m.trigger() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM m.gain(TG_NAME);
		RETURN OLD;
	END $$;
	CREATE DOMAIN m.name AS text CHECK (m.pass('domain', VALUE) IS NOT NULL);
	CREATE TABLE m.t (id m.name PRIMARY KEY, doc jsonb CHECK (m.pass('check', doc::text) IS NOT NULL),
		generated text UNIQUE GENERATED ALWAYS AS (m.pass('generated column', id)) STORED);
	CREATE INDEX ON m.t (m.pass('index expression', id));
	CREATE INDEX ON m.t ((m.pass('constant index expression', 'x') || id));
	CREATE INDEX ON m.t (id) WHERE m.pass('constant index predicate', 'x') IS NOT NULL;
	CREATE STATISTICS m.s ON (m.pass('statistics', id)), (m.pass('constant statistics', 'x') || id) FROM m.t;
	CREATE POLICY p ON m.t USING (m.pass('policy', id) IS NOT NULL);
	ALTER TABLE m.t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
	CREATE RULE r AS ON DELETE TO m.t DO ALSO SELECT m.gain('rule');
	SELECT ttl_docs.adopt('m.t', 60);
	CREATE INDEX aaa ON m.t (_slot) WHERE m.pass('constant predicate of a purge index', 'x') IS NOT NULL;
	CREATE TRIGGER row_trigger BEFORE DELETE ON m.t FOR EACH ROW EXECUTE FUNCTION m.trigger();
	CREATE TRIGGER statement_trigger AFTER DELETE ON m.t FOR EACH STATEMENT EXECUTE FUNCTION m.trigger();
	CREATE CONSTRAINT TRIGGER deferred_trigger AFTER DELETE ON m.t DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION m.trigger();
	CREATE FUNCTION m.eq(pg_catalog.int8, pg_catalog.int8) RETURNS boolean LANGUAGE plpgsql AS
		$$ BEGIN RETURN m.gain('operator'); END $$;
	CREATE OPERATOR m.<= (LEFTARG = pg_catalog.int8, RIGHTARG = pg_catalog.int8, FUNCTION = m.eq);
	ALTER DATABASE hostile SET search_path = m, pg_catalog;
	ALTER DATABASE hostile SET row_security = off;
	ALTER DATABASE hostile SET default_transaction_isolation = 'serializable';
	RESET ROLE;
	SET row_security = on;
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO m.t (id, doc) SELECT i, '{}' FROM generate_series(1, 5) AS i;
	TRUNCATE public.gained;
});
configure('ttl_docs.purge = on');
becomes($node, 'hostile', q{
		SELECT s.purged FROM ttl_docs.stat_collections AS s
		 WHERE s.collection OPERATOR(pg_catalog.=) 'm.t'::pg_catalog.regclass},
	'5', 'the workers purge a hostile table');
is($node->safe_psql('hostile', q{SELECT DISTINCT g.who FROM public.gained AS g}),
	'mallory', 'its code runs as the owner of the table');
is($node->safe_psql('hostile', q{SELECT DISTINCT g.how FROM public.gained AS g ORDER BY g.how}),
	"deferred_trigger\nrow_trigger\nstatement_trigger", 'only its triggers run');

# A label with floors at the end of the time range does not disturb the workers.
$node->safe_psql('postgres', q{
	SELECT ttl_docs.create_collection('healthy', 60);
	CREATE SCHEMA m AUTHORIZATION mallory;
	SET ROLE mallory;
	CREATE TABLE m.l (id text PRIMARY KEY, doc jsonb, _ts timestamptz NOT NULL, _ttl int, _slot bigint);
	INSERT INTO m.l VALUES ('1', '{}', '-infinity', NULL, -9223372036854775808),
		('2', '{}', '294276-12-31 23:59:59.999999+00', 2147483647, 9223372036854775807),
		('3', '{}', 'epoch', -2147483648, -1), ('4', '{}', 'infinity', 5, 5);
	SECURITY LABEL FOR ttl_docs ON TABLE m.l IS '{"version": 1, "document": "doc", "default_ttl": 60, "indexing": "consistent", "written_floor": "294276-12-31T23:59:59.999998+00:00", "due_floor": "294276-12-31T23:59:59.999998+00:00", "paused": false, "database": 0, "table": 0}';
	CREATE INDEX ON m.l (_slot);
	SELECT ttl_docs.resume_purge('m.l');
	RESET ROLE;
	SET ttl_docs.clock_offset = '-1h';
	INSERT INTO healthy (id, doc) VALUES ('a', '{}');
});
until_on_disk('healthy', 0, 'another collection is purged despite a hostile label');
sql("SET ttl_docs.clock_offset = '-1h'; INSERT INTO healthy (id, doc) VALUES ('b', '{}')");
until_on_disk('healthy', 0, 'another collection is purged despite a hostile label, again');

nothing_crashed($node);
$node->stop;

done_testing();

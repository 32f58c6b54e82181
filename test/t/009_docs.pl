# The examples in the documentation are correct: this test executes every SQL example.
#
# Each file is one session of psql in a database of its own.  The language of a fenced block says
# what the block is:
#	sql        SQL.  It runs without an error, unless an output block follows
#	output     exactly what psql prints for the sql block before it
#	sh, text   commands of the shell, or a picture: not executed
#	dockerfile, json, yaml   files of other programs: not executed
#	csharp     a program that is not run; sql blocks of the same file have its SQL
#	others     an exact excerpt of a program below test/orm
# A comment <!-- test: ... --> is SQL that a reader does not see: it moves the clock where the text
# says that time has passed.
#
# Also: links lead somewhere; docs/reference.md describes every function, view and setting, in the
# words of the server (\df+, \d+, pg_settings); and README has a line for each of them.

use strict;
use warnings;

use File::Basename;
use File::Find;
use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

my $mark = 'end of block';
my @files = ('README.md', (grep { -e } qw(CONTRIBUTING.md SECURITY.md)), sort glob('docs/*.md'));
# These have links, but no examples.
my @other_files = qw(CHANGELOG.md src/README.md bench/RESULTS.md);
my %programs = map { $_ => 1 } qw(python ruby typescript javascript ini);
my %not_executed = map { $_ => 1 } qw(sh text dockerfile json yaml csharp);

# from-cosmos-db.md shows logical decoding.
my $node = start_server('main', '', allows_streaming => 'logical');

# Splits the text of a file into its blocks, in their order: [kind, text, line].
sub blocks_in
{
	my ($file, $content) = @_;
	my @blocks;
	my ($kind, $text, $start, $indent);
	my $number = 0;
	for my $line (split /\n/, $content)
	{
		$number++;
		if (defined $kind)
		{
			if ($line =~ /^\s*```\s*$/)
			{
				push @blocks, [ $kind, $text, $start ];
				undef $kind;
				next;
			}
			$line =~ s/^$indent//;
			$text .= "$line\n";
		}
		elsif ($line =~ /^(\s*)```(\S*)\s*$/)
		{
			($indent, $kind, $text, $start) = ($1, $2 || 'none', '', $number);
		}
		elsif ($line =~ /^\s*<!-- test: (.*) -->\s*$/)
		{
			push @blocks, [ 'hidden', "$1;\n", $number ];
		}
	}
	die "$file: a block that begins in line $start has no end" if defined $kind;
	return @blocks;
}

# A text without its blocks.
sub without_blocks
{
	my ($text) = @_;
	$text =~ s/^\s*```.*?^\s*```//msg;
	return $text;
}

# Removes differences between runs: the seconds of _ts, blank lines, trailing blanks.
sub comparable
{
	my ($output) = @_;
	$output =~ s/"_ts": \d+/"_ts": 0/g;
	$output =~ s/[ \t]+$//mg;
	$output =~ s/\n{2,}/\n/g;
	$output =~ s/^\n+//;
	return $output;
}

# Joins each output block with the sql block before it: [kind, text, line, shown].
sub joined
{
	my ($file, @blocks) = @_;
	my @joined;
	for my $block (@blocks)
	{
		my ($kind, $text, $line) = @$block;
		if ($kind eq 'output')
		{
			die "$file:$line: the output block does not follow a sql block"
			  if !@joined || $joined[-1][0] ne 'sql' || defined $joined[-1][3];
			$joined[-1][3] = $text;
		}
		else
		{
			push @joined, [@$block];
		}
	}
	return @joined;
}

# Runs the blocks of a file in one session, and returns the output of each.
sub outputs_of
{
	my ($database, @blocks) = @_;
	my $script = "\\pset pager off\n";
	for my $block (@blocks)
	{
		my (undef, $text, undef, $shown) = @$block;
		$text = "\\set QUIET on\n$text\\set QUIET off\n" if !defined $shown;
		$script .= "$text\n;\n\\echo $mark\n";
	}
	my $base = "$PostgreSQL::Test::Utils::tmp_check/$database";
	append_to_file("$base.sql", $script);
	# One file for output and errors, so that an error stands where it happens.
	my $connection = $node->connstr($database);
	system(qq{psql -X -d "$connection" < "$base.sql" > "$base.out" 2>&1});
	my $output = slurp_file("$base.out");
	$output =~ s/^Pager usage is off\.\n//;
	return split /^\Q$mark\E\n/m, $output, -1;
}

# All programs of the ORM tests, without blanks at the beginning of lines.
my @sources;
if (-d 'test/orm')
{
	find(
		{
			no_chdir => 1,
			wanted => sub {
				return if !-f $_ || $_ =~ m{/node_modules/} || -B $_;
				my $source = slurp_file($_);
				$source =~ s/^[ \t]+//mg;
				push @sources, $source;
			}
		},
		'test/orm');
}

sub is_excerpt
{
	my ($text) = @_;
	$text =~ s/^[ \t]+//mg;
	return grep { index($_, $text) >= 0 } @sources;
}

# Every statement that a C# program of a file sends is also in a sql block of the file.  Each
# counts as a test.
sub sql_of_csharp_is_executed
{
	my ($file) = @_;
	my @blocks = blocks_of($file);
	my $executed = join ' ', map { $_->[1] =~ s/\s+/ /gr } grep { $_->[0] eq 'sql' } @blocks;
	for my $block (grep { $_->[0] eq 'csharp' } @blocks)
	{
		my (undef, $text, $line) = @$block;
		while ($text =~ /"((?:SELECT|INSERT|UPDATE|DELETE) .*?)"/sg)
		{
			my $statement = $1 =~ s/\s+/ /gr;
			ok(index($executed, $statement) >= 0, "$file:$line: a sql block has: $statement");
		}
	}
	return;
}

for my $file (@files)
{
	my $name = basename($file, '.md');
	my @executed;
	for my $block (joined($file, blocks_in($file, slurp_file($file))))
	{
		my ($kind, $text, $line) = @$block;
		if ($kind eq 'sql' || $kind eq 'hidden')
		{
			push @executed, $block;
		}
		elsif ($programs{$kind})
		{
			ok(is_excerpt($text), "$file:$line: the excerpt is in a program of test/orm");
		}
		else
		{
			ok($not_executed{$kind}, "$file:$line: the block has a known language");
		}
	}
	next if !@executed;
	sql_of_csharp_is_executed($file);

	(my $database = lc "docs_$name") =~ s/\W/_/g;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	my @outputs = outputs_of($database, @executed);
	for my $i (0 .. $#executed)
	{
		my (undef, undef, $line, $shown) = @{ $executed[$i] };
		my $output = $outputs[$i] // 'psql did not get here';
		if (defined $shown)
		{
			is(comparable($output), comparable($shown), "$file:$line: psql prints what the block shows");
		}
		else
		{
			unlike($output, qr/^(ERROR|FATAL|PANIC|psql|WARNING|.*did not get here)/m,
				"$file:$line: the block runs without an error");
		}
	}
}

# ---- Links ----

# The anchor of a heading, as forges make it.
sub anchor_of
{
	my ($heading) = @_;
	my $anchor = lc $heading;
	$anchor =~ s/[^\w\- ]//g;
	$anchor =~ s/ /-/g;
	return $anchor;
}

# The sections of a file, in their order: [heading, text].  A section ends at the next heading.
sub sections_of
{
	my ($file) = @_;
	my @sections;
	my $in_block = 0;
	for my $line (split /^/, slurp_file($file))
	{
		$in_block = !$in_block if $line =~ /^\s*```/;
		if (!$in_block && $line =~ /^#+ (.*)$/)
		{
			push @sections, [ $1, '' ];
		}
		elsif (@sections)
		{
			$sections[-1][1] .= $line;
		}
	}
	return @sections;
}

sub has_anchor
{
	my ($file, $anchor) = @_;
	return grep { anchor_of($_->[0]) eq $anchor } sections_of($file);
}

for my $file (@files, @other_files)
{
	my $text = without_blocks(slurp_file($file));
	while ($text =~ /\]\(([^)\s]+)\)/g)
	{
		my $link = $1;
		next if $link =~ /^https?:/;
		my ($path, $anchor) = split /#/, $link, 2;
		my $target = $path eq '' ? $file : dirname($file) . "/$path";
		ok(-e $target && (!defined $anchor || has_anchor($target, $anchor)),
			"$file: the link $link leads somewhere");
	}
}

# ---- The reference ----

$node->safe_psql('postgres', 'CREATE EXTENSION ttl_docs');
my $reference = slurp_file('docs/reference.md');
my @headings = map { $_->[0] } sections_of('docs/reference.md');
my %section = map { @$_ } sections_of('docs/reference.md');
my $readme = slurp_file('README.md');

# Who can change a setting, in the words of the reference.
my %context = (
	postmaster => 'config, restart',
	sighup => 'config',
	superuser => 'superuser',
	user => 'everybody');

# The rows that a query returns, each a list.
sub rows_of
{
	my ($query) = @_;
	return map { [ split /\|/, $_, -1 ] } split /\n/, $node->safe_psql('postgres', $query);
}

# A comment of the server as a sentence.
sub sentence
{
	my ($comment) = @_;
	return ucfirst($comment) . ($comment =~ /\.$/ ? '' : '.');
}

# Text without markup.
sub plain
{
	my ($text) = @_;
	$text =~ s/`//g;
	$text =~ s/\s+/ /g;
	$text =~ s/^ | $//g;
	return $text;
}

sub first_paragraph
{
	my ($text) = @_;
	return plain($text =~ /\A\s*(.*?)(?:\n\s*\n|\z)/s ? $1 : '');
}

# The rows of the first table in a text, without its header, each a list of cells.
sub first_table
{
	my ($text) = @_;
	my ($table) = $text =~ /((?:^\|.*\n?)+)/m;
	my @rows = map { [ map { plain($_) } /\|((?:\\\||[^|])*)(?=\|)/g ] } split /\n/, $table // '';
	return @rows[ 2 .. $#rows ];
}

# A type, or a list of arguments, as the reference writes it.
sub short_types
{
	my ($text) = @_;
	$text =~ s/timestamp with time zone/timestamptz/g;
	# the type by which an interval comes in as a DefaultTTL
	$text =~ s/ttl_docs_internal\.ttl_interval/interval/g;
	$text =~ s/::(?:double precision|\w+)//g;
	$text =~ s/\bIN //g;
	return $text;
}

# A function as the reference shows it.
sub signature_of
{
	my ($function) = @_;
	my $call = "ttl_docs.$function->{name}(" . short_types($function->{arguments}) . ')';
	return $function->{kind} eq 'p' ? "CALL $call" : "$call RETURNS " . short_types($function->{result});
}

# The input arguments in a signature, each a list: name, type, default.
sub arguments_in
{
	my ($signature) = @_;
	my ($arguments) = $signature =~ /\((.*)\)/;
	return map { [ /^(\w+) (.*?)(?: DEFAULT (.*))?$/ ? ($1, $2, $3 // '') : ($_, '', '') ] }
	  grep { !/^OUT / } split /, /, $arguments;
}

# All functions and procedures: a hash from the name to the list of overloads.
sub overloads_by_name
{
	my %overloads;
	for my $row (
		rows_of(
			q{SELECT proname, prokind, pg_get_function_arguments(oid), pg_get_function_result(oid),
			         obj_description(oid, 'pg_proc')
			    FROM pg_proc WHERE pronamespace = 'ttl_docs'::regnamespace ORDER BY oid}))
	{
		my %function;
		@function{qw(name kind arguments result comment)} = @$row;
		push @{ $overloads{ $function{name} } }, \%function;
	}
	return %overloads;
}

# The reference has a section with this heading, which begins with this sentence.
sub check_section
{
	my ($name, $sentence) = @_;
	is(first_paragraph($section{$name} // ''),
		$sentence, "the reference has a section $name, in the words of the server");
	my $anchor = anchor_of($name);
	like($reference, qr/\[`\Q$name\E`\]\(#\Q$anchor\E\)/, "the contents of the reference have a link to $name");
	return;
}

# README has one line with a link to this section, and the same sentence.
sub check_readme
{
	my ($name, $sentence) = @_;
	my $link = "[`$name`](docs/reference.md#" . anchor_of($name) . ')';
	my @lines = grep { /^\|/ && index($_, $link) >= 0 } split /\n/, $readme;
	is(scalar @lines, 1, "README has one line with a link to $name in the reference");
	my @cells = map { plain($_) } split /\|/, $lines[0] // '';
	ok((grep { $_ eq $sentence } @cells), "README describes $name in the words of the server")
	  or diag("README should say: $sentence");
	return;
}

# The text block of a section shows real signatures, and the section names the types of the others.
sub check_signatures
{
	my ($name, @overloads) = @_;
	my $text = without_blocks($section{$name});
	my ($block) = grep { $_->[0] eq 'text' } blocks_in("reference.md, $name", $section{$name});
	my @shown = map { plain($_) } split /^(?=CALL |ttl_docs\.)/m, $block->[1] // '';
	my %real = map { signature_of($_) => 1 } @overloads;
	ok(@shown > 0, "the reference shows a signature of $name");
	ok($real{$_}, "the signature is that of a function: $_") for @shown;
	for my $type (map { $_->[1] } map { arguments_in($_) } sort keys %real)
	{
		like($text, qr/`\Q$type\E`/, "the reference says that $name accepts $type");
	}
	my @described = map { [ @$_[ 0 .. 2 ] ] } first_table($text);
	my @arguments = arguments_in($shown[0] // '()');
	is_deeply(@arguments ? \@described : [], \@arguments, "the reference describes the arguments of $name");
	return;
}

# A section has an example that calls the function, and shows its output.
sub check_example
{
	my ($name) = @_;
	my @blocks = blocks_in("reference.md, $name", $section{$name});
	ok((grep { $_->[0] eq 'sql' && $_->[1] =~ /\bttl_docs\.\Q$name\E\(/ } @blocks),
		"the reference has an example that calls $name");
	ok((grep { $_->[0] eq 'output' } @blocks), "the reference shows the output of an example of $name");
	return;
}

sub check_functions
{
	my %overloads = overloads_by_name();
	for my $name (sort keys %overloads)
	{
		my @functions = @{ $overloads{$name} };
		my %comments = map { $_->{comment} => 1 } @functions;
		is(join(' / ', sort keys %comments),
			$functions[0]{comment}, "all functions with the name $name have the same comment");
		my $sentence = sentence($functions[0]{comment});
		check_section($name, $sentence);
		check_readme($name, $sentence);
		next if !defined $section{$name};
		check_signatures($name, @functions);
		check_example($name);
	}
	return;
}

sub check_views
{
	for my $view (
		rows_of(
			q{SELECT relname, obj_description(oid, 'pg_class') FROM pg_class
			   WHERE relnamespace = 'ttl_docs'::regnamespace AND relkind = 'v' ORDER BY relname}))
	{
		my ($name, $comment) = @$view;
		check_section($name, sentence($comment));
		check_readme($name, sentence($comment));
		my @columns = map { [ $_->[0], short_types($_->[1]), sentence($_->[2]) ] } rows_of(
			qq{SELECT attname, format_type(atttypid, atttypmod), col_description(attrelid, attnum)
			     FROM pg_attribute WHERE attrelid = 'ttl_docs.$name'::regclass AND attnum > 0 ORDER BY attnum});
		is_deeply([ first_table($section{$name} // '') ],
			\@columns, "the reference describes the columns of $name in the words of the server");
	}
	return;
}

sub check_settings
{
	for my $setting (
		rows_of(
			q{SELECT name, concat_ws(' ', short_desc, extra_desc), current_setting(name), coalesce(unit, ''),
			         CASE vartype WHEN 'bool' THEN 'on, off' ELSE min_val || ' to ' || max_val END, context
			    FROM pg_settings WHERE name LIKE 'ttl\_docs.%' ORDER BY name}))
	{
		my ($name, $sentence, $default, $unit, $range, $context) = @$setting;
		check_section($name, $sentence);
		check_readme($name, $sentence);
		is_deeply(
			[ first_table($section{$name} // '') ],
			[ [ $default, $unit, $range, $context{$context} ] ],
			"the reference has the default, unit, range and context of $name");
	}
	return;
}

# The columns that a collection gets.  Their comments begin with "ttl_docs: ".
sub check_system_columns
{
	$node->safe_psql('postgres', q{SELECT ttl_docs.create_collection('c')});
	my @columns = map { [ $_->[0], short_types($_->[1]), sentence($_->[2]) ] } rows_of(
		q{SELECT attname, format_type(atttypid, atttypmod),
		         regexp_replace(col_description(attrelid, attnum), '^ttl_docs: ', '')
		    FROM pg_attribute WHERE attrelid = 'c'::regclass AND attnum > 0 AND attname LIKE '\_%' ORDER BY attnum});
	is_deeply([ first_table($section{'System columns'} // '') ],
		\@columns, 'the reference describes the system columns in the words of the server');
	return;
}

# The names of the errors that the source raises.
sub errors_in_source
{
	my %errors;
	find(
		{
			no_chdir => 1,
			wanted => sub {
				return if !/\.c$/;
				$errors{ lc $_ } = 1 for slurp_file($_) =~ /errcode\(ERRCODE_(?:T_R_|E_R_I_E_)?(\w+)\)/g;
			}
		},
		'src');
	return sort keys %errors;
}

sub check_errors
{
	my $errors = join '', map { $section{$_} } grep { /^Errors/ } @headings;
	my @names = errors_in_source();
	ok(@names > 10, 'the source raises errors');
	like($errors, qr/^\|[^|]*\b$_\b/m, "the reference lists the error $_") for @names;
	return;
}

# A link to a heading leads to the first heading with that anchor.
my %times;
$times{ anchor_of($_) }++ for @headings;
is(join(' ', grep { $times{$_} > 1 } sort keys %times), '', 'the headings of the reference have different anchors');

check_functions();
check_views();
check_settings();
check_system_columns();
check_errors();

$node->stop;
done_testing();

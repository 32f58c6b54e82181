# docs/reference.md describes every function, view, setting and error, in the words of the server (\df+,
# \d+, pg_settings), with an example of each function.  README has one line for each of them, in the same
# words.  test/t/009_docs.pl executes the examples.

use strict;
use warnings;

use File::Find;
use lib 'test/perl';
use Markdown;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

my $node = start_server('main', '');
$node->safe_psql('postgres', 'CREATE EXTENSION ttl_docs');
my $reference = slurp_file('docs/reference.md');
my @headings = map { $_->[0] } sections_of('docs/reference.md');
my %section = map { @$_ } sections_of('docs/reference.md');
my $readme = slurp_file('README.md');

# operations.md describes all states of the purge, from the least to the most severe.
my ($severity) = slurp_file('src/purge/state_names.c') =~ /^static const char \*const by_severity\[\] = \{(.*?)^\};/ms;
my ($states) = slurp_file('docs/operations.md') =~ /^\| state \| meaning \| action \|\n(.*?)^\n/ms;
is(join(', ', $states =~ /^\| `([^`]*)` \|/mg),
	join(', ', $severity =~ /"([^"]*)"/g, 'unreachable node'), 'operations.md has the states in their order');

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

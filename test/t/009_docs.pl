# The examples in the documentation are correct: this test executes every SQL example.
#
# Each file is one session of psql in a database of its own.  The language of a fenced block says
# what the block is:
#	sql        SQL.  It runs without an error, unless an output block follows
#	output     exactly what psql prints for the sql block before it
#	sql-citus  SQL for a cluster of Citus: test/t/039_citus_docs.pl executes it
#	sh, text   commands of the shell, or a picture: not executed
#	dockerfile, json, yaml   files of other programs: not executed
#	csharp     a program that is not run; sql blocks of the same file have its SQL
#	others     an exact excerpt of a program below test/orm
# A comment <!-- test: ... --> is SQL that a reader does not see: it moves the clock where the text
# says that time has passed.
#
# Also: links lead somewhere, and the figures in README are those of bench/RESULTS.md.

use strict;
use warnings;

use File::Basename;
use File::Find;
use lib 'test/perl';
use DocExamples;
use Markdown;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

my @files = (qw(README.md CONTRIBUTING.md SECURITY.md), sort glob('docs/*.md'));
# These have links, but no examples.
my @other_files = qw(CHANGELOG.md src/README.md bench/RESULTS.md contrib/monitoring/README.md);
my %programs = map { $_ => 1 } qw(python ruby typescript javascript ini);
my %not_executed = map { $_ => 1 } qw(sh text dockerfile json yaml csharp sql-citus);

# from-cosmos-db.md shows logical decoding.
my $node = start_server('main', '', allows_streaming => 'logical');

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
	for my $block (joined($file, blocks_of($file)))
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
	# Hidden SQL alone belongs to sql-citus blocks.
	next if !grep { $_->[0] eq 'sql' } @executed;
	sql_of_csharp_is_executed($file);

	(my $database = lc "docs_$name") =~ s/\W/_/g;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	check_examples($file, $node, $database, @executed);
}

# ---- Links ----

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

# ---- Figures ----

# README has a table with a row for each comparison with a plain table.  It names every goal that was missed.
my %readme = map { @$_ } sections_of('README.md');
my @compared = first_table($readme{'What it costs'});
my @measured = map { [ map { plain($_) } /\|([^|]*)(?=\|)/g ] } grep { /^\|/ } split /\n/, slurp_file('bench/RESULTS.md');
cmp_ok(scalar @compared, '>', 5, 'README has figures');
for my $row (@compared)
{
	my ($title, $shown) = @$row;
	my ($result) = grep { $_->[0] eq $title && ($_->[1] // '') eq 'same table, no TTL' } @measured;
	my ($ratio) = ($result->[4] // '') =~ /^([0-9.]+)/;
	is($shown =~ /([0-9.]+)/ ? $1 : undef, $ratio, "README has the ratio of bench/RESULTS.md: $title");
}
for my $missed (grep { ($_->[6] // '') =~ /missed/ } @measured)
{
	like(plain($readme{'What it costs'}), qr/\Q$missed->[0]\E/, "README names the goal that was missed: $missed->[0]");
}

$node->stop;
done_testing();

# Executes the SQL examples of a page of the documentation, and compares their output.
#
#	my @blocks = joined($file, blocks_of($file));
#	check_examples($file, $node, 'postgres', @blocks);
package DocExamples;

use strict;
use warnings;

use Exporter qw(import);
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(joined check_examples);

my $mark = 'end of block';

# Joins each output block with the block of SQL before it: [kind, text, line, shown].
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
			  if !@joined || $joined[-1][0] !~ /^sql/ || defined $joined[-1][3];
			$joined[-1][3] = $text;
		}
		else
		{
			push @joined, [@$block];
		}
	}
	return @joined;
}

# Runs blocks in one session of psql.  A block with an output block prints exactly that; the others run
# without an error.  Each block counts as a test.
sub check_examples
{
	my ($file, $node, $database, @blocks) = @_;
	my @outputs = outputs_of($node, $database, @blocks);
	for my $i (0 .. $#blocks)
	{
		my (undef, undef, $line, $shown) = @{ $blocks[$i] };
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
	return;
}

# Runs blocks in one session, and returns the output of each.
sub outputs_of
{
	my ($node, $database, @blocks) = @_;
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

1;

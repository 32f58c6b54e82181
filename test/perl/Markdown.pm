# Reads the Markdown files of the documentation: blocks, sections, tables.
package Markdown;

use strict;
use warnings;

use Exporter qw(import);
use PostgreSQL::Test::Utils;

our @EXPORT = qw(blocks_in blocks_of without_blocks anchor_of sections_of has_anchor plain first_paragraph first_table);

# Splits a text into its blocks, in their order: [kind, text, line].  The name is for messages.
sub blocks_in
{
	my ($name, $content) = @_;
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
	die "$name: a block that begins in line $start has no end" if defined $kind;
	return @blocks;
}

# The blocks of a file.
sub blocks_of
{
	my ($file) = @_;
	return blocks_in($file, slurp_file($file));
}

# A text without its blocks.
sub without_blocks
{
	my ($text) = @_;
	$text =~ s/^\s*```.*?^\s*```//msg;
	return $text;
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

# The anchor of a heading, as forges make it.
sub anchor_of
{
	my ($heading) = @_;
	my $anchor = lc $heading;
	$anchor =~ s/[^\w\- ]//g;
	$anchor =~ s/ /-/g;
	return $anchor;
}

sub has_anchor
{
	my ($file, $anchor) = @_;
	return grep { anchor_of($_->[0]) eq $anchor } sections_of($file);
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

1;

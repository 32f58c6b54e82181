# The demo does what its comments say, and docs/demo.svg shows its lines.
#
# The demo waits for seconds.  Here the clock of its session moves instead, and time runs a hundred times
# as fast, so that a slow machine changes nothing.

use strict;
use warnings;

use lib 'test/perl';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlServer;

my $speed = 100;
my $ttl = 3;

my $demo = slurp_file('test/demo.sql');
my $try = slurp_file('test/demo_try.sql');

# ---- The recording ----

# Returns the lines of the recording, as the terminal has shown them.
sub recorded_lines
{
	my @lines = slurp_file('docs/demo.svg') =~ m{<text[^>]*>([^<]*)</text>}g;
	my %character = (lt => '<', gt => '>', amp => '&');
	s/&(lt|gt|amp);/$character{$1}/g for @lines;
	return @lines;
}

# The first line of the demo that the recording lacks.
my @recorded = recorded_lines();
my $missing;
for my $line (grep { /\S/ } split(/\n/, $demo), map { "    $_" } split(/\n/, $try))
{
	shift @recorded while @recorded && $recorded[0] ne $line;
	$missing //= $line if !@recorded;
	shift @recorded;
}
is($missing, undef, 'docs/demo.svg shows every line of this demo')
  or diag('make a new one: make demo-recording');
cmp_ok(-s 'docs/demo.svg', '<', 60_000, 'the recording is small');
unlike(slurp_file('docs/demo.svg'), qr/<script|\bhref=|\burl\(|\@import|\@font-face/, 'the recording loads nothing');

# ---- The demo ----

cmp_ok(scalar(() = $demo =~ /^-- /mg), '>=', 8, 'the demo has comments');
cmp_ok(scalar(grep { length > 96 } split /\n/, $demo), '==', 0, 'the lines of the demo are short');

my $waits = 0;
$waits += $1 while $demo =~ /^\\! sleep ([0-9.]+)$/mg;
cmp_ok($waits, '<', 25, 'the demo does not take long');

# Begins so far in the past that all of its sessions have expired for the workers at the end.
my $offset = -$speed * ($waits + $ttl);
my $script = "SET ttl_docs.clock_offset = $offset;\n$demo";
ok($script =~ s/\bcreate_collection\('sessions', $ttl\)/"create_collection('sessions', " . $speed * $ttl . ')'/e,
	"the TTL of the demo is $ttl");
$script =~ s/^\\! sleep ([0-9.]+)$/"SET ttl_docs.clock_offset = " . ($offset += $speed * $1) . ";"/mge;

# The demo waits for the workers, but not for ever.  A test may wait longer.
ok($script =~ s/\b1\.\.200 LOOP/1..3000 LOOP/, 'the demo waits for the purge');

my $node = start_server('main', "ttl_docs.purge_naptime = 100ms\n");
my ($ret, $stdout, $stderr) = $node->psql('postgres', $script, on_error_stop => 1);
is($ret, 0, 'the demo runs without an error');
$stdout =~ s/^$|^\|$//mg;
$stdout =~ s/\n+/\n/g;
$stdout =~ s/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.\d]*[+-]\d+/TIME/g;
is("$stdout\n", <<'END', 'the demo prints what its comments say');
sessions
cleo|{"ttl": -1}
1
(0,1)|ann|{}
(0,2)|cleo|{"ttl": -1}
t
ann|{"visit": 2}
cleo|{"ttl": -1}
2|1|1
2|{"item": "ink"}
sessions|2|TIME
carts|1|TIME
(0,2)|cleo|{"ttl": -1}
(0,2)|2|{"item": "ink"}
END
unlike($stderr, qr/WARNING|ERROR/, 'the demo raises no warning');

# ---- The lines to try ----

is(scalar(() = $try =~ /^\S/mg), 3, 'there are three lines to try');
$try =~ s/ \\watch 1$/;/mg;
($ret, $stdout, $stderr) = $node->psql('postgres', $try, on_error_stop => 1);
is($ret, 0, 'the lines to try run without an error');
like($stdout, qr/^cleo\|infinity$/m, 'they show that a document never expires');
like($stdout, qr/^you\|\d{4}-/m, 'they show when a document expires');
like($stdout, qr/is_live/, 'they show the filter of a query');

nothing_crashed($node);
$node->stop;
done_testing();

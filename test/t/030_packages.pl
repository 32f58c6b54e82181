# If a program is missing that cannot be installed, the scripts say what to do.
#
# Runs test/packages.sh with a PATH that has a few programs of the system, and apt-get, apt-cache,
# dpkg-query and sudo made by this test.  Needs no server.

use strict;
use warnings;

use Cwd;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

my $repo = getcwd();

plan skip_all => 'root can install packages' if $> == 0;

# Writes a shell script that stands for a program.
sub write_program
{
	my ($directory, $name, $text) = @_;
	append_to_file("$directory/$name", "#!/bin/sh\n$text\n");
	chmod 0755, "$directory/$name" or die $!;
	return;
}

# Returns a directory with the programs that the scripts use, and with more of them.
my $systems = 0;

sub new_system
{
	my (%programs) = @_;
	my $directory = "$PostgreSQL::Test::Utils::tmp_check/system" . ++$systems;
	mkdir $directory or die $!;
	for my $name (qw(bash sh env sed sort head tail dirname mktemp rm cat id))
	{
		chomp(my $path = `sh -c "command -v $name"`);
		symlink $path, "$directory/$name" or die "$name: $!";
	}
	write_program($directory, $_, $programs{$_}) for keys %programs;
	return $directory;
}

# Calls require_packages on a system, without a terminal.  Returns whether it succeeds, and its output.
sub require_packages
{
	my ($directory, @purposes) = @_;
	my $script = qq{
		source "$repo/test/env.sh"
		DEBIAN_POSTGRES=$directory
		require_packages @purposes
		echo "PG_CONFIG is \$PG_CONFIG"
	};
	local $ENV{PATH} = $directory;
	local $ENV{PG_CONFIG};
	delete $ENV{PG_CONFIG};
	my ($stdout, $stderr) = ('', '');
	my $ok = IPC::Run::run([ 'bash', '-c', $script ], '<', \undef, '>', \$stdout, '2>', \$stderr);
	return ($ok, $stdout, $stderr);
}

# apt of a Debian that has this version of PostgreSQL.  apt-get writes its arguments to a file.
sub apt_with
{
	my ($major) = @_;
	return (
		'dpkg-query' => 'exit 1',
		'apt-cache' => "case \$1 in depends) echo '  Depends: postgresql-$major' ;; show) echo 'Package: postgresql' ;; esac",
		'apt-get' => 'echo "apt-get $*" >&2');
}

# A sudo that asks for no password.  It runs apt-get, and only says that it runs other commands.
my %sudo = (sudo => 'case $1 in env) exec "$@" ;; esac');

# ---- Without root ----

my ($ok, $stdout, $stderr) = require_packages(new_system(apt_with(17)), 'build');
ok(!$ok, 'without root and sudo, the script ends');
like($stdout, qr/^missing: PostgreSQL 15 or later/m, 'it names PostgreSQL');
like($stdout, qr/^missing: a C compiler and make$/m, 'it names the compiler');
is($stderr, <<'END', 'it prints the line that root has to run');
error: only root can install packages, and you cannot use sudo here
Run this line as root, then start again:
    apt-get install --no-install-recommends build-essential postgresql-17 postgresql-server-dev-17
Note: Debian's PostgreSQL package also creates and starts a server.  This script does not use it.
END

($ok, $stdout, $stderr) = require_packages(new_system(apt_with(17), sudo => 'exit 1'), 'build');
ok(!$ok, 'with a sudo that wants a password, the script ends');
like($stderr, qr/^    apt-get install --no-install-recommends build-essential postgresql-17/m, 'it prints the line');

($ok, $stdout, $stderr) = require_packages(new_system(apt_with(17)), 'test');
like($stderr, qr/^    apt-get install .* libipc-run-perl postgresql-17 postgresql-server-dev-17$/m,
	'the line has what the tests need');
like($stderr, qr/^More tests run if .*: postgresql-17-partman postgresql-17-repack/m, 'useful packages are named');

($ok, $stdout, $stderr) = require_packages(new_system(apt_with(17), 'apt-cache' => 'exit 0'), 'build');
like($stderr,
	qr/^    apt-get update && apt-get install --no-install-recommends build-essential postgresql postgresql-server-dev-all$/m,
	'without package lists, root has to read them, too');

($ok, $stdout, $stderr) = require_packages(new_system(apt_with(17), %sudo), 'build');
like($stderr, qr/^apt-get -q install -y --no-install-recommends build-essential postgresql-17 postgresql-server-dev-17$/m,
	'with sudo, the script installs the packages');

# ---- Other systems ----

for my $programs ({}, \%sudo)
{
	($ok, $stdout, $stderr) = require_packages(new_system(apt_with(13), %$programs), 'build');
	my $way = %$programs ? 'with sudo' : 'without sudo';
	ok(!$ok, "a system with PostgreSQL 13 $way: the script ends");
	like($stderr, qr/^error: the packages of this system have PostgreSQL 13, but ttl_docs needs version 15 or later$/m,
		'it names both versions');
	like($stderr, qr{https://www\.postgresql\.org/download/}, 'it says where newer packages are');
	like($stderr, qr{^    /usr/share/postgresql-common/pgdg/apt\.postgresql\.org\.sh$}m, 'it names the script that adds them');
	like($stderr, qr/PG_CONFIG=/, 'it mentions PG_CONFIG');
	unlike($stderr, qr/apt-get .*install -y/, 'it installs nothing');
}

($ok, $stdout, $stderr) = require_packages(new_system(), 'build');
ok(!$ok, 'a system without apt: the script ends');
like($stdout, qr/^missing: PostgreSQL 15 or later: server, psql and development files \(pg_config, headers, PGXS\)$/m,
	'it names PostgreSQL');
is($stderr, <<'END', 'it says what to do');
error: this script can install packages on Debian and Ubuntu only
Install the missing programs with the package manager of your system, then start again.
If pg_config is not on the PATH, name it: PG_CONFIG=/path/to/pg_config
END

done_testing();

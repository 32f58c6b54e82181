# The regression and isolation tests pass on a server that has Citus preloaded.
#
# Their databases do not have the extension citus.  So this test shows that ttl_docs works with the hooks
# of Citus before its own, and that nothing changes for tables that Citus does not manage.

use strict;
use warnings;

use lib 'test/perl';
use Cwd qw(getcwd);
use File::Basename qw(basename dirname);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use CitusCluster;

skip_without_citus();

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--locale=C', '--encoding=UTF8' ]);
$node->append_conf('postgresql.conf', slurp_file('test/ttl_docs.conf'));
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'citus, ttl_docs'");
$node->start;

# Runs pg_regress, or its isolation variant, with all tests in a directory.
sub run_all
{
	my ($program, $database, @files) = @_;
	my $source = getcwd();
	my $output = PostgreSQL::Test::Utils::tempdir();
	my @tests = map { basename($_) =~ s/\.\w+$//r } @files;
	symlink "$source/expected", "$output/expected" or die "symlink: $!";
	# In the directory of the source, pg_regress would use the sql/ of the extension as its input.
	chdir $output or die "chdir: $!";
	command_ok(
		[   $program, "--inputdir=$source/test", '--outputdir=.', '--host=' . $node->host,
			'--port=' . $node->port, '--user=' . getpwuid($<), "--dbname=$database",
			'--load-extension=ttl_docs', @tests ],
		"$database: " . @tests . ' tests');
	chdir $source or die "chdir: $!";
	return;
}

my $regress = dirname($ENV{PG_REGRESS});
run_all($ENV{PG_REGRESS}, 'contrib_regression', glob 'test/sql/*.sql');
run_all("$regress/../isolation/pg_isolation_regress", 'isolation_regression', glob 'test/specs/*.spec');
$node->stop;

done_testing();

# The packaging files agree with the source tree and with each other.
#
# A release has a version of three numbers (docs/releasing.md): in META.json, debian/changelog and
# CHANGELOG.md.  There, a last ".0" may be missing.  The extension has the first two numbers.  This test
# needs no server.

use strict;
use warnings;

use File::Basename;
use File::Copy;
use File::Path qw(make_path);
use File::Spec::Functions qw(canonpath);
use IPC::Run;
use JSON::PP;
use lib 'test/perl';
use Markdown;
use PostgreSQL::Test::Utils;
use Test::More;

my $extension = 'ttl_docs';
my $number = qr/(?:0|[1-9][0-9]*)/;

# The version of a release with three numbers: "1.0.0" for "1.0".
sub release_version
{
	my ($version) = @_;
	return $version =~ /^$number\.$number$/ ? "$version.0" : $version;
}

# The version of the extension in a release.
sub extension_version
{
	my ($version) = @_;
	return $version =~ /^($number\.$number)(?:\.$number)?$/ ? $1 : "none for $version";
}

my $control = slurp_file("$extension.control");
my ($default_version) = $control =~ /^default_version = '([^']*)'$/m;
like($default_version, qr/^$number\.$number$/, 'the extension has a version of two numbers');

# ---- META.json ----

my $meta = decode_json(slurp_file('META.json'));
for my $field (qw(name abstract version maintainer license provides meta-spec))
{
	ok($meta->{$field}, "META.json has $field");
}
is($meta->{'meta-spec'}{version}, '1.0.0', 'META.json follows version 1.0.0 of its specification');
is($meta->{name}, $extension, 'META.json names the distribution');
is($meta->{license}, 'postgresql', 'META.json names the licence');

my $release = $meta->{version};
like($release, qr/^$number\.$number\.$number$/, 'META.json has a semantic version');
is(extension_version($release), $default_version, "the control file has the version of the extension in $release");

is_deeply([ sort keys %{ $meta->{provides} } ],
	[$extension], 'META.json provides the extension');
while (my ($name, $provided) = each %{ $meta->{provides} })
{
	ok($provided->{$_} && -f $provided->{$_}, "META.json names a $_ that exists")
	  for qw(file docfile);
	like($provided->{file}, qr{^sql/\Q$name\E--}, "the file is a script of $name");
	is($provided->{version}, $release, "$name has the version of the distribution");
}

# ---- CHANGELOG.md and debian/changelog ----

my @headings = slurp_file('CHANGELOG.md') =~ /^## (.*)$/mg;
my @releases = map { /^(\S+)/ } @headings;
my $unreleased = $headings[0] =~ /\(unreleased\)$/;
is(release_version($releases[0]), $release, 'CHANGELOG.md begins with the version of META.json');
is(scalar(grep { /unreleased/ } @headings[ 1 .. $#headings ]),
	0, 'all earlier versions of CHANGELOG.md are released');
is($meta->{release_status} eq 'stable',
	!$unreleased, 'META.json says stable if CHANGELOG.md says released');

my ($debian_version, $suite) = slurp_file('debian/changelog') =~ /\A[a-z-]+ \(([^)]+)-[^-)]+\) (\S+);/;
is(release_version($debian_version), $release, 'debian/changelog begins with the version of META.json');
is($suite eq 'UNRELEASED', $unreleased, 'debian/changelog says released if CHANGELOG.md does');

# ---- The oldest PostgreSQL ----

my ($oldest) = slurp_file('Makefile') =~ /^OLDEST_PG = ([0-9]+)$/m;
ok(defined $oldest, 'Makefile has the oldest PostgreSQL');
is($meta->{prereqs}{runtime}{requires}{PostgreSQL}, "$oldest.0.0", 'META.json requires the oldest PostgreSQL');
is(slurp_file('debian/pgversions'), "$oldest+\n", 'debian/pgversions begins with the oldest PostgreSQL');
like(slurp_file('test/env.sh'), qr/^readonly OLDEST_PG=$oldest$/m, 'test/env.sh has the oldest PostgreSQL');

# ---- Scripts ----

# The versions that can be installed, and the updates between versions.
my (%base, %updates);
for my $script (glob("sql/$extension--*.sql"))
{
	my ($name, @versions) = split /--/, $script =~ s{^sql/(.*)\.sql$}{$1}r;
	cmp_ok(scalar(@versions), '<=', 2, "$script has the name of an extension script");
	if (@versions == 1)
	{
		$base{ $versions[0] } = 1;
	}
	else
	{
		push @{ $updates{ $versions[0] } }, $versions[1];
	}
}

# All versions that ALTER EXTENSION UPDATE reaches from a version, with this version.
sub reachable_from
{
	my ($version) = @_;
	my %seen;
	my @todo = ($version);
	while (defined(my $next = shift @todo))
	{
		push @todo, @{ $updates{$next} || [] } if !$seen{$next}++;
	}
	return \%seen;
}

ok((grep { reachable_from($_)->{$default_version} } keys %base),
	"CREATE EXTENSION can install $default_version");
my %earlier = map { $_ => 1 } keys %base, keys %updates, map { extension_version($_) } @releases;
for my $version (sort keys %earlier)
{
	ok(reachable_from($version)->{$default_version},
		"ALTER EXTENSION UPDATE leads from $version to $default_version");
}

# ---- Documentation of the Debian packages ----

# The relative links of a Markdown file.
sub links_of
{
	my ($file) = @_;
	my $text = without_blocks(slurp_file($file));
	my @links = ($text =~ /\]\(([^)\s]+)\)/g, $text =~ /\b(?:src|href)="([^"]+)"/g);
	return grep { !/^(?:[a-z]+:|#)/ } @links;
}

# The path from the top of the tree to which a link of a file leads.
sub target_of
{
	my ($file, $link) = @_;
	my $path = canonpath(dirname($file) . '/' . $link =~ s/#.*//r);
	1 while $path =~ s{(^|/)(?!\.\./)[^/]+/\.\.(/|$)}{$1};
	return $path =~ s{/$}{}r;
}

my @packaged = split /\n/, `make -s -f debian/rules list-docs`;
my %packaged = map { $_ => 1 } @packaged;
ok($packaged{$_}, "the package has $_") for qw(README.md CHANGELOG.md docs/operations.md LICENSE);
for my $file (grep { /\.md$/ } @packaged)
{
	for my $link (links_of($file))
	{
		my $target = target_of($file, $link);
		# a link may lead to a directory
		ok($packaged{$target} || (grep { index($_, "$target/") == 0 } @packaged),
			"the package has the target of the link $link in $file")
		  or diag('add it to DOCS in debian/rules');
	}
}

# README.Debian
my $readme_debian = slurp_file('debian/README.Debian');
like($readme_debian, qr/^$_\n-+$/m, "README.Debian has a section $_") for qw(Install Upgrade Uninstall);

# ---- prerm ----

# Runs the prerm for version 15 with these arguments.  The clusters are below a directory of ours.
my $clusters = "$PostgreSQL::Test::Utils::tmp_check/prerm";
make_path("$clusters/etc/15/main/conf.d", "$clusters/etc/16/main", "$clusters/data/15", "$clusters/data/16", "$clusters/bin");

sub write_file
{
	my ($file, $text) = @_;
	unlink $file;
	append_to_file($file, $text);
	return;
}

sub run_prerm
{
	my ($path, @arguments) = @_;
	my $script = slurp_file('debian/prerm.in');
	$script =~ s/PGVERSION/15/g;
	$script =~ s{/etc/postgresql/}{$clusters/etc/}g;
	write_file("$clusters/prerm", $script);
	local $ENV{PATH} = "$path:$ENV{PATH}";
	my ($stdout, $stderr) = ('', '');
	my $ok = IPC::Run::run([ 'sh', "$clusters/prerm", @arguments ], '<', \undef, '>', \$stdout, '2>', \$stderr);
	ok($ok, "prerm @arguments succeeds");
	is($stdout, '', 'it prints nothing to standard output');
	return $stderr;
}

write_file("$clusters/bin/pg_lsclusters", <<"END");
#!/bin/sh
echo "15 main 5432 online postgres $clusters/data/15 /var/log/15"
echo "16 main 5433 online postgres $clusters/data/16 /var/log/16"
END
chmod 0755, "$clusters/bin/pg_lsclusters" or die $!;
my ($main, $included, $auto) =
  ("$clusters/etc/15/main/postgresql.conf", "$clusters/etc/15/main/conf.d/a.conf", "$clusters/data/15/postgresql.auto.conf");

write_file($main, "# shared_preload_libraries = 'ttl_docs'\nshared_preload_libraries = 'citus' # ttl_docs\n");
write_file("$clusters/$_", "shared_preload_libraries = 'ttl_docs'\n")
  for qw(etc/16/main/postgresql.conf data/16/postgresql.auto.conf);
is(run_prerm("$clusters/bin", 'remove'), '', 'there is no warning if no cluster of this version loads ttl_docs');

for my $case (
	[ $main, "shared_preload_libraries = 'citus, ttl_docs'\t# comment" ],
	[ $included, "Shared_Preload_Libraries ttl_docs" ],
	[ $auto, "shared_preload_libraries = 'ttl_docs'" ])
{
	my ($file, $setting) = @$case;
	write_file($file, "port = 5432\n$setting\n");
	my $warning = run_prerm("$clusters/bin", 'remove');
	like($warning, qr/^WARNING: PostgreSQL 15 is still configured to load ttl_docs:\n    \Q$file: $setting\E$/m,
		"there is a warning for $file");
	like($warning, qr/^The server will not start again/m, 'it says what happens');
	is(run_prerm("$clusters/bin", 'upgrade', '1.0.1-1'), '', 'an upgrade does not warn');
	write_file($file, "port = 5432\n");
}

# a system without postgresql-common, and without clusters
write_file("$clusters/bin/pg_lsclusters", "#!/bin/sh\nexit 127\n");
unlink $main, $included, $auto;
is(run_prerm("$clusters/bin", 'remove'), '', 'without clusters there is no warning');

# ---- debian/control ----

SKIP:
{
	skip 'pg_buildext is not installed', 1 if system('command -v pg_buildext >/dev/null') != 0;

	# Uses the versions in the committed file, because this system may support other ones.
	my $committed = slurp_file('debian/control');
	my @versions = $committed =~ /^Package: postgresql-([0-9]+)-/mg;
	my $copy = "$PostgreSQL::Test::Utils::tmp_check/packaging";
	make_path("$copy/debian");
	copy("debian/$_", "$copy/debian/$_") or die "could not copy debian/$_: $!"
	  for qw(control.in pgversions changelog);
	local $ENV{PG_SUPPORTED_VERSIONS} = "@versions";
	system(qq{cd "$copy" && pg_buildext updatecontrol});
	is(slurp_file("$copy/debian/control"), $committed, 'debian/control is made from debian/control.in');
}

# ---- docs/reliability.md ----

# Its table lists every file of test/t, and no other.
my ($list) = slurp_file('docs/reliability.md') =~ /^## Files of test\/t\n(.*?)(?=^## |\z)/ms;
is_deeply(
	[ ($list // '') =~ /^\| `(\w+)` \|/mg ],
	[ map { m{([^/]+)\.pl$} } sort glob('test/t/*.pl') ],
	'docs/reliability.md lists the files of test/t');

done_testing();

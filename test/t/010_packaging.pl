# What packages say about ttl_docs agrees with the tree, and with each other.
#
# A release has a version of three numbers (docs/releasing.md): META.json has it, and
# debian/changelog and CHANGELOG.md, where a last ".0" may be left out.  The extension
# has the first two of them.  No server is needed.

use strict;
use warnings;

use File::Copy;
use File::Path qw(make_path);
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $extension = 'ttl_docs';
my $number = qr/(?:0|[1-9][0-9]*)/;

# The version of a release in its long form, "1.0.0" for "1.0".
sub release_version
{
	my ($version) = @_;
	return $version =~ /^$number\.$number$/ ? "$version.0" : $version;
}

# The version of the extension that a release has.
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
is($meta->{'meta-spec'}{version}, '1.0.0', 'META.json follows the specification 1.0.0');
is($meta->{name}, $extension, 'META.json names the distribution');
is($meta->{license}, 'postgresql', 'META.json names the licence');

my $release = $meta->{version};
like($release, qr/^$number\.$number\.$number$/, 'META.json has a semantic version');
is(extension_version($release), $default_version, "the extension of $release is that of the control file");

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
	!$unreleased, 'META.json calls it stable if CHANGELOG.md calls it released');

my ($debian_version, $suite) = slurp_file('debian/changelog') =~ /\A[a-z-]+ \(([^)]+)-[^-)]+\) (\S+);/;
is(release_version($debian_version), $release, 'debian/changelog begins with the version of META.json');
is($suite eq 'UNRELEASED', $unreleased, 'debian/changelog calls it released if CHANGELOG.md does');

# ---- The oldest PostgreSQL ----

my ($oldest) = slurp_file('Makefile') =~ /^OLDEST_PG = ([0-9]+)$/m;
ok(defined $oldest, 'Makefile knows the oldest PostgreSQL');
is($meta->{prereqs}{runtime}{requires}{PostgreSQL}, "$oldest.0.0", 'META.json requires it');
is(slurp_file('debian/pgversions'), "$oldest+\n", 'debian/pgversions begins with it');
like(slurp_file('test/env.sh'), qr/^readonly OLDEST_PG=$oldest$/m, 'test/env.sh looks for it');

# ---- Scripts ----

# Which versions can be installed, and which lead to which.
my (%base, %updates);
for my $script (glob("sql/$extension--*.sql"))
{
	my ($name, @versions) = split /--/, $script =~ s{^sql/(.*)\.sql$}{$1}r;
	cmp_ok(scalar(@versions), '<=', 2, "$script is named like a script");
	if (@versions == 1)
	{
		$base{ $versions[0] } = 1;
	}
	else
	{
		push @{ $updates{ $versions[0] } }, $versions[1];
	}
}

# All versions that ALTER EXTENSION UPDATE gets to from one, that one included.
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
	"CREATE EXTENSION finds its way to $default_version");
my %earlier = map { $_ => 1 } keys %base, keys %updates, map { extension_version($_) } @releases;
for my $version (sort keys %earlier)
{
	ok(reachable_from($version)->{$default_version},
		"ALTER EXTENSION UPDATE finds its way from $version to $default_version");
}

# ---- debian/control ----

SKIP:
{
	skip 'pg_buildext is not installed', 1 if system('command -v pg_buildext >/dev/null') != 0;

	# For the versions that it has: which ones a system supports is its own matter.
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

done_testing();

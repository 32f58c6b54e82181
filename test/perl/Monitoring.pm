# Prometheus and its exporter for PostgreSQL, with the files of contrib/monitoring.
#
#	skip_without_prometheus();
#	my $exporter = start_exporter($node, 'queries.yaml', 'postgres');
#	my $prometheus = start_prometheus(main => $exporter, ...);
#	until_value($prometheus, 'up{instance="main"}', 1, 'the exporter answers');
#	stop_monitoring();
#
# The programs come from the PATH: test/monitoring.sh fetches them.  They listen on free ports of
# 127.0.0.1.  Prometheus scrapes every three seconds, and evaluates the rules every second.
package Monitoring;

use strict;
use warnings;

use Exporter qw(import);
use File::Spec;
use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(skip_without_prometheus promtool_accepts start_exporter start_prometheus stop_monitoring
  values_of until_value until_alerts panels_of returns_series variables_have_values);

my $files = 'contrib/monitoring';
my @programs = qw(prometheus promtool prometheus-postgres-exporter);
my $http = HTTP::Tiny->new(timeout => 30);
my @processes;

# Skips the whole test if a program is missing.
sub skip_without_prometheus
{
	for my $program (@programs)
	{
		plan skip_all => "$program is not installed; make test-monitoring fetches it"
		  if system("command -v $program >/dev/null") != 0;
	}
	return;
}

# promtool accepts a file of contrib/monitoring.  Counts as a test.
sub promtool_accepts
{
	my ($file, @command) = @_;
	my $output = '';
	ok( IPC::Run::run([ 'promtool', @command, "$files/$file" ], '>', \$output, '2>&1'),
		"promtool accepts $file: @command") or diag($output);
	return;
}

# ---- Programs ----

sub start_program
{
	my ($name, @command) = @_;
	my $log = PostgreSQL::Test::Utils::tempdir() . "/$name.log";
	push @processes, { name => $name, log => $log, run => IPC::Run::start(\@command, '<', \undef, '>', $log, '2>&1') };
	return;
}

# Returns the body of the answer to a request, once a server answers with success.
sub until_answer
{
	my ($url) = @_;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		my $answer = $http->get($url);
		return $answer->{content} if $answer->{success};
		select undef, undef, undef, 0.1;
	}
	show_logs();
	die "no answer from $url";
}

sub show_logs
{
	diag("$_->{name}: " . slurp_file($_->{log})) for @processes;
	return;
}

# Starts an exporter with a file of contrib/monitoring, for databases of a server: a list with commas.
# The exporter connects as the role "exporter", which this creates like README.md of contrib/monitoring.
# Returns its address.
sub start_exporter
{
	my ($server, $queries, $databases) = @_;
	my $address = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
	local $ENV{DATA_SOURCE_NAME} =
	  'host=' . $server->host . ' port=' . $server->port . ' user=exporter dbname=postgres sslmode=disable';
	start_program(
		'exporter-' . $server->name,
		'prometheus-postgres-exporter', "--web.listen-address=$address",
		"--extend.query-path=$files/$queries", '--auto-discover-databases',
		"--include-databases=$databases", '--disable-settings-metrics');
	until_answer("http://$address/");
	return $address;
}

# Starts Prometheus with alerts.yml, and exporters by the names of their instances.  Returns its address.
sub start_prometheus
{
	my (%exporters) = @_;
	my $address = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
	my $directory = PostgreSQL::Test::Utils::tempdir();
	my $rules = File::Spec->rel2abs("$files/alerts.yml");
	my $targets = join '', map { qq(
      - targets: ['$exporters{$_}']
        labels: {instance: '$_'}) } sort keys %exporters;
	append_to_file(
		"$directory/prometheus.yml", qq{
global: {scrape_interval: 3s, scrape_timeout: 3s, evaluation_interval: 1s}
rule_files: ['$rules']
scrape_configs:
  - job_name: ttl_docs
    static_configs:$targets
});
	start_program(
		'prometheus', 'prometheus',
		"--config.file=$directory/prometheus.yml", "--storage.tsdb.path=$directory/data",
		"--web.listen-address=$address", '--log.level=warn');
	until_answer("http://$address/-/ready");
	return $address;
}

# Stops the programs that this test has started.
sub stop_monitoring
{
	for my $process (splice @processes)
	{
		$process->{run}->kill_kill;
	}
	return;
}

END
{
	# of the test, not of kill_kill()
	my $status = $?;
	stop_monitoring();
	$? = $status;
}

# ---- Queries ----

# Returns the answer of Prometheus to a request: path and parameters.
sub ask
{
	my ($prometheus, $path, %parameters) = @_;
	my $query = $http->www_form_urlencode(\%parameters);
	my $answer = $http->get("http://$prometheus/api/v1/$path?$query");
	my $json = decode_json($answer->{content});
	die "Prometheus: $json->{error}" if $json->{status} ne 'success';
	return $json->{data};
}

# Returns the values of a query, sorted.
sub values_of
{
	my ($prometheus, $query) = @_;
	my $data = ask($prometheus, 'query', query => $query);
	return sort map { $_->{value}[1] } @{ $data->{result} };
}

# Calls a function until it returns true; returns its last result.
sub until_true
{
	my ($function) = @_;
	my $result;
	for (1 .. 2 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$result = $function->();
		return $result if $result;
		select undef, undef, undef, 0.5;
	}
	return $result;
}

# Waits until a query returns these values.  Counts as a test.
sub until_value
{
	my ($prometheus, $query, $expected, $name) = @_;
	my $values;
	until_true(sub { ($values = join ', ', values_of($prometheus, $query)) eq $expected });
	is($values, $expected, $name) or show_logs();
	return;
}

# Waits until these alerts are active, pending or firing.  A line of an alert has its name, and the values
# of these of its labels: instance, collection, node, state.  Counts as a test.
sub until_alerts
{
	my ($prometheus, $expected, $name) = @_;
	my $wanted = join "\n", sort @$expected;
	my $active;
	until_true(sub { ($active = active_alerts($prometheus)) eq $wanted });
	is($active, $wanted, $name) or show_logs();
	return;
}

sub active_alerts
{
	my ($prometheus) = @_;
	my @lines;
	for my $alert (@{ ask($prometheus, 'alerts')->{alerts} })
	{
		my $labels = $alert->{labels};
		push @lines, join ' ', grep { defined } @$labels{qw(alertname instance collection node state)};
	}
	return join "\n", sort @lines;
}

# ---- The dashboard ----

sub dashboard
{
	return decode_json(slurp_file("$files/dashboard.json"));
}

# Returns the panels of the dashboard that have queries: hashes of row, title, targets.
sub panels_of
{
	my $row;
	my @panels;
	for my $panel (@{ dashboard()->{panels} })
	{
		$row = $panel->{title} if $panel->{type} eq 'row';
		push @panels, { %$panel, row => $row } if $panel->{targets};
	}
	return @panels;
}

# Each query of a panel returns series, as an instant query, and as the range query that Grafana runs for a
# graph.  Counts as a test for each query.
sub returns_series
{
	my ($prometheus, $panel) = @_;
	for my $target (@{ $panel->{targets} })
	{
		my $query = with_variables($target->{expr});
		my $found = until_true(
			sub {
				my $instant = ask($prometheus, 'query', query => $query);
				my $range =
				  ask($prometheus, 'query_range', query => $query, start => time - 120, end => time, step => 1);
				return @{ $instant->{result} } && @{ $range->{result} };
			});
		ok($found, "dashboard: $panel->{title}, query $target->{refId}") or diag($query);
	}
	return;
}

# Replaces the variables of Grafana.
sub with_variables
{
	my ($query) = @_;
	my %value = ('$__rate_interval' => '30s', map { ('$' . $_->{name} => '.*') } @{ dashboard()->{templating}{list} });
	$query =~ s/(\$\w+)/$value{$1} \/\/ die "$1 is not a variable of the dashboard"/ge;
	return $query;
}

# The lists of the dashboard are not empty: label_values(metric, label).  Counts as a test for each.
sub variables_have_values
{
	my ($prometheus) = @_;
	for my $variable (grep { $_->{type} eq 'query' } @{ dashboard()->{templating}{list} })
	{
		my ($metric, $label) = $variable->{query} =~ /^label_values\((\w+), (\w+)\)$/
		  or die "unexpected query of $variable->{name}";
		my $data = ask($prometheus, 'query', query => "count by ($label) ($metric)");
		my @values = grep { defined } map { $_->{metric}{$label} } @{ $data->{result} };
		ok(@values > 0, "dashboard: the list $variable->{name} has entries");
	}
	return;
}

1;

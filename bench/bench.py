#!/usr/bin/env python3
"""Compares ttl_docs with what a user would do instead.  bench/run.sh calls this program.

Every workload is a module of bench/workloads.  server.py starts servers and pgbench, measure.py
compares, tables.py creates the tables of both sides, report.py and plot.py write the results.
Goals are about ratios within one run, and seldom about absolute times.
"""

import argparse
import collections
import importlib
import os
import platform
import shutil

from report import Report
from server import Server
from tables import drop_all

WORKLOADS = ('count', 'select_by_key', 'gin', 'other_tables', 'instructions', 'insert', 'copy', 'foreign_keys', 'touch',
             'purge_idle', 'purge_load', 'purge_pass', 'truncate', 'settings', 'adopt', 'documents', 'growth', 'memory',
             'alternatives', 'fsync_on', 'citus')
# These take minutes, and --quick leaves them out.
ONLY_FULL = ('instructions', 'growth', 'memory', 'alternatives', 'fsync_on', 'citus')


class Scale(collections.namedtuple('Scale', 'rows few_rows most_rows sizes rounds turns seconds window curve')):
    """How much to measure: rows of tables; rounds, and turns of two servers; seconds of a round, and of the windows and
    the curve of the purge."""

    def short(self):
        """Returns a scale for tables with many figures."""
        return self._replace(rounds=min(3, self.rounds), seconds=1)


FULL = Scale(1000000, 100000, 5000000, (100000, 1000000, 5000000), 9, 18, 2, 5, 60)
QUICK = Scale(50000, 20000, 200000, (20000, 200000), 3, 3, 1, 2, 10)


class Bench:
    """The server, the scale and the report, for workloads."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.scale = QUICK if arguments.quick else FULL
        self.report = Report(arguments.results)
        self.server = self.another_server('main', 'ttl_docs')

    def another_server(self, name, preload, wrapper=None, settings=''):
        return Server(self.arguments.programs, os.path.join(self.arguments.scratch, name), preload,
                      '1GB' if self.arguments.quick or wrapper else '6GB', wrapper, settings)

    @staticmethod
    def has_program(name):
        return shutil.which(name) is not None

    def has_library(self, name):
        directory = self.server.run('pg_config', '--pkglibdir').strip()
        return os.path.exists(os.path.join(directory, name + '.so'))

    def empty(self):
        drop_all(self.server)

    def plot(self, name, title, x_label, series):
        self.report.add_plot(name, title, x_label, series)

    def table(self, title, header, rows):
        self.report.add_table(title, header, rows)

    def run(self, name):
        self.empty()
        self.report.begin(name, self.where())
        workload = importlib.import_module('workloads.' + name)
        self.report.add_lines(workload.measure(self), getattr(workload, 'SECTION', None))

    def where(self):
        with open('/proc/cpuinfo') as cpu:
            model = next((line.split(':')[1].strip() for line in cpu if line.startswith('model name')),
                         platform.machine())
        return 'PostgreSQL %s, %d processors (%s)' % (self.server.sql('SHOW server_version').split()[0],
                                                      os.cpu_count(), model)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--programs', required=True, help='directory of postgres, psql and pgbench')
    parser.add_argument('--scratch', required=True, help='directory for servers')
    parser.add_argument('--results', required=True, help='directory for RESULTS.md and plots')
    parser.add_argument('--quick', action='store_true', help='use less data and fewer rounds')
    parser.add_argument('workloads', nargs='*', help='run only these')
    arguments = parser.parse_args()
    unknown = set(arguments.workloads) - set(WORKLOADS)
    if unknown:
        parser.error('unknown workload: %s; there are: %s' % (', '.join(unknown), ', '.join(WORKLOADS)))
    return arguments


def main():
    arguments = parse_arguments()
    bench = Bench(arguments)
    for name in arguments.workloads or WORKLOADS:
        if not arguments.quick or name not in ONLY_FULL or arguments.workloads:
            bench.run(name)
    if not arguments.quick:
        bench.report.write(WORKLOADS)
    bench.server.stop()
    verdicts = bench.report.verdicts
    print('\n%d goals: %d reached, %d missed, %d undecided' % (
        sum(verdicts.values()), verdicts['reached'], verdicts['missed'], verdicts['undecided']))


if __name__ == '__main__':
    main()

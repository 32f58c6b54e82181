"""Prints the results, and writes them into RESULTS.md and plots."""

import collections
import json
import os
import textwrap

import plot

INTRODUCTION = (
    'The benchmark measures ttl_docs and an alternative in the same run; the two sides take turns. All data fits into'
    ' shared buffers, and `fsync` is off, so the results show work and not disk waits.%s')
READING = (
    'Each ratio is ttl_docs divided by the other side: the median of all rounds, with the spread of the rounds in'
    ' brackets. Higher is better for throughput, lower for times, bytes and pages. A goal is reached if the whole spread'
    ' is on the good side of it, and missed if the whole spread is on the bad side. Otherwise it is undecided.')
LINE_LENGTH = 130
DISK_WAITS = ' The section [With fsync on](#with-fsync-on) has figures with disk waits.'


def number(value, unit):
    if value is None:
        return ''
    if unit == 'ms' and value < 1:
        return '%.2f %s' % (value, unit)
    if unit == 'x':
        return '%.2f x' % value
    if unit == 'tps' and value < 100 or unit == 'ms' and value < 10:
        return '%.1f %s' % (value, unit)
    return '%s %s' % (format(round(value), ','), unit)


def what_counts(line):
    """The ratio with its spread, or the number if there is no other side."""
    return line.spread() if line.theirs is not None else number(line.ratio, line.unit)


def as_text(line):
    return '%-62s %-38s %s' % (line.what + (', against ' + line.against if line.against else ''),
                               what_counts(line) + ('  [goal %s]' % line.goal if line.goal else ''),
                               line.verdict().replace('missed', 'MISSED'))


def in_markdown(header, rows):
    return '\n'.join(['| %s |' % ' | '.join(header), '|%s' % ('---|' * len(header))] +
                     ['| %s |' % ' | '.join(str(cell) for cell in row) for row in rows])


def wrapped(text):
    """A paragraph of RESULTS.md."""
    return textwrap.fill(text, LINE_LENGTH, break_long_words=False, break_on_hyphens=False)


def as_row(line):
    """A line as a row of RESULTS.md."""
    return (line.what, line.against, number(line.ours, line.unit), number(line.theirs, line.unit),
            what_counts(line) if line.theirs is not None else '', str(line.goal or ''),
            '**missed**' if line.verdict() == 'missed' else line.verdict())


def summary(lines):
    """A sentence about the throughput of all lines with a certain number of clients."""
    clients = sorted({line.what.rsplit(', ', 1)[1] for line in lines if line.what.endswith(('client', 'clients'))})
    found = []
    for name in clients:
        ratios = [line.ratio for line in lines if line.what.endswith(', ' + name)]
        found.append('%.2f to %.2f with %s' % (min(ratios), max(ratios), name))
    return 'Throughput of a collection, compared with the same table without TTL: %s.' % ', '.join(found)


HEADER = ('what', 'against', 'ttl_docs', 'the other side', 'ratio: median (spread)', 'goal', 'verdict')


class Report:
    """Collects the results of workloads, and writes them.

    results.json keeps the last results of each workload, so that one of them can run again without
    the others.  RESULTS.md is written from it.
    """

    def __init__(self, directory):
        self.directory = directory
        self.store = {}
        if os.path.exists(self.path('results.json')):
            with open(self.path('results.json')) as file:
                self.store = json.load(file)
        self.found = None       # results of the workload that runs
        self.verdicts = collections.Counter()       # of the goals of this run

    def path(self, name):
        return os.path.join(self.directory, name)

    def begin(self, workload, where):
        """Discards the last results of a workload, which runs now on the machine that where describes."""
        self.found = {'where': where, 'rows': [], 'bars': [], 'sections': []}
        self.store[workload] = self.found

    def add_lines(self, lines, section=None):
        """Adds lines to the main table, or to a section of their own: a title and a note.  A section has no goals."""
        if section:
            for line in lines:
                print(as_text(line), flush=True)
            title, note = section
            parts = (wrapped(summary(lines)), wrapped('%s Measured on %s.' % (note, self.found['where'])),
                     in_markdown(HEADER[:5], [as_row(line)[:5] for line in lines]))
            self.found['sections'].append((title, '\n\n'.join(parts)))
            return
        for line in lines:
            print(as_text(line), flush=True)
            self.verdicts.update([line.verdict()] if line.goal else [])
            self.found['rows'].append(as_row(line))
            if line.against == 'same table, no TTL' and line.unit in ('tps', 'rows/s'):
                self.found['bars'].append((line.what, line.ratio, min(line.ratios), max(line.ratios),
                                           line.goal.bound if line.goal else None))

    def add_table(self, title, header, rows):
        self.found['sections'].append((title, in_markdown(header, rows)))
        print('\n%s\n' % title, flush=True)
        widths = [max(len(str(row[i])) for row in [header] + list(rows)) for i in range(len(header))]
        for row in [header] + list(rows):
            print('  '.join(str(cell).rjust(width) for cell, width in zip(row, widths)), flush=True)
        print(flush=True)

    def add_plot(self, name, title, x_label, series):
        self.save(name, plot.panels(title, x_label, series))
        self.found['sections'].append((title, '![%s](plots/%s.svg)' % (title, name)))

    def save(self, name, content):
        os.makedirs(self.path('plots'), exist_ok=True)
        with open(self.path('plots/%s.svg' % name), 'w') as file:
            file.write(content)

    def write(self, workloads):
        """Writes results.json, RESULTS.md and the plot of ratios, in the order of the workloads."""
        with open(self.path('results.json'), 'w') as file:
            json.dump(self.store, file, indent=1)
        found = [self.store[name] for name in workloads if name in self.store]
        self.save('ratios', plot.bars('Throughput of a collection; 1.0 is the same table without TTL. Red: the goal',
                                      [bar for workload in found for bar in workload['bars']], 1))
        with open(self.path('LIMITS.md')) as limits:
            explained = limits.read()
        machines = ' and '.join(sorted({workload['where'] for workload in found}))
        introduction = INTRODUCTION % (DISK_WAITS if 'fsync_on' in self.store else '')
        parts = ['# Results of `make bench`', wrapped('%s Measured on %s.' % (introduction, machines)), wrapped(READING),
                 in_markdown(HEADER, [row for workload in found for row in workload['rows']]),
                 '![Throughput of a collection](plots/ratios.svg)']
        parts += ['## %s\n\n%s' % tuple(section) for workload in found for section in workload['sections']]
        with open(self.path('RESULTS.md'), 'w') as file:
            file.write('\n\n'.join(parts + [explained]))

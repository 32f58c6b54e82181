"""What was measured, as text on the terminal, and as RESULTS.md with its plots."""

import os

import plot


def number(value, unit):
    if value is None:
        return ''
    if unit == 'tps' and value < 100 or unit == 'ms' and value < 10:
        return '%.1f %s' % (value, unit)
    return '%s %s' % (format(round(value), ','), unit)


def what_counts(line):
    """The ratio with its spread, or the number where there is no other side."""
    return line.spread() if line.theirs is not None else number(line.ratio, line.unit)


def as_text(line):
    return '%-62s %-38s %s' % (line.what + (', against ' + line.against if line.against else ''),
                               what_counts(line) + ('  [goal %s]' % line.goal if line.goal else ''), line.verdict())


def in_markdown(header, rows):
    return '\n'.join(['| %s |' % ' | '.join(header), '|%s' % ('---|' * len(header))] +
                     ['| %s |' % ' | '.join(str(cell) for cell in row) for row in rows])


def lines_table(lines):
    return in_markdown(
        ('what', 'against', 'ttl_docs', 'the other side', 'ratio: median (spread)', 'goal', ''),
        [(line.what, line.against, number(line.ours, line.unit), number(line.theirs, line.unit),
          what_counts(line) if line.theirs is not None else '', line.goal or '',
          '**missed**' if line.verdict() == 'MISSED' else line.verdict()) for line in lines])


class Report:
    """Collects results, and writes them."""

    def __init__(self, directory):
        self.directory = directory
        self.sections = []      # (title, Markdown)
        self.lines = []

    def add_lines(self, lines):
        self.lines += lines
        for line in lines:
            print(as_text(line), flush=True)

    def add_table(self, title, header, rows):
        self.sections.append((title, in_markdown(header, rows)))
        print('\n%s\n' % title, flush=True)
        widths = [max(len(str(row[i])) for row in [header] + list(rows)) for i in range(len(header))]
        for row in [header] + list(rows):
            print('  '.join(str(cell).rjust(width) for cell, width in zip(row, widths)), flush=True)
        print(flush=True)

    def add_plot(self, name, title, x_label, series):
        self.save(name, plot.panels(title, x_label, series))
        self.sections.append((title, '![%s](plots/%s.svg)' % (title, name)))

    def save(self, name, content):
        directory = os.path.join(self.directory, 'plots')
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, name + '.svg'), 'w') as file:
            file.write(content)

    def plot_ratios(self):
        """Throughput of the collection as a share of the plain table's, as bars."""
        rows = [(line.what, line.ratio, min(line.ratios), max(line.ratios), line.goal.bound if line.goal else None)
                for line in self.lines if line.against == 'same table, no TTL' and line.unit in ('tps', 'rows/s')]
        if rows:
            self.save('ratios', plot.bars('Throughput of a collection; 1.0 is the same table without TTL. Red: the goal',
                                          rows, 1))

    def write(self, description):
        """RESULTS.md: the lines, the tables and plots, and what cannot be measured but explained."""
        self.plot_ratios()
        with open(os.path.join(self.directory, 'LIMITS.md')) as limits:
            explained = limits.read()
        parts = ['# Results of `make bench`', description, lines_table(self.lines),
                 '![Throughput of a collection](plots/ratios.svg)']
        parts += ['## %s\n\n%s' % section for section in self.sections]
        with open(os.path.join(self.directory, 'RESULTS.md'), 'w') as file:
            file.write('\n\n'.join(parts + [explained]))

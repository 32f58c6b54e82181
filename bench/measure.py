"""Measures two sides against one another, and says whether a goal is reached.

The machine may be noisy, so sides take turns: within one run of pgbench from transaction
to transaction (compare_transactions), else from repetition to repetition.  Each round
gives a ratio; what counts is the median of the ratios.
"""

import statistics


class Goal:
    """What a ratio, or a number, has to be."""

    def __init__(self, relation, bound, unit=''):
        self.relation = relation
        self.bound = bound
        self.unit = unit

    def is_reached(self, number):
        # what is printed has two digits, and it is what counts
        return round(number, 2) >= self.bound if self.relation == '>=' else round(number, 2) <= self.bound

    def __str__(self):
        return '%s %g%s' % (self.relation, self.bound, self.unit)


def at_least(bound):
    return Goal('>=', bound)


def at_most(bound, unit=''):
    return Goal('<=', bound, unit)


class Line:
    """A result: what was measured on both sides, round by round, and their ratios."""

    def __init__(self, what, against, unit, ours, theirs=(), goal=None):
        self.what = what
        self.against = against
        self.unit = unit
        self.ours = statistics.median(ours)
        self.theirs = statistics.median(theirs) if theirs else None
        self.ratios = [a / b for a, b in zip(ours, theirs)] if theirs else list(ours)
        self.goal = goal

    @property
    def ratio(self):
        return statistics.median(self.ratios)

    def verdict(self):
        if self.goal is None:
            return ''
        return 'reached' if self.goal.is_reached(self.ratio) else 'MISSED'

    def spread(self):
        return '%.2f (%.2f to %.2f)' % (self.ratio, min(self.ratios), max(self.ratios))


def trimmed_mean(numbers):
    """The mean without the slowest hundredth: those met something else on the machine."""
    numbers = sorted(numbers)
    return statistics.fmean(numbers[:max(1, len(numbers) * 99 // 100)])


def compare_transactions(server, scripts, scale, mode='prepared', options=(), settings=None):
    """Transactions a second of one client for each script, as a list over the rounds for each.

    All scripts run in one pgbench, which picks one at random each time.
    """
    tps = [[] for _ in scripts]
    options = ['-c', '1', *options]
    server.pgbench(scripts, '-t', str(200 * len(scripts)), *options, mode=mode, settings=settings).transactions()
    for _ in range(scale.rounds):
        done = server.pgbench(scripts, '-T', str(scale.seconds), *options, mode=mode, settings=settings).transactions()
        for number in range(len(scripts)):
            tps[number].append(1e6 / trimmed_mean([t.micros for t in done if t.script == number]))
    return tps


def compare_statements(server, statements, rounds, before=None):
    """Seconds of each statement, in turns; before(statement) is run before each, and not counted."""
    seconds = [[] for _ in statements]
    for turn in range(rounds + 1):
        for number, statement in enumerate(statements):
            if before:
                before(statement)
            taken = server.seconds(statement)
            if turn > 0:                # the first warms caches
                seconds[number].append(taken)
    return seconds


def percentile(numbers, share):
    numbers = sorted(numbers)
    return numbers[min(len(numbers) - 1, int(len(numbers) * share))]

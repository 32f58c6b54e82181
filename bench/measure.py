"""Measures two sides, compares them, and decides whether a goal is reached.

The speed of a machine varies, so the sides take turns: after each transaction in one run of pgbench
(compare_transactions), or after each statement.  Each round gives a ratio.  The result is the median of
the ratios, and their spread.
"""

import statistics


class Goal:
    """The bound that a ratio, or a number, has to keep."""

    def __init__(self, relation, bound, unit=''):
        self.relation = relation
        self.bound = bound
        self.unit = unit

    def is_reached(self, number):
        # the report prints two digits, so two digits count
        return round(number, 2) >= self.bound if self.relation == '>=' else round(number, 2) <= self.bound

    def verdict(self, numbers):
        """Whether the numbers of all rounds reach the goal, or miss it; 'undecided' if some do and some do not."""
        reached = {self.is_reached(number) for number in numbers}
        return 'undecided' if len(reached) == 2 else 'reached' if reached == {True} else 'missed'

    def __str__(self):
        return '%s %g%s' % (self.relation, self.bound, self.unit)


def at_least(bound):
    return Goal('>=', bound)


def at_most(bound, unit=''):
    return Goal('<=', bound, unit)


class Line:
    """A result: the medians of both sides, and the ratio of each round."""

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
        """'reached' or 'missed' if the whole spread is on one side of the goal, else 'undecided'."""
        return self.goal.verdict(self.ratios) if self.goal else ''

    def spread(self):
        return '%.2f (%.2f to %.2f)' % (self.ratio, min(self.ratios), max(self.ratios))


def trimmed_mean(numbers):
    """The mean without the slowest hundredth, which other work on the machine has delayed."""
    numbers = sorted(numbers)
    return statistics.fmean(numbers[:max(1, len(numbers) * 99 // 100)])


def compare_transactions(server, scripts, scale, mode='prepared', options=(), settings=None):
    """Transactions per second of one client: for each script, a list with a number for each round.

    All scripts run in one pgbench, which picks one at random for each transaction.
    """
    tps = [[] for _ in scripts]
    options = ['-c', '1', *options]
    server.pgbench(scripts, '-t', str(200 * len(scripts)), *options, mode=mode, settings=settings).transactions()
    for _ in range(scale.rounds):
        done = server.pgbench(scripts, '-T', str(scale.seconds), *options, mode=mode, settings=settings).transactions()
        for number in range(len(scripts)):
            tps[number].append(1e6 / trimmed_mean([t.micros for t in done if t.script == number]))
    return tps


def compare_clients(server, scripts, scale, clients, options=()):
    """Transactions per second of several clients: for each script, a list with a number for each round.

    Each script has a run of pgbench of its own.  The scripts alternate in running first.
    """
    tps = [[] for _ in scripts]
    for turn in range(scale.rounds):
        order = list(range(len(scripts)))
        for number in order if turn % 2 else reversed(order):
            done = server.pgbench([scripts[number]], '-c', str(clients), '-j', '2', '-T', str(scale.seconds),
                                  *options).transactions()
            tps[number].append(len(done) / scale.seconds)
    return tps


def compare_statements(server, statements, rounds, before=None):
    """Seconds of each statement, in turns.  before(statement) runs before each statement, and is not measured."""
    seconds = [[] for _ in statements]
    for turn in range(rounds + 1):
        for number, statement in enumerate(statements):
            if before:
                before(statement)
            taken = server.seconds(statement)
            if turn > 0:                # the first turn fills the caches
                seconds[number].append(taken)
    return seconds


def percentile(numbers, share):
    numbers = sorted(numbers)
    return numbers[min(len(numbers) - 1, int(len(numbers) * share))]

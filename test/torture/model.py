#!/usr/bin/python3
"""A model checker for ttl_docs: random histories against a server and a model of the contract.

	model.py --seed 1 --histories 10         ten histories, with seeds 1 to 10
	model.py --seed 1 --seconds 3600         as many as fit into an hour

Several sessions insert, upsert, update, touch, delete, change the DefaultTTL, move
the clock, open transactions of each isolation level with savepoints, prepare them,
pass snapshots on, defer constraints, wait for one another, and purge.  After each
statement its rows, its count or its SQLSTATE are compared with the model; every now
and then so is all that is visible, and all that is on disk.  A difference is made as
short as it gets, and printed as a script.

The parts: model_world.py and model_store.py are the model; model_steps.py,
model_transactions.py, model_adoption.py and model_waits.py are the steps in SQL and
in the model; model_generator.py and model_scenes.py draw them; model_runner.py runs
and compares; model_time.py has the server's clock; model_shrink.py shortens.  The server is that of PGHOST, PGPORT,
PGDATABASE and PGUSER, who has to be a superuser; it has ttl_docs, and its background
purge is off, and it has max_prepared_transactions.  The schema "model" is dropped and made anew for each history.
"""

import argparse
import collections
import random
import sys
import time

from model_generator import Generator
from model_runner import Difference, Runner, SHORT_PATIENCE, create_statements
from model_scenes import Scenes
from model_shrink import as_script, shrink, used_tables
from model_steps import Check
from model_store import Blocked
from model_time import OutOfTime

SESSIONS = 5
REAL_TIME = 4               # one of so many histories runs in real time
REAL_MOVES = 10             # of the clock, in such a one: each takes a second
STEPS_BETWEEN_CHECKS = 40
PROBES = 0.03               # of the statements that have to wait, so many do, until a timeout
SHRINK_SECONDS = 200
HISTORIES_BETWEEN_REPORTS = 50


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seed', type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument('--histories', type=int, help='how many; each has the next seed')
    parser.add_argument('--seconds', type=float, help='or until so much time has passed')
    parser.add_argument('--steps', type=int, default=2000, help='of each history')
    parser.add_argument('--scenes', type=lambda kinds: kinds.split(','), default=list(Scenes.KINDS),
                        help='only these, separated by commas: %s' % ', '.join(Scenes.KINDS))
    parser.add_argument('--no-shrink', action='store_true', help='print a difference as it was found')
    arguments = parser.parse_args()
    if arguments.histories is None and arguments.seconds is None:
        arguments.histories = 1
    return arguments


class History:
    """A seed, and the steps that it leads to."""

    def __init__(self, seed, scenes):
        self.seed = seed
        self.scenes = scenes
        self.is_real = seed % REAL_TIME == 0
        self.steps = []         # those that were run
        self.outcomes = collections.Counter()
        self.left_out = collections.Counter()

    def source(self):
        """A generator in its first state, with new tables."""
        generator = Generator(random.Random(self.seed), SESSIONS, self.is_real, self.scenes)
        return generator, generator.tables()

    def generate(self, count):
        """Draws and runs that many steps; raises Difference."""
        generator, tables = self.source()
        runner = Runner(tables, generator.unit, SESSIONS, is_real=self.is_real)
        try:
            while len(self.steps) < count and not (self.is_real and runner.world.clock > REAL_MOVES * generator.unit):
                self.try_step(runner, generator, self.draw(generator, runner.world))
                if len(self.steps) % 16 == 0:
                    runner.world.forget_unreachable()
        finally:
            self.outcomes, self.left_out = runner.outcomes, runner.left_out
            runner.close()

    def draw(self, generator, world):
        if len(self.steps) % STEPS_BETWEEN_CHECKS == STEPS_BETWEEN_CHECKS - 1:
            return Check()
        return generator.next(world)

    def try_step(self, runner, generator, step):
        """Runs a step, or lets it wait if it has to, or drops it; keeps what was run."""
        step.probe = step.can_race and generator.random.random() < PROBES
        self.steps.append(step)
        try:
            if runner.step(step):
                return
        except Blocked as blocked:
            self.steps.pop()
            race = generator.race(runner.world, step, blocked)
            if race is None:
                return
            self.steps.append(race)
            if runner.step(race):
                return
        self.steps.pop()

    def run_again(self, steps):
        """Runs these steps; returns the difference, or None, and the script that was run."""
        generator, tables = self.source()
        runner = Runner(tables, generator.unit, SESSIONS, SHORT_PATIENCE, self.is_real)
        difference = None
        try:
            for step in steps:
                try:
                    runner.step(step)
                except Blocked:
                    pass
        except Difference as found:
            difference = found
        except OutOfTime:
            pass
        finally:
            runner.close()
        return difference, runner

    def fails(self, steps, sort):
        """Do these steps lead to a difference of that sort?"""
        difference = self.run_again(steps)[0]
        return difference is not None and difference.sort == sort


def report(history, difference, statements, arguments):
    """Prints a difference, as short as it gets, and how to see it again."""
    print('DIFFERENCE in the history of seed %d, after %d steps, and %d statements in all:\n%s'
          % (history.seed, len(history.steps), statements, difference), flush=True)
    steps = history.steps
    if not arguments.no_shrink:
        steps = shrink(steps, lambda candidate: history.fails(candidate, difference.sort), SHRINK_SECONDS)
    again, runner = history.run_again(steps)
    if again is None:
        print('It did not happen again when the same steps were run once more.')
    else:
        _, tables = history.source()
        setup = create_statements(used_tables(tables, runner.script))
        print('\n-- %d steps are enough:\n%s\n-- %s' % (
            len(steps), as_script(setup, runner.script), str(again).replace('\n', '\n-- ')))
    scenes = '' if history.scenes == list(Scenes.KINDS) else ' --scenes ' + ','.join(history.scenes)
    print('\nto reproduce: PG_TEST_MODEL="--seed %d --histories 1 --steps %d%s" make test TESTS=011_model'
          % (history.seed, arguments.steps, scenes))


class Totals:
    """What all histories have met."""

    def __init__(self):
        self.started = time.monotonic()
        self.histories = 0
        self.outcomes = collections.Counter()
        self.left_out = collections.Counter()

    def add(self, history):
        self.outcomes += history.outcomes
        self.left_out += history.left_out

    def seconds(self):
        return time.monotonic() - self.started

    def statements(self):
        return sum(self.outcomes.values()) - self.outcomes['wait']

    def __str__(self):
        return '%d histories, %d statements compared, %.0f seconds, %.0f statements/s; %s; left out: %s' % (
            self.histories, self.statements(), self.seconds(), self.statements() / self.seconds(),
            listed(self.outcomes), listed(self.left_out))


def listed(counter):
    return ', '.join('%s: %d' % item for item in counter.most_common()) or 'nothing'


def goes_on(arguments, totals):
    """Is there another history to run?"""
    if arguments.histories is not None and totals.histories >= arguments.histories:
        return False
    return arguments.seconds is None or totals.seconds() < arguments.seconds


def main():
    arguments = parse_arguments()
    print('seed %d' % arguments.seed, flush=True)
    totals = Totals()
    while goes_on(arguments, totals):
        history = History(arguments.seed + totals.histories, arguments.scenes)
        totals.histories += 1
        try:
            history.generate(arguments.steps)
        except OutOfTime:
            totals.left_out['end of a slow history'] += 1
        except Difference as difference:
            totals.add(history)
            report(history, difference, totals.statements(), arguments)
            return 1
        totals.add(history)
        if totals.histories % HISTORIES_BETWEEN_REPORTS == 0:
            print(totals, flush=True)
    print('no difference: %s' % totals)
    return 0


if __name__ == '__main__':
    sys.exit(main())

#!/usr/bin/python3
"""A model checker for ttl_docs: runs random histories on a server and on a model of the contract.

	model.py --seed 1 --histories 10         ten histories, with seeds 1 to 10
	model.py --seed 1 --seconds 3600         as many as fit into an hour

A history is a list of steps of several sessions.  They insert, upsert, update, touch, delete,
change the DefaultTTL, move the clock and purge.  They open transactions of each isolation level
with savepoints, prepare them, export snapshots, defer constraints, and wait for one another.
After each statement, the program compares its rows, its row count or its SQLSTATE with the model.
At intervals it compares all visible documents, and all documents on disk.  If it finds a
difference, it shortens the history as far as possible, and prints it as a script.

The files:
	model_world.py, model_store.py      the model
	model_steps.py, model_transactions.py, model_adoption.py, model_waits.py
	                                    the steps, in SQL and in the model
	model_generator.py, model_scenes.py draw the steps
	model_runner.py                     runs the steps and compares
	model_time.py                       translates between the clocks of server and model
	model_shrink.py                     shortens a history

The program connects by PGHOST, PGPORT, PGDATABASE and PGUSER as a superuser, to a database with
ttl_docs.  On this server the purge must be off, and max_prepared_transactions above 0.  The program
drops and creates the schema "model" for each history.
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
REAL_TIME = 4               # one in this number of histories runs in real time
REAL_MOVES = 10             # maximum number of clock moves in a real-time history; each takes a second
STEPS_BETWEEN_CHECKS = 40
PROBES = 0.03               # share of blocked statements that run until a lock timeout
SHRINK_SECONDS = 200
HISTORIES_BETWEEN_REPORTS = 50


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seed', type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument('--histories', type=int, help='number of histories; each has the next seed')
    parser.add_argument('--seconds', type=float, help='start no history after this time')
    parser.add_argument('--steps', type=int, default=2000, help='steps of each history')
    parser.add_argument('--scenes', type=lambda kinds: kinds.split(','), default=list(Scenes.KINDS),
                        help='use only these scenes, separated by commas: %s' % ', '.join(Scenes.KINDS))
    parser.add_argument('--no-shrink', action='store_true', help='do not shorten a history with a difference')
    arguments = parser.parse_args()
    if arguments.histories is None and arguments.seconds is None:
        arguments.histories = 1
    return arguments


class History:
    """A seed, and the steps that are drawn from it."""

    def __init__(self, seed, scenes):
        self.seed = seed
        self.scenes = scenes
        self.is_real = seed % REAL_TIME == 0
        self.steps = []         # those that were run
        self.outcomes = collections.Counter()
        self.left_out = collections.Counter()

    def source(self):
        """Returns a generator in its initial state, and new tables."""
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
        """Runs a step.  If it is blocked, runs it as a race or drops it.  Keeps the steps that were run."""
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
        """Runs these steps; returns the difference or None, and the runner."""
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
        """Do these steps cause a difference of that sort?"""
        difference = self.run_again(steps)[0]
        return difference is not None and difference.sort == sort


def report(history, difference, statements, arguments):
    """Prints a difference with a shortened script, and the command to reproduce it."""
    print('DIFFERENCE in the history of seed %d after %d steps, and %d statements in total:\n%s'
          % (history.seed, len(history.steps), statements, difference), flush=True)
    steps = history.steps
    if not arguments.no_shrink:
        steps = shrink(steps, lambda candidate: history.fails(candidate, difference.sort), SHRINK_SECONDS)
    again, runner = history.run_again(steps)
    if again is None:
        print('The same steps, run again, did not show the difference.')
    else:
        _, tables = history.source()
        setup = create_statements(used_tables(tables, runner.script))
        print('\n-- %d steps reproduce it:\n%s\n-- %s' % (
            len(steps), as_script(setup, runner.script), str(again).replace('\n', '\n-- ')))
    scenes = '' if history.scenes == list(Scenes.KINDS) else ' --scenes ' + ','.join(history.scenes)
    print('\nto reproduce: PG_TEST_MODEL="--seed %d --histories 1 --steps %d%s" make test TESTS=011_model'
          % (history.seed, arguments.steps, scenes))


class Totals:
    """Counts over all histories."""

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
        return '%d histories, %d statements compared, %.0f seconds, %.0f statements/s; %s; not run: %s' % (
            self.histories, self.statements(), self.seconds(), self.statements() / self.seconds(),
            listed(self.outcomes), listed(self.left_out))


def listed(counter):
    return ', '.join('%s: %d' % item for item in counter.most_common()) or 'nothing'


def goes_on(arguments, totals):
    """Should another history run?"""
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

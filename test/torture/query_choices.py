"""Random choices that can be repeated, and made simpler.

Everything random is a choice of one of several things, of which the first is the
simplest.  A generator that is given the choices of another run makes the same thing
again; and one that is given some of them as 0, or fewer of them, makes something
simpler.  So what has failed is shrunk without knowing what it is.
"""
import random


class Choices:
    def __init__(self, seed=None, replay=None):
        self.random = random.Random(seed)
        self.replay = replay
        self.made = []

    def below(self, count):
        """A number from 0 to count - 1."""
        if self.replay is None:
            number = self.random.randrange(count)
        else:
            position = len(self.made)
            number = min(self.replay[position], count - 1) if position < len(self.replay) else 0
        self.made.append(number)
        return number

    def pick(self, options):
        return options[self.below(len(options))]

    def chance(self, percent):
        return self.below(100) >= 100 - percent

    def weighted(self, options):
        """One of [(weight, thing), ...]."""
        number = self.below(sum(weight for weight, _ in options))
        for weight, thing in options:
            number -= weight
            if number < 0:
                return thing
        raise AssertionError('unreachable')


def shrink(made, still_fails, tries):
    """The simplest list of choices that was found, by up to so many calls of still_fails(choices)."""
    best = list(made)
    progress = True
    while progress and tries > 0:
        progress = False
        for candidate in simpler(best):
            if tries == 0:
                break
            tries -= 1
            if still_fails(candidate):
                best, progress = candidate, True
                break
    return best


def simpler(made):
    """Lists like this one, with parts left out or set to 0; large parts first."""
    size = len(made)
    while size > 0:
        for start in range(0, len(made), size):
            yield made[:start] + made[start + size:]
            if any(made[start:start + size]):
                yield made[:start] + [0] * len(made[start:start + size]) + made[start + size:]
        size //= 2

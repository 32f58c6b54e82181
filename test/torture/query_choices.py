"""Random choices that can be replayed and simplified.

Every random decision is a choice from a list whose first item is the simplest.  A
generator that replays the choices of another run makes the same case again.  If some of
the choices are replaced by 0 or left out, it makes a simpler case.  So a failing case can
be shrunk without any knowledge of its meaning.
"""
import random


class Choices:
    def __init__(self, seed=None, replay=None):
        self.random = random.Random(seed)
        self.replay = replay
        self.made = []

    def below(self, count):
        """Chooses a number from 0 to count - 1."""
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
        """Chooses a thing from [(weight, thing), ...]."""
        number = self.below(sum(weight for weight, _ in options))
        for weight, thing in options:
            number -= weight
            if number < 0:
                return thing
        raise AssertionError('unreachable')


def shrink(made, still_fails, tries):
    """Returns the simplest failing list of choices found; calls still_fails(choices) at most "tries" times."""
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
    """Yields simpler lists, with a part left out or set to 0; large parts first."""
    size = len(made)
    while size > 0:
        for start in range(0, len(made), size):
            yield made[:start] + made[start + size:]
            if any(made[start:start + size]):
                yield made[:start] + [0] * len(made[start:start + size]) + made[start + size:]
        size //= 2

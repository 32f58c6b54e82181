"""Time as the server has it, and as the model has it.

The model's clock moves by units.  There are two ways to have the server follow:

- Travel: each session moves ttl_docs.clock_offset.  A unit is so long that the time that
  really passes makes no difference.  The clock can also go back.
- RealTime: the offset stays zero, and a move of the clock is a sleep.  The shortest ttl
  is a second, so that is what documents that expire have, and a sleep is a little longer.
  Statements run in the windows between sleeps, which are shorter than that.  Sessions with an
  offset take no short cuts, so only this way tests the short cuts of writes
  (src/write/maybe_expired.c).
"""

import bisect
import math
import re
import time

SLEEP = 1.02            # seconds; what was written with a ttl of 1 has expired by then
WINDOW = 0.9            # seconds; what is written meanwhile with a ttl of 1 has not expired yet


class OutOfTime(Exception):
    """The history has taken so long that real time could matter."""


class Frame:
    """Translates the server's answers to the model's."""

    def __init__(self, snapshot_ids):
        self.snapshot_ids = snapshot_ids

    def stamp(self, epoch):
        raise NotImplementedError

    def document(self, doc):
        if isinstance(doc, dict):
            doc['_ts'] = self.stamp(doc['_ts'])
        return doc

    @staticmethod
    def purged(notices, table):
        """How many documents CALL purge() says that it has purged."""
        for notice in notices:
            found = re.search(r'purged (\d+) documents? of "%s"' % table, notice)
            if found:
                return int(found.group(1))
        return 0


class Travel(Frame):
    """The clock of sessions is moved by a setting."""

    def __init__(self, snapshot_ids, server_time, unit):
        super().__init__(snapshot_ids)
        self.base = math.floor(server_time()) - 2
        self.unit = unit
        self.started = time.monotonic()

    def stamp(self, epoch):
        return math.floor((epoch - self.base) / self.unit) * self.unit

    def move(self, clock):
        """Sessions are told when they do something next.  Returns what a script has to do now."""
        return []

    def require_time(self):
        if time.monotonic() - self.started > self.unit / 4:
            raise OutOfTime


class RealTime(Frame):
    """The clock moves by itself."""

    def __init__(self, snapshot_ids, server_time):
        super().__init__(snapshot_ids)
        self.server_time = server_time
        self.starts = []        # of the windows, as the server's time
        self.clocks = []        # of the model in them
        self.open_window(0)

    def open_window(self, clock):
        self.opened = time.monotonic()
        self.starts.append(self.server_time())
        self.clocks.append(clock)

    def stamp(self, epoch):
        # document functions give whole seconds, which may be before the window: those are not unique
        return self.clocks[max(0, bisect.bisect_right(self.starts, epoch) - 1)]

    def document(self, doc):
        """The _ts of the document functions is rounded, and windows are not far enough apart for that."""
        if isinstance(doc, dict):
            doc.pop('_ts')
        return doc

    def move(self, clock):
        time.sleep(SLEEP)
        self.open_window(clock)
        return ['SELECT pg_sleep(%s)' % SLEEP]

    def require_time(self):
        if time.monotonic() - self.opened > WINDOW:
            raise OutOfTime

"""Translates between the clock of the server and the clock of the model.

The model's clock moves by units.  The server follows in one of two ways:

- Travel: each session sets ttl_docs.clock_offset.  A unit is so long that the real time that
  passes makes no difference.  The clock can also move back.
- RealTime: the offset stays zero, and a move of the clock is a sleep.  Documents that are to
  expire have a ttl of one second, the shortest possible ttl.  A sleep is a little longer than
  a second.  Statements run in the windows between sleeps, which are shorter than a second.
  Only this way tests the short cuts of writes (src/write/maybe_expired.c), because sessions with an
  offset do not take them.
"""

import bisect
import math
import re
import time

SLEEP = 1.02            # seconds; a document with a ttl of 1 expires within this time
WINDOW = 0.9            # seconds; a document with a ttl of 1 does not expire within this time


class OutOfTime(Exception):
    """The history has taken so long that real time could change an answer."""


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
        """Returns the number of purged documents in the notices of CALL purge()."""
        for notice in notices:
            found = re.search(r'purged (\d+) documents? of "%s"' % table, notice)
            if found:
                return int(found.group(1))
        return 0


class Travel(Frame):
    """A setting moves the clock of the sessions."""

    def __init__(self, snapshot_ids, server_time, unit):
        super().__init__(snapshot_ids)
        self.base = math.floor(server_time()) - 2
        self.unit = unit
        self.started = time.monotonic()

    def stamp(self, epoch):
        return math.floor((epoch - self.base) / self.unit) * self.unit

    def move(self, clock):
        """Does nothing: the runner sets the clock of a session before its next statement.

        Returns the statements for the script.
        """
        return []

    def require_time(self):
        if time.monotonic() - self.started > self.unit / 4:
            raise OutOfTime


class RealTime(Frame):
    """The clock is the real time."""

    def __init__(self, snapshot_ids, server_time):
        super().__init__(snapshot_ids)
        self.server_time = server_time
        self.starts = []        # server time at the start of each window
        self.clocks = []        # the model's clock in each window
        self.open_window(0)

    def open_window(self, clock):
        self.opened = time.monotonic()
        self.starts.append(self.server_time())
        self.clocks.append(clock)

    def stamp(self, epoch):
        # a time before the first window belongs to the first window
        return self.clocks[max(0, bisect.bisect_right(self.starts, epoch) - 1)]

    def document(self, doc):
        """Removes _ts: document functions round it to seconds, and the windows are too close together for that."""
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

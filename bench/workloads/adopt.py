"""adopt_concurrently() of a large table: what others notice, how long it takes, and how much disk it needs.

There are two cases.  "Nothing to fill": no document has a ttl, so no row is written.  "last_modified": each row gets its _ts
from a column, so each row is written.  Every adoption has a fresh copy of the table.
"""

import statistics
import threading
import time

from measure import Line, at_least, at_most
from tables import document

COLUMNS = 'id, doc, updated_at'
LAST_MODIFIED = "default_ttl => 86400000, last_modified => 'updated_at'"
NOTHING_TO_FILL = 'default_ttl => 86400000'
CASES = {'nothing to fill': NOTHING_TO_FILL, 'last_modified': LAST_MODIFIED}
PAUSE_OF_POLL = 0.05    # seconds between two looks at the size

LOAD = """\\set id random(1, %d)
\\set other random(1, %d)
UPDATE busy SET doc = doc || '{"touched": true}', updated_at = now() WHERE id = :id;
SELECT doc FROM busy WHERE id = :other;"""


def measure(bench):
    server = bench.server
    count = 2 * bench.scale.rows
    scale = bench.scale.short()
    server.sql('CREATE TABLE source (id int, doc jsonb, updated_at timestamptz)')
    server.sql("INSERT INTO source SELECT n, %s, now() - n %% 86400 * interval '1 s' FROM generate_series(1, %d) AS n"
               % (document(340), count))
    rows = '%s rows' % format(count, ',')
    lines = []
    for case in CASES:
        lines += waits(server, count, scale, case, '%s, %s' % (rows, case))
    lines += throughput(server, count, scale, rows)
    lines += times(server, scale, rows)
    server.sql('DROP TABLE busy, source')
    return lines


def fresh_copy(server):
    server.sql('DROP TABLE IF EXISTS busy')
    server.sql('CREATE TABLE busy AS TABLE source')
    server.sql('ALTER TABLE busy ALTER doc SET NOT NULL, ADD PRIMARY KEY (id)')
    server.script('VACUUM ANALYZE busy;\nCHECKPOINT')


class Adoption(threading.Thread):
    """Adopts the table in another thread.  Has the times (epochs) when it began and ended, and the size of the table at
    its peak, divided by that before."""

    def __init__(self, server, case):
        super().__init__()
        self.server = server
        self.call = "CALL ttl_docs.adopt_concurrently('busy', %s)" % CASES[case]
        self.error = None
        self.began = self.ended = None
        self.growth = None

    def run(self):
        connection = self.server.connect()
        try:
            self.began = time.time()
            self.server.sql(self.call, connection)
        except Exception as error:      # the caller raises it in the main thread
            self.error = error
        self.ended = time.time()
        connection.close()

    def finish(self):
        """Waits for the end.  Returns the seconds that the adoption took."""
        before = peak = self.size()
        while self.is_alive():
            peak = max(peak, self.size())
            self.join(PAUSE_OF_POLL)
        if self.error:
            raise self.error
        self.growth = max(peak, self.size()) / before
        return self.ended - self.began

    def size(self):
        """Bytes of the table with its indexes."""
        return int(self.server.sql("SELECT pg_total_relation_size('busy')"))


# ---- What others notice ----

def waits(server, count, scale, case, what):
    """The longest wait of any transaction at a fixed rate."""
    longest, longest_before = [], []
    for _ in range(scale.rounds):
        fresh_copy(server)
        adoption = Adoption(server, case)
        load = server.pgbench([LOAD % (count, count)], '-c', '4', '-j', '2', '-R', '500',
                              '-T', str(seconds_of_load(scale, count)))
        time.sleep(seconds_before(scale))
        adoption.start()
        adoption.finish()
        done = load.transactions()
        # a transaction that waited for the adoption may end after it
        longest.append(max(t.micros for t in done if t.ended >= adoption.began and
                           t.ended - t.micros / 1e6 <= adoption.ended) / 1000)
        longest_before.append(max(t.micros for t in done if adoption.began - seconds_before(scale) + 1 <= t.ended <
                                  adoption.began) / 1000)
    more = [max(0, a - b) for a, b in zip(longest, longest_before)]
    what = 'adopt_concurrently, %s: longest wait of others' % what
    return [Line(what, 'same load before', 'ms', longest, longest_before),
            Line(what + ', difference to the same load before', '', 'ms', more, goal=at_most(250, ' ms'))]


def seconds_before(scale):
    return 2 * scale.window + 1


def seconds_of_load(scale, count):
    """Long enough for the adoption, too: pgbench cannot be told to stop."""
    return seconds_before(scale) + 4 + count // 50000


def throughput(server, count, scale, rows):
    """Transactions per second of clients that saturate the server, before, during and after an adoption."""
    before, during, after = [], [], []
    for _ in range(scale.rounds):
        fresh_copy(server)
        adoption = Adoption(server, 'last_modified')
        before.append(tps_of_window(server, count, scale))
        adoption.start()
        windows = []
        while adoption.is_alive():
            found = tps_of_window(server, count, scale)
            if adoption.is_alive() or not windows:
                windows.append(found)
        adoption.finish()
        during.append(statistics.fmean(windows))
        after.append(tps_of_window(server, count, scale))
    without = [statistics.fmean(pair) for pair in zip(before, after)]
    what = 'throughput of clients that saturate the server, during adopt_concurrently, %s, last_modified' % rows
    return [Line(what, 'windows before and after', 'tps', during, without, at_least(0.9)),
            Line(what, 'windows before: a plain table', 'tps', during, before),
            Line(what, 'windows after: a collection', 'tps', during, after)]


def tps_of_window(server, count, scale):
    seconds = 2 * scale.window
    done = server.pgbench([LOAD % (count, count)], '-c', '8', '-j', '2', '-T', str(seconds)).transactions()
    return len(done) / seconds


# ---- Time and disk, on an idle server ----

def times(server, scale, rows):
    taken = {case: [] for case in CASES}
    growth = {case: [] for case in CASES}
    by_hand = {case: [] for case in CASES}
    wal, wal_by_hand = [], []
    for _ in range(scale.rounds):
        for case in CASES:
            fresh_copy(server)
            before = server.wal_bytes()
            by_hand[case].append(seconds_by_hand(server, case))
            wal_by_hand.append(server.wal_bytes() - before)
            fresh_copy(server)
            before = server.wal_bytes()
            adoption = Adoption(server, case)
            adoption.start()
            taken[case].append(adoption.finish())
            wal.append(server.wal_bytes() - before)
            growth[case].append(adoption.growth)
    what = 'adopt_concurrently, %s, %%s, idle server' % rows
    fill, no_fill = what % 'last_modified', what % 'nothing to fill'
    return [
        Line(no_fill, 'CREATE INDEX CONCURRENTLY on a timestamptz column', 'ms', milliseconds(taken['nothing to fill']),
             milliseconds(by_hand['nothing to fill']), at_most(1.5)),
        Line(fill, 'one UPDATE of all rows, and CREATE INDEX CONCURRENTLY', 'ms', milliseconds(taken['last_modified']),
             milliseconds(by_hand['last_modified']), at_most(2)),
        Line(no_fill + ': table and indexes at their peak, divided by before', '', 'x', growth['nothing to fill'],
             goal=at_most(1.1, ' x')),
        Line(fill + ': table and indexes at their peak, divided by before', '', 'x', growth['last_modified'],
             goal=at_most(1.3, ' x')),
        Line(no_fill + ': WAL', 'CREATE INDEX CONCURRENTLY on a timestamptz column', 'bytes', wal[0::2], wal_by_hand[0::2]),
        Line(fill + ': WAL', 'one UPDATE of all rows, and CREATE INDEX CONCURRENTLY', 'bytes', wal[1::2], wal_by_hand[1::2]),
    ]


def milliseconds(seconds):
    return [1000 * number for number in seconds]


def seconds_by_hand(server, case):
    """Seconds of what a user would do without adopt_concurrently()."""
    if case == 'nothing to fill':
        return server.seconds('CREATE INDEX CONCURRENTLY ON busy (updated_at)')
    server.sql('ALTER TABLE busy ADD COLUMN ts timestamptz')
    return server.seconds('UPDATE busy SET ts = updated_at') + \
        server.seconds('CREATE INDEX CONCURRENTLY ON busy (ts)')

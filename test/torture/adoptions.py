#!/usr/bin/env python3
"""Adopts and releases a table again and again while sessions write to it, and interrupts the adoption.

Each round calls adopt_concurrently() until it succeeds.  After a random delay, the program cancels the call,
or kills its process or the process of a writer with SIGKILL, so that the server recovers.  The delays are
random, so interruptions meet every phase.  Then the writers rest, and the program checks each row:

    - The rows are those of the journal: what was acknowledged is there, and nothing else.  A write whose
      answer was lost may have happened or not.
    - _ttl is the ttl of the document, and _slot follows from _ts and _ttl.
    - A row that was last written before the round has the _ts of its column "changed".
    - A row that was written when the table was a collection has a _ts that is not older than the write.

Then release() makes the table a plain table again, whose rows are those of the journal.

The program connects by PGHOST, PGPORT and PGDATABASE as a superuser, to a server with the extension ttl_docs and
restart_after_crash = on.  It must run as the server's operating system user.  Exit status: 0 or 1.
"""

import argparse
import datetime
import os
import random
import signal
import sys
import threading
import time

import psycopg2
import psycopg2.errorcodes as codes

ROWS = 3000
WRITERS = 3
TTLS = (None, -1, 50 * 86400, 100 * 86400)
DEFAULT_TTL = 1000 * 86400
CALL = f"CALL ttl_docs.adopt_concurrently('docs', {DEFAULT_TTL}, last_modified => 'changed')"
# the adoption or the server went away
INTERRUPTIONS = (psycopg2.OperationalError, psycopg2.InterfaceError)


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def connect():
    """Connects; waits while the server recovers."""
    for _ in range(600):
        try:
            connection = psycopg2.connect("")
            connection.autocommit = True
            return connection
        except INTERRUPTIONS:
            time.sleep(0.1)
    sys.exit("the server did not come back")


def is_interruption(error):
    """Did the server end the connection?"""
    return isinstance(error, INTERRUPTIONS) or error.pgcode is None


def query(sql, *parameters):
    """Runs a command until the server does not crash meanwhile, and returns its rows."""
    while True:
        try:
            cursor = connect().cursor()
            cursor.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else []
        except psycopg2.Error as error:
            if not is_interruption(error):
                raise
            time.sleep(0.1)


class Writer(threading.Thread):
    """Writes to its own ids.  states[id] has the possible states: (ttl, n), or None if there is no row."""

    def __init__(self, number, seed):
        super().__init__(daemon=True)
        self.random = random.Random(seed * 100 + number)
        self.gate = threading.Lock()            # held during a write; the program holds it to check
        self.ids = range(number, ROWS, WRITERS)
        self.states = {i: [(None, 0)] for i in self.ids}
        self.written = {i: (None, None) for i in self.ids}      # when the last write began and ended
        self.connection = connect()
        self.count = 0
        self.errors = []

    def run(self):
        while True:
            with self.gate:
                self.write()
            time.sleep(0.0005)

    def write(self):
        key = self.random.choice(self.ids)
        self.count += 1
        ttl = self.random.choice(TTLS)
        doc = "{}" if ttl is None else '{"ttl": %d}' % ttl
        before = self.states[key]
        if before == [None]:
            sql = f"INSERT INTO docs VALUES ({key}, '{doc}', now() - interval '1 hour', {self.count})"
            after = (ttl, self.count)
        elif len(before) > 1 or self.random.random() < 0.2:
            sql, after = f"DELETE FROM docs WHERE id = {key}", None
        elif self.random.random() < 0.5:
            # leaves the document alone
            sql, after = f"UPDATE docs SET n = {self.count} WHERE id = {key}", (before[0][0], self.count)
        else:
            sql = f"UPDATE docs SET doc = '{doc}', n = {self.count} WHERE id = {key}"
            after = (ttl, self.count)
        began = now()
        try:
            self.connection.cursor().execute(sql)
            self.states[key] = [after]
            self.written[key] = (began, now())
        except psycopg2.Error as error:
            if not is_interruption(error):
                self.errors.append(f"{sql}: {error}")
            self.states[key] = before + [after]
            self.written[key] = None            # not known
            self.connection = connect()


def adopt(rng, writers, counts):
    """Calls the procedure until it succeeds.  Returns when the table was known to be a collection."""
    known = None
    for attempt in range(20):
        connection = connect()
        pid = connection.info.backend_pid
        result = []

        def call():
            try:
                connection.cursor().execute(CALL)
                result.append(None)
            except psycopg2.Error as error:
                result.append(error)
        thread = threading.Thread(target=call)
        thread.start()
        thread.join(rng.choice((0.005, 0.02, 0.1, 0.3, 1.0)) * rng.random())
        action = rng.choice(("cancel", "kill", "kill writer", "nothing")) if attempt < 6 else "nothing"
        if thread.is_alive():
            interrupt(action, pid, rng, writers, counts)
        thread.join()
        if known is None and query("SELECT count(*) FROM ttl_docs.collections") == [(1,)]:
            known = now()
        if result[0] is None:
            return known
        if not is_interruption(result[0]) and result[0].pgcode != codes.QUERY_CANCELED:
            sys.exit(f"adopt_concurrently() failed: {result[0]}")
        # the interruption can come after the last commit
        if query("SELECT 1 FROM ttl_docs.collections WHERE default_ttl = %s", DEFAULT_TTL):
            return known
    sys.exit("the adoption was never complete")


def interrupt(action, pid, rng, writers, counts):
    if action == "nothing":
        return
    phase = (query("SELECT phase FROM ttl_docs.stat_progress") or [("none",)])[0][0]
    if action == "cancel":
        query("SELECT pg_cancel_backend(%s)", pid)
    if action == "kill writer":
        pid = rng.choice(writers).connection.info.backend_pid
    if pid == 0:                                # a writer that has lost its connection; os.kill(0) would end this program
        return
    if action.startswith("kill"):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
    counts[f"{action}, {phase}"] = counts.get(f"{action}, {phase}", 0) + 1


def check(writers, began, known, is_collection):
    """Compares the table with the journal, which then has one state for each id."""
    columns = "_ts = changed, _ts, _ttl IS NOT DISTINCT FROM (doc ->> 'ttl')::int, " \
              f"_slot IS NOT DISTINCT FROM ttl_docs_internal.slot(_ts, _ttl, {DEFAULT_TTL})" \
              if is_collection else "true, now(), true, true"
    rows = {row[0]: row[1:] for row in query(f"SELECT id, (doc ->> 'ttl')::int, n, {columns} FROM docs")}
    if query("SELECT count(*) FROM pg_index WHERE indrelid = 'docs'::regclass AND NOT indisvalid") != [(0,)]:
        yield "an invalid index is left over"
    for writer in writers:
        yield from writer.errors
        for key in writer.ids:
            row = rows.get(key)
            state = None if row is None else row[:2]
            if state not in writer.states[key]:
                yield f"{key} is {state}, expected {writer.states[key]}"
            writer.states[key] = [state]
            if row is None:
                continue
            _, _, from_column, stamp, right_ttl, right_slot = row
            if not right_ttl or not right_slot:
                yield f"{key} has a wrong _ttl or _slot"
            if writer.written[key] is None:
                continue
            write_began, write_ended = writer.written[key]
            if (write_ended is None or write_ended < began) and not from_column:
                yield f"{key} was not written, but its _ts is {stamp}"
            if known is not None and write_began is not None and write_began > known and stamp < write_began and is_collection:
                yield f"{key} was written at {write_began}, but its _ts is {stamp}"


def release():
    """A release whose answer was lost may have happened."""
    while query("SELECT count(*) FROM ttl_docs.collections") == [(1,)]:
        query("SELECT ttl_docs.release('docs') FROM ttl_docs.collections")


def set_up(partitioned):
    query("DROP TABLE IF EXISTS docs")
    query("CREATE TABLE docs (id int PRIMARY KEY, doc jsonb, changed timestamptz, n int, wide text) "
          + ("PARTITION BY HASH (id)" if partitioned else ""))
    for i in range(3 if partitioned else 0):
        query(f"CREATE TABLE docs_{i} PARTITION OF docs FOR VALUES WITH (MODULUS 3, REMAINDER {i})")
    query("INSERT INTO docs SELECT i, '{}', now() - interval '1 hour', 0, repeat(md5(i::text), 20)"
          f" FROM generate_series(0, {ROWS - 1}) AS i")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    until = time.monotonic() + args.seconds
    set_up(args.seed % 2 == 0)
    writers = [Writer(i, args.seed) for i in range(WRITERS)]
    counts = {}
    rounds = 0
    for writer in writers:
        writer.start()
    while time.monotonic() < until:
        began = now()
        known = adopt(rng, writers, counts)
        for is_collection in (True, False):
            for writer in writers:
                writer.gate.acquire()
            if not is_collection:
                release()
            problems = list(check(writers, began, known, is_collection))
            if problems:
                print("\n".join(problems[:20]))
                sys.exit(1)
            for writer in writers:
                writer.gate.release()
        rounds += 1
    print(f"{rounds} rounds, {sum(writer.count for writer in writers)} writes; "
          + ", ".join(f"{name}: {count}" for name, count in sorted(counts.items())))


if __name__ == "__main__":
    main()

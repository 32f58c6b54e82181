"""Checks of a server after its recovery.  For crash.py, which describes them."""

import os
import re
import subprocess

from crash_load import (ADOPT_ONLINE, DAY, DEFAULT_TTL, FLOOR_TTLS, LABEL_OF_FLOORS, Live, RELEASE_ONLINE,
                        STATE_OF_ONLINE, STILL_ROWS, same)
from crash_server import PATIENCE, Server, require

FUTURE = 200 * DAY              # clock offset at which all documents except those with ttl -1 have expired
OUR_SIGNALS = ('9', '3')        # SIGKILL from us; SIGQUIT from the postmaster to the other processes


class Checks:
    """Checks after a recovery, with a connection of its own; their writes are rolled back."""

    def __init__(self, connection, sessions, floors, chance, days=None):
        self.connection = connection
        self.cursor = connection.cursor()
        self.sessions = sessions
        self.floors = floors
        self.days = days        # None if nobody writes to "days"
        self.random = chance

    def query(self, statement, *values):
        self.cursor.execute(statement, values)
        return self.cursor.fetchall() if self.cursor.description else []

    def number(self, statement, *values):
        return self.query(statement, *values)[0][0]

    def all(self):
        self.query(f"SET statement_timeout = '{PATIENCE}s'")
        self.journal()
        self.documents()
        self.expired_documents()
        self.future()
        self.event_log()
        self.floor_values()
        self.day_values()
        self.online_values()

    def visible(self):
        """Returns the visible documents by key."""
        rows = self.query("""
            SELECT id, doc ->> 'token', _ttl, k,
                   (SELECT string_agg(token, ',') FROM items WHERE doc_id = id), _ts
              FROM docs""")
        found = {row[0]: Live(*row[1:]) for row in rows}
        require(len(found) == len(rows), 'two documents have the same key')
        return found

    def events_of(self, session):
        live = {row[0] for row in self.query("SELECT (doc ->> 'n')::int FROM events WHERE doc @> %s",
                                             f'{{"s": {session.number}}}')}
        expired = {row[0] for row in self.query("""
            SELECT (doc ->> 'n')::int FROM on_disk_events() AS doc WHERE doc @> %s
            UNION SELECT n FROM archive WHERE s = %s""", f'{{"s": {session.number}}}', session.number)}
        return {'live': live, 'expired': expired - live}

    def journal(self):
        """Decides about the transactions that were open at the crash."""
        turns = dict(self.query('SELECT worker, turn FROM journal'))
        found = self.visible()
        for session in self.sessions:
            session.resolve(turns[session.name], {key: found[key] for key in session.keys if key in found})
        self.floors.resolve_turn(turns[self.floors.name])
        if self.days:
            self.days.resolve_turn(turns[self.days.name])

    def documents(self):
        found = self.visible()
        expected = {key: state for session in self.sessions for key, state in session.docs.items()}
        for key in expected.keys() | found.keys():
            require(key in expected, f'docs: {key} is visible but should not be: {found.get(key)}')
            require(same(expected[key], found.get(key)),
                    f'docs: {key} is {found.get(key)} but should be {expected[key]}')
        self.query('SET enable_seqscan = off')
        count = self.number("SELECT count(*) FROM docs WHERE id >= ''")
        self.query('RESET enable_seqscan')
        require(count == len(expected), f'docs: the index finds {count} but should find {len(expected)}')
        orphans = self.number('SELECT count(*) FROM items WHERE doc_id NOT IN (SELECT on_disk_docs())')
        require(orphans == 0, f'docs: {orphans} child rows have no parent')

    def expired_documents(self):
        """Tries some used keys without a live document: no statement finds a document or is blocked."""
        gone = [key for session in self.sessions for key in session.used if key not in session.docs]
        free_ks = [session.free_k() for session in self.sessions]
        self.connection.autocommit = False
        for key in self.random.sample(gone, min(len(gone), 15)):
            for statement in ('SELECT 1 FROM docs WHERE id = %s FOR UPDATE',
                              'UPDATE docs SET doc = doc WHERE id = %s RETURNING 1',
                              'DELETE FROM docs WHERE id = %s RETURNING 1'):
                require(not self.query(statement, key), f'expired: {statement} finds {key}')
            arm = self.random.choice(('', 'ON CONFLICT DO NOTHING',
                                      'ON CONFLICT (id) DO UPDATE SET doc = NULL'))
            rows = self.query(f"INSERT INTO docs (id, k, doc) VALUES (%s, %s, '{{}}') {arm} RETURNING 1",
                              key, self.random.choice(free_ks))
            require(len(rows) == 1, f'expired: {key} blocks INSERT {arm}')
            self.connection.rollback()
        self.connection.autocommit = True

    def future(self):
        self.query('SET ttl_docs.clock_offset = %s', FUTURE)
        found = {row[0] for row in self.query('SELECT id FROM docs')}
        self.query('RESET ttl_docs.clock_offset')
        forever = {key for session in self.sessions for key, state in session.docs.items() if state.ttl == -1}
        require(found == forever, f'in the future: {found - forever} are visible but should not be, '
                                  f'{forever - found} are lost')

    def event_log(self):
        for session in self.sessions:
            found = self.events_of(session)
            for kind, numbers in session.events.items():
                require(found[kind] == numbers,
                        f'{kind} events of {session.name}: {sorted(numbers - found[kind])} are lost, '
                        f'{sorted(found[kind] - numbers)} should not be there')
        twice = self.number("""
            SELECT count(*) FROM (
                SELECT FROM (
                    SELECT (doc ->> 's')::int AS s, (doc ->> 'n')::int AS n FROM on_disk_events() AS doc
                    UNION ALL SELECT s, n FROM archive) AS both_places
                GROUP BY s, n HAVING count(*) > 1) AS twice""")
        require(twice == 0, f'events: {twice} are on disk twice, in the archive twice, or in both')

    def floor_values(self):
        """Checks that no DefaultTTL brings an expired document back, and that turning TTL off hides none."""
        alive = self.floors.alive()
        label = self.number(LABEL_OF_FLOORS)
        require(self.floors.label in (None, label),
                f'floors: the label is {label} but should be {self.floors.label}')
        found = {row[0] for row in self.query('SELECT id FROM floors')}
        require(found == alive, f'floors: {found - alive} have come back, {alive - found} are lost')
        self.connection.autocommit = False
        for ttl in FLOOR_TTLS:
            self.query("SELECT ttl_docs.set_default_ttl('floors', %s)", ttl)
            found = {row[0] for row in self.query('SELECT id FROM floors')}
            self.connection.rollback()
            require(found <= alive, f'floors: DefaultTTL {ttl} brings {found - alive} back')
            require(ttl is not None or found == alive, f'floors: turning TTL off hides {alive - found}')
        self.connection.autocommit = True

    def day_values(self):
        if not self.days:
            return
        found = {row[0] for row in self.query('SELECT day FROM days')}
        require(found == self.days.alive, f'days: documents of {found - self.days.alive} have come back, '
                                          f'{self.days.alive - found} are lost')

    def online_values(self):
        """Checks the rows of "online", which may be a table, a half-adopted table or a collection."""
        rows = {row[0]: row[1:] for row in self.query(
            "SELECT id, n, (doc ->> 'ttl')::int FROM online WHERE NOT starts_with(id, 'still ')")}
        expected = {key: state for session in self.sessions for key, state in session.online.items()}
        for key in expected.keys() | rows.keys():
            require(expected.get(key) == rows.get(key),
                    f'online: {key} is {rows.get(key)} but should be {expected.get(key)}')
        still = self.number(f"""
            SELECT count(*) FROM online WHERE starts_with(id, 'still ') AND n = 0 AND (doc ->> 'ttl')::int
                IS NOT DISTINCT FROM CASE WHEN mod(substr(id, 7)::int, 2) = 0 THEN {50 * DAY} END""")
        require(still == STILL_ROWS, f'online: {still} of {STILL_ROWS} rows that nobody writes are there')
        if self.number(STATE_OF_ONLINE) != 'collection':
            return
        wrong = self.query(f"""
            SELECT id, _ts, changed, _ttl, doc FROM online
             WHERE _ttl IS DISTINCT FROM (doc ->> 'ttl')::int
                OR _slot IS DISTINCT FROM ttl_docs_internal.slot(_ts, _ttl, {DEFAULT_TTL})
                OR NOT (_ts = changed OR (NOT starts_with(id, 'still ') AND _ts > changed + interval '59 minutes'))""")
        require(not wrong, f'online: {len(wrong)} rows have wrong system columns: {wrong[:3]}')
        invalid = self.number("SELECT count(*) FROM pg_index WHERE indrelid = 'online'::regclass AND NOT indisvalid")
        require(invalid == 0, f'online: {invalid} invalid indexes are left over')

    def adoption_goes_on(self):
        """Completes an adoption that was interrupted, and takes it back."""
        if self.number(STATE_OF_ONLINE) != 'collection':
            self.query(ADOPT_ONLINE)
        require(self.number(STATE_OF_ONLINE) == 'collection', 'online: the adoption is not complete')
        self.online_values()
        self.query(RELEASE_ONLINE)
        require(self.number(STATE_OF_ONLINE) == 'table', 'online: it is still a collection')
        self.online_values()

    def expired_on_disk(self):
        return self.number('SELECT count(*) FROM on_disk_expired()')

    def purge_goes_on(self):
        launcher = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'ttl_docs launcher'"
        Server.wait_until('there is a launcher', lambda: self.number(launcher) == 1)
        Server.wait_until('all expired documents are purged', lambda: self.expired_on_disk() == 0)


def amcheck():
    result = subprocess.run(['pg_amcheck', '--heapallindexed', '--schema=public', os.environ['PGDATABASE']],
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    require(result.returncode == 0, f'pg_amcheck: {result.stdout}{result.stderr}')


def read_log(path, offset):
    with open(path, encoding='utf-8', errors='replace') as file:
        file.seek(offset)
        for line in file:
            killed = re.search(r'was terminated by signal (\d+)', line)
            failed = re.search(r'PANIC: |TRAP: ', line) or (killed and killed.group(1) not in OUR_SIGNALS)
            require(not failed, f'in the log: {line.rstrip()}')

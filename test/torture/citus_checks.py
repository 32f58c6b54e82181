"""Checks of a Citus cluster after each round.  For citus.py."""

import collections
import json

from citus_load import FLOOR_TTLS, matches
from citus_nodes import require, seconds
from crash_checks import read_log

COLLECTIONS = ('docs', 'floors')
# Keys of a label that differ between tables, or that count only in the transaction that wrote the label
OWN_KEYS = ('database', 'table', 'filling', 'changing')
LABEL = """SELECT label FROM pg_seclabel
            WHERE objoid = to_regclass(%s) AND classoid = 'pg_class'::regclass AND provider = 'ttl_docs'"""


class Checks:
    """Compares the cluster with the journals."""

    def __init__(self, stage, chance):
        self.stage = stage
        self.cluster = stage.cluster
        self.coordinator = stage.cluster.coordinator
        self.sessions = stage.sessions
        self.floors = stage.floors
        self.random = chance
        self.counted = collections.Counter()

    def all(self):
        self.cluster.require_short_step()
        self.journal()
        self.labels()
        self.triggers()
        self.documents()
        self.archives()
        self.expired_keys()
        self.floor_values()
        self.logs()

    # ---- What is visible ----

    def visible(self, node):
        """Returns the visible documents by key, as a node sees them: token, ttl, item, _ts."""
        items = dict(node.ask("SELECT doc_id, string_agg(token, ',') FROM items GROUP BY doc_id"))
        rows = node.ask("SELECT id, doc ->> 'token', _ttl, _ts FROM docs")
        found = {key: (token, ttl, items.get(key), ts) for key, token, ttl, ts in rows}
        require(len(found) == len(rows), 'two documents have the same key')
        return found

    def journal(self):
        """Decides about the transactions that were open at the crash."""
        turns = dict(self.coordinator.ask('SELECT worker, turn FROM journal'))
        found = self.visible(self.coordinator)
        for session in self.sessions:
            session.resolve(turns[session.name], {key: found[key] for key in session.keys if key in found})
        self.floors.resolve_turn(turns[self.floors.name])
        self.stage.resolve_default_ttl(self.label('docs')['default_ttl'])

    def documents(self):
        members = list(self.cluster.members().values())
        nodes = [self.coordinator]
        if self.cluster.is_distributed('docs'):
            nodes.append(self.random.choice(members))
        expected = {key: state for session in self.sessions for key, state in session.docs.items()}
        for node in nodes:
            found = self.visible(node)
            for key in expected.keys() | found.keys():
                require(key in expected,
                        f'docs: {key} is visible on the {node.name} but should not be: {found.get(key)}')
                require(matches(expected[key], found.get(key)),
                        f'docs: {key} is {found.get(key)} on the {node.name} but should be {expected[key]}')
            self.counted['documents compared'] += len(expected)
            for key in self.random.sample(sorted(expected), min(len(expected), 10)):
                row = node.ask("SELECT doc ->> 'token' FROM docs WHERE id = %s", key)
                require(row == [(expected[key].token,)], f'docs: {key} is {row} when read alone')
        on_disk = {row[0] for row in self.cluster.on_shards('docs', 'SELECT id FROM {}')}
        orphans = {row[0] for row in self.cluster.on_shards('items', 'SELECT doc_id FROM {}')} - on_disk
        require(not orphans, f'docs: child rows have no parent: {orphans}')

    def expired_keys(self):
        """Tries some keys without a live document: no statement finds a document or is blocked."""
        gone = [key for session in self.sessions for key in session.used if key not in session.docs]
        self.counted['keys reused'] += min(len(gone), 10)
        connection = self.coordinator.connect('checks')
        connection.autocommit = False
        cursor = connection.cursor()

        def query(statement, *values):
            cursor.execute(statement, values)
            return cursor.fetchall()

        for key in self.random.sample(sorted(gone), min(len(gone), 10)):
            for statement in ('SELECT 1 FROM docs WHERE id = %s', 'SELECT 1 FROM docs WHERE id = %s FOR UPDATE',
                              'UPDATE docs SET doc = doc WHERE id = %s RETURNING 1',
                              'DELETE FROM docs WHERE id = %s RETURNING 1'):
                require(not query(statement, key), f'expired: {statement} finds {key}')
            arm = self.random.choice(('', 'ON CONFLICT DO NOTHING',
                                      "ON CONFLICT (id) DO UPDATE SET doc = '[]'"))
            rows = query(f"INSERT INTO docs (id, doc) VALUES (%s, '{{}}') {arm} RETURNING doc", key)
            require(rows == [({},)], f'expired: {key} blocks INSERT {arm}')
            connection.rollback()
        connection.close()

    def future(self):
        """Far in the future, only documents without expiry are visible."""
        forever = {key for session in self.sessions for key, state in session.docs.items()
                   if (self.stage.default_ttl if state.ttl is None else state.ttl) == -1}
        found = {row[0] for row in self.coordinator.ask('SELECT id FROM docs')}
        require(found == forever, f'in the future: {found - forever} are visible but should not be, '
                                  f'{forever - found} are lost')

    def floor_values(self):
        """Checks that no DefaultTTL brings an expired document back."""
        alive = self.floors.alive()
        found = {row[0] for row in self.coordinator.ask('SELECT id FROM floors')}
        require(found == alive, f'floors: {found - alive} have come back, {alive - found} are lost')
        self.counted['documents compared'] += len(alive)
        connection = self.coordinator.connect('checks')
        connection.autocommit = False
        cursor = connection.cursor()
        ttl = self.random.choice(FLOOR_TTLS)
        cursor.execute("SELECT ttl_docs.set_default_ttl('floors', %s)", (seconds(ttl),))
        cursor.execute('SELECT id FROM floors')
        found = {row[0] for row in cursor.fetchall()}
        connection.close()
        require(found <= alive, f'floors: DefaultTTL {ttl} brings {found - alive} back')
        require(ttl is not None or found == alive, f'floors: turning TTL off hides {alive - found}')

    # ---- What is on disk ----

    def archives(self):
        """Each expired document is on disk or was archived, and each deleted one was archived: once."""
        on_disk, rows = self.read_disks()
        archived = collections.Counter(row[0] for row in rows)
        where = collections.defaultdict(list)
        for token, purging, shard in rows:
            where[token].append((shard, purging))
        live = {state.token for session in self.sessions for state in session.docs.values()}
        expired = set().union(*(session.expired for session in self.sessions))
        deleted = set().union(*(session.deleted for session in self.sessions))

        def refuse(tokens, text):
            require(not tokens, f'{text}: {[(token, where.get(token)) for token in sorted(tokens)][:10]}')

        refuse({token for token, count in on_disk.items() if count > 1}, 'on disk twice')
        refuse({token for token, count in archived.items() if count > 1}, 'archived twice')
        refuse(archived.keys() & on_disk.keys(), 'archived, but still on disk')
        refuse(on_disk.keys() - live - expired, 'on disk, but replaced or deleted')
        refuse(live - on_disk.keys(), 'live, but not on disk')
        refuse(archived.keys() - expired - deleted, 'archived, but not expired or deleted')
        refuse(deleted - archived.keys(), 'deleted, but not archived')
        refuse(expired - archived.keys() - on_disk.keys(), 'expired, and lost without its trigger')
        refuse({token for token, purging, _ in rows if purging != (token in expired)}, 'wrong ttl_docs.purging()')
        self.counted['archived documents checked'] += len(archived)

    def read_disks(self):
        """Returns how often each token is on disk, and the rows of all archives.  The purge may be running, so
        each node reads its shards and its archive with one snapshot."""
        on_disk, rows = collections.Counter(), []
        places = self.cluster.placements('docs')
        for node in self.cluster.nodes:
            query = ' UNION ALL '.join(
                ['SELECT token, purging, shard FROM archive'] +
                [f"SELECT doc ->> 'token', NULL, NULL FROM {place.shard}" for place in places if place.node is node])
            for row in node.ask_with_expired(query):
                if row[2] is None:
                    on_disk[row[0]] += 1
                else:
                    rows.append(row)
        return on_disk, rows

    def expired_on_disk(self):
        tokens = {row[0] for row in self.cluster.on_shards('docs', "SELECT doc ->> 'token' FROM {}")}
        return {token for session in self.sessions for token in session.expired & tokens}

    def forget_archives(self):
        """Begins new archives, after all expired documents were purged and checked."""
        for node in self.cluster.nodes:
            node.ask('TRUNCATE archive')
        for session in self.sessions:
            self.counted['expired documents purged once'] += len(session.expired)
            session.expired.clear()
            session.deleted.clear()

    # ---- Catalogs ----

    def label(self, table, node=None):
        rows = (node or self.coordinator).ask(LABEL, table)
        require(rows, f'{table} has no label on the {(node or self.coordinator).name}')
        label = json.loads(rows[0][0])
        return {key: value for key, value in label.items() if key not in OWN_KEYS}

    def labels(self):
        """The label of a collection is the same on all shells and shards."""
        for table in COLLECTIONS:
            expected = self.label(table)
            places = [(placement.shard, placement.node) for placement in self.cluster.placements(table)]
            if self.cluster.is_distributed(table):
                places += [(table, node) for node in self.cluster.members().values()]
            for name, node in places:
                found = self.label(name, node)
                require(found == expected, f'{name} on the {node.name} has the label {found}, '
                                           f'but {table} on the coordinator has {expected}')
            self.counted['labels compared'] += len(places)
        ttls = {'docs': self.stage.default_ttl, 'floors': self.floors.default_ttl}
        for table, ttl in ttls.items():
            found = self.label(table).get('default_ttl')
            require(found == seconds(ttl), f'{table} has the DefaultTTL {found} but should have {seconds(ttl)}')

    def triggers(self):
        for table in COLLECTIONS:
            for placement in self.cluster.placements(table):
                names = [row[0] for row in placement.node.ask(
                    "SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass AND tgenabled = 'A'", placement.shard)]
                require(names == ['zzz_ttl_docs'],
                        f'{placement.shard} on the {placement.node.name} has the triggers {names}')
                archive = placement.node.number_of(
                    "SELECT count(*) FROM pg_trigger WHERE tgrelid = %s::regclass AND tgname ~ '^archive_doc'",
                    placement.shard)
                require(archive == (table == 'docs'), f'{placement.shard} has {archive} archive triggers')

    def logs(self):
        for node in self.cluster.nodes:
            read_log(node.log, node.log_offset)



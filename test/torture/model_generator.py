"""Draws random histories: the tables, and one step after another.

There are few keys, so that statements conflict.  Each history has its own weights for the
kinds of steps, and some weights are zero.  A history that never purges, or does little
else, reaches states that an even mixture does not reach.

The steps depend only on the seed and on the model, not on the server.  Real-time histories
have two exceptions, which the model takes from the server: the _ts of a row that has waited,
and the instant of an imported snapshot.  Single steps are drawn between the steps of
scenes (model_scenes.py).
"""

from model_scenes import Scenes
from model_steps import (Aggregate, Condition, Copy, CopyFrom, Delete, Document, Documents, Edge, FetchAll,
                         GetDefaultTtl, InheritingEdge, Insert, Join, Merge, MoveClock, OpenCursor, Preview,
                         Purge, Select, SelectFor, SetDefaultTtl, SetIndexing, Update, Vacuum)
from model_store import RC, RR, SER, TTL_MAX, Table
from model_transactions import (Begin, CONSTRAINTS, End, EndPrepared, ExportSnapshot, ImportSnapshot, Mend, Orphan,
                                Prepare, Release, Savepoint, SetConstraints)
from model_waits import Pause, Race

UNITS = (1000, 4000, 100000)        # seconds; a history must take less than a quarter of its unit
REAL_UNIT = 2                       # the unit of a real-time history; its real length differs: see model_time.py
REAL_TTLS = (1, 1, 3600)            # 1 expires within a unit, 3600 does not expire
REAL_STEPS = 60                     # steps that certainly fit into a window of real time
KEYS = 'abcdef'
INVALID_TTLS = (0, -2, 1.5, '60', True, [], {}, TTL_MAX + 1)
VERBS = ('create', 'read', 'replace', 'upsert', 'patch', 'delete', 'touch')

WEIGHTS = {
    'insert': 14, 'upsert': 7, 'do_nothing': 3, 'insert_two': 2, 'copy_from': 3, 'merge': 3,
    'update': 8, 'touch': 6, 'move_key': 4, 'update_some': 3, 'delete': 5, 'delete_some': 1,
    'document': 8, 'documents': 2,
    'select': 10, 'aggregate': 5, 'join': 3, 'select_for': 2, 'copy': 1, 'cursor': 2, 'fetch': 1,
    'move_clock': 5, 'set_default_ttl': 3, 'get_default_ttl': 1, 'set_indexing': 0.1, 'preview': 1, 'edge': 1,
    'begin': 6, 'commit': 4, 'rollback': 2, 'savepoint': 3, 'rollback_to': 2, 'release': 1,
    'purge': 2, 'vacuum': 0.3,
    'pause': 1, 'prepare': 1, 'end_prepared': 2, 'export_snapshot': 0.5, 'import_snapshot': 0.5,
    'set_constraints': 1, 'orphan': 0.5, 'mend': 1, 'release_collection': 0.1, 'clock_back': 0.5,
}

# Single steps that are drawn only if their kind of scene is enabled.
KIND_OF_SCENE = {
    'pause': 'settings', 'prepare': 'prepared', 'export_snapshot': 'exported', 'import_snapshot': 'exported',
    'set_constraints': 'constraints', 'orphan': 'constraints', 'release_collection': 'constraints',
    'clock_back': 'clock_back',
}


class Generator:
    """A source of steps for one history."""

    def __init__(self, random, sessions, is_real, scenes):
        self.random = random
        self.sessions = sessions
        self.is_real = is_real
        self.unit = REAL_UNIT if is_real else random.choice(UNITS)
        self.kinds = [kind for kind in WEIGHTS if KIND_OF_SCENE.get(kind, scenes[0]) in scenes]
        self.weights = [WEIGHTS[kind] * random.choice((0, 0.3, 1, 1, 1, 3)) for kind in self.kinds]
        self.focus = [random.choice((0, 1, 1, 5)) for _ in range(9)]     # on some of the tables
        self.focus[random.randrange(9)] += 1
        self.races = random.choice((0, 0.05, 0.3))
        self.keys = KEYS[:random.randint(2, len(KEYS))]
        self.scenes = Scenes(self, scenes)
        self.script = []                # the remaining steps of the current scene
        # share of the steps that belong to scenes
        self.in_scenes = random.choice((0.3, 0.7, 0.9)) if self.scenes.weights else 0
        self.steps_since_move = 0

    def tables(self):
        """Returns the collections of the history."""
        choice = self.random.choice
        parent = Table('par', self.default_ttl())
        top = Table('top', self.default_ttl())
        return [
            Table('plain', self.default_ttl()),
            Table('uniq', self.default_ttl(), second_key=choice(('unique', 'exclude'))),
            parent,
            Table('kid', self.default_ttl(), parent=parent, on_delete='cascade'),
            Table('tie', self.default_ttl(), parent=parent, on_delete='restrict'),
            Table('parts', self.default_ttl(), partitions=3),
            Table('lazy', self.default_ttl(), indexing='lazy'),
            top,
            Table('late', self.default_ttl(), parent=top, on_delete='no action',
                  deferred='constraints' in self.scenes.weights),
        ]

    # tables without a second key and without a parent
    simple_tables = ('plain', 'plain', 'parts', 'top', 'lazy', 'lazy')

    def next(self, world):
        """Returns the next step; the model may still be unsure about it."""
        self.steps_since_move += 1
        if self.is_real and self.steps_since_move > REAL_STEPS:
            step = MoveClock(self.unit)
        elif self.random.random() < self.in_scenes:
            step = self.of_scene(world)
        else:
            step = self.single(world)
        if isinstance(step, MoveClock) or any(isinstance(s, MoveClock) for s in getattr(step, 'meanwhile', ())):
            self.steps_since_move = 0
        return step

    def of_scene(self, world):
        """Returns the next step of the current scene, or of a new one."""
        if not self.script:
            self.script = self.scenes.next(world)
        return self.script.pop(0)

    def single(self, world):
        kind = self.random.choices(self.kinds, self.weights)[0]
        session = self.random.randrange(self.sessions)
        table = self.random.choices(list(world.tables.values()), self.focus)[0]
        transaction = world.open[session]
        if transaction is not None and transaction.failed and self.random.random() < 0.8:
            kind = self.random.choice(('commit', 'rollback', 'rollback_to', 'rollback_to'))
        return getattr(self, kind)(world, session, table)

    def race(self, world, step, blocked):
        """Sometimes returns a race, in which the blocked step waits; otherwise None."""
        if not step.can_race or len(blocked.by) != 1 or self.random.random() >= self.races:
            return None
        other, how = next(iter(blocked.by)), self.random.choice(('COMMIT', 'ROLLBACK'))
        if other in world.open:
            return Race(step, End(world.open.index(other), how))
        name = next(name for name, transaction in world.prepared.items() if transaction is other)
        idle = [number for number, transaction in enumerate(world.open)
                if transaction is None and number != step.session]
        return Race(step, EndPrepared(self.random.choice(idle), name, how)) if idle else None

    # ---- Values ----

    def ttl(self):
        if self.is_real:
            return self.random.choice(REAL_TTLS)
        return self.unit // 2 + self.unit * self.random.randrange(4)

    def shortest_ttl(self):
        return self.unit // 2

    def longest_ttl(self):
        return REAL_TTLS[-1] if self.is_real else self.unit // 2 + self.unit * 3

    def default_ttl(self):
        return self.random.choice((None, -1, self.ttl(), self.ttl(), self.ttl()))

    def new_default_ttl(self):
        return self.random.choice((0, -2)) if self.random.random() < 0.05 else self.default_ttl()

    def key(self):
        return self.random.choice(self.keys)

    def doc(self):
        doc = {'a': self.random.randrange(3)}
        dice = self.random.random()
        if dice < 0.40:
            doc['ttl'] = self.ttl()
        elif dice < 0.44:
            doc['ttl'] = float(self.ttl())
        elif dice < 0.54:
            doc['ttl'] = -1
        elif dice < 0.57:
            doc['ttl'] = None
        elif dice < 0.58:
            doc['ttl'] = TTL_MAX
        elif dice < 0.61:
            doc['ttl'] = self.random.choice(INVALID_TTLS)
        return doc

    def second_key(self):
        return self.random.choice((None, 0, 1, 2, 3))

    def parent(self):
        return self.random.choice((None,) + tuple(self.keys))

    def row(self):
        return {'id': self.key(), 'n': self.random.randrange(3), 'u': self.second_key(),
                'par': self.parent(), 'doc': self.doc()}

    def by_id(self):
        return Condition('id', self.key())

    def some(self):
        return self.random.choice((Condition(), Condition('n', self.random.randrange(3)),
                                   Condition('doc', {'a': self.random.randrange(3)})))

    def any_condition(self):
        return self.random.choice((self.by_id(), self.some()))

    # ---- Steps ----

    def insert(self, world, session, table):
        return Insert(session, table.name, [self.row()])

    def upsert(self, world, session, table):
        return Insert(session, table.name, [self.row()], 'update')

    def do_nothing(self, world, session, table):
        return Insert(session, table.name, [self.row()], 'nothing')

    def insert_two(self, world, session, table):
        return Insert(session, table.name, [self.row(), self.row()], self.random.choice((None, 'nothing')))

    def copy_from(self, world, session, table):
        # COPY searches the keys of all rows before it inserts the first: the model cannot tell which row waits
        others = any(transaction is not world.open[session] for transaction in world.under_way())
        return CopyFrom(session, table.name, [self.row() for _ in range(1 if others else self.random.randint(1, 3))])

    def merge(self, world, session, table):
        return Merge(session, table.name, self.row())

    def update(self, world, session, table):
        row = self.row()
        columns = self.random.sample(table.columns()[1:], self.random.randint(1, 2))
        return Update(session, table.name, self.by_id(), {c: row[c] for c in columns})

    def touch(self, world, session, table):
        return Update(session, table.name, self.by_id(), {})

    def move_key(self, world, session, table):
        return Update(session, table.name, self.by_id(), {'id': self.key()})

    def update_some(self, world, session, table):
        return Update(session, table.name, self.some(),
                      self.random.choice(({}, {'n': self.random.randrange(3)}, {'doc': self.doc()})))

    def delete(self, world, session, table):
        return Delete(session, table.name, self.by_id())

    def delete_some(self, world, session, table):
        return Delete(session, table.name, self.some())

    def document(self, world, session, table):
        return Document(session, table.name, self.random.choice(VERBS), self.key(), self.doc())

    def documents(self, world, session, table):
        return Documents(session, table.name, {'a': self.random.randrange(3)})

    def select(self, world, session, table):
        form = self.random.choice(list(Select.FORMS) + ['prepared'] * 3)
        condition = self.any_condition()
        if form == 'prepared' and condition.column == 'doc':
            form = 'plain'
        return Select(session, table.name, condition, form)

    def aggregate(self, world, session, table):
        return Aggregate(session, table.name, self.random.choice(('count(*)', 'max(id)')),
                         self.any_condition())

    def join(self, world, session, table):
        return Join(session, self.random.choice(('kid', 'tie', 'late')))

    def select_for(self, world, session, table):
        return SelectFor(session, table.name, self.by_id(),
                         self.random.choice(('KEY SHARE', 'SHARE', 'NO KEY UPDATE', 'UPDATE')))

    def copy(self, world, session, table):
        # PostgreSQL refuses COPY of a partitioned table; the model does not know its partitions as tables
        return Copy(session, 'plain' if table.partitions else table.name)

    def cursor(self, world, session, table):
        in_transaction = [number for number, transaction in enumerate(world.open) if transaction is not None]
        return OpenCursor(self.random.choice(in_transaction or [session]), table.name,
                          self.random.choice(('c1', 'c2')), self.random.choice(list(OpenCursor.FORMS)))

    def fetch(self, world, session, table):
        cursors = [(number, name) for number, transaction in enumerate(world.open) if transaction is not None
                   for name in transaction.cursors]
        return FetchAll(*self.random.choice(cursors or [(session, 'c1')]))

    def move_clock(self, world, session, table):
        if self.is_real:        # each move takes a second, so move rarely
            return MoveClock(self.unit) if self.steps_since_move > REAL_STEPS // 2 else \
                self.select(world, session, table)
        return MoveClock(self.unit * self.random.choice((1, 1, 1, 2, 5)))

    def clock_back(self, world, session, table):
        if self.is_real:
            return self.select(world, session, table)
        return MoveClock(-self.unit * self.random.choice((1, 1, 2)))

    def set_default_ttl(self, world, session, table):
        return SetDefaultTtl(session, table.name, self.new_default_ttl())

    def get_default_ttl(self, world, session, table):
        return GetDefaultTtl(session, table.name)

    def set_indexing(self, world, session, table):
        return SetIndexing(session, table.name, self.random.choice(('consistent', 'lazy')))

    def preview(self, world, session, table):
        return Preview(session, table.name, self.new_default_ttl())

    def edge(self, world, session, table):
        if self.random.random() < 0.5:
            return InheritingEdge(session, table.name)
        return Edge(session, table.name, self.ttl())

    def begin(self, world, session, table):
        return Begin(session, self.random.choice((RC, RC, RR, RR, SER)))

    def commit(self, world, session, table):
        return End(session, 'COMMIT')

    def rollback(self, world, session, table):
        return End(session, 'ROLLBACK')

    def savepoint(self, world, session, table):
        return Savepoint(session, 'SAVEPOINT', self.random.choice(('s1', 's2')))

    def rollback_to(self, world, session, table):
        return Savepoint(session, 'ROLLBACK TO SAVEPOINT', self.random.choice(('s1', 's2')))

    def release(self, world, session, table):
        return Savepoint(session, 'RELEASE SAVEPOINT', self.random.choice(('s1', 's2')))

    def purge(self, world, session, table):
        return Purge(session, self.random.choice((None, table.name, table.name)))

    def vacuum(self, world, session, table):
        return Vacuum(session, table.name)

    def pause(self, world, session, table):
        others = [number for number in range(self.sessions) if number != session]
        meanwhile = [SetDefaultTtl(self.random.choice(others), table.name, self.new_default_ttl())]
        return Pause(session, table.name, self.random.choice(list(Pause.FORMS)), meanwhile)

    def prepare(self, world, session, table):
        return Prepare(session, self.random.choice(('p1', 'p2')))

    def end_prepared(self, world, session, table):
        idle = [number for number, transaction in enumerate(world.open) if transaction is None]
        return EndPrepared(self.random.choice(idle or [session]), self.random.choice(('p1', 'p2')),
                           self.random.choice(('COMMIT', 'ROLLBACK')))

    def export_snapshot(self, world, session, table):
        return ExportSnapshot(session, self.random.choice(('e1', 'e2')))

    def import_snapshot(self, world, session, table):
        return ImportSnapshot(session, self.random.choice(('e1', 'e2')))

    def set_constraints(self, world, session, table):
        return SetConstraints(session, self.random.choice((CONSTRAINTS, CONSTRAINTS[:1], CONSTRAINTS[1:])),
                              self.random.random() < 0.5)

    def orphan(self, world, session, table):
        return Orphan(session, self.scenes.number())

    def mend(self, world, session, table):
        orphans = [(number, entry[2]) for number, transaction in enumerate(world.open) if transaction is not None
                   for entry in transaction.deferred if entry[1] == 'orphan']
        return Mend(*self.random.choice(orphans or [(session, 0)]))

    def release_collection(self, world, session, table):
        return Release(session, self.scenes.number())

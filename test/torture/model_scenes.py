"""Scenes: short sequences of steps that lead to states which random steps reach too rarely.

A scene is a list of steps with random values.  The generator draws random steps of all
sessions between them.  The runner skips steps that make no sense at that point.

	settings    settings change under an open cursor, or under a query that waits between its scans
	snapshot    settings change while a session keeps an old snapshot
	adoption    a table becomes a collection after another session took a snapshot
	online      a table becomes a collection while other sessions read and write it
	prepared    a prepared transaction holds keys, documents and settings
	exported    a session imports a snapshot
	key_wait    a session waits for a key until its new document has expired
	constraints constraints are deferred across purge() and release()
	clock_back  the clock moves back
"""

import math

from model_adoption import (Adopt, AdoptConcurrently, BUILDING_THE_INDEX, MakeTable, ReadTable, ReleaseTable,
                            WAITING_FOR_A_LOCK, WriteTable)
from model_steps import (Aggregate, Condition, Delete, Insert, MoveClock, OpenCursor, FetchAll, Purge, Select,
                         SetDefaultTtl, Update, Document, CopyFrom, Vacuum)
from model_store import RC, RR, SER
from model_transactions import (Begin, CONSTRAINTS, End, EndPrepared, ExportSnapshot, ImportSnapshot, Mend, Orphan,
                                Prepare, Release, SetConstraints)
from model_waits import Pause, Race


class Scenes:
    """Draws scenes with the values of a generator."""

    KINDS = {'settings': 3, 'snapshot': 3, 'adoption': 1, 'online': 1, 'prepared': 2, 'exported': 2, 'key_wait': 3,
             'constraints': 2, 'clock_back': 2}

    # for real-time histories, in which each move of the clock takes a second, and the steps between moves less
    REAL_KINDS = {'settings': 1, 'snapshot': 1, 'adoption': 1, 'prepared': 1, 'exported': 3, 'key_wait': 4,
                  'constraints': 1}

    def __init__(self, generator, kinds):
        self.generator = generator
        self.weights = {kind: weight for kind, weight in (self.REAL_KINDS if generator.is_real else self.KINDS).items()
                        if kind in kinds}
        self.random = generator.random
        self.choice = generator.random.choice
        self.numbers = 0

    def next(self, world):
        """Returns the steps of a scene; first, they end the open transactions of its sessions."""
        kind = self.random.choices(list(self.weights), list(self.weights.values()))[0]
        sessions = self.random.sample(range(self.generator.sessions), 3)
        table = self.choice([t.name for t in world.tables.values() if not t.locks] or list(world.tables))
        first = [End(s, self.choice(('COMMIT', 'ROLLBACK'))) for s in sessions if world.open[s] is not None]
        return first + getattr(self, kind)(table, *sessions)

    # ---- Parts ----

    def some(self, *steps):
        """Returns some of these steps."""
        return [step for step in steps if self.random.random() < 0.5]

    def row(self, **values):
        return dict(self.generator.row(), **dict({'u': None, 'par': None}, **values))

    def documents(self, session, table):
        """Inserts a few documents, of which many have no ttl and so depend on the DefaultTTL."""
        inheriting = {'a': self.random.randrange(3)}
        return [Insert(session, table, [self.row(doc=self.choice((inheriting, inheriting, self.generator.doc())))],
                       'update') for _ in range(3)]

    def before_and_after(self):
        """Returns two DefaultTTLs; mostly, documents that are a unit old are live under only one of them."""
        short, long = self.generator.shortest_ttl(), self.generator.longest_ttl()
        if self.random.random() < 0.3:
            return self.generator.default_ttl(), self.generator.default_ttl()
        return self.choice(((long, short), (None, short), (-1, short), (short, long), (short, -1), (short, None)))

    def change(self, session, table, default_ttl=math.nan):
        """Changes the DefaultTTL, sometimes in a longer transaction."""
        if default_ttl is math.nan:
            default_ttl = self.generator.default_ttl()
        change = SetDefaultTtl(session, table, default_ttl)
        if self.random.random() < 0.7:
            return [change]
        return [Begin(session, RC), change, End(session, self.choice(('COMMIT', 'COMMIT', 'ROLLBACK')))]

    def move_clock(self):
        return MoveClock(self.generator.unit)

    def query(self, session, table):
        return self.choice((
            Select(session, table, Condition(), self.choice(list(Select.FORMS) + ['prepared'])),
            Aggregate(session, table, self.choice(('count(*)', 'max(id)')), Condition())))

    def write(self, session, table, key):
        """Returns a write that needs this key."""
        row = self.row(id=key)
        return self.choice((
            Insert(session, table, [row]), Insert(session, table, [row], 'nothing'),
            Insert(session, table, [row], 'update'), CopyFrom(session, table, [row]),
            Document(session, table, 'create', key, row['doc']),
            Document(session, table, 'upsert', key, row['doc'])))

    # ---- Scenes ----

    def settings(self, table, reader, other, third):
        before, after = self.before_and_after()
        meanwhile = self.some(self.move_clock()) + self.change(other, table, after) + \
            self.some(self.move_clock(), Purge(third, table), Delete(third, table, Condition('id', 'a')))
        documents = [SetDefaultTtl(third, table, before)] + self.documents(third, table) + self.some(self.move_clock())
        begin = [Begin(reader, self.choice((RC, RR, SER)))]
        if self.random.random() < 0.5:
            form = self.choice(list(Pause.FORMS))
            return documents + self.choice((begin, [])) + [Pause(reader, table, form, meanwhile)]
        cursor = [OpenCursor(reader, table, 'c1', self.choice(list(OpenCursor.FORMS)))]
        return documents + begin + cursor + meanwhile + [FetchAll(reader, 'c1'), FetchAll(reader, 'c1')]

    def snapshot(self, table, reader, other, third):
        first = self.choice((self.query(reader, table), Select(reader, 'parts', Condition(), 'plain'),
                             ExportSnapshot(reader, 'e1')))
        before, after = self.before_and_after()
        steps = [SetDefaultTtl(third, table, before)] + self.documents(third, table) + self.some(self.move_clock())
        steps += [Begin(reader, self.choice((RR, RR, SER))), first]
        for default_ttl in self.choice(((after,), (after,), (after, before))):
            steps += self.some(self.move_clock()) + self.change(other, table, default_ttl)
            steps += self.some(self.move_clock(), self.write(third, table, self.generator.key()),
                               Purge(third, table))
        steps += [self.query(reader, table), self.query(reader, table)]
        return steps + self.some(Update(reader, table, self.generator.by_id(), {}),
                                 self.write(reader, table, self.generator.key()), self.query(reader, table)) + \
            [End(reader, 'COMMIT')]

    def adoption(self, table, reader, other, third):
        number = self.number()
        reads = [ReadTable(reader, number, self.choice(('id', 'count(*)'))) for _ in range(2)]
        adopts = [Adopt(other, number, self.generator.default_ttl())]
        steps = [MakeTable(third, number)] + self.some(*adopts)
        steps += [Begin(reader, self.choice((RC, RR, SER))), self.query(reader, table)] + self.some(reads[0])
        return steps + adopts + self.some(self.move_clock()) + reads + [End(reader, 'COMMIT')]

    def online(self, table, holder, adopter, third):
        number = self.number()
        phase = self.choice((None, WAITING_FOR_A_LOCK, BUILDING_THE_INDEX, BUILDING_THE_INDEX))
        steps = [MakeTable(third, number)] + self.some(*self.loose_writes(third, number))
        if phase is None:
            adopts = AdoptConcurrently(adopter, number, self.generator.default_ttl())
        else:
            meanwhile = self.some(*self.loose_writes(third, number), self.query(third, table), self.move_clock(),
                                  self.write(third, table, self.generator.key()), ReadTable(third, number, 'all'))
            self.random.shuffle(meanwhile)
            if phase == BUILDING_THE_INDEX:
                steps += [Begin(holder, RR), self.query(holder, table)]
                meanwhile += self.some(ReadTable(holder, number, self.choice(('id', 'count(*)'))))
            else:
                steps += [Begin(holder, self.choice((RC, RR))), ReadTable(holder, number, 'id')]
            adopts = AdoptConcurrently(adopter, number, self.generator.default_ttl(), phase,
                                       End(holder, self.choice(('COMMIT', 'ROLLBACK'))), meanwhile)
        steps += [adopts, ReadTable(third, number, 'all')]
        steps += self.some(*self.loose_writes(third, number), self.move_clock()) + \
            [ReadTable(adopter, number, 'all')]
        again = self.choice((Adopt, AdoptConcurrently))(adopter, number, self.generator.default_ttl())
        return steps + self.some(ReleaseTable(adopter, number), ReadTable(third, number, 'all'),
                                 *self.loose_writes(third, number), again) + [ReadTable(third, number, 'all')]

    def loose_writes(self, session, number):
        return [WriteTable(session, number, self.choice('ab'), self.choice((None, self.generator.doc())))
                for _ in range(3)]

    def prepared(self, table, owner, other, third):
        name = self.choice(('p1', 'p2'))
        key = self.generator.key()
        steps = self.documents(third, table) + [Begin(owner, self.choice((RC, RR)))]
        steps += self.some(self.write(owner, table, key), self.write(owner, table, key), self.query(owner, table),
                           SetDefaultTtl(owner, table, self.generator.default_ttl()),
                           Delete(owner, table, Condition('id', key)), Orphan(owner, self.number()))
        steps += [Prepare(owner, name)]
        steps += self.some(self.move_clock(), self.write(third, table, self.generator.key()), self.query(owner, table),
                           Begin(third, RR), self.query(third, table), Purge(other, table), self.move_clock(),
                           Vacuum(owner, table))
        how = self.choice(('COMMIT', 'COMMIT', 'ROLLBACK'))
        if self.random.random() < 0.5:
            steps += [Race(self.write(owner, table, key), EndPrepared(other, name, how))]
        return steps + [EndPrepared(other, name, how), self.query(owner, table), self.write(owner, table, key),
                        self.query(third, table), self.write(other, table, key), self.query(other, table)]

    def exported(self, table, exporter, importer, third):
        steps = self.documents(third, table)
        steps += [Begin(exporter, self.choice((RC, RR, SER)))]
        steps += self.some(self.move_clock(), self.query(exporter, table)) + self.some(*self.documents(third, table))
        steps += self.some(self.move_clock()) if self.generator.is_real else []
        steps += [ExportSnapshot(exporter, 'e1')]
        between = [self.move_clock()] + self.some(
            Update(third, table, Condition(), {}), *self.change(third, table),
            self.write(exporter, table, self.generator.key()), Purge(third, table))
        imported = [ImportSnapshot(importer, 'e1')]
        steps += between + imported if self.generator.is_real else imported + between
        if self.random.random() < 0.3:
            steps += [self.query(importer, table), ExportSnapshot(importer, 'e2'), self.move_clock(),
                      ImportSnapshot(third, 'e2'), self.query(third, table)]
        steps += [self.query(importer, table), self.query(importer, table)]
        steps += self.some(self.move_clock(), End(exporter, 'COMMIT'))
        return steps + [self.query(importer, table), End(importer, 'COMMIT')]

    def key_wait(self, table, holder, waiter, third):
        """A document waits for its key, and is expired when it gets the key.

        Meanwhile, writes of the third session scan for expired documents, while the waiting
        document is not in all indexes yet.
        """
        table = self.choice(self.generator.simple_tables) if self.random.random() < 0.9 else table
        ttl = self.generator.shortest_ttl()
        # mostly nothing else is expired: otherwise all sessions scan for expired documents anyway
        is_calm = self.random.random() < 0.7
        docs = {'doc': {'a': 1}} if is_calm else {}
        default_ttl = self.choice((-1, self.generator.longest_ttl() if is_calm else self.generator.ttl()))
        new = self.row(id='x', doc={'a': 0, 'ttl': ttl})
        purge = [Purge(third, table)] * is_calm
        steps = [SetDefaultTtl(third, table, default_ttl), Delete(third, table, Condition('id', 'x'))] + purge
        steps += [Begin(holder, RC), Insert(holder, table, [self.row(id='x', **docs)])]
        meanwhile = self.some(*[Insert(third, table, [self.row(id=key, **docs)], 'update') for key in ('y', 'z')])
        meanwhile += [self.move_clock()] + purge
        meanwhile += self.choice((1, 1, 0)) * [Insert(third, table, [self.row(id='w', **docs)], 'update')]
        meanwhile += self.some(Delete(third, table, Condition('id', 'y')))
        waits = self.choice((Insert(waiter, table, [new]), Insert(waiter, table, [new], 'nothing'),
                             Insert(waiter, table, [new], 'update'), CopyFrom(waiter, table, [new])))
        steps += [Race(waits, End(holder, 'ROLLBACK'), meanwhile)]
        steps += self.some(Select(third, table, Condition('id', 'x'), 'plain'),
                           Insert(third, table, [self.row(id='v', **docs)], 'update'))
        return steps + [self.write(third, table, 'x'), Select(third, table, Condition(), 'plain')]

    def constraints(self, table, session, other, third):
        number = self.number()
        some = tuple(self.choice(([CONSTRAINTS[0]], [CONSTRAINTS[1]], CONSTRAINTS)))
        table = self.choice((table, 'top', 'top'))
        late = self.row(par=self.generator.key())
        steps = [Insert(third, table, [self.row()]), self.move_clock(), Begin(session, self.choice((RC, RC, RR)))]
        steps += self.some(SetConstraints(session, some, self.random.random() < 0.7))
        steps += self.some(Orphan(session, number), Insert(session, 'late', [late]))
        steps += self.some(Purge(session, table), Purge(session, 'top'), Release(session, self.number()))
        steps += self.some(Orphan(session, number + 1), Insert(session, 'late', [dict(late, id='b')]),
                           Delete(session, 'top', self.generator.by_id()),
                           Insert(session, 'top', [self.row(id=late['par'])]),
                           SetConstraints(session, some, self.random.random() < 0.5))
        steps += self.some(Mend(session, number), Mend(session, number), Purge(session, 'late'),
                           Mend(session, number + 1))
        return steps + [self.choice((End(session, 'COMMIT'), End(session, 'COMMIT'), Prepare(session, 'p1')))]

    def clock_back(self, table, reader, other, third):
        unit = self.generator.unit
        steps = self.documents(third, table) + [MoveClock(unit * self.choice((1, 2)))]
        steps += self.some(*self.documents(third, table))
        if self.random.random() < 0.5:
            steps += [Begin(reader, self.choice((RC, RR))), self.query(reader, table)]
        steps += self.some(*self.change(other, table)) + [MoveClock(-unit * self.choice((1, 1, 2, 3)))]
        steps += [self.query(reader, table)] + self.some(*self.documents(third, table))
        steps += self.some(*self.change(other, table)) + self.some(Purge(other, table))
        steps += [self.query(reader, table), self.query(other, table), MoveClock(unit * self.choice((1, 2, 3))),
                  self.query(reader, table), self.query(other, table)]
        return steps + [self.write(other, table, self.generator.key()), End(reader, 'COMMIT')]

    def number(self):
        """Returns a number that no row of "down" has yet."""
        self.numbers += 2
        return self.numbers

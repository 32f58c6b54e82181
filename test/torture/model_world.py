"""The model: the contract of ttl_docs for a few small tables, in plain Python.

A world has tables, sessions and one clock.  The clock is a whole number of seconds, and
moves only by multiples of the history's unit.  Every ttl is an odd number of half units.
So the real time that passes does not change any answer.

The model implements expiry (here and in Store.is_expired) as simply as possible, and in
another way than the extension:

- A version expires at ts + its ttl, or at ts + DefaultTTL if it has no ttl.
- "Expired is final" is a mark.  A change of the DefaultTTL that lets documents live longer
  marks each version that is expired at that moment as dead.

Settings belong to the snapshot of a query, as the instant does.

model_store.py keeps the versions and the locks, and defines the outcomes of statements.
"""

import math

from model_store import (Blocked, FOREIGN_KEY_VIOLATION, INVALID_TTL, INVALID_VALUE, KEY_SHARE, OBJECT_IN_USE,
                         Refused, SERIALIZATION_FAILURE, Store, TTL_MAX, UPDATE, Unsure, document_ttl)


class World(Store):
    """Implements the statements."""

    # ---- Keys ----

    def check_ttl(self, transaction, table, doc):
        if self.default_ttl(table, transaction) is not None and document_ttl(doc) == INVALID_TTL:
            raise Refused(INVALID_VALUE)

    def holders(self, transaction, table, key, value, but=None):
        """Returns the versions that hold a key, as a unique check finds them."""
        found = []
        for version in table.versions:
            if version is but or version.values[key] != value:
                continue
            ender = version.xmax
            if ender is transaction or (ender is not None and ender.number is not None):
                continue
            others = {t for t in (version.xmin, ender)
                      if t is not None and t is not transaction and t.number is None}
            if others:
                raise Blocked(others)
            found.append(version)
        return found

    def free_keys(self, transaction, table, values, keys, but=None):
        """Deletes expired documents that hold a key of a new row."""
        for key in keys:
            if values[key] is None:
                continue
            try:
                for version in self.holders(transaction, table, key, values[key], but):
                    if self.is_expired(table, version, transaction):
                        self.lock_row(transaction, version, UPDATE)
                        self.end_version(transaction, version)
                        self.follow_delete(transaction, table, version)
            except Blocked:
                # it may wait, or fail because of another key first
                if len(keys) > 1 and self.has_conflict(transaction, table, values, keys, but):
                    raise Unsure from None
                raise

    def has_conflict(self, transaction, table, values, keys, but):
        for key in keys:
            try:
                if values[key] is not None and self.holders(transaction, table, key, values[key], but):
                    return True
            except Blocked:
                pass
        return False

    def conflict(self, transaction, table, values, keys, but=None):
        """Returns a conflicting key of the new row and the version that holds it, or None."""
        for key in keys:
            if values[key] is None:
                continue
            for version in self.holders(transaction, table, key, values[key], but):
                return key, version
        return None

    # ---- Foreign keys ----

    def check_parent(self, transaction, table, version):
        """Requires that the parent of a row is live by the clock."""
        value = version.values['par']
        mark = len(transaction.log)
        self.lock_table(transaction, table.parent, 'row share')
        if value is None:
            transaction.undo_to(mark)
            return
        snapshot = transaction.snapshot if transaction.keeps_snapshot else self.number
        for parent in table.parent.versions:
            if (parent.values['id'] == value and self.is_visible(parent, transaction, snapshot) and
                    not self.is_expired_to_check(table.parent, parent, transaction)):
                self.require_up_to_date(transaction, parent, KEY_SHARE)
                if self.row_lockers(transaction, parent, KEY_SHARE):
                    raise Blocked(self.row_lockers(transaction, parent, KEY_SHARE), 'parent')
                self.lock_row(transaction, parent, KEY_SHARE)
                return
        raise Refused(FOREIGN_KEY_VIOLATION)

    def follow_delete(self, transaction, table, version):
        """Runs the foreign key actions for a deleted parent."""
        for child in table.children:
            if child.on_delete == 'cascade':
                self.cascade(transaction, child, version.values['id'])
            elif child.on_delete == 'restrict':
                self.restrict(transaction, child, version.values['id'], self.restrict_violation)
            else:
                self.check_or_defer(transaction, child, 'parent', version.values['id'])

    def cascade(self, transaction, child, value):
        """Deletes all children, expired ones too."""
        self.lock_table(transaction, child, 'row exclusive')
        for version in self.latest(child, transaction, 'par', value):
            self.lock_row(transaction, version, UPDATE, 'child')
            if transaction.keeps_snapshot and \
                    not self.is_visible(version, transaction, transaction.snapshot):
                raise Refused(SERIALIZATION_FAILURE)
            self.end_version(transaction, version)

    def restrict(self, transaction, child, value, sqlstate):
        """Fails if the parent has live children."""
        self.lock_table(transaction, child, 'row share')
        live = [v for v in self.latest(child, transaction, 'par', value)
                if not self.is_expired_to_check(child, v, transaction)]
        blockers = [self.row_lockers(transaction, v, KEY_SHARE) for v in live]
        if any(blockers):
            if not all(blockers):
                raise Unsure
            raise Blocked(set.union(*blockers), 'child') if len(blockers) == 1 else Unsure
        if live:
            raise Refused(sqlstate)

    # ---- Deferred foreign keys ----

    nothing_is_deferred = False     # while the purge deletes

    def check_or_defer(self, transaction, child, kind, subject):
        """Checks a foreign key of a child table now, or defers the check to the end of the transaction."""
        if child.deferred and child.name not in transaction.immediate and not self.nothing_is_deferred:
            self.defer(transaction, child.name, kind, subject)
        elif kind == 'child':
            self.check_parent(transaction, child, subject)
        elif kind == 'parent':
            self.restrict(transaction, child, subject, FOREIGN_KEY_VIOLATION)

    @staticmethod
    def defer(transaction, constraint, kind, subject):
        entry = (constraint, kind, subject)
        transaction.deferred.append(entry)
        transaction.note(lambda: transaction.deferred.remove(entry))

    def check_deferred(self, transaction, constraints=None):
        """Runs the deferred checks, all or those of some constraints."""
        before = list(transaction.deferred)

        def undo():
            transaction.deferred[:] = before
        transaction.note(undo)
        for entry in before:
            if constraints is None or entry[0] in constraints:
                self.check_entry(transaction, *entry)
                transaction.deferred.remove(entry)

    def check_entry(self, transaction, constraint, kind, subject):
        if kind == 'orphan':
            raise Refused(FOREIGN_KEY_VIOLATION)
        child = self.tables[constraint]
        if kind == 'unchanged':
            return              # the trigger of ttl_docs is deferred, and then finds nothing to do
        if kind == 'child':
            if subject.xmax is not transaction:
                self.check_parent(transaction, child, subject)
            return
        self.lock_table(transaction, child, 'row share')    # PostgreSQL opens the table first
        if not self.has_new_parent(transaction, child.parent, subject):
            self.restrict(transaction, child, subject, FOREIGN_KEY_VIOLATION)

    def has_new_parent(self, transaction, table, value):
        """Is there another live parent with that id?"""
        found = [v for v in self.latest(table, transaction, 'id', value)
                 if not self.is_expired_to_check(table, v, transaction)]
        if found and transaction.keeps_snapshot:
            raise Unsure        # PostgreSQL also checks whether the old snapshot sees this parent
        for version in found:
            self.lock_table(transaction, table, 'row share')
            self.lock_row(transaction, version, KEY_SHARE, 'parent')
        return bool(found)

    def set_constraints(self, transaction, constraints, immediate):
        """SET CONSTRAINTS; IMMEDIATE runs the deferred checks."""
        before = set(transaction.immediate)
        if immediate:
            self.check_deferred(transaction, constraints)
            transaction.immediate |= set(constraints)
        else:
            transaction.immediate -= set(constraints)

        def undo():
            transaction.immediate = before
        transaction.note(undo)

    def orphan(self, transaction, number):
        """Inserts a row into the plain table "down" without its parent in "up"."""
        if 'down' in transaction.immediate:
            raise Refused(FOREIGN_KEY_VIOLATION)
        self.defer(transaction, 'down', 'orphan', number)

    @staticmethod
    def mend(transaction, number):
        """Inserts the parent of an orphan of the same transaction."""
        entry = ('down', 'orphan', number)
        if entry in transaction.deferred:
            transaction.deferred.remove(entry)
            transaction.note(lambda: transaction.deferred.append(entry))

    # ---- Statements ----

    def select(self, transaction, table, matches=None):
        self.lock_table(transaction, table, 'access share')
        return self.visible(table, transaction, matches)

    def select_for(self, transaction, table, matches, mode):
        self.lock_table(transaction, table, 'row share')
        return self.each(transaction, self.visible(table, transaction, matches),
                         lambda v: self.claim(transaction, table, v, mode, matches))

    def insert(self, transaction, table, rows, on_conflict=None, update=None):
        """INSERT; on_conflict is None, 'nothing' (any key) or 'update' (of id).

        update(old values, new values) returns the columns to set in a conflicting row.
        Returns the new versions.
        """
        self.lock_table(transaction, table, 'row exclusive')
        to_check = []
        made = [self.insert_one(transaction, table, values, on_conflict, update, to_check)
                for values in rows]
        self.check_foreign_keys(transaction, table, to_check)
        return [version for version in made if version is not None]

    def insert_one(self, transaction, table, values, on_conflict, update, to_check):
        """Inserts a row, or applies ON CONFLICT; returns the new version, or None."""
        self.check_ttl(transaction, table, values['doc'])
        self.free_keys(transaction, table, values, table.keys())
        arbiters = {'nothing': table.keys(), 'update': ('id',), None: ()}[on_conflict]
        found = self.conflict(transaction, table, values, arbiters)
        if found is not None:
            if on_conflict == 'update':
                return self.update_instead(transaction, table, found[1], update(found[1].values, values),
                                           to_check)
            self.require_in_snapshot(transaction, found[1])
            return None
        found = self.conflict(transaction, table, values, table.keys())
        if found is not None:
            raise Refused(table.violation(found[0]))
        new = self.add_version(transaction, table, values)
        to_check.append((None, new))
        return new

    def update_instead(self, transaction, table, version, changed, to_check):
        """ON CONFLICT DO UPDATE of the conflicting row."""
        self.lock_row(transaction, version, table.lock_mode(changed))
        self.require_in_snapshot(transaction, version)
        return self.update_one(transaction, table, version, changed, to_check)

    def require_in_snapshot(self, transaction, version):
        """Fails if ON CONFLICT, above READ COMMITTED, conflicts with a row that its snapshot does not see."""
        if transaction.keeps_snapshot and version.xmin is not transaction and \
                not self.is_visible(version, transaction, transaction.snapshot):
            raise Refused(SERIALIZATION_FAILURE)

    def update(self, transaction, table, matches, change):
        """UPDATE of matching rows; change(old values) returns the columns to set."""
        self.lock_table(transaction, table, 'row exclusive')
        to_check = []
        made = self.each(transaction, self.visible(table, transaction, matches),
                         lambda v: self.update_found(transaction, table, v, matches, change, to_check))
        self.check_foreign_keys(transaction, table, to_check)
        return made

    def each(self, transaction, versions, work):
        """Returns the results of work(version) without None; raises Unsure if the outcome depends on the order."""
        mark = len(transaction.log)
        try:
            return [made for made in map(work, versions) if made is not None]
        except (Refused, Blocked):
            ends = set()
            for version in versions:
                transaction.undo_to(mark)
                try:
                    work(version)
                except Refused as refused:
                    ends.add(refused.sqlstate)
                except Blocked:
                    ends.add('blocked')
            if len(ends) > 1:
                raise Unsure from None
            raise

    def update_found(self, transaction, table, version, matches, change, to_check):
        mode = table.lock_mode(change(version.values))
        version = self.claim(transaction, table, version, mode, matches)
        if version is None or self.is_too_late(transaction, table, version):
            return None
        return self.update_one(transaction, table, version, change(version.values), to_check)

    def update_one(self, transaction, table, version, changed, to_check):
        """Makes a new version of a row that is live and not blocked."""
        self.lock_row(transaction, version, table.lock_mode(changed))
        values = dict(version.values, **changed)
        self.check_ttl(transaction, table, values['doc'])
        keys = [key for key in table.keys() if values[key] != version.values[key]]
        self.free_keys(transaction, table, values, keys, version)
        found = self.conflict(transaction, table, values, keys, version)
        if found is not None:
            raise Refused(table.violation(found[0]))
        self.end_version(transaction, version, moved='id' in keys and table.partitions > 0)
        new = self.add_version(transaction, table, values, version)
        to_check.append((version, new))
        return new

    def check_foreign_keys(self, transaction, table, changes):
        """Checks foreign keys at the end of a statement; changes are pairs (old version or None, new version)."""
        for old, new in changes:
            if table.parent is not None and self.needs_check(transaction, old, new):
                self.check_or_defer(transaction, table, 'child', new)
            elif table.parent is not None and self.has_parent_triggers and table.parent.partitions == 0:
                self.check_or_defer(transaction, table, 'unchanged', new)
            if old is not None and old.values['id'] != new.values['id']:
                for child in table.children:
                    self.check_or_defer(transaction, child, 'parent', old.values['id'])

    @staticmethod
    def needs_check(transaction, old, new):
        """Does a foreign key need a check?  As in PostgreSQL, it does if the same transaction made the old row."""
        if old is None:
            return True
        return new.values['par'] is not None and (old.xmin is transaction or
                                                  old.values['par'] != new.values['par'])

    def delete(self, transaction, table, matches):
        self.lock_table(transaction, table, 'row exclusive')
        deleted = self.each(transaction, self.visible(table, transaction, matches),
                            lambda v: self.delete_found(transaction, table, v, matches))
        for version in deleted:
            self.follow_delete(transaction, table, version)
        return deleted

    def delete_found(self, transaction, table, version, matches):
        version = self.claim(transaction, table, version, UPDATE, matches)
        if version is None or self.is_too_late(transaction, table, version):
            return None
        self.end_version(transaction, version)
        return version

    def is_too_late(self, transaction, table, version):
        """Has a document that a write found expired since the snapshot?  Fails above READ COMMITTED."""
        if not self.is_expired(table, version, transaction):
            return False
        if transaction.keeps_snapshot:
            raise Refused(SERIALIZATION_FAILURE)
        return True

    def merge(self, transaction, table, values, change):
        """MERGE of one new row: updates the row with the same id, or inserts."""
        def has_id(row):
            return row['id'] == values['id']
        self.lock_table(transaction, table, 'row exclusive')
        if not self.visible(table, transaction, has_id):
            return self.insert(transaction, table, [values])
        return self.update(transaction, table, has_id, change)

    # ---- Settings ----

    @staticmethod
    def lets_live_longer(old, new):
        if old is None:
            return False
        return new is None or (old != -1 and (new == -1 or new > old))

    def require_unused(self, transaction, table):
        """Fails if a cursor of the transaction reads the table, or a foreign key check is deferred."""
        if table in transaction.tables_of_cursors() or self.has_pending_check(transaction, table):
            raise Refused(OBJECT_IN_USE)

    def has_pending_check(self, transaction, table):
        """Is a foreign key check of the table deferred to the end of the transaction?"""
        return any((kind in ('child', 'unchanged') and constraint == table.name) or
                   (kind == 'parent' and self.tables[constraint].parent is table)
                   for constraint, kind, _ in transaction.deferred)

    def set_default_ttl(self, transaction, table, default_ttl):
        if default_ttl is not None and default_ttl != -1 and not 1 <= default_ttl <= TTL_MAX:
            raise Refused(INVALID_VALUE)
        old = self.default_ttl(table, transaction)
        longer = self.lets_live_longer(old, default_ttl)
        self.lock_table(transaction, table, 'access exclusive' if longer else 'share row exclusive')
        self.require_unused(transaction, table)
        if old is None and default_ttl is not None and any(
                v.ttl == INVALID_TTL and self.is_visible(v, transaction, self.number)
                for v in table.versions):
            raise Refused(INVALID_VALUE)
        settings = self.settings(table, transaction)
        if longer:
            self.bury(transaction, table)
            settings = self.raise_floors(settings)
        before = table.pending
        table.pending = (transaction, settings._replace(default_ttl=default_ttl))

        def undo():
            table.pending = before
        transaction.note(undo)

    def bury(self, transaction, table):
        """Marks the expired versions as dead, so that they stay expired."""
        buried = [v for v in table.versions
                  if v.dead_by is None and self.is_expired(table, v, transaction)]
        for version in buried:
            version.dead_by = transaction

        def undo():
            for version in buried:
                version.dead_by = None
        transaction.note(undo)

    def raise_floors(self, settings):
        """Returns the settings with raised floors."""
        written = self.clock - settings.default_ttl if settings.default_ttl > 0 else -math.inf
        return settings._replace(written_floor=max(settings.written_floor, written),
                                 due_floor=max(settings.due_floor, self.clock))

    def set_indexing(self, transaction, table, indexing):
        # unsure, because it takes a weaker lock if nothing changes
        self.lock_table(transaction, table, 'access exclusive', unsure=True)
        transaction.unsure_locks.add(table)
        self.require_unused(transaction, table)

    def preview(self, transaction, table, default_ttl):
        """Counts the documents that are live, expire now, later or never, and those with an invalid ttl."""
        if default_ttl is not None and default_ttl != -1 and not 1 <= default_ttl <= TTL_MAX:
            raise Refused(INVALID_VALUE)
        live = self.select(transaction, table)
        due = []
        for version in live:
            ttl = default_ttl if version.ttl is None else version.ttl
            due.append(version.ts + ttl if default_ttl is not None and ttl > 0 else None)
        return (len(live),
                sum(d is not None and d <= transaction.instant for d in due),
                sum(d is not None and d > transaction.instant for d in due),
                due.count(None),
                sum(v.ttl == INVALID_TTL for v in live))

    # ---- Purge ----

    def purge(self, transaction, tables):
        """Deletes the expired versions that no other transaction uses; returns their number by table."""
        counts = {}
        for table in tables:
            for locked in [table] + [c for c in table.children if c.on_delete == 'cascade']:
                self.lock_table(transaction, locked, 'row exclusive', unsure=True)
                transaction.unsure_locks.add(locked)
            counts[table.name] = 0
            for version in list(table.versions):
                counts[table.name] += self.purge_one(transaction, table, version)
        return counts

    def purge_one(self, transaction, table, version):
        if version.xmax is not None and (version.xmax is transaction or version.xmax.number is not None):
            return 0
        if not self.is_expired(table, version, transaction):
            return 0
        if any(t is not None and t is not transaction and t.number is None
               for t in (version.xmin, version.xmax)):
            return 0
        if self.row_lockers(transaction, version, UPDATE):
            return 0
        mark = len(transaction.log)
        self.lock_row(transaction, version, UPDATE)
        self.end_version(transaction, version)
        try:
            self.nothing_is_deferred = True
            self.follow_delete(transaction, table, version)
        except Refused as refused:
            if refused.sqlstate not in (self.restrict_violation, FOREIGN_KEY_VIOLATION):
                raise Unsure from None
            transaction.undo_to(mark)
            return 0
        except Blocked:
            raise Unsure from None
        finally:
            self.nothing_is_deferred = False
        return 1

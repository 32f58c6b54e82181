#!/usr/bin/python3
"""Behaviours of session stores and caches whose table is a collection.

    stores.py COMMAND ...      runs the tests with the adapter that this command starts; see adapter.py

The values are numbers.  The calls of an adapter:

    migrate()              creates the table "store" with the tools of the library, and adopts it for an hour.
                           Returns which of the calls below the store has: see DIFFERENCES
    set(key, value)
    get(key)               the value, or null
    remove(key)
    touch(key)             renews an entry
    increment(key)         adds one to an entry, or creates it; returns the new value
    set_many([[key, value], ...])
"""
from adapter import AdapterTest, main, set_clock

HOUR = 3600
DIFFERENCES = {"touch", "increment", "set_many"}


class Stores(AdapterTest):
    """The libraries also expire entries by themselves, by the clock of the application.  This clock does not
    move here, so it is ttl_docs that hides the entries."""

    TABLES = "store"
    DIFFERENCES = DIFFERENCES

    def on_disk_count(self):
        return len(self.on_disk("1"))

    def needs(self, call):
        if not self.differences[call]:
            self.skipTest(f"the store has no {call}()")

    def test_set_and_get(self):
        self.adapter.set("a", 1)
        self.adapter.set("b", 2)
        self.assertEqual(self.adapter.get("a"), 1)
        self.assertEqual(self.adapter.get("b"), 2)
        self.assertIsNone(self.adapter.get("c"))
        self.adapter.set("a", 3)
        self.assertEqual(self.adapter.get("a"), 3)

    def test_get_after_expiry(self):
        self.adapter.set("a", 1)
        set_clock(HOUR - 60)
        self.assertEqual(self.adapter.get("a"), 1)
        set_clock(HOUR)
        self.assertIsNone(self.adapter.get("a"))
        self.assertEqual(self.on_disk_count(), 1)

    def test_set_after_expiry(self):
        self.adapter.set("a", 1)
        set_clock(HOUR)
        self.adapter.set("a", 2)
        self.assertEqual(self.adapter.get("a"), 2)
        self.assertEqual(self.on_disk_count(), 1)

    def test_set_renews(self):
        self.adapter.set("a", 1)
        set_clock(HOUR - 60)
        self.adapter.set("a", 2)
        set_clock(2 * HOUR - 120)
        self.assertEqual(self.adapter.get("a"), 2)
        set_clock(2 * HOUR)
        self.assertIsNone(self.adapter.get("a"))

    def test_remove(self):
        self.adapter.set("a", 1)
        self.adapter.remove("a")
        self.assertIsNone(self.adapter.get("a"))
        self.adapter.set("b", 1)
        set_clock(HOUR)
        self.adapter.remove("b")
        self.assertEqual(self.on_disk_count(), 1)

    def test_touch(self):
        self.needs("touch")
        self.adapter.set("a", 1)
        set_clock(HOUR - 60)
        self.adapter.touch("a")
        set_clock(2 * HOUR - 120)
        self.assertEqual(self.adapter.get("a"), 1)
        set_clock(2 * HOUR)
        self.adapter.touch("a")
        self.assertIsNone(self.adapter.get("a"))

    def test_increment(self):
        self.needs("increment")
        self.assertEqual(self.adapter.increment("a"), 1)
        self.assertEqual(self.adapter.increment("a"), 2)
        set_clock(HOUR)
        self.assertEqual(self.adapter.increment("a"), 1)

    def test_set_many(self):
        self.needs("set_many")
        self.adapter.set("a", 1)
        set_clock(HOUR)
        self.adapter.set_many([["a", 2], ["b", 3]])
        self.assertEqual(self.adapter.get("a"), 2)
        self.assertEqual(self.adapter.get("b"), 3)


if __name__ == "__main__":
    main(__doc__)

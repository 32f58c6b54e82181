#!/usr/bin/python3
"""Behaviours of a collection that every ORM and every driver has to show.

    behaviours.py COMMAND ...      runs the tests with the adapter that this command starts; see adapter.py

The applications with SQLAlchemy, Django and ActiveRecord do not use this list.  They have tests of their own, and an
adapter would be longer than the tests that it could replace.

The calls of an adapter, on the tables carts (id, owner unique, doc) and items (id, cart_id, sku), whose cart
is deleted with ON DELETE CASCADE:

    migrate()                 creates the tables with the tools of the ORM, and adopts carts for an hour.
                              Returns how the ORM differs: see DIFFERENCES
    create(id, owner, doc)    create_many([[id, owner, doc], ...])
    read(id)                  the row, or null
    list()                    all ids, sorted
    count()
    update(id, doc)           a statement by key; returns the number of rows, like the next three
    update_all(doc)
    touch(id)                 renews the row and changes nothing else
    remove(id)
    upsert(id, owner, doc)
    load(id), save(doc)       loads an object, and saves it later with another document
    load(id), destroy()       the same, and deletes it
    add_item(id, cart_id, sku)
    items_of(cart_id)         the skus of a cart that is read with its items, or null
    carts_of_items()          [sku, cart id or null] for each item, which is read with its cart
    failing_transaction(id)   creates a cart, and rolls back
    schema_changes()          the statements that the schema tool would run now
"""
from adapter import AdapterError, AdapterTest, as_superuser, main, set_clock

HOUR = 3600
YEAR = 365 * 24 * HOUR

# What migrate() may return.  The values are documented in docs/orms.md, and tested below.
#   stale_save, stale_destroy   what happens if an object has expired since it was loaded:
#       "raises" an error, does "nothing", "inserts" it again, or null: there are no objects
#   schema_tool                 whether schema_changes() works
#   hides_orphans               whether an item without a cart is left out when it is read with its cart
DIFFERENCES = {"stale_save", "stale_destroy", "schema_tool", "hides_orphans"}


class Behaviours(AdapterTest):
    """What applications rely on."""

    TABLES = "carts, items"
    DIFFERENCES = DIFFERENCES

    # ---- Create and read ----

    def test_create_and_read(self):
        self.adapter.create("a", "ann", {"n": 1})
        self.assertEqual(self.adapter.read("a"), {"id": "a", "owner": "ann", "doc": {"n": 1}})
        self.assertIsNone(self.adapter.read("b"))

    def test_read_after_expiry(self):
        self.adapter.create("a", "ann", {"n": 1})
        set_clock(HOUR - 60)
        self.assertIsNotNone(self.adapter.read("a"))
        set_clock(HOUR)
        self.assertIsNone(self.adapter.read("a"))
        self.assertEqual(self.adapter.list(), [])
        self.assertEqual(self.on_disk("id"), ["a"])

    def test_ttl_of_a_document(self):
        self.adapter.create("short", "ann", {"ttl": 60})
        self.adapter.create("long", "bob", {"ttl": 2 * HOUR})
        self.adapter.create("never", "cid", {"ttl": -1})
        self.adapter.create("default", "dan", {"ttl": None})
        set_clock(60)
        self.assertEqual(self.adapter.list(), ["default", "long", "never"])
        set_clock(HOUR)
        self.assertEqual(self.adapter.list(), ["long", "never"])
        set_clock(50 * YEAR)
        self.assertEqual(self.adapter.list(), ["never"])

    def test_update_of_the_ttl(self):
        self.adapter.create("a", "ann", {"ttl": -1})
        self.adapter.create("b", "bob", {})
        self.adapter.update("a", {})
        self.adapter.update("b", {"ttl": -1})
        set_clock(HOUR)
        self.assertEqual(self.adapter.list(), ["b"])

    def test_invalid_ttl(self):
        self.assertFails("22023", self.adapter.create, "a", "ann", {"ttl": 0}, message='invalid "ttl" .* "carts": 0')
        self.assertEqual(self.adapter.count(), 0)

    def test_update_to_an_invalid_ttl(self):
        self.adapter.create("a", "ann", {"ttl": 60})
        self.assertFails("22023", self.adapter.update, "a", {"ttl": "60"}, message='invalid "ttl" .* "carts": "60"')
        self.assertEqual(self.adapter.read("a")["doc"], {"ttl": 60})

    def test_bulk(self):
        self.adapter.create_many([[f"c{i}", f"owner {i}", {"ttl": 60 if i < 3 else HOUR}] for i in range(10)])
        self.assertEqual(self.adapter.count(), 10)
        set_clock(60)
        self.assertEqual(self.adapter.list(), [f"c{i}" for i in range(3, 10)])
        self.assertEqual(self.adapter.update_all({"n": 2}), 7)
        self.assertEqual(self.adapter.read("c9")["doc"], {"n": 2})

    def test_bulk_with_an_invalid_ttl(self):
        self.assertFails("22023", self.adapter.create_many, [["a", "ann", {}], ["b", "bob", {"ttl": "60"}]])
        self.assertEqual(self.adapter.count(), 0)

    def test_count(self):
        self.adapter.create("a", "ann", {"ttl": 60})
        self.adapter.create("b", "bob", {})
        self.assertEqual(self.adapter.count(), 2)
        set_clock(60)
        self.assertEqual(self.adapter.count(), 1)

    # ---- Writes to an expired row ----

    def test_stale_statements(self):
        self.adapter.create("a", "ann", {"n": 1})
        self.assertEqual(self.adapter.update("a", {"n": 2}), 1)
        self.assertEqual(self.adapter.touch("a"), 1)
        set_clock(HOUR)
        self.assertEqual(self.adapter.update("a", {"n": 3}), 0)
        self.assertEqual(self.adapter.touch("a"), 0)
        self.assertEqual(self.adapter.remove("a"), 0)
        set_clock(0)
        self.adapter.create("b", "bob", {})
        self.assertEqual(self.adapter.remove("b"), 1)

    def test_touch(self):
        self.adapter.create("a", "ann", {"n": 1})
        set_clock(HOUR - 60)
        self.assertEqual(self.adapter.touch("a"), 1)
        set_clock(2 * HOUR - 120)
        self.assertEqual(self.adapter.read("a")["doc"], {"n": 1})
        set_clock(2 * HOUR)
        self.assertIsNone(self.adapter.read("a"))

    def stale(self, difference, call, *args):
        """Load an object, let it expire, and call: what happens is what the adapter has announced."""
        outcome = self.differences[difference]
        if outcome is None:
            self.skipTest("it has no objects")
        self.adapter.create("a", "ann", {"n": 1})
        self.adapter.load("a")
        set_clock(HOUR)
        if outcome == "raises":
            with self.assertRaises(AdapterError):
                call(*args)
        else:
            call(*args)
        self.assertEqual(self.adapter.list(), ["a"] if outcome == "inserts" else [])

    def test_stale_save(self):
        self.stale("stale_save", self.adapter.save, {"n": 2})

    def test_stale_destroy(self):
        self.stale("stale_destroy", self.adapter.destroy)

    def test_save(self):
        if self.differences["stale_save"] is None:
            self.skipTest("it has no objects")
        self.adapter.create("a", "ann", {"n": 1})
        self.adapter.load("a")
        set_clock(HOUR - 60)
        self.adapter.save({"n": 2, "ttl": 120})
        self.assertEqual(self.adapter.read("a")["doc"], {"n": 2, "ttl": 120})
        set_clock(HOUR)
        self.assertIsNotNone(self.adapter.read("a"))
        set_clock(HOUR + 60)
        self.assertIsNone(self.adapter.read("a"))

    def test_rollback(self):
        self.adapter.create("a", "ann", {"n": 1})
        set_clock(HOUR)
        self.adapter.failing_transaction("a")
        self.assertEqual(self.adapter.list(), [])
        self.assertEqual(self.on_disk("id"), ["a"])

    # ---- Keys ----

    def test_key_of_a_live_row(self):
        self.adapter.create("a", "ann", {})
        self.assertFails("23505", self.adapter.create, "a", "bob", {})
        self.assertFails("23505", self.adapter.create, "b", "ann", {})

    def test_key_reuse(self):
        self.adapter.create("a", "ann", {"n": 1})
        set_clock(HOUR)
        self.adapter.create("a", "ann", {"n": 2})
        self.assertEqual(self.adapter.read("a")["doc"], {"n": 2})
        self.assertEqual(self.on_disk("id"), ["a"])

    def test_reuse_of_a_unique_key(self):
        self.adapter.create("a", "ann", {})
        set_clock(HOUR)
        self.adapter.create("b", "ann", {})
        self.assertEqual(self.adapter.list(), ["b"])

    def test_upsert(self):
        self.adapter.upsert("a", "ann", {"n": 1})
        self.assertEqual(self.adapter.read("a")["doc"], {"n": 1})
        self.adapter.upsert("a", "ann", {"n": 2})
        self.assertEqual(self.adapter.read("a")["doc"], {"n": 2})

    def test_upsert_of_an_expired_row(self):
        self.adapter.create("a", "ann", {"n": 1})
        self.adapter.add_item(1, "a", "apple")
        set_clock(HOUR)
        self.adapter.upsert("a", "bob", {"n": 2})
        self.assertEqual(self.adapter.read("a"), {"id": "a", "owner": "bob", "doc": {"n": 2}})
        # It is a new cart: the items of the expired one are gone.
        self.assertEqual(self.adapter.items_of("a"), [])

    def test_upsert_of_a_row_that_expires_meanwhile(self):
        # The upsert finds a live row, which has expired when the upsert writes it.
        self.adapter.create("a", "ann", {"n": 1})
        as_superuser(f"""
            CREATE FUNCTION an_hour_passes() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                PERFORM set_config('ttl_docs.clock_offset', '{HOUR}', false);
                RETURN NEW;
            END $$;
            CREATE TRIGGER an_hour_passes BEFORE UPDATE ON carts FOR EACH ROW EXECUTE FUNCTION an_hour_passes()""")
        self.addCleanup(as_superuser, "DROP FUNCTION an_hour_passes CASCADE")
        self.assertFails("40001", self.adapter.upsert, "a", "ann", {"n": 2})
        self.assertEqual(self.adapter.read("a")["doc"], {"n": 1})

    # ---- Relations ----

    def test_removing_a_row_removes_its_items(self):
        self.adapter.create("a", "ann", {})
        self.adapter.add_item(1, "a", "apple")
        self.assertEqual(self.adapter.remove("a"), 1)
        self.assertEqual(self.adapter.carts_of_items(), [])

    def test_relation(self):
        self.adapter.create("a", "ann", {})
        self.adapter.add_item(1, "a", "apple")
        self.adapter.add_item(2, "a", "banana")
        self.assertEqual(self.adapter.items_of("a"), ["apple", "banana"])
        self.assertEqual(self.adapter.carts_of_items(), [["apple", "a"], ["banana", "a"]])

    def test_relation_to_an_expired_row(self):
        self.adapter.create("a", "ann", {})
        self.adapter.create("b", "bob", {"ttl": -1})
        self.adapter.add_item(1, "a", "apple")
        self.adapter.add_item(2, "b", "banana")
        set_clock(HOUR)
        self.assertIsNone(self.adapter.items_of("a"))
        orphans = [] if self.differences["hides_orphans"] else [["apple", None]]
        self.assertEqual(self.adapter.carts_of_items(), orphans + [["banana", "b"]])
        self.assertFails("23503", self.adapter.add_item, 3, "a", "cherry")

    # ---- Migrations ----

    def test_schema_tool(self):
        if not self.differences["schema_tool"]:
            self.skipTest("it has no tool that compares models with the database")
        self.assertEqual(self.adapter.schema_changes(), [])


if __name__ == "__main__":
    main(__doc__)

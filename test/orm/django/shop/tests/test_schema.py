"""Migrations, and other tools that read or create a schema."""

from io import StringIO

from django.apps import apps
from django.contrib.postgres.indexes import GinIndex
from django.core.management import call_command
from django.db import IntegrityError, InternalError, ProgrammingError, connection, migrations, models, transaction
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.optimizer import MigrationOptimizer
from django.db.migrations.state import ProjectState
from django.test import TestCase, TransactionTestCase, override_settings
from django.utils import timezone

from shop.models import Cart, WebSession

from .clock import TimeTravelMixin, travel


def columns(table):
    with connection.cursor() as cursor:
        return [column.name for column in connection.introspection.get_table_description(cursor, table)]


class FreshDatabaseTests(TimeTravelMixin, TestCase):
    """An empty schema stands for an empty database; the rollback removes it."""

    def setUp(self):
        super().setUp()
        with connection.cursor() as cursor:
            cursor.execute("CREATE SCHEMA fresh")
            cursor.execute("SET LOCAL search_path = fresh")

    def test_migrations_create_collections_in_an_empty_database(self):
        call_command("migrate", verbosity=0)
        Cart.objects.create()
        travel(1800)
        self.assertEqual(Cart.objects.count(), 0)

    def test_adopt_uses_a_column_that_create_model_has_made(self):
        with connection.schema_editor() as editor:
            editor.create_model(Cart)
            editor.execute("SELECT ttl_docs.adopt('shop_cart', 1800)")
        self.assertEqual(columns("shop_cart"), ["id", "data", "_ts", "_ttl", "_slot"])
        Cart.objects.create()
        travel(1800)
        self.assertEqual(Cart.objects.count(), 0)

    # TEST = {"MIGRATE": False} does the same for the test database.
    @override_settings(MIGRATION_MODULES={"shop": None, "auth": None, "contenttypes": None})
    def test_without_migrations_the_tables_are_plain(self):
        call_command("migrate", run_syncdb=True, verbosity=0)
        WebSession.objects.create(session_key="key", session_data={"ttl": 60}, expire_date=timezone.now())
        travel(60)
        self.assertEqual(WebSession.objects.count(), 1)
        # A model that maps written_at fails at the first write.
        with self.assertRaisesMessage(IntegrityError, 'null value in column "_ts"'), transaction.atomic():
            Cart.objects.create()


class BackwardsTests(TimeTravelMixin, TransactionTestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(call_command, "migrate", "shop", verbosity=0)

    def test_migrating_back_to_plain_tables_and_forward_again(self):
        Cart.objects.create(data={"ttl": 60})
        Cart.objects.create(data={"ttl": -1})
        travel(60)
        self.assertEqual(columns("shop_cart"), ["id", "data", "_ts", "_ttl", "_slot"])

        call_command("migrate", "shop", "0001", verbosity=0)
        self.assertEqual(columns("shop_cart"), ["id", "data"])
        self.assertEqual(list(Cart.objects.values_list("data", flat=True)), [{"ttl": -1}])

        call_command("migrate", "shop", verbosity=0)
        Cart.objects.create(data={"ttl": 60})
        travel(120)
        self.assertEqual(list(Cart.objects.values_list("data", flat=True)), [{"ttl": -1}])

    def test_migrating_back_to_zero(self):
        call_command("migrate", "shop", "zero", verbosity=0)
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM ttl_docs.collections")
            self.assertEqual(cursor.fetchone(), (0,))


class MakemigrationsTests(TimeTravelMixin, TestCase):
    """The changes that "makemigrations" detects, and the results of applying them."""

    def setUp(self):
        super().setUp()
        self.loader = MigrationLoader(connection)
        self.migrated = self.loader.project_state()

    def after(self, operation, state):
        state = state.clone()
        operation.state_forwards("shop", state)
        return state

    def detect(self, before, after):
        changes = MigrationAutodetector(before, after).changes(graph=self.loader.graph)
        return [operation for migration in changes.get("shop", []) for operation in migration.operations]

    def migrate(self, *operations):
        """Applies operations to the database; returns the models after them."""
        for operation in operations:
            after = self.after(operation, self.migrated)
            with connection.schema_editor() as editor:
                operation.database_forwards("shop", editor, self.migrated, after)
            self.migrated = after
        return self.migrated.apps

    def test_makemigrations_detects_no_changes(self):
        output = StringIO()
        call_command("makemigrations", check_changes=True, dry_run=True, stdout=output)
        self.assertEqual(output.getvalue(), "No changes detected\n")

    def test_without_the_state_operations_it_would_add_an_existing_column(self):
        self.migrated = self.after(migrations.RemoveField("cart", "written_at"), self.migrated)
        [operation] = self.detect(self.migrated, ProjectState.from_apps(apps))
        self.assertIsInstance(operation, migrations.AddField)
        self.assertEqual((operation.model_name, operation.name), ("cart", "written_at"))
        with self.assertRaisesMessage(ProgrammingError, 'column "_ts" of relation "shop_cart" already exists'):
            self.migrate(operation)

    def test_ttl_docs_refuses_to_drop_the_column_of_a_removed_field(self):
        without = self.after(migrations.RemoveField("cart", "written_at"), self.migrated)
        [operation] = self.detect(self.migrated, without)
        self.assertIsInstance(operation, migrations.RemoveField)
        with self.assertRaises(InternalError) as context:
            self.migrate(operation)
        self.assertIn('cannot drop or rename column "_ts" of the collection "shop_cart"', str(context.exception))
        self.assertIn("from schema migration tools (see docs/orms.md).", str(context.exception))

    def test_a_field_can_be_removed_from_the_state_only(self):
        self.migrate(
            migrations.SeparateDatabaseAndState(state_operations=[migrations.RemoveField("cart", "written_at")])
        )
        self.assertIn("_ts", columns("shop_cart"))

    def test_the_document_stays_jsonb(self):
        for operation, message in (
            (migrations.AlterField("cart", "data", models.TextField()), 'cannot change column "data"'),
            (migrations.RemoveField("cart", "data"), 'cannot drop or rename column "data"'),
        ):
            with self.subTest(message), self.assertRaisesMessage(InternalError, message):
                self.migrate(operation)

    def test_other_changes_work_as_for_any_table(self):
        changed = self.migrate(
            migrations.AddField("cart", "note", models.TextField(default="")),
            migrations.AddIndex("cart", GinIndex(fields=["data"], name="cart_data")),
            migrations.RenameField("cart", "data", "document"),
            migrations.RenameModel("cart", "basket"),
        )
        Basket = changed.get_model("shop", "Basket")
        Basket.objects.create(document={"ttl": 60}, note="gift")
        self.assertEqual(Basket.objects.filter(document__ttl=60).count(), 1)
        travel(60)
        self.assertEqual(Basket.objects.count(), 0)

    def test_set_not_null_checks_expired_documents_unless_they_are_purged_first(self):
        changed = self.migrate(migrations.AddField("cart", "note", models.TextField(null=True)))
        changed.get_model("shop", "Cart").objects.create()
        travel(1800)
        not_null = migrations.AlterField("cart", "note", models.TextField(default=""))
        with self.assertRaisesMessage(IntegrityError, 'column "note" of relation "shop_cart" contains null values'):
            self.migrate(not_null)
        self.migrate(migrations.RunSQL("CALL ttl_docs.purge('shop_cart')"), not_null)

    def test_squashing_keeps_the_calls_of_adopt(self):
        operations = [
            operation
            for name in ("0001_initial", "0002_collections")
            for operation in self.loader.get_migration("shop", name).operations
        ]
        squashed = MigrationOptimizer().optimize(operations, "shop")
        adoptions = [operation.sql for operation in squashed if isinstance(operation, migrations.RunSQL)]
        self.assertEqual(
            adoptions,
            [
                "SELECT ttl_docs.adopt('shop_session', 1800)",
                "SELECT ttl_docs.adopt('shop_token', -1)",
                "SELECT ttl_docs.adopt('shop_cart', 1800)",
                "SELECT ttl_docs.adopt('shop_cartitem', 1800)",
                "SELECT ttl_docs.adopt('shop_websession', -1)",
            ],
        )


class InspectTests(TestCase):
    def test_inspectdb_shows_the_system_columns_under_other_names(self):
        output = StringIO()
        call_command("inspectdb", "shop_token", stdout=output)
        for line in (
            "field_ts = models.DateTimeField(db_column='_ts'",
            "field_ttl = models.IntegerField(db_column='_ttl', blank=True, null=True",
            "field_slot = models.BigIntegerField(db_column='_slot', blank=True, null=True",
            "managed = False",
        ):
            self.assertIn(line, output.getvalue())

"""A migration that adopts a table while the application uses it."""

from django.core.management import call_command
from django.db import connection
from django.test import TransactionTestCase, override_settings

from .clock import TimeTravelMixin, travel


@override_settings(MIGRATION_MODULES={"shop": "shop.online_migrations"})
class AdoptOnlineTests(TimeTravelMixin, TransactionTestCase):
    def setUp(self):
        super().setUp()
        self.execute("CREATE TABLE shop_visit (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, data jsonb NOT NULL)")
        self.addCleanup(self.execute, "DROP TABLE shop_visit")
        self.execute("""INSERT INTO shop_visit (data) VALUES ('{"page": "/"}'), ('{"ttl": -1}')""")

    def execute(self, sql):
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall() if cursor.description else None

    def count(self):
        return self.execute("SELECT count(*) FROM shop_visit")[0][0]

    def test_the_migration_adopts_the_table_and_back(self):
        call_command("migrate", "shop", "0001_adopt_visits", verbosity=0)
        self.assertEqual(self.count(), 2)
        travel(1800)
        self.assertEqual(self.count(), 1)
        call_command("migrate", "shop", "zero", verbosity=0)
        self.assertEqual(self.count(), 1)
        self.assertEqual(self.execute("SELECT data FROM shop_visit"), [('{"ttl": -1}',)])

"""Alembic with collections, without and with the recipe in shop/autogenerate.py."""
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from alembic import command
from alembic.autogenerate import compare_metadata, produce_migrations, render_python_code
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Column, Identity, Integer, Text, select, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import IntegrityError, InternalError
from sqlalchemy.orm import declarative_base

from shop.models import Base, Cart, CartItem, Token
from tests.support import DAY, HOUR, MINUTE, EmptySchemaTest, clock

ALEMBIC_INI = Path(__file__).parent.parent / "alembic.ini"
DEFAULT_TTLS = {
    table.name: table.info["default_ttl"] for table in Base.metadata.sorted_tables if "default_ttl" in table.info
}

NaiveBase = declarative_base()


class Note(NaiveBase):
    """A model without the system columns."""

    __tablename__ = "notes"

    id = Column(Integer, Identity(), primary_key=True)
    doc = Column(JSONB, nullable=False)


def names(diffs):
    """Return the changes in a list of differences: ("remove_column", "notes", "_ts"), ..."""
    found = []
    for diff in diffs:
        table = diff[2] if diff[0].endswith("_column") else diff[1].table.name
        found.append((diff[0], table, diff[-1].name))
    return sorted(found)


class WithoutTheRecipe(EmptySchemaTest):
    def setUp(self):
        super().setUp()
        NaiveBase.metadata.create_all(self.engine)
        with self.engine.begin() as connection:
            connection.execute(text("SELECT ttl_docs.adopt('notes', 1800)"))

    def test_autogenerate_would_drop_the_system_columns_and_the_purge_index(self):
        with self.engine.begin() as connection:
            diffs = compare_metadata(MigrationContext.configure(connection), NaiveBase.metadata)
        self.assertEqual(
            names(diffs),
            [
                ("remove_column", "notes", "_slot"),
                ("remove_column", "notes", "_ts"),
                ("remove_column", "notes", "_ttl"),
                ("remove_index", "notes", "notes__slot_idx"),
            ],
        )

    def test_ttl_docs_refuses_each_of_these_drops(self):
        with self.engine.begin() as connection:
            context = MigrationContext.configure(connection)
            (changes,) = produce_migrations(context, NaiveBase.metadata).upgrade_ops.ops
            for change in changes.ops:
                with self.subTest(change.to_diff_tuple()[0]):
                    with self.assertRaises(InternalError) as caught, connection.begin_nested():
                        Operations(context).invoke(change)
                    error = caught.exception.orig
                    self.assertEqual(error.pgcode, "2BP01")
                    self.assertRegex(error.diag.message_primary, 'cannot drop .* of the collection "notes"')
                    self.assertIn("from schema migration tools (see docs/orms.md)", error.diag.message_hint)
            self.assertEqual(len(changes.ops), 4)
        self.assert_documents_expire(Note)

    def test_the_revision_of_a_new_collection_does_not_adopt_it(self):
        NaiveBase.metadata.drop_all(self.engine)
        with self.engine.begin() as connection:
            migration = produce_migrations(MigrationContext.configure(connection), NaiveBase.metadata)
        upgrade = render_python_code(migration.upgrade_ops)
        self.assertIn("op.create_table('notes'", upgrade)
        self.assertNotIn("adopt", upgrade)


class WithTheRecipe(EmptySchemaTest):
    """Runs the functions behind "alembic upgrade", "alembic revision --autogenerate" and so on."""

    def alembic(self, run, *arguments, **options):
        with self.engine.begin() as connection:
            self.config.attributes["connection"] = connection
            return run(self.config, *arguments, **options)

    def setUp(self):
        super().setUp()
        self.config = Config(ALEMBIC_INI)

    def pending_changes(self):
        """Return the changes that "alembic check" would report.  Alembic has that command since 1.9."""
        pending = []

        def take(context, revision, directives):
            pending.extend(directives[0].upgrade_ops.as_diffs())
            directives.clear()  # so that no file is written

        self.alembic(command.revision, autogenerate=True, process_revision_directives=take)
        return names(pending)

    def test_the_migrations_create_working_collections_in_an_empty_database(self):
        self.alembic(command.upgrade, "head")
        self.assertEqual(self.default_ttls(), DEFAULT_TTLS)
        self.assert_documents_expire(Token, code="fresh")

    def test_autogenerate_finds_no_changes(self):
        self.alembic(command.upgrade, "head")
        self.assertEqual(self.pending_changes(), [])

    def test_autogenerate_still_sees_other_changes_of_a_collection(self):
        self.alembic(command.upgrade, "head")
        with self.engine.begin() as connection:
            connection.execute(text("ALTER TABLE sessions ADD COLUMN note text"))
            connection.execute(text("CREATE INDEX sessions_by_age ON sessions (_ts)"))
            connection.execute(text("DROP INDEX ix_sessions_user_id"))
        self.assertEqual(
            self.pending_changes(),
            [
                ("add_index", "sessions", "ix_sessions_user_id"),
                ("remove_column", "sessions", "note"),
                ("remove_index", "sessions", "sessions_by_age"),
            ],
        )

    def test_autogenerate_does_not_see_a_changed_default_ttl(self):
        self.alembic(command.upgrade, "head")
        with self.engine.begin() as connection:
            connection.execute(text("SELECT ttl_docs.set_default_ttl('sessions', 3600)"))
        self.assertEqual(self.pending_changes(), [])
        self.assertNotEqual(self.default_ttls(), DEFAULT_TTLS)

    def test_a_generated_revision_adopts_its_new_tables(self):
        with TemporaryDirectory() as versions:
            self.config.set_main_option("version_locations", versions)
            revision = self.alembic(command.revision, autogenerate=True, version_path=versions)
            self.assertIn("op.execute(\"SELECT ttl_docs.adopt('tokens', -1)\")", Path(revision.path).read_text())
            self.alembic(command.upgrade, "head")
            self.assertEqual(self.pending_changes(), [])
        self.assertEqual(self.default_ttls(), DEFAULT_TTLS)
        self.assert_documents_expire(Token, code="generated")

    def test_the_sql_script_of_the_migrations_creates_working_collections(self):
        self.config.output_buffer = StringIO()
        command.upgrade(self.config, "head", sql=True)
        with self.engine.connect() as connection:
            connection.exec_driver_sql(self.config.output_buffer.getvalue())
        self.assertEqual(self.default_ttls(), DEFAULT_TTLS)
        self.assertEqual(self.pending_changes(), [])
        self.assert_documents_expire(Token, code="scripted")

    def test_downgrade_and_upgrade_again(self):
        self.alembic(command.upgrade, "head")
        self.alembic(command.downgrade, "base")
        self.assertEqual(self.default_ttls(), {})
        self.alembic(command.upgrade, "head")
        self.assertEqual(self.default_ttls(), DEFAULT_TTLS)

    def test_a_collection_can_be_migrated_like_any_table(self):
        self.alembic(command.upgrade, "head")
        with self.engine.begin() as connection:
            op = Operations(MigrationContext.configure(connection))
            op.add_column("carts", Column("currency", Text(), server_default="EUR", nullable=False))
            op.alter_column("carts", "currency", new_column_name="money")
            op.create_index("carts_by_money", "carts", ["money"])
            op.alter_column("carts", "doc", new_column_name="body")
            op.rename_table("carts", "baskets")
            op.rename_table("baskets", "carts")
            op.alter_column("carts", "body", new_column_name="doc")
        self.assert_documents_expire(Cart)

    def test_a_released_collection_is_a_plain_table(self):
        self.alembic(command.upgrade, "head")
        with self.engine.begin() as connection:
            op = Operations(MigrationContext.configure(connection))
            op.execute("SELECT ttl_docs.release('tokens')")
            op.drop_column("tokens", "doc")
        self.assertNotIn("tokens", self.default_ttls())


class ChangingFilledTables(EmptySchemaTest):
    """An UPDATE in a migration restarts countdowns like any other write.  DDL checks expired rows, too."""

    def setUp(self):
        super().setUp()
        Base.metadata.create_all(self.engine)
        with self.sessions.begin() as session:
            items = [CartItem(doc={"ttl": MINUTE}), CartItem(doc={"ttl": DAY})]
            session.add_all([Cart(doc={}, items=items), Cart(doc={"ttl": MINUTE})])
        clock.offset = HOUR

    @contextmanager
    def operations(self):
        with self.engine.begin() as connection:
            yield Operations(MigrationContext.configure(connection))

    def written_at(self):
        with self.sessions() as session:
            return session.scalars(select(Cart._ts)).one()

    def test_adding_a_column_with_a_server_default_restarts_no_countdown(self):
        before = self.written_at()
        with self.operations() as op:
            op.add_column("carts", Column("currency", Text(), server_default="EUR", nullable=False))
        self.assertEqual(self.written_at(), before)

    def test_filling_a_column_restarts_the_countdown_of_every_live_document(self):
        before = self.written_at()
        with self.operations() as op:
            op.add_column("carts", Column("currency", Text()))
            op.execute("UPDATE carts SET currency = 'EUR'")
        self.assertGreaterEqual(self.written_at(), before + timedelta(seconds=HOUR))

    def test_set_not_null_needs_a_purge_after_filling_the_column(self):
        with self.operations() as op:
            op.add_column("carts", Column("currency", Text()))
            op.execute("UPDATE carts SET currency = 'EUR'")
            with self.assertRaisesRegex(IntegrityError, "contains null values"), op.get_bind().begin_nested():
                op.alter_column("carts", "currency", nullable=False)
            op.execute("CALL ttl_docs.purge('carts')")
            op.alter_column("carts", "currency", nullable=False)

    def test_a_new_unique_constraint_needs_a_purge(self):
        with self.operations() as op:
            with self.assertRaisesRegex(IntegrityError, "is duplicated"), op.get_bind().begin_nested():
                op.create_unique_constraint("one_item", "cart_items", ["cart_id"])
            op.execute("CALL ttl_docs.purge('cart_items')")
            op.create_unique_constraint("one_item", "cart_items", ["cart_id"])

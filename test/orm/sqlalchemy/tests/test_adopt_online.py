"""A migration that adopts a table while the application uses it, in migrations/online."""
from alembic import command
from alembic.config import Config
from sqlalchemy import Column, Identity, Integer, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import declarative_base

from tests.support import EmptySchemaTest
from tests.test_alembic import ALEMBIC_INI

Base = declarative_base()


class Visit(Base):
    __tablename__ = "visits"

    id = Column(Integer, Identity(), primary_key=True)
    doc = Column(JSONB, nullable=False)


class AdoptOnline(EmptySchemaTest):
    def setUp(self):
        super().setUp()
        Base.metadata.create_all(self.engine)
        with self.engine.begin() as connection:
            connection.execute(text("""INSERT INTO visits (doc) VALUES ('{"page": "/"}'), ('{"page": "/cart"}')"""))
        self.config = Config(ALEMBIC_INI)
        self.config.set_main_option("version_locations", str(ALEMBIC_INI.parent / "migrations" / "online"))

    def alembic(self, run, *arguments):
        # no transaction is open, as for "alembic upgrade"
        with self.engine.connect() as connection:
            self.config.attributes["connection"] = connection
            run(self.config, *arguments)

    def test_the_migration_adopts_the_table(self):
        self.alembic(command.upgrade, "adopt_visits")
        self.assertEqual(self.default_ttls(), {"visits": 1800})
        self.assert_documents_expire(Visit)

    def test_and_back(self):
        self.alembic(command.upgrade, "adopt_visits")
        self.alembic(command.downgrade, "base")
        self.assertEqual(self.default_ttls(), {})
        self.alembic(command.upgrade, "adopt_visits")
        self.assertEqual(self.default_ttls(), {"visits": 1800})

"""Tables created by Base.metadata, as in many test suites, and models generated from tables."""
from sqlalchemy import inspect
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.automap import automap_base

from shop.models import Base, Token
from tests.support import EmptySchemaTest


class CreateAll(EmptySchemaTest):
    def test_create_all_adopts_the_collections(self):
        Base.metadata.create_all(self.engine)
        self.assertEqual(
            self.default_ttls(), {"sessions": 1800, "tokens": -1, "carts": 86400, "cart_items": 86400}
        )
        self.assert_documents_expire(Token, code="created")

    def test_create_all_does_not_change_existing_tables(self):
        Base.metadata.create_all(self.engine)
        Base.metadata.create_all(self.engine)
        self.assert_documents_expire(Token, code="created")

    def test_drop_all(self):
        Base.metadata.create_all(self.engine)
        Base.metadata.drop_all(self.engine)
        self.assertEqual(inspect(self.engine).get_table_names(), [])
        self.assertEqual(self.default_ttls(), {})

    def test_the_first_write_to_a_table_that_is_not_adopted_fails(self):
        Token.__table__.create(self.engine)
        with self.assertRaisesRegex(ProgrammingError, "column tokens._ts does not exist"):
            self.assert_documents_expire(Token, code="plain")

    def test_models_generated_from_the_tables_read_and_write_collections(self):
        Base.metadata.create_all(self.engine)
        Automapped = automap_base()
        Automapped.prepare(autoload_with=self.engine)
        tokens = Automapped.classes.tokens
        self.assertEqual(set(tokens.__table__.columns.keys()), {"id", "code", "doc", "_ts", "_ttl", "_slot"})
        self.assert_documents_expire(tokens, code="reflected")

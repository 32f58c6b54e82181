"""Alembic's environment: connects to the database, and loads the models."""
from alembic import context

from shop.autogenerate import include_object, process_revision_directives
from shop.database import engine
from shop.models import Base


def migrate(**connection):
    context.configure(
        target_metadata=Base.metadata,
        include_object=include_object,
        process_revision_directives=process_revision_directives,
        **connection,
    )
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    migrate(dialect_name=engine.name, literal_binds=True)
elif "connection" in context.config.attributes:
    # A program that runs migrations passes its own connection.
    migrate(connection=context.config.attributes["connection"])
else:
    with engine.connect() as connection:
        migrate(connection=connection)

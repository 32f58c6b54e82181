"""Make the large table visits a collection, while the application uses it."""
from alembic import op

revision = "adopt_visits"
down_revision = None


def upgrade():
    # adopt_concurrently() commits several times, so it cannot run in the transaction of the migration.
    with op.get_context().autocommit_block():
        op.execute("CALL ttl_docs.adopt_concurrently('visits', 1800)")


def downgrade():
    with op.get_context().autocommit_block():
        op.execute("CALL ttl_docs.purge('visits')")
    op.execute("SELECT ttl_docs.release('visits')")

"""Create the shop"""
import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None


def upgrade():
    op.create_table(
        "users",
        sa.Column("id", sa.Integer(), sa.Identity(), primary_key=True),
        sa.Column("email", sa.Text(), nullable=False, unique=True),
    )

    op.create_table(
        "sessions",
        sa.Column("id", postgresql.UUID(), primary_key=True),
        sa.Column("user_id", sa.Integer(), sa.ForeignKey("users.id"), nullable=False, index=True),
        sa.Column("doc", postgresql.JSONB(), nullable=False),
    )
    op.execute("SELECT ttl_docs.adopt('sessions', 1800)")

    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), sa.Identity(), primary_key=True),
        sa.Column("code", sa.Text(), nullable=False, unique=True),
        sa.Column("doc", postgresql.JSONB(), nullable=False),
    )
    op.execute("SELECT ttl_docs.adopt('tokens', -1)")

    op.create_table(
        "carts",
        sa.Column("id", sa.Integer(), sa.Identity(), primary_key=True),
        sa.Column("doc", postgresql.JSONB(), nullable=False),
    )
    op.execute("SELECT ttl_docs.adopt('carts', 86400)")

    op.create_table(
        "cart_items",
        sa.Column("id", sa.Integer(), sa.Identity(), primary_key=True),
        sa.Column(
            "cart_id", sa.Integer(), sa.ForeignKey("carts.id", ondelete="CASCADE"), nullable=False, index=True
        ),
        sa.Column("doc", postgresql.JSONB(), nullable=False),
    )
    op.execute("SELECT ttl_docs.adopt('cart_items', 86400)")


def downgrade():
    op.drop_table("cart_items")
    op.drop_table("carts")
    op.drop_table("tokens")
    op.drop_table("sessions")
    op.drop_table("users")

"""The tables of a small shop.  All except users are collections: their rows expire."""
from uuid import uuid4

from sqlalchemy import Column, DateTime, FetchedValue, ForeignKey, Identity, Integer, Text, event, func, select
from sqlalchemy.dialects.postgresql import JSONB, UUID
from sqlalchemy.ext.mutable import MutableDict
from sqlalchemy.orm import declarative_base, declared_attr, relationship

Base = declarative_base()


class Collection:
    """A table that the migration adopts with ttl_docs.adopt()."""

    # Its top-level "ttl" is the document's own ttl in seconds.
    doc = Column(MutableDict.as_mutable(JSONB), nullable=False)

    # The server sets these columns at every write.  "system" keeps them out of
    # CREATE TABLE, because adopt() adds them.
    _ts = Column(
        DateTime(timezone=True),
        server_default=FetchedValue(),
        server_onupdate=FetchedValue(),
        nullable=False,
        system=True,
    )
    _ttl = Column(Integer, server_default=FetchedValue(), server_onupdate=FetchedValue(), system=True)

    # Every INSERT and UPDATE returns them with RETURNING.
    __mapper_args__ = {"eager_defaults": True}

    def touch(self):
        """Restart the countdown at the next flush, without sending the document."""
        # Any UPDATE restarts the countdown.  The server replaces this value.
        self._ts = func.now()


class User(Base):
    __tablename__ = "users"

    id = Column(Integer, Identity(), primary_key=True)
    email = Column(Text, nullable=False, unique=True)
    # The database, not the ORM, decides whether a user with sessions can be deleted.
    sessions = relationship("UserSession", back_populates="user", passive_deletes="all")


class UserSession(Collection, Base):
    __tablename__ = "sessions"
    __table_args__ = {"info": {"default_ttl": 1800}}

    id = Column(UUID(as_uuid=True), primary_key=True, default=uuid4)
    user_id = Column(ForeignKey("users.id"), nullable=False, index=True)
    user = relationship("User", back_populates="sessions")


class Token(Collection, Base):
    __tablename__ = "tokens"
    # Each token has its own ttl.
    __table_args__ = {"info": {"default_ttl": -1}}

    id = Column(Integer, Identity(), primary_key=True)
    code = Column(Text, nullable=False, unique=True)


class Cart(Collection, Base):
    __tablename__ = "carts"
    __table_args__ = {"info": {"default_ttl": 86400}}

    id = Column(Integer, Identity(), primary_key=True)
    items = relationship(
        "CartItem",
        back_populates="cart",
        order_by="CartItem.id",
        cascade="all, delete-orphan",
        passive_deletes=True,
    )

    # Use _ts for optimistic locking: every write changes it.
    @declared_attr
    def __mapper_args__(cls):
        return {**Collection.__mapper_args__, "version_id_col": cls._ts, "version_id_generator": False}


class CartItem(Collection, Base):
    __tablename__ = "cart_items"
    __table_args__ = {"info": {"default_ttl": 86400}}

    id = Column(Integer, Identity(), primary_key=True)
    cart_id = Column(ForeignKey("carts.id", ondelete="CASCADE"), nullable=False, index=True)
    cart = relationship("Cart", back_populates="items")

    # Deleting an item that has expired is not an error.
    __mapper_args__ = {**Collection.__mapper_args__, "confirm_deleted_rows": False}


@event.listens_for(Base.metadata, "after_create")
def adopt_collections(metadata, connection, tables, **options):
    """Make Base.metadata.create_all() adopt the collections, as the migrations do."""
    for table in tables:
        if "default_ttl" in table.info:
            connection.execute(select(func.ttl_docs.adopt(table.fullname, table.info["default_ttl"])))

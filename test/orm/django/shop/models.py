import json
import uuid

from django.conf import settings
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models

from .documents import Document, DocumentQuerySet


class Session(Document):
    """A login on a device; expires half an hour after it was last used."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="logins")

    def save(self, *, force_insert=False, force_update=False, **kwargs):
        # If its UPDATE finds no row, Django's save() inserts the row.  This would bring back a
        # login that expired after it was loaded.  With force_update, save() raises DatabaseError.
        force_update = force_update or not (force_insert or self._state.adding)
        super().save(force_insert=force_insert, force_update=force_update, **kwargs)


class TokenQuerySet(DocumentQuerySet):
    def upsert(self, email, data):
        """Upserts in one statement, in all versions of Django.  Retry it on SQLSTATE 40001."""
        return self.raw(
            """
            INSERT INTO shop_token (email, data) VALUES (%s, %s)
            ON CONFLICT (email) DO UPDATE SET data = excluded.data
            RETURNING *
            """,
            [email, json.dumps(data)],
        )[0]


class Token(Document):
    """A one-time token, which has its own ttl or never expires."""

    email = models.EmailField(unique=True)

    objects = TokenQuerySet.as_manager()


class Cart(Document):
    """A cart.  Its save() is Django's own, which inserts an expired cart again."""


class CartItem(Document):
    cart = models.ForeignKey(Cart, models.CASCADE, related_name="items")
    sku = models.CharField(max_length=40)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cart", "sku"], name="one_item_per_sku")]


class WebSession(AbstractBaseSession):
    """A session of django.contrib.sessions, stored as a document instead of text.

    The model does not map written_at, because a model need not map it.
    """

    session_data = models.JSONField()

    @classmethod
    def get_session_store_class(cls):
        from .session_store import SessionStore

        return SessionStore

import json
import uuid

from django.conf import settings
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models

from .documents import Document, DocumentQuerySet


class Session(Document):
    """A login on a device; half an hour after it was last used, it is over."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="logins")

    def save(self, *, force_insert=False, force_update=False, **kwargs):
        # Where UPDATE finds no row, Django's save() goes on to INSERT: a login that has
        # expired since it was loaded would be back.  Forced, it raises DatabaseError.
        force_update = force_update or not (force_insert or self._state.adding)
        super().save(force_insert=force_insert, force_update=force_update, **kwargs)


class TokenQuerySet(DocumentQuerySet):
    def upsert(self, email, data):
        """One statement, for all versions of Django; try again on SQLSTATE 40001."""
        return self.raw(
            """
            INSERT INTO shop_token (email, data) VALUES (%s, %s)
            ON CONFLICT (email) DO UPDATE SET data = excluded.data
            RETURNING *
            """,
            [email, json.dumps(data)],
        )[0]


class Token(Document):
    """A one-time token; each has a ttl of its own, or is for ever."""

    email = models.EmailField(unique=True)

    objects = TokenQuerySet.as_manager()


class Cart(Document):
    """A cart that is saved again after it has expired may live again: Django's own save()."""


class CartItem(Document):
    cart = models.ForeignKey(Cart, models.CASCADE, related_name="items")
    sku = models.CharField(max_length=40)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cart", "sku"], name="one_item_per_sku")]


class WebSession(AbstractBaseSession):
    """What django.contrib.sessions would keep as text, as a document.

    It does not map written_at: a model need not.
    """

    session_data = models.JSONField()

    @classmethod
    def get_session_store_class(cls):
        from .session_store import SessionStore

        return SessionStore

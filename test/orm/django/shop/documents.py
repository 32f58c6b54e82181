"""Base classes for the models of ttl_docs collections."""

from django.db import models
from django.db.models.functions import Now


class ServerTimestampField(models.DateTimeField):
    """The column _ts.  The server sets it at every write, and replaces any value that a client sends."""

    db_returning = True  # INSERT ... RETURNING returns it

    def __init__(self, *args, **kwargs):
        kwargs.update(db_column="_ts", editable=False, blank=True)
        super().__init__(*args, **kwargs)


class DocumentQuerySet(models.QuerySet):
    def touch(self):
        """Restarts the countdown of these documents; returns how many were still live."""
        return self.update(written_at=Now())


class Document(models.Model):
    data = models.JSONField(default=dict)  # may contain a "ttl"
    written_at = ServerTimestampField()

    objects = DocumentQuerySet.as_manager()

    class Meta:
        abstract = True

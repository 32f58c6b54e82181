"""What the models of ttl_docs collections have in common."""

from django.db import models
from django.db.models.functions import Now


class ServerTimestampField(models.DateTimeField):
    """The column _ts: the server sets it at every write, whatever is sent for it."""

    db_returning = True  # INSERT ... RETURNING brings it back

    def __init__(self, *args, **kwargs):
        kwargs.update(db_column="_ts", editable=False, blank=True)
        super().__init__(*args, **kwargs)


class DocumentQuerySet(models.QuerySet):
    def touch(self):
        """Restarts the countdown of these documents; returns how many were still alive."""
        return self.update(written_at=Now())


class Document(models.Model):
    data = models.JSONField(default=dict)  # may have a "ttl" of its own
    written_at = ServerTimestampField()

    objects = DocumentQuerySet.as_manager()

    class Meta:
        abstract = True

from django.db import connection


def travel(seconds):
    """Moves the clock of this database session ahead of the real one, or behind it."""
    with connection.cursor() as cursor:
        cursor.execute("SET ttl_docs.clock_offset = %s", [seconds])


class TimeTravelMixin:
    """For test cases that call travel(): each ends in the present."""

    def setUp(self):
        super().setUp()
        self.addCleanup(travel, 0)

from django.db import connection


def travel(seconds):
    """Sets the clock of this database session to so many seconds after the real time, or before it."""
    with connection.cursor() as cursor:
        cursor.execute("SET ttl_docs.clock_offset = %s", [seconds])


class TimeTravelMixin:
    """For test cases that call travel(): resets the clock after each test."""

    def setUp(self):
        super().setUp()
        self.addCleanup(travel, 0)

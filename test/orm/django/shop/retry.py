from functools import wraps

from django.db import OperationalError, transaction

SERIALIZATION_FAILURE = "40001"


def retry_serialization_failures(function, attempts=3):
    """Runs the function in a transaction, and retries it after a serialization failure."""

    @wraps(function)
    def wrapper(*args, **kwargs):
        for attempt in range(1, attempts + 1):
            try:
                # Durable, because only the outermost transaction can be retried.
                with transaction.atomic(durable=True):
                    return function(*args, **kwargs)
            except OperationalError as error:
                if attempt == attempts or error.__cause__.diag.sqlstate != SERIALIZATION_FAILURE:
                    raise

    return wrapper

import os

SECRET_KEY = "for the tests only"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "shop",
]

SESSION_ENGINE = "shop.session_store"

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ["PGHOST"],
        "PORT": os.environ["PGPORT"],
        "USER": os.environ["PGUSER"],
        "NAME": os.environ["PGDATABASE"],
        # With --keepdb, the test runner uses this database, in which a superuser has created the extension.
        "TEST": {"NAME": os.environ["PGDATABASE"]},
    },
}

# The same database through pgbouncer in transaction mode.
DATABASES["pool"] = {
    **DATABASES["default"],
    "HOST": os.environ["POOL_HOST"],
    "PORT": os.environ["POOL_PORT"],
    # pgbouncer might open a cursor on one server connection and read it on another.
    "DISABLE_SERVER_SIDE_CURSORS": True,
    # Open a connection for each request: connections to pgbouncer are cheap.
    "CONN_MAX_AGE": 0,
    "TEST": {"MIRROR": "default"},
}

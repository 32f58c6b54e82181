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
        # A database that a superuser has put the extension into; with --keepdb the runner uses it.
        "TEST": {"NAME": os.environ["PGDATABASE"]},
    },
}

# The same database through pgbouncer in transaction mode.
DATABASES["pool"] = {
    **DATABASES["default"],
    "HOST": os.environ["POOL_HOST"],
    "PORT": os.environ["POOL_PORT"],
    # A cursor would be opened on one server connection and read on another.
    "DISABLE_SERVER_SIDE_CURSORS": True,
    # Connections to the pool are cheap: one for each request.
    "CONN_MAX_AGE": 0,
    "TEST": {"MIRROR": "default"},
}

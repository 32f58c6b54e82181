from django.db import migrations


class Migration(migrations.Migration):
    """Makes the large table shop_visit a collection, while the application uses it."""

    # adopt_concurrently() commits several times, so it cannot run in a transaction.
    atomic = False

    operations = [
        migrations.RunSQL(
            "CALL ttl_docs.adopt_concurrently('shop_visit', 1800)",
            reverse_sql=[
                "CALL ttl_docs.purge('shop_visit')",
                "SELECT ttl_docs.release('shop_visit')",
            ],
        ),
    ]

from django.db import migrations

from shop.documents import ServerTimestampField


def adopt(model_name, default_ttl, maps_written_at=True):
    """Makes the table of a model a collection; backwards, makes it a plain table again."""
    table = f"shop_{model_name}"
    written_at = migrations.AddField(model_name, "written_at", ServerTimestampField())
    return migrations.RunSQL(
        f"SELECT ttl_docs.adopt('{table}', {default_ttl})",
        reverse_sql=f"SELECT ttl_docs.release('{table}')",
        # adopt() adds the column of written_at, so only Django's state needs the new field.
        state_operations=[written_at] if maps_written_at else [],
    )


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]

    operations = [
        adopt("session", default_ttl=1800),
        adopt("token", default_ttl=-1),
        adopt("cart", default_ttl=1800),
        adopt("cartitem", default_ttl=1800),
        adopt("websession", default_ttl=-1, maps_written_at=False),
    ]

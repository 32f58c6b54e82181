"""Hooks that teach Alembic's autogenerate about collections.  migrations/env.py uses them."""
from alembic.autogenerate.rewriter import Rewriter
from alembic.operations.ops import CreateTableOp, ExecuteSQLOp

SYSTEM_COLUMNS = {"_ts", "_ttl", "_slot"}


def include_object(item, name, kind, reflected, compare_to):
    """Ignore the columns and the index that ttl_docs.adopt() has added to a table."""
    if kind == "column":
        return name not in SYSTEM_COLUMNS
    if kind == "index":
        return "_slot" not in item.columns
    return True


process_revision_directives = Rewriter()


@process_revision_directives.rewrites(CreateTableOp)
def adopt_new_collection(context, revision, create_table):
    """Make a revision that creates the table of a collection also adopt the table."""
    if "default_ttl" not in create_table.info:
        return create_table
    # The "columns" include constraints, which may have no name.
    create_table.columns = [
        column for column in create_table.columns if getattr(column, "name", None) not in SYSTEM_COLUMNS
    ]
    default_ttl = create_table.info["default_ttl"]
    adopt = ExecuteSQLOp(f"SELECT ttl_docs.adopt('{create_table.table_name}', {default_ttl})")
    return [create_table, adopt]

"""One-time tokens; each code has at most one."""
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from shop.models import Token


def issue_token(session, code, doc):
    """Upsert the token for a code, and return it."""
    new = insert(Token).values(code=code, doc=doc)
    upsert = new.on_conflict_do_update(index_elements=[Token.code], set_={"doc": new.excluded.doc})
    # Return an object, and refresh it if the session has loaded it already.
    token = select(Token).from_statement(upsert.returning(Token)).execution_options(populate_existing=True)
    return session.scalars(token).one()

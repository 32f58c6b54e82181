"""One-time tokens: at most one for a code."""
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from shop.models import Token


def issue_token(session, code, doc):
    """Return the token for a code: a new one, or the live one with a new document."""
    new = insert(Token).values(code=code, doc=doc)
    upsert = new.on_conflict_do_update(index_elements=[Token.code], set_={"doc": new.excluded.doc})
    # As an object, and fresh also where the session knows it already.
    token = select(Token).from_statement(upsert.returning(Token)).execution_options(populate_existing=True)
    return session.scalars(token).one()

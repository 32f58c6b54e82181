"""The tables of both sides.

docs      a collection
plain     the same without TTL: id and doc
indexed   plain, with one more column and an index on it.  Many rows have the same value, as in the
          purge index.  It shows the cost of one more index alone.
by_hand   what a careful user writes without ttl_docs: columns for stamp and ttl; a trigger in
          PL/pgSQL that fills and validates them, and frees the key of an expired document; an
          index for the DELETE; LIVE in the WHERE of every query
"""

DEFAULT_TTL = 86400
LONG_AGO = 2 * DEFAULT_TTL     # documents of this age have expired
LIVE = "(coalesce(ttl, 86400) = -1 OR ts + coalesce(ttl, 86400) * interval '1 s' > now())"
# The same in the fastest form that we know.
LIVE_BY_CASE = "(CASE WHEN ttl IS NULL THEN ts + interval '86400 s' > now()" \
    " WHEN ttl = -1 THEN true ELSE ts + ttl * interval '1 s' > now() END)"

BY_HAND = """
CREATE TABLE by_hand (id text PRIMARY KEY, doc jsonb NOT NULL, ts timestamptz, ttl int, expires timestamptz);
CREATE OR REPLACE FUNCTION stamp_by_hand() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    value jsonb := NEW.doc -> 'ttl';
BEGIN
    NEW.ts := now();
    IF value IS NULL OR value = 'null' THEN
        NEW.ttl := NULL;
    ELSIF jsonb_typeof(value) <> 'number' OR value::numeric % 1 <> 0 OR value::numeric < -1
        OR value::numeric = 0 OR value::numeric > 2147483647 THEN
        RAISE 'invalid ttl %', value USING ERRCODE = 'invalid_parameter_value';
    ELSE
        NEW.ttl := value::int;
    END IF;
    IF TG_OP = 'INSERT' THEN
        DELETE FROM by_hand WHERE id = NEW.id AND expires <= NEW.ts;
    END IF;
    NEW.expires := CASE WHEN NEW.ttl = -1 THEN NULL
                   ELSE NEW.ts + coalesce(NEW.ttl, 86400) * interval '1 s' END;
    RETURN NEW;
END $$;
CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON by_hand FOR EACH ROW EXECUTE FUNCTION stamp_by_hand();
CREATE INDEX ON by_hand (expires) WHERE expires IS NOT NULL;
"""


def filler(size):
    """SQL for text of some size that does not compress."""
    return "(SELECT string_agg(md5(n::text || k), '') FROM generate_series(1, %d) AS k)" % max(1, size // 32)


def document(size=200):
    """SQL for document number n, of about that size: some members, and text."""
    return "jsonb_build_object('n', n, 'user', 'u' || n / 10, 'text', %s)" % filler(size - 72)


def rows(first, last, size=200):
    """A query for rows (id, doc)."""
    return 'SELECT n::text, %s FROM generate_series(%d, %d) AS n' % (document(size), first, last)


def drop_all(server):
    """Drops all tables."""
    server.sql('SELECT ttl_docs.drop_collection(collection) FROM ttl_docs.collections')
    server.sql('DROP TABLE IF EXISTS plain, indexed, by_hand CASCADE')


def make_docs(server, count, size=200, default_ttl=DEFAULT_TTL, age=0, name='docs', indexing='consistent'):
    """Creates a collection with documents of some age in seconds."""
    server.sql("SELECT ttl_docs.create_collection('%s', %d, indexing => '%s')" % (name, default_ttl, indexing))
    add_docs(server, 1, count, size, age, name)
    server.sql('VACUUM ANALYZE ' + name)


def add_docs(server, first, last, size=200, age=0, name='docs'):
    """Adds documents of some age in seconds."""
    connection = server.connect(ttl_docs__clock_offset=-age)
    server.sql('INSERT INTO %s (id, doc) %s' % (name, rows(first, last, size)), connection)
    connection.close()


def make_plain(server, count, size=200, columns=''):
    server.sql('CREATE TABLE plain (id text PRIMARY KEY, doc jsonb NOT NULL%s)' % columns)
    server.sql('INSERT INTO plain (id, doc) ' + rows(1, count, size))
    server.sql('VACUUM ANALYZE plain')


def make_indexed(server, count):
    server.sql('CREATE TABLE indexed (id text PRIMARY KEY, doc jsonb NOT NULL, due bigint DEFAULT 1)')
    server.sql('CREATE INDEX ON indexed (due)')
    server.sql('INSERT INTO indexed (id, doc) ' + rows(1, count))
    server.sql('VACUUM ANALYZE indexed')


def make_by_hand(server, count, size=200):
    server.sql(BY_HAND)
    server.sql('INSERT INTO by_hand (id, doc) ' + rows(1, count, size))
    server.sql('VACUUM ANALYZE by_hand')


def random_id(count):
    """A line of pgbench that picks a random id."""
    return '\\set i random(1, %d)\n' % count


NEW_ID = '\\set i random(1000000000, 1000000000000000)\n'


def insert_into(table):
    """A script of pgbench that inserts one new document, sent as text as by an application."""
    return NEW_ID + 'INSERT INTO %s (id, doc) VALUES (:i, :doc);' % table


def document_text(size=200):
    """A document as an application sends it."""
    return '{"n": 1, "user": "u12345", "text": "%s"}' % ('0123456789abcdef' * (size // 16 + 1))[:max(0, size - 48)]


def sent_document(size=200):
    """Options of pgbench for the script of insert_into()."""
    return ['-D', 'doc=' + document_text(size)]

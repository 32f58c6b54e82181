"""The document functions, compared with the same statements in SQL.

A function also adds id and _ts to the document that it returns, and checks that the id of the
document is its key.
"""

from measure import Line, compare_transactions
from tables import random_id

NEW = ('INSERT INTO docs (id, doc) SELECT new.id, :doc::jsonb || jsonb_build_object(\'id\', new.id)'
       ' FROM (SELECT gen_random_uuid()::text AS id) AS new RETURNING doc;')
PAIRS = (
    ('read_document', "SELECT ttl_docs.read_document('docs', (:i)::text);",
     'SELECT doc FROM docs WHERE id = (:i)::text;'),
    ('documents', "SELECT ttl_docs.documents('docs', jsonb_build_object('n', (:i)::int));",
     "SELECT doc FROM docs WHERE doc @> jsonb_build_object('n', (:i)::int);"),
    ('touch_document', "SELECT ttl_docs.touch_document('docs', (:i)::text);",
     'UPDATE docs SET _ts = DEFAULT WHERE id = (:i)::text;'),
    ('replace_document',
     "SELECT ttl_docs.replace_document('docs', jsonb_build_object('id', (:i)::text, 'n', 1));",
     "UPDATE docs SET doc = jsonb_build_object('id', (:i)::text, 'n', 1) WHERE id = (:i)::text RETURNING doc;"),
    ('patch_document', "SELECT ttl_docs.patch_document('docs', (:i)::text, '{\"m\": 1}');",
     "UPDATE docs SET doc = doc || '{\"m\": 1}' WHERE id = (:i)::text RETURNING doc;"),
    ('upsert_document',
     "SELECT ttl_docs.upsert_document('docs', jsonb_build_object('id', (:i)::text, 'n', 2));",
     "INSERT INTO docs (id, doc) VALUES ((:i)::text, jsonb_build_object('id', (:i)::text, 'n', 2))"
     " ON CONFLICT (id) DO UPDATE SET doc = excluded.doc RETURNING doc;"),
    ('create_document', "SELECT ttl_docs.create_document('docs', :doc);", NEW),
)


def measure(bench):
    count = bench.scale.few_rows
    bench.server.sql("SELECT ttl_docs.create_collection('docs', 86400)")
    bench.server.sql("INSERT INTO docs (id, doc) SELECT n::text, jsonb_build_object('id', n::text, 'n', n, 'text',"
                     " repeat('x', 100)) FROM generate_series(1, %d) AS n" % count)
    bench.server.sql('CREATE INDEX ON docs USING gin (doc jsonb_path_ops) WITH (fastupdate = off)')
    bench.server.sql('VACUUM ANALYZE docs')
    lines = []
    for name, function, statement in PAIRS:
        by_function, by_statement = compare_transactions(
            bench.server, [random_id(count) + function, random_id(count) + statement], bench.scale.short(),
            options=['-D', 'doc={"n": 3, "text": "new"}'])
        lines.append(Line(name, 'the equivalent SQL', 'tps', by_function, by_statement))
    return lines

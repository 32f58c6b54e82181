"""Instructions of the server for a statement, or for a row of COPY, counted by callgrind.

Other work on the machine does not change the count, so it shows differences that are too small for times.
A count is not a time: a cache miss costs more than an instruction.  Each figure comes from two sessions, one
of which runs the statement twice as often: their difference excludes the start of the session and
the first plan.  Both sides get the same statements in the same order, because the work in an index depends
on the keys.  A table shows the functions of ttl_docs with most instructions, including the
functions that they call.
"""

import os
import re
import subprocess
import time

from measure import Line, at_most
from tables import DEFAULT_TTL, LONG_AGO, add_docs, document_text, rows

ROWS = 20000
STATEMENTS = 1500       # three times as many are fewer than ROWS
COPIED_ROWS = 5000
SHOWN_FUNCTIONS = 6

TABLES = """
CREATE TABLE plain (id text PRIMARY KEY, doc jsonb NOT NULL, ts timestamptz);
INSERT INTO plain SELECT n::text, jsonb_build_object('n', n, 'text', repeat('x', 100)) FROM generate_series(1, %d) AS n;
VACUUM ANALYZE plain;
CREATE TABLE indexed (id text PRIMARY KEY, doc jsonb NOT NULL, due bigint DEFAULT 1);
CREATE INDEX ON indexed (due);
INSERT INTO indexed (id, doc) SELECT id, doc FROM plain;
VACUUM ANALYZE indexed;
CREATE TABLE columns (id text PRIMARY KEY, doc jsonb NOT NULL,
    _ts timestamptz NOT NULL DEFAULT now(), _ttl int, _slot bigint DEFAULT 1);
CREATE INDEX ON columns (_slot);
INSERT INTO columns (id, doc) SELECT id, doc FROM plain;
VACUUM ANALYZE columns;
""" % ROWS
DOCS = """
SELECT ttl_docs.create_collection('docs', %d);
INSERT INTO docs (id, doc) SELECT id, doc FROM plain;
VACUUM ANALYZE docs;
""" % DEFAULT_TTL

INSERT = "INSERT INTO %s (id, doc) VALUES ('x' || $1, '{\"n\": 1}')"
SEND = "INSERT INTO %s (id, doc) VALUES ('sent ' || $1, $2)"
PLAIN = 'same table, no TTL'
INDEXED = 'same table, one more index'
COLUMNS = 'same columns and index, no trigger'
# name, statement on a collection, and what it is compared with: a name, the statement there, a goal
ON_COLLECTIONS = (
    ('SELECT by primary key, prepared', 'SELECT doc FROM docs WHERE id = $1',
     ((PLAIN, 'SELECT doc FROM plain WHERE id = $1', None),)),
    ('INSERT one row', INSERT % 'docs',
     ((PLAIN, INSERT % 'plain', None), (INDEXED, INSERT % 'indexed', at_most(1.05)), (COLUMNS, INSERT % 'columns', None))),
    ('INSERT one row, document sent as text', SEND % 'docs',
     ((INDEXED, SEND % 'indexed', at_most(1.05)), (COLUMNS, SEND % 'columns', None))),
    ('touch', 'UPDATE docs SET _ts = DEFAULT WHERE id = $1',
     ((PLAIN, 'UPDATE plain SET ts = now() WHERE id = $1', None),)),
)
ON_OTHERS = (
    ('SELECT', "SELECT doc FROM plain WHERE id = '%d'"),
    ('UPDATE', "UPDATE plain SET ts = now() WHERE id = '%d'"),
    ('join', "SELECT count(*) FROM plain AS a JOIN plain AS b USING (id) WHERE a.id = '%d'"),
)


def measure(bench):
    if not bench.has_program('valgrind'):
        return []
    with_library = counting_server(bench, 'counting', 'ttl_docs')
    without = counting_server(bench, 'counting_without', '')
    with_library.script(DOCS)
    lines = []
    spent = []
    for name, statement, others in ON_COLLECTIONS:
        ours = prepared_statement(with_library, statement)
        spent += [(name, function, format(count, ',')) for function, count in by_function(with_library)]
        for against, other, goal in others:
            theirs = prepared_statement(with_library, other)
            lines.append(Line(name + ', instructions', against, '', [ours], [theirs], goal))
    lines += of_copy(with_library)
    for name, statement in ON_OTHERS:
        counts = [per_statement(server, statement) for server in (with_library, without)]
        lines.append(Line('other tables: %s, planned each time, instructions' % name, 'library not loaded', '',
                          *[[count] for count in counts], at_most(1.01)))
    with_library.stop()
    without.stop()
    bench.table('Instructions per statement in functions of ttl_docs and in the functions that they call',
                ('statement', 'function', 'instructions'), spent)
    return lines


def counting_server(bench, name, preload):
    """A server under callgrind, with the plain table."""
    server = bench.another_server(name, preload, wrapper='valgrind --tool=callgrind --callgrind-out-file=%s/calls.%%p'
                                  % bench.arguments.scratch)
    server.calls = os.path.join(bench.arguments.scratch, 'calls.%d')
    server.script(TABLES)
    return server


def prepared_statement(server, statement):
    """Instructions of one execution of a prepared statement.  Its second parameter is a document."""
    if '$2' in statement:
        return per_statement(server, "EXECUTE q('%d', '" + document_text() + "')",
                             'PREPARE q(text, jsonb) AS ' + statement)
    return per_statement(server, "EXECUTE q('%d')", 'PREPARE q(text) AS ' + statement)


def per_statement(server, statement, prepare=None):
    """Instructions of one statement.  A %d in the statement is a new number each time."""
    once = session(server, statement, prepare, 1, STATEMENTS)
    twice = session(server, statement, prepare, STATEMENTS + 1, 2 * STATEMENTS)
    return (twice - once) / STATEMENTS


def session(server, statement, prepare, first, times):
    """Instructions of a session from its start to its end.  The first %d is "first"."""
    connection = server.connect()
    if prepare:
        server.sql('SET plan_cache_mode = force_generic_plan', connection)
        server.sql(prepare, connection)
    cursor = connection.cursor()
    for number in range(first, first + times):
        cursor.execute(statement % number)
    return end(server, connection)


def end(server, connection):
    """Ends a session.  Returns its instructions."""
    pid = connection.get_backend_pid()
    connection.close()
    server.last_calls = server.calls % pid
    return total(server.last_calls)


def of_copy(server):
    """Instructions of COPY FROM for a row, also while documents are expired."""
    for name, indexing in (('copied', 'consistent'), ('copied_expired', 'consistent'), ('copied_lazy', 'lazy')):
        server.sql("SELECT ttl_docs.create_collection('%s', %d, indexing => '%s')" % (name, DEFAULT_TTL, indexing))
        if name != 'copied':
            server.sql("SELECT ttl_docs.pause_purge('%s')" % name)
            add_docs(server, -100, -1, age=LONG_AGO, name=name)
    server.sql('CREATE TABLE copied_plain (id text PRIMARY KEY, doc jsonb NOT NULL)')
    docs, expired, lazy, plain = (per_copied_row(server, table) for table in
                                  ('copied', 'copied_expired', 'copied_lazy', 'copied_plain'))
    # 1.33 times the instructions are 0.75 of the rows
    return [
        Line('COPY of a row, nothing expired, instructions', PLAIN, '', [docs], [plain]),
        Line('COPY of a row while documents are expired, instructions', PLAIN, '', [expired], [plain], at_most(1.33)),
        Line('COPY of a row while documents are expired, lazy, instructions', PLAIN, '', [lazy], [plain]),
    ]


def per_copied_row(server, table):
    """Instructions of COPY FROM for one row."""
    spent = []
    for first, last in ((1, COPIED_ROWS), (COPIED_ROWS + 1, 3 * COPIED_ROWS)):
        path = os.path.join(server.directory, 'rows')
        server.sql("COPY (%s) TO '%s'" % (rows(first, last), path))
        connection = server.connect()
        server.sql("COPY %s (id, doc) FROM '%s'" % (table, path), connection)
        spent.append(end(server, connection))
        os.remove(path)
    return (spent[1] - spent[0]) / COPIED_ROWS


def by_function(server):
    """The costliest functions of the library in the last session, for each of its statements."""
    listing = subprocess.run(['callgrind_annotate', '--inclusive=yes', '--threshold=100', server.last_calls],
                             capture_output=True, text=True, check=True).stdout
    found = {}
    for count, function in re.findall(r'^ *([\d,]+) .*?:(\w+)(?:\.\w+)* \[.*ttl_docs\.so\]', listing, re.MULTILINE):
        found.setdefault(function, int(count.replace(',', '')) // (2 * STATEMENTS))
    # without hooks, which call core, and without functions that run once in a session
    own = {name: count for name, count in found.items() if not re.search('executor_|_utility|_query$|^plan$|_init|shmem', name)}
    return sorted(own.items(), key=lambda item: -item[1])[:SHOWN_FUNCTIONS]


def total(path, seconds=60):
    """The sum that callgrind writes when the process ends."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.path.exists(path):
            with open(path) as file:
                found = re.search(r'^totals: (\d+)$', file.read(), re.MULTILINE)
            if found:       # it is at the end of the file, so the file is complete
                return int(found.group(1))
        time.sleep(0.1)
    raise RuntimeError('callgrind has written nothing to ' + path)

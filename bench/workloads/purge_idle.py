"""The purge on an idle server, compared with one DELETE of the same rows by an index.

The time of the purge begins when the purge is turned on, includes the start of a worker, and ends with the
last document.  The DELETE is one transaction, as a user would run it.
"""

from measure import Line, at_least
from tables import LONG_AGO, drop_all, make_docs


def measure(bench):
    return [Line('purge of %s expired, idle server' % format(bench.scale.rows, ','),
                 'one DELETE of the same rows by index', 'rows/s', *purge_and_delete(bench.server, bench.scale),
                 at_least(0.90))]


def purge_and_delete(server, scale):
    """Rows per second of the purge and of the DELETE: two lists with a number for each round."""
    ours, theirs = [], []
    for _ in range(max(3, scale.rounds // 2)):
        drop_all(server)
        make_docs(server, scale.rows, age=LONG_AGO)
        theirs.append(scale.rows / delete_by_hand(server))
        began, ended = server.purge(scale.rows)
        ours.append(scale.rows / (ended - began))
    return ours, theirs


def delete_by_hand(server):
    """Seconds for a copy of the table with the same columns and indexes."""
    everything = server.connect(ttl_docs__show_expired='on')
    server.sql('CREATE TABLE plain AS SELECT * FROM docs', everything)
    everything.close()
    server.sql('ALTER TABLE plain ADD PRIMARY KEY (id)')
    server.sql('CREATE INDEX ON plain (_slot)')
    server.sql('VACUUM ANALYZE plain')
    server.sql('CHECKPOINT')
    server.sql('SET enable_seqscan = off')
    taken = server.seconds('DELETE FROM plain WHERE _slot < 0')
    server.sql('RESET enable_seqscan')
    server.sql('DROP TABLE plain')
    server.sql('CHECKPOINT')
    return taken

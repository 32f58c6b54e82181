"""A PostgreSQL server for a benchmark, and pgbench, which makes the load.

The settings make results repeatable: all data fits into shared buffers, fsync is off so that the disk does
not matter, and checkpoints and autovacuum run only on command.  The purge deletes documents one by one.  A workload
can override them.
"""

import collections
import os
import subprocess
import time

import psycopg2

SETTINGS = """
listen_addresses = ''
shared_buffers = '%(shared_buffers)s'
max_wal_size = '16GB'
checkpoint_timeout = '1h'
autovacuum = off
fsync = off
jit = off
max_parallel_workers_per_gather = 0
track_io_timing = off
ttl_docs.purge = off
ttl_docs.purge_naptime = '200ms'
ttl_docs.purge_truncate = off
"""

Transaction = collections.namedtuple('Transaction', 'script micros ended')


class Server:
    """A running server with one database, "bench"."""

    def __init__(self, programs, directory, preload, shared_buffers='4GB', wrapper=None, settings=''):
        self.programs = programs
        self.directory = directory
        self.data = os.path.join(directory, 'data')
        self.runs = 0
        os.makedirs(directory, mode=0o700)
        self.run('initdb', '-D', self.data, '-U', 'postgres', '--auth=trust', '--no-sync',
                 '--encoding=UTF8', '--locale=C')
        with open(os.path.join(self.data, 'postgresql.conf'), 'a') as conf:
            conf.write(SETTINGS % {'shared_buffers': shared_buffers})
            conf.write("unix_socket_directories = '%s'\n" % directory)
            conf.write("shared_preload_libraries = '%s'\n" % preload)
            conf.write(settings)
            if 'pg_cron' in preload:
                conf.write("cron.database_name = 'bench'\ncron.use_background_workers = on\n")
        self.start(wrapper)
        self.run('createdb', '-h', directory, '-U', 'postgres', 'bench')
        self.connection = self.connect()
        if 'ttl_docs' in preload:
            self.sql('CREATE EXTENSION ttl_docs')

    def start(self, wrapper):
        """Starts the server, under another command if there is one."""
        options = []
        if wrapper:
            path = os.path.join(self.directory, 'postgres')
            with open(path, 'w') as script:
                script.write('#!/bin/sh\nexec %s %s "$@"\n' % (wrapper, os.path.join(self.programs, 'postgres')))
            os.chmod(path, 0o700)
            options = ['-p', path]
        self.run('pg_ctl', '-D', self.data, '-l', os.path.join(self.directory, 'log'), *options, '-w', 'start')

    def restart(self, wrapper):
        """Restarts the server under another command."""
        self.connection.close()
        self.run('pg_ctl', '-D', self.data, '-m', 'fast', '-w', 'stop')
        self.start(wrapper)
        self.connection = self.connect()

    def run(self, program, *arguments):
        done = subprocess.run([os.path.join(self.programs, program), *arguments],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError('%s %s: %s%s' % (program, ' '.join(arguments), done.stdout, done.stderr))
        return done.stdout

    def stop(self):
        self.connection.close()
        self.run('pg_ctl', '-D', self.data, '-m', 'immediate', '-w', 'stop')

    # ---- SQL ----

    @staticmethod
    def options(settings):
        """Settings for a new session, such as {'ttl_docs__clock_offset': -60}."""
        return ' '.join('-c %s=%s' % (name.replace('__', '.'), value) for name, value in settings.items())

    def connect(self, **settings):
        """Opens a new connection."""
        connection = psycopg2.connect(host=self.directory, user='postgres', dbname='bench',
                                      options=self.options(settings))
        connection.autocommit = True
        return connection

    def rows(self, statement, connection=None):
        """Runs a statement, and returns its rows, or None if it is not a query."""
        cursor = (connection or self.connection).cursor()
        cursor.execute(statement)
        return None if cursor.description is None else cursor.fetchall()

    def sql(self, statement, connection=None):
        """Runs a statement, and returns the first value of its first row, or None."""
        rows = self.rows(statement, connection)
        return rows[0][0] if rows else None

    def script(self, statements):
        """Runs statements one by one: VACUUM needs that."""
        for statement in statements.split(';\n'):
            if statement.strip():
                self.rows(statement)

    def seconds(self, statement, connection=None):
        """Runs a statement, and returns the seconds that it takes."""
        began = time.perf_counter()
        self.sql(statement, connection)
        return time.perf_counter() - began

    def wal_bytes(self):
        """Bytes of WAL that the whole server has written."""
        return int(self.sql("SELECT pg_current_wal_insert_lsn() - '0/0'"))

    def wait_until(self, condition, seconds=600):
        """Waits until a condition in SQL is true.  It polls seldom, because each query counts as load."""
        deadline = time.monotonic() + seconds
        while not self.sql('SELECT ' + condition):
            if time.monotonic() > deadline:
                raise RuntimeError('timed out while waiting for: ' + condition)
            time.sleep(0.5)

    def configure(self, **settings):
        for name, value in settings.items():
            self.sql('ALTER SYSTEM SET %s = %s' % (name.replace('__', '.'), value))
        self.sql('SELECT pg_reload_conf()')

    # ---- The purge ----

    def purge(self, count):
        """Lets the workers purge this number of documents of all collections.  Returns two times (epochs): when the purge was
        turned on, and when the last document was purged."""
        self.sql('ALTER SYSTEM SET ttl_docs.purge = on')
        began = time.time()
        self.sql('SELECT pg_reload_conf()')
        time.sleep(0.5)     # each query counts as load
        self.wait_until('sum(purged) >= %d FROM ttl_docs.stat_collections' % count)
        self.configure(ttl_docs__purge='off')
        return began, self.sql('SELECT extract(epoch FROM max(last_purge))::float8 FROM ttl_docs.stat_collections')

    # ---- pgbench ----

    def fill_pgbench(self, scale=1):
        """Creates the tables of pgbench."""
        self.run('pgbench', '-h', self.directory, '-U', 'postgres', '-i', '-q', '-s', str(scale), 'bench')

    def pgbench(self, scripts, *options, mode='prepared', settings=None):
        """Starts pgbench with scripts (SQL), all with the same probability.  Returns a Load."""
        self.runs += 1
        prefix = os.path.join(self.directory, 'run%d' % self.runs)
        command = [os.path.join(self.programs, 'pgbench'), '-h', self.directory, '-U', 'postgres',
                   '-n', '-M', mode, '-l', '--log-prefix=' + prefix]
        for number, script in enumerate(scripts):
            path = '%s.script%d' % (prefix, number)
            with open(path, 'w') as file:
                file.write(script + '\n')
            command += ['-f', path]
        return Load(command + list(options) + ['bench'], prefix, self.options(settings or {}))


class Load:
    """A run of pgbench."""

    def __init__(self, command, prefix, options):
        self.prefix = prefix
        self.process = subprocess.Popen(command, env=dict(os.environ, PGOPTIONS=options), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def transactions(self):
        """Waits for the end of the run.  Returns a list of Transactions from the logs of pgbench, and removes them."""
        _, errors = self.process.communicate()
        if self.process.returncode != 0:
            raise RuntimeError('pgbench: ' + errors)
        found = []
        directory, name = os.path.split(self.prefix)
        for file in os.listdir(directory):
            if not file.startswith(name + '.'):
                continue
            path = os.path.join(directory, file)
            if '.script' not in file:
                with open(path) as log:
                    found += [self.parse(line) for line in log]
            os.remove(path)
        return found

    @staticmethod
    def parse(line):
        fields = line.split()
        return Transaction(int(fields[3]), int(fields[2]), int(fields[4]) + int(fields[5]) / 1e6)

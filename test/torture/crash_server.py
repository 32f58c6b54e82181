"""Kills and starts a server.  For crash.py."""

import os
import signal
import subprocess
import time

import psycopg2

PATIENCE = 180                  # seconds until something counts as hung


class Wrong(Exception):
    """The server did something wrong."""


def require(condition, text):
    if not condition:
        raise Wrong(text)


class Server:
    """Kills and starts the server of a data directory."""

    def __init__(self, data, log):
        self.data = os.path.realpath(data)
        self.log = log

    def postmaster(self):
        with open(os.path.join(self.data, 'postmaster.pid'), encoding='utf-8') as file:
            pid = int(file.readline())
        require(os.readlink(f'/proc/{pid}/cwd') == self.data, f'{pid} is not the server of {self.data}')
        return pid

    @staticmethod
    def children(pid):
        try:
            with open(f'/proc/{pid}/task/{pid}/children', encoding='ascii') as file:
                return [int(child) for child in file.read().split()]
        except FileNotFoundError:
            return []

    @staticmethod
    def title(pid):
        try:
            with open(f'/proc/{pid}/cmdline', encoding='utf-8', errors='replace') as file:
                return file.read()
        except (FileNotFoundError, ProcessLookupError):
            return ''

    def kill_all(self, postmaster, reap=lambda: None):
        """Kills the postmaster and all its children at once."""
        os.kill(postmaster, signal.SIGSTOP)             # it starts no more children
        victims = self.children(postmaster) + [postmaster]
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        # To pg_ctl a zombie is a running server.
        self.wait_until('the killed processes are gone',
                        lambda: not any(os.path.exists(f'/proc/{pid}') for pid in victims))

    def kill_child(self, title):
        """Kills a child with that title as soon as there is one; workers live only for milliseconds."""
        postmaster = self.postmaster()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for pid in self.children(postmaster):
                if title in self.title(pid):
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False

    @staticmethod
    def environment():
        """Returns the environment of a server.

        A server must not inherit settings for clients.  PGAPPNAME would change the name of its replication
        connections, by which Citus recognises them: a logical move would lose writes."""
        return {name: value for name, value in os.environ.items() if not name.startswith('PG')}

    def start(self):
        self.remove_empty_locks()
        # Use no pipes: the server would keep them open.
        subprocess.run(['pg_ctl', '-D', self.data, '-l', self.log, '-w', '-t', str(PATIENCE), 'start'],
                       check=True, env=self.environment(), stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def remove_empty_locks(self):
        """Removes empty lock files, with which the server refuses to start.

        A server leaves one if it is killed after it creates the file and before it writes to it."""
        socket = os.path.join(os.environ.get('PGHOST', ''), '.s.PGSQL.%s.lock' % os.environ.get('PGPORT', ''))
        for path in (socket, os.path.join(self.data, 'postmaster.pid')):
            if os.path.exists(path) and os.path.getsize(path) == 0:
                os.remove(path)

    def start_and_kill(self, seconds):
        """Starts recovery, and kills the server during it."""
        with open(self.log, 'ab') as log:
            with subprocess.Popen(['postgres', '-D', self.data], start_new_session=True,
                                  env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log) as postmaster:
                time.sleep(seconds)
                self.kill_all(postmaster.pid, reap=postmaster.wait)

    def connect_again(self):
        """Connects as soon as the server accepts connections."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                connection = psycopg2.connect(application_name='checks')
                connection.autocommit = True
                return connection
            except psycopg2.OperationalError as error:
                require(time.monotonic() < deadline, f'the server does not accept connections: {error}')
                time.sleep(0.02)

    @staticmethod
    def wait_until(what, condition, pause=0.02):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            require(time.monotonic() < deadline, f'still not true after {PATIENCE} s: {what}')
            time.sleep(pause)

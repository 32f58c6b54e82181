"""The servers of a Patroni cluster: start, stop, kill, switchover, connections.  For failover.py.

Each member is a process of Patroni and its PostgreSQL.  The members agree through Patroni's own Raft, so there is
no other service.  Everything is in one directory, which only this user can enter; the sockets of the servers, too.
Replication and pg_rewind use TCP on the loopback interface, with random passwords.
"""

import base64
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request

import psycopg2

from crash_server import PATIENCE, Server, Wrong, require

SCOPE = 'torture'
# Patroni accepts no shorter time.  After it, the lock of a leader that does not answer expires.
TTL_OF_LEADER = 20
DCS = {
    'ttl': TTL_OF_LEADER, 'loop_wait': 1, 'retry_timeout': 5, 'primary_start_timeout': 0,
    'maximum_lag_on_failover': 1 << 30, 'synchronous_mode': True, 'synchronous_mode_strict': True}
PARAMETERS = {
    'shared_preload_libraries': 'ttl_docs',
    'ttl_docs.purge_grace': 0,
    'ttl_docs.purge_naptime': '20ms',
    'ttl_docs.purge_batch_size': 100,
    'max_worker_processes': 20,
    'wal_keep_size': '1GB',
    'max_wal_size': '64MB',
    'autovacuum_naptime': '1s',
    'max_standby_streaming_delay': '1s',
    'hot_standby_feedback': 'on',
    'wal_retrieve_retry_interval': '200ms',
    'log_line_prefix': '%m %b[%p] %a ',
    'log_statement': 'none'}
HBA = ['local all all trust', 'local replication all trust',
       'host all all 127.0.0.1/32 scram-sha-256', 'host replication all 127.0.0.1/32 scram-sha-256']


class Member(Server):
    """One server, and the Patroni that controls it."""

    def __init__(self, number, directory, ports):
        super().__init__(os.path.join(directory, 'data'), os.path.join(directory, 'log'))
        self.name = f'node{number}'
        self.directory = directory
        self.port, self.api_port, self.raft_port = ports
        self.patroni = None
        self.clock = 0
        os.makedirs(os.path.join(directory, 'socket'), mode=0o700)

    @property
    def socket(self):
        return os.path.join(self.directory, 'socket')

    # ---- Configuration ----

    def configuration(self, cluster):
        """Patroni reads YAML, and JSON is YAML."""
        return {
            'scope': SCOPE, 'name': self.name,
            'restapi': {
                'listen': f'127.0.0.1:{self.api_port}', 'connect_address': f'127.0.0.1:{self.api_port}',
                'authentication': {'username': SCOPE, 'password': cluster.password}},
            'raft': {
                'data_dir': os.path.join(self.directory, 'raft'), 'self_addr': f'127.0.0.1:{self.raft_port}',
                'partner_addrs': [f'127.0.0.1:{other.raft_port}' for other in cluster.members if other is not self]},
            'bootstrap': {
                'dcs': dict(DCS, postgresql={'use_pg_rewind': True, 'use_slots': True, 'parameters': PARAMETERS}),
                'initdb': [{'encoding': 'UTF8'}, {'locale': 'C'}, 'data-checksums']},
            'postgresql': {
                'listen': f'127.0.0.1:{self.port}', 'connect_address': f'127.0.0.1:{self.port}',
                'data_dir': self.data, 'bin_dir': os.path.dirname(shutil.which('pg_ctl')),
                'pgpass': os.path.join(self.directory, 'pgpass'), 'use_unix_socket': True, 'pg_hba': HBA,
                'parameters': {'unix_socket_directories': self.socket, 'ttl_docs.clock_offset': self.clock},
                'authentication': {
                    'superuser': {'username': os.environ['PGUSER'], 'password': cluster.password},
                    'replication': {'username': 'replicator', 'password': cluster.password}}}}

    def write_configuration(self, cluster):
        path = os.path.join(self.directory, 'patroni.yml')
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 'w', encoding='ascii') as file:
            json.dump(self.configuration(cluster), file)
        return path

    # ---- Processes ----

    def start_patroni(self, cluster):
        path = self.write_configuration(cluster)
        # Our PGHOST is a list of all servers.
        environment = {name: value for name, value in os.environ.items() if not name.startswith('PG')}
        with open(self.log, 'ab') as log:
            self.patroni = subprocess.Popen(['patroni', path], env=environment, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)

    def signal_patroni(self, number):
        self.patroni.send_signal(number)

    def kill_patroni(self):
        self.patroni.kill()
        self.patroni.wait()

    def is_up(self):
        try:
            self.postmaster()
            return True
        except (OSError, ValueError, Wrong):
            return False

    def kill_server(self):
        """Kills the postmaster with all its children."""
        self.kill_all(self.postmaster())

    def stop(self):
        """Stops Patroni, which stops its server."""
        if self.patroni is not None and self.patroni.poll() is None:
            self.patroni.send_signal(signal.SIGCONT)
            self.patroni.terminate()
            try:
                self.patroni.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill_patroni()
        if self.is_up():
            subprocess.run(['pg_ctl', '-D', self.data, '-m', 'immediate', 'stop'], check=False,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def set_clock(self, seconds, cluster):
        """Moves the clock of this server only, and waits until new sessions use it."""
        self.clock = seconds
        self.write_configuration(cluster)
        self.signal_patroni(signal.SIGHUP)
        self.wait_until(f'{self.name} has a clock of {seconds} s', lambda: self.ask(
            "SELECT setting FROM pg_settings WHERE name = 'ttl_docs.clock_offset'") == [(str(seconds),)])

    # ---- Queries ----

    def connect(self):
        connection = psycopg2.connect(host=self.socket, port=self.port, target_session_attrs='any',
                                      application_name='checks')
        connection.autocommit = True
        return connection

    def ask(self, statement, *values):
        """Runs a statement on this server; returns None if there is no connection."""
        try:
            connection = self.connect()
        except psycopg2.OperationalError:
            return None
        try:
            cursor = connection.cursor()
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []
        except psycopg2.OperationalError:
            return None
        finally:
            connection.close()

    def is_primary(self):
        return self.ask('SELECT pg_is_in_recovery()') == [(False,)]

    def count_in_log(self, pattern):
        with open(self.log, encoding='utf-8', errors='replace') as file:
            return len(re.findall(pattern, file.read()))

    # ---- The REST API of Patroni ----

    def request(self, path, data=None, password=''):
        request = urllib.request.Request(
            f'http://127.0.0.1:{self.api_port}/{path}', None if data is None else json.dumps(data).encode('ascii'))
        request.add_header('Authorization', 'Basic ' + base64.b64encode(
            f'{SCOPE}:{password}'.encode('ascii')).decode('ascii'))
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.read().decode('utf-8')


class Cluster:
    """All members, and their roles."""

    def __init__(self, directory, ports):
        self.password = secrets.token_hex(16)
        self.members = [Member(number, os.path.join(directory, f'node{number}'), ports[3 * number:3 * number + 3])
                        for number in range(3)]
        # Every connection of this program finds the primary.
        os.environ.update({
            'PGHOST': ','.join(member.socket for member in self.members),
            'PGPORT': ','.join(str(member.port) for member in self.members),
            'PGTARGETSESSIONATTRS': 'read-write'})

    def start(self):
        for member in self.members:
            member.start_patroni(self)
        self.wait_until_complete()

    def primary(self):
        """Returns the only primary.  There can be two while a Patroni is stopped."""
        primaries = [member for member in self.members if member.is_primary()]
        require(len(primaries) == 1, f'primaries: {[member.name for member in primaries]}')
        return primaries[0]

    def standbys(self):
        primary = self.primary()
        return [member for member in self.members if member is not primary]

    def replication(self):
        """Returns the streaming standbys of the primary by name: are they synchronous?"""
        rows = self.primary().ask("SELECT application_name, sync_state FROM pg_stat_replication"
                                  " WHERE state = 'streaming'")
        return {name: state != 'async' for name, state in rows or []}

    def sync_standby(self):
        names = [name for name, is_sync in self.replication().items() if is_sync]
        return [member for member in self.members if member.name in names][0]

    def is_complete(self):
        """Is there one primary with two standbys, one of them synchronous, and does Patroni know it?"""
        try:
            primary = self.primary()
            standbys = self.replication()
            roles = {row['name']: row['role'] for row in json.loads(primary.request('cluster'))['members']}
        except (Wrong, OSError, ValueError):
            return False
        return (len(standbys) == 2 and any(standbys.values()) and roles.get(primary.name) == 'leader' and
                all(roles.get(name) == 'sync_standby' for name, is_sync in standbys.items() if is_sync))

    def wait_until_complete(self):
        Server.wait_until('there are a primary and two standbys', self.is_complete)

    def wait_for_another_primary(self, old):
        Server.wait_until('another server is the primary',
                          lambda: any(member.is_primary() for member in self.members if member is not old))

    def wait_for_standbys(self):
        """Waits until the standbys have replayed all that the primary has written."""
        (lsn,), = self.primary().ask('SELECT pg_current_wal_insert_lsn()')
        for standby in self.standbys():
            Server.wait_until(f'{standby.name} has replayed {lsn}', lambda standby=standby: standby.ask(
                'SELECT pg_last_wal_replay_lsn() >= %s', lsn) == [(True,)])

    def switch_over(self):
        """Makes the synchronous standby the primary."""
        old, new = self.primary(), self.sync_standby()
        try:
            old.request('switchover', {'leader': old.name, 'candidate': new.name}, self.password)
        except urllib.error.HTTPError as error:
            raise Wrong(f'switchover from {old.name} to {new.name}: {error.read()}') from error
        # Patroni answers when the new primary has the lock, a moment before its promotion ends.
        Server.wait_until(f'{new.name} is the primary', new.is_primary)

    def rewinds(self):
        return sum(member.count_in_log('pg_rewind exit code=0') for member in self.members)

    def copies(self):
        """Returns how often Patroni had to copy a whole server, apart from the first copies."""
        return sum(member.count_in_log('replica has been created using') for member in self.members) - 2

    def stop(self):
        for member in self.members:
            member.stop()


__all__ = ['Cluster', 'Member', 'TTL_OF_LEADER']

"""Adapters: small programs that use one ORM, driver or store as an application would.

An adapter reads calls from its standard input and writes the answers to its standard output, one JSON object a
line:

    {"call": "read", "args": ["a"]}
    {"result": {"id": "a", "owner": "ann", "doc": {}}}
    {"error": {"sqlstate": "23505", "message": "..."}}

behaviours.py and stores.py are lists of tests for all adapters.  The tests move the clock of the whole server,
as a superuser, so an adapter may have a connection pool.
"""
import json
import os
import re
import subprocess
import sys
import unittest


class AdapterError(Exception):
    def __init__(self, error):
        super().__init__(error["message"])
        self.sqlstate = error.get("sqlstate")


class Adapter:
    """The process of an adapter.  Its calls are methods of this object."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __getattr__(self, call):
        def ask(*args):
            print(json.dumps({"call": call, "args": args}), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError(f"the adapter has ended in {call}{args}")
            answer = json.loads(line)
            if "error" in answer:
                raise AdapterError(answer["error"])
            return answer["result"]

        return ask

    def stop(self):
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            # A transaction that a failed test has left open keeps some libraries from ending.
            self.process.kill()
            self.process.wait()


def as_superuser(*commands):
    """Run commands of SQL, each in its own transaction, and return the lines of their output."""
    options = [option for command in commands for option in ("-c", command)]
    psql = ["psql", "-U", "postgres", "-XqAt", "-v", "ON_ERROR_STOP=1", *options]
    # A failed test may have left a transaction open, which locks the tables.
    environment = {**os.environ, "PGOPTIONS": "-c lock_timeout=20s -c client_min_messages=warning"}
    return subprocess.run(psql, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def set_clock(seconds):
    """Move the clock of the server: so many seconds ahead.

    The server signals its sessions before it starts a new one.  So when a new session has the new clock,
    other sessions have it from their next command on.
    """
    as_superuser(f"ALTER SYSTEM SET ttl_docs.clock_offset = {seconds}", "SELECT pg_reload_conf()")
    for _ in range(1000):
        if as_superuser("SELECT setting FROM pg_settings WHERE name = 'ttl_docs.clock_offset'") == [str(seconds)]:
            return
    raise RuntimeError("the server has not moved its clock")


class AdapterTest(unittest.TestCase):
    """Each test begins with empty tables and the real time."""

    TABLES = ""
    # Names of the differences between adapters that the first call returns.
    DIFFERENCES = set()

    @classmethod
    def setUpClass(cls):
        cls.adapter = Adapter(sys.argv[1:])
        cls.differences = cls.adapter.migrate()
        assert set(cls.differences) == cls.DIFFERENCES, cls.differences

    @classmethod
    def tearDownClass(cls):
        cls.adapter.stop()
        set_clock(0)

    def setUp(self):
        set_clock(0)
        as_superuser(f"TRUNCATE {self.TABLES}")

    def assertFails(self, sqlstate, call, *args, message=""):
        with self.assertRaises(AdapterError) as caught:
            call(*args)
        self.assertEqual(caught.exception.sqlstate, sqlstate, str(caught.exception))
        self.assertRegex(str(caught.exception), re.compile(message, re.MULTILINE))

    def on_disk(self, column):
        """The values of a column of the first table, including the expired rows."""
        table = self.TABLES.split(",")[0]
        return as_superuser(f"SET ttl_docs.show_expired = on; SELECT {column} FROM {table} ORDER BY 1")


def main(usage):
    """Run the tests of the calling script with the adapter that its arguments start."""
    if len(sys.argv) < 2:
        sys.exit(usage)
    print(f"== {os.path.basename(sys.argv[-1])}", flush=True)
    unittest.main(argv=sys.argv[:1], verbosity=2)

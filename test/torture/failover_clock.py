"""Measures what a server does that is promoted with a wrong clock.  For failover.py.

ttl_docs.clock_offset in the configuration of one member moves its clock.  docs/operations.md says what an
administrator has to expect, in the section "Clocks of the nodes".  The facts of its table, and the advice for a
slow primary, are checked here.
"""

from crash_server import Server, require

TTL = 1800                      # DefaultTTL of the collection
WRONG = 3600                    # seconds by which a clock is wrong
# Documents by the number of seconds since they were written.  All but "live" have expired, by the right clock.
AGES = {'expired 10 min ago': TTL + 600, 'expired 20 min ago': TTL + 1200, 'expired 2 h ago': TTL + 7200, 'live': 0}


class Clocks:
    """A collection, and the documents that members see in it."""

    def __init__(self, cluster):
        self.cluster = cluster

    def run(self, member, statement, *values):
        connection = member.connect()
        cursor = connection.cursor()
        cursor.execute(statement, values or None)
        rows = cursor.fetchall() if cursor.description else []
        connection.close()
        return rows

    def begin(self):
        """Makes the collection, without a purge, on a primary whose clock is right."""
        primary = self.cluster.primary()
        self.run(primary, f'''
            DROP TABLE IF EXISTS clocks;
            SELECT ttl_docs.create_collection('clocks', {TTL});
            SELECT ttl_docs.pause_purge('clocks')''')
        for name, age in AGES.items():
            self.run(primary, f"SET ttl_docs.clock_offset = {-age}; INSERT INTO clocks VALUES (%s, '{{}}')", name)
        self.cluster.wait_for_standbys()

    def expect(self, what, member, *names):
        self.cluster.wait_for_standbys()
        found = {row[0] for row in self.run(member, 'SELECT id FROM clocks')}
        require(found == set(names), f'clocks: {what}: {sorted(found)} are visible, expected {sorted(names)}')
        print(f'clocks: {what}: {", ".join(sorted(found)) or "nothing"}', flush=True)

    def on_disk(self, member):
        return {row[0] for row in self.run(member, "SET ttl_docs.show_expired = on; SELECT id FROM clocks")}

    def state(self, member):
        (state,), = self.run(
            member, "SELECT state FROM ttl_docs.stat_collections WHERE collection = 'clocks'::regclass")
        return state

    def promote(self, member, clock):
        """Gives the synchronous standby a wrong clock, and makes it the primary."""
        member.set_clock(clock, self.cluster)
        self.cluster.switch_over()
        self.cluster.wait_until_complete()
        require(member.is_primary(), f'{member.name} is not the primary')


def measure_wrong_clocks(cluster):
    measure_slow_clock(Clocks(cluster))
    measure_advice(Clocks(cluster))
    measure_fast_clock(Clocks(cluster))
    measure_start_with_fast_clock(Clocks(cluster))


def measure_slow_clock(clocks):
    clocks.begin()
    old, slow = clocks.cluster.primary(), clocks.cluster.sync_standby()
    clocks.expect('right clock, primary', old, 'live')
    clocks.expect('right clock, standby', slow, 'live')
    slow.set_clock(-WRONG, clocks.cluster)
    clocks.expect('1 h slow, standby', slow, 'live', 'expired 10 min ago', 'expired 20 min ago')

    clocks.promote(slow, -WRONG)
    clocks.expect('1 h slow, promoted', slow, 'live', 'expired 10 min ago', 'expired 20 min ago')
    clocks.run(slow, "INSERT INTO clocks VALUES ('new', '{}')")
    rows = clocks.run(slow, "UPDATE clocks SET doc = doc WHERE id = 'expired 20 min ago' RETURNING id")
    require(len(rows) == 1, 'clocks: a document that has come back cannot be updated')
    clocks.expect('1 h slow, after an INSERT and an UPDATE', slow,
                  'live', 'expired 10 min ago', 'expired 20 min ago', 'new')
    clocks.expect('right clock, standby of a slow primary', old, 'live')

    # The purge goes by the slow clock: it takes no document that is visible there.
    clocks.run(slow, "SELECT ttl_docs.resume_purge('clocks')")
    Server.wait_until('the slow primary has purged', lambda: 'expired 2 h ago' not in clocks.on_disk(slow))
    clocks.expect('1 h slow, after a purge', slow, 'live', 'expired 10 min ago', 'expired 20 min ago', 'new')

    # 11 minutes behind, 5 minutes behind
    slow.set_clock(-660, clocks.cluster)
    clocks.expect('11 min slow', slow, 'live', 'expired 10 min ago')
    slow.set_clock(-300, clocks.cluster)
    clocks.expect('5 min slow', slow, 'live')
    slow.set_clock(0, clocks.cluster)
    clocks.expect('clock set right', slow, 'live')
    left = clocks.on_disk(slow)
    require({'new', 'expired 10 min ago', 'expired 20 min ago'} <= left, f'clocks: purged during the hold: {left}')
    require(clocks.state(slow) == 'clock jump', f'clocks: the state is {clocks.state(slow)}')
    clocks.run(slow, "SELECT ttl_docs.resume_purge('clocks')")
    Server.wait_until('the rest is purged', lambda: clocks.on_disk(slow) == {'live'})


def measure_advice(clocks):
    """A higher DefaultTTL keeps documents that a slow primary has written, when its clock is set right."""
    clocks.begin()
    slow = clocks.cluster.sync_standby()
    clocks.promote(slow, -WRONG)
    clocks.run(slow, "INSERT INTO clocks VALUES ('new', '{}')")
    clocks.run(slow, "SELECT ttl_docs.set_default_ttl('clocks', %s)", TTL + WRONG)
    slow.set_clock(0, clocks.cluster)
    clocks.expect('clock set right, DefaultTTL raised before', slow,
                  'live', 'expired 10 min ago', 'expired 20 min ago', 'new')
    clocks.run(slow, "SELECT ttl_docs.set_default_ttl('clocks', %s)", TTL)


def measure_fast_clock(clocks):
    """A clock that has jumped while the standby was running: the purge is held."""
    clocks.begin()
    clocks.run(clocks.cluster.primary(), "SELECT ttl_docs.resume_purge('clocks')")
    fast = clocks.cluster.sync_standby()
    clocks.promote(fast, WRONG)
    clocks.expect('1 h fast since a jump, promoted', fast)
    Server.wait_until('the purge is held', lambda: clocks.state(fast) == 'clock jump')
    require('live' in clocks.on_disk(fast), 'clocks: purged during the hold')
    fast.set_clock(0, clocks.cluster)
    clocks.expect('clock set right', fast, 'live')


def measure_start_with_fast_clock(clocks):
    """A standby that was started with a fast clock: a promoted server purges."""
    clocks.begin()
    clocks.run(clocks.cluster.primary(), "SELECT ttl_docs.resume_purge('clocks')")
    # Patroni can choose another synchronous standby during a restart, so both have the wrong clock.
    for standby in clocks.cluster.standbys():
        standby.set_clock(WRONG, clocks.cluster)
        standby.request('restart', {}, clocks.cluster.password)
        clocks.cluster.wait_until_complete()
    fast = clocks.cluster.sync_standby()
    clocks.promote(fast, WRONG)
    clocks.expect('1 h fast since its start, promoted', fast)
    Server.wait_until('the fast primary has purged', lambda: clocks.on_disk(fast) == set())
    for member in clocks.cluster.members:
        member.set_clock(0, clocks.cluster)
    clocks.expect('clock set right', fast)

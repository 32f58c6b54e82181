"""Makes a failing history short, and prints it as a script.

Delta debugging: parts of the history are left out, larger ones first, as long
as what remains fails too, until no single step can go.  Any history is valid:
what makes no sense without the steps left out (a COMMIT without its BEGIN) is
left out by the runner.  Then the remaining steps are moved to as few sessions as
will do.  Each try is a run in a fresh schema.  Tables that the rest does not name
are not printed; they are empty.
"""

import copy
import re
import time


def shrink(steps, fails, seconds):
    """The shortest history found within the time for which fails(steps) is true."""
    deadline = time.monotonic() + seconds
    size = max(1, len(steps) // 2)
    while time.monotonic() < deadline:
        shorter = leave_out(steps, size, fails, deadline)
        if len(shorter) == len(steps) and size == 1:
            break
        size = min(max(1, size // 2), max(1, len(shorter) // 2)) if size > 1 else 1
        steps = shorter
    return with_fewer_sessions(steps, fails, deadline)


def leave_out(steps, size, fails, deadline):
    """Leaves out each part of that size that is not needed, the last ones first."""
    end = len(steps)
    while end > 0 and time.monotonic() < deadline:
        start = max(0, end - size)
        candidate = steps[:start] + steps[end:]
        if candidate and fails(candidate):
            steps = candidate
        end = start
    return steps


def with_fewer_sessions(steps, fails, deadline):
    """Gives the steps of one session to another, where that fails too."""
    for source in sorted({s for step in steps for s in step.sessions()}, reverse=True):
        for target in range(source):
            if time.monotonic() >= deadline:
                return steps
            candidate = [moved(step, source, target) for step in steps]
            if fails(candidate):
                steps = candidate
                break
    return steps


def moved(step, source, target):
    step = copy.deepcopy(step)
    step.move(source, target)
    return step


def used_tables(tables, script):
    """The tables that the statements name, and the parents of these."""
    words = {word for _, sql in script for word in re.findall(r'\w+', sql)}
    named = [table for table in tables if table.name in words]
    parents = [table.parent for table in named]
    return [table for table in tables if table in named or table in parents]


def as_script(setup, script):
    """The statements as a script for psql; with several sessions it says whose each is."""
    lines = [statement + ';' for statement in setup]
    several = len({session for session, _ in script} - {None}) > 1
    for session, sql in script:
        if several and session is not None:
            sql = '/* session %s */ %s' % (session, sql)
        lines.append(sql + ('' if sql.startswith('--') else ';'))
    return '\n'.join(lines)

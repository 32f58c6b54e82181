"""Shortens a failing history, and prints it as a script.

This is delta debugging: it leaves out parts of the history, larger parts first, as long as
the rest still fails, until no single step can be left out.  Any list of steps is a valid
history, because the runner skips steps that make no sense (a COMMIT without its BEGIN).
Then it moves the remaining steps to as few sessions as possible.  Each try runs in a new
schema.  Tables that the remaining steps do not name are not printed, because they are empty.
"""

import copy
import re
import time


def shrink(steps, fails, seconds):
    """Returns the shortest history found within the time for which fails(steps) is true."""
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
    """Leaves out each part of that size that is not needed, from the end to the beginning."""
    end = len(steps)
    while end > 0 and time.monotonic() < deadline:
        start = max(0, end - size)
        candidate = steps[:start] + steps[end:]
        if candidate and fails(candidate):
            steps = candidate
        end = start
    return steps


def with_fewer_sessions(steps, fails, deadline):
    """Moves the steps of one session to another, where the history still fails."""
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
    """Returns the tables that the statements name, and their parents."""
    words = {word for _, sql in script for word in re.findall(r'\w+', sql)}
    named = [table for table in tables if table.name in words]
    parents = [table.parent for table in named]
    return [table for table in tables if table in named or table in parents]


def as_script(setup, script):
    """Returns a script for psql.  With several sessions, a comment names the session of each statement."""
    lines = [statement + ';' for statement in setup]
    several = len({session for session, _ in script} - {None}) > 1
    for session, sql in script:
        if several and session is not None:
            sql = '/* session %s */ %s' % (session, sql)
        lines.append(sql + ('' if sql.startswith('--') else ';'))
    return '\n'.join(lines)

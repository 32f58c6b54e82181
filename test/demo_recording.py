#!/usr/bin/env python3
"""Records the demo as an animated picture ("make demo-recording").

	test/demo_recording.py          runs the demo in a terminal, writes docs/demo.svg, stops the demo

The picture shows the real output, line by line as it was printed.  Only the time between two lines is
changed: a pause of the demo takes LONGEST_PAUSE seconds at most, and the next step does not begin before
one can have read the step before it.

The picture is a plain SVG with CSS animations.  It has no script and no font, so it also works as an
<img>.  A reader who has turned animations off sees the end of the demo.

test/t/031_demo.pl fails if test/demo.sql and the picture differ.
"""

import fcntl
import html
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time

REPO = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEMO = os.path.join(REPO, "test", "demo.sh")
PICTURE = os.path.join(REPO, "docs", "demo.svg")

# The terminal.
COLUMNS = 96
ROWS = 34

# Seconds.
LONGEST_PAUSE = 2.0
READING_A_LINE = 0.22
AT_THE_END = 8.0
# Lines that are printed within this time appear together.
TOGETHER = 0.05

# Pixels.
FONT_SIZE = 13
CHARACTER_WIDTH = 7.9
LINE_HEIGHT = 18
MARGIN = 16
# From the baseline of a line to its lower end.
DESCENT = 5

SGR = re.compile(r"\x1b\[([0-9;]*)m")
STEP = "-- "


def run_in_terminal(command):
    """Runs a command.  Returns its lines, each as (seconds, text with escape sequences)."""
    lines, rest = [], b""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(REPO)
        os.environ["TERM"] = "xterm-256color"
        os.environ.pop("NO_COLOR", None)
        # The demo asks no question if nobody can answer.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    start = time.monotonic()
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the terminal is closed
            break
        if not data:
            break
        now = time.monotonic() - start
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        *complete, rest = (rest + data).split(b"\n")
        lines += [(now, line.decode().rstrip("\r")) for line in complete]
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0:
        sys.exit(f"error: the demo failed with status {status}")
    return lines


def plain(text):
    return SGR.sub("", text)


def bursts_of(lines):
    """Groups lines that appear together.  Returns the bursts as (seconds, lines), with the new times."""
    bursts = []
    printed = shown = 0.0  # when the line before was printed, and when the picture shows it
    unread = 0  # lines of the current step
    for seconds, text in lines:
        pause = min(seconds - printed, LONGEST_PAUSE)
        printed = seconds
        if plain(text).startswith(STEP):
            pause = max(pause, min(unread * READING_A_LINE, LONGEST_PAUSE))
            unread = 0
        unread += 1
        shown += pause
        if bursts and pause < TOGETHER:
            bursts[-1][1].append(text)
        else:
            bursts.append((shown, [text]))
    return bursts


def text_element(number, text):
    """One line of the terminal."""
    if not text:
        return ""
    style = ' class="c"' if SGR.search(text) else ""
    return f'<text y="{number * LINE_HEIGHT - DESCENT}"{style}>{html.escape(plain(text).rstrip(), quote=False)}</text>'


def picture_of(bursts):
    length = bursts[-1][0] + AT_THE_END
    width = round(COLUMNS * CHARACTER_WIDTH) + 2 * MARGIN
    height = ROWS * LINE_HEIGHT + 2 * MARGIN
    rules, scroll, groups = [], [], []
    number = 0
    for index, (seconds, lines) in enumerate(bursts):
        elements = []
        for text in lines:
            number += 1
            elements.append(text_element(number, text))
        groups.append(f'<g class="b{index}">' + "\n".join(filter(None, elements)) + "</g>")
        percent = f"{100 * seconds / length:.2f}%"
        rules.append(f"@keyframes b{index}{{0%{{opacity:0}}{percent}{{opacity:1}}}}.b{index}{{animation-name:b{index}}}")
        up = -max(0, number - ROWS) * LINE_HEIGHT
        scroll.append(f"{percent}{{transform:translateY({up}px)}}")
    newline = "\n"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-labelledby="title desc">
<!-- Made by "make demo-recording".  Do not edit. -->
<title id="title">Recording of make demo</title>
<desc id="desc">A terminal runs the demo of ttl_docs. A row expires: no query finds it, but it is still on disk. A plain INSERT takes its key. A touch keeps another row alive. An existing table is adopted. At the end a background worker has deleted all expired rows.</desc>
<style>
text{{font:{FONT_SIZE}px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace;fill:#d6dbe1;white-space:pre}}
.c{{fill:#6fd3e3;font-weight:bold}}
.s{{transform:translateY({up}px)}}
.s,.s g{{animation-duration:{length:.1f}s;animation-timing-function:step-end;animation-iteration-count:infinite}}
.s{{animation-name:s}}
@keyframes s{{0%{{transform:translateY(0)}}{"".join(scroll)}}}
{newline.join(rules)}
@media (prefers-reduced-motion:reduce){{.s,.s g{{animation:none!important}}}}
</style>
<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="#171b21" stroke="#6b7280"/>
<svg x="{MARGIN}" y="{MARGIN}" width="{width - 2 * MARGIN}" height="{ROWS * LINE_HEIGHT}"><g class="s" xml:space="preserve">
{newline.join(groups)}
</g></svg>
</svg>
"""


def main():
    subprocess.run([DEMO, "stop"], check=True)
    try:
        lines = run_in_terminal([DEMO])
    finally:
        subprocess.run([DEMO, "stop"], check=True)
    too_long = [text for _, text in lines if len(plain(text)) > COLUMNS]
    if too_long:
        sys.exit("error: lines do not fit into the picture:\n" + "\n".join(too_long))
    picture = picture_of(bursts_of([(0.0, "$ make demo")] + lines))
    with open(PICTURE, "w", encoding="utf-8") as file:
        file.write(picture)
    print(f"wrote {os.path.relpath(PICTURE, REPO)}, {len(picture.encode())} bytes")


main()

#!/usr/bin/python3
"""Checks which part of the source includes which, as src/README.md shows it.

A part is a directory of src.  It may include its own headers and the public header of
each part below it.  Headers named *_internal.h belong to the part alone.  purge/notify.h is what
lower parts may tell the purge, so collection, access and write may include it.
citus/citus.h is what every part above core may ask about Citus; the other files of citus
are on top.  The .c files in src itself may include every public header; the headers in src include nothing
of ours.  Prints each include that breaks a rule, and exits with 1 if there is one.
"""

import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src"

# Each part, and the parts that it may use.
BELOW = {
    "core": [],
    "collection": ["core"],
    "access": ["core", "collection"],
    "write": ["core", "collection", "access"],
    "purge": ["core", "collection", "access", "write"],
    "online": ["core", "collection", "access", "write", "purge"],
    "document": ["core", "collection", "access", "write", "purge", "online"],
    "citus": ["core", "collection", "access", "write", "purge"],
}
QUESTIONS = "citus/citus.h"
MAY_ASK = ["collection", "access", "write", "purge", "online", "document"]
NOTIFY = "purge/notify.h"
MAY_NOTIFY = ["collection", "access", "write"]
VOCABULARY = ["ttl_docs.h", "compat.h"]
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def is_ours(header):
    return (SOURCE / header).is_file()


def may_include(file, header):
    """May the file include that header of ours?  Both are relative to src."""
    part = file.parent.name
    of_part, _, name = header.rpartition("/")
    if not part:
        return file.suffix == ".c" and not name.endswith("_internal.h")
    if header in VOCABULARY or of_part == part:
        return True
    if header == NOTIFY and part in MAY_NOTIFY:
        return True
    if header == QUESTIONS and part in MAY_ASK:
        return True
    return of_part in BELOW[part] and name == of_part + ".h"


def main():
    broken = 0
    for path in sorted(SOURCE.rglob("*.[ch]")):
        file = path.relative_to(SOURCE)
        if file.parent.name and file.parent.name not in BELOW:
            print(f"src/{file}: {file.parent} is not a part that test/layers.py knows")
            broken += 1
            continue
        for header in INCLUDE.findall(path.read_text()):
            if is_ours(header) and not may_include(file, header):
                print(f"src/{file} may not include {header}")
                broken += 1
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

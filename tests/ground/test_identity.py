"""Fresh ids."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid

from maka_trio.facts.identity import new_id

MANY = 2000


def test_an_id_is_a_random_uuid() -> None:
    """Version 4 and its variant stand where they belong, in the usual spelling."""
    for _ in range(MANY):
        text = new_id()
        parsed = uuid.UUID(text)
        assert (parsed.version, parsed.variant, str(parsed)) == (4, uuid.RFC_4122, text)


def test_no_id_comes_twice() -> None:
    """Also not where threads ask at once."""
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.extend([new_id() for _ in range(MANY)])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 4 * MANY


def test_every_bit_that_may_vary_does() -> None:
    """122 bits are random."""
    ids = [uuid.UUID(new_id()).int for _ in range(MANY)]
    ones, zeros = 0, 0
    for value in ids:
        ones |= value
        zeros |= ~value
    fixed = (0xF << 76) | (0b11 << 62)
    assert (ones & zeros) | fixed == (1 << 128) - 1


FORKED = f"""
import os
from maka_trio.facts.identity import new_id
new_id()
child = os.fork()
if child:
    os.waitpid(child, 0)
    print(*[new_id() for _ in range({MANY})])
else:
    print(new_id(), flush=True)
"""
"""A program of its own: a process with threads is not to be forked."""


def test_a_forked_child_has_ids_of_its_own() -> None:
    """What the parent had drawn ahead is not given out by the child as well."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True)
    from_child, *from_parent = done.stdout.split()
    assert len(from_parent) == MANY
    assert from_child not in from_parent

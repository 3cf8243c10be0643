"""The time of an import, and the distributions that stand behind one.

Time is taken in interpreters of their own that find all byte code ready, as it is after an installation; a first one
has made it, in a folder of the benchmark's own. The fastest counts: what else the machine does can only add to it.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys

from pip._vendor.packaging.requirements import Requirement  # every environment has it, and its rules are the rules

from benchmarks.sample import report, workplace

TRIES = 5


def main(statement: str, distributions: str) -> None:
    """Time the import, then look at the distributions."""
    seconds_of(statement)
    seconds = min(seconds_of(statement) for _ in range(TRIES))
    found: set[str] = set()
    for distribution in distributions.split():
        collect(distribution, found)
    size = sum(size_of(name) for name in found)
    report(cost=seconds, ms=seconds * 1e3, distributions=len(found), mb=size / 1e6)


def seconds_of(statement: str) -> float:
    """How long an import takes in a fresh interpreter. It leaves byte code behind."""
    code = f"import time; begun = time.perf_counter(); {statement}; print(time.perf_counter() - begun)"
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    where = {"PYTHONPYCACHEPREFIX": str(workplace() / "bytecode")}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=kept | where)
    return float(done.stdout)


def collect(requirement: str, found: set[str]) -> None:
    """Add a distribution and, recursively, those it requires here with the extras that are asked for."""
    asked = Requirement(requirement)
    name = re.sub(r"[-_.]+", "-", asked.name).lower()
    if name in found and not asked.extras:
        return
    found.add(name)
    for text in importlib.metadata.requires(name) or ():
        needed = Requirement(text)
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *asked.extras)):
            needed.marker = None
            collect(str(needed), found)


def size_of(name: str) -> int:
    """Bytes of a distribution's files, byte code apart."""
    files = importlib.metadata.files(name) or ()
    paths = [file.locate() for file in files if "__pycache__" not in file.parts]
    return sum(path.stat().st_size for path in paths if path.is_file())  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

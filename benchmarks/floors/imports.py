"""The time of an import, and the distributions that stand behind one."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sys
import time

from pip._vendor.packaging.requirements import Requirement  # every environment has it, and its rules are the rules

from benchmarks.sample import report


def main(modules: str, distributions: str) -> None:
    """Import the modules, then look at the distributions."""
    begun = time.perf_counter()
    for module in modules.split():
        importlib.import_module(module)
    seconds = time.perf_counter() - begun
    found: set[str] = set()
    for distribution in distributions.split():
        collect(distribution, found)
    size = sum(size_of(name) for name in found)
    report(cost=seconds, ms=seconds * 1e3, distributions=len(found), mb=size / 1e6)


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

"""What every contender uses, ours and others': a stopwatch, a folder on the disk, the one line that it prints.

Standard library only, because peers run it in interpreters of their own.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Stopwatch:
    """Wall time and CPU time of this process, from when it was made until it is stopped."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu = 0.0
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def stop(self) -> None:
        """The end. A second call changes nothing."""
        if not self.seconds:
            self.seconds = time.perf_counter() - self._wall
            self.cpu = time.process_time() - self._cpu

    def report(self, count: int, **figures: float) -> None:
        """Stop, and print `count` as rates per wall second and per CPU second."""
        self.stop()
        report(rate=count / self.seconds, cpu_rate=count / self.cpu, peak_mb=peak_mb(), **figures)

    def report_all(self, count: int) -> None:
        """The same, with the seconds of the whole and CPU microseconds of each."""
        self.stop()
        self.report(count, cpu_us=self.cpu / count * 1e6, seconds=self.seconds)


def warm_up_url(url: str) -> str:
    """The address of a loop of two steps, or of a stream of one delta, to be made before the clock runs.

    First runs compile and connect. Floors have nothing to compile, and begin cold where that is to their advantage.
    """
    url = re.sub(r"/loop/\d+/", "/loop/2/", url)
    return re.sub(r"/(stream|paced)/\d+/(\d+)/\w+/", r"/stream/1/\2/event/", url)


def report(**figures: float) -> None:
    """Print a sample; the last line of a contender's output."""
    print(json.dumps(figures))


def peak_mb() -> float:
    """Peak resident memory of this process in MB. What `getrusage` says counts the parent before the `exec` too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def resident_kb() -> float:
    """Resident memory of this process now in KB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024


def size_kb(folder: Path) -> float:
    """Size of all files of a folder in KB."""
    return sum(path.stat().st_size for path in folder.iterdir()) / 1024


def workplace() -> Path:
    """The folder for all that benchmarks leave or need, beside the package; Git ignores what is in it."""
    place = Path(__file__).parents[1] / ".bench"
    place.mkdir(exist_ok=True)
    (place / ".gitignore").write_text("*\n")
    return place


@contextmanager
def folder() -> Iterator[Path]:
    """A folder on the disk that the checkout is on, which is not a memory file system."""
    path = Path(tempfile.mkdtemp(dir=workplace()))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def median(values: list[float]) -> float:
    """The median."""
    return quantile(values, 0.5)


def quantile(values: list[float], part: float) -> float:
    """The value below which a part of them lies."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]

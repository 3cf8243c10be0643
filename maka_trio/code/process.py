"""A worker's process as the kernel sees it: its limits, what it wrote, its end. Synchronous; knows no interpreter."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Final

from maka_trio.code.cell_limits import CellLimits
from maka_trio.limits import MIB

_SPARE_SECONDS: Final = 1
"""Processor time besides the program's own. The interpreter's limit comes first; this one holds when we are gone."""

_SPARE_ADDRESS_SPACE: Final = 1024 * MIB
_DESCRIPTORS: Final = 16


class WorkerProcess:
    """A process that is ours to end, held by a descriptor, so that a kill never meets another one of its number.

    Args:
        pid: a child of this process that nobody has waited for yet.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._lock = threading.Lock()
        self._handle: int | None = os.pidfd_open(pid) if sys.platform == "linux" else None
        self._closed = False
        self._accounts: int | None = None
        with suppress(OSError):
            self._accounts = os.open(f"/proc/{pid}/io", os.O_RDONLY | os.O_CLOEXEC)

    def bound(self, limits: CellLimits) -> None:
        """Set the kernel's limits, where it lets us: processor time, address space, descriptors, no core."""
        if sys.platform != "linux":
            return
        import resource  # there is none on every platform

        bounds = {
            resource.RLIMIT_CPU: math.ceil(limits.execution_seconds) + _SPARE_SECONDS,
            resource.RLIMIT_AS: 4 * limits.memory_bytes + _SPARE_ADDRESS_SPACE,
            resource.RLIMIT_NOFILE: _DESCRIPTORS,
            resource.RLIMIT_CORE: 0,
        }
        for kind, value in bounds.items():
            resource.prlimit(self.pid, kind, (value, value))

    def bytes_written(self) -> int:
        """What the process has written so far; 0 where the system does not tell, or the process is gone."""
        if self._accounts is not None:
            with suppress(OSError):
                for line in os.pread(self._accounts, 512, 0).splitlines():
                    if line.startswith(b"wchar:"):
                        return int(line[6:])
        return 0

    def kill(self) -> None:
        """SIGKILL, if it still runs. From any thread."""
        with self._lock, suppress(ProcessLookupError):
            if self._closed:
                return
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            else:
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go of it. Idempotent."""
        with self._lock:
            self._closed = True
            held = [self._handle, self._accounts]
            self._handle = self._accounts = None
        for descriptor in held:
            if descriptor is not None:
                os.close(descriptor)

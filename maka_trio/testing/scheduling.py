"""Runs an async function under a scheduler of our own: the one place that uses trio's private names.

A run is a pure function of the program and the order that `Order` decides: batches of ready tasks are put in order
by it alone, time is virtual and moves only when every task waits, ids and chance come from the seed.
Nothing here knows what the run is for. What waits for a thread, or for a socket of the operating system, is taken
to wait for ever.

Virtual are trio's clock and the functions of `time` that tell a time: all of them show the same seconds. Seeded are
`random`, `secrets`, `os.urandom` and `uuid.uuid4`. Both holds for whoever looks the function up in its module while
the run lasts (`time.monotonic()`, not a name imported before). Not replaced are `datetime.now`, which asks the
operating system by itself, `uuid.uuid1`, `time.sleep`, the order of sets of text, which follows the process's
PYTHONHASHSEED, and that of sets of objects, which follows their addresses.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Generator, MutableSequence, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

import trio
from trio._core import _run

from maka_trio.errors import InvalidInput
from maka_trio.facts import identity

Task: TypeAlias = trio.lowlevel.Task

_PRIVATE_NAMES = ("_ALLOW_DETERMINISTIC_SCHEDULING", "_r", "GLOBAL_RUN_CONTEXT")
_TASK_NAMES = ("_counter", "_cancel_status", "_next_send")
_RUNNER_NAMES = ("init_task", "main_task", "system_nursery", "entry_queue", "waiting_for_idle")
_EPOCH = 1_700_000_000.0


class UnsupportedTrio(RuntimeError):
    """This trio has lost a private name that deterministic runs need."""


class HardStop(Exception):
    """A run could not be ended by cancelling it, and was abandoned where it stood."""


def require_supported_trio() -> None:
    """Raise UnsupportedTrio if this trio cannot be scheduled; names what is missing."""
    missing = [name for name in _PRIVATE_NAMES if not hasattr(_run, name)]
    missing += [f"Task.{name}" for name in _TASK_NAMES if name not in dir(Task)]
    missing += [f"Runner.{name}" for name in _RUNNER_NAMES if name not in dir(_run.Runner)]
    if missing:
        raise UnsupportedTrio(
            f"maka_trio.testing cannot schedule trio {trio.__version__}: it has no {', '.join(missing)}. "
            "Use a trio release that this version of maka_trio was tested with."
        )


class Order(Protocol):
    """Decides in which order ready tasks run. `random.Random` is one."""

    def shuffle(self, batch: MutableSequence[Any], /) -> None:
        """Put a batch of ready tasks in order. The batch comes sorted by age, and is run from its end."""
        ...


# --- time and identity ---------------------------------------------------------------------------------------


class VirtualClock(trio.abc.Clock):
    """A clock that stands while anything can run, and jumps to the next deadline when nothing can.

    Args:
        on_stuck: called when nothing can run and no deadline is set: without help the run waits for ever.
    """

    def __init__(self, on_stuck: Callable[[], None]) -> None:
        self._now = 0.0
        self._on_stuck = on_stuck
        self._stop: HardStop | None = None

    @property
    def now(self) -> float:
        """Virtual seconds since the run began."""
        return self._now

    def start_clock(self) -> None:
        """Called by trio."""

    def current_time(self) -> float:
        """Virtual seconds since the run began."""
        if self._stop is not None and not trio.lowlevel.in_trio_task():
            # The run loop asks for the time in every round, outside every task: an error there ends the run.
            raise self._stop
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Called by trio when no task is ready."""
        if deadline <= self._now or _somebody_is_about_to_wake():
            # Trio then waits for its own wakeup, or wakes those in `wait_all_tasks_blocked`.
            return 0 if deadline <= self._now else math.inf
        if math.isinf(deadline):
            self._on_stuck()
        else:
            self._now = deadline
        return 0

    def stop_hard(self, why: str) -> None:
        """End the run in its next round, whatever its tasks do."""
        self._stop = HardStop(why)


def _somebody_is_about_to_wake() -> bool:
    waiting_for_idle = _run.GLOBAL_RUN_CONTEXT.runner.waiting_for_idle
    return bool(waiting_for_idle) or trio.lowlevel.current_statistics().run_sync_soon_queue_size > 0


_READING = 1_000
"""Nanoseconds by which every reading of a clock is later than the one before: who waits by reading gets somewhere."""


class _Clocks:
    """The functions of `time`, showing virtual time."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._readings = 0

    def monotonic_ns(self) -> int:
        self._readings += 1
        return int(self._clock.now * 1e9) + self._readings * _READING

    def time_ns(self) -> int:
        return int(_EPOCH * 1e9) + self.monotonic_ns()

    def monotonic(self) -> float:
        return self.monotonic_ns() / 1e9

    def time(self) -> float:
        return self.time_ns() / 1e9


def _replacements(seed: int, clock: VirtualClock) -> list[tuple[Any, str, Callable[..., object]]]:
    ids, clocks = random.Random(seed), _Clocks(clock)
    return [
        (identity, "random_hex", lambda: f"{ids.getrandbits(128):032x}"),
        (uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4)),
        (os, "urandom", ids.randbytes),
        (random, "_urandom", ids.randbytes),  # what `secrets` draws from
        (time, "time_ns", clocks.time_ns),
        (time, "time", clocks.time),
        (time, "monotonic_ns", clocks.monotonic_ns),
        (time, "monotonic", clocks.monotonic),
        (time, "perf_counter_ns", clocks.monotonic_ns),
        (time, "perf_counter", clocks.monotonic),
    ]


@contextmanager
def _seeded_world(seed: int, clock: VirtualClock) -> Generator[None, None, None]:
    """Ids and chance follow from the seed, and every clock shows virtual time."""
    replaced = [entry for entry in _replacements(seed, clock) if hasattr(entry[0], entry[1])]
    originals = [getattr(module, name) for module, name, _ in replaced]
    state = random.getstate()
    for module, name, replacement in replaced:
        setattr(module, name, replacement)
    random.seed(seed)
    try:
        yield
    finally:
        for (module, name, _), original in zip(replaced, originals, strict=True):
            setattr(module, name, original)
        random.setstate(state)


# --- running -------------------------------------------------------------------------------------------------


@contextmanager
def _ordered_by(order: Order) -> Generator[None, None, None]:
    module: Any = _run
    before = module._ALLOW_DETERMINISTIC_SCHEDULING, module._r
    module._ALLOW_DETERMINISTIC_SCHEDULING, module._r = True, order
    try:
        yield
    finally:
        module._ALLOW_DETERMINISTIC_SCHEDULING, module._r = before


@contextmanager
def _no_collections() -> Generator[None, None, None]:
    """Finalizers run at moments that no seed decides, so the collector stays away."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def run_scheduled(
    main: Callable[[], Awaitable[None]],
    *,
    order: Order,
    seed: int,
    clock: VirtualClock,
    instrument: trio.abc.Instrument,
) -> BaseException | None:
    """Run `main` under this order, clock and instrument; return what it raised, or None.

    KeyboardInterrupt and SystemExit pass through. No other trio may run in the process meanwhile: what decides the
    order is one for all.

    Raises:
        InvalidInput: called from within a trio run.
    """
    if trio.lowlevel.in_trio_run():
        raise InvalidInput("explored runs are started where no trio runs: in a plain function, not in an async one")
    with _ordered_by(order), _seeded_world(seed, clock), _no_collections():
        try:
            trio.run(main, clock=clock, instruments=[instrument])
        except (KeyboardInterrupt, SystemExit):
            raise
        except trio.TrioInternalError as error:
            return error.__cause__ if isinstance(error.__cause__, HardStop) else error
        except BaseException as error:  # noqa: ASYNC103  # outside every run: a Cancelled is a result as any other
            return error  # noqa: ASYNC104
    return None


# --- looking at tasks ----------------------------------------------------------------------------------------


def has_nothing_to_do(task: Task) -> bool:
    """Whether a task, about to run or to wait, is one of trio's own two and does nothing for the program.

    One holds the run together. The other makes the callbacks of `run_sync_soon`, and takes part while it has any.
    Tasks of `spawn_system_task` are the program's. Must be called in the run.
    """
    nursery = task.parent_nursery
    if nursery is None:
        return True
    runner = _run.GLOBAL_RUN_CONTEXT.runner
    if nursery.parent_task is not runner.init_task or task is runner.main_task or nursery is runner.system_nursery:
        return False
    return runner.entry_queue.size() == 0


def cancelled_scope_reaching(task: Task) -> trio.CancelScope | None:
    """The innermost scope whose own cancellation the task, about to run, is given. None if it is given none."""
    if not isinstance(getattr(task._next_send, "error", None), trio.Cancelled):
        return None
    status: Any = task._cancel_status
    while status is not None:
        if status._scope.cancel_called:
            scope: trio.CancelScope = status._scope
            return scope
        status = status._parent
    return None


def abandon_run() -> None:
    """Keep everything of the current run alive until the process ends.

    A run that is stopped where it stands leaves suspended coroutines. To free one is to close it, which runs its
    cleanup outside trio. So they are never freed, not even when the interpreter shuts down and drops every reference:
    one reference to the run is leaked on purpose. Must be called in the run.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_run.GLOBAL_RUN_CONTEXT.runner))


def drop_shields(tasks: Sequence[Task]) -> None:
    """Take every shield away from around these tasks, so that a cancelled root reaches them."""
    for task in tasks:
        status: Any = task._cancel_status
        while status is not None:
            status._scope.shield = False
            status = status._parent

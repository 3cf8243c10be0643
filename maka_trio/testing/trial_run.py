"""Runs a scenario once, deterministically, to whatever end it comes, and says what the run showed."""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Awaitable, Callable, Generator, Iterable

import trio

from maka_trio.records import frozen
from maka_trio.testing.fault_points import FaultPoints
from maka_trio.testing.memory_network import MemoryNetwork
from maka_trio.testing.orders import Decisions
from maka_trio.testing.places import where_it_stands
from maka_trio.testing.scheduling import HardStop, Order, VirtualClock, abandon_run, drop_shields, run_scheduled
from maka_trio.testing.stepper import CountsTask, Moment, Stepper, Trace
from maka_trio.testing.trial import Check, Point, Scenario, Shot, Trial, TrialState, check_name

MAX_STEPS = 100_000
"""Steps after which a run is taken for endless. Scenarios have tens to thousands."""


@frozen
class TrialResult:
    """What one run showed.

    Attributes:
        trace: the steps it made; equal traces are equal runs.
        points: the moments after the last shot at which something could have been cancelled.
        shot_at: where the task of each shot that found its moment stood.
        violations: sentences, from checks and from the laboratory itself.
        story: the steps in words, if they were asked for.
        unfinished: how far the run had come when its time was up; None if it came to an end. What it would have
            broken is not known: its violations are those that it had reported by itself.
    """

    trace: Trace
    points: tuple[Point, ...]
    shot_at: tuple[str, ...]
    violations: tuple[str, ...]
    story: tuple[Moment, ...] = ()
    unfinished: str | None = None


def run_trial(
    scenario: Scenario,
    *,
    seed: int = 0,
    shots: tuple[Shot, ...] = (),
    order: Order | None = None,
    counts: CountsTask = lambda task: True,
    max_steps: int = MAX_STEPS,
    name_points: bool = True,
    tell: bool = False,
    ends: float = math.inf,
) -> TrialResult:
    """Run a scenario once. Must be called where no trio runs.

    Args:
        scenario: an async function of a `Trial`.
        seed: decides the schedule, unless `order` does, and ids, times and `random`.
        shots: the cancels to make, in order.
        order: a schedule of one's own.
        counts: which tasks' steps are points.
        max_steps: a run that makes more is ended and reported.
        name_points: fill `points` of the result.
        tell: fill `story` of the result.
        ends: when the run is stopped, by `time.perf_counter`. Looked at after each step, so that one that never comes
            to a checkpoint is not stopped.
    """
    state = TrialState()
    trial = Trial(seed, state)
    stepper = Stepper(state, shots, counts, max_steps, name_points, tell, ends)
    if isinstance(order, Decisions):
        stepper.decided = lambda: len(order.made)
    world = World(stepper)

    async def main() -> None:
        await scenario(trial)

    error = world.run(main, order=order or random.Random(seed), seed=seed)
    return TrialResult(
        trace=stepper.trace,
        points=tuple(stepper.points),
        shot_at=tuple(stepper.shot_at),
        violations=tuple(all_violations(world, error, state)),
        story=tuple(stepper.story),
        unfinished=world.late,
    )


class World:
    """What one run lives in: its clock, its network, its root scope, and the means to end it.

    A run that does not end by itself is ended by cancelling all of it, then without its shields, then by force.

    Args:
        stepper: watches the run.
        faults: what its sockets ask whether they fail.
    """

    def __init__(self, stepper: Stepper, faults: FaultPoints | None = None) -> None:
        self.network = MemoryNetwork() if faults is None else MemoryNetwork(faults.at_operation)
        self.clock = VirtualClock(self._stuck)
        self._stepper = stepper
        self._root = trio.CancelScope()
        self._efforts = 0
        self._endless: str | None = None
        self._late: str | None = None
        self._stated: tuple[str, ...] = ()
        stepper.on_runaway = self._runaway
        stepper.on_late = self._time_is_up

    def run(self, main: Callable[[], Awaitable[None]], *, order: Order, seed: int) -> BaseException | None:
        """Run `main` in this world; return what it raised."""

        async def in_this_world() -> None:
            self.network.install()
            self._stepper.main = trio.lowlevel.current_task()
            with self._root:
                await main()

        error = run_scheduled(in_this_world, order=order, seed=seed, clock=self.clock, instrument=self._stepper)
        if not self._stepper.watched_all and not isinstance(error, HardStop):
            # A run that was watched in part only must not pass for one in which nothing was found.
            return RuntimeError("the laboratory's own instrument failed; trio's log says why")
        return error

    def stop(self, why: str) -> None:
        """Stop everything where it stands. Nothing of the run goes on, its cleanup included."""
        abandon_run()
        self.clock.stop_hard(why)

    @property
    def late(self) -> str | None:
        """How far the run had come when its time was up, if it was."""
        return self._late

    @property
    def was_ended(self) -> bool:
        """Whether the run had to be ended. What it shows after that comes from having been ended."""
        return self._endless is not None or self._late is not None

    def ending(self, error: BaseException | None) -> list[str]:
        """What is wrong with how the run ended, given what it raised."""
        if self.was_ended:
            return [*([] if self._endless is None else [self._endless]), *self._stated]
        found = [] if error is None else [f"the scenario raised {describe(error)}"]
        return [*found, *(f"{socket!r} was left open" for socket in self.network.open_sockets)]

    def _stuck(self) -> None:
        self._end("waits for ever")

    def _runaway(self) -> None:
        self._end(f"made {len(self._stepper.trace)} steps and does not end")

    def _time_is_up(self) -> None:
        if not self.was_ended:
            self._late = f"after {len(self._stepper.trace)} steps of a run: {self._places()}"
        self._end("")

    def _end(self, what: str) -> None:
        if not self.was_ended:
            self._endless = f"the run {what}: {self._places()}"
        self._efforts += 1
        if self._efforts == 1:
            self._stated = self._stepper.stated
            self._root.cancel()
        elif self._efforts == 2:
            drop_shields(self._stepper.tasks())
        else:
            self.stop(self._endless or "out of time")

    def _places(self) -> str:
        return "; ".join(sorted({where_it_stands(task) for task in self._stepper.tasks()}))


def all_violations(world: World, error: BaseException | None, state: TrialState) -> Generator[str, None, None]:
    """What is wrong with a run, now that it is over."""
    yield from world.ending(error)
    if not world.was_ended:
        yield from findings(state)


def findings(state: TrialState) -> Generator[str, None, None]:
    """What the scenario reported, and what its checks find."""
    yield from state.violations
    for check in state.checks:
        yield from run_check(check)


def run_check(check: Check) -> Iterable[str]:
    """What a check finds, in sentences."""
    name = check_name(check)
    try:
        answer: object = check()
        found = _sentences(answer)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: ASYNC103  # test frameworks fail with exceptions that are no `Exception`
        return [f"the check {name} raised {describe(error)}"]  # noqa: ASYNC104
    if found is None:
        kind = type(answer).__name__
        return [f"the check {name} returned a value of type {kind}: it may return None, a bool, or sentences"]
    return (words or f"the check {name} does not hold" for words in found)


def _sentences(answer: object) -> list[str] | None:
    """What an answer says: nothing, one empty sentence for a no, or what it says. None if it is no answer."""
    if answer is None or isinstance(answer, bool):
        return [] if answer is not False else [""]
    if isinstance(answer, str):
        return [answer]
    if inspect.iscoroutine(answer):
        answer.close()  # it will not be awaited, and that is said once
    found = list(answer) if isinstance(answer, Iterable) and not isinstance(answer, bytes) else [answer]
    words = [item for item in found if isinstance(item, str)]
    return words if len(words) == len(found) else None


def describe(error: BaseException) -> str:
    """An exception in one line, a group with what is in it."""
    if isinstance(error, BaseExceptionGroup):
        return f"{type(error).__name__}({', '.join(describe(inner) for inner in error.exceptions)})"
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

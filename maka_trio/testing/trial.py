"""What an explored scenario is given: a `Trial`, on which it marks what may be cancelled and says what must hold.

Between two of its checkpoints a task is alone. So all moments at which one task can cancel another are the moments
right after some task's step, and a scenario that was cancelled after step n, for every n, was cancelled everywhere.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Literal, TypeAlias

import attrs
import trio

from maka_trio.errors import InvalidInput
from maka_trio.records import define, frozen
from maka_trio.testing.places import place_in, where_called_from

How: TypeAlias = Literal["cancel", "deadline"]
"""The ways to cancel a target: by a call, or by letting its deadline pass."""

Check: TypeAlias = Callable[[], Iterable[str] | str | bool | None]
"""Says what is wrong: a sentence or several, or False. None and True are well, and nothing else is an answer."""


def check_name(check: object) -> str:
    """A check's name; a lambda's with the line where it stands."""
    name: str = getattr(check, "__qualname__", type(check).__qualname__)
    code = getattr(check, "__code__", None)
    if code is None or not name.endswith("<lambda>"):
        return name
    return f"{name} ({place_in(code.co_filename)}:{code.co_firstlineno})"


Scenario: TypeAlias = "Callable[[Trial], Awaitable[None]]"
"""The program that is explored. It keeps no state of its own between runs."""


@frozen(order=True)
class Shot:
    """One disturbance of a run: of `target`, at `step`, the way `how` says.

    A cancel comes right after that step of the run. A crash or a fault comes at that commit or fault point, counted
    among its kind; the kind (`commit`, `read`, `raise`, ...) is the target.
    """

    step: int
    target: str
    how: str = "cancel"


@frozen
class Point:
    """A moment at which something could be cancelled: right after a step, or as a target is entered.

    Attributes:
        step: the step.
        targets: what could be cancelled, and how.
        where: the place in words.
        decided: how many decisions on the order of tasks had been made, if anything counted them.
    """

    step: int
    targets: tuple[tuple[str, str], ...]
    where: str
    decided: int = 0


@define
class Target:
    """Something that may be cancelled right now."""

    name: str
    acts: dict[str, Callable[[], object]]


PassFaultPoint: TypeAlias = Callable[[str, Collection[str], Callable[[], str]], str | None]
"""Given the kind of a fault point, its faults and where it is, says which fault it is to have."""


@define
class TrialState:
    """What trial and laboratory share about one run."""

    targets: dict[str, Target] = attrs.field(factory=dict)
    checks: list[Check] = attrs.field(factory=list)
    violations: list[str] = attrs.field(factory=list)
    shot: bool = False
    delivered: list[trio.CancelScope] = attrs.field(factory=list)
    target_opened: Callable[[Target], None] = lambda target: None
    pass_fault_point: PassFaultPoint = lambda kind, faults, where: None

    def disturb(self) -> None:
        """Something other than a cancel was done to the run."""
        self.shot = True

    def fire(self, target: Target, how: str) -> None:
        """Cancel a target, which then is none any more."""
        self.shot = True
        del self.targets[target.name]
        target.acts[how]()


class Trial:
    """One run of a scenario, seen from inside.

    Attributes:
        world: whatever the scenario wants to keep for its checks, or across a crash.
    """

    def __init__(self, seed: int, state: TrialState) -> None:
        self._seed = seed
        self._state = state
        self.world = SimpleNamespace()

    @property
    def seed(self) -> int:
        """The seed of this run's schedule, ids, times and `random`."""
        return self._seed

    @property
    def shot(self) -> bool:
        """Whether the laboratory has interfered so far: cancelled something, or let something fail."""
        return self._state.shot

    @contextmanager
    def cancellable(self, name: str = "scope") -> Generator[trio.CancelScope, None, None]:
        """A cancel scope around the part of the scenario that may be cancelled.

        Work after the block is the follow-up and runs in peace. A `Cancelled` of this scope that is delivered
        inside and does not come out is reported as swallowed.
        """
        with trio.CancelScope() as scope:

            def expire() -> None:
                scope.deadline = -math.inf

            with self.target(name, cancel=scope.cancel, deadline=expire):
                yield scope
            if any(delivered is scope for delivered in self._state.delivered):
                self.violation(f"a Cancelled of {name!r} was delivered and swallowed")

    @contextmanager
    def target(
        self, name: str, cancel: Callable[[], object], deadline: Callable[[], object] | None = None
    ) -> Generator[None, None, None]:
        """Let the laboratory call `cancel`, at most once, while the block runs, such as `running.cancel`.

        Args:
            name: names it in reports and replays; one block of a name at a time.
            cancel: called between two steps, outside every task. Must not await and must not raise.
            deadline: the same, the way a deadline does it, where that is not the same.

        Raises:
            InvalidInput: another block of this name is open.
        """
        targets = self._state.targets
        if name in targets:
            raise InvalidInput(f"two targets are named {name!r} at once")
        acts: dict[str, Callable[[], object]] = {"cancel": cancel}
        if deadline is not None:
            acts["deadline"] = deadline
        targets[name] = mine = Target(name, acts)
        try:
            self._state.target_opened(mine)
            yield
        finally:
            if targets.get(name) is mine:
                del targets[name]

    def may_fail(self, *errors: Callable[[], BaseException]) -> None:
        """A fault point: `fault_everywhere` raises each of these errors here, once, each in a run of its own.

            data = await disk.read(block)
            trial.may_fail(OSError, CorruptBlock)

        Args:
            errors: classes of exceptions, or functions that make one, each with a name of its own.
        """
        by_name = {error.__name__: error for error in errors}
        chosen = self._state.pass_fault_point("raise", by_name, where_called_from)
        if chosen is not None:
            raise by_name[chosen]()

    def check(self, check: Check) -> Check:
        """Call `check` after the run. What it returns or raises is a violation. Usable as a decorator.

        It is called when no trio runs any more, so it is a plain function. What has to be awaited is done in the
        scenario, outside every target, which says what is wrong with `violation`.

        Raises:
            InvalidInput: it is async, or no function.
        """
        if not callable(check) or inspect.iscoroutinefunction(check) or inspect.isasyncgenfunction(check):
            raise InvalidInput(f"the check {check_name(check)} is no plain function: it is called when no trio runs")
        self._state.checks.append(check)
        return check

    def violation(self, words: str) -> None:
        """Report a violation now."""
        self._state.violations.append(words)

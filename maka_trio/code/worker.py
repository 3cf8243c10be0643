"""`Worker`: one interpreter in a process of its own. Synchronous, for threads; the only file that knows pydantic-monty.

    open        a fresh process, its limits set, nothing inherited but the standard streams
    start       the program runs until it ends or wants something of us: a `Turn`
    go_on       what it wanted is answered, and it runs on
    kill        from any thread, at once, also in the middle of a turn
    close       the process is gone

The process has an empty environment, and its interpreter has no files, no network and no other processes to reach.
It never runs without limits, so that it ends by itself if we die: waiting for us, it sees its input close; running,
it meets its time limit, and behind that the kernel's own on processor time.

Values cross as JSON text (`prelude`). The program's last expression is the one exception, and its size on the wire is
looked at first: turning a huge value into objects would hold the interpreter lock, and with it the whole host.
"""

from __future__ import annotations

import importlib.util
import math
import secrets
import sysconfig
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from typing import Any, Final, Literal

from maka_trio.code.cell_limits import CellLimits
from maka_trio.code.descriptors import nothing_inherited
from maka_trio.code.explain import explained
from maka_trio.code.outcome import MESSAGE_BYTES, ProgramError, ProgramResult, ProgramValue
from maka_trio.code.prelude import HELPER, TOOL, prelude
from maka_trio.code.process import WorkerProcess
from maka_trio.code.turn import (
    LATER,
    Answer,
    HelperWanted,
    InterpreterLost,
    SleepWanted,
    ToolWanted,
    Turn,
    Waiting,
    Write,
)
from maka_trio.code.value import as_json
from maka_trio.errors import InvalidInput
from maka_trio.facts.codec import canonical
from maka_trio.limits import KIB
from maka_trio.tools.failure import bounded

GRACE_SECONDS: Final = 0.5
"""How long after its time limit an interpreter that does not stop by itself is killed."""

SPAWN_SECONDS: Final = 10.0
"""How long a process may take to start."""

WIRE_OVERHEAD: Final = 64 * KIB
"""What a program may put on the wire between two looks at it, besides a value and its output: names and framing."""

_SLEEPS: Final[Mapping[str, bool]] = {"system.sleep": False, "system.async_sleep": True}
"""The names under which a program sleeps, and whether only one task of it does."""

_SLEEP_POLICY: Final = {"sleep": "system", "sleep_system_max": math.inf}
"""Sleeps are asked for as they are, not cut short: how long one may be is ours to say."""


_MISSING: Final = "running programs needs the interpreter, which is not installed: pip install 'maka-trio[code]'"

_LOADING: Final = threading.Lock()


def require_interpreter() -> None:
    """See whether the interpreter is there, without loading it: that takes a moment, and is done in a thread.

    Raises:
        InvalidInput: it is not installed; the message names the extra.
    """
    if importlib.util.find_spec("pydantic_monty") is None:
        raise InvalidInput(_MISSING)


def _load() -> Any:
    with _LOADING:
        try:
            import pydantic_monty
        except ImportError as error:
            raise InvalidInput(_MISSING) from error
    return pydantic_monty


class Worker:
    """An interpreter for one program. Made in one thread; turns are taken one at a time, in any.

    Args:
        limits: what the program may use.
        write: where its output goes.
    """

    def __init__(self, limits: CellLimits, write: Write) -> None:
        self._limits = limits
        self._write = write
        require_interpreter()
        self._monty: Any = None
        # It looks for its program in these, and two threads that are the first to ask see them half made.
        sysconfig.get_config_vars()
        self._stack = ExitStack()
        self._session: Any = None
        self._process: WorkerProcess | None = None
        self._gate = f"_gate_{secrets.token_hex(16)}"
        self._suspended: Any = None
        self._asked = 0
        self._written = 0
        self._printed = 0
        self._stopped: ProgramError | None = None

    @property
    def pid(self) -> int | None:
        """The number of the process, once there is one."""
        return self._process.pid if self._process is not None else None

    # --- from open to close -----------------------------------------------------------------------------------

    def open(self, tools: Mapping[str, str], helpers: Iterable[str]) -> None:
        """Start the process and define the functions of the program (`prelude`).

        Raises:
            InterpreterLost: it does not start. `close` is due all the same.
            InvalidInput: it cannot be loaded.
        """
        self._monty = _load()
        try:
            self._spawn()
            self._define(prelude(self._gate, tools, helpers, limit=self._limits.value_bytes))
        except (self._monty.MontyError, OSError) as error:
            raise InterpreterLost(f"the interpreter does not start: {bounded(str(error), MESSAGE_BYTES)}") from error

    def start(self, program: str) -> Turn:
        """Run the program until its first turn.

        Raises:
            InterpreterLost: the process ended in the middle of it. So do the other turns.
        """
        return self._take_turn(lambda: self._session.feed_start(program, print_callback=self._print))

    def go_on(self, answer: Answer) -> Turn:
        """Answer what the program wanted, or say `LATER`, and run to the next turn."""
        suspended = self._suspended
        if answer is LATER:
            return self._take_turn(lambda: suspended.resume({"future": ...}))
        if suspended.is_os_function:  # a sleep, which returns nothing
            return self._take_turn(lambda: suspended.resume({"return_value": None}))
        return self._take_turn(lambda: suspended.resume(_resumed(answer)))

    def go_on_alone(self, number: int, answer: Answer) -> Turn:
        """Answer a call that the program awaits alone: `LATER`, and then its answer at once."""
        turn = self.go_on(LATER)
        return self.settle({number: answer}) if isinstance(turn, Waiting) and number in turn.numbers else turn

    def settle(self, answers: Mapping[int, Answer]) -> Turn:
        """Answer calls that the program waits for, by their numbers, and run to the next turn."""
        suspended = self._suspended
        return self._take_turn(lambda: suspended.resume({n: _resumed(answer) for n, answer in answers.items()}))

    def kill(self) -> None:
        """End the process at once, from any thread; a turn that runs comes back. Idempotent."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End the process and wait until it is gone. Idempotent."""
        self.kill()
        with suppress(self._monty.MontyError, OSError):
            self._stack.close()
        if self._process is not None:
            self._process.close()

    # --- starting ---------------------------------------------------------------------------------------------

    def _spawn(self) -> None:
        pool = self._monty.Monty(
            min_processes=1,
            max_processes=1,
            max_checkouts_per_worker=1,
            checkout_timeout=SPAWN_SECONDS,
            feed_duration_limit_grace=GRACE_SECONDS,
        )
        with nothing_inherited():
            self._stack.enter_context(pool)
        self._session = self._stack.enter_context(
            pool.checkout(limits=self._interpreter_limits(), os_policy=_SLEEP_POLICY)
        )
        pid = self._session.worker_pid
        if pid is None:
            raise InterpreterLost("the interpreter does not start: it has no process")
        self._process = WorkerProcess(pid)
        self._process.bound(self._limits)

    def _interpreter_limits(self) -> dict[str, Any]:
        limits = self._limits
        return {
            "max_memory": limits.memory_bytes,
            "max_feed_duration_secs": limits.execution_seconds,
            "max_suspensions": limits.host_calls + 16,  # ours is reached first
        }

    def _define(self, source: str) -> None:
        snapshot = self._session.feed_start(source)
        while not isinstance(snapshot, self._monty.MontyComplete):
            if not isinstance(snapshot, self._monty.NameLookupSnapshot) or snapshot.variable_name != self._gate:
                raise InterpreterLost("the interpreter does not define the functions of a program")
            snapshot = snapshot.resume(value=_named(self._gate))

    # --- a turn -----------------------------------------------------------------------------------------------

    def _take_turn(self, resume: Callable[[], Any]) -> Turn:
        try:
            return self._until_turn(resume)
        except self._monty.MontyError as error:
            return self._stopped or explained(error, self._limits)

    def _until_turn(self, resume: Callable[[], Any]) -> Turn:
        """Run until the program wants what is ours to decide; the rest is answered on the spot."""
        while True:
            snapshot = resume()
            if self._stopped is not None:
                return self._stopped
            if isinstance(snapshot, self._monty.MontyComplete):
                return self._end_of(snapshot)
            self._asked += 1
            if self._asked > self._limits.host_calls:
                return self._stop(f"the program asked its host more than {self._limits.host_calls} times")
            wanted = self._wanted(snapshot)
            if not callable(wanted):
                self._suspended = snapshot
                return wanted
            resume = wanted

    def _wanted(self, snapshot: Any) -> Turn | Callable[[], Any]:
        """What a snapshot wants of us, or how the program goes on without us."""
        if isinstance(snapshot, self._monty.FutureSnapshot):
            return Waiting(tuple(snapshot.pending_call_ids))
        if isinstance(snapshot, self._monty.NameLookupSnapshot):
            return snapshot.resume  # type: ignore[no-any-return]
        name = snapshot.function_name
        if name == self._gate and not snapshot.is_os_function:
            return self._called(snapshot)
        # What else it calls is not there, but for sleeping. The arguments are not looked at: they may be of any size.
        self._look_at_wire()
        if snapshot.is_os_function:
            return self._sleep(snapshot) if name in _SLEEPS else snapshot.resume_not_handled
        return _raising(snapshot, "NameError", f"name {name!r} is not defined")

    def _called(self, snapshot: Any) -> Turn:
        if self._wire_exceeded():
            return self._stop(f"the arguments of a call have more than {self._limits.value_bytes} bytes")
        match snapshot.args:
            case (kind, str() as name, str() as payload) if kind == TOOL:
                return ToolWanted(snapshot.call_id, name, payload, snapshot.allow_eager_await)
            case (kind, str() as name, str() as payload) if kind == HELPER:
                return HelperWanted(name, payload)
            case _:
                return self._stop("the program called its host in a way that no function of its own does")

    def _sleep(self, snapshot: Any) -> Turn | Callable[[], Any]:
        seconds = snapshot.args[0] if snapshot.args else None
        longest = self._limits.sleep_seconds
        if not isinstance(seconds, (int, float)) or not 0 <= seconds <= longest:
            return _raising(snapshot, "ValueError", f"a sleep takes from 0 to {longest:g} seconds")
        number = snapshot.call_id if _SLEEPS[snapshot.function_name] else None
        return SleepWanted(float(seconds), number)

    def _print(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        self._printed += len(text.encode(errors="replace"))
        if self._stopped is None and not self._write(text):
            self._stop(f"the program wrote more than {self._limits.output_bytes} bytes")

    def _stop(self, limit: str) -> ProgramError:
        """Stop the program where it is: nothing of it can catch that."""
        self._stopped = self._stopped or ProgramError.over(limit)
        self.kill()
        return self._stopped

    def _wire_exceeded(self) -> bool:
        """Whether more came over the wire since it was last looked at than a value, or arguments, can need."""
        return self._look_at_wire() > self._limits.value_bytes + WIRE_OVERHEAD

    def _look_at_wire(self) -> int:
        """Bytes that the process wrote since the last look, its output apart."""
        assert self._process is not None
        before, self._written = self._written, self._process.bytes_written()
        printed, self._printed = self._printed, 0
        return self._written - before - printed

    # --- the end ----------------------------------------------------------------------------------------------

    def _end_of(self, complete: Any) -> ProgramResult:
        limit = self._limits.value_bytes
        if self._wire_exceeded():
            return ProgramError.over(f"the value of the program has more than {limit} bytes")
        try:
            value = as_json(complete.output)
        except InvalidInput as error:
            return ProgramError.over(f"the value of the program is too large: {error}")
        size = len(canonical(value))
        if size > limit:
            return ProgramError.over(f"the value of the program has {size} bytes; the limit is {limit}")
        return ProgramValue(value)


def _named(name: str) -> Callable[..., None]:
    """A function of this name. The interpreter keeps the name and calls nothing."""

    def function(*arguments: object) -> None:
        raise AssertionError

    function.__name__ = name
    return function


def _resumed(answer: Answer) -> dict[str, Any]:
    if answer.failure is not None:
        return {"exc_type": "RuntimeError", "message": answer.failure}
    return {"return_value": answer.payload}


def _raising(snapshot: Any, kind: str, message: str) -> Callable[[], Any]:
    return lambda: snapshot.resume({"exc_type": kind, "message": message})

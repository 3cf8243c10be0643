"""Code Mode in the laboratory, on scripted programs: cancelled at every step, crashed and failed at every commit."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from maka_trio.code.executor import CodeExecutor
from maka_trio.engine import Engine, MessageWork, RunInput
from maka_trio.errors import MakaError
from maka_trio.facts.identity import Invocation
from maka_trio.facts.opening import InvocationConfiguration, ToolDefinition, ToolMode
from maka_trio.log import EventLog
from maka_trio.models import ModelExecutor
from maka_trio.testing import (
    Effects,
    RecordedRequest,
    ScriptedInterpreters,
    ScriptedProvider,
    Trial,
    crash_everywhere,
    explore,
    fault_everywhere,
    lawful,
    run_trial,
)
from maka_trio.tools import ToolCall, ToolCatalog, ToolRegistration
from tests.code.code_scene import last_cell

PROGRAM = """\
begin slow {"n": 1}
begin failing {"n": 2}
help notify ["under way"]
begin abortable {"n": 3}
attempt
gather
value {"done": true}
"""

YIELDING = "help yield_control\n" + PROGRAM


def turn_of(request: RecordedRequest) -> int:
    """How many answers of tools a request has after the last words of its user."""
    messages = request.body["messages"]  # type: ignore[call-overload, index]
    asked = max(index for index, message in enumerate(messages) if message.get("content") == "go")
    return sum(message["role"] == "tool" for message in messages[asked:])


@attrs.frozen
class Programmer:
    """An engine in Code Mode, whose programs call three tools at once."""

    trial: Trial
    log: EventLog
    provider: ScriptedProvider
    engine: Engine
    interpreters: ScriptedInterpreters
    effects: Effects

    def script_turns(self, count: int, program: str = PROGRAM) -> None:
        """Each turn: one program, `wait` if it yields, then an answer."""
        yields = program is YIELDING
        for _ in range(count):
            self.provider.call_tools(("exec", {"code": program}), when=lambda request: turn_of(request) == 0)
            if yields:
                self.provider.call_tools(
                    ("wait", lambda request: {"cell_id": last_cell(request)}),
                    when=lambda request: turn_of(request) == 1,
                )
            for _ in range(2):  # a notification may make the model say one thing more
                self.provider.say("done", when=lambda request: turn_of(request) > yields)

    def input(self, **settings: Any) -> RunInput:
        """A turn of the one session."""
        work = MessageWork("go", self._catalog(), **settings)
        configuration = InvocationConfiguration(tool_mode=ToolMode.CODE)
        return RunInput(Invocation.new("session"), self.provider.config(), work, configuration=configuration)

    def _catalog(self) -> ToolCatalog:
        handlers = {"slow": self._slow, "failing": self._fail, "abortable": self._abortable}
        return ToolCatalog(
            [ToolRegistration(ToolDefinition(name, name, {"type": "object"}), run) for name, run in handlers.items()]
        )

    async def _slow(self, _: Any, call: ToolCall) -> Any:
        with self.effects(call.operation_id):
            await trio.sleep(0.05)
        return {"slept": True}

    async def _fail(self, _: Any, call: ToolCall) -> Any:
        with self.effects(call.operation_id):
            await trio.lowlevel.checkpoint()
        raise LookupError("nothing there")

    async def _abortable(self, _: Any, call: ToolCall) -> Any:
        with self.effects(call.operation_id):
            with call.abort_scope() as scope:
                await trio.sleep(0.05)
            return {"interrupted": scope.cancelled_caught}

    async def turn(self) -> None:
        """One turn, whose failure is looked at by nobody once the trial has interfered."""
        try:
            await self.engine.run(self.input())
        except MakaError:
            if not self.trial.shot:
                raise

    async def judge(self) -> None:
        """The laws, the effects, the interpreters, and each request as a strict provider sees it."""
        for violation in await lawful(self.log):
            self.trial.violation(violation)
        if self.interpreters.alive:
            self.trial.violation(f"{self.interpreters.alive} interpreters are alive")
        for request in self.provider.requests:
            self._judge_request(request)

    def _judge_request(self, request: RecordedRequest) -> None:
        messages = list(request.body["messages"])  # type: ignore[call-overload, index]
        while messages:
            message = messages.pop(0)
            for call in message.get("tool_calls") or ():
                answer = messages.pop(0) if messages else {}
                if answer.get("tool_call_id") != call["id"]:
                    self.trial.violation(f"request {request.number}: call {call['id']} meets {json.dumps(answer)}")
            if message["role"] == "tool":
                self.trial.violation(f"request {request.number}: an answer to nothing")


@asynccontextmanager
async def programmer(trial: Trial, log: EventLog | None = None) -> AsyncGenerator[Programmer, None]:
    """A programmer that lives as long as the block."""
    effects = vars(trial.world).setdefault("effects", Effects())
    trial.check(lambda: [words for words in effects.check() if "twice" in words or log is None])
    interpreters = ScriptedInterpreters()
    async with (
        ScriptedProvider() as provider,
        ModelExecutor(30) as models,
        _log_or_new(log) as used,
        Engine(used, models, code=CodeExecutor(interpreters=interpreters)) as engine,
    ):
        yield Programmer(trial, used, provider, engine, interpreters, effects)


@asynccontextmanager
async def _log_or_new(log: EventLog | None) -> AsyncGenerator[EventLog, None]:
    if log is not None:
        yield log
        return
    async with EventLog.in_memory() as new:
        yield new


async def cancelled_run(trial: Trial) -> None:
    """A run with one program and three nested calls is cancelled; the next turn is accepted."""
    await _cancelled(trial, PROGRAM)


async def cancelled_while_yielded(trial: Trial) -> None:
    """The same, with the program left running while the model is asked again."""
    await _cancelled(trial, YIELDING)


async def _cancelled(trial: Trial, program: str) -> None:
    async with programmer(trial) as it:
        it.script_turns(1, program)
        with trial.cancellable("caller"):
            await it.turn()
        await it.engine.wait_idle("session")
        it.script_turns(1, program)
        await it.engine.run(it.input())
        await it.judge()


async def cancelled_in_a_loop(trial: Trial) -> None:
    """A program that computes for ever beside a call."""
    async with programmer(trial) as it:
        it.provider.call_tools(("exec", {"code": 'begin slow {"n": 1}\nloop'}))
        running = await it.engine.start(it.input())
        with trial.target("run", cancel=running.cancel):
            await trio.sleep(1)
            running.cancel()
            await it.engine.wait_idle("session")
        await it.judge()


SCENARIOS = [cancelled_run, cancelled_while_yielded, cancelled_in_a_loop]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_cancelled_at_every_step_programs_keep_the_laws(scenario: Any) -> None:
    """At each point: a lawful log, no effect twice or in half, no interpreter left, the next turn accepted."""
    exploration = explore(scenario)
    exploration.raise_for_violations()
    assert exploration.complete
    assert exploration.points.total() > 60


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_programs_keep_the_laws_in_many_schedules(scenario: Any) -> None:
    """Other orders of the same tasks, points thinned."""
    explore(scenario, seeds=range(1, 6), points=40, how=["cancel", "deadline"]).raise_for_violations()


def test_a_program_and_its_run_are_a_function_of_their_seed() -> None:
    """Thirty runs, one trace."""
    assert len({run_trial(cancelled_while_yielded, seed=3, name_points=False).trace for _ in range(30)}) == 1


async def one_turn(trial: Trial, log: EventLog) -> None:
    async with programmer(trial, log) as it:
        it.script_turns(1, YIELDING)
        try:
            await it.engine.run(it.input())
        except MakaError:
            it.trial.world.failed = True
        if it.interpreters.alive:
            it.trial.violation("an interpreter is alive after the run")


async def another_turn(trial: Trial, log: EventLog) -> None:
    async with programmer(trial, log) as it:
        it.script_turns(1, YIELDING)
        await it.engine.run(it.input(allow_prior_unknown=True))
        await it.judge()


def test_crashed_at_every_commit_of_a_program_the_next_process_goes_on() -> None:
    """Nothing runs twice, no program is run again, the log is lawful before and after recovery."""
    exploration = crash_everywhere(one_turn, another_turn)
    exploration.raise_for_violations()
    assert exploration.points["tool_dispatched"] == 2 * 6
    assert exploration.points["tool_notified"] == 2


def test_failed_at_every_commit_of_a_program_the_log_stays_lawful() -> None:
    """Whatever the program would make of the fault."""
    exploration = fault_everywhere(one_turn, another_turn, without=("connect", "read", "write"))
    exploration.raise_for_violations()
    assert exploration.complete
    assert exploration.points.total() > 100


def test_whatever_a_socket_does_to_a_program_the_log_stays_lawful() -> None:
    """Thinned: what a socket does to a run is explored with the engine, and here it meets a program that waits."""
    exploration = fault_everywhere(one_turn, another_turn, without=("commit",), points=30)
    exploration.raise_for_violations()
    assert exploration.points.total() == 30

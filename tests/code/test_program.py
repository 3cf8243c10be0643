"""A program by itself, from Python and from the command line: the same journal, and no model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from maka_trio import facts
from maka_trio.code.cell_limits import CellLimits
from maka_trio.code.executor import CodeExecutor
from maka_trio.engine import Engine, MessageWork, RunInput
from maka_trio.engine.program import run_program
from maka_trio.errors import CommitUnknown, InvalidInput, LogInUse, ReconciliationRequired
from maka_trio.facts.identity import Invocation
from maka_trio.log import EventLog
from maka_trio.models import ModelExecutor
from maka_trio.testing import ScriptedProvider
from maka_trio.tools import ToolCatalog
from tests.code.cell import workers
from tests.code.code_scene import assert_lawful
from tests.engine.scene import echo, registration

ECHO = ToolCatalog([registration("echo", echo)])


async def facts_of(log: EventLog) -> list[Any]:
    return [stored.event.fact for stored in (await log.prefix(1000, 1 << 24)).events]


async def run(log: EventLog, program: str, tools: ToolCatalog = ECHO, session: str = "s", **settings: Any) -> Any:
    executor = CodeExecutor(CellLimits(execution_seconds=5))
    return await run_program(log, executor, program, tools, invocation=Invocation.new(session), **settings)


async def test_a_program_by_itself_needs_a_catalog(tmp_path: Path) -> None:
    """Nothing is written for what cannot run."""
    async with EventLog.open(tmp_path / "log") as log:
        with pytest.raises(InvalidInput, match="tools must be ToolCatalog"):
            await run(log, "1", None)  # type: ignore[arg-type]
        assert await facts_of(log) == []


async def test_a_program_by_itself_has_the_journal_of_one_that_a_model_wrote(tmp_path: Path) -> None:
    """Opening, exec for itself, the cell, its calls, the end; all of it lawful."""
    written: list[str] = []
    async with EventLog.open(tmp_path / "log") as log:
        told = await run(log, "print('a')\nnotify('b')\nyield_control()\nawait echo(n=1)", output=written.append)
        assert told["result"] == {"ok": True, "value": {"n": 1}, "toolCalls": 1}
        assert "".join(written) == "a\n"
        opening, exec_call, cell, notified, nested, *rest = await facts_of(log)
        assert opening.input == facts.CodeOpening("print('a')\nnotify('b')\nyield_control()\nawait echo(n=1)")
        assert exec_call.call.origin == facts.Standalone()
        assert cell.call.origin == facts.CodeCell(exec_call.operation_id, exec_call.call.tool_call_id)
        assert notified.text == "b"
        assert nested.call.origin == facts.CodeMode(cell.operation_id, cell.call.tool_call_id)
        assert [fact.kind for fact in rest] == ["tool_settled"] * 3 + ["invocation_ended"]
        assert rest[-1].outcome == facts.Completed()
        await assert_lawful(log)


async def test_a_program_that_fails_ends_completed(tmp_path: Path) -> None:
    """Its result says what went wrong."""
    async with EventLog.open(tmp_path / "log") as log:
        told = await run(log, "1 / 0")
        assert told["result"]["error"]["kind"] == "execution_error"
        assert (await facts_of(log))[-1].outcome == facts.Completed()


async def test_a_cancelled_program_is_stopped_drained_and_sealed(tmp_path: Path) -> None:
    """The call it began settles; the end says cancelled."""
    drained = []

    async def hold(value: Any, call: Any) -> None:
        scope.cancel()
        with call.abort_scope():
            await trio.sleep_forever()
        drained.append(True)

    async with EventLog.open(tmp_path / "log") as log:
        with trio.CancelScope() as scope:
            await run(log, "import asyncio\nawait hold()", ToolCatalog([registration("hold", hold)]))
        assert scope.cancelled_caught
        assert drained == [True]
        assert workers() == []
        assert (await facts_of(log))[-1].outcome == facts.Cancelled()
        await assert_lawful(log)


async def test_a_fault_of_a_call_comes_out_and_the_session_waits_for_somebody(tmp_path: Path) -> None:
    """As in a run of a model."""

    async def bad(value: Any, call: Any) -> None:
        raise CommitUnknown("lost")

    async with EventLog.open(tmp_path / "log") as log:
        with pytest.raises(CommitUnknown):
            await run(log, "await bad()", ToolCatalog([registration("bad", bad)]))
        assert (await facts_of(log))[-1].outcome.failure_class is facts.FailureClass.OUTCOME_UNKNOWN
        with pytest.raises(ReconciliationRequired):
            await run(log, "1")
        await assert_lawful(log)


async def test_what_cannot_run_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is too long, a log that an engine uses, an interpreter that is not there."""
    async with EventLog.open(tmp_path / "log") as log:
        with pytest.raises(InvalidInput, match="65536"):
            await run(log, "#" * 70_000)
        with log.claim(), pytest.raises(LogInUse):
            await run(log, "1")
        monkeypatch.setitem(sys.modules, "pydantic_monty", None)
        with pytest.raises(InvalidInput, match=r"maka-trio\[code\]"):
            await run(log, "1")
        assert await facts_of(log) == []


async def test_a_models_turn_may_follow_and_is_told_nothing_of_it(tmp_path: Path) -> None:
    """The program is in the log of the session, and no part of the conversation."""
    async with ScriptedProvider() as provider, ModelExecutor(5) as models, EventLog.open(tmp_path / "log") as log:
        await run(log, "notify('news')\nawait echo(n=1)")
        async with Engine(log, models) as engine:
            provider.say("hello")
            await engine.run(RunInput(Invocation.new("s"), provider.config(), MessageWork("hi")))
        assert provider.requests[0].body["messages"] == [{"role": "user", "content": "hi"}]  # type: ignore[call-overload, index]
        await assert_lawful(log)


# --- the command ------------------------------------------------------------------------------------------

TOOLS = """
from maka_trio.facts.opening import ToolDefinition
from maka_trio.tools import ToolCatalog, ToolRegistration

async def add(given, call):
    return given["a"] + given["b"]

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
TOOLS = ToolCatalog([ToolRegistration(ToolDefinition("add", "Adds.", SCHEMA), add)])
"""


def command(folder: Path, program: str, *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "shop.py").write_text(TOOLS)
    (folder / "program.py").write_text(program)
    return subprocess.run(
        [sys.executable, "-m", "maka_trio", "code", "program.py", "--log", "log.sqlite", *more],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_command_runs_a_program_against_a_catalog(tmp_path: Path) -> None:
    """Output and value on standard output, nothing else; status 0."""
    done = command(tmp_path, "print('adding \\x1b[31m')\nawait add(a=1, b=2)", "--tools", "shop:TOOLS")
    assert (done.returncode, done.stdout, done.stderr) == (0, "adding \\x1b[31m\n3\n", "")
    assert (tmp_path / "log.sqlite").exists()


def test_the_command_says_what_went_wrong(tmp_path: Path) -> None:
    """Kind, words and place on standard error; status 1; as JSON, everything in one line."""
    program = "def f():\n  return 1 / 0\nf()"
    done = command(tmp_path, program)
    assert (done.returncode, done.stdout) == (1, "")
    assert "execution_error: ZeroDivisionError" in done.stderr
    assert "line 2 in f: return 1 / 0" in done.stderr
    told = json.loads(command(tmp_path, program, "--json").stdout)
    assert told["result"]["error"]["kind"] == "execution_error"


def test_the_command_refuses_what_is_no_program(tmp_path: Path) -> None:
    """A file that is not there is one line."""
    done = command(tmp_path, "1", "--tools", "shop:NOTHING")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_an_interrupted_command_records_the_end(tmp_path: Path) -> None:
    """Ctrl-C stops an endless program; status 130; the log is lawful."""
    (tmp_path / "program.py").write_text("print('looping', flush=True)\nnotify('x')\nwhile True: pass")
    child = subprocess.Popen(
        [sys.executable, "-m", "maka_trio", "code", "program.py", "--log", "log.sqlite"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "looping\n"
    child.send_signal(signal.SIGINT)
    assert child.wait(120) == 130
    child.stdout.close()

    async def ended() -> Any:
        async with EventLog.open(tmp_path / "log.sqlite") as log:
            await assert_lawful(log)
            assert await log.recover() == 0
            return (await facts_of(log))[-1]

    assert trio.run(ended).outcome == facts.Cancelled()

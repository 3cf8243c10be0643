"""Code Mode, end to end: what the model is offered, what it is told, and what the log says of a program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from maka_trio import facts
from maka_trio.code.executor import CodeExecutor
from maka_trio.errors import InvalidInput, RunCancelled
from maka_trio.facts.opening import ToolMode
from maka_trio.request import ProviderKind
from maka_trio.testing import Gate
from maka_trio.tools import ToolNesting, ToolSemantics
from tests.code.code_scene import code_scene
from tests.engine.scene import echo, registration, scene

KINDS = list(ProviderKind)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_program_calls_tools_on_every_protocol(tmp_path: Path, kind: ProviderKind) -> None:
    """The model is offered `exec` and `wait`, and told what the program came to."""
    begun = trio.Event()

    async def meet(value: Any, call: Any) -> Any:
        if value["n"] == 2:
            begun.set()
        await begun.wait()
        return value

    async with code_scene(tmp_path) as it:
        it.script("import asyncio\nprint('hi')\nawait asyncio.gather(meet(n=1), meet(n=2))")
        it.provider.say("done")
        await it.engine.run(it.input(registration("meet", meet), kind=kind))
        assert (await it.tale()) == [
            "step",
            "exec begins",
            "code_cell begins",
            "meet begins",
            "meet begins",
            "meet succeeded",
            "meet succeeded",
            "code_cell succeeded",
            "exec succeeded",
            "step",
            "end completed",
        ]
        (observed,) = await it.results("exec")
        assert observed["state"] == "completed"
        assert observed["content"] == [{"kind": "text", "text": "hi\n"}]
        assert observed["result"] == {"ok": True, "value": [{"n": 1}, {"n": 2}], "toolCalls": 2}
        assert '"toolCalls":2' in json.dumps(it.provider.requests[-1].body).replace("\\", "").replace(" ", "")


async def test_the_parents_of_each_operation_are_in_the_log(tmp_path: Path) -> None:
    """Exec is the model's, the cell is below it, nested calls are below the cell."""
    async with code_scene(tmp_path) as it:
        it.script("await echo(n=1)", "c1")
        it.provider.say("done")
        await it.engine.run(it.input(registration("echo", echo)))
        by_name = {fact.name: fact for fact in await it.facts(facts.ToolDispatched)}
        exec_call, cell, nested = by_name["exec"], by_name["code_cell"], by_name["echo"]
        assert exec_call.operation_id == f"{exec_call.call.origin.step_id}:c1"
        assert cell.call.origin == facts.CodeCell(exec_call.operation_id, "c1")
        assert nested.call.origin == facts.CodeMode(cell.operation_id, cell.call.tool_call_id)
        assert cell.operation_id != cell.call.tool_call_id
        assert nested.input == {"n": 1}


async def test_the_model_is_offered_programs_and_what_programs_may_not_call(tmp_path: Path) -> None:
    """Nestable tools are declared to programs; direct-only ones are offered as they are."""
    tools = (
        registration("fetch.page", echo, schema={"type": "object", "properties": {"url": {"type": "string"}}}),
        registration("submit", echo, nesting=ToolNesting.DIRECT_ONLY),
    )
    async with code_scene(tmp_path) as it:
        it.provider.call_tools(("submit", {"x": 1}))
        it.script("[t['function'] for t in tools()]")
        it.script("await submit(x=1)")
        it.provider.say("done")
        await it.engine.run(it.input(*tools))
        offered = {tool["function"]["name"]: tool["function"] for tool in it.provider.requests[0].body["tools"]}
        assert list(offered) == ["exec", "submit", "wait"]
        assert "async def fetch_page(*, url: str = ...) -> Any: ..." in offered["exec"]["description"]
        assert "submit" not in offered["exec"]["description"]
        first, second = await it.results("exec")
        assert first["result"]["value"] == ["fetch_page"]
        assert second["result"]["error"]["kind"] == "execution_error"
        opening = (await it.facts(facts.InvocationOpened))[0]
        assert [tool.name for tool in opening.input.surface.tools] == ["exec", "submit", "wait"]


FAILURES = [
    ("x = = 1", "parse_error"),
    ("1 / 0", "execution_error"),
    ("await refuse()", "tool_failure"),
    ("while True: pass", "limit_exceeded"),
    ("#" * 70_000, "limit_exceeded"),
    ("while True: await echo(n=1)", "limit_exceeded"),
    ("import asyncio\nwhile True: text('x' * 1000)", "limit_exceeded"),
]


@pytest.mark.parametrize(("program", "kind"), FAILURES)
async def test_a_program_that_fails_is_a_result_like_any_other(tmp_path: Path, program: str, kind: str) -> None:
    """Both operations succeed, and the result says what went wrong."""

    async def refuse(value: Any, call: Any) -> Any:
        raise ValueError("not today")

    async with code_scene(tmp_path, execution_seconds=0.5, tool_calls=5, output_bytes=10_000) as it:
        it.script(program)
        it.provider.say("done")
        await it.engine.run(it.input(registration("refuse", refuse), registration("echo", echo)))
        (observed,) = await it.results("exec")
        assert observed["state"] == "completed"
        assert observed["result"]["ok"] is False
        assert observed["result"]["error"]["kind"] == kind
        (cell,) = await it.results("code_cell")
        assert cell["result"] == observed["result"]
        assert (await it.tale())[-1] == "end completed"


async def test_a_refused_nested_call_is_a_fact_and_an_exception(tmp_path: Path) -> None:
    """Arguments that do not match the schema: no dispatch, a rejection, and the program goes on."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with code_scene(tmp_path) as it:
        it.script("try:\n  await echo(n='x')\nexcept RuntimeError as e:\n  said = str(e)\n[said, await echo(n=1)]")
        it.provider.say("done")
        await it.engine.run(it.input(registration("echo", echo, schema=schema)))
        (observed,) = await it.results("exec")
        said, value = observed["result"]["value"]
        assert facts.SCHEMA_MISMATCH_TEXT in said
        assert value == {"n": 1}
        (rejected,) = await it.facts(facts.ToolRejected)
        assert isinstance(rejected.call.origin, facts.CodeMode)
        assert rejected.name == "echo"


# --- options ----------------------------------------------------------------------------------------------

REFUSED = [
    {"code": "1", "yield_time_ms": 60_001},
    {"code": "1", "max_output_tokens": 63},
    {"code": "1", "unknown": 1},
    {"code": 1},
    {"program": "1"},
    {"code": '# @exec: {"yield_time_ms": 10}\n1', "yield_time_ms": 10},
    {"code": '# @exec: {"yield_time_ms": 1, "yield_time_ms": 2}\n1'},
    {"code": '# @exec: {"yield_time_ms": "10"}\n1'},
    {"code": '# @exec: {"yield_time_ms": true}\n1'},
    {"code": '# @exec: {"timeout": 10}\n1'},
    {"code": "# @exec: 10\n1"},
    {"code": "# @exec: {\n1"},
]


@pytest.mark.parametrize("given", REFUSED)
async def test_options_that_are_not_right_are_refused_before_anything_runs(tmp_path: Path, given: Any) -> None:
    """Invalid input: no dispatch."""
    async with code_scene(tmp_path) as it:
        it.provider.call_tools(("exec", given))
        it.provider.say("done")
        await it.engine.run(it.input())
        (rejected,) = await it.facts(facts.ToolRejected)
        assert rejected.reason.kind is facts.RejectionKind.INVALID_INPUT
        assert await it.facts(facts.ToolDispatched) == []


async def test_the_first_line_sets_options(tmp_path: Path) -> None:
    """It is a comment of the program as well."""
    async with code_scene(tmp_path) as it:
        it.script('# @exec: {"yield_time_ms": 0, "max_output_tokens": 64}\nawait echo(1)')
        it.script("print('x' * 4000)\n'y' * 4000", max_output_tokens=100)
        it.provider.say("done")
        await it.engine.run(it.input(registration("echo", echo)))
        first, second = await it.results("exec")
        assert first["state"] == "running"
        assert len(json.dumps(second)) < 700
        assert "bytes left out" in second["result"]["value_shortened"]
        assert "bytes left out" in second["content"][0]["text"]
        whole = next(cell for cell in await it.results("code_cell") if cell is not None and cell["content"])
        assert whole["content"] == "x" * 4000 + "\n"
        assert whole["result"]["value"] == "y" * 4000


async def test_exec_stands_alone_in_its_step(tmp_path: Path) -> None:
    """The calls after it are refused, and so is one after another call."""
    async with code_scene(tmp_path) as it:
        it.provider.call_tools(("exec", {"code": "1"}), ("exec", {"code": "2"}), ("submit", {}))
        it.provider.call_tools(("submit", {}), ("exec", {"code": "3"}))
        it.provider.say("done")
        await it.engine.run(it.input(registration("submit", echo, nesting=ToolNesting.DIRECT_ONLY)))
        rejected = await it.facts(facts.ToolRejected)
        assert [fact.reason for fact in rejected] == [facts.ToolRejection.exclusive_conflict()] * 3
        assert [result["result"]["value"] for result in await it.results("exec")] == [1]


async def test_an_exclusive_tool_is_alone_among_a_programs_calls(tmp_path: Path) -> None:
    """Calls before it end first, calls after it wait."""
    seen: list[str] = []

    async def slow(value: Any, call: Any) -> None:
        seen.append(f"{call.name}+")
        await trio.sleep(0.02)
        seen.append(f"{call.name}-")

    tools = (registration("a", slow), registration("x", slow, semantics=ToolSemantics.EXCLUSIVE_STEP))
    async with code_scene(tmp_path) as it:
        it.script("import asyncio\nawait asyncio.gather(a(), a(), x(), a())")
        it.provider.say("done")
        await it.engine.run(it.input(*tools))
        at = seen.index("x+")
        assert seen[at : at + 2] == ["x+", "x-"]
        assert sorted(seen) == sorted(["a+", "a-"] * 3 + ["x+", "x-"])
        assert (await it.results("exec"))[0]["result"]["ok"] is True


# --- helpers ----------------------------------------------------------------------------------------------


async def test_a_session_keeps_values_from_one_program_and_turn_to_the_next(tmp_path: Path) -> None:
    """Other sessions do not see them; too much is refused."""
    async with code_scene(tmp_path) as it:
        it.script("store('k', {'n': [1, 2]})")
        it.provider.say("done")
        await it.engine.run(it.input())
        it.script("[load('k'), load('other', 7), load('gone')]")
        it.script("store('k', None)\nload('k', 'forgotten')")
        it.script("store('big', 'x' * 1000000)\nstore('more', 'x' * 100000)")
        it.provider.say("done")
        await it.engine.run(it.input())
        it.script("load('big')")
        it.provider.say("done")
        await it.engine.run(it.input(session="another"))
        first, second, third, fourth = (await it.results("exec"))[0:4]
        assert second["result"]["value"] == [{"n": [1, 2]}, 7, None]
        assert third["result"]["value"] == "forgotten"
        assert "keeps at most" in fourth["result"]["error"]["message"]
        assert (await it.results("exec", session="another"))[0]["result"]["value"] is None
        assert first["result"]["ok"] is True


async def test_logs_that_share_an_executor_share_no_values(tmp_path: Path) -> None:
    """Sessions of two logs may have the same name."""
    executor = CodeExecutor()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with (
        code_scene(tmp_path / "a", executor=executor) as one,
        code_scene(tmp_path / "b", executor=executor) as other,
    ):
        for it, program in ((one, "store('k', 'one')"), (other, "load('k')"), (one, "load('k')")):
            it.script(program)
            it.provider.say("done")
            await it.engine.run(it.input())
        assert (await other.results("exec"))[0]["result"]["value"] is None
        assert (await one.results("exec"))[1]["result"]["value"] == "one"


async def test_exit_and_text(tmp_path: Path) -> None:
    """`exit` ends the program with a value; `text` writes texts as they are and other values as JSON."""
    async with code_scene(tmp_path) as it:
        it.script("text('a')\ntext({'b': [1]})\nexit(3)\ntext('never')")
        it.provider.say("done")
        await it.engine.run(it.input())
        (observed,) = await it.results("exec")
        assert observed["content"] == [{"kind": "text", "text": 'a\n{"b":[1]}\n'}]
        assert observed["result"] == {"ok": True, "value": 3, "toolCalls": 0}


# --- refusals ---------------------------------------------------------------------------------------------


async def test_code_mode_needs_an_executor(tmp_path: Path) -> None:
    """The engine says what is missing, and nothing is written."""
    async with scene(tmp_path) as it:
        run_input = it.input()
        import attrs

        coded = attrs.evolve(run_input, configuration=facts.InvocationConfiguration(tool_mode=ToolMode.CODE))
        with pytest.raises(InvalidInput, match="CodeExecutor"):
            await it.engine.run(coded)
        assert await it.events() == []


async def test_code_mode_needs_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra, and nothing is written; direct runs need none of it."""
    async with code_scene(tmp_path) as it:
        import sys

        monkeypatch.setitem(sys.modules, "pydantic_monty", None)
        with pytest.raises(InvalidInput, match=r"maka-trio\[code\]"):
            await it.engine.run(it.input())
        assert await it.events() == []


async def test_a_direct_run_beside_it_knows_nothing_of_programs(tmp_path: Path) -> None:
    """One engine serves both modes."""
    import attrs

    async with code_scene(tmp_path) as it:
        it.provider.call_tools(("echo", {"n": 1}))
        it.provider.say("done")
        direct = attrs.evolve(it.input(registration("echo", echo)), configuration=facts.InvocationConfiguration())
        await it.engine.run(direct)
        assert [tool["function"]["name"] for tool in it.provider.requests[0].body["tools"]] == ["echo"]
        assert it.executor.statistics().started == 0


# --- cancelling -------------------------------------------------------------------------------------------


async def test_cancelling_the_run_stops_the_program_and_drains_its_calls(tmp_path: Path) -> None:
    """Dispatched calls settle, nothing is dispatched afterwards, every operation has its settlement."""
    gate = Gate()
    begun: list[int] = []

    async def put(value: Any, call: Any) -> str:
        begun.append(value["n"])
        await gate.pass_through()
        assert call.cancelled.is_set()
        return "written"

    async with code_scene(tmp_path, tool_calls_in_flight=2) as it:
        it.script("import asyncio\nawait asyncio.gather(*[put(n=i) for i in range(5)])")
        running = await it.engine.start(it.input(registration("put", put)))
        await gate.reached(2)
        running.cancel()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not running.finished
        gate.open()
        with pytest.raises(RunCancelled):
            await running.wait()
        assert sorted(begun) == [0, 1]
        assert await it.tale() == [
            "step",
            "exec begins",
            "code_cell begins",
            "put begins",
            "put begins",
            "put succeeded",
            "put succeeded",
            "code_cell failed",
            "exec succeeded",
            "end cancelled",
        ]
        (observed,) = await it.results("exec")
        assert observed["state"] == "terminated"


async def test_cancelling_the_run_stops_an_endless_program_at_once(tmp_path: Path) -> None:
    """It does not wait for the program's limit."""
    async with code_scene(tmp_path, execution_seconds=600) as it:
        it.script("notify('looping')\nwhile True: pass")
        running = await it.engine.start(it.input())
        async for stored in running.events():
            if isinstance(stored.event.fact, facts.ToolNotified):
                running.cancel()
        with trio.fail_after(60), pytest.raises(RunCancelled):
            await running.wait()
        assert (await it.tale())[-3:] == ["code_cell failed", "exec succeeded", "end cancelled"]

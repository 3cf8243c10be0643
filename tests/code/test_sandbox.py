"""One program in its interpreter: what it may call, how it is stopped, and that nothing of it is left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from maka_trio.code.executor import CodeExecutor
from maka_trio.code.outcome import ProgramError, ProgramFault, ProgramValue
from maka_trio.code.sandbox import CellEnd, CellFunctions, Exit, run_cell
from maka_trio.code.worker import Worker
from maka_trio.errors import CleanupUnconfirmed, CommitUnknown, InvalidInput, ToolFailed
from tests.code.cell import CellLimits, Output, children_of, fault_of, run, value_of, workers


def descriptors() -> list[str]:
    return os.listdir("/proc/self/fd")  # noqa: PTH208 - the names are all there is to see


def message_of(end: Any) -> str:
    assert isinstance(end.result, ProgramError), end
    return end.result.message


# --- calls ------------------------------------------------------------------------------------------------


async def test_tools_are_async_functions_that_take_keywords_or_their_whole_input() -> None:
    """Keywords make an object; one value is the input itself; anything else is a mistake of the program."""
    assert value_of(await run("await echo(a=1, b=[2, {'c': None}])")) == {"a": 1, "b": [2, {"c": None}]}
    assert value_of(await run("await echo([1, 2])")) == [1, 2]
    assert value_of(await run("await echo()")) == {}
    assert "keyword arguments" in message_of(await run("await echo(1, 2)"))
    assert "keyword arguments" in message_of(await run("await echo(1, a=2)"))


async def test_gathered_calls_run_beside_each_other_up_to_the_limit() -> None:
    """Further ones wait; results come in the program's order."""
    running = most = 0

    async def count(arguments: Any) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(0.01)
        running -= 1
        return str(arguments["n"])

    program = "import asyncio\nawait asyncio.gather(*[count(n=i) for i in range(12)])"
    end = await run(program, tools={"count": count}, tool_calls_in_flight=3)
    assert value_of(end) == list(range(12))
    assert end.tool_calls == 12
    assert most == 3


async def test_a_failed_call_is_an_exception_that_the_program_may_catch() -> None:
    """Let out, it is a tool failure; raised by the program itself, the same text is not."""

    async def refuse(arguments: Any) -> str:
        raise ToolFailed("not today")

    tools = {"refuse": refuse}
    caught = await run("try:\n  await refuse()\nexcept RuntimeError as e:\n  x = str(e)\nx", tools=tools)
    assert value_of(caught) == "not today"
    let_out = await run("await refuse()", tools=tools)
    assert fault_of(let_out) is ProgramFault.TOOL_FAILURE
    assert message_of(let_out) == "RuntimeError: not today"
    own = await run("raise RuntimeError('not today')", tools=tools)
    assert fault_of(own) is ProgramFault.EXECUTION_ERROR


@pytest.mark.parametrize("program", ["await stop()", "import asyncio\nawait asyncio.gather(stop(), echo(1))"])
@pytest.mark.parametrize("caught", [False, True])
async def test_a_fault_that_is_no_answer_ends_the_cell_even_if_the_program_would_catch_it(
    program: str, caught: bool
) -> None:
    """It comes out bare, and the program has no say."""

    async def stop(arguments: Any) -> str:
        raise CommitUnknown("lost")

    async def echo(arguments: Any) -> str:
        await trio.sleep_forever()
        raise AssertionError

    if caught:
        program = "import asyncio\ntry:\n  await stop()\nexcept BaseException:\n  pass\nwhile True: pass"
    with trio.fail_after(60), pytest.raises(CommitUnknown, match="lost"):
        await run(program, tools={"stop": stop, "echo": echo}, execution_seconds=600)
    assert workers() == []


async def test_unconfirmed_cleanup_of_a_tool_is_no_answer() -> None:
    """Although it is a tool's error."""

    async def stop(arguments: Any) -> str:
        raise CleanupUnconfirmed("still there")

    with pytest.raises(CleanupUnconfirmed):
        await run("try:\n  await stop()\nexcept BaseException: pass", tools={"stop": stop})


async def test_a_fault_reaches_a_program_that_computes() -> None:
    """The interpreter is killed in the middle of its loop."""

    async def stop(arguments: Any) -> str:
        raise CommitUnknown("lost")

    async def tick() -> None:
        return None

    program = "import asyncio\nasync def spin():\n  while True: tick()\nawait asyncio.gather(stop(), spin())"
    with trio.fail_after(60), pytest.raises(CommitUnknown):
        await run(program, tools={"stop": stop}, helpers={"tick": tick}, execution_seconds=600, host_calls=1_000_000)


async def test_calls_that_nobody_awaits_are_never_made() -> None:
    """A call is made when it is awaited or gathered, as with any coroutine."""
    called = []

    async def note(arguments: Any) -> str:
        called.append(arguments)
        return "null"

    assert value_of(await run("note(a=1)\n5", tools={"note": note})) == 5
    assert called == []


async def test_the_end_of_a_program_cancels_the_calls_it_left_and_waits_for_them() -> None:
    """What a tool does when it is cancelled is its own; the cell ends after it."""
    ended = []

    async def slow(arguments: Any) -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.05)
            ended.append(True)
        raise AssertionError

    program = "import asyncio\nasync def bad():\n  await echo(1)\n  1 / 0\nawait asyncio.gather(slow(), bad())"

    async def echo(arguments: Any) -> str:
        return "1"

    end = await run(program, tools={"slow": slow, "echo": echo})
    assert message_of(end) == "ZeroDivisionError: division by zero"
    assert ended == [True]


async def test_a_fault_while_calls_are_drained_comes_out() -> None:
    """Although the program has ended well."""

    async def slow(arguments: Any) -> str:
        try:
            await trio.sleep_forever()
        finally:
            raise CommitUnknown("lost at the end")

    program = "import asyncio\nasync def go():\n  await echo(1)\n  leave(3)\nawait asyncio.gather(slow(), go())"

    async def echo(arguments: Any) -> str:
        return "1"

    async def leave(value: Any) -> Any:
        raise Exit(ProgramValue(value))

    with pytest.raises(CommitUnknown):
        await run(program, tools={"slow": slow, "echo": echo}, helpers={"leave": leave})


async def test_leaving_ends_the_program_where_it_is() -> None:
    """With the value it gives, also inside `try`."""
    end = await run("try:\n  leave({'done': True})\nexcept BaseException:\n  pass\nleave(2)")
    assert value_of(end) == {"done": True}


async def test_a_helper_is_called_as_it_is_defined() -> None:
    """Wrong arguments and values that are no JSON are mistakes of the program, which it may catch."""
    assert "leave" in message_of(await run("leave(1, 2)"))
    assert fault_of(await run("leave(lambda: 1)")) is ProgramFault.EXECUTION_ERROR
    assert value_of(await run("try:\n  leave(1, 2)\nexcept RuntimeError:\n  pass\n7")) == 7


async def test_sleeps_overlap_and_cost_no_execution_time() -> None:
    """Ten gathered sleeps take as long as one, and longer than the program may run."""
    began = trio.current_time()
    program = "import asyncio, time\ntime.sleep(0.5)\nawait asyncio.gather(*[asyncio.sleep(0.7) for i in range(10)])\n1"
    assert value_of(await run(program, execution_seconds=1)) == 1
    assert 1.2 <= trio.current_time() - began < 0.5 + 10 * 0.7


async def test_waiting_for_a_tool_costs_no_execution_time() -> None:
    """The clock runs only while the program does."""

    async def slow(arguments: Any) -> str:
        await trio.sleep(1.2)
        return "1"

    assert value_of(await run("await slow()", tools={"slow": slow}, execution_seconds=1)) == 1


async def test_output_comes_as_it_is_written() -> None:
    """Both streams, in order, before a call is made."""
    seen = []
    output = Output()

    async def look(arguments: Any) -> str:
        seen.append(output.text)
        return "null"

    await run(
        "print('a', 1)\nawait look()\nimport sys\nprint('b', file=sys.stderr)", tools={"look": look}, output=output
    )
    assert seen == ["a 1\n"]
    assert output.text == "a 1\nb\n"


async def test_an_error_says_where_in_the_program() -> None:
    """Lines of the program only, innermost last."""
    end = await run("def half(x):\n  return 1 / x\n\nhalf(0)")
    assert isinstance(end.result, ProgramError)
    assert end.result.message == "ZeroDivisionError: division by zero"
    assert end.result.trace == ("line 4 in <module>: half(0)", "line 2 in half: return 1 / x")
    inside_tool = await run("await echo(lambda: 1)")
    assert isinstance(inside_tool.result, ProgramError)
    assert [line[:6] for line in inside_tool.result.trace] == ["line 1"]


async def test_a_result_too_large_for_the_program_is_a_failure() -> None:
    """Rather than the end of the program."""

    async def much(arguments: Any) -> str:
        return '"' + "x" * (5 << 20) + '"'

    end = await run("await much()", tools={"much": much}, memory_bytes=8 << 20)
    assert fault_of(end) is ProgramFault.TOOL_FAILURE


async def test_cells_share_nothing() -> None:
    """Each has an interpreter of its own."""
    await run("x = 1\nimport json\njson.x = 1")
    assert fault_of(await run("x")) is ProgramFault.EXECUTION_ERROR


async def test_an_interpreter_that_is_killed_from_outside_is_an_error_of_its_program() -> None:
    """And of nothing else."""

    async def kill(arguments: Any) -> str:
        for pid in workers():
            os.kill(pid, signal.SIGKILL)
        return "1"

    end = await run("await kill()\nwhile True: pass", tools={"kill": kill})
    assert fault_of(end) is ProgramFault.EXECUTION_ERROR
    assert "stopped unexpectedly" in message_of(end)


# --- cancelling -------------------------------------------------------------------------------------------


async def test_a_cancel_stops_an_endless_loop_at_once() -> None:
    """The scope is left as soon as the process is dead."""
    with trio.move_on_after(0.2) as scope:
        await run("while True: pass", execution_seconds=60)
    assert scope.cancelled_caught
    assert workers() == []


@pytest.mark.parametrize(
    "program",
    [
        "await forever()",
        "import asyncio\nawait asyncio.gather(forever(), forever())",
        "import time\ntime.sleep(50)",
        "import asyncio\nawait asyncio.sleep(50)",
        "wait()",
        "print('x')\nwhile True: pass",
    ],
)
async def test_a_cancel_reaches_a_program_wherever_it_waits(program: str) -> None:
    """In a call, several, a sleep or a helper."""
    expected = program.count("forever()") + program.count("wait()")
    begun, cancelled = trio.Semaphore(0), []

    async def forever(arguments: Any = None) -> Any:
        begun.release()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.append(True)

    async def wait() -> Any:
        return await forever()

    async def cancel_when_it_waits() -> None:
        for _ in range(expected):
            await begun.acquire()
        if not expected:
            await trio.sleep(0.2)  # nothing tells; wherever the program is, the cancel has to reach it
        scope.cancel()

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_when_it_waits)
            await run(program, tools={"forever": forever}, helpers={"wait": wait}, execution_seconds=60)
    assert scope.cancelled_caught
    assert workers() == []
    assert len(cancelled) == expected


async def test_a_cell_that_is_cancelled_before_it_begins_starts_nothing() -> None:
    """Nor does one whose turn to run has not come."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await run("1")
    assert scope.cancelled_caught
    threads = trio.CapacityLimiter(1)
    async with threads:
        with trio.move_on_after(0.05) as scope:
            await run_cell("1", CellFunctions(), CellLimits(), threads=threads)
        assert scope.cancelled_caught
        assert workers() == []


async def test_many_cells_with_random_cancels_leave_nothing() -> None:
    """No process, no descriptor, no thread, and the next cell works."""
    draw = random.Random(7)

    async def nap(arguments: Any) -> str:
        await trio.sleep(0.002)
        return "1"

    program = "import asyncio\nfor i in range(3):\n  await asyncio.gather(nap(), nap())\n  sum(range(30000))\n1"

    async def one(seconds: float) -> None:
        with trio.move_on_after(seconds):
            await run(program, tools={"nap": nap})

    await one(10)  # what the interpreter keeps in this process once, it has now
    await one(0.001)
    threads, held = set(threading.enumerate()), len(descriptors())
    for _ in range(50):
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(one, draw.uniform(0, 0.05))
    assert workers() == []
    assert len(descriptors()) <= held
    fresh = {thread for thread in threading.enumerate() if not thread.name.startswith("Trio")} - threads
    assert fresh == set()
    assert value_of(await run("1 + 1")) == 2


# --- the process ------------------------------------------------------------------------------------------


async def test_a_worker_inherits_nothing_and_has_the_kernels_limits() -> None:
    """No descriptor of ours, no environment; processor time, memory and descriptors are bounded."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    worker = Worker(CellLimits(execution_seconds=3), lambda text: True)
    try:
        await trio.to_thread.run_sync(worker.open, {}, ())
        folder = Path(f"/proc/{worker.pid}")
        ours = os.readlink(f"/proc/self/fd/{writing}")  # noqa: PTH115 - not a path that one could walk
        held = {entry.name: str(entry.readlink()) for entry in (folder / "fd").iterdir()}
        assert set(held) == {"0", "1", "2"}
        assert ours not in held.values()
        assert (folder / "environ").read_bytes() == b""
        bounds = {line[:26].strip(): line[26:].split()[:2] for line in (folder / "limits").read_text().splitlines()}
        assert bounds["Max cpu time"] == ["4", "4"]
        assert bounds["Max open files"] == ["16", "16"]
        assert bounds["Max core file size"] == ["0", "0"]
        assert os.get_inheritable(writing)
    finally:
        await trio.to_thread.run_sync(worker.close)  # noqa: ASYNC102 - it ends by itself
        os.close(reading)
        os.close(writing)
    assert workers() == []


HOST = """
import sys, trio
sys.path.insert(0, {root!r})
from maka_trio.code.sandbox import CellEnd, CellFunctions, Exit, run_cell
from maka_trio.code.cell_limits import CellLimits

async def forever(arguments):
    await trio.sleep_forever()

async def main():
    functions = CellFunctions({{"forever": forever}})
    async with trio.open_nursery() as nursery:
        for program in ("while True: pass", "await forever()", "import re\\nre.sub('a', 'b', 'a' * 10_000_000)"):
            nursery.start_soon(run_cell, program, functions, CellLimits(execution_seconds=3))

trio.run(main)
"""


def test_a_host_that_is_killed_leaves_no_worker_beyond_its_time_limit() -> None:
    """One that waits ends at once; one that computes, at its limit, or at the kernel's on processor time."""
    root = str(Path(__file__).parents[2])
    with subprocess.Popen([sys.executable, "-c", HOST.format(root=root)]) as host:
        try:
            children: set[int] = set()
            while len(children) < 3:  # one may have met its limit before the next was there
                assert host.poll() is None
                time.sleep(0.01)
                children |= children_of(host.pid)
        finally:
            host.kill()
    deadline = time.monotonic() + 120  # a few seconds of processor time, on a machine that others use too
    while (alive := [pid for pid in children if _runs(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive == []


def _runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


FIRST = """
import sys, sysconfig, threading, trio
sys.path.insert(0, {root!r})
from maka_trio.code.sandbox import CellFunctions, run_cell
from maka_trio.code.cell_limits import CellLimits

asked, ask = [], sysconfig.get_config_vars
sysconfig.get_config_vars = lambda *names: (asked.append(threading.current_thread()), ask(*names))[1]
trio.run(run_cell, "1", CellFunctions(), CellLimits())
assert asked[0] is threading.main_thread(), asked
"""


async def test_an_executor_runs_programs_of_one_trio_run_at_a_time() -> None:
    """Their turns are handed on within a run; programs of another one would wait for ever for theirs."""
    code, began, go_on = CodeExecutor(), trio.Event(), trio.Event()

    async def hold(arguments: Any) -> str:
        began.set()
        await go_on.wait()
        return "null"

    def program(text: str) -> Callable[[], Awaitable[CellEnd]]:
        functions = CellFunctions({"hold": hold}, {})
        return lambda: code.run(text, functions, write=Output().write)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(program("await hold()"))
        await began.wait()

        async def elsewhere() -> None:
            with pytest.raises(InvalidInput, match="another trio run"):
                await program("1")()

        await trio.to_thread.run_sync(trio.run, elsewhere)
        go_on.set()
    ended = await trio.to_thread.run_sync(trio.run, program("2"))
    assert ended.result == ProgramValue(2)
    assert code.statistics().ended == 2


def test_the_first_programs_of_a_process_may_start_at_the_same_moment() -> None:
    """What Python makes at the first question, and not safely, is made before there are threads that ask."""
    root = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-c", FIRST.format(root=root)], check=True, timeout=60)


# --- being an extra ---------------------------------------------------------------------------------------


async def test_without_the_interpreter_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an optional part."""
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    with pytest.raises(InvalidInput, match=r"maka-trio\[code\]"):
        await run("1")


def test_the_interpreter_is_imported_by_its_first_use_only() -> None:
    """Who runs no programs needs none of it."""
    script = (
        "import sys, maka_trio.engine, maka_trio.code, maka_trio.code.sandbox\n"
        "assert 'pydantic_monty' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2])

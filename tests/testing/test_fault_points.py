"""Everything that can fail fails once: sockets, tools, marked places. What a program does about it is seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from maka_trio import errors, facts
from maka_trio.errors import InvalidInput, MakaError
from maka_trio.log import EventLog
from maka_trio.testing import SOCKET_FAULTS, TOOL_FAULTS, Shot, Trial, fallible, fault_everywhere, run_log_trial
from maka_trio.tools import PreparedEffect, ToolCatalog, ToolRegistration

Client = Callable[[trio.SocketStream], Awaitable[None]]


async def with_echo(client: Client) -> None:
    """A server that echoes, and one client of it."""

    async def serve(stream: trio.SocketStream) -> None:
        try:
            async with stream:
                async for data in stream:
                    await stream.send_all(data)
        except trio.BrokenResourceError:
            pass

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await client(stream)
        nursery.cancel_scope.cancel()


async def ask(stream: trio.SocketStream) -> bytes:
    await stream.send_all(b"hello")
    answer = b""
    while len(answer) < 5:
        data = await stream.receive_some(3)
        if not data:
            raise EOFError("the peer left in the middle of its answer")
        answer += data
    return answer


async def careful(trial: Trial) -> None:
    """A client that bounds its wait, and takes each failure for what it is."""

    async def client(stream: trio.SocketStream) -> None:
        with trio.fail_after(10):
            assert await ask(stream) == b"hello"

    try:
        await with_echo(client)
    except* (OSError, trio.BrokenResourceError, trio.TooSlowError, EOFError) as failures:
        trial.world.failures = failures.exceptions
        assert trial.shot


def test_a_careful_client_survives_whatever_its_sockets_do() -> None:
    """Each connect, read and write of both sides fails in each way; nothing hangs, nothing is left open."""
    exploration = fault_everywhere(careful, seeds=3)
    exploration.raise_for_violations()
    kinds = {attempt.replay.shots[0].target for attempt in exploration.attempts if attempt.replay.shots}
    assert kinds == set(SOCKET_FAULTS)


@pytest.mark.parametrize(
    ("kind", "fault", "told"),
    [
        ("connect", "refused", OSError),
        ("connect", "timed_out", OSError),
        ("read", "reset", trio.BrokenResourceError),
        ("read", "end", EOFError),
        ("read", "silence", trio.TooSlowError),
        ("write", "broken_pipe", trio.BrokenResourceError),
    ],
)
def test_a_fault_is_told_as_a_real_socket_tells_it(kind: str, fault: str, told: type[Exception]) -> None:
    """The first operation of its kind is the client's own, or ends its connection."""
    found: list[Exception] = []

    async def scenario(trial: Trial) -> None:
        trial.world.failures = ()
        await careful(trial)
        found.extend(trial.world.failures)

    calm = run_log_trial(scenario, name_points=True)
    mine = next(point for point in calm.fault_points if point.kind == kind and "serve" not in point.where)
    assert run_log_trial(scenario, fault=Shot(mine.number, kind, fault)).violations == ()
    assert [type(error) for error in found[-1:]] == [told]


async def without_a_bound(trial: Trial) -> None:
    """Waits for its peer as long as it takes."""

    async def client(stream: trio.SocketStream) -> None:
        await ask(stream)

    try:
        await with_echo(client)
    except* (OSError, trio.BrokenResourceError, EOFError):
        pass


def test_a_client_that_bounds_no_silence_is_found_and_may_be_excused() -> None:
    """Only `silence` breaks it, and `without` leaves that out."""
    broken = {violation.shots[0].how for violation in fault_everywhere(without_a_bound).violations}
    assert broken == {"silence"}
    assert fault_everywhere(without_a_bound, without=["silence"]).violations == ()


async def takes_the_end_for_an_answer(trial: Trial) -> None:
    """Reads until it has enough or there is no more, and does not ask which."""
    answers: list[bytes] = []

    async def client(stream: trio.SocketStream) -> None:
        await stream.send_all(b"hello")
        with trio.move_on_after(10):
            answers.append(await stream.receive_some(5))

    try:
        await with_echo(client)
    except* (OSError, trio.BrokenResourceError):
        pass
    trial.check(lambda: answers in ([], [b"hello"]) or f"answered {answers}")


def test_an_end_that_is_taken_for_an_answer_is_found() -> None:
    """An early end of the stream breaks it, at the client's read or because the server was told of one."""
    violations = fault_everywhere(takes_the_end_for_an_answer).violations
    assert violations
    assert all(violation.shots[0].target in ("read", "write") for violation in violations)
    assert any(violation.shots[0].how == "end" for violation in violations)


def test_a_marked_place_fails_in_each_of_its_ways() -> None:
    """`may_fail` raises each error once, and names the place."""
    raised: list[str] = []

    async def scenario(trial: Trial) -> None:
        await trio.lowlevel.checkpoint()
        for _ in range(2):
            try:
                trial.may_fail(LookupError, OSError)
            except (LookupError, OSError) as error:
                raised.append(type(error).__name__)
                assert trial.shot

    exploration = fault_everywhere(scenario)
    exploration.raise_for_violations()
    assert raised == ["LookupError", "OSError"] * 2
    assert exploration.points.total() == 4
    (place,) = exploration.points
    assert "raise at" in place
    assert "test_fault_points.py" in place


def test_a_fault_that_is_not_handled_is_a_violation_with_its_replay() -> None:
    """The smallest of them says which point, which fault and where."""

    async def scenario(trial: Trial) -> None:
        await trio.lowlevel.checkpoint()
        trial.may_fail(LookupError)

    smallest = fault_everywhere(scenario).smallest
    assert smallest is not None
    assert "LookupError" in smallest.words
    assert smallest.token == "0/LookupError@1:raise"
    assert (
        smallest.replay
        == "run_log_trial(scenario, follow_up, seed=0, fault=Shot(step=1, target='raise', how='LookupError'))"
    )
    assert run_log_trial(scenario, fault=smallest.shots[0]).violations == (smallest.words,)


def test_a_follow_up_gets_the_log_of_a_scenario_and_no_faults() -> None:
    """What comes after the fault runs in peace."""
    high_waters = []

    async def scenario(trial: Trial, log: EventLog) -> None:
        await trio.lowlevel.checkpoint()
        try:
            trial.may_fail(OSError)
        except OSError:
            return

    async def follow_up(trial: Trial, log: EventLog) -> None:
        trial.may_fail(OSError)
        high_waters.append((await log.head()).high_water)

    fault_everywhere(scenario, follow_up).raise_for_violations()
    assert high_waters == [0, 0]


def test_tools_fail_with_every_public_error() -> None:
    """None of the public tree is left out, unless it is only a family."""
    leaves = {
        kind.__name__
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, MakaError) and not kind.__subclasses__()
    }
    assert leaves <= {fault.__name__ for fault in TOOL_FAULTS}
    assert all(isinstance(fault(), Exception) for fault in TOOL_FAULTS)


class Prepared:
    async def prepare(self, arguments: Any, call: Any) -> PreparedEffect:
        async def run(value: Any) -> str:
            return "done"

        return PreparedEffect(run)


async def immediate(value: Any, call: Any) -> str:
    return "done"


@pytest.mark.parametrize("handler", [immediate, Prepared()], ids=["immediate", "prepared"])
def test_fallible_tools_fail_after_their_effect(handler: Any) -> None:
    """Both kinds of handlers: the effect happens, and what is returned is the error."""

    async def scenario(trial: Trial) -> None:
        definition = facts.ToolDefinition("t", "t", {"type": "object"})
        (registration,) = fallible(trial, ToolCatalog([ToolRegistration(definition, handler)])).registrations
        made: Any = registration.handler
        try:
            if isinstance(handler, Prepared):
                assert await (await made.prepare({}, None)).run({}) == "done"
            else:
                assert await made({}, None) == "done"
        except Exception:
            if not trial.shot:
                raise

    exploration = fault_everywhere(scenario)
    exploration.raise_for_violations()
    assert exploration.runs == 1 + len(TOOL_FAULTS)


def test_points_are_spread_and_jobs_share_them() -> None:
    """Half the points are half the runs; two processes find what one finds."""
    everything = fault_everywhere(takes_the_end_for_an_answer, seeds=2)
    assert fault_everywhere(takes_the_end_for_an_answer, points=5).runs == 1 + 5
    shared = fault_everywhere(takes_the_end_for_an_answer, seeds=2, jobs=2)
    assert (shared.runs, shared.points, shared.traces) == (everything.runs, everything.points, everything.traces)
    assert shared.violations == everything.violations
    with pytest.raises(InvalidInput, match="jobs=0"):
        fault_everywhere(careful, jobs=0)

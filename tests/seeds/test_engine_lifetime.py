"""A caller that vanishes cancels its run; the run keeps its session until the effect in flight is durable.

The scenario runs on a real SQLite file and over real sockets, with the original's time limit and assertions.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from maka_trio import (
    ApiKey,
    Busy,
    CellLimits,
    CodeExecutor,
    Engine,
    EventLog,
    Invocation,
    InvocationConfiguration,
    MessageWork,
    ModelExecutor,
    ProviderConfig,
    ProviderKind,
    RunInput,
    ToolCall,
    ToolCatalog,
    ToolDefinition,
    ToolMode,
    ToolNesting,
    ToolRegistration,
    ToolSemantics,
    facts,
)

API_KEY = "test-key-that-no-file-may-hold"


@attrs.define
class Effect:
    """A native effect that goes on after the abort until it is released."""

    entered: trio.Event = attrs.field(factory=trio.Event)
    cancelled: trio.Event = attrs.field(factory=trio.Event)
    release: trio.Event = attrs.field(factory=trio.Event)
    count: int = 0

    async def __call__(self, value: facts.JSON, call: ToolCall) -> facts.JSON:
        self.count += 1
        self.entered.set()
        await call.cancelled.wait()
        self.cancelled.set()
        await self.release.wait()
        return value


def run_input(base: str, suffix: str, effect: Effect) -> RunInput:
    registration = ToolRegistration(
        ToolDefinition(name="echo", description="echo", input_schema={"type": "object"}),
        effect,
        nesting=ToolNesting.NESTABLE,
        semantics=ToolSemantics.PARALLEL,
    )
    return RunInput(
        invocation=Invocation("session", f"turn-{suffix}", f"run-{suffix}", f"invocation-{suffix}"),
        provider=ProviderConfig(
            kind=ProviderKind.OPENAI_CHAT_COMPLETIONS, model="test", base_url=base, auth=ApiKey(API_KEY)
        ),
        provider_id="fixture",
        configuration=InvocationConfiguration(tool_mode=ToolMode.DIRECT),
        work=MessageWork(f"question {suffix}", tools=ToolCatalog([registration])),
    )


def reply(tool: bool) -> bytes:
    if tool:
        delta: dict[str, Any] = {
            "tool_calls": [
                {
                    "index": index,
                    "id": f"call-{index + 1}",
                    "type": "function",
                    "function": {"name": "echo", "arguments": f'{{"value":{42 + index}}}'},
                }
                for index in range(2)
            ]
        }
    else:
        delta = {"content": "done"}
    head = {"id": "reply", "object": "chat.completion.chunk", "created": 1, "model": "test"}
    first = head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    last = head | {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if tool else "stop"}],
        "usage": {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7},
    }
    body = f"data: {json.dumps(first)}\n\ndata: {json.dumps(last)}\n\ndata: [DONE]\n\n".encode()
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
        % (len(body), body)
    )


async def read_request(stream: trio.SocketStream) -> Any:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive_some()
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        body += await stream.receive_some()
    return json.loads(body)


async def serve(listener: trio.SocketListener, requests: list[Any]) -> None:
    async with listener:
        for index in range(3):
            stream = await listener.accept()
            async with stream:
                requests.append(await read_request(stream))
                await stream.send_all(reply(tool=index == 0))


def kinds(stored: list[facts.StoredEvent]) -> str:
    return ",".join(event.event.fact.kind for event in stored)


async def test_aborted_caller_cancels_worker_but_retains_admission_until_effect_is_durable(tmp_path: Path) -> None:
    """The caller is free at once; the session stays busy, the effect settles, and the next run follows the end."""
    path = tmp_path / "events.sqlite"
    effect = Effect()
    requests: list[Any] = []
    with trio.fail_after(30):
        async with trio.open_nursery() as server:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            base = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/v1"
            server.start_soon(serve, listener, requests)
            await first_process(path, base, effect)
            await reopened_process(path, base, effect)
    assert effect.count == 1, "a committed effect is never replayed"
    check_history(requests)
    check_nothing_is_left(tmp_path)


async def first_process(path: Path, base: str, effect: Effect) -> None:
    async with (
        EventLog.open(path) as log,
        ModelExecutor(idle_timeout=10.0) as models,
        Engine(log, models, code=CodeExecutor(CellLimits())) as engine,
    ):
        caller_scope = trio.CancelScope()
        around_caller = trio.CancelScope()
        outcome: list[str] = []

        async def caller() -> None:
            with around_caller, caller_scope:
                await engine.run(run_input(base, "aborted", effect))
                outcome.append("returned")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(caller)
            await effect.entered.wait()
            caller_scope.cancel()
        assert caller_scope.cancelled_caught
        assert outcome == []
        await effect.cancelled.wait()
        assert not around_caller.cancel_called, "dropping a run cancels the run's own scope only"

        held = await log.prefix(100, 128 * 1024)
        assert isinstance(held.events[-1].event.fact, facts.ToolDispatched)
        assert held.project_invocation("invocation-aborted").terminal is None
        with pytest.raises(Busy):
            await engine.run(run_input(base, "blocked", effect))
        assert (await log.prefix(100, 128 * 1024)).high_water == held.high_water, (
            "a refused admission and an aborted caller do not seal a live effect"
        )

        effect.release.set()
        while True:
            try:
                await engine.run(run_input(base, "next", effect))
            except Busy:
                await trio.lowlevel.checkpoint()
            else:
                break
        await check_settled_log(log)
        await engine.drain()


async def check_settled_log(log: EventLog) -> None:
    settled = await log.prefix(100, 128 * 1024)
    aborted = [stored for stored in settled.events if stored.event.invocation.invocation_id == "invocation-aborted"]
    boundaries = [stored for stored in aborted if not isinstance(stored.event.fact, facts.ModelObserved)]
    for stored in aborted:
        if isinstance(stored.event.fact, facts.ModelObserved):
            assert boundaries[1].sequence < stored.sequence < boundaries[2].sequence
    assert kinds(boundaries) == (
        "invocation_opened,model_requested,model_completed,tool_dispatched,tool_settled,tool_rejected,invocation_ended"
    )
    dispatched = boundaries[3].event.fact
    assert isinstance(dispatched, facts.ToolDispatched)
    assert isinstance(dispatched.call.origin, facts.Provider), "a direct call keeps the step of its provider"
    step_id = dispatched.call.origin.step_id
    tool_settled = boundaries[4].event.fact
    assert isinstance(tool_settled, facts.ToolSettled)
    assert tool_settled.operation_id == dispatched.operation_id
    assert isinstance(tool_settled.outcome, facts.Succeeded)
    result = await log.resolve_tool_result(boundaries[4].event.invocation.session_id, boundaries[4].event.id)
    assert result == {"value": 42}
    assert boundaries[5].event.fact == facts.ToolRejected(
        operation_id=f"{step_id}:call-2",
        call=facts.ToolCallIdentity.provider(step_id, "call-2"),
        name="echo",
        input={"value": 43},
        reason=facts.ToolRejection.cancelled(),
    )
    assert boundaries[6].event.fact == facts.InvocationEnded(facts.Cancelled(source="runtime_cancellation"))
    next_opening = next(
        stored for stored in settled.events if stored.event.invocation.invocation_id == "invocation-next"
    )
    assert boundaries[6].sequence < next_opening.sequence


async def reopened_process(path: Path, base: str, effect: Effect) -> None:
    """The log is opened again: the history is durable and usable, and no effect is replayed."""
    async with (
        EventLog.open(path) as log,
        ModelExecutor(idle_timeout=10.0) as models,
        Engine(log, models, code=CodeExecutor(CellLimits())) as engine,
    ):
        await engine.run(run_input(base, "reopened", effect))


def check_history(requests: list[Any]) -> None:
    assert len(requests) == 3
    for request, suffix in zip(requests[1:], ["next", "reopened"], strict=True):
        messages = request["messages"]
        assert messages[-1] == {"role": "user", "content": f"question {suffix}"}
        results = [message for message in messages if message["role"] == "tool"]
        assert len(results) == 2
        assert results[0]["tool_call_id"] == "call-1"
        assert results[1]["tool_call_id"] == "call-2"
        assert str(facts.ToolRejection.cancelled()) in results[1]["content"]
        assert json.loads(results[0]["content"]) == {"value": 42}


def check_nothing_is_left(folder: Path) -> None:
    assert threading.active_count() == 1 or all(
        not thread.name.startswith("maka") for thread in threading.enumerate()
    ), threading.enumerate()
    for file in folder.iterdir():
        assert API_KEY.encode() not in file.read_bytes(), file

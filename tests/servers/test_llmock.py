"""Against a server by others that breaks its answers and judges how its client takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maka_trio import facts
from maka_trio.errors import AdapterError, ContextOverflow, ModelTimedOut, ProviderFailure
from maka_trio.models import ModelExecutor
from maka_trio.request import ProviderConfig, ProviderKind
from tests.servers.clients import KINDS, adder, provider, step_of
from tests.servers.processes import Server

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("kind", KINDS)]

CALL = {"type": "reply", "tool_calls": [{"name": "add", "arguments": {"a": 2, "b": 3}}]}


def at(server: Server, kind: ProviderKind) -> ProviderConfig:
    return provider(f"{server.url}/{'anthropic/v1' if kind is ProviderKind.ANTHROPIC else 'v1'}", kind)


def script(server: Server, *behaviors: dict[str, Any]) -> None:
    server.ask("/_llmock/scenario", {"behaviors": list(behaviors)})


def verdict(server: Server) -> dict[str, Any]:
    """What the server thinks of us; never that we took half an answer for a whole one."""
    judged: dict[str, Any] = server.ask("/_llmock/verdict")
    codes = [finding["code"] for finding in judged["findings"]]
    assert "truncated_stream_accepted" not in codes
    assert judged["passed"], judged
    return judged


async def run(server: Server, kind: ProviderKind, path: Path, *, idle_timeout: float = 10.0) -> list[Any]:
    """A run with one call, and its facts. The call runs once, whatever became of attempts before."""
    async with adder(path, idle_timeout=idle_timeout) as it:
        done = await it.engine.run(it.input(at(server, kind), "Add two and three."))
        assert it.asked == [(2, 3)]
        return await it.facts_of(done)


async def test_a_run_with_a_tool_is_judged_well(llmock: Server, kind: ProviderKind, tmp_path: Path) -> None:
    """Two requests without a fault."""
    script(llmock, CALL)
    await run(llmock, kind, tmp_path)
    assert verdict(llmock)["attempts"] == 2


@pytest.mark.parametrize("fault", ["truncate", "disconnect"])
@pytest.mark.parametrize("after", [0, 1, 2, 3, 4])
async def test_a_cut_answer_is_asked_for_again(
    llmock: Server, kind: ProviderKind, fault: str, after: int, tmp_path: Path
) -> None:
    """In order or not, after any number of chunks: what was cut is no answer, and its call does not run."""
    script(llmock, {"type": "stream_fault", "kind": fault, "after_chunks": after}, CALL, CALL)
    found = await run(llmock, kind, tmp_path)
    judged = verdict(llmock)
    interrupted = [fact for fact in found if isinstance(fact, facts.ModelInterrupted)]
    assert judged["faults_injected"] == len(interrupted) == 1
    assert judged["attempts"] == 3


async def test_many_cuts_of_one_answer(llmock: Server, kind: ProviderKind, tmp_path: Path) -> None:
    """Each attempt is cut one chunk later, until one is whole."""
    faults = [{"type": "stream_fault", "kind": "truncate", "after_chunks": after} for after in range(4)]
    script(llmock, *faults, {**CALL, "times": len(faults) + 1})
    await run(llmock, kind, tmp_path)
    assert verdict(llmock)["faults_injected"] == len(faults)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
async def test_a_failure_that_passes_is_retried_when_the_server_says(
    llmock: Server, kind: ProviderKind, status: int, tmp_path: Path
) -> None:
    """Not before `Retry-After`, where there is one."""
    script(llmock, {"type": "fail", "status": status, "retry_after": 0.4, "times": 2}, CALL)
    await run(llmock, kind, tmp_path)
    assert verdict(llmock)["attempts"] == 4


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_a_failure_that_stays_is_not_retried(
    llmock: Server, kind: ProviderKind, status: int, tmp_path: Path
) -> None:
    """The status is told."""
    script(llmock, {"type": "fail", "status": status, "times": None})
    async with adder(tmp_path) as it:
        with pytest.raises(AdapterError, match=str(status)) as caught:
            await it.engine.run(it.input(at(llmock, kind), "Add."))
    assert caught.value.status == status
    assert verdict(llmock)["attempts"] == 1


async def test_a_broken_chunk_is_no_answer(llmock: Server, kind: ProviderKind, tmp_path: Path) -> None:
    """And nothing of it runs."""
    script(llmock, {"type": "stream_fault", "kind": "malformed", "after_chunks": 1}, CALL)
    async with adder(tmp_path) as it:
        with pytest.raises(AdapterError):
            await it.engine.run(it.input(at(llmock, kind), "Add."))
    assert it.asked == []
    verdict(llmock)


async def test_arguments_that_are_no_json_are_no_call(llmock: Server, kind: ProviderKind, tmp_path: Path) -> None:
    """They are not repaired."""
    script(llmock, {"type": "tool_fault", "kind": "malformed_arguments"})
    async with adder(tmp_path) as it:
        with pytest.raises(AdapterError, match="arguments"):
            await it.engine.run(it.input(at(llmock, kind), "Add."))
    assert it.asked == []


async def test_a_tool_that_nobody_offered_is_rejected(llmock: Server, kind: ProviderKind, tmp_path: Path) -> None:
    """The model is told, and goes on."""
    script(llmock, {"type": "tool_fault", "kind": "unknown_tool"})
    async with adder(tmp_path) as it:
        done = await it.engine.run(it.input(at(llmock, kind), "Add."))
        found = await it.facts_of(done)
    rejected = [fact for fact in found if isinstance(fact, facts.ToolRejected)]
    assert [fact.reason.kind for fact in rejected] == ["unavailable"]
    verdict(llmock)


async def test_a_stalled_answer_is_given_up(llmock: Server, kind: ProviderKind, tmp_path: Path) -> None:
    """After the idle timeout, with no half of it kept as an answer."""
    script(llmock, {"type": "stream_fault", "kind": "stall", "after_chunks": 1, "stall_seconds": 5}, CALL)
    async with adder(tmp_path, idle_timeout=0.5) as it:
        with pytest.raises(ModelTimedOut, match="idle_timeout"):
            await it.engine.run(it.input(at(llmock, kind), "Add."))
    assert it.asked == []
    judged = verdict(llmock)
    assert "no_read_timeout" not in [finding["code"] for finding in judged["findings"]]


async def test_a_prompt_that_does_not_fit_is_an_overflow(llmock: Server, kind: ProviderKind) -> None:
    """The server counts tokens and refuses, as the vendor of its protocol does."""
    async with ModelExecutor() as models:
        with pytest.raises(ContextOverflow) as caught:
            await step_of(models, at(llmock, kind), "word " * 4000)
    assert not caught.value.observed_output


async def test_a_failure_without_retries_is_told_with_its_wait(llmock: Server, kind: ProviderKind) -> None:
    """Whoever asks without an engine decides by what stands on the error."""
    script(llmock, {"type": "fail", "status": 429, "retry_after": 7})
    async with ModelExecutor() as models:
        with pytest.raises(ProviderFailure) as caught:
            await step_of(models, at(llmock, kind), "Hello")
    error = caught.value
    assert (error.reason, error.status, error.retry_after, error.replay_safe) == ("rate_limit", 429, 7.0, True)

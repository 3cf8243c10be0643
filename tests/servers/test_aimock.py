"""Against a server by others that answers by fixture and makes faults on request, on every protocol."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from maka_trio import facts
from maka_trio.engine import RetryPolicy
from maka_trio.errors import (
    AdapterError,
    ContextOverflow,
    MakaError,
    ModelIncomplete,
    ProviderFailure,
)
from maka_trio.facts.model import FinishReason, TextKind, TextPart
from maka_trio.models import ModelExecutor
from maka_trio.request import ProviderConfig, ProviderKind
from tests.servers.clients import KINDS, adder, provider, step_of
from tests.servers.fixtures import ANSWER, SUM
from tests.servers.processes import Server

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("kind", KINDS)]

NO_RETRY = RetryPolicy(retries=0)


def at(server: Server, kind: ProviderKind, **settings: Any) -> ProviderConfig:
    return provider(f"{server.url}/v1", kind, **settings)


def thinking(parts: tuple[Any, ...]) -> str:
    texts = [part for part in parts if isinstance(part, TextPart)]
    return "".join(part.text for part in texts if part.text_kind is TextKind.THINKING)


async def test_text_and_thinking_are_parts_of_their_own(aimock: Server, kind: ProviderKind) -> None:
    """What was thought is not mixed into what was said."""
    async with ModelExecutor() as models:
        step = await step_of(models, at(aimock, kind), "THINK")
    assert (step.text(), thinking(step.parts)) == (ANSWER, "hm, a question")
    assert step.finish_reason is FinishReason.STOP


async def test_a_call_after_text_is_one_step(aimock: Server, kind: ProviderKind) -> None:
    """Text, then a call with its arguments."""
    async with ModelExecutor() as models:
        step = await step_of(models, at(aimock, kind), "MIXED")
    assert step.text() == "before"
    assert [(call.name, call.input) for call in step.local_calls()] == [("add", {"a": 2, "b": 3})]
    assert step.finish_reason is FinishReason.TOOL_CALLS


async def test_a_run_with_two_calls_comes_to_its_answer(aimock: Server, kind: ProviderKind, tmp_path: Path) -> None:
    """The server takes the history with calls and results, and answers it."""
    async with adder(tmp_path) as it:
        done = await it.engine.run(it.input(at(aimock, kind), "ADD"))
        found = await it.facts_of(done)
    assert it.asked == [(2, 3), (4, 5)]
    completed = [fact for fact in found if isinstance(fact, facts.ModelCompleted)]
    assert [fact.output.text() for fact in completed] == ["I will add. ", SUM]
    assert thinking(completed[0].output.parts) == "two sums"


async def test_an_answer_at_its_limit_is_incomplete(aimock: Server, kind: ProviderKind, tmp_path: Path) -> None:
    """The partial text stays. On one protocol this server does not say what the answer lacks, so it makes no step."""
    told = kind is not ProviderKind.OPENAI_RESPONSES
    async with adder(tmp_path) as it:
        asked = it.input(at(aimock, kind), "LONG")
        with pytest.raises(ModelIncomplete if told else AdapterError, match=r"incomplete|output limit"):
            await it.engine.run(asked)
        completed = [f for f in await it.facts_of(asked.invocation) if isinstance(f, facts.ModelCompleted)]
    assert [fact.output.text() for fact in completed] == [ANSWER] * told


async def test_a_rate_limit_is_one(aimock: Server, kind: ProviderKind) -> None:
    """Status and words of the server are kept."""
    async with ModelExecutor() as models:
        with pytest.raises(ProviderFailure, match="slow down") as caught:
            await step_of(models, at(aimock, kind), "BUSY")
    assert (caught.value.reason, caught.value.status, caught.value.replay_safe) == ("rate_limit", 429, True)


async def test_a_prompt_that_does_not_fit_is_an_overflow(aimock: Server, kind: ProviderKind) -> None:
    """By its code, or by the one sentence with numbers that a vendor has for it."""
    async with ModelExecutor() as models:
        with pytest.raises(ContextOverflow):
            await step_of(models, at(aimock, kind), "LARGE")


@pytest.mark.parametrize("chunks", range(1, 8))
async def test_no_call_of_a_cut_answer_runs(aimock: Server, kind: ProviderKind, chunks: int, tmp_path: Path) -> None:
    """Wherever the server stops: no effect, no rejection, one failure that says why."""
    async with adder(tmp_path, retry=NO_RETRY) as it:
        asked = it.input(at(aimock, kind), f"CUT{chunks}.")
        with pytest.raises(ProviderFailure) as caught:
            await it.engine.run(asked)
        story = [fact.kind for fact in await it.facts_of(asked.invocation)]
    assert caught.value.reason in ("stream_truncated", "network")
    assert it.asked == []
    assert story == ["invocation_opened", "model_requested", "model_interrupted", "invocation_ended"]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("dropRate", ProviderFailure),
        ("rateLimitRate", ProviderFailure),
        ("disconnectRate", ProviderFailure),
        ("malformedRate", AdapterError),
    ],
)
async def test_each_fault_has_its_meaning(
    aimock: Server, kind: ProviderKind, fault: str, expected: type[MakaError]
) -> None:
    """The server's trouble and the network's may be tried again, nonsense may not."""
    scope = f"fault-{fault}-{kind}"
    aimock.ask("/__aimock/chaos", {fault: 1}, x_test_id=scope)
    async with ModelExecutor() as models:
        with pytest.raises(expected) as caught:
            await step_of(models, at(aimock, kind, headers={"x-test-id": scope}), "THINK")
    if isinstance(caught.value, ProviderFailure):
        assert caught.value.replay_safe


async def test_in_chaos_a_run_is_whole_or_has_failed(aimock: Server, kind: ProviderKind, tmp_path: Path) -> None:
    """Never half an answer, never a tool twice for one call, never an unlawful log."""
    scope = f"chaos-{kind}"
    rates = {"dropRate": 0.15, "disconnectRate": 0.2, "malformedRate": 0.05, "latencyMs": 1}
    aimock.ask("/__aimock/chaos", rates, x_test_id=scope)
    config = at(aimock, kind, headers={"x-test-id": scope})
    outcomes: Counter[str] = Counter()
    async with adder(tmp_path, retry=RetryPolicy(base=0.001, longest=0.01)) as it:
        for _ in range(40):
            it.asked.clear()
            asked = it.input(config, "ADD")
            try:
                await it.engine.run(asked)
            except (ProviderFailure, AdapterError) as error:
                outcomes[type(error).__name__] += 1
                assert it.asked in ([], [(2, 3), (4, 5)])
            else:
                outcomes["done"] += 1
                assert it.asked == [(2, 3), (4, 5)]
            completed = [f for f in await it.facts_of(asked.invocation) if isinstance(f, facts.ModelCompleted)]
            assert [f.output.text() for f in completed] == ["I will add. ", SUM][: len(completed)]
    assert outcomes["done"] >= 10, outcomes

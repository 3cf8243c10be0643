"""Retries: only what is safe, each attempt a step of its own, nothing of a failed attempt fed back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from maka_trio import facts
from maka_trio.engine import RetryPolicy
from maka_trio.errors import AdapterError, ContextOverflow, ModelTimedOut, ProviderFailure
from maka_trio.request import ProviderKind
from maka_trio.testing import Gate
from maka_trio.testing.answers import Call, Disconnect, Reset
from tests.engine.scene import echo, registration, scene


def requests_of(found: list[Any]) -> list[facts.ModelRequested]:
    return [fact for fact in found if isinstance(fact, facts.ModelRequested)]


async def test_a_replay_safe_failure_is_tried_again(tmp_path: Path) -> None:
    """Two attempts, two steps, one input digest; the answer of the second counts."""
    async with scene(tmp_path) as it:
        it.provider.fail(503)
        it.provider.say("hello")
        await it.engine.run(it.input())
        assert await it.story() == (
            "invocation_opened model_requested model_interrupted model_requested model_completed invocation_ended"
        )
        found = await it.facts()
        first, second = requests_of(found)
        assert first.step_id != second.step_id
        assert first.input_digest == second.input_digest
        assert found[2].status is facts.InterruptionStatus.RETRYABLE_FAILURE
        assert it.provider.requests[0].raw == it.provider.requests[1].raw


@pytest.mark.parametrize("end", [Reset(), Disconnect()], ids=["reset", "disconnect"])
@pytest.mark.parametrize("kind", [ProviderKind.OPENAI_CHAT_COMPLETIONS, ProviderKind.ANTHROPIC])
async def test_nothing_of_a_cut_attempt_is_executed_or_repeated(tmp_path: Path, kind: ProviderKind, end: Any) -> None:
    """One dispatch, with the arguments of the attempt that ended properly."""
    async with scene(tmp_path) as it:
        it.provider.say("I will ", Call("echo", {"n": 1}, id="a"), end)
        it.provider.call_tools(("echo", {"n": 2}, "a"))
        it.provider.say("done")
        await it.engine.run(it.input(kind=kind, tools=[registration("echo", echo)]))
        dispatched = [fact for fact in await it.facts() if isinstance(fact, facts.ToolDispatched)]
        assert [fact.input for fact in dispatched] == [{"n": 2}]
        digests = [request.input_digest for request in requests_of(await it.facts())]
        assert digests[0] == digests[1] != digests[2]
        assert "I will" not in str(it.provider.requests[2].raw)


async def test_attempts_are_visible_to_followers(tmp_path: Path) -> None:
    """`model_interrupted` stands between the text of two attempts."""
    async with scene(tmp_path) as it:
        it.provider.say("one", Reset())
        it.provider.say("two")
        running = await it.engine.start(it.input())
        seen = []
        async for stored in running.events():
            match stored.event.fact:
                case facts.ModelObserved(event=facts.PartDelta(text=text)):
                    seen.append(text)
                case facts.ModelInterrupted():
                    seen.append("|")
        assert seen[-2:] == ["|", "two"]


async def test_the_number_of_retries_is_bounded(tmp_path: Path) -> None:
    """One request and nine retries, then the failure itself."""
    async with scene(tmp_path) as it:
        for _ in range(10):
            it.provider.fail(503)
        with pytest.raises(ProviderFailure) as caught:
            await it.engine.run(it.input())
        assert caught.value.reason == "provider_unavailable"
        assert len(it.provider.requests) == 10
        assert (await it.facts())[-1].outcome.failure_class is facts.FailureClass.MODEL_PROVIDER


async def test_final_failures_are_not_tried_again(tmp_path: Path) -> None:
    """A bad request, an overflow and a silent provider each fail the run at once, with a class of their own."""
    async with scene(tmp_path, idle_timeout=0.3) as it:
        it.provider.answer(400, {}, {"error": {"message": "bad", "type": "invalid_request_error"}})
        with pytest.raises(AdapterError):
            await it.engine.run(it.input())
        it.provider.answer(400, {}, {"error": {"message": "long", "code": "context_length_exceeded"}})
        with pytest.raises(ContextOverflow):
            await it.engine.run(it.input())
        it.provider.silence()
        with pytest.raises(ModelTimedOut):
            await it.engine.run(it.input())
        assert len(it.provider.requests) == 3
        ends = [fact.outcome for fact in await it.facts() if isinstance(fact, facts.InvocationEnded)]
        assert [outcome.failure_class.value for outcome in ends] == [
            "model_adapter",
            "context_overflow",
            "model_timeout",
        ]
        statuses = [fact.status.value for fact in await it.facts() if isinstance(fact, facts.ModelInterrupted)]
        assert statuses == ["failed", "failed", "timed_out"]


async def test_a_longer_wait_than_is_honoured_fails_at_once(tmp_path: Path) -> None:
    """The error says how long the provider asked to wait."""
    async with scene(tmp_path) as it:
        it.provider.fail(429, headers={"retry-after": "301"})
        with pytest.raises(ProviderFailure) as caught:
            await it.engine.run(it.input())
        assert caught.value.reason == "rate_limit"
        assert caught.value.retry_after == 301
        assert len(it.provider.requests) == 1


async def test_a_wait_the_provider_asks_for_is_kept(tmp_path: Path) -> None:
    """Retry-After in milliseconds goes before the one in seconds."""
    async with scene(tmp_path, retry=RetryPolicy(base=600, longest=600)) as it:
        it.provider.fail(429, headers={"retry-after-ms": "5", "retry-after": "200"})
        it.provider.say("hello")
        with trio.fail_after(100):
            await it.engine.run(it.input())


async def test_a_cancel_during_backoff_ends_the_run_at_once(tmp_path: Path) -> None:
    """No further request is made."""
    async with scene(tmp_path, retry=RetryPolicy(base=600, longest=600)) as it:
        it.provider.fail(503)
        running = await it.engine.start(it.input())
        async for stored in running.events():
            if isinstance(stored.event.fact, facts.ModelInterrupted):
                running.cancel()
        assert len(it.provider.requests) == 1
        assert (await it.facts())[-1].outcome == facts.Cancelled("runtime_cancellation")


class TestPolicy:
    """`RetryPolicy.delay` is a pure decision."""

    def test_backoff_doubles_up_to_its_longest(self) -> None:
        """1, 2, 4, 8, 16, then 32 seconds; a tenth failure is final."""
        failure = ProviderFailure(replay_safe=True)
        delays = [RetryPolicy().delay(failure, n, lambda: 0.0) for n in range(1, 11)]
        assert delays == [1, 2, 4, 8, 16, 32, 32, 32, 32, None]

    def test_jitter_adds_at_most_a_quarter(self) -> None:
        """Runs that failed together do not come back together."""
        assert RetryPolicy().delay(ProviderFailure(replay_safe=True), 1, lambda: 1.0) == 1.25

    def test_only_replay_safe_provider_failures_are_retried(self) -> None:
        """Everything else is final."""
        assert RetryPolicy().delay(ProviderFailure(replay_safe=False), 1) is None
        assert RetryPolicy().delay(ModelTimedOut(), 1) is None
        assert RetryPolicy().delay(AdapterError(), 1) is None

    def test_retry_after_is_taken_as_it_is_or_not_at_all(self) -> None:
        """Up to the honoured wait; no jitter is added to what the provider said."""
        assert RetryPolicy().delay(ProviderFailure(replay_safe=True, retry_after=300.0), 1) == 300.0
        assert RetryPolicy().delay(ProviderFailure(replay_safe=True, retry_after=300.1), 1) is None


async def test_a_gate_holds_the_second_attempt_apart(tmp_path: Path) -> None:
    """While the second attempt streams, the first one's interruption is already durable."""
    async with scene(tmp_path) as it:
        gate = Gate()
        it.provider.fail(500)
        it.provider.say(gate, "hello")
        running = await it.engine.start(it.input())
        await gate.reached()
        assert "model_interrupted model_requested" in await it.story()
        gate.open()
        await running.wait()

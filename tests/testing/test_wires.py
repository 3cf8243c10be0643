"""What the provider is told to say is what our own adapters read, in every protocol."""

from __future__ import annotations

import pytest
import trio

from maka_trio.engine import RetryPolicy
from maka_trio.errors import AdapterError, ContextOverflow, ModelError, ModelTimedOut, ProviderFailure
from maka_trio.facts import FinishReason, ModelStep, ModelUsage, TextKind, TextPart
from maka_trio.models import ModelExecutor
from maka_trio.request import Message, ModelRequest, ProviderKind
from maka_trio.steps import StepBuilder
from maka_trio.testing import (
    Call,
    Disconnect,
    Headers,
    Heartbeat,
    Reset,
    ScriptedProvider,
    Silence,
    Thinking,
    WireError,
)

THINKING = [ProviderKind.OPENAI_COMPATIBLE, ProviderKind.ANTHROPIC, ProviderKind.OPENAI_RESPONSES]
KINDS = [ProviderKind.OPENAI_CHAT_COMPLETIONS, *THINKING]


async def ask(provider: ScriptedProvider, kind: ProviderKind, idle_timeout: float = 10) -> ModelStep:
    async with ModelExecutor(idle_timeout) as models:
        builder = StepBuilder()
        request = ModelRequest(provider.config(kind), [Message.user("hi")], max_output_tokens=100)
        async with models.stream(request) as stream:
            async for event in stream:
                builder.push(event)
        return builder.finish()


async def failure(provider: ScriptedProvider, kind: ProviderKind, idle_timeout: float = 10) -> ModelError:
    with trio.fail_after(60), pytest.raises(ModelError) as caught:
        await ask(provider, kind, idle_timeout)
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", ["event", "packed", 1, 13])
async def test_text_and_calls_are_read_back(kind: ProviderKind, chunk: str | int) -> None:
    """Text in order, calls whole, usage and reason as scripted, however the body is cut."""
    async with ScriptedProvider() as provider:
        provider.say(
            "Hé",
            Heartbeat(),
            "llo",
            Call("f", {"q": ["é", 1.5, None]}, "c1"),
            Call("g", fragments=("{", '"a"', ":1}"), id="c2"),
            usage=ModelUsage(20, 7, cache_read_tokens=4),
            chunk=chunk,
        )
        step = await ask(provider, kind)
    assert step.text() == "Héllo"
    assert [(call.id, call.name, call.input) for call in step.tool_calls()] == [
        ("c1", "f", {"q": ["é", 1.5, None]}),
        ("c2", "g", {"a": 1}),
    ]
    assert step.finish_reason is FinishReason.TOOL_CALLS
    assert (step.usage.input_tokens, step.usage.output_tokens, step.usage.cache_read_tokens) == (20, 7, 4)


@pytest.mark.parametrize("kind", THINKING)
async def test_thinking_is_read_back(kind: ProviderKind) -> None:
    """It is a part of its own, before the text."""
    async with ScriptedProvider() as provider:
        provider.say(Thinking("let "), Thinking("me see", signature="sig"), "done")
        step = await ask(provider, kind)
    texts = [(part.text_kind, part.text) for part in step.parts if isinstance(part, TextPart)]
    assert texts == [(TextKind.THINKING, "let me see"), (TextKind.TEXT, "done")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reason", list(FinishReason))
async def test_the_finish_reason_is_read_back(kind: ProviderKind, reason: FinishReason) -> None:
    """Each neutral reason has a word in each protocol."""
    async with ScriptedProvider() as provider:
        calls = [Call("f", {})] if reason is FinishReason.TOOL_CALLS else []
        provider.say("x", *calls, finish=reason)
        step = await ask(provider, kind)
    assert step.finish_reason is reason
    assert len(step.tool_calls()) == len(calls)


@pytest.mark.parametrize("kind", KINDS)
async def test_unstated_usage_stays_unknown(kind: ProviderKind) -> None:
    """What the script does not state is not zero."""
    async with ScriptedProvider() as provider:
        provider.say("x", usage=None)
        provider.say("x", usage=ModelUsage(output_tokens=2))
        assert (await ask(provider, kind)).usage == ModelUsage()
        assert (await ask(provider, kind)).usage.input_tokens is None


@pytest.mark.parametrize("kind", KINDS)
async def test_an_unscripted_request_fails_at_once(kind: ProviderKind) -> None:
    """The sentence arrives, and no engine tries again for minutes what the script will never answer."""
    async with ScriptedProvider() as provider:
        error = await failure(provider, kind)
    assert isinstance(error, ProviderFailure)
    assert "not in the script" in str(error)
    assert RetryPolicy().delay(error, 1) is None


@pytest.mark.parametrize("kind", KINDS)
async def test_failures_are_what_they_are_scripted_to_be(kind: ProviderKind) -> None:
    """Status, error bodies, errors in the stream, resets, cuts, silence: each is the error that it should be."""
    async with ScriptedProvider() as provider:
        provider.fail(429, "rate_limit_error", headers={"retry-after": "2"})
        limited = await failure(provider, kind)
        provider.fail(400, "context_length_exceeded" if kind is not ProviderKind.ANTHROPIC else "request_too_large")
        overflow = await failure(provider, kind)
        provider.fail(404, "not_found_error")
        missing = await failure(provider, kind)
        provider.say("x", WireError("overloaded_error"))
        overloaded = await failure(provider, kind)
        provider.reset()
        reset = await failure(provider, kind)
        provider.say("x", Reset())
        broken = await failure(provider, kind)
        provider.say("x", Disconnect())
        cut = await failure(provider, kind)
        provider.silence()
        silent = await failure(provider, kind, idle_timeout=0.1)
        provider.say(Headers(), "x", Silence())
        silent_later = await failure(provider, kind, idle_timeout=0.1)
    assert isinstance(limited, ProviderFailure)
    assert (limited.reason, limited.retry_after) == ("rate_limit", 2)
    assert isinstance(overflow, ContextOverflow)
    assert isinstance(missing, AdapterError)
    assert isinstance(overloaded, ProviderFailure)
    assert overloaded.reason == "provider_unavailable"
    for error in (reset, broken, cut):
        assert isinstance(error, ProviderFailure)
        assert error.reason in ("network", "stream_truncated")
        assert error.replay_safe
    assert isinstance(silent, ModelTimedOut)
    assert isinstance(silent_later, ModelTimedOut)

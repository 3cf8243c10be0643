"""A prompt that grows is encoded message by message, once; nobody can tell from the body."""

from __future__ import annotations

import attrs
import pytest

from maka_trio.dialect import Dialect
from maka_trio.errors import InvalidInput
from maka_trio.facts.message import Message, PromptMessage, TextOutput
from maka_trio.facts.model import ModelToolCall, TextKind, TextPart, ToolCallPart
from maka_trio.protocol import chat_messages
from maka_trio.protocol.openai_chat import ChatCompletions
from maka_trio.request import ApiKey, ModelRequest, PromptMemo, ProviderConfig, ProviderKind

VENDOR = ProviderConfig(ProviderKind.OPENAI_CHAT_COMPLETIONS, "m", "http://x/v1", ApiKey("k"))


def step(number: int) -> list[PromptMessage]:
    """A step with two calls whose ids every step uses again."""
    calls = [ToolCallPart(ModelToolCall(f"call_{at}", "echo", {"value": number})) for at in range(2)]
    said = TextPart(TextKind.TEXT, f"step {number}")
    thought = TextPart(TextKind.THINKING, "hm")
    answers = [Message.tool(f"call_{at}", "echo", TextOutput(f"result {number}")) for at in range(2)]
    return [Message.assistant([thought, said, *calls]), *answers]


def conversation(steps: int) -> list[PromptMessage]:
    start: list[PromptMessage] = [Message.system("be brief"), Message.user("go on")]
    for number in range(steps):
        start += step(number)
        if number % 3 == 2:
            start.append(Message.user(f"and {number}"))
    return start


def body(prompt: list[PromptMessage], memo: PromptMemo | None = None, provider: ProviderConfig = VENDOR) -> bytes:
    return ChatCompletions().encode(ModelRequest(provider, prompt, memo=memo or PromptMemo())).body


@pytest.mark.parametrize("dialect", [None, Dialect(reasoning_replay="tool_loop", reasoning_key="reasoning_content")])
def test_each_body_is_what_it_is_without_a_memo(dialect: Dialect | None) -> None:
    """Wherever the prompt is cut, also where reasoning goes away once the user speaks again."""
    provider = VENDOR
    if dialect is not None:
        kind = ProviderKind.OPENAI_COMPATIBLE
        provider = ProviderConfig(kind, "m", "http://x/v1", ApiKey("k"), name="some-server", dialect=dialect)
    memo, prompt = PromptMemo(), conversation(8)
    whole = [at for at in range(2, len(prompt) + 1) if at == len(prompt) or prompt[at].role != "tool"]
    for end in whole:
        assert body(prompt[:end], memo, provider) == body(prompt[:end], None, provider)


def test_a_message_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the prompt it stands in is sent."""
    seen: list[int] = []
    original = chat_messages.turns

    def counting(prompt: list[PromptMessage], **settings: object) -> object:
        seen.append(len(prompt))
        return original(prompt, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(chat_messages, "turns", counting)
    memo, prompt = PromptMemo(), conversation(3)
    for end in (2, 5, 5, 8):
        body(prompt[:end], memo)
    assert seen == [2, 3, 0, 3]


def test_another_prompt_under_the_same_memo_is_encoded_from_its_beginning() -> None:
    """Equal is not the same: JSON tells 1 from true."""
    memo = PromptMemo()
    for value in (1, True, 1.0):
        call = ToolCallPart(ModelToolCall("c", "echo", {"value": value}))
        prompt = [Message.user("go on"), Message.assistant([call]), Message.tool("c", "echo", TextOutput("x"))]
        assert body(prompt, memo) == body(prompt)
    long = conversation(4)
    assert body(long, memo) == body(long)
    assert body(long[:5], memo) == body(long[:5])


def test_other_settings_are_encoded_from_the_beginning() -> None:
    """What a message looks like depends on them."""
    memo, prompt = PromptMemo(), conversation(2)
    body(prompt, memo)
    server = ProviderConfig(ProviderKind.OPENAI_COMPATIBLE, "m", "http://x/v1", ApiKey("k"), name="deepseek")
    assert body(prompt, memo, server) == body(prompt, None, server)
    assert body(prompt, memo) == body(prompt)


def test_a_prompt_that_cannot_be_encoded_leaves_nothing_behind() -> None:
    """The next one is whole again."""
    memo, prompt = PromptMemo(), conversation(2)
    body(prompt[:5], memo)
    with pytest.raises(InvalidInput):
        body(prompt[:7], memo)
    assert body(prompt, memo) == body(prompt)


def test_a_memo_is_no_part_of_a_request() -> None:
    """Requests are equal whatever they remember, and their repr does not tell."""
    request = ModelRequest(VENDOR, conversation(1))
    other = attrs.evolve(request, memo=PromptMemo())
    assert request == other
    assert "memo" not in repr(request)

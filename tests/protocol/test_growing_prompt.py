"""A prompt that grows is encoded message by message, once; nobody can tell from the body."""

from __future__ import annotations

from types import ModuleType

import attrs
import pytest

from maka_trio.dialect import Dialect
from maka_trio.errors import InvalidInput
from maka_trio.facts.json_value import JsonObject
from maka_trio.facts.message import AssistantMessage, Message, PromptMessage, SystemMessage, TextOutput
from maka_trio.facts.model import ModelToolCall, TextKind, TextPart, ToolCallPart, ToolResultPart
from maka_trio.protocol import anthropic_messages, chat_messages, openai_responses_items
from maka_trio.protocol.openai_chat import ChatCompletions
from maka_trio.protocol.registry import adapter_for
from maka_trio.request import ApiKey, GrowingPrompt, ModelRequest, PromptMemo, ProviderConfig, ProviderKind

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


# --- the other protocols ---------------------------------------------------------------------------------

ANTHROPIC = ProviderConfig(ProviderKind.ANTHROPIC, "m", "http://x", ApiKey("k"))
RESPONSES = ProviderConfig(ProviderKind.OPENAI_RESPONSES, "m", "http://x", ApiKey("k"))
SIGNED: JsonObject = {
    "anthropic": {"signature": "s"},
    "openai": {"item_id": "r", "carrier": "summary", "sealed": True, "encrypted_content": "e"},
}


def spoken(steps: int, *, hosted_at: int = -1) -> list[PromptMessage]:
    """A conversation with thoughts, text between calls and answers, system text in its middle, and paused turns."""
    said: list[PromptMessage] = [Message.system("be brief"), Message.user("go on")]
    for number in range(steps):
        thought = TextPart(TextKind.THINKING, f"hm {number}", SIGNED)
        call = ToolCallPart(ModelToolCall("call", "echo", {"value": number}))
        said += [Message.assistant([thought, TextPart(TextKind.TEXT, f"step {number} "), call])]
        said += [Message.user("meanwhile")] if number % 4 == 1 else []
        said += [Message.tool("call", "echo", TextOutput(f"result {number}"))]
        if number == hosted_at:
            done = ModelToolCall("h", "web_search", {}, {"anthropic": {"block": {"type": "server_tool_use"}}}, True)
            said += [Message.assistant([ToolCallPart(done), ToolResultPart("h", "web_search", {"status": "deferred"})])]
        match number % 3:
            case 0:
                said += [Message.user(f"and {number}"), Message.user("and")]
            case 1:
                said += [Message.assistant([TextPart(TextKind.TEXT, "wait \n")]), Message.assistant([thought])]
            case 2:
                said += [Message.system("be briefer")]
    return said


def whole_prompts(said: list[PromptMessage]) -> list[list[PromptMessage]]:
    """The beginnings of a conversation that leave no call open."""
    ends = [
        end
        for end in range(2, len(said) + 1)
        if sum(len(_local(message)) for message in said[:end]) == sum(message.role == "tool" for message in said[:end])
    ]
    return [said[:end] for end in ends]


def _local(message: PromptMessage) -> list[ToolCallPart]:
    parts = message.parts if isinstance(message, AssistantMessage) else ()
    return [part for part in parts if isinstance(part, ToolCallPart) and not part.call.provider_executed]


def encoded(provider: ProviderConfig, prompt: list[PromptMessage], memo: PromptMemo, **options: object) -> bytes:
    key = "anthropic" if provider is ANTHROPIC else "openai"
    request = ModelRequest(provider, prompt, provider_options={key: options}, memo=memo)  # type: ignore[dict-item]
    return adapter_for(provider).encode(request).body


@pytest.mark.parametrize("hosted_at", [-1, 0, 3])
@pytest.mark.parametrize(
    ("provider", "options"),
    [
        (ANTHROPIC, {}),
        (ANTHROPIC, {"cache": "5m"}),
        (RESPONSES, {}),
        (RESPONSES, {"store": True, "system_role": "instructions"}),
        (RESPONSES, {"system_role": "developer", "replay_reasoning": "never"}),
    ],
)
def test_each_body_of_the_other_protocols_is_what_it_is_without_a_memo(
    provider: ProviderConfig, options: dict[str, object], hosted_at: int
) -> None:
    """Wherever the prompt is cut: the end of it, which what follows may still change, is encoded anew."""
    memo = PromptMemo()
    for prompt in whole_prompts(spoken(8, hosted_at=hosted_at)):
        assert encoded(provider, prompt, memo, **options) == encoded(provider, prompt, PromptMemo(), **options)


@pytest.mark.parametrize(("provider", "module"), [(ANTHROPIC, anthropic_messages), (RESPONSES, openai_responses_items)])
def test_the_other_protocols_take_each_message_once(
    provider: ProviderConfig, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the prompt it stands in is sent; unless the provider itself executed something in it."""
    seen: list[int] = []
    original = module.turns

    def counting(prompt: list[PromptMessage], **settings: object) -> object:
        seen.append(len(prompt))
        return original(prompt, **settings)

    monkeypatch.setattr(module, "turns", counting)
    memo, prompt = PromptMemo(), spoken(3)
    for end in (2, 4, 4, 6):
        encoded(provider, prompt[:end], memo)
    assert sum(seen) == 6 - (provider is RESPONSES)  # where the system message is said elsewhere
    seen.clear()
    hosted = spoken(3, hosted_at=0)
    for end in (5, 5):
        encoded(provider, hosted[:end], memo)
    assert sum(seen) >= 2 * 4


# --- prompts of one conversation -------------------------------------------------------------------------


def test_a_growing_prompt_is_known_by_its_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not compared message by message, and one of another conversation is."""
    memo, said, system = PromptMemo(), conversation(4)[1:], SystemMessage("be brief")
    growing = said[:4]
    memo.keep("settings", GrowingPrompt.of(system, growing), "encoded")
    growing += said[4:]
    longer = GrowingPrompt.of(system, growing)
    assert longer == (system, *said)
    assert memo.take("settings", longer) == (5, "encoded")
    for other in (GrowingPrompt.of(SystemMessage("be brief"), growing), GrowingPrompt.of(None, growing)):
        memo.keep("settings", longer, "encoded")
        assert memo.take("settings", other) == (0, None)
    memo.keep("settings", GrowingPrompt.of(system, growing[:4]), "encoded")
    assert memo.take("settings", longer) == (5, "encoded")  # the same objects after all


def test_a_memo_is_no_part_of_a_request() -> None:
    """Requests are equal whatever they remember, and their repr does not tell."""
    request = ModelRequest(VENDOR, conversation(1))
    other = attrs.evolve(request, memo=PromptMemo())
    assert request == other
    assert "memo" not in repr(request)

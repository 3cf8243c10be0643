"""Reasoning goes back to the provider that made it, in the form it insists on, and to nobody else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from maka_trio.dialect import Dialect
from maka_trio.request import ProviderKind
from maka_trio.testing import Call, RecordedRequest, Thinking
from tests.engine.scene import Scene, echo, registration, scene

DETAILS = [
    {"type": "reasoning.text", "text": "because ", "index": 0},
    {"type": "reasoning.text", "text": "of this", "signature": "c2lnbmVk", "index": 0},
    {"type": "reasoning.encrypted", "data": "AAAA//8=", "index": 1},
]
JOINED = [
    {"type": "reasoning.text", "text": "because of this", "signature": "c2lnbmVk", "index": 0},
    {"type": "reasoning.encrypted", "data": "AAAA//8=", "index": 1},
]
THINKING_PART = {"type": "thinking", "thinking": [{"type": "text", "text": "because"}]}


@attrs.frozen
class Server:
    """A server that insists: what it sends, and what the turn with the call must carry when it comes back.

    Args:
        name: the server's name in the table; None for the vendor.
        sent: the reasoning as a delta.
        in_loop: what the turn carries while its call is being answered.
        later: what it carries once the user has spoken again.
        dialect: in place of the table's.
    """

    name: str | None
    sent: dict[str, Any]
    in_loop: dict[str, Any]
    later: dict[str, Any]
    dialect: Dialect | None = None

    def insists(self, expected: dict[str, Any]) -> Callable[[RecordedRequest], bool]:
        """Whether a request's first assistant turn carries exactly this reasoning."""

        def carries(request: RecordedRequest) -> bool:
            assert isinstance(request.body, dict)
            messages: Any = request.body["messages"]
            turn = next(message for message in messages if message["role"] == "assistant")
            known = {"role", "tool_calls"} | ({"content"} - set(expected))
            return {key: value for key, value in turn.items() if key not in known} == expected

        return carries


CONTENT = {"reasoning_content": "because"}
SHORT = {"reasoning": "because"}
SERVERS = [
    pytest.param(Server("moonshot", CONTENT, CONTENT, CONTENT), id="always"),
    pytest.param(Server("deepseek", CONTENT, CONTENT, {}), id="in the tool loop"),
    pytest.param(Server("together", CONTENT, {}, {}), id="never"),
    pytest.param(Server("groq", SHORT, SHORT, SHORT), id="key"),
    pytest.param(Server("vllm", CONTENT, SHORT, SHORT), id="other key"),
    pytest.param(
        Server(
            "openrouter",
            {"reasoning": "because of this", "reasoning_details": DETAILS},
            {"reasoning_details": JOINED},
            {"reasoning_details": JOINED},
        ),
        id="details",
    ),
    pytest.param(
        Server(
            "mistral",
            {"content": [THINKING_PART]},
            {"content": [THINKING_PART, {"type": "text", "text": "Well."}]},
            {"content": [THINKING_PART, {"type": "text", "text": "Well."}]},
        ),
        id="content",
    ),
    pytest.param(
        Server(
            "house",
            CONTENT,
            {"thoughts": "because"},
            {},
            Dialect(reasoning_key="thoughts", reasoning_replay="tool_loop"),
        ),
        id="a dialect of one's own",
    ),
    pytest.param(Server(None, CONTENT, {}, {}), id="the vendor"),
]


def answer(delta: dict[str, Any]) -> bytes:
    """Reasoning, a word, a call, the end."""
    called = {"index": 0, "id": "c1", "type": "function", "function": {"name": "echo", "arguments": "{}"}}
    deltas = [delta, {"content": "Well."}, {"tool_calls": [called]}]
    chunks: list[Any] = [{"id": "r", "choices": [{"index": 0, "delta": part}]} for part in deltas]
    chunks.append({"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    return b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"


def config_of(it: Scene, server: Server) -> Any:
    if server.name is None:
        return it.provider.config()
    return it.provider.config(ProviderKind.OPENAI_COMPATIBLE, name=server.name, dialect=server.dialect)


@pytest.mark.parametrize("server", SERVERS)
async def test_a_chat_server_gets_back_what_it_insists_on(tmp_path: Path, server: Server) -> None:
    """In the second step of the turn, and in the turn after; text and reasoning are never mixed."""
    async with scene(tmp_path) as it:
        it.provider.raw_sse(answer(server.sent))
        it.provider.say("First.", when=server.insists(server.in_loop))
        it.provider.say("Second.", when=server.insists(server.later))
        config = config_of(it, server)
        for message in ("one", "two"):
            await it.engine.run(it.input(message, provider=config, tools=[registration("echo", echo)]))
        it.provider.check_script()
        completed = [fact for fact in await it.facts() if fact.kind == "model_completed"]
    assert [fact.output.text() for fact in completed] == ["Well.", "First.", "Second."]


def signed(request: RecordedRequest) -> list[Any]:
    """The reasoning of a request: thinking blocks of one protocol, reasoning items of the other."""
    body: Any = request.body
    if "input" in body:
        return [item for item in body["input"] if item.get("type") == "reasoning"]
    blocks = [block for m in body["messages"] if m["role"] == "assistant" for block in m["content"]]
    return [block for block in blocks if block["type"] == "thinking"]


@pytest.mark.parametrize("kind", [ProviderKind.ANTHROPIC, ProviderKind.OPENAI_RESPONSES])
async def test_signed_reasoning_comes_back_byte_for_byte_on_its_own_route_alone(
    tmp_path: Path, kind: ProviderKind
) -> None:
    """Another model would refuse the signature, or take the thought for its own."""
    thought, seal = "first \u2028 then\u0000 é", "Sig+/==\u00e9"
    async with scene(tmp_path) as it:
        it.provider.say(Thinking(thought, signature=seal), "Well.", Call("echo", {}))
        for text in ("First.", "Second.", "Third."):
            it.provider.say(text)
        here, elsewhere = it.provider.config(kind), it.provider.config(kind, model="another")
        for config in (here, here, elsewhere):
            await it.engine.run(it.input(provider=config, tools=[registration("echo", echo)]))
        first, second, third, fourth = map(signed, it.provider.requests)
    assert (first, fourth) == ([], [])
    assert second == third
    (block,) = second
    if kind is ProviderKind.ANTHROPIC:
        assert block == {"type": "thinking", "thinking": thought, "signature": seal}
    else:
        assert block["encrypted_content"] == seal
        assert block["summary"] == [{"type": "summary_text", "text": thought}]

"""The credential of a tool that the provider calls reaches the provider, and nothing that stays."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from maka_trio.errors import InvalidInput, MakaError
from maka_trio.facts.message import Message
from maka_trio.facts.opening import RequestSurface
from maka_trio.protocol.anthropic_options import AnthropicOptions
from maka_trio.protocol.chat_options import ChatOptions
from maka_trio.protocol.openai_responses_options import ResponsesOptions
from maka_trio.request import ApiKey, ProviderKind, input_digest
from tests.engine.scene import echo, registration, scene

TOKEN = "mcp-token-0123456789abcdef"
REFERENCE = {"$secret": "tracker"}
SECRETS = {"tracker": ApiKey(TOKEN)}

RESPONSES = ResponsesOptions(
    hosted_tools=(
        {
            "id": "openai.mcp",
            "args": {"server_label": "t", "server_url": "https://t.example", "authorization": REFERENCE},
        },
        {"id": "openai.mcp", "args": {"server_label": "u", "server_url": REFERENCE, "headers": {"x-key": REFERENCE}}},
    )
).provider_options()
ANTHROPIC = AnthropicOptions(
    mcp_servers=({"type": "url", "name": "t", "url": "https://t.example", "authorization_token": REFERENCE},)
).provider_options()
CHAT = ChatOptions(extra={"data_sources": [{"authentication": {"type": "api_key", "key": REFERENCE}}]})
KINDS = [
    pytest.param(ProviderKind.OPENAI_RESPONSES, RESPONSES, 3, id="responses"),
    pytest.param(ProviderKind.ANTHROPIC, ANTHROPIC, 1, id="anthropic"),
    pytest.param(ProviderKind.OPENAI_CHAT_COMPLETIONS, CHAT.provider_options(), 1, id="chat"),
    pytest.param(ProviderKind.OPENAI_COMPATIBLE, CHAT.provider_options("fixture"), 1, id="compatible"),
]


def kept(path: Path) -> bytes:
    """Every byte of the log's files."""
    return b"".join(file.read_bytes() for file in sorted(path.glob("log.sqlite*")))


def exported(path: Path) -> bytes:
    """What the command line exports of the log."""
    command = [sys.executable, "-m", "maka_trio", "export", str(path / "log.sqlite")]
    return subprocess.run(command, capture_output=True, check=True).stdout


@pytest.mark.parametrize(("kind", "options", "times"), KINDS)
async def test_the_server_gets_the_credential_and_the_log_its_name(
    tmp_path: Path, kind: ProviderKind, options: Any, times: int
) -> None:
    """In every request of the run; not in a byte of the log, of an export, or of a repr."""
    async with scene(tmp_path) as it:
        it.provider.call_tools(("put", {"n": 1}))
        it.provider.say("done")
        provider = it.provider.config(kind, secrets=SECRETS)
        asked = it.input(tools=[registration("put", echo)], provider=provider, provider_options=options)
        await it.engine.run(asked)
        assert [request.raw.count(TOKEN.encode()) for request in it.provider.requests] == [times, times]
        assert all(b"$secret" not in request.raw for request in it.provider.requests)
        assert TOKEN not in repr(asked)
        assert TOKEN not in repr(await it.events())
        assert TOKEN.encode() not in kept(tmp_path)
        await assert_digests_follow_from_the_log(it, options)
    assert TOKEN.encode() not in kept(tmp_path)
    bundle = exported(tmp_path)
    assert TOKEN.encode() not in bundle
    assert b'"$secret":"tracker"' in bundle


async def assert_digests_follow_from_the_log(it: Any, options: Any) -> None:
    """What the log holds is what was digested: the reference."""
    seen = await it.facts()
    surface: RequestSurface = seen[0].input.surface
    assert surface.provider_options == options
    first = next(fact for fact in seen if fact.kind == "model_requested")
    assert first.input_digest == input_digest([Message.user("question")], surface)


@pytest.mark.parametrize(("kind", "options", "times"), KINDS)
async def test_an_error_that_quotes_the_credential_is_masked(
    tmp_path: Path, kind: ProviderKind, options: Any, times: int
) -> None:
    """A provider may show what it was sent: neither the caller nor the log is told."""
    said = json.dumps({"error": {"message": f"no tools at {TOKEN} (was {TOKEN[:12]})"}})
    async with scene(tmp_path) as it:
        it.provider.answer(401, {"content-type": "application/json"}, said.encode())
        provider = it.provider.config(kind, secrets=SECRETS)
        with pytest.raises(MakaError) as caught:
            await it.engine.run(it.input(provider=provider, provider_options=options))
        assert TOKEN.encode() in it.provider.requests[0].raw
        assert "no tools at [secret]" in str(caught.value)
        for shown in (str(caught.value), repr(caught.value), repr(await it.events())):
            assert TOKEN[:12] not in shown
    assert TOKEN[:12].encode() not in kept(tmp_path)


@pytest.mark.parametrize(("kind", "options", "times"), KINDS)
async def test_a_reference_to_nothing_leaves_no_trace(
    tmp_path: Path, kind: ProviderKind, options: Any, times: int
) -> None:
    """It is refused before anything is written or sent."""
    async with scene(tmp_path) as it:
        with pytest.raises(InvalidInput, match="'tracker'"):
            await it.engine.run(it.input(provider=it.provider.config(kind), provider_options=options))
        assert not it.provider.requests
        assert not await it.events()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (
            ProviderKind.OPENAI_RESPONSES,
            {"openai": {"hosted_tools": [{"id": "openai.mcp", "args": {"headers": {"a": TOKEN}}}]}},
        ),
        (ProviderKind.ANTHROPIC, {"anthropic": {"mcp_servers": [{"authorization_token": TOKEN}]}}),
        (ProviderKind.OPENAI_CHAT_COMPLETIONS, {"openai": {"tools": [{"type": "mcp", "authorization": TOKEN}]}}),
        (ProviderKind.OPENAI_COMPATIBLE, {"some other server": {"api_key": TOKEN}}),
    ],
)
async def test_a_credential_in_the_open_leaves_no_trace(tmp_path: Path, kind: ProviderKind, options: Any) -> None:
    """Not even in options of a protocol that is not spoken: all of them are kept."""
    async with scene(tmp_path) as it:
        with pytest.raises(InvalidInput, match="holds a credential") as caught:
            await it.engine.run(it.input(kind=kind, provider_options=options))
        assert TOKEN not in str(caught.value)
        assert not await it.events()
    assert TOKEN.encode() not in kept(tmp_path)

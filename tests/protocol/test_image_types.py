"""Images go out under the type that their bytes have, in every protocol, from a user and from a tool."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from maka_trio.facts.message import ContentOutput, MediaContent, Message, PromptMessage, TextContent
from maka_trio.facts.model import ModelToolCall, ToolCallPart
from maka_trio.protocol.registry import adapter_for
from maka_trio.request import ApiKey, ModelRequest, ProviderConfig, ProviderKind

PNG = b"\x89PNG\r\n\x1a\n...."
AVIF = b"\0\0\0\x10ftypavif\0\0\0\0"
KINDS = list(ProviderKind)


def body(kind: ProviderKind, *prompt: PromptMessage) -> str:
    name = "generic" if kind is ProviderKind.OPENAI_COMPATIBLE else None
    provider = ProviderConfig(kind, "m", "http://127.0.0.1/v1", ApiKey("sk-test-key"), name=name)
    return adapter_for(provider).encode(ModelRequest(provider, prompt)).body.decode()


def images(kind: ProviderKind, *prompt: PromptMessage) -> list[tuple[str, bytes]]:
    """Media type and bytes of each image in a request."""
    return list(_images(json.loads(body(kind, *prompt))))


def _images(value: Any) -> Any:
    if isinstance(value, dict):
        if value.get("type") == "base64":
            yield value["media_type"], base64.b64decode(value["data"])
        for item in value.values():
            yield from _images(item)
    elif isinstance(value, list):
        for item in value:
            yield from _images(item)
    elif isinstance(value, str) and value.startswith("data:"):
        media_type, _, data = value.removeprefix("data:").partition(";base64,")
        yield media_type, base64.b64decode(data)


def shown_by_a_tool(part: MediaContent) -> list[PromptMessage]:
    call = ToolCallPart(ModelToolCall("c1", "look", {}))
    return [
        Message.user("look"),
        Message.assistant([call]),
        Message.tool("c1", "look", ContentOutput((TextContent("seen"), part))),
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("called", ["image/jpeg", "image/jpg", "Image/PNG", "image/bmp", "application/octet-stream"])
def test_a_wrong_name_is_put_right(kind: ProviderKind, called: str) -> None:
    """A provider refuses a request whose image is not what it is called."""
    part = MediaContent(called, data=PNG)
    assert images(kind, Message.user([TextContent("see"), part])) == [("image/png", PNG)]
    assert images(kind, *shown_by_a_tool(part)) == [("image/png", PNG)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("called", ["image/png", "image/jpeg", "image/gif", "image/webp"])
@pytest.mark.parametrize("data", [b"no picture", b"", b"%PDF-1.7"])
def test_what_is_no_image_is_left_out(kind: ProviderKind, called: str, data: bytes) -> None:
    """Bytes of no known kind: a text says so, and they stay here."""
    prompt = [Message.user([TextContent("see"), MediaContent(called, data=data, filename="a.png")])]
    assert images(kind, *prompt) == []
    sent = body(kind, *prompt)
    assert "[an image 'a.png' was left out: its bytes are no image of a known kind]" in sent
    assert base64.b64encode(data or b"?").decode() not in sent


@pytest.mark.parametrize(
    "kind", [ProviderKind.OPENAI_CHAT_COMPLETIONS, ProviderKind.OPENAI_RESPONSES, ProviderKind.ANTHROPIC]
)
def test_a_kind_that_the_vendor_does_not_read_is_left_out_by_its_true_name(kind: ProviderKind) -> None:
    """An AVIF that is called a PNG would be refused as one."""
    prompt = [Message.user([TextContent("see"), MediaContent("image/png", data=AVIF)])]
    assert images(kind, *prompt) == []
    assert "this provider does not take 'image/avif'" in body(kind, *prompt)


@pytest.mark.parametrize("kind", KINDS)
def test_what_lies_behind_an_address_is_what_it_is_called(kind: ProviderKind) -> None:
    """Nobody here looks."""
    part = MediaContent("image/jpeg", url="https://files.test/cat.png")
    assert "https://files.test/cat.png" in body(kind, Message.user([part]))

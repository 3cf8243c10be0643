"""Recorded answers as steps, and the requests that send them back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maka_trio.facts.json_value import JsonObject
from maka_trio.facts.message import Message
from maka_trio.facts.model import ModelStep
from maka_trio.protocol.registry import adapter_for
from maka_trio.request import ApiKey, ModelRequest, ProviderConfig, ProviderKind
from tests.protocol.corpus import CORPUS
from tests.protocol.decoding import run
from tests.protocol.wire_histories import sent_back
from tests.protocol.wire_rules import check_chat, check_messages, check_responses

CHECKS: dict[ProviderKind, Callable[[bytes], None]] = {
    ProviderKind.OPENAI_CHAT_COMPLETIONS: check_chat,
    ProviderKind.OPENAI_COMPATIBLE: check_chat,
    ProviderKind.OPENAI_RESPONSES: check_responses,
    ProviderKind.ANTHROPIC: check_messages,
}
FOLDERS = {
    "openai_chat": ProviderKind.OPENAI_CHAT_COMPLETIONS,
    "openai_compatible": ProviderKind.OPENAI_COMPATIBLE,
    "openai_responses": ProviderKind.OPENAI_RESPONSES,
    "anthropic": ProviderKind.ANTHROPIC,
}


def recordings(folder: str) -> list[Any]:
    streams = sorted((CORPUS / "streams" / folder).glob("*.sse"))
    return [pytest.param(stream, id=f"{folder}/{stream.stem[:40]}") for stream in streams]


def provider_of(stream: Path) -> ProviderConfig:
    kind = FOLDERS[stream.parent.name]
    name = "generic" if kind is ProviderKind.OPENAI_COMPATIBLE else None
    return ProviderConfig(kind, "model-x", "https://api.test/v1", ApiKey("secret"), name=name)


def step_of(stream: Path, options: JsonObject) -> ModelStep | None:
    """The recorded step; None for an answer that is none."""
    provider = provider_of(stream)
    request = ModelRequest(provider, [Message.user("Hi.")], provider_options=options)
    return run(adapter_for(provider).decoder(request), [stream.read_bytes()]).step


def body_after(stream: Path, step: ModelStep, options: JsonObject, *, going_on: bool) -> dict[str, Any]:
    """The next request, which passes the strict checker."""
    provider = provider_of(stream)
    request = ModelRequest(provider, sent_back(step, going_on=going_on), provider_options=options)
    raw = adapter_for(provider).encode(request).body
    CHECKS[provider.kind](raw)
    return dict(json.loads(raw))

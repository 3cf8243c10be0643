"""Typed options of chat completions, and where users find those of every protocol."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from maka_trio import protocol
from maka_trio.errors import InvalidInput
from maka_trio.facts import ToolDefinition
from maka_trio.facts.json_value import JsonObject
from maka_trio.facts.message import Message
from maka_trio.protocol import AnthropicOptions, ChatOptions, ResponsesOptions
from maka_trio.protocol.chat_options import CHECKS, read_options
from maka_trio.protocol.registry import adapter_for
from maka_trio.request import ApiKey, ModelRequest, ProviderConfig, ProviderKind
from tests.protocol.chat_wire import request
from tests.protocol.wire_streams import named

HELLO = Message.user("hello")
PUT = ToolDefinition("put", "writes", {"type": "object"})
SCHEMA: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

EVERYTHING = ChatOptions(
    temperature=0.5,
    top_p=1,
    frequency_penalty=-2,
    presence_penalty=2.0,
    seed=-7,
    stop=("END", "\n\n"),
    logit_bias={"50256": -100},
    reasoning_effort="high",
    verbosity="low",
    output_schema=SCHEMA,
    output_schema_name="number",
    output_schema_strict=False,
    tool_choice="put",
    parallel_tool_calls=False,
    web_search={"search_context_size": "low"},
    service_tier="flex",
    store=False,
    metadata={"team": "a"},
    user="u",
    prompt_cache_key="k",
    safety_identifier="s",
    extra={"top_k": 40},
)


def body(options: JsonObject, *, name: str | None = None, tools: tuple[ToolDefinition, ...] = ()) -> dict[str, Any]:
    asked = request(HELLO, name=name, tools=tools, provider_options=options)
    sent: dict[str, Any] = json.loads(adapter_for(asked.provider).encode(asked).body)
    return sent


def test_every_option_stands_where_the_protocol_wants_it() -> None:
    """The schema as a response format, the tool by its name, the rest under names of their own."""
    sent = body(EVERYTHING.provider_options(), tools=(PUT,))
    plain = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed", "logit_bias", "verbosity")
    more = ("reasoning_effort", "parallel_tool_calls", "service_tier", "store", "metadata", "user")
    for name in (*plain, *more, "prompt_cache_key", "safety_identifier"):
        assert sent[name] == getattr(EVERYTHING, name)
    assert sent["stop"] == ["END", "\n\n"]
    assert sent["web_search_options"] == {"search_context_size": "low"}
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "put"}}
    schema = {"name": "number", "schema": SCHEMA, "strict": False}
    assert sent["response_format"] == {"type": "json_schema", "json_schema": schema}
    assert sent["top_k"] == 40


def test_what_is_not_chosen_is_not_sent() -> None:
    """The server's defaults are its own."""
    assert ChatOptions().provider_options() == {"openai": {}}
    assert body(ChatOptions().provider_options()) == body({})


def test_some_json_object_can_be_asked_for_without_a_schema() -> None:
    """One or the other."""
    assert body(ChatOptions(json_object=True).provider_options())["response_format"] == {"type": "json_object"}
    with pytest.raises(InvalidInput, match="json_object excludes output_schema"):
        ChatOptions(json_object=True, output_schema=SCHEMA)


def test_options_of_a_compatible_server_stand_under_its_name() -> None:
    """Its own switches go with them."""
    chosen = ChatOptions(temperature=1, extra={"reasoning_format": "parsed"}).provider_options("groq")
    assert body(chosen, name="groq")["temperature"] == 1
    assert body(chosen, name="groq")["reasoning_format"] == "parsed"
    assert "temperature" not in body(chosen, name="other")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("temperature", 2.5),
        ("temperature", "hot"),
        ("temperature", float("nan")),
        ("top_p", True),
        ("frequency_penalty", 3),
        ("presence_penalty", -3),
        ("seed", 1.0),
        ("stop", "END"),
        ("stop", [1]),
        ("stop", [""]),
        ("logit_bias", [1]),
        ("reasoning_effort", " "),
        ("verbosity", "loud"),
        ("output_schema", "object"),
        ("output_schema", {"a": object()}),
        ("output_schema_name", ""),
        ("output_schema_strict", 1),
        ("json_object", "yes"),
        ("tool_choice", {"type": "function"}),
        ("parallel_tool_calls", 0),
        ("web_search", True),
        ("metadata", "x"),
        ("user", 5),
        ("extra", ["x"]),
    ],
)
def test_a_value_that_an_option_does_not_take_is_refused_where_it_is_made(option: str, value: Any) -> None:
    """The option is named."""
    with pytest.raises(InvalidInput, match=option):
        ChatOptions(**{option: value})


@pytest.mark.parametrize("name", ["temperature", "response_format", "n", "tool_choice"])
def test_an_extra_never_takes_the_place_of_an_option(name: str) -> None:
    """What has a meaning in the protocol is not smuggled past its check."""
    with pytest.raises(InvalidInput, match=name):
        ChatOptions(extra={name: 1})


def test_what_the_class_writes_the_adapter_takes() -> None:
    """Every option that the protocol defines is checked on the way in as well."""
    written = EVERYTHING.provider_options()["openai"]
    assert isinstance(written, dict)
    assert set(written) - {"top_k"} <= set(CHECKS)
    assert read_options({"openai": written}, "openai") == written


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (ProviderKind.OPENAI_CHAT_COMPLETIONS, ChatOptions(temperature=0.25)),
        (ProviderKind.OPENAI_RESPONSES, ResponsesOptions(temperature=0.25)),
        (ProviderKind.ANTHROPIC, AnthropicOptions(temperature=0.25)),
    ],
)
def test_every_protocol_has_typed_options_at_one_place(kind: ProviderKind, options: Any) -> None:
    """`maka_trio.protocol` shows them; a request takes them all the same way."""
    config = ProviderConfig(kind, "m", "http://127.0.0.1/v1", ApiKey("k"))
    asked = ModelRequest(config, [HELLO], provider_options=options.provider_options())
    assert json.loads(adapter_for(config).encode(asked).body)["temperature"] == 0.25
    assert getattr(protocol, type(options).__name__) is type(options)
    assert attrs.has(type(options))


@pytest.mark.parametrize("options", [ResponsesOptions(output_schema=SCHEMA), AnthropicOptions(output_schema=SCHEMA)])
def test_the_same_schema_can_be_asked_of_every_protocol(options: Any) -> None:
    """Each puts it in its own place."""
    kind = ProviderKind.ANTHROPIC if isinstance(options, AnthropicOptions) else ProviderKind.OPENAI_RESPONSES
    config = ProviderConfig(kind, "m", "http://127.0.0.1/v1", ApiKey("k"))
    asked = ModelRequest(config, [HELLO], provider_options=options.provider_options())
    sent = json.loads(adapter_for(config).encode(asked).body)
    place = sent["output_config"]["format"] if isinstance(options, AnthropicOptions) else sent["text"]["format"]
    assert (place["type"], place["schema"]) == ("json_schema", SCHEMA)


def test_a_decoder_reads_the_options_of_its_request() -> None:
    """Not only the encoder: what an answer means may depend on them."""
    config = ProviderConfig(ProviderKind.ANTHROPIC, "m", "http://127.0.0.1/v1", ApiKey("k"))
    lenient = AnthropicOptions(message_stop_required=False).provider_options()
    body = named("message_start", message={}) + named("message_delta", delta={"stop_reason": "end_turn"})
    decoders = [
        adapter_for(config).decoder(ModelRequest(config, [HELLO], provider_options=options))
        for options in ({}, lenient)
    ]
    for decoder in decoders:
        decoder.feed(body)
    assert [decoder.in_grace for decoder in decoders] == [False, True]

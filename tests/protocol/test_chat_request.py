"""Chat completions requests: body, options, tools, headers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from maka_trio import limits
from maka_trio.dialect import Dialect
from maka_trio.errors import AdapterError, InvalidInput
from maka_trio.facts import ToolDefinition
from maka_trio.facts.message import Message
from maka_trio.protocol.registry import adapter_for
from maka_trio.request import ApiKey, ModelRequest, ProviderConfig, ProviderKind, RequestHeaders
from tests.protocol.chat_wire import provider, request

HELLO = Message.user("hello")
PUT = ToolDefinition("put", "writes", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})


def body(asked: ModelRequest) -> dict[str, Any]:
    encoded: dict[str, Any] = json.loads(adapter_for(asked.provider).encode(asked).body)
    return encoded


# --- the body ----------------------------------------------------------------------------------------------------


def test_the_smallest_request_says_model_messages_and_stream() -> None:
    """Usage is asked for; there is no `tools` key without tools."""
    assert body(request(HELLO)) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize(
    ("name", "model", "key"),
    [
        (None, "gpt-4o-mini", "max_tokens"),
        (None, "test-model", "max_tokens"),
        (None, "o3-mini", "max_completion_tokens"),
        (None, "gpt-5-nano", "max_completion_tokens"),
        ("generic", "gpt-5", "max_tokens"),
    ],
)
def test_the_output_limit_stands_under_the_key_the_model_takes(name: str | None, model: str, key: str) -> None:
    """The vendor's newer models refuse the older key."""
    asked = ModelRequest(provider(name, model=model), [HELLO], max_output_tokens=9)
    sent = body(asked)
    assert sent[key] == 9
    assert len({"max_tokens", "max_completion_tokens"} & set(sent)) == 1


def test_tools_are_functions_and_the_choice_is_the_models() -> None:
    """Name, description, parameters as given."""
    sent = body(request(HELLO, tools=[PUT]))
    function = {"name": "put", "description": "writes", "parameters": PUT.input_schema}
    assert sent["tools"] == [{"type": "function", "function": function}]
    assert sent["tool_choice"] == "auto"


@pytest.mark.parametrize("schema", [True, False, {}, {"type": "object"}, {"type": ["object", "null"]}])
def test_parameters_are_an_object_with_properties(schema: Any) -> None:
    """The vendor refuses any other schema of a function, also one that means the same."""
    sent = body(request(HELLO, tools=[ToolDefinition("now", "", schema)]))
    assert sent["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {}}


def test_a_tool_that_takes_no_object_is_refused_by_name() -> None:
    """Before anything is sent."""
    with pytest.raises(InvalidInput, match="'now'"):
        body(request(HELLO, tools=[ToolDefinition("now", "", {"type": "array"})]))


# --- options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [None, "groq"])
def test_options_of_the_server_are_sent_as_they_are(name: str | None) -> None:
    """Those that the protocol defines and those that only the server knows; others' and nulls are left alone."""
    options = {
        "temperature": 0.5,
        "top_p": 1,
        "stop": ["a", "b"],
        "seed": -3,
        "reasoning_effort": "low",
        "parallel_tool_calls": False,
        "response_format": {"type": "json_object"},
        "own_switch": {"deep": [1, None]},
    }
    given = {name or "openai": {**options, "user": None}, "anthropic": {"temperature": 1}, "other": {"x": 1}}
    sent = body(request(HELLO, name=name, tools=[PUT], provider_options=given))
    assert {key: sent.get(key) for key in options} == options
    assert "user" not in sent
    assert "x" not in sent


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("none", "none"),
        ("required", "required"),
        ("put", {"type": "function", "function": {"name": "put"}}),
        ({"type": "allowed_tools"}, {"type": "allowed_tools"}),
    ],
)
def test_an_option_chooses_the_tool(choice: Any, sent: Any) -> None:
    """A bare name is a choice of that tool."""
    options = {"openai": {"tool_choice": choice}}
    assert body(request(HELLO, tools=[PUT], provider_options=options))["tool_choice"] == sent


def test_without_tools_nothing_is_said_of_their_use() -> None:
    """The vendor refuses it; insisting on a tool that is not there is a mistake, which is named."""
    idle = {"openai": {"tool_choice": "none", "parallel_tool_calls": False}}
    assert not {"tool_choice", "parallel_tool_calls"} & set(body(request(HELLO, provider_options=idle)))
    for choice in ("required", "put", {"type": "function", "function": {"name": "put"}}):
        with pytest.raises(InvalidInput, match="tool_choice"):
            body(request(HELLO, provider_options={"openai": {"tool_choice": choice}}))


def test_tools_of_the_server_are_given_as_an_option() -> None:
    """Then the choice among them is for the server to understand."""
    given = {"mine": {"tools": [{"type": "search"}], "tool_choice": "required"}}
    sent = body(request(HELLO, name="mine", provider_options=given))
    assert (sent["tools"], sent["tool_choice"]) == ([{"type": "search"}], "required")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("temperature", 3),
        ("temperature", "hot"),
        ("temperature", True),
        ("top_p", -0.1),
        ("stop", [1]),
        ("seed", 1.5),
        ("n", 2),
        ("parallel_tool_calls", "no"),
        ("response_format", "json"),
        ("max_completion_tokens", 0),
        ("tool_choice", 5),
        ("tool_choice", "gone"),
    ],
)
def test_a_value_that_a_known_option_does_not_take_is_refused(option: str, value: Any) -> None:
    """The option and the value are named."""
    with pytest.raises(InvalidInput, match=option):
        body(request(HELLO, tools=[PUT], provider_options={"openai": {option: value}}))


def test_options_that_are_no_object_are_refused() -> None:
    """The key is named."""
    with pytest.raises(InvalidInput, match="openai"):
        body(request(HELLO, provider_options={"openai": [1]}))


@pytest.mark.parametrize(
    "option", ["model", "messages", "stream", "stream_options", "tools", "max_tokens", "max_completion_tokens"]
)
def test_an_option_never_takes_the_place_of_what_the_request_says(option: str) -> None:
    """Generated keys win by refusing the other."""
    asked = request(HELLO, tools=[PUT], max_output_tokens=5, provider_options={"openai": {option: 7}})
    with pytest.raises(InvalidInput, match=option):
        body(asked)


def test_the_overlay_adds_keys_and_contradicts_none() -> None:
    """A key that is there already is named, its value is not."""
    asked = ModelRequest(provider("generic", body_overlay={"extra": {"a": 1}}), [HELLO])
    assert body(asked)["extra"] == {"a": 1}
    with pytest.raises(InvalidInput, match="stream") as caught:
        body(ModelRequest(provider("generic", body_overlay={"stream": "hidden-value"}), [HELLO]))
    assert "hidden-value" not in str(caught.value)


def test_a_body_over_the_limit_is_refused_before_any_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size and the limit are named."""
    monkeypatch.setattr(limits, "REQUEST_BODY_BYTES", 1000)
    adapter = adapter_for(provider())
    assert len(adapter.encode(request(Message.user("x" * 500))).body) < 1000
    with pytest.raises(AdapterError, match="1000"):
        adapter.encode(request(Message.user("x" * 1000)))


# --- the envelope ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("http://127.0.0.1/v1", "http://127.0.0.1/v1/chat/completions"),
        ("http://127.0.0.1/v1/", "http://127.0.0.1/v1/chat/completions"),
        ("http://127.0.0.1", "http://127.0.0.1/chat/completions"),
        ("http://127.0.0.1:8/a/b?api-version=1", "http://127.0.0.1:8/a/b/chat/completions?api-version=1"),
    ],
)
def test_the_path_is_added_to_that_of_the_base_url(base_url: str, url: str) -> None:
    """With or without a slash, and before a query."""
    config = ProviderConfig(ProviderKind.OPENAI_CHAT_COMPLETIONS, "m", base_url, ApiKey("k"))
    assert adapter_for(config).encode(ModelRequest(config, [HELLO])).url == url


def test_configured_headers_join_the_generated_ones() -> None:
    """An equal value is fine in any case; another value is refused by name."""
    fine = provider(headers={"X-Team": "é", "Content-Type": "application/json"})
    headers = dict(adapter_for(fine).encode(ModelRequest(fine, [HELLO])).headers)
    assert headers == {"content-type": "application/json", "accept": "text/event-stream", "x-team": "é"}
    wrong = provider(headers={"Accept": "hidden/value"})
    with pytest.raises(InvalidInput, match="Accept") as caught:
        adapter_for(wrong).encode(ModelRequest(wrong, [HELLO]))
    assert "hidden" not in str(caught.value)


def test_credentials_are_a_bearer_token_or_prepared_headers() -> None:
    """And never a part of the encoded request."""
    adapter = adapter_for(provider())
    assert adapter.authorize(ApiKey("sk-1")) == {"authorization": "Bearer sk-1"}
    assert adapter.authorize(RequestHeaders({"api-key": "k"})) == {"api-key": "k"}
    encoded = adapter.encode(request(HELLO))
    assert "sk-test-key" not in f"{encoded.url}{encoded.headers}{encoded.body!r}{encoded!r}"


def test_the_chat_adapter_serves_both_chat_kinds() -> None:
    """Under the name that `with_adapters` takes."""
    assert adapter_for(provider()) is adapter_for(provider("generic"))
    assert adapter_for(provider()).name == "chat-completions"


def test_a_non_2xx_answer_is_classified() -> None:
    """By the chat rules."""
    error = adapter_for(provider()).failure(400, {}, b'{"error":{"code":"context_length_exceeded"}}')
    assert type(error).__name__ == "ContextOverflow"


def test_the_same_request_is_encoded_to_the_same_bytes() -> None:
    """A replay sends what was sent before."""
    first, second = (
        request(HELLO, tools=[PUT], provider_options={"openai": {"seed": 1, "temperature": 0}}) for _ in range(2)
    )
    adapter = adapter_for(provider())
    assert adapter.encode(first) == adapter.encode(second)


def test_usage_is_not_asked_of_a_server_that_refuses_the_question() -> None:
    """Some state it anyway."""
    assert "stream_options" not in body(request(HELLO, name="mine", dialect=Dialect(stream_usage=False)))

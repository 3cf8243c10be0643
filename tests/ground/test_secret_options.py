"""Credentials in provider options are refused by the names of their fields, and stand there by reference."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from maka_trio.errors import InvalidInput
from maka_trio.facts.message import Message
from maka_trio.protocol.anthropic_options import AnthropicOptions
from maka_trio.protocol.chat_options import ChatOptions
from maka_trio.protocol.openai_responses_options import ResponsesOptions
from maka_trio.request import ApiKey, ModelRequest, ProviderConfig, ProviderKind, RequestHeaders
from maka_trio.secret_options import filled_in, refuse_credentials

TOKEN = "tok-0123456789abcdef"
REFERENCE = {"$secret": "mcp"}


def provider(**settings: Any) -> ProviderConfig:
    settings.setdefault("auth", ApiKey("sk-0123456789abcdef"))
    return ProviderConfig(ProviderKind.OPENAI_RESPONSES, "m", "http://x/v1", **settings)


IN_THE_OPEN: list[tuple[Any, str]] = [
    ({"authorization": TOKEN}, "authorization"),
    ({"Authorization": f"Bearer {TOKEN}"}, "Authorization"),
    ({"authorization_token": TOKEN}, "authorization_token"),
    ({"headers": {"x-region": TOKEN}}, "headers.x-region"),
    ({"extra_headers": {"a": [TOKEN]}}, "extra_headers.a[0]"),
    ({"tools": [{"a": 1}, {"x-api-key": TOKEN}]}, "tools[1].x-api-key"),
    ({"github_access_token": TOKEN}, "github_access_token"),
    ({"clientSecret": TOKEN}, "clientSecret"),
    ({"authentication": {"type": "api_key", "key": TOKEN}}, "authentication.key"),
    ({"auth": {"kind": {"value": TOKEN}}}, "auth.kind.value"),
    ({"token": TOKEN}, "token"),
    ({"connection_string": TOKEN}, "connection_string"),
    ({"password": TOKEN}, "password"),
    ({"server_url": f"https://user:{TOKEN}@x.example/mcp"}, "server_url"),
    ({"server_url": f"https://x.example/mcp?api_key={TOKEN}"}, "server_url"),
    ({"urls": [f"HTTPS://x.example/?a=1&token={TOKEN}"]}, "urls[0]"),
]


def clean(error: BaseException) -> str:
    """Everything an error shows; never the token."""
    shown = "\n".join([str(error), repr(error), *traceback.format_exception(error, chain=True)])
    source = shown.replace(f'TOKEN = "{TOKEN}"', "")
    assert TOKEN not in source
    return str(error)


@pytest.mark.parametrize(("options", "field"), IN_THE_OPEN)
def test_a_credential_in_the_open_is_refused_by_name(options: Any, field: str) -> None:
    """The field is named, and how to give it; its value is not."""
    with pytest.raises(InvalidInput) as caught:
        ModelRequest(provider(), [Message.user("hi")], provider_options={"openai": options})
    assert clean(caught.value) == (
        f"provider_options.openai.{field} holds a credential, which would be kept in the log: write "
        '{"$secret": "a name"} there, and give ProviderConfig(secrets={"a name": ApiKey(...)})'
    )


@pytest.mark.parametrize(("options", "field"), IN_THE_OPEN)
def test_typed_options_refuse_it_before_they_hold_it(options: Any, field: str) -> None:
    """An object that never came to be has no repr."""
    hosted = {"id": "openai.mcp", "args": options}
    makers: dict[str, Any] = {
        f"option hosted_tools[0].args.{field}": lambda: ResponsesOptions(hosted_tools=(hosted,)),
        f"option mcp_servers[0].{field}": lambda: AnthropicOptions(mcp_servers=(options,)),
        f"option container.{field}": lambda: AnthropicOptions(container=options),
        f"option extra.{field}": lambda: ChatOptions(extra=options),
        f"option metadata.{field}": lambda: ResponsesOptions(metadata=options),
    }
    for named, make in makers.items():
        with pytest.raises(InvalidInput) as caught:
            make()
        assert clean(caught.value).startswith(f"{named} holds a credential")


@pytest.mark.parametrize("bad", [[{"authorization": TOKEN, "odd": object()}], [TOKEN], {"a": TOKEN}, TOKEN, 5])
def test_options_of_a_wrong_shape_are_not_quoted(bad: Any) -> None:
    """What is wrong may hold a credential, too."""
    with pytest.raises(InvalidInput) as caught:
        AnthropicOptions(mcp_servers=bad)
    assert "mcp_servers" in clean(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"authorization": REFERENCE, "headers": {"x": REFERENCE, "list": [REFERENCE]}},
        {"authorization": None, "headers": {}, "password": "", "token": 5, "auth": True},
        {"authentication": {"type": "system_assigned_managed_identity"}},
        {
            "output_schema": {
                "type": "object",
                "properties": {"password": {"type": "string"}, "headers": {"enum": ["a"]}},
            }
        },
        {"$defs": {"Headers": {"type": "object"}}, "tool_formats": {"token": {"type": "grammar"}}},
        {"max_tokens": "many", "stop_token": "</s>", "prompt_cache_key": "k", "filters": {"key": "region"}},
        {"server_url": "https://x.example/mcp?region=eu", "note": "see http://user@", "bad": "http://[::1"},
        {"metadata": {"about": "the password is asked for later"}},
    ],
)
def test_what_is_no_credential_is_taken(options: Any) -> None:
    """References, empty values, the names of a schema's properties, and words that only sound alike."""
    refuse_credentials(options, "options")
    request = ModelRequest(
        provider(secrets={"mcp": ApiKey(TOKEN)}), [Message.user("hi")], provider_options={"other": options}
    )
    assert request.provider_options == {"other": options}


@pytest.mark.parametrize("bad", [{"$secret": 5}, {"$secret": None}, {"$secret": "mcp", "also": 1}, {"$secret": {}}])
def test_a_reference_is_one_name(bad: Any) -> None:
    """Anything else beside the mark is a mistake, which must not go out as it is."""
    with pytest.raises(InvalidInput, match=r"options\.deep\[0\] is no reference"):
        refuse_credentials({"deep": [bad]}, "options")


def test_a_reference_to_nothing_is_refused() -> None:
    """The name is told; it is no secret."""
    with pytest.raises(InvalidInput, match="refer to the secret 'mcp', which"):
        ModelRequest(
            provider(secrets={"other": ApiKey(TOKEN)}),
            [Message.user("hi")],
            provider_options={"openai": {"hosted_tools": [{"args": {"headers": {"a": REFERENCE}}}]}},
        )


@pytest.mark.parametrize(
    "settings",
    [
        {"auth": ApiKey(TOKEN)},
        {"auth": RequestHeaders({"x": TOKEN})},
        {"secrets": {"mcp": ApiKey(TOKEN)}},
    ],
)
def test_a_secret_of_the_provider_stands_nowhere_in_the_options(settings: Any) -> None:
    """Whatever the field is called, and wherever in its text."""
    with pytest.raises(InvalidInput) as caught:
        ModelRequest(
            provider(**settings), [Message.user("hi")], provider_options={"openai": {"odd": [{"name": f"a {TOKEN}."}]}}
        )
    assert clean(caught.value).startswith("provider_options.openai.odd[0].name holds a credential")


def test_references_are_filled_in_wherever_they_stand() -> None:
    """The rest is as it was."""
    options = {"a": [REFERENCE, {"b": REFERENCE, "c": 1}], "d": "text", "e": None}
    filled = filled_in(options, {"mcp": ApiKey(TOKEN)})
    assert filled == {"a": [TOKEN, {"b": TOKEN, "c": 1}], "d": "text", "e": None}
    assert options["a"][0] == REFERENCE  # type: ignore[index]


@pytest.mark.parametrize("bad", [{"a": TOKEN}, {"a": RequestHeaders({"x": TOKEN})}, {5: ApiKey(TOKEN)}, [TOKEN], TOKEN])
def test_secrets_are_keys_by_name(bad: Any) -> None:
    """A bare text would be shown by whatever shows it."""
    with pytest.raises(InvalidInput) as caught:
        provider(secrets=bad)
    clean(caught.value)


def test_a_configuration_shows_the_names_of_its_secrets_alone() -> None:
    """And they take no part in the identity of the route, like any other secret."""
    with_secrets = provider(secrets={"mcp": ApiKey(TOKEN)})
    assert TOKEN not in repr(with_secrets)
    assert "secrets={'mcp': ...}" in repr(with_secrets)
    assert with_secrets.route_identity() == provider().route_identity()

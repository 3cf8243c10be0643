"""Provider configurations and requests: what they refuse, and what they never say."""

from __future__ import annotations

import functools
import traceback
from typing import Any

import attrs
import pytest

from maka_trio import facts
from maka_trio.errors import InvalidInput
from maka_trio.facts.message import Message
from maka_trio.request import (
    ApiKey,
    ModelRequest,
    ProviderConfig,
    ProviderKind,
    RequestHeaders,
    input_digest,
    public_url,
)

SECRET = "sk-5ecret-value"


def config(**changes: Any) -> ProviderConfig:
    given: dict[str, Any] = {
        "kind": ProviderKind.ANTHROPIC,
        "model": "m",
        "base_url": "https://api.example.org/v1",
        "auth": ApiKey(SECRET),
    }
    return ProviderConfig(**{**given, **changes})


async def fetch_key(secret: str) -> ApiKey:
    return ApiKey(secret)


SECRET_PLACES: dict[str, dict[str, Any]] = {
    "api key": {},
    "headers that authenticate": {"auth": RequestHeaders({"Authorization": f"Bearer {SECRET}"})},
    "a partial that fetches": {"auth": functools.partial(fetch_key, SECRET)},
    "extra header": {"headers": {"X-Org": SECRET}},
    "overlay": {"body_overlay": {"user": {"token": SECRET}}},
    "query of the URL": {"base_url": f"https://api.example.org/v1?key={SECRET}"},
    "user info of the URL": {"base_url": f"https://me:{SECRET}@api.example.org:8443/v1"},
    "fragment of the URL": {"base_url": f"https://api.example.org/v1#{SECRET}"},
}


# --- secrets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", SECRET_PLACES.values(), ids=SECRET_PLACES)
def test_no_secret_shows_in_a_repr(changes: dict[str, Any]) -> None:
    """Wherever it was put; what else there is still shows."""
    provider = config(**changes)
    request = ModelRequest(provider, [Message.user("hi")])
    for shown in (repr(provider), str(provider), repr(request), f"{request}"):
        assert SECRET not in shown
    assert "api.example.org" in repr(provider)
    assert "'m'" in repr(provider)


def test_credentials_show_nothing_of_themselves() -> None:
    """Not even their length."""
    assert repr(ApiKey(SECRET)) == "ApiKey()"
    assert repr(RequestHeaders({"x-api-key": SECRET})) == "RequestHeaders()"


@pytest.mark.parametrize("changes", SECRET_PLACES.values(), ids=SECRET_PLACES)
def test_the_identity_of_a_route_does_not_depend_on_a_secret(changes: dict[str, Any]) -> None:
    """The same route with another secret is the same route."""
    other = {
        key: _with_other_secret(value) if key != "auth" else ApiKey("another") for key, value in changes.items()
    } or {"auth": ApiKey("another")}
    assert config(**changes).route_identity() == config(**other).route_identity()


def _with_other_secret(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_other_secret(item) for key, item in value.items()}
    return value.replace(SECRET, "another") if isinstance(value, str) else value


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": ProviderKind.OPENAI_RESPONSES},
        {"kind": ProviderKind.OPENAI_COMPATIBLE, "name": "groq"},
        {"model": "m2"},
        {"base_url": "https://api.example.org/v2"},
        {"base_url": "https://api.example.org:444/v1"},
        {"base_url": "http://api.example.org/v1"},
        {"headers": {"X-Org": "o"}},
        {"body_overlay": {"user": "u"}},
    ],
)
def test_another_route_has_another_identity(changes: dict[str, Any]) -> None:
    """Protocol, model, server, and which headers and keys are added."""
    assert config(**changes).route_identity() != config().route_identity()


def test_spellings_of_one_route_have_one_identity() -> None:
    """A trailing slash and the case of a header's name change nothing on the wire."""
    plain = config(headers={"X-Org": "o"})
    same = config(base_url="https://api.example.org/v1/", headers={"x-org": "o"})
    assert plain.route_identity() == same.route_identity()
    assert plain.route_identity().startswith("sha256:")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ApiKey(SECRET.encode()),  # type: ignore[arg-type]
        lambda: ApiKey(SECRET + "\ud800"),
        lambda: RequestHeaders({"x-api-key": [SECRET]}),  # type: ignore[dict-item]
        lambda: RequestHeaders([("x-api-key", SECRET)]),  # type: ignore[arg-type]
        lambda: config(base_url=f"ftp://{SECRET}@host/"),
        lambda: config(base_url=f"https://host:{SECRET}/"),
        lambda: config(auth=SECRET),
        lambda: config(headers={"X-Org": SECRET.encode()}),
        lambda: config(body_overlay={"token": SECRET.encode()}),
        lambda: config(body_overlay=SECRET),
    ],
)
def test_no_secret_shows_in_the_error_about_it(make: Any) -> None:
    """Neither in its text nor in what it was raised from."""
    with pytest.raises(InvalidInput) as caught:
        make()
    text = "".join(str(error) for error in (caught.value, caught.value.__cause__))
    assert SECRET not in text
    assert SECRET not in traceback.format_exception_only(caught.value)[0]


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", [".", "a..b", "x" * 64 + ".example", "xn--", "b\u00fccher..example"])
def test_a_host_that_no_name_server_could_be_asked_for_is_refused(host: str) -> None:
    """Here, and not by the first request."""
    with pytest.raises(InvalidInput, match="base_url"):
        config(base_url=f"https://{host}/v1")


@pytest.mark.parametrize("host", ["localhost", "localhost.", "127.0.0.1", "[::1]:8080", "b\u00fccher.example", "a-b:1"])
def test_a_host_of_any_usual_form_is_taken(host: str) -> None:
    """Addresses and names that are not ASCII too."""
    assert config(base_url=f"http://{host}/v1").base_url == f"http://{host}/v1"


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "anthropic"},
        {"model": ""},
        {"model": None},
        {"base_url": ""},
        {"base_url": "api.example.org"},
        {"base_url": "file:///etc/passwd"},
        {"base_url": "https://"},
        {"base_url": "https://host:0/"},
        {"base_url": "https://host:99999/"},
        {"base_url": None},
        {"auth": None},
        {"auth": "key"},
        {"name": "groq"},
        {"kind": ProviderKind.OPENAI_COMPATIBLE},
        {"kind": ProviderKind.OPENAI_COMPATIBLE, "name": ""},
        {"headers": [("a", "b")]},
        {"headers": {"a": 1}},
        {"body_overlay": []},
        {"body_overlay": {1: 2}},
        {"body_overlay": {"a": float("nan")}},
    ],
    ids=repr,
)
def test_a_configuration_that_cannot_work_is_refused(changes: dict[str, Any]) -> None:
    """When it is made, not when it is used."""
    with pytest.raises(InvalidInput):
        config(**changes)


@pytest.mark.parametrize("key", ["", " ", "\n"])
def test_a_blank_key_is_refused(key: str) -> None:
    """An unset environment variable is found at once."""
    with pytest.raises(InvalidInput, match="blank"):
        ApiKey(key)


@pytest.mark.parametrize(
    "changes",
    [
        {"provider": None},
        {"prompt": "hello"},
        {"prompt": [{"role": "user", "content": "hello"}]},
        {"prompt": 5},
        {"tools": ["put"]},
        {"tools": 5},
        {"provider_options": []},
        {"provider_options": {"a": float("inf")}},
        {"max_output_tokens": 0},
        {"max_output_tokens": -1},
        {"max_output_tokens": 2**53},
        {"max_output_tokens": 1.0},
        {"max_output_tokens": True},
    ],
    ids=repr,
)
def test_a_request_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    """Messages are values of ours, limits are integers in range."""
    given: dict[str, Any] = {"provider": config(), "prompt": [Message.user("hi")]}
    with pytest.raises(InvalidInput):
        ModelRequest(**{**given, **changes})


@pytest.mark.parametrize("tokens", [1, 2**53 - 1, None])
def test_an_output_limit_is_1_to_the_largest_exact_integer(tokens: int | None) -> None:
    """Or none."""
    assert ModelRequest(config(), [Message.user("hi")], max_output_tokens=tokens).max_output_tokens == tokens


def test_a_request_is_a_snapshot() -> None:
    """What its maker does to its lists and dicts afterwards does not reach it."""
    prompt, headers, overlay, options = [Message.user("hi")], {"a": "b"}, {"x": {"y": 1}}, {"anthropic": {"z": 1}}
    provider = config(headers=headers, body_overlay=overlay)
    request = ModelRequest(provider, prompt, provider_options=options)
    prompt.clear()
    headers.clear()
    overlay["x"].clear()
    options["anthropic"].clear()
    assert len(request.prompt) == 1
    assert provider.headers == {"a": "b"}
    assert provider.body_overlay == {"x": {"y": 1}}
    assert request.provider_options == {"anthropic": {"z": 1}}


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("https://h/v1", "https://h/v1"),
        ("https://user:pass@h:8443/v1?k=v#f", "https://h:8443/v1"),
        ("http://[::1]:8080/v1", "http://[::1]:8080/v1"),
    ],
)
def test_a_public_url_is_scheme_host_port_and_path(url: str, public: str) -> None:
    """The rest may carry keys."""
    assert public_url(url) == public


# --- the digest of what is asked --------------------------------------------------------------------------


def test_the_input_digest_covers_prompt_tools_and_limits() -> None:
    """Each of them changes it; nothing else does."""
    prompt: list[Any] = [Message.system("s"), Message.user("hi")]
    tool = facts.ToolDefinition("put", "Put.", {"type": "object"})
    surface = facts.RequestSurface((tool,), {"anthropic": {"a": 1, "b": 2}}, 10)
    first = input_digest(prompt, surface)
    assert first == input_digest(list(prompt), attrs.evolve(surface, provider_options={"anthropic": {"b": 2, "a": 1}}))
    others = [
        input_digest(prompt[1:], surface),
        input_digest(prompt[::-1], surface),
        input_digest(prompt, attrs.evolve(surface, tools=())),
        input_digest(prompt, attrs.evolve(surface, provider_options={})),
        input_digest(prompt, attrs.evolve(surface, max_output_tokens=11)),
        input_digest(prompt, attrs.evolve(surface, max_output_tokens=None)),
    ]
    assert first not in others
    assert len(set(others)) == len(others)

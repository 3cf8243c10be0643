"""What a model request is made of: the provider's configuration, credentials, and the request itself.

Secrets live in `ApiKey` and `RequestHeaders` alone. They show in no repr and take no part in `route_identity`. Provider
options hold none: they refer to `ProviderConfig.secrets` by name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from operator import is_
from typing import Any, TypeAlias, TypeVar, get_args
from urllib.parse import urlsplit, urlunsplit

import attrs

from maka_trio import limits
from maka_trio.dialect import Dialect
from maka_trio.errors import InvalidInput
from maka_trio.facts import bounds
from maka_trio.facts.codec import canonical, digest, encoder, unstructure
from maka_trio.facts.json_value import JsonObject, copied_object
from maka_trio.facts.message import Message, PromptMessage, SystemMessage
from maka_trio.facts.opening import RequestSurface, ToolDefinition
from maka_trio.records import frozen
from maka_trio.secret_options import check_references, refuse_credentials, refuse_values

T = TypeVar("T")

PROJECTION_TAG = "maka.model-history.v1"
"""Names the form of what `input_digest` covers."""


class ProviderKind(StrEnum):
    """The protocol a provider speaks.

    The strict kinds follow their vendor. `OPENAI_COMPATIBLE` is chat completions with a dialect, chosen by
    `ProviderConfig.name`.
    """

    OPENAI_CHAT_COMPLETIONS = "openai_chat_completions"
    OPENAI_COMPATIBLE = "openai_compatible"
    OPENAI_RESPONSES = "openai_responses"
    ANTHROPIC = "anthropic"


# --- credentials ------------------------------------------------------------------------------------------


@frozen
class ApiKey:
    """A key, sent where the protocol wants it."""

    value: str = attrs.field(repr=False, validator=bounds.text(blank=False))


def _header_map(value: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"headers must be a mapping, not {type(value).__name__}")
    for name, content in value.items():
        if not isinstance(name, str) or not isinstance(content, str):
            raise InvalidInput("header names and values must be str")
    return dict(value)


@frozen
class RequestHeaders:
    """Prepared headers that authenticate a request."""

    values: dict[str, str] = attrs.field(repr=False, converter=_header_map)


Credentials: TypeAlias = ApiKey | RequestHeaders
ProviderAuth: TypeAlias = ApiKey | RequestHeaders | Callable[[], Awaitable[ApiKey | RequestHeaders]]


# --- the provider -----------------------------------------------------------------------------------------


def public_url(url: str) -> str:
    """The URL without user info, query and fragment, which may carry keys."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    port = f":{parts.port}" if parts.port else ""
    return urlunsplit((parts.scheme, f"{host}{port}", parts.path, "", ""))


def _names_only(value: Mapping[str, object] | None) -> str:
    return "None" if value is None else "{" + ", ".join(f"{name!r}: ..." for name in value) + "}"


def _base_url(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    bounds.utf8_size(value, "base_url")
    try:
        parts = urlsplit(str(value))
        host = parts.hostname or ""
        host.encode("idna")  # as it will be for its look-up
        usable = parts.scheme in ("http", "https") and host not in ("", "xn--") and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidInput("base_url must be an http or https URL with a host")


def _auth(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, (ApiKey, RequestHeaders)) and not callable(value):
        raise InvalidInput(f"auth must be ApiKey, RequestHeaders or an async callable, not {type(value).__name__}")


def _auth_kind(value: ProviderAuth) -> str:
    """The credentials as a repr shows them: a callable may be a partial, whose own repr shows its arguments."""
    return f"{value!r}" if isinstance(value, (ApiKey, RequestHeaders)) else "<callable>"


def _secrets(value: Mapping[str, ApiKey]) -> dict[str, ApiKey]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"secrets must be a mapping of names to ApiKey, not {type(value).__name__}")
    for name, key in value.items():
        bounds.utf8_size(name, "the name of a secret")
        if not isinstance(key, ApiKey):
            raise InvalidInput(f"the secret {bounds.excerpt(name)} must be an ApiKey, not {type(key).__name__}")
    return dict(value)


def _overlay(value: JsonObject | None) -> JsonObject | None:
    return None if value is None else copied_object(value, what="body_overlay")


@frozen
class ProviderConfig:
    """Where and how a model is reached.

    Args:
        kind: the protocol.
        model: the model's name as the provider knows it.
        base_url: everything before `/chat/completions`, `/responses` or `/messages`; a trailing slash is fine.
        auth: the credentials, or an async callable that returns them for each request.
        name: the dialect of an `OPENAI_COMPATIBLE` server, and the key of its options.
        headers: sent as well; one that contradicts a generated header is refused.
        body_overlay: merged into the body; a key that the body already has is refused.
        dialect: how an `OPENAI_COMPATIBLE` server differs, where `name` is not in the table of known servers or
            the table does not fit.
        secrets: what `{"$secret": "name"}` in provider options stands for, by name: credentials of tools that the
            provider calls. They are put into the body as it goes out; the log and every digest hold the name.
    """

    kind: ProviderKind = attrs.field(validator=bounds.instance(ProviderKind))
    model: str = attrs.field(validator=bounds.identity)
    base_url: str = attrs.field(validator=_base_url, repr=lambda url: repr(public_url(url)))
    auth: ProviderAuth = attrs.field(validator=_auth, repr=_auth_kind)
    name: str | None = attrs.field(default=None, validator=bounds.optional(bounds.identity))
    headers: dict[str, str] = attrs.field(factory=dict, converter=_header_map, repr=_names_only)
    body_overlay: JsonObject | None = attrs.field(default=None, converter=_overlay, repr=_names_only)
    dialect: Dialect | None = attrs.field(default=None, validator=bounds.optional(bounds.instance(Dialect)))
    secrets: dict[str, ApiKey] = attrs.field(factory=dict, converter=_secrets, repr=_names_only)

    def __attrs_post_init__(self) -> None:
        if (self.kind is ProviderKind.OPENAI_COMPATIBLE) != (self.name is not None):
            raise InvalidInput("name belongs to kind OPENAI_COMPATIBLE, which needs it, and to no other")
        if self.dialect is not None and self.kind is not ProviderKind.OPENAI_COMPATIBLE:
            raise InvalidInput("dialect belongs to kind OPENAI_COMPATIBLE and to no other")

    def route_identity(self) -> str:
        """The digest that names this route: which protocol, model and server, never which secret.

        Header and overlay values may be secrets, so only their names take part.
        """
        return digest(
            canonical(
                {
                    "kind": self.kind.value,
                    "model": self.model,
                    "base_url": public_url(self.base_url).rstrip("/"),
                    "name": self.name,
                    "headers": sorted(name.lower() for name in self.headers),
                    "body_overlay": sorted(self.body_overlay or {}),
                }
            )
        )


# --- the request ------------------------------------------------------------------------------------------


class GrowingPrompt(tuple[PromptMessage, ...]):
    """A prompt of a conversation that only grows, made by whoever put the conversation together of messages.

    Two prompts of one conversation begin with the same objects, so neither needs to be looked at message by message.
    """

    _of: tuple[SystemMessage | None, Sequence[PromptMessage]]

    @classmethod
    def of(cls, system: SystemMessage | None, conversation: Sequence[PromptMessage]) -> GrowingPrompt:
        """The prompt as it stands. `conversation` grows and changes in no other way, and so stands for itself."""
        prompt = cls(conversation if system is None else (system, *conversation))
        prompt._of = (system, conversation)
        return prompt

    def continues(self, earlier: tuple[PromptMessage, ...]) -> bool:
        """Whether an earlier prompt was of the same conversation."""
        return isinstance(earlier, GrowingPrompt) and all(map(is_, self._of, earlier._of))


_ROLES: frozenset[type] = frozenset(get_args(PromptMessage))


def _prompt(value: Sequence[Message]) -> tuple[PromptMessage, ...]:
    if isinstance(value, GrowingPrompt):
        return value
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InvalidInput(f"prompt must be a sequence of messages, not {type(value).__name__}")
    for kind in set(map(type, value)) - _ROLES:  # one look at each class: prompts are long, and made for each step
        if not issubclass(kind, Message):
            raise InvalidInput(f"prompt takes messages, not {kind.__name__}")
    return tuple(value)  # type: ignore[arg-type]  # the four roles are the only subclasses of Message


def _tools(value: Iterable[ToolDefinition]) -> tuple[ToolDefinition, ...]:
    if not isinstance(value, Iterable):
        raise InvalidInput(f"tools must be a sequence of definitions, not {type(value).__name__}")
    tools = tuple(value)
    for definition in tools:
        if not isinstance(definition, ToolDefinition):
            raise InvalidInput(f"tools takes ToolDefinition, not {type(definition).__name__}")
    return tools


class PromptMemo:
    """What an adapter has encoded of a prompt, so that a prompt that grows has each message encoded once.

    Whoever makes the requests of one conversation passes the same memo with each. It holds one prompt, the last, and
    what its tools were encoded to.
    """

    def __init__(self) -> None:
        self._tools: tuple[object, tuple[ToolDefinition, ...], Any] | None = None
        self._kept: tuple[object, tuple[PromptMessage, ...], object] | None = None

    def take(self, settings: object, prompt: tuple[PromptMessage, ...]) -> tuple[int, Any]:
        """How many messages of `prompt` were encoded before with these settings, and what was kept then.

        They are the very same objects, and immutable; equal ones may differ in what JSON tells apart. What is taken
        is no longer kept.
        """
        kept, self._kept = self._kept, None
        if kept is None or kept[0] != settings or not _begins_with(prompt, kept[1]):
            return 0, None
        return len(kept[1]), kept[2]

    def keep(self, settings: object, prompt: tuple[PromptMessage, ...], encoded: object) -> None:
        """Keep what this prompt was encoded to."""
        self._kept = (settings, prompt, encoded)

    def tools(self, settings: object, tools: tuple[ToolDefinition, ...], encode: Callable[[], T]) -> T:
        """What these very tools are encoded to with these settings; encoded if they were not before."""
        kept = self._tools
        if kept is None or kept[0] != settings or kept[1] is not tools:
            self._tools = kept = (settings, tools, encode())
        encoded: T = kept[2]
        return encoded


def _begins_with(prompt: tuple[PromptMessage, ...], earlier: tuple[PromptMessage, ...]) -> bool:
    if len(earlier) > len(prompt):
        return False
    if isinstance(prompt, GrowingPrompt) and prompt.continues(earlier):
        return True
    return all(map(is_, earlier, prompt))


def checked_options(value: JsonObject) -> JsonObject:
    """Provider options, checked and copied. Raises InvalidInput, also for a credential among them."""
    options = copied_object(value, what="provider_options")
    refuse_credentials(options, "provider_options")
    return options


def check_secrets(options: JsonObject, provider: ProviderConfig) -> None:
    """Refuse options that refer to secrets the provider has not, or that hold one it has. Raises InvalidInput."""
    if options:
        check_references(options, provider.secrets)
        refuse_values(options, _secret_values(provider), "provider_options")


def _secret_values(provider: ProviderConfig) -> list[str]:
    named = [secret.value for secret in provider.secrets.values()]
    match provider.auth:
        case ApiKey(value=value):
            return [value, *named]
        case RequestHeaders(values=values):
            return [*values.values(), *named]
    return named


@frozen
class ModelRequest:
    """One request to a model, in no provider's format.

    `provider_options` is an object per protocol or dialect name, such as `{"anthropic": {...}}`; an adapter reads
    its own and leaves the others alone. `memo` is no part of what is asked: it saves an adapter work.
    """

    provider: ProviderConfig = attrs.field(validator=bounds.instance(ProviderConfig))
    prompt: tuple[PromptMessage, ...] = attrs.field(converter=_prompt)
    tools: tuple[ToolDefinition, ...] = attrs.field(default=(), converter=_tools)
    provider_options: JsonObject = attrs.field(factory=dict, converter=checked_options)
    max_output_tokens: int | None = attrs.field(
        default=None, validator=bounds.optional(bounds.integer(minimum=1, maximum=limits.MAX_OUTPUT_TOKENS))
    )
    memo: PromptMemo = attrs.field(factory=PromptMemo, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        check_secrets(self.provider_options, self.provider)


_encode_message = encoder(PromptMessage)


class PromptDigest:
    """`input_digest` of a prompt that grows: each message is encoded and hashed once (semantics 3.5).

    It covers the canonical bytes of one object: the projection's name, the prompt, the tools, the options and the
    output limit. Keys are sorted, so the prompt can be hashed before what follows it is known.
    """

    def __init__(self, max_output_tokens: int | None) -> None:
        self.max_output_tokens = max_output_tokens
        self.messages = 0
        self._tail: tuple[RequestSurface, bytes] | None = None
        head = canonical({"maxOutputTokens": max_output_tokens, "projection": PROJECTION_TAG})
        self._sha = hashlib.sha256(head[:-1] + b',"prompt":[')

    def extend(self, messages: Iterable[PromptMessage]) -> None:
        """Add messages at the end of the prompt."""
        for message in messages:
            self._sha.update(b"," * (self.messages > 0) + _encode_message(message))
            self.messages += 1

    def value(self, surface: RequestSurface) -> str:
        """The digest of the prompt so far with this surface, whose output limit is that of the constructor."""
        if self._tail is None or self._tail[0] is not surface:
            self._tail = (surface, _encoded_surface(surface))
        sha = self._sha.copy()
        sha.update(b"]," + self._tail[1][1:])
        return f"sha256:{sha.hexdigest()}"


def _encoded_surface(surface: RequestSurface) -> bytes:
    tools = [unstructure(definition, ToolDefinition) for definition in surface.tools]
    return canonical({"providerOptions": surface.provider_options, "tools": tools})


def input_digest(prompt: Iterable[PromptMessage], surface: RequestSurface) -> str:
    """The digest of what a model is asked, from values that the log holds."""
    digest_of_prompt = PromptDigest(surface.max_output_tokens)
    digest_of_prompt.extend(prompt)
    return digest_of_prompt.value(surface)

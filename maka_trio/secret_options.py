"""Credentials in provider options: refused in the open, referred to by name, filled in where a request goes out.

Provider options are kept in the log, exported, digested and shown. Some protocols put credentials among them: those
of a remote tool server that the provider calls, for example. Such a value stands in the options as a reference,
`{"$secret": "name"}`, and in `ProviderConfig(secrets={"name": ApiKey(...)})` for real. Knows no protocol: fields that
hold credentials are told by their names.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from typing import Final, Protocol
from urllib.parse import parse_qsl, urlsplit

from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON

REFERENCE: Final = "$secret"
"""The only key of an object that stands for a secret; its value is the secret's name."""

_ENDINGS: Final = (
    *("authorization", "authorizationtoken", "authentication", "credential", "credentials", "connectionstring"),
    *("apikey", "accesskey", "privatekey", "secretkey", "apitoken", "accesstoken", "authtoken", "bearertoken"),
    *("refreshtoken", "sessiontoken", "password", "passphrase", "secret", "cookie", "headers"),
)
"""How the names of such fields end, in lower case and without separators. Headers are refused as a whole."""

_NAMES: Final = frozenset({"auth", "token"})
"""Names that are too short to end another."""

_FOREIGN_NAMES: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "tool_formats"}
)
"""Objects whose keys are names that somebody chose, of the properties of a schema or of tools: they tell nothing."""


_SHORTEST: Final = 8
"""Shorter values are placeholders, and words that stand in any text."""


class Secret(Protocol):
    """What a name stands for."""

    @property
    def value(self) -> str:
        """The secret itself."""
        ...


def refuse_credentials(value: JSON, where: str) -> None:
    """Refuse JSON that holds a credential in the open, or a reference that is none.

    Args:
        value: options, or a part of them.
        where: what the message calls it.

    Raises:
        InvalidInput: names the field, never its value, and says how to give it.
    """
    _refuse(value, where, secret=False)


def refuse_values(value: JSON, secrets: Collection[str], where: str) -> None:
    """Refuse JSON in which one of these secrets stands, under whatever name.

    Raises:
        InvalidInput: names the field, never its value.
    """
    if isinstance(value, str):
        if any(secret in value for secret in secrets if len(secret) >= _SHORTEST):
            raise _in_the_open(where)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            refuse_values(item, secrets, f"{where}.{_shown(key)}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            refuse_values(item, secrets, f"{where}[{index}]")


def check_references(options: JSON, known: Container[str]) -> None:
    """Refuse options that refer to a secret which is not there.

    Raises:
        InvalidInput: names the secret.
    """
    for name in _references(options):
        if name not in known:
            raise InvalidInput(
                f"provider_options refer to the secret {excerpt(name)}, which ProviderConfig.secrets does not hold"
            )


def filled_in(value: JSON, secrets: Mapping[str, Secret]) -> JSON:
    """The value with each reference replaced by the secret that it names. Never to be kept or shown."""
    if isinstance(value, Mapping):
        if REFERENCE in value:
            check_references(value, secrets)
            return secrets[str(value[REFERENCE])].value
        return {key: filled_in(item, secrets) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [filled_in(item, secrets) for item in value]
    return value


def _refuse(value: JSON, where: str, *, secret: bool, foreign: bool = False) -> None:
    if isinstance(value, str):
        if value and (secret or _is_secret_url(value)):
            raise _in_the_open(where)
    elif isinstance(value, Mapping):
        if REFERENCE in value:
            _check_reference(value, where)
            return
        for key, item in value.items():
            named = not foreign and _is_secret_name(key)
            plain = secret and key == "type"  # says which kind of credential it is
            _refuse(
                item, f"{where}.{_shown(key)}", secret=(secret or named) and not plain, foreign=key in _FOREIGN_NAMES
            )
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _refuse(item, f"{where}[{index}]", secret=secret)


def _in_the_open(where: str) -> InvalidInput:
    return InvalidInput(
        f"{where} holds a credential, which would be kept in the log: write "
        f'{{"{REFERENCE}": "a name"}} there, and give ProviderConfig(secrets={{"a name": ApiKey(...)}})'
    )


def _check_reference(value: Mapping[str, JSON], where: str) -> None:
    if len(value) != 1 or not isinstance(value[REFERENCE], str):
        raise InvalidInput(f"{where} is no reference to a secret: that has the one key {REFERENCE!r} and a name")


def _references(value: JSON) -> Iterator[str]:
    if isinstance(value, Mapping):
        if REFERENCE in value:
            yield str(value[REFERENCE])
            return
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _references(item)


def _is_secret_name(name: str) -> bool:
    plain = "".join(character for character in name.lower() if character.isalnum())
    return plain in _NAMES or plain.endswith(_ENDINGS)


def _is_secret_url(text: str) -> bool:
    """Whether a text is a URL with a password in it, or with a credential among its parameters."""
    if not text[:8].lower().startswith(("http://", "https://")):
        return False
    try:
        parts = urlsplit(text)
        return bool(parts.username or parts.password) or any(map(_is_secret_name, dict(parse_qsl(parts.query))))
    except ValueError:
        return False


def _shown(key: str) -> str:
    return key if key.isascii() and key.isprintable() and len(key) <= 80 else excerpt(key)

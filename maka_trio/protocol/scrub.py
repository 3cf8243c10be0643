"""Foreign text made fit to be shown: without secrets, bounded, escaped.

Providers echo what they were sent, credentials included, and what they say may hold anything. A secret is masked
wherever it stands: whole, its front where a text was cut, and in the spellings that JSON, Python and URLs give it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import quote

from maka_trio import limits
from maka_trio.errors import MakaError

MASK = "[secret]"

_SHORTEST_SECRET = 4
"""Shorter ones are placeholders of local servers; masking every "x" would leave no text."""

_SHORTEST_FRONT = 8
"""How much of a secret's front gives it away where the rest was cut off."""

_SCHEMES = frozenset({"bearer", "basic", "digest", "token"})


def bounded_text(text: str, limit: int = limits.PROVIDER_MESSAGE_BYTES, secrets: Iterable[str] = ()) -> str:
    """A foreign text as it may be kept and shown: masked, at most `limit` bytes of UTF-8, unprintables escaped.

    A text that was cut ends in an ellipsis.
    """
    shown = "".join(c if c.isprintable() else _escaped(c) for c in masked(text, secrets)[: limit + 1])
    data = shown.encode()
    return shown if len(data) <= limit else data[: limit - 3].decode(errors="ignore") + "..."


def masked(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret in it replaced by `MASK`."""
    spellings = _spellings(secrets)
    for secret in spellings:
        text = _mask(text, secret, spellings)
    return text


def scrub_error(error: MakaError, secrets: Iterable[str]) -> None:
    """Mask secrets in an error's message, in place, before anybody is shown it."""
    error.message = masked(error.message, secrets)
    error.args = (error.message,)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", errors="backslashreplace").decode()


def _mask(text: str, secret: str, spellings: list[str]) -> str:
    """Mask each place where the secret begins, as far as it goes on: a cut text holds only its front.

    Spellings of one secret may begin alike, and secrets too: the one that goes on longest is the one that stands there.
    """
    front = secret if " " in secret else secret[:_SHORTEST_FRONT]
    # Codes and types are shown in lower case. A short word in another case is more likely just a word.
    places = re.compile(re.escape(front), re.IGNORECASE if len(front) >= _SHORTEST_FRONT else 0)
    pieces: list[str] = []
    at = 0
    while found := places.search(text, at):
        hit = found.start()
        pieces += (text[at:hit], MASK)
        at = hit + max(_common_length(text[hit : hit + len(other)], other) for other in spellings)
    return "".join((*pieces, text[at:])) if pieces else text


def _common_length(shown: str, secret: str) -> int:
    pairs = zip(shown.lower(), secret.lower(), strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), len(shown))


def _spellings(secrets: Iterable[str]) -> list[str]:
    """The secrets and their words, as they stand in plain text, in JSON, in a repr and in URLs; longest first."""
    found: set[str] = set()
    for secret in secrets:
        for word in (secret, *secret.split()):
            if len(word) >= _SHORTEST_SECRET and word.lower() not in _SCHEMES:
                in_json = json.dumps(word)[1:-1]
                found |= {word, in_json, in_json.replace("/", "\\/"), repr(word)[1:-1], quote(word, safe="")}
    return sorted(found, key=lambda spelling: (-len(spelling), spelling))

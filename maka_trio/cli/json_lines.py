"""JSON lines for other programs. Piped, they are the exact bytes; a terminal is shown JSON's own escapes instead."""

from __future__ import annotations

from maka_trio.cli.escape import escaped_json
from maka_trio.cli.screen import Screen
from maka_trio.facts.codec import canonical, encode_event
from maka_trio.facts.event import StoredEvent
from maka_trio.facts.json_value import JSON


def write_json_line(screen: Screen, value: JSON) -> None:
    """One value on one line, in canonical form."""
    _write(screen, canonical(value))


def write_stored_event(screen: Screen, stored: StoredEvent) -> None:
    """An event's canonical bytes with its sequence beside them."""
    _write(screen, b'{"event":%b,"sequence":%d}' % (encode_event(stored.event), stored.sequence))


def _write(screen: Screen, document: bytes) -> None:
    text = document.decode()
    screen.emit_utf8_line(escaped_json(text) if screen.is_terminal else text)

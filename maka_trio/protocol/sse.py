"""Server-sent events, sans-IO: body bytes in any pieces, events out.

Knows framing and nothing of any provider, with one exception: what an unfinished event at the end of a body must
look like to be worth keeping (`SseDecoder.end`). Differences from the WHATWG standard, each on purpose: bytes that
are not UTF-8 are an error, because a substituted character inside tool arguments could name another file; an event
whose data is empty is never dispatched; `id` and `retry` are ignored, because a model stream is not resumed.

Whole events of one read are taken apart by block, since that is where a stream spends its time; whatever is not
plain goes line by line. Both ways make the same events.
"""

from __future__ import annotations

import msgspec

from maka_trio import limits
from maka_trio.errors import AdapterError

_BOM = b"\xef\xbb\xbf"
_DONE = b"[DONE]"
_LF = 10


class SseEvent(msgspec.Struct, frozen=True, gc=False):
    """One event. `name` is empty where the stream gave none; `offset` is where in the body it begins.

    A struct, because a stream makes hundreds of thousands a second and nothing else is made as fast.
    """

    name: str
    data: bytes
    offset: int


class SseDecoder:
    """Decodes one body. Work is linear in its bytes; what is held back never passes `limit` bytes.

    Args:
        limit: bytes of one event, counted as they stand on the wire.
    """

    def __init__(self, limit: int = limits.WIRE_EVENT_BYTES) -> None:
        self._limit = limit
        self._line = bytearray()  # the line that has not ended yet
        self._offset = 0  # where in the body `_line` begins
        self._after_cr = False  # a line feed that comes next belongs to the carriage return before it
        self._name = ""
        self._data: list[bytes] = []
        self._held = 0  # bytes on the wire of the fields in `_name` and `_data`
        self._start = 0
        self._events: list[SseEvent] = []
        self._fault: AdapterError | None = None

    @property
    def fault(self) -> AdapterError | None:
        """What the next call will raise: a fault that was met after the events just returned."""
        return self._fault

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that `data` completes. A finished event is never held back.

        Raises:
            AdapterError: bytes that are not UTF-8 (with their offset), or an event over the limit. Events before
                the fault are returned first; then every further call raises.
        """
        if self._fault is not None:
            raise self._fault
        data = self._without_bom(self._without_swallowed_feed(data))
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if cut:
            region = bytes(self._line) + data[:cut] if self._line else data[:cut]
            self._line = bytearray(data[cut:])
            self._after_cr = cut == len(data) and region.endswith(b"\r")
            self._take(region)
        else:
            self._line += data
        if self._held + len(self._line) > self._limit and self._fault is None:
            self._overflow()
        return self._handed_out()

    def end(self) -> list[SseEvent]:
        """The body ended cleanly: the event that lacked only its blank line, if there is one.

        The standard discards it. Providers close early, so it is kept when its data is `[DONE]` or one complete
        JSON object or array; anything else was cut and is discarded.
        """
        if self._fault is not None:
            raise self._fault
        rest, self._line = bytes(self._line), bytearray()
        if rest:
            self._field(rest, self._offset)
        data = b"\n".join(self._data)
        if _is_whole(data):
            self._events.append(SseEvent(self._name, data, self._start))
        self._reset()
        return self._handed_out()

    # --- the two ways through a read ---------------------------------------------------------------------

    def _take(self, region: bytes) -> None:
        """Decode whole lines, the first of which begins at `_offset`."""
        sound = region if region.isascii() else region[: self._sound_length(region)]
        if b"\r" in sound or self._held + len(sound) > self._limit:
            self._take_lines(sound)
        elif self._held or not self._take_plain(sound):
            self._take_blocks(sound)

    def _take_plain(self, region: bytes) -> bool:
        """The commonest read of all: events of one `data` line each, and nothing else. False if it is not that."""
        payloads = region[6:-2].split(b"\n\ndata: ")
        if not (
            region.startswith(b"data: ")
            and region.endswith(b"\n\n")
            and region.count(b"\n") == 2 * len(payloads)  # so that no payload holds one
            and all(payloads)
        ):
            return False
        offset = self._offset
        for payload in payloads:
            self._events.append(SseEvent("", payload, offset))
            offset += len(payload) + 8
        self._offset = offset
        return True

    def _take_blocks(self, region: bytes) -> None:
        """The common case: lines end in LF, and most events are one `data` line, or `event` and `data`."""
        blocks = region.split(b"\n\n")
        last = blocks.pop()
        if blocks and self._held:
            self._take_lines(blocks.pop(0) + b"\n\n")
        offset = self._offset
        events = self._events
        for block in blocks:
            size = len(block)
            if block.startswith(b"data: ") and _LF not in block and size > 6:
                events.append(SseEvent("", block[6:], offset))
            elif not block.startswith(b"event: ") or not self._take_named(block, offset):
                self._offset = offset
                self._take_lines(block + b"\n\n")
            offset += size + 2
        self._offset = offset
        if last:
            self._take_lines(last)

    def _take_named(self, block: bytes, offset: int) -> bool:
        """Take an event of exactly `event: name` and `data: payload`; False if the block is anything else."""
        head, _, data = block.partition(b"\ndata: ")
        if not data or _LF in data or _LF in head:
            return False
        self._events.append(SseEvent(head[7:].decode(), data, offset))
        return True

    def _take_lines(self, region: bytes) -> None:
        """Any lines at all. `bytes.splitlines` knows CR, LF and CRLF and, unlike the one of `str`, nothing else."""
        offset = self._offset
        for line in region.splitlines(keepends=True):
            bare = line.rstrip(b"\r\n")
            if self._held + len(bare) > self._limit:
                self._offset = offset
                self._overflow()
                return
            if bare:
                self._field(bare, offset)
            else:
                self._dispatch()
            offset += len(line)
        self._offset = offset

    # --- fields ------------------------------------------------------------------------------------------

    def _field(self, line: bytes, offset: int) -> None:
        name, _, value = line.partition(b":")
        if name not in (b"data", b"event"):
            return  # a comment has an empty name; unknown fields are ignored
        if not self._held:
            self._start = offset
        self._held += len(line)
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        else:
            self._name = value.decode(errors="replace")  # at the end of a body it may be cut anywhere

    def _dispatch(self) -> None:
        data = b"\n".join(self._data)
        if data:
            self._events.append(SseEvent(self._name, data, self._start))
        self._reset()

    def _reset(self) -> None:
        self._name = ""
        self._data = []
        self._held = 0

    # --- faults and small print --------------------------------------------------------------------------

    def _without_swallowed_feed(self, data: bytes) -> bytes:
        if self._after_cr and data:
            self._after_cr = False
            if data.startswith(b"\n"):
                self._offset += 1
                return data[1:]
        return data

    def _without_bom(self, data: bytes) -> bytes:
        if self._offset or len(self._line) >= len(_BOM):
            return data
        start = bytes(self._line) + data
        if not start.startswith(_BOM):
            return data
        self._line.clear()
        self._offset = len(_BOM)
        return start[len(_BOM) :]

    def _sound_length(self, region: bytes) -> int:
        """How many bytes of whole lines stand before the first that are not UTF-8; notes the fault."""
        try:
            region.decode()
        except UnicodeDecodeError as error:
            offset = self._offset + error.start
            self._fault = AdapterError(f"the stream is not UTF-8 at byte {offset}", offset=offset)
            return max(region.rfind(b"\n", 0, error.start), region.rfind(b"\r", 0, error.start)) + 1
        return len(region)

    def _overflow(self) -> None:
        offset = self._start if self._held else self._offset
        self._fault = AdapterError(
            f"an event of the stream passes the limit of {self._limit} bytes (it begins at byte {offset})",
            offset=offset,
        )
        self._reset()
        self._line = bytearray()

    def _handed_out(self) -> list[SseEvent]:
        events, self._events = self._events, []
        if self._fault is not None and not events:
            raise self._fault
        return events


def _is_whole(data: bytes) -> bool:
    if data.strip() == _DONE:
        return True
    if data.lstrip()[:1] not in (b"{", b"["):
        return False  # the front of a longer number or word may be a document of its own
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
        data.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True

"""`maka-trio decode` says what a recorded body means, or at which byte it means nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maka_trio.cli.recording import Replay, wire_events
from maka_trio.request import ProviderKind
from tests.cli.cli_child import Here

Decode = Callable[..., tuple[int, str, str]]

HEAD = '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":'


def event(choice: str) -> bytes:
    return f"data: {HEAD}[{choice}]}}\n\n".encode()


HELLO = event('{"index":0,"delta":{"role":"assistant","content":"Hello \\u001b[31m"},"finish_reason":null}')
CALL = event(
    '{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function",'
    '"function":{"name":"look","arguments":"{\\"a\\":1}"}}]},"finish_reason":null}'
)
STOP = event('{"index":0,"delta":{},"finish_reason":"tool_calls"}')
DONE = b"data: [DONE]\n\n"
BODY = HELLO + CALL + STOP + DONE

MESSAGES = b"".join(
    b"event: %b\ndata: %b\n\n" % (json.loads(data)["type"].encode(), data.encode())
    for data in (
        '{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m",'
        '"content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":1}}}',
        '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}',
        '{"type":"content_block_stop","index":0}',
        '{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}',
        '{"type":"message_stop"}',
    )
)


@pytest.fixture
def decode(here: Here, tmp_path: Path) -> Decode:
    """`decode(body, "--json", protocol="messages")`: run the command on a body."""

    def run(body: bytes, *more: str, protocol: str = "chat") -> tuple[int, str, str]:
        (tmp_path / "body.sse").write_bytes(body)
        outcome = here("decode", "body.sse", "--protocol", protocol, *more)
        return outcome.status, outcome.out, outcome.err

    return run


def test_events_and_step_are_shown_with_the_bytes_they_come_from(decode: Decode) -> None:
    """The offset is that of the wire event, as an editor would find it; foreign text is escaped."""
    status, out, err = decode(BODY)
    assert (status, err) == (0, "")
    rows = {line.split()[1]: line.split()[0] for line in out.splitlines() if line.strip()[:1].isdigit()}
    assert rows["part_delta"] == "0"
    assert rows["finished"] == str(len(HELLO + CALL + STOP))
    assert 'says "Hello \\x1b[31m"' in out
    assert "step: tool-calls" in out
    assert 'call: look {"a": 1}  id c1' in out


def test_json_lines_hold_the_same(decode: Decode) -> None:
    """Each event with its offset, then the step."""
    status, out, _ = decode(BODY, "--json")
    *events, last = map(json.loads, out.splitlines())
    assert status == 0
    assert [item["event"]["kind"] for item in events if item["event"]["kind"] == "tool_call"] == ["tool_call"]
    assert last["step"]["finish_reason"] == "tool-calls"


def test_messages_are_decoded_too(decode: Decode) -> None:
    """Another protocol, with usage."""
    status, out, _ = decode(MESSAGES, protocol="messages")
    assert status == 0
    assert "step: stop, 3 tokens in, 2 out" in out
    assert "text: Hi" in out


def test_a_json_answer_is_decoded_as_one(decode: Decode) -> None:
    """Some servers answer a streaming request with a whole document."""
    body = (
        b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop",'
        b'"message":{"role":"assistant","content":"whole"}}]}'
    )
    status, out, _ = decode(body)
    assert status == 0
    assert "text: whole" in out


@pytest.mark.parametrize(
    ("body", "offset", "words"),
    [
        (b"", 0, "ended before"),
        (BODY[: len(HELLO) + 9], len(HELLO) + 9, "ended before"),
        (HELLO + b"data: {not json\n\n" + STOP, len(HELLO), ""),
        (HELLO + b'data: {"error":{"message":"over\\u001bloaded","type":"server_error"}}\n\n', len(HELLO), "x1bloaded"),
        (HELLO + b"data: \xff\xfe\n\n", len(HELLO) + 6, "UTF-8"),
    ],
    ids=["nothing", "cut", "not-json", "error", "not-utf8"],
)
def test_what_is_no_step_is_one_line_with_its_byte(body: bytes, offset: int, words: str, decode: Decode) -> None:
    """What was decoded before it is shown; the error names the byte; the status is 1."""
    status, out, err = decode(body)
    assert status == 1
    assert err.count("\n") == 1
    assert f"at byte {offset}: " in err
    assert words in err
    assert ("part_delta" in out) is body.startswith(HELLO)
    status, out, _ = decode(body, "--json")
    last = json.loads(out.splitlines()[-1])
    assert (status, last["offset"]) == (1, offset)
    assert last["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("body.sse",), 2),
        (("body.sse", "--protocol", "telepathy"), 2),
        (("body.sse", "--protocol", "chat", "--name", "groq"), 2),
        (("nowhere.sse", "--protocol", "chat"), 1),
        ((".", "--protocol", "chat"), 1),
    ],
)
def test_wrong_arguments_are_one_line(arguments: tuple[str, ...], status: int, here: Here, tmp_path: Path) -> None:
    """Usage errors have status 2, files that cannot be read status 1."""
    (tmp_path / "body.sse").write_bytes(BODY)
    refused = here("decode", *arguments)
    assert (refused.status, refused.out) == (status, "")
    assert refused.err.count("\n") == 1


def test_a_dialect_is_used(decode: Decode) -> None:
    """What one compatible server means by a field is decoded under its name."""
    body = event('{"index":0,"delta":{"reasoning":"hm","content":"ok"},"finish_reason":"stop"}') + DONE
    status, out, _ = decode(body, "--name", "groq", protocol="compatible")
    assert status == 0
    assert "thinking: hm" in out


@given(st.binary(max_size=300))
def test_any_bytes_end_in_a_step_or_a_fault(body: bytes) -> None:
    """Nothing that a file may hold makes the command fail otherwise, and its offset lies in the file."""
    replay = Replay(body, ProviderKind.OPENAI_CHAT_COMPLETIONS, None)
    offsets = [decoded.offset for decoded in replay.events()]
    assert (replay.step is None) is (replay.fault is not None)
    assert offsets == sorted(offsets)
    if replay.fault is not None:
        assert 0 <= replay.fault.offset <= len(body)


@given(
    st.lists(st.sampled_from([HELLO, DONE, b": ping\n\n", b"\r\n", b"event: x\r\ndata: 1\r\n\r\n", b"data: \xff\n\n"]))
)
def test_the_pieces_of_a_body_are_the_body(parts: list[bytes]) -> None:
    """Taking a body apart by events loses and doubles nothing, whatever its framing."""
    body = b"".join(parts)
    pieces = list(wire_events(body))
    assert b"".join(piece for _, piece in pieces) == body
    assert [offset for offset, _ in pieces] == [sum(len(p) for _, p in pieces[:n]) for n in range(len(pieces))]

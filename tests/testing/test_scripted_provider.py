"""The scripted provider, seen by a plain HTTP client."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio

from maka_trio.errors import InvalidInput
from maka_trio.facts import FinishReason, ModelUsage
from maka_trio.request import ProviderKind
from maka_trio.testing import (
    Call,
    Disconnect,
    Gate,
    Headers,
    Heartbeat,
    Reset,
    ScriptedProvider,
    Silence,
    Thinking,
    WireError,
)
from maka_trio.testing.gate import Tally

CHAT = {"model": "m", "stream": True, "stream_options": {"include_usage": True}, "messages": []}
PATHS = ["chat/completions", "messages", "responses"]


@asynccontextmanager
async def asking(
    provider: ScriptedProvider, path: str = "chat/completions", body: object = CHAT
) -> AsyncGenerator[httpx.Response, None]:
    """One streaming request; the response is open for as long as the block runs."""
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=60) as client:
        request = client.build_request(
            "POST", f"{provider.base_url}/{path}", json=body, headers={"x-api-key": "s3cret"}
        )
        response = await client.send(request, stream=True)
        try:
            yield response
        finally:
            with trio.CancelScope(shield=True):
                await response.aclose()


async def ask(provider: ScriptedProvider, path: str = "chat/completions", body: object = CHAT) -> httpx.Response:
    async with asking(provider, path, body) as response:
        await response.aread()
    return response


def events(body: str) -> list[Any]:
    """The data of each event, parsed where it is JSON."""
    lines = [line.removeprefix("data: ") for line in body.split("\n") if line.startswith("data: ")]
    return [json.loads(line) if line.startswith("{") else line for line in lines]


def chat_text(body: str) -> str:
    chunks = [chunk for chunk in events(body) if isinstance(chunk, dict)]
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])


async def test_answers_come_in_the_order_of_the_script() -> None:
    """Each request takes the next answer."""
    async with ScriptedProvider() as provider:
        provider.say("one")
        provider.say("two")
        assert chat_text((await ask(provider)).text) == "one"
        assert chat_text((await ask(provider)).text) == "two"
        provider.check_script()


async def test_a_predicate_matches_answers_to_concurrent_requests() -> None:
    """Answers find their requests whatever order these arrive in."""
    async with ScriptedProvider() as provider:
        for name in ("a", "b", "c"):
            provider.say(name, when=lambda request, name=name: request.body["model"] == name)
        for name in ("c", "a", "b"):
            assert chat_text((await ask(provider, body=CHAT | {"model": name})).text) == name


async def test_chat_chunks_carry_text_calls_usage_and_the_end_mark() -> None:
    """The chat rendering has what the vendor's stream has."""
    async with ScriptedProvider() as provider:
        provider.say(
            Thinking("hm"),
            "hi",
            Call("f", {"x": 1}, "id-1"),
            usage=ModelUsage(7, 3, cache_read_tokens=2, reasoning_tokens=1),
        )
        chunks = events((await ask(provider)).text)
    deltas = [c["choices"][0]["delta"] for c in chunks[:-1] if c["choices"]]
    assert chunks[-1] == "[DONE]"
    assert deltas[:3] == [{"role": "assistant", "content": ""}, {"reasoning_content": "hm"}, {"content": "hi"}]
    assert deltas[3]["tool_calls"][0]["id"] == "id-1"
    assert deltas[4]["tool_calls"] == [{"index": 0, "function": {"arguments": '{"x":1}'}}]
    assert chunks[-3]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[-2]["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }


async def test_chat_states_usage_only_when_it_is_asked_for() -> None:
    """As the vendor does, so that a client that forgets to ask is found out."""
    async with ScriptedProvider() as provider:
        provider.say("x")
        response = await ask(provider, body={"model": "m", "stream": True})
    assert not [chunk for chunk in events(response.text) if "usage" in chunk]


async def test_message_events_open_and_close_their_blocks() -> None:
    """The messages rendering numbers blocks, closes each, and signs thinking."""
    async with ScriptedProvider() as provider:
        provider.say(
            Thinking("a"),
            Thinking("b", signature="sig"),
            "x",
            "y",
            Call("f", {"q": []}, "tc"),
            finish=FinishReason.STOP,
        )
        got = events((await ask(provider, "messages")).text)
    kinds = [(e["type"], e.get("index"), e.get("delta", {}).get("type")) for e in got]
    assert kinds == [
        ("message_start", None, None),
        ("content_block_start", 0, None),
        ("content_block_delta", 0, "thinking_delta"),
        ("content_block_delta", 0, "thinking_delta"),
        ("content_block_delta", 0, "signature_delta"),
        ("content_block_stop", 0, None),
        ("content_block_start", 1, None),
        ("content_block_delta", 1, "text_delta"),
        ("content_block_delta", 1, "text_delta"),
        ("content_block_stop", 1, None),
        ("content_block_start", 2, None),
        ("content_block_delta", 2, "input_json_delta"),
        ("content_block_stop", 2, None),
        ("message_delta", None, None),
        ("message_stop", None, None),
    ]
    assert got[-2]["delta"]["stop_reason"] == "end_turn"
    assert got[0]["message"]["usage"] == {"input_tokens": 10, "output_tokens": 1}
    assert got[-2]["usage"] == {"output_tokens": 5}


async def test_responses_events_are_numbered_and_end_with_the_whole_response() -> None:
    """The last event of a Responses stream repeats every item."""
    async with ScriptedProvider() as provider:
        provider.say(Thinking("t", signature="enc"), "a", "b", Call("f", {}, "c1"))
        got = events((await ask(provider, "responses")).text)
    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    response = got[-1]["response"]
    assert got[-1]["type"] == "response.completed"
    assert [item["type"] for item in response["output"]] == ["reasoning", "message", "function_call"]
    assert response["output"][0]["encrypted_content"] == "enc"
    assert response["output"][1]["content"][0]["text"] == "ab"
    assert response["output"][2]["arguments"] == "{}"
    assert response["usage"] == {"input_tokens": 10, "output_tokens": 5}


@pytest.mark.parametrize("path", PATHS)
async def test_length_is_each_protocols_own_word(path: str) -> None:
    """A neutral finish reason is put in the protocol's vocabulary."""
    words = {"chat/completions": '"length"', "messages": '"max_tokens"', "responses": '"max_output_tokens"'}
    async with ScriptedProvider() as provider:
        provider.say("x", finish=FinishReason.LENGTH)
        assert words[path] in (await ask(provider, path)).text


@pytest.mark.parametrize("path", PATHS)
async def test_an_error_in_the_stream_ends_it(path: str) -> None:
    """What stands behind a WireError is not sent."""
    async with ScriptedProvider() as provider:
        provider.say("x", WireError("overloaded_error", "too much"), "never")
        text = (await ask(provider, path)).text
    assert "overloaded_error" in text
    assert "too much" in text
    assert "never" not in text


async def test_a_gate_holds_the_answer_until_the_test_opens_it() -> None:
    """What stands before a gate is on the wire when it is reached, what stands behind it is not."""
    gate = Gate()
    seen: list[str] = []
    pieces = Tally()
    async with ScriptedProvider() as provider, trio.open_nursery() as nursery:
        provider.say("before", gate, "after", chunk="packed")

        async def read() -> None:
            async with asking(provider) as response:
                async for text in response.aiter_text():
                    seen.append(text)
                    pieces.add()

        nursery.start_soon(read)
        with trio.fail_after(60):
            await gate.reached()
            await pieces.wait(1)
        assert chat_text("".join(seen)) == "before"
        assert not provider.requests[0].answered.is_set()
        gate.open()
    assert chat_text("".join(seen)) == "beforeafter"


async def test_headers_can_be_held_back_or_sent_alone() -> None:
    """Headers go out with the first bytes, or where the script puts them."""
    gate = Gate()
    async with ScriptedProvider() as provider:
        provider.say(gate, "x")
        provider.say(Headers(), Silence())
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, provider)
                await gate.reached()
                assert not provider.requests[0].answered.is_set()
                nursery.cancel_scope.cancel()
            async with asking(provider) as response:
                assert response.status_code == 200
            await provider.requests[1].disconnected.wait()


@pytest.mark.parametrize("path", PATHS)
async def test_packed_and_byte_chunks_carry_the_same_body(path: str) -> None:
    """How a body is cut into HTTP chunks changes none of it."""
    async with ScriptedProvider() as provider:
        bodies = set()
        for chunk in ("event", "packed", 1, 7):
            provider.say("héllo", Heartbeat(), Call("f", {}, "same"), chunk=chunk)
            text = (await ask(provider, path)).text
            bodies.add(text.replace(f"scripted{len(provider.requests)}", "scripted"))
    assert len(bodies) == 1


async def test_raw_bytes_are_sent_as_they_are() -> None:
    """Nothing is added to a raw stream and nothing is taken from it."""
    async with ScriptedProvider() as provider:
        provider.raw_sse(b"data: 1\r\n", b"\r\n\xff", "data: \u2026")
        response = await ask(provider)
    assert response.content == b"data: 1\r\n\r\n\xffdata: \xe2\x80\xa6"
    assert response.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("cut_at", [0, 1, 50])
async def test_a_cut_breaks_the_body_at_that_byte(cut_at: int) -> None:
    """The client sees exactly that many bytes of the body and then the end of the connection."""
    got = bytearray()
    async with ScriptedProvider() as provider:
        provider.say("x" * 100, cut_at=cut_at, chunk=3)

        async def read() -> None:
            async with asking(provider) as response:
                async for data in response.aiter_raw():
                    got.extend(data)

        with pytest.raises(httpx.RemoteProtocolError):
            await read()
    assert len(got) == cut_at


async def test_a_reset_is_seen_as_one() -> None:
    """`reset` breaks the connection before any header; `Reset` in the middle of a body."""
    async with ScriptedProvider() as provider:
        provider.reset()
        provider.say("x", Reset())
        provider.disconnect()
        provider.say("x", Disconnect())
        with pytest.raises(httpx.ReadError):
            await ask(provider)
        with pytest.raises(httpx.ReadError):
            await ask(provider)
        with pytest.raises(httpx.RemoteProtocolError):
            await ask(provider)
        with pytest.raises(httpx.RemoteProtocolError):
            await ask(provider)


async def test_silence_ends_when_the_client_leaves() -> None:
    """The provider notices that a client closed its connection, though it has nothing to send."""
    async with ScriptedProvider() as provider:
        provider.silence()
        with trio.move_on_after(60) as asked:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, provider)
                request = await provider.wait_for_request()
                nursery.cancel_scope.cancel()
        assert not asked.cancelled_caught
        with trio.fail_after(60):
            await request.disconnected.wait()
            await provider.wait_closed()
        assert provider.open_connections == 0
        assert not request.answered.is_set()


async def test_a_client_that_leaves_a_flood_unread_is_noticed() -> None:
    """A provider that is blocked on a full socket sees the close as well."""
    async with ScriptedProvider() as provider:
        provider.say(*["x" * 60_000] * 500)
        async with asking(provider) as response:
            assert response.status_code == 200
        with trio.fail_after(60):
            await provider.requests[0].disconnected.wait()


async def test_an_unscripted_request_is_told_so_and_recorded() -> None:
    """Status 500 with a sentence, which `errors` and `check_script` repeat."""
    async with ScriptedProvider() as provider:
        response = await ask(provider)
        assert response.status_code == 500
        assert "not in the script" in response.json()["error"]["message"]
        assert len(provider.errors) == 1
        with pytest.raises(AssertionError, match="not in the script"):
            provider.check_script()


async def test_answers_that_nobody_asked_for_fail_the_check() -> None:
    """A script that was not played to its end is a failed test."""
    async with ScriptedProvider() as provider:
        provider.say("x")
        assert provider.answers_left == 1
        with pytest.raises(AssertionError, match="never asked for"):
            provider.check_script()


async def test_a_predicate_that_raises_is_an_error_of_the_script() -> None:
    """It is recorded and the client is answered; the provider goes on."""
    async with ScriptedProvider() as provider:
        provider.say("x", when=lambda request: request.nonsense)  # type: ignore[attr-defined]
        assert (await ask(provider)).status_code == 500
        assert "nonsense" in provider.errors[0]


async def test_an_unknown_path_or_a_request_without_stream_is_refused() -> None:
    """A neutral answer needs a protocol to be put in."""
    async with ScriptedProvider() as provider:
        provider.say("x")
        provider.say("x")
        assert (await ask(provider, "embeddings")).status_code == 500
        assert (await ask(provider, body={"model": "m"})).status_code == 500
        assert "embeddings" in provider.errors[0]
        assert "stream" in provider.errors[1]


async def test_plain_answers_and_failures_keep_status_headers_and_body() -> None:
    """`answer` sends what it is given, `fail` an error body that all protocols know."""
    async with ScriptedProvider() as provider:
        provider.answer(418, {"x-test": "1"}, b"short")
        provider.answer(200, body={"a": 1})
        provider.fail(429, "rate_limit_error", "slow down", headers={"retry-after": "3"})
        teapot, document, limited = [await ask(provider) for _ in range(3)]
    assert (teapot.status_code, teapot.headers["x-test"], teapot.content) == (418, "1", b"short")
    assert document.json() == {"a": 1}
    assert limited.headers["retry-after"] == "3"
    assert limited.json()["error"]["type"] == "rate_limit_error"


async def test_a_request_is_recorded_without_showing_its_credentials() -> None:
    """Headers are there for the test to look at, and masked where they are only printed."""
    async with ScriptedProvider() as provider:
        provider.say("x")
        await ask(provider)
        (request,) = provider.requests
    assert (request.number, request.method, request.path) == (1, "POST", "/v1/chat/completions")
    assert request.body == CHAT
    assert request.headers["x-api-key"] == "s3cret"
    assert "s3cret" not in repr(request)
    assert request.answered.is_set()


async def test_generated_call_ids_never_repeat() -> None:
    """Two calls of one provider never share an id unless the test says so."""
    async with ScriptedProvider() as provider:
        provider.call_tools(("f",), ("f",))
        provider.call_tools(("f",), ("f", {}, "mine"))
        ids = []
        for _ in range(2):
            for chunk in events((await ask(provider)).text)[:-1]:
                for choice in chunk["choices"]:
                    ids += [call["id"] for call in choice["delta"].get("tool_calls", []) if "id" in call]
    assert ids == ["call_1", "call_2", "call_3", "mine"]


async def test_connections_are_kept_alive_between_requests() -> None:
    """Two requests of one client in a row use one connection."""
    async with ScriptedProvider() as provider:
        provider.say("a")
        provider.say("b")
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            for _ in range(2):
                await client.post(f"{provider.base_url}/chat/completions", json=CHAT)
        assert provider.connections == 1


async def test_a_large_and_a_chunked_body_arrive_whole() -> None:
    """Bodies of many megabytes, with a length or in chunks."""
    text = "x" * (33 * 1024 * 1024)

    async def pieces() -> AsyncGenerator[bytes, None]:
        await trio.lowlevel.checkpoint()
        yield b'{"stream": true, '
        yield b'"model": "m"}'

    async with ScriptedProvider() as provider:
        provider.say("a")
        provider.say("b")
        await ask(provider, body=CHAT | {"text": text})
        assert provider.requests[0].body["text"] == text
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            await client.post(f"{provider.base_url}/chat/completions", content=pieces())
        assert provider.requests[1].body == {"stream": True, "model": "m"}


@pytest.mark.parametrize("kind", list(ProviderKind))
async def test_config_reaches_the_provider_on_loopback(kind: ProviderKind) -> None:
    """Every kind gets a configuration; its address is 127.0.0.1."""
    async with ScriptedProvider() as provider:
        config = provider.config(kind, headers={"x-a": "b"})
        assert config.base_url.startswith("http://127.0.0.1:")
        assert config.headers == {"x-a": "b"}


async def test_leaving_the_block_closes_what_is_still_under_way() -> None:
    """A client in the middle of an answer sees the connection end; an error of the block comes out bare."""
    outcome: list[BaseException] = []

    async def client(provider: ScriptedProvider) -> None:
        try:
            await ask(provider)
        except httpx.TransportError as error:
            outcome.append(error)

    async def leave_with_an_error(nursery: trio.Nursery) -> None:
        async with ScriptedProvider() as provider:
            provider.silence()
            nursery.start_soon(client, provider)
            await provider.wait_for_request()
            raise LookupError("body")

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            with pytest.raises(LookupError, match="body"):
                await leave_with_an_error(nursery)
    assert len(outcome) == 1


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"POST / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 99999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nxx\r\n0\r\n\r\n",
    ],
)
async def test_bytes_that_are_no_request_get_400_and_a_recorded_error(request_bytes: bytes) -> None:
    """The provider survives any client and says what was wrong."""
    async with ScriptedProvider() as provider:
        port = int(provider.base_url.split(":")[2].split("/")[0])
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            await stream.send_all(request_bytes)
            with trio.fail_after(60):
                assert b" 400 " in await stream.receive_some()
        assert len(provider.errors) == 1


async def test_half_a_request_is_no_request() -> None:
    """A client that leaves during its upload is not recorded, and not an error of the script."""
    async with ScriptedProvider() as provider:
        port = int(provider.base_url.split(":")[2].split("/")[0])
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(b"POST / HTTP/1.1\r\ncontent-length: 10\r\n\r\n12345")
        with trio.fail_after(60):
            await provider.wait_for_connections(1)
            await provider.wait_closed()
        assert provider.requests == ()
        assert provider.errors == ()


@pytest.mark.parametrize("wrong", [None, 3, ("a",), object()])
def test_an_answer_of_the_wrong_parts_is_refused_where_it_is_scripted(wrong: object) -> None:
    """The mistake shows in the line of the test that made it."""
    provider = ScriptedProvider()
    with pytest.raises(InvalidInput):
        provider.say(wrong)
    with pytest.raises(InvalidInput):
        provider.raw_sse(Heartbeat())
    with pytest.raises(InvalidInput):
        provider.call_tools()
    with pytest.raises(InvalidInput):
        provider.say("x", chunk=0)
    with pytest.raises(InvalidInput):
        provider.call_tools(("f", {"x": object()}))


async def test_an_answer_that_cannot_be_sent_is_an_error_of_the_script() -> None:
    """The client sees a broken connection, the test a sentence, and the provider goes on."""
    async with ScriptedProvider() as provider:
        provider.say("x", finish="\ud800")
        provider.say("next")
        with pytest.raises(httpx.ReadError):
            await ask(provider)
        assert "cannot be sent" in provider.errors[0]
        assert chat_text((await ask(provider)).text) == "next"


async def test_a_provider_is_entered_once() -> None:
    """A second block would share the script of the first."""
    async with ScriptedProvider() as provider:
        with pytest.raises(RuntimeError, match="once"):
            await provider.__aenter__()


async def test_many_clients_at_once_are_all_served() -> None:
    """Hundreds of concurrent requests, each with its own answer."""
    got: set[str] = set()

    async def client(provider: ScriptedProvider, name: str) -> None:
        got.add(chat_text((await ask(provider, body=CHAT | {"model": name})).text))

    names = {f"m{number}" for number in range(60)}
    async with ScriptedProvider() as provider:
        for name in names:
            provider.say(name, when=lambda request, name=name: request.body["model"] == name)
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(client, provider, name)
    assert got == names

"""Prompts as chat messages: roles, media, tool groups, reasoning that goes back."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from maka_trio.dialect import Dialect
from maka_trio.errors import InvalidInput
from maka_trio.facts import (
    ContentOutput,
    ErrorOutput,
    MediaContent,
    ModelPart,
    ModelToolCall,
    PromptMessage,
    SourcePart,
    TextContent,
    TextKind,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    UrlSource,
)
from maka_trio.facts.message import Message
from maka_trio.facts.opening import ToolDefinition
from maka_trio.protocol.registry import adapter_for
from tests.protocol.chat_wire import request

PNG = b"\x89PNG\r\n\x1a\n"
URL = "data:image/png;base64," + base64.b64encode(PNG).decode()
USER = Message.user("go")


def messages(*prompt: PromptMessage, name: str | None = None, dialect: Dialect | None = None, **more: Any) -> list[Any]:
    asked = request(*prompt, name=name, dialect=dialect, **more)
    encoded: list[Any] = json.loads(adapter_for(asked.provider).encode(asked).body)["messages"]
    return encoded


def said(*parts: ModelPart) -> PromptMessage:
    return Message.assistant(parts)


def a_call(call_id: str, name: str = "put", value: Any = None, **more: Any) -> ToolCallPart:
    return ToolCallPart(ModelToolCall(call_id, name, {} if value is None else value, **more))


def wire_call(call_id: str, name: str = "put", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def thought(text: str, **options: Any) -> TextPart:
    return TextPart(TextKind.THINKING, text, options or None)


# --- system and user ---------------------------------------------------------------------------------------------


def test_single_texts_are_plain_strings() -> None:
    """System and user."""
    assert messages(Message.system("be brief"), USER) == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "go"},
    ]


def test_several_parts_are_an_array() -> None:
    """Texts, images by bytes and by address, recordings, documents."""
    content = [
        TextContent("look"),
        MediaContent("image/png", data=PNG, detail="low"),
        MediaContent("image/jpeg", url="http://127.0.0.1/x.jpg"),
        MediaContent("audio/wav", data=b"RIFF"),
        MediaContent("audio/mpeg", data=b"ID3"),
        MediaContent("application/pdf", data=b"%PDF", filename="a.pdf"),
    ]
    assert messages(Message.user(content))[0]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.jpg"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
    ]


def test_a_text_file_is_sent_as_its_text() -> None:
    """The protocol's files are documents of one kind only."""
    part = MediaContent("text/csv", data="a,é".encode(), filename="t.csv")
    assert messages(Message.user([part]))[0]["content"] == [{"type": "text", "text": "t.csv:\na,é"}]


@pytest.mark.parametrize(
    "part",
    [
        MediaContent("audio/ogg", data=b"hidden-bytes"),
        MediaContent("audio/wav", url="http://127.0.0.1/hidden-bytes"),
        MediaContent("application/zip", data=b"hidden-bytes", filename="a.zip"),
        MediaContent("text/plain", data=b"\xffhidden-bytes"),
        MediaContent("image/tiff", data=b"hidden-bytes"),
        MediaContent("video/mp4", data=b"hidden-bytes"),
    ],
)
def test_what_the_protocol_cannot_carry_is_a_text_that_says_so(part: MediaContent) -> None:
    """The model is told, and the bytes do not reach the wire."""
    (sent,) = messages(Message.user([part]))[0]["content"]
    assert sent["type"] == "text"
    assert "left out" in sent["text"]
    assert "hidden" not in sent["text"]


def test_a_compatible_server_may_read_more_kinds_of_images() -> None:
    """The vendor's list does not bind it."""
    (sent,) = messages(Message.user([MediaContent("image/bmp", data=b"BM")]), name="generic")[0]["content"]
    assert sent == {"type": "image_url", "image_url": {"url": "data:image/bmp;base64,Qk0="}}


def test_media_that_is_still_in_the_log_is_refused() -> None:
    """The engine reads artifacts before an adapter sees them."""
    with pytest.raises(InvalidInput, match="artifact"):
        messages(Message.user([MediaContent("image/png", artifact="art-1")]))


# --- assistant and tools -----------------------------------------------------------------------------------------


def test_a_turn_with_calls_is_one_message_and_one_answer_each() -> None:
    """Arguments are JSON text; texts and errors are verbatim, values are JSON text."""
    prompt = (
        USER,
        said(
            TextPart(TextKind.TEXT, "I "),
            TextPart(TextKind.TEXT, "go"),
            a_call("a", "f", {"x": "é"}),
            a_call("b"),
            a_call("c"),
        ),
        Message.tool("a", "f", "done"),
        Message.tool("b", "put", {"n": [1, "é"]}),
        Message.tool("c", "put", ErrorOutput("no\n")),
    )
    assert messages(*prompt)[1:] == [
        {
            "role": "assistant",
            "content": "I go",
            "tool_calls": [wire_call("a", "f", '{"x":"é"}'), wire_call("b"), wire_call("c")],
        },
        {"role": "tool", "tool_call_id": "a", "content": "done"},
        {"role": "tool", "tool_call_id": "b", "content": '{"n":[1,"é"]}'},
        {"role": "tool", "tool_call_id": "c", "content": "no\n"},
    ]


def test_answers_come_in_call_order_before_anything_else() -> None:
    """Whatever order they were given in, and whatever was said between."""
    prompt = (
        USER,
        said(a_call("a"), a_call("b")),
        Message.tool("b", "put", "2"),
        Message.user("wait"),
        Message.tool("a", "put", "1"),
    )
    assert [(m["role"], m["content"]) for m in messages(*prompt)[2:]] == [
        ("tool", "1"),
        ("tool", "2"),
        ("user", "wait"),
    ]


@pytest.mark.parametrize(
    "prompt",
    [
        (USER, said(a_call("a"))),
        (USER, said(a_call("a")), USER),
        (USER, Message.tool("a", "put", "1")),
        (USER, said(a_call("a")), Message.tool("a", "put", "1"), Message.tool("a", "put", "1")),
    ],
)
def test_a_call_without_exactly_one_answer_is_refused(prompt: tuple[PromptMessage, ...]) -> None:
    """A provider would refuse the history."""
    with pytest.raises(InvalidInput, match="'a'"):
        messages(*prompt)


def test_ids_that_start_again_in_every_step_are_told_apart() -> None:
    """Call and answer are renamed together, and the first keeps its id."""
    step = (said(a_call("call_0")), Message.tool("call_0", "put", "x"))
    sent = messages(USER, *step, *step, *step)
    ids = [message["tool_calls"][0]["id"] for message in sent if message["role"] == "assistant"]
    assert ids == [message["tool_call_id"] for message in sent if message["role"] == "tool"]
    assert ids[0] == "call_0"
    assert len(set(ids)) == 3
    assert messages(USER, *step, *step)[:5] == sent[:5]


def test_ids_keep_their_characters_and_the_vendor_its_length() -> None:
    """Some models read their own ids; the vendor refuses long ones."""
    odd, long = "functions.put:0", "x" * 60
    prompt = (USER, said(a_call(odd), a_call(long)), Message.tool(odd, "put", "1"), Message.tool(long, "put", "2"))
    assert [m["tool_call_id"] for m in messages(*prompt, name="generic")[2:]] == [odd, long]
    strict = [m["tool_call_id"] for m in messages(*prompt)[2:]]
    assert strict[0] == odd
    assert len(strict[1]) <= 40


def test_ids_of_exactly_nine_letters_and_digits_are_made_for_a_server_that_insists() -> None:
    """One that fits stays."""
    prompt = (
        USER,
        said(a_call("abcDEF123"), a_call("call_0")),
        Message.tool("abcDEF123", "put", "1"),
        Message.tool("call_0", "put", "2"),
    )
    sent = messages(*prompt, name="mistral")
    ids = [call["id"] for call in sent[1]["tool_calls"]]
    assert ids == [message["tool_call_id"] for message in sent[2:]]
    assert ids[0] == "abcDEF123"
    assert len(ids[1]) == 9
    assert ids[1].isalnum()


def test_names_that_no_tool_has_are_made_fit_for_the_wire() -> None:
    """A model invents names; those of offered tools are never changed."""
    prompt = (
        USER,
        said(a_call("a", "no such/tool"), a_call("b", "mcp.put")),
        Message.tool("a", "x", "1"),
        Message.tool("b", "x", "2"),
    )
    sent = messages(*prompt, tools=[ToolDefinition("mcp.put", "", {})])
    assert [call["function"]["name"] for call in sent[1]["tool_calls"]] == ["no_such_tool", "mcp.put"]


def test_media_of_results_follow_the_whole_group_in_one_user_message() -> None:
    """Each stands under the label that its result bears."""
    shot = ContentOutput((TextContent("shot"), MediaContent("image/png", data=PNG)))
    prompt = (
        USER,
        said(a_call("a", "see"), a_call("b", "see"), a_call("c", "see")),
        Message.tool("a", "see", shot),
        Message.tool("b", "see", ContentOutput((TextContent("just"), TextContent("text")))),
        Message.tool("c", "see", shot),
    )
    sent = messages(*prompt)
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "tool", "user"]
    labels = [sent[at]["content"].removeprefix("shot\n") for at in (2, 4)]
    assert sent[3]["content"] == "just\ntext"
    image = {"type": "image_url", "image_url": {"url": URL}}
    assert sent[5]["content"] == [
        {"type": "text", "text": labels[0]},
        image,
        {"type": "text", "text": labels[1]},
        image,
    ]
    assert labels[0] != labels[1]


def test_a_message_that_says_nothing_is_left_out() -> None:
    """Thoughts alone, citations and what another provider executed have no place on this wire."""
    prompt = (
        USER,
        said(thought("hm"), SourcePart(UrlSource("s", "u"))),
        said(a_call("h", provider_executed=True), ToolResultPart("h", "put", {})),
        Message.assistant("A"),
    )
    assert messages(*prompt) == [{"role": "user", "content": "go"}, {"role": "assistant", "content": "A"}]


def test_calls_without_text_have_null_content() -> None:
    """As the vendor writes it."""
    sent = messages(USER, said(a_call("a")), Message.tool("a", "put", "1"))
    assert sent[1]["content"] is None


def test_a_refusal_goes_back_where_the_vendor_keeps_it() -> None:
    """Elsewhere it is what it looks like: text."""
    refusal = TextPart(TextKind.TEXT, "cannot", {"openai": {"refusal": True}})
    assert messages(USER, said(refusal))[1] == {"role": "assistant", "content": None, "refusal": "cannot"}
    assert messages(USER, said(refusal), name="generic")[1] == {"role": "assistant", "content": "cannot"}


def test_what_a_server_tied_to_a_call_goes_back_to_it_alone() -> None:
    """Extra content of one server means nothing to another."""
    tied = a_call("a", provider_options={"gemini": {"extra_content": {"google": {"thought_signature": "s"}}}})
    prompt = (USER, said(tied), Message.tool("a", "put", "1"))
    sent = messages(*prompt, name="gemini")[1]["tool_calls"][0]
    assert sent["extra_content"] == {"google": {"thought_signature": "s"}}
    assert "extra_content" not in messages(*prompt, name="generic")[1]["tool_calls"][0]


# --- reasoning that goes back ------------------------------------------------------------------------------------

EARLIER = (USER, said(thought("old"), TextPart(TextKind.TEXT, "A")))
LOOP = (USER, said(thought("new"), a_call("a")), Message.tool("a", "put", "1"))


@pytest.mark.parametrize(
    ("key", "replay", "old", "new"),
    [
        ("reasoning_content", "always", {"reasoning_content": "old"}, {"reasoning_content": "new"}),
        ("reasoning", "always", {"reasoning": "old"}, {"reasoning": "new"}),
        ("reasoning_content", "tool_loop", {}, {"reasoning_content": "new"}),
        ("reasoning_content", "never", {}, {}),
        (None, "always", {}, {}),
        ("reasoning_details", "always", {"reasoning": "old"}, {"reasoning": "new"}),
    ],
)
def test_reasoning_goes_back_under_the_key_and_in_the_messages_of_the_dialect(
    key: str | None, replay: Any, old: dict[str, str], new: dict[str, str]
) -> None:
    """One server insists on it, another refuses it; the configuration decides."""
    dialect = Dialect(reasoning_key=key, reasoning_replay=replay)
    sent = messages(*EARLIER, *LOOP, name="mine", dialect=dialect)
    assert sent[1] == {"role": "assistant", "content": "A", **old}
    assert sent[3] == {"role": "assistant", "content": None, "tool_calls": [wire_call("a")], **new}


def test_the_vendor_takes_no_reasoning_back() -> None:
    """It would refuse the key."""
    assert messages(*EARLIER)[1] == {"role": "assistant", "content": "A"}


def test_structured_reasoning_goes_back_unchanged() -> None:
    """All details of a message, in order, and no second form of them."""
    details = [{"type": "reasoning.text", "text": "hm", "signature": "s"}]
    late = [{"type": "reasoning.encrypted", "data": "xx"}]
    parts = (
        thought("hm", openrouter={"reasoning_details": details}),
        a_call("a"),
        thought("", openrouter={"reasoning_details": late}),
    )
    sent = messages(USER, said(*parts), Message.tool("a", "put", "1"), name="openrouter")[1]
    assert sent["reasoning_details"] == details + late
    assert "reasoning" not in sent


def test_thinking_goes_back_as_a_part_of_the_content() -> None:
    """Before the text, where there is any."""
    sent = messages(*EARLIER, *LOOP, name="mistral")
    assert sent[1]["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "old"}]},
        {"type": "text", "text": "A"},
    ]
    assert sent[3]["content"] == [{"type": "thinking", "thinking": [{"type": "text", "text": "new"}]}]

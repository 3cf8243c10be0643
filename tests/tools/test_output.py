"""A tool's result: what is stored of it, what the model is shown, and what becomes of one that is too much."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from maka_trio import facts, limits
from maka_trio.facts.codec import canonical, digest, encode, parse_json
from maka_trio.tools import ToolContent, ToolImage, ToolProjection, ToolText
from maka_trio.tools.output import RESULT_HIDDEN_TEXT, RESULT_LOST_TEXT, EncodedResult, encode_result
from tests.strategies import JSON_VALUES

EVENT = "event-1"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
GIF = b"GIF89a" + bytes(4)


def encoded(value: object) -> EncodedResult:
    result = encode_result(value, EVENT)
    assert isinstance(result.outcome, facts.Succeeded), result.outcome
    return result


def shown(value: object) -> Any:
    outcome = encoded(value).outcome
    assert isinstance(outcome, facts.Succeeded)
    return outcome.model_projection


def raw(value: object) -> Any:
    payload = encoded(value).payload
    assert payload is not None
    return parse_json(payload, what="payload")


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


# --- the forms of a result --------------------------------------------------------------------------------


@given(JSON_VALUES)
def test_json_is_stored_canonically_with_its_size_and_digest(value: Any) -> None:
    """What is stored can be checked against what the fact says."""
    result = encoded(value)
    assert result.payload == canonical(value)
    assert isinstance(result.outcome, facts.Succeeded)
    assert result.outcome.raw == facts.RawResult(len(result.payload), digest(result.payload))
    assert result.artifacts == ()
    assert result.outcome.artifacts == ()
    assert encode(result.outcome, facts.ToolOutcome)


@pytest.mark.parametrize(
    ("value", "stored", "projection"),
    [
        ("text", "text", facts.TextOutput("text")),
        ("", "", facts.TextOutput("")),
        (None, None, facts.JsonOutput(None)),
        (0, 0, facts.JsonOutput(0)),
        ([1, "a"], [1, "a"], facts.JsonOutput([1, "a"])),
        ((1, 2), [1, 2], facts.JsonOutput([1, 2])),
        ({"a": None}, {"a": None}, facts.JsonOutput({"a": None})),
        (
            ToolText("hi"),
            {"kind": "text", "text": "hi"},
            facts.JsonOutput({"kind": "text", "text": "hi"}),
        ),
        (ToolContent(["a", facts.TextContent("b")], raw={"n": 1}), {"n": 1}, facts.TextOutput("a\nb")),
        (ToolContent([]), [], facts.TextOutput("")),
        (ToolProjection({"n": 1}, facts.TextOutput("one")), {"n": 1}, facts.TextOutput("one")),
        (ToolProjection([1], facts.JsonOutput("short")), [1], facts.JsonOutput("short")),
        (ToolProjection(None, facts.ErrorOutput("partly")), None, facts.ErrorOutput("partly")),
    ],
    ids=repr,
)
def test_each_form_has_its_raw_result_and_its_projection(value: Any, stored: Any, projection: Any) -> None:
    """A text is shown as text, other JSON as JSON, explicit forms as given."""
    assert raw(value) == stored
    assert shown(value) == projection


def test_an_image_is_an_artifact_and_the_model_is_shown_it() -> None:
    """Its bytes stand beside the event; raw result and projection name them."""
    result = encoded(ToolImage(PNG))
    assert isinstance(result.outcome, facts.Succeeded)
    ref = facts.ArtifactRef(f"{EVENT}:0", "image/png", len(PNG), digest(PNG))
    assert result.artifacts == (facts.Artifact(ref, PNG),)
    assert result.outcome.artifacts == (ref,)
    assert raw(ToolImage(PNG)) == {"kind": "image", "mimeType": "image/png", "ref": ref.id}
    text, image = result.outcome.model_projection.parts  # type: ignore[union-attr]
    assert isinstance(text, facts.TextContent)
    assert image == facts.MediaContent("image/png", artifact=ref.id)


def test_an_image_is_what_its_bytes_say() -> None:
    """The name that somebody gave it does not count."""
    (artifact,) = encoded(ToolImage(GIF, "image/jpg")).artifacts
    assert artifact.ref.media_type == "image/gif"


def test_content_keeps_its_order_and_describes_itself() -> None:
    """Texts, images and addresses; without a raw result of its own, the parts are the result."""
    link = facts.MediaContent("image/png", url="https://example.org/x.png")
    content = ToolContent(["one", ToolImage(PNG), facts.MediaContent("image/gif", data=GIF), link])
    result = encoded(content)
    assert [artifact.ref.id for artifact in result.artifacts] == [f"{EVENT}:0", f"{EVENT}:1"]
    assert shown(content) == facts.ContentOutput(
        (
            facts.TextContent("one"),
            facts.MediaContent("image/png", artifact=f"{EVENT}:0"),
            facts.MediaContent("image/gif", artifact=f"{EVENT}:1"),
            link,
        )
    )
    assert raw(content) == [
        {"kind": "text", "text": "one"},
        {"kind": "image", "mimeType": "image/png", "ref": f"{EVENT}:0"},
        {"kind": "image", "mimeType": "image/gif", "ref": f"{EVENT}:1"},
        {"kind": "media", "mimeType": "image/png", "url": "https://example.org/x.png"},
    ]


def test_the_bytes_of_media_never_stand_in_the_fact() -> None:
    """Also when a tool makes the projection itself."""
    part = facts.MediaContent("image/png", data=PNG)
    for value in (ToolImage(PNG), ToolContent([part]), ToolProjection({}, facts.ContentOutput((part,)))):
        result = encoded(value)
        assert len(result.artifacts) == 1
        assert b'"data"' not in encode(result.outcome, facts.ToolOutcome)


def test_encoding_again_for_the_same_event_is_the_same() -> None:
    """A retry of the append must be byte-equal."""
    value = ToolContent([ToolImage(PNG), "x"], raw={"b": 1, "a": 2})
    assert encode_result(value, EVENT) == encode_result(value, EVENT)


# --- too much to show: the tool succeeded all the same -----------------------------------------------------


def test_a_large_result_is_stored_whole_and_hidden_from_the_model() -> None:
    """A mebibyte would fill the window; the model reads how large it is and what the limit is."""
    value = {"text": "x" * limits.MIB}
    assert raw(value) == value
    projection = shown(value)
    assert isinstance(projection, facts.ErrorOutput)
    assert projection.text.startswith(RESULT_HIDDEN_TEXT)
    assert "too large" in projection.text
    assert str(limits.PROJECTION_BYTES) in projection.text
    assert str(len(canonical(value))) in projection.text


@pytest.mark.parametrize(
    ("at_the_limit", "one_past"),
    [
        ("x" * limits.PROJECTION_BYTES, "x" * (limits.PROJECTION_BYTES + 1)),
        ("é" * (limits.PROJECTION_BYTES // 2), "é" * (limits.PROJECTION_BYTES // 2) + "x"),
        ({"t": "x" * (limits.PROJECTION_BYTES - 8)}, {"t": "x" * (limits.PROJECTION_BYTES - 7)}),
        ([0] * (limits.PROJECTION_NODES - 1), [0] * limits.PROJECTION_NODES),
        (nested(limits.PROJECTION_DEPTH), nested(limits.PROJECTION_DEPTH + 1)),
        (
            ToolContent(["x"] * 63 + [ToolImage(PNG)], raw=1),
            ToolContent(["x"] * 64 + [ToolImage(PNG)], raw=1),
        ),
        (
            ToolProjection(1, facts.TextOutput("x" * limits.PROJECTION_BYTES)),
            ToolProjection(1, facts.TextOutput("x" * (limits.PROJECTION_BYTES + 1))),
        ),
        (
            ToolContent(["x" * (limits.PROJECTION_BYTES - 16), ToolImage(PNG)], raw=1),
            ToolContent(["x" * (limits.PROJECTION_BYTES + 1), ToolImage(PNG)], raw=1),
        ),
    ],
    ids=["text", "bytes of text", "json", "values", "depth", "parts", "explicit", "content"],
)
def test_a_projection_is_shown_at_the_limit_and_hidden_one_past(at_the_limit: Any, one_past: Any) -> None:
    """Size, values, depth and parts each have a limit; the stored result is whole in either case."""
    assert not isinstance(shown(at_the_limit), facts.ErrorOutput)
    hidden = shown(one_past)
    assert isinstance(hidden, facts.ErrorOutput)
    assert hidden.text.startswith(RESULT_HIDDEN_TEXT)
    assert len(hidden.text) < 1000


@pytest.mark.parametrize(
    "value",
    [
        ToolContent([b"bytes"], raw={"n": 1}),  # type: ignore[list-item]
        ToolContent([facts.MediaContent("audio/wav", data=b"RIFF....WAVE")], raw={"n": 1}),
        ToolContent([facts.MediaContent("image/png", artifact="of another event")], raw={"n": 1}),
        ToolContent(["\ud800"], raw={"n": 1}),
        ToolProjection({"n": 1}, facts.TextOutput("\ud800")),
        ToolProjection({"n": 1}, "no projection"),  # type: ignore[arg-type]
        ToolProjection({"n": 1}, facts.ContentOutput((facts.MediaContent("a/\ud800", url="u"),))),
        ToolProjection({"n": 1}, facts.ContentOutput((facts.MediaContent("image/png", artifact="a"),))),
    ],
    ids=repr,
)
def test_a_projection_that_is_not_valid_is_hidden(value: Any) -> None:
    """The raw result stands; no artifact is left over from what cannot be shown."""
    result = encoded(value)
    assert raw(value) == {"n": 1}
    assert isinstance(shown(value), facts.ErrorOutput)
    assert result.artifacts == ()
    assert encode(result.outcome, facts.ToolOutcome)


def test_images_of_content_that_cannot_be_shown_are_not_stored() -> None:
    """The first was good, the second was not."""
    result = encoded(ToolContent([ToolImage(PNG), ToolImage(b"no image")], raw={}))
    assert result.artifacts == ()
    assert isinstance(result.outcome, facts.Succeeded)
    assert result.outcome.artifacts == ()


# --- not representable: the effect is done and its result is lost --------------------------------------------


class Hostile:
    """A value whose own code fails while it is looked at."""


class HostileDict(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("no looking")


def doubled(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value, value]
    return value


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Hostile(), "Hostile is not JSON"),
        (HostileDict(a=1), "no looking"),
        (float("nan"), "nan"),
        ({1: 2}, "int"),
        ("\ud800", "surrogate"),
        (nested(100), "64 levels"),
        (nested(65), "64 levels"),
        (CIRCLE, "64 levels"),
        (doubled(60), "JSON values"),
        (10**5000, "digits"),
        (ToolImage(b"<svg/>"), "no PNG"),
        (ToolImage(PNG + bytes(limits.MEDIA_BYTES)), str(limits.MEDIA_BYTES)),
        (ToolContent([ToolImage(b"")]), "no PNG"),
        (ToolContent(["x"] * 65), "65 parts"),
        (ToolContent(["x"], raw={"n": float("inf")}), "inf"),
        (ToolProjection(object(), facts.TextOutput("x")), "object is not JSON"),  # type: ignore[arg-type]
    ],
    ids=[
        "object", "own code", "nan", "keys", "surrogate", "deep", "one too deep", "circle", "doubled", "digits",
        "svg", "large image", "content", "parts", "raw of content", "raw of projection",
    ],
)  # fmt: skip
def test_a_result_that_cannot_be_stored_is_a_failure_that_says_so(value: Any, reason: str) -> None:
    """Always a settlement: the model learns that the effect is done and what is wrong with the result."""
    result = encode_result(value, EVENT)
    assert isinstance(result.outcome, facts.EffectFailed)
    assert result.outcome.message.startswith(RESULT_LOST_TEXT)
    assert reason in result.outcome.message
    assert len(result.outcome.message) < 1000
    assert result.payload is None
    assert result.artifacts == ()


def test_a_result_of_64_mebibytes_is_stored_and_one_byte_more_is_lost() -> None:
    """Counted as it is written, quotes included."""
    largest = "x" * (limits.TOOL_RESULT_BYTES - 2)
    result = encoded(largest)
    assert result.payload is not None
    assert len(result.payload) == limits.TOOL_RESULT_BYTES
    lost = encode_result(largest + "x", EVENT)
    assert isinstance(lost.outcome, facts.EffectFailed)
    assert str(limits.TOOL_RESULT_BYTES) in lost.outcome.message


def test_a_result_of_64_levels_is_stored() -> None:
    """The limit itself is admitted."""
    assert raw(nested(limits.TOOL_RESULT_DEPTH)) == nested(limits.TOOL_RESULT_DEPTH)


def test_an_image_of_5_mebibytes_is_stored() -> None:
    """The limit itself is admitted."""
    data = PNG + bytes(limits.MEDIA_BYTES - len(PNG))
    assert encoded(ToolImage(data)).artifacts[0].ref.bytes == limits.MEDIA_BYTES

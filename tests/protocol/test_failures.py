"""Classification of failures, Retry-After, and foreign text made fit to be shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maka_trio import limits
from maka_trio.errors import AdapterError, ContextOverflow, ModelError, ModelRefused, ProviderFailure
from maka_trio.protocol.failures import (
    ANTHROPIC_RULES,
    CHAT_RULES,
    FailureRules,
    classify_error,
    classify_response,
    retry_after,
    truncated,
)
from maka_trio.protocol.scrub import MASK, bounded_text, masked, scrub_error

NOW = 1_700_000_000.0


def answered(status: int, body: Any = b"", rules: FailureRules = CHAT_RULES, **headers: str) -> ModelError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return classify_response(status, named, data, rules, now=NOW)


def verdict(error: ModelError) -> str:
    return error.reason if isinstance(error, ProviderFailure) else type(error).__name__


# --- an HTTP status ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (429, b"", "rate_limit"),
        (429, {"error": {"code": "insufficient_quota", "message": "pay"}}, "rate_limit"),
        (408, b"", "provider_unavailable"),
        (409, b"", "provider_unavailable"),
        (500, b"", "provider_unavailable"),
        (503, b"<html>", "provider_unavailable"),
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}, "provider_unavailable"),
        (400, {"error": {"code": "server_error"}}, "provider_unavailable"),
        (400, {"error": {"type": "overloaded_error"}}, "provider_unavailable"),
        (400, {"error": {"code": "context_length_exceeded"}}, "ContextOverflow"),
        (400, {"error": {"error": {}, "type": "context_length_exceeded"}}, "ContextOverflow"),
        (400, {"code": "context_length_exceeded"}, "ContextOverflow"),
        (413, {"type": "error", "error": {"type": "request_too_large"}}, "ContextOverflow"),
        (500, {"error": {"code": "model_context_window_exceeded"}}, "ContextOverflow"),
        (400, {"error": {"code": "content_filter"}}, "ModelRefused"),
        (413, {"error": {"code": "rate_limit_exceeded"}}, "AdapterError"),
        (400, {"error": {"type": "api_error"}}, "AdapterError"),
        (401, {"error": {"message": "bad key"}}, "AdapterError"),
        (404, {"detail": "no such model"}, "AdapterError"),
        (400, {"error": {"message": "context_length_exceeded, overloaded_error, rate limit"}}, "AdapterError"),
        (418, b"", "AdapterError"),
    ],
)
def test_status_code_and_type_decide_and_words_do_not(status: int, body: Any, expected: str) -> None:
    """The table of the semantics, one line each."""
    error = answered(status, body)
    assert verdict(error) == expected
    if isinstance(error, (ProviderFailure, AdapterError)):
        assert error.status == status
    assert str(status) in str(error)


def test_a_failure_of_the_provider_before_any_answer_may_be_replayed() -> None:
    """Nothing was generated yet."""
    error = answered(503)
    assert isinstance(error, ProviderFailure)
    assert error.replay_safe


@pytest.mark.parametrize(
    ("status", "kind", "message", "expected"),
    [
        (400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum", "ContextOverflow"),
        (400, "invalid_request_error", "prompt is too long: 100 tokens > 200000 maximum", "AdapterError"),
        (400, "invalid_request_error", "prompt is too long", "AdapterError"),
        (400, "other_error", "prompt is too long: 208310 tokens > 200000 maximum", "AdapterError"),
        (403, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum", "AdapterError"),
    ],
)
def test_one_numeric_sentence_of_one_vendor_states_an_overflow(
    status: int, kind: str, message: str, expected: str
) -> None:
    """The numbers count, and only with the status and type that belong to them."""
    body = {"type": "error", "error": {"type": kind, "message": message}}
    assert verdict(answered(status, body, ANTHROPIC_RULES)) == expected
    assert verdict(answered(status, body, CHAT_RULES)) == "AdapterError"


def test_the_message_of_the_provider_is_kept_bounded_and_escaped() -> None:
    """Control characters do not reach a terminal, and a long text is cut."""
    error = answered(400, {"error": {"code": "bad\x07", "message": "\x1b[2J" + "x" * 10_000}})
    assert "\\x1b[2J" in str(error)
    assert str(error).isprintable()
    assert len(str(error).encode()) < limits.PROVIDER_MESSAGE_BYTES + 300


@pytest.mark.parametrize("body", [b"\xff\xfe", b"[" * 100_000, b'{"error":', b'"text"', b"[]", b"[1]", b"null"])
def test_any_error_body_has_a_meaning(body: bytes) -> None:
    """A body that was cut, is no JSON or no object is never an exception of another kind."""
    assert verdict(answered(500, body)) == "provider_unavailable"
    assert verdict(answered(400, body)) == "AdapterError"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda v: (
            st.lists(v, max_size=3)
            | st.dictionaries(st.sampled_from(["error", "code", "type", "message", "status", "detail", "x"]), v)
        ),
        max_leaves=8,
    )
)
def test_any_json_has_a_meaning(value: Any) -> None:
    """Whatever a provider states, one model error comes of it."""
    assert isinstance(classify_error(value, CHAT_RULES), ModelError)
    assert isinstance(classify_response(400, {}, json.dumps(value).encode(), ANTHROPIC_RULES), ModelError)


# --- an error object inside an answer ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"error": {"message": "boom", "code": 502}}, "provider_unavailable"),
        ({"error": {"message": "boom", "code": "502"}}, "provider_unavailable"),
        ({"error": {"message": "boom", "code": 429}}, "rate_limit"),
        ({"error": {"message": "boom", "status_code": 400}}, "AdapterError"),
        ({"error": {"message": "boom", "type": "server_error"}}, "provider_unavailable"),
        ({"error": {"message": "boom", "type": "overloaded_error"}}, "provider_unavailable"),
        ({"error": {"message": "boom", "type": "api_error"}}, "provider_unavailable"),
        ({"error": {"code": "rate_limit_exceeded"}}, "rate_limit"),
        ([{"error": {"code": 503, "status": "UNAVAILABLE"}}], "provider_unavailable"),
        ({"error": {"code": "context_length_exceeded"}}, "ContextOverflow"),
        ({"error": {"code": "content_filter"}}, "ModelRefused"),
        ({"error": "boom"}, "AdapterError"),
        ({"error": "server_error"}, "AdapterError"),
        ({"message": "boom"}, "AdapterError"),
        ({"error": {"message": "502 overloaded"}}, "AdapterError"),
        ({"error": {"code": 5020}}, "AdapterError"),
        ({"error": {"code": True}}, "AdapterError"),
    ],
)
def test_an_error_object_is_classified_by_code_and_type(value: Any, expected: str) -> None:
    """Numbers and texts, objects, strings and lists."""
    assert verdict(classify_error(value, CHAT_RULES)) == expected


@pytest.mark.parametrize("safe", [True, False])
def test_what_was_seen_before_goes_with_the_error(safe: bool) -> None:
    """Replay safety and observed output are the decoder's to say."""
    failure = classify_error({"error": {"code": 502}}, CHAT_RULES, replay_safe=safe)
    overflow = classify_error({"error": {"code": "context_length_exceeded"}}, CHAT_RULES, observed_output=safe)
    cut = truncated(replay_safe=safe)
    assert isinstance(failure, ProviderFailure)
    assert failure.replay_safe is safe
    assert isinstance(overflow, ContextOverflow)
    assert overflow.observed_output is safe
    assert (cut.reason, cut.replay_safe) == ("stream_truncated", safe)


def test_a_filtered_answer_is_refused_not_failed() -> None:
    """Refusals have a class of their own."""
    assert isinstance(classify_error({"error": {"code": "content_filter"}}, CHAT_RULES), ModelRefused)


# --- Retry-After -------------------------------------------------------------------------------------------------


def _date(seconds: float) -> str:
    return format_datetime(datetime.fromtimestamp(NOW + seconds, UTC), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "5"}, 5.0),
        ({"retry-after": " 0.01 "}, 0.01),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "NaN"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e309"}, None),
        ({"retry-after": "99999999999"}, None),
        ({"retry-after": "2147483.647"}, 2147483.647),
        ({"retry-after": "2147484"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "5, 9"}, None),
        ({"retry-after": _date(90)}, 90.0),
        ({"retry-after": _date(-90)}, None),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, None),
        ({"retry-after": "Fri, 99 Foo 2024 23:59:59 GMT"}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "0", "retry-after": "9"}, 9.0),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
        ({"retry-after-ms": "1"}, 0.001),
        ({"retry-after-ms": "0.5"}, None),
    ],
)
def test_retry_after_is_what_is_usable_of_it(headers: dict[str, str], expected: float | None) -> None:
    """Milliseconds first, then seconds or a date; anything else is as if it were not there."""
    assert retry_after(headers, NOW) == expected


@given(st.text(max_size=40))
def test_no_header_value_is_an_exception_or_a_wait_without_end(value: str) -> None:
    """Whatever stands in the header."""
    seconds = retry_after({"retry-after": value, "retry-after-ms": value}, NOW)
    assert seconds is None or 0.001 <= seconds <= limits.RETRY_AFTER_MAX_SECONDS


def test_the_wait_goes_with_the_error() -> None:
    """On rate limits and on unavailability, also one that is longer than anybody will wait."""
    for status in (429, 503):
        error = answered(status, retry_after="400")
        assert isinstance(error, ProviderFailure)
        assert error.retry_after == 400


# --- foreign text ------------------------------------------------------------------------------------------------

KEY = 'sk-ab"c/d é-0123456789'


@pytest.mark.parametrize(
    "shown",
    [KEY, json.dumps(KEY), json.dumps(KEY).replace("/", "\\/"), repr(KEY), f"x{KEY}{KEY}y", f"authorization: {KEY}"],
)
def test_a_secret_is_masked_in_every_spelling(shown: str) -> None:
    """As it is, as JSON, as a Python literal."""
    clean = masked(shown, [f"Bearer {KEY}"])
    assert MASK in clean
    assert "0123456789" not in clean
    assert "sk-ab" not in clean


@pytest.mark.parametrize("kept", range(8, 22))
def test_the_front_of_a_secret_is_masked_where_a_text_was_cut(kept: int) -> None:
    """A text cut by a limit may end inside a secret."""
    secret = "sk-0123456789abcdefghi"
    assert masked("key " + secret[:kept], [secret]) == "key " + MASK
    assert masked(f"{secret[:kept]}... and {secret}", [secret]) == f"{MASK}... and {MASK}"


def test_what_is_no_secret_is_left_alone() -> None:
    """Auth schemes and the placeholders of local servers mask nothing."""
    text = "Bearer token none x not accepted"
    assert masked(text, ["Bearer x", "x", "", "Basic no"]) == text


def test_an_error_is_scrubbed_in_place() -> None:
    """Message and arguments alike, so that no form of printing it shows the secret."""
    error = AdapterError("refused sk-0123456789", status=401)
    scrub_error(error, ["sk-0123456789"])
    assert repr(error) == f"AdapterError('refused {MASK}')"
    assert (str(error), error.status) == (f"refused {MASK}", 401)


@given(st.text(max_size=300), st.integers(min_value=8, max_value=100))
def test_bounded_text_is_printable_and_within_its_limit(text: str, limit: int) -> None:
    """Any text, unless it is short and clean, in which case it is itself."""
    shown = bounded_text(text, limit)
    assert len(shown.encode()) <= limit
    assert shown.isprintable()
    if text.isprintable() and len(text.encode()) <= limit:
        assert shown == text

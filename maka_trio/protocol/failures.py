"""What a failed exchange means: an HTTP status or an error object in, one `ModelError` out (semantics 4.7).

Only structured evidence classifies: the status, the code and type of an error object, and one numeric sentence of one
vendor. The words of a provider are for people: bounded, escaped, and never decided on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime

import msgspec

from maka_trio import limits
from maka_trio.errors import AdapterError, ContextOverflow, ModelError, ModelRefused, ProviderFailure
from maka_trio.protocol.scrub import bounded_text as bounded_text
from maka_trio.records import frozen

_HTTP_CODES = range(400, 600)


@frozen
class FailureRules:
    """The codes, types and statuses of one protocol that mean more than "refused".

    `rate_limit` and `unavailable_in_stream` count inside a successful answer only: there no status says it better,
    while beside a 4xx the same words have been seen for requests that can never succeed.
    """

    overflow: frozenset[str] = frozenset(
        {"context_length_exceeded", "model_context_window_exceeded", "request_too_large"}
    )
    rate_limit: frozenset[str] = frozenset(
        {"rate_limit_exceeded", "rate_limit_error", "rate_limited", "too_many_requests", "resource_exhausted"}
    )
    unavailable: frozenset[str] = frozenset({"server_error", "overloaded_error", "service_unavailable"})
    unavailable_in_stream: frozenset[str] = frozenset(
        {
            "api_error",
            "internal",
            "internal_error",
            "internal_server_error",
            "overloaded",
            "service_unavailable_error",
            "timeout",
            "timeout_error",
            "unavailable",
        }
    )
    refused: frozenset[str] = frozenset({"content_filter"})
    unavailable_statuses: frozenset[int] = frozenset({408, 409})
    numeric_overflow: bool = False


CHAT_RULES = FailureRules()
RESPONSES_RULES = FailureRules(refused=frozenset({"content_filter", "bio_policy", "misalignment_policy_violation"}))
ANTHROPIC_RULES = FailureRules(numeric_overflow=True)

_NUMERIC_OVERFLOW = re.compile(r"(\d{1,15}) tokens > (\d{1,15}) maximum")


@frozen
class ErrorFacts:
    """What an error object states. `names` are its codes and types, lower case; `status` an HTTP status among them."""

    message: str = ""
    names: tuple[str, ...] = ()
    status: int | None = None

    def title(self) -> str:
        """The names, for a person."""
        return "/".join(self.names)


# --- reading what a provider states -----------------------------------------------------------------------


def error_facts(value: object) -> ErrorFacts:
    """The facts in an error payload, in any form seen: an object, one inside `error`, a list of one, a text."""
    if isinstance(value, list) and value:
        return error_facts(value[0])
    if isinstance(value, str):
        return ErrorFacts(message=value)
    if not isinstance(value, dict):
        return ErrorFacts()
    inner = value.get("error")
    objects = [part for part in (inner, value) if isinstance(part, dict)]
    marks = [part.get(key) for part in objects for key in ("code", "type", "status", "status_code")]
    return ErrorFacts(
        message=_message(objects) or (inner if isinstance(inner, str) else ""),
        names=tuple(dict.fromkeys(_names(marks))),
        status=next((status for status in map(_http_status, marks) if status is not None), None),
    )


def _message(objects: list[dict[str, object]]) -> str:
    for key in ("message", "detail", "msg"):
        for part in objects:
            text = part.get(key)
            if isinstance(text, str) and text:
                return text
    return ""


def _names(marks: Iterable[object]) -> Iterable[str]:
    for mark in marks:
        if isinstance(mark, str) and 0 < len(mark) <= 64 and mark != "error" and not mark.isdigit():
            yield mark.lower()


def _http_status(mark: object) -> int | None:
    if isinstance(mark, str) and mark.isascii() and mark.isdigit() and len(mark) == 3:
        mark = int(mark)
    return mark if type(mark) is int and mark in _HTTP_CODES else None


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the provider asks to wait, or None where it states nothing usable.

    `retry-after-ms` first, then `retry-after` as seconds (a fraction is fine) or as an HTTP date against `now`, in
    seconds since the epoch. Usable is what lies between 1 ms and `limits.RETRY_AFTER_MAX_SECONDS`. Header names are
    lower case.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    wanted = headers.get("retry-after")
    for seconds in (
        None if milliseconds is None else milliseconds / 1000,
        _number(wanted),
        _date_distance(wanted, now),
    ):
        if seconds is not None and 0.001 <= seconds <= limits.RETRY_AFTER_MAX_SECONDS:
            return seconds
    return None


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text.strip())
    except ValueError:
        return None


def _date_distance(text: str | None, now: float) -> float | None:
    try:
        return None if text is None else parsedate_to_datetime(text).timestamp() - now
    except (TypeError, ValueError, OverflowError, IndexError):
        return None


# --- saying what it means ---------------------------------------------------------------------------------


def classify_response(
    status: int, headers: Mapping[str, str], body: bytes, rules: FailureRules, *, now: float | None = None
) -> ModelError:
    """The error of a non-2xx answer. The request may be sent again whenever the failure is the provider's.

    Args:
        status: the HTTP status.
        headers: names in lower case.
        body: the error body, or its first `limits.ERROR_BODY_BYTES`.
        rules: what the protocol's codes mean.
        now: wall-clock seconds that a date in `retry-after` is measured against; the clock's by default.
    """
    try:
        facts = error_facts(msgspec.json.decode(body))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        facts = ErrorFacts(message=body.decode(errors="replace"))
    wait = retry_after(headers, time.time() if now is None else now)
    return _classify(facts, rules, status, replay_safe=True, observed_output=False, wait=wait)


def classify_error(
    value: object, rules: FailureRules, *, replay_safe: bool = True, observed_output: bool = False
) -> ModelError:
    """The error of an error object inside a successful answer, in any of its forms (see `error_facts`)."""
    facts = error_facts(value)
    return _classify(facts, rules, None, replay_safe=replay_safe, observed_output=observed_output, wait=None)


def truncated(*, replay_safe: bool) -> ProviderFailure:
    """The error of a body that ended, cleanly or not, before the answer did."""
    return ProviderFailure(
        "the provider's answer ended before it was complete", reason="stream_truncated", replay_safe=replay_safe
    )


def _classify(
    facts: ErrorFacts,
    rules: FailureRules,
    status: int | None,
    *,
    replay_safe: bool,
    observed_output: bool,
    wait: float | None,
) -> ModelError:
    text = _sentence(facts, status)
    names = set(facts.names)
    code = status if status is not None else facts.status
    if names & rules.overflow or _states_overflow(facts, code, rules):
        return ContextOverflow(text, observed_output=observed_output)
    if names & rules.refused:
        return ModelRefused(text)
    if code == 429 or (status is None and names & rules.rate_limit):
        return ProviderFailure(text, reason="rate_limit", status=status, replay_safe=replay_safe, retry_after=wait)
    if _is_unavailable(code, names, rules, in_stream=status is None):
        return ProviderFailure(
            text, reason="provider_unavailable", status=status, replay_safe=replay_safe, retry_after=wait
        )
    return AdapterError(text, status=status)


def _is_unavailable(code: int | None, names: set[str], rules: FailureRules, *, in_stream: bool) -> bool:
    if code is not None and (code >= 500 or code in rules.unavailable_statuses):
        return True
    return bool(names & rules.unavailable) or (in_stream and bool(names & rules.unavailable_in_stream))


def _states_overflow(facts: ErrorFacts, status: int | None, rules: FailureRules) -> bool:
    """One vendor states an overflow as an invalid request, in one fixed numeric form."""
    if not rules.numeric_overflow or status not in (400, None) or "invalid_request_error" not in facts.names:
        return False
    match = _NUMERIC_OVERFLOW.search(facts.message)
    return match is not None and int(match[1]) > int(match[2])


def _sentence(facts: ErrorFacts, status: int | None) -> str:
    who = "the provider answered with an error" if status is None else f"the provider answered HTTP {status}"
    named = f" ({bounded_text(facts.title(), 200)})" if facts.names else ""
    return f"{who}{named}: {bounded_text(facts.message)}" if facts.message else f"{who}{named}"

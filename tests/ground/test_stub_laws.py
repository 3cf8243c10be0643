"""The laws over events without their bodies: each broken law is found, and what needs the bodies is not guessed at."""

from __future__ import annotations

from typing import Any

import pytest

from maka_trio import facts
from maka_trio.facts.event import BodyDeleted, StoredEvent
from maka_trio.laws import LawChecker, check

RUN = facts.Invocation.new("gone")
OTHER = facts.Invocation.new("gone")
DIGEST = f"sha256:{'1' * 64}"
LAST = f"sha256:{'2' * 64}"


def left(of_kind: str, operation: str | None = None, outcome: str | None = None, digest: str = DIGEST) -> BodyDeleted:
    return BodyDeleted(of_kind, 90, digest, DIGEST, operation_id=operation, outcome=outcome)


def stored(*told: Any) -> list[StoredEvent]:
    """Facts of one run, or of the invocation that stands beside one."""
    events = []
    for sequence, item in enumerate(told, 1):
        fact, run = item if isinstance(item, tuple) else (item, RUN)
        events.append(StoredEvent(sequence, facts.RuntimeEvent(f"e{sequence}", 1, run, fact)))
    return events


OPENED, ENDED = left("invocation_opened"), left("invocation_ended", outcome="completed")
UNKNOWN = left("invocation_ended", outcome="failed:outcome_unknown")
REQUESTED, COMPLETED = left("model_requested", "s"), left("model_completed", "s")
OBSERVED = left("model_observed")
DISPATCHED, SETTLED = left("tool_dispatched", "s:c"), left("tool_settled", "s:c", "failed")
REJECTED = left("tool_rejected", "s:c", "cancelled")

LAWFUL: dict[str, tuple[Any, ...]] = {
    "a run": (OPENED, REQUESTED, OBSERVED, COMPLETED, DISPATCHED, SETTLED, ENDED),
    "a rejection": (OPENED, REQUESTED, COMPLETED, REJECTED, ENDED),
    "an interruption": (OPENED, REQUESTED, left("model_interrupted", "s", "failed"), ENDED),
    "an unknown effect": (OPENED, DISPATCHED, UNKNOWN),
    "two runs": (OPENED, ENDED, (OPENED, OTHER), (ENDED, OTHER)),
    "a run that is not over": (OPENED, REQUESTED, OBSERVED),
    "a foreign agent": (OPENED, left("executor_started"), left("executor_completed"), ENDED),
    "a message from elsewhere": (left("message_imported"),),
    "two calls": (OPENED, DISPATCHED, left("tool_dispatched", "s:d"), left("tool_settled", "s:d", "failed"), SETTLED),
    "other kinds": (OPENED, left("message_steered"), left("tool_notified"), ENDED),
}


@pytest.mark.parametrize("told", LAWFUL.values(), ids=LAWFUL)
def test_what_is_left_of_a_lawful_log_is_lawful(told: tuple[Any, ...]) -> None:
    """Whatever was said in it."""
    assert list(check(stored(*told))) == []


BROKEN: dict[str, tuple[int, int, tuple[Any, ...]]] = {
    "opened twice": (1, 2, (OPENED, OPENED)),
    "opened after its end": (1, 3, (OPENED, ENDED, OPENED)),
    "before the opening": (1, 1, (OBSERVED,)),
    "after the end": (1, 3, (OPENED, ENDED, OBSERVED)),
    "another turn": (1, 2, (OPENED, (OBSERVED, facts.Invocation("gone", "t", "r", RUN.invocation_id)))),
    "two runs at a time": (2, 2, (OPENED, (OPENED, OTHER))),
    "settled and not dispatched": (3, 2, (OPENED, SETTLED)),
    "settled twice": (3, 4, (OPENED, DISPATCHED, SETTLED, SETTLED)),
    "an end over an effect": (3, 3, (OPENED, DISPATCHED, ENDED)),
    "an end over an agent": (3, 3, (OPENED, left("executor_started"), ENDED)),
    "dispatched twice": (4, 3, (OPENED, DISPATCHED, DISPATCHED)),
    "dispatched after its end": (4, 4, (OPENED, DISPATCHED, SETTLED, DISPATCHED)),
    "requested twice": (5, 3, (OPENED, REQUESTED, REQUESTED)),
    "completed and not requested": (5, 2, (OPENED, COMPLETED)),
    "completed twice": (5, 4, (OPENED, REQUESTED, COMPLETED, COMPLETED)),
    "an end over a step": (5, 3, (OPENED, REQUESTED, ENDED)),
    "rejected twice": (6, 3, (OPENED, REJECTED, REJECTED)),
    "rejected after its dispatch": (6, 3, (OPENED, DISPATCHED, REJECTED)),
    "dispatched after its rejection": (6, 3, (OPENED, REJECTED, DISPATCHED)),
}


@pytest.mark.parametrize(("law", "sequence", "told"), BROKEN.values(), ids=BROKEN)
def test_each_broken_law_is_found(law: int, sequence: int, told: tuple[Any, ...]) -> None:
    """As just that law, at just that event."""
    assert [(one.law, one.sequence) for one in check(stored(*told))] == [(law, sequence)]


def test_sequences_rise() -> None:
    """Law 9, as far as it needs no body."""
    first, second = stored(OPENED, ENDED)
    checker = LawChecker()
    assert checker.push(first) == []
    again = StoredEvent(1, second.event)
    assert [(one.law, one.sequence) for one in checker.push(again)] == [(9, 1)]


def test_a_whole_beginning_and_what_is_left_of_the_rest() -> None:
    """The bodies that are still there are checked in full, and what follows them in kind: the run is one."""
    message = facts.InvocationOpened(facts.MessageOpening(facts.MessageInput("hello")))
    assert list(check(stored(message, REQUESTED, COMPLETED, ENDED))) == []
    found = list(check(stored(message, REQUESTED, ENDED)))
    assert [(one.law, one.sequence) for one in found] == [(5, 3)]


def test_the_digest_goes_on_from_what_is_stated() -> None:
    """Nobody can compute it any more, and what comes after it is held against it."""
    told = stored(OPENED, left("invocation_ended", outcome="completed", digest=LAST))
    assert list(check(told, digest=LAST)) == []
    assert [one.law for one in check(told, digest=DIGEST)] == [9]
    assert list(check(told, scope=facts.Session("gone"), digest=DIGEST)) == []

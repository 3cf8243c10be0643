"""Stored events become rows that a person can read."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import get_args

import pytest

from maka_trio import facts
from maka_trio.cli.screen import Screen
from maka_trio.cli.timeline import Timeline, TimelinePrinter
from maka_trio.cli.words import EXCERPT, describe
from maka_trio.facts import model
from maka_trio.facts.event import Fact, RuntimeEvent, StoredEvent
from maka_trio.facts.identity import Invocation
from maka_trio.facts.message import ContentOutput, ErrorOutput, JsonOutput, MediaContent, TextContent, TextOutput

DIGEST = "sha256:" + "0" * 64
DIGESTS = (DIGEST, DIGEST)
RUN = Invocation("shop", "turn", "run", "invocation")
STEP = model.ModelStep((), model.FinishReason.STOP, model.ModelUsage(input_tokens=7, output_tokens=2))
IDENTITY = facts.ToolCallIdentity.provider("step", "call")
REQUESTED = facts.ModelRequested("step", "model-x", facts.Root(), 0, DIGEST, DIGEST, DIGEST)


def stored(items: Iterable[Fact], run: Invocation = RUN, first: int = 1) -> list[StoredEvent]:
    return [
        StoredEvent(sequence, RuntimeEvent(f"e{sequence}", 1_700_000_000_000 + sequence, run, fact))
        for sequence, fact in enumerate(items, first)
    ]


def said(event: model.ModelEvent) -> facts.ModelObserved:
    return facts.ModelObserved("step", event)


def printed(events: Iterable[StoredEvent], session: str | None = None) -> list[str]:
    stream = io.StringIO()
    printer = TimelinePrinter(Screen(stream), session=session)
    for event in events:
        printer.push(event)
    printer.finish()
    return stream.getvalue().splitlines()


BOUNDARY = facts.RunBoundary(Invocation("session", "turn", "run-7", "invocation"), 9, DIGEST)


def opened(text: str = "How many?") -> facts.InvocationOpened:
    return facts.InvocationOpened(facts.MessageOpening(facts.MessageInput(text)))


# --- joining streamed text --------------------------------------------------------------------------------------


def test_consecutive_deltas_of_a_part_are_one_row() -> None:
    """The row names the sequences it stands for and holds the whole text."""
    timeline = Timeline()
    events = stored(
        said(e)
        for e in (
            model.PartStarted("p"),
            model.PartDelta("p", "Hel"),
            model.PartDelta("p", "lo"),
            model.PartFinished("p"),
        )
    )
    rows = [row for event in events for row in timeline.push(event)]
    assert [(row.first, row.last, row.words.text) for row in rows] == [(1, 4, 'says "Hello"')]
    assert timeline.flush() == []


def test_interleaved_parts_are_rows_of_their_own_and_thinking_is_told_apart() -> None:
    """Each change of part ends a row; a part's kind is remembered until it ends."""
    timeline = Timeline()
    events = stored(
        said(e)
        for e in (
            model.PartStarted("t", model.TextKind.THINKING),
            model.PartDelta("t", "hm"),
            model.PartStarted("p"),
            model.PartDelta("p", "yes"),
            model.PartDelta("t", "ok"),
        )
    )
    rows = [row.words.text for event in events for row in timeline.push(event)] + [
        row.words.text for row in timeline.flush()
    ]
    assert rows == ['thinks "hm"', 'says "yes"', 'thinks "ok"']


def test_another_event_ends_the_text_and_keeps_the_order_of_sequences() -> None:
    """What was streamed stands before the event that came after it, also one of another session."""
    other = Invocation("elsewhere", "t", "r", "i")
    events = [*stored([said(model.PartDelta("p", "Hel"))]), *stored([opened()], other, 2)]
    events += stored([said(model.PartDelta("p", "lo"))], first=3)
    timeline = Timeline()
    rows = [row for event in events for row in timeline.push(event)] + timeline.flush()
    assert [row.first for row in rows] == [1, 2, 3]


def test_a_long_text_is_kept_only_as_far_as_it_is_shown() -> None:
    """However much is streamed, a row is bounded."""
    timeline = Timeline()
    for event in stored(said(model.PartDelta("p", "x" * 8000)) for _ in range(50)):
        timeline.push(event)
    (row,) = timeline.flush()
    assert len(row.words.text) < EXCERPT + 20


# --- words --------------------------------------------------------------------------------------------------------


def every_fact() -> list[tuple[Fact, str]]:
    raw = facts.RawResult(2, DIGEST)
    checkpoint = facts.ContextCheckpoint(facts.CheckpointMode.STANDALONE, 9, DIGEST, "…", "step")
    placeholder = facts.ArchivedPlaceholder("e", "c", "grep", DIGEST, DIGEST, 90_000, 20_000, None)
    failed = facts.Failed(facts.FailureClass.MODEL_PROVIDER, "gone")
    return [
        (opened(), 'asked "How many?"'),
        (facts.InvocationOpened(facts.CodeOpening("print(1)")), 'program "print(1)"'),
        (facts.InvocationOpened(facts.ContextCompactOpening("f")), "opened by context_compact"),
        (
            facts.InvocationOpened(facts.ContinuationOpening(facts.ContinuationClaim.of(BOUNDARY), DIGEST)),
            "goes on from run run-7, which ended at 9",
        ),
        (REQUESTED, "asks model model-x"),
        (said(model.ToolCallReady(model.ModelToolCall("c", "grep", {"a": 1}))), 'calls grep {"a": 1}'),
        (said(model.ProviderToolResult("c", "search", [1], is_error=True)), "provider's search gave error [1]"),
        (said(model.SourceCited(model.UrlSource("s", "https://x", "X"))), "cites https://x (X)"),
        (said(model.SourceCited(model.DocumentSource("s", "text/plain", "Doc"))), "cites Doc"),
        (said(model.ResponseMetadata("id-1", "model-y")), "answers as model-y, id-1"),
        (said(model.Finished(model.FinishReason.STOP)), "finishes: stop"),
        (
            facts.ModelInterrupted("step", facts.InterruptionStatus.TIMED_OUT, "silent"),
            "interrupted: timed out: silent",
        ),
        (facts.ModelCompleted("step", STEP), "step accepted: stop, 7 tokens in, 2 out"),
        (facts.ToolDispatched("step:call", IDENTITY, "grep", {"a": 1}), 'grep dispatched {"a": 1}'),
        (facts.ToolSettled("step:call", facts.Succeeded(raw, TextOutput("hi"))), 'settled: "hi"'),
        (facts.ToolSettled("step:call", facts.Succeeded(raw, JsonOutput([1, None]))), "settled: [1, null]"),
        (facts.ToolSettled("step:call", facts.Succeeded(raw, ErrorOutput("no"))), 'settled: error "no"'),
        (
            facts.ToolSettled(
                "step:call",
                facts.Succeeded(raw, ContentOutput((TextContent("see"), MediaContent("image/png", artifact="a")))),
            ),
            'settled: "see" [image/png]',
        ),
        (facts.ToolSettled("step:call", facts.EffectFailed("disk full")), "settled: failed: disk full"),
        (facts.ToolSettled("step:call", facts.EffectUnknown("gone")), "settled: outcome unknown: gone"),
        (
            facts.ToolRejected("step:call", IDENTITY, "grep", {}, facts.ToolRejection.cancelled()),
            "grep rejected {}: the run was cancelled before the call was dispatched",
        ),
        (facts.ToolNotified("step:call", "half-way", "half-way"), 'says "half-way"'),
        (facts.MessageSteered(facts.MessageInput("also this")), 'user adds "also this"'),
        (facts.ContextCheckpointRecorded(checkpoint), "summary adopted: stands for all up to 9"),
        (facts.ToolResultArchived(placeholder), "result of grep archived: 90000 bytes"),
        (facts.ExecutorStarted({}), "a foreign agent takes the turn"),
        (facts.ExecutorObserved({"x": 1}), 'foreign agent: {"x": 1}'),
        (facts.ExecutorCompleted("done"), 'foreign agent answers "done"'),
        (facts.MessageImported("elsewhere", {}), "message imported from elsewhere"),
        (
            facts.BodyDeleted("model_completed", 812, *DIGESTS, model_id="model-y", usage=model.ModelUsage(7, 2)),
            "deleted: model_completed (model-y, 7 tokens in, 2 out), 812 bytes",
        ),
        (
            facts.BodyDeleted("tool_rejected", 90, *DIGESTS, operation_id="s:c", name="grep", outcome="cancelled"),
            "deleted: tool_rejected (grep cancelled), 90 bytes",
        ),
        (facts.BodyDeleted("invocation_opened", 90, *DIGESTS), "deleted: invocation_opened, 90 bytes"),
        (facts.InvocationEnded(facts.Completed()), "ended: completed"),
        (facts.InvocationEnded(facts.Cancelled()), "ended: cancelled (runtime_cancellation)"),
        (facts.InvocationEnded(failed), "ended: failed, model_provider: gone"),
        (facts.InvocationEnded(facts.ContextCompactFinished(facts.Unchanged("no_new_history"))), "no_new_history"),
        (facts.InvocationEnded(facts.HandoffPaused({})), "ended: paused"),
    ]


@pytest.mark.parametrize(("fact", "words"), every_fact(), ids=lambda value: getattr(value, "kind", None))
def test_every_fact_is_said_in_words(fact: Fact, words: str) -> None:
    """Each kind of fact has a sentence of its own, with what matters in it."""
    assert words in describe(fact).text


def test_no_kind_of_fact_is_without_words() -> None:
    """A new kind must be added above, where its words are checked."""
    assert {fact.kind for fact, _ in every_fact()} == {kind.kind for kind in get_args(Fact)}


def test_what_was_streamed_and_deleted_is_one_line_a_run() -> None:
    """However much it was; other stubs stand for themselves, as deep as what they stand for."""
    gone = facts.BodyDeleted("model_observed", 90, *DIGESTS)
    asked = facts.BodyDeleted("model_requested", 90, *DIGESTS, model_id="m")
    lines = printed(stored([asked, gone, gone, gone, asked, gone]), session="shop")
    assert [line.partition("· deleted: ")[2] for line in lines[1:]] == [
        "model_requested (m), 90 bytes",
        "3 of what was streamed",
        "model_requested (m), 90 bytes",
        "1 of what was streamed",
    ]
    assert [line.split()[0] for line in lines[1:]] == ["1", "2-4", "5", "6"]


def test_a_settlement_is_shown_with_the_name_of_its_tool() -> None:
    """The fact names only the operation; the dispatch before it named the tool."""
    lines = printed(
        stored(
            [
                facts.ToolDispatched("step:call", IDENTITY, "grep", {}),
                facts.ToolSettled("step:call", facts.EffectFailed("disk full")),
            ]
        )
    )
    assert "grep settled: failed: disk full" in lines[-1]


# --- the screen ---------------------------------------------------------------------------------------------------


def test_rows_show_sequence_time_session_and_depth() -> None:
    """The margin is aligned; runs, requests and tools are indented."""
    lines = printed(stored([opened(), REQUESTED, facts.ToolDispatched("step:call", IDENTITY, "grep", {})]))
    assert lines[0].strip() in ("2023-11-14", "2023-11-15")  # by the time zone
    margins = {line.index(mark) for line, mark in zip(lines[1:], "●→▸", strict=True)}
    assert len(margins) == 3
    assert all(" shop " in line for line in lines[1:])
    assert lines[1].split()[0] == "1"
    assert lines[1].split()[1].endswith(".001")


def test_the_session_column_is_left_out_for_one_session() -> None:
    """Who asked for one session knows which it is."""
    assert "shop" not in printed(stored([opened()]), session="shop")[1]


def test_foreign_text_cannot_act_on_the_terminal() -> None:
    """A model, a tool and a session id that carry escapes are shown, not obeyed."""
    evil = "\x1b[2J[red]\u202e\r\n"
    run = Invocation(evil, "t", "r", "i")
    lines = printed(
        stored(
            [
                opened(evil),
                said(model.PartDelta("p", evil)),
                said(model.ToolCallReady(model.ModelToolCall("c", evil, {evil: evil}))),
                facts.ToolRejected("s:c", IDENTITY, evil, evil, facts.ToolRejection.invalid_input(evil)),
                facts.InvocationEnded(facts.Failed(facts.FailureClass.MODEL_ADAPTER, evil)),
            ],
            run,
        )
    )
    assert len(lines) == 6
    assert all(line.isprintable() for line in lines)
    assert "\\x1b[2J[red]\\u202e" in lines[1]


def test_a_date_that_is_none_is_no_reason_to_stop() -> None:
    """`recorded_at` is evidence of somebody's clock; the log must still be readable."""
    event = StoredEvent(1, RuntimeEvent("e", 2**80, RUN, opened()))
    assert "no date" in printed([event])[0]

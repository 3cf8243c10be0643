"""What of a session a run reads: what the model is told of, within bounds, and nothing that only a program was told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maka_trio.errors import LogCorrupt, PrefixTooLarge
from maka_trio.facts import (
    CodeCell,
    CodeMode,
    Fact,
    HostSdk,
    Invocation,
    Lineage,
    Session,
    Standalone,
    ToolCallIdentity,
    ToolDispatched,
    ToolNotified,
    ToolRejected,
    ToolRejection,
)
from maka_trio.facts.codec import canonical, encode_fact
from maka_trio.facts.event import StoredEvent
from maka_trio.history import History
from maka_trio.log import queries
from maka_trio.log.prefixes import prefix
from maka_trio.log.store import Store
from tests.log.log_story import (
    COMPLETED,
    UNKNOWN,
    call,
    child,
    completed,
    dispatched,
    interrupted,
    observed,
    opened,
    reader,
    rejected,
    requested,
    running_cell,
    settled,
    tell,
)

BIG = 10**9
LONG = "x" * 1000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with_file = Store.open(tmp_path / "log.db")
    yield with_file
    with_file.close()


def nested(operation: str, call_id: str, kind: Any = CodeMode) -> ToolDispatched:
    """A program's call with a long input."""
    identity = child(kind, operation, call_id, "cell", "k0").call
    return ToolDispatched(operation, identity, "put", {"text": LONG})


def refused(operation: str, call_id: str) -> ToolRejected:
    origin = CodeMode("cell", "k0")
    return ToolRejected(
        operation, ToolCallIdentity(call_id, origin), "put", {"text": LONG}, ToolRejection.unavailable()
    )


PROGRAM = running_cell(
    nested("op1", "k1"),
    nested("op2", "k2", HostSdk),
    refused("op3", "k3"),
    settled("op2"),
    ToolNotified("cell", "news", "news"),
    settled("op1"),
    settled("cell"),
    settled(),
    COMPLETED,
)
"""A run whose program made three calls."""

TOLD = ["opened", "requested", "completed", "dispatched", "notified", "settled", "ended"]


def context(store: Store, run: Invocation | None = None, events: int = 1000, size: int = BIG) -> list[StoredEvent]:
    if run is None:
        return list(queries.read_context(reader(store), "session", events, size).events)
    return list(queries.read_lineage(reader(store), Lineage("session", run.run_id), events, size).events)


def kinds(events: list[StoredEvent]) -> list[str]:
    return [stored.event.fact.kind.rpartition("_")[2] for stored in events]


def both(store: Store, run: Invocation) -> list[StoredEvent]:
    """A session of one run, read as a session and as that run's lineage."""
    found = context(store)
    assert context(store, run) == found
    return found


def test_what_only_a_program_was_told_is_left_out(store: Store) -> None:
    """Its calls, however they came to an end, and its cell; not what it notified the model of."""
    run = Invocation.new("session")
    tell(store, run, *PROGRAM)
    assert kinds(both(store, run)) == TOLD
    whole = prefix(reader(store), Session("session"), 1000, BIG).events
    assert all(stored in whole for stored in both(store, run))


def test_an_effect_that_is_unknown_is_told_without_its_input(store: Store) -> None:
    """The next run has to know of it, in its place, and of nothing else of it."""
    run = Invocation.new("session")
    tell(store, run, *running_cell(nested("op1", "k1"), nested("op2", "k2"), settled("op1")), UNKNOWN)
    found = both(store, run)
    assert kinds(found) == [*TOLD[:4], "dispatched", "dispatched", "ended"]
    cell, left = (stored.event.fact for stored in found[4:6])
    assert isinstance(cell, ToolDispatched)
    assert isinstance(left, ToolDispatched)
    assert (cell.operation_id, left.operation_id, left.name, left.input) == ("cell", "op2", "put", None)
    history = History()
    for stored in found:
        history.push(stored.event)
    assert [unknown.operation_id for unknown in history.unknown_operations] == ["s1:c1", "cell", "op2"]


def test_effects_that_are_unknown_count(store: Store) -> None:
    """As one fact each, and of no size to speak of."""
    run = Invocation.new("session")
    tell(store, run, *running_cell(nested("op1", "k1"), nested("op2", "k2")), UNKNOWN)
    assert len(both(store, run)) == 8
    for lineage in (None, run):
        assert len(context(store, lineage, 8, 1000)) == 8
        with pytest.raises(PrefixTooLarge, match="max_events=7"):
            context(store, lineage, 7)


def test_a_program_that_stands_by_itself_is_left_out(store: Store) -> None:
    """No model asked for it."""
    run = Invocation.new("session")
    exec_call = ToolDispatched("op", ToolCallIdentity("k", Standalone()), "exec", {"code": LONG})
    tell(store, run, opened(), exec_call, settled("op"), COMPLETED)
    assert kinds(both(store, run)) == ["opened", "ended"]


def test_an_operation_of_a_program_may_be_named_like_a_models(store: Store) -> None:
    """Whose it is its body says."""
    run = Invocation.new("session")
    tell(store, run, *running_cell(nested("s1:c2", "k1"), settled("s1:c2"), settled("cell"), settled()), COMPLETED)
    assert kinds(both(store, run)) == [kind for kind in TOLD if kind != "notified"]


def test_only_what_is_told_counts(store: Store) -> None:
    """Neither calls of programs nor inputs that stand in the step as well; to the last byte and fact."""
    run = Invocation.new("session")
    arguments = {"text": LONG}
    asked = completed("s2", call("c1", **arguments), call("c2", **arguments))
    decided: list[Fact] = [dispatched("s2", "c1", **arguments), settled("s2:c1"), rejected("s2", "c2", **arguments)]
    tell(store, run, *PROGRAM[:-1], requested("s2"), observed("s2"), asked, *decided, COMPLETED)
    found = both(store, run)
    counted = sum(len(encode_fact(stored.event.fact)) for stored in found) - 2 * len(canonical(arguments))
    inputs = [stored.event.fact.input for stored in found if isinstance(stored.event.fact, ToolDispatched)]
    counted -= len(canonical(inputs[0]))
    assert inputs == [{}, arguments]
    for lineage in (None, run):
        assert context(store, lineage, len(found), counted) == found
        with pytest.raises(PrefixTooLarge, match=f"max_events={len(found) - 1}"):
            context(store, lineage, len(found) - 1, counted)
        with pytest.raises(PrefixTooLarge, match=f"{counted} bytes of JSON, more than max_bytes={counted - 1}"):
            context(store, lineage, len(found), counted - 1)


def test_a_long_session_is_read_in_order(store: Store) -> None:
    """However many facts it has, with what is left out all over it."""
    run = Invocation.new("session")
    steps = [f"step {number}" for number in range(300)]
    tell(store, run, *running_cell())
    for number in range(300):
        tell(store, run, nested(f"op{number}", f"n{number}"), settled(f"op{number}"))
    tell(store, run, settled("cell"), settled())
    for step in steps:
        tell(store, run, requested(step), observed(step), completed(step))
    found = both(store, run)
    asked = [stored.event.fact.step_id for stored in found if stored.event.fact.kind == "model_completed"]  # type: ignore[union-attr]
    assert asked == ["s1", *steps]
    assert len(found) == 5 + 600
    assert found == sorted(found, key=lambda stored: stored.sequence)


def test_the_refusal_says_which_session_and_what_to_do(store: Store) -> None:
    """Not only how much there was."""
    tell(store, Invocation.new("session"), *PROGRAM)
    with pytest.raises(PrefixTooLarge, match=r"session 'session' .* max_events=3 .*new session"):
        context(store, events=3)


def test_calls_of_programs_are_not_read(store: Store) -> None:
    """Damage in one of them is for whoever looks at it; in anything else it is told."""
    tell(store, Invocation.new("session"), *PROGRAM)
    whole = kinds(context(store))
    damage(store, 6)
    assert kinds(context(store)) == whole
    with pytest.raises(LogCorrupt):
        prefix(reader(store), Session("session"), 1000, BIG)
    damage(store, 4)
    with pytest.raises(LogCorrupt, match="event 4 "):
        context(store)


def damage(store: Store, sequence: int) -> None:
    changed = store.connection.execute(
        "UPDATE events SET body = replace(body, 'put', 'pat') WHERE sequence = ?", (sequence,)
    )
    assert changed.rowcount == 1


@pytest.mark.parametrize("sequence", range(1, 15))
def test_a_fact_that_is_gone_is_missed(store: Store, sequence: int) -> None:
    """Also where all behind it are the program's own: a session is never read from its middle on."""
    tell(store, Invocation.new("session"), *PROGRAM)
    assert (store.root.high_water, len(context(store))) == (14, 7)
    store.connection.execute("DELETE FROM events WHERE sequence = ?", (sequence,))
    with pytest.raises(LogCorrupt):
        context(store)


def test_a_kind_that_is_wrong_hides_nothing(store: Store) -> None:
    """A column that says otherwise than its body is no reason to leave a message out."""
    tell(store, Invocation.new("session"), *PROGRAM)
    whole = context(store)
    store.connection.execute("UPDATE events SET kind = 'tool_settled' WHERE sequence = 3")
    assert context(store) == whole


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=30), st.booleans())
def test_the_conversation_does_not_miss_what_is_left_out(choices: list[int], ended: bool) -> None:
    """Whatever a run did, its context makes the prompt and the digests that the whole log makes."""
    store = Store.in_memory()
    run = Invocation.new("session")
    facts = story(choices)
    tell(store, run, *facts, *([UNKNOWN] if ended else []))
    whole = list(prefix(reader(store), Session("session"), 1000, BIG).events)
    histories = []
    for events in (whole, context(store), context(store, run)):
        history = History()
        for stored in events:
            history.push(stored.event)
        histories.append(history)
    first, *others = [
        (
            history.operations_in_flight,
            history.tools_in_flight,
            history.open_calls(),
            history.open_steps(),
            history.unknown_operations,
            history.input_digest(route_identity="r", model_id="m") if ended else None,
        )
        for history in histories
    ]
    assert others == [first, first]
    store.close()


def story(choices: list[int]) -> list[Fact]:
    """A run that makes of each number what may come then, or nothing."""
    facts: list[Fact] = [opened()]
    step, call_open, cell, live = 0, False, "", list[str]()
    for number, choice in enumerate(choices):
        name = f"s{step}"
        match choice:
            case 0 if not call_open and not cell:
                step += 1
                facts += [requested(f"s{step}"), observed(f"s{step}"), completed(f"s{step}", call("c1", n=number))]
                facts.append(dispatched(f"s{step}", "c1", n=number))
                call_open = True
            case 1 if not call_open and not cell:
                step += 1
                facts += [requested(f"s{step}"), interrupted(f"s{step}")]
            case 2 if call_open and not cell:
                cell = f"cell{number}"
                facts.append(child(CodeCell, cell, f"k{number}", f"{name}:c1", "c1"))
                parent = f"k{number}"
            case 3 | 4 if cell:
                live.append(f"op{number}")
                facts.append(child(CodeMode, live[-1], f"k{number}", cell, parent))
            case 5 if live:
                facts.append(settled(live.pop(number % len(live))))
            case 6 if cell and not live:
                facts.append(settled(cell))
                cell = ""
            case 7 if call_open and not cell:
                facts.append(settled(f"{name}:c1"))
                call_open = False
    return facts

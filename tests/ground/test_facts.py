"""The limits and rules that facts keep by themselves, each admitted at its bound and refused one past it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import attrs
import pytest

from maka_trio import facts, limits
from maka_trio.errors import InvalidInput
from maka_trio.facts.event import Fact
from tests.ids import shown

DIGEST = "sha256:" + "a" * 64
CALL = facts.ToolCallIdentity.provider("s", "c")
TWO_BYTES = "é"


def succeeded(**changes: Any) -> facts.ToolSettled:
    raw = facts.RawResult(2, DIGEST)
    return facts.ToolSettled("o", facts.Succeeded(raw, facts.TextOutput(""), **changes))


# --- identities -------------------------------------------------------------------------------------------

IDENTITIES: dict[str, Callable[[str], object]] = {
    "session": lambda text: facts.Invocation(text, "t", "r", "i"),
    "turn": lambda text: facts.Invocation("s", text, "r", "i"),
    "run": lambda text: facts.Invocation("s", "t", text, "i"),
    "invocation": lambda text: facts.Invocation("s", "t", "r", text),
    "event": lambda text: facts.RuntimeEvent(text, 0, facts.Invocation.new("s"), facts.ExecutorCompleted("")),
    "step": lambda text: facts.ModelCompleted(text, facts.ModelStep((), facts.FinishReason.STOP)),
    "operation": lambda text: facts.ToolDispatched(text, CALL, "n", None),
    "settled operation": lambda text: facts.ToolSettled(text, facts.EffectFailed("")),
    "rejected operation": lambda text: facts.ToolRejected(text, CALL, "n", None, facts.ToolRejection.cancelled()),
    "notified operation": lambda text: facts.ToolNotified(text, "a", "b"),
    "call": lambda text: facts.ToolCallIdentity(text, facts.Standalone()),
    "provider step": facts.Provider,
    "parent operation": lambda text: facts.CodeCell(text, "c"),
    "parent call": lambda text: facts.CodeMode("o", text),
    "host package": lambda text: facts.HostSdk(text, "e", "a"),
    "session scope": facts.Session,
    "artifact": lambda text: facts.ArtifactRef(text, "image/png", 1, DIGEST),
    "steered message": lambda text: facts.MessageSteered(facts.MessageInput("x"), text),
}


@pytest.mark.parametrize("make", IDENTITIES.values(), ids=IDENTITIES)
def test_an_identity_has_1_to_4096_bytes(make: Callable[[str], object]) -> None:
    """Bytes of UTF-8, not characters."""
    make("x")
    make("x" * limits.IDENTITY_BYTES)
    make(TWO_BYTES * (limits.IDENTITY_BYTES // 2))
    for text in ("", "x" * (limits.IDENTITY_BYTES + 1), TWO_BYTES * (limits.IDENTITY_BYTES // 2) + "x"):
        with pytest.raises(InvalidInput, match="4096"):
            make(text)


@pytest.mark.parametrize("make", IDENTITIES.values(), ids=IDENTITIES)
@pytest.mark.parametrize("value", [None, 5, b"x", "\ud800"])
def test_an_identity_is_text_that_utf8_can_carry(make: Callable[[Any], object], value: object) -> None:
    """Anything else is one clear error."""
    with pytest.raises(InvalidInput):
        make(value)


def test_new_invocations_have_ids_of_their_own() -> None:
    """A session is the caller's to name, the rest is fresh."""
    first, second = facts.Invocation.new("s"), facts.Invocation.new("s")
    assert first.session_id == second.session_id == "s"
    ids = [first.turn_id, first.run_id, first.invocation_id, second.turn_id, second.run_id, second.invocation_id]
    assert len(set(ids)) == 6


def test_the_operation_of_a_provider_call_is_its_step_and_its_id() -> None:
    """`step_id:call_id`, always."""
    assert facts.provider_operation_id("step", "call") == "step:call"


# --- digests ----------------------------------------------------------------------------------------------

END = facts.RunBoundary(facts.Invocation.new("session"), 3, DIGEST)

DIGESTS: dict[str, Callable[[str], object]] = {
    "continuation": lambda text: facts.ContinuationOpening(facts.ContinuationClaim.of(END), text),
    "boundary": lambda text: facts.RunBoundary(END.invocation, 1, text),
    "base": lambda text: facts.ContinuationClaim.of(END, base_digest=text),
    "replay": lambda text: facts.ContinuationClaim.of(END, replay_digest=text),
    "source": lambda text: facts.ModelRequested("s", "m", facts.Root(), 0, text, DIGEST, DIGEST),
    "input": lambda text: facts.ModelRequested("s", "m", facts.Root(), 0, DIGEST, text, DIGEST),
    "route": lambda text: facts.ModelRequested("s", "m", facts.Root(), 0, DIGEST, DIGEST, text),
    "effective source": lambda text: facts.ModelRequested(
        "s", "m", facts.Root(), 0, DIGEST, DIGEST, DIGEST, effective_source_digest=text
    ),
    "raw result": lambda text: facts.RawResult(1, text),
}


@pytest.mark.parametrize("make", DIGESTS.values(), ids=DIGESTS)
@pytest.mark.parametrize(
    "text",
    ["", "a" * 64, "sha256:" + "a" * 63, "sha256:" + "a" * 65, "sha256:" + "A" * 64, "md5:" + "a" * 64, DIGEST + "\n"],
)
def test_a_digest_is_sha256_and_64_lower_case_digits(make: Callable[[str], object], text: str) -> None:
    """Nothing longer, shorter or in capitals."""
    make(DIGEST)
    with pytest.raises(InvalidInput, match="64 hexadecimal"):
        make(text)


def test_the_base_of_a_claim_is_the_lineage_of_its_source() -> None:
    """Up to where the source ends, and no other run's."""
    claim = facts.ContinuationClaim.of(END)
    assert claim.base.scope == facts.Lineage("session", END.invocation.run_id)
    for changed in ({"high_water": 4}, {"scope": facts.Lineage("session", "another")}):
        with pytest.raises(InvalidInput, match="lineage of its source"):
            facts.ContinuationClaim(END, attrs.evolve(claim.base, **changed), DIGEST)


@pytest.mark.parametrize("high_water", [0, -1, True, 1.0, "1", 2**63])
def test_a_boundary_names_an_event(high_water: Any) -> None:
    """Its high water is a sequence of the log."""
    with pytest.raises(InvalidInput, match="high_water"):
        facts.RunBoundary(END.invocation, high_water, DIGEST)


# --- texts ------------------------------------------------------------------------------------------------

TEXTS: dict[str, tuple[int, bool, Callable[[str], object]]] = {
    "notification": (128 * 1024, True, lambda text: facts.ToolNotified("o", text, "m")),
    "notification for the model": (128 * 1024, True, lambda text: facts.ToolNotified("o", "t", text)),
    "executor answer": (1024 * 1024, False, facts.ExecutorCompleted),
    "system prompt": (64 * 1024, True, lambda text: facts.InvocationConfiguration(system_prompt=text)),
}


@pytest.mark.parametrize(("limit", "not_blank", "make"), TEXTS.values(), ids=TEXTS)
def test_a_text_is_bounded_in_bytes(limit: int, not_blank: bool, make: Callable[[str], object]) -> None:
    """At the limit it stands, one byte more is refused with both numbers named."""
    make("x" * limit)
    for text in ("x" * (limit + 1), TWO_BYTES * (limit // 2) + "x"):
        with pytest.raises(InvalidInput, match=f"has {limit + 1} bytes; the limit is {limit}"):
            make(text)


@pytest.mark.parametrize(("limit", "not_blank", "make"), TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("text", ["", " ", "\n\t\u3000"])
def test_a_text_that_must_say_something_is_not_blank(
    limit: int, not_blank: bool, make: Callable[[str], object], text: str
) -> None:
    """An executor may answer nothing; a notification or a system prompt may not."""
    if not_blank:
        with pytest.raises(InvalidInput, match="blank"):
            make(text)
    else:
        make(text)


def test_a_message_is_made_of_a_bare_string() -> None:
    """The rest is optional."""
    message = facts.MessageInput("hello")
    assert (message.text, message.display_text, message.quotes, message.parts) == ("hello", None, (), ())


@pytest.mark.parametrize("fingerprint", ["", " "])
def test_a_compaction_needs_a_fingerprint(fingerprint: str) -> None:
    """It is how a repeated request is known."""
    facts.ContextCompactOpening("f")
    with pytest.raises(InvalidInput, match="request_fingerprint"):
        facts.ContextCompactOpening(fingerprint)


# --- configuration ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cwd", ["", "relative", "./x", "~", "/a\0b", "/" + "x" * 4096, "/\ud800", 5, b"/x"])
def test_a_working_folder_is_absolute_and_bounded(cwd: Any) -> None:
    """4,096 bytes, no NUL, from the root."""
    facts.InvocationConfiguration(cwd="/")
    facts.InvocationConfiguration(cwd="/" + "x" * 4095)
    with pytest.raises(InvalidInput, match="cwd"):
        facts.InvocationConfiguration(cwd=cwd)


@pytest.mark.parametrize("concurrency", [0, -1, 65, True, 1.0, "1", None])
def test_tool_concurrency_is_1_to_64(concurrency: Any) -> None:
    """A bool is no count."""
    facts.InvocationConfiguration(tool_concurrency=1)
    facts.InvocationConfiguration(tool_concurrency=64)
    with pytest.raises(InvalidInput, match="tool_concurrency"):
        facts.InvocationConfiguration(tool_concurrency=concurrency)


def test_a_tool_mode_is_one_of_the_enum() -> None:
    """The text of a mode is not the mode."""
    with pytest.raises(InvalidInput, match="tool_mode must be ToolMode"):
        facts.InvocationConfiguration(tool_mode="direct")  # type: ignore[arg-type]


# --- usage, windows, checkpoints --------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"])
@pytest.mark.parametrize("value", [-1, 1.5, "2", True])
def test_a_usage_count_is_a_non_negative_integer(field: str, value: Any) -> None:
    """Or None, which is not zero."""
    assert getattr(facts.ModelUsage(**{field: 0}), field) == 0
    assert getattr(facts.ModelUsage(), field) is None
    with pytest.raises(InvalidInput, match=field):
        facts.ModelUsage(**{field: value})


@pytest.mark.parametrize("field", ["context_window", "model_context_window", "declared_window"])
@pytest.mark.parametrize("value", [0, -1, 2**53, 1.0, True])
def test_a_context_window_is_1_to_the_largest_exact_integer(field: str, value: Any) -> None:
    """2^53-1 is what every JSON reader takes."""
    facts.ModelRequestContext("p", **{field: 1})
    facts.ModelRequestContext("p", **{field: 2**53 - 1})
    with pytest.raises(InvalidInput, match=field):
        facts.ModelRequestContext("p", **{field: value})


def test_a_provider_id_has_1_to_512_utf16_units() -> None:
    """A character outside the basic plane counts twice."""
    facts.ModelRequestContext("x" * 512)
    facts.ModelRequestContext("🙂" * 256)
    for text in ("", "x" * 513, "🙂" * 256 + "x"):
        with pytest.raises(InvalidInput, match="UTF-16"):
            facts.ModelRequestContext(text)


@pytest.mark.parametrize("covered", [0, -1, True, 1.0])
def test_a_checkpoint_covers_something(covered: Any) -> None:
    """`covered_through` is a sequence."""
    with pytest.raises(InvalidInput, match="covered_through"):
        facts.ContextCheckpoint(facts.CheckpointMode.PRE_TURN, covered, DIGEST, "sum", "step")


def test_only_a_checkpoint_of_mid_turn_has_an_anchor() -> None:
    """And it must have one."""
    facts.ContextCheckpoint(facts.CheckpointMode.MID_TURN, 1, DIGEST, "sum", "step", anchor_event_id="e")
    with pytest.raises(InvalidInput, match="anchor"):
        facts.ContextCheckpoint(facts.CheckpointMode.MID_TURN, 1, DIGEST, "sum", "step")
    with pytest.raises(InvalidInput, match="anchor"):
        facts.ContextCheckpoint(facts.CheckpointMode.STANDALONE, 1, DIGEST, "sum", "step", anchor_event_id="e")


# --- outcomes and rejections ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rejection", "text"),
    [
        (facts.ToolRejection.unavailable(), facts.UNAVAILABLE_TEXT),
        (facts.ToolRejection.invalid_input("n is missing"), facts.INVALID_INPUT_TEXT),
        (facts.ToolRejection.policy_denied("read-only"), facts.POLICY_DENIED_TEXT),
        (facts.ToolRejection.preparation_failed("no such file"), facts.PREPARATION_FAILED_TEXT),
        (facts.ToolRejection.exclusive_conflict(), facts.EXCLUSIVE_CONFLICT_TEXT),
        (facts.ToolRejection.cancelled(), facts.CANCELLED_TEXT),
    ],
)
def test_a_rejection_says_its_public_text_and_its_message(rejection: facts.ToolRejection, text: str) -> None:
    """One constant for each kind, which callers may compare with."""
    assert str(rejection).startswith(text)
    assert (rejection.message or "") in str(rejection)


@pytest.mark.parametrize("kind", ["unavailable", "exclusive_conflict", "cancelled"])
def test_a_rejection_that_says_all_carries_no_message(kind: str) -> None:
    """Only three kinds have something to add."""
    with pytest.raises(InvalidInput, match="no message"):
        facts.ToolRejection(kind, "because")


@pytest.mark.parametrize(
    "make",
    [
        lambda: facts.ToolRejection("bored"),
        lambda: facts.Failed("bad_luck"),
        lambda: facts.ModelInterrupted("s", "tired"),
    ],
)
def test_a_word_outside_a_closed_set_is_refused(make: Callable[[], object]) -> None:
    """The error lists the words there are."""
    with pytest.raises(InvalidInput, match="is not one of"):
        make()


@pytest.mark.parametrize("outcome", [facts.EffectFailed, facts.EffectUnknown])
def test_a_message_of_an_outcome_can_be_written(outcome: Callable[[str], object]) -> None:
    """A text that UTF-8 cannot carry is found where it is made, not when the log is to write it."""
    with pytest.raises(InvalidInput, match="surrogate"):
        outcome("\udc80")


def test_success_is_written_together_with_its_raw_result() -> None:
    """Success without evidence cannot exist."""
    event = facts.RuntimeEvent.new(facts.Invocation.new("s"), succeeded())
    facts.EventWrite(event, b"{}")
    with pytest.raises(InvalidInput, match="raw result"):
        facts.EventWrite(event)


@pytest.mark.parametrize(
    "fact", [facts.ToolSettled("o", facts.EffectFailed("")), facts.ToolDispatched("o", CALL, "n", None)]
)
def test_only_success_has_a_raw_result(fact: Fact) -> None:
    """A failure has a message, and nothing beside it."""
    with pytest.raises(InvalidInput, match="no raw result"):
        facts.EventWrite(facts.RuntimeEvent.new(facts.Invocation.new("s"), fact), b"{}")


def test_an_imported_message_is_no_plain_event() -> None:
    """It comes through an import admission only."""
    with pytest.raises(InvalidInput, match="import"):
        facts.EventWrite(facts.RuntimeEvent.new(facts.Invocation.new("s"), facts.MessageImported("x", {})))


# --- JSON in facts, content -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda value: facts.ToolDispatched("o", CALL, "n", value),
        lambda value: facts.ModelToolCall("c", "n", value),
        lambda value: facts.ModelToolCall("c", "n", None, {"o": value}),
        lambda value: facts.PartDelta("p", "x", {"o": value}),
        lambda value: facts.ProviderToolResult("c", "n", value),
        lambda value: facts.JsonOutput(value),
        lambda value: facts.RequestSurface(provider_options={"o": value}),
        lambda value: facts.ToolDefinition("n", "d", {"o": value}),
        lambda value: facts.ToolDefinition("n", "d", True, {"o": value}),
        lambda value: facts.ExecutorObserved(value),
    ],
)
@pytest.mark.parametrize("value", [float("nan"), {1: 2}, object(), b"x"], ids=shown)
def test_json_in_a_value_is_json(make: Callable[[object], object], value: object) -> None:
    """NaN would be written as null, and a key that is a number as a text: both are refused instead."""
    make([1, "x", None])
    with pytest.raises(InvalidInput):
        make(value)


@pytest.mark.parametrize(
    "given",
    [{}, {"data": b"x", "url": "u"}, {"url": "u", "artifact": "a"}, {"data": b"", "url": "u", "artifact": "a"}],
)
def test_media_is_in_exactly_one_place(given: dict[str, Any]) -> None:
    """Bytes, an address, or an artifact."""
    with pytest.raises(InvalidInput, match="exactly one"):
        facts.MediaContent("image/png", **given)


@pytest.mark.parametrize("schema", [None, "object", 1, [], ("a",)])
def test_an_input_schema_is_an_object_or_a_bool(schema: Any) -> None:
    """As JSON Schema has it."""
    facts.ToolDefinition("n", "d", True)
    facts.ToolDefinition("n", "d", {})
    with pytest.raises(InvalidInput, match="input_schema"):
        facts.ToolDefinition("n", "d", schema)


# --- kinds and the index ----------------------------------------------------------------------------------


def test_each_fact_knows_its_kind() -> None:
    """The class name in snake case; no two share one."""
    kinds = [cls.kind for cls in get_args(Fact)]
    assert len(set(kinds)) == len(kinds) == 18
    for cls in get_args(Fact):
        words = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in cls.__name__)
        assert cls.kind == words[1:]


@pytest.mark.parametrize(
    ("fact", "indexed"),
    [
        (facts.ToolDispatched("o", CALL, "n", None), "o"),
        (facts.ToolSettled("o", facts.EffectFailed("")), "o"),
        (facts.ToolRejected("o", CALL, "n", None, facts.ToolRejection.cancelled()), "o"),
        (facts.ModelRequested("s", "m", facts.Root(), 0, DIGEST, DIGEST, DIGEST), "s"),
        (facts.ModelCompleted("s", facts.ModelStep((), facts.FinishReason.STOP)), "s"),
        (facts.ModelInterrupted("s", facts.InterruptionStatus.FAILED), "s"),
        (facts.ModelObserved("s", facts.PartFinished("p")), None),
        (facts.ToolNotified("o", "a", "b"), None),
        (facts.InvocationEnded(facts.Completed()), None),
    ],
)
def test_the_log_indexes_operations_and_steps(fact: Fact, indexed: str | None) -> None:
    """Observations and notifications are too many to index."""
    assert facts.indexed_operation_id(fact) == indexed


def test_an_event_made_now_has_a_fresh_id_unless_one_is_given() -> None:
    """A settlement with media names its event before it exists."""
    invocation = facts.Invocation.new("s")
    first, second = (facts.RuntimeEvent.new(invocation, facts.ExecutorCompleted("")) for _ in range(2))
    assert first.id != second.id
    assert first.recorded_at <= second.recorded_at
    assert facts.RuntimeEvent.new(invocation, facts.ExecutorCompleted(""), event_id="mine").id == "mine"

"""Hypothesis strategies for the values of the ground floor: every fact, and everything a fact is made of."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from maka_trio import facts

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
COUNTS = st.integers(min_value=0, max_value=2**53)
DIGESTS = st.binary(min_size=32, max_size=32).map(lambda data: f"sha256:{data.hex()}")
MEDIA_TYPES = st.sampled_from(["image/png", "audio/wav", "application/pdf"])
NOT_BLANK = TEXT.filter(lambda text: bool(text.strip()))


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def tuples_of(strategy: st.SearchStrategy[Any], *, min_size: int = 0) -> st.SearchStrategy[Any]:
    return st.lists(strategy, min_size=min_size, max_size=3).map(tuple)


# --- JSON -------------------------------------------------------------------------------------------------

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)
JSON_OBJECTS = st.dictionaries(TEXT, JSON_VALUES, max_size=3)
OPTIONS = optional(JSON_OBJECTS)

# --- models -----------------------------------------------------------------------------------------------

USAGES = st.builds(facts.ModelUsage, *[optional(COUNTS)] * 5)
MODEL_CALLS = st.builds(facts.ModelToolCall, IDS, IDS, JSON_VALUES, OPTIONS, st.booleans())
SOURCES = st.builds(facts.UrlSource, IDS, TEXT, optional(TEXT)) | st.builds(
    facts.DocumentSource, IDS, TEXT, TEXT, optional(TEXT)
)
MODEL_PARTS = st.one_of(
    st.builds(facts.TextPart, st.sampled_from(facts.TextKind), TEXT, OPTIONS),
    st.builds(facts.ToolCallPart, MODEL_CALLS),
    st.builds(facts.ToolResultPart, IDS, TEXT, JSON_VALUES, st.booleans(), OPTIONS),
    st.builds(facts.SourcePart, SOURCES, OPTIONS),
)
MODEL_STEPS = st.builds(
    facts.ModelStep,
    tuples_of(MODEL_PARTS),
    st.sampled_from(facts.FinishReason),
    USAGES,
    OPTIONS,
    optional(TEXT),
    optional(TEXT),
    optional(COUNTS),
)
MODEL_EVENTS = st.one_of(
    st.builds(facts.PartStarted, IDS, st.sampled_from(facts.TextKind), OPTIONS),
    st.builds(facts.PartDelta, IDS, TEXT, OPTIONS),
    st.builds(facts.PartFinished, IDS, OPTIONS),
    st.builds(facts.ToolCallReady, MODEL_CALLS),
    st.builds(facts.ProviderToolResult, IDS, TEXT, JSON_VALUES, st.booleans(), OPTIONS),
    st.builds(facts.SourceCited, SOURCES, OPTIONS),
    st.builds(facts.ResponseMetadata, optional(TEXT), optional(TEXT), optional(COUNTS)),
    st.builds(facts.Finished, st.sampled_from(facts.FinishReason), USAGES, OPTIONS),
)

# --- messages ---------------------------------------------------------------------------------------------

CONTENT_PARTS = st.one_of(
    st.builds(facts.TextContent, TEXT),
    st.builds(facts.MediaContent, MEDIA_TYPES, data=st.binary(max_size=8), filename=optional(TEXT)),
    st.builds(facts.MediaContent, MEDIA_TYPES, url=TEXT, detail=st.sampled_from([None, "low", "high"])),
    st.builds(facts.MediaContent, MEDIA_TYPES, artifact=IDS, digest=optional(DIGESTS)),
)
TOOL_OUTPUTS = st.one_of(
    st.builds(facts.TextOutput, TEXT),
    st.builds(facts.JsonOutput, JSON_VALUES),
    st.builds(facts.ContentOutput, tuples_of(CONTENT_PARTS)),
    st.builds(facts.ErrorOutput, TEXT),
)
PROMPT_MESSAGES = st.one_of(
    st.builds(facts.SystemMessage, TEXT),
    st.builds(facts.UserMessage, tuples_of(CONTENT_PARTS, min_size=1)),
    st.builds(facts.AssistantMessage, tuples_of(MODEL_PARTS)),
    st.builds(facts.ToolMessage, IDS, TEXT, TOOL_OUTPUTS),
)
MESSAGE_INPUTS = st.builds(
    facts.MessageInput,
    TEXT,
    optional(TEXT),
    tuples_of(st.builds(facts.Quote, TEXT, optional(TEXT))),
    tuples_of(CONTENT_PARTS),
)

# --- identities and outcomes ------------------------------------------------------------------------------

INVOCATIONS = st.builds(facts.Invocation, IDS, IDS, IDS, IDS)
ORIGINS = st.one_of(
    st.builds(facts.Provider, IDS),
    st.builds(facts.CodeMode, IDS, IDS),
    st.builds(facts.CodeCell, IDS, IDS),
    st.builds(facts.HostSdk, IDS, IDS, IDS, optional(IDS)),
    st.builds(facts.Standalone),
)
CALL_IDENTITIES = st.builds(facts.ToolCallIdentity, IDS, ORIGINS)
ARTIFACT_REFS = st.builds(facts.ArtifactRef, IDS, MEDIA_TYPES, COUNTS, DIGESTS)
SUCCESSES = st.builds(
    facts.Succeeded, st.builds(facts.RawResult, COUNTS, DIGESTS), TOOL_OUTPUTS, tuples_of(ARTIFACT_REFS)
)
TOOL_OUTCOMES = SUCCESSES | st.builds(facts.EffectFailed, TEXT) | st.builds(facts.EffectUnknown, TEXT)
REJECTIONS = st.one_of(
    st.sampled_from(
        [
            facts.ToolRejection.unavailable(),
            facts.ToolRejection.exclusive_conflict(),
            facts.ToolRejection.cancelled(),
        ]
    ),
    st.builds(facts.ToolRejection.invalid_input, TEXT),
    st.builds(facts.ToolRejection.policy_denied, TEXT),
    st.builds(facts.ToolRejection.preparation_failed, TEXT),
)
COMPACTIONS = st.one_of(
    st.builds(facts.Compacted, IDS), st.builds(facts.Unchanged, TEXT), st.builds(facts.CompactionFailed, TEXT)
)
INVOCATION_OUTCOMES = st.one_of(
    st.builds(facts.Completed),
    st.builds(facts.Failed, st.sampled_from(facts.FailureClass), optional(TEXT)),
    st.builds(facts.Cancelled, TEXT),
    st.builds(facts.ContextCompactFinished, COMPACTIONS),
    st.builds(facts.HandoffPaused, JSON_OBJECTS),
)

# --- openings, requests, context --------------------------------------------------------------------------

TOOL_DEFINITIONS = st.builds(facts.ToolDefinition, IDS, TEXT, JSON_OBJECTS | st.booleans(), optional(JSON_OBJECTS))
SURFACES = st.builds(facts.RequestSurface, tuples_of(TOOL_DEFINITIONS), JSON_OBJECTS, optional(COUNTS), st.booleans())
CONFIGURATIONS = st.builds(
    facts.InvocationConfiguration,
    st.sampled_from(facts.ToolMode),
    optional(NOT_BLANK),
    st.sampled_from([None, "/", "/tmp/work"]),
    st.integers(min_value=1, max_value=64),
)
BOUNDARIES = st.builds(facts.RunBoundary, INVOCATIONS, st.integers(min_value=1, max_value=2**63 - 1), DIGESTS)
CLAIMS = st.builds(facts.ContinuationClaim.of, BOUNDARIES, base_digest=DIGESTS, replay_digest=DIGESTS)
OPENINGS = st.one_of(
    st.builds(
        facts.MessageOpening,
        MESSAGE_INPUTS,
        optional(TEXT),
        tuples_of(IDS),
        st.booleans(),
        optional(SURFACES),
    ),
    st.builds(facts.ContinuationOpening, CLAIMS, DIGESTS, optional(SURFACES)),
    st.builds(facts.HandoffOpening, JSON_OBJECTS, JSON_OBJECTS),
    st.builds(facts.ContextCompactOpening, NOT_BLANK),
    st.builds(facts.CodeOpening, TEXT),
)
SCOPES = st.builds(facts.Root) | st.builds(facts.Session, IDS) | st.builds(facts.Lineage, IDS, IDS)
WINDOWS = optional(st.integers(min_value=1, max_value=2**53 - 1))
REQUEST_CONTEXTS = st.builds(facts.ModelRequestContext, IDS, WINDOWS, WINDOWS, WINDOWS)
CHECKPOINTS = st.one_of(
    st.builds(
        facts.ContextCheckpoint,
        st.sampled_from([facts.CheckpointMode.STANDALONE, facts.CheckpointMode.PRE_TURN]),
        st.integers(min_value=1),
        DIGESTS,
        TEXT,
        IDS,
        optional(IDS),
    ),
    st.builds(
        facts.ContextCheckpoint,
        st.just(facts.CheckpointMode.MID_TURN),
        st.integers(min_value=1),
        DIGESTS,
        TEXT,
        IDS,
        optional(IDS),
        IDS,
    ),
)
PLACEHOLDERS = st.builds(facts.ArchivedPlaceholder, IDS, IDS, IDS, DIGESTS, DIGESTS, COUNTS, COUNTS, JSON_VALUES)

# --- facts ------------------------------------------------------------------------------------------------

FACTS_BY_KIND: dict[type[Any], st.SearchStrategy[Any]] = {
    facts.InvocationOpened: st.builds(facts.InvocationOpened, OPENINGS, optional(CONFIGURATIONS)),
    facts.ModelRequested: st.builds(
        facts.ModelRequested,
        IDS,
        IDS,
        SCOPES,
        COUNTS,
        DIGESTS,
        DIGESTS,
        DIGESTS,
        st.sampled_from(facts.StepPurpose),
        optional(IDS),
        optional(REQUEST_CONTEXTS),
        optional(DIGESTS),
        optional(SURFACES),
    ),
    facts.ModelObserved: st.builds(facts.ModelObserved, IDS, MODEL_EVENTS),
    facts.ModelInterrupted: st.builds(
        facts.ModelInterrupted, IDS, st.sampled_from(facts.InterruptionStatus), optional(TEXT)
    ),
    facts.ModelCompleted: st.builds(facts.ModelCompleted, IDS, MODEL_STEPS),
    facts.ToolDispatched: st.builds(facts.ToolDispatched, IDS, CALL_IDENTITIES, IDS, JSON_VALUES),
    facts.ToolSettled: st.builds(facts.ToolSettled, IDS, TOOL_OUTCOMES),
    facts.ToolRejected: st.builds(facts.ToolRejected, IDS, CALL_IDENTITIES, IDS, JSON_VALUES, REJECTIONS),
    facts.ToolNotified: st.builds(facts.ToolNotified, IDS, NOT_BLANK, NOT_BLANK),
    facts.MessageSteered: st.builds(facts.MessageSteered, MESSAGE_INPUTS, IDS),
    facts.ContextCheckpointRecorded: st.builds(facts.ContextCheckpointRecorded, CHECKPOINTS),
    facts.ToolResultArchived: st.builds(facts.ToolResultArchived, PLACEHOLDERS),
    facts.ExecutorStarted: st.builds(facts.ExecutorStarted, JSON_OBJECTS, JSON_OBJECTS),
    facts.ExecutorObserved: st.builds(facts.ExecutorObserved, JSON_VALUES),
    facts.ExecutorCompleted: st.builds(facts.ExecutorCompleted, TEXT),
    facts.MessageImported: st.builds(facts.MessageImported, TEXT, JSON_OBJECTS),
    facts.InvocationEnded: st.builds(facts.InvocationEnded, INVOCATION_OUTCOMES),
    facts.BodyDeleted: st.builds(
        facts.BodyDeleted,
        NOT_BLANK,
        COUNTS,
        DIGESTS,
        DIGESTS,
        optional(IDS),
        optional(IDS),
        optional(IDS),
        optional(IDS),
        optional(USAGES),
    ),
}
FACTS: st.SearchStrategy[Any] = st.one_of(*FACTS_BY_KIND.values())
EVENTS = st.builds(facts.RuntimeEvent, IDS, COUNTS, INVOCATIONS, FACTS)

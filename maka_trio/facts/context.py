"""What a model request was planned with, and what stands in for history: windows, summaries, archived results."""

from __future__ import annotations

from enum import StrEnum

import attrs

from maka_trio import limits
from maka_trio.errors import InvalidInput
from maka_trio.facts import bounds
from maka_trio.facts.json_value import JSON, valid_json
from maka_trio.records import frozen

_WINDOW = bounds.optional(bounds.integer(minimum=1, maximum=limits.MAX_OUTPUT_TOKENS))


@frozen
class ModelRequestContext:
    """Windows a request was planned with, in tokens."""

    provider_id: str
    context_window: int | None = attrs.field(default=None, validator=_WINDOW)
    model_context_window: int | None = attrs.field(default=None, validator=_WINDOW)
    declared_window: int | None = attrs.field(default=None, validator=_WINDOW)

    def __attrs_post_init__(self) -> None:
        bounds.utf8_size(self.provider_id, "provider_id")
        units = len(self.provider_id.encode("utf-16-le")) // 2
        if not 1 <= units <= 512:
            raise InvalidInput(f"provider_id has {units} UTF-16 units; it takes 1 to 512")


class CheckpointMode(StrEnum):
    """When a summary was made."""

    STANDALONE = "standalone"
    PRE_TURN = "pre_turn"
    MID_TURN = "mid_turn"


@frozen
class ContextCheckpoint:
    """An adopted summary of everything up to `covered_through`."""

    mode: CheckpointMode
    covered_through: int
    source_digest: str = attrs.field(validator=bounds.digest)
    summary: str
    summary_step_id: str = attrs.field(validator=bounds.identity)
    previous_checkpoint_id: str | None = None
    anchor_event_id: str | None = None

    def __attrs_post_init__(self) -> None:
        if type(self.covered_through) is not int or self.covered_through < 1:
            raise InvalidInput(f"covered_through={self.covered_through!r} must be a positive sequence")
        if (self.mode is CheckpointMode.MID_TURN) != (self.anchor_event_id is not None):
            raise InvalidInput("a mid_turn checkpoint, and no other, names its anchor event")


@frozen
class ArchivedPlaceholder:
    """What the model is shown instead of a large tool result; the original stays in the log."""

    runtime_event_id: str
    tool_call_id: str
    tool_name: str
    source_projection_digest: str = attrs.field(validator=bounds.digest)
    body_sha256: str = attrs.field(validator=bounds.digest)
    original_bytes: int
    original_estimated_tokens: int
    page: JSON = attrs.field(validator=valid_json)
    reason: str = "tool_result_pruned"


class StepPurpose(StrEnum):
    """What a model request is for: the turn itself, or a private summary of it."""

    MAIN = "main"
    SUMMARY = "summary"

"""Recorded answers, sent back, have the types that the vendors' own packages declare for requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anthropic.types.beta import message_create_params as anthropic_beta
from openai.types.chat import completion_create_params as openai_chat
from openai.types.responses import response_create_params as openai_responses

from tests.protocol.recordings import body_after, recordings, step_of
from tests.sdk.typed_dicts import mismatch

TYPES: dict[str, Any] = {
    "openai_chat": openai_chat.CompletionCreateParamsStreaming,
    "openai_responses": openai_responses.ResponseCreateParamsStreaming,
    "anthropic": anthropic_beta.MessageCreateParamsStreaming,  # hosted tools of recordings were in beta
}
STREAMS = [stream for folder in TYPES for stream in recordings(folder)]

__test__ = bool(STREAMS)  # collected only where the corpus lies


@pytest.mark.parametrize("stream", STREAMS)
def test_a_recorded_answer_goes_back_in_the_types_of_the_sdk(stream: Path) -> None:
    """Reasoning, hosted calls with their results, citations: all as the vendor declares them."""
    step = step_of(stream, {})
    if step is not None:
        body = body_after(stream, step, {}, going_on=True)
        assert mismatch(body, TYPES[stream.parent.name]) is None

"""Facts to JSON and back, every rule of theirs checked, against `json` on plain dicts, which checks nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.question import Aim, Contender, Question
from benchmarks.sample import Stopwatch
from maka_trio.facts import (
    Fact,
    Finished,
    FinishReason,
    JsonOutput,
    ModelCompleted,
    ModelObserved,
    ModelRequested,
    ModelStep,
    ModelToolCall,
    ModelUsage,
    PartDelta,
    PartFinished,
    PartStarted,
    RawResult,
    Session,
    Succeeded,
    TextKind,
    TextPart,
    ToolCallIdentity,
    ToolCallPart,
    ToolCallReady,
    ToolDispatched,
    ToolSettled,
)
from maka_trio.facts.codec import encode_fact
from maka_trio.facts.decoder import read_fact

ROUNDS = 3000
TEXT = "the quick brown fox jumps over the lazy dog " * 3
STEP, CALL = "step-17", ModelToolCall("call-17", "echo", {"value": 17, "text": TEXT})
DIGEST = f"sha256:{0:064x}"
USAGE = ModelUsage(1234, 56, 1000)
FACTS: Sequence[Fact] = (
    ModelRequested(STEP, "bench", Session("session"), 16, DIGEST, DIGEST, DIGEST),
    ModelObserved(STEP, PartStarted("text-0")),
    ModelObserved(STEP, PartDelta("text-0", TEXT)),
    ModelObserved(STEP, PartFinished("text-0")),
    ModelObserved(STEP, ToolCallReady(CALL)),
    ModelObserved(STEP, Finished(FinishReason.TOOL_CALLS, USAGE)),
    ModelCompleted(
        STEP, ModelStep((TextPart(TextKind.TEXT, TEXT), ToolCallPart(CALL)), FinishReason.TOOL_CALLS, USAGE)
    ),
    ToolDispatched("operation-17", ToolCallIdentity.provider(STEP, CALL.id), CALL.name, CALL.input),
    ToolSettled("operation-17", Succeeded(RawResult(160, DIGEST), JsonOutput({"value": 17, "text": TEXT}))),
)
"""What a step with a call of a tool leaves in the log."""

FLOOR = Contender("json, dicts", "benchmarks.codec", ("json",))
OURS = Contender("maka_trio, facts", "benchmarks.codec", ("facts",))

QUESTIONS = (
    Question(
        "codec",
        f"The {len(FACTS)} facts of a step with one call of a tool, to JSON and back: facts a second.",
        (FLOOR, OURS),
        (Aim(OURS.label, FLOOR.label, 1, 4),),
    ),
)


def there_and_back(values: Sequence[Any], dump: Callable[[Any], bytes], load: Callable[[bytes, Any], Any]) -> None:
    """Print how fast it is, after as many rounds as it takes until everything is compiled."""

    def go() -> None:
        for _ in range(ROUNDS):
            for value in values:
                load(dump(value), value)

    assert [load(dump(value), value) for value in values] == list(values)
    go()
    watch = Stopwatch()
    go()
    watch.report(ROUNDS * len(values))


def main(how: str) -> None:
    """One side."""
    if how == "json":
        dicts = [json.loads(encode_fact(fact)) for fact in FACTS]
        there_and_back(dicts, lambda value: json.dumps(value).encode(), lambda body, _: json.loads(body))
    else:
        there_and_back(FACTS, encode_fact, lambda body, fact: read_fact(body, fact.kind))


if __name__ == "__main__":
    main(sys.argv[1])

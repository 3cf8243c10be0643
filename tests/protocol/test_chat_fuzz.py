"""Chat completions answers of any shape: one outcome for every cut, and no exception but a model error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maka_trio.errors import ModelError
from maka_trio.protocol.registry import adapter_for
from tests.protocol.chat_wire import DONE, decoder, request
from tests.protocol.decoding import run

ODD: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values, max_size=3),
    max_leaves=5,
)


def mostly(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The usual values, and now and then anything at all."""
    return usual | usual | usual | ODD


TEXT = st.none() | st.text(max_size=5)
PIECE = st.fixed_dictionaries(
    {},
    optional={
        "index": mostly(st.none() | st.integers(0, 2)),
        "id": mostly(st.sampled_from([None, "", "a", "b"])),
        "function": mostly(
            st.fixed_dictionaries(
                {},
                optional={
                    "name": mostly(st.sampled_from([None, "", "f", "g"])),
                    "arguments": mostly(st.sampled_from([None, "", "{}", '{"n":', "1}", "null", {}])),
                },
            )
        ),
    },
)
DETAIL = st.fixed_dictionaries({}, optional={"type": TEXT, "text": TEXT, "index": st.integers(0, 1), "signature": TEXT})
DELTA = st.fixed_dictionaries(
    {},
    optional={
        "content": mostly(TEXT | st.lists(ODD, max_size=2)),
        "reasoning_content": mostly(TEXT),
        "reasoning": mostly(TEXT),
        "reasoning_details": mostly(st.lists(mostly(DETAIL), max_size=2)),
        "refusal": mostly(TEXT),
        "annotations": mostly(st.lists(ODD, max_size=2)),
        "tool_calls": mostly(st.lists(PIECE, max_size=2)),
    },
)
CHOICE = st.fixed_dictionaries(
    {},
    optional={
        "index": st.sampled_from([None, 0, 0, 0, 1]),
        "delta": mostly(DELTA),
        "message": mostly(DELTA),
        "finish_reason": mostly(
            st.sampled_from([None, None, "", "stop", "tool_calls", "length", "eos", "content_filter"])
        ),
    },
)
USAGE = st.dictionaries(st.sampled_from(["prompt_tokens", "completion_tokens", "prompt_tokens_details"]), ODD)
CHUNK = mostly(
    st.fixed_dictionaries(
        {"choices": mostly(st.lists(CHOICE, max_size=2))},
        optional={
            "id": ODD,
            "model": ODD,
            "created": ODD,
            "usage": mostly(st.none() | USAGE),
            "error": st.none() | ODD,
        },
    )
)
NAMES = pytest.mark.parametrize("name", [None, "generic", "openrouter"])


@NAMES
@given(st.lists(CHUNK, max_size=6), st.randoms(use_true_random=False), st.booleans())
def test_any_stream_has_one_outcome(name: str | None, chunks: list[Any], cuts: Any, done: bool) -> None:
    """A step that the builder takes, or a model error; the same for every cut."""
    body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + (DONE if done else b"")
    places = sorted(cuts.randrange(len(body) + 1) for _ in range(5))
    pieces = [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]
    assert run(decoder(name), pieces) == run(decoder(name), [body])


@NAMES
@given(CHUNK)
def test_any_document_is_an_answer_or_a_model_error(name: str | None, document: Any) -> None:
    """A plain JSON answer of any shape."""
    asked = request(name=name)
    try:
        adapter_for(asked.provider).decode_document(asked, json.dumps(document).encode())
    except ModelError:
        return

"""Dialects of compatible servers: the table, its choice, a user's own."""

from __future__ import annotations

import pytest

from maka_trio.dialect import Dialect
from maka_trio.errors import InvalidInput
from maka_trio.protocol.dialects import DIALECTS, GENERIC, OPENAI, dialect_of
from maka_trio.request import ApiKey, ProviderConfig, ProviderKind
from tests.protocol.chat_wire import provider


def test_the_vendor_has_one_dialect_and_a_name_chooses_the_others() -> None:
    """Case does not matter; an unknown name is a generic server."""
    assert dialect_of(provider()) is OPENAI
    assert dialect_of(provider("DeepSeek")) is DIALECTS["deepseek"]
    assert dialect_of(provider("my-server")) is GENERIC


def test_a_users_own_dialect_wins_over_the_table() -> None:
    """The table may not fit their version of a server."""
    own = Dialect(reasoning_key=None)
    assert dialect_of(provider("deepseek", dialect=own)) is own


@pytest.mark.parametrize("kind", [ProviderKind.OPENAI_CHAT_COMPLETIONS, ProviderKind.ANTHROPIC])
def test_a_dialect_belongs_to_compatible_servers(kind: ProviderKind) -> None:
    """The strict kinds follow their vendor."""
    with pytest.raises(InvalidInput, match="dialect"):
        ProviderConfig(kind, "m", "http://127.0.0.1", ApiKey("k"), dialect=Dialect())


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_every_entry_stands_for_a_difference_or_names_a_server_that_has_none(name: str) -> None:
    """Names are lower case, reasons are too, so that a look-up finds them."""
    entry = DIALECTS[name]
    assert name == name.lower()
    for reasons in (entry.stop_reasons, entry.tool_reasons, entry.length_reasons, entry.refused_reasons):
        assert all(reason == reason.lower() for reason in reasons)


@pytest.mark.parametrize("dialect", [OPENAI, GENERIC, *DIALECTS.values()])
def test_no_reason_means_two_things(dialect: Dialect) -> None:
    """The meanings of one dialect exclude each other."""
    meanings = (
        dialect.stop_reasons,
        dialect.tool_reasons,
        dialect.length_reasons,
        dialect.refused_reasons,
        dialect.unavailable_reasons,
    )
    assert sum(map(len, meanings)) == len(frozenset().union(*meanings))


@pytest.mark.parametrize(
    "wrong",
    [
        {"finish": "maybe"},
        {"reasoning_replay": "sometimes"},
        {"reasoning_key": ""},
        {"reasoning_key": 5},
        {"max_tokens_key": None},
        {"stream_usage": "yes"},
        {"generated_ids": 1},
        {"stop_reasons": "stop"},
    ],
)
def test_a_dialect_that_means_nothing_is_refused(wrong: dict[str, object]) -> None:
    """The field is named where the value is made."""
    with pytest.raises(InvalidInput):
        Dialect(**wrong)  # type: ignore[arg-type]  # that is the point


def test_reasons_are_taken_in_any_case_and_collection() -> None:
    """A list is a set of names, in lower case."""
    assert Dialect(stop_reasons=["Fin", "FIN"]).stop_reasons == frozenset({"fin"})

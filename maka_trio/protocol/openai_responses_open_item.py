"""An output item of a Responses answer while it streams: what every kind of it has. Knows no kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from maka_trio.errors import AdapterError
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON, JsonObject
from maka_trio.protocol.openai_responses_options import ResponsesOptions
from maka_trio.protocol.parts import AnswerParts

KEY = ResponsesOptions.KEY

Json = dict[str, JSON]


def own(options: Mapping[str, JSON]) -> JsonObject | None:
    """Provider options of this protocol; None if there is nothing to note."""
    return {KEY: options} if options else None


def text_of(value: Mapping[str, JSON], field: str) -> str | None:
    """A text of a payload; None where it is absent, empty or something else."""
    found = value.get(field)
    return found if isinstance(found, str) and found else None


def objects(value: JSON) -> list[Json]:
    """The objects in a list of a payload; none where it is something else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


class OpenItem(ABC):
    """An output item between `added` and `done`.

    A kind overrides what it takes. Texts in a kind that has none are malformed; anything else is passed over.
    """

    def __init__(self, answer: AnswerParts, item: Json) -> None:
        self.kind = str(item["type"])
        self.item = item
        self.is_local_call = False
        self._answer = answer

    def text(self, carrier: str, index: int, text: str) -> None:
        """More text of one of the item's contents: `text`, `refusal`, `summary` or (of reasoning) `content`."""
        raise AdapterError(f"{carrier} inside a {excerpt(self.kind)} item")

    def whole_text(self, carrier: str, index: int, text: str) -> None:
        """The whole text of a content, which may or may not have been streamed before."""
        raise AdapterError(f"{carrier} inside a {excerpt(self.kind)} item")

    def annotation(self, index: int, annotation: Json) -> None:  # noqa: B027  # only texts are cited
        """A citation in one of the item's contents."""

    def arguments(self, piece: str) -> None:  # noqa: B027  # only calls have them
        """More of a call's arguments."""

    def whole_arguments(self, text: str) -> None:  # noqa: B027  # only calls have them
        """All of a call's arguments."""

    @abstractmethod
    def close(self, item: Json) -> None:
        """The item is done; `item` is its final form."""

    def abandon(self) -> None:  # noqa: B027  # most kinds have nothing to give up
        """The answer ended and the item was not done: keep what there is of it.

        Raises:
            AdapterError: it is a call of ours, and not all of it is there.
        """

"""How a Responses answer says that it ended, and what counts of it: the worst.

It says so in many places: the type and the name of its last event, the status, the incomplete details and the error
of the response in it, and the status of each item. They should agree. Where they do not, a word for an answer that was
cut, filtered or failed is never outweighed by one for a complete answer, wherever either stands.

The status of an item counts for what the model itself says: the vendor has an item `incomplete` where the output limit
was reached inside it, and the open specification of the protocol allows that only in a response that is incomplete as
well. So an answer that calls itself completed around such an item was cut by its output limit. `in_progress` says
nothing of an item, since some servers leave that word in one that is done; and the status of a hosted tool's item is
about the tool.
"""

from __future__ import annotations

from collections.abc import Mapping

from maka_trio.errors import AdapterError, ModelRefused
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON
from maka_trio.facts.model import FinishReason
from maka_trio.protocol.openai_responses_client_items import is_client_item
from maka_trio.protocol.openai_responses_open_item import Json, text_of

FAILED = "failed"

_LIMIT = "max_output_tokens"
_FILTER = "content_filter"
_UNFINISHED = frozenset({"incomplete", FAILED, "cancelled"})
_SAID = frozenset({"message", "reasoning", "function_call", "custom_tool_call"})


class Ending:
    """What an answer has said of its end so far."""

    def __init__(self) -> None:
        self._words: dict[str, None] = {}  # in the order they were said, which errors name them in
        self._reasons: dict[str, None] = {}
        self._items: dict[str, None] = {}

    @property
    def has_failed(self) -> bool:
        """The answer says that it failed; its error says why."""
        return FAILED in self._words

    def hear(self, response: Mapping[str, JSON], *words: str) -> None:
        """Take what the last event says: the response in it, and the words of the event itself."""
        status = text_of(response, "status")
        for word in (*words, *([status] if status else [])):
            self._words[word] = None
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, Mapping) else details
        if reason:
            self._reasons[reason if isinstance(reason, str) else excerpt(reason)] = None

    def hear_early(self, response: Mapping[str, JSON]) -> None:
        """Take what an earlier event says of the response: it may be unfinished already, though never complete."""
        status = text_of(response, "status")
        self.hear({**response, "status": status if status in _UNFINISHED else None})

    def hear_item(self, item: Mapping[str, JSON]) -> None:
        """Take what an item says of itself."""
        status = text_of(item, "status")
        if status in _UNFINISHED and (text_of(item, "type") in _SAID or is_client_item(item)):
            self._items[status] = None

    def reason(self) -> tuple[FinishReason, Json]:
        """The finish reason, and what the provider said in its own words.

        Raises:
            ModelRefused: the answer was filtered.
            AdapterError: the response did not complete, for a reason that makes no step.
        """
        status = self._status()
        if _FILTER in self._reasons:
            raise ModelRefused(f"the provider filtered the answer ({_FILTER})")
        odd = next((reason for reason in self._reasons if reason != _LIMIT), None)
        if status not in ("completed", "incomplete") or odd is not None:
            raise _did_not_complete(status, odd)
        item = next((word for word in self._items if word != "incomplete"), None)
        if item is not None:
            raise AdapterError(f"the response did not complete: the status of an item is {item!r}")
        if self._reasons:
            return FinishReason.LENGTH, {"status": status, "incomplete_reason": _LIMIT}
        if status == "incomplete":
            raise _did_not_complete(status, None)
        if self._items:
            return FinishReason.LENGTH, {"status": status, "item_status": "incomplete"}
        return FinishReason.STOP, {"status": status}

    def _status(self) -> str:
        """The worst word: one that means neither completed nor incomplete, else incomplete."""
        unknown = next((word for word in self._words if word not in ("completed", "incomplete")), None)
        return unknown or ("incomplete" if "incomplete" in self._words else "completed")


def _did_not_complete(status: str, reason: str | None) -> AdapterError:
    named = f" ({excerpt(reason)})" if reason is not None else ""
    return AdapterError(f"the response did not complete: its status is {excerpt(status)}{named}")

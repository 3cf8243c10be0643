"""The demo's world: a mug shop with two tools, and what the model of the script says about it.

`place_order` is the effect that an abort meets half-way: it waits for a warehouse that answers when the play says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import attrs
import trio

from maka_trio.facts.json_value import JsonObject
from maka_trio.records import define
from maka_trio.testing import Call, Gate
from maka_trio.tools.call import ToolCall
from maka_trio.tools.catalog import ToolCatalog
from maka_trio.tools.function import tool

SYSTEM_PROMPT = "You keep the stock of a mug shop."
FIRST_QUESTION = "Have we enough blue and red mugs?"
SECOND_QUESTION = "Please order 20 blue ones, and 5 green ones to try."
THIRD_QUESTION = "What have you ordered so far?"

LOOK = "Let me look at the shelves."
STOCK_CALLS = (Call("check_stock", {"item": "blue mug"}), Call("check_stock", {"item": "red mug"}))
STOCK_ANSWER = "There are 3 blue mugs and 40 red ones left. The blue ones will not last the week."
ORDER = "I am placing both orders."
ORDERS: Mapping[str, JsonObject] = {
    "call_blue": {"item": "blue mug", "quantity": 20},
    "call_green": {"item": "green mug", "quantity": 5},
}
"""The two orders by the id of their calls, in call order: the first begins, the second is never dispatched."""
ORDER_CALLS = tuple(Call("place_order", order, id=call_id) for call_id, order in ORDERS.items())
FINAL_ANSWER = "The 20 blue mugs are ordered. The green ones are not: that order was cancelled before it began."
AFTER_RECORDING = "(The recording is over; from here on the script speaks.)"


@define
class Shop:
    """What the tools work on.

    Attributes:
        orders: what was ordered; each entry is one effect that really happened.
        ordering: reached when an order is on its way; the effect goes on when it opens.
        heard_of_abort: whether an order that was on its way was told that its run is aborted.
    """

    stock: dict[str, int] = attrs.field(factory=lambda: {"blue mug": 3, "red mug": 40})
    orders: list[tuple[str, int]] = attrs.field(factory=list)
    ordering: Gate = attrs.field(factory=Gate)
    heard_of_abort: bool = False

    def tools(self) -> ToolCatalog:
        """The two tools."""

        @tool
        async def check_stock(item: str) -> dict[str, str | int]:
            """Count what is on the shelf.

            Args:
                item: what to count.
            """
            await trio.lowlevel.checkpoint()
            return {"item": item, "left": self.stock.get(item, 0)}

        @tool
        async def place_order(item: str, quantity: int, call: ToolCall) -> dict[str, str | int]:
            """Order more from the warehouse.

            Args:
                item: what to order.
                quantity: how many.
                call: tells of an abort.
            """
            await self.ordering.pass_through()
            self.heard_of_abort |= call.cancelled.is_set()
            self.orders.append((item, quantity))
            return {"item": item, "ordered": quantity}

        return ToolCatalog([check_stock, place_order])


class Pause(Gate):
    """A stop in a scripted answer that goes on by itself, so that a person can watch it being said."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    async def pass_through(self) -> None:
        """Wait a moment."""
        await trio.sleep(self._seconds)


def spoken(text: str, pause: float) -> Iterator[str | Pause]:
    """A text in words, as a model says it."""
    for word in re.findall(r"\S+\s*", text):
        if pause:
            yield Pause(pause)
        yield word


def replayed(recording: bytes, pause: float) -> Iterator[bytes | Pause]:
    """A recorded body, event by event."""
    for block in re.split(rb"(?<=\n\n)|(?<=\r\n\r\n)", recording):
        if pause:
            yield Pause(pause)
        if block:
            yield block

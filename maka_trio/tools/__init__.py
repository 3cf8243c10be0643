"""Tools: what a run offers its model, and the journal of what was done with it."""

from maka_trio.tools.admission import StepAdmission
from maka_trio.tools.call import AbortSignal, AbortSwitch, ToolCall
from maka_trio.tools.catalog import ToolCatalog, ToolNesting, ToolRegistration, ToolSemantics
from maka_trio.tools.function import tool
from maka_trio.tools.handler import Approval, PreparedEffect, PreparedHandler
from maka_trio.tools.journal import ToolJournal
from maka_trio.tools.output import ToolContent, ToolImage, ToolProjection, ToolText

__all__ = [
    "AbortSignal",
    "AbortSwitch",
    "Approval",
    "PreparedEffect",
    "PreparedHandler",
    "StepAdmission",
    "ToolCall",
    "ToolCatalog",
    "ToolContent",
    "ToolImage",
    "ToolJournal",
    "ToolNesting",
    "ToolProjection",
    "ToolRegistration",
    "ToolSemantics",
    "ToolText",
    "tool",
]

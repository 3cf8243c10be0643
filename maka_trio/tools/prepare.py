"""Everything about a call before its T1: arguments against the schema, preparation, approval. It has no effect.

A cancelled run leaves it at once. Whatever goes wrong here is a refusal, since nothing has happened yet; only errors
that must end the run pass through. A refusal that comes of the run's own cancellation is never written: cancellation is
level-triggered, so the append that would write it raises first.
"""

from __future__ import annotations

from functools import partial
from typing import Final, cast

from maka_trio.errors import InvalidInput
from maka_trio.facts.json_value import JSON, check_json
from maka_trio.facts.outcome import SCHEMA_MISMATCH_TEXT, ToolRejection
from maka_trio.tools.call import ToolCall
from maka_trio.tools.catalog import ToolRegistration
from maka_trio.tools.failure import Fatal, judge
from maka_trio.tools.handler import Approval, ImmediateHandler, PreparedEffect, PreparedHandler, is_prepared

OTHER_INPUT_TEXT: Final = "what was approved is not what the call asks for"
"""The refusal of a call whose approval names other arguments, or another operation."""


async def prepare(registration: ToolRegistration, arguments: JSON, call: ToolCall) -> PreparedEffect | ToolRejection:
    """Make the effect of a call ready, or say why the call is refused.

    Raises:
        CommitError, StoreError, CleanupUnconfirmed: from the handler; they end the run.
    """
    try:
        given = check_json(arguments, what="the arguments")
    except InvalidInput as error:
        return ToolRejection.invalid_input(str(error))
    if mismatch := registration.schema.mismatch(given):
        return ToolRejection.invalid_input(f"{SCHEMA_MISMATCH_TEXT}: {mismatch}")
    if is_prepared(registration.handler):
        return _approved(await _prepared(registration.handler, given, call), call)
    return PreparedEffect(partial(_immediate, cast(ImmediateHandler, registration.handler), call))


async def _immediate(handler: ImmediateHandler, call: ToolCall, given: JSON) -> object:
    return await handler(given, call)


async def _prepared(handler: PreparedHandler, given: JSON, call: ToolCall) -> PreparedEffect | ToolRejection:
    try:
        ready = await handler.prepare(given, call)
    except BaseException as error:  # noqa: ASYNC103 - a cancelled run is told so again before anything is written
        verdict = judge(error)
        if isinstance(verdict, Fatal):
            raise verdict.error from None  # noqa: ASYNC104
        return ToolRejection.preparation_failed(verdict.message)  # noqa: ASYNC104
    if isinstance(ready, (PreparedEffect, ToolRejection)):
        return ready
    return ToolRejection.preparation_failed(f"the tool prepared {type(ready).__name__}, which is no effect")


def _approved(ready: PreparedEffect | ToolRejection, call: ToolCall) -> PreparedEffect | ToolRejection:
    if isinstance(ready, ToolRejection) or ready.approval is None:
        return ready
    if ready.approval != Approval(call.operation_id, call.input_digest):
        return ToolRejection.policy_denied(OTHER_INPUT_TEXT)
    return ready

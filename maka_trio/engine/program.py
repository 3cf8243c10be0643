"""A program by itself: the same sandbox, tools and journal as in a model's run, and no model.

It is an invocation of its own, opened by the program's source. Its one call of `exec` stands for itself; the cell is
below that, and the calls of tools are below the cell.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from maka_trio.code.cells import EXEC, CodeCells, open_cells
from maka_trio.code.executor import CodeExecutor
from maka_trio.engine.ending import write_end
from maka_trio.engine.ledger import RunLedger
from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import check_instance, utf8_size
from maka_trio.facts.codec import parse_json
from maka_trio.facts.event import InvocationOpened, ToolRejected
from maka_trio.facts.identity import Invocation, Standalone, ToolCallIdentity, new_id
from maka_trio.facts.json_value import JSON
from maka_trio.facts.opening import CodeOpening, InvocationConfiguration, ToolDefinition, ToolMode
from maka_trio.facts.outcome import EffectFailed, EffectUnknown
from maka_trio.history import History
from maka_trio.log.event_log import EventLog
from maka_trio.tools.call import ToolCall
from maka_trio.tools.catalog import ToolCatalog, ToolRegistration
from maka_trio.tools.journal import Operation, Performed, ToolJournal


async def run_program(
    log: EventLog,
    code: CodeExecutor,
    program: str,
    tools: ToolCatalog,
    *,
    invocation: Invocation,
    output: Callable[[str], object] = lambda text: None,
) -> JSON:
    """Run a program against a catalog, journaled, as the only user of a log.

    It seals first what an earlier process left open. Cancelled, it stops the program at once, waits for the calls
    that were dispatched, and writes the end.

    Args:
        log: where everything is written.
        code: what the program runs with.
        program: its source.
        tools: what it may call; those that are `DIRECT_ONLY` it may not.
        invocation: the identity of the run.
        output: told, in whichever thread, of each text that the program writes.

    Returns:
        What `exec` would tell a model: `result` holds `ok` and `value` or `error`. No program that fails raises.

    Raises:
        InvalidInput: the program is too long, or the interpreter is not installed.
        ReconciliationRequired: the session's history may not be continued.
        LogInUse: an engine uses the log.
        CommitError, StoreError, CleanupUnconfirmed: as in a run; its end says so, unless the log itself failed.
    """
    check_instance(log, "log", EventLog)
    check_instance(code, "code", CodeExecutor)
    check_instance(tools, "tools", ToolCatalog)
    code.require()
    size = utf8_size(program, "the program")
    if size > code.limits.source_bytes:
        raise InvalidInput(f"the program has {size} bytes; the limit is {code.limits.source_bytes}")
    with log.claim():
        await log.recover()
        await log.require_safe(invocation.session_id)
        ledger = RunLedger(log, invocation, History())
        configuration = InvocationConfiguration(tool_mode=ToolMode.CODE)
        await trio.lowlevel.checkpoint_if_cancelled()
        await ledger.record(InvocationOpened(CodeOpening(program), configuration))
        return await _run(log, ledger, code, program, tools, output)


async def _run(
    log: EventLog,
    ledger: RunLedger,
    code: CodeExecutor,
    program: str,
    tools: ToolCatalog,
    output: Callable[[str], object],
) -> JSON:
    journal = ToolJournal(ledger, ledger.invocation, shielded=True)
    error: BaseException | None = None
    try:
        async with open_cells(
            code, journal, ledger, ledger.invocation, tools, log_name=log.name, output=output
        ) as cells:
            operation = Operation(new_id(), ToolCallIdentity(new_id(), Standalone()), EXEC, {"code": program})
            return _told(await journal.perform(operation, _standing_alone(cells, program)))
    except BaseException as caught:
        error = caught
        raise
    finally:
        with trio.CancelScope(shield=True):  # a local commit, which ends by itself
            await write_end(log, ledger, error)


def _standing_alone(cells: CodeCells, program: str) -> ToolRegistration:
    return ToolRegistration(ToolDefinition(EXEC, "", True), partial(_effect, cells, program), built_in=True)


async def _effect(cells: CodeCells, program: str, given: JSON, call: ToolCall) -> JSON:
    return await cells.run_to_end(program, call)


def _told(performed: Performed) -> JSON:
    if performed.payload is not None:
        return parse_json(performed.payload, what="the result of a program")
    match performed.fact:
        case ToolRejected(reason=reason):
            message = str(reason)
        case settled:
            outcome = settled.outcome
            message = outcome.message if isinstance(outcome, (EffectFailed, EffectUnknown)) else outcome.kind
    return {"result": {"ok": False, "error": {"kind": "execution_error", "message": message}, "toolCalls": 0}}

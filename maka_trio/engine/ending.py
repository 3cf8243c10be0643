"""The end of a run: the last thing that is written of it, whatever became of it.

It is made of what the run knows. Where that does not do, because the log has refused something that the run took for
written, or refuses the end, the log ends the run by what it has itself.
"""

from __future__ import annotations

from maka_trio.engine.attempt import rejected_call
from maka_trio.engine.ledger import RunLedger
from maka_trio.engine.outcome import outcome_of
from maka_trio.errors import CommitUnknown, LogClosed, LogFull
from maka_trio.facts.event import Fact, InvocationEnded, ModelInterrupted
from maka_trio.facts.outcome import InterruptionStatus, InvocationOutcome, ToolRejection
from maka_trio.history import History
from maka_trio.log.event_log import EventLog


async def write_end(log: EventLog, ledger: RunLedger, error: BaseException | None) -> InvocationOutcome | None:
    """Write the end, under the caller's shield, and return what it says; None if the run had one already.

    No local call is left open before it, and it says so where an effect is unsettled.

    Args:
        log: where the run stands.
        ledger: what it wrote with.
        error: what it ended with; None if it answered.

    Raises:
        CommitError, StoreError: the log cannot be written. It then has no end, which whoever needs the session next
            writes, or the next recovery.
        Exception: what kept a run without an error from ending as completed. Its end says failed.
    """
    fault: Exception | None = None
    if ledger.uncertain or not ledger.ahead:
        outcome = outcome_of(error, unsettled=bool(ledger.history.operations_in_flight))
        try:
            await ledger.record(*_answers(ledger.history), InvocationEnded(outcome))
        except (CommitUnknown, LogFull, LogClosed):
            raise
        except Exception as refused:
            fault = refused
        else:
            return outcome
    sealed = await _seal(log, ledger.invocation.session_id, fault if error is None else error)
    if error is None and fault is not None:
        raise fault
    return sealed


def _answers(history: History) -> list[Fact]:
    """What closes the requests and calls of the open invocation."""
    steps = (ModelInterrupted(step_id, InterruptionStatus.FAILED) for step_id in history.open_steps())
    calls = (rejected_call(step_id, call, ToolRejection.cancelled()) for step_id, call in history.open_calls())
    return [*steps, *calls]


async def _seal(log: EventLog, session_id: str, error: BaseException | None) -> InvocationOutcome | None:
    ends: list[InvocationOutcome] = []

    def end(*, unsettled: bool) -> InvocationOutcome:
        ends.append(outcome_of(error, unsettled=unsettled))
        return ends[-1]

    await log.seal(session_id, end)
    return ends[-1] if ends else None

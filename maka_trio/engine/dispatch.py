"""A step's calls, in order (semantics 3.4 and 5.3).

One call at a time is the rule. With `tool_concurrency` n, up to n `PARALLEL` calls run at once: their T1 are
committed in call order, their T2 as they finish. On an abort nothing new is dispatched and what runs is drained;
the calls that were never dispatched are rejected by whoever writes the run's end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from maka_trio.engine.ledger import RunLedger
from maka_trio.facts.event import ToolSettled
from maka_trio.facts.model import ModelToolCall
from maka_trio.facts.outcome import Succeeded, ToolRejection
from maka_trio.records import frozen
from maka_trio.tools.admission import StepAdmission
from maka_trio.tools.catalog import ToolCatalog, ToolRegistration, ToolSemantics
from maka_trio.tools.journal import ToolJournal


@frozen
class _Planned:
    call: ModelToolCall
    registration: ToolRegistration | None
    rejection: ToolRejection | None


async def dispatch_calls(
    journal: ToolJournal,
    ledger: RunLedger,
    step_id: str,
    calls: Sequence[ModelToolCall],
    catalog: ToolCatalog,
    *,
    concurrency: int = 1,
) -> bool:
    """Give every call its outcome; return whether a finish-turn tool succeeded.

    Raises:
        CommitError, StoreError, CleanupUnconfirmed: fatal; the operation it happened to stays unsettled.
    """
    step = _Step(journal, ledger, step_id)
    plan = _plan(calls, catalog)
    if concurrency == 1:
        for planned in plan:
            await step.resolve(planned)
    else:
        await _resolve_concurrently(step, plan, concurrency)
    return step.finishes_turn


def _plan(calls: Sequence[ModelToolCall], catalog: ToolCatalog) -> list[_Planned]:
    """Admission is decided for the whole step at once: an exclusive call concerns its siblings."""
    admission = StepAdmission()
    plan = []
    for call in calls:
        registration = catalog.get(call.name)
        plan.append(_Planned(call, registration, admission.admit(registration)))
    return plan


class _Step:
    def __init__(self, journal: ToolJournal, ledger: RunLedger, step_id: str) -> None:
        self._journal = journal
        self._ledger = ledger
        self._step_id = step_id
        self.finishes_turn = False

    async def resolve(self, planned: _Planned, dispatched: Callable[[], None] = lambda: None) -> None:
        """Bring one call to its outcome; `dispatched` is called once its T1 is durable."""
        if planned.rejection is not None or planned.registration is None:
            await self._journal.reject(self._step_id, planned.call, planned.rejection or ToolRejection.unavailable())
            return
        if planned.registration.waits:
            await self._ledger.flush()  # it may ask a person, who takes their time
        settled = await self._journal.execute(
            self._step_id, planned.call, planned.registration, dispatched=dispatched, settle=self._ledger.commit_soon
        )
        if isinstance(settled, ToolSettled) and isinstance(settled.outcome, Succeeded):
            self.finishes_turn |= planned.registration.semantics is ToolSemantics.FINISH_TURN


async def _resolve_concurrently(step: _Step, plan: Sequence[_Planned], concurrency: int) -> None:
    """Failures are kept as values, so that the first comes out bare and the siblings are drained before it."""
    capacity = trio.Semaphore(concurrency)
    failures: list[Exception] = []

    async def resolve(planned: _Planned, ready: trio.Event) -> None:
        try:
            await step.resolve(planned, ready.set)
        except Exception as error:
            failures.append(error)
            nursery.cancel_scope.cancel("a sibling call failed the run")
        finally:
            ready.set()
            capacity.release()

    async with trio.open_nursery() as nursery:
        for planned in plan:
            await capacity.acquire()
            ready = trio.Event()
            nursery.start_soon(resolve, planned, ready)
            await ready.wait()
    if failures:
        raise failures[0]

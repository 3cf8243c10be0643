"""A process that is killed: nothing acknowledged is lost, nothing runs twice, and the next run is told."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from maka_trio import facts
from maka_trio.engine import Engine
from maka_trio.errors import ReconciliationRequired
from maka_trio.laws import check
from maka_trio.log import EventLog
from maka_trio.models import ModelExecutor
from maka_trio.testing import ScriptedProvider
from tests.engine.crash_child import STUCK, live
from tests.engine.scene import Scene, echo, registration
from tests.forked import forked, said

ROUNDS = 20


def run_and_kill(folder: Path, after: int) -> dict[int, str]:
    """Let a child tell of `after` events (fewer if it gets stuck first), kill it; return what it said was durable."""
    acknowledged: dict[int, str] = {}
    with forked(live, folder) as (_, reading):
        for told in said(reading):
            if told == STUCK:
                break
            acknowledged |= [told]
            if len(acknowledged) >= after:
                break
    return acknowledged


@pytest.mark.parametrize("round_number", range(ROUNDS))
async def test_a_killed_run_is_recovered_without_a_second_effect(tmp_path: Path, round_number: int) -> None:
    """Killed after the n-th durable event, for n all over the run; then reopened, recovered and continued."""
    acknowledged = run_and_kill(tmp_path, after=round_number + 1)
    async with EventLog.open(tmp_path / "log.sqlite") as log:
        before = await log.prefix(10_000, 1 << 24)
        found = {stored.sequence: stored.event.id for stored in before.events}
        assert acknowledged.items() <= found.items()
        await check_recovery(log, tmp_path, before)


async def check_recovery(log: EventLog, folder: Path, before: facts.LogPrefix) -> None:
    effects = (folder / "effects").read_text().splitlines() if (folder / "effects").exists() else []
    assert all(count == 1 for count in Counter(effects).values())
    async with ScriptedProvider() as provider, ModelExecutor(10) as models, Engine(log, models) as engine:
        it = Scene(provider, log, models, engine)
        recovered = await log.prefix(10_000, 1 << 24)
        assert list(check(recovered.events)) == []
        projection = recovered.project_invocation(before.events[0].event.invocation.invocation_id)
        uncertain = projection.uncertain_operations
        expected = facts.FailureClass.OUTCOME_UNKNOWN if uncertain else facts.FailureClass.HOST_INTERRUPTED
        assert projection.terminal == facts.Failed(expected)
        provider.say("I see.")
        if uncertain:
            with pytest.raises(ReconciliationRequired):
                await engine.run(it.input("next"))
        await engine.run(it.input("next", tools=[registration("append", echo)], allow_prior_unknown=bool(uncertain)))
        assert list(check((await log.prefix(10_000, 1 << 24)).events)) == []
        dispatched = {
            stored.event.fact.operation_id
            for stored in recovered.events
            if isinstance(stored.event.fact, facts.ToolDispatched)
        }
        assert set(effects) <= dispatched
    after = (folder / "effects").read_text().splitlines() if (folder / "effects").exists() else []
    assert after == effects, "nothing ran again"
    assert await log.recover() == 0

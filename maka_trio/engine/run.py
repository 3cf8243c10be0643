"""One run: its opening, its steps, its end.

What may be aborted is awaited in the open; what was committed or dispatched is not taken back. Whatever happens
between opening and end, the end is written last and under a shield, with every call answered in the same commit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from maka_trio import limits
from maka_trio.engine.attempt import AcceptedStep, PreparedRequest, RetryPolicy, take_step
from maka_trio.engine.continuation import ContinuationCheck, claimed
from maka_trio.engine.dispatch import dispatch_calls
from maka_trio.engine.ending import write_end
from maka_trio.engine.input import ContinuationWork, RunInput
from maka_trio.engine.ledger import RunLedger
from maka_trio.engine.media import with_media
from maka_trio.engine.outcome import error_of
from maka_trio.engine.repeats import Asked, ended_before
from maka_trio.engine.steering import Steering
from maka_trio.errors import CommitUnknown, MakaError, ModelIncomplete, StepLimit
from maka_trio.facts.event import EventWrite, InvocationOpened
from maka_trio.facts.message import Message
from maka_trio.facts.opening import ContinuationOpening, MessageOpening, RequestSurface, ToolMode
from maka_trio.facts.outcome import Cancelled, InvocationOutcome
from maka_trio.facts.scope import Lineage, Scope, Session
from maka_trio.history import History
from maka_trio.log.admission import Admission
from maka_trio.log.event_log import EventLog
from maka_trio.log.invocations import InvocationRecord
from maka_trio.models.executor import ModelExecutor
from maka_trio.protocol.pauses import is_paused
from maka_trio.records import frozen
from maka_trio.request import ModelRequest, PromptMemo
from maka_trio.tools.catalog import ToolCatalog
from maka_trio.tools.journal import ToolJournal

if TYPE_CHECKING:  # Code Mode is an extra, imported where it is asked for
    from maka_trio.code.cells import CodeCells
    from maka_trio.code.executor import CodeExecutor


@frozen
class Means:
    """What every run of an engine works with."""

    log: EventLog
    models: ModelExecutor
    retry: RetryPolicy
    code: CodeExecutor | None = None
    unsealed: dict[str, str] = attrs.field(factory=dict)
    """By session, the invocation that may be open in the log: it runs, or its end could not be written."""


class Run:
    """One run of a session.

    Args:
        means: the engine's log and models.
        run_input: what was asked for, already validated.
        opening: its first fact.
    """

    def __init__(self, means: Means, run_input: RunInput, opening: EventWrite) -> None:
        self._means = means
        self._input = run_input
        self._opening = opening
        self._history = History()
        alone = run_input.configuration.tool_mode is ToolMode.DIRECT and run_input.configuration.tool_concurrency == 1
        self._ledger = RunLedger(means.log, run_input.invocation, self._history, patient=alone)
        self._journal = ToolJournal(self._ledger, run_input.invocation, shielded=True)
        self.asked = Asked.of(opening, run_input.request_fingerprint)
        self.steering = Steering()
        self._outcome: InvocationOutcome | None = None
        self._route = run_input.provider.route_identity()
        self._memo = PromptMemo()

    @property
    def operations_in_flight(self) -> tuple[str, ...]:
        """Effects dispatched and not settled."""
        return self._history.operations_in_flight

    @property
    def tools_in_flight(self) -> tuple[str, ...]:
        """Their tools, in the same order."""
        return self._history.tools_in_flight

    def stopped(self) -> MakaError | None:
        """What a run that was stopped from outside failed with: what its end says, if it has one."""
        return error_of(Cancelled() if self._outcome is None else self._outcome)

    async def execute(self, admitted: Callable[[int], None], recalled: Callable[[InvocationRecord], None]) -> None:
        """Do the whole run, unless it was done before.

        Args:
            admitted: called with the sequence of the opening once it is durable.
            recalled: called instead where the log has the end of this request; what it ended with is raised.

        Raises:
            RunError, CommitError, StoreError: before admission, with nothing written; or after it, with the end
                durable (unless the log itself failed).
            ModelError, ToolError: after the end is durable.
        """
        found = await self._look()
        before = ended_before(self.asked, found.before)
        if before is not None:
            recalled(before)
            if before.outcome is not None and (error := error_of(before.outcome)) is not None:
                raise error
            return
        await self._admit(found)
        admitted(self._ledger.last_sequence)
        failure: BaseException | None = None
        try:
            await self._answer()
        except BaseException as caught:
            failure = caught
            raise
        finally:
            self.steering.close()
            with trio.CancelScope(shield=True):  # a local commit, which ends by itself
                self._outcome = await write_end(self._means.log, self._ledger, failure)
            self._means.unsealed.pop(self._input.invocation.session_id)

    # --- opening ------------------------------------------------------------------------------------------

    async def _look(self) -> Admission:
        """What the log has of this request and its session."""
        asked, work = self.asked, self._input.work
        ask = partial(self._means.log.admission, asked.invocation, asked.fingerprint)
        if isinstance(work, ContinuationWork):
            return await ask(allow_prior_unknown=False, history=False)
        return await ask(allow_prior_unknown=work.allow_prior_unknown, history=True)

    async def _admit(self, found: Admission) -> None:
        self._means.models.check(self._sample())
        if await self._finish_earlier():
            found = await self._look()
        for stored in found.take_history():
            self._history.push(stored.event)
        if isinstance(self._input.work, ContinuationWork):
            self._opening, _ = await claimed(self._means.log, self._opening, self._history)
        await trio.lowlevel.checkpoint_if_cancelled()
        await self._open()

    def _sample(self) -> ModelRequest:
        """A request like those of the run, but for the conversation: what is wrong with it is wrong with each."""
        run_input, opened = self._input, self._opening.event.fact
        assert isinstance(opened, InvocationOpened)
        assert isinstance(opened.input, (MessageOpening, ContinuationOpening))
        surface = opened.input.surface or RequestSurface()
        return ModelRequest(
            provider=run_input.provider,
            prompt=(Message.user("?"),),
            tools=surface.tools,
            provider_options=surface.provider_options,
            max_output_tokens=surface.max_output_tokens,
        )

    async def check(self, *, repeated: bool) -> ContinuationCheck:
        """What a continuation would claim and replay. Refuses what admission would refuse, and writes nothing.

        Args:
            repeated: the same request holds the session.

        Raises:
            RunError, CommitError, StoreError: what admission would raise.
        """
        log = self._means.log
        self._means.models.check(self._sample())
        found = await self._look()
        repeated = repeated or ended_before(self.asked, found.before) is not None
        if not repeated:
            found.take_history()
        opening, check = await claimed(log, self._opening, History())
        if not repeated:
            await log.check(opening)
        return check

    async def _open(self) -> None:
        invocation, unsealed = self._input.invocation, self._means.unsealed
        unsealed[invocation.session_id] = invocation.invocation_id
        try:
            await self._ledger.commit(self._opening)
            del self._opening  # the log has it, and a run is long: its media need not stay
        except CommitUnknown:
            raise
        except BaseException:
            del unsealed[invocation.session_id]
            raise

    async def _finish_earlier(self) -> bool:
        """Write the end of the run before this one, if that run could not: the disk was full, or a commit failed.

        Returns:
            Whether there was one.
        """
        log, session_id = self._means.log, self._input.invocation.session_id
        earlier = self._means.unsealed.get(session_id)
        if earlier is None:
            return False
        record = await log.find_invocation(earlier)
        if record is not None and record.outcome is None:
            await log.seal(session_id)
        del self._means.unsealed[session_id]
        return True

    # --- steps --------------------------------------------------------------------------------------------

    async def _answer(self) -> None:
        if self._input.configuration.tool_mode is ToolMode.DIRECT:
            await self._take_steps(self._input.work.tools)
            return
        assert self._means.code is not None  # looked at before the opening
        from maka_trio.code.cells import open_cells

        invocation, tools = self._input.invocation, self._input.work.tools
        code, name = self._means.code, self._means.log.name
        async with open_cells(code, self._journal, self._ledger, invocation, tools, log_name=name) as cells:
            await self._take_steps(cells.catalog, cells)

    async def _take_steps(self, tools: ToolCatalog, cells: CodeCells | None = None) -> None:
        steps = pauses = 0
        while True:
            await self._take_steering()
            if self._input.work.max_steps == steps:
                raise StepLimit(f"the run made {steps} steps and the model wants more; max_steps is {steps}")
            accepted = await self._take_step(tools)
            steps += 1
            await trio.lowlevel.checkpoint_if_cancelled()  # a cancel that came with the answer keeps its tools away
            if accepted.output.local_calls():
                if await self._dispatch(accepted, tools):
                    return
            elif is_paused(accepted.output):
                pauses += 1
                if pauses > limits.PAUSED_TURNS:
                    raise ModelIncomplete(f"the provider paused the turn more than {limits.PAUSED_TURNS} times")
            elif not self._history.notified:  # else a program told the model something that it has not seen
                if not self.steering:
                    return
                if cells is not None:
                    await cells.stop()  # the model is done with them, and a message joins when nothing is in flight

    async def _take_steering(self) -> None:
        """Add what the user said meanwhile, where nothing of the run is in flight; programs may be."""
        if self._history.operations_in_flight:
            return
        taken, most = self.steering.take(), limits.BATCH_EVENTS // 2
        durable = 0
        try:
            for start in range(0, len(taken), most):
                some = taken[start : start + most]
                await self._ledger.commit_batch([message.write(self._input.invocation) for message in some])
                durable += len(some)
        finally:
            self.steering.settle(taken[:durable], durable=True)
            self.steering.settle(taken[durable:], durable=False)

    async def _take_step(self, tools: ToolCatalog) -> AcceptedStep:
        means, prepared = self._means, await self._prepare(tools)
        is_followed = partial(means.log.is_followed, self._input.invocation.session_id)
        return await take_step(self._ledger, means.models, prepared, means.retry, is_followed)

    async def _prepare(self, tools: ToolCatalog) -> PreparedRequest:
        """Capture the request once; every attempt of the step sends the same."""
        run_input = self._input
        route, model = self._route, run_input.provider.model
        prompt = self._history.prompt(route_identity=route, model_id=model)
        input_digest = self._history.input_digest(route_identity=route, model_id=model)
        if self._history.holds_media:
            session_id, vision = run_input.invocation.session_id, run_input.supports_vision
            prompt = await with_media(self._means.log, session_id, prompt, vision=vision)
        request = ModelRequest(
            provider=run_input.provider,
            prompt=prompt,
            tools=tools.definitions(),
            provider_options=run_input.provider_options,
            max_output_tokens=run_input.max_output_tokens,
            memo=self._memo,
        )
        return PreparedRequest(request, _scope(run_input), input_digest, route)

    async def _dispatch(self, accepted: AcceptedStep, tools: ToolCatalog) -> bool:
        return await dispatch_calls(
            self._journal,
            self._ledger,
            accepted.step_id,
            accepted.output.local_calls(),
            tools,
            concurrency=self._input.configuration.tool_concurrency,
        )


def _scope(run_input: RunInput) -> Scope:
    """What the requests of a run are made from."""
    invocation = run_input.invocation
    if isinstance(run_input.work, ContinuationWork):
        return Lineage(invocation.session_id, invocation.run_id)
    return Session(invocation.session_id)

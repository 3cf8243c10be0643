"""`Engine`: the nursery that owns every admitted run and outlives their callers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

import trio

from maka_trio import limits
from maka_trio.engine.attempt import RetryPolicy
from maka_trio.engine.continuation import ContinuationCheck
from maka_trio.engine.input import ContinuationWork, RunInput, opening
from maka_trio.engine.run import Means, Run
from maka_trio.engine.running import RunningInvocation
from maka_trio.errors import Busy, EngineClosed, InvalidInput, MakaError, RunCancelled
from maka_trio.facts.bounds import check_identity, check_instance, check_integer
from maka_trio.facts.identity import Invocation
from maka_trio.log.event_log import EventLog
from maka_trio.models.executor import ModelExecutor
from maka_trio.records import frozen
from maka_trio.scopes import Home, owned_nursery

if TYPE_CHECKING:  # Code Mode is an extra, imported where it is asked for
    from maka_trio.code.executor import CodeExecutor


@frozen
class ActiveRun:
    """A run that holds its session, and the effects it has in flight."""

    invocation: Invocation
    operation_ids: tuple[str, ...]
    tool_names: tuple[str, ...] = ()
    """The tools of these operations, in the same order."""


@frozen
class EngineStatistics:
    """A snapshot of an engine."""

    active: tuple[ActiveRun, ...]
    draining: bool


class Engine:
    """Admits runs and sees each to its durable end.

        async with Engine(log, models) as engine:
            done = await engine.run(run_input)

    Entering it seals what an earlier process left open in the log. Leaving it drains: nothing is cancelled by
    leaving. Where the block is cancelled or fails, the runs are cancelled, and still drained. One engine uses a log
    at a time.

    Args:
        log: where everything is written.
        models: where model requests go.
        code: what programs run with; runs in `ToolMode.CODE` need it.
        retry: how replay-safe failures are tried again.
        message_bytes: the text one user message may have, in UTF-8.
    """

    def __init__(
        self,
        log: EventLog,
        models: ModelExecutor,
        code: CodeExecutor | None = None,
        *,
        retry: RetryPolicy | None = None,
        message_bytes: int = limits.MESSAGE_TEXT_BYTES,
    ) -> None:
        _check_means(log, models, code, retry)
        check_integer(message_bytes, "message_bytes", minimum=1, maximum=limits.REQUEST_BODY_BYTES)
        self._means = Means(log, models, retry if retry is not None else RetryPolicy(), code)
        self.code = code
        self._message_bytes = message_bytes
        self._active: dict[str, tuple[RunningInvocation, Run]] = {}
        self._nursery: trio.Nursery | None = None
        self._home: Home | None = None
        self._draining = False
        self._block: AbstractAsyncContextManager[None] | None = None

    # --- the block ----------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._block is not None:
            raise EngineClosed("an engine is entered once")
        self._block = self._open()
        self._home = Home("the engine")
        await self._block.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._block is not None
        return await self._block.__aexit__(kind, error, traceback)  # noqa: ASYNC102 - the block shields what it must

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[None, None]:
        with self._means.log.claim():
            await self._means.log.recover()
            try:
                async with owned_nursery() as nursery:
                    self._nursery = nursery
                    try:
                        yield
                    finally:
                        self._draining = True
            finally:
                with trio.CancelScope(shield=True):  # local commits, which end by themselves
                    await self._seal_the_rest()

    async def _seal_the_rest(self) -> None:
        """Write the ends that could not be written. What still cannot is the next recovery's."""
        for session_id in tuple(self._means.unsealed):
            with suppress(MakaError):
                await self._means.log.seal(session_id)

    # --- runs ---------------------------------------------------------------------------------------------

    async def run(self, run_input: RunInput) -> Invocation:
        """Start a run, wait for its end and return its identity; a repeated request has that of the first.

        Cancelling the call raises `trio.Cancelled` in it at once and cancels this run; the run drains in the engine,
        and its session stays busy until its end is durable.

        Raises:
            RunError, ModelError, ToolError, CommitError, StoreError: as `start` and `RunningInvocation.wait` do.
        """
        running, mine = await self._start(run_input)
        try:
            await running.wait()
        except trio.Cancelled:
            if mine:
                running.cancel("the caller was cancelled")
            raise
        return running.invocation

    async def start(self, run_input: RunInput) -> RunningInvocation:
        """Admit a run; returns once its opening is durable.

        A request is run once. The same invocation id, or the same `request_fingerprint` in a session, again returns
        the handle of the run that has it, or a finished one whose `wait` says how that run ended, also when another
        process ran it. Only who had it admitted cancels it by being cancelled.

        Raises:
            InvalidInput: refused by what can be known without the log; or the run that is to be continued is not where
                its boundary says, or cannot be continued with these settings. Nothing was written.
            CommitRejected: `reason` is `conflict`: the id or fingerprint was used for something else, or the run is
                continued already. Nothing was written.
            SessionRetired: the session takes no more runs. Nothing was written.
            Busy: another run holds the session.
            ReconciliationRequired: the session's history may not be continued.
            PrefixTooLarge: the session has outgrown what a run reads of it. Nothing was written.
            EngineClosed: the engine admits no more runs.
            CommitError, StoreError: the opening was not acknowledged.
        """
        return (await self._start(run_input))[0]

    async def _start(self, run_input: RunInput) -> tuple[RunningInvocation, bool]:
        """The handle, and whether the run was begun by this call."""
        first = opening(run_input, message_bytes=self._message_bytes, code=self.code)
        while True:  # noqa: ASYNC913 - each round waits for an admission
            running, mine = self._claim_session(run_input, Run(self._means, run_input, first))
            try:
                await running.wait_admitted()
            except trio.Cancelled:
                if mine:
                    running.cancel("the caller was cancelled")
                raise
            except RunCancelled:
                if mine:
                    raise
                continue  # whoever asked first gave up before anything was written
            return running, mine

    async def check_continuation(self, run_input: RunInput) -> ContinuationCheck:
        """What a run with `ContinuationWork` would claim and replay. Nothing is written.

        So an earlier run whose end could not be written, which `start` would end first, stands in its way.

        Raises:
            InvalidInput, CommitRejected, SessionRetired, Busy, ReconciliationRequired, EngineClosed, StoreError: what
                `start` would raise.
        """
        first = opening(run_input, message_bytes=self._message_bytes, code=self.code)
        if not isinstance(run_input.work, ContinuationWork):
            raise InvalidInput(f"check_continuation takes ContinuationWork, not {type(run_input.work).__name__}")
        run = Run(self._means, run_input, first)
        return await run.check(repeated=self._holder(run) is not None)

    async def drain(self) -> None:
        """Admit no more runs and wait for all, also for those whose callers are gone. Cancels nothing.

        `statistics` says which runs and operations it still waits for. Not for a tool of such a run, nor is
        `wait_idle`: it would wait for itself.
        """
        self._check_home()
        self._draining = True
        await trio.lowlevel.checkpoint()
        while self._active:
            running, _ = next(iter(self._active.values()))
            await running.wait_finished()

    async def wait_idle(self, session_id: str) -> None:
        """Wait until no run holds the session. Another caller may be faster: be ready for `Busy`.

        Raises:
            InvalidInput: that is no session's id.
        """
        check_identity(session_id, "session_id")
        self._check_home()
        await trio.lowlevel.checkpoint()
        while session_id in self._active:
            await self._active[session_id][0].wait_finished()

    def statistics(self) -> EngineStatistics:
        """Which runs hold their sessions, and what they have in flight."""
        return EngineStatistics(
            tuple(
                ActiveRun(running.invocation, run.operations_in_flight, run.tools_in_flight)
                for running, run in self._active.values()
            ),
            self._draining,
        )

    def _claim_session(self, run_input: RunInput, run: Run) -> tuple[RunningInvocation, bool]:
        """Check and claim in one step: there is no checkpoint between the two.

        Returns:
            The handle, and whether the session was claimed for it: not where the same request holds it already.
        """
        holder = self._holder(run)
        if holder is not None:
            return holder, False
        assert self._nursery is not None
        session_id = run_input.invocation.session_id
        running = RunningInvocation(self._means.log, run_input.invocation, run.steering, self._message_bytes)
        self._active[session_id] = (running, run)
        self._nursery.start_soon(self._work, running, run, name=f"run {run_input.invocation.run_id}")
        return running, True

    def _holder(self, run: Run) -> RunningInvocation | None:
        """The run of the same request that holds the session; None where the session is free, else Busy."""
        if self._nursery is None or self._draining:
            raise EngineClosed("the engine admits no runs: it is draining, closed, or not entered yet")
        self._check_home()
        session_id = run.asked.invocation.session_id
        if session_id not in self._active:
            return None
        running, holder = self._active[session_id]
        if run.asked.repeats(holder.asked):
            return running
        raise self._busy(session_id)

    def _check_home(self) -> None:
        if self._home is not None:
            self._home.check()

    def _busy(self, session_id: str) -> Busy:
        running, run = self._active[session_id]
        operations = run.operations_in_flight
        doing = f", with {', '.join(operations)} in flight" if operations else ""
        return Busy(
            f"session {session_id!r} is held by run {running.invocation.run_id!r}{doing}",
            session_id=session_id,
            run_id=running.invocation.run_id,
            operation_ids=operations,
        )

    async def _work(self, running: RunningInvocation, run: Run) -> None:
        """One run's task. It keeps its failure as a value: the engine's nursery never sees it."""
        failure: Exception | None = None
        done = False
        try:
            with running.scope:
                await run.execute(running.admitted, running.recalled)
                done = True
        except Exception as error:
            failure = error
        finally:
            del self._active[running.invocation.session_id]
            running.settle(failure if done or failure is not None else run.stopped())


def _check_means(log: object, models: object, code: object, retry: object) -> None:
    """Raise InvalidInput for what an engine cannot work with."""
    kinds: list[tuple[str, object, type]] = [("log", log, EventLog), ("models", models, ModelExecutor)]
    if retry is not None:
        kinds.append(("retry", retry, RetryPolicy))
    if code is not None:
        from maka_trio.code.executor import CodeExecutor

        kinds.append(("code", code, CodeExecutor))
    for name, value, kind in kinds:
        check_instance(value, name, kind)

"""The demo's three turns, and what they promise. Each promise is checked where it is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import trio

from maka_trio import laws
from maka_trio.cli import demo_shop as script
from maka_trio.cli.live import RunView
from maka_trio.cli.screen import Look, Screen
from maka_trio.cli.timeline import TimelinePrinter
from maka_trio.cli.words import Words, excerpt, json_excerpt
from maka_trio.engine.attempt import RetryPolicy
from maka_trio.engine.engine import Engine
from maka_trio.engine.input import MessageWork, RunInput
from maka_trio.errors import Busy, MakaError, ModelError, RunError
from maka_trio.facts.event import InvocationEnded, ToolDispatched
from maka_trio.facts.identity import Invocation
from maka_trio.facts.json_value import JSON
from maka_trio.facts.opening import InvocationConfiguration
from maka_trio.facts.scope import Session
from maka_trio.limits import MIB
from maka_trio.log.event_log import EventLog
from maka_trio.log.follow import Follower
from maka_trio.models.executor import ModelExecutor
from maka_trio.records import frozen
from maka_trio.request import ProviderKind
from maka_trio.scopes import owned_nursery
from maka_trio.testing import ScriptedProvider

WORD_SECONDS = 0.06
BEAT_SECONDS = 1.2
"""The pace of `--slow`. Without it, everything follows from events alone."""

TIMELINE_EVENTS = 1_000_000
TIMELINE_BYTES = 256 * MIB


@frozen(kw_only=True)
class PlayOptions:
    """What of the play can be chosen."""

    kind: ProviderKind = ProviderKind.OPENAI_CHAT_COMPLETIONS
    dialect: str | None = None
    recording: bytes | None = None
    slow: bool = False
    keeps_log: bool = False


async def perform(screen: Screen, path: Path, options: PlayOptions) -> int:
    """Play it all; return 0 if every promise was kept, else 1."""
    where = f"the log {excerpt(str(path))}" if options.keeps_log else "a temporary log"
    screen.line(("maka-trio demo", Look.HEADING), f": two tools, a scripted provider on 127.0.0.1, {where}")
    async with (
        EventLog.open(path) as log,
        ScriptedProvider() as provider,
        ModelExecutor(idle_timeout=30.0) as models,
    ):
        session_id = await _fresh_session(log)
        play = Play(screen, options, log, provider, session_id)
        async with Engine(log, models, retry=RetryPolicy(retries=0)) as engine:
            await play.take_turns(engine)
        await play.show_log()
    if options.keeps_log:
        screen.line(("The log stays: ", Look.FAINT), f"maka-trio log {excerpt(str(path))}")
    return play.status


async def _fresh_session(log: EventLog) -> str:
    """A session that the log does not hold yet: a kept log may have seen the play before."""
    head = await log.head()
    return "shop" if head.high_water == 0 else f"shop-{head.high_water + 1}"


class Play:
    """One performance: three turns of one session.

    Args:
        screen: where it is shown.
        options: what was chosen.
        log: where it is recorded.
        provider: who plays the model.
        session_id: the session, which the log does not hold yet.
    """

    def __init__(
        self, screen: Screen, options: PlayOptions, log: EventLog, provider: ScriptedProvider, session_id: str
    ) -> None:
        self._screen = screen
        self._options = options
        self._log = log
        self._provider = provider
        self._session_id = session_id
        self._view = RunView(screen, screen, margins=True)
        self._shop = script.Shop()
        self._pause = WORD_SECONDS if options.slow else 0.0
        self._turn = 0
        self.status = 0

    async def take_turns(self, engine: Engine) -> None:
        """Take the three turns."""
        try:
            await self._answer_with_tools(engine)
            await self._abort_in_the_middle(engine)
            await self._go_on(engine)
        finally:
            # The engine drains whatever happens; an effect that waits for a cue would keep it for ever.
            self._shop.ordering.open()

    # --- the turns --------------------------------------------------------------------------------------------

    async def _answer_with_tools(self, engine: Engine) -> None:
        self._open_turn("A turn with tool calls")
        if self._options.recording is not None:
            self._provider.raw_sse(*script.replayed(self._options.recording, self._pause))
            self._say_next(script.AFTER_RECORDING)
        else:
            self._provider.say(*script.spoken(script.LOOK, self._pause), *script.STOCK_CALLS)
            self._say_next(script.STOCK_ANSWER)
        await self._run(engine, script.FIRST_QUESTION)

    async def _abort_in_the_middle(self, engine: Engine) -> None:
        self._open_turn("A turn that is aborted while an effect runs")
        self._provider.say(*script.spoken(script.ORDER, self._pause), *script.ORDER_CALLS)
        head = await self._log.head(Session(self._session_id))
        caller = _Caller(engine, self._asked(script.SECOND_QUESTION))
        follow = self._log.follow(after=head.high_water, session_id=self._session_id)
        async with follow as events, owned_nursery() as nursery:
            nursery.start_soon(caller.call, nursery.cancel_scope)
            await self._show_until(events, ToolDispatched)
            await self._shop.ordering.reached()
            await self._lose_interest(engine, caller)
            await self._show_until(events, InvocationEnded)
        caller.raise_failure()
        await engine.wait_idle(self._session_id)
        told = "it was told of the abort" if self._shop.heard_of_abort else "nobody told it of the abort"
        self._promise(
            self._shop.orders == [("blue mug", 20)] and self._shop.heard_of_abort,
            f"the effect happened once and is settled ({told}); the call after it was rejected and never began",
        )

    async def _lose_interest(self, engine: Engine, caller: _Caller) -> None:
        await self._tell("the order is on its way to the warehouse; now the caller is cancelled")
        await caller.cancel()
        self._promise(not self._shop.orders, "the caller is free, and the effect still runs")
        await self._meet_busy(engine)
        await self._tell("the warehouse answers")
        self._shop.ordering.open()

    async def _go_on(self, engine: Engine) -> None:
        self._open_turn("A turn that goes on from the durable history")
        self._provider.say(*script.spoken(script.FINAL_ANSWER, self._pause))
        await self._run(engine, script.THIRD_QUESTION)
        given = [(call_id, text) for call_id, text in answers_in(self._last_request()) if call_id in script.ORDERS]
        for call_id, text in given:
            called = f"place_order {json_excerpt(script.ORDERS[call_id])}"
            self._aside(Words("→", f"the provider was told of {called}: {excerpt(text)}"))
        self._promise(
            [call_id for call_id, _ in given] == list(script.ORDERS),
            "the history of the aborted turn was sent with each call answered once, in call order",
        )

    # --- what they are made of --------------------------------------------------------------------------------

    def _open_turn(self, title: str) -> None:
        self._turn += 1
        self._screen.rule(f"{self._turn}  {title}")

    def _say_next(self, text: str) -> None:
        """Script what the model says after the tools of this turn. A recording may end the turn without it."""
        turn = self._turn
        self._provider.say(*script.spoken(text, self._pause), when=lambda _: self._turn == turn)

    def _asked(self, question: str) -> RunInput:
        self._screen.line((f"  {'user':<8}", Look.FAINT), (question, Look.USER))
        return RunInput(
            invocation=Invocation.new(self._session_id),
            provider=self._provider.config(self._options.kind, model="scripted", **self._name()),
            work=MessageWork(question, self._shop.tools()),
            max_output_tokens=1000,
            configuration=InvocationConfiguration(system_prompt=script.SYSTEM_PROMPT),
        )

    def _name(self) -> dict[str, str]:
        return {} if self._options.dialect is None else {"name": self._options.dialect}

    async def _run(self, engine: Engine, question: str) -> None:
        """A whole turn, shown from its durable events. A turn that fails is shown as that: its end is a fact."""
        running = await engine.start(self._asked(question))
        async with running.events() as events:
            async for stored in events:
                self._view.show(stored)
        with suppress(ModelError, RunError):
            await running.wait()
        await self._beat()

    async def _show_until(self, events: Follower, kind: type[ToolDispatched | InvocationEnded]) -> None:
        async for stored in events:
            self._view.show(stored)
            if isinstance(stored.event.fact, kind):
                return

    async def _meet_busy(self, engine: Engine) -> None:
        try:
            await engine.run(self._asked(script.THIRD_QUESTION))
        except Busy as busy:
            self._promise(True, f"another turn is refused: Busy: {busy}")
        else:
            self._promise(False, "another turn of the session was admitted beside the one that drains")

    def _last_request(self) -> JSON:
        return self._provider.requests[-1].body

    # --- telling ----------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        await trio.sleep(BEAT_SECONDS if self._options.slow else 0)

    async def _tell(self, text: str) -> None:
        self._aside(Words("·", text, Look.STRONG))
        await self._beat()

    def _aside(self, words: Words) -> None:
        self._view.note("demo", words)

    def _promise(self, kept: bool, text: str) -> None:
        """Show a promise, and remember one that is broken."""
        self._aside(Words("✓", text, Look.GOOD) if kept else Words("✗", f"NOT SO: {text}", Look.BAD))
        if not kept:
            self.status = 1

    # --- the log ----------------------------------------------------------------------------------------------

    async def show_log(self) -> None:
        """The session's log as a timeline, and whether it is lawful."""
        self._screen.rule("The log")
        prefix = await self._log.prefix(TIMELINE_EVENTS, TIMELINE_BYTES, Session(self._session_id))
        printer = TimelinePrinter(self._screen, session=self._session_id)
        for stored in prefix.events:
            printer.push(stored)
        printer.finish()
        self._screen.line()
        broken = list(laws.check(prefix.events, scope=prefix.scope, digest=prefix.digest))
        for violation in broken:
            self._promise(False, str(violation))
        if not broken:
            self._promise(True, f"the {len(laws.LAWS)} laws hold over these {len(prefix.events)} events")


class _Caller:
    """A task that runs a turn and is cancelled before it ends."""

    def __init__(self, engine: Engine, run_input: RunInput) -> None:
        self._engine = engine
        self._input = run_input
        self._scope = trio.CancelScope()
        self._free = trio.Event()
        self._failure: MakaError | None = None

    async def call(self, watchers: trio.CancelScope) -> None:
        """Run the turn. Should it fail, nobody need watch it any more."""
        try:
            with self._scope:
                await self._engine.run(self._input)
        except MakaError as error:
            self._failure = error
            watchers.cancel("the turn failed")
        finally:
            self._free.set()

    async def cancel(self) -> None:
        """Cancel it, and wait until it is free."""
        self._scope.cancel("the demo's caller has lost interest")
        await self._free.wait()

    def raise_failure(self) -> None:
        """Raise what the turn failed with."""
        if self._failure is not None:
            raise self._failure


def answers_in(body: JSON) -> Iterator[tuple[str, str]]:
    """Call id and answer of every tool result in a request body, in the words of any of the protocols."""
    if isinstance(body, Mapping):
        for name in ("tool_call_id", "tool_use_id", "call_id"):
            answer = body.get("content", body.get("output"))
            if name in body and answer is not None:
                yield str(body[name]), answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        for value in body.values():
            yield from answers_in(value)
    elif isinstance(body, Sequence) and not isinstance(body, str):
        for value in body:
            yield from answers_in(value)

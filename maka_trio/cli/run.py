"""`maka-trio run`: one run against a real provider, its answer streamed as it becomes durable."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
import trio

from maka_trio import limits
from maka_trio.cli.interrupts import watching_signals
from maka_trio.cli.live import RunView, same_place
from maka_trio.cli.log_file import LogFile
from maka_trio.cli.providers import ROUTES, provider_of
from maka_trio.cli.screen import Look, stderr, stdout
from maka_trio.cli.toolbox import load_tools
from maka_trio.cli.usage import UsageError, positive_int, positive_seconds
from maka_trio.cli.words import excerpt, usage_texts
from maka_trio.engine.engine import ActiveRun, Engine
from maka_trio.engine.input import ContinuationWork, MessageWork, RunInput
from maka_trio.engine.running import RunningInvocation
from maka_trio.errors import RunCancelled
from maka_trio.facts.continuation import RunBoundary
from maka_trio.facts.event import InvocationEnded, ModelCompleted, ModelInterrupted, StoredEvent
from maka_trio.facts.identity import Invocation, new_id
from maka_trio.facts.model import ModelUsage
from maka_trio.facts.opening import InvocationConfiguration
from maka_trio.facts.outcome import InterruptionStatus
from maka_trio.log.event_log import EventLog
from maka_trio.models.executor import ModelExecutor
from maka_trio.records import frozen
from maka_trio.scopes import owned_nursery

DISPLAY_SECONDS = 1.0
"""What is left of the output gets so long to be taken, once an interrupted run has ended."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's own arguments."""
    parser = commands.add_parser(
        "run",
        help="ask a model one question",
        description="Asks a model one question, or lets it go on where a run stopped, and streams its answer: text to "
        "standard output, everything else to standard error. Ctrl-C aborts the run; what has begun is finished and "
        "recorded first.",
        allow_abbrev=False,
    )
    parser.add_argument("question", nargs="?", help="what to ask; - reads it from standard input")
    parser.add_argument(
        "--continue", dest="source", metavar="RUN", help="ask nothing: go on where this run of the session stopped"
    )
    parser.add_argument("--provider", required=True, choices=list(ROUTES), help="whose protocol to speak")
    parser.add_argument("--model", required=True, metavar="M", help="the model's name as the provider knows it")
    parser.add_argument("--base-url", metavar="URL", help="everything before /chat/completions, /responses, /messages")
    parser.add_argument("--name", metavar="DIALECT", help="the dialect of a compatible server, such as openrouter")
    parser.add_argument("--session", metavar="S", help="the session to go on with; a new one by default")
    parser.add_argument("--log", metavar="FILE", type=Path, help=f"the log; by default {_shown_default_log()}")
    parser.add_argument("--system", metavar="TEXT", help="the system prompt")
    parser.add_argument("--tools", metavar="MODULE:NAME", help="a ToolCatalog (or a list of tools) to offer")
    parser.add_argument("--max-output-tokens", metavar="N", type=positive_int, help="the output limit of each step")
    parser.add_argument("--max-steps", metavar="N", type=positive_int, help="give up after so many model steps")
    parser.add_argument(
        "--idle-timeout",
        metavar="S",
        type=positive_seconds,
        default=limits.IDLE_TIMEOUT,
        help="seconds of provider silence before a request is given up (%(default)g)",
    )
    parser.set_defaults(command=command)


def command(arguments: argparse.Namespace) -> int:
    """Run it."""
    asked = _asked(arguments)
    path = arguments.log or make_default_log_folder()
    if arguments.source is not None:
        path = LogFile(path).path  # a log that is not there would be created below
    return trio.run(_Turn(asked, path, arguments.idle_timeout).take)


@frozen
class _GoingOn:
    """A run that goes on from another one, whose end stands in the log."""

    session_id: str
    run_id: str
    make_input: Callable[[RunBoundary], RunInput]


def _asked(arguments: argparse.Namespace) -> RunInput | _GoingOn:
    """What is asked for. All that can be refused without the log is refused here."""
    if (arguments.question is None) == (arguments.source is None):
        raise UsageError("give a question, or --continue RUN to go on without one")
    if arguments.source is not None and arguments.session is None:
        raise UsageError("--continue needs the --session of its run")
    provider = provider_of(arguments.provider, arguments.model, base_url=arguments.base_url, name=arguments.name)
    tools = load_tools(arguments.tools)

    def run_input(work: MessageWork | ContinuationWork) -> RunInput:
        return RunInput(
            invocation=Invocation.new(f"cli-{new_id()[:8]}" if arguments.session is None else arguments.session),
            provider=provider,
            work=work,
            max_output_tokens=arguments.max_output_tokens,
            configuration=InvocationConfiguration(system_prompt=arguments.system),
        )

    if arguments.source is not None:
        going_on = partial(ContinuationWork, tools=tools, max_steps=arguments.max_steps)
        return _GoingOn(arguments.session, arguments.source, lambda source: run_input(going_on(source)))
    question = _standard_input() if arguments.question == "-" else arguments.question
    return run_input(MessageWork(question, tools, max_steps=arguments.max_steps))


def _standard_input() -> str:
    """The question, read only as far as the library would refuse it for its length anyway."""
    try:
        return sys.stdin.read(limits.MESSAGE_TEXT_BYTES + 1)
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is no {error.encoding} text: {error.reason}") from None


# --- where the log is -----------------------------------------------------------------------------------------


def default_log() -> Path:
    """The log that is used when none is named: in the user's state folder (XDG base directories)."""
    configured = os.environ.get("XDG_STATE_HOME", "")
    state = Path(configured) if Path(configured).is_absolute() else _home() / ".local" / "state"
    return state / "maka-trio" / "log.sqlite"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise UsageError("there is no home folder to keep a log in: name one with --log") from None


def make_default_log_folder() -> Path:
    """The default log, its folder made for this user alone."""
    path = default_log()
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    return path


def _shown_default_log() -> str:
    return "$XDG_STATE_HOME/maka-trio/log.sqlite or ~/.local/state/maka-trio/log.sqlite"


# --- the turn -------------------------------------------------------------------------------------------------


class _AnswerView(RunView):
    """The view of a run whose failure is told once, by whoever asked for it."""

    def show(self, stored: StoredEvent) -> None:
        """Show one event, but not how the run ended."""
        match stored.event.fact:
            case InvocationEnded():
                self.finish()
            case ModelInterrupted(status=status) if status is not InterruptionStatus.RETRYABLE_FAILURE:
                self.finish()
            case _:
                super().show(stored)


class _Turn:
    """One run, which a signal aborts.

    Output is written by a worker thread: a pager that is not read, or a terminal that is held, must not keep the
    run from the time of its provider.
    """

    def __init__(self, asked: RunInput | _GoingOn, path: Path, idle_timeout: float) -> None:
        self._asked = asked
        self._path = path
        self._idle_timeout = idle_timeout
        answer = stdout()
        self._notes = answer if same_place(sys.stdout, sys.stderr) else stderr()
        self._view = _AnswerView(answer, self._notes)
        self._block = trio.CancelScope()
        self._aborted = trio.Event()
        self._engine: Engine | None = None
        self._running: RunningInvocation | None = None
        self._showing = False
        self._usage = ModelUsage()

    async def take(self) -> int:
        """Take it; return the exit status."""
        async with watching_signals(self._abort, self._say_what_is_awaited) as interruption:
            with self._block:
                async with (
                    EventLog.open(self._path) as log,
                    ModelExecutor(idle_timeout=self._idle_timeout) as models,
                    Engine(log, models) as engine,
                ):
                    self._engine = engine
                    await self._answer(engine, await self._input(log))
        return interruption.status(0)

    async def _input(self, log: EventLog) -> RunInput:
        match self._asked:
            case _GoingOn(session_id, run_id, make_input):
                return make_input(await log.boundary(session_id, run_id))
            case run_input:
                return run_input

    async def _answer(self, engine: Engine, run_input: RunInput) -> None:
        self._running = running = await engine.start(run_input)
        self._showing = True
        await self._show(running)
        self._showing = False
        try:
            await running.wait()
        except RunCancelled:
            if not self._aborted.is_set():
                raise
            run_id = excerpt(running.invocation.run_id)
            await self._note(f"aborted; the end is recorded ({self._where(running)}); --continue {run_id}", Look.WARN)
        else:
            counts = ", ".join(usage_texts(self._usage)) or "done"
            await self._note(f"{counts} ({self._where(running)})", Look.FAINT)

    async def _show(self, running: RunningInvocation) -> None:
        """Show the run to its end. Aborted, what has not been shown soon after the end is left to the log."""
        async with owned_nursery() as nursery:

            async def limit() -> None:
                await self._aborted.wait()
                await running.wait_finished()
                await trio.sleep(DISPLAY_SECONDS)
                nursery.cancel_scope.cancel("the run has ended")

            nursery.start_soon(limit)
            async with running.events() as events:
                async for stored in events:
                    if isinstance(stored.event.fact, ModelCompleted):
                        self._usage = added(self._usage, stored.event.fact.output.usage)
                    await _in_thread(self._view.show, stored)
            nursery.cancel_scope.cancel("all is shown")

    async def _note(self, text: str, look: Look) -> None:
        with trio.move_on_after(DISPLAY_SECONDS):
            await _in_thread(self._notes.line, (text, look))

    def _where(self, running: RunningInvocation) -> str:
        return f"session {excerpt(running.invocation.session_id)}, log {excerpt(str(self._path))}"

    # --- signals ----------------------------------------------------------------------------------------------

    async def _abort(self) -> None:
        self._aborted.set()
        if self._running is None:
            self._block.cancel("interrupted by a signal")
            return
        self._running.cancel("interrupted by a signal")
        await self._note("aborting: what has begun is finished and recorded first", Look.WARN)

    async def _say_what_is_awaited(self) -> None:
        await self._note(f"still waiting for {self._awaited()}; a kill would lose nothing that is recorded", Look.WARN)

    def _awaited(self) -> str:
        if self._engine is None:
            return "the log to open"
        active = self._engine.statistics().active
        if active:
            return "; ".join(map(self._run_text, active))
        return "the output to be taken" if self._showing else "the log to close"

    def _run_text(self, run: ActiveRun) -> str:
        which = f"run {excerpt(run.invocation.run_id)}"
        if not run.operation_ids:
            return f"{which} to record its end"
        operations = [
            f"{excerpt(name)} (operation {excerpt(operation_id)})"
            for operation_id, name in zip(run.operation_ids, run.tool_names, strict=True)
        ]
        return f"{which}, which has {', '.join(operations)} in flight"


async def _in_thread(write: Callable[..., None], *arguments: object) -> None:
    await trio.to_thread.run_sync(write, *arguments, abandon_on_cancel=True)


def added(total: ModelUsage, step: ModelUsage) -> ModelUsage:
    """The counts of several steps together; what no step stated stays unknown."""
    sums: dict[str, int | None] = {}
    for field in attrs.fields(ModelUsage):
        stated = [count for count in (getattr(total, field.name), getattr(step, field.name)) if count is not None]
        sums[field.name] = sum(stated) if stated else None
    return ModelUsage(**sums)

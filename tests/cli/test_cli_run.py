"""`maka-trio run`, as a child process against a scripted provider on loopback."""

from __future__ import annotations

import io
import os
import signal
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from maka_trio import limits
from maka_trio.errors import LogInUse
from maka_trio.facts.event import InvocationEnded, ToolSettled
from maka_trio.facts.outcome import Cancelled, Completed
from maka_trio.facts.scope import Session
from maka_trio.log.event_log import EventLog
from maka_trio.testing import Gate, Headers, ScriptedProvider, Thinking
from tests.cli.cli_child import PATIENCE, Here, command, environment, running

KEY = "sk-the-key-that-is-shown-to-nobody"
PROTOCOLS = {
    "openai": ("OPENAI_API_KEY", "/v1/chat/completions", "authorization", f"Bearer {KEY}"),
    "responses": ("OPENAI_API_KEY", "/v1/responses", "authorization", f"Bearer {KEY}"),
    "anthropic": ("ANTHROPIC_API_KEY", "/v1/messages", "x-api-key", KEY),
    "compatible": ("MAKA_TRIO_API_KEY", "/v1/chat/completions", "authorization", f"Bearer {KEY}"),
}


async def ask(
    provider: ScriptedProvider, home: Path, *more: object, word: str = "openai", question: str = "How are you?"
) -> tuple[int, str, str]:
    arguments = ["run", question, "--provider", word, "--model", "m", "--base-url", provider.base_url, *more]
    async with running(arguments, home=home, env={PROTOCOLS[word][0]: KEY}) as child:
        status = await child.status()
    return status, child.out.decode(), child.err.decode()


def asking(provider: ScriptedProvider, *more: object) -> list[object]:
    return ["run", "How are you?", "--provider", "openai", "--model", "m", "--base-url", provider.base_url, *more]


async def go_on(provider: ScriptedProvider, home: Path, *more: object) -> tuple[int, str, str]:
    arguments = ["run", "--provider", "openai", "--model", "m", "--base-url", provider.base_url, *more]
    async with running(arguments, home=home, env={"OPENAI_API_KEY": KEY}) as child:
        status = await child.status()
    return status, child.out.decode(), child.err.decode()


def default_log(home: Path) -> Path:
    return home / "state" / "maka-trio" / "log.sqlite"


async def facts_of(path: Path) -> list[object]:
    async with EventLog.open(path) as log:
        prefix = await log.prefix(1000, limits.MIB)
    return [stored.event.fact for stored in prefix.events]


# --- the answer -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", PROTOCOLS)
async def test_the_answer_of_every_protocol_goes_to_standard_output_alone(word: str, tmp_path: Path) -> None:
    """Text is the output; thinking and everything about the run are notes. The key is sent as the protocol wants."""
    _, path, header, value = PROTOCOLS[word]
    async with ScriptedProvider() as provider:
        provider.say(Thinking("hm", signature="s"), "I am ", "well.")
        status, out, err = await ask(provider, tmp_path, word=word)
        (request,) = provider.requests
    assert (status, out) == (0, "I am well.\n")
    assert "thinking: hm" in err
    assert "10 tokens in, 5 out" in err
    assert (request.path, request.headers[header]) == (path, value)


async def test_the_options_reach_the_provider_and_the_log(tmp_path: Path) -> None:
    """System prompt, output limit, model, session and log are those that were asked for."""
    async with ScriptedProvider() as provider:
        provider.say("yes")
        provider.say("again")
        settings = ("--log", tmp_path / "my.sqlite", "--session", "mine", "--system", "Be brief.")
        await ask(provider, tmp_path, *settings, "--max-output-tokens", 7)
        status, _, err = await ask(provider, tmp_path, *settings, question="And now?")
        first, second = (request.body for request in provider.requests)
    assert status == 0
    assert "session mine" in err
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first["max_tokens"] == 7
    assert first["messages"][0] == {"role": "system", "content": "Be brief."}
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "user"]
    async with EventLog.open(tmp_path / "my.sqlite") as log:
        assert (await log.head(Session("mine"))).high_water > 0


async def test_a_question_can_come_from_standard_input(tmp_path: Path) -> None:
    """`-` reads it, so that it may be long or another program's output."""
    async with ScriptedProvider() as provider:
        provider.say("fine")
        arguments = ["run", "-", "--provider", "openai", "--model", "m", "--base-url", provider.base_url]
        result = await trio.to_thread.run_sync(_run_with_input, arguments, tmp_path, "from a pipe")
        body = provider.requests[0].body
    assert result == (0, "fine\n")
    assert isinstance(body, dict)
    assert body["messages"][-1]["content"] == "from a pipe"


def _run_with_input(arguments: Sequence[object], home: Path, text: str) -> tuple[int, str]:
    done = subprocess.run(
        command(*arguments),
        env=environment(home, {"OPENAI_API_KEY": KEY}),
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    return done.returncode, done.stdout


def test_standard_input_that_is_no_text_is_one_line(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture is not a question."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xd8\xff"), encoding="utf-8"))
    refused = here("run", "-", "--provider", "openai", "--model", "m", env={"OPENAI_API_KEY": KEY})
    assert (refused.status, refused.out) == (2, "")
    assert refused.err.count("\n") == 1


async def test_without_a_log_the_users_own_is_used_and_is_private(tmp_path: Path) -> None:
    """It is made under the XDG state folder, which nobody else may enter."""
    async with ScriptedProvider() as provider:
        provider.say("yes")
        status, _, _ = await ask(provider, tmp_path)
    assert status == 0
    path = default_log(tmp_path)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert isinstance((await facts_of(path))[-1], InvocationEnded)


async def test_what_a_model_says_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    """Escapes and markup are shown, in text and in thinking, whatever pieces they come in."""
    async with ScriptedProvider() as provider:
        provider.say(Thinking("\x1b]0;title\x07"), "\x1b", "[2J[bold]x[/bold]", "\u202e")
        status, out, err = await ask(provider, tmp_path, word="anthropic")
    assert status == 0
    assert out == "\\x1b[2J[bold]x[/bold]\\u202e\n"
    assert "\x1b" not in err
    assert "\\x1b]0;title\\x07" in err


TOOLS = """
import sys

import trio
from maka_trio import ToolCall, ToolCatalog, tool

@tool
async def slow(call: ToolCall) -> str:
    "Wait for the abort, then finish all the same."
    print("the effect has begun", file=sys.stderr)
    await call.cancelled.wait()
    while not await trio.Path("go").exists():
        await trio.sleep(0.01)
    return "done"

@tool
async def evil() -> str:
    "Answer with a terminal escape."
    return "\\x1b[31m"

catalog = ToolCatalog([slow, evil])
"""


async def test_tools_of_a_users_module_can_be_offered(tmp_path: Path) -> None:
    """`--tools MODULE:NAME` finds a catalog in the working directory; its calls are told on standard error."""
    (tmp_path / "my_tools.py").write_text(TOOLS)
    async with ScriptedProvider() as provider:
        provider.call_tools(("evil", {}), ("unknown\x1b", {}))
        provider.say("ok")
        status, out, err = await ask(provider, tmp_path, "--tools", "my_tools:catalog")
    assert (status, out) == (0, "ok\n")
    assert 'evil settled: "\\x1b[31m"' in err
    assert "no tool of this name is available" in err
    assert "\x1b" not in err


# --- being interrupted --------------------------------------------------------------------------------------------


async def test_ctrl_c_aborts_a_stream_and_the_end_is_durable(tmp_path: Path) -> None:
    """The socket is closed, what was said stays, the run ends cancelled, the status is 130."""
    gate = Gate()
    async with ScriptedProvider() as provider:
        provider.say("Hel", gate, "lo")
        async with running(asking(provider), home=tmp_path, env={"OPENAI_API_KEY": KEY}) as child:
            await child.answers("Hel")
            child.interrupt()
            assert await child.status() == 130
        with trio.fail_after(PATIENCE):
            await provider.requests[0].disconnected.wait()
    assert b"abort" in child.err
    assert b"Traceback" not in child.err
    facts = await facts_of(default_log(tmp_path))
    assert facts[-1] == InvocationEnded(Cancelled())


async def test_a_run_that_was_aborted_can_be_gone_on_with(tmp_path: Path) -> None:
    """The note of the abort names the run; the model is asked again without a new message, once."""
    async with ScriptedProvider() as provider:
        provider.say("Hel", Gate(), "lo")
        async with running(asking(provider, "--session", "s"), home=tmp_path, env={"OPENAI_API_KEY": KEY}) as child:
            await child.answers("Hel")
            child.interrupt()
            assert await child.status() == 130
        run_id = child.err.decode().rpartition("--continue ")[2].strip()
        provider.say("Hello again")
        again = ("--session", "s", "--continue", run_id)
        status, out, _ = await go_on(provider, tmp_path, *again)
        refusal = await go_on(provider, tmp_path, *again)
        first, second = (request.body for request in provider.requests)
    assert (status, out) == (0, "Hello again\n")
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert second["messages"] == first["messages"]
    assert refusal[:2] == (1, "")
    assert refusal[2].count("\n") == 1
    assert len([fact for fact in await facts_of(default_log(tmp_path)) if isinstance(fact, InvocationEnded)]) == 2


async def test_going_on_without_a_log_makes_none(tmp_path: Path) -> None:
    """A path that is wrong is named, not made."""
    async with ScriptedProvider() as provider:
        wrong = tmp_path / "wrong.sqlite"
        more = ("--session", "s", "--continue", "r", "--log", wrong)
        status, _, err = await go_on(provider, tmp_path, *more)
    assert status == 1
    assert "wrong.sqlite" in err
    assert not wrong.exists()


async def test_ctrl_c_before_any_answer_ends_at_once(tmp_path: Path) -> None:
    """A provider that sends headers and then nothing keeps nobody waiting."""
    async with ScriptedProvider() as provider:
        provider.say(Headers(), Gate(), "never")
        async with running(asking(provider), home=tmp_path, env={"OPENAI_API_KEY": KEY}) as child:
            with trio.fail_after(PATIENCE):
                await provider.wait_for_request()
            child.interrupt()
            assert await child.status() == 130
    assert child.out == b""


async def test_sigterm_ends_in_the_same_order(tmp_path: Path) -> None:
    """A service manager gets a durable end as well, and the status that shells expect."""
    async with ScriptedProvider() as provider:
        provider.say("Hel", Gate(), "lo")
        async with running(asking(provider), home=tmp_path, env={"OPENAI_API_KEY": KEY}) as child:
            await child.answers("Hel")
            child.interrupt(signal.SIGTERM)
            assert await child.status() == 143
    assert (await facts_of(default_log(tmp_path)))[-1] == InvocationEnded(Cancelled())


async def test_a_second_ctrl_c_says_what_is_waited_for(tmp_path: Path) -> None:
    """An effect in flight is finished and settled; meanwhile each further Ctrl-C names the run and the operation."""
    (tmp_path / "my_tools.py").write_text(TOOLS)
    async with ScriptedProvider() as provider:
        provider.call_tools(("slow", {}, "call_slow"))
        arguments = asking(provider, "--tools", "my_tools:catalog")
        async with running(arguments, home=tmp_path, env={"OPENAI_API_KEY": KEY}) as child:
            await child.says("the effect has begun")
            child.interrupt()
            await child.says("aborting")
            child.interrupt()
            await child.says("still waiting for run ")
            await child.says("which has slow (operation ")
            await child.says(":call_slow) in flight")
            assert child.process.returncode is None
            (tmp_path / "go").touch()
            assert await child.status() == 130
    facts = await facts_of(default_log(tmp_path))
    assert sum(isinstance(fact, ToolSettled) for fact in facts) == 1
    assert facts[-1] == InvocationEnded(Cancelled())


async def test_output_that_nobody_takes_does_not_hold_the_run_or_its_abort(tmp_path: Path) -> None:
    """Behind a pager that is not read the run goes on to its next step; Ctrl-C then leaves without the pager."""
    (tmp_path / "my_tools.py").write_text(TOOLS)
    async with ScriptedProvider() as provider:
        provider.call_tools(("evil", {}), text="x" * 300_000)
        provider.say(Headers(), Gate(), "never")
        arguments = asking(provider, "--tools", "my_tools:catalog")
        reader, writer = os.pipe()
        try:
            async with running(arguments, home=tmp_path, env={"OPENAI_API_KEY": KEY}, output=writer) as child:
                with trio.fail_after(PATIENCE):
                    await provider.wait_for_request(2)
                child.interrupt()
                assert await child.status() == 130
        finally:
            os.close(reader)
            os.close(writer)
    assert (await facts_of(default_log(tmp_path)))[-1] == InvocationEnded(Cancelled())


async def test_a_reader_that_goes_away_ends_the_run_quietly(tmp_path: Path) -> None:
    """`| head`: the run is aborted, its end recorded, nothing is said, the status is that of a broken pipe."""
    gate = Gate()
    async with ScriptedProvider() as provider:
        provider.say("first\n", gate, "second\n", "third\n")
        async with running(asking(provider), home=tmp_path, env={"OPENAI_API_KEY": KEY}) as child:
            await child.answers("first")
            assert child.process.stdout is not None
            await child.process.stdout.aclose()
            gate.open()
            assert await child.status() == 141
    assert child.err == b""
    assert isinstance((await facts_of(default_log(tmp_path)))[-1], InvocationEnded)


# --- what goes wrong ----------------------------------------------------------------------------------------------


def refused(here: Here, *more: object, env: dict[str, str] | None = None) -> tuple[int, str]:
    nowhere = () if "--base-url" in more or "compatible" in more else ("--base-url", "http://127.0.0.1:9/v1")
    outcome = here("run", "q", *more, *nowhere, env=env)
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    return outcome.status, outcome.err


@pytest.mark.parametrize("word", PROTOCOLS)
def test_a_missing_key_is_named_and_nothing_is_written(word: str, here: Here, tmp_path: Path) -> None:
    """The error names the variable; no log is made for a run that cannot begin."""
    status, error = refused(here, "--provider", word, "--model", "m", "--base-url", "http://127.0.0.1:1/v1")
    assert status == 2
    assert PROTOCOLS[word][0] in error
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--provider", "nobody", "--model", "m"), "nobody"),
        (("--model", "m"), "--provider"),
        (("--provider", "openai"), "--model"),
        (("--provider", "compatible", "--model", "m"), "--base-url"),
        (("--provider", "openai", "--model", "m", "--name", "groq"), "--name"),
        (("--provider", "openai", "--model", "m", "--idle-timeout", "0"), "--idle-timeout"),
        (("--provider", "openai", "--model", "m", "--idle-timeout", "nan"), "--idle-timeout"),
        (("--provider", "openai", "--model", "m", "--max-output-tokens", "0"), "--max-output-tokens"),
        (("--provider", "openai", "--model", "m", "--tools", "nowhere"), "MODULE:NAME"),
        (("--provider", "openai", "--model", "m", "--tools", "no_such_module:x"), "no_such_module"),
        (("--provider", "openai", "--model", "m", "--tools", "os:sep"), "str"),
        (("--provider", "openai", "--model", "m", "--session", "s", "--continue", "r"), "question"),
    ],
)
def test_wrong_usage_is_one_line_with_status_2(more: tuple[str, ...], words: str, here: Here) -> None:
    """What is wrong is named; there is no traceback."""
    status, error = refused(here, *more, env={"OPENAI_API_KEY": KEY, "MAKA_TRIO_API_KEY": KEY})
    assert status == 2
    assert words in error


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--base-url", "ftp://x"), "base_url"),
        (("--session", ""), "session_id"),
        (("--system", " "), "system_prompt"),
        (("--log", "no/such/folder/log.sqlite"), "no/such/folder"),
        (("--log", "."), "not a regular file"),
    ],
)
def test_a_value_that_the_library_refuses_is_one_line_with_status_1(
    more: tuple[str, ...], words: str, here: Here
) -> None:
    """The library's own sentence is shown."""
    status, error = refused(here, "--provider", "openai", "--model", "m", *more, env={"OPENAI_API_KEY": KEY})
    assert status == 1
    assert words in error


async def test_a_refusal_of_the_provider_is_one_line_without_the_key(tmp_path: Path) -> None:
    """A provider that quotes the key back does not get it onto the screen or into the log."""
    async with ScriptedProvider() as provider:
        provider.fail(401, "invalid_api_key", f"Incorrect API key: {KEY} \x1b[31m")
        status, out, err = await ask(provider, tmp_path)
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert "401" in err or "invalid_api_key" in err
    assert KEY not in err
    assert "\x1b" not in err
    everything = b"".join(path.read_bytes() for path in default_log(tmp_path).parent.iterdir())
    assert KEY.encode() not in everything


async def test_a_silent_provider_is_given_up_after_the_idle_timeout(tmp_path: Path) -> None:
    """The option is passed on, and the failure says so."""
    async with ScriptedProvider() as provider:
        provider.say(Headers(), Gate(), "never")
        status, _, err = await ask(provider, tmp_path, "--idle-timeout", 0.2)
    assert status == 1
    assert "0.2" in err


async def test_a_failed_attempt_that_is_tried_again_is_told(tmp_path: Path) -> None:
    """What an attempt said before it failed is not the answer; the reader is told that another follows."""
    async with ScriptedProvider() as provider:
        provider.say("half an ans", cut_at=400)
        provider.say("whole answer")
        status, out, err = await ask(provider, tmp_path)
        requests = len(provider.requests)
    assert (status, requests) == (0, 2)
    assert out.endswith("\nwhole answer\n") or out == "whole answer\n"
    assert "request interrupted: retryable failure" in err


async def test_a_log_that_another_process_owns_is_one_line(tmp_path: Path) -> None:
    """The file has one owner; who comes second is told at once."""
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path), ScriptedProvider() as provider:
        status, _, err = await ask(provider, tmp_path, "--log", path)
        assert provider.connections == 0
    assert status == 1
    assert err.count("\n") == 1
    with pytest.raises(LogInUse):
        async with EventLog.open(path), EventLog.open(path):
            pass


async def test_the_run_is_complete_in_the_log_when_the_command_returns(tmp_path: Path) -> None:
    """Nothing is left to be recovered."""
    async with ScriptedProvider() as provider:
        provider.say("yes")
        await ask(provider, tmp_path)
    async with EventLog.open(default_log(tmp_path)) as log:
        assert await log.recover() == 0
    assert (await facts_of(default_log(tmp_path)))[-1] == InvocationEnded(Completed())

"""`maka-trio demo` keeps its promises, says so, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import trio

from maka_trio import limits
from maka_trio.cli import demo_play, demo_shop
from maka_trio.facts.event import Fact, InvocationEnded, ToolRejected, ToolSettled
from maka_trio.facts.outcome import Cancelled, Completed, Failed
from maka_trio.log.event_log import EventLog
from maka_trio.testing import Call
from tests.cli.cli_child import PATIENCE, Here, environment, running


def chat(*chunks: object) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"


def delta(finish: str | None = None, **fields: object) -> dict[str, object]:
    choice = {"index": 0, "delta": fields, "finish_reason": finish}
    return {"id": "chatcmpl-9", "object": "chat.completion.chunk", "created": 1, "model": "rec", "choices": [choice]}


def call(name: str, arguments: str) -> dict[str, object]:
    function = {"name": name, "arguments": arguments}
    return delta(tool_calls=[{"index": 0, "id": "call_9", "type": "function", "function": function}])


def facts_of(path: Path) -> list[Fact]:
    async def read() -> list[Fact]:
        async with EventLog.open(path) as log:
            prefix = await log.prefix(10_000, 16 * limits.MIB)
        return [stored.event.fact for stored in prefix.events]

    return trio.run(read)


def ends_of(path: Path) -> list[object]:
    return [fact.outcome for fact in facts_of(path) if isinstance(fact, InvocationEnded)]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment whose temporary folder is `tmp`."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))  # it is looked up once in a process
    return {"TMPDIR": str(tmp_path / "tmp")}


def test_it_shows_three_turns_and_what_it_promises(here: Here, temporary: dict[str, str]) -> None:
    """The caller is free, the session busy, the effect finishes once, the second call is rejected, history goes on."""
    result = here("demo", env=temporary)
    assert (result.status, result.err) == (0, "")
    promises = [line for line in result.out.splitlines() if line.startswith("  demo") and "✓" in line]
    assert len(promises) == 5
    for text, promise in zip(
        (
            "the caller is free",
            "Busy: session 'shop' is held by run",
            "happened once",
            "each call answered once",
            "laws",
        ),
        promises,
        strict=True,
    ):
        assert text in promise
    assert "NOT SO" not in result.out
    assert "in flight" in promises[1]


def test_its_story_is_told_in_order(here: Here, temporary: dict[str, str]) -> None:
    """Streamed answers, tools, the abort, the settlement after it, the rejection, then the timeline."""
    out = here("demo", env=temporary).out
    story = [
        "A turn with tool calls",
        "Let me look at the shelves.",
        "check_stock dispatched",
        "check_stock settled",
        "There are 3 blue mugs",
        "ended: completed",
        "A turn that is aborted while an effect runs",
        "place_order dispatched",
        "the caller is free",
        "place_order settled",
        "was cancelled before the call was dispatched",
        "ended: cancelled",
        "A turn that goes on from the durable history",
        "the provider was told of place_order",
        "the provider was told of place_order",
        "The log",
        "asks model scripted",
        "ended: cancelled",
        "ended: completed",
    ]
    position = 0
    for text in story:
        position = out.find(text, position) + 1
        assert position, f"{text!r} is missing or out of order"


def test_plain_output_has_no_escapes_and_is_the_same_every_time(here: Here, temporary: dict[str, str]) -> None:
    """Apart from ids, times and how the kernel cut the answers, two performances are one."""
    first, second = (_without_chance(here("demo", env=temporary).out) for _ in range(2))
    assert "\x1b" not in first
    assert first == second


def _without_chance(text: str) -> str:
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID", text)
    text = re.sub(r"\d\d:\d\d:\d\d\.\d{3}|\d{4}-\d\d-\d\d", "TIME", text)
    return re.sub(r"^ +\d+(-\d+)?  |\d+ events", "SEQUENCES  ", text, flags=re.MULTILINE)


def test_it_leaves_nothing_behind_and_needs_nobody(here: Here, tmp_path: Path, temporary: dict[str, str]) -> None:
    """The temporary folder is empty afterwards; no state folder, no key, no question asked of the environment."""
    proxies = {
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9",
    }
    result = here("demo", env=temporary | proxies)
    assert result.status == 0
    assert list((tmp_path / "tmp").iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]


def test_a_given_folder_or_file_keeps_the_log(here: Here, tmp_path: Path) -> None:
    """`--log` takes either; a second performance in the same log is a session of its own."""
    (tmp_path / "logs").mkdir()
    for place, kept in (
        (tmp_path / "logs", tmp_path / "logs" / "demo.sqlite"),
        (tmp_path / "my.db", tmp_path / "my.db"),
    ):
        for _ in range(2):
            result = here("demo", "--log", place)
            assert (result.status, result.err) == (0, "")
            assert f"maka-trio log {kept}" in result.out
        assert ends_of(kept) == [Completed(), Cancelled(), Completed()] * 2
        assert here("verify", kept).status == 0


def test_a_recorded_stream_is_the_first_answer(here: Here, tmp_path: Path) -> None:
    """Its calls name tools that the demo does not have: they are rejected, and the turn goes on."""
    recording = tmp_path / "stream.sse"
    recording.write_bytes(chat(delta(content="Recorded!"), call("launch_\x1b", '{"to": "moon"}'), delta("tool_calls")))
    log = tmp_path / "demo.db"
    result = here("demo", "--stream", recording, "--log", log)
    assert (result.status, result.err) == (0, "")
    assert "Recorded!" in result.out
    assert 'launch_\\x1b rejected {"to": "moon"}: no tool of this name is available' in result.out
    assert ends_of(log) == [Completed(), Cancelled(), Completed()]


def test_a_recorded_stream_that_is_no_answer_is_shown_as_a_failed_turn(here: Here, tmp_path: Path) -> None:
    """The failure is a fact like any other: its turn ends, the next ones go on, the laws hold."""
    recording = tmp_path / "cut.sse"
    recording.write_bytes(chat(delta(content="Half an ans"))[:200])
    log = tmp_path / "demo.db"
    result = here("demo", "--stream", recording, "--log", log)
    assert (result.status, result.err) == (0, "")
    first, *others = ends_of(log)
    assert isinstance(first, Failed)
    assert others == [Cancelled(), Completed()]
    assert "ended: failed, model_provider" in result.out


def test_a_promise_that_is_not_kept_is_no_success(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were a tool not told of the abort, the demo would say so and exit with status 1."""
    monkeypatch.setattr(demo_shop.Shop, "heard_of_abort", property(lambda _: False, lambda _, value: None))
    result = here("demo")
    assert result.status == 1
    assert "NOT SO: the effect happened once and is settled (nobody told it of the abort)" in result.out


def test_a_turn_that_fails_where_it_must_not_is_one_line(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for an effect that never begins."""
    monkeypatch.setattr(demo_shop, "ORDER_CALLS", (Call("no_such_tool"),))
    result = here("demo")
    assert result.status == 1
    assert result.err.count("\n") == 1
    assert "not in the script" in result.err


@pytest.mark.parametrize("protocol", ["chat", "compatible", "messages", "responses"])
def test_it_speaks_every_protocol(protocol: str, here: Here) -> None:
    """The history of the aborted turn is accepted in every protocol's own form."""
    result = here("demo", "--protocol", protocol)
    assert (result.status, result.err) == (0, "")
    assert "each call answered once, in call order" in result.out


def _corpus() -> list[Path]:
    folder = Path(os.environ.get("MAKA_TRIO_CORPUS", Path(__file__).parents[2].parent / "shared" / "corpus"))
    names = ("openai_chat", "anthropic", "openai_responses")
    return [path for name in names for path in sorted((folder / "streams" / name).glob("*tool*.sse"))[:2]]


@pytest.mark.parametrize("recording", _corpus(), ids=lambda path: path.name)
def test_recordings_of_real_providers_can_be_the_first_answer(recording: Path, here: Here) -> None:
    """Whatever a provider once streamed, the demo's promises are kept; the stream itself shows which protocol it is."""
    result = here("demo", "--stream", recording)
    assert (result.status, result.err) == (0, "")
    assert "truncated" not in result.out
    assert "ended: failed" not in result.out


async def test_ctrl_c_in_the_middle_ends_in_order_and_leaves_no_folder(
    tmp_path: Path, temporary: dict[str, str]
) -> None:
    """At a slow pace a person can stop it; it ends in order, with the status of a signal."""
    async with running(["demo", "--slow"], home=tmp_path, env=temporary) as child:
        await child.answers("place_order dispatched")
        assert len(list((tmp_path / "tmp").iterdir())) == 1
        child.interrupt(signal.SIGINT)
        assert await child.status() == 130
    assert b"Traceback" not in child.err
    assert list((tmp_path / "tmp").iterdir()) == []


def test_it_waits_for_events_and_not_for_the_clock(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `--slow` there is no pause in it, however long pauses are."""
    monkeypatch.setattr(demo_play, "WORD_SECONDS", 600.0)
    monkeypatch.setattr(demo_play, "BEAT_SECONDS", 600.0)
    started = time.monotonic()
    assert here("demo").status == 0
    assert time.monotonic() - started < 500


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("--stream", "no-such-file"), 1),
        (("--stream", "."), 1),
        (("--log", "no/such/folder/x.db"), 1),
        (("--protocol", "smoke-signals"), 2),
        (("--name", "groq"), 2),
    ],
)
def test_wrong_arguments_are_one_line(arguments: tuple[str, ...], status: int, here: Here) -> None:
    """No traceback, and no half of a performance."""
    result = here("demo", *arguments)
    assert result.status == status
    assert result.err.count("\n") == 1


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path, temporary: dict[str, str]) -> None:
    """`maka-trio demo | head -1` says nothing about pipes and leaves nothing behind."""
    command = f"{sys.executable} -m maka_trio demo | head -1; echo ${{PIPESTATUS[0]}}"
    result = _bash(command, tmp_path, temporary)
    assert result[1] == ""
    assert result[0].splitlines()[-1] == "141"
    assert list((tmp_path / "tmp").iterdir()) == []


def _bash(command: str, home: Path, env: dict[str, str]) -> tuple[str, str]:
    done = subprocess.run(
        ["bash", "-c", command],
        env=environment(home, env),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.stdout, done.stderr


def test_the_log_tells_the_aborted_turn(here: Here, tmp_path: Path) -> None:
    """Three settlements, the order among them, and one rejection: the call that never began."""
    path = tmp_path / "demo.db"
    assert here("demo", "--log", path).status == 0
    facts = facts_of(path)
    assert sum(isinstance(fact, ToolSettled) for fact in facts) == 3
    rejected = [fact.input for fact in facts if isinstance(fact, ToolRejected)]
    assert rejected == [{"item": "green mug", "quantity": 5}]

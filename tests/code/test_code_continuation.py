"""A run in Code Mode goes on where another stopped; what its programs did is told by the calls that ran them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from maka_trio.engine import ContinuationWork
from maka_trio.errors import InvalidInput, StepLimit
from maka_trio.facts import InvocationConfiguration
from maka_trio.laws import check
from maka_trio.tools import ToolCatalog
from tests.code.code_scene import code_scene
from tests.engine.scene import echo, registration

ECHO = registration("echo", echo)


async def test_a_program_that_ran_is_not_run_again(tmp_path: Path) -> None:
    """The continuation is told its result, is offered the same two tools, and answers."""
    async with code_scene(tmp_path) as it:
        it.script("await echo(n=7)")
        with pytest.raises(StepLimit):
            await it.engine.run(it.input(ECHO, max_steps=1))
        run = (await it.events())[0].event.invocation
        source = await it.log.boundary("session", run.run_id)
        again = attrs.evolve(it.input(), work=ContinuationWork(source, ToolCatalog([ECHO])))
        assert (await it.engine.check_continuation(again)).tools == ("exec",)
        it.provider.say("seven")
        await it.engine.run(again)
        body: Any = it.provider.requests[-1].body
        assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool"]
        assert (await it.tale()).count("echo begins") == 1
        assert list(check(await it.events())) == []


async def test_programs_are_not_continued_without_code_mode(tmp_path: Path) -> None:
    """A model that reads of `exec` would expect to have it."""
    async with code_scene(tmp_path) as it:
        it.script("print(1)")
        with pytest.raises(StepLimit):
            await it.engine.run(it.input(ECHO, max_steps=1))
        run = (await it.events())[0].event.invocation
        source = await it.log.boundary("session", run.run_id)
        direct = attrs.evolve(
            it.input(), work=ContinuationWork(source, ToolCatalog([ECHO])), configuration=InvocationConfiguration()
        )
        with pytest.raises(InvalidInput, match="'exec'"):
            await it.engine.start(direct)

"""A process of its own that tries to go on from the first run of a log, and prints what it was told."""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from maka_trio.errors import CommitRejected
from tests.engine.going_on import end_of, go_on
from tests.engine.scene import scene


async def main(folder: Path) -> None:
    """Say the reason of the refusal, or that there was none."""
    async with scene(folder) as it:
        first = (await it.events())[0].event.invocation
        it.provider.say("the answer")
        try:
            await it.engine.run(go_on(it, await end_of(it, first)))
        except CommitRejected as error:
            print(error.reason)
        else:
            print("continued")


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))

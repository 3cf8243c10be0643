"""Runs contenders in fresh processes, round after round in alternation.

Whatever a contender measures, it prints one JSON object of figures as its last line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.question import Answer, Contender, Question, Sample

ROOT = Path(__file__).parents[1]

LONGEST_SECONDS = 900
"""A sample that takes longer has failed."""


@contextmanager
def provider() -> Iterator[str]:
    """The fast provider in a process of its own; yields its origin."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.provider"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()


def run_once(contender: Contender, url: str, interpreter: Path | str) -> Sample:
    """One sample of one contender.

    Raises:
        RuntimeError: it failed; the end of what it said is in the text.
    """
    done = subprocess.run(
        [interpreter, "-m", contender.module, *contender.arguments, url],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=LONGEST_SECONDS,
    )
    if done.returncode:
        raise RuntimeError(f"{contender.label} failed:\n{done.stderr[-4000:]}")
    sample: Sample = json.loads(done.stdout.splitlines()[-1])
    return sample


def ask(
    question: Question,
    contenders: Sequence[Contender],
    rounds: int,
    interpreter_of: Callable[[Contender], Path | str],
    progress: Callable[[str], None] = lambda text: None,
) -> Answer:
    """All rounds of a question. A provider lives as long as a round, so that no contender inherits much."""
    samples: dict[str, list[Sample]] = {contender.label: [] for contender in contenders}
    for _ in range(rounds):
        with provider() as origin:
            for contender in contenders:
                progress(contender.label)
                url = f"{origin}{question.path if contender.path is None else contender.path}/v1"
                samples[contender.label].append(run_once(contender, url, interpreter_of(contender)))
    return Answer(question, samples)

"""`python -m benchmarks [NAME ...]`: ask questions, print medians and ratios."""

from __future__ import annotations

import argparse
import json

from benchmarks import (
    cancel,
    codec,
    commits,
    decode,
    explorer,
    idle,
    imports,
    loop,
    old_log,
    programs,
    recovery,
    requests,
    sessions,
    streams,
)
from benchmarks.environments import interpreter_of
from benchmarks.measure import ask
from benchmarks.progress import progress
from benchmarks.question import Contender, Question
from benchmarks.tables import as_json, tables

ROOMS = (
    decode,
    streams,
    loop,
    commits,
    sessions,
    idle,
    cancel,
    codec,
    requests,
    recovery,
    old_log,
    programs,
    explorer,
    imports,
)
QUESTIONS: dict[str, Question] = {question.name: question for room in ROOMS for question in room.QUESTIONS}


def main() -> None:
    """Ask what the command line says, everything by default."""
    arguments = _parser().parse_args()
    if arguments.list:
        for question in QUESTIONS.values():
            print(f"{question.name:16} {question.asks}")
        return
    questions = [QUESTIONS[name] for name in arguments.names or QUESTIONS]
    asked = [(question, _asked(question, peers=arguments.peers)) for question in questions]
    total = arguments.rounds * sum(len(contenders) for _, contenders in asked)
    with progress(total) as advance:
        for question, contenders in asked:
            answer = ask(
                question,
                contenders,
                arguments.rounds,
                interpreter_of,
                lambda label, name=question.name: advance(f"{name}: {label}"),  # type: ignore[misc]
            )
            print(json.dumps(as_json(answer)) if arguments.json else f"{tables(answer)}\n", flush=True)


def _asked(question: Question, *, peers: bool) -> list[Contender]:
    return [contender for contender in question.contenders if peers or contender.peer is None]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", choices=[[], *QUESTIONS], help="which questions; see --list"
    )
    parser.add_argument("--peers", action="store_true", help="ask other libraries too; installs them when first asked")
    parser.add_argument("--rounds", type=int, default=3, help="samples of each contender (%(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object a question, with all samples")
    parser.add_argument("--list", action="store_true", help="list the questions and exit")
    return parser


if __name__ == "__main__":
    main()

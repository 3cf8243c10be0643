"""Answers as Markdown tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.question import Aim, Answer


def tables(answer: Answer) -> str:
    """The figures of every contender, then the ratios that count."""
    text = f"### {answer.question.name}\n\n{answer.question.asks}\n\n{_figures(answer)}"
    ratios = _ratios(answer)
    return f"{text}\n\n{ratios}" if ratios else text


def _figures(answer: Answer) -> str:
    names = answer.figures()
    rows = [[label, *(number(answer.median(label, name)) for name in names)] for label in answer.samples]
    return _markdown(["contender", *names], rows)


def _ratios(answer: Answer) -> str:
    found = [(aim, answer.ratio(aim)) for aim in answer.question.aims]
    rows = [
        [_sides(aim), number(value), _bound(aim, aim.must), _bound(aim, aim.goal), aim.verdict(value)]
        for aim, value in found
        if value is not None
    ]
    return _markdown(["ratio", "measured", "must", "goal", "reached"], rows) if rows else ""


def _sides(aim: Aim) -> str:
    if aim.against is None:
        return f"{aim.figure} of {aim.contender}"
    what = "" if aim.figure == "rate" else f" ({aim.figure})"
    return f"{aim.contender} / {aim.against}{what}"


def _bound(aim: Aim, value: float | None) -> str:
    return "-" if value is None else f"{'≤ ' if aim.at_most else ''}{value:g}"


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


def number(value: float | None) -> str:
    """A figure with three significant digits."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def as_json(answer: Answer) -> dict[str, object]:
    """Samples and ratios."""
    return {
        "question": answer.question.name,
        "samples": answer.samples,
        "ratios": [
            {"contender": aim.contender, "against": aim.against, "figure": aim.figure, "value": answer.ratio(aim)}
            for aim in answer.question.aims
        ],
    }

"""An exploration as one HTML page: self-contained, without scripts, in light and dark. All text in it is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Final

from maka_trio.testing.hash_seed import in_words
from maka_trio.testing.report_files import visible
from maka_trio.testing.stepper import Moment
from maka_trio.testing.timeline import Row, Section, Timeline, places_of, timeline_of

ROWS: Final = 1500
"""Rows of a table that are shown; more would be a page that nobody reads."""

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #60656c; --line: #d9dce0; --page: #fff; --card: #f6f7f9;
  --held: #2b8a4b; --broke: #c62a2f; --none: #e4e6ea; --shot: #b45309; --code: #eef0f3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #9ba1a8; --line: #33383e; --page: #131517;
  --card: #1b1e21; --held: #4cc275; --broke: #ff6369; --none: #2b3036; --shot: #f0a84b; --code: #22262a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 2rem 1.25rem 4rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; } p { margin: .25rem 0; } .soft { color: var(--soft); }
.verdict { font-weight: 600; } .held { color: var(--held); } .broke { color: var(--broke); }
.tiles { display: flex; flex-wrap: wrap; gap: .75rem; margin: .75rem 0; padding: 0; list-style: none; }
.tiles li { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .9rem; }
.tiles b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
h1 code { font: 600 1.5rem/1.4 ui-monospace, monospace; } pre, code { font: 13px/1.5 ui-monospace, monospace; }
pre { background: var(--code); border-radius: .5rem; padding: .75rem 1rem; overflow-x: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; margin: .5rem 0; }
.strip { display: flex; flex-wrap: wrap; gap: 2px; margin: .75rem 0; }
.strip a { width: 10px; height: 22px; border-radius: 2px; background: var(--held); }
.strip a.broke { background: var(--broke); height: 30px; margin-top: -4px; } .strip a.none { background: var(--none); }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: .5rem; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; } th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.cell { white-space: nowrap; } td code { overflow-wrap: anywhere; }
tr.shot td { color: var(--shot); font-weight: 600; }
tr:target { background: var(--card); outline: 2px solid var(--soft); outline-offset: -2px; }
summary { cursor: pointer; margin: 1rem 0 .5rem; font-weight: 600; }
"""


def page(scenario: str, sections: Sequence[Section]) -> str:
    """The whole page."""
    violations = sum(len(section.exploration.violations) for section in sections)
    body = "".join(_section(number, section) for number, section in enumerate(sections, 1))
    verdict = f"{_count(violations, 'violation')} found" if violations else "Every check held in every run"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(scenario)}: explored</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<p class="soft">Explored by maka-trio</p><h1><code>{_text(scenario)}</code></h1>\n'
        f'<p class="verdict {"broke" if violations else "held"}">{verdict}</p>\n{body}</body>\n</html>\n'
    )


def _section(number: int, section: Section) -> str:
    found, timeline = section.exploration, timeline_of(section.exploration)
    end = "".join(f'<p class="broke">Not everything chosen was tried: {_text(why)}.</p>' for why in found.cuts)
    return (
        f"<section><h2>{_text(section.title)}</h2>{_tiles(section)}{end}{_smallest(section)}"
        f"{_timeline(number, timeline)}{_places(section)}</section>\n"
    )


def _tiles(section: Section) -> str:
    found = section.exploration
    counts = (
        (found.runs, "runs"),
        (found.points.total(), "disturbances"),
        (len(found.points), "places"),
        (found.traces, "distinct traces"),
        (len(found.violations), "violations"),
        (f"{found.seconds:.1f}", "seconds"),
    )
    tiles = "".join(f"<li><b>{value}</b>{what}</li>" for value, what in counts)
    return f'<ul class="tiles">{tiles}</ul>'


def _smallest(section: Section) -> str:
    smallest = section.exploration.smallest
    if smallest is None:
        return ""
    again = f"<p>To see it again:</p><pre>{_text(section.again)}</pre>" if section.again else ""
    again += f'<p class="soft">{_text(in_words(section.exploration.hash_seed))}</p>'
    return f"<h3>The smallest failure</h3><pre>{_text(str(smallest))}</pre>{again}{_story(section.story)}"


def _story(story: Sequence[Moment]) -> str:
    if not story:
        return ""
    rows = []
    for number, moment in enumerate(story[:ROWS], 1):
        look = "" if moment.task else ' class="shot"'
        task = _text(moment.task) if moment.task else "the laboratory"
        where = f"<code>{_text(moment.where)}</code>"
        rows.append(f'<tr{look}><td class="number">{number}</td><td>{task}</td><td>{where}</td></tr>')
    table = _table(("", "task", "stops at"), rows)
    return f"<details><summary>Its trace: {_count(len(story), 'step')}</summary>{table}{_rest(len(story))}</details>"


def _timeline(number: int, timeline: Timeline) -> str:
    if not timeline.rows:
        return '<p class="soft">Nothing was disturbed: the scenario marks no target, or makes no commit.</p>'
    shown = timeline.rows[:ROWS]
    marks = "".join(_mark(f"s{number}r{index}", row) for index, row in enumerate(shown))
    rows = [_row(f"s{number}r{index}", row, timeline.columns) for index, row in enumerate(shown)]
    table = _table(("moment", *map(_text, timeline.columns), "place"), rows)
    return (
        f"<h3>The timeline of seed {timeline.seed}</h3>"
        f'<div class="strip">{marks}</div><details open><summary>{_count(len(timeline.rows), "moment")}</summary>'
        f"{table}{_rest(len(timeline.rows))}</details>"
    )


def _mark(anchor: str, row: Row) -> str:
    look = "broke" if row.broke else "held"
    title = _text(f"{row.name}: {row.place}")
    return f'<a class="{look}" href="#{anchor}" title="{title}" aria-label="{title}, {look}"></a>'


def _row(anchor: str, row: Row, columns: Iterable[str]) -> str:
    cells = "".join(_cell(row.cells.get(column)) for column in columns)
    place = f"<code>{_text(row.place)}</code>"
    return f'<tr id="{anchor}"><td class="number">{_text(row.name)}</td>{cells}<td>{place}</td></tr>'


def _cell(cell: str | None) -> str:
    if cell is None:
        return '<td class="cell soft">·</td>'
    return f'<td class="cell {cell}">{"✗ broke" if cell == "broke" else "✓ held"}</td>'


def _places(section: Section) -> str:
    places = places_of(section.exploration)
    if not places:
        return ""
    rows = [
        f'<tr><td class="number">{runs}</td><td class="number {"broke" if broken else "soft"}">{broken}</td>'
        f"<td><code>{_text(place)}</code></td></tr>"
        for place, runs, broken in places[:ROWS]
    ]
    table = _table(("runs", "broke", "place"), rows)
    summary = f"{_count(len(places), 'place')}, over all seeds"
    return f"<details><summary>{summary}</summary>{table}{_rest(len(places))}</details>"


def _table(head: Iterable[str], rows: Iterable[str]) -> str:
    titles = "".join(f"<th>{title}</th>" for title in head)
    return f'<div class="scroll"><table><thead><tr>{titles}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _rest(count: int) -> str:
    return f'<p class="soft">and {count - ROWS} more</p>' if count > ROWS else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _text(text: str) -> str:
    return html.escape(visible(text))

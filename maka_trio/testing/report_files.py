"""An exploration for programs: as JSON, and as JUnit's XML, which continuous integrations read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from xml.etree import ElementTree

from maka_trio.facts.json_value import JSON
from maka_trio.testing.exploration import Exploration, TrialViolation
from maka_trio.testing.timeline import Section, places_of

VIOLATIONS = 1000
"""How many violations of a section are told one by one; all of them are counted."""

_UNDISTURBED = "undisturbed"
_NOT_REACHED = "not reached"


def as_json(scenario: str, sections: Sequence[Section]) -> str:
    """One JSON document."""
    return json.dumps({"scenario": scenario, "explorations": [_section(section) for section in sections]}, indent=2)


def _section(section: Section) -> JSON:
    found = section.exploration
    return {
        "title": section.title,
        "runs": found.runs,
        "disturbances": found.points.total(),
        "traces": found.traces,
        "seconds": round(found.seconds, 3),
        "complete": found.complete,
        "cuts": list(found.cuts),
        "hash_seed": found.hash_seed,
        "violation_count": len(found.violations),
        "places": [{"place": place, "runs": runs, "broken": broken} for place, runs, broken in places_of(found)],
        "violations": [_violation(violation) for violation in found.violations[:VIOLATIONS]],
        "replay_command": section.again or None,
    }


def _violation(violation: TrialViolation) -> JSON:
    return {
        "words": violation.words,
        "seed": violation.seed,
        "places": list(violation.shot_at),
        "replay": violation.token,
        "call": violation.replay,
    }


def as_junit(scenario: str, sections: Sequence[Section]) -> str:
    """One suite a section, one case a place."""
    root = ElementTree.Element("testsuites", name=visible(scenario))
    for section in sections:
        _suite(root, scenario, section)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ElementTree.Element, scenario: str, section: Section) -> None:
    found = section.exploration
    first = _first_at(found)
    cases = [_UNDISTURBED, *found.points, *first.keys() - {_UNDISTURBED, *found.points}]
    suite = ElementTree.SubElement(
        root, "testsuite", name=section.title, tests=str(len(cases)), failures=str(len(first)), errors="0"
    )
    suite.set("time", f"{found.seconds:.3f}")
    for place in cases:
        case = ElementTree.SubElement(suite, "testcase", classname=visible(scenario), name=visible(place))
        if place in first:
            failure = ElementTree.SubElement(case, "failure", message=visible(first[place].words.partition("\n")[0]))
            failure.text = visible(f"{first[place]}\n{section.again}")


def _first_at(exploration: Exploration) -> dict[str, TrialViolation]:
    first: dict[str, TrialViolation] = {}
    for violation in exploration.violations:
        first.setdefault(_place(violation), violation)
    return first


def _place(violation: TrialViolation) -> str:
    if not violation.shots:
        return _UNDISTURBED
    return violation.shot_at[-1] if len(violation.shot_at) == len(violation.shots) else _NOT_REACHED


def visible(text: str) -> str:
    """The text with what is acted on instead of seen, and what XML forbids, as escapes. Line feeds stay."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )

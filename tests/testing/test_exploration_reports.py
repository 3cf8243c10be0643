"""What came of an exploration, for people and for programs: complete, escaped, and enough to see a failure again."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
import trio

from maka_trio.errors import InvalidInput
from maka_trio.testing import Shot, Trial, explore, fault_everywhere
from maka_trio.testing.replay import Replay
from maka_trio.testing.replaying import replay
from maka_trio.testing.report_files import as_json, as_junit
from maka_trio.testing.report_page import page
from maka_trio.testing.timeline import Section, places_of, timeline_of

NASTY = "<script>alert('x')</script> & \x1b[31m \u202e \x00"


async def breaks_once(trial: Trial) -> None:
    """Two checkpoints; a cancel at the second breaks it, with words that no page should take at their word."""
    done = 0
    with trial.cancellable(NASTY):
        await trio.lowlevel.checkpoint()
        done = 1
        await trio.lowlevel.checkpoint()
        done = 2
    trial.check(lambda: done != 1 or NASTY)


async def holds(trial: Trial) -> None:
    with trial.cancellable():
        await trio.lowlevel.checkpoint()


def sections() -> list[Section]:
    found = explore(breaks_once, seeds=2)
    smallest = found.smallest
    assert smallest is not None
    story = replay(breaks_once, smallest.token).moments
    return [Section("Cancels", found, story, f"again {NASTY}"), Section("Faults", fault_everywhere(holds))]


class Reader(HTMLParser):
    """The tags and the text of a page; unbalanced tags are an error."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(document)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "br"):
            self._open.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        assert all(not (value or "").startswith(("http", "//")) for name, value in attrs if name in ("href", "src"))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_self_contained_and_everything_in_it_is_escaped() -> None:
    """No script, nothing from elsewhere, no control characters, whatever names and words hold."""
    document = page(f"module:{NASTY}", sections())
    reader = Reader(document)
    assert "script" not in reader.tags
    assert "link" not in reader.tags
    assert "<script>alert('x')</script>" in reader.text
    assert not {"\x1b", "\u202e", "\x00"} & set(document)
    assert "prefers-color-scheme: dark" in document


def test_the_page_tells_counts_timeline_and_smallest_failure() -> None:
    """Each moment is a row that says what held and what broke; the failure is told step by step."""
    found = sections()
    text = Reader(page("m:s", found)).text
    for word in ("runs", "✗ broke", "✓ held", "The smallest failure", "To see it again", "the laboratory"):
        assert word in text
    assert f"{found[0].exploration.runs}runs" in text
    assert "Nothing was disturbed" in text


def test_the_timeline_has_a_row_for_each_moment() -> None:
    """On entry and after each step; only one of them broke."""
    timeline = timeline_of(explore(breaks_once))
    assert sum(row.broke for row in timeline.rows) == 1
    assert timeline.columns == (f"cancel {NASTY}",)
    assert timeline.rows[0].name == "step 0"
    assert not timeline.rows[0].broke


def test_the_timeline_shows_the_seed_of_the_smallest_failure() -> None:
    """Other seeds are in the counts of the places."""
    found = explore(breaks_once, seeds=[4, 3])
    assert timeline_of(found).seed == 3
    assert sum(broken for _, _, broken in places_of(found)) == 2
    assert places_of(found)[0][2] == 2


def test_json_holds_every_count_and_the_way_to_each_violation() -> None:
    """A program can read which places broke and how to replay each violation."""
    document = json.loads(as_json("m:s", sections()))
    first = document["explorations"][0]
    assert first["violation_count"] == len(first["violations"]) == 2
    assert sum(place["broken"] for place in first["places"]) == 2
    word = first["violations"][0]["replay"]
    assert first["violations"][0]["words"] in replay(breaks_once, word).violations


def test_junit_is_well_formed_and_counts_what_broke() -> None:
    """One suite a section, one case a place; what XML forbids is shown as escapes."""
    root = ElementTree.fromstring(as_junit(f"m:{NASTY}", sections()))
    cancels, faults = root
    assert (cancels.get("failures"), faults.get("failures")) == ("1", "0")
    assert len(cancels.findall("testcase")) == int(cancels.get("tests", "0"))
    (failure,) = cancels.iter("failure")
    assert "again" in (failure.text or "")


# --- replays ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run",
    [
        Replay(),
        Replay(7, (Shot(3, "a b/c:d@e", "cancel"), Shot(9, "ü", "deadline"))),
        Replay(0, (), ()),
        Replay(0, (Shot(1, "commit", "crash_before"),), (0, 2, 1)),
    ],
)
def test_a_replay_is_one_word_and_reads_back(run: Replay) -> None:
    """Whatever targets are called."""
    word = str(run)
    assert Replay.parse(word) == run
    assert not set(word) & set(" '\"$`\\")


@pytest.mark.parametrize(
    "word", ["", "x", "-1", "1/", "1/cancel", "1/cancel@x:y", "1[a]", "1/cancel@1:", "1 /cancel@1:x"]
)
def test_a_word_that_is_no_replay_is_refused(word: str) -> None:
    """One clear error that shows what one looks like."""
    with pytest.raises(InvalidInput, match="is no replay"):
        Replay.parse(word)


def test_a_replay_whose_point_does_not_come_is_refused() -> None:
    """A run that shows nothing of what was asked for is no answer."""
    with pytest.raises(InvalidInput, match="does not come"):
        replay(holds, "0/cancel@99:scope")
    with pytest.raises(InvalidInput, match="does not come"):
        replay(holds, "0/reset@5:read")


def test_a_replay_tells_steps_and_shots_in_order() -> None:
    """What the laboratory did stands between the steps of the tasks."""
    story = replay(holds, "0/cancel@1:scope").story.splitlines()
    assert "*** cancel of 'scope'" in story
    assert 0 < story.index("*** cancel of 'scope'") < len(story) - 1
    assert story[0].startswith("the scenario: ")

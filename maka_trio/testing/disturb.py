"""Disturbs a scenario at each commit and fault point, one run a disturbance; `crash` and `faults` say what one is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Literal

from maka_trio.records import frozen
from maka_trio.shares import Share
from maka_trio.testing.exploration import Cut, Entry, Exploration, Runs, Watch, cut_run, entry
from maka_trio.testing.explorer import check_points, chosen_seeds
from maka_trio.testing.log_trial import LogTrialResult
from maka_trio.testing.plan import spread
from maka_trio.testing.replay import Replay
from maka_trio.testing.scheduling import require_supported_trio
from maka_trio.testing.trial import Shot
from maka_trio.testing.workers import explore_shares

COMMIT = "commit"
"""The target of a shot at a commit."""

_LOST = "the run is not a function of its seed: a point that was there is not there again"


@frozen
class Trials:
    """The runs of one scenario and its follow-up.

    Attributes:
        run: makes one, with a disturbance or none, until its time is up by the real `perf_counter`. The undisturbed
            one says what there is to disturb.
        at_commits: what can be done at each commit, by name.
        call: a run as a call in words.
        certain: a run is a function of seed and disturbance, so what came once comes again.
    """

    run: Callable[[int, Shot | None, float], LogTrialResult]
    at_commits: Collection[str]
    call: Callable[[int, Shot | None], str]
    certain: bool = True

    def shots(self, calm: LogTrialResult, without: Collection[str] = ()) -> list[Shot]:
        """Everything that can be done to a run, except what is left out by the name of a kind or of a fault."""
        shots = [Shot(number, COMMIT, name) for number, _ in enumerate(calm.commits, 1) for name in self.at_commits]
        shots += [Shot(point.number, point.kind, name) for point in calm.fault_points for name in point.faults]
        return [shot for shot in shots if shot.target not in without and shot.how not in without]

    def entry(self, seed: int, shot: Shot | None, result: LogTrialResult) -> Entry | Cut:
        """What to enter of a run."""
        words = list(result.violations)
        if shot is not None and not result.disturbed and self.certain and result.unfinished is None:
            words.append(_LOST)
        places = () if result.disturbed_at is None else (result.disturbed_at,)
        replay = Replay(seed, () if shot is None else (shot,))
        made = entry(hash((result.commits, replay.shots)), replay, self.call(seed, shot), words, places)
        return made if result.unfinished is None else cut_run(result.unfinished, made)


def disturb_everywhere(
    trials: Trials,
    *,
    without: Collection[str] = (),
    points: Literal["all"] | int = "all",
    seeds: int | Iterable[int] = 1,
    budget: float | None = None,
    jobs: int = 1,
    watch: Watch | None = None,
) -> Exploration:
    """Make the undisturbed run of each seed, and one for each disturbance.

    `crash_everywhere` and `fault_everywhere` say what the arguments are.
    """
    require_supported_trio()
    check_points(points)
    which = chosen_seeds(seeds)

    def runs(share: Share, ends: float) -> Runs:
        for seed in which:
            calm = trials.run(seed, None, ends)
            if share.first or calm.unfinished:
                yield trials.entry(seed, None, calm)
            shots = trials.shots(calm, without)
            for shot in share.mine(shots if points == "all" else spread(shots, points)):
                yield trials.entry(seed, shot, trials.run(seed, shot, ends))

    return explore_shares(runs, jobs=jobs, budget=budget, watch=watch)

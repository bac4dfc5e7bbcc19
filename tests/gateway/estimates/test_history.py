"""Estimates from a store: each tick once, in order, whatever its kind, and as its frame determines it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fugu.chains.arrays import Floats
from fugu.chains.inference import filter_beliefs, fixed_lag_marginals, predict
from fugu.contract.measure_frames import MeasureFrame, Released
from gateway.estimates.history import StateRow, ValueRow, estimates_between
from gateway.store.coverage import Place
from gateway.store.journal import ReceivedFrame
from gateway.store.store import StoreError
from tests.support.measured import measure_policy
from tests.support.scenes import MODELS, Scene, frames

LAG = 3


MADE = frames([5, 1, 9, 2] * 4, gaps=[0, 0, 2, 0, 40, 0, 9_000], versions=[1, 1, 1, 2, 2])


@cache
def brute_force() -> dict[int, Floats]:
    """By tick what all symbols up to `LAG` ticks later say, each frame by the kernels from the beginning.

    Symbols of another version do not count for earlier ticks; a gap of `LAG` ticks or more has no estimates.
    """
    marginals: dict[int, Floats] = {}
    frames, newest = MADE, MADE[-1].last
    belief, before = MODELS[frames[0].policy_version].initial, frames[0].first
    for i, frame in enumerate(frames):
        model = MODELS[frame.policy_version]
        distribution = predict(belief, model.transition, frame.first - before)
        later = [other for other in frames[i + 1 :] if other.policy_version == frame.policy_version]
        others = [other.first for other in frames[i + 1 :] if other.policy_version != frame.policy_version]
        end = min(frame.last + 2 * LAG, newest, *(first - 1 for first in others))
        symbols = np.full(frame.last + 2 * LAG - frame.first + 1, -1, dtype=np.int64)
        for later_frame in (frame, *later):
            for tick, symbol in enumerate(later_frame.symbols, later_frame.first):
                if tick <= end:
                    symbols[tick - frame.first] = symbol
        ticks = [*range(frame.first, frame.last + 1)]
        following = frames[i + 1].first if i + 1 < len(frames) else newest
        if (
            following - frame.last - 1 < LAG
            and frames[i + 1 : i + 2]
            and frames[i + 1].policy_version == frame.policy_version
        ):
            ticks += range(frame.last + 1, following)
        for tick in ticks:
            if tick + LAG <= newest:
                seen = symbols[: tick - frame.first + LAG + 1]
                marginals[tick] = fixed_lag_marginals(seen, distribution, model.transition, model.emission, LAG)[
                    tick - frame.first
                ]
        own = np.frombuffer(frame.symbols, dtype=np.uint8).astype(np.int64)
        belief, before = filter_beliefs(own, distribution, model.transition, model.emission).beliefs[-1], frame.last
    return marginals


@pytest.mark.long
@pytest.mark.parametrize(("sealed", "pages"), [(0, (1, 1)), (1, (4, 32)), (7, (1, 1)), (1_000, (4, 32))])
def test_every_tick_of_symbols_is_told_once_in_order_across_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: tuple[int, int], sealed: int
) -> None:
    monkeypatch.setattr("gateway.estimates.past._PAGES", pages)
    scene = Scene(tmp_path / "s.sqlite", lag=LAG)
    frames = MADE
    for i, frame in enumerate(frames):
        scene.record(frame)
        if sealed and i % sealed == sealed - 1:
            scene.recorder.seal(now=True)
    if sealed > len(frames):
        scene.recorder.seal(now=True)
    wanted = brute_force()
    rows = list(estimates_between(scene.path, "watch", "hr", lag=LAG))
    assert [row.tick for row in rows] == sorted(wanted)
    for estimate in rows:
        assert isinstance(estimate, StateRow)
        assert np.abs(estimate.probabilities - wanted[estimate.tick]).max() < 1e-12, estimate.tick
        assert estimate.most_likely == np.argmax(estimate.probabilities)
    ticks = sorted(wanted)
    for low, high in ((0, 1), (7, len(ticks) - 9), (20, 21), (len(ticks) - 1, len(ticks))):
        some = list(estimates_between(scene.path, "watch", "hr", ticks[low], ticks[high - 1], LAG))
        assert [row.tick for row in some] == ticks[low:high]
        for row, whole in zip(some, rows[low:high], strict=True):
            assert isinstance(row, StateRow)
            assert isinstance(whole, StateRow)
            assert np.abs(np.subtract(row.probabilities, whole.probabilities)).max() < 1e-12


def test_points_are_told_with_and_without_later_ones(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "p.sqlite", lag=LAG, policies=(measure_policy(),))
    for first in range(0, 40, 10):
        points = tuple(Released(0, (tick % 3, 1)) for tick in range(10))
        scene.receive([ReceivedFrame("watch", "place", MeasureFrame(1, first - 1, first, 2, points))])
    estimates = list(estimates_between(scene.path, "watch", "place", 4, 30, LAG))
    rows = [row for row in estimates if isinstance(row, ValueRow)]
    assert [(row.tick, row.lag) for row in rows] == [(tick, lag) for tick in range(4, 31) for lag in (0, LAG)]
    place = Place(scene.store.stream_id("watch", "place") or 0, "watch", "place")
    frames = [frame for frame, _ in scene.store.points.following(place.number, 10)]
    now = scene.recorder.points.estimate(place, frames[0])
    assert [row.mean for row in rows if row.lag == 0 and 10 <= row.tick < 20] == list(now.means)
    later = scene.recorder.points.lagged_estimates(place, frames[1])
    assert {row.tick: row.covariance for row in rows if row.lag == LAG and 17 <= row.tick < 27} == {
        some.first + i: row for some in later for i, row in enumerate(some.covariances)
    }


def test_points_before_a_gap_are_told_alike_however_few_ticks_are_asked_for(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "p.sqlite", lag=LAG, policies=(measure_policy(),))
    for before, first in ((-1, 0), (9, 10), (19, 200), (209, 210)):
        points = tuple(Released(0, (tick % 3, 1)) for tick in range(10))
        scene.receive([ReceivedFrame("watch", "place", MeasureFrame(1, before, first, 2, points))])
    whole = list(estimates_between(scene.path, "watch", "place", lag=LAG))
    assert [row for row in whole if 12 <= row.tick < 20] == list(
        estimates_between(scene.path, "watch", "place", 12, 19, LAG)
    )
    assert [(row.tick, row.lag) for row in whole[:40]] == [(tick, lag) for tick in range(20) for lag in (0, LAG)]


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        next(estimates_between(tmp_path / "none.sqlite", "watch", "hr"))
    assert list(tmp_path.iterdir()) == []

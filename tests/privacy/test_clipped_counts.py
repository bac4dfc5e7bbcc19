"""Clipped counts: what all paths of small chains lose, beside what is claimed, and the device's own counting."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from pydantic import ValidationError

from edge_agent.plan import WindowPlan
from edge_agent.window import WindowCount
from firmware_sim.compiled_policy import FirmwareError, compile_policy
from fugu.audit.exact.claims import window_rate
from fugu.chains.arrays import Floats
from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.descriptions import DescribedWindow
from fugu.contract.errors import GuaranteeError
from fugu.contract.guarantee import Guarantee
from fugu.contract.policy import Policy
from fugu.contract.queries import Query as Asked
from fugu.contract.queries import window_query
from fugu.contract.rounding import exp_up
from fugu.contract.stretches import StretchBound, moved
from fugu.contract.windows import Window
from gateway.releases.jobs import answers
from gateway.releases.statistics import Query
from tests.support.oracle import by_evidence
from tests.support.soak import only_rows
from tests.support.windows import policy, window

TICKS = 7
CLOCK = {"epoch_us": 0, "period_us": 1}


def clipped(clip: int, length: int = 3, stride: int = 3, scale: str = "2") -> Window:
    return window(length=length, stride=stride, scale=scale, clip=clip)


def likelihoods(one: Window, paths: list[tuple[int, ...]]) -> Floats:
    """(paths, outputs) of all whole windows in the ticks; outside 0 to clip ratios are those of the ends."""
    assert one.clip is not None
    starts = range(0, TICKS - one.length + 1, one.stride)
    told = np.array([[min(sum(path[s : s + one.length]), one.clip) for s in starts] for path in paths])
    outputs = np.array(list(product(range(one.clip + 1), repeat=len(starts))))
    return np.exp(-np.abs(told[:, None] - outputs[None]).sum(axis=2) / float(Fraction(one.scale)))


def probabilities(q: float, r: float, paths: list[tuple[int, ...]]) -> Floats:
    step = np.array([[1 - q, q], [r, 1 - r]])
    start = np.array([r, q]) / (q + r)
    return np.array([start[p[0]] * math.prod(step[a, b] for a, b in pairwise(p)) for p in paths])


@cache
def weighed(one: Window, q: float, r: float) -> Floats:
    """Likelihoods times the probabilities of paths, and these."""
    paths = list(product((0, 1), repeat=TICKS))
    chance = probabilities(q, r, paths)[:, None]
    return np.concatenate([likelihoods(one, paths) * chance, chance], axis=1)


def exact_loss(one: Window, q: float, r: float, first: int, length: int) -> float:
    """The largest log-ratio of any output between two courses of a stretch, by all paths."""
    sums = by_evidence(weighed(one, q, r), 2, TICKS, range(first, first + length), informed=False)[:, 0]
    return float(np.ptp(np.log(sums[:, :-1] / sums[:, -1:]), axis=0).max())


@pytest.mark.long
@pytest.mark.parametrize(
    ("clip", "length", "stride"),
    only_rows([(2, 3, 3), (2, 4, 1), (1, 6, 6)], [(1, 3, 3), (2, 3, 3), (1, 4, 2), (2, 4, 1), (1, 6, 6)]),
)
@pytest.mark.parametrize(
    ("q", "r"), only_rows([(0.05, 0.1), (0.8, 0.7)], [(0.05, 0.1), (0.3, 0.4), (0.5, 0.5), (0.8, 0.7)])
)
def test_no_tick_and_no_stretch_loses_more_than_is_claimed(
    clip: int, length: int, stride: int, q: float, r: float
) -> None:
    one = clipped(clip, length, stride)
    chains = BinaryChains(q=(q, q), r=(r, r))
    ratio = exp_up(one.rate)
    claimed = chains.ratio_loss(ratio, ratio, "ignorant").epsilon
    for first in range(TICKS):
        assert exact_loss(one, q, r, first, 1) <= claimed + 1e-12
    for ticks in range(2, TICKS):
        stretch = StretchBound(claimed, 1, 0.0, (one,)).epsilon(ticks)
        assert max(exact_loss(one, q, r, first, ticks) for first in range(TICKS - ticks + 1)) <= stretch + 1e-12


def test_the_loss_of_a_tick_and_of_a_stretch_is_reached_where_all_else_is_known() -> None:
    """So that no smaller claim would be true: 1/s for a tick, clip/s for a stretch inside one window."""
    one = clipped(2, length=5, stride=5)
    paths = [(1, 0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 0, 0), (1, 1, 1, 1, 0, 0, 0)]
    told = np.log(likelihoods(one, paths))
    assert (told[0] - told[1]).max() == pytest.approx(float(one.rate)) == pytest.approx(1 / 2)
    assert (told[2] - told[1]).max() == pytest.approx(2 / 2)
    assert [moved(one, n) for n in (1, 2, 3, 4)] == [1, 2, 3, 4]  # across a border of two windows
    assert [moved(clipped(1, 600, 600), n) for n in (1, 2, 600, 1800)] == [1, 2, 2, 4]
    assert moved(window(), 600) == 600


@pytest.mark.parametrize("length", [2, 3, 5])
@pytest.mark.parametrize("stride", [1, 2, 3, 5])
def test_a_stretch_moves_no_more_than_its_bound_wherever_it_lies(length: int, stride: int) -> None:
    one = clipped(1, length, stride)
    for ticks in range(1, 12):
        for first in range(20, 30):
            stretch = set(range(first, first + ticks))
            inside = [len(stretch & set(range(s, s + length))) for s in range(0, 60, stride)]
            assert sum(min(n, 1) for n in inside) <= moved(one, ticks)


def test_a_policy_is_held_to_its_promise_from_both_sides_and_by_both_certificates() -> None:
    one = clipped(2)
    chains = BoundedChains(states=2, odds_ratio=4.0)
    epsilon = chains.ratio_loss(exp_up(one.rate), exp_up(one.rate), "universal").epsilon

    def promising(amount: float) -> Policy:
        guarantee = Guarantee(epsilon=amount, adversary="universal")
        alone = {"table": None, "frame_ticks": 1, "windows_guarantee": None}
        return policy(one, chains=chains, guarantee=guarantee, **alone)

    held = promising(epsilon)
    assert held.verify(epsilon).epsilon == epsilon
    with pytest.raises(GuaranteeError):
        promising(math.nextafter(epsilon, 0.0)).verify(epsilon)
    document = held.to_json()
    assert Policy.from_json(document) == held
    assert ['"clip"' in text for text in (document, policy(window()).to_json())] == [True, False]
    assert window_rate(held.model_dump(mode="json")) == held.window_rate == Fraction(1, 2)


@pytest.mark.parametrize("changes", [{"clip": 0}, {"clip": 3}, {"clip": 2, "states": "histogram"}])
def test_a_clip_that_clips_nothing_or_of_several_counts_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        window(length=3, stride=3, **changes)


@pytest.mark.parametrize("states", list(product((0, 1), repeat=4)))
def test_the_device_tells_the_count_up_to_its_clip_and_never_more(states: tuple[int, ...]) -> None:
    plan = WindowPlan.of(clipped(2, 5, 5).model_dump(mode="json"), ["low", "high"], CLOCK)
    for noise in (-3, 0, 5):
        count = WindowCount([noise], plan.query)
        for state in states:
            count.add(plan.places[state])
        assert count.take() == (noise + min(sum(states), 2),)
    assert WindowPlan.of(window().model_dump(mode="json"), ["low", "high"], CLOCK).query.recorded


def test_what_remembers_anything_is_in_no_record_and_no_sum() -> None:
    """A record has no memory: after a restart a window would count as if it began, and move further than is claimed."""

    class Remembers(Asked):
        def counted(self, place: int | None, memory: int) -> tuple[int | None, int]:
            return place, memory + 1

    assert not Remembers("odd").recorded
    assert not Remembers("odd").additive


def test_what_takes_numbers_for_sums_leaves_clipped_counts_out() -> None:
    one = clipped(2)
    assert answers(one, ("low", "high"), Query("count", (1,))) is None
    assert answers(window(), ("low", "high"), Query("count", (1,))) is not None
    with pytest.raises(FirmwareError, match="clipped counts"):
        compile_policy(policy(one))


def test_a_description_and_a_command_name_the_clip() -> None:
    told = DescribedWindow(name="w", length=3, stride=3, start=0, states=("high",), scale="2", clip=2)
    assert DescribedWindow.model_validate_json(told.model_dump_json()) == told
    assert "clip" not in told.model_copy(update={"clip": None}).model_dump_json()
    assert window_query("clipped:7").fields == {"clip": 7}
    for text in ("clipped", "clipped:0", "clipped:-1", "count:3", "mean"):
        with pytest.raises(ValueError, match="query must be"):
            window_query(text)

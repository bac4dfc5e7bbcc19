"""Knowledge from symbols and window counts, by adding up every path: never more than was verified."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import NamedTuple

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.discretisers import Thresholds
from fugu.contract.guarantee import Guarantee
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.contract.windows import Window
from tests.support.oracle import Array, joint_distribution, worst_ratios


class Case(NamedTuple):
    """A chain, its flips, and windows as (length, stride, histogram, scale)."""

    q: float
    r: float
    flips: tuple[float, float]
    windows: tuple[tuple[int, int, bool, str], ...]
    ticks: int


CASES = (
    Case(0.2, 0.35, (0.3, 0.4), ((3, 3, False, "2"),), 6),
    Case(0.05, 0.1, (0.45, 0.45), ((3, 2, False, "1"),), 5),
    Case(0.9, 0.8, (0.3, 0.4), ((2, 1, False, "3"),), 5),
    Case(0.3, 0.3, (0.3, 0.3), ((2, 2, True, "3/2"),), 5),
    Case(0.1, 0.4, (0.4, 0.2), ((6, 6, False, "1/2"), (2, 2, False, "5")), 6),
    Case(0.8, 0.9, (0.35, 0.35), ((3, 3, True, "4"),), 5),
)


def document(case: Case, adversary: Adversary) -> Policy:
    promise = Guarantee(epsilon=100.0, adversary=adversary)
    windows = tuple(
        Window(name=f"w{number}", length=length, stride=stride, states="histogram" if histogram else (1,), scale=scale)
        for number, (length, stride, histogram, scale) in enumerate(case.windows)
    )
    return Policy(
        **{"fleet": "home", "device": "watch", "stream": "hr", "version": 1, "frame_ticks": 10},
        clock=Clock(epoch_us=0, period_us=1_000_000),
        discretiser=Thresholds(edges=(0.5,), states=("low", "high")),
        table=NoiseTable.binary(*(round(flip * SCALE) for flip in case.flips)),
        chains=BinaryChains(q=(case.q, case.q), r=(case.r, case.r)),
        guarantee=promise,
        windows=windows,
        windows_guarantee=promise,
    )


def counted(policy: Policy, paths: Array) -> list[tuple[Array, float]]:
    """The true value (paths,) of every number that is released, and the scale of its noise; the last windows are cut.

    A window that begins before the first tick is one that the device saw only a part of.
    """
    ticks = paths.shape[1]
    numbers = []
    for window in policy.windows:
        for index in range(-window.overlap, ceil(ticks / window.stride)):
            inside = [t for t in range(ticks) if 0 <= t - index * window.stride < window.length]
            if inside:
                for state in window.counted(policy.discretiser.states):
                    numbers.append(((paths[:, inside] == state).sum(axis=1), float(Fraction(window.scale))))
    return numbers


def likelihoods(policy: Policy, paths: Array) -> Array:
    """(paths, outputs): the likelihood of every combination of noisy counts, up to a factor that no path changes.

    A count below zero, or above the number of ticks, has the same ratios as zero, or as that number.
    """
    table = np.ones((len(paths), 1))
    for values, scale in counted(policy, paths):
        outputs = np.arange(values.max() + 1)
        distribution = np.exp(-np.abs(outputs[None, :] - values[:, None]) / scale)
        table = (table[:, :, None] * distribution[:, None, :]).reshape(len(paths), -1)
    return table


def worst(policy: Policy, ticks: int, *, symbols: bool, informed: bool) -> float:
    """The largest log-likelihood ratio between two values of one state, over outputs, positions and known states."""
    q, r = policy.chains.q[0], policy.chains.r[0]
    transition = np.array([[1 - q, q], [r, 1 - r]])
    emission = np.array(policy.table.weights()) / SCALE
    stationary = np.array([r, q]) / (q + r)
    paths, joint = joint_distribution(stationary, [transition] * (ticks - 1), emission)
    weight = joint.sum(axis=1)
    seen = joint / weight[:, None] if symbols else np.ones((len(paths), 1))
    released = (seen[:, :, None] * likelihoods(policy, paths)[:, None, :]).reshape(len(paths), -1)
    return float(worst_ratios(weight[:, None] * released, weight, 2, ticks, informed=informed).max())


@pytest.mark.long
@pytest.mark.parametrize("case", CASES[::2])
@pytest.mark.parametrize("adversary", ["ignorant", "informed"])
@pytest.mark.parametrize("symbols", [True, False])
def test_no_output_says_more_than_was_verified(case: Case, adversary: Adversary, symbols: bool) -> None:
    policy = document(case, adversary)
    verified = policy.verify(100.0) if symbols else policy.verify_windows()
    exact = worst(policy, case.ticks, symbols=symbols, informed=adversary == "informed")
    assert exact <= verified.epsilon
    if case.q + case.r < 1:  # of an alternating chain, a count says less than so many free choices could
        assert exact > 0.5 * verified.epsilon


def test_leaving_the_windows_out_of_the_sum_would_break_the_promise() -> None:
    """The enumeration sees what windows add: the table's own loss is not enough."""
    case = CASES[0]
    policy = document(case, "informed")
    alone = Policy.from_json(policy.model_copy(update={"windows": (), "windows_guarantee": None}).to_json())
    assert worst(policy, case.ticks, symbols=True, informed=True) > alone.verify(100.0).epsilon

"""What the MQM paper gets wrong, each with a counterexample."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fugu.chains.arrays import Floats
from fugu.privacy.chain_class import MarkovChain
from fugu.privacy.quilts import Mixing, mixing, mqm_approx, mqm_exact, width_influences
from papers.mqm import THETA1, THETA2
from papers.rows import Row, Setting, at_most

__all__ = ["ERRATA", "lost_by_a_clock"]


def _clock() -> MarkovChain:
    """Twenty hours; at hour 0, one of them is skipped now and then."""
    transition = np.roll(np.eye(20), 1, axis=1)
    transition[0, 1] = transition[0, 2] = 0.5
    return MarkovChain.stationary(transition)


def _printed_scale(known: Mixing, ticks: int) -> float:
    """MQMApprox's scale at epsilon 1 for an eigengap and a rarest state, over all quilts of two widths."""
    widths = np.arange(1, ticks // 2)
    right = width_influences(known, widths)
    left = 1.0 - 2.0 * right[:, None] - right[None, :]
    with np.errstate(divide="ignore"):
        scales = np.where(left > 0.0, (widths[:, None] + widths[None, :] - 1) / left, np.inf)
    return float(min(ticks, scales.min()))


def lost_by_a_clock(chain: MarkovChain, ticks: int, scale: float) -> Floats:
    """(ticks,) what a noisy count tells of each tick of a chain of hours, as a logarithm of a ratio.

    A count of the ticks that show the hour expected of a clock that was at hour 0 at tick 100. Far above its range, an
    answer has a density proportional to E[exp(count / scale)]: exact by forward and backward sums.
    """
    reverse = _reverse(chain)
    hours = [np.eye(20)[0]] * ticks
    for t in range(100, ticks):
        hours[t] = hours[t - 1] @ chain.transition
    for t in range(98, -1, -1):
        hours[t] = hours[t + 1] @ reverse
    adds = np.array([np.eye(20)[hour.argmax()] for hour in hours]) / scale
    right, left = [np.ones(20)], [np.ones(20)]
    for t in range(ticks - 1, 0, -1):
        right.append(chain.transition @ (right[-1] * np.exp(adds[t])))
    for t in range(ticks - 1):
        left.append(reverse @ (left[-1] * np.exp(adds[t])))
    told = np.log(np.array(left)) + np.log(np.array(right[::-1])) + adds
    return np.asarray(told.max(axis=1) - told.min(axis=1))


def _reverse(chain: MarkovChain) -> Floats:
    """P*, of the chain backwards."""
    distribution = chain.stationary_distribution
    return np.asarray((distribution[:, None] * chain.transition).T / distribution[:, None])


def _eigengap(setting: Setting) -> Iterator[Row]:
    """Equations 7 and 14 leave out every unit eigenvalue of P P*, not one: a clock never forgets its hour."""
    chain, ticks = _clock(), 200
    root = np.sqrt(distribution := chain.stationary_distribution)
    values = np.linalg.eigvals(chain.transition @ _reverse(chain)).real
    printed = float(1.0 - max(value for value in values if abs(value - 1.0) > 1e-9))
    lost = lost_by_a_clock(chain, ticks, _printed_scale(Mixing(printed, float(distribution.min())), ticks))
    singular = np.linalg.svd(root[:, None] * chain.transition / root, compute_uv=False)
    why = "exactly one unit eigenvalue belongs to the stationary distribution; the others are never forgotten"
    gap = 1.0 - float(singular[1]) ** 2
    yield Row("clock of 20 hours: the eigengap", gap, printed, "formula", 1e-9, why=why, computed=True)
    about = "clock: what MQMApprox at epsilon 1 loses"
    yield at_most(f"{about} at tick 100", float(lost[99]), 1.0, why, computed=False)
    yield at_most(f"{about} at its worst tick", float(lost.max()), 1.0, why, computed=False)
    whole = mqm_exact((chain,), ticks, 1.0).scale
    yield Row("clock, 200 ticks, epsilon 1: noise of MQMExact, which protects all as one", whole)


def _precondition(setting: Setting) -> Iterator[Row]:
    """Lemma 4.8 holds for widths above 2 log(1/p) / g only; algorithm 4 does not check."""
    known = mixing((MarkovChain.stationary(THETA1.transition), MarkovChain.stationary(THETA2.transition)), False)
    least = 2.0 * math.log(1.0 / known.rarest) / known.gap
    yield Row("theta1, theta2: widths must be above", least)
    width = math.floor(least)
    about = f"lemma 4.8's denominator p - exp(-g a / 2) at a width of {width}: must be above 0"
    why = "the logarithm of a negative number is no bound: smaller widths are excluded, strictly"
    denominator = known.rarest - math.exp(-known.gap * width / 2.0)
    yield Row(about, denominator, 0.0, "claim", limit="at least", why=why)
    a, b = mqm_approx((THETA1, THETA2), None, 5.0, False).quilt
    yield Row("widths that ours takes at epsilon 5", f"{a} and {b}")


def _histogram(setting: Setting) -> Iterator[Row]:
    """GroupDP's noise of a histogram is Laplace(2 / eps) a bin, not Laplace(1 / eps): a change of state moves two bins.

    Two states of which one group is in either: the histogram is (1, 0) or (0, 1).
    """
    scale = 1.0  # 1 / eps at epsilon 1
    lost = sum(abs(a - b) / scale for a, b in zip((1, 0), (0, 1), strict=True))
    about = "one group in state 0 or 1, Laplace(1 / eps) in both bins, epsilon 1: what is lost"
    yield at_most(about, lost, 1.0, "the ratio of densities of both bins multiplies", computed=False)


ERRATA = {
    "erratum-mqm-eigengap": _eigengap,
    "erratum-mqm-precondition": _precondition,
    "erratum-mqm-histogram": _histogram,
}
"""By name: the first line of each one's description is its title."""

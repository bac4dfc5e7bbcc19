"""True losses of two-state streams whose noise changes from tick to tick: by every path, and by recursion.

Nothing here computes with the product. `steps` are the steps of the chain, in order. Each has the rates of its output,
(state 0 over 1, state 1 over 0) in nats, zeros where nothing was drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numba
import numpy as np

from fugu.contract.losses import Adversary
from tests.support.oracle import Array, by_evidence, paths_of

__all__ = ["by_every_path", "emission_of", "leakages", "odds_leakage", "sides", "stretch_losses"]


def emission_of(rates: tuple[float, float]) -> Array:
    """A randomised response with these rates, (2 states, 2 outputs)."""
    g01, g10 = math.exp(rates[0]), math.exp(rates[1])
    if g01 * g10 == 1.0:
        return np.full((2, 2), 0.5)
    wrong0, wrong1 = (g01 - 1) / (g01 * g10 - 1), (g10 - 1) / (g01 * g10 - 1)
    return np.array([[1 - wrong0, wrong0], [wrong1, 1 - wrong1]])


def by_every_path(
    chains: Sequence[Array], emissions: Sequence[Array], inside: Sequence[int], *, informed: bool
) -> float:
    """The largest log-likelihood ratio of two courses of some ticks, over all outputs and, if informed, known states.

    `chains`: the steps between the ticks, (n - 1) matrices; the start is stationary for the first of them.
    """
    n = len(emissions)
    q, r = chains[0][0, 1], chains[0][1, 0]
    paths, weight = paths_of(np.array([r, q]) / (q + r), chains)
    table = np.ones((len(paths), len(paths)))  # of two outputs there are as many courses as of two states
    for tick, emission in enumerate(emissions):
        table *= emission[paths[:, tick]][:, paths[:, tick]]
    table = np.concatenate([table * weight[:, None], weight[:, None]], axis=1)
    at = by_evidence(table, 2, n, inside, informed=informed)
    logs = np.log(at[:, :, :-1] / at[:, :, -1:])
    return float((logs.max(axis=0) - logs.min(axis=0)).max())


def leakages(q: float, r: float, steps: Array, adversary: Adversary) -> Array:
    """The most that all steps before each one tell of its state, (n + 1, 2 directions) in nats; the last is of the end.

    By posterior odds with the worst outputs over those without any, from a stationary start or from each known state.
    """
    return _leakages(q, r, np.ascontiguousarray(steps), adversary == "informed")


@numba.njit(cache=True)
def _leakages(q: float, r: float, steps: Array, informed: bool) -> Array:
    n, count = len(steps), 1
    array = np.zeros((n + 1, 2))
    high, low, bare = np.full(2 * n + 1, r / q), np.full(2 * n + 1, r / q), np.full(2 * n + 1, r / q)
    for t in range(n + 1):
        for i in range(count):
            array[t, 0] = max(array[t, 0], math.log(high[i] / bare[i]))
            array[t, 1] = max(array[t, 1], math.log(bare[i] / low[i]))
        if t == n:
            break
        more, less = math.exp(steps[t, 0]), math.exp(-steps[t, 1])
        for i in range(count):
            up, down, odds = high[i] * more, low[i] * less, bare[i]
            up, down, bare[i] = (
                (up * (1 - q) + r) / (up * q + 1 - r),
                (down * (1 - q) + r) / (down * q + 1 - r),
                (odds * (1 - q) + r) / (odds * q + 1 - r),
            )
            high[i], low[i] = (up, down) if q + r <= 1 else (down, up)
        if informed:
            for odds in ((1 - q) / q, r / (1 - r)):
                high[count] = low[count] = bare[count] = odds
                count += 1
    return array


def odds_leakage(alpha: float, steps: Array) -> Array:
    """The same for any side information and any steps of bounded odds ratios, (n + 1, 2 directions)."""
    return _odds_leakage(math.sqrt(alpha), np.ascontiguousarray(steps))


@numba.njit(cache=True)
def _odds_leakage(root: float, steps: Array) -> Array:
    array = np.zeros((len(steps) + 1, 2))
    for t in range(len(steps)):
        for way in range(2):
            s = math.exp((steps[t, way] + array[t, way]) / 2)
            array[t + 1, way] = 2 * math.log((root * s + 1) / (root + s))
    return array


def sides(q: float, r: float, steps: Array, adversary: Adversary) -> tuple[Array, Array]:
    """Leakages of the past and of the future of each step, as `stretch_losses` takes them."""
    if adversary == "universal":
        alpha = (1 - q) * (1 - r) / (q * r)
        past, future = (odds_leakage(max(alpha, 1 / alpha), some) for some in (steps, steps[::-1]))
    else:
        past, future = (leakages(q, r, some, adversary) for some in (steps, steps[::-1]))
    return past, future[::-1]


def stretch_losses(past: Array, future: Array, steps: Array, ticks: int) -> Array:
    """Loss of the stretches of some steps that begin at each, by the leakages on both sides; (n - ticks + 1,).

    `past` is as of `leakages`; `future` the same of the steps in reverse, turned back.
    """
    n = len(steps)
    if ticks == 1:
        return (steps + past[:n] + future[1:]).max(axis=1)
    inner = np.concatenate([[0.0], np.cumsum(steps.max(axis=1))])
    begins = np.arange(n - ticks + 1)
    ends = begins + ticks - 1
    return (
        (steps[begins] + past[begins]).max(axis=1)
        + (inner[ends] - inner[begins + 1])
        + (steps[ends] + future[ends + 1]).max(axis=1)
    )

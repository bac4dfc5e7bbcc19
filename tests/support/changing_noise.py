"""True losses of two-state streams whose noise changes from tick to tick: by every path, and by recursion.

Nothing here computes with the product. `steps` are the steps of the chain, in order. Each has the rates of its output,
(state 0 over 1, state 1 over 0) in nats, zeros where nothing was drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numba
import numpy as np
import numpy.typing as npt

from fugu.contract.losses import Adversary

__all__ = ["by_every_path", "emission_of", "leakages", "odds_leakage", "stretch_losses"]

Array = npt.NDArray[np.float64]


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
    start = np.array([r, q]) / (q + r)
    paths, outputs = (np.array(list(product(range(2), repeat=n))) for _ in range(2))
    weight = start[paths[:, 0]]
    for step, chain in enumerate(chains):
        weight = weight * chain[paths[:, step], paths[:, step + 1]]
    table = np.ones((len(paths), len(outputs)))
    for tick, emission in enumerate(emissions):
        table *= emission[paths[:, tick]][:, outputs[:, tick]]
    table = np.concatenate([table * weight[:, None], weight[:, None]], axis=1).reshape(*(2,) * n, -1)
    for tick in {*range(n)} - {*inside}:
        unknown = table.sum(axis=tick, keepdims=True)
        table = np.concatenate([table, unknown], axis=tick) if informed else unknown
    at = np.moveaxis(table, inside, range(len(inside))).reshape(2 ** len(inside), -1, table.shape[-1])
    logs = np.log(at[:, :, :-1] / at[:, :, -1:])
    return float((logs.max(axis=0) - logs.min(axis=0)).max())


def leakages(q: float, r: float, steps: Array, adversary: Adversary) -> Array:
    """The most that all steps before each one tell of its state, (n + 1, 2 directions) in nats; the last is of the end.

    By posterior odds with the worst outputs over those without any, from a stationary start or from each known state.
    """
    array: Array = _leakages(q, r, np.ascontiguousarray(steps), adversary == "informed")
    return array


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
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
    array: Array = _odds_leakage(math.sqrt(alpha), np.ascontiguousarray(steps))
    return array


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _odds_leakage(root: float, steps: Array) -> Array:
    array = np.zeros((len(steps) + 1, 2))
    for t in range(len(steps)):
        for way in range(2):
            s = math.exp((steps[t, way] + array[t, way]) / 2)
            array[t + 1, way] = 2 * math.log((root * s + 1) / (root + s))
    return array


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

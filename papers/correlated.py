"""Noise that is kept from tick to tick (BDP, section 3.3), drawn and attacked.

A flip follows no flip with probability rho0, and no flip follows a flip with rho1; a symbol is the reading, flipped or
not. The noise of a tick is then known to whoever knows its reading, and tells of the noise beside it.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from fugu.chains.arrays import Bools, Floats, Ints
from papers.bdp import drawn_chains, half_interval, point
from papers.rows import Found, Row, Setting

__all__ = ["attacked", "correlated_noise", "middle_posterior"]

_READINGS, _TICKS = np.array([[0.9, 0.1], [0.1, 0.9]]), 21
_FLIPS = np.array([[0.8, 0.2], [0.3, 0.7]])


def middle_posterior(readings: Floats, flips: Floats, symbols: Ints, states: Ints, known: Bools) -> Floats:
    """The probabilities (runs, 2) of the middle reading given all symbols and the true states of known ticks.

    A reading and its symbol name the flip, so that the pair is a chain of two states: exact by passes from both ends.

    Args:
        readings, flips: transition matrices.
        symbols, states: runs x ticks.
        known: (ticks,) whose states are known.
    """
    ticks = symbols.shape[1]

    def start(chain: Floats) -> Floats:
        return np.asarray(np.array([chain[1, 0], chain[0, 1]]) / (chain[0, 1] + chain[1, 0]))

    def weighed(tick: int) -> Floats:
        return np.eye(2)[states[:, tick]] if known[tick] else np.ones((len(symbols), 2))

    def steps(tick: int) -> Floats:
        """From x at a tick to y at the next, runs x 2 x 2."""
        each = np.arange(2)
        before, after = each ^ symbols[:, tick, None], each ^ symbols[:, tick + 1, None]
        return np.asarray(readings * flips[before[:, :, None], after[:, None, :]])

    def half(order: range, message: Floats, *, forward: bool) -> Floats:
        for tick in order:
            message = message * weighed(tick if forward else tick + 1)
            message = np.einsum("rx,rxy->ry" if forward else "ry,rxy->rx", message, steps(tick))
            message /= message.sum(axis=1, keepdims=True)
        return message

    middle = ticks // 2
    first = start(readings) * start(flips)[np.arange(2) ^ symbols[:, 0, None]]
    ahead = half(range(middle), first, forward=True)
    behind = half(range(ticks - 2, middle - 1, -1), np.ones((len(symbols), 2)), forward=False)
    told = ahead * behind
    return np.asarray(told / told.sum(axis=1, keepdims=True))


def attacked(flips: Floats, known: int, runs: int, generator: np.random.Generator) -> tuple[Floats, float]:
    """True where an attacker who knows the states of some ticks names the reading between them; and the furthest odds.

    Args:
        known: of those nearest to the middle, half on either side.
    """
    states = drawn_chains(_READINGS, runs, _TICKS, generator)
    symbols = states ^ drawn_chains(flips, runs, _TICKS, generator)
    middle = _TICKS // 2
    beside = np.abs(np.arange(_TICKS) - middle)
    told = (beside > 0) & (beside <= known // 2)
    after = middle_posterior(_READINGS, flips, symbols, states, told)
    nothing = middle_posterior(_READINGS, np.full((2, 2), 0.5), symbols, states, told)  # of the known states alone
    odds = np.abs(np.log(after[:, 0] / after[:, 1]) - np.log(nothing[:, 0] / nothing[:, 1]))
    return (after.argmax(axis=1) == states[:, middle]).astype(float), float(odds.max())


def correlated_noise(setting: Setting) -> Found:
    """Section 3.3 drawn and attacked: flips that depend on one another beside as many that do not."""
    runs = 2_000 if setting.quick else 20_000
    generator = np.random.default_rng(33)
    share = float(_FLIPS[0, 1] / (_FLIPS[0, 1] + _FLIPS[1, 0]))
    alone = np.array([[1.0 - share, share]] * 2)
    rows = []
    nothing = np.full((2, 2), 0.5)
    for name, flips in (("flips that depend", _FLIPS), ("as many that do not", alone), ("fair coins", nothing)):
        for known in (0, 2, 4):
            named, odds = attacked(flips, known, runs, generator)
            mean, reach = float(named.mean()), half_interval(named)
            about = f"{name}, the {known} nearest states known" if known else f"{name}, no state known"
            quantity = f"{about}: success ({runs} streams, 95 % interval)"
            rows.append(Row(quantity, mean, interval=(mean - reach, mean + reach)))
            rows.append(Row(f"{about}: furthest change of log-odds that was seen", odds))
    ratio = (1 - Fraction(share)) / Fraction(share)
    informed = point(0.1, 0.1).ratio_loss(ratio, ratio, "informed").epsilon
    rows.append(Row("as many that do not: their epsilon against who knows states", informed))
    for name, flips in (("flips that depend", _FLIPS), ("as many that do not", alone)):
        rows.append(Row(f"{name}: standard deviation of the share of {_TICKS} symbols that are flipped", _error(flips)))
    note = (
        f"Readings change with 0.1, {share:.2g} of all symbols are flipped. Attackers know both chains, and use all "
        "symbols exactly. The exact losses of seven ticks are those of erratum-bdp-correlated-noise."
    )
    return Found(tuple(rows), (), (note,))


def _error(flips: Floats) -> float:
    """The standard deviation of the share of ticks whose symbol is flipped."""
    share = float(flips[0, 1] / (flips[0, 1] + flips[1, 0]))
    decay = 1.0 - float(flips[0, 1] + flips[1, 0])
    sums = sum((_TICKS - abs(lag)) * decay ** abs(lag) for lag in range(1 - _TICKS, _TICKS))
    return math.sqrt(share * (1.0 - share) * sums) / _TICKS

"""Noise that is kept from tick to tick (BDP, section 3.3): its exact losses, drawn and attacked.

A flip follows no flip with probability rho0, and no flip follows a flip with rho1; a symbol is the reading, flipped or
not. Readings and their symbols name the flips, so that given all symbols the readings are a chain of two states.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from fugu.chains.arrays import Bools, Floats, Ints
from papers.bdp import drawn_chains, mean_interval
from papers.rows import Found, Row, Setting

__all__ = ["attacked", "correlated_noise", "flip_chain_loss", "ignorant_loss", "least_flips", "middle_posterior"]

_READINGS, _TICKS = np.array([[0.9, 0.1], [0.1, 0.9]]), 21
_FLIPS = np.array([[0.8, 0.2], [0.3, 0.7]])


def middle_posterior(readings: Floats, flips: Floats, symbols: Ints, states: Ints, revealed: Bools) -> Floats:
    """The probabilities (runs, 2) of the middle reading given all symbols and the true states of known ticks.

    A reading and its symbol name the flip, so that the pair is a chain of two states: exact by passes from both ends.

    Args:
        readings, flips: transition matrices.
        symbols, states: runs x ticks.
        revealed: (ticks,) whose states are known.
    """
    ticks = symbols.shape[1]

    def start(chain: Floats) -> Floats:
        return np.asarray(np.array([chain[1, 0], chain[0, 1]]) / (chain[0, 1] + chain[1, 0]))

    def weighed(tick: int) -> Floats:
        return np.eye(2)[states[:, tick]] if revealed[tick] else np.ones((len(symbols), 2))

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
    weights = ahead * behind
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def attacked(flips: Floats, neighbours: int, runs: int, generator: np.random.Generator) -> tuple[Floats, float]:
    """True where an attacker who knows the states of some ticks names the reading between them; and the furthest odds.

    Args:
        neighbours: how many of these ticks, the nearest to the middle, half on either side.
    """
    states = drawn_chains(_READINGS, runs, _TICKS, generator)
    symbols = states ^ drawn_chains(flips, runs, _TICKS, generator)
    middle = _TICKS // 2
    beside = np.abs(np.arange(_TICKS) - middle)
    revealed = (beside > 0) & (beside <= neighbours // 2)
    after = middle_posterior(_READINGS, flips, symbols, states, revealed)
    nothing = middle_posterior(_READINGS, np.full((2, 2), 0.5), symbols, states, revealed)  # of the known states alone
    odds = np.abs(np.log(after[:, 0] / after[:, 1]) - np.log(nothing[:, 0] / nothing[:, 1]))
    return (after.argmax(axis=1) == states[:, middle]).astype(float), float(odds.max())


_LONG = 200
"""Ticks on either side after which losses change no more: chains of this page forget far sooner."""


def ignorant_loss(theta: float, rho0: float, rho1: float) -> float:
    """The loss of a long stream of symbols 0 to an adversary who knows no state, in closed form.

    It depends on rho0 / rho1 alone: dependent flips lose what independent ones with as many errors lose.
    """
    return 2.0 * math.asinh((1.0 - theta) * (rho1 - rho0) / (2.0 * theta * math.sqrt(rho0 * rho1)))


def flip_chain_loss(theta: float, rho0: float, rho1: float, *, informed: bool, ticks: int = _LONG) -> float:
    """The loss of a tick in the middle of a stream, the largest over all symbols and all known states.

    Given all symbols, the likelihood ratio of a side is a Moebius map of that of the next tick, hence monotone. The
    extremes over all symbols come from the extremes of the next tick. A nearest known state hides what is behind it.

    Args:
        theta: probability that a reading changes, either way.
        rho0, rho1: that a flip follows no flip, and no flip a flip.
        informed: whether the adversary may know other states.
        ticks: on either side.
    """
    steps, flips = _two_rates(theta, theta), _two_rates(rho0, rho1)
    share = (rho1 / (rho0 + rho1), rho0 / (rho0 + rho1))

    def before(symbol: int, later: dict[int, tuple[float, float]]) -> tuple[float, float]:
        ratios = []
        for following, ends in later.items():
            for ratio in ends:
                ahead = (1.0, 0.0) if math.isinf(ratio) else (ratio, 1.0)
                sides = [sum(steps[x][y] * flips[x ^ symbol][y ^ following] * ahead[y] for y in (0, 1)) for x in (0, 1)]
                ratios.append(sides[0] / sides[1])
        return min(ratios), max(ratios)

    sides = dict.fromkeys((0, 1), (1.0, 1.0))
    for _ in range(ticks):
        sides = {symbol: before(symbol, sides) for symbol in (0, 1)}
    largest = {symbol: sides[symbol][1] for symbol in (0, 1)}
    for state in (0, 1) if informed else ():
        evidence = math.inf if state == 0 else 0.0
        sides = dict.fromkeys((0, 1), (evidence, evidence))
        decay = 1.0
        for _ in range(ticks):
            sides = {symbol: before(symbol, sides) for symbol in (0, 1)}
            decay *= 1.0 - 2.0 * theta
            prior = (1.0 + decay) / (1.0 - decay) if state == 0 else (1.0 - decay) / (1.0 + decay)
            largest = {symbol: max(largest[symbol], sides[symbol][1] / prior) for symbol in (0, 1)}
    return max(math.log(share[symbol] / share[1 - symbol] * largest[symbol] ** 2) for symbol in (0, 1))


def _two_rates(leaving: float, returning: float) -> tuple[tuple[float, float], tuple[float, float]]:
    return (1.0 - leaving, leaving), (returning, 1.0 - returning)


def least_flips(theta: float, epsilon: float, *, dependent: bool) -> float:
    """The least share of flipped symbols whose loss to an informed adversary is at most epsilon."""

    def excess(share: float) -> float:
        def loss(total: float) -> float:
            return flip_chain_loss(theta, share * total, (1.0 - share) * total, informed=True, ticks=40)

        best = float(minimize_scalar(loss, bounds=(0.05, 1.0), method="bounded").fun) if dependent else loss(1.0)
        return best - epsilon

    return float(brentq(excess, 1e-3, 0.5 - 1e-9, xtol=1e-5))


def correlated_noise(setting: Setting) -> Found:
    """Section 3.3: flips that depend on one another lose no more than as many that do not, and less to the informed."""
    theta, rho0, rho1 = 0.1, float(_FLIPS[0, 1]), float(_FLIPS[1, 0])
    share = rho0 / (rho0 + rho1)
    limit, about = ignorant_loss(theta, rho0, rho1), "theta 0.1, rho0 0.2, rho1 0.3, a long stream"

    rows: list[Row] = []
    for informed in (False, True):
        for words, rates in ((":", (rho0, rho1)), (": as many independent flips,", (share, 1.0 - share))):
            loss = flip_chain_loss(theta, *rates, informed=informed)
            quantity = f"{about}{words} loss to who knows {'states' if informed else 'no state'}"
            row = Row(quantity, loss) if informed else Row(quantity, loss, limit, "formula", 1e-9, computed=True)
            rows.append(row)
    for epsilon in (4.0,) if setting.quick else (2.0, 4.0, 6.0):
        for words, dependent in (("dependent", True), ("independent", False)):
            quantity = f"theta 0.1, epsilon {epsilon:g}, informed: least share of {words} flips"
            rows.append(Row(quantity, least_flips(theta, epsilon, dependent=dependent)))
    runs = 2_000 if setting.quick else 20_000
    generator = np.random.default_rng(33)
    alone = np.array([[1.0 - share, share]] * 2)
    for name, flips in (("flips that depend", _FLIPS), ("as many that do not", alone)):
        for neighbours in (0, 2, 4):
            named, odds = attacked(flips, neighbours, runs, generator)
            mean, interval = mean_interval(named)
            about = f"{name}, the {neighbours} nearest states known" if neighbours else f"{name}, no state known"
            quantity = f"{about}: success ({runs} streams, 95 % interval)"
            rows.append(Row(quantity, mean, interval=interval))
            rows.append(Row(f"{about}: furthest change of log-odds that was seen", odds))
        rows.append(Row(f"{name}: standard deviation of the share of {_TICKS} symbols that are flipped", _error(flips)))
    note = (
        f"Readings change with 0.1, {share:.2g} of all symbols are flipped. Attackers know both chains, and use all "
        "symbols exactly. The paper compares losses to the ignorant adversary, and claims nothing of the informed. "
        "Since theorem 2 is false, dependent flips gain against those."
    )
    return Found(rows, notes=[note])


def _error(flips: Floats) -> float:
    """The standard deviation of the share of ticks whose symbol is flipped."""
    share = float(flips[0, 1] / (flips[0, 1] + flips[1, 0]))
    decay = 1.0 - float(flips[0, 1] + flips[1, 0])
    sums = sum((_TICKS - abs(lag)) * decay ** abs(lag) for lag in range(1 - _TICKS, _TICKS))
    return math.sqrt(share * (1.0 - share) * sums) / _TICKS

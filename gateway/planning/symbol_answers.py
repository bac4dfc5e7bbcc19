"""What answers from randomised symbols are worth: the state now, and shares by inverting the noise."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from contract.noise_table import SCALE, NoiseTable
from gateway.attack import release_symbols
from gateway.chain import filter_beliefs, stationary_law
from gateway.chain.arrays import Floats, Ints
from gateway.planning.answers import guess_error, true_shares
from gateway.planning.sampled import Cut

__all__ = ["Assessed", "assess_now", "assess_shares"]

_CONFIDENCE = 0.95
_RUNS = 20
_BLOCKS = 8


class Assessed(NamedTuple):
    """The mean absolute error of answers, what 95 % are within, the error of always guessing, and how many answers."""

    mean: float
    most: float
    guess: float
    judged: int


def assess_now(table: NoiseTable, fit: Cut, judged: Cut, stretch: int, rng: np.random.Generator) -> Assessed:
    """How often the most likely state, given all symbols up to its tick, is wrong.

    Args:
        fit: the states that a subscriber's chain was learned from.
        stretch: ticks of the stretches of which 95 % are wrong no more often than is told.
    """
    k = table.states
    transition = _rates(fit, k)
    law = stationary_law(transition)
    wrong = _wrong(table, judged, transition, law, rng)
    alike = np.concatenate([wrong, _wrong(table, fit, transition, law, rng)])
    blocks = [part.mean() for part in np.array_split(alike, _BLOCKS) if len(part)]
    each = len(alike) / _BLOCKS
    spread = float(np.std(blocks, ddof=1)) * math.sqrt(1.0 / len(blocks) + each / max(stretch, 1))
    most = float(np.mean(blocks)) + float(stats.t.ppf(_CONFIDENCE, len(blocks) - 1)) * spread
    stated = judged.states[judged.states >= 0]
    # The state that is most frequent there: a guess learned elsewhere would make symbols look better after a drift.
    guess = 1.0 - float(np.bincount(stated, minlength=k).max()) / max(len(stated), 1)
    return Assessed(float(wrong.mean()), min(1.0, max(most, float(wrong.mean()))), guess, len(wrong))


def assess_shares(
    table: NoiseTable, fit: Cut, judged: Cut, length: int, bins: tuple[tuple[int, ...], ...], rng: np.random.Generator
) -> Assessed | None:
    """How far off shares are that come from counts of symbols; none if there are too few windows.

    Args:
        fit: where the guess is learned, and where 95 % of the errors are looked for as well.
        length: ticks of a share.
    """
    inverse = np.linalg.inv(np.array(table.weights(), dtype=np.float64) / SCALE)
    errors, known = [], []
    for cut in (fit, judged):
        shares = true_shares(cut.states, cut.segments, length, bins)
        if len(shares.counts) < 2:
            return None
        rows = shares.first[:, None] + np.arange(length)
        told = []
        for _ in range(_RUNS):
            symbols = _symbols(cut.states, table, rng)[rows]
            seen = np.stack([(symbols == symbol).mean(axis=1) for symbol in range(table.symbols)], axis=1)
            states = seen @ inverse
            answers = np.stack([states[:, list(some)].sum(axis=1) for some in bins], axis=1)
            told.append(np.abs(np.clip(answers, 0.0, 1.0) - shares.truth))
        errors.append(np.concatenate(told))
        known.append(shares.truth)
    every = np.concatenate(errors).ravel()
    guess = guess_error(known[0], np.concatenate(known), 1, rng)
    # A quantile of so many simulated answers is off by little; half a per cent more covers it.
    return Assessed(
        float(errors[1].mean()), float(np.quantile(every, _CONFIDENCE + 0.005)), guess, sum(map(len, known))
    )


def _wrong(table: NoiseTable, cut: Cut, transition: Floats, law: Floats, rng: np.random.Generator) -> Floats:
    symbols = _symbols(cut.states, table, rng)
    emission = np.array(table.weights(), dtype=np.float64) / SCALE
    lengths = np.diff(np.flatnonzero(np.diff(cut.segments, prepend=-1, append=-1)))
    beliefs = filter_beliefs(symbols, law, transition, emission, lengths=lengths).beliefs
    return np.asarray(beliefs.argmax(axis=1) != cut.states, dtype=np.float64)[cut.states >= 0]


def _symbols(states: Ints, table: NoiseTable, rng: np.random.Generator) -> Ints:
    """Symbols of all ticks: one without a state has that of a row taken at random."""
    drawn = np.where(states < 0, rng.integers(table.states, size=len(states)), states)
    return np.asarray(release_symbols(drawn, table, rng).symbols)


def _rates(cut: Cut, k: int) -> Floats:
    """The transition matrix of a set, every step counted once more than it was seen."""
    states = cut.states
    inside = (np.diff(cut.segments) == 0) & (states[1:] >= 0) & (states[:-1] >= 0)
    counts = np.ones((k, k))
    np.add.at(counts, (states[:-1][inside], states[1:][inside]), 1.0)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))

"""The worth of answers: shares of windows, true and as they are released, the state now, and guesses.

The error of a noisy count follows exactly from the distribution of its discrete Laplace noise; shares from randomised
symbols come by inverting the noise.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from fugu.attackers.evaluation import mean_transitions
from fugu.attackers.outputs import release_symbols
from fugu.chains import filter_beliefs, stationary_distribution
from fugu.chains.arrays import Floats, Ints
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.windows import Window
from fugu.planning.question import Cut

__all__ = [
    "Assessed",
    "Shares",
    "WindowError",
    "assess_now",
    "assess_shares",
    "error_of",
    "group_error",
    "guess_error",
    "noisy_shares",
    "true_shares",
    "window_error",
]

_CONFIDENCE = 0.95
_LONGEST_REACH = 2.0**23
_LEAST_STATED = 0.9
_TAIL = 40.0
"""Noise beyond so many scales of one device plus standard deviations of the sum is not followed: below 1e-14."""


class Shares(NamedTuple):
    """True answers of w consecutive windows: (w, b) counts and shares, of b sets of states, of ticks with a state.

    `first` is the place of each window's first tick.
    """

    counts: Ints
    truth: Floats
    first: Ints
    length: int

    @property
    def bias(self) -> Floats:
        """(w, b) by how much counts over all ticks are off the truth, because of ticks without a state."""
        return np.abs(self.counts / self.length - self.truth)


def true_shares(states: Ints, segments: Ints, length: int, bins: tuple[tuple[int, ...], ...]) -> Shares:
    """The answers of tumbling windows that cross no gap and of whose ticks at least 9 of 10 have a state.

    `states` are (n,), -1 where there is none; `segments` are equal inside a stretch without gaps.
    """
    edges = np.concatenate([[0], np.flatnonzero(np.diff(segments)) + 1, [len(states)]])
    starts = [np.arange(a, b - length + 1, length) for a, b in pairwise(edges.tolist())]
    first = np.concatenate(starts).astype(np.int64)

    def inside(wanted: NDArray[np.bool_]) -> Ints:
        total = np.concatenate([[0], np.cumsum(wanted)])
        return np.asarray(total[first + length] - total[first], dtype=np.int64)

    stated = inside(states >= 0)
    counts = np.stack([inside(np.isin(states, some)) for some in bins], axis=1)
    enough = stated >= _LEAST_STATED * length
    return Shares(counts[enough], counts[enough] / np.maximum(stated[enough], 1)[:, None], first[enough], length)


def noisy_shares(shares: Shares, scale: Fraction, devices: int, rng: np.random.Generator, runs: int) -> Floats:
    """(runs, w, b) shares as subscribers are told: counts with discrete Laplace noise (scale in ticks), cut to 0..1.

    They are averages of a group of devices; the others are like windows of the same recording.
    """
    shape = (runs, *shares.counts.shape)
    # The difference of two geometric numbers with ratio exp(-1/s) is discrete Laplace noise of scale s; the sum of so
    # many such numbers is negative binomial.
    success = -math.expm1(-1.0 / float(scale))
    noise = rng.negative_binomial(devices, success, shape) - rng.negative_binomial(devices, success, shape)
    return np.asarray(np.clip(shares.counts / shares.length + noise / (devices * shares.length), 0.0, 1.0))


def group_error(scale: Fraction, length: int, devices: int) -> tuple[float, float]:
    """The mean absolute error and the 95 % error that noise gives the average share of a group; the scale is in ticks.

    Source: the characteristic function ((1 - a)^2 / (1 - 2 a cos t + a^2))^N of N discrete Laplace numbers, with a =
    e^(-1/s); Chebyshev's inequality where the distribution has too many values.
    """
    decay = 1.0 / float(scale)
    reach = _TAIL * (float(scale) + 1.0) + 10.0 * float(scale) * math.sqrt(2.0 * devices)
    if reach > _LONGEST_REACH:  # too long a distribution to write down: no noise exceeds its second moment's bounds
        off = float(scale) * math.sqrt(2.0 * devices) / (devices * length)
        return min(off, 1.0), min(off / math.sqrt(1.0 - _CONFIDENCE), 1.0)
    size = 1 << math.ceil(math.log2(2.0 * reach + 2.0))
    angle = 2.0 * math.pi * np.arange(size // 2 + 1) / size
    ratio = math.exp(-decay)
    single = math.expm1(-decay) ** 2 / (math.expm1(-decay) ** 2 + 4.0 * ratio * np.sin(angle / 2.0) ** 2)
    distribution = np.fft.irfft(single**devices, size)
    absolute = np.concatenate([distribution[:1], distribution[1 : size // 2] + distribution[: size // 2 : -1]])
    absolute = np.clip(absolute, 0.0, None)
    whole = devices * length
    error = np.minimum(np.arange(len(absolute)), whole) / whole
    most = int(np.searchsorted(np.cumsum(absolute), _CONFIDENCE + 1e-9))
    return float(absolute @ error), min(most, whole) / whole


def guess_error(
    known: Floats, truth: Floats, devices: int, rng: np.random.Generator, times: tuple[Ints, Ints] | None = None
) -> float:
    """The mean absolute error of always guessing the median of the known answers (w, b), for `truth` (v, b).

    Of a group, the average is guessed, each device like a window taken at random, of those that have the same of
    `times` (w,) and (v,), the part of the day: devices have that in common.
    """
    if devices > 1:
        parts = (np.zeros(len(known)), np.zeros(len(truth))) if times is None else times
        known, truth = (_groups(*pair, devices, rng) for pair in zip((known, truth), parts, strict=True))
    return float(np.abs(truth - np.median(known, axis=0)).mean())


_GROUPS = 400


def _groups(answers: Floats, times: NDArray[Any], devices: int, rng: np.random.Generator) -> Floats:
    """The averages of some groups of devices, as many of each time."""
    alike = [answers[times == time] for time in np.unique(times)]
    size = (math.ceil(_GROUPS / len(alike)), min(devices, 1000))
    return np.concatenate([some[rng.integers(len(some), size=size)].mean(axis=1) for some in alike])


class WindowError(NamedTuple):
    """The mean and 95 % error of one number of a window, in ticks, and of its share of the window's ticks, in 0..1."""

    count_mean: float
    count_95: int
    share_mean: float
    share_95: float


def window_error(scale: Fraction | float, length: int) -> WindowError:
    """The error of a count with discrete Laplace noise (scale in ticks), with answers cut off at 0 and at the length.

    Cutting off makes an error neither larger nor more than the length: this is the noise's own with that limit, which
    holds for every true count.
    """
    decay = 1.0 / float(scale)
    ratio = math.exp(-decay)
    beyond_none = 2.0 * ratio / (1.0 + ratio)
    mean = beyond_none * math.expm1(-decay * length) / math.expm1(-decay)
    most = max(0, math.ceil(math.log(beyond_none / (1.0 - _CONFIDENCE)) / decay - 1e-9)) if ratio > 0.0 else 0
    most = min(most, length)
    return WindowError(mean, most, mean / length, most / length)


def error_of(window: Window) -> WindowError:
    """The error of one number of a window, cut off at the most it can be."""
    return window_error(Fraction(window.scale), window.query.most(window.length))


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

    A subscriber's chain is learned from `fit`; 95 % of stretches of `stretch` ticks are wrong no more often than is
    told.
    """
    k = table.states
    transition = mean_transitions(*fit, k, more=1.0)
    distribution = stationary_distribution(transition)
    wrong = _wrong(table, judged, transition, distribution, rng)
    alike = np.concatenate([wrong, _wrong(table, fit, transition, distribution, rng)])
    blocks = [part.mean() for part in np.array_split(alike, _BLOCKS) if len(part)]
    each = len(alike) / _BLOCKS
    spread = float(np.std(blocks, ddof=1)) * math.sqrt(1.0 / len(blocks) + each / max(stretch, 1))
    most = float(np.mean(blocks)) + float(stdtrit(len(blocks) - 1, _CONFIDENCE)) * spread
    stated = judged.states[judged.states >= 0]
    # The state that is most frequent there: a guess learned elsewhere would make symbols look better after a drift.
    guess = 1.0 - float(np.bincount(stated, minlength=k).max()) / max(len(stated), 1)
    return Assessed(float(wrong.mean()), min(1.0, max(most, float(wrong.mean()))), guess, len(wrong))


def assess_shares(
    table: NoiseTable, fit: Cut, judged: Cut, length: int, bins: tuple[tuple[int, ...], ...], rng: np.random.Generator
) -> Assessed | None:
    """How far off shares of `length` ticks are that come from counts of symbols; None if there are too few windows.

    The guess is learned from `fit`, where 95 % of the errors are looked for as well.
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


def _wrong(table: NoiseTable, cut: Cut, transition: Floats, distribution: Floats, rng: np.random.Generator) -> Floats:
    symbols = _symbols(cut.states, table, rng)
    emission = np.array(table.weights(), dtype=np.float64) / SCALE
    lengths = np.diff(np.flatnonzero(np.diff(cut.segments, prepend=-1, append=-1)))
    beliefs = filter_beliefs(symbols, distribution, transition, emission, lengths=lengths).beliefs
    return np.asarray(beliefs.argmax(axis=1) != cut.states, dtype=np.float64)[cut.states >= 0]


def _symbols(states: Ints, table: NoiseTable, rng: np.random.Generator) -> Ints:
    """Symbols of all ticks: one without a state has that of a row taken at random."""
    drawn = np.where(states < 0, rng.integers(table.states, size=len(states)), states)
    return np.asarray(release_symbols(drawn, table, rng).symbols)

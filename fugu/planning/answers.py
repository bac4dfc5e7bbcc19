"""Compute the shares of windows, true and as released, and the error of one noisy count.

The error follows exactly from the distribution of the count's discrete Laplace noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fugu.attackers.outputs import window_counts
from fugu.chains.arrays import Floats, Ints
from fugu.contract.windows import Window

__all__ = ["Shares", "WindowAccuracy", "error_of", "group_error", "noisy_shares", "true_shares", "window_error"]

_CONFIDENCE = 0.95
_LONGEST_REACH = 2.0**23
_LEAST_STATED = 0.9
_TAIL = 40.0
"""Scales of one device beyond which noise is neglected, with 10 standard deviations of the sum: below 1e-14."""


class Shares(NamedTuple):
    """True answers of w consecutive windows for b sets of states: counts, and shares of ticks with a state, (w, b).

    `first` (w,) is the index of each window's first tick; `length` is the number of ticks in a window.
    """

    counts: Ints
    truth: Floats
    first: Ints
    length: int

    @property
    def bias(self) -> Floats:
        """The error (w, b) of dividing counts by all ticks, and not by the ticks with a state."""
        return np.abs(self.counts / self.length - self.truth)

    def error(self, scale: Fraction, devices: int, rng: np.random.Generator, runs: int) -> float:
        """The mean absolute error over `runs` releases of the shares; the scale is in ticks."""
        return float(np.abs(noisy_shares(self, scale, devices, rng, runs) - self.truth).mean())


def true_shares(states: Ints, segments: Ints, length: int, bins: Sequence[Sequence[int]]) -> Shares:
    """Compute the true shares of tumbling windows that cross no gap.

    Windows in which fewer than 9 of 10 ticks have a state are left out. `length` is the ticks of a window. `states`
    (n,) holds -1 for no state; `segments` (n,) are equal within a stretch without gaps.
    """
    all_states = range(states.max(initial=-1) + 1)
    sums, first_ticks = window_counts(states, segments, length, (*bins, all_states))
    counts, tick_counts = sums[:, :-1], sums[:, -1]
    mask = tick_counts >= _LEAST_STATED * length
    return Shares(counts[mask], counts[mask] / np.maximum(tick_counts[mask], 1)[:, None], first_ticks[mask], length)


def noisy_shares(shares: Shares, scale: Fraction, devices: int, rng: np.random.Generator, runs: int) -> Floats:
    """Draw the shares (runs, w, b), in 0..1, that subscribers see.

    Counts get discrete Laplace noise with a scale in ticks. The noise is that of the average over a group of devices,
    whose true shares are equal.
    """
    shape = (runs, *shares.counts.shape)
    # The difference of two geometric numbers with ratio exp(-1/s) is discrete Laplace noise of scale s; a sum of
    # geometric numbers is negative binomial.
    success = -math.expm1(-1.0 / float(scale))
    noise = rng.negative_binomial(devices, success, shape) - rng.negative_binomial(devices, success, shape)
    return np.asarray(np.clip(shares.counts / shares.length + noise / (devices * shares.length), 0.0, 1.0))


def group_error(scale: Fraction, length: int, devices: int) -> tuple[float, float]:
    """The mean absolute error and the 95 % error that noise, with a scale in ticks, causes in a group's average share.

    Source: the characteristic function ((1 - a)^2 / (1 - 2 a cos t + a^2))^N of N discrete Laplace numbers, with a =
    e^(-1/s); Chebyshev's inequality where the distribution has too many values.
    """
    decay, deviation = 1.0 / float(scale), float(scale) * math.sqrt(2.0 * devices)
    longest_reach = _TAIL * (float(scale) + 1.0) + 10.0 * deviation
    if longest_reach > _LONGEST_REACH:  # too long a distribution to compute: bound the errors by its second moment
        error_bound = deviation / (devices * length)
        return min(error_bound, 1.0), min(error_bound / math.sqrt(1.0 - _CONFIDENCE), 1.0)
    size = 1 << math.ceil(math.log2(2.0 * longest_reach + 2.0))
    angles = 2.0 * math.pi * np.arange(size // 2 + 1) / size
    ratio = math.exp(-decay)
    transform = math.expm1(-decay) ** 2 / (math.expm1(-decay) ** 2 + 4.0 * ratio * np.sin(angles / 2.0) ** 2)
    distribution = np.fft.irfft(transform**devices, size)
    abs_distribution = np.concatenate([distribution[:1], distribution[1 : size // 2] + distribution[: size // 2 : -1]])
    abs_distribution = np.clip(abs_distribution, 0.0, None)
    all_ticks = devices * length
    share_errors = np.minimum(np.arange(len(abs_distribution)), all_ticks) / all_ticks
    reach = int(np.searchsorted(np.cumsum(abs_distribution), _CONFIDENCE + 1e-9))
    return float(abs_distribution @ share_errors), min(reach, all_ticks) / all_ticks


class WindowAccuracy(NamedTuple):
    """The mean and 95 % error of one number of a window, in ticks, and of its share of the window, in 0..1."""

    count_mean: float
    count_95: int
    share_mean: float
    share_95: float


def window_error(scale: Fraction | float, length: int, largest_count: int | None = None) -> WindowAccuracy:
    """The error of a count with discrete Laplace noise (scale in ticks), cut off at 0 and at the largest count.

    The largest count is the length by default. Cutting off makes no error larger, and limits it to the largest count.
    The result is the noise's own error with that limit, which holds for every true count. A share is that of `length`.
    """
    decay = 1.0 / float(scale)
    ratio = math.exp(-decay)
    nonzero = 2.0 * ratio / (1.0 + ratio)
    cap = length if largest_count is None else largest_count
    mean_error, share_error = (nonzero * math.expm1(-decay * limit) / math.expm1(-decay) for limit in (cap, length))
    reach = max(0, math.ceil(math.log(nonzero / (1.0 - _CONFIDENCE)) / decay - 1e-9)) if ratio > 0.0 else 0
    return WindowAccuracy(mean_error, min(reach, cap), share_error / length, min(reach, length) / length)


def error_of(window: Window, period_us: int | None) -> WindowAccuracy:
    """The error of one count of a window, limited by its largest possible value; the period may be unknown."""
    query, length = window.query, window.length
    return window_error(Fraction(window.scale), query.usual_ticks(length), query.max_ticks(length, period_us))

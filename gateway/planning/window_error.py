"""By how much a noisy count is wrong: exactly, from the law of its discrete Laplace noise.

Source: P(|n| > j) = 2 a^(j + 1) / (1 + a) for j >= 0, where a = exp(-1 / scale); its sum is the mean of |n|.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

__all__ = ["WindowError", "window_error"]

_CONFIDENCE = 0.95


class WindowError(NamedTuple):
    """The error of one number of a window, and of the share that it is of the window's ticks.

    Attributes:
        count_mean: mean absolute error, in ticks.
        count_95: the error that is not exceeded in 95 % of all windows, in ticks.
        share_mean, share_95: the same as a share of the window's ticks, in 0..1.
    """

    count_mean: float
    count_95: int
    share_mean: float
    share_95: float


def window_error(scale: Fraction | float, length: int) -> WindowError:
    """The error of a count with discrete Laplace noise, for whoever cuts answers off at 0 and at the length.

    Cutting off makes an error neither larger nor more than the length, and what is told here is the noise's own with
    that limit: what holds for every true count.

    Args:
        scale: of the noise, in ticks.
        length: ticks of the window.
    """
    rate = 1.0 / float(scale)
    ratio = math.exp(-rate)
    beyond_none = 2.0 * ratio / (1.0 + ratio)
    mean = beyond_none * math.expm1(-rate * length) / math.expm1(-rate)
    most = max(0, math.ceil(math.log(beyond_none / (1.0 - _CONFIDENCE)) / rate - 1e-9)) if ratio > 0.0 else 0
    most = min(most, length)
    return WindowError(mean, most, mean / length, most / length)

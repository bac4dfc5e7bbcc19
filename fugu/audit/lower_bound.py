"""The least epsilon that explains how often an event happens under two hypotheses, at a confidence.

The event, that the log-likelihood ratio is above a threshold, is chosen on other trials than it is counted on.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betaincinv

from fugu.chains.arrays import Floats

__all__ = ["best_threshold", "least_epsilon"]

_FEWEST = 8
_THRESHOLDS = 40


def least_epsilon(hits: int, of_hits: int, alarms: int, of_alarms: int, level: float) -> float:
    """A lower bound of log( Pr(event | x) / Pr(event | x') ), wrong with a probability of at most `level`.

    Args:
        hits, of_hits: how often the event happened under x, of how many trials.
        alarms, of_alarms: the same under x'.
        level: half of it is given to each of the two probabilities.

    Source: Clopper and Pearson, "The use of confidence or fiducial limits" (1934).
    """
    if hits == 0:
        return 0.0
    low = float(betaincinv(hits, of_hits - hits + 1, level / 2))
    high = 1.0 if alarms == of_alarms else float(betaincinv(alarms + 1, of_alarms - alarms, 1 - level / 2))
    return max(0.0, math.log(low / high)) if low > 0.0 else 0.0


def best_threshold(under: Floats, other: Floats, trials: int, level: float) -> tuple[float, float]:
    """The threshold that promises the largest bound when so many trials are counted, and that bound.

    Args:
        under, other: (n,) log-likelihood ratios of x over x' in trials under x, and under x'.
        trials: that will be counted, of each.
        level: as for `least_epsilon`.
    """
    best, threshold = 0.0, math.inf
    ordered = np.sort(other)
    for one in np.unique(np.quantile(under, np.linspace(0, 1, _THRESHOLDS))):
        share = float((under >= one).mean())
        against = float(ordered.size - np.searchsorted(ordered, one)) / ordered.size
        hits, alarms = int(share * trials), math.ceil(against * trials)
        if share * under.size < _FEWEST:
            break
        found = least_epsilon(hits, trials, alarms, trials, level)
        if found > best:
            best, threshold = found, float(one)
    return threshold, best

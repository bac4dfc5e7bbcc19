"""Steps of which nothing is known but a bound on their odds ratio: any start, any side information.

Source: docs/privacy.md, "Binary chains in closed form" (the universal adversary); Birkhoff (1957).
"""

from __future__ import annotations

import numpy as np

__all__ = ["odds_ratio_side", "odds_ratio_step"]

_UNIT = 2.0**-53


def odds_ratio_step(odds: float, bound: float) -> float:
    """One step over kernels of which only the odds ratio is known, rounded up.

    max log(E h / E' h) over h in [1, e^bound] and laws whose likelihood ratio varies by at most the factor `odds`:
    2 log((sqrt(odds G) + 1) / (sqrt(odds) + sqrt(G))), G = e^bound.

    Source: docs/privacy.md, "The chain accountant"; Birkhoff (1957).
    """
    if not np.isfinite(odds):
        return bound
    half_odds, half_bound = np.log(odds) / 2.0, bound / 2.0
    # log((e^(a+b) + 1) / (e^a + e^b)) without overflow
    value = np.logaddexp(half_odds + half_bound, 0.0) - np.logaddexp(half_odds, half_bound)
    return float(max(0.0, 2.0 * value)) + 64.0 * _UNIT * (1.0 + bound)


def odds_ratio_side(odds: float, rate: float) -> float:
    """The endless side of steps of bounded odds ratio, for every adversary and every start, rounded up.

    Source: docs/privacy.md, "Binary chains in closed form" (the universal adversary).
    """
    if rate == 0.0 or odds == 1.0:
        return 0.0
    if not np.isfinite(odds):
        return float(np.inf)
    g, root = np.exp(rate / 2.0), np.sqrt(odds)
    w = (root * (g - 1.0) + np.sqrt(odds * (g - 1.0) ** 2 + 4.0 * g)) / (2.0 * g)
    return float(2.0 * np.log(w)) * (1.0 + 1e-13) + 1e-14

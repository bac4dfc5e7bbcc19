"""Whether noise that was drawn is of the distribution that it should be of, judged by its mean size.

Discrete Laplace noise of scale s has the distribution Pr(n) proportional to p^|n|, p = e^(-1/s). Tilted by its size it
is of the same kind with another p, so that the bound of Chernoff is the divergence of two such distributions: of N
independent numbers, the mean size is m or further from what is expected, on the same side, with a probability of at
most

    e^(-N D),    D = m log(q / p) + log( (1 - q)(1 + p) / ((1 + q)(1 - p)) ),

where q is the one for which the mean size is m, 2q / (1 - q^2) = m. For N times no noise at all this is exact. Source:
Chernoff: A Measure of Asymptotic Efficiency (1952), theorem 1, for an exponential family.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

__all__ = ["FALSE_ALARMS", "log_chance", "noise_problems"]

FALSE_ALARMS = 1e-9
"""How probable it is that all noise of a ledger is right, and a problem is found with it."""


def log_chance(scale: Fraction, numbers: int, size: int) -> float:
    """A bound of the logarithm of the probability of so small or so large noise.

    Args:
        scale: of the noise.
        numbers: how many were drawn, at least 1.
        size: of all of them, without their signs, added up.
    """
    decay, mean = 1.0 / float(scale), size / numbers
    log_normal = math.log(math.tanh(decay / 2.0))  # of (1 - p) / (1 + p)
    if size == 0:
        return numbers * log_normal
    tilted = mean / (1.0 + math.hypot(1.0, mean))
    divergence = mean * (math.log(tilted) + decay) + math.log((1.0 - tilted) / (1.0 + tilted)) - log_normal
    return -numbers * max(divergence, 0.0)


def noise_problems(drawn: Mapping[Fraction, tuple[int, int]]) -> list[str]:
    """What cannot be chance, two-sided, and with all scales together at a rate of `FALSE_ALARMS`.

    Args:
        drawn: by scale, how many numbers got noise, and the sizes of it added up.
    """
    limit = math.log(FALSE_ALARMS / (2.0 * max(len(drawn), 1)))
    found = []
    for scale, (numbers, size) in drawn.items():
        if log_chance(scale, numbers, size) < limit:
            p = math.exp(-1.0 / float(scale))
            found.append(
                f"noise of scale {scale} is {size / numbers:.6g} on average over {numbers} numbers, and should be "
                f"{2.0 * p / (1.0 - p * p):.6g}: it was not drawn, or with another scale"
            )
    return found

"""Attackers and sums, by enumeration: the promise is reached and not passed, and where it ends.

Noise of h of m shares is the difference of two NB(h/m, p). All probabilities are fractions; tails are bounded.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from itertools import pairwise, product

import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.guarantee import Guarantee
from tests.support.groups import group, member_policy, shared

QUARTER = 3 << 30
"""A of 3/4: with three honest homes p = 37/64."""


@cache
def noise(honest: int, homes: int, threshold: int, most: int) -> list[tuple[Fraction, Fraction]]:
    """Bounds on P(noise = k) for k = 0..most, of so many shares of `homes`; the law is symmetric."""
    a, terms = Fraction(threshold, 1 << 32), 80 + most
    p, law = 1 - a**homes, [a**honest]
    for k in range(1, terms + 1):
        law.append(law[-1] * p * Fraction(homes * (k - 1) + honest, homes * k))
    beyond = law[-1] / (1 - max(p, p * Fraction(homes * terms + honest, homes * (terms + 1))))
    bounds = []
    for k in range(most + 1):
        low = sum((law[j] * law[j + k] for j in range(terms - k + 1)), Fraction(0))
        bounds.append((low, low + beyond * max(law[terms - k :])))
    return bounds


def losses(honest: int, homes: int = 3, threshold: int = QUARTER) -> tuple[float, float]:
    """Bounds on the largest log-ratio of the likelihoods of a sum if one tick of one home changes."""
    law = noise(honest, homes, threshold, 12)
    low = max(here[0] / there[1] for here, there in pairwise(law))
    high = max(here[1] / there[0] for here, there in pairwise(law))
    return math.log(low), math.log(high)


def test_a_sum_with_all_other_homes_known_reaches_the_rate_and_does_not_pass_it() -> None:
    rate = float(group(noise=QUARTER, honest=3).rate)
    low, high = losses(3)
    assert low <= -math.log(37 / 64) + 1e-9
    assert -math.log(37 / 64) * (1 - 1e-9) <= high <= rate
    assert rate < high * 1.001


@pytest.mark.parametrize("honest", [4, 5, 7])
def test_more_honest_homes_than_needed_make_no_loss_larger(honest: int) -> None:
    assert losses(honest)[1] <= -math.log(37 / 64) * (1 + 1e-6)


@pytest.mark.parametrize(("honest", "excess"), [(2, 1.2), (1, 2.0)])
def test_one_colluder_more_than_a_sum_allows_breaks_the_promise(honest: int, excess: float) -> None:
    """Which is why no sum of fewer than m + c homes opens, and why m is told with every epsilon."""
    assert losses(honest)[0] > -math.log(37 / 64) * excess


@pytest.mark.long
@pytest.mark.parametrize(("q", "r"), [(0.2, 0.3), (0.05, 0.1)])
def test_no_enumerated_course_of_a_home_is_told_from_another_by_more_than_its_policy_promises(
    q: float, r: float
) -> None:
    """Two windows of two ticks, all paths, all sums in a box, for every tick; the attacker knows all other homes."""
    chains = BinaryChains(q=(q, q), r=(r, r))
    promise = Guarantee(epsilon=50.0, adversary="ignorant")
    window = shared(noise=QUARTER, honest=3, length=2, period_us=2_000_000)
    derived = member_policy("watch", window, chains=chains, guarantee=promise).verify().epsilon
    law = noise(3, 3, QUARTER, 10)
    leave = Fraction(q), Fraction(r)
    start = leave[1] / sum(leave), leave[0] / sum(leave)
    steps = ((1 - leave[0], leave[0]), (leave[1], 1 - leave[1]))
    paths = {
        path: start[path[0]] * math.prod(steps[here][there] for here, there in pairwise(path))
        for path in product((0, 1), repeat=4)
    }
    worst = Fraction(0)
    for first, second in product(range(-3, 6), repeat=2):
        for tick in range(4):
            fractions = [Fraction(0), Fraction(0)]
            prior = [Fraction(0), Fraction(0)]
            for path, weight in paths.items():
                likelihood = law[abs(first - sum(path[:2]))][0] * law[abs(second - sum(path[2:]))][0]
                fractions[path[tick]] += weight * likelihood
                prior[path[tick]] += weight
            ratio = fractions[1] / prior[1] / (fractions[0] / prior[0])
            worst = max(worst, ratio, 1 / ratio)
    assert math.log(worst) <= derived
    assert math.log(worst) > 0.3 * derived


def test_a_common_cause_is_not_covered() -> None:
    """Half of the evenings an event, with it 80 % of the homes are in, without it 20 %: a sum tells which, of all.

    The promise is about one home's own part. What is told of a cause in common moves its odds besides, by more.
    """
    homes, rate = 10, 0.5
    p = math.exp(-rate)

    def likelihood(total: int, mine: int) -> float:
        likelihood = 0.0
        for chance in (0.8, 0.2):
            own = chance if mine else 1 - chance
            others = sum(
                math.comb(homes - 1, k) * chance**k * (1 - chance) ** (homes - 1 - k) * p ** abs(total - mine - k)
                for k in range(homes)
            )
            likelihood += own * others
        return likelihood

    odds = max(likelihood(total, 1) / likelihood(total, 0) for total in range(-20, 40))
    assert odds > 2 * math.exp(rate)

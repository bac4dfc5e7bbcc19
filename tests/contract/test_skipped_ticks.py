"""Ticks whose numbers say nothing of the time between them lose no more than the guarantee, by enumeration.

The steps of a chain that are drawn for are any ascending ones, a period apart at least. The rest of a gap that is
no whole number of steps is a channel of its own. Numbers of ticks are not even in the calculation.
"""

from __future__ import annotations

from itertools import product
from math import exp, log

import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.guarantee import loss
from fugu.contract.noise_table import NoiseTable
from tests.support.proofs import check_printed

Q, R = 1 / 8, 1 / 5
SCALE = 1 << 32
TABLE = NoiseTable(((3 * SCALE // 4,), (SCALE // 3,)))
EMISSION = [[weight / SCALE for weight in row] for row in TABLE.weights()]
STEP = [[1 - Q, Q], [R, 1 - R]]
START = [R / (Q + R), Q / (Q + R)]
KEPT = [[float(a == b) for b in range(2)] for a in range(2)]

Matrix = list[list[float]]


def times(left: Matrix, right: Matrix) -> Matrix:
    return [[sum(left[a][c] * right[c][b] for c in range(2)) for b in range(2)] for a in range(2)]


def gap(steps: int, rest: float) -> Matrix:
    """So many steps, and for the rest of the time a channel that keeps the stationary distribution."""
    loss = KEPT
    for _ in range(steps):
        loss = times(loss, STEP)
    return times(loss, [[(1 - rest) * KEPT[a][b] + rest * START[b] for b in range(2)] for a in range(2)])


def most_told(gaps: list[Matrix], secret: int) -> float:
    """The largest log-likelihood ratio of all outputs, between the two states of one of the ticks."""
    worst = 0.0
    for outputs in product(range(2), repeat=len(gaps) + 1):
        leakages = []
        for state in range(2):
            distribution = [START[s] * (secret != 0 or s == state) * EMISSION[s][outputs[0]] for s in range(2)]
            for at, (between, output) in enumerate(zip(gaps, outputs[1:], strict=True), start=1):
                distribution = [
                    sum(distribution[a] * between[a][b] for a in range(2))
                    * EMISSION[b][output]
                    * (secret != at or b == state)
                    for b in range(2)
                ]
            leakages.append(sum(distribution) / START[state])
        worst = max(worst, abs(log(leakages[0] / leakages[1])))
    return worst


@pytest.mark.long
def test_a_clock_set_forward_again_and_again_tells_no_more_than_the_guarantee() -> None:
    chains = BinaryChains(q=(Q, Q), r=(R, R))
    bound = loss(chains, TABLE, "ignorant").epsilon
    seen = 0.0
    for steps in (some for some in product(range(1, 5), repeat=3) if sum(some) <= 6):
        for rests in product((0.0, 1 / 3), repeat=3):
            gaps = [gap(some, rest) for some, rest in zip(steps, rests, strict=True)]
            for secret in range(4):
                worst = most_told(gaps, secret)
                assert worst <= bound
                seen = max(seen, worst)
    assert seen > log(1 + (exp(bound) - 1) / 3), "the bound is not far away"


@pytest.mark.parametrize(("q", "r", "worst"), [(0.05, 0.06, 1.14), (0.2, 0.35, 1.19)])
def test_what_epsilon_1_would_be_if_every_step_were_an_eighth_short(q: float, r: float, worst: float) -> None:
    def epsilon(odds: float, share: float) -> float:
        wrong = int(SCALE / (1 + exp(odds)))
        chains = BinaryChains(q=(q * share, q * share), r=(r * share, r * share))
        return loss(chains, NoiseTable(((SCALE - wrong,), (wrong,))), "ignorant").epsilon

    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if epsilon(middle, 1.0) > 1 else (middle, high)
    assert epsilon(low, 7 / 8) == pytest.approx(worst, abs=0.005)
    if q < 0.1:
        check_printed("epsilon 1 would be {} (q = 0.05, r = 0.06)", epsilon(low, 7 / 8))
    else:
        check_printed("(q = 0.05, r = 0.06) to {} (q = 0.2, r = 0.35)", epsilon(low, 7 / 8))

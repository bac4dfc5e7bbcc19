"""Errors of the BDP paper, each with a counterexample in its own class, added up over all paths in exact fractions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import pairwise, product

import numpy as np

from fugu.attackers.evaluation import success_bound
from papers.baselines import ordinary_dp, zhao_eps3
from papers.bdp import point, printed_bound
from papers.errata import Erratum
from papers.facts import Key
from papers.rows import Row, Setting, at_most

__all__ = ["CHAIN", "ERRATA", "NOISE", "likelihood_ratio"]

CHAIN: Key = ("BDP", "section 3, model", "chain")
"""q and r in (0, 0.5), and a stationary start."""
NOISE: Key = ("BDP", "algorithm 1", "noise")
"""rho0 and rho1 in [0, 0.5]."""
_HALF = Fraction(1, 2)


def likelihood_ratio(
    q: Fraction,
    r: Fraction,
    rho: Fraction,
    ticks: int,
    evidence_given: Mapping[int, int],
    at: int,
    initial: tuple[Fraction, Fraction] | None = None,
) -> Fraction:
    """Pr(all symbols 0 | X_at = 0, known states) over the same given X_at = 1, by adding up every path.

    Args:
        q, r: the chain.
        rho: of a wrong symbol.
        evidence_given: true states by tick, from 1; the symbols of these ticks do not count.
        at: the tick of the secret.
        initial: distribution of the first state; `None`: the stationary one.
    """
    step = [[1 - q, q], [r, 1 - r]]
    start = initial or (r / (q + r), q / (q + r))
    likelihoods = []
    for state in (0, 1):
        evidence = {**evidence_given, at: state}
        with_symbols = without = Fraction(0)
        for path in product((0, 1), repeat=ticks):
            if all(path[tick - 1] == x for tick, x in evidence.items()):
                weight = start[path[0]]
                for a, b in pairwise(path):
                    weight *= step[a][b]
                without += weight
                for tick, x in enumerate(path, 1):
                    if tick not in evidence_given:
                        weight *= rho if x else 1 - rho
                with_symbols += weight
        likelihoods.append(with_symbols / without)
    return likelihoods[0] / likelihoods[1]


_STICKY = ((Fraction(7, 20), Fraction(1, 10)), (Fraction(1, 10), Fraction(1, 1000)))
"""theta and rho of theorem 2's counterexamples; `likelihood_ratio` starts them stationary."""


def _theorem_2(setting: Setting) -> Iterator[Row]:
    """The most ignorant adversary is not the hardest to protect against."""
    for theta, rho in _STICKY:
        flips = (1 - rho) / rho
        bound = point(float(theta), float(theta)).ratio_loss(flips, flips, "ignorant").epsilon
        ratio = likelihood_ratio(theta, theta, rho, 5, {1: 1, 5: 1}, 3)
        yield at_most(
            f"q = r = {theta}, rho = {rho}, five symbols 0, x1 = x5 = 1 known: ln of x3's likelihood ratio {ratio}",
            math.log(ratio),
            bound,
            "32 paths, added up in fractions; without known states theorem 1's bound would hold",
        )


def _equation_6(setting: Setting) -> Iterator[Row]:
    """Equation 6 has a factor of 2 too many."""
    why = "equation 5 at eps_3 has no factor 2: 1 / (e^eps_3 + 1)"
    for epsilon in (0.5, 2.0, 4.0):
        right = ordinary_dp(zhao_eps3(0.35, epsilon))
        about = f"theta 0.35, epsilon {epsilon:g}: flip probability"
        yield Row(about, right, 2 * right, "formula", 1e-9, why=why, computed=True)


_HEART = (0.0893, 0.1092)
"""q and r that the paper prints for its heart rate."""


def _success_bound(setting: Setting) -> Iterator[Row]:
    """The printed bound on success falls below what whoever sees nothing reaches."""
    q, r = _HEART
    prior = np.array([r, q]) / (q + r)
    guess = float(prior.max())
    for epsilon in (0.01, 0.25, 1.0):
        bound = printed_bound(q, r, epsilon)
        about = f"q = 0.0893, r = 0.1092, epsilon {epsilon:g}: always naming the likelier state is right"
        yield at_most(about, guess, bound, "nobody needs an output for that")
        yield at_most(
            f"epsilon {epsilon:g}: a stream with one symbol, right with probability e^eps / (1 + e^eps): who names it, "
            "or the likelier state, is right",
            max(guess, math.exp(epsilon) / (1 + math.exp(epsilon))),
            bound,
            f"a single symbol reaches the corrected bound, {float(success_bound(prior, epsilon)):.6f}",
        )


def _slips(setting: Setting) -> Iterator[Row]:
    """Appendix A.4 prints a root that is not the largest eigenvalue of its matrix."""
    theta, rho = 0.35, 0.1
    matrix = np.array([[(1 - theta) * (1 - rho), theta * rho], [theta * (1 - rho), (1 - theta) * rho]])
    largest = float(max(np.linalg.eigvals(matrix).real))
    root = math.sqrt((1 - theta) ** 2 - (1 - 2 * theta) * (1 - 2 * rho) ** 2)
    about = "theta 0.35, rho 0.1: the largest lambda of appendix A.4"
    why = "under the root stands theta^2 + (1 - 2 theta)(1 - 2 rho)^2, as in corollary 2"
    yield Row(about, largest, 0.5 * (root + 1 - theta), "formula", 1e-9, why=why, computed=True)


ERRATA: dict[str, Erratum] = {
    "erratum-bdp-theorem-2": Erratum(
        (("BDP", "theorem 2", "statement"),),
        {
            CHAIN: lambda: all(0 < theta < _HALF for theta, _ in _STICKY),
            NOISE: lambda: all(0 <= rho <= _HALF for _, rho in _STICKY),
        },
        _theorem_2,
    ),
    "erratum-bdp-equation-6": Erratum(
        (("BDP", "equation 6", "rho"),),
        {CHAIN: lambda: 0 < 0.35 < _HALF, ("BDP", "equation 5", "rho"): lambda: ordinary_dp(0.0) == 0.5},
        _equation_6,
    ),
    "erratum-bdp-success-bound": Erratum(
        (("BDP", "section 4.3", "success bound, BDP"),),
        {CHAIN: lambda: all(0 < x < _HALF for x in _HEART)},
        _success_bound,
    ),
    "erratum-bdp-slips": Erratum((("BDP", "appendix A.4", "lambda"),), {CHAIN: lambda: 0 < 0.35 < _HALF}, _slips),
}

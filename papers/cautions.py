"""Cautions for whoever builds the mechanisms of the papers: nothing here is an error of a paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise, product

import numpy as np

from fugu.attackers.evaluation import attack, mean_transitions, success_bound
from fugu.attackers.learning import ATTACKERS
from fugu.attackers.outputs import release_symbols
from fugu.chains.tracking import reachable
from fugu.places.protection import list_exposed, protect
from fugu.privacy.chain_class import MarkovChain
from fugu.privacy.quilts import mixing, mqm_approx
from fugu.privacy.randomised_response import calibrate
from papers.baselines import corollary_2, real_loss
from papers.bdp import mean_interval, point, printed_bound
from papers.dphmm import GRAPH, VALUES, chosen
from papers.errata_bdp import likelihood_ratio
from papers.mqm import THETA1, THETA2
from papers.recordings import heart
from papers.rows import Row, Setting

__all__ = ["CAUTIONS"]


def _start(setting: Setting) -> Iterator[Row]:
    """Theorem 1 is about a stationary start, as the paper says; noise for a device that starts elsewhere is not."""
    chains = point(0.05, 0.3)
    start = Fraction(1, 50), Fraction(49, 50)
    ratio = likelihood_ratio(Fraction(1, 20), Fraction(3, 10), Fraction(1, 10), 6, {}, 4, start)
    about = "q = 0.05, r = 0.3, rho = 0.1, six symbols 0: ln of the likelihood ratio of x4"
    yield Row(f"{about}, x1 = 1 with 0.98", math.log(ratio))
    yield Row(
        f"{about}, at most from a stationary start", chains.ratio_loss(Fraction(9), Fraction(9), "ignorant").epsilon_01
    )
    yield Row("the universal bound, for any start", chains.ratio_loss(Fraction(9), Fraction(9), "universal").epsilon)


def _corollary_2(setting: Setting) -> Iterator[Row]:
    """Corollary 2's noise suffices for theorem 1, as the paper says, and not for an adversary who knows states."""
    for theta, epsilon in ((0.35, 2.0), (0.05, 6.0), (0.2, 4.0)):
        rho = corollary_2(theta, epsilon)
        about = f"theta {theta:g}, epsilon {epsilon:g}: noise of corollary 2"
        chains = point(theta, theta)
        yield Row(f"{about}, flip probability", rho)
        yield Row(
            f"theta {theta:g}, epsilon {epsilon:g}: flip probability of theorem 1",
            calibrate(chains, epsilon, "ignorant").rho0,
        )
        for adversary in ("ignorant", "informed"):
            yield Row(
                f"{about}, what it loses ({adversary})",
                real_loss(chains, Fraction(rho), Fraction(rho), adversary).epsilon,
            )


def _fitted(setting: Setting) -> Iterator[Row]:
    """Rates that are estimated from the readings that are released tell of them, since the noise is public.

    All recordings of eight ticks, and the same with the fourth reading changed. Where the estimated transitions differ,
    the noise alone tells the two apart for certain.
    """
    recordings = list(product((0, 1), repeat=8))
    apart = sum(_steps(some) != _steps((*some[:3], 1 - some[3], *some[4:])) for some in recordings)
    about = "eight ticks, the recording's own chain: share of recordings whose fourth reading the noise tells"
    yield Row(about, apart / len(recordings), why="fit on other readings, or give a class with room")


def _steps(readings: tuple[int, ...]) -> tuple[Fraction | None, Fraction | None]:
    """The shares of ticks in either state after which it changes, none if there is no such tick."""
    shares: list[Fraction | None] = []
    for state in (0, 1):
        after = [b for a, b in pairwise(readings) if a == state]
        shares.append(Fraction(sum(b != state for b in after), len(after)) if after else None)
    return shares[0], shares[1]


def _learners(setting: Setting) -> Iterator[Row]:
    """An attacker who learns regimes from the symbols does better on N10 than the two attackers of section 4.3."""
    draws, attacker = (3, "learned chain") if setting.quick else (24, "2 learned regimes")
    recording = heart(setting.recordings, "N10")
    means = mean_transitions(*recording, 2)
    q, r = float(means[0, 1]), float(means[1, 0])
    table = calibrate(point(q, r), 1.0, "ignorant", "flips").table
    shares = []
    for seed in range(draws):
        setting.progress(f"draw {seed + 1} of {draws}")
        outputs = release_symbols(recording.states, table, np.random.default_rng([19, seed]))
        [result] = attack(*recording, outputs, 1.0, attackers={attacker: ATTACKERS[attacker]})
        shares.append(result.success)
    mean, interval = mean_interval(shares)
    corrected = float(success_bound(np.array([r, q]) / (q + r), 1.0))
    about = f"N10, epsilon 1: success of {attacker} (mean of {draws} draws of noise, 95 % interval)"
    why = "the recording has slow regimes that a homogeneous chain leaves out: its readings are not in the class"
    yield Row(about, mean, interval=interval, why=why)
    yield Row("the bound that is printed for a chain of these rates", printed_bound(q, r, 1.0))
    yield Row("the corrected bound", corrected)
    yield Row(f"draws above the corrected bound, of {draws}", float(sum(share > corrected for share in shares)))
    yield Row("the most of any draw", max(shares))


def _precondition(setting: Setting) -> Iterator[Row]:
    """Algorithm 4 takes lemma 4.8 for widths that meet its condition; a program has to check that."""
    spread = mixing((MarkovChain.stationary(THETA1.transition), MarkovChain.stationary(THETA2.transition)), False)
    least = 2.0 * math.log(1.0 / spread.min_pi) / spread.gap
    yield Row("theta1, theta2: widths must be above", least)
    width = math.floor(least)
    about = f"lemma 4.8's denominator p - exp(-g a / 2) at a width of {width}: must be above 0"
    denominator = spread.min_pi - math.exp(-spread.gap * width / 2.0)
    yield Row(
        about, denominator, why="the logarithm of a negative number is no bound: smaller widths are excluded, strictly"
    )
    a, b = mqm_approx((THETA1, THETA2), None, 5.0, False).quilt
    yield Row("widths that ours takes at epsilon 5", f"{a} and {b}")


def _protectable(setting: Setting) -> Iterator[Row]:
    """A protectable graph says nothing of which component a state is in: theorem 6.3's factor may be infinite."""
    constraint = chosen(1, 2, 3, 4)
    flat = protect(VALUES, GRAPH, constraint, cap=None)
    capped = protect(VALUES, GRAPH, constraint, cap=4)
    yield Row("C = {s1, s2, s3, s4}: exposed states", float(len(list_exposed(flat.hull, VALUES, constraint))))
    about, why = "the same: factor of theorem 6.3 between any two of them", "noise along (1, -1) alone tells"
    yield Row(about, str(flat.factor), why=f"{why} s1 and s4 from s2 and s3 for certain")
    yield Row("the same with ours, the hull capped at 4", float(capped.factor))


def _reachability(setting: Setting) -> Iterator[Row]:
    """Reachability is boolean: a product of probabilities in floating point can be 0 where the state is possible."""
    rare = 1e-200
    transition = np.array([[1.0, rare, 0.0], [0.0, 1.0, rare], [0.0, 0.0, 1.0]])
    distribution = np.array([1.0, 0.0, 0.0]) @ transition @ transition
    possible = reachable(reachable(np.array([True, False, False]), transition), transition)
    about = "steps of probability 1e-200: is state 2 possible after two ticks"
    yield Row(about, str(bool(possible[2])), why="its probability is 1e-400")
    yield Row("the same, by a product in floating point", str(bool(distribution[2] > 0.0)))


CAUTIONS: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "caution-bdp-start": _start,
    "caution-bdp-corollary-2": _corollary_2,
    "caution-bdp-fitted": _fitted,
    "caution-bdp-learners": _learners,
    "caution-mqm-precondition": _precondition,
    "caution-dphmm-protectable": _protectable,
    "caution-dphmm-reachability": _reachability,
}
"""By name: the first line of each one's description is its title."""

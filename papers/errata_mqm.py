"""Errors of the MQM paper, each with a counterexample."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from fugu.chains.arrays import Floats
from fugu.privacy.chain_class import MarkovChain
from fugu.privacy.quilts import Mixing, mqm_exact, width_influences
from papers.errata import Erratum
from papers.facts import Key, printed_number
from papers.rows import Row, Setting, at_most

__all__ = ["CLOCK_CHAIN", "EIGENGAP", "ERRATA", "lost_by_a_clock"]


def _clock() -> MarkovChain:
    """Twenty hours; at hour 0, one of them is skipped now and then."""
    transition = np.roll(np.eye(20), 1, axis=1)
    transition[0, 1] = transition[0, 2] = 0.5
    return MarkovChain.stationary(transition)


def _printed_scale(mixing: Mixing, ticks: int) -> float:
    """MQMApprox's scale at epsilon 1 for an eigengap and a rarest state, over all quilts of two widths."""
    widths = np.arange(1, ticks // 2)
    right = width_influences(mixing, widths)
    left = 1.0 - 2.0 * right[:, None] - right[None, :]
    with np.errstate(divide="ignore"):
        scales = np.where(left > 0.0, (widths[:, None] + widths[None, :] - 1) / left, np.inf)
    return float(min(ticks, scales.min()))


def lost_by_a_clock(chain: MarkovChain, ticks: int, scale: float) -> Floats:
    """(ticks,) what a noisy count tells of each tick of a chain of hours, as a logarithm of a ratio.

    A count of the ticks that show the hour expected of a clock that was at hour 0 at tick 100. Far above its range, an
    answer has a density proportional to E[exp(count / scale)]: exact by forward and backward sums.
    """
    reverse = _reverse(chain)
    hours = [np.eye(20)[0]] * ticks
    for t in range(100, ticks):
        hours[t] = hours[t - 1] @ chain.transition
    for t in range(98, -1, -1):
        hours[t] = hours[t + 1] @ reverse
    adds = np.array([np.eye(20)[hour.argmax()] for hour in hours]) / scale
    right, left = [np.ones(20)], [np.ones(20)]
    for t in range(ticks - 1, 0, -1):
        right.append(chain.transition @ (right[-1] * np.exp(adds[t])))
    for t in range(ticks - 1):
        left.append(reverse @ (left[-1] * np.exp(adds[t])))
    losses = np.log(np.array(left)) + np.log(np.array(right[::-1])) + adds
    return np.asarray(losses.max(axis=1) - losses.min(axis=1))


def _reverse(chain: MarkovChain) -> Floats:
    """P*, of the chain backwards."""
    distribution = chain.stationary_distribution
    return np.asarray((distribution[:, None] * chain.transition).T / distribution[:, None])


def _eigengap(setting: Setting) -> Iterator[Row]:
    """Equations 7 and 14 leave out every unit eigenvalue of P P*, not one: a clock never forgets its hour."""
    chain, ticks = _clock(), 200
    root = np.sqrt(distribution := chain.stationary_distribution)
    values = np.linalg.eigvals(chain.transition @ _reverse(chain)).real
    printed = float(1.0 - max(value for value in values if abs(value - 1.0) > 1e-9))
    lost = lost_by_a_clock(chain, ticks, _printed_scale(Mixing(printed, float(distribution.min())), ticks))
    singular = np.linalg.svd(root[:, None] * chain.transition / root, compute_uv=False)
    why = "exactly one unit eigenvalue belongs to the stationary distribution; the others are never forgotten"
    gap = 1.0 - float(singular[1]) ** 2
    yield Row("clock of 20 hours: the eigengap", gap, printed, "formula", 1e-9, why=why, computed=True)
    about = "clock: what MQMApprox at epsilon 1 loses"
    yield at_most(f"{about} at tick 100", float(lost[99]), 1.0, why, computed=False)
    yield at_most(f"{about} at its worst tick", float(lost.max()), 1.0, why, computed=False)
    apart, rarest = 40, float(distribution.min())
    decay = math.exp(-printed * apart / 2.0)
    about = f"clock: influence of a tick {apart} later on a tick, against the right side's bound of lemma 4.8"
    bound = math.log((rarest + decay) / (rarest - decay))
    later = np.linalg.matrix_power(chain.transition, apart)
    influence = 0.0 if (later > 0.0).all() else math.inf
    yield at_most(about, influence, bound, "some hours are impossible 40 ticks after an hour")
    whole = mqm_exact((chain,), ticks, 1.0).scale
    yield Row("clock, 200 ticks, epsilon 1: noise of MQMExact, which protects all as one", whole)


_PER_BIN = tuple(
    ("MQM", "table 3, derived", f"GroupDP error per bin times epsilon, epsilon {epsilon}")
    for epsilon in ("0.2", "1", "5")
)


def _histogram(setting: Setting) -> Iterator[Row]:
    """GroupDP's noise of a histogram is Laplace(2 / eps) a bin, as in the paper's experiments, not Laplace(1 / eps).

    Two states of which one group is in either: the histogram is (1, 0) or (0, 1).
    """
    scale = 1.0  # 1 / eps at epsilon 1
    lost = sum(abs(a - b) / scale for a, b in zip((1, 0), (0, 1), strict=True))
    about = "one group in state 0 or 1, Laplace(1 / eps) in both bins, epsilon 1: what is lost"
    yield at_most(about, lost, 1.0, "the ratio of densities of both bins multiplies", computed=False)
    for key in _PER_BIN:
        yield Row(f"table 3, {key[2]}: E|Laplace(b)| is b", printed_number(key), why="its 51 bins had Laplace(2 / eps)")


_LOG: Key = ("MQM", "theorem 2.4, example", "max(D_inf) after conditioning")


def _conditioned(setting: Setting) -> Iterator[Row]:
    """The example of theorem 2.4 divides rounded masses: log 91.0962 is log 90.9474."""
    ratio = (
        Fraction(9, 10)
        / (Fraction(9, 10) + Fraction(1, 20))
        / (Fraction(1, 100) / (Fraction(1, 100) + Fraction(95, 100)))
    )
    why = "0.9474 / 0.0104, the masses as they are printed, is the printed number"
    yield Row(
        "masses (0.9, 0.05) and (0.01, 0.95), conditioned: e^D",
        float(ratio),
        printed_number(_LOG),
        "printed",
        5e-5,
        why=why,
    )


def _slips(setting: Setting) -> Iterator[Row]:
    """The caption of figure 4 says epsilon 0.5 where section 5.2 has 0.2."""
    about = "GroupDP's error, epsilon 0.5 as in the caption: 1 / epsilon, against section 5.2's about 5"
    yield Row(about, 1 / 0.5, 5.0, "claim", 0.5, why="5 is 1 / 0.2")


CLOCK_CHAIN: Key = ("MQM", "lemma 4.8", "statement")
"""Irreducible, aperiodic, a printed eigengap above 0."""
EIGENGAP: Key = ("MQM", "lemma C.4, equation 14", "statement")


def _clock_is_mixing() -> bool:
    """Some power of the matrix has no zero: the chain is irreducible and aperiodic."""
    steps = (_clock().transition > 0.0).astype(np.int64)
    reached = steps
    for _ in range(10):  # 2^10 ticks, more than (20 - 1)^2 + 1
        reached = ((reached @ reached) > 0).astype(np.int64)
    return bool(reached.all())


ERRATA = {
    "erratum-mqm-eigengap": Erratum((CLOCK_CHAIN, EIGENGAP), {CLOCK_CHAIN: _clock_is_mixing}, _eigengap),
    "erratum-mqm-histogram": Erratum(
        (("MQM", "section 5.3.1", "GroupDP noise"), *_PER_BIN),
        {
            ("MQM", "definition 2.5", "statement"): lambda: (
                sum(abs(a - b) for a, b in zip((1, 0), (0, 1), strict=True)) == 2
            )
        },
        _histogram,
    ),
    "erratum-mqm-conditioned": Erratum(
        (_LOG, ("MQM", "theorem 2.4, example", "conditional masses without D3")),
        {("MQM", "theorem 2.4, example", "conditional masses without D3"): lambda: round(0.9 / 0.95, 4) == 0.9474},
        _conditioned,
    ),
    "erratum-mqm-slips": Erratum(
        (("MQM", "section 5.1-5.2", "GroupDP error, synthetic"),),
        {("MQM", "section 5.1-5.2", "epsilons"): lambda: 1 / 0.2 == 5.0},
        _slips,
    ),
}
"""By name: the first line of each one's description is its title."""

"""The worth of a randomised stream to an honest subscriber, by simulation.

Baselines of others at the same epsilon show the epsilon that they really have, and what they leave. None is offered for
use: ordinary randomised response ignores correlation, the BDP paper's noise is too small for an adversary who knows
states, and the approximations waste noise.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy import special

from fugu.chains import filter_beliefs, posterior_marginals, simulate, stationary_distribution
from fugu.chains.arrays import Floats
from fugu.contract.chains import BinaryChains, ChainClass
from fugu.contract.errors import GuaranteeError
from fugu.contract.guarantee import Adversary, Loss
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.privacy.randomised_response import calibrate

__all__ = [
    "Baseline",
    "Utility",
    "assess",
    "baselines",
    "corollary_2",
    "ordinary_dp",
    "real_loss",
    "zhao_eps3",
    "zhao_eps6",
]


_SEED = 20201


class Utility(NamedTuple):
    """The worth of a stream of symbols.

    `accuracy` is the share of ticks whose state is the most likely one of the smoothed estimate, `majority` that of
    always guessing the most frequent state; `bits_per_reading` is what symbols tell of the states, per symbol.
    """

    accuracy: float
    majority: float
    bits_per_reading: float


def assess(table: NoiseTable, transition: Floats, chains: ChainClass, ticks: int) -> Utility:
    """Measure what a table leaves of a typical chain, to a gateway that estimates with the middle of the class.

    Every call uses the same random numbers, so that options differ by what they are and less by chance.
    """
    assumed = transition
    if chains.typical and not chains.named_streams:
        assumed = np.asarray(np.mean(chains.typical, axis=0))
    return utility(transition, table, np.random.default_rng(_SEED), assumed=assumed, ticks=ticks)


def utility(
    transition: Floats,
    table: NoiseTable,
    generator: np.random.Generator,
    *,
    assumed: Floats | None = None,
    ticks: int = 200_000,
) -> Utility:
    """Simulate a chain and its symbols, and estimate the states from the symbols.

    Given the symbols, a guess is right with its posterior probability, and a symbol carries KL(emission given the state
    | prediction from the symbols before) nats in the mean. Averages of these are unbiased and vary much less than
    counting hits; their standard error is about 0.001 at 200,000 ticks. The chain starts stationary; the gateway
    estimates with the `assumed` one, by default the same.

    Source: the rate is I(X;Z) = H(Z) - H(Z|X) of a hidden Markov chain (Cover and Thomas, section 4.5).
    """
    emission = np.array(table.weights(), dtype=np.float64) / SCALE
    initial = stationary_distribution(transition)
    states, symbols = simulate(ticks, initial, transition, emission, generator)
    posterior = posterior_marginals(symbols, initial, transition, emission)
    believed = posterior
    if assumed is not None:
        believed = posterior_marginals(symbols, stationary_distribution(assumed), assumed, emission)
    accuracy = float(np.take_along_axis(posterior, believed.argmax(axis=1)[:, None], axis=1).mean())
    beliefs = filter_beliefs(symbols, initial, transition, emission).beliefs
    predicted = np.vstack([initial, beliefs[:-1] @ transition]) @ emission
    nats = special.rel_entr(emission[states], predicted).sum(axis=1).mean()
    return Utility(accuracy, float(initial.max()), float(nats) / float(np.log(2.0)))


_LONGEST_QUILT = 1000


class Baseline(NamedTuple):
    """A published mechanism at a nominal epsilon: who proposed it, and its flip probabilities."""

    name: str
    rho0: float
    rho1: float

    def real(self, chains: ChainClass, adversary: Adversary) -> Loss | None:
        """What it really loses; none if there is no bound."""
        rhos = [Fraction(math.floor(rho * SCALE), SCALE) for rho in (self.rho0, self.rho1)]
        try:
            return real_loss(chains, rhos[0], rhos[1], adversary) if min(rhos) > 0 else None
        except GuaranteeError:
            return None

    def utility(self, transition: Floats, chains: BinaryChains, ticks: int) -> Utility:
        """What its symbols are worth; arguments as for `assess`."""
        thresholds = [min(max(round(rho * SCALE), 1), SCALE - 1) for rho in (self.rho0, self.rho1)]
        return assess(NoiseTable.binary(*thresholds), transition, chains, ticks)


def baselines(chains: BinaryChains, epsilon: float) -> list[Baseline]:
    """All baselines that exist for a class of chains, at a nominal epsilon in nats.

    The papers' formulas are evaluated at the stickiest corner; those for symmetric chains need q = r there.
    """
    rho = ordinary_dp(epsilon)
    found = [("ordinary randomised response", rho, rho)]
    q, r = chains.q[0], chains.r[0]
    if q + r < 1:
        paper = calibrate(BinaryChains(q=(q, q), r=(r, r)), epsilon, "ignorant", "flips")
        found.append(("BDP theorem 1", paper.rho0, paper.rho1))
    if q == r and q < 0.5:
        rho = corollary_2(q, epsilon)
        found.append(("BDP corollary 2", rho, rho))
        nominal = zhao_eps3(q, epsilon), zhao_eps6(q, epsilon)[0]
        for name, amount in zip(("Zhao et al., eps_3", "Zhao et al., eps_6"), nominal, strict=True):
            if amount > 0:
                rho = ordinary_dp(amount)
                found.append((name, rho, rho))
    return [Baseline(*each) for each in found]


def real_loss(chains: ChainClass, rho0: Fraction, rho1: Fraction, adversary: Adversary) -> Loss:
    """Return the real epsilon of exact flip probabilities inside (0, 1) for two-state chains.

    Raises GuaranteeError if the chains have more than two states, or there is no bound.
    """
    if chains.states != 2:
        raise GuaranteeError(f"rho0 and rho1 belong to a stream of two states; this chain has {chains.states}")
    ratio_01 = max((1 - rho0) / rho1, rho0 / (1 - rho1))
    ratio_10 = max((1 - rho1) / rho0, rho1 / (1 - rho0))
    return chains.ratio_loss(ratio_01, ratio_10, adversary)


def ordinary_dp(epsilon: float) -> float:
    """Flip probability of ordinary randomised response (Warner 1965): 1/(1 + e^epsilon)."""
    return 1 / (1 + math.exp(epsilon))


def corollary_2(theta: float, epsilon: float) -> float:
    """Flip probability of the BDP paper's approximation for a symmetric chain; theta < 1/2: a change of state.

    Source: BDP corollary 2: sqrt(G) is the positive root of x^2 - theta e^(epsilon/2) x - (1 - theta) = 0.
    """
    half = theta * math.exp(epsilon / 2)
    root = (half + math.sqrt(half * half + 4 * (1 - theta))) / 2
    return 1 / (1 + root * root)


def zhao_eps3(theta: float, epsilon: float) -> float:
    """Epsilon left for ordinary randomised response by Zhao et al.'s first bound; below 0 nothing is left."""
    return epsilon - 6 * math.log((1 - theta) / theta)


def zhao_eps6(theta: float, epsilon: float) -> tuple[float, int]:
    """Epsilon left by Zhao et al.'s second bound, and the distance t that attains it; theta as for `corollary_2`."""
    decay = 1 - 2 * theta

    def left(t: int) -> float:
        return (epsilon - 12 * math.atanh(decay**t)) / (2 * t - 1)

    best = max(range(1, _LONGEST_QUILT), key=left)
    return left(best), best

"""Attacks on all that an audience may read of a tick: what epsilon is at least, beside what is promised and certified.

Two states of one tick are told apart by the likelihood ratio of everything that is heard around it, on a chain of the
class that makes it worst. The event is chosen on simulated trials and counted on others: with draws that are simulated
by the policy's own numbers, or with those that a device and a gateway have really made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import permutations
from typing import NamedTuple

import numpy as np

from contract.chains import BinaryChains, BoundedChains, FiniteChains
from contract.errors import FuguError, GuaranteeError
from contract.exponential import exp_up
from contract.guarantee import Adversary, ratio_loss
from contract.policy import Policy
from gateway.audit.access import Audience
from gateway.audit.extended import extended_epsilon
from gateway.audit.lower_bound import best_threshold, least_epsilon
from gateway.audit.outputs import Counted, Mechanism, Simulated, log_likelihoods, paths, release
from gateway.audit.recorded import Recorded
from gateway.audit.told import Definition
from gateway.chain.arrays import Floats
from gateway.privacy.chain_class import MarkovChain
from gateway.release.amplification import charge

__all__ = ["LEVEL", "Attacked", "AudienceError", "attack_audiences", "certified", "simulated", "worst_chains"]

LEVEL = 0.05
"""How probable it is that any of the bounds of one audit is above the true epsilon."""
_CHOOSING = 4000
_WORK = 40_000_000
_LEAST_TRIALS = 500
_RADIUS = 20
_DRAWS = 50
"""For each trial, of single ticks, which cost little."""
_LARGEST = 700.0


class AudienceError(FuguError):
    """There is no attack on a stream of this kind."""


class Attacked(NamedTuple):
    """What was reached with all that an audience may read.

    Attributes:
        audience: who.
        heard: in words.
        promised: epsilon, in nats.
        certified: the bound of what is released to it as it is configured; infinite if there is none.
        adversary: of the promise.
        extended: epsilon is at least this if draws are independent, given the states (`gateway.audit.extended`), at the
            confidence of the audit; none if not known.
        draws: whether they are "simulated" or "recorded".
        least: epsilon is at least this, whatever the draws; 0 if nothing could be shown.
        trials: of each of the two states.
        hits, alarms: how often the event happened under the one and under the other.
        about: the two states, and the chain, in words.
    """

    audience: str
    heard: str
    promised: float
    certified: float
    adversary: Adversary
    extended: float | None
    draws: str
    least: float
    trials: int
    hits: int
    alarms: int
    about: str

    @property
    def refuted(self) -> bool:
        """Whether what is promised is shown to be false."""
        return max(self.least, self.extended or 0.0) > self.promised


class _Counted(NamedTuple):
    least: float
    trials: int
    hits: int
    alarms: int
    about: str


def attack_audiences(
    policy: Policy,
    audiences: Sequence[Audience],
    definitions: Sequence[Definition],
    *,
    seed: int,
    trials: int,
    recorded: Recorded | None = None,
    level: float = LEVEL,
) -> Iterator[Attacked]:
    """Attack what each audience may read.

    Args:
        definitions: all counts that are made of the stream, on the device and by the gateway.
        seed: of all that is simulated.
        trials: to count the event on, of each of the two states; fewer where one takes long.
        recorded: draws that were really made; with these, what an audience may read of other kinds is left out.
        level: shared out among the audiences: the probability that any bound is wrong.

    Raises:
        AudienceError: the class of chains is not of this stream alone.
    """
    chains = worst_chains(policy)
    for number, audience in enumerate(audiences):
        mine = [one for one in definitions if _hears(audience, one)]
        heard = audience.symbols and policy.table is not None
        if recorded is not None:
            mine = [one for one in mine if all(name in recorded.noises for name in one.names)]
            heard = heard and all(one.size for one in recorded.drawn)
        if not heard and not mine:
            continue
        generator = np.random.default_rng([seed, number])
        promised, adversary = _promise(policy, audience)
        share = level / len(audiences) / 2
        found = _attacked(policy, chains, heard, mine, generator, trials, recorded, share)
        drawn = recorded or simulated(policy, mine, generator, _DRAWS * trials)
        noises = [(one, drawn.noises[one.names[0]]) for one in mine]
        extended = extended_epsilon(policy, heard, noises, drawn.drawn, adversary, share)
        words = ", ".join([*(["symbols"] if heard else []), *(one.name for one in mine)])
        bound = certified(policy, heard, mine, adversary)
        draws = "simulated" if recorded is None else "recorded"
        yield Attacked(audience.name, words, promised, bound, adversary, extended, draws, *found)


def simulated(
    policy: Policy, definitions: Sequence[Definition], generator: np.random.Generator, draws: int
) -> Recorded:
    """So many draws in each state, and of each count's noise, by the policy's own numbers."""
    source, states = Simulated(generator), len(policy.discretiser.states)
    drawn = [np.full(draws, x, dtype=np.int64) for x in range(states)]
    if policy.table is not None:
        drawn = [source.symbols(own, policy.table) for own in drawn]
    noises = {
        name: source.noise(Counted(name, 0, one.length, (), one.symbols, one.scale, one.terms), draws)
        for one in definitions
        for name in one.names
    }
    return Recorded(drawn, noises)


def certified(policy: Policy, heard: bool, definitions: Sequence[Definition], adversary: Adversary) -> float:
    """The bound of the accountant for symbols, if they are heard, and counts; infinite if there is none."""
    rate = sum((one.rate for one in definitions if not one.symbols), Fraction(0))
    if policy.table is not None and not heard:
        for one in definitions:
            if one.symbols:
                rate += one.overlap * Fraction(charge(policy.table, float(one.spread)))
    update: dict[str, object] = {"windows": (), "windows_guarantee": None}
    symbols = policy.model_copy(update=update).tick_ratios if heard else (Fraction(1), Fraction(1))
    try:
        beside = exp_up(rate)
        return ratio_loss(policy.chains, symbols[0] * beside, symbols[1] * beside, adversary).epsilon
    except GuaranteeError:
        return math.inf


def worst_chains(policy: Policy) -> tuple[MarkovChain, ...]:
    """Chains of a class that may be its worst, all stationary; of two states that stay, the stickiest is.

    Raises:
        AudienceError: of joint chains.
    """
    match policy.chains:
        case BinaryChains() as known:
            pairs = dict.fromkeys((q, r) for q in known.q for r in known.r)
            if known.q[0] + known.r[0] <= 1:
                pairs = dict.fromkeys([(known.q[0], known.r[0])])
            return tuple(MarkovChain.stationary([[1 - q, q], [r, 1 - r]]) for q, r in pairs)
        case FiniteChains() as known:
            return tuple(MarkovChain.stationary(one) for one in known.transitions)
        case BoundedChains() as known:
            stay = math.sqrt(known.odds_ratio)
            matrix = np.ones((known.states, known.states)) + (stay - 1) * np.eye(known.states)
            return (MarkovChain.stationary(matrix / (stay + known.states - 1)),)
        case _:
            raise AudienceError("streams of joint chains are not attacked")


def mechanism_of(policy: Policy, heard: bool, definitions: Sequence[Definition], radius: int) -> Mechanism:
    """What is heard around a tick that as many windows as possible have in their midst."""
    far = max((one.start for one in definitions), default=0) + 4 * max((one.length for one in definitions), default=1)
    secret = far + radius
    if definitions:
        most = max(definitions, key=lambda one: one.overlap * one.spread)
        index = -(-(secret - most.start) // most.stride)
        last = most.start + index * most.stride
        first = last - (most.overlap - 1) * most.stride
        secret = (last + first + most.length - 1) // 2
    covering = [span for one in definitions for span in one.windows(secret, secret)]
    low = min([secret - radius, *(first for first, _ in covering)])
    high = max([secret + radius, *(last for _, last in covering)])
    counts = [
        Counted(name, first - low, one.length, members, one.symbols, one.scale, one.terms)
        for one in definitions
        for first, last in one.windows(low, high)
        if low <= first and last <= high
        for name, members in zip(one.names, one.groups, strict=True)
    ]
    states = len(policy.discretiser.states)
    return Mechanism(high - low + 1, secret - low, states, policy.table, heard, tuple(counts))


def _hears(audience: Audience, definition: Definition) -> bool:
    return definition.name in audience.releases if definition.release else audience.windows


def _promise(policy: Policy, audience: Audience) -> tuple[float, Adversary]:
    guarantee = policy.guarantee
    if audience.site and not audience.symbols and not audience.releases and policy.windows_alone is not None:
        guarantee = policy.windows_alone
    return (guarantee.epsilon, guarantee.adversary) if audience.site else (audience.epsilon, audience.adversary)


def _attacked(
    policy: Policy,
    chains: Sequence[MarkovChain],
    heard: bool,
    definitions: Sequence[Definition],
    generator: np.random.Generator,
    trials: int,
    recorded: Recorded | None,
    level: float,
) -> _Counted:
    """The event that promises most, counted."""
    best: tuple[float, float, Mechanism, MarkovChain, int, int, int] | None = None
    for chain in chains:
        far = _reach(chain)
        for radius in (far,) if recorded is None else dict.fromkeys((far, far // 2, 2, 0)):
            made = mechanism_of(policy, heard, definitions, radius)
            work = made.cells * made.ticks * made.states * made.emission.shape[1]
            counted = min(trials, max(_LEAST_TRIALS, _WORK // work))
            if recorded is not None:
                counted = min(counted, recorded.trials(made, chain))
            if not counted:
                continue
            ratios = _ratios(
                made, chain, generator, min(_CHOOSING, max(counted, _LEAST_TRIALS), max(_LEAST_TRIALS, _WORK // work))
            )
            for x, z in permutations(range(made.states), 2):
                threshold, promise = best_threshold(
                    ratios[x][:, x] - ratios[x][:, z], ratios[z][:, x] - ratios[z][:, z], counted, level
                )
                if best is None or promise > best[0]:
                    best = (promise, threshold, made, chain, x, z, counted)
    if best is None:
        return _Counted(0.0, 0, 0, 0, "too few draws were recorded")
    _, threshold, made, chain, x, z, counted = best
    drawn = [paths(chain, made, state, counted, generator) for state in (x, z)]
    if recorded is not None:
        counted = recorded.enough(made, *drawn)
        recorded.rewind()
    happened = []
    for states in drawn:
        told = release(made, states[:counted], Simulated(generator) if recorded is None else recorded)
        logs = log_likelihoods(made, chain, told)
        happened.append(int((_clipped(logs[:, x] - logs[:, z]) >= threshold).sum()))
    hits, alarms = happened
    names = policy.discretiser.states
    about = f"{names[x]} rather than {names[z]}, {_words(chain)}, {made.ticks} ticks"
    return _Counted(least_epsilon(hits, counted, alarms, counted, level), counted, hits, alarms, about)


def _reach(chain: MarkovChain) -> int:
    """Ticks on each side that may tell of a tick: a few of the times in which the chain forgets."""
    second = float(np.sort(np.abs(np.linalg.eigvals(chain.transition)))[-2])
    return min(_RADIUS, max(2, math.ceil(3 / max(1 - second, 1e-9))))


def _ratios(made: Mechanism, chain: MarkovChain, generator: np.random.Generator, trials: int) -> list[Floats]:
    """For each state, (trials, k) log-likelihoods of what is simulated under it, less that of the likeliest."""
    found = []
    for state in range(made.states):
        told = release(made, paths(chain, made, state, trials, generator), Simulated(generator))
        logs = log_likelihoods(made, chain, told)
        found.append(_clipped(logs - logs.max(axis=1, keepdims=True)))
    return found


def _clipped(logs: Floats) -> Floats:
    return np.clip(logs, -_LARGEST, _LARGEST)


def _words(chain: MarkovChain) -> str:
    if chain.states == 2:
        return f"q {chain.transition[0, 1]:.4g}, r {chain.transition[1, 0]:.4g}"
    return f"{chain.states} states"

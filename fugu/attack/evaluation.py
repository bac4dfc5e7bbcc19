"""Attackers by name, and what they reach on a recording, against what epsilon allows.

All attackers have one signature: outputs and knowledge in, probabilities of every tick's state out. One is judged by
what the outputs add: against the same attacker, who knows the same, without the outputs, tick by tick on the same
blocks. How often each state occurred, and was guessed without them, is a fact of the recording; the interval is for the
gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fugu.attack.chains import path, single, smoothing
from fugu.attack.epsilon import epsilon_bound, mean_interval, success_bound
from fugu.attack.learning import folded, learned, learned_levels, learned_path, regimes, supervised
from fugu.attack.outputs import CountOutputs, Knowledge, Outputs, without
from fugu.chains.arrays import Floats, Ints

__all__ = [
    "ATTACKERS",
    "COUNT_ATTACKERS",
    "Attack",
    "Attacker",
    "attack",
    "furthest_learner",
    "mean_transitions",
    "odds_change",
]

Attacker: TypeAlias = Callable[[Outputs, Knowledge], Floats]
"""From n ticks of outputs and what else is known to (n, k) probabilities; the same input gives the same answer."""

ATTACKERS: dict[str, Attacker] = {
    "single symbol": single,
    "forward-backward": smoothing,
    "Viterbi": path,
    "learned chain": learned,
    "learned chain, Viterbi": learned_path,
    "2 learned regimes": regimes(2),
    "3 learned regimes": regimes(3),
    "supervised": folded(supervised, 5),
}
"""Those who read symbols."""

COUNT_ATTACKERS: dict[str, Attacker] = {
    "single window": single,
    "forward-backward": smoothing,
    "learned levels": learned_levels,
    "supervised": folded(supervised, 5),
}
"""Those who read counts of windows."""

_KNOWN_CHAIN = {"single symbol", "single window", "forward-backward", "Viterbi"}
"""Those who believe a chain from the beginning. Epsilon bounds their odds if it is in the class, and nobody else's."""

_LARGEST = 700.0
"""The logarithm of the largest factor that is told apart from certainty: it fits a float."""

_HARMFUL = 0.05
"""Success above the ceiling that a recording must be long enough to show."""


@dataclass(frozen=True)
class Attack:
    """What one attacker reached.

    Attributes:
        success: share of the judged ticks whose state it named.
        low, high: the guess and the interval of the gain over it, corrected for the number of attackers; an attacker
            who never leaves the guess has exactly the guess.
        ceiling: the most that epsilon allows at the prior of the attacker who believes the chain, if the readings are
            in the class. Rates that drift are a prior that drifts: who learns the drift may get beyond it, without
            breaking any theorem about single ticks.
        guess: success of the same attacker without the outputs.
        epsilon_low: no epsilon below this explains what was reached, at the same confidence; 0 if any does.
        beyond: share of the judged ticks on which the outputs changed the attacker's odds between two states by more
            than e^epsilon; `None` for an attacker who names a path, and so has no odds.
        furthest: the largest factor of any tick; `None` likewise.
    """

    attacker: str
    success: float
    low: float
    high: float
    ceiling: float
    guess: float
    epsilon_low: float
    beyond: float | None = None
    furthest: float | None = None

    @property
    def refutes(self) -> bool:
        """Whether the outputs helped beyond doubt, to what may be more than epsilon allows.

        A gain whose interval includes 0 refutes nothing: where one state is rare the ceiling is the guess, and anybody
        who ever leaves it may be beyond it by chance.
        """
        return self.low > self.guess and self.high > self.ceiling

    @property
    def unclear(self) -> bool:
        """Whether the outputs may have helped, but not beyond doubt, to .05 and more above what epsilon allows.

        The recording is then too short to tell. Who was right less often than without the outputs gained nothing.
        """
        return self.low <= self.guess < self.success and self.high > self.ceiling + _HARMFUL


def attack(
    states: Ints,
    segments: Ints,
    outputs: Outputs,
    epsilon: float,
    *,
    transition: Floats | None = None,
    known: Ints | None = None,
    attackers: Mapping[str, Attacker] | None = None,
    confidence: float = 0.95,
) -> tuple[Attack, ...]:
    """Attack outputs whose truth is known.

    Args:
        states: (n,) true states, -1 where there is none. Those are not judged, nor are ticks that the attacker knows.
        segments: (n,) equal inside a stretch without gaps.
        epsilon: what was promised, in nats.
        transition: (k, k) the chain that attackers believe; none: they are given the recording's own mean chain.
        known: (n,) true states that attackers are given, -1 elsewhere.
        attackers: those to run; none: all that can read these outputs.
        confidence: of all intervals together (Bonferroni).

    Returns:
        An attack for each attacker, the most successful first.

    Raises:
        ValueError: no tick is judged, or arrays do not fit together.
    """
    k = outputs.states
    judged = (states >= 0) & (True if known is None else known < 0)
    if not judged.any() or states.shape != (outputs.ticks,) or segments.shape != states.shape:
        raise ValueError("an attack needs a state, a segment and an output for every tick, and a tick to judge")
    believed = mean_transitions(states, segments, k) if transition is None else transition
    knowledge = Knowledge(believed, segments, known, states)
    chosen = attackers or (COUNT_ATTACKERS if isinstance(outputs, CountOutputs) else ATTACKERS)
    level = 1 - (1 - confidence) / len(chosen)
    nothing = without(outputs)
    truth = states[judged]
    prior = smoothing(nothing, knowledge)[judged]
    slack = float((success_bound(prior, epsilon) - prior.max(axis=1)).mean())
    best_guess = float((prior.argmax(axis=1) == truth).mean())
    found = []
    for name, attacker in chosen.items():
        after, before = (attacker(seen, knowledge)[judged] for seen in (outputs, nothing))
        right, guessed = after.argmax(axis=1) == truth, before.argmax(axis=1) == truth
        guess = float(guessed.mean())
        with np.errstate(invalid="ignore"):  # whoever was certain before has not learned anything
            evidence = np.nan_to_num(_log_odds(after) - _log_odds(before), nan=0.0, posinf=np.inf, neginf=-np.inf)
        gain = right.astype(np.int64) - guessed
        added = mean_interval(_unexplained(gain, truth * k + before.argmax(axis=1)), level)
        success = float(right.mean())
        low, high = max(0.0, success + added.low), min(1.0, success + added.high)
        ceiling = min(1.0, max(guess, best_guess) + slack)
        proven = epsilon_bound(truth, prior, evidence, epsilon, level)
        odds: tuple[float, float] | tuple[None, None] = (None, None)
        if not (after.max(axis=1) == 1.0).all():
            change = _change(after, before)
            odds = float((change > epsilon * (1 + 1e-9)).mean()), math.exp(min(_LARGEST, change.max()))
        found.append(Attack(name, success, low, high, ceiling, guess, proven, *odds))
    return tuple(sorted(found, key=lambda one: -one.success))


def furthest_learner(attacks: Sequence[Attack]) -> Attack | None:
    """The attacker whose odds moved furthest, of those who do not know the chain beforehand; `None` without any."""
    learners = [one for one in attacks if one.attacker not in _KNOWN_CHAIN and one.furthest is not None]
    return max(learners, key=lambda one: (one.beyond, one.furthest), default=None)


def odds_change(outputs: Outputs, knowledge: Knowledge, attacker: Attacker = smoothing) -> Floats:
    """How far outputs move an attacker's odds on each tick: ln of the largest factor between any two states.

    Without an `attacker` it is the one who uses every output under the chain that it believes (forward-backward); if
    that chain is in the class, the factor stays within e^epsilon, whatever the truth is. Of an attacker who learns the
    chain epsilon says nothing.

    Args:
        knowledge: the chain that is believed, and known states, where the change is 0.

    Returns:
        (n,) in nats, at least 0.
    """
    return _change(attacker(outputs, knowledge), attacker(without(outputs), knowledge))


def _change(after: Floats, before: Floats) -> Floats:
    """ln of the largest factor (n,) between the odds of any two states (n, k) with the outputs and without."""
    with np.errstate(divide="ignore", invalid="ignore"):
        change = np.where(before > 0.0, np.log(after) - np.log(before), np.nan)
    return np.asarray(np.nanmax(change, axis=1) - np.nanmin(change, axis=1))


def mean_transitions(states: Ints, segments: Ints, k: int) -> Floats:
    """The chain (k, k) with a recording's own transitions; every transition counts half a time more than seen."""
    pairs = (states[:-1] >= 0) & (states[1:] >= 0) & (segments[:-1] == segments[1:])
    counts = np.full((k, k), 0.5)
    np.add.at(counts, (states[:-1][pairs], states[1:][pairs]), 1.0)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def _unexplained(gain: Ints, strata: Ints) -> Floats:
    """What is left of gains (n,) when every stratum's mean is taken off."""
    sums, sizes = np.bincount(strata, gain), np.bincount(strata)
    return np.asarray(gain - (sums / np.maximum(sizes, 1))[strata])


def _log_odds(probabilities: Floats) -> Floats:
    """Log-odds (n, k) of each state against all others; infinite where certain."""
    others = probabilities.sum(axis=1, keepdims=True) - probabilities
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(probabilities) - np.log(np.maximum(others, 0.0)))

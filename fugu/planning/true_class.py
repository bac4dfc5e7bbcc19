"""A class of chains that holds up: it covers a recording, and attackers reach no more than it allows.

What is proven holds for readings in the class; whether they are in it is tried, by attacks. An attacker refutes a class
if its gain from the outputs, against itself without them, has an interval above 0 that reaches beyond what epsilon
allows. A gain whose interval includes 0 refutes nothing, but the recording is too short to tell if it reaches 0.05
further than that. The class is widened until neither is so of any attacker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fugu.attackers.evaluation import Attack, attack
from fugu.attackers.outputs import CountOutputs, Outputs, SymbolOutputs, release_counts, release_symbols
from fugu.chains.arrays import Ints
from fugu.contract.errors import FuguError
from fugu.contract.windows import lawful_scale
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.chain_class import ChainClassError
from fugu.privacy.chain_model import Attacked as AttackedModel
from fugu.privacy.chain_model import ChainModel
from fugu.privacy.covering_class import Covered, CoveringChains, covering_class, widened
from fugu.privacy.randomised_response import calibrate, rate_table

__all__ = [
    "TrueClass",
    "attack_model",
    "beyond_ceiling",
    "strongest",
    "true_class",
]


_WIDER = 1.5
_WINDOW = 300
_ERROR = 0.05
_MOST_STEPS = 8

Attacked = Callable[[CoveringChains, np.random.Generator], Outputs | Sequence[Outputs] | None]
"""Releases under a plan for a class, together or one of several, each with the whole epsilon; None if there is none."""


class Step(NamedTuple):
    """A class that was tried, with its attacks, the most successful first."""

    chains: CoveringChains
    attacks: tuple[Attack, ...]

    @property
    def passed(self) -> bool:
        """True if no attacker refutes the class, and the recording is long enough to tell."""
        return not any(attack.refutes or attack.unclear for attack in self.attacks)

    @property
    def strongest(self) -> Attack:
        """The one who decides: see `strongest`."""
        return strongest(self.attacks)


def strongest(attacks: Sequence[Attack]) -> Attack:
    """The attack that decides, of several, the most successful first.

    The attack that may be farthest beyond its ceiling is chosen, among those that refute the class. If there are none,
    it is among those that are unclear, else among those that gained. It is the most successful if none gained.
    """
    for refuting in (
        [attempt for attempt in attacks if attempt.refutes],
        [attempt for attempt in attacks if attempt.unclear],
        [attempt for attempt in attacks if attempt.success > attempt.guess],
    ):
        if refuting:
            return max(refuting, key=lambda attacked: attacked.high - attacked.ceiling)
    return attacks[0]


def beyond_ceiling(attacks: Sequence[Attack]) -> tuple[str, ...]:
    """Why attacks on the third set take a recommendation away, if they do."""
    worst = strongest(attacks)
    if worst.high <= worst.ceiling:
        return ()
    verdict = "attackers are not" if worst.refutes else "the recording is too short to tell that attackers are"
    return (
        f"on the third set {verdict} kept below their ceiling. {worst.attacker} is right {worst.success:.1%} of the "
        f"time ({worst.low:.1%} to {worst.high:.1%}, and {worst.guess:.1%} without what is released); the ceiling is "
        f"{worst.ceiling:.1%}",
    )


class TrueClass(NamedTuple):
    """The class that covers a recording, and the one that attackers do not refute; or the reason why there is none.

    Each of `steps` is wider than the one before.
    """

    covered: Covered | None
    chains: CoveringChains | None
    steps: tuple[Step, ...]
    reason: str | None


def true_class(
    states: Ints,
    segments: Ints,
    k: int,
    epsilon: float,
    attacked: Attacked,
    generator: np.random.Generator,
    *,
    covered: Covered | None = None,
    most_steps: int = _MOST_STEPS,
) -> TrueClass:
    """Cover a recording, attack what would be released, and widen the class until attackers stay below the ceiling.

    `states` are (n,), -1 where there is none; `segments` are equal inside a stretch without gaps. `covered` saves
    looking for the class that covers the recording.
    """
    try:
        covered = covered or covering_class(states, segments, k)
    except ChainClassError as error:
        return TrueClass(None, None, (), str(error))
    steps: list[Step] = []
    chains = covered.chains
    while len(steps) < most_steps:
        try:
            outputs = attacked(chains, generator)
        except FuguError as error:
            return TrueClass(covered, None, tuple(steps), str(error))
        if outputs is None:
            return TrueClass(covered, None, tuple(steps), f"nothing useful can be released at epsilon {epsilon:g}")
        steps.append(Step(chains, _attacks(states, segments, outputs, epsilon)))
        if steps[-1].passed:
            return TrueClass(covered, chains, tuple(steps), None)
        chains = widened(chains, _WIDER)
    try:
        reason = _why_refused(steps, epsilon)
    except FuguError as error:  # no counts could be told for so wide a class
        reason = str(error)
    return TrueClass(covered, None, tuple(steps), reason)


def attack_model(
    model: ChainModel, states: Ints, segments: Ints, epsilon: float, generator: np.random.Generator
) -> ChainModel:
    """Attack what a fitted model's class would have at some epsilon, and widen the class as attackers need.

    That is symbols, and counts of 300 ticks if the chain has two states. Several streams release their symbols
    together, each with an equal part of what the class allows. `states` are (n,), as the model numbers them; epsilon is
    against the universal adversary. The model that is returned has the class that attackers did not refute, or the
    reason why there is none.
    """
    shows = np.array(model.shows, dtype=np.int64)
    symbols = symbols_of(states, epsilon)

    def one_stream(chains: CoveringChains, generator: np.random.Generator) -> Sequence[Outputs]:
        seen = symbols(chains, generator)
        assert isinstance(seen, SymbolOutputs)
        if chains.states > 2:
            return (seen,)
        scale = lawful_scale(count_scale(chains, epsilon))
        return seen, release_counts(states, segments, min(_WINDOW, states.size // 20), scale, ((1,),), generator, k=2)

    def all_streams(chains: CoveringChains, generator: np.random.Generator) -> Outputs:
        rate = ChainAccountant(chains).allowance(epsilon, "universal") / len(model.streams)
        symbols, emission = np.zeros(states.size, dtype=np.int64), np.ones((len(shows), 1))
        for column, stream in zip(shows.T, model.streams, strict=True):
            seen = release_symbols(column[states], rate_table(stream.states, Fraction(rate), epsilon), generator)
            symbols = symbols * stream.states + seen.symbols
            emission = (emission[:, :, None] * seen.emission[column][:, None, :]).reshape(len(shows), -1)
        return SymbolOutputs(symbols, emission)

    attacked: Attacked = one_stream if len(model.streams) == 1 else all_streams
    attacked_class = true_class(states, segments, len(shows), epsilon, attacked, generator)
    attack_figures: AttackedModel | None = None
    if attacked_class.steps:
        worst = attacked_class.steps[-1].strongest
        figures = {name: getattr(worst, name) for name in ("success", "low", "high", "ceiling", "guess")}
        attack_figures = AttackedModel(epsilon=epsilon, attackers=len(attacked_class.steps[0].attacks), **figures)
    return model.model_copy(
        update={"chains": attacked_class.chains, "refused": attacked_class.reason, "attacked": attack_figures}
    )


def _attacks(states: Ints, segments: Ints, outputs: Outputs | Sequence[Outputs], epsilon: float) -> tuple[Attack, ...]:
    """Everything that would be released, attacked; intervals hold together (Bonferroni)."""
    if isinstance(outputs, SymbolOutputs | CountOutputs):
        return attack(states, segments, outputs, epsilon)
    attacks: list[Attack] = []
    for seen in outputs:
        kind = "symbols" if isinstance(seen, SymbolOutputs) else f"counts of {seen.length}"
        for attack_on in attack(states, segments, seen, epsilon, confidence=1.0 - _ERROR / len(outputs)):
            attacks.append(replace(attack_on, attacker=f"{attack_on.attacker}, {kind}"))
    return tuple(sorted(attacks, key=lambda attack: -attack.success))


def _why_refused(steps: Sequence[Step], epsilon: float) -> str:
    """Why the widest class that was tried did not pass: attackers were right too often, or may have been."""
    strongest, scale = steps[-1].strongest, count_scale(steps[-1].chains, epsilon)
    seen = any(attack.refutes for step in steps for attack in step.attacks)
    return (
        f"{'no class passes' if seen else 'too short to tell'}: even with noise of {scale:.3g} ticks "
        f"for a count, up to {strongest.high:.3f} of the guesses of the attacker '{strongest.attacker}' are right. "
        f"{strongest.success:.3f} were, and epsilon {epsilon:g} allows {strongest.ceiling:.3f}"
    )


def count_scale(chains: CoveringChains, epsilon: float) -> float:
    """Laplace scale, in ticks, of the counts of an endless stream of windows against the universal adversary.

    Raises:
        CoveringChainsError: no noise is enough.
    """
    return 1.0 / ChainAccountant(chains).allowance(epsilon, "universal")


def symbols_of(states: Ints, epsilon: float) -> Attacked:
    """A symbol for every tick (-1: no state), with the noise of a class against the universal adversary."""

    def attacked(chains: CoveringChains, generator: np.random.Generator) -> Outputs:
        return release_symbols(states, calibrate(chains, epsilon, "universal").table, generator)

    return attacked

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

__all__ = ["TrueClass", "attack_model", "beyond_ceiling", "strongest", "true_class"]


_WIDENING = 1.5
_WINDOW_TICKS = 300
_ERROR_LEVEL = 0.05
_MOST_STEPS = 8

DrawOutputs = Callable[[CoveringChains, np.random.Generator], Outputs | Sequence[Outputs] | None]
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
    for attack_group in (
        [attempt for attempt in attacks if attempt.refutes],
        [attempt for attempt in attacks if attempt.unclear],
        [attempt for attempt in attacks if attempt.success > attempt.guess],
    ):
        if attack_group:
            return max(attack_group, key=lambda attempt: attempt.high - attempt.ceiling)
    return attacks[0]


def beyond_ceiling(attacks: Sequence[Attack]) -> tuple[str, ...]:
    """Why attacks on the third set take a recommendation away, if they do."""
    worst = strongest(attacks)
    if worst.high <= worst.ceiling:
        return ()
    verdict = "attackers are not" if worst.refutes else "the recording is too short to tell that attackers are"
    return (
        f"on the third set {verdict} kept below their ceiling. {worst.attacker} is right "
        f"{worst.success:.1%} of the time ({worst.low:.1%} to {worst.high:.1%}, and "
        f"{worst.guess:.1%} without what is released); the ceiling is {worst.ceiling:.1%}",
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
    draw: DrawOutputs,
    generator: np.random.Generator,
    *,
    covering: Covered | None = None,
    most_steps: int = _MOST_STEPS,
) -> TrueClass:
    """Cover a recording, attack what would be released, and widen the class until attackers stay below the ceiling.

    `states` are (n,), -1 where there is none; `segments` are equal inside a stretch without gaps. `covering` saves
    looking for the class that covers the recording.
    """
    try:
        covering = covering or covering_class(states, segments, k)
    except ChainClassError as error:
        return TrueClass(None, None, (), str(error))
    steps: list[Step] = []
    chains = covering.chains
    while len(steps) < most_steps:
        try:
            outputs = draw(chains, generator)
        except FuguError as error:
            return TrueClass(covering, None, tuple(steps), str(error))
        if outputs is None:
            return TrueClass(covering, None, tuple(steps), f"nothing useful can be released at epsilon {epsilon:g}")
        steps.append(Step(chains, _attack_outputs(states, segments, outputs, epsilon)))
        if steps[-1].passed:
            return TrueClass(covering, chains, tuple(steps), None)
        chains = widened(chains, _WIDENING)
    try:
        reason = _refusal_reason(steps, epsilon)
    except FuguError as error:  # no counts could be told for so wide a class
        reason = str(error)
    return TrueClass(covering, None, tuple(steps), reason)


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
        symbol_outputs = symbols(chains, generator)
        assert isinstance(symbol_outputs, SymbolOutputs)
        if chains.states > 2:
            return (symbol_outputs,)
        scale = lawful_scale(count_scale(chains, epsilon))
        return symbol_outputs, release_counts(
            states, segments, min(_WINDOW_TICKS, states.size // 20), scale, ((1,),), generator, k=2
        )

    def all_streams(chains: CoveringChains, generator: np.random.Generator) -> Outputs:
        rate = ChainAccountant(chains).allowance(epsilon, "universal") / len(model.streams)
        symbols, emission = np.zeros(states.size, dtype=np.int64), np.ones((len(shows), 1))
        for column, stream in zip(shows.T, model.streams, strict=True):
            part = release_symbols(column[states], rate_table(stream.states, Fraction(rate), epsilon), generator)
            symbols = symbols * stream.states + part.symbols
            emission = (emission[:, :, None] * part.emission[column][:, None, :]).reshape(len(shows), -1)
        return SymbolOutputs(symbols, emission)

    draw: DrawOutputs = one_stream if len(model.streams) == 1 else all_streams
    attacked_class = true_class(states, segments, len(shows), epsilon, draw, generator)
    attack_figures: AttackedModel | None = None
    if attacked_class.steps:
        worst = attacked_class.steps[-1].strongest
        figures = {name: getattr(worst, name) for name in ("success", "low", "high", "ceiling", "guess")}
        attack_figures = AttackedModel(epsilon=epsilon, attackers=len(attacked_class.steps[0].attacks), **figures)
    return model.model_copy(
        update={"chains": attacked_class.chains, "refused": attacked_class.reason, "attacked": attack_figures}
    )


def _attack_outputs(
    states: Ints, segments: Ints, outputs: Outputs | Sequence[Outputs], epsilon: float
) -> tuple[Attack, ...]:
    """Everything that would be released, attacked; intervals hold together (Bonferroni)."""
    if isinstance(outputs, SymbolOutputs | CountOutputs):
        return attack(states, segments, outputs, epsilon)
    attacks: list[Attack] = []
    for part in outputs:
        output_words = "symbols" if isinstance(part, SymbolOutputs) else f"counts of {part.length}"
        for attack_on in attack(states, segments, part, epsilon, confidence=1.0 - _ERROR_LEVEL / len(outputs)):
            attacks.append(replace(attack_on, attacker=f"{attack_on.attacker}, {output_words}"))
    return tuple(sorted(attacks, key=lambda attack: -attack.success))


def _refusal_reason(steps: Sequence[Step], epsilon: float) -> str:
    """Why the widest class that was tried did not pass: attackers were right too often, or may have been."""
    worst, count_noise = steps[-1].strongest, count_scale(steps[-1].chains, epsilon)
    is_refuted = any(attack.refutes for step in steps for attack in step.attacks)
    return (
        f"{'no class passes' if is_refuted else 'too short to tell'}: even with noise of {count_noise:.3g} ticks "
        f"for a count, up to {worst.high:.3f} of the guesses of the attacker '{worst.attacker}' are right. "
        f"{worst.success:.3f} were, and epsilon {epsilon:g} allows {worst.ceiling:.3f}"
    )


def count_scale(chains: CoveringChains, epsilon: float) -> float:
    """Laplace scale, in ticks, of the counts of an endless stream of windows against the universal adversary.

    Raises:
        CoveringChainsError: no noise is enough.
    """
    return 1.0 / ChainAccountant(chains).allowance(epsilon, "universal")


def symbols_of(states: Ints, epsilon: float) -> DrawOutputs:
    """A symbol for every tick (-1: no state), with the noise of a class against the universal adversary."""

    def draw(chains: CoveringChains, generator: np.random.Generator) -> Outputs:
        return release_symbols(states, calibrate(chains, epsilon, "universal").table, generator)

    return draw

"""Find a class of chains that attackers do not refute, from the class that covers a recording.

The proofs hold for readings in the class; attacks test whether the readings are in it. An attacker's gain is its
success with the outputs, less that without them. The attacker refutes the class if the gain's interval lies above 0 and
reaches beyond what epsilon allows. If the interval includes 0, but reaches 0.05 beyond that, the recording is too short
to tell. The class is widened until neither holds of any attacker.
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
from fugu.contract.windows import policy_scale
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.chain_model import Attacked as AttackedModel
from fugu.privacy.chain_model import ChainModel
from fugu.privacy.covering_class import CoveringChains, widen
from fugu.privacy.randomised_response import calibrate, rate_table

__all__ = ["TrueClass", "attack_model", "ceiling_failures", "strongest_attack", "true_class"]


_WIDENING = 1.5
_WINDOW_TICKS = 300
_ERROR_LEVEL = 0.05
_MOST_STEPS = 8

DrawOutputs = Callable[[CoveringChains, np.random.Generator], Outputs | Sequence[Outputs] | None]
"""A function that draws the releases of a plan for a class, each with the whole epsilon; `None` if there are none."""


class Step(NamedTuple):
    """A class that was attacked, with the attacks, the most successful first."""

    chains: CoveringChains
    attacks: tuple[Attack, ...]

    @property
    def passed(self) -> bool:
        """True if no attacker refutes the class, and the recording is long enough to tell."""
        return not any(attack.refutes or attack.unclear for attack in self.attacks)

    @property
    def strongest_attack(self) -> Attack:
        """The attack that decides on the class."""
        return strongest_attack(self.attacks)


def strongest_attack(attacks: Sequence[Attack]) -> Attack:
    """Choose the attack that decides on a class; `attacks` are ordered by success.

    Of the attacks that refute the class, the one that may be farthest beyond its ceiling is chosen. If none refutes it,
    the choice is among unclear attacks, else among attacks that gained. Without these it is the most successful attack.
    """
    gaining_attacks = [attack for attack in attacks if attack.success > attack.guess]
    return max(
        gaining_attacks,
        key=lambda attack: (attack.refutes, attack.unclear, attack.high - attack.ceiling),
        default=attacks[0],
    )


def ceiling_failures(attacks: Sequence[Attack]) -> tuple[str, ...]:
    """Say why attacks on the third set refute a recommendation; empty if no attack does."""
    best_attack = strongest_attack(attacks)
    if best_attack.high <= best_attack.ceiling:
        return ()
    verdict = "attackers are not" if best_attack.refutes else "the recording is too short to tell that attackers are"
    return (
        f"on the third set {verdict} kept below their ceiling. {best_attack.attacker} is right "
        f"{best_attack.success:.1%} of the time ({best_attack.low:.1%} to {best_attack.high:.1%}, and "
        f"{best_attack.guess:.1%} without what is released); the ceiling is {best_attack.ceiling:.1%}",
    )


class TrueClass(NamedTuple):
    """The class that attackers do not refute, or the reason why there is none.

    `steps` lists the classes that were attacked, each wider than the one before.
    """

    chains: CoveringChains | None
    steps: tuple[Step, ...]
    reason: str = ""


def true_class(
    states: Ints,
    segments: Ints,
    chains: CoveringChains,
    epsilon: float,
    draw_outputs: DrawOutputs,
    generator: np.random.Generator,
    *,
    most_steps: int = _MOST_STEPS,
) -> TrueClass:
    """Attack the releases planned for a class, and widen the class until attackers stay below their ceiling.

    `states` (n,) holds -1 for no state; `segments` (n,) are equal within a stretch without gaps. `chains` is the class
    that covers the recording.
    """
    steps: list[Step] = []
    try:
        while len(steps) < most_steps:
            if (outputs := draw_outputs(chains, generator)) is None:
                return TrueClass(None, tuple(steps), f"nothing useful can be released at epsilon {epsilon:g}")
            steps.append(Step(chains, _attacks(states, segments, outputs, epsilon)))
            if steps[-1].passed:
                return TrueClass(chains, tuple(steps))
            chains = widen(chains, _WIDENING)
        reason = _refusal_reason(steps, epsilon)
    except FuguError as error:  # no outputs can be drawn, or no counts be told, for so wide a class
        reason = str(error)
    return TrueClass(None, tuple(steps), reason)


def attack_model(
    model: ChainModel, states: Ints, segments: Ints, epsilon: float, generator: np.random.Generator
) -> ChainModel:
    """Attack releases planned for a fitted model's class, and widen this class until attackers do not refute it.

    The releases are symbols, and counts of at most 300 ticks if the chain has two states. Several streams release
    symbols together, each with an equal part of the rate that the class allows. `states` (n,) are numbered as in the
    model; epsilon is against the universal adversary. The returned model has the class that attackers did not refute,
    or the reason why there is none.
    """
    shows = np.array(model.shows, dtype=np.int64)

    def draw_single(chains: CoveringChains, generator: np.random.Generator) -> Sequence[Outputs]:
        symbol_outputs = draw_symbols(states, epsilon, chains, generator)
        if chains.states > 2:
            return (symbol_outputs,)
        scale = policy_scale(count_scale(chains, epsilon))
        window_ticks = min(_WINDOW_TICKS, states.size // 20)
        return symbol_outputs, release_counts(states, segments, window_ticks, scale, ((1,),), generator, k=2)

    def draw_joint(chains: CoveringChains, generator: np.random.Generator) -> Outputs:
        rate = ChainAccountant(chains).allowance(epsilon, "universal") / len(model.streams)
        symbols, emission = np.zeros(states.size, dtype=np.int64), np.ones((len(shows), 1))
        for column, stream in zip(shows.T, model.streams, strict=True):
            output = release_symbols(column[states], rate_table(stream.states, Fraction(rate), epsilon), generator)
            symbols = symbols * stream.states + output.symbols
            emission = (emission[:, :, None] * output.emission[column][:, None, :]).reshape(len(shows), -1)
        return SymbolOutputs(symbols, emission)

    draw: DrawOutputs = draw_single if len(model.streams) == 1 else draw_joint
    assert model.chains is not None
    attacked_class = true_class(states, segments, model.chains, epsilon, draw, generator)
    attacked: AttackedModel | None = None
    if attacked_class.steps:
        last_attack = attacked_class.steps[-1].strongest_attack
        figures = {name: getattr(last_attack, name) for name in ("success", "low", "high", "ceiling", "guess")}
        attacked = AttackedModel(epsilon=epsilon, attackers=len(attacked_class.steps[0].attacks), **figures)
    refused = attacked_class.reason or None
    return model.model_copy(update={"chains": attacked_class.chains, "refused": refused, "attacked": attacked})


def _attacks(states: Ints, segments: Ints, outputs: Outputs | Sequence[Outputs], epsilon: float) -> tuple[Attack, ...]:
    """Attack all outputs; the intervals of all attacks hold jointly (Bonferroni)."""
    if isinstance(outputs, SymbolOutputs | CountOutputs):
        return attack(states, segments, outputs, epsilon)
    attacks: list[Attack] = []
    for output in outputs:
        output_words = "symbols" if isinstance(output, SymbolOutputs) else f"counts of {output.length}"
        for named_attack in attack(states, segments, output, epsilon, confidence=1.0 - _ERROR_LEVEL / len(outputs)):
            attacks.append(replace(named_attack, attacker=f"{named_attack.attacker}, {output_words}"))
    return tuple(sorted(attacks, key=lambda attack: -attack.success))


def _refusal_reason(steps: Sequence[Step], epsilon: float) -> str:
    """Say why the widest class was refused: attackers were right too often, or the recording is too short."""
    best_attack, count_noise = steps[-1].strongest_attack, count_scale(steps[-1].chains, epsilon)
    is_refuted = any(attack.refutes for step in steps for attack in step.attacks)
    return (
        f"{'no class passes' if is_refuted else 'too short to tell'}: even with noise of {count_noise:.3g} ticks "
        f"for a count, up to {best_attack.high:.3f} of the guesses of the attacker '{best_attack.attacker}' are right. "
        f"{best_attack.success:.3f} were, and epsilon {epsilon:g} allows {best_attack.ceiling:.3f}"
    )


def count_scale(chains: CoveringChains, epsilon: float) -> float:
    """The Laplace scale, in ticks, of the counts of an endless stream of windows against the universal adversary.

    Raises:
        ChainClassError: no noise is enough.
    """
    return 1.0 / ChainAccountant(chains).allowance(epsilon, "universal")


def draw_symbols(states: Ints, epsilon: float, chains: CoveringChains, generator: np.random.Generator) -> SymbolOutputs:
    """Draw a symbol for every tick with a state, with a class's noise for the universal adversary."""
    return release_symbols(states, calibrate(chains, epsilon, "universal").table, generator)

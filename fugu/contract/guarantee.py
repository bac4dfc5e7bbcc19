"""The guarantee check: from a class of chains and a table of integers to the epsilon that really holds.

Every rounding goes outward, so a reported loss is never below the true one. A bound that is only known to hold for a
wider adversary is reported as that, never the other way round. Arithmetic is on integers, fractions and decimals, so
that the smallest device can run it.

Source of every formula: Chakrabarti et al., "Optimal Local Bayesian Differential Privacy over Markov Chains" (2020),
called BDP here, as corrected in docs/proofs/randomised-response.md, "Binary chains in closed form".
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated

from pydantic import Field

from fugu.contract._document import Document
from fugu.contract.chains import ChainClass
from fugu.contract.errors import GuaranteeError
from fugu.contract.leakage import Adversary, Loss
from fugu.contract.noise_table import NoiseTable

__all__ = ["Adversary", "Guarantee", "Loss", "check_guarantee", "check_ratios", "held", "tick_ratios"]


class Guarantee(Document):
    """What a stream promises: no adversary of this kind gains a log-likelihood ratio above epsilon.

    Attributes:
        epsilon: Bound > 0 on the log-likelihood ratio between two values of one state, in nats.
        adversary: What the adversary may know.
    """

    epsilon: Annotated[float, Field(gt=0.0)]
    adversary: Adversary


def check_guarantee(chains: ChainClass, table: NoiseTable, guarantee: Guarantee) -> Loss:
    """Refuse a table that loses more than its guarantee allows, alone or in turns with others that pass as well.

    Returns the loss of the table and of all that may take turns with it (`lasting_ratios`). GuaranteeError: it is above
    the guarantee or not finite, or the numbers of states differ.
    Source: docs/proofs/randomised-response.md, "Binary chains in closed form" and "Tables that change".
    """
    _check_states(chains, table)
    return check_ratios(chains, tick_ratios(table), guarantee, "the table")


def check_ratios(chains: ChainClass, ratios: tuple[Fraction, Fraction], guarantee: Guarantee, what: str) -> Loss:
    """Refuse a mechanism, `what` in errors, that with these ratios (`ratio_loss`) loses more than its guarantee allows.

    A stream whose mechanism changes from tick to tick keeps the guarantee if each of them passes this check by itself.
    Returns the loss of the mechanism and of all that may take turns with it (`lasting_ratios`). GuaranteeError: it is
    above the guarantee, or not finite.
    Source: docs/proofs/randomised-response.md, "Tables that change".
    """
    return held(chains.ratio_loss(*chains.lasting_ratios(*ratios), guarantee.adversary), guarantee, what)


def held(actual: Loss, guarantee: Guarantee, what: str) -> Loss:
    """Return the loss of a mechanism, `what` in the GuaranteeError that is raised if it is above the guarantee."""
    if not actual.epsilon <= guarantee.epsilon:
        raise GuaranteeError(
            f"{what} loses epsilon {actual.epsilon!r} to the {guarantee.adversary} adversary, "
            f"above the {guarantee.epsilon!r} of its guarantee"
        )
    return actual


def loss(chains: ChainClass, table: NoiseTable, adversary: Adversary) -> Loss:
    """Return the epsilon of one symbol per tick from this table alone, for ever: rounded up, at least a single tick's.

    GuaranteeError: the numbers of states differ, or the loss is not finite.
    Source: BDP theorem 1 as corrected in docs/proofs/randomised-response.md, "Binary chains in closed form".
    """
    _check_states(chains, table)
    return chains.ratio_loss(*tick_ratios(table), adversary)


def _check_states(chains: ChainClass, table: NoiseTable) -> None:
    if table.states != chains.states:
        raise GuaranteeError(f"the table has {table.states} states and its class of chains {chains.states}")


def tick_ratios(table: NoiseTable) -> tuple[Fraction, Fraction]:
    """Return max_z B[0,z]/B[1,z] and max_z B[1,z]/B[0,z], exactly; beyond two states the largest of any two, twice."""
    weights = table.weights()
    if table.states == 2:
        return _largest(weights[0], weights[1]), _largest(weights[1], weights[0])
    columns = list(zip(*weights, strict=True))
    largest = max(Fraction(max(column), min(column)) for column in columns)
    return largest, largest


def _largest(above: tuple[int, ...], below: tuple[int, ...]) -> Fraction:
    return max(Fraction(a, b) for a, b in zip(above, below, strict=True))

"""The guarantee check: from a class of chains and a table of integers to the epsilon that holds.

Every rounding goes outward, so a reported loss is never below the true loss. A bound that is only known for a stronger
adversary is reported for that adversary, never the reverse. Integers of `fugu.core` decide, on every device.

Source of every formula: Chakrabarti et al., "Optimal Local Bayesian Differential Privacy over Markov Chains" (2020),
called BDP here, as corrected in docs/proofs/randomised-response.md, "Binary chains in closed form".
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import Field

from fugu.contract._document import Document
from fugu.contract.chains import ChainClass
from fugu.contract.errors import GuaranteeError
from fugu.contract.losses import Adversary, Loss, claimed_ratio, derived_losses, exp_up, log_up
from fugu.contract.noise_table import NoiseTable
from fugu.contract.stretches import StretchBound, StretchTicks
from fugu.contract.windows import Counted, total_rate
from fugu.core import guarantee as core
from fugu.core.policy import ADVERSARIES
from fugu.core.policy import Policy as CorePolicy
from fugu.core.policy import Window as CoreWindow

if TYPE_CHECKING:
    from fugu.contract.policy import Policy

__all__ = ["Guarantee", "StreamOutputs", "check_outputs", "tick_ratios"]


class Guarantee(Document):
    """The promise of a stream: no adversary of this kind gains a log-likelihood ratio above epsilon.

    Attributes:
        epsilon: bound > 0 on the log-likelihood ratio between two courses of the states of a stretch, in nats.
        adversary: what the adversary may know.
        stretch_ticks: the number of ticks of a stretch; 1 for the state of a single tick.
    """

    epsilon: Annotated[float, Field(gt=0.0)]
    adversary: Adversary
    stretch_ticks: StretchTicks = 1


class StreamOutputs(NamedTuple):
    """All outputs of a stream: a symbol every tick, or none, and counts of windows.

    They are one mechanism. A change of one tick's state changes the likelihood of a symbol by the table's ratios. It
    changes the likelihood of the counts by at most e^(their rate). Both hold in both directions.
    """

    table: NoiseTable | None = None
    windows: tuple[Counted, ...] = ()

    @property
    def subject(self) -> str:
        """The outputs in words, as the subject of a sentence."""
        if self.table is None:
            return "the set of windows"
        return "the table with the windows beside it" if self.windows else "the table"

    @property
    def symbol_ratios(self) -> tuple[Fraction, Fraction]:
        """The exact likelihood ratios of a symbol, of state 0 over state 1 and the reverse."""
        return (Fraction(1), Fraction(1)) if self.table is None else tick_ratios(self.table)

    @property
    def ratios(self) -> tuple[Fraction, Fraction]:
        """Bounds on the likelihood ratios of all outputs of a tick, as for `ratio_loss` of a class of chains."""
        windows_ratio = exp_up(total_rate(self.windows))
        ratio_01, ratio_10 = self.symbol_ratios
        return ratio_01 * windows_ratio, ratio_10 * windows_ratio

    @property
    def symbol_rate(self) -> float:
        """A bound on what a symbol tells about any two states, in nats."""
        return log_up(max(self.symbol_ratios))

    @property
    def rate(self) -> Fraction:
        """A bound on what all outputs of a tick tell about any two states, in nats."""
        return total_rate(self.windows) + Fraction(self.symbol_rate)

    def bound(self, chains: ChainClass, adversary: Adversary, tick_epsilon: float, ticks: int = 1) -> StretchBound:
        """Bound the loss about any stretch, where `ticks` ticks in a row lose at most `tick_epsilon` nats."""
        return chains.stretch_bound(tick_epsilon, ticks, self.symbol_rate, self.windows, adversary)


def check_outputs(
    chains: ChainClass,
    outputs: StreamOutputs,
    guarantee: Guarantee,
    policy: Policy | None = None,
    *,
    windows_only: bool = False,
) -> Loss:
    """Refuse outputs that lose more than a guarantee allows, alone or in turns with other outputs.

    A stream whose mechanism changes from tick to tick keeps the guarantee if each mechanism passes this check by
    itself. Return the loss of the outputs, and of all that may take turns with them (`lasting_ratios`), about a single
    tick. `policy` has the outputs; without one, joint chains are of a single stream with these outputs' rate.
    `windows_only`: only these outputs of the policy's stream are seen. `fugu.core.guarantee` decides. GuaranteeError:
    the loss is above the guarantee or not finite, or the numbers of states differ.
    Source: docs/proofs/randomised-response.md, "Binary chains in closed form" and "Tables that change";
    docs/proofs/stretches.md.
    """
    if outputs.table is not None:
        _check_states(chains, outputs.table)
    promise = ADVERSARIES.index(guarantee.adversary), claimed_ratio(guarantee.epsilon), guarantee.stretch_ticks
    core_policy = _core_claim(chains, outputs) if policy is None else policy.compiled()
    subject = outputs.subject
    try:
        ratios = core.tick_ratios(core_policy, windows_only)
        bounds = derived_losses(tuple(core_policy.members), *ratios, guarantee.adversary)
        bound = core.prove(core_policy, bounds, promise, windows_only)
    except core.GuaranteeError as error:
        if policy is not None and chains.named_streams:  # say it in numbers
            index, adversary = core_policy.column, guarantee.adversary
            chains.stream_loss(index, outputs.ratios, outputs.rate, adversary, subject, windows_only=windows_only)
        raise GuaranteeError(f"{subject}: {error}") from None
    loss = Loss.of(bounds, guarantee.adversary, chains.theorem(guarantee.adversary))
    if bound is None:
        ticks = guarantee.stretch_ticks
        epsilon = outputs.bound(chains, guarantee.adversary, loss.epsilon).epsilon(ticks)
        stretch_words = "" if ticks == 1 else f" about {ticks} ticks in a row"
        raise GuaranteeError(
            f"{subject} loses epsilon {epsilon!r}{stretch_words} to the {guarantee.adversary} adversary, "
            f"above the {guarantee.epsilon!r} of its guarantee"
        )
    return loss


def _core_claim(chains: ChainClass, outputs: StreamOutputs) -> CorePolicy:
    """Make the part of a single stream's policy that the core's check reads."""
    claim, window = chains.compiled(), CoreWindow()
    if chains.named_streams:
        claim.shared = [("", claim.states, outputs.rate.as_integer_ratio())]
    claim.rows = [] if outputs.table is None else [tuple(row) for row in outputs.table.rows]
    window.length = window.stride = 1
    window.histogram = False
    window.denominator, window.numerator = total_rate(outputs.windows).as_integer_ratio()
    claim.windows = [window]
    return claim


def loss(chains: ChainClass, table: NoiseTable, adversary: Adversary) -> Loss:
    """Return the loss of an endless stream of symbols from this table alone, rounded up.

    GuaranteeError: the numbers of states differ, or the loss is not finite.
    Source: BDP theorem 1 as corrected in docs/proofs/randomised-response.md, "Binary chains in closed form".
    """
    _check_states(chains, table)
    return chains.ratio_loss(*tick_ratios(table), adversary)


def _check_states(chains: ChainClass, table: NoiseTable) -> None:
    if table.states not in chains.state_counts:
        raise GuaranteeError(f"the table has {table.states} states and its class of chains {chains.states}")


def tick_ratios(table: NoiseTable) -> tuple[Fraction, Fraction]:
    """Return max_z B[0,z]/B[1,z] and max_z B[1,z]/B[0,z], exactly; with more states, twice the largest of any two."""
    up, down = core.table_ratios(table.rows)
    return Fraction(*up), Fraction(*down)

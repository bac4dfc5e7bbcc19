"""The base of all classes of chains, with what they have in common.

A new class is a document in `fugu.contract.chains` that answers these questions, and an object of
`fugu.privacy.accountant` for computations with numpy.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeAlias

from pydantic import Field

from fugu.contract._document import Document
from fugu.contract.errors import GuaranteeError
from fugu.contract.losses import Adversary, Loss, derived_losses, float_up
from fugu.contract.stretches import StretchBound
from fugu.contract.topics import NAME_PATTERN
from fugu.contract.windows import Counted
from fugu.core.leakage import ratio_up
from fugu.core.policy import BOUNDED, Policy

if TYPE_CHECKING:
    from fugu.contract.chains import ChainClass

__all__ = ["Box", "ClassOfChains", "Ratios", "Rows", "Shown"]

MAX_ODDS = 1e300
"""With larger odds ratios there is no finite guarantee."""
_NAME_FORM = NAME_PATTERN.strip("^$")

Ratios: TypeAlias = tuple[Fraction, Fraction]
"""Likelihood ratios of a tick's outputs: of state 0 over state 1, and of 1 over 0."""
Rows: TypeAlias = tuple[tuple[float, ...], ...]
"""A transition matrix."""
Box: TypeAlias = tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction]]
"""Intervals for q and r of two-state chains."""


class Shown(Document):
    """A stream whose states are shown by the states of a joint chain.

    Attributes:
        name: "stream", of the device that has the policy, or "device/stream".
        states: the number of its states.
        rate: the most that all outputs of the stream together tell of any two of its states at one tick, in nats.
    """

    name: Annotated[str, Field(pattern=f"^({_NAME_FORM}/)?{_NAME_FORM}$")]
    states: Annotated[int, Field(ge=2, le=255)]
    rate: Annotated[float, Field(gt=0.0)]


class ClassOfChains(Document):
    """Base of all classes of chains.

    `words` says for which chains a promise of the class holds, as the end of a sentence; `label` says it briefly.
    """

    form: ClassVar[int] = BOUNDED

    if TYPE_CHECKING:

        @property
        def states(self) -> int:
            """The number of states of the chain."""

    @property
    @abstractmethod
    def worst_odds(self) -> Fraction | None:
        """The largest odds ratio of any step, exactly, or None without a bound."""

    @property
    def odds_bound(self) -> float:
        """The largest odds ratio of any step, rounded up, or infinity without a bound."""
        worst_ratio = self.worst_odds
        if worst_ratio is None or worst_ratio > MAX_ODDS:
            return math.inf
        return float_up(worst_ratio)

    @property
    def changes(self) -> bool:
        """True if steps may change from tick to tick, and the chain may start anywhere."""
        return False

    @property
    def typical(self) -> tuple[Rows, ...]:
        """Transition matrices of typical members, for estimates and simulations only; estimates take their mean."""
        return ()

    @property
    def extremes(self) -> tuple[Rows, ...]:
        """Members among which the worst may be, started stationary; empty if only odds ratios are declared."""
        return ()

    @property
    def boxes(self) -> tuple[Box, ...]:
        """Intervals that contain q and r of all members; empty unless all are two-state chains started stationary."""
        return ()

    @property
    def named_streams(self) -> tuple[Shown, ...]:
        """The streams that the class names, if any."""
        return ()

    @property
    def stream_sizes(self) -> tuple[int, ...]:
        """The numbers of states that streams of the class can have."""
        return (self.states,)

    def column(self, device: str, stream: str) -> int:
        """Return the index of a device's stream among the class's streams; ValueError if it is none of them."""
        return 0

    def shown_states(self, index: int) -> tuple[int, ...]:
        """Return for each state of the chain the state of the class's stream `index`."""
        return tuple(range(self.states))

    def states_of(self, device: str, stream: str, period_us: int) -> int:
        """Return the number of a stream's states; ValueError if it is not in the class, or has another period."""
        return self.states

    def for_stream(self, stream: str, period_us: int, rate: Fraction) -> ChainClass:
        """Return the class for a stream with a name, a period and a rate: the same class if it names no streams."""
        return self  # type: ignore[return-value]  # a union of all subclasses

    def lasting_ratios(self, ratio_01: Fraction, ratio_10: Fraction) -> Ratios:
        """Return the ratios that count for a mechanism if others may follow it in the same stream.

        With q+r <= 1 a direction's loss depends on its own ratio only, and the mechanism with the largest ratio bounds
        all others. If some chain has q+r > 1, neighbouring ticks work in opposite directions. Two mechanisms, each
        strong in one direction, then lose more in turns than either alone. A mechanism that is held to its larger ratio
        in both directions bounds all others again. Source: docs/proofs/randomised-response.md, "Tables that change".
        """
        return ratio_01, ratio_10

    def ratio_loss(self, ratio_01: Fraction, ratio_10: Fraction, adversary: Adversary) -> Loss:
        """Return the loss, rounded up, of any mechanism whose likelihood ratios per tick are at most these.

        `ratio_01` >= 1 bounds the likelihood ratio of a tick's output of state 0 over state 1, `ratio_10` of 1 over 0;
        with more than two states only the larger counts. In joint chains they are for the outputs of all streams
        together. GuaranteeError: a ratio is below 1, or the loss is not finite.
        Source: BDP theorem 1 as corrected in docs/proofs/randomised-response.md, "Binary chains in closed form".
        """
        if min(ratio_01, ratio_10) < 1:
            raise GuaranteeError(
                f"a likelihood ratio must be at least 1, got {float(ratio_01)!r} and {float(ratio_10)!r}"
            )
        if ratio_01 == ratio_10 == 1:
            return Loss(0.0, 0.0, 0.0, adversary, "constant output")
        return self._bound(ratio_01, ratio_10, adversary)

    def _bound(self, ratio_01: Fraction, ratio_10: Fraction, adversary: Adversary) -> Loss:
        """Return the loss as `ratio_loss` does, for checked ratios, of which one is above 1."""
        ratios = [ratio_up(ratio.numerator, ratio.denominator) for ratio in (ratio_01, ratio_10)]
        if self.states > 2:
            ratios = [max(ratios)] * 2
        return Loss.of(derived_losses(self.members, *ratios, adversary), adversary, self.theorem(adversary))

    def theorem(self, adversary: Adversary) -> str:
        """Return the name of the theorem or bound behind a loss."""
        return "odds-ratio bound"

    @property
    @abstractmethod
    def members(self) -> tuple[tuple[int, int], ...]:
        """The lowest and highest q and r, or the largest odds ratio, as exact fractions for `fugu.core`."""

    def streams_loss(self, ratios: Mapping[int, Ratios], adversary: Adversary) -> Loss:
        """Return the loss of the streams whose outputs are seen, together; `ratios` are by the stream's index."""
        return self.ratio_loss(*ratios[0], adversary)

    def stream_loss(
        self, index: int, ratios: Ratios, rate: Fraction, adversary: Adversary, subject: str, *, windows_only: bool
    ) -> Loss:
        """Return the loss of one stream's mechanism, with all that may take turns with it or run beside it.

        `ratios` bound the likelihood ratios of a tick's outputs, `rate` their logarithms in nats. `subject` names the
        mechanism in errors. `windows_only`: nothing else of this stream is seen. GuaranteeError: the stream tells too
        much, or the loss is not finite.
        """
        return self.ratio_loss(*self.lasting_ratios(*ratios), adversary)

    def is_tight(self, adversary: Adversary) -> bool:
        """True if some mechanism is known to lose as much as the bound."""
        return False

    def covers(self, pinned_chains: ChainClass) -> bool:
        """True if this class is shown, exactly, to contain every chain of a pinned class."""
        from fugu.core.pins import contains  # here, because a gateway has nobody's pins

        return contains(self.compiled(), pinned_chains.compiled())

    def compiled(self) -> Policy:
        """Compile the class, as a policy of `fugu.core` for the class's first stream."""
        policy = Policy()
        policy.chains, policy.members, policy.steps, policy.column = self.form, self.members, 1, 0
        policy.shared = tuple(
            (stream.name, stream.states, stream.rate.as_integer_ratio()) for stream in self.named_streams
        )
        policy.states = self.stream_sizes[0]
        return policy

    def stretch_bound(
        self, tick_epsilon: float, ticks: int, rate: float, windows: tuple[Counted, ...], adversary: Adversary
    ) -> StretchBound:
        """Return the bound of a stream of symbols and windows about stretches; arguments as for `StretchBound`."""
        return StretchBound(tick_epsilon, ticks, rate, windows, known_elsewhere=adversary != "ignorant")

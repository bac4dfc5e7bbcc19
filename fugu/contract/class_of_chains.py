"""The part of a class of chains that needs no numbers of its own.

A new class is a document with these answers in `fugu.contract.chains`, and an object of `fugu.privacy.accountant` for
what takes numpy.
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
"""Above it there is no finite guarantee."""
_NAME_FORM = NAME_PATTERN.strip("^$")

Ratios: TypeAlias = tuple[Fraction, Fraction]
"""Likelihood ratios of a tick's outputs: of state 0 over state 1, and of 1 over 0."""
Rows: TypeAlias = tuple[tuple[float, ...], ...]
"""A transition matrix."""
Box: TypeAlias = tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction]]
"""Intervals for q and r of two-state chains."""


class Shown(Document):
    """A stream whose states the states of a joint chain show.

    Attributes:
        name: "stream", of the device that has the policy, or "device/stream".
        states: how many it has.
        rate: the most, in nats, that all releases of the stream together tell of any two of its states at one tick.
    """

    name: Annotated[str, Field(pattern=f"^({_NAME_FORM}/)?{_NAME_FORM}$")]
    states: Annotated[int, Field(ge=2, le=255)]
    rate: Annotated[float, Field(gt=0.0)]


class ClassOfChains(Document):
    """Base of all classes of chains: their common questions.

    `words` says for which chains a promise of the class holds, as the end of a sentence, and `label` in a few words.
    `members` is what `fugu.core.leakage.losses` takes: bounds of q and r, or a largest odds ratio. `compiled` is the
    class in the form of a policy of `fugu.core`, with the stream at `column`.
    """

    form: ClassVar[int] = BOUNDED

    if TYPE_CHECKING:

        @property
        def states(self) -> int:
            """The number of states of the chain."""

    @property
    @abstractmethod
    def worst_odds(self) -> Fraction | None:
        """The largest odds ratio of any step of a class, exactly; None if it has no bound."""

    @property
    def odds_bound(self) -> float:
        """The largest odds ratio, rounded up; infinite if it has no bound."""
        worst_ratio = self.worst_odds
        if worst_ratio is None or worst_ratio > MAX_ODDS:
            return math.inf
        return float_up(worst_ratio)

    @property
    def changes(self) -> bool:
        """True if steps may change from tick to tick, and every start is allowed."""
        return False

    @property
    def typical(self) -> tuple[Rows, ...]:
        """Typical members, for estimates and simulations only; estimates take their mean."""
        return ()

    @property
    def extremes(self) -> tuple[Rows, ...]:
        """Members one of which may be the worst, started stationary; none if only odds ratios are declared."""
        return ()

    @property
    def boxes(self) -> tuple[Box, ...]:
        """Intervals that contain q and r of all members, if these are two-state chains started stationary."""
        return ()

    @property
    def named_streams(self) -> tuple[Shown, ...]:
        """The streams that the class names, if it does."""
        return ()

    @property
    def stream_sizes(self) -> tuple[int, ...]:
        """How many states a stream of the class can have."""
        return (self.states,)

    def column(self, device: str, stream: str) -> int:
        """Which of the streams one of a device is; ValueError if it is none of them."""
        return 0

    def shown_states(self, column: int) -> tuple[int, ...]:
        """For each state of the chain that of a stream."""
        return tuple(range(self.states))

    def states_of(self, device: str, stream: str, period_us: int) -> int:
        """How many states a stream has; ValueError if the class is not of this stream, or of another period."""
        return self.states

    def for_stream(self, stream: str, period_us: int, rate: Fraction) -> ChainClass:
        """The class for a stream of this name and period whose ticks tell so much, if it names one; else itself."""
        return self  # type: ignore[return-value]  # a union of all subclasses

    def lasting_ratios(self, ratio_01: Fraction, ratio_10: Fraction) -> Ratios:
        """The ratios that a mechanism is held to, so that mechanisms may take turns in one stream.

        With q+r <= 1 a direction's loss depends on its own ratio only, and the mechanism that has the largest one
        answers for all. If some chain has q+r > 1, neighbouring ticks work in opposite directions: two mechanisms, each
        strong in one of them, lose more in turns than either alone. One that is held to its larger ratio twice answers
        for all again. Source: docs/proofs/randomised-response.md, "Tables that change".
        """
        return ratio_01, ratio_10

    def ratio_loss(self, ratio_01: Fraction, ratio_10: Fraction, adversary: Adversary) -> Loss:
        """Return the epsilon, rounded up, of any mechanism whose per-tick likelihood ratios never exceed these.

        `ratio_01` >= 1 bounds the likelihood ratio of a tick's output between state 0 and state 1, `ratio_10` between 1
        and 0; with more than two states only the larger counts. In joint chains they are for the outputs of all streams
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
        """The same for ratios that are checked, one above 1."""
        ratios = [ratio_up(ratio.numerator, ratio.denominator) for ratio in (ratio_01, ratio_10)]
        if self.states > 2:
            ratios = [max(ratios)] * 2
        return Loss.of(derived_losses(self.members, *ratios, adversary), adversary, self.theorem(adversary))

    def theorem(self, adversary: Adversary) -> str:
        """The theorem or bound by which a loss holds."""
        return "odds-ratio bound"

    @property
    @abstractmethod
    def members(self) -> tuple[tuple[int, int], ...]:
        """Bounds of q and r, or a largest odds ratio, as exact fractions."""

    def streams_loss(self, ratios: Mapping[int, Ratios], adversary: Adversary) -> Loss:
        """The loss of those streams together, by number, of which outputs are seen."""
        return self.ratio_loss(*ratios[0], adversary)

    def stream_loss(
        self, column: int, ratios: Ratios, rate: Fraction, adversary: Adversary, words: str, *, windows_only: bool
    ) -> Loss:
        """Loss of a mechanism (`words` in errors) of one stream, with all that takes turns with it or is beside it.

        `ratios` bound the likelihood ratios of a tick's outputs, `rate` their logarithms in nats; `windows_only`: of
        this stream only this mechanism is seen. GuaranteeError: the stream tells too much, or the loss is not finite.
        """
        return self.ratio_loss(*self.lasting_ratios(*ratios), adversary)

    def is_tight(self, adversary: Adversary) -> bool:
        """True if some mechanism with given ratios is known to lose all of the bound."""
        return False

    def covers(self, pinned_chains: ChainClass) -> bool:
        """True if every chain of another class is shown to be in this one; exactly."""
        from fugu.core.pins import contains  # here, because a gateway has nobody's pins

        return contains(self.compiled(), pinned_chains.compiled())

    def compiled(self, column: int = 0) -> Policy:
        """Compile the class."""
        policy = Policy()
        policy.chains, policy.members, policy.steps, policy.column = self.form, self.members, 1, column
        policy.shared = tuple(
            (stream.name, stream.states, stream.rate.as_integer_ratio()) for stream in self.named_streams
        )
        policy.states = self.stream_sizes[column]
        return policy

    def stretch_bound(
        self, tick_epsilon: float, ticks: int, rate: float, windows: tuple[Counted, ...], adversary: Adversary
    ) -> StretchBound:
        """Loss of a stream of symbols of a rate, and of windows, about whole stretches; arguments as there."""
        return StretchBound(tick_epsilon, ticks, rate, windows, known_elsewhere=adversary != "ignorant")

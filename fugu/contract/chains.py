"""Classes of Markov chains: what a guarantee assumes about how readings depend on one another.

A new class is a document that is a `ClassOfChains`, and an object of `fugu.privacy.accountant` to compute with numpy.
"""

from __future__ import annotations

import math
import operator
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field

from fugu.contract._document import Document
from fugu.contract.errors import GuaranteeError
from fugu.contract.losses import UPWARD, Adversary, Loss, derived_losses, float_up, log_up
from fugu.contract.stretches import StretchBound
from fugu.contract.topics import NAME_PATTERN
from fugu.contract.windows import Counted
from fugu.core.leakage import beyond_one, exp_up, ratio_up, worst_odds
from fugu.core.policy import BINARY, BOUNDED, JOINT
from fugu.core.policy import Policy as CorePolicy

__all__ = [
    "BinaryChains",
    "BoundedChains",
    "ChainClass",
    "JointChains",
    "JointStream",
    "Ratios",
    "Rows",
    "check_sum",
    "odds_ratio",
    "two_steps",
]

_SUM_TOLERANCE = 1e-9
_ODDS_TOLERANCE = 1e-9
MAX_ODDS = 1e300
"""With larger odds ratios there is no finite guarantee."""
_NAME_FORM = NAME_PATTERN.strip("^$")

Ratios: TypeAlias = tuple[Fraction, Fraction]
"""Likelihood ratios of a tick's outputs: of state 0 over state 1, and of 1 over 0."""
Rows: TypeAlias = tuple[tuple[float, ...], ...]
"""A transition matrix."""
Box: TypeAlias = tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction]]
"""Intervals for q and r of two-state chains."""


class JointStream(Document):
    """A stream of a joint chain: each state of the chain shows a state of the stream.

    Attributes:
        name: "stream", of the device that has the policy, or "device/stream".
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
    changes: ClassVar[bool] = True
    """True if steps may change from tick to tick, and the chain may start anywhere."""

    if TYPE_CHECKING:

        @property
        def states(self) -> int:
            """The number of states of the chain."""

    @property
    def worst_odds(self) -> Fraction | None:
        """The largest odds ratio of any step, exactly, or None without a bound."""
        return Fraction(*worst_odds(self.bounds))

    @property
    def odds_bound(self) -> float:
        """The largest odds ratio of any step, rounded up, or infinity without a bound."""
        worst_ratio = self.worst_odds
        if worst_ratio is None or worst_ratio > MAX_ODDS:
            return math.inf
        return float_up(worst_ratio)

    @property
    def typical_matrices(self) -> tuple[Rows, ...]:
        """Matrices of typical members, for estimates and simulations only; estimates take their mean."""
        return ()

    @property
    def extreme_matrices(self) -> tuple[Rows, ...]:
        """Matrices of members of which one may be the worst; empty if only odds ratios are declared."""
        return ()

    @property
    def boxes(self) -> tuple[Box, ...]:
        """Intervals that contain q and r of all members; empty unless all are two-state chains started stationary."""
        return ()

    @property
    def named_streams(self) -> tuple[JointStream, ...]:
        """The streams that the class names, if any."""
        return ()

    @property
    def state_counts(self) -> tuple[int, ...]:
        """The numbers of states that streams of the class can have."""
        return (self.states,)

    def stream_index(self, device: str, stream: str) -> int:
        """Return the index of a device's stream among the class's streams; ValueError if it is none of them."""
        return 0

    def shown_states(self, index: int) -> tuple[int, ...]:
        """Return for each state of the chain the state of the class's stream `index`."""
        return tuple(range(self.states))

    def for_stream(self, stream: str, period_us: int, rate: Fraction) -> ChainClass:
        """Return the class for a stream with a name, a period and a rate: the same class if it names no streams."""
        return self  # type: ignore[return-value]  # a union of all subclasses

    def lasting_ratios(self, ratio_01: Fraction, ratio_10: Fraction) -> Ratios:
        """Return the ratios to charge a mechanism with if other mechanisms may follow it in its stream.

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
        return Loss.of(derived_losses(self.bounds, *ratios, adversary), adversary, self.theorem(adversary))

    def theorem(self, adversary: Adversary) -> str:
        """Return the name of the theorem or bound behind a loss."""
        return "odds-ratio bound"

    @property
    @abstractmethod
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """The lowest and highest q and r, or the largest odds ratio, as exact fractions for `fugu.core`."""

    def streams_loss(self, ratios: Mapping[int, Ratios], adversary: Adversary) -> Loss:
        """Return the joint loss of the streams whose outputs are seen; `ratios` are by the stream's index."""
        return self.ratio_loss(*ratios[0], adversary)

    def stream_loss(
        self, index: int, ratios: Ratios, rate: Fraction, adversary: Adversary, subject: str, *, windows_only: bool
    ) -> Loss:
        """Return the loss of one stream's mechanism, with others that may take turns with it or run beside it.

        `ratios` bound the likelihood ratios of a tick's outputs, `rate` their logarithms in nats. Errors begin with
        `subject`. `windows_only`: no other outputs are seen. GuaranteeError: it tells too much, or infinitely much.
        """
        return self.ratio_loss(*self.lasting_ratios(*ratios), adversary)

    def is_tight(self, adversary: Adversary) -> bool:
        """True if some mechanism is known to lose as much as the bound."""
        return False

    def covers(self, pinned_chains: ChainClass) -> bool:
        """True if this class is shown to contain every chain of a pinned class, exactly, without tolerance.

        Chains of a bounded class start anywhere, and their steps may change. Other classes have one chain for all time,
        started stationary, and so contain no bounded class. Joint chains must be of the same streams with the same
        rates, because the owners of the other streams rely on them.
        """
        from fugu.core.pins import contains  # here, because a gateway has nobody's pins

        return self.states == pinned_chains.states and contains(self.compiled(), pinned_chains.compiled())

    def compiled(self) -> CorePolicy:
        """Compile the class, as a policy of `fugu.core` for the class's first stream."""
        policy = CorePolicy()
        policy.chains, policy.members, policy.steps, policy.column = self.form, self.bounds, 1, 0
        policy.shared = tuple(
            (stream.name, stream.states, stream.rate.as_integer_ratio()) for stream in self.named_streams
        )
        policy.states = self.state_counts[0]
        return policy

    def stretch_bound(
        self, tick_epsilon: float, ticks: int, rate: float, windows: tuple[Counted, ...], adversary: Adversary
    ) -> StretchBound:
        """Bound the loss of symbols and windows of a stream about stretches; arguments as for `StretchBound`."""
        return StretchBound(tick_epsilon, ticks, rate, windows, known_elsewhere=adversary != "ignorant")


class BinaryChains(ClassOfChains):
    """Every two-state chain [[1-q, q], [r, 1-r]] with q and r in closed intervals, started stationary.

    Attributes:
        q: Lowest and highest Pr(next state 1 given state 0), inside (0, 1).
        r: Lowest and highest Pr(next state 0 given state 1), inside (0, 1).
    """

    form = BINARY
    changes = False
    kind: Literal["binary"] = "binary"
    q: tuple[float, float]
    r: tuple[float, float]

    def _check_consistency(self) -> None:
        for name, (low, high) in (("q", self.q), ("r", self.r)):
            if not 0.0 < low <= high < 1.0:
                raise ValueError(f"{name} must be an interval [low, high] strictly inside (0, 1), got [{low}, {high}]")

    @property
    def states(self) -> int:
        """The number of states, which is 2."""
        return 2

    @property
    def words(self) -> str:
        """The intervals of q and r, as the end of a sentence."""
        from_0, from_1 = (f"from {low:.6g} to {high:.6g}" for low, high in (self.q, self.r))
        return f"every chain that leaves state 0 with probability {from_0}, state 1 {from_1}, and starts stationary"

    @property
    def label(self) -> str:
        """The intervals of q and r, briefly."""
        q, r = (f"{low:.6g}" if low == high else f"{low:.6g}..{high:.6g}" for low, high in (self.q, self.r))
        return f"q = {q}, r = {r}"

    @property
    def typical_matrices(self) -> tuple[Rows, ...]:
        """The chain in the middle of the intervals."""
        return (_binary_matrix(sum(self.q) / 2.0, sum(self.r) / 2.0),)

    @property
    def extreme_matrices(self) -> tuple[Rows, ...]:
        """The corner of least q+r, with that of largest q+r if it is above 1; all corners if the least is above 1."""
        corners = [(q, r) for q in self.q for r in self.r]
        if self.q[0] + self.r[0] <= 1:
            corners = [corners[0], *([corners[-1]] if self.q[1] + self.r[1] > 1 else [])]
        return tuple(_binary_matrix(*corner) for corner in dict.fromkeys(corners))

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The intervals of q and r."""
        (q0, q1), (r0, r1) = (tuple(map(Fraction, interval)) for interval in (self.q, self.r))
        return (((q0, q1), (r0, r1)),)

    @property
    def _alternates(self) -> bool:
        """True if some chain has q+r > 1."""
        return beyond_one(self.bounds[1], self.bounds[3]) > 0

    def lasting_ratios(self, ratio_01: Fraction, ratio_10: Fraction) -> Ratios:
        """Return the larger ratio twice if some chain has q+r > 1."""
        return (max(ratio_01, ratio_10),) * 2 if self._alternates else (ratio_01, ratio_10)

    def theorem(self, adversary: Adversary) -> str:
        """Return the bound's name: odds ratios if universal, or if informed and an interval reaches beyond q+r = 1."""
        if adversary == "ignorant":
            return "BDP theorem 1"
        is_interval = self.q[0] < self.q[1] or self.r[0] < self.r[1]
        is_by_odds = adversary == "universal" or (is_interval and self._alternates)
        return "odds-ratio bound" if is_by_odds else "bridge recursion"

    def is_tight(self, adversary: Adversary) -> bool:
        """True against ignorant and informed adversaries if q+r is at most 1 for some chain."""
        return self.q[0] + self.r[0] <= 1 and adversary != "universal"

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """The lowest and highest q and r."""
        return tuple(bound.as_integer_ratio() for bound in (*self.q, *self.r))


def _binary_matrix(q: float, r: float) -> Rows:
    return (1.0 - q, q), (r, 1.0 - r)


class _OddsRatioChains(ClassOfChains):
    """Classes of chains that bound odds ratios only: chains start anywhere, and their steps may change."""

    if TYPE_CHECKING:
        odds_ratio: float
        transition: Rows | None

    @property
    def label(self) -> str:
        """The largest odds ratio, briefly."""
        steps = " of two steps" if self.worst_odds is None else ""
        return f"{self.states} states, odds ratio{steps} up to {self.odds_ratio:.6g}"

    @property
    def typical_matrices(self) -> tuple[Rows, ...]:
        """The matrix of the typical member; empty if none is declared."""
        return () if self.transition is None else (self.transition,)

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """The largest odds ratio."""
        return (self.odds_ratio.as_integer_ratio(),)


class BoundedChains(_OddsRatioChains):
    """Every k-state chain, from any start and changing over time, whose steps have bounded odds ratios.

    Attributes:
        states: k, the number of states.
        odds_ratio: Bound >= 1 on P[x,y] P[x',y'] / (P[x,y'] P[x',y]) for all x, x', y, y' at every step.
        transition: A typical member, k x k; used for estimation only, never for privacy.
    """

    kind: Literal["bounded"] = "bounded"
    states: Annotated[int, Field(ge=2, le=255)]
    odds_ratio: Annotated[float, Field(ge=1.0)]
    transition: tuple[tuple[float, ...], ...] | None = None

    def _check_consistency(self) -> None:
        if self.transition is None:
            return
        if len(self.transition) != self.states:
            raise ValueError(f"transition has {len(self.transition)} rows, not {self.states}")
        actual = odds_ratio(self.transition)
        if actual > self.odds_ratio * (1.0 + _ODDS_TOLERANCE):
            raise ValueError(f"transition has odds ratio {actual:.12g}, above the {self.odds_ratio:.12g} of its class")

    @property
    def words(self) -> str:
        """The largest odds ratio, as the end of a sentence."""
        odds = f"{self.odds_ratio:.6g}"
        return f"every chain of {self.states} states whose steps have odds ratios of at most {odds}, changing or not"


class JointChains(_OddsRatioChains):
    """Chains whose states show the states of one or several streams: streams that move together, chains of order 2.

    Guarantees are for all that the named streams publish together, each with a policy of this class. Every device can
    hold its own streams to their rates, whatever the other devices do. Chains of order 2 are chains of pairs of states,
    the last and the present state; each pair shows the present state.

    Attributes:
        streams: the names of the streams, with what each may tell per tick.
        period_us: the microseconds of a tick, the same for every stream; tick t of the chain is tick t of each stream.
        shows: for each state of the chain the state of every stream, in their order.
        odds_ratio: a bound as of `BoundedChains`, on every `steps` steps of the chain taken as one.
        steps: 1, or 2 for chains of which each state also determines what the tick before it showed.
        transition: A typical member; used for estimation only, never for privacy. Without it `steps` is 1.
    """

    form = JOINT
    kind: Literal["joint"] = "joint"
    streams: Annotated[tuple[JointStream, ...], Field(min_length=1, max_length=8)]
    period_us: Annotated[int, Field(ge=100)]
    shows: Annotated[tuple[tuple[int, ...], ...], Field(min_length=2, max_length=255)]
    odds_ratio: Annotated[float, Field(ge=1.0)]
    steps: Annotated[int, Field(ge=1, le=2)] = 1
    transition: tuple[tuple[float, ...], ...] | None = None

    def _check_consistency(self) -> None:
        names = [stream.name for stream in self.streams]
        if len(set(names)) != len(names) or len({"/" in name for name in names}) != 1:
            raise ValueError("streams must have different names, all with their device or all without")
        if any(len(row) != len(names) for row in self.shows):
            raise ValueError(f"each state of the chain must show one state of each of the {len(names)} streams")
        for stream, column in zip(self.streams, zip(*self.shows, strict=True), strict=True):
            if set(column) != set(range(stream.states)):
                raise ValueError(f"all states of stream {stream.name}, 0 to {stream.states - 1}, must be shown")
        if self.transition is None and self.steps > 1:
            raise ValueError("chains whose odds ratio is of two steps need a typical member")
        if self.transition is not None:
            step = self.transition if self.steps == 1 else two_steps(self.transition, self.shows)
            BoundedChains(states=self.states, odds_ratio=self.odds_ratio, transition=step)

    @property
    def states(self) -> int:
        """The number of states of the chain."""
        return len(self.shows)

    @property
    def words(self) -> str:
        """The names of the streams, as the end of a sentence."""
        names = ", ".join(stream.name for stream in self.streams)
        return (
            f"chains of {self.states} states that show those of the streams {names}, for all that these tell together"
        )

    @property
    def worst_odds(self) -> Fraction | None:
        """The declared odds ratio, or None if it is of two steps, as a single step then has no bound."""
        return super().worst_odds if self.steps == 1 else None

    @property
    def extreme_matrices(self) -> tuple[Rows, ...]:
        """The typical member if a single step has no bound, else empty."""
        return self.typical_matrices if self.steps > 1 else ()

    @property
    def named_streams(self) -> tuple[JointStream, ...]:
        """The streams of the class."""
        return self.streams

    @property
    def state_counts(self) -> tuple[int, ...]:
        """The number of states of each stream."""
        return tuple(stream.states for stream in self.streams)

    def stream_index(self, device: str, stream: str) -> int:
        """Return the index of a device's stream among the class's streams; ValueError if it is none of them."""
        for index, joint_stream in enumerate(self.streams):
            if joint_stream.name in (stream, f"{device}/{stream}"):
                return index
        names = ", ".join(joint_stream.name for joint_stream in self.streams)
        raise ValueError(f"the class of chains is of the streams {names}, not of {device}/{stream}")

    def shown_states(self, index: int) -> tuple[int, ...]:
        """Return for each state of the chain the state of the class's stream `index`."""
        return tuple(row[index] for row in self.shows)

    def for_stream(self, stream: str, period_us: int, rate: Fraction) -> JointChains:
        """Return the class with a single stream of this name, period and rate."""
        own_stream = self.streams[0].model_copy(update={"name": stream, "rate": math.nextafter(float(rate), math.inf)})
        return self.model_copy(update={"streams": (own_stream,), "period_us": period_us})

    def covers(self, pinned_chains: ChainClass) -> bool:
        """True if the pinned class has the same streams with the same rates, on which their owners rely."""
        if not isinstance(pinned_chains, JointChains):
            return False
        has_same_streams = (self.shows, self.period_us) == (pinned_chains.shows, pinned_chains.period_us)
        return has_same_streams and super().covers(pinned_chains)

    def compiled(self) -> CorePolicy:
        """Compile the class with all its streams."""
        policy = super().compiled()
        policy.steps = self.steps
        return policy

    def _bound(self, ratio_01: Fraction, ratio_10: Fraction, adversary: Adversary) -> Loss:
        return self._joint_bound(Fraction(log_up(max(ratio_01, ratio_10))), adversary)

    def joint_loss(self, adversary: Adversary, rates: Sequence[float] | None = None) -> Loss:
        """Return the loss of all streams together about what they show at one tick, rounded up.

        The loss bounds any two states of a single stream, and any two joint states of all streams. `rates` are the most
        nats that a tick of each stream tells, by default what the class allows. GuaranteeError: the loss is infinite.
        Source: docs/proofs/joint-streams.md, "Streams that move together".
        """
        rates = [stream.rate for stream in self.streams] if rates is None else rates
        return self._joint_bound(sum(map(Fraction, rates), Fraction(0)), adversary)

    def _joint_bound(self, rate: Fraction, adversary: Adversary) -> Loss:
        """Return the loss for a joint rate: `steps` ticks count as one tick that tells `steps` times as much."""
        try:
            ratio = exp_up(*(self.steps * rate).as_integer_ratio())
        except ValueError as error:
            raise GuaranteeError(f"a tick of all streams together loses {error}") from None
        return Loss.of(derived_losses(self.bounds, ratio, ratio, adversary), adversary, self.theorem(adversary))

    def streams_loss(self, ratios: Mapping[int, Ratios], adversary: Adversary) -> Loss:
        """Return the joint loss of the streams in `ratios`; nothing is seen of the others."""
        rates = [0.0] * len(self.streams)
        for index, stream_ratios in ratios.items():
            rates[index] = log_up(max(stream_ratios))
        return self.joint_loss(adversary, rates)

    def stream_loss(
        self, index: int, ratios: Ratios, rate: Fraction, adversary: Adversary, subject: str, *, windows_only: bool
    ) -> Loss:
        """Return the joint loss of all streams; GuaranteeError if the stream tells more than the class allows it.

        Every device checks that its own streams keep their rates, and that all rates together stay within the
        guarantee. So the guarantee holds for all devices, wherever they are. Source: docs/proofs/joint-streams.md,
        "Streams that move together".
        """
        joint_stream = self.streams[index]
        if rate > Fraction(joint_stream.rate):
            raise GuaranteeError(
                f"{subject} tells {float(rate):.9g} nats in a tick, above the {joint_stream.rate:.9g} that the class "
                f"of chains allows stream {joint_stream.name}"
            )
        rates = [stream.rate for stream in self.streams]
        if windows_only:
            rates[index] = math.nextafter(float(rate), math.inf)
        return self.joint_loss(adversary, rates)

    def stretch_bound(
        self, tick_epsilon: float, ticks: int, rate: float, windows: tuple[Counted, ...], adversary: Adversary
    ) -> StretchBound:
        """Bound the loss of all streams about stretches; several streams count with the rates that the class allows."""
        if len(self.streams) > 1:
            rate, windows = math.fsum(joint_stream.rate for joint_stream in self.streams) * (1.0 + UPWARD), ()
        bound = super().stretch_bound(tick_epsilon, ticks, rate, windows, adversary)
        return replace(bound, equal_leakages=False, hidden=True)


ChainClass = Annotated[BinaryChains | BoundedChains | JointChains, Field(discriminator="kind")]
"""A class of chains as it appears in documents, told apart by the field `kind`."""


def odds_ratio(transition: tuple[tuple[float, ...], ...]) -> float:
    """Return the largest P[x,y] P[x',y'] / (P[x,y'] P[x',y]) of a k x k matrix, rounded up, at least 1.

    ValueError: the matrix is not square, positive and row-stochastic within 1e-9, or the ratio is above 1e300.
    """
    _check_stochastic(transition)
    worst_ratio = 1.0
    for i, row in enumerate(transition):
        for other_row in transition[i + 1 :]:
            if row == other_row:
                continue
            ratios = [a / b for a, b in zip(row, other_row, strict=True)]
            low, high = min(ratios), max(ratios)
            # Three roundings to nearest, each within 2^-53 relative; a subnormal quotient is refused below,
            # because rows that sum to 1 have another quotient near or above 1.
            worst_ratio = max(worst_ratio, high / low * (1.0 + 2.0**-50) if low > 0.0 else math.inf)
    if not worst_ratio < 1e300:
        raise ValueError("the odds ratio of the transition matrix is too large for a finite guarantee")
    return worst_ratio


def two_steps(transition: Rows, shows: Sequence[tuple[int, ...]]) -> Rows:
    """Return the matrix of two steps of a chain whose states determine what the previous tick showed.

    ValueError: the matrix is not square and row-stochastic, or a state can follow two states that show different ones.
    """
    _check_stochastic(transition, allow_zeros=True)
    columns = list(zip(*transition, strict=True))
    for y, column in enumerate(columns):
        if len({shows[x] for x, p in enumerate(column) if p > 0.0}) > 1:
            raise ValueError(f"state {y} can follow states that show different ones: it does not tell the tick before")
    square = [[math.fsum(map(operator.mul, row, column)) for column in columns] for row in transition]
    return tuple(tuple(p / math.fsum(row) for p in row) for row in square)


def _check_stochastic(transition: tuple[tuple[float, ...], ...], *, allow_zeros: bool = False) -> None:
    for x, row in enumerate(transition):
        if len(row) != len(transition):
            raise ValueError(f"transition row {x} has {len(row)} entries, not {len(transition)}")
        if not all(p > 0.0 or (allow_zeros and p == 0.0) for p in row):
            raise ValueError(f"transition row {x} has an entry that is {'negative' if allow_zeros else 'not positive'}")
        check_sum(row, f"transition row {x}")


def check_sum(probabilities: Iterable[float], name: str) -> None:
    """Refuse probabilities whose sum is not 1 within 1e-9, by a ValueError."""
    total = math.fsum(probabilities)
    if abs(total - 1.0) > _SUM_TOLERANCE:
        raise ValueError(f"{name} sums to {total:.12g}, not 1")

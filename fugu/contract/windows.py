"""Windows of a stream: which ticks are counted together, by which query, and with how much noise.

A window adds sensitivity / scale to the loss of each of its ticks; the losses of windows that share a tick, and of its
symbol, add up. Source: docs/proofs/device-windows.md, "Windows counted on the device".
With the mechanisms "chain", "mqm-exact" and "mqm-approx" the losses of any number of counts add up tick by tick. The
noise of "wasserstein" and "group" covers a single release of a single window, ever. Source:
docs/proofs/published-mechanisms.md, "The published mechanisms".
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from fugu.contract._document import Document, Printable
from fugu.contract.errors import GuaranteeError
from fugu.contract.frames import MAX_TICK, MAX_WINDOW_TICKS, WINDOW_NAME_PATTERN
from fugu.contract.queries import EACH, Each, Query, query_of

if TYPE_CHECKING:
    from fugu.contract.groups import GroupDocument

__all__ = [
    "ALONE",
    "MAX_WINDOWS",
    "Blocks",
    "Composing",
    "Counted",
    "Mechanism",
    "QueryDocument",
    "Window",
    "has_bound",
    "noise_half_width",
    "policy_scale",
    "total_rate",
]


Composing = Literal["chain", "mqm-exact", "mqm-approx"]
Mechanism = Literal["chain", "mqm-exact", "mqm-approx", "wasserstein", "group"]
ALONE: tuple[Mechanism, ...] = tuple(name for name in get_args(Mechanism) if name not in get_args(Composing))
"""Mechanisms that do not compose: an audience gets a single release of a stream, ever."""
_AGAINST_ALL = ("chain", "group")


def has_bound(mechanism: str, adversary: str) -> bool:
    """True if a mechanism has a bound against an adversary; knowledge of a distant state breaks quilts."""
    return mechanism in _AGAINST_ALL or adversary == "ignorant"


MAX_WINDOWS = 16
MAX_OVERLAP = 64
"""The most windows of one definition that may share a tick."""
_SCALE_PATTERN = "^[1-9][0-9]{0,9}(/[1-9][0-9]{0,9})?$"
_MAX_PART, _DIGITS = 9_999_999_999, 10**7
"""The largest numerator and denominator of a scale; the magnitude from which rounding is precise enough."""
_DAY = 86_400
_Offset = Annotated[int, Field(ge=-_DAY, le=_DAY)]


class Blocks(Document):
    """Blocks of the local day that have a count each, as `fugu.contract.calendar.DayBlocks`."""

    zone: Annotated[Printable, Field(min_length=1, max_length=64)]
    seconds: int = Field(ge=900, le=_DAY)
    offsets: Annotated[tuple[tuple[int, _Offset], ...], Field(min_length=1, max_length=64)]

    def _check_consistency(self) -> None:
        if _DAY % self.seconds:
            raise ValueError(f"blocks of {self.seconds} seconds do not fill a day")
        moments = [moment for moment, _ in self.offsets]
        if moments != sorted(set(moments)):
            raise ValueError("the transitions of a time zone do not increase")


class QueryDocument(Document):
    """A document with the fields of a query: `states`, and `blocks`, which is left out where it is None."""

    if TYPE_CHECKING:
        states: object
    blocks: Blocks | None = Field(default=None, description="Of the local day, which have a count each: a profile.")

    @model_serializer(mode="wrap")
    def _write_fields(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = write(self)
        blocks = document.pop("blocks", None)
        return document if blocks is None else document | {"blocks": blocks}

    @property
    def query(self) -> Query:
        """The query about the window's ticks."""
        return query_of(self.states, self.blocks)


class Window(QueryDocument):
    """A count over windows of ticks: window n covers the ticks start + n * stride .. + length - 1.

    Attributes:
        name: different from the name of every other window of the stream.
        stride: ticks from the beginning of one window to that of the next; below `length`, windows overlap.
        states: the states whose ticks are counted together, by label or by index; or `EACH`, a count for each.
        scale: of the noise, in ticks: an integer, "20", or a fraction in lowest terms, "7/3".
        mechanism: the mechanism by which the noise was planned; devices prove every guarantee by the chain accountant.
    """

    kind: ClassVar = "window"
    name: Annotated[str, Field(pattern=WINDOW_NAME_PATTERN)]
    length: int = Field(ge=1, le=MAX_WINDOW_TICKS)
    stride: int = Field(ge=1, le=MAX_WINDOW_TICKS)
    start: int = Field(default=0, ge=0, le=MAX_TICK - MAX_WINDOW_TICKS)
    states: Each | Annotated[tuple[int | Printable, ...], Field(min_length=1, max_length=255)]
    scale: Annotated[str, Field(pattern=_SCALE_PATTERN)]
    mechanism: Composing = "chain"

    def _check_consistency(self) -> None:
        if self.states == EACH and self.blocks is not None:
            raise ValueError("a window is a histogram or has blocks, not several")
        if self.overlap > MAX_OVERLAP:
            raise ValueError(f"{self.overlap} windows would share a tick; at most {MAX_OVERLAP} may")
        if str(Fraction(self.scale)) != self.scale:
            raise ValueError(f"scale {self.scale} is not in lowest terms; write {Fraction(self.scale)}")

    @property
    def overlap(self) -> int:
        """The largest number of windows of this definition that share a tick."""
        return -(-self.length // self.stride)

    @property
    def rate(self) -> Fraction:
        """The loss that this window adds to every tick, in nats: overlap * sensitivity / scale, exactly."""
        return self.overlap * self.query.sensitivity / Fraction(self.scale)

    def counted(self, labels: tuple[str, ...]) -> tuple[int, ...]:
        """Return the indices of the counted states, all for a histogram; ValueError if one is unknown or twice."""
        if self.states == EACH:
            return tuple(range(len(labels)))
        indices = [self._state_index(state, labels) for state in self.states]
        if len(set(indices)) != len(indices):
            raise ValueError(f"window {self.name} counts a state twice")
        return tuple(indices)

    def groups(self, labels: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        """Return for each count in a frame the indices of its states; ValueError as `counted`."""
        return self.query.groups(self.counted(labels))

    def covers(self, index: int, first_tick: int, length: int) -> bool:
        """True if window `index` begins at tick `first_tick` and has this length."""
        return first_tick == self.start + index * self.stride and length == self.length

    def _state_index(self, state: int | str, labels: tuple[str, ...]) -> int:
        if isinstance(state, str) and state in labels:
            return labels.index(state)
        if isinstance(state, int) and 0 <= state < len(labels):
            return state
        raise ValueError(f"window {self.name} counts a state {state!r} that the stream does not have")


def policy_scale(lower_bound: float | Fraction) -> Fraction:
    """Round a scale above 0 up to a fraction that a policy may hold, by less than 1e-7 of it.

    A scale of 1 or more becomes a decimal number, a smaller one 1 over a decimal number. GuaranteeError: too large.
    """
    exact = Fraction(lower_bound)
    if exact > _MAX_PART:
        raise GuaranteeError(f"noise of scale {float(exact):.6g} is more than a policy can hold")
    magnitude, power_of_ten = max(exact, 1 / exact), 1
    while magnitude * power_of_ten < _DIGITS:
        power_of_ten *= 10
    if exact >= 1:
        return Fraction(math.ceil(exact * power_of_ten), power_of_ten)
    return Fraction(power_of_ten, min(math.floor(power_of_ten / exact), _MAX_PART))


def noise_half_width(scale: Fraction, confidence: float) -> int:
    """Return the least h >= 0 such that discrete Laplace noise of a scale is in -h..h with probability `confidence`.

    The noise is outside of -h..h with probability 2 a^(h+1) / (1 + a), where a = e^(-1/scale).
    """
    spread = float(scale)
    tail_bound = (1.0 - confidence) * (1.0 + math.exp(-1.0 / spread)) / 2.0
    return max(0, math.ceil(-spread * math.log(tail_bound)) - 1)


Counted: TypeAlias = "Window | GroupDocument"
"""Counts over windows: of this device, or of a sum over homes."""


def total_rate(windows: Iterable[Counted]) -> Fraction:
    """Return the loss that windows together add to every tick, in nats."""
    return sum((window.rate for window in windows), Fraction(0))

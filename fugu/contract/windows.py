"""Windows of a stream: which ticks are counted together, which states, and with how much noise.

The device counts, adds exact discrete Laplace noise of the window's scale, and lets out nothing else. A change of one
tick's state changes a count by at most its sensitivity, so one window adds sensitivity / scale to the loss of each of
its ticks; losses of windows that share a tick, and of its symbol, add up.

Source: docs/proofs/device-windows.md, "Windows counted on the device".
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Annotated, Any, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from fugu.contract._document import Document
from fugu.contract.frames import MAX_TICK
from fugu.contract.mechanisms import Composing
from fugu.contract.queries import COUNT, EACH, HISTOGRAM, Each, Query, clipped
from fugu.contract.window_frames import MAX_WINDOW_TICKS, WINDOW_NAME_PATTERN

__all__ = ["MAX_OPEN_COUNTS", "MAX_OVERLAP", "MAX_WINDOWS", "Window", "total_rate"]

MAX_WINDOWS = 16
MAX_OVERLAP = 64
"""Windows of one definition that may share a tick."""
MAX_OPEN_COUNTS = 16_384
"""Numbers that all windows under way may count at a time: what a small device can keep in memory."""
_SCALE_PATTERN = "^[1-9][0-9]{0,9}(/[1-9][0-9]{0,9})?$"


class Window(Document):
    """A count over every so many ticks: window n covers the ticks start + n * stride .. + length - 1.

    Attributes:
        name: unlike that of any other window of the stream.
        stride: ticks from the beginning of one window to that of the next; below `length`, windows overlap.
        start: first tick of window 0.
        states: the states whose ticks are counted together, by label or by index; or `EACH`, a count for each.
        scale: of the noise, in ticks: an integer, "20", or a fraction in lowest terms, "7/3".
        clip: the most that is told of a count, before its noise; None for the whole count.
        mechanism: by which its noise was planned; a device proves every guarantee by the chain accountant.
    """

    name: Annotated[str, Field(pattern=WINDOW_NAME_PATTERN)]
    length: int = Field(ge=1, le=MAX_WINDOW_TICKS)
    stride: int = Field(ge=1, le=MAX_WINDOW_TICKS)
    start: int = Field(default=0, ge=0, le=MAX_TICK - MAX_WINDOW_TICKS)
    states: Each | Annotated[tuple[int | str, ...], Field(min_length=1, max_length=255)]
    scale: Annotated[str, Field(pattern=_SCALE_PATTERN)]
    mechanism: Composing = "chain"
    clip: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.overlap > MAX_OVERLAP:
            raise ValueError(f"{self.overlap} windows would share a tick; at most {MAX_OVERLAP} may")
        if str(Fraction(self.scale)) != self.scale:
            raise ValueError(f"scale {self.scale} is not in lowest terms; write {Fraction(self.scale)}")
        if self.clip is not None and (self.states == EACH or self.clip >= self.length):
            raise ValueError(f"a clip of {self.clip} is for one count of more than {self.clip} ticks")
        return self

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without a clip, as if there were no such field."""
        document: dict[str, Any] = write(self)
        if self.clip is None:
            document.pop("clip", None)
        return document

    @property
    def overlap(self) -> int:
        """The most windows of this definition that share a tick."""
        return -(-self.length // self.stride)

    @property
    def query(self) -> Query:
        """What is asked about its ticks."""
        if self.clip is not None:
            return clipped(self.clip)
        return HISTOGRAM if self.states == EACH else COUNT

    @property
    def sensitivity(self) -> int:
        """The most by which one tick's state changes the counts, added up."""
        return self.query.sensitivity

    @property
    def rate(self) -> Fraction:
        """The loss that this window adds to every tick, in nats: overlap * sensitivity / scale, exactly."""
        return self.overlap * self.sensitivity / Fraction(self.scale)

    def counted(self, labels: tuple[str, ...]) -> tuple[int, ...]:
        """The indices of the states that are counted together; all of them for a histogram.

        Raises:
            ValueError: a state is unknown or named twice.
        """
        if self.states == EACH:
            return tuple(range(len(labels)))
        indices = [self._index(state, labels) for state in self.states]
        if len(set(indices)) != len(indices):
            raise ValueError(f"window {self.name} counts a state twice")
        return tuple(indices)

    def counts(self, states: int) -> int:
        """How many counts a frame of this window has, for a stream of so many states."""
        return states if self.query.each else 1

    def groups(self, labels: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        """The indices of the states that each count counts."""
        return self.query.groups(self.counted(labels))

    def covers(self, index: int, first: int, length: int) -> bool:
        """Whether window `index` has these ticks."""
        return first == self.start + index * self.stride and length == self.length

    def _index(self, state: int | str, labels: tuple[str, ...]) -> int:
        if isinstance(state, str) and state in labels:
            return labels.index(state)
        if isinstance(state, int) and 0 <= state < len(labels):
            return state
        raise ValueError(f"window {self.name} counts a state {state!r} that the stream does not have")


def total_rate(windows: Iterable[Window]) -> Fraction:
    """The loss that windows add to every tick together, in nats."""
    return sum((window.rate for window in windows), Fraction(0))

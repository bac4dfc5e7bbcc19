"""A compiled policy as attributes; `fugu.core.compiled` reads the bytes."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = [
    "ADVERSARIES",
    "BASELINE",
    "BINARY",
    "BOUNDED",
    "CATEGORIES",
    "JOINT",
    "LATE_US",
    "NONE",
    "POINTS",
    "THRESHOLDS",
    "Policy",
    "PolicyError",
    "Window",
    "rank",
]

BINARY, BOUNDED, JOINT = 0, 1, 2
THRESHOLDS, BASELINE, CATEGORIES = 0, 1, 2
ADVERSARIES = ("ignorant", "informed", "universal")
NONE = 255
LATE_US = 250000
"""A tick that is overdue by more than this, and by more than a period, is absent."""
POINTS = 1
"""Stands for the number of symbols where points are released."""


class PolicyError(Exception):
    """The bytes are no compiled policy, or one that may not run here."""


def rank(edges: "Sequence[int]", value: int) -> int:
    """Return the number of increasing edges that are not above a value."""
    low, high = 0, len(edges)
    while low < high:
        middle = (low + high) // 2
        if value < edges[middle]:
            high = middle
        else:
            low = middle + 1
    return low


class Window:
    """The windows of one name in a policy: window n holds `length` ticks from start + n * stride on.

    `counts` is how many numbers a window counts. `places` has for each state the index of its number, or an index
    that no number has.
    """

    name: str
    start: int
    length: int
    stride: int
    numerator: int
    denominator: int
    histogram: bool
    counts: int
    places: "Sequence[int]"

    @property
    def overlap(self) -> int:
        """The largest number of windows that share a tick."""
        return -(-self.length // self.stride)

    @property
    def rate(self) -> tuple[int, int]:
        """The loss that the windows add to every tick, in nats, as a fraction."""
        return self.overlap * (2 if self.histogram else 1) * self.denominator, self.numerator

    def place(self, tick: int, state: int | None) -> int | None:
        """Return the index of the number that a tick counts towards, or None if the tick has no state.

        Where the state is not counted, it is an index that no number has.
        """
        return None if state is None else self.places[state]

    def holding(self, tick: int) -> range:
        """Return the indices of the windows that hold a tick."""
        elapsed = tick - self.start
        return range(max(0, (elapsed - self.length) // self.stride + 1), elapsed // self.stride + 1)

    def first_from(self, tick: int) -> int:
        """Return the index of the first window that begins at a tick or after it."""
        return max(0, -((self.start - tick) // self.stride))

    def first(self, index: int) -> int:
        """Return the first tick of a window."""
        return self.start + index * self.stride

    def last(self, index: int) -> int:
        """Return the last tick of a window."""
        return self.first(index) + self.length - 1


class Policy:
    """Policy of a stream. An agent's policy has no unit: its readings and thresholds are places of doubles.

    `members` of its class of chains are as for `fugu.core.leakage.losses`. For each stream of joint chains, `shared`
    has a name, a number of states, and the most nats that a tick may tell; this stream is at `column`. The odds ratio
    of joint chains is of `steps` steps taken as one. `sums` are windows of a group, each with its `rate`.
    """

    version: int
    fleet: str
    device: str
    stream: str
    valid_from: int
    valid_until: int
    epoch_us: int
    period_us: int
    frame_ticks: int
    states: int
    discretiser: bytes
    kind: int
    missing: int | None
    unit: tuple[int, int]
    categories: dict[str, int]
    patience: int
    edges: tuple[int, ...]
    up: tuple[int, ...] | None
    down: tuple[int, ...] | None
    lowest: int
    highest: int
    slope: int
    offset: int
    span: int
    zero: int
    multiples: list[tuple[int, int]] | None
    symbols: int
    rows: list[tuple[int, ...]]
    windows: list[Window]
    chains: int
    members: "Sequence[tuple[int, int]]"
    steps: int
    shared: "Sequence[tuple[str, int, tuple[int, int]]]"
    column: int
    sums: "Sequence[Any]" = ()
    guarantee: tuple[int, int, int]
    windows_guarantee: tuple[int, int, int] | None

    @property
    def repeats(self) -> list[int]:
        """Numbers of ticks after which the windows repeat: their strides."""
        return [window.stride for window in self.windows]

    @property
    def bits(self) -> int:
        """Bits that a symbol takes in a frame."""
        bits = 1
        while 1 << bits < self.symbols:
            bits *= 2
        return bits

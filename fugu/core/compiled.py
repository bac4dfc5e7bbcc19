"""Strict reading of a compiled policy: the bytes that a device runs; docs/firmware.md has the layout.

All integers have the highest byte first. A board loads this module, reads its policy, and unloads the module. A host
that does more than a board has a reader of its own (`fugu.contract.compiled`).
"""

import struct

from .policy import BINARY, BOUNDED, CATEGORIES, NONE, POINTS, THRESHOLDS, Policy, PolicyError, Window

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["PolicyReader", "read_discretiser", "read_policy"]

_MOST_TICK = 1 << 53
_MOST_US = 1 << 58


class PolicyReader:
    """Reads a board's form, whose readings are integers of a unit."""

    form = b"FGC\x03"
    most_bytes = 16384
    most_counts = 1024
    most_states = 255
    least_ratio = 1
    policy = Policy
    window = Window

    def __init__(self, data: bytes) -> None:
        if len(data) > self.most_bytes:
            raise PolicyError("too long")
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        """The next bytes."""
        end = self.at + size
        if end > len(self.data):
            raise PolicyError("cut short")
        chunk = self.data[self.at : end]
        self.at = end
        return chunk

    def number(self, size: int, low: int, high: int) -> int:
        """The next integer of so many bytes, within bounds."""
        value = int.from_bytes(self.take(size), "big")
        if not low <= value <= high:
            raise PolicyError("a number is out of range")
        return value

    def signed(self) -> int:
        """The next integer of eight bytes with a sign."""
        value: int = struct.unpack(">q", self.take(8))[0]
        return value

    def name(self, max_size: int) -> str:
        """The next name."""
        name_bytes = self.take(self.number(1, 1, max_size))
        for byte in name_bytes:
            if not (48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122 or byte in b"_-"):
                raise PolicyError("a name has other characters than letters, digits, _ and -")
        return name_bytes.decode()

    def big(self) -> int:
        """The next integer of any size."""
        size = self.number(1, 0, 255)
        digits = self.take(size)
        if size and not digits[0]:
            raise PolicyError("a number has more bytes than it needs")
        return int.from_bytes(digits, "big")

    def fraction(self) -> tuple[int, int]:
        """The next fraction, which is positive."""
        top, bottom = self.big(), self.big()
        if not top or not bottom:
            raise PolicyError("a fraction is not positive")
        return top, bottom

    def increasing(self, count: int) -> tuple[int, ...]:
        """So many integers that do not decrease."""
        values = [self.signed() for _ in range(count)]
        for low, high in zip(values, values[1:]):
            if low > high:
                raise PolicyError("thresholds do not increase")
        return tuple(values)

    def unit(self, policy: Policy) -> None:
        """Read what a reading of 1 stands for."""
        policy.unit = self.fraction()

    def steps(self, policy: Policy) -> None:
        """Read how a reading n becomes (n * slope + offset) // span steps of a mean."""
        policy.slope, sign, policy.offset, policy.span = self.big(), self.number(1, 0, 1), self.big(), self.big()
        if sign:
            policy.offset = -policy.offset
        if not policy.slope or not policy.span:
            raise PolicyError("a range that is none")

    def other(self, kind: int, *of: "Any") -> None:
        """Read a kind of a part that only a host has which does more than a board."""
        raise PolicyError("a number is out of range")

    other_chains = other_discretiser = other_query = points = other

    def sums(self, policy: Policy) -> int:
        """Read what is counted for sums over homes; how many there are."""
        return 0


def read_policy(compiled: bytes, reader: "type[PolicyReader]" = PolicyReader) -> Policy:
    """A compiled policy, without its signature; PolicyError for whatever is not exactly what the format says."""
    fields = reader(compiled)
    policy = fields.policy()
    if fields.take(4) != fields.form:
        raise PolicyError("another format")
    policy.version = fields.number(4, 1, 0xFFFFFFFF)
    policy.fleet = fields.name(64)
    policy.device = fields.name(64)
    policy.stream = fields.name(64)
    policy.valid_from = fields.number(8, 0, _MOST_TICK)
    policy.valid_until = fields.number(8, 0, _MOST_TICK)
    policy.epoch_us = fields.number(8, 0, _MOST_US)
    policy.period_us = fields.number(8, 100, 366 * 86400 * 1000000)
    policy.frame_ticks = fields.number(2, 1, 4096)
    begin = fields.at
    read_discretiser(policy, fields)
    policy.discretiser = compiled[begin : fields.at]
    policy.symbols = fields.number(1, 0, 255)
    policy.windows, sums = [], 0
    if policy.symbols == POINTS:
        fields.points(POINTS, policy)
    else:
        _table(policy, fields)
        policy.windows = [_window(policy, fields) for _ in range(fields.number(1, 0, 16))]
        sums = fields.sums(policy)
        _promise(policy, fields, bool(policy.windows) or sums > 0)
    if fields.at != len(compiled):
        raise PolicyError("bytes follow the end")
    return policy


def read_discretiser(policy: Policy, fields: PolicyReader) -> None:
    """Read how readings become states."""
    policy.states = fields.number(2, 2, fields.most_states)
    policy.kind = fields.number(1, THRESHOLDS, 255)
    missing = fields.number(2, 0, policy.states)
    policy.missing = missing - 1 if missing else None
    fields.unit(policy)
    if policy.kind > CATEGORIES:
        fields.other_discretiser(policy.kind, policy)
        return
    if policy.kind == CATEGORIES:
        policy.categories = {}
        for _ in range(fields.number(2, 1, 10000)):
            try:
                name = fields.take(fields.number(2, 0, 1024)).decode()
            except UnicodeError:
                raise PolicyError("a category that is no text") from None
            if name in policy.categories:
                raise PolicyError("two categories have one name")
            policy.categories[name] = fields.number(2, 0, policy.states - 1)
        return
    edges = policy.states - 1
    if fields.number(1, 0, 1):  # the last state is for missing readings only
        edges -= 1
        if policy.missing != policy.states - 1:
            raise PolicyError("a state that no reading has")
    if edges < 1:
        raise PolicyError("no edge")
    if policy.kind == THRESHOLDS:
        policy.patience = fields.number(8, 0, 1 << 32)
        policy.edges = fields.increasing(edges)
        policy.up = policy.down = None
        if fields.number(1, 0, 1):
            policy.up, policy.down = fields.increasing(edges), fields.increasing(edges)
        return
    policy.patience = fields.number(4, 1, 1 << 24)
    policy.lowest, policy.highest = fields.increasing(2)
    fields.steps(policy)
    policy.multiples, policy.zero, policy.edges = None, 0, ()
    if fields.number(1, 0, 1):
        policy.zero = fields.big()
        policy.multiples = [fields.fraction() for _ in range(edges)]
    else:
        policy.edges = fields.increasing(edges)


def _table(policy: Policy, fields: PolicyReader) -> None:
    policy.rows = []
    if policy.states > 255:
        raise PolicyError("too many states")
    for _ in range(policy.states if policy.symbols else 0):
        row = struct.unpack(">%dI" % (policy.symbols - 1), fields.take(4 * (policy.symbols - 1)))
        previous = 0
        for threshold in row:
            if threshold <= previous:
                raise PolicyError("a symbol that a state can never emit")
            previous = threshold
        policy.rows.append(row)


def _window(policy: Policy, fields: PolicyReader) -> Window:
    window = fields.window()
    window.name = fields.name(32)
    window.start = fields.number(8, 0, _MOST_TICK - (1 << 31))
    window.length = fields.number(4, 1, 1 << 31)
    window.stride = fields.number(4, 1, 1 << 31)
    window.numerator = fields.number(8, 1, 10**10)
    window.denominator = fields.number(8, 1, 10**10)
    query = fields.number(1, 0, 255)
    window.histogram = query == 1
    window.counts = policy.states if window.histogram else 1
    window.places = bytes(range(policy.states))
    if not window.histogram:
        window.places = places = fields.take(policy.states)
        if set(places) - {0, NONE} or 0 not in places:
            raise PolicyError("a window that counts what is no state")
    if query > 1:
        fields.other_query(query, window, policy)
    if window.overlap * window.counts > fields.most_counts:
        raise PolicyError("windows under way hold more than %d counts" % fields.most_counts)
    return window


def _promise(policy: Policy, fields: PolicyReader, has_counts: bool) -> None:
    if not policy.symbols and not has_counts:
        raise PolicyError("neither symbols nor windows")
    if len({window.name for window in policy.windows}) != len(policy.windows):
        raise PolicyError("two windows have one name")
    policy.chains = fields.number(1, BINARY, 255)
    if policy.chains > BOUNDED:
        fields.other_chains(policy.chains, policy)
    elif policy.chains == BINARY and policy.states != 2:
        raise PolicyError("a class of binary chains, and other states")
    else:
        policy.members = [fields.fraction() for _ in range(4 if policy.chains == BINARY else 1)]
    policy.guarantee = _guarantee(fields)
    policy.windows_guarantee = _guarantee(fields) if policy.symbols and has_counts else None


def _guarantee(fields: PolicyReader) -> tuple[int, int, int]:
    adversary = fields.number(1, 0, 2)
    ratio = fields.big()
    if ratio < fields.least_ratio:
        raise PolicyError("a guarantee of nothing")
    return adversary, ratio, fields.number(8, 1, _MOST_TICK)

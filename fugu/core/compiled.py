"""Strict reading of a compiled policy: the bytes that a device runs; docs/firmware.md has the layout.

All integers have the highest byte first. A board loads this module, reads its policy, and unloads the module. Agents
can do more than boards: `fugu.contract.compiled` reads their policies.
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
    """Reads the policies of boards, whose readings are integers of a unit."""

    form = b"FGC\x03"
    most_bytes = 16384
    most_counts = 1024
    most_states = 255
    least_ratio = 1
    policy = Policy
    window = Window

    def __init__(self, compiled: bytes) -> None:
        if len(compiled) > self.most_bytes:
            raise PolicyError("too long")
        self.compiled = compiled
        self.at = 0

    def take(self, size: int) -> bytes:
        """Read the next `size` bytes."""
        end = self.at + size
        if end > len(self.compiled):
            raise PolicyError("cut short")
        chunk = self.compiled[self.at : end]
        self.at = end
        return chunk

    def number(self, size: int, low: int, high: int) -> int:
        """Read an unsigned integer of `size` bytes in low..high."""
        value = int.from_bytes(self.take(size), "big")
        if not low <= value <= high:
            raise PolicyError("a number is out of range")
        return value

    def signed(self) -> int:
        """Read a signed integer of eight bytes."""
        value: int = struct.unpack(">q", self.take(8))[0]
        return value

    def name(self, max_size: int) -> str:
        """Read a name of 1 to `max_size` letters, digits, _ and -."""
        name_bytes = self.take(self.number(1, 1, max_size))
        for byte in name_bytes:
            if not (48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122 or byte in b"_-"):
                raise PolicyError("a name has other characters than letters, digits, _ and -")
        return name_bytes.decode()

    def big(self) -> int:
        """Read an unsigned integer of up to 255 bytes, whose number is the first byte."""
        size = self.number(1, 0, 255)
        digits = self.take(size)
        if size and not digits[0]:
            raise PolicyError("a number has more bytes than it needs")
        return int.from_bytes(digits, "big")

    def fraction(self) -> tuple[int, int]:
        """Read a positive fraction."""
        top, bottom = self.big(), self.big()
        if not top or not bottom:
            raise PolicyError("a fraction is not positive")
        return top, bottom

    def increasing(self, count: int) -> tuple[int, ...]:
        """Read `count` signed integers, none below the one before."""
        numbers = [self.signed() for _ in range(count)]
        for low, high in zip(numbers, numbers[1:]):
            if low > high:
                raise PolicyError("thresholds do not increase")
        return tuple(numbers)

    def unit(self, policy: Policy) -> None:
        """Read the unit: the number that a reading of 1 stands for."""
        policy.unit = self.fraction()

    def steps(self, policy: Policy) -> None:
        """Read the rule that makes (n * slope + offset) // span steps of a reading n."""
        policy.slope, sign, policy.offset, policy.span = self.big(), self.number(1, 0, 1), self.big(), self.big()
        if sign:
            policy.offset = -policy.offset
        if not policy.slope or not policy.span:
            raise PolicyError("a range that is none")

    def refuse(self, kind: int, *of: "Any") -> None:
        """Refuse a kind of discretiser, query, class of chains or output that boards do not know."""
        raise PolicyError("a number is out of range")

    other_chains = other_discretiser = other_query = points = refuse

    def sums(self, policy: Policy) -> int:
        """Read the sums over homes and return their number; boards have none."""
        return 0


def read_policy(compiled: bytes, form: "type[PolicyReader]" = PolicyReader) -> Policy:
    """Read a compiled policy, without its signature; PolicyError for bytes that are not exactly of the format."""
    reader = form(compiled)
    policy = reader.policy()
    if reader.take(4) != reader.form:
        raise PolicyError("another format")
    policy.version = reader.number(4, 1, 0xFFFFFFFF)
    policy.fleet = reader.name(64)
    policy.device = reader.name(64)
    policy.stream = reader.name(64)
    policy.valid_from = reader.number(8, 0, _MOST_TICK)
    policy.valid_until = reader.number(8, 0, _MOST_TICK)
    policy.epoch_us = reader.number(8, 0, _MOST_US)
    policy.period_us = reader.number(8, 100, 366 * 86400 * 1000000)
    policy.frame_ticks = reader.number(2, 1, 4096)
    discretiser_at = reader.at
    read_discretiser(policy, reader)
    policy.discretiser = compiled[discretiser_at : reader.at]
    policy.symbols = reader.number(1, 0, 255)
    policy.windows, sums = [], 0
    if policy.symbols == POINTS:
        reader.points(POINTS, policy)
    else:
        _read_table(policy, reader)
        policy.windows = [_read_window(policy, reader) for _ in range(reader.number(1, 0, 16))]
        sums = reader.sums(policy)
        _read_claims(policy, reader, bool(policy.windows) or sums > 0)
    if reader.at != len(compiled):
        raise PolicyError("bytes follow the end")
    return policy


def read_discretiser(policy: Policy, reader: PolicyReader) -> None:
    """Read the discretiser, which says how readings become states."""
    policy.states = reader.number(2, 2, reader.most_states)
    policy.kind = reader.number(1, THRESHOLDS, 255)
    missing = reader.number(2, 0, policy.states)
    policy.missing = missing - 1 if missing else None
    reader.unit(policy)
    if policy.kind > CATEGORIES:
        reader.other_discretiser(policy.kind, policy)
        return
    if policy.kind == CATEGORIES:
        policy.categories = {}
        for _ in range(reader.number(2, 1, 10000)):
            try:
                name = reader.take(reader.number(2, 0, 1024)).decode()
            except UnicodeError:
                raise PolicyError("a category that is no text") from None
            if name in policy.categories:
                raise PolicyError("two categories have one name")
            policy.categories[name] = reader.number(2, 0, policy.states - 1)
        return
    edges = policy.states - 1
    if reader.number(1, 0, 1):  # the last state is for missing readings only
        edges -= 1
        if policy.missing != policy.states - 1:
            raise PolicyError("a state that no reading has")
    if edges < 1:
        raise PolicyError("no edge")
    if policy.kind == THRESHOLDS:
        policy.patience = reader.number(8, 0, 1 << 32)
        policy.edges = reader.increasing(edges)
        policy.up = policy.down = None
        if reader.number(1, 0, 1):
            policy.up, policy.down = reader.increasing(edges), reader.increasing(edges)
        return
    policy.patience = reader.number(4, 1, 1 << 24)
    policy.lowest, policy.highest = reader.increasing(2)
    reader.steps(policy)
    policy.multiples, policy.zero, policy.edges = None, 0, ()
    if reader.number(1, 0, 1):
        policy.zero = reader.big()
        policy.multiples = [reader.fraction() for _ in range(edges)]
    else:
        policy.edges = reader.increasing(edges)


def _read_table(policy: Policy, reader: PolicyReader) -> None:
    """Read a row of thresholds for each state, or no rows if the policy has no symbols."""
    policy.rows = []
    if policy.states > 255:
        raise PolicyError("too many states")
    for _ in range(policy.states if policy.symbols else 0):
        row = struct.unpack(">%dI" % (policy.symbols - 1), reader.take(4 * (policy.symbols - 1)))
        previous = 0
        for threshold in row:
            if threshold <= previous:
                raise PolicyError("a symbol that a state can never emit")
            previous = threshold
        policy.rows.append(row)


def _read_window(policy: Policy, reader: PolicyReader) -> Window:
    window = reader.window()
    window.name = reader.name(32)
    window.start = reader.number(8, 0, _MOST_TICK - (1 << 31))
    window.length = reader.number(4, 1, 1 << 31)
    window.stride = reader.number(4, 1, 1 << 31)
    window.numerator = reader.number(8, 1, 10**10)
    window.denominator = reader.number(8, 1, 10**10)
    query = reader.number(1, 0, 255)
    window.histogram = query == 1
    window.counts = policy.states if window.histogram else 1
    window.places = bytes(range(policy.states))
    if not window.histogram:
        window.places = places = reader.take(policy.states)
        if set(places) - {0, NONE} or 0 not in places:
            raise PolicyError("a window that counts what is no state")
    if query > 1:
        reader.other_query(query, window, policy)
    if window.overlap * window.counts > reader.most_counts:
        raise PolicyError("windows under way hold more than %d counts" % reader.most_counts)
    return window


def _read_claims(policy: Policy, reader: PolicyReader, has_counts: bool) -> None:
    """Read the class of chains and the guarantees that are claimed."""
    if not policy.symbols and not has_counts:
        raise PolicyError("neither symbols nor windows")
    if len({window.name for window in policy.windows}) != len(policy.windows):
        raise PolicyError("two windows have one name")
    policy.chains = reader.number(1, BINARY, 255)
    if policy.chains > BOUNDED:
        reader.other_chains(policy.chains, policy)
    elif policy.chains == BINARY and policy.states != 2:
        raise PolicyError("a class of binary chains, and other states")
    else:
        policy.members = [reader.fraction() for _ in range(4 if policy.chains == BINARY else 1)]
    policy.guarantee = _read_claim(reader)
    policy.windows_guarantee = _read_claim(reader) if policy.symbols and has_counts else None


def _read_claim(reader: PolicyReader) -> tuple[int, int, int]:
    """Read the index of an adversary, a ratio over 2^128, and the ticks of a stretch."""
    adversary = reader.number(1, 0, 2)
    ratio = reader.big()
    if ratio < reader.least_ratio:
        raise PolicyError("a guarantee of nothing")
    return adversary, ratio, reader.number(8, 1, _MOST_TICK)

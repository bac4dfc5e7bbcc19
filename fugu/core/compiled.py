"""Strict reading of the bytes that `fugu deploy firmware build` makes of a policy; docs/firmware.md has the layout.

All integers have the highest byte first. A board loads this module, reads its policy, and unloads the module.
"""

import struct

from .policy import BINARY, BOUNDED, CATEGORIES, NONE, THRESHOLDS, Policy, PolicyError, Window

__all__ = ["read_policy"]

_FORMAT = b"FGC\x02"
_MAX_BYTES = 16384
_MAX_TICK = 1 << 53


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise PolicyError("cut short")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def number(self, size: int, low: int, high: int) -> int:
        value = int.from_bytes(self.take(size), "big")
        if not low <= value <= high:
            raise PolicyError("a number is out of range")
        return value

    def signed(self) -> int:
        value: int = struct.unpack(">q", self.take(8))[0]
        return value

    def name(self, most: int) -> str:
        taken = self.take(self.number(1, 1, most))
        for byte in taken:
            if not (48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122 or byte in b"_-"):
                raise PolicyError("a name has other characters than letters, digits, _ and -")
        return taken.decode()

    def big(self) -> int:
        size = self.number(1, 0, 255)
        taken = self.take(size)
        if size and not taken[0]:
            raise PolicyError("a number has more bytes than it needs")
        return int.from_bytes(taken, "big")

    def fraction(self) -> tuple[int, int]:
        top, bottom = self.big(), self.big()
        if not top or not bottom:
            raise PolicyError("a fraction is not positive")
        return top, bottom


def read_policy(data: bytes) -> Policy:
    """A compiled policy, without its signature; PolicyError for whatever is not exactly what the format says."""
    policy = Policy()
    if len(data) > _MAX_BYTES:
        raise PolicyError("too long")
    read = _Reader(data)
    if read.take(4) != _FORMAT:
        raise PolicyError("another format")
    policy.version = read.number(4, 1, 0xFFFFFFFF)
    policy.fleet = read.name(64)
    policy.device = read.name(64)
    policy.stream = read.name(64)
    policy.valid_from = read.number(8, 0, _MAX_TICK)
    policy.valid_until = read.number(8, 0, _MAX_TICK)
    policy.epoch_us = read.number(8, 0, _MAX_TICK)
    policy.period_us = read.number(8, 100, 366 * 86400 * 1000000)
    policy.frame_ticks = read.number(2, 1, 4096)
    policy.states = read.number(1, 2, 255)
    begin = read.at
    _discretiser(policy, read)
    policy.discretiser = data[begin : read.at]
    _table(policy, read)
    policy.windows = [_window(policy, read) for _ in range(read.number(1, 0, 16))]
    if len({window.name for window in policy.windows}) != len(policy.windows):
        raise PolicyError("two windows have one name")
    if not policy.symbols and not policy.windows:
        raise PolicyError("neither symbols nor windows")
    policy.chains = read.number(1, BINARY, BOUNDED)
    if policy.chains == BINARY and policy.states != 2:
        raise PolicyError("a class of binary chains, and other states")
    policy.members = [read.fraction() for _ in range(4 if policy.chains == BINARY else 1)]
    policy.guarantee = _guarantee(read)
    policy.windows_guarantee = _guarantee(read) if policy.symbols and policy.windows else None
    if read.at != len(data):
        raise PolicyError("bytes follow the end")
    return policy


def _discretiser(policy: Policy, read: _Reader) -> None:
    policy.kind = read.number(1, THRESHOLDS, CATEGORIES)
    policy.missing = read.number(1, 0, NONE)
    if policy.missing != NONE and policy.missing >= policy.states:
        raise PolicyError("missing names a state that is not there")
    policy.unit = read.fraction()
    if policy.kind == CATEGORIES:
        policy.categories = {}
        for _ in range(read.number(2, 1, 1024)):
            try:
                name = read.take(read.number(1, 0, 255)).decode()
            except UnicodeError:
                raise PolicyError("a category that is no text") from None
            policy.categories[name] = read.number(1, 0, policy.states - 1)
        return
    edges = policy.states - 1
    if read.number(1, 0, 1):  # the last state is for missing readings only
        edges -= 1
        if policy.missing != policy.states - 1:
            raise PolicyError("a state that no reading has")
    if edges < 1:
        raise PolicyError("no edge")
    if policy.kind == THRESHOLDS:
        policy.patience = read.number(4, 0, 0xFFFFFFFF)
        policy.edges = _increasing([read.signed() for _ in range(edges)], strictly=False)
        policy.up = policy.down = None
        if read.number(1, 0, 1):
            policy.up = _increasing([read.signed() for _ in range(edges)], strictly=False)
            policy.down = _increasing([read.signed() for _ in range(edges)], strictly=False)
        return
    policy.patience = read.number(4, 1, 1 << 24)
    policy.lowest, policy.highest = read.signed(), read.signed()
    # A reading n becomes (n * slope + offset) // span steps; zero and the edges are in units.
    policy.slope, sign, policy.offset, policy.span = read.big(), read.number(1, 0, 1), read.big(), read.big()
    if sign:
        policy.offset = -policy.offset
    if not policy.slope or not policy.span or policy.lowest > policy.highest:
        raise PolicyError("a range that is none")
    policy.multiples, policy.zero, policy.edges = None, 0, ()
    if read.number(1, 0, 1):
        policy.zero = read.big()
        policy.multiples = [read.fraction() for _ in range(edges)]
    else:
        policy.edges = _increasing([read.signed() for _ in range(edges)], strictly=False)


def _table(policy: Policy, read: _Reader) -> None:
    policy.symbols = read.number(1, 0, 255)
    if policy.symbols == 1:
        raise PolicyError("a table of one symbol")
    rows = []
    for _ in range(policy.states if policy.symbols else 0):
        row = struct.unpack(">%dI" % (policy.symbols - 1), read.take(4 * (policy.symbols - 1)))
        if row[0] < 1:
            raise PolicyError("a symbol that a state can never emit")
        rows.append(_increasing(list(row), strictly=True))
    policy.rows = rows


def _window(policy: Policy, read: _Reader) -> Window:
    window = Window()
    window.name = read.name(32)
    window.start = read.number(8, 0, _MAX_TICK - (1 << 31))
    window.length = read.number(4, 1, 1 << 31)
    window.stride = read.number(4, 1, 1 << 31)
    window.numerator = read.number(8, 1, 10**10)
    window.denominator = read.number(8, 1, 10**10)
    window.histogram = bool(read.number(1, 0, 1))
    window.counts = policy.states if window.histogram else 1
    window.places = bytes(range(policy.states))
    if not window.histogram:
        window.places = places = read.take(policy.states)
        if set(places) - {0, NONE} or 0 not in places:
            raise PolicyError("a window that counts what is no state")
    if window.overlap * window.counts > 1024:
        raise PolicyError("windows under way hold more than 1024 counts")
    return window


def _guarantee(read: _Reader) -> tuple[int, int, int]:
    adversary = read.number(1, 0, 2)
    ratio = read.big()
    if not ratio:
        raise PolicyError("a guarantee of nothing")
    return adversary, ratio, read.number(8, 1, _MAX_TICK)


def _increasing(values: list[int], strictly: bool) -> tuple[int, ...]:
    for low, high in zip(values, values[1:]):
        if low > high or (strictly and low == high):
            raise PolicyError("thresholds do not increase")
    return tuple(values)

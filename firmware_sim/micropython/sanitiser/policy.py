"""A compiled policy: strict reading of the bytes that `fugu firmware build` makes.

Whatever is not exactly what the format says is refused with a `PolicyError`. All integers have the highest byte first.
docs/firmware.md has the layout.
"""

import struct

FORMAT = b"FGC\x01"
BINARY, BOUNDED = 0, 1
THRESHOLDS, BASELINE, CATEGORIES = 0, 1, 2
ADVERSARIES = ("ignorant", "informed", "universal")
NONE = 255
SIGNATURE_BYTES = 64
MAX_BYTES = 16384
MAX_TICK = 1 << 53


class PolicyError(Exception):
    """The bytes are no compiled policy, or one that may not run here."""


class Window:
    """A count over every so many ticks, as in the policy."""

    def holding(self, tick: int) -> range:
        """Indices of the windows that hold a tick."""
        after = tick - self.start
        return range(max(0, (after - self.length) // self.stride + 1), after // self.stride + 1)

    def first_from(self, tick: int) -> int:
        """Index of the first window that begins at a tick or after it."""
        return max(0, -((self.start - tick) // self.stride))

    def last(self, index: int) -> int:
        """Last tick of a window."""
        return self.start + index * self.stride + self.length - 1


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
        return struct.unpack(">q", self.take(8))[0]

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

    def fraction(self) -> tuple:
        top, bottom = self.big(), self.big()
        if not top or not bottom:
            raise PolicyError("a fraction is not positive")
        return top, bottom


class Policy:
    """What a board does with its stream.

    Args:
        data: the compiled policy, without its signature.

    Raises:
        PolicyError: it is none.
    """

    def __init__(self, data: bytes) -> None:
        if len(data) > MAX_BYTES:
            raise PolicyError("too long")
        read = _Reader(data)
        if read.take(4) != FORMAT:
            raise PolicyError("another format")
        self.version = read.number(4, 1, 0xFFFFFFFF)
        self.fleet = read.name(64)
        self.device = read.name(64)
        self.stream = read.name(64)
        self.valid_from = read.number(8, 0, MAX_TICK)
        self.valid_until = read.number(8, 0, MAX_TICK)
        self.epoch_us = read.number(8, 0, MAX_TICK)
        self.period_us = read.number(8, 100, 366 * 86400 * 1000000)
        self.frame_ticks = read.number(2, 1, 4096)
        self.states = read.number(1, 2, 255)
        begin = read.at
        self._read_discretiser(read)
        self.discretiser = data[begin : read.at]
        self._read_table(read)
        self.windows = [self._window(read) for _ in range(read.number(1, 0, 16))]
        if len({window.name for window in self.windows}) != len(self.windows):
            raise PolicyError("two windows have one name")
        if not self.symbols and not self.windows:
            raise PolicyError("neither symbols nor windows")
        self.chains = read.number(1, BINARY, BOUNDED)
        if self.chains == BINARY and self.states != 2:
            raise PolicyError("a class of binary chains, and other states")
        self.members = [read.fraction() for _ in range(4 if self.chains == BINARY else 1)]
        self.guarantee = self._guarantee(read)
        self.windows_guarantee = self._guarantee(read) if self.symbols and self.windows else None
        if read.at != len(data):
            raise PolicyError("bytes follow the end")

    @property
    def bits(self) -> int:
        """Bits of a symbol in a frame."""
        bits = 1
        while 1 << bits < self.symbols:
            bits *= 2
        return bits

    def _read_discretiser(self, read: _Reader) -> None:
        self.kind = read.number(1, THRESHOLDS, CATEGORIES)
        self.missing = read.number(1, 0, NONE)
        if self.missing != NONE and self.missing >= self.states:
            raise PolicyError("missing names a state that is not there")
        self.unit = read.fraction()
        if self.kind == CATEGORIES:
            self.categories = {}
            for _ in range(read.number(2, 1, 1024)):
                name = read.take(read.number(1, 0, 255)).decode()
                self.categories[name] = read.number(1, 0, self.states - 1)
            return
        edges = self.states - 1
        if read.number(1, 0, 1):  # the last state is for missing readings only
            edges -= 1
            if self.missing != self.states - 1:
                raise PolicyError("a state that no reading has")
        if edges < 1:
            raise PolicyError("no edge")
        if self.kind == THRESHOLDS:
            self.patience = read.number(4, 0, 0xFFFFFFFF)
            self.edges = _increasing([read.signed() for _ in range(edges)], strictly=False)
            self.up = self.down = None
            if read.number(1, 0, 1):
                self.up = _increasing([read.signed() for _ in range(edges)], strictly=False)
                self.down = _increasing([read.signed() for _ in range(edges)], strictly=False)
            return
        self.patience = read.number(4, 1, 1 << 24)
        self.lowest, self.highest = read.signed(), read.signed()
        # A reading n becomes (n * slope + offset) // span steps; zero and the edges are in units.
        self.slope, sign, self.offset, self.span = read.big(), read.number(1, 0, 1), read.big(), read.big()
        if sign:
            self.offset = -self.offset
        if not self.slope or not self.span or self.lowest > self.highest:
            raise PolicyError("a range that is none")
        self.multiples = None
        if read.number(1, 0, 1):
            self.zero = read.big()
            self.multiples = [read.fraction() for _ in range(edges)]
        else:
            self.edges = _increasing([read.signed() for _ in range(edges)], strictly=False)

    def _read_table(self, read: _Reader) -> None:
        self.symbols = read.number(1, 0, 255)
        if self.symbols == 1:
            raise PolicyError("a table of one symbol")
        rows = []
        for _ in range(self.states if self.symbols else 0):
            row = struct.unpack(">%dI" % (self.symbols - 1), read.take(4 * (self.symbols - 1)))
            if row[0] < 1:
                raise PolicyError("a symbol that a state can never emit")
            rows.append(_increasing(row, strictly=True))
        self.rows = rows

    def _window(self, read: _Reader) -> Window:
        window = Window()
        window.name = read.name(32)
        window.start = read.number(8, 0, MAX_TICK - (1 << 31))
        window.length = read.number(4, 1, 1 << 31)
        window.stride = read.number(4, 1, 1 << 31)
        window.numerator = read.number(8, 1, 10**10)
        window.denominator = read.number(8, 1, 10**10)
        window.histogram = bool(read.number(1, 0, 1))
        window.counts = self.states if window.histogram else 1
        window.places = bytes(range(self.states))
        if not window.histogram:
            window.places = read.take(self.states)
            if set(window.places) - {0, NONE} or 0 not in window.places:
                raise PolicyError("a window that counts what is no state")
        window.overlap = -(-window.length // window.stride)
        if window.overlap * window.counts > 1024:
            raise PolicyError("windows under way hold more than 1024 counts")
        return window

    def _guarantee(self, read: _Reader) -> tuple:
        adversary = read.number(1, 0, 2)
        ratio = read.big()
        if not ratio:
            raise PolicyError("a guarantee of nothing")
        return adversary, ratio


def _increasing(values: list, strictly: bool) -> tuple:
    for low, high in zip(values, values[1:]):
        if low > high or (strictly and low == high):
            raise PolicyError("thresholds do not increase")
    return tuple(values)

"""A compiled policy as attributes; `sanitiser.compiled` reads the bytes."""

BINARY, BOUNDED = 0, 1
THRESHOLDS, BASELINE, CATEGORIES = 0, 1, 2
ADVERSARIES = ("ignorant", "informed", "universal")
NONE = 255


class PolicyError(Exception):
    """The bytes are no compiled policy, or one that may not run here."""


def above(edges: tuple, value: int) -> int:
    """How many of increasing numbers a value is not below."""
    low, high = 0, len(edges)
    while low < high:
        middle = (low + high) // 2
        if value < edges[middle]:
            high = middle
        else:
            low = middle + 1
    return low


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


class Policy:
    """Policy of a board's stream."""

    @property
    def bits(self) -> int:
        """Bits of a symbol in a frame."""
        bits = 1
        while 1 << bits < self.symbols:
            bits *= 2
        return bits

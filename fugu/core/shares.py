"""Shares of one noise: the shares of m homes add up to discrete Laplace noise, exactly; integers only.

A share is A - B, with A and B from the negative binomial distribution NB(1/m, p), p = 1 - a^m, a = threshold / 2^32:
P(0) = a and P(k) / P(k-1) = p (m (k-1) + 1) / (m k). All probabilities are rational, so that inverting 64 random bits
is exact: sums of probabilities lie between integers that are rounded down and up. Where a border lies in the interval
that the bits leave open, 64 more bits decide. No k is too large: a largest k would be an edge of the support.
Source: Goryczka, Xiong, "A Comprehensive Comparison of Multiparty Secure Additions with Differential Privacy" (2017).
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Bits = Callable[[int], int]

__all__ = ["UNIT", "Shares", "random_bits", "rate_up"]

UNIT = 32
"""Bits of a threshold, which is a fraction over 2^32."""
_BITS = 64
_GUARD = 40
_RATE_BITS = 128
_TERMS = 11


class Shares:
    """The shares of a sum in which `homes` shares are the whole noise."""

    def __init__(self, threshold: int, homes: int) -> None:
        if not (0 < threshold < 1 << UNIT and homes >= 1):
            raise ValueError("a threshold is in 1..2^32-1, and a share is for at least one home")
        self._threshold = threshold
        self._homes = homes
        self._ratio: dict[int, tuple[int, int]] = {}

    def draw(self, bits: "Bits") -> int:
        """Draw a share with `bits(n)`, which gives a uniform integer of n bits.

        The time of a draw tells the size of the share: draw it before the protected ticks happen.
        """
        return self._one_side(bits) - self._one_side(bits)

    def _one_side(self, bits: "Bits") -> int:
        """Draw one of the two counts whose difference is a share."""
        word, width = bits(_BITS), _BITS
        while True:
            count = self._invert(word, width)
            if count is not None:
                return count
            word, width = (word << _BITS) | bits(_BITS), width + _BITS

    def _invert(self, word: int, width: int) -> "int | None":
        """Return the k with F(k-1) <= u < F(k) for all u in [word, word + 1) / 2^width, or None if more bits decide."""
        digits = width + _GUARD
        ratio_low, ratio_high = self._ratios(digits)
        low, high = word << _GUARD, (word + 1) << _GUARD
        term_low = term_high = self._threshold << (digits - UNIT)
        certain_low, sum_low, sum_high = 0, term_low, term_high
        count = 0
        while True:
            if high <= sum_low:
                return count if low >= certain_low else None
            if low < sum_high:
                return None
            count += 1
            top, bottom = self._homes * (count - 1) + 1, self._homes * count
            term_low = (term_low * ratio_low >> digits) * top // bottom
            term_high = _div_up(_div_up(term_high * ratio_high, 1 << digits) * top, bottom)
            if not term_low:
                return None
            certain_low = sum_high
            sum_low, sum_high = sum_low + term_low, sum_high + term_high

    def _ratios(self, digits: int) -> tuple[int, int]:
        """Return the lower and upper bound on p, over 2^digits."""
        if digits not in self._ratio:
            low, high = _power(self._threshold, self._homes, digits)
            self._ratio[digits] = (1 << digits) - high, (1 << digits) - low
        return self._ratio[digits]


def rate_up(threshold: int, homes: int) -> int:
    """Return the loss of a tick to a sum of the shares of `homes` homes, -log p, in nats over 2^32, rounded up.

    -log(1 - y) <= y + y^2/2 + ... + y^11/11 + y^12 / (12 (1 - y)) for y = a^m.
    """
    if not (0 < threshold < 1 << UNIT and homes >= 1):
        raise ValueError("a threshold is in 1..2^32-1, and a share is for at least one home")
    unit = 1 << _RATE_BITS
    y = _power(threshold, homes, _RATE_BITS)[1]
    total, term = 0, unit
    for n in range(1, _TERMS + 1):
        term = _div_up(term * y, unit)
        total += _div_up(term, n)
    total += _div_up(_div_up(term * y, unit) * unit, (_TERMS + 1) * (unit - y))
    return _div_up(total, 1 << (_RATE_BITS - UNIT))


def random_bits(entropy: "Callable[[bytearray], None]") -> "Bits":
    """Return bits(width), a uniform integer of `width` bits, a multiple of 8; `entropy` fills a buffer.

    The buffer is overwritten at once.
    """

    def bits(width: int) -> int:
        buffer = bytearray(width // 8)
        entropy(buffer)
        value = int.from_bytes(buffer, "little")
        for i in range(len(buffer)):
            buffer[i] = 0
        return value

    return bits


def _power(threshold: int, homes: int, digits: int) -> tuple[int, int]:
    """Return the lower and upper bound on (threshold / 2^32)^homes, over 2^digits."""
    unit = 1 << digits
    base_low = base_high = threshold << (digits - UNIT)
    low = high = unit
    while homes:
        if homes & 1:
            low, high = low * base_low >> digits, _div_up(high * base_high, unit)
        homes >>= 1
        if homes:
            base_low, base_high = base_low * base_low >> digits, _div_up(base_high * base_high, unit)
    return low, min(high, unit)


def _div_up(top: int, bottom: int) -> int:
    return -(-top // bottom)

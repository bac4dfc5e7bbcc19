"""Random draws: symbols from a table, and exact discrete Laplace noise; integers only.

A table is a set of exact rational probabilities over 2^32, so a privacy guarantee is a statement about integers: one
uniform 32-bit word against one row decides. For a tick without a usable reading, one more word picks the row, whatever
the state is. Such a tick loses nothing if it does not depend on the readings which ticks are missing
(docs/proofs/states-and-ticks.md, "Missing readings").

Discrete Laplace noise: P(n) proportional to exp(-|n| / s) on the integers, for a rational scale s. There is no rounding
whose traces could tell noise and count apart. Source: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential
Privacy" (2020), algorithms 1 and 2.
"""

import array
import struct

from .policy import rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, MutableSequence, Sequence

    Entropy = Callable[[memoryview], None]
    Find = Callable[[Sequence[int], int], int]

__all__ = ["BLOCK_WORDS", "discrete_laplace", "randomiser", "uniform_below", "word_block"]

BLOCK_WORDS = 16


def randomiser(
    rows: "Sequence[Sequence[int]]", words: "MutableSequence[int]", fill: "Callable[[], None]", find: "Find" = rank
) -> "tuple[Callable[[int | None], int], Callable[[], None]]":
    """Return draw(state), which draws a symbol from a state's row of thresholds, and discard().

    `fill` overwrites `words` with independent uniform 32-bit words. Every draw takes a word and overwrites it with
    zero, so that a later look into memory does not tell which words made the symbols. discard() is for after a fork:
    it drops all words, so that a process and its child never use the same word. `find` counts the thresholds of a row
    that are not above a word.
    """
    words_left, states = 0, len(rows)
    missing_row = [-(-(row << 32) // states) for row in range(1, states)]  # word * states >> 32 of it are <= word

    def draw(state: "int | None", rows: "Sequence[Sequence[int]]" = rows) -> int:
        nonlocal words_left
        if state is None:
            state = draw(0, (missing_row,))
        if not words_left:
            fill()
            words_left = len(words)
        words_left -= 1
        word = words[words_left]
        words[words_left] = 0
        return find(rows[state], word)

    def discard() -> None:
        nonlocal words_left
        words_left = 0

    return draw, discard


def word_block(entropy: "Entropy") -> "tuple[MutableSequence[int], Callable[[], None]]":
    """Return a block of words and fill(), which fills it; `entropy` fills a buffer with independent uniform bytes."""
    words, buffer = array.array("I", bytes(4 * BLOCK_WORDS)), bytearray(4 * BLOCK_WORDS)

    def fill() -> None:
        entropy(memoryview(buffer))
        for i in range(BLOCK_WORDS):
            words[i] = struct.unpack_from("<I", buffer, 4 * i)[0]
            struct.pack_into("<I", buffer, 4 * i, 0)

    return words, fill


def uniform_below(entropy: "Entropy") -> "Callable[[int], int]":
    """Return draw(limit), uniform in range(limit) for limit >= 1; `entropy` fills a buffer with uniform bytes.

    A draw takes as few bits as can hold the largest value. It rejects a number that is too large and draws again. The
    bytes are overwritten before draw returns.
    """

    def draw(limit: int) -> int:
        if limit < 1:
            raise ValueError("no integer is below %d and at least 0" % limit)
        bits = len(bin(limit - 1)) - 2 if limit > 1 else 0
        mask = (1 << bits) - 1
        buffer = bytearray((bits + 7) // 8)
        value = 0
        while bits:
            entropy(memoryview(buffer))
            value = int.from_bytes(buffer, "little") & mask
            if value < limit:
                break
        for i in range(len(buffer)):
            buffer[i] = 0
        return value

    return draw


def discrete_laplace(draw: "Callable[[int], int]", numerator: int, denominator: int) -> int:
    """Draw an integer n with probability (1 - a) / (1 + a) * a^|n|, where a = exp(-1/s), s = numerator / denominator.

    A count of sensitivity 1 that is released with this noise loses 1/s. ValueError: the scale is not positive.
    Source: algorithm 2 with t = numerator and s = denominator. A remainder below t is kept with probability
    exp(-remainder / t) and a quotient counts successes of exp(-1), so t * quotient + remainder is geometric with ratio
    exp(-1/t); its quotient by s is geometric with ratio exp(-s/t). A sign makes that two-sided, once minus zero is
    refused.
    """
    if numerator < 1 or denominator < 1:
        raise ValueError("the scale %d/%d is not positive" % (numerator, denominator))
    while True:
        remainder = draw(numerator)
        if not _happens(draw, remainder, numerator):
            continue
        quotient = 0
        while _happens(draw, 1, 1):
            quotient += 1
        magnitude = (remainder + numerator * quotient) // denominator
        is_negative = draw(2) == 1
        if not (is_negative and magnitude == 0):
            return -magnitude if is_negative else magnitude


def _happens(draw: "Callable[[int], int]", numerator: int, denominator: int) -> bool:
    """Draw an event of probability exp(-x) for the fraction x = numerator / denominator in 0..1.

    Source: algorithm 1. The first k at which an event of probability x/k fails is odd with probability 1 - x + x^2/2! -
    ... = exp(-x).
    """
    tries = 1
    while draw(denominator * tries) < numerator:
        tries += 1
    return tries % 2 == 1

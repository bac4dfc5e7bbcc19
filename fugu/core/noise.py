"""Random draws: symbols from a table, and exact discrete Laplace noise; integers only.

Source of the noise: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy" (2020), algorithms 1
and 2, as in the agent's `fugu.contract.noise_table`: from the same random bytes comes the same noise.
"""

import struct

from .policy import above

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BLOCK_WORDS", "discrete_laplace", "randomiser", "uniform_below"]

BLOCK_WORDS = 16


def randomiser(rows: list[tuple[int, ...]], entropy: "Callable[[bytearray], None]") -> "Callable[[int | None], int]":
    """A function that draws the symbol for a state, or for None, from a table of each state's thresholds.

    `entropy` fills a buffer with independent uniform bytes; every word is overwritten with zero when it is taken.
    """
    block = bytearray(4 * BLOCK_WORDS)
    left = 0
    states = len(rows)

    def word() -> int:
        nonlocal left
        if not left:
            entropy(block)
            left = BLOCK_WORDS
        left -= 1
        taken: int = struct.unpack_from("<I", block, 4 * left)[0]
        struct.pack_into("<I", block, 4 * left, 0)
        return taken

    def draw(state: int | None) -> int:
        # Without a state, one more word takes the row: a fixed public distribution in the convex hull of the rows.
        row = rows[(word() * states) >> 32 if state is None else state]
        return above(row, word())

    return draw


def uniform_below(entropy: "Callable[[bytearray], None]") -> "Callable[[int], int]":
    """A function draw(below) that is uniform in range(below), without bias; its bytes are overwritten."""

    def draw(below: int) -> int:
        bits, rest = 0, below - 1
        while rest:
            bits, rest = bits + 1, rest >> 1
        mask = (1 << bits) - 1
        buffer = bytearray((bits + 7) // 8)
        value = 0
        while bits:
            entropy(buffer)
            value = int.from_bytes(buffer, "little") & mask
            if value < below:
                break
        for i in range(len(buffer)):
            buffer[i] = 0
        return value

    return draw


def discrete_laplace(draw: "Callable[[int], int]", numerator: int, denominator: int) -> int:
    """An integer n with probability proportional to exp(-|n| denominator / numerator)."""
    while True:
        remainder = draw(numerator)
        if not _happens(draw, remainder, numerator):
            continue
        quotient = 0
        while _happens(draw, 1, 1):
            quotient += 1
        size = (remainder + numerator * quotient) // denominator
        negative = draw(2) == 1
        if not (negative and size == 0):
            return -size if negative else size


def _happens(draw: "Callable[[int], int]", numerator: int, denominator: int) -> bool:
    """True if an event of probability exp(-numerator/denominator) happens."""
    tries = 1
    while draw(denominator * tries) < numerator:
        tries += 1
    return tries % 2 == 1

"""Transition matrices in the form that carries the distributions of many devices on fastest, and what can be reached.

Where most of a matrix is empty, as for a walk over cells, it is kept as its diagonals (places that follow one another
row by row have few) or as each state's predecessors; a full one is left to BLAS.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.chains.kernel import kernel

__all__ = ["Transition", "aligned", "carry_block", "reached"]

_BLOCK = 512
"""Numbers that a block of devices has at least: loops over fewer take longer to begin than to run."""
_LINE = 8  # numbers in a line of the cache
_DIAGONAL, _LINK, _FULL = 2.0, 16.0, 1.0
"""What an entry costs in each form, measured; entries of a full matrix go through BLAS."""
_WHOLE = 1e-9


class Moves(NamedTuple):
    """One direction of a transition: distributions times a matrix.

    Attributes:
        matrix: (N, N).
        weights: (diagonals, devices x N), each diagonal by target, repeated for a block of devices; three divide the
            diagonals.
        shifts: (diagonals,) where each begins in a block that has `margin` numbers before it.
        margin: numbers before and after a block.
        starts: (N + 1,) where the predecessors of each state begin.
        others, values: (links,) the predecessors and their weights; neither these nor diagonals: BLAS.
    """

    matrix: Floats
    weights: Floats
    shifts: Ints
    margin: int
    starts: Ints
    others: Ints
    values: Floats

    @classmethod
    def of(cls, matrix: Floats) -> Self:
        """Choose the form of a matrix."""
        count = len(matrix)
        before, after = np.nonzero(matrix)
        offsets = np.unique(after - before)
        costs = (_DIAGONAL * len(offsets) * count, _LINK * len(before), _FULL * count * count)
        nothing = np.zeros((0, 0)), np.zeros(0, dtype=np.int64), 0
        by_target = np.lexsort((before, after))
        links = (
            np.searchsorted(after[by_target], np.arange(count + 1)),
            before[by_target],
            matrix[before, after][by_target],
        )
        if costs[1] == min(costs):
            return cls(matrix, *nothing, *links)
        if costs[2] == min(costs):
            return cls(matrix, *nothing, links[0], np.zeros(0, dtype=np.int64), np.zeros(0))
        devices = -(-_BLOCK // count)
        margin = -(-count // _LINE) * _LINE
        weights = aligned(-(-len(offsets) // 3) * 3, devices * count)
        shifts = np.full(len(weights), margin, dtype=np.int64)
        for row, offset in enumerate(offsets.tolist()):
            line = np.zeros(count)
            line[max(offset, 0) : count + min(offset, 0)] = np.diagonal(matrix, offset)
            weights[row] = np.tile(line, devices)
            shifts[row] -= offset
        return cls(matrix, weights, shifts, margin, *links)

    def carry(self, distributions: Floats, out: Floats) -> None:
        """Set `out` (devices, N) to the distributions (devices, N) times the matrix."""
        if len(self.weights):
            _by_diagonals(distributions, self.weights, self.shifts, self.margin, out)
        elif len(self.values):
            _by_links(distributions, self.starts, self.others, self.values, out)
        else:
            np.matmul(distributions, self.matrix, out=out)


class Transition(NamedTuple):
    """A matrix of transitions, ready to be used many times.

    Attributes:
        forward: distributions of a tick to distributions of the next.
        backward: what later ticks tell of one tick to what they tell of the tick before.
        whole: whether all rows sum to 1, so that distributions do.
    """

    forward: Moves
    backward: Moves
    whole: bool

    @classmethod
    def of(cls, transition: ArrayLike) -> Self:
        """Prepare a matrix.

        Args:
            transition: (N, N), N at least 1, of finite numbers from 0 on; rows need not sum to 1.

        Raises:
            ValueError: it is no such matrix.
        """
        matrix = np.ascontiguousarray(transition, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
            raise ValueError(f"a transition matrix is square, not of shape {matrix.shape}")
        if not (np.isfinite(matrix).all() and (matrix >= 0.0).all()):
            raise ValueError("a transition matrix holds finite numbers from 0 on")
        whole = bool(np.all(np.abs(matrix.sum(axis=1) - 1.0) <= _WHOLE))
        return cls(Moves.of(matrix), Moves.of(np.ascontiguousarray(matrix.T)), whole)

    @property
    def states(self) -> int:
        """N."""
        return len(self.forward.matrix)


def aligned(rows: int, columns: int) -> Floats:
    """Zeros (rows, columns) that begin at a line of the cache: loads that straddle two take twice as long."""
    flat = np.zeros(rows * columns + _LINE)
    skip = -(flat.ctypes.data // flat.itemsize) % _LINE
    return flat[skip : skip + rows * columns].reshape(rows, columns)


@kernel
def _add_three(
    out: Floats, width: np.uint64, weights: Floats, row: int, source: Floats, a: np.uint64, b: np.uint64, c: np.uint64
) -> None:  # fmt: skip
    """Add the sum of three rows of weights times the numbers from `a`, `b` and `c` on to `out`, or set it for row 0.

    Places are unsigned: signed ones might count from an array's end, and loops would not vectorise.
    """
    if row == 0:
        for i in range(width):
            out[i] = (
                weights[row, i] * source[a + i]
                + weights[row + 1, i] * source[b + i]
                + weights[row + 2, i] * source[c + i]
            )
    else:
        for i in range(width):
            out[i] += (
                weights[row, i] * source[a + i]
                + weights[row + 1, i] * source[b + i]
                + weights[row + 2, i] * source[c + i]
            )


@kernel
def carry_block(
    flat: Floats, low: int, high: int, weights: Floats, shifts: Ints, margin: int, padded: Floats, out: Floats
) -> None:
    """Set `out` (w,) to the numbers low..high of distributions laid end to end, times a matrix given by its diagonals.

    A diagonal reaches into the distributions of the devices beside, where its weight is 0; `padded` stands in for the
    ends.
    """
    source, begin = flat, low - margin
    if low < margin or high + margin > flat.size:
        for i in range(high - low):
            padded[margin + i] = flat[low + i]
        source, begin = padded, 0
    for row in range(0, shifts.size, 3):
        a, b, c = begin + shifts[row], begin + shifts[row + 1], begin + shifts[row + 2]
        _add_three(out, np.uint64(high - low), weights, row, source, np.uint64(a), np.uint64(b), np.uint64(c))


@kernel
def _by_diagonals(distributions: Floats, weights: Floats, shifts: Ints, margin: int, out: Floats) -> None:
    """Set `out` (devices, N) to the distributions times a matrix that is given by its diagonals."""
    size = weights.shape[1]
    given, made = distributions.reshape(-1), out.reshape(-1)
    padded = np.zeros(size + 2 * margin)
    for low in range(0, given.size, size):
        high = min(low + size, given.size)
        carry_block(given, low, high, weights, shifts, margin, padded, made[low:high])


@kernel
def _by_links(distributions: Floats, starts: Ints, others: Ints, values: Floats, out: Floats) -> None:
    """Set `out` (devices, N) to the distributions times a matrix that is given by each state's predecessors."""
    for device in range(distributions.shape[0]):
        for state in range(distributions.shape[1]):
            mass = 0.0
            for link in range(starts[state], starts[state + 1]):
                mass += distributions[device, others[link]] * values[link]
            out[device, state] = mass


@kernel
def _reach(sets: Ints, starts: Ints, others: Ints, out: Ints) -> None:
    """Set each state's row of `out` (N, words) to the union of its predecessors' rows of `sets`."""
    for state in range(out.shape[0]):
        out[state] = 0
        for link in range(starts[state], starts[state + 1]):
            for word in range(out.shape[1]):
                out[state, word] |= sets[others[link], word]


def reached(sets: Bools, transition: Transition | ArrayLike) -> Bools:
    """The states that can follow from some of a set, for many sets at once; a bit for each, not a probability.

    Args:
        sets: (devices, N).
        transition: a step is possible if its entry is above 0.

    Returns:
        (devices, N).
    """
    matrix = transition.forward.matrix if isinstance(transition, Transition) else np.asarray(transition)
    devices, count = sets.shape
    before, after = np.nonzero(matrix > 0)
    order = np.argsort(after, kind="stable")
    starts = np.searchsorted(after[order], np.arange(count + 1))
    words = -(-devices // 64)
    packed = np.zeros((count, 8 * words), dtype=np.uint8)
    bits = np.packbits(sets.T, axis=1)
    packed[:, : bits.shape[1]] = bits
    out = np.empty((count, words), dtype=np.int64)
    _reach(packed.view(np.int64), starts, before[order], out)
    found = np.unpackbits(out.view(np.uint8), axis=1, count=devices)
    return np.ascontiguousarray(found.T).view(np.bool_)

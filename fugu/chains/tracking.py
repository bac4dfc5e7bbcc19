"""Tracking many devices whose tables differ from tick to tick: filtered, smoothed and fixed-lag distributions.

A device's release enters as its likelihood under each state, so every tick and device may have a table of its own, and
every tick its own transition. Ticks without a release are gaps; a point that no possible state can release counts as
none. A matrix that is mostly empty, as for a walk over cells, is kept as its diagonals or each state's predecessors; a
full one is left to BLAS.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.chains.kernel import kernel
from fugu.chains.messages import LIFT, TINY

__all__ = ["Followed", "Seen", "Transition", "fixed_lag", "follow"]


_BLOCK = 512
"""Numbers that a block of devices has at least: loops over fewer take longer to begin than to run."""
_LINE = 8  # numbers in a line of the cache
_DIAGONAL, _LINK, _FULL = 2.0, 16.0, 1.0
"""Measured cost of an entry in each form; entries of a full matrix go through BLAS."""
_WHOLE = 1e-9


class Moves(NamedTuple):
    """One direction of a transition: distributions times a matrix.

    Attributes:
        matrix: (N, N).
        weights: (diagonals, devices x N), by target, repeated for a block of devices; three divide the diagonals.
        shifts: (diagonals,) where each begins in a block that has `margin` numbers before and after it.
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

    It carries distributions `forward`, and `backward` what later ticks tell of one tick to what they tell of the tick
    before; `whole` if all rows sum to 1, so that distributions do.
    """

    forward: Moves
    backward: Moves
    whole: bool

    @classmethod
    def of(cls, transition: ArrayLike) -> Self:
        """Prepare a matrix (N, N) of finite numbers from 0 on, whose rows need not sum to 1; else a ValueError."""
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

    Where a diagonal reaches into the devices beside, its weight is 0; `padded` stands in for the ends.
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


_HIGH = LIFT**9
_LOG_HIGH = 9.0 * log(LIFT)


class Seen(NamedTuple):
    """Outputs of devices at one tick.

    The `rows` (M, N) are likelihoods of M points under each state, points of different tables side by side; `which`
    (devices,) is the row of each device, -1 if it released nothing.
    """

    rows: Floats
    which: Ints

    @classmethod
    def nothing(cls, devices: int, states: int) -> Seen:
        """A tick at which no device released anything."""
        return cls(np.ones((1, states)), np.full(devices, -1, dtype=np.int64))


class Followed(NamedTuple):
    """Result of the forward pass.

    Attributes:
        beliefs: (n, devices, N), the distributions at each tick given everything released up to it.
        log_likelihoods: (n, devices), log probability of what was released, given all before; 0 if that is nothing.
        counted: (n, devices), whether something was released that some possible state can release.
    """

    beliefs: Floats
    log_likelihoods: Floats
    counted: Bools


@kernel
def _sum(distributions: Floats, device: int) -> float:
    mass = 0.0
    for x in range(distributions.shape[1]):
        mass += distributions[device, x]
    return mass


@kernel
def _dot(distributions: Floats, device: int, rows: Floats, row: int) -> float:
    mass = 0.0
    for x in range(distributions.shape[1]):
        mass += distributions[device, x] * rows[row, x]
    return mass


@kernel
def _times(distributions: Floats, device: int, rows: Floats, row: int, factor: float, out: Floats, place: int) -> None:
    for x in range(distributions.shape[1]):
        out[place, x] = distributions[device, x] * rows[row, x] * factor


@kernel
def _rare(distributions: Floats, device: int, rows: Floats, row: int, out: Floats, place: int) -> float:
    """The log-likelihood, not a number if impossible, of an all but impossible point, lifted before products vanish."""
    factor = _HIGH / _sum(distributions, device)
    mass = 0.0
    for x in range(distributions.shape[1]):
        mass += (distributions[device, x] * factor) * rows[row, x]
    if mass == 0.0:
        return np.nan
    for x in range(distributions.shape[1]):
        out[place, x] = (distributions[device, x] * factor) * rows[row, x] / mass
    return float(np.log(mass)) - _LOG_HIGH


@kernel
def _alone(distributions: Floats, device: int, out: Floats, place: int) -> bool:
    """`_weigh` for a device of which nothing counts; false if its distribution is 0 everywhere."""
    total = _sum(distributions, device)
    if total == 0.0:
        return False
    for x in range(distributions.shape[1]):
        out[place, x] = distributions[device, x] / total
    return True


@kernel
def _weigh(
    distributions: Floats, count: int, first: int, rows: Floats, which: Ints, whole: bool, out: Floats, logs: Floats
) -> int:  # fmt: skip
    """Weigh so many distributions, of the devices from `first` on, by what these released, into their rows of `out`.

    `logs` (devices,) become log-likelihoods, not a number where nothing counts. The result is a device whose
    distribution is 0 everywhere, or -1.
    """
    nowhere = -1
    for distribution in range(count):
        logs[first + distribution] = _dot(distributions, distribution, rows, max(which[first + distribution], 0))
    for distribution in range(count):
        device = first + distribution
        row, mass = which[device], logs[device]
        total = 1.0 if whole else _sum(distributions, distribution)
        if row >= 0 and mass >= TINY * total > 0.0:
            _times(distributions, distribution, rows, row, 1.0 / mass, out, device)
            logs[device] = np.log(mass / total)
        else:
            logs[device] = (
                _rare(distributions, distribution, rows, row, out, device) if row >= 0 and total > 0.0 else np.nan
            )
            if np.isnan(logs[device]) and not _alone(distributions, distribution, out, device):
                nowhere = device
    return nowhere


@kernel
def _carry_and_weigh(
    distributions: Floats, weights: Floats, shifts: Ints, margin: int, rows: Floats, which: Ints, whole: bool,
    work: Floats, out: Floats, logs: Floats,
) -> int:  # fmt: skip
    """Carry distributions (devices, N) on by a matrix given by its diagonals, and multiply by likelihoods at once."""
    nowhere = -1
    states, size = distributions.shape[1], weights.shape[1]
    flat = distributions.reshape(-1)
    padded, made = np.zeros(size + 2 * margin), work.reshape(-1, states)
    for low in range(0, flat.size, size):
        high = min(low + size, flat.size)
        carry_block(flat, low, high, weights, shifts, margin, padded, work)
        bad = _weigh(made, (high - low) // states, low // states, rows, which, whole, out, logs)
        nowhere = max(nowhere, bad)
    return nowhere


def advance(
    distributions: Floats, transition: Transition, seen: Seen, out: Floats | None = None
) -> tuple[Floats, Floats]:
    """Carry the distributions (devices, N) of the tick before on by one tick; `out` must not be `distributions`.

    The result is distributions (devices, N), and for each device the log probability of what it released, not a number
    if that is nothing or counts as nothing. Raises ValueError for bad shapes, or if no state is possible afterwards.
    """
    distributions = _distributions(distributions, transition.states)
    _check(seen, distributions)
    found = np.empty_like(distributions) if out is None else out
    logs = np.empty(len(distributions))
    moves = transition.forward
    if len(moves.weights):
        work = aligned(1, moves.weights.shape[1])[0]
        given = (moves.weights, moves.shifts, moves.margin, seen.rows, seen.which, transition.whole)
        nowhere = _carry_and_weigh(distributions, *given, work, found, logs)
    else:
        moves.carry(distributions, found)
        nowhere = _weigh(found, len(found), 0, seen.rows, seen.which, transition.whole, found, logs)
    _refuse_nowhere(nowhere)
    return found, logs


def follow(distributions: Floats, steps: Sequence[Transition], seen: Sequence[Seen]) -> Followed:
    """Filter n >= 1 consecutive ticks of many devices: the forward pass.

    The `distributions` (devices, N) are those of the first tick, given everything before; `steps` has n - 1
    transitions. Raises ValueError for bad shapes, or if no state is possible at some tick.
    """
    if len(steps) != len(seen) - 1:
        raise ValueError(f"{len(seen)} ticks have {len(seen) - 1} steps between them, not {len(steps)}")
    distributions = _distributions(distributions, seen[0].rows.shape[1])
    beliefs = np.empty((len(seen), *distributions.shape))
    logs = np.empty((len(seen), len(distributions)))
    _check(seen[0], distributions)
    _refuse_nowhere(_weigh(distributions, len(distributions), 0, *seen[0], False, beliefs[0], logs[0]))
    for tick, (step, one) in enumerate(zip(steps, seen[1:], strict=True), 1):
        _, logs[tick] = advance(beliefs[tick - 1], step, one, beliefs[tick])
    counted = ~np.isnan(logs)
    return Followed(beliefs, np.where(counted, logs, 0.0), counted)


def fixed_lag(
    found: Followed, steps: Sequence[Transition], seen: Sequence[Seen], lag: int, ticks: slice = slice(None)
) -> Floats:  # fmt: skip
    """The distributions (n, devices, N) of some ticks given everything released up to `lag` >= 0 ticks later, exactly.

    The last ticks use what there is; `found`, from `follow` of the same steps and releases, is not changed.
    """
    if lag < 0:
        raise ValueError(f"lag is {lag}; it must be at least 0 ticks")
    counting, distributions = _counted(seen, found), found.beliefs[ticks].copy()
    message, work, logs = (
        np.empty(distributions.shape[1:]),
        np.empty(distributions.shape[1:]),
        np.empty(distributions.shape[1]),
    )
    for tick, distribution in zip(range(len(seen))[ticks], distributions, strict=True):
        last = min(tick + lag, len(seen) - 1)
        message[:] = 1.0
        for later in range(last, tick, -1):
            _back(message, steps[later - 1], counting[later], work, logs, message)
        if last > tick:
            _combine(distribution, message)
    return distributions


def _back(message: Floats, step: Transition, seen: Seen, work: Floats, logs: Floats, out: Floats) -> None:
    """Take messages (devices, N) back by one tick; `out` may be `message`."""
    _refuse_nowhere(_weigh(message, len(message), 0, *seen, False, work, logs))
    step.backward.carry(work, out)


def _combine(distributions: Floats, messages: Floats) -> None:
    _weigh(
        distributions,
        len(distributions),
        0,
        messages,
        np.arange(len(distributions)),
        False,
        distributions,
        np.empty(len(distributions)),
    )


def _counted(seen: Sequence[Seen], found: Followed) -> list[Seen]:
    return [Seen(one.rows, np.where(counted, one.which, -1)) for one, counted in zip(seen, found.counted, strict=True)]


def _distributions(distributions: Floats, states: int) -> Floats:
    given = np.ascontiguousarray(distributions, dtype=np.float64)
    if given.ndim != 2 or given.shape[1] != states:
        raise ValueError(f"distributions have shape {given.shape}; they must be (devices, {states})")
    return given


def _check(seen: Seen, distributions: Floats) -> None:
    """Refuse indices and shapes with which the kernels would read beyond the ends of arrays."""
    rows, which = seen
    if rows.ndim != 2 or rows.shape[1] != distributions.shape[1] or not len(rows):
        raise ValueError(
            f"likelihoods have shape {rows.shape}; they must be (points, {distributions.shape[1]}), at least one"
        )
    if rows.dtype != np.float64 or not rows.flags.c_contiguous:
        raise ValueError("likelihoods must be a C-contiguous array of float64")
    if which.shape != (len(distributions),) or which.dtype != np.int64:
        raise ValueError(
            f"which has shape {which.shape}; there must be one integer for each of {len(distributions)} devices"
        )
    if which.size and not (which.min() >= -1 and which.max() < len(rows)):
        raise ValueError(f"devices name points from {which.min()} to {which.max()}; there are {len(rows)}")


def _refuse_nowhere(device: int) -> None:
    if device >= 0:
        raise ValueError(f"no state is possible for device {device}")

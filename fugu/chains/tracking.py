"""Tracking many devices whose tables differ from tick to tick: filtered, smoothed and fixed-lag distributions.

What a device released at a tick enters as its likelihood under each state. So every tick and every device may have a
table of its own, ticks without any are gaps, and the transition may be another one at each tick. A point that no
possible state can release counts as none.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.chains.kernel import kernel
from fugu.chains.messages import LIFT, TINY
from fugu.chains.transitions import Transition, aligned, carry_block

__all__ = ["Followed", "Seen", "advance", "fixed_lag", "follow", "smoothed"]

_HIGH = LIFT**9
_LOG_HIGH = 9.0 * log(LIFT)


class Seen(NamedTuple):
    """What devices released at one tick.

    Attributes:
        rows: (M, N), the likelihood of each of M points under each state; points of different tables side by side.
        which: (devices,) the row of each device, -1 if it released nothing.
    """

    rows: Floats
    which: Ints

    @classmethod
    def nothing(cls, devices: int, states: int) -> Seen:
        """A tick at which no device released anything."""
        return cls(np.ones((1, states)), np.full(devices, -1, dtype=np.int64))


class Followed(NamedTuple):
    """What the forward pass finds.

    Attributes:
        beliefs: (n, devices, N), the distributions at each tick given everything released up to it.
        log_likelihoods: (n, devices), the logarithm of the probability of what was released, given all before; 0 if
            that is nothing.
        counted: (n, devices), whether something was released that some possible state can release.
    """

    beliefs: Floats
    log_likelihoods: Floats
    counted: Bools


@kernel
def _sum(distributions: Floats, device: int) -> float:
    """The sum of a device's distribution."""
    mass = 0.0
    for x in range(distributions.shape[1]):
        mass += distributions[device, x]
    return mass


@kernel
def _dot(distributions: Floats, device: int, rows: Floats, row: int) -> float:
    """The sum of the products of a device's distribution and a row."""
    mass = 0.0
    for x in range(distributions.shape[1]):
        mass += distributions[device, x] * rows[row, x]
    return mass


@kernel
def _times(distributions: Floats, device: int, rows: Floats, row: int, factor: float, out: Floats, place: int) -> None:
    """Set a row of `out` to a device's distribution times a row times a factor."""
    for x in range(distributions.shape[1]):
        out[place, x] = distributions[device, x] * rows[row, x] * factor


@kernel
def _rare(distributions: Floats, device: int, rows: Floats, row: int, out: Floats, place: int) -> float:
    """`_weigh` for a point that is all but impossible, whose products are lifted before they can vanish.

    Returns:
        Its log-likelihood; no number for one that is impossible.
    """
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

    `logs` (devices,) become log-likelihoods; no number where nothing counts.

    Returns:
        A device whose distribution is 0 everywhere, or -1.
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
    """Carry the distributions of many devices on by one tick.

    Args:
        distributions: (devices, N), of the tick before.
        transition: from there.
        seen: what was released.
        out: (devices, N), C-contiguous, where to put the result; not `distributions`. None: a new array.

    Returns:
        Distributions (devices, N), and for each device the logarithm of the probability of what it released, not a
        number if that is nothing or counts as nothing.

    Raises:
        ValueError: bad shapes, or distributions after which no state is possible.
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
    """Filter consecutive ticks of many devices: the forward pass.

    Args:
        distributions: (devices, N), at the first tick, given everything before.
        steps: the transition from each tick to the next, one fewer than ticks.
        seen: what was released at each of n ticks, at least one.

    Raises:
        ValueError: bad shapes, or no state is possible at some tick.
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


def backward(steps: Sequence[Transition], seen: Sequence[Seen]) -> Floats:
    """What the points after each tick tell of its state: the backward pass.

    Args:
        steps, seen: as for `follow`; a point that no state can release after what follows counts as none.

    Returns:
        (n, devices, N), each proportional to the probability of the later points, and at most 1.
    """
    messages = np.ones((len(seen), len(seen[0].which), seen[0].rows.shape[1]))
    work, logs = np.empty_like(messages[0]), np.empty(messages.shape[1])
    for tick in range(len(steps) - 1, -1, -1):
        _back(messages[tick + 1], steps[tick], seen[tick + 1], work, logs, messages[tick])
    return messages


def smoothed(distributions: Floats, steps: Sequence[Transition], seen: Sequence[Seen]) -> Floats:
    """The distributions (n, devices, N) of each tick given everything released at any; arguments as for `follow`."""
    found = follow(distributions, steps, seen)
    messages = backward(steps, _counted(seen, found))
    for belief, message in zip(found.beliefs, messages, strict=True):
        _combine(belief, message)
    return found.beliefs


def fixed_lag(
    found: Followed, steps: Sequence[Transition], seen: Sequence[Seen], lag: int, ticks: slice = slice(None)
) -> Floats:  # fmt: skip
    """The distributions (n, devices, N) of some ticks given everything released up to `lag` ticks later, exactly.

    Args:
        found: from `follow`; kept.
        steps, seen: the same as for that.
        lag: at least 0; the last ticks use what there is.
        ticks: those that are asked for; by default all.

    Raises:
        ValueError: a negative lag.
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
    """Multiply distributions (devices, N) by messages, and normalise."""
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
    """What was released, without what did not count."""
    return [Seen(one.rows, np.where(counted, one.which, -1)) for one, counted in zip(seen, found.counted, strict=True)]


def _distributions(distributions: Floats, states: int) -> Floats:
    given = np.ascontiguousarray(distributions, dtype=np.float64)
    if given.ndim != 2 or given.shape[1] != states:
        raise ValueError(f"distributions have shape {given.shape}; they must be (devices, {states})")
    return given


def _check(seen: Seen, distributions: Floats) -> None:
    """Refuse what the kernels would read beyond the ends of arrays for."""
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

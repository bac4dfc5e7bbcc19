"""Informed adversaries, streams that end, a whole interval of chains: the worst member by branch and bound.

On an endless stream the stickiest corner of a class is worst; on one that ends it is not. So for every tick the box of
all (q, r) is searched. A leakage is the largest of its cases: nothing is known there, or a state t + 1 ticks away.
On a part of the box each case is bounded by intervals (`interval_enclosure`), and by its value in the middle and
intervals for its derivatives; where past and future together have a derivative of one sign, the part shrinks to a face.

Source: docs/proofs/randomised-response.md, "Worst corner".
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contract.chains import BinaryChains
from contract.exponential import exp_up
from contract.leakage import informed_leakage
from contract.rounding import CLOSED_FORM, SIXTEEN_ROUNDINGS
from gateway.chain.arrays import Floats, Ints
from gateway.privacy.accountant.interval_enclosure import Box, Cases, Interval, enclosure

__all__ = ["worst_informed_losses"]

_NEAR = 1e-9
"""How far above the worst member that was seen a bound may be, relative to what all ticks lose together."""
_MOST_STEPS = 5_000_000
"""Ticks that are followed, over all cases and parts, before the bound that needs no search is taken."""
_MOST_ROUNDS = 200
_PIECES = 4
_STEEP = 1e300
_FAR = 300.0
"""Losses, in nats, that floats do not follow."""
_RARE = 1e-100
"""Of a probability: floats do not follow rarer changes."""


class _Parts(NamedTuple):
    """Parts of the box: for each a row (a tick in one direction), and a bound on its loss there."""

    row: Ints
    box: Box
    high: Floats

    def of(self, chosen: NDArray[np.bool_] | Ints) -> _Parts:
        return _Parts(self.row[chosen], self.box.of(chosen), self.high[chosen])


class _Rows(NamedTuple):
    """Ticks, once for each direction: where their cases begin, how many the future has, and how many both.

    Attributes:
        first, future, both: (rows,) indices into the cases, and counts of them.
        own: (rows,) what the tick itself loses.
        leakages: (rows, 2) the sums of what the later, and the earlier, ticks lose: neither leakage is more.
    """

    first: Ints
    future: Ints
    both: Ints
    own: Floats
    leakages: Floats


def worst_informed_losses(chains: BinaryChains, rates: Floats) -> Floats:
    """The losses of every tick to those who may know any states or none, for the worst member of a class.

    Args:
        chains: the class, with q + r <= 1 for all its members.
        rates: (n, 2, 2) per-tick losses.

    Returns:
        (n, 2, 2), rounded up. The largest is above the worst member's by about 1e-9 of what all ticks lose, if work
        allows; the others are only searched until they are known to be below it.
    """
    losses = np.stack([rates[:, 0, 1], rates[:, 1, 0]])
    n = losses.shape[1]
    mirrored = bool(np.array_equal(losses, losses[:, ::-1]))
    ticks = range((n + 1) // 2 if mirrored else n)
    cases, rows = _rows(losses, ticks)
    with np.errstate(all="ignore"):  # what is no number is never taken for a bound
        found = _search(chains, cases, rows).reshape(2, len(ticks))
    if mirrored:
        found = np.concatenate([found, found[:, : n // 2][:, ::-1]], axis=1)
    total = np.zeros_like(rates)
    total[:, 0, 1], total[:, 1, 0] = found
    return total


def _rows(losses: Floats, ticks: range) -> tuple[Cases, _Rows]:
    n = losses.shape[1]
    columns: list[list[int]] = [[], [], [], []]
    spans = []
    for direction in (0, 1):
        for tick in ticks:
            first = len(columns[0])
            _add_cases(columns, direction * n + tick, 1, n - 1 - tick)
            middle = len(columns[0])
            _add_cases(columns, direction * n + tick, -1, tick)
            spans.append((first, middle - first, len(columns[0]) - first))
    known, nearest, stride, steps = (np.array(column, dtype=np.int64) for column in columns)
    begin, future, both = np.array(spans, dtype=np.int64).T
    before = np.cumsum(losses, axis=1) - losses
    after = np.cumsum(losses[:, ::-1], axis=1)[:, ::-1] - losses
    leakages = np.stack([after, before], axis=2)[:, list(ticks)] + CLOSED_FORM * n * losses.max()
    own = losses[:, list(ticks)].ravel()
    return Cases(known, nearest, stride, steps, losses.ravel()), _Rows(
        begin, future, both, own, leakages.reshape(-1, 2)
    )


def _add_cases(columns: list[list[int]], tick: int, away: int, count: int) -> None:
    """All cases of one side, of so many ticks: nothing is known, or the state after t unknown ticks is."""
    for known, steps in [(2, count), *((known, t) for t in range(1, count) for known in (0, 1))]:
        # They are followed from beside the known state towards the tick.
        for column, entry in zip(columns, (known, tick + away * steps, -away, steps), strict=True):
            column.append(entry)


def _endless(chains: BinaryChains, loss: float) -> float:
    """The leakage of any number of ticks, whose every tick loses at most this: the stickiest corner, rounded up."""
    if not loss < _FAR:
        return math.inf
    ratio = exp_up(Fraction(loss))
    leakage = informed_leakage(Fraction(chains.q[0]), Fraction(chains.r[0]), ratio, 1 / ratio)
    return float(leakage.ratio.ln()) * (1.0 + SIXTEEN_ROUNDINGS) + SIXTEEN_ROUNDINGS


def _search(chains: BinaryChains, cases: Cases, rows: _Rows) -> Floats:
    """(rows,) bounds on the losses of all ticks."""
    seen, found = np.zeros(len(rows.own)), np.zeros(len(rows.own))
    near = _NEAR * (rows.own + rows.leakages.sum(axis=1)) + 256.0 * SIXTEEN_ROUNDINGS * (1.0 + rows.both)
    parts, work = _whole(chains, rows), 0
    followed = min(*chains.q, *chains.r) > _RARE and float(cases.losses.sum()) < _FAR
    for _ in range(_MOST_ROUNDS if followed else 0):
        work += _work(cases, rows, parts)
        if not len(parts.row) or work > _MOST_STEPS:
            break
        parts, slopes, low = _bounded(cases, rows, parts, seen)
        np.fmax.at(seen, parts.row, low)
        point = (parts.box.q0 == parts.box.q1) & (parts.box.r0 == parts.box.r1)
        done = point | (parts.high <= seen.max() + near[parts.row])
        np.maximum.at(found, parts.row[done], parts.high[done])
        parts = _divided(parts.of(~done), *(slope.of(~done) for slope in slopes))
    if len(parts.row):
        ways = chains, BinaryChains(q=chains.r, r=chains.q)
        endless = np.repeat([_endless(way, float(cases.losses.max())) for way in ways], len(rows.own) // 2)
        safe = (rows.own + np.minimum(rows.leakages, endless[:, None]).sum(axis=1)) * (1.0 + 4.0 * SIXTEEN_ROUNDINGS)
        np.maximum.at(found, parts.row, np.minimum(parts.high, safe[parts.row]))
    return np.maximum(found, seen)


def _whole(chains: BinaryChains, rows: _Rows) -> _Parts:
    """The box of the class, and its corners, for every row; for state 1 rather than 0, q and r change places."""
    every = len(rows.own)
    corners = [(q, q, r, r) for q in chains.q for r in chains.r]
    boxes = np.array([(*chains.q, *chains.r), *corners])
    turned = np.stack([boxes, boxes[:, [2, 3, 0, 1]]], axis=1).repeat(every // 2, axis=1).reshape(-1, 4)
    return _Parts(np.tile(np.arange(every), len(boxes)), Box(*turned.T), np.full(len(turned), np.inf))


def _work(cases: Cases, rows: _Rows, parts: _Parts) -> int:
    before = np.concatenate([[0], np.cumsum(cases.steps)])
    return 2 * int((before[rows.first + rows.both] - before[rows.first])[parts.row].sum())


def _bounded(
    cases: Cases, rows: _Rows, parts: _Parts, seen: Floats
) -> tuple[_Parts, tuple[Interval, Interval], Floats]:
    """Parts with better bounds; intervals for the derivatives of all that may be worst; losses in their middles."""
    count = rows.both[parts.row]
    part = np.repeat(np.arange(len(count)), count)
    ends = np.cumsum(count)
    case = np.arange(ends[-1]) - np.repeat(ends - count, count) + rows.first[parts.row][part]
    starts = np.stack([ends - count, ends - count + rows.future[parts.row]], axis=1).ravel()
    middle, box = parts.box.middle(), parts.box.of(part)
    both = enclosure(cases, np.tile(case, 2), box.joined(middle.of(part)))
    over, inside = both.of(slice(len(part))), both.of(slice(len(part), None))
    direction = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, ends[-1])))
    best = np.maximum.reduceat(inside.value.low, starts)
    low = rows.own[parts.row] + best.reshape(-1, 2).sum(axis=1)
    # What one direction gains the other may lose: a common slope moves from one to the other before either is bounded.
    around = inside.value.high
    top = inside.value.low == best[direction]
    sign = np.where(direction % 2 == 0, 1.0, -1.0)
    for slope, start, centre, end in (
        (over.by_q, parts.box.q0, middle.q0, parts.box.q1),
        (over.by_r, parts.box.r0, middle.r0, parts.box.r1),
    ):
        typical = np.maximum.reduceat(np.where(top, 0.5 * (slope.low + slope.high), -np.inf), starts).reshape(-1, 2)
        shift = sign * (0.5 * (typical[:, 0] - typical[:, 1]))[part]
        size = np.abs(slope.low) + np.abs(slope.high) + np.abs(shift)
        rest = Interval(slope.low - shift, slope.high - shift).outward(size)
        around = around + rest.rise((centre - start)[part], (end - centre)[part])
    natural = np.maximum.reduceat(np.fmin(over.value.high, np.inf), starts).reshape(-1, 2)
    turned = np.maximum.reduceat(around, starts).reshape(-1, 2)
    high = rows.own[parts.row] + np.fmin(natural.sum(axis=1), turned.sum(axis=1))
    high = np.fmin(high, rows.own[parts.row] + _by_odds(cases, rows, parts).sum(axis=1))
    high = np.fmin(high * (1.0 + 2.0 * SIXTEEN_ROUNDINGS), parts.high)
    # Cases that stay below what was seen of their tick, whatever the other direction does, have no say in the face.
    other = natural[:, ::-1].ravel()[direction]
    active = ~(over.value.high + other + rows.own[parts.row][part] <= seen[parts.row][part])
    slopes = []
    for slope in (over.by_q, over.by_r):
        least = np.minimum.reduceat(np.where(active, slope.low, _STEEP), starts).reshape(-1, 2)
        most = np.maximum.reduceat(np.where(active, slope.high, -_STEEP), starts).reshape(-1, 2)
        slopes.append(Interval(least.sum(axis=1), most.sum(axis=1)).outward(np.abs(least).sum(1) + np.abs(most).sum(1)))
    return parts._replace(high=high), (slopes[0], slopes[1]), low


def _by_odds(cases: Cases, rows: _Rows, parts: _Parts) -> Floats:
    """(parts, 2) bounds on both leakages by the odds ratio of a step, which is largest where q and r are least."""
    q, r = parts.box.q0, parts.box.r0
    root = np.sqrt((1.0 - q) / q) * np.sqrt((1.0 - r) / r)
    g = np.exp(0.5 * cases.losses.max())
    w = (root * (g - 1.0) + np.sqrt((root * (g - 1.0)) ** 2 + 4.0 * g)) / (2.0 * g)
    leakage = 2.0 * np.log(w) * (1.0 + CLOSED_FORM) + CLOSED_FORM
    return np.asarray(np.minimum(rows.leakages[parts.row], leakage[:, None]))


def _divided(parts: _Parts, by_q: Interval, by_r: Interval) -> _Parts:
    """Shrink parts to the face that is worst by the sign of a derivative; cut those that have none into pieces."""
    box = parts.box
    q0, q1 = _worse_face(box.q0, box.q1, by_q)
    r0, r1 = _worse_face(box.r0, box.r1, by_r)
    cut = (q0 == box.q0) & (q1 == box.q1) & (r0 == box.r0) & (r1 == box.r1)
    shrunk = parts._replace(box=Box(q0, q1, r0, r1)).of(~cut)
    rest, by_q, by_r = parts.of(cut), by_q.of(cut), by_r.of(cut)
    q0, q1, r0, r1 = rest.box
    spread_q, spread_r = (np.maximum(s.high, -s.low) * w for s, w in ((by_q, q1 - q0), (by_r, r1 - r0)))
    along_q = (r0 == r1) | (~(spread_q < spread_r) & (q0 < q1))
    cuts_q, cuts_r = _cuts(q0, q1), _cuts(r0, r1)
    pieces = [shrunk]
    for piece in range(_PIECES):
        sides_q = np.where(along_q, cuts_q[piece : piece + 2], [q0, q1])
        sides_r = np.where(along_q, [r0, r1], cuts_r[piece : piece + 2])
        pieces.append(rest._replace(box=Box(*sides_q, *sides_r)))
    boxes = [np.concatenate(columns) for columns in zip(*(p.box for p in pieces), strict=True)]
    row, high = (np.concatenate([p[column] for p in pieces]) for column in (0, 2))
    return _Parts(row, Box(*boxes), high)


def _worse_face(low: Floats, high: Floats, slope: Interval) -> tuple[Floats, Floats]:
    rising = slope.low >= 0.0
    return np.where(rising, high, low), np.where((slope.high <= 0.0) & ~rising, low, high)


def _cuts(low: Floats, high: Floats) -> Floats:
    """(pieces + 1, parts) from low to high, evenly; by their logarithms if they are far apart."""
    share = np.linspace(0.0, 1.0, _PIECES + 1)[:, None]
    between = np.where(high > 4.0 * low, low * (high / low) ** share, low + (high - low) * share)
    between = np.clip(between, low, high)
    between[0], between[-1] = low, high
    return between

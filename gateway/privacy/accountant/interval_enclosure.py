"""Intervals for a leakage and its derivatives, over intervals of q and r.

A known state y and t unknown ticks before it are worth h = m/n, with m_0 = n_0 = P[0,y]/P[1,y], m <- f(G m), n <- f(n),
f(u) = ((1-q)u + q)/(ru + 1-r), G = e^loss: m takes in what the ticks say, n only what the known state says. Without a
known state both begin at 1. Here q + r <= 1, and everything is rounded outward.

Source: docs/proofs/randomised-response.md, "Three adversaries in closed form".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contract.rounding import FOUR_ROUNDINGS, SIXTEEN_ROUNDINGS
from gateway.chain.arrays import Floats, Ints

__all__ = ["Box", "Cases", "Enclosure", "Interval", "enclosure"]


class Cases(NamedTuple):
    """What may be known of one side of a tick; arrays (cases,), but for `losses`.

    Attributes:
        known: the nearest known state, 0 or 1; 2 if none is known.
        nearest: index of the loss of the tick beside it (or of the last tick of the side).
        stride: 1 or -1, from there to the tick whose side it is.
        steps: t, the number of unknown ticks.
        losses: per-tick losses, in nats.
    """

    known: Ints
    nearest: Ints
    stride: Ints
    steps: Ints
    losses: Floats


class Interval(NamedTuple):
    """Lower and upper bounds."""

    low: Floats
    high: Floats

    def of(self, chosen: NDArray[np.bool_] | slice) -> Interval:
        """Those of some entries."""
        return Interval(self.low[..., chosen], self.high[..., chosen])

    def outward(self, scale: Floats) -> Interval:
        """Wider by a rounding of numbers of this size."""
        return Interval(self.low - SIXTEEN_ROUNDINGS * scale, self.high + SIXTEEN_ROUNDINGS * scale)

    def rise(self, left: Floats, right: Floats) -> Floats:
        """The most that a value with this derivative is above that in the middle, so far to its left and right."""
        most = np.maximum(self.high * right, -self.low * left)
        return np.asarray(np.maximum(most, 0.0) * (1.0 + 2.0 * SIXTEEN_ROUNDINGS))


class Box(NamedTuple):
    """Intervals of q and of r, (parts,) each."""

    q0: Floats
    q1: Floats
    r0: Floats
    r1: Floats

    def of(self, chosen: NDArray[np.bool_] | Ints) -> Box:
        """Those of some parts."""
        return Box(*(side[chosen] for side in self))

    def joined(self, other: Box) -> Box:
        """These parts, then others."""
        return Box(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))

    def middle(self) -> Box:
        """Points halfway, by their logarithms where the ends are far apart."""
        q, r = _middle(self.q0, self.q1), _middle(self.r0, self.r1)
        return Box(q, q, r, r)


def _middle(low: Floats, high: Floats) -> Floats:
    halfway = np.where(high > 4.0 * low, np.sqrt(low * high), 0.5 * (low + high))
    return np.asarray(np.clip(halfway, low, high))


class Enclosure(NamedTuple):
    """Intervals of log h, and of its derivatives by q and by r."""

    value: Interval
    by_q: Interval
    by_r: Interval

    def of(self, chosen: NDArray[np.bool_] | slice) -> Enclosure:
        """Those of some entries."""
        return Enclosure(self.value.of(chosen), self.by_q.of(chosen), self.by_r.of(chosen))


def enclosure(cases: Cases, case: Ints, box: Box) -> Enclosure:
    """Enclose what cases are worth: for each part the case of that number, over its own q and r, with q + r <= 1."""
    ratio, by_q, by_r = _known(cases.known[case], box)
    steps = cases.steps[case]
    for step in range(int(steps.max(initial=0))):
        on = steps > step
        loss = cases.losses[(cases.nearest[case] + step * cases.stride[case])[on]]
        stepped = _stepped(ratio.of(on), by_q.of(on), by_r.of(on), box.of(on), loss)
        for old, new in zip((ratio, by_q, by_r), stepped, strict=True):
            old.low[:, on], old.high[:, on] = new
    low, high = np.log(ratio.low), np.log(ratio.high)
    value = Interval(low[0] - high[1], high[0] - low[1]).outward(np.abs(low).sum(axis=0) + np.abs(high).sum(axis=0))
    return Enclosure(value, _difference(by_q), _difference(by_r))


def _known(known: Ints, box: Box) -> tuple[Interval, Interval, Interval]:
    """P[0,y]/P[1,y], or 1, and the derivatives of its logarithm; two rows, for m and for n."""
    q0, q1, r0, r1 = box

    def choose(zero: Floats, one: Floats, neither: float) -> Floats:
        row = np.where(known == 0, zero, np.where(known == 1, one, neither))
        return np.stack([row, row])

    ratio = Interval(
        choose((1.0 - q1) / r1, q0 / (1.0 - r0), 1.0) * (1.0 - SIXTEEN_ROUNDINGS),
        choose((1.0 - q0) / r0, q1 / (1.0 - r1), 1.0) * (1.0 + SIXTEEN_ROUNDINGS),
    )
    by_q = Interval(choose(-1.0 / (1.0 - q1), 1.0 / q1, 0.0), choose(-1.0 / (1.0 - q0), 1.0 / q0, 0.0))
    by_r = Interval(choose(-1.0 / r0, 1.0 / (1.0 - r0), 0.0), choose(-1.0 / r1, 1.0 / (1.0 - r1), 0.0))
    return ratio, by_q.outward(np.abs(by_q.low) + np.abs(by_q.high)), by_r.outward(np.abs(by_r.low) + np.abs(by_r.high))


def _difference(rows: Interval) -> Interval:
    low, high = rows.low[0] - rows.high[1], rows.high[0] - rows.low[1]
    return Interval(low, high).outward(np.abs(rows.low).max(axis=0) + np.abs(rows.high).max(axis=0))


def _stepped(
    ratio: Interval, by_q: Interval, by_r: Interval, box: Box, losses: Floats
) -> tuple[Interval, Interval, Interval]:
    """One tick: u = G m, or n, to f(u), with the derivatives of its logarithm by q and by r.

    f grows with u, falls with q and r for u >= 1 and grows with them for u <= 1.
    """
    q0, q1, r0, r1 = box
    growth = np.stack([np.exp(losses), np.ones_like(losses)])
    u0, u1 = ratio.low * growth * (1.0 - SIXTEEN_ROUNDINGS), ratio.high * growth * (1.0 + SIXTEEN_ROUNDINGS)
    # With u held fixed: (1-u)/((1-q)u + q) falls with u and q, (1-u)/(ru + 1-r) falls with u and grows with r.
    own_q = Interval((1.0 - u1) / ((1.0 - q1) * u1 + q1), (1.0 - u0) / ((1.0 - q0) * u0 + q0))
    own_r = Interval((1.0 - u1) / (r0 * u1 + (1.0 - r0)), (1.0 - u0) / (r1 * u0 + (1.0 - r1)))
    # By log u: u (1-q-r)/(((1-q)u + q)(ru + 1-r)), which falls with q and r, and has one peak in u.
    peak = np.sqrt(q0 * (1.0 - r0) / ((1.0 - q0) * r0))
    through = Interval(
        np.minimum(_elasticity(u0, q1, r1, -FOUR_ROUNDINGS), _elasticity(u1, q1, r1, -FOUR_ROUNDINGS))
        * (1.0 - SIXTEEN_ROUNDINGS),
        _elasticity(np.clip(peak, u0, u1), q0, r0, FOUR_ROUNDINGS) * (1.0 + SIXTEEN_ROUNDINGS),
    )
    low = np.where(u0 >= 1.0, _image(u0, q1, r1), _image(u0, q0, r0)) * (1.0 - SIXTEEN_ROUNDINGS)
    high = np.where(u1 >= 1.0, _image(u1, q0, r0), _image(u1, q1, r1)) * (1.0 + SIXTEEN_ROUNDINGS)
    return Interval(low, high), _chained(own_q, through, by_q), _chained(own_r, through, by_r)


def _image(u: Floats, q: Floats, r: Floats) -> Floats:
    return np.asarray(((1.0 - q) * u + q) / (r * u + (1.0 - r)))


def _elasticity(u: Floats, q: Floats, r: Floats, error: float) -> Floats:
    return np.asarray(u / ((1.0 - q) * u + q) * (np.maximum(1.0 - q - r + error, 0.0) / (r * u + (1.0 - r))))


def _chained(own: Interval, through: Interval, before: Interval) -> Interval:
    """own + through * before, with through >= 0."""
    low = before.low * np.where(before.low > 0.0, through.low, through.high)
    high = before.high * np.where(before.high > 0.0, through.high, through.low)
    scale = np.abs(own.low) + np.abs(own.high) + np.abs(low) + np.abs(high)
    return Interval(own.low + low, own.high + high).outward(scale)

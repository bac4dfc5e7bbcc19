"""The chain accountant as a device runs it: plain Python, for a few known chains of few states.

It takes the same bounds as the gateway's, for one rate between all pairs of states: quilts, and the limit of the
recursion, which is guessed and then proven by one more step. Floats are rounded outward by margins far above their
error.

Source: docs/privacy.md, "The chain accountant".
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise

from contract.errors import GuaranteeError

__all__ = ["finite_loss", "stationary_law"]

Matrix = list[list[float]]
_UNIT = 2.0**-53
_LONGEST_QUILT = 4096
_MOST_STEPS = 4000
_GUESS_EVERY = 16
_SETTLED = 1e-9
_NEAR = 1e-6
_HAIR = 1e-14
_SMALL = 1e-15
_PIVOTS = 8
_FORGOTTEN = 1e-9
_LARGEST = 300.0


def finite_loss(transitions: Sequence[Sequence[Sequence[float]]], rate: float, *, informed: bool) -> float:
    """Return the epsilon of a stream whose ticks lose at most `rate`, for ever, rounded up.

    Args:
        transitions: The chains, each k x k, irreducible, started stationary.
        rate: Bound >= 0 on the log-likelihood ratio of a tick's outputs between any two states, in nats.
        informed: Whether the adversary may know true states.

    Returns:
        The largest epsilon of all chains, in nats.

    Raises:
        GuaranteeError: No finite bound was found.
    """
    worst = 0.0
    for rows in transitions:
        future = [_law(row) for row in rows]
        law = stationary_law(future)
        past = [_law([law[y] * future[y][x] for y in range(len(law))]) for x in range(len(law))]
        sides = [_side(kernel, rate, informed=informed) for kernel in (future, past)]
        worst = max(worst, rate + _largest(_zip(operator.add, *sides)))
    if not worst < _LARGEST:
        raise GuaranteeError("a chain forgets its past too slowly for a finite guarantee")
    return worst * (1.0 + 1e-12)


def stationary_law(transition: Sequence[Sequence[float]]) -> list[float]:
    """Return the law pi with pi P = pi, to a relative accuracy of some ulps in every state.

    Args:
        transition: k x k, row-stochastic, irreducible.

    Raises:
        GuaranteeError: Some state cannot be reached from another.

    Source: Grassmann, Taksar, Heyman (1985): elimination without subtractions.
    """
    left = [list(row) for row in transition]
    for last in range(len(left) - 1, 0, -1):
        leaving = math.fsum(left[last][:last])
        if leaving <= 0.0:
            raise GuaranteeError("a chain of the class does not visit all its states for ever")
        for x in range(last):
            left[x][last] /= leaving
            for y in range(last):
                left[x][y] += left[x][last] * left[last][y]
    law = [1.0]
    for state in range(1, len(left)):
        law.append(math.fsum(law[x] * left[x][state] for x in range(state)))
    if min(law) <= 0.0:
        raise GuaranteeError("a chain of the class does not visit all its states for ever")
    return _law(law)


def _law(values: Sequence[float]) -> list[float]:
    total = math.fsum(values)
    return [value / total for value in values]


def _side(kernel: Matrix, rate: float, *, informed: bool) -> Matrix:
    """Return what the ticks on one side add, for each pair of states."""
    tables = _influences(kernel, rate)
    quilts = _least([_plus(table, ticks * rate) for ticks, table in enumerate(tables)])
    ignorant = _zip(min, quilts, _limit(kernel, rate))
    if not informed:
        return ignorant
    known = _least([_plus(near, i * rate, _turned(far)) for i, (near, far) in enumerate(pairwise(tables))])
    return _zip(max, ignorant, known)


def _limit(kernel: Matrix, rate: float) -> Matrix:
    """Return R with F(rate + R) <= R, little above the limit of R <- F(rate + R) from 0; infinite if none was found.

    Changes shrink geometrically in the end, so the limit is guessed from the last two, and the guess then proven.
    """
    states = range(len(kernel))
    side = [[0.0 for _ in states] for _ in states]
    found = [[math.inf if x != y else 0.0 for y in states] for x in states]
    last = math.inf
    for count in range(1, _MOST_STEPS + 1):
        before, side = side, _step(kernel, _plus(side, rate))
        changes = _zip(operator.sub, side, before)
        change, reached = _largest(changes), _largest(side)
        if not reached < _LARGEST:
            break
        if count % _GUESS_EVERY == 0 or change <= _SETTLED * reached:
            shrink = min(change / last, 1.0 - 1e-9) if change > 0.0 else 0.0
            far = shrink / (1.0 - shrink)
            guess = [[side[x][y] + far * changes[x][y] for y in states] for x in states]
            raised = _plus(guess, _SETTLED * _largest(guess) + 1e-13)
            if _holds(_step(kernel, _plus(raised, rate)), raised):
                found = _zip(min, found, raised)
                if far * change <= _NEAR * reached:
                    break
        last = change
    return found


def _holds(step: Matrix, bound: Matrix) -> bool:
    return all(a <= b for row, line in zip(step, bound, strict=True) for a, b in zip(row, line, strict=True))


def _influences(kernel: Matrix, rate: float) -> list[Matrix]:
    """Return what the state m ticks away tells of a tick's, for m = 1, 2, ... as far as it may matter."""
    states = range(len(kernel))
    power, tables = kernel, [_influence(kernel, 1)]
    best = _largest(tables[0])
    while len(tables) < _LONGEST_QUILT:
        if len(tables) >= 2 and (len(tables) * rate >= 2.0 * best or _largest(tables[-1]) <= _FORGOTTEN):
            break
        power = [_law([math.fsum(row[w] * kernel[w][y] for w in states) for y in states]) for row in power]
        tables.append(_influence(power, len(tables) + 1))
        best = min(best, len(tables) * rate + _largest(tables[-1]))
    return tables


def _largest(matrix: Matrix) -> float:
    return max(map(max, matrix))


def _zip(choose: Callable[[float, float], float], one: Matrix, other: Matrix) -> Matrix:
    return [[choose(a, b) for a, b in zip(row, line, strict=True)] for row, line in zip(one, other, strict=True)]


def _least(matrices: list[Matrix]) -> Matrix:
    return reduce(lambda one, other: _zip(min, one, other), matrices)


def _plus(matrix: Matrix, amount: float, more: Matrix | None = None) -> Matrix:
    """Return a matrix with an amount, and another matrix, added off the diagonal."""
    size = range(len(matrix))
    return [[(matrix[x][y] + amount + (more[x][y] if more else 0.0)) if x != y else 0.0 for y in size] for x in size]


def _turned(matrix: Matrix) -> Matrix:
    return [list(row) for row in zip(*matrix, strict=True)]


def _influence(laws: Matrix, products: int) -> Matrix:
    """Return max over y of log(laws[x][y] / laws[x'][y]) for every x and x'."""
    margin = (4.0 * len(laws) * products + 32.0) * _UNIT
    size = range(len(laws))
    return [[_log_ratio(laws[x], laws[y]) + margin if x != y else 0.0 for y in size] for x in size]


def _log_ratio(above: list[float], below: list[float]) -> float:
    largest = 1.0
    for a, b in zip(above, below, strict=True):
        if a > largest * b:
            if b == 0.0:
                return math.inf
            largest = a / b
    return math.log(largest)


def _step(kernel: Matrix, bounds: Matrix) -> Matrix:
    """Return bounds on log(K[x].h / K[x'].h) over all h with log h_y / h_z <= bounds[y][z], for every x and x'."""
    states = range(len(kernel))
    for w in states:
        for y in states:
            for z in states:
                bounds[y][z] = min(bounds[y][z], bounds[y][w] + bounds[w][z])
    if _largest(bounds) >= _LARGEST:
        return [[0.0 if x == y else math.inf for y in states] for x in states]
    # Ties between constraints would let the simplex method stand still: a cone larger by a hair has none.
    high = [
        [math.exp(bounds[y][z]) * (1.0 + _HAIR * (1 + (7 * y + 13 * z + 5 * y * z) % 11)) for z in states]
        for y in states
    ]
    margin = (16.0 * len(kernel) + 8.0 * len(kernel) * _largest(bounds) + 64.0) * _UNIT
    return [[0.0 if x == other else _most(kernel[x], kernel[other], high) + margin for other in states] for x in states]


def _most(above: list[float], below: list[float], high: Matrix) -> float:
    """Return the largest log(above.h / below.h) over all h > 0 with h_y <= high[y][z] h_z, or a bound on it.

    The simplex method on spanning trees of tight constraints h_u = high[u][v] h_v. With c = above - ratio * below, the
    dual solution of a tree has an amount for each edge; none is negative at the maximum. A negative one proves the
    ratio raised by its size times high[u][v] times the largest of `high`, so every vertex gives a bound.
    """
    size = len(above)
    largest, best = _largest(high), math.inf
    edges = [(state, 0) for state in range(1, size)]
    for _ in range(_PIVOTS * size):
        order, via, ray = _rooted(edges, high)
        ratio = _dot(above, ray) / _dot(below, ray)
        left = [a - ratio * b for a, b in zip(above, below, strict=True)]
        worst, cut, missing, moved = 0.0, -1, 0.0, 0.0
        for state in reversed(order[1:]):
            u, v = edges[via[state]]
            moved += abs(left[state])
            flow = left[state] if state == u else -left[state] / high[u][v]
            left[v if state == u else u] += flow * high[u][v] if state == u else -flow
            if flow < 0.0:
                missing -= flow * high[u][v]
                if flow * ray[u] < worst:
                    worst, cut = flow * ray[u], state
        # What rounding leaves unbalanced, at the root above all, counts like a negative amount.
        missing += max(left[0], 0.0) + 4.0 * size * _UNIT * (moved + abs(left[0]))
        best = min(best, ratio + missing * largest)
        if cut < 0 or -worst <= _SMALL * _dot(above, ray):
            break
        edges[via[cut]] = _entering(edges, order, via, cut, ray, high)
    return math.log(max(best, 1.0))


def _rooted(edges: list[tuple[int, int]], high: Matrix) -> tuple[list[int], list[int], list[float]]:
    """Return the states of a tree from state 0 outward, the edge that leads to each, and the ray."""
    order, via, ray = [0], [-1] * len(high), [1.0] * len(high)
    reached = {0}
    while len(order) < len(high):
        for index, (u, v) in enumerate(edges):
            if (u in reached) != (v in reached):
                state = v if u in reached else u
                ray[state] = ray[u] / high[u][v] if state == v else ray[v] * high[u][v]
                via[state] = index
                order.append(state)
                reached.add(state)
    return order, via, ray


def _entering(
    edges: list[tuple[int, int]], order: list[int], via: list[int], cut: int, ray: list[float], high: Matrix
) -> tuple[int, int]:
    """Cut the edge that leads to a state, scale the part that holds its upper end down, and return what gets tight."""
    part = {cut}
    for state in order[1:]:
        u, v = edges[via[state]]
        if state != cut and (v if state == u else u) in part:
            part.add(state)
    upper = edges[via[cut]][0]
    down = part if upper in part else set(order) - part
    return max(
        ((y, z) for y in order if y not in down for z in down),
        key=lambda pair: ray[pair[0]] / (high[pair[0]][pair[1]] * ray[pair[1]]),
    )


def _dot(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))

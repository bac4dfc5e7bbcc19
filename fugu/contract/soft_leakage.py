"""The leakage of known chains to those who may have any side information about the states that they show.

Evidence on single ticks weighs the states of a tick; two states y and z are the worst to have weights, and those are in
closed form, with the odds ratio a = P[x,y] P[x',z] / (P[x,z] P[x',y]): the ratio of two means of h with h_y = u h_z is
at most ((sqrt(a u) + 1) / (sqrt(a) + sqrt(u)))^2. Source: docs/proofs/joint-streams.md, "Streams that move together".
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import combinations, product

from fugu.contract.errors import GuaranteeError
from fugu.contract.finite_leakage import limit, of_secrets, refuse_large, summed
from fugu.contract.inner_maximum import LARGEST, Matrix, Work, closed, unbounded
from fugu.contract.rounding import HAIR, OUTWARD, UNIT

__all__ = ["informed_loss", "soft_loss"]

_LEAST = 1e-120
"""Of a step: products of two such are still floats with all their digits."""
_MOST_WORK = 100_000_000
"""Pairs of states that are looked at, one for each two states and each tick."""

Odds = list[tuple[int, int, list[tuple[int, int, float]]]]
"""For two rows each the columns y and z with the root of their odds ratio, at least 1; infinite where one excludes."""


def informed_loss(
    transitions: Sequence[Matrix], rates: Matrix, shows: Sequence[tuple[int, ...]], of_whole: Callable[[], float]
) -> float:
    """Return what streams lose in nats to those who know true states of them, for ever, rounded up.

    They know all states of some streams, and any of the others; or of no stream all, and then at some ticks the states
    of all. That is at most what side information of every kind tells, which counts where states of the chain show alike
    or there is one stream: then single readings are known, not states of the chain.
    `transitions` and `rates` are as for `soft_loss`; `shows` is for each state what it shows of each stream; `of_whole`
    is what those learn who know states of the chain, or a GuaranteeError. GuaranteeError: no finite bound was found.
    """
    columns = sorted(set(zip(*shows, strict=True)))
    found = []
    with suppress(GuaranteeError):
        found.append(soft_loss(transitions, rates))
    if len(set(shows)) == len(shows) and len(columns) > 1:
        with suppress(GuaranteeError):
            work = Work(_MOST_WORK)
            subsets = [c for size in range(1, len(columns)) for c in combinations(columns, size)]
            known = [soft_loss(transitions, rates, list(zip(*each, strict=True)), work) for each in subsets]
            found.append(max(of_whole(), *known))
    if not found:
        raise GuaranteeError("no finite guarantee against those who know states was found")
    return min(found)


def soft_loss(
    transitions: Sequence[Matrix],
    rates: Matrix,
    known: Sequence[tuple[int, ...]] | None = None,
    work: Work | None = None,
) -> float:
    """Return what streams lose in nats to those with any side information, from any start, for ever, rounded up.

    Args:
        transitions: k x k each, irreducible; every step is of one of them, and they may take turns.
        rates: k x k, bounds >= 0 on what the outputs of a tick tell of any two states, in nats; states without a rate
            between them show the same, and nothing but what states show is a secret, or can be known.
        known: What each state shows of streams that are known at every tick, beside side information of any kind on the
            others; `None` if there are no such streams.
        work: What the check may still cost, if other checks share that. GuaranteeError: no finite bound was found.
    """
    refuse_large(rates)
    rarest = min(p for matrix in transitions for row in matrix for p in row if p > 0.0)
    if rarest < _LEAST:
        raise GuaranteeError(f"a step of probability {rarest:g} is too rare for a finite guarantee")
    before, nothing = None if known else _before(transitions, rates), [[0.0 for _ in row] for row in rates]
    kernels = [list(map(list, matrix)) for matrix in transitions]
    if before is None:
        before = nothing
    else:
        kernels = [_product(one, other) for one in kernels for other in kernels]
    work, secrets = work or Work(_MOST_WORK), rates
    if known:
        rows = [list(zip(known, row, strict=True)) for row in rates]
        secrets, rates = (
            [[rate if a == b else apart for b, rate in row] for a, row in zip(known, rows, strict=True)]
            for apart in (0.0, math.inf)
        )
    future = _endless(kernels, summed(before, rates), nothing, work)
    past = _endless([[list(column) for column in zip(*one, strict=True)] for one in kernels], rates, before, work)
    worst = of_secrets(secrets, future, past)
    if not worst < LARGEST:
        raise GuaranteeError(
            "known states leave no finite guarantee: the chain has impossible steps, or hardly ever changes"
        )
    return worst * (1.0 + OUTWARD)


def _before(transitions: Sequence[Matrix], rates: Matrix) -> Matrix | None:
    """Return what a tick tells of any two states of the next one, if each can follow only states that show the same.

    Then two ticks make one step: what the first of them showed is told by the state that follows it. A chain of order 2
    has impossible steps, and only two of its steps contract.
    """
    states = range(len(rates))
    past = [[x for x in states if any(matrix[x][y] > 0.0 for matrix in transitions)] for y in states]
    if any(rates[x][other] > 0.0 for each in past for x in each for other in each):
        return None
    return [[rates[past[y][0]][past[z][0]] for z in states] for y in states]


def _product(one: Matrix, other: Matrix) -> Matrix:
    return [[math.fsum(map(operator.mul, row, column)) for column in zip(*other, strict=True)] for row in one]


def _endless(kernels: Sequence[Matrix], near: Matrix, nearer: Matrix, work: Work) -> Matrix:
    """Return the leakage R = nearer + U(near + R) of the worst kernels, where U is the step of the worst weights."""
    tables = [odds_table(kernel, near) for kernel in kernels]
    return limit(lambda leakage: summed(nearer, worst_weights(tables, summed(near, leakage), work)), near, work)


def odds_table(kernel: Matrix, near: Matrix) -> Odds:
    """Return the table of a kernel, without states that are known apart: their rate is infinite."""
    states = range(len(kernel))
    table: Odds = []
    for x in states:
        for other in range(x):
            if near[x][other] == math.inf:
                continue
            one, two, columns = kernel[x], kernel[other], []
            for y, z in product(states, repeat=2):
                high, low = one[y] * two[z], one[z] * two[y]
                if near[y][z] < math.inf and (high > low or (high == low > 0.0 and y > z)):
                    root = math.sqrt(one[y] / one[z]) * math.sqrt(two[z] / two[y]) if low > 0.0 else math.inf
                    columns.append((y, z, max(1.0, root * (1.0 + HAIR))))
            table.append((x, other, columns))
    return table


def worst_weights(tables: Sequence[Odds], bounds: Matrix, work: Work) -> Matrix:
    """Return bounds on the logarithm of the ratio of the means of h in any two rows, under the worst weights."""
    bounds = closed(bounds)
    most = max(bound for row in bounds for bound in row if bound < math.inf)
    if most >= LARGEST:
        return unbounded(bounds)
    high = [[math.exp(bound / 2.0) for bound in row] for row in bounds]
    margin = (64.0 + 8.0 * most) * UNIT
    result = [[0.0 for _ in row] for row in bounds]
    for table in tables:
        for x, other, columns in table:
            work.pivots -= len(columns)
            forward = backward = 1.0
            for y, z, root in columns:
                up, down = high[y][z], high[z][y]
                if root < math.inf:
                    up, down = (root * up + 1.0) / (root + up), (root * down + 1.0) / (root + down)
                forward, backward = max(forward, up), max(backward, down)
            result[x][other] = max(result[x][other], 2.0 * math.log(forward) + margin)
            result[other][x] = max(result[other][x], 2.0 * math.log(backward) + margin)
    return result

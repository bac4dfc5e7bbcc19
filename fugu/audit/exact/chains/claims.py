"""Known chains: what each adversary learns of a tick from all ticks, before it and after it.

The past is the future of the chain that runs backward, K[x][y] = distribution[y] P[y][x] / distribution[x].
Proofs: docs/proofs/second-certificate.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from fractions import Fraction
from functools import partial
from itertools import combinations
from operator import mul
from typing import Any

from fugu.audit.exact import claims
from fugu.audit.exact.binary import odds_leakage, odds_ratio_loss
from fugu.audit.exact.chains.leakage import (
    LIMIT,
    Kernel,
    Matrix,
    Rows,
    each,
    followed,
    limit,
    quilts,
    soft_step,
    times,
    turned,
)
from fugu.audit.exact.numbers import ONE, NotRecomputed, ceil_of, exp_up
from fugu.audit.exact.points import joined

__all__ = ["recompute", "stream_loss"]

_FEW = 12
"""States, up to which known states and other starts are followed tick by tick."""


def known_odds(chain: Rows) -> Fraction | None:
    """The largest P[x][y] P[x'][y'] / (P[x][y'] P[x'][y]); none if a step is impossible."""
    rows = [[Fraction(p) for p in row] for row in chain]
    if not all(p for row in rows for p in row):
        return None
    quotients = [[p / s for p, s in zip(a, b, strict=True)] for a in rows for b in rows]
    return max(max(row) / min(row) for row in quotients)


def least_loss(chains: Sequence[Rows], most: Fraction, loss: Callable[[], Fraction]) -> Fraction:
    """The less of the bound by odds ratios, if no step is impossible, and of another, if there is one."""
    odds = [known_odds(chain) for chain in chains]
    found = [odds_ratio_loss(max(one for one in odds if one), most)] if all(odds) else []
    with suppress(NotRecomputed) if found else nullcontext():
        found.append(loss())
    return min(found)


def stationary(chain: Rows) -> list[Fraction]:
    """The distribution with distribution P = distribution, by elimination; the last equation says that it sums to 1."""
    k = len(chain)
    rows = [[Fraction(chain[y][x]) - (x == y) for y in range(k)] + [Fraction(0)] for x in range(k - 1)]
    rows.append([Fraction(1)] * (k + 1))
    for i in range(k):
        rows[i:] = sorted(rows[i:], key=lambda row: row[i] == 0)
        if not rows[i][i]:
            raise NotRecomputed("a chain with more than one stationary distribution")
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in {*range(k)} - {i}:
            rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [row[k] for row in rows]


def known_loss(chain: Rows, tick: Rows, adversary: str, start: Any = None, *, bridges: bool = True) -> Fraction:
    """At least the e^epsilon of an endless stream; two states for which a tick has the ratio 1 are no secret.

    It starts with a distribution, "any", or None, if it has run for ever. With `bridges` known states are followed tick
    by tick.
    """
    if adversary == "universal":
        raise NotRecomputed("known chains with impossible steps, and the universal adversary")
    future = [[Fraction(p) / sum(Fraction(s) for s in row) for p in row] for row in chain]
    distribution = stationary(future)
    keep = [x for x in range(len(distribution)) if distribution[x]]
    if len(keep) < len(distribution):  # a chain that has run for ever is in no other state
        if start is not None:
            raise NotRecomputed("a start in states that are never returned to")
        inside, bounds = ([[rows[x][y] for y in keep] for x in keep] for rows in (future, tick))
        return known_loss(inside, bounds, adversary, bridges=bridges)
    past = [[distribution[y] * future[y][x] / distribution[x] for y in keep] for x in keep]
    if start not in (None, "any"):  # a density by the stationary distribution, at most 1
        density = [Fraction(p) / q for p, q in zip(start, distribution, strict=True)]
        start = [ceil_of(value / max(density)) for value in density]
    kinds = ((Kernel(future), None), (Kernel(past), start))
    return _of_secrets(tick, *(_leakage(kernel, tick, one, adversary == "informed", bridges) for kernel, one in kinds))


def _leakage(kernel: Kernel, tick: Rows, start: Any, informed: bool, bridges: bool) -> Matrix:
    most, few = max(map(max, tick)), len(tick) <= _FEW
    quilt = quilts(kernel, most, lambda paid, near, _: each(partial(times, paid), near))
    ignorant = limit(lambda leakage, proof: each(min, quilt, kernel.step(each(times, tick, leakage), proof)), len(tick))
    leakage = ignorant
    if start is not None:
        leakage = quilts(kernel, most, lambda paid, near, _: each(lambda _: _any_start(near, most, paid), near))
        distributions = [start] if start != "any" else [[ONE * (x == y) for y in kernel.size] for x in kernel.size]
        if few:
            leakage = each(
                min, leakage, followed(kernel, tick, distributions, (leakage, quilt, ignorant), start == "any")
            )
    if informed and start != "any":  # a state that is known is a start
        known = quilts(kernel, most, lambda paid, near, far: each(partial(times, paid), near, turned(far)))
        if few and bridges:
            ends = [followed(kernel, tick, [one], (known, quilt, ignorant), False) for one in turned(kernel.up)]
            known = each(min, known, each(lambda *values: max(values), *ends))
        leakage = each(max, leakage, known)
    return leakage


def _any_start(told: Matrix, most: int, paid: int) -> int:
    odds = max(map(max, each(times, told, turned(told))))
    return min(odds_leakage(odds, most, paid), LIMIT) if max(odds, paid) < LIMIT else LIMIT


def _of_secrets(tick: Rows, *leakages: Matrix) -> Fraction:
    loss = max(map(max, each(lambda one, *both: times(one, *both) if one > ONE else ONE, tick, *leakages)))
    if loss >= LIMIT:
        raise NotRecomputed("known chains that never forget, or too slowly for a bound")
    return Fraction(loss, ONE)


def joint_loss(chains: Sequence[Rows], tick: Matrix, shows: Rows, adversary: str) -> Fraction:
    """At least the e^epsilon of all streams that the states of a chain show.

    The universal have any evidence on the states of any ticks. The informed know all states of some streams, and have
    any evidence on the others; or know at some ticks the states of the chain, if these are the states of the streams.
    """
    if adversary == "ignorant":
        return max(known_loss(chain, tick, adversary) for chain in chains)
    columns, every = sorted({*zip(*shows, strict=True)}), _soft_loss(chains, tick, [()] * len(tick))
    if adversary == "universal" or len(columns) == 1 or len({*map(tuple, shows)}) < len(shows):
        return every
    some = [one for size in range(1, len(columns)) for one in combinations(columns, size)]
    least = max(_soft_loss(chains, tick, list(zip(*one, strict=True))) for one in some)
    for bridges in (False, True) if least < every else ():  # quilts are quick, and may do
        with suppress(NotRecomputed):
            whole = max(known_loss(chain, tick, adversary, bridges=bridges) for chain in chains)
            if bridges or whole <= least:
                return min(every, max(least, whole))
    return every


def _soft_loss(chains: Sequence[Rows], tick: Matrix, known: Sequence[Any]) -> Fraction:
    """At least the e^epsilon for any evidence on states that show the same of streams that are known at all ticks."""
    kernels, size = [[[Fraction(p) for p in row] for row in chain] for chain in chains], range(len(tick))
    before = [[x for x in size if any(rows[x][y] for rows in kernels)] for y in size]
    nothing = each(lambda _: ONE, tick)
    told = nothing
    if not known[0] and all(tick[x][y] == ONE for past in before for x in past for y in past):
        # a state tells what the one before it showed: that counts with it, and two ticks are one step
        told = [[tick[x[0]][y[0]] for y in before] for x in before]
        kernels = [
            [[sum(map(mul, row, column), Fraction(0)) for column in turned(two)] for row in one]
            for one in kernels
            for two in kernels
        ]
    future = _soft_leakage([Kernel(rows).soft(known) for rows in kernels], each(times, told, tick), nothing)
    past = _soft_leakage([Kernel(turned(rows)).soft(known) for rows in kernels], tick, told)
    secret = [[one if known[x] == known[y] else ONE for y, one in enumerate(row)] for x, row in enumerate(tick)]
    return _of_secrets(secret, future, past)


def _soft_leakage(tables: Sequence[Any], tick: Matrix, nearer: Matrix) -> Matrix:
    def step(leakage: Matrix, _: bool) -> Matrix:
        wide = each(times, tick, leakage)
        return each(lambda near, *steps: times(near, max(steps)), nearer, *(soft_step(table, wide) for table in tables))

    return limit(step, len(tick))


def all_points_loss(policy: Mapping[str, Any]) -> Fraction:
    """At least the e^epsilon that a policy claims in `stream_loss`."""
    if policy.get("changes"):
        raise NotRecomputed("steps that change with time: of them nothing is claimed of all points")
    start, adversary, initial = policy["stream_loss"]["start"], policy["stream_loss"]["adversary"], policy["initial"]
    chain = [[dict(row).get(y, 0) for y in range(len(initial))] for row in policy["transition"]]
    first = stationary(chain) if start == "stationary" else initial if start == "given" else [1] * len(initial)
    if any(p and not possible for p, possible in zip(first, initial, strict=True)):
        raise NotRecomputed("a start in states that the policy takes for impossible")
    accepted, shows = _accepted(policy), policy.get("shows") or range(len(initial))
    told = [exp_up(Fraction(policy["epsilon"]) * count) for count in range(max(map(max, accepted)) + 1)]
    tick = [[ceil_of(told[accepted[x][y]]) for y in shows] for x in shows]
    begins = {"stationary": None, "any": "any", "given": initial}[start]
    return least_loss([chain], told[-1], lambda: known_loss(chain, tick, adversary, begins))


def _accepted(policy: Mapping[str, Any]) -> list[list[int]]:
    """How many epsilons a table may tell of two states: one for each edge between them, and at most the factor."""
    graph, states = joined(policy), range(len(policy["coordinates"]))
    most, seen = [[int(x != y) for y in states] for x in states], []
    possible = {x for x, p in enumerate(policy["initial"]) if p}
    while possible not in seen:
        seen.append(possible)
        shown = {policy["shows"][x] for x in possible} if policy.get("shows") else possible
        for x in shown:
            reached = {x}
            for edges in range(1, policy["factor"] + 1):
                for y in shown - reached:
                    most[x][y] = max(most[x][y], edges)
                reached |= shown & set().union(*(graph[y] for y in reached))
        possible = {y for x in possible for y, _ in policy["transition"][x]}
    return most


def recompute(policy: Mapping[str, Any]) -> list[claims.Claim]:
    """All claims of a policy, see `fugu.audit.exact`."""
    return claims.recompute(policy, chains_loss, all_points_loss)


def stream_loss(chains: Mapping[str, Any], most: claims.Ratios, adversary: str) -> Fraction:
    """At least the loss of an endless stream, see `fugu.audit.exact`."""
    return claims.stream_loss(chains, most, adversary, chains_loss)


def chains_loss(chains: Mapping[str, Any], most: Fraction, adversary: str) -> Fraction:
    """At least the e^epsilon of known chains, `most` bounding the ratio of a tick's outputs if they are not joint."""
    known, shows = chains["transitions"], chains.get("shows") or [(x,) for x in range(len(chains["transitions"][0]))]
    told = [exp_up(Fraction(one["rate"])) for one in chains["streams"]] if chains["kind"] == "joint" else [most]
    tick = [[Fraction(1) for _ in shows] for _ in shows]
    for x, y in ((x, y) for x in range(len(shows)) for y in range(len(shows))):
        for ratio, a, b in zip(told, shows[x], shows[y], strict=True):
            tick[x][y] *= ratio if a != b else 1
    bounds = [[ceil_of(value) for value in row] for row in tick]

    def loss() -> Fraction:
        if chains["kind"] == "joint":
            return joint_loss(known, bounds, shows, adversary)
        return max(known_loss(chain, bounds, adversary) for chain in known)

    return least_loss(known, max(map(max, tick)), loss)

"""All points of a stream, by its chain: what each adversary learns of a tick from all ticks, before it and after it.

The past is the future of the chain that runs backward, K[x][y] = distribution[y] P[y][x] / distribution[x].
Proofs: docs/proofs/second-certificate.md.

The leakage of all ticks on one side of a tick about its state, for a known chain of k states.

A matrix holds bounds on a ratio of likelihoods for any two states, as integers in units of 2^-192 that are rounded up.
From LIMIT on they count as infinite. Given the states ticks are independent, and tick[x][y] bounds the ratio for what
one of them tells; leakage[x][y] bounds it for all ticks on one side. One tick more makes of it the largest (K[x] . h) /
(K[y] . h) of all h >= 0 with h[a] <= tick[a][b] leakage[a][b] h[b], where the kernel K leads to that tick. What
`fugu.audit.exact.guesses` says is only tried: what is returned is proven here, in integers, or it is infinite. Proofs:
docs/proofs/second-certificate.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from fractions import Fraction
from functools import partial
from operator import mul
from typing import Any

from fugu.audit.exact import claims
from fugu.audit.exact.binary import odds_leakage, odds_ratio_loss
from fugu.audit.exact.guesses import guessed_limit, guessed_ratio, useful_distances
from fugu.audit.exact.numbers import BITS, ONE, NotRecomputed, ceil_of, exp_up, sqrt_of
from fugu.audit.exact.points import joined

__all__ = ["known_loss", "recompute"]

Matrix = list[list[int]]
Rows = Sequence[Sequence[Any]]
Step = Callable[[Matrix, bool], Matrix]
LIMIT = ONE << 400
_MOST_FOLLOWED = 4097
_SLACKS = (1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 3e-9, 1e-8)


def each(function: Callable[..., int], *matrices: Rows) -> Matrix:
    """A function of the entries of matrices; 1 on the diagonal."""
    rows = enumerate(zip(*matrices, strict=True))
    return [[function(*v) if x != y else ONE for y, v in enumerate(zip(*row, strict=True))] for x, row in rows]


def times(*values: int) -> int:
    """The product of ratios."""
    product = ONE
    for value in values:
        product = min(-(-product * value >> BITS), LIMIT)
    return product


def turned(matrix: Rows) -> list[list[Any]]:
    """The transpose."""
    return [list(column) for column in zip(*matrix, strict=True)]


class Kernel:
    """Probabilities, k x k; `up` are too large by less than a unit, and 0 only where a step is impossible."""

    def __init__(self, rows: Rows) -> None:
        self.size = range(len(rows))
        self.up = [[ceil_of(p) for p in row] for row in rows]
        self.rough = [[float(p) for p in row] for row in rows]

    def step(self, wide: Matrix, proof: bool) -> Matrix:
        """The largest (K[x] . h) / (K[y] . h) for h[a] <= wide[a][b] h[b]; without proof only a guess."""
        rough = [[value / ONE for value in row] for row in wide]
        return [[self._largest(x, y, wide, rough, proof) if x != y else ONE for y in self.size] for x in self.size]

    def _largest(self, x: int, y: int, wide: Matrix, rough: Rows, proof: bool) -> int:
        """Amounts f[a,b] >= 0 with K[x] <= ratio K[y] + sum of f[a,b] (e_a - wide[a][b] e_b) prove a ratio.

        Where that fails by an excess > 0 of a state a, h[a] <= wide[a][b] h[b] and K[y][b] h[b] <= K[y] . h for any b.
        """
        above, below = self.up[x], [max(p - 1, 0) for p in self.up[y]]
        at = [z for z in self.size if above[z] or self.up[y][z]]
        row, other = ([self.rough[state][z] for z in at] for state in (x, y))
        guess, flow = guessed_ratio(row, other, [[rough[a][b] for b in at] for a in at], LIMIT / ONE)
        ratio = int(min(guess, LIMIT / ONE) * ONE)
        if not proof or ratio == LIMIT:
            return ratio
        excess = {z: above[z] - (ratio * below[z] >> BITS) for z in at}
        for a, b, share in flow:
            amount = max(int(share * ONE), 0)
            excess[at[a]] -= amount
            excess[at[b]] -= -amount * wide[at[a]][at[b]] >> BITS
        for a, more in excess.items():
            if more > 0:
                ratio += min((-(-more * wide[a][b] // below[b]) for b in at if below[b]), default=LIMIT)
        return min(ratio, LIMIT)

    def tick_ratios(self, n: int) -> Matrix:
        """The largest K^n[x][z] / K^n[y][z]; `error` is how much too large an entry can be."""
        power, error = self.up, 1
        for bit in bin(n)[3:]:
            power, error = _product(power, power), (len(power) + 2) * 2 * error
            if bit == "1":
                power, error = _product(power, self.up), (len(power) + 2) * (error + 1)
        return _ratios(turned(power), error)

    def soft(self) -> list[tuple[int, int, int, int, int]]:
        """x, y, a, b and the root of K[x][a] K[y][b] / (K[x][b] K[y][a]), at least 1."""
        pairs = [(x, y) for x in self.size for y in self.size if x != y]
        steps = []
        for x, y, a, b in ((x, y, a, b) for x, y in pairs if x > y for a, b in pairs):
            high = self.up[x][a] * self.up[y][b]
            low = max(self.up[x][b] - 1, 0) * max(self.up[y][a] - 1, 0)
            if high > low:
                steps.append((x, y, a, b, sqrt_of(-(-high * ONE // low)) if low else LIMIT))
        return steps


def soft_step(odds: Sequence[tuple[int, int, int, int, int]], wide: Matrix) -> Matrix:
    """One tick more for whoever has any evidence on single states: its columns are weighted, two of them at worst."""
    ratios = each(lambda _: ONE, wide)
    for x, y, a, b, root in odds:
        for row, column, high in ((x, y, sqrt_of(wide[a][b])), (y, x, sqrt_of(wide[b][a]))):
            ratio = -(-(root * high + ONE * ONE) // (root + high)) if root < LIMIT else high
            ratios[row][column] = max(ratios[row][column], times(ratio, ratio))
    return ratios


def _of_two(kernel: Kernel, wide: Matrix, apart: Matrix) -> Matrix:
    """The same for two states whose weights have ratios w within those of distributions: rises with w, then falls."""
    ratios = soft_step(kernel.soft(), wide)
    for x, a in ((0, 0), (0, 1), (1, 0), (1, 1)):
        u, low, high = (Fraction(*v) for v in ((wide[a][1 - a], ONE), (ONE, apart[1 - a][a]), (apart[a][1 - a], ONE)))
        (p, q), (r, s) = ((row[a], row[1 - a]) for row in (kernel.up[x], kernel.up[1 - x]))
        if p * s > q * r and not low**2 * p * r * u < q * s < high**2 * p * r * u:
            ends = [(p * w * u + q) * (r * w + s) / ((p * w + q) * (r * w * u + s)) for w in (low, high)]
            least = min(v for v in (p, q, r, s) if v)  # a probability is too large by one unit at most
            margin = 1 + Fraction(1, max(least >> 8, 1))
            ratios[x][1 - x] = min(ratios[x][1 - x], ceil_of(max(Fraction(1), *ends) * margin))
    return ratios


def _product(rows: Rows, other: Rows) -> Matrix:
    columns = turned(other)
    return [[-(-sum(map(mul, row, column)) >> BITS) for column in columns] for row in rows]


def _ratios(distributions: Rows, error: int) -> Matrix:
    """The largest n[x] / n[y] of distributions whose entries are too large by so much; 0 where n[x] is always 0."""

    def ratio(a: int, b: int) -> int:
        return min(-(-a * ONE // (b - error)), LIMIT) if b > error else LIMIT * (a > 0)

    columns = turned(distributions)
    return [[max(map(ratio, x, y)) for y in columns] for x in columns]


def limit(step: Step, size: int) -> Matrix:
    """At least the limit of leakage <- step(leakage) from 1."""
    return _proven(step, guessed_limit(lambda leakage: step(leakage, False), ONE, size, LIMIT), _SLACKS)[0]


def _proven(step: Step, leakage: Matrix, slacks: Sequence[float]) -> tuple[Matrix, float]:
    """At least all that steps make of 1, and by which slack: a leakage raised by that is no larger steps later."""
    for slack in slacks if max(map(max, leakage)) < LIMIT else ():
        raised = each(lambda value, more=1 + slack: max(ONE, ceil_of(Fraction(value, ONE) * Fraction(more))), leakage)
        top = longer = raised
        for _ in range(3):
            longer = step(longer, True)
            if each(max, longer, raised) == raised:
                return top, slack
            top = each(max, top, longer)
    return each(lambda _: LIMIT, leakage), math.inf


def quilts(kernel: Kernel, most: int, worth: Callable[[int, Matrix, Matrix], Matrix]) -> Matrix:
    """The least worth over some n: of what n - 1 ticks can tell, and what states n and n + 1 ticks away tell."""
    quilt, paid = each(lambda _: LIMIT, kernel.up), [ONE]

    def all_told(n: int) -> int:
        while len(paid) < n:
            paid.append(times(paid[-1], most))
        return paid[n - 1]

    for n in useful_distances(kernel.rough, all_told, worth, ONE, LIMIT):
        quilt = each(min, quilt, worth(all_told(n), kernel.tick_ratios(n), kernel.tick_ratios(n + 1)))
    return quilt


def followed(kernel: Kernel, tick: Rows, distributions: Rows, bounds: Sequence[Matrix], any_of: bool) -> Matrix:
    """At least the leakages of every length at whose end a state y is n[y] times as likely, whatever ticks tell.

    n is one of some distributions, or of their hull (`any_of`). With a hull any evidence on the states tells no less,
    as in `soft_step`; a known state is a column of the kernel. `bounds` hold for all of these; by quilts, and by all
    means, for those at whose end nothing is known. One tick more makes K n of n. What is bounded is the ratio of h[a]
    n[a] and h[b] n[b]; what K n alone tells is taken out after the step. Once n is constant up to a factor, all later
    ones are.
    """
    (cap, quilt, ignorant), odds = bounds, kernel.soft() if any_of else []
    leakage = worst = each(lambda _: ONE, tick)
    error, apart = 1, _ratios(distributions, 1)
    for ticks in range(1, _MOST_FOLLOWED):
        before = each(times, tick, leakage)
        longer, within = kernel.step(each(times, before, apart), True), apart
        distributions, error = _product(distributions, turned(kernel.up)), error + len(tick) + 2
        apart, dead = _ratios(distributions, error), [not any(distribution) for distribution in turned(distributions)]
        walked = [soft_step(odds, before) if len(tick) > 2 else _of_two(kernel, before, within)] if any_of else []
        leakage = each(min, each(times, longer, turned(apart)), cap, *walked)
        leakage = [[ONE if dead[x] or dead[y] else v for y, v in enumerate(row)] for x, row in enumerate(leakage)]
        worst, off = each(max, worst, leakage), max(map(max, apart))
        if max(map(max, leakage)) >= LIMIT:
            break
        if ticks > 3 and ticks & (ticks - 1) == 0 and off < LIMIT:

            def further(leakage: Matrix, proof: bool, off: int = off) -> Matrix:
                longer = kernel.step(each(partial(times, off), tick, leakage), proof)
                return each(lambda a, b, most: min(times(min(a, b), off), most), longer, quilt, cap)

            tail, slack = _proven(further, each(max, leakage, ignorant), (*_SLACKS, 1e-6, 1e-4, 1e-2))
            if slack <= _SLACKS[-1] or each(max, worst, tail) == worst:
                return each(max, worst, tail)
    return each(lambda _: LIMIT, tick)


_FEW = 12
"""States, up to which known states and other starts are followed tick by tick."""


def known_odds(chain: Rows) -> Fraction | None:
    """The largest P[x][y] P[x'][y'] / (P[x][y'] P[x'][y]); none if a step is impossible."""
    rows = [[Fraction(p) for p in row] for row in chain]
    if not all(p for row in rows for p in row):
        return None
    quotients = [[p / s for p, s in zip(a, b, strict=True)] for a in rows for b in rows]
    return max(max(row) / min(row) for row in quotients)


def least_loss(chain: Rows, most: Fraction, loss: Callable[[], Fraction]) -> Fraction:
    """The less of the bound by odds ratios, if no step is impossible, and of another, if there is one."""
    odds = known_odds(chain)
    losses = [odds_ratio_loss(odds, most)] if odds else []
    with suppress(NotRecomputed) if losses else nullcontext():
        losses.append(loss())
    return min(losses)


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


def known_loss(chain: Rows, tick: Rows, adversary: str, start: Any = None) -> Fraction:
    """At least the e^epsilon of an endless stream; two states for which a tick has the ratio 1 are no secret.

    It starts with a distribution, "any", or None, if it has run for ever.
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
        return known_loss(inside, bounds, adversary)
    past = [[distribution[y] * future[y][x] / distribution[x] for y in keep] for x in keep]
    if start not in (None, "any"):  # a density by the stationary distribution, at most 1
        density = [Fraction(p) / q for p, q in zip(start, distribution, strict=True)]
        start = [ceil_of(value / max(density)) for value in density]
    kinds = ((Kernel(future), None), (Kernel(past), start))
    return _of_secrets(
        tick, *(_leakage(kernel, tick, most_quilts, adversary == "informed") for kernel, most_quilts in kinds)
    )


def _leakage(kernel: Kernel, tick: Rows, start: Any, informed: bool) -> Matrix:
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
        near = quilts(kernel, most, lambda paid, near, far: each(partial(times, paid), near, turned(far)))
        if few:
            ends = [followed(kernel, tick, [one_end], (near, quilt, ignorant), False) for one_end in turned(kernel.up)]
            near = each(min, near, each(lambda *values: max(values), *ends))
        leakage = each(max, leakage, near)
    return leakage


def _any_start(leaks: Matrix, most: int, paid: int) -> int:
    odds = max(map(max, each(times, leaks, turned(leaks))))
    return min(odds_leakage(odds, most, paid), LIMIT) if max(odds, paid) < LIMIT else LIMIT


def _of_secrets(tick: Rows, *leakages: Matrix) -> Fraction:
    loss = max(map(max, each(lambda ratio, *both: times(ratio, *both) if ratio > ONE else ONE, tick, *leakages)))
    if loss >= LIMIT:
        raise NotRecomputed("known chains that never forget, or too slowly for a bound")
    return Fraction(loss, ONE)


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
    ratios = [exp_up(Fraction(policy["epsilon"]) * count) for count in range(max(map(max, accepted)) + 1)]
    tick = [[ceil_of(ratios[accepted[x][y]]) for y in shows] for x in shows]
    begins = {"stationary": None, "any": "any", "given": initial}[start]
    return least_loss(chain, ratios[-1], lambda: known_loss(chain, tick, adversary, begins))


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
    return claims.recompute(policy, all_points_loss)

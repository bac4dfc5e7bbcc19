"""Recompute the loss of all points of a stream by its chain: about one tick, from all ticks before and after it.

The past is the future of the reversed chain, K[x][y] = distribution[y] P[y][x] / distribution[x]. The main part is the
leakage about a tick's state from all ticks on one side, for a known chain of k states.

A matrix holds bounds on likelihood ratios for any two states, as integers in units of 2^-192 that are rounded up; from
LIMIT on they count as infinite. Given the states, ticks are independent. tick[x][y] bounds the ratio of one tick's
outputs, and leakage[x][y] that of all ticks on one side. One tick more raises the leakage to the largest (K[x] . h) /
(K[y] . h) of all h >= 0 with h[a] <= tick[a][b] leakage[a][b] h[b], where the kernel K leads to that tick. Guesses of
`fugu.audit.exact.guesses` are only tried: each returned bound is proven here, in integers, or it is infinite. Proofs:
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
from fugu.audit.exact.points import joined_states

__all__ = ["recompute"]

Matrix = list[list[int]]
Rows = Sequence[Sequence[Any]]
Step = Callable[[Matrix, bool], Matrix]
LIMIT = ONE << 400
_MAX_FOLLOWED_TICKS = 4097
_SLACKS = (1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 3e-9, 1e-8)


def apply(function: Callable[..., int], *matrices: Rows) -> Matrix:
    """Apply a function to the entries of matrices; the diagonal of the result is 1."""
    rows = enumerate(zip(*matrices, strict=True))
    return [[function(*v) if x != y else ONE for y, v in enumerate(zip(*row, strict=True))] for x, row in rows]


def product(*factors: int) -> int:
    """The product of ratios, rounded up, and at most LIMIT."""
    ratio = ONE
    for factor in factors:
        ratio = min(-(-ratio * factor >> BITS), LIMIT)
    return ratio


def transpose(matrix: Rows) -> list[list[Any]]:
    """Transpose a matrix."""
    return [list(column) for column in zip(*matrix, strict=True)]


class Kernel:
    """Probabilities, k x k; `upper` are too large by less than a unit, and 0 only where a step is impossible."""

    def __init__(self, rows: Rows) -> None:
        self.states = range(len(rows))
        self.upper = [[ceil_of(p) for p in row] for row in rows]
        self.floats = [[float(p) for p in row] for row in rows]

    def step(self, caps: Matrix, is_proof: bool) -> Matrix:
        """The largest (K[x] . h) / (K[y] . h) for h[a] <= caps[a][b] h[b]; without proof only a guess."""
        floats = [[value / ONE for value in row] for row in caps]
        return [
            [self._ratio(x, y, caps, floats, is_proof) if x != y else ONE for y in self.states] for x in self.states
        ]

    def _ratio(self, x: int, y: int, caps: Matrix, floats: Rows, is_proof: bool) -> int:
        """Amounts f[a,b] >= 0 with K[x] <= ratio K[y] + sum of f[a,b] (e_a - caps[a][b] e_b) prove a ratio.

        Where that fails by an excess > 0 of a state a, h[a] <= caps[a][b] h[b] and K[y][b] h[b] <= K[y] . h for any b.
        """
        upper_row, lower_row = self.upper[x], [max(p - 1, 0) for p in self.upper[y]]
        support = [z for z in self.states if upper_row[z] or self.upper[y][z]]
        row, other_row = ([self.floats[state][z] for z in support] for state in (x, y))
        guess, flow = guessed_ratio(row, other_row, [[floats[a][b] for b in support] for a in support], LIMIT / ONE)
        ratio = int(min(guess, LIMIT / ONE) * ONE)
        if not is_proof or ratio == LIMIT:
            return ratio
        excess = {z: upper_row[z] - (ratio * lower_row[z] >> BITS) for z in support}
        for a, b, float_amount in flow:
            amount = max(int(float_amount * ONE), 0)
            excess[support[a]] -= amount
            excess[support[b]] -= -amount * caps[support[a]][support[b]] >> BITS
        for a, gap in excess.items():
            if gap > 0:
                ratio += min((-(-gap * caps[a][b] // lower_row[b]) for b in support if lower_row[b]), default=LIMIT)
        return min(ratio, LIMIT)

    def tick_ratios(self, n: int) -> Matrix:
        """The largest K^n[x][z] / K^n[y][z]; `error` is how much too large an entry can be."""
        power, error = self.upper, 1
        for bit in bin(n)[3:]:
            power, error = _matmul(power, power), (len(power) + 2) * 2 * error
            if bit == "1":
                power, error = _matmul(power, self.upper), (len(power) + 2) * (error + 1)
        return _ratios(transpose(power), error)

    def soft_steps(self) -> list[tuple[int, int, int, int, int]]:
        """List x, y, a, b and the root of K[x][a] K[y][b] / (K[x][b] K[y][a]), where it is above 1."""
        state_pairs = [(x, y) for x in self.states for y in self.states if x != y]
        steps = []
        for x, y, a, b in ((x, y, a, b) for x, y in state_pairs if x > y for a, b in state_pairs):
            numerator = self.upper[x][a] * self.upper[y][b]
            denominator = max(self.upper[x][b] - 1, 0) * max(self.upper[y][a] - 1, 0)
            if numerator > denominator:
                steps.append((x, y, a, b, sqrt_of(-(-numerator * ONE // denominator)) if denominator else LIMIT))
        return steps


def soft_step(odds: Sequence[tuple[int, int, int, int, int]], caps: Matrix) -> Matrix:
    """Add a tick for an adversary with any evidence on single states: at worst two columns are weighted."""
    ratios = apply(lambda _: ONE, caps)
    for x, y, a, b, root in odds:
        for row, column, cap_root in ((x, y, sqrt_of(caps[a][b])), (y, x, sqrt_of(caps[b][a]))):
            ratio = -(-(root * cap_root + ONE * ONE) // (root + cap_root)) if root < LIMIT else cap_root
            ratios[row][column] = max(ratios[row][column], product(ratio, ratio))
    return ratios


def _binary_step(kernel: Kernel, caps: Matrix, prior: Matrix) -> Matrix:
    """Add a tick for two states whose weights' ratio w is within that of distributions; it rises in w, then falls."""
    ratios = soft_step(kernel.soft_steps(), caps)
    for x, a in ((0, 0), (0, 1), (1, 0), (1, 1)):
        u, low, high = (Fraction(*v) for v in ((caps[a][1 - a], ONE), (ONE, prior[1 - a][a]), (prior[a][1 - a], ONE)))
        (p, q), (r, s) = ((row[a], row[1 - a]) for row in (kernel.upper[x], kernel.upper[1 - x]))
        if p * s > q * r and not low**2 * p * r * u < q * s < high**2 * p * r * u:
            ends = [(p * w * u + q) * (r * w + s) / ((p * w + q) * (r * w * u + s)) for w in (low, high)]
            min_probability = min(v for v in (p, q, r, s) if v)  # a probability is too large by one unit at most
            margin = 1 + Fraction(1, max(min_probability >> 8, 1))
            ratios[x][1 - x] = min(ratios[x][1 - x], ceil_of(max(Fraction(1), *ends) * margin))
    return ratios


def _matmul(matrix: Rows, other_matrix: Rows) -> Matrix:
    columns = transpose(other_matrix)
    return [[-(-sum(map(mul, row, column)) >> BITS) for column in columns] for row in matrix]


def _ratios(distributions: Rows, error: int) -> Matrix:
    """The largest n[x] / n[y] of distributions with entries too large by up to `error`; 0 if n[x] is always 0."""

    def ratio(a: int, b: int) -> int:
        return min(-(-a * ONE // (b - error)), LIMIT) if b > error else LIMIT * (a > 0)

    columns = transpose(distributions)
    return [[max(map(ratio, x, y)) for y in columns] for x in columns]


def limit(step: Step, k: int) -> Matrix:
    """An upper bound on the limit of leakage <- step(leakage) from 1."""
    return _proven_limit(step, guessed_limit(lambda leakage: step(leakage, False), ONE, k, LIMIT), _SLACKS)[0]


def _proven_limit(step: Step, leakage: Matrix, slacks: Sequence[float]) -> tuple[Matrix, float]:
    """An upper bound on the leakage after any steps from 1, and the slack by which it was raised for the proof."""
    for slack in slacks if max(map(max, leakage)) < LIMIT else ():
        raised = apply(lambda v, factor=1 + slack: max(ONE, ceil_of(Fraction(v, ONE) * Fraction(factor))), leakage)
        bound = image = raised
        for _ in range(3):
            image = step(image, True)
            if apply(max, image, raised) == raised:
                return bound, slack
            bound = apply(max, bound, image)
    return apply(lambda _: LIMIT, leakage), math.inf


def quilts(kernel: Kernel, tick_ratio: int, quilt_bound: Callable[[int, Matrix, Matrix], Matrix]) -> Matrix:
    """The least bound over some n, from the outputs of n - 1 ticks, and known states n and n + 1 ticks away."""
    quilt, powers = apply(lambda _: LIMIT, kernel.upper), [ONE]

    def ratio_power(n: int) -> int:
        while len(powers) < n:
            powers.append(product(powers[-1], tick_ratio))
        return powers[n - 1]

    for n in useful_distances(kernel.floats, ratio_power, quilt_bound, ONE, LIMIT):
        quilt = apply(min, quilt, quilt_bound(ratio_power(n), kernel.tick_ratios(n), kernel.tick_ratios(n + 1)))
    return quilt


def walk_leakage(kernel: Kernel, tick: Rows, distributions: Rows, bounds: Sequence[Matrix], is_hull: bool) -> Matrix:
    """An upper bound on the leakages of walks of every length at whose end the states y have the weights n[y].

    n is one of some distributions, or in their hull (`is_hull`). With a hull, any evidence on states is covered, as in
    `soft_step`; a known state is a column of the kernel. `bounds` are a cap on all leakages, a bound by quilts for
    walks with an open end, and the best bound for these. One tick more turns n into K n. The ratio of h[a] n[a] and
    h[b] n[b] is bounded, and the part of K n alone is removed after the step. Once n is constant up to a factor, so
    are all later ones.
    """
    (cap, quilt, open_end), odds = bounds, kernel.soft_steps() if is_hull else []
    leakage = worst = apply(lambda _: ONE, tick)
    error, priors = 1, _ratios(distributions, 1)
    for ticks in range(1, _MAX_FOLLOWED_TICKS):
        weights = apply(product, tick, leakage)
        image, prior = kernel.step(apply(product, weights, priors), True), priors
        distributions, error = _matmul(distributions, transpose(kernel.upper)), error + len(tick) + 2
        priors, no_mass = _ratios(distributions, error), [not any(column) for column in transpose(distributions)]
        hulls = [soft_step(odds, weights) if len(tick) > 2 else _binary_step(kernel, weights, prior)] if is_hull else []
        leakage = apply(min, apply(product, image, transpose(priors)), cap, *hulls)
        leakage = [[ONE if no_mass[x] or no_mass[y] else v for y, v in enumerate(row)] for x, row in enumerate(leakage)]
        worst, max_ratio = apply(max, worst, leakage), max(map(max, priors))
        if max(map(max, leakage)) >= LIMIT:
            break
        if ticks > 3 and ticks & (ticks - 1) == 0 and max_ratio < LIMIT:

            def further_step(leakage: Matrix, is_proof: bool, max_ratio: int = max_ratio) -> Matrix:
                image = kernel.step(apply(partial(product, max_ratio), tick, leakage), is_proof)
                return apply(lambda a, b, top: min(product(min(a, b), max_ratio), top), image, quilt, cap)

            tail, slack = _proven_limit(further_step, apply(max, leakage, open_end), (*_SLACKS, 1e-6, 1e-4, 1e-2))
            if slack <= _SLACKS[-1] or apply(max, worst, tail) == worst:
                return apply(max, worst, tail)
    return apply(lambda _: LIMIT, tick)


_MAX_FOLLOWED_STATES = 12
"""The number of states up to which known states and other starts are followed tick by tick."""


def known_odds(chain: Rows) -> Fraction | None:
    """The largest P[x][y] P[x'][y'] / (P[x][y'] P[x'][y]); `None` if a step is impossible."""
    rows = [[Fraction(p) for p in row] for row in chain]
    if not all(p for row in rows for p in row):
        return None
    quotients = [[p / s for p, s in zip(a, b, strict=True)] for a in rows for b in rows]
    return max(max(row) / min(row) for row in quotients)


def smaller_loss(chain: Rows, tick_ratio: Fraction, loss: Callable[[], Fraction]) -> Fraction:
    """The smaller of the odds-ratio bound, if no step is impossible, and the bound `loss`, if it is computed."""
    odds = known_odds(chain)
    losses = [odds_ratio_loss(odds, tick_ratio)] if odds else []
    with suppress(NotRecomputed) if losses else nullcontext():
        losses.append(loss())
    return min(losses)


def stationary(chain: Rows) -> list[Fraction]:
    """The stationary distribution p = p P, by elimination; the last equation says that it sums to 1."""
    k = len(chain)
    equations = [[Fraction(chain[y][x]) - (x == y) for y in range(k)] + [Fraction(0)] for x in range(k - 1)]
    equations.append([Fraction(1)] * (k + 1))
    for i in range(k):
        equations[i:] = sorted(equations[i:], key=lambda equation: equation[i] == 0)
        if not equations[i][i]:
            raise NotRecomputed("a chain with more than one stationary distribution")
        equations[i] = [value / equations[i][i] for value in equations[i]]
        for j in {*range(k)} - {i}:
            equations[j] = [a - equations[j][i] * b for a, b in zip(equations[j], equations[i], strict=True)]
    return [equation[k] for equation in equations]


def known_loss(chain: Rows, tick: Rows, adversary: str, start: Any = None) -> Fraction:
    """An upper bound on e^epsilon of an endless stream; two states with a tick ratio of 1 are no secret.

    `start` is a distribution, "any", or `None` if the chain has run for ever.
    """
    if adversary == "universal":
        raise NotRecomputed("known chains with impossible steps, and the universal adversary")
    steps = [[Fraction(p) / sum(Fraction(s) for s in row) for p in row] for row in chain]
    distribution = stationary(steps)
    states = [x for x in range(len(distribution)) if distribution[x]]
    if len(states) < len(distribution):  # a chain that has run for ever is in a recurrent state
        if start is not None:
            raise NotRecomputed("a start in states that are never returned to")
        inner_chain, inner_tick = ([[matrix[x][y] for y in states] for x in states] for matrix in (steps, tick))
        return known_loss(inner_chain, inner_tick, adversary)
    back_steps = [[distribution[y] * steps[y][x] / distribution[x] for y in states] for x in states]
    if start not in (None, "any"):  # the density relative to the stationary distribution, scaled to at most 1
        density = [Fraction(p) / q for p, q in zip(start, distribution, strict=True)]
        start = [ceil_of(value / max(density)) for value in density]
    directions = ((Kernel(steps), None), (Kernel(back_steps), start))
    return _secrets_loss(
        tick, *(_leakage(kernel, tick, kernel_start, adversary == "informed") for kernel, kernel_start in directions)
    )


def _leakage(kernel: Kernel, tick: Rows, start: Any, is_informed: bool) -> Matrix:
    ratio, is_small = max(map(max, tick)), len(tick) <= _MAX_FOLLOWED_STATES
    quilt = quilts(kernel, ratio, lambda power, near, _: apply(partial(product, power), near))
    open_end = limit(
        lambda leakage, is_proof: apply(min, quilt, kernel.step(apply(product, tick, leakage), is_proof)), len(tick)
    )
    leakage = open_end
    if start is not None:
        leakage = quilts(kernel, ratio, lambda power, near, _: apply(lambda _: _any_start(near, ratio, power), near))
        distributions = [start] if start != "any" else [[ONE * (x == y) for y in kernel.states] for x in kernel.states]
        if is_small:
            leakage = apply(
                min, leakage, walk_leakage(kernel, tick, distributions, (leakage, quilt, open_end), start == "any")
            )
    if is_informed and start != "any":  # a known state acts as a start
        near = quilts(kernel, ratio, lambda power, near, far: apply(partial(product, power), near, transpose(far)))
        if is_small:
            end_leakages = [
                walk_leakage(kernel, tick, [end], (near, quilt, open_end), False) for end in transpose(kernel.upper)
            ]
            near = apply(min, near, apply(lambda *values: max(values), *end_leakages))
        leakage = apply(max, leakage, near)
    return leakage


def _any_start(ratios: Matrix, tick_ratio: int, power: int) -> int:
    odds = max(map(max, apply(product, ratios, transpose(ratios))))
    return min(odds_leakage(odds, tick_ratio, power), LIMIT) if max(odds, power) < LIMIT else LIMIT


def _secrets_loss(tick: Rows, *leakages: Matrix) -> Fraction:
    loss = max(map(max, apply(lambda ratio, *sides: product(ratio, *sides) if ratio > ONE else ONE, tick, *leakages)))
    if loss >= LIMIT:
        raise NotRecomputed("known chains that never forget, or too slowly for a bound")
    return Fraction(loss, ONE)


def all_points_loss(policy: Mapping[str, Any]) -> Fraction:
    """An upper bound on the true e^epsilon of the claim in a policy's `stream_loss`."""
    if policy.get("changes"):
        raise NotRecomputed("steps that change with time: of them nothing is claimed of all points")
    start, adversary, initial = policy["stream_loss"]["start"], policy["stream_loss"]["adversary"], policy["initial"]
    chain = [[dict(row).get(y, 0) for y in range(len(initial))] for row in policy["transition"]]
    weights = stationary(chain) if start == "stationary" else initial if start == "given" else [1] * len(initial)
    if any(p and not is_possible for p, is_possible in zip(weights, initial, strict=True)):
        raise NotRecomputed("a start in states that the policy takes for impossible")
    edge_counts, shown_states = _edge_counts(policy), policy.get("shows") or range(len(initial))
    ratios = [exp_up(Fraction(policy["epsilon"]) * count) for count in range(max(map(max, edge_counts)) + 1)]
    tick = [[ceil_of(ratios[edge_counts[x][y]]) for y in shown_states] for x in shown_states]
    known_start = {"stationary": None, "any": "any", "given": initial}[start]
    return smaller_loss(chain, ratios[-1], lambda: known_loss(chain, tick, adversary, known_start))


def _edge_counts(policy: Mapping[str, Any]) -> list[list[int]]:
    """The number of epsilons between two states: edges of the shortest path in a possible set, at most the factor."""
    graph, states = joined_states(policy), range(len(policy["coordinates"]))
    edge_counts, visited_sets = [[int(x != y) for y in states] for x in states], []
    possible_states = {x for x, p in enumerate(policy["initial"]) if p}
    while possible_states not in visited_sets:
        visited_sets.append(possible_states)
        shown_states = {policy["shows"][x] for x in possible_states} if policy.get("shows") else possible_states
        for x in shown_states:
            reached_states = {x}
            for edges in range(1, policy["factor"] + 1):
                for y in shown_states - reached_states:
                    edge_counts[x][y] = max(edge_counts[x][y], edges)
                reached_states |= shown_states & set().union(*(graph[y] for y in reached_states))
        possible_states = {y for x in possible_states for y, _ in policy["transition"][x]}
    return edge_counts


def recompute(policy: Mapping[str, Any]) -> list[claims.Claim]:
    """Recompute all claims of a policy, as in `fugu.audit.exact`, with that about all points."""
    return claims.recompute(policy, all_points_loss)

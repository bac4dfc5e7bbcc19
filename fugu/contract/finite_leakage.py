"""The leakage of a few known chains of few states, as a device computes it in plain Python.

`soft_loss` is what those learn who may have any side information. Evidence on single ticks weighs the states of a tick;
two states y and z are the worst to have weights, and those are in closed form, with the odds ratio a = P[x,y] P[x',z] /
(P[x,z] P[x',y]): the ratio of two means of h with h_y = u h_z is at most ((sqrt(a u) + 1) / (sqrt(a) + sqrt(u)))^2.
Source: docs/proofs/joint-streams.md, "Streams that move together".

`finite_loss` is the chain accountant: what those learn who know no states, or true ones.

It takes the same bounds as the gateway's, for one rate of all pairs of states or one of each: quilts, and the limit of
the recursion, which is guessed and then proven by one more step. Floats are rounded outward by margins far above their
error, and nothing that they cannot hold is trusted. Work is bounded by counting, not by time, so that every device
comes to the same answer: a limit that takes too long to prove is left to the quilts. Source:
docs/proofs/chain-accountant.md, "The chain accountant".

Bridges: the leakage to those who know a true state of the chain beyond it. With the nearest known state c beyond s
unknown ticks the kernel is K_s[a,b] = P[a,b] P^s[b,c] / P^(s+1)[a,c], between the states that can lead to c; of two
others at least one is excluded by c, and they are no secret. Once the columns of P^s are constant up to a factor e^d, a
step of the bridge is at most a step of P with bounds larger by d, plus d, which covers all longer ones.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, pairwise, product

from fugu.contract.errors import GuaranteeError
from fugu.contract.inner_maximum import Tree, largest_ratio, widening
from fugu.contract.rounding import CLOSED_FORM, HAIR, OUTWARD, UNIT, reversal_error

__all__ = ["finite_loss", "informed_loss", "soft_loss"]


_CHECK_EVERY = 16
_CLOSE = 1e-3
_RAREST = 1e-250
"""Of a probability: whatever is less might be taken for impossible."""


Matrix = list[list[float]]
LARGEST = 300.0
"""Bounds in nats from here on are none."""


@dataclass
class Work:
    """Remaining budget of a check, in steps of the simplex method."""

    pivots: int


def largest(matrix: Matrix) -> float:
    """Return the largest entry."""
    return max(map(max, matrix))


def unbounded(kernel: Matrix) -> Matrix:
    """Return infinity off the diagonal, of the size of a kernel."""
    return [[0.0 if x == y else math.inf for y in range(len(kernel))] for x in range(len(kernel))]


def closed(bounds: Matrix) -> Matrix:
    """Return bounds M on log h_y / h_z under the triangle inequality: at most M[y][w] + M[w][z]."""
    result = [list(row) for row in bounds]
    for w, through in enumerate(result):
        for row in result:
            for z, more in enumerate(through):
                row[z] = min(row[z], row[w] + more)
    return result


def bridged(kernel: Matrix, error: float, rates: Matrix, ignorant: Matrix, work: Work) -> Matrix:
    """Return what the ticks on one side add, per pair, for whoever knows the state of one of them, or of none.

    `kernel` is row-stochastic and irreducible, steps may be impossible; `error` is of its entries' logarithms, `rates`
    is what a tick tells, in nats, `ignorant` the leakage without known states. Infinite without a bound within the
    work.
    """
    states = range(len(kernel))
    worst = ignorant
    leakages = [uniform(len(kernel), 0.0) for _ in states]
    power, distance, rarest, before = kernel, 0, _rarest(kernel), ignorant
    while _rarest(power) * rarest > _RAREST and work.pivots > 0:
        distance += 1
        margin = distance * (4.0 * (len(kernel) + 2.0) * UNIT + 2.0 * error)
        for known in states:
            column = [row[known] for row in power]
            leakages[known] = _plus(_bridge_step(kernel, column, rates, leakages[known], work), margin)
            worst = _zip(max, worst, leakages[known])
        power = [
            _distribution([math.fsum(p * power[w][y] for w, p in enumerate(row)) for y in states]) for row in kernel
        ]
        possible = min(map(min, power)) > 0.0
        # A chain where k^2 ticks leave a step impossible is a cycle, by Wielandt's theorem, and forgets nothing.
        if largest(worst) >= LARGEST or (distance > len(kernel) ** 2 and not possible):
            break
        if possible and distance % _CHECK_EVERY == 0:
            apart = max(math.log(max(column) / min(column)) for column in zip(*power, strict=True))
            forgotten = margin + apart
            reached = _zip(max, ignorant, *leakages)
            # More where more leaks: states that exclude one another a tick later pass on what is added to all alike.
            shape = _plus([[part / largest(reached) for part in row] for row in reached], 1.0)
            found, slack = None, _CLOSE * largest(worst) + CLOSED_FORM
            while slack > CLOSED_FORM and work.pivots > 0:
                tail = _zip(operator.add, reached, [[slack * more for more in row] for row in shape])
                longer = _step(kernel, _plus(_zip(operator.add, rates, tail), forgotten), work)
                if not _at_most(_plus(longer, forgotten + error), tail):
                    break
                found, slack = _zip(max, worst, tail), slack / 8.0
            if found is not None:
                return found
            # What grows from here on are margins: they will not let anything be proven that they do not let now.
            if apart <= margin and largest(_zip(operator.sub, reached, before)) <= margin:
                break
            before = reached
    return unbounded(kernel)


def _bridge_step(kernel: Matrix, near: list[float], rates: Matrix, leakage: Matrix, work: Work) -> Matrix:
    """Return the leakage of one tick more before a known state, 0 where that excludes a state.

    `near`: for each state after this step, how probable the known one is from there.
    """
    columns = [y for y, p in enumerate(near) if p > 0.0]
    weights = {x: [kernel[x][y] * near[y] for y in columns] for x in range(len(kernel))}
    rows = [x for x, weight in weights.items() if max(weight) > 0.0]
    bounds = [[rates[y][z] + leakage[y][z] for z in columns] for y in columns]
    found = _step([_distribution(weights[x]) for x in rows], bounds, work)
    result = uniform(len(kernel), 0.0)
    for x, row in zip(rows, found, strict=True):
        for other, bound in zip(rows, row, strict=True):
            result[x][other] = bound
    return result


def _rarest(power: Matrix) -> float:
    return min(p for row in power for p in row if p > 0.0)


_LONGEST_QUILT = 4096
_MOST_STEPS = 4000
_GUESS_EVERY = 8
_PART = 0.9
_CONVERGED = 1e-9
_SHAPED = 1e-7
_RAISES = 7
_NEAR = 1e-6
_MOST_PIVOTS = 3_000_000
"""Of all chains together: what one of eight states that hardly moves may take; most take a tenth of it. Those of more
states get fewer, which take longer each."""
_MOST_BRIDGES = 600_000
_FEW = 64
"""Pairs of states, up to which a step costs about the same."""
_FORGOTTEN = 1e-9
"""Of a probability: products of two such are still floats with all their digits."""


def finite_loss(
    transitions: Sequence[Sequence[Sequence[float]]], rate: float | Sequence[Sequence[float]], *, informed: bool
) -> float:
    """Return the largest epsilon in nats, rounded up, of chains whose ticks lose at most `rate`, for ever.

    Each chain is k x k, irreducible, and started stationary. `rate` bounds the log-likelihood ratio of a tick's outputs
    between any two states, in nats, or is a k x k matrix of such bounds for each two; states without a rate between
    them are no secret, one against the other. `informed`: the adversary may know true states. GuaranteeError: no finite
    bound was found, as where a step of a chain is so rare that floats cannot tell what follows.
    """
    rates = uniform(len(transitions[0]), rate) if isinstance(rate, float) else [list(row) for row in rate]
    _refuse_large(rates)
    worst, size = 0.0, max(_FEW, len(rates) ** 2)
    work, bridging = (Work(most * _FEW // size) for most in (_MOST_PIVOTS, _MOST_BRIDGES))
    for rows in transitions:
        future = [_distribution(row) for row in rows]
        # A state is reached from another in fewer than k steps, so no distribution and no product below comes to less.
        rarest = min(p for row in future for p in row if p > 0.0)
        if rarest ** len(future) < _RAREST:
            raise GuaranteeError(f"a step of probability {rarest:g} is too rare for a finite guarantee")
        distribution = stationary_distribution(future)
        left = [
            _distribution([p * q for p, q in zip(distribution, column, strict=True)])
            for column in zip(*future, strict=True)
        ]
        kernels = ((future, 0.0), (left, reversal_error(len(distribution))))
        leakages = [_leakage(*kernel, rates, work, bridging if informed else None) for kernel in kernels]
        worst = max(worst, _of_secrets(rates, *leakages))
    if not worst < LARGEST:
        raise GuaranteeError("a chain forgets its past too slowly for a finite guarantee")
    return worst * (1.0 + OUTWARD)


def stationary_distribution(transition: Sequence[Sequence[float]]) -> list[float]:
    """Return pi with pi P = pi, to some ulps in every state, for P row-stochastic; GuaranteeError if reducible.

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
    distribution = [1.0]
    for state in range(1, len(left)):
        distribution.append(math.fsum(distribution[x] * left[x][state] for x in range(state)))
    if min(distribution) <= 0.0:
        raise GuaranteeError("a chain of the class does not visit all its states for ever")
    return _distribution(distribution)


def _distribution(values: Sequence[float]) -> list[float]:
    total = math.fsum(values)
    return [value / total for value in values]


def _leakage(kernel: Matrix, error: float, rates: Matrix, work: Work, bridging: Work | None) -> Matrix:
    """Return the leakage of one direction for each pair of states; `error` is of the logarithms of the kernel.

    What bridges may cost is given for those who may know states.
    """
    rate = largest(rates)
    tables = _influences(kernel, error, rate)
    quilts = _zip(min, unbounded(kernel), *(_plus(table, ticks * rate) for ticks, table in enumerate(tables)))
    recursion = _limit(lambda leakage: _plus(_step(kernel, _summed(rates, leakage), work), error), kernel, work)
    ignorant = _zip(min, quilts, recursion)
    if bridging is None:
        return ignorant
    bridges = (
        _plus(near, i * rate, [list(row) for row in zip(*far, strict=True)])
        for i, (near, far) in enumerate(pairwise(tables))
    )
    known = _zip(min, unbounded(kernel), *bridges)
    return _zip(max, ignorant, _zip(min, known, bridged(kernel, error, rates, ignorant, bridging)))


def _limit(further: Callable[[Matrix], Matrix], kernel: Matrix, work: Work) -> Matrix:
    """Return R with F(R) <= R, little above the limit of R <- F(R) from 0; infinite if none was found.

    F (`further`) is monotone, k x k with 0 on the diagonal: the leakage of one tick more; it takes its cost from the
    work. Changes over some ticks shrink geometrically in the end, so the limit is guessed from the last two, and the
    guess then proven. What it is raised by for that is more where changes are larger: states that exclude one another a
    tick later pass on all of what is added to all pairs alike.
    """
    states = range(len(kernel))
    leakage = uniform(len(kernel), 0.0)
    found, shape, before = unbounded(kernel), uniform(len(kernel), 1.0), leakage
    last = math.inf
    for count in range(1, _MOST_STEPS + 1):
        leakage = further(leakage)
        if work.pivots <= 0 or not largest(leakage) < LARGEST:
            break
        if count % _GUESS_EVERY:
            continue
        changes = [[max(part, 0.0) for part in row] for row in _zip(operator.sub, leakage, before)]
        before, change, reached = leakage, largest(changes), largest(leakage)
        if change > _SHAPED * reached:
            shape = [[1.0 + part / change for part in row] for row in changes]
        if change <= _CONVERGED * reached + CLOSED_FORM:
            for power in range(_RAISES):
                more = _CONVERGED * 8.0**power * reached + CLOSED_FORM
                raised = [[leakage[x][y] + more * shape[x][y] if x != y else 0.0 for y in states] for x in states]
                if _at_most(further(raised), raised):
                    return _zip(min, found, raised)
            break
        shrink = min(change / last if change < last else 1.0, 1.0 - 1e-9)
        far, last = shrink / (1.0 - shrink), change
        guess = _summed(leakage, [[far * part for part in row] for row in changes])
        raised = _plus(guess, _CONVERGED * largest(guess) + CLOSED_FORM)
        if _at_most(further(raised), raised):
            found = _zip(min, found, raised)
            if far * change <= _NEAR * reached:
                break
        # Most of the way to the limit in one step, if the next goes on from there.
        ahead = _summed(leakage, [[_PART * far * part for part in row] for row in changes])
        beyond = further(ahead)
        if largest(beyond) < LARGEST and _at_most(ahead, beyond):
            leakage, before, last = beyond, beyond, math.inf
    return found


def _at_most(step: Matrix, bound: Matrix) -> bool:
    return all(a <= b for row, line in zip(step, bound, strict=True) for a, b in zip(row, line, strict=True))


def _step(kernel: Matrix, bounds: Matrix, work: Work) -> Matrix:
    """Return bounds on log(K[x].h / K[x'].h) over all h with log h_y / h_z <= bounds[y][z], for every x and x'."""
    rows, states = range(len(kernel)), range(len(bounds))
    bounds = closed(bounds)
    if largest(bounds) >= LARGEST:
        return unbounded(kernel)
    high = [math.exp(bounds[y][z]) * widening(y, z) for y in states for z in states]
    k, steepest = len(bounds), max(high)
    tree = Tree([0] * k, [0] * k, [0] * k, [0] * k, [0] * k, [0.0] * k, [0.0] * k)
    margin = (16.0 * k + 8.0 * k * largest(bounds) + 64.0) * UNIT
    result = [[0.0 for _ in rows] for _ in rows]
    for x in rows:
        for other in rows:
            if x != other:
                ratio, visited = largest_ratio(kernel[x], kernel[other], high, steepest, tree)
                work.pivots -= visited
                result[x][other] = math.log(max(ratio, 1.0)) + margin
    return result


def _influences(kernel: Matrix, error: float, rate: float) -> list[Matrix]:
    """Return what the state m ticks away tells of a tick's, for m = 1, 2, ... as far as it may matter."""
    power: Matrix | None = kernel if _held(kernel) else None
    tables: list[Matrix] = []
    best = math.inf
    while power is not None and len(tables) < _LONGEST_QUILT:
        tables.append(_plus(_influence(power, len(tables) + 1), error * (len(tables) + 1)))
        best = min(best, len(tables) * rate + largest(tables[-1]))
        if len(tables) >= 2 and (len(tables) * rate >= 2.0 * best or largest(tables[-1]) <= _FORGOTTEN):
            break
        power = _next_power(power, kernel)
    return tables


def _held(power: Matrix) -> bool:
    return all(p == 0.0 or p >= _RAREST for row in power for p in row)


def _next_power(power: Matrix, kernel: Matrix) -> Matrix | None:
    """Return power times kernel; `None` if something possible is so rare that it might be taken for impossible."""
    states = range(len(kernel))
    product = []
    for row in power:
        terms = [[row[w] * kernel[w][y] for w in states if row[w] > 0.0 and kernel[w][y] > 0.0] for y in states]
        sums = [math.fsum(term) for term in terms]
        if any(term and total < _RAREST for term, total in zip(terms, sums, strict=True)):
            return None
        product.append(_distribution(sums))
    return product


def uniform(states: int, rate: float) -> Matrix:
    """Return a rate off the diagonal, states x states."""
    return [[rate if x != y else 0.0 for y in range(states)] for x in range(states)]


def _refuse_large(rates: Matrix) -> None:
    """Refuse rates that are too large to compute with, or no numbers."""
    for rate in (rate for row in rates for rate in row):
        if not rate < LARGEST:
            raise GuaranteeError(f"ticks that lose {rate:g} nats are too much for a finite guarantee")


def _of_secrets(rates: Matrix, *leakages: Matrix) -> float:
    """Return the largest sum of the rate and all leakages of any two states that have a rate."""
    pairs = zip(_summed(rates, *leakages), rates, strict=True)
    return max(loss if rate > 0.0 else 0.0 for row in pairs for loss, rate in zip(*row, strict=True))


def _summed(*matrices: Matrix) -> Matrix:
    """Return the sum of matrices of one size."""
    return _zip(operator.add, *matrices)


def _zip(choose: Callable[[float, float], float], *matrices: Matrix) -> Matrix:
    return [[reduce(choose, some) for some in zip(*rows, strict=True)] for rows in zip(*matrices, strict=True)]


def _plus(matrix: Matrix, amount: float, more: Matrix | None = None) -> Matrix:
    size = range(len(matrix))
    return [[(matrix[x][y] + amount + (more[x][y] if more else 0.0)) if x != y else 0.0 for y in size] for x in size]


def _influence(distributions: Matrix, products: int) -> Matrix:
    """Return max over y of log(distributions[x][y] / distributions[x'][y]) for every x and x'."""
    margin = (4.0 * len(distributions) * products + 32.0) * UNIT
    size = range(len(distributions))
    return [[_log_ratio(distributions[x], distributions[y]) + margin if x != y else 0.0 for y in size] for x in size]


def _log_ratio(above: list[float], below: list[float]) -> float:
    most = 1.0
    for a, b in zip(above, below, strict=True):
        if a > most * b:
            if b == 0.0:
                return math.inf
            most = a / b
    return math.log(most)


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
    _refuse_large(rates)
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
    future = _endless(kernels, _summed(before, rates), nothing, work)
    past = _endless([[list(column) for column in zip(*one, strict=True)] for one in kernels], rates, before, work)
    worst = _of_secrets(secrets, future, past)
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
    return _limit(lambda leakage: _summed(nearer, worst_weights(tables, _summed(near, leakage), work)), near, work)


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

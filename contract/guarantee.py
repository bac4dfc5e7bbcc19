"""The guarantee check: from a class of chains and a table of integers to the epsilon that really holds.

Rules:
- every rounding goes outward, so a reported loss is never below the true one;
- a bound that is only known to hold for a wider adversary is reported as that, never the other way round;
- arithmetic is on integers, fractions and decimals, so that the smallest device can run it.

Source of every formula: Chakrabarti et al., "Optimal Local Bayesian Differential Privacy over Markov Chains"
(2020), called BDP here, as corrected in docs/privacy.md, "Binary chains in closed form".
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction
from typing import Annotated, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import Field

from contract._document import Document
from contract.chains import BinaryChains, BoundedChains
from contract.errors import GuaranteeError
from contract.table import EmissionTable

__all__ = [
    "Adversary",
    "Guarantee",
    "Loss",
    "Side",
    "check_guarantee",
    "informed_side",
    "loss",
    "ratio_loss",
    "tick_ratios",
]

Adversary = Literal["ignorant", "informed", "universal"]
"""What the adversary knows: only the class of chains; also any set of true states; any side information."""

# Every quantity below is a positive number made from positive numbers, and every map of ticks is a Moebius map
# with positive entries, whose log-log slope is at most 1. So relative errors add up: at most 10 roundings per
# tick, 10^-49 each, stay below 2 * 10^-36 for _MAX_TICKS ticks, and so does the absolute error of a logarithm.
# _ROUNDING is far above that and far below what a float can tell.
_CONTEXT = Context(prec=50, rounding=ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999)
_ROUNDING = Decimal("1e-30")
_STOP = Decimal("1.00000000000000000000000000000001")  # a literal: a sum here would be rounded to 28 digits
_MAX_TICKS = 1 << 40
_MAX_STEPS = 10_000
_MAX_CLIMB = 100

_Matrix: TypeAlias = tuple[Fraction, Fraction, Fraction, Fraction]
_N = TypeVar("_N", Fraction, Decimal)
_DecimalMatrix: TypeAlias = tuple[Decimal, Decimal, Decimal, Decimal]


class Guarantee(Document):
    """What a stream promises: no adversary of this kind gains a log-likelihood ratio above epsilon.

    Attributes:
        epsilon: Bound > 0 on the log-likelihood ratio between two values of one state, in nats.
        adversary: What the adversary may know.
    """

    epsilon: Annotated[float, Field(gt=0.0)]
    adversary: Adversary


class Loss(NamedTuple):
    """The epsilon that a mechanism really has, rounded up.

    Attributes:
        epsilon: The larger of the two directions, in nats.
        epsilon_01: The direction "state 0 rather than 1"; with more than two states, equal to epsilon.
        epsilon_10: The direction "state 1 rather than 0"; with more than two states, equal to epsilon.
        adversary: The adversary that was asked for.
        bound: The theorem or bound behind the numbers.
    """

    epsilon: float
    epsilon_01: float
    epsilon_10: float
    adversary: Adversary
    bound: str


class Side(NamedTuple):
    """The largest likelihood ratio that one side (past or future) of a tick can add.

    Attributes:
        ratio: The bound on e^R of the side; exact unless `exact` is false.
        known_state: The nearest known state that attains it, or None when knowing nothing is worst.
        gap: The number of unknown ticks before that known state.
        exact: False when the search was cut short and `ratio` is only an upper bound.
    """

    ratio: Decimal
    known_state: int | None
    gap: int
    exact: bool


class _Way(NamedTuple):
    """One direction: its chain parameters, and the largest and smallest likelihood ratio of a tick."""

    q: Fraction
    r: Fraction
    largest: Fraction
    smallest: Fraction


def check_guarantee(chains: BinaryChains | BoundedChains, table: EmissionTable, guarantee: Guarantee) -> Loss:
    """Refuse a table that loses more than its guarantee allows.

    Args:
        chains: The class of chains that the readings belong to.
        table: The emission table.
        guarantee: The promised epsilon, in nats, and its adversary.

    Returns:
        The loss, not above the guarantee.

    Raises:
        GuaranteeError: The loss is above the guarantee, is not finite, or the numbers of states differ.

    Source: docs/privacy.md, "Binary chains in closed form".
    """
    actual = loss(chains, table, guarantee.adversary)
    if not actual.epsilon <= guarantee.epsilon:
        raise GuaranteeError(
            f"the table loses epsilon {actual.epsilon!r} to the {guarantee.adversary} adversary, "
            f"above the {guarantee.epsilon!r} of its guarantee"
        )
    return actual


def loss(chains: BinaryChains | BoundedChains, table: EmissionTable, adversary: Adversary) -> Loss:
    """Return the epsilon of a randomised symbol stream, one symbol per tick for ever.

    Args:
        chains: The class of chains that the readings belong to.
        table: The emission table.
        adversary: What the adversary knows.

    Returns:
        The loss in nats, rounded up; never below the loss of a single tick.

    Raises:
        GuaranteeError: The numbers of states differ, or the loss is not finite.

    Source: BDP theorem 1 as corrected in docs/privacy.md, "Binary chains in closed form".
    """
    if table.states != chains.states:
        raise GuaranteeError(f"the table has {table.states} states and its class of chains {chains.states}")
    return ratio_loss(chains, *tick_ratios(table), adversary)


def tick_ratios(table: EmissionTable) -> tuple[Fraction, Fraction]:
    """Return the exact likelihood ratios of one symbol.

    Args:
        table: The emission table.

    Returns:
        max_z B[0,z]/B[1,z] and max_z B[1,z]/B[0,z]; with more than two states, the largest ratio of any
        two states, twice.
    """
    weights = table.weights()
    if table.states == 2:
        return _largest(weights[0], weights[1]), _largest(weights[1], weights[0])
    columns = list(zip(*weights, strict=True))
    largest = max(Fraction(max(column), min(column)) for column in columns)
    return largest, largest


def _largest(above: tuple[int, ...], below: tuple[int, ...]) -> Fraction:
    return max(Fraction(a, b) for a, b in zip(above, below, strict=True))


def ratio_loss(
    chains: BinaryChains | BoundedChains, ratio_01: Fraction, ratio_10: Fraction, adversary: Adversary
) -> Loss:
    """Return the epsilon of any mechanism whose per-tick likelihood ratios are bounded, for ever.

    Args:
        chains: The class of chains that the readings belong to.
        ratio_01: Bound >= 1 on the likelihood ratio of a tick's output between state 0 and state 1.
        ratio_10: The same between state 1 and state 0; with more than two states only the larger counts.
        adversary: What the adversary knows.

    Returns:
        The loss in nats, rounded up.

    Raises:
        GuaranteeError: A ratio is below 1, or the loss is not finite.

    Source: BDP theorem 1 as corrected in docs/privacy.md, "Binary chains in closed form".
    """
    if min(ratio_01, ratio_10) < 1:
        raise GuaranteeError(f"a likelihood ratio must be at least 1, got {float(ratio_01)!r} and {float(ratio_10)!r}")
    if ratio_01 == ratio_10 == 1:
        return Loss(0.0, 0.0, 0.0, adversary, "constant output")
    with localcontext(_CONTEXT):
        if isinstance(chains, BoundedChains):
            return _universal(chains, ratio_01, ratio_10, adversary)
        if adversary == "universal":
            return _universal_binary(chains, ratio_01, ratio_10)
        return _stationary(chains, ratio_01, ratio_10, adversary)


def _stationary(chains: BinaryChains, ratio_01: Fraction, ratio_10: Fraction, adversary: Adversary) -> Loss:
    """Take the worst member of the class, in each direction; source: docs/privacy.md, "Worst corner".

    The side map f(u) = ((1-q)u + q)/(ru + 1-r) = (u - q(u-1))/(1 + r(u-1)) decreases in q and r for u >= 1
    and increases for u <= 1. With q+r < 1 it is applied to u >= 1 only, so its fixed point is largest at the
    lowest corner; with q+r > 1, M = f(gN) (gN <= 1) and N = f(GM) (GM >= 1) drive each other apart as q and r
    grow, so it is largest at the highest corner. A straddling class needs both; at q+r = 1 f is 1. That
    proves the ignorant case. For the informed one, with q+r < 1, a search in the tests stands in for a
    proof of the same. With q+r > 1 the same is false: a direction can be worst inside an interval. There a class
    that is more than a point gets the universal bound of its highest corner.
    """
    low, high = ((Fraction(q), Fraction(r)) for q, r in zip(chains.q, chains.r, strict=True))
    members = [low] if sum(low) < 1 else []
    if sum(high) > 1 and (low == high or adversary == "ignorant"):
        members.append(high)
    epsilons = [_decimal(ratio_01).ln(), _decimal(ratio_10).ln()]
    for q, r in members:
        for direction, way in enumerate((_Way(q, r, ratio_01, 1 / ratio_10), _Way(r, q, ratio_10, 1 / ratio_01))):
            side = _ignorant_side(way) if adversary == "ignorant" else informed_side(*way).ratio
            epsilons[direction] = max(epsilons[direction], (_decimal(way.largest) * side * side).ln())
    bound = "BDP theorem 1" if adversary == "ignorant" else "bridge recursion"
    if sum(high) > 1 and low != high and adversary == "informed":
        worst = _universal_epsilons(_alpha(*high), (ratio_01, ratio_10), (max(ratio_01, ratio_10),) * 2)
        epsilons = [max(pair) for pair in zip(epsilons, worst, strict=True)]
        bound = "odds-ratio bound"
    return _rounded_up(epsilons, adversary, bound)


def _corners(chains: BinaryChains) -> list[tuple[Fraction, Fraction]]:
    return sorted({(Fraction(q), Fraction(r)) for q in chains.q for r in chains.r})


def _ignorant_side(way: _Way) -> Decimal:
    """Return the limit of one side's likelihood ratio without known states (m* of BDP theorem 1)."""
    harmless = way.largest == 1 and (way.q + way.r < 1 or way.smallest == 1)
    if harmless or way.q + way.r == 1:
        return Decimal(1)
    return max(Decimal(1), _fixed_point(_period(way, loaded=True)))


def _period(way: _Way, *, loaded: bool) -> _Matrix:
    """Return the increasing Moebius map of one tick (q+r < 1) or two ticks (q+r > 1) of one side.

    With q+r > 1 the map f of a single tick decreases, so the worst outputs alternate: the nearest tick shows
    the smallest ratio, the next the largest, and so on; two ticks together increase again.
    """
    near, far = (way.smallest, way.largest) if loaded else (Fraction(1), Fraction(1))
    outer = _tick(way, far if way.q + way.r < 1 else near)
    return outer if way.q + way.r < 1 else _product(outer, _tick(way, far))


def _tick(way: _Way, ratio: Fraction) -> _Matrix:
    """Return u -> f(ratio * u) as a matrix."""
    return (1 - way.q) * ratio, way.q, way.r * ratio, 1 - way.r


def _product(left: tuple[_N, _N, _N, _N], right: tuple[_N, _N, _N, _N]) -> tuple[_N, _N, _N, _N]:
    a, b, c, d = left
    e, f, g, h = right
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


def _fixed_point(matrix: _Matrix) -> Decimal:
    """Return the positive root of c u^2 + (d - a) u - b = 0, without cancellation."""
    a, b, c, d = matrix
    root = _decimal((a - d) ** 2 + 4 * b * c).sqrt()
    if a >= d:
        return (_decimal(a - d) + root) / _decimal(2 * c)
    return _decimal(2 * b) / (_decimal(d - a) + root)


def informed_side(q: Fraction, r: Fraction, largest: Fraction, smallest: Fraction) -> Side:
    """Return the most that one side of a tick adds for an adversary who may know states of that side.

    With the nearest known state y after t unknown ticks the side is worth h_t = m_t / n_t, where m_t takes
    the worst outputs and n_t none. Along every subsequence of _starts, m_t and n_t move together and
    monotonically to m* and 1: upwards if n_t < 1, downwards if n_t > 1. So the supremum over the rest is at
    most m*/n_t, or m_t, which makes the stop certified.

    Args:
        q: Pr(next state 1 given state 0), inside (0, 1).
        r: Pr(next state 0 given state 1), inside (0, 1).
        largest: Largest likelihood ratio of a tick's output, state 0 over state 1, at least 1.
        smallest: Smallest such ratio, at most 1.

    Returns:
        The bound on e^R of the side and the known state that attains it.

    Source: BDP definition 4; docs/privacy.md, "Three adversaries in closed form".
    """
    way = _Way(q, r, largest, smallest)
    with localcontext(_CONTEXT):
        best = Side(_ignorant_side(way), None, 0, True)
        if best.ratio == 1:
            return best
        limit = best.ratio
        for start in _starts(way):
            best = _search(best, way, limit, start)
        if best.exact:
            return best
        cap = _universal_side(_alpha(q, r), max(largest, 1 / smallest))
        return best._replace(ratio=min(best.ratio, cap))


def _starts(way: _Way) -> list[tuple[int, int, Decimal, Decimal]]:
    """Return (known state, gap, m, n) at the head of each monotone subsequence, the rising ones first."""
    near = [(0, 0, (1 - way.q) / way.r), (1, 0, way.q / (1 - way.r))]
    starts = [(known, gap, ratio, ratio) for known, gap, ratio in near]
    if way.q + way.r > 1:
        maps = _tick(way, way.smallest), _tick(way, Fraction(1))
        starts += [(known, 1, _apply(maps[0], ratio), _apply(maps[1], ratio)) for known, _, ratio in near]
    starts.sort(key=lambda start: start[3])
    return [(known, gap, _decimal(m), _decimal(n)) for known, gap, m, n in starts]


def _apply(matrix: _Matrix, ratio: Fraction) -> Fraction:
    a, b, c, d = matrix
    return (a * ratio + b) / (c * ratio + d)


def _search(best: Side, way: _Way, limit: Decimal, start: tuple[int, int, Decimal, Decimal]) -> Side:
    """Follow one monotone subsequence until what is left of it cannot exceed the best side.

    Stretches of 2^level steps that provably stay below the best are skipped, and a climb to a peak goes first, so
    that sticky chains are quick too.
    """
    loaded, unloaded = (_Powers(_decimals(_period(way, loaded=x))) for x in (True, False))
    known, gap, m, n = start
    stride = 1 if way.q + way.r < 1 else 2
    rising, level = n < 1, 0
    steps, peak = _climb(loaded, unloaded, m, n)
    if peak > best.ratio:
        best = Side(peak, known, gap + stride * steps, best.exact)
    rest = m / n
    for _ in range(_MAX_STEPS):
        if m / n > best.ratio:
            best = Side(m / n, known, gap, best.exact)
        rest = limit / n if rising else m
        if rest <= best.ratio * _STOP:
            return best._replace(ratio=max(best.ratio, rest))
        if gap > _MAX_TICKS:
            break
        after = _image(unloaded[level], n)
        while level > 0 and _stretch_bound(way, level, m / n, (n, after)) > best.ratio:
            level -= 1
            after = _image(unloaded[level], n)
        m, n = _image(loaded[level], m), after
        gap += stride << level
        level += 1
    return Side(max(rest, best.ratio), known, gap, False)


def _climb(loaded: _Powers, unloaded: _Powers, m: Decimal, n: Decimal) -> tuple[int, Decimal]:
    """Walk uphill in strides of powers of two; return how many steps lead to the top, and its h = m/n."""
    top, steps, level = (0, m / n), 0, 0
    for _ in range(_MAX_CLIMB):
        if level < 0 or steps > _MAX_TICKS:
            break
        ahead = _image(loaded[level], m), _image(unloaded[level], n)
        here = ahead[0] / ahead[1]
        top = max(top, (steps + (1 << level), here), key=lambda point: point[1])
        if _image(loaded[0], ahead[0]) / _image(unloaded[0], ahead[1]) > here * _STOP:
            (m, n), steps, level = ahead, steps + (1 << level), level + 1
        else:
            level -= 1
    return top


def _stretch_bound(way: _Way, level: int, ratio: Decimal, ends: tuple[Decimal, Decimal]) -> Decimal:
    """Bound h over the next 2^level steps of a subsequence, from h = `ratio` and n at both ends.

    A step of h is _bridge (q+r < 1), or two of them with n and f(n) (q+r > 1). For v >= 1 a bridge grows with x and
    falls with y; for v <= 1 it is the reverse. So the ends of n bound every step of the stretch by one map that
    increases in h; repeated, it is monotone, hence largest at one of its ends.
    """
    low, high = min(ends), max(ends)
    if way.q + way.r < 1:
        step = _bridge(way, way.largest, high, low)
    else:
        f = _decimals(_tick(way, Fraction(1)))
        near = _bridge(way, way.smallest, _image(f, high), _image(f, low))
        step = _product(near, _bridge(way, way.largest, low, high))
    return max(ratio, _image(_Powers(step)[level], ratio))


def _bridge(way: _Way, ratio: Fraction, n_of_x: Decimal, n_of_y: Decimal) -> _DecimalMatrix:
    """Return h -> f(n G h)/f(n) = (x v + 1)(1 + y)/((1 + x)(y v + 1)), v = G h, x = n(1-q)/q, y = n r/(1-r)."""
    x = n_of_x * _decimal((1 - way.q) / way.q)
    y = n_of_y * _decimal(way.r / (1 - way.r))
    g = _decimal(ratio)
    return g * x * (1 + y), 1 + y, g * y * (1 + x), 1 + x


class _Powers:
    """The powers 2^0, 2^1, 2^2, ... of a positive Moebius map, each made when it is asked for."""

    def __init__(self, base: _DecimalMatrix) -> None:
        self._squares = [base]

    def __getitem__(self, level: int) -> _DecimalMatrix:
        while len(self._squares) <= level:
            a, b, c, d = self._squares[-1]
            square = a * a + b * c, b * (a + d), c * (a + d), b * c + d * d
            largest = max(square)
            a, b, c, d = (entry / largest for entry in square)
            self._squares.append((a, b, c, d))
        return self._squares[level]


def _image(matrix: _DecimalMatrix, value: Decimal) -> Decimal:
    a, b, c, d = matrix
    return (a * value + b) / (c * value + d)


# --- any side information, any start, steps that change over time: odds ratios only ----------------------


def _universal_binary(chains: BinaryChains, ratio_01: Fraction, ratio_10: Fraction) -> Loss:
    """Bound a binary class by the odds ratio of its steps; it is monotone in q and r, so a corner is worst.

    Steps of a class with q+r < 1 keep its sign, so each direction needs its own ratio only; the larger of
    the two directions, `epsilon`, covers steps of the other sign as well.
    """
    corners = _corners(chains)
    alpha = max(_alpha(q, r) for q, r in corners)
    positive = all(q + r <= 1 for q, r in corners)
    sides = (ratio_01, ratio_10) if positive else (max(ratio_01, ratio_10),) * 2
    epsilons = _universal_epsilons(alpha, (ratio_01, ratio_10), sides)
    return _rounded_up(epsilons, "universal", "odds-ratio bound")


def _universal(chains: BoundedChains, ratio_01: Fraction, ratio_10: Fraction, adversary: Adversary) -> Loss:
    """Bound a class of k-state chains, for every adversary, by the odds ratio of its steps."""
    worst = (max(ratio_01, ratio_10),) * 2
    ticks = (ratio_01, ratio_10) if chains.states == 2 else worst
    epsilons = _universal_epsilons(Fraction(chains.odds_ratio), ticks, worst)
    return _rounded_up(epsilons, adversary, "odds-ratio bound")


def _universal_epsilons(
    alpha: Fraction, ticks: tuple[Fraction, Fraction], sides: tuple[Fraction, Fraction]
) -> list[Decimal]:
    """Return log(G m^2) in both directions: G from `ticks`, m the side whose ticks have the ratios of `sides`."""
    epsilons = []
    for tick, worst in zip(ticks, sides, strict=True):
        side = _universal_side(alpha, worst)
        epsilons.append((_decimal(tick) * side * side).ln())
    return epsilons


def _alpha(q: Fraction, r: Fraction) -> Fraction:
    """Return the odds ratio of a binary step, or its inverse if that is larger."""
    alpha = (1 - q) * (1 - r) / (q * r)
    return max(alpha, 1 / alpha)


def _universal_side(alpha: Fraction, ratio: Fraction) -> Decimal:
    """Return the fixed point m of m = W(G m), W(u) = ((sqrt(alpha u) + 1)/(sqrt(alpha) + sqrt(u)))^2.

    W(u) is the largest ratio of two means of a function with values in [1, u] under two distributions whose
    likelihood ratios differ by a factor of at most alpha: conditioning on side information reweights both
    rows of a transition matrix alike and leaves that factor alone. A linear-fractional maximum over a box
    puts u on a set; with probabilities a and p of that set, odds(a)/odds(p) <= alpha, and the best p gives W.
    So it holds for any number of states, any start and steps that change. In w = sqrt(m) the fixed point is
    g w^2 - sqrt(alpha) (g-1) w - 1 = 0 with g = sqrt(G).
    """
    root_alpha, g = _decimal(alpha).sqrt(), _decimal(ratio).sqrt()
    slope = root_alpha * (_decimal(ratio - 1) / (g + 1))
    w = (slope + (slope * slope + 4 * g).sqrt()) / (2 * g)
    return max(Decimal(1), w * w)


# --- rounding ---------------------------------------------------------------------------------------------


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _decimals(matrix: _Matrix) -> _DecimalMatrix:
    a, b, c, d = matrix
    return _decimal(a), _decimal(b), _decimal(c), _decimal(d)


def _rounded_up(epsilons: list[Decimal], adversary: Adversary, bound: str) -> Loss:
    """Return the loss as floats that are not below the decimals plus their rounding error."""
    upward = [_float_above(epsilon + _ROUNDING) for epsilon in epsilons]
    return Loss(max(upward), upward[0], upward[1], adversary, bound)


def _float_above(value: Decimal) -> float:
    nearest = float(value)
    return nearest if Decimal(nearest) >= value else math.nextafter(nearest, math.inf)

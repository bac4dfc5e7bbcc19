"""Leakage: how much the ticks before, or after, a tick can add to what an adversary learns of its state.

Everything is a likelihood ratio of state 0 over state 1, carried along a two-state chain by Moebius maps, or bounded by
the odds ratios of the steps alone. Source: docs/proofs/randomised-response.md, "Binary chains in closed form".
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction
from functools import cache, lru_cache
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from fugu.contract.rounding import float_up

__all__ = [
    "CONTEXT",
    "Adversary",
    "Loss",
    "Way",
    "as_decimal",
    "ignorant_leakage",
    "informed_leakage",
    "log_above",
    "losses_above",
    "universal_leakage",
    "universal_losses",
    "worst_odds_ratio",
]

Adversary = Literal["ignorant", "informed", "universal"]
"""Knowledge of the adversary: one chain of the class; also any set of true states; any side information about states.

No adversary is one who has yet to learn which chain of the class it is.
"""

_ROUNDING = Decimal("1e-30")
"""Far above the error of all that is computed below, and far below what a float can tell."""

# Every quantity below is a positive number made from positive numbers, and every map of ticks is a Moebius map
# with positive entries, whose log-log slope is at most 1. So relative errors add up: at most 10 roundings per
# tick, 10^-49 each, stay below 2 * 10^-36 for _MAX_TICKS ticks, and so does the absolute error of a logarithm.
CONTEXT = Context(prec=50, rounding=ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999)
_STOP = Decimal("1.00000000000000000000000000000001")  # a literal: a sum here would be rounded to 28 digits
_MAX_TICKS = 1 << 40
_MAX_STEPS = 10_000
_MAX_CLIMB = 100

_Matrix: TypeAlias = tuple[Fraction, Fraction, Fraction, Fraction]
_N = TypeVar("_N", Fraction, Decimal)
_DecimalMatrix: TypeAlias = tuple[Decimal, Decimal, Decimal, Decimal]


class Loss(NamedTuple):
    """The epsilon that a mechanism really has, in nats, rounded up, by the theorem or bound that `bound` names.

    `epsilon` is the larger direction, `epsilon_01` that of "state 0 rather than 1"; beyond two states all three are
    equal.
    """

    epsilon: float
    epsilon_01: float
    epsilon_10: float
    adversary: Adversary
    bound: str


class Leakage(NamedTuple):
    """The largest likelihood ratio that the past, or the future, of a tick can add: exact, or a bound if cut short.

    It is attained by the nearest known state after `gap` unknown ticks, or by knowing nothing (`None`).
    """

    ratio: Decimal
    known_state: int | None
    gap: int
    exact: bool


class Way(NamedTuple):
    """One direction: its chain parameters, and the largest and smallest likelihood ratio of a tick."""

    q: Fraction
    r: Fraction
    largest: Fraction
    smallest: Fraction


def ignorant_leakage(way: Way) -> Decimal:
    """Return the limit of the likelihood ratio without known states (m* of BDP theorem 1)."""
    harmless = way.largest == 1 and (way.q + way.r < 1 or way.smallest == 1)
    if harmless or way.q + way.r == 1:
        return Decimal(1)
    return max(Decimal(1), _fixed_point(_period(way, loaded=True)))


def _period(way: Way, *, loaded: bool) -> _Matrix:
    """Return the increasing Moebius map of one tick (q+r < 1) or two ticks (q+r > 1) of one direction.

    With q+r > 1 the map f of a single tick decreases, so the worst outputs alternate: the nearest tick shows
    the smallest ratio, the next the largest, and so on; two ticks together increase again.
    """
    near, far = (way.smallest, way.largest) if loaded else (Fraction(1), Fraction(1))
    outer = _tick(way, far if way.q + way.r < 1 else near)
    return outer if way.q + way.r < 1 else _product(outer, _tick(way, far))


def _tick(way: Way, ratio: Fraction) -> _Matrix:
    return (1 - way.q) * ratio, way.q, way.r * ratio, 1 - way.r


def _product(left: tuple[_N, _N, _N, _N], right: tuple[_N, _N, _N, _N]) -> tuple[_N, _N, _N, _N]:
    a, b, c, d = left
    e, f, g, h = right
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


def _fixed_point(matrix: _Matrix) -> Decimal:
    """Return the positive root of c u^2 + (d - a) u - b = 0, without cancellation."""
    a, b, c, d = matrix
    root = as_decimal((a - d) ** 2 + 4 * b * c).sqrt()
    if a >= d:
        return (as_decimal(a - d) + root) / as_decimal(2 * c)
    return as_decimal(2 * b) / (as_decimal(d - a) + root)


@lru_cache(maxsize=64)  # policies of a fleet have few classes
def informed_leakage(q: Fraction, r: Fraction, largest: Fraction, smallest: Fraction) -> Leakage:
    """Return the most that one direction adds for an adversary who may know states there.

    With the nearest known state y after t unknown ticks the leakage is h_t = m_t / n_t, where m_t takes the worst
    outputs and n_t none. Along every subsequence of _starts, m_t and n_t move together and monotonically to m* and 1:
    upwards if n_t < 1, downwards if n_t > 1. So the supremum over the rest is at most m*/n_t, or m_t, which makes the
    stop certified.
    q = Pr(next state 1 given state 0), r = Pr(next state 0 given state 1); a tick's output has likelihood ratios of
    state 0 over state 1 from `smallest`, at most 1, to `largest`, at least 1.
    Source: BDP definition 4; docs/proofs/randomised-response.md, "Three adversaries in closed form".
    """
    way = Way(q, r, largest, smallest)
    with localcontext(CONTEXT):
        best = Leakage(ignorant_leakage(way), None, 0, True)
        if best.ratio == 1:
            return best
        limit, maps = best.ratio, _Maps(way)
        for start in _starts(way):
            best = _search(best, maps, limit, start)
        if best.exact:
            return best
        cap = universal_leakage(worst_odds_ratio(q, r), max(largest, 1 / smallest))
        return best._replace(ratio=min(best.ratio, cap))


def _starts(way: Way) -> list[tuple[int, int, Decimal, Decimal]]:
    """Return (known state, gap, m, n) at the head of each monotone subsequence, the rising ones first."""
    near = [(0, 0, (1 - way.q) / way.r), (1, 0, way.q / (1 - way.r))]
    starts = [(known, gap, ratio, ratio) for known, gap, ratio in near]
    if way.q + way.r > 1:
        maps = _tick(way, way.smallest), _tick(way, Fraction(1))
        starts += [(known, 1, _image(maps[0], ratio), _image(maps[1], ratio)) for known, _, ratio in near]
    starts.sort(key=lambda start: start[3])
    return [(known, gap, as_decimal(m), as_decimal(n)) for known, gap, m, n in starts]


def _search(best: Leakage, maps: _Maps, limit: Decimal, start: tuple[int, int, Decimal, Decimal]) -> Leakage:
    """Follow one monotone subsequence until what is left of it cannot exceed the best.

    Stretches of 2^level steps that provably stay below the best are skipped, and a climb to a peak goes first, so that
    sticky chains are quick too.
    """
    loaded, unloaded = maps.loaded, maps.unloaded
    known, gap, m, n = start
    rising, level = n < 1, 0
    steps, peak = _climb(loaded, unloaded, m, n)
    if peak > best.ratio:
        best = Leakage(peak, known, gap + maps.stride * steps, best.exact)
    rest = m / n
    for _ in range(_MAX_STEPS):
        if m / n > best.ratio:
            best = Leakage(m / n, known, gap, best.exact)
        rest = limit / n if rising else m
        if rest <= best.ratio * _STOP:
            return best._replace(ratio=max(best.ratio, rest))
        if gap > _MAX_TICKS:
            break
        after = _image(unloaded[level], n)
        while level > 0 and maps.bound(level, m / n, (n, after)) > best.ratio:
            level -= 1
            after = _image(unloaded[level], n)
        m, n = _image(loaded[level], m), after
        gap += maps.stride << level
        level += 1
    return Leakage(max(rest, best.ratio), known, gap, False)


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


class _Maps:
    """The maps of a way, in decimals, and what many of their steps can come to.

    `loaded` and `unloaded` are the powers of one step of `stride` ticks, with the worst outputs and without any.
    """

    def __init__(self, way: Way) -> None:
        self.loaded, self.unloaded = (_Powers(_decimals(_period(way, loaded=x))) for x in (True, False))
        self.stride = 1 if way.q + way.r < 1 else 2
        self._x, self._y = as_decimal((1 - way.q) / way.q), as_decimal(way.r / (1 - way.r))
        self._largest, self._smallest = as_decimal(way.largest), as_decimal(way.smallest)
        self._alternating = None if self.stride == 1 else _decimals(_tick(way, Fraction(1)))

    def bound(self, level: int, ratio: Decimal, ends: tuple[Decimal, Decimal]) -> Decimal:
        """Bound h over the next 2^level steps of a subsequence, from h = `ratio` and n at both ends.

        A step of h is a bridge (q+r < 1), or two of them with n and f(n) (q+r > 1). For v >= 1 a bridge grows with x
        and falls with y; for v <= 1 it is the reverse. So the ends of n bound every step of the stretch by one map that
        increases in h; repeated, it is monotone, hence largest at one of its ends.
        """
        low, high = min(ends), max(ends)
        if (f := self._alternating) is None:
            step = self._bridge(self._largest, high, low)
        else:
            near = self._bridge(self._smallest, _image(f, high), _image(f, low))
            step = _product(near, self._bridge(self._largest, low, high))
        return max(ratio, _image(_Powers(step)[level], ratio))

    def _bridge(self, g: Decimal, n_of_x: Decimal, n_of_y: Decimal) -> _DecimalMatrix:
        """Return h -> f(n G h)/f(n) = (x v + 1)(1 + y)/((1 + x)(y v + 1)), v = G h, x = n(1-q)/q, y = n r/(1-r)."""
        x, y = n_of_x * self._x, n_of_y * self._y
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


def _image(matrix: tuple[_N, _N, _N, _N], value: _N) -> _N:
    a, b, c, d = matrix
    return (a * value + b) / (c * value + d)


@lru_cache(maxsize=64)  # a search asks for those of one class again and again
def worst_odds_ratio(q: Fraction, r: Fraction) -> Fraction:
    """Return the odds ratio of a binary step, or its inverse if that is larger."""
    alpha = (1 - q) * (1 - r) / (q * r)
    return max(alpha, 1 / alpha)


def universal_leakage(alpha: Fraction, ratio: Fraction) -> Decimal:
    """Return the fixed point m of m = W(G m), W(u) = ((sqrt(alpha u) + 1)/(sqrt(alpha) + sqrt(u)))^2.

    W(u) is the largest ratio of two means of a function with values in [1, u] under two distributions whose likelihood
    ratios differ by a factor of at most alpha: conditioning on side information reweights both rows of a transition
    matrix alike and leaves that factor alone. A linear-fractional maximum over a box puts u on a set; with
    probabilities a and p of that set, odds(a)/odds(p) <= alpha, and the best p gives W. So it holds for any number of
    states, any start and steps that change. In w = sqrt(m) the fixed point is g w^2 - sqrt(alpha) (g-1) w - 1 = 0 with
    g = sqrt(G).
    """
    root, g = as_decimal(alpha).sqrt(), as_decimal(ratio).sqrt()
    slope = root * (as_decimal(ratio - 1) / (g + 1))
    w = (slope + (slope * slope + 4 * g).sqrt()) / (2 * g)
    return max(Decimal(1), w * w)


def universal_losses(
    alpha: Fraction, ticks: tuple[Fraction, Fraction], neighbours: tuple[Fraction, Fraction]
) -> list[Decimal]:
    """Return log(G m^2) in both directions: G from `ticks`, m the leakage of `neighbours`."""

    @cache  # mostly both are the same
    def loss(tick: Fraction, worst: Fraction) -> Decimal:
        leakage = universal_leakage(alpha, worst)
        return (as_decimal(tick) * leakage * leakage).ln()

    return [loss(*pair) for pair in zip(ticks, neighbours, strict=True)]


def losses_above(epsilons: list[Decimal], adversary: Adversary, bound: str) -> Loss:
    """Return the loss of both directions as floats that are not below the decimals plus their rounding error."""
    upward = [float_up(epsilon + _ROUNDING) for epsilon in epsilons]
    return Loss(max(upward), upward[0], upward[1], adversary, bound)


def log_above(ratio: Fraction) -> float:
    """Return the logarithm of a likelihood ratio, rounded up."""
    return float_up(as_decimal(ratio).ln() + _ROUNDING)


def as_decimal(value: Fraction) -> Decimal:
    """A fraction as a decimal of the precision in force."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def _decimals(matrix: _Matrix) -> _DecimalMatrix:
    a, b, c, d = matrix
    return as_decimal(a), as_decimal(b), as_decimal(c), as_decimal(d)

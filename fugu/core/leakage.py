"""Loss of a tick's state to an adversary, as likelihood ratios in integers over 2^128; every rounding goes outward.

The ticks before a tick, or those after it, are a side: it adds to the ratio of the tick's own outputs. Along a chain of
two states the ratio is carried by Moebius maps; else a side is bounded by the odds ratios of the steps alone.
Source: docs/proofs/randomised-response.md, "Binary chains in closed form".
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Idle = Callable[[], None]
    Fraction = tuple[int, int]
    Step = tuple[int, int, int, int]
    Ends = tuple[Fraction, Fraction]

__all__ = ["BITS", "MOST_NATS", "ONE", "exp_up", "less", "losses", "odds_leakage", "ratio_up", "times_up", "worst_odds"]

BITS = 128
ONE = 1 << BITS
MOST_NATS = 1000
"""Of one tick, or of a stretch."""
_MOST_STEPS = 10000
_MOST_TICKS = 1 << 40
_MAP_BITS = 192
_MOST_SHIFT = 64
"""Chains of steps rarer than 2^-64 have too few digits of n: they get the bound by odds ratios."""
_NEAR = ONE + (ONE >> 100)
_STORED = 1 if sys.implementation.name == "micropython" else 64
"""Powers of a map that are stored: a board has little memory, and time."""


def losses(
    members: "Sequence[Fraction]", up: int, down: int, adversary: str, on_progress: "Idle" = lambda: None
) -> tuple[int, int]:
    """Bound the ratios of all that is said of a tick's state: of state 0 over 1, and of 1 over 0.

    `up` and `down` bound those of the tick's own outputs. `members` are the lowest and highest q, the lowest and
    highest r of chains of two states; or a bound on the odds ratios of all steps. `on_progress` is called often.

    The map of a tick falls in q and r for u >= 1 and rises for u <= 1. So with q + r < 1 the lowest corner is the worst
    chain, and with q + r > 1 the highest is, for an ignorant adversary; a class on both sides of 1 needs both. With
    q + r > 1 an informed adversary can gain most inside an interval: there odds ratios bound the class.
    Source: docs/proofs/randomised-response.md, "Worst corner".
    """
    worst = max(up, down)
    if worst == ONE:
        return ONE, ONE
    if len(members) == 1:
        return _with_odds(members[0], up, down, worst, worst)
    q_low, q_high, r_low, r_high = members
    alternating = _beyond_one(q_high, r_high) > 0
    if adversary == "universal":  # steps that keep their sign need the direction's own ratio only
        sides = (worst, worst) if alternating else (up, down)
        return _with_odds(worst_odds(members), up, down, sides[0], sides[1])
    corners = [(q_low, r_low)] if _beyond_one(q_low, r_low) < 0 else []
    point = not less(q_low, q_high) and not less(r_low, r_high)
    upward, other = up, down
    if alternating and (point or adversary == "ignorant"):
        corners.append((q_high, r_high))
    elif alternating:
        upward, other = _with_odds(worst_odds((q_high, q_high, r_high, r_high)), up, down, worst, worst)
    for q, r in corners:
        first, second = _side(q, r, up, down, adversary, on_progress), _side(r, q, down, up, adversary, on_progress)
        upward, other = max(upward, times_up(up, first, first)), max(other, times_up(down, second, second))
    return upward, other


def _with_odds(odds: "Fraction", up: int, down: int, first: int, second: int) -> tuple[int, int]:
    """Losses by odds ratios alone; the sides of each direction have outputs of the last two ratios."""
    side_up = odds_leakage(odds, first)
    side_down = side_up if first == second else odds_leakage(odds, second)
    return times_up(up, side_up, side_up), times_up(down, side_down, side_down)


def odds_leakage(odds: "Fraction", ratio: int) -> int:
    """The most that a side adds if its steps have such odds ratios and its outputs such a ratio, whatever is known.

    It is m of m = W(ratio m), W(u) = ((sqrt(odds u) + 1) / (sqrt(odds) + sqrt(u)))^2. W is the largest ratio of two
    means of a function with values in [1, u] under two distributions. Their likelihood ratios differ by a factor of at
    most odds. Conditioning on side information reweights both rows of a transition matrix alike and leaves that factor
    alone. A linear-fractional maximum over a box puts u on a set; with probabilities a and p of that set, odds(a) /
    odds(p) is at most odds, and the best p gives W. So it holds for any number of states, any start, and steps that
    change. In w = sqrt(m) the fixed point is g w^2 - sqrt(odds) (g - 1) w - 1 = 0 with g = sqrt(ratio).
    """
    root = _sqrt_up(ratio_up(odds[0], odds[1]))
    root_low, root_high = _isqrt(ratio << BITS), _sqrt_up(ratio)
    slope = times_up(root, root_high - ONE)
    w = max(ONE, -(-((slope + _sqrt_up(times_up(slope, slope) + 4 * root_high)) << BITS) // (2 * root_low)))
    return times_up(w, w)


def worst_odds(members: "Sequence[Fraction]") -> "Fraction":
    """The largest odds ratio of a step, or its inverse: that of a corner, as it is monotone in q and r."""
    if len(members) == 1:
        return members[0]
    worst = 1, 1
    for q in members[:2]:
        for r in members[2:]:
            top, bottom = (q[1] - q[0]) * (r[1] - r[0]), q[0] * r[0]
            for odds in ((top, bottom), (bottom, top)):
                if less(worst, odds):
                    worst = odds
    return worst


def _beyond_one(q: "Fraction", r: "Fraction") -> int:
    return q[0] * r[1] + r[0] * q[1] - q[1] * r[1]


def _side(q: "Fraction", r: "Fraction", up: int, down: int, adversary: str, on_progress: "Idle") -> int:
    """The most that a side adds in one direction, for the chain of q and r, q + r other than 1.

    With q + r > 1 the map of one tick falls, so the worst outputs alternate: the nearest tick shows the smallest ratio,
    the next the largest. Over two ticks the map rises again.
    """
    # u -> f(ratio u), f(u) = ((1 - q) u + q) / (r u + 1 - r), with both sides of the fraction times q[1] r[1]
    plain_step = (q[1] - q[0]) * r[1], q[0] * r[1], r[0] * q[1], (r[1] - r[0]) * q[1]
    sticky = _beyond_one(q, r) < 0
    if up == ONE and (sticky or down == ONE):
        return ONE
    a, b, c, d = plain_step
    loaded_step = a * up, b << BITS, c * up, d << BITS
    near_step = a << BITS, b * down, c << BITS, d * down
    if not sticky:
        loaded_step = _product(near_step, loaded_step)
    a, b, c, d = loaded_step  # the fixed point is the root of c u^2 + (d - a) u - b
    root = _isqrt((a - d) * (a - d) + 4 * b * c)
    limit = -(-((a - d + root + 1) << BITS) // (2 * c)) if a >= d else -(-(2 * b << BITS) // (root + d - a))
    limit = max(ONE, limit)
    if adversary == "ignorant":
        return limit
    capped = odds_leakage(worst_odds((q, q, r, r)), max(up, down))
    if min(plain_step) < q[1] * r[1] >> _MOST_SHIFT:
        return capped
    starts = [((q[1] - q[0]) * r[1], q[1] * r[0]), (q[0] * r[1], q[1] * (r[1] - r[0]))]  # m and n after a known state
    pairs = [(start, start) for start in starts]
    if not sticky:
        pairs += [(_moved(near_step, start), _moved(plain_step, start)) for start in starts]
    walked = _walk(limit, pairs, (plain_step, loaded_step), (q, r), (up, 0 if sticky else down), on_progress)
    return min(walked, capped)


def _walk(
    limit: int,
    pairs: "list[Ends]",
    steps: "tuple[Step, Step]",
    ends: "Ends",
    ratios: tuple[int, int],
    on_progress: "Idle",
) -> int:
    """The most that a side adds if a state of it is known; `limit` at least, which is what it adds if none is.

    h = m / n along the ticks after the known state, m with the worst outputs and n with none, of which `pairs` have the
    first. Both go monotonically to their limits, n to 1: so what is left is at most limit / n, or m, and the end is
    proven. Stretches of 2^level steps that provably stay below the best are skipped. A climb to a peak goes first, so
    that chains that hardly change are quick too.
    """
    plain, loaded = steps
    unloaded = _product(plain, plain) if ratios[1] else plain
    worst, lower, upper = _Powers(loaded, True), _Powers(unloaded, False), _Powers(unloaded, True)
    best = limit
    for m_start, n_start in pairs:
        m, low, high = ratio_up(*m_start), (n_start[0] << BITS) // n_start[1], ratio_up(*n_start)
        best = max(best, _climbed(worst, lower, m, low, on_progress))
        rising, ticks, level, remaining = n_start[0] < n_start[1], 0, 0, m
        for _ in range(_MOST_STEPS):
            on_progress()
            ratio = -(-(m << BITS) // low)
            best = max(best, ratio)
            remaining = -(-(limit << BITS) // low) if rising else m
            if remaining <= best * _NEAR >> BITS or ticks > _MOST_TICKS:
                break
            while True:
                next_low, next_high = lower.image(low, level), upper.image(high, level)
                sides = (low, next_high) if rising else (next_low, high)
                if not level or _Powers(_bridge(plain, ends, ratios, sides), True).image(ratio, level) <= best:
                    break
                level -= 1
            m, low, high = worst.image(m, level), next_low, next_high
            ticks += 1 << level
            level += 1
        best = max(best, remaining)
    return best


def _climbed(loaded: "_Powers", lower: "_Powers", m: int, low: int, on_progress: "Idle") -> int:
    """A ratio near the top of a rise, walked up in strides of powers of two."""
    top = level = 0
    while 0 <= level <= 40:
        on_progress()
        next_m, next_low = loaded.image(m, level), lower.image(low, level)
        ratio = -(-(next_m << BITS) // next_low)
        top = max(top, ratio)
        if (loaded.image(next_m, 0) << BITS) // lower.image(next_low, 0) > ratio * _NEAR >> BITS:
            m, low, level = next_m, next_low, level + 1
        else:
            level -= 1
    return top


def _bridge(plain: "Step", ends: "Ends", ratios: tuple[int, int], sides: tuple[int, int]) -> "Step":
    """An increasing map that bounds what a step does to h while n is between two sides; repeated, it is monotone.

    A tick takes h to (x v + 1) (1 + y) / ((1 + x) (y v + 1)) with v = ratio h, x = n (1 - q) / q, y = n r / (1 - r).
    For v >= 1 it grows with x and falls with y; for v <= 1 it is the reverse. From h on, all is at most the larger of h
    and the map's image of it. A map that is nowhere below an increasing one stays so when both are applied twice: each
    rounding is outward by itself. Of two ticks, the first has the lowest image, as the second falls in it.
    """
    low, high = sides
    up, down = ratios
    if not down:
        return _tick(ends, up, ONE, high, low)
    first = _tick(ends, up, ONE, low, high, False)
    return _product(_tick(ends, ONE, down, _image(plain, high, False), _image(plain, low, True), False), first)


def _tick(ends: "Ends", top: int, bottom: int, n_of_x: int, n_of_y: int, round_up: bool = True) -> "Step":
    """The map of h of one tick with outputs of the ratio top / bottom; x and y are rounded up and down, or reversed."""
    q, r = ends
    x, y = n_of_x * (q[1] - q[0]), n_of_y * r[0]
    x, y = (-(-x // q[0]), y // (r[1] - r[0])) if round_up else (x // q[0], -(-y // (r[1] - r[0])))
    return top * x * (ONE + y), bottom * (ONE + y) << BITS, top * y * (ONE + x), bottom * (ONE + x) << BITS


class _Powers:
    """An increasing map u -> (a u + b) / (c u + d), applied 2^level times; every rounding goes to one side."""

    def __init__(self, step: "Step", round_up: bool) -> None:
        self._up = round_up
        self._squares = [self._rounded(step)]

    def image(self, value: int, level: int) -> int:
        """The image of a value, rounded to the side."""
        squares = self._squares
        power = min(level, len(squares) - 1)
        step = squares[power]
        while power < level:
            a, b, c, d = step
            step = self._rounded((a * a + b * c, b * (a + d), c * (a + d), b * c + d * d))
            power += 1
            if power < _STORED:
                squares.append(step)
        return _image(step, value, self._up)

    def _rounded(self, step: "Step") -> "Step":
        a, b, c, d = step
        shift = max(0, 4 * len("%x" % max(step)) - _MAP_BITS)
        if self._up:
            return -(-a >> shift), -(-b >> shift), c >> shift, d >> shift
        return a >> shift, b >> shift, -(-c >> shift), -(-d >> shift)


def _product(outer: "Step", inner: "Step") -> "Step":
    a, b, c, d = outer
    e, f, g, h = inner
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


def _moved(step: "Step", value: "Fraction") -> "Fraction":
    a, b, c, d = step
    return a * value[0] + b * value[1], c * value[0] + d * value[1]


def _image(step: "Step", value: int, round_up: bool) -> int:
    top, bottom = _moved(step, (value, ONE))
    return ratio_up(top, bottom) if round_up else (top << BITS) // bottom


def less(first: "Fraction", other: "Fraction") -> bool:
    """True if a fraction is below another."""
    return first[0] * other[1] < other[0] * first[1]


def ratio_up(top: int, bottom: int) -> int:
    """A fraction over 2^128."""
    return -(-(top << BITS) // bottom)


def times_up(*ratios: int) -> int:
    """The product of ratios over 2^128."""
    product = ONE
    for ratio in ratios:
        product = -(-product * ratio // ONE)
    return product


def exp_up(top: int, bottom: int) -> int:
    """The ratio of a loss in nats, a fraction; ValueError above 1000 nats."""
    if not top:
        return ONE
    if top > MOST_NATS * bottom:
        raise ValueError("more than 1000 nats")
    bits, halvings = BITS + 64, 12  # below 1000/4096; squared twelve times, an error of 2^-192 stays below 2^-170
    unit = 1 << bits
    x = -(-(top << bits) // (bottom << halvings))
    total, term, count = unit, unit, 1
    while term > 1:
        term = -(-term * x // (unit * count))
        total, count = total + term, count + 1
    total += 2  # what is left of the series: terms fall by more than half
    for _ in range(halvings):
        total = -(-total * total // unit)
    return (total >> (bits - BITS)) + 1


def _sqrt_up(value: int) -> int:
    root = _isqrt(value << BITS)
    return root if root * root == value << BITS else root + 1


def _isqrt(value: int) -> int:
    root = 1 << (2 * len("%x" % value) + 1)
    while True:
        better = (root + value // root) // 2
        if better >= root:
            return root
        root = better

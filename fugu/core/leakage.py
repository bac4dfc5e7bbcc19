"""Loss of a tick's state to an adversary, as likelihood ratios in integers over 2^128; every rounding goes outward.

The ticks before a tick are one side of it, the ticks after it the other. Each side adds to the ratio of the tick's own
outputs. For chains of two states, Moebius maps carry the ratio from tick to tick. For other chains, the odds ratios of
the steps bound what a side adds.
Source: docs/proofs/randomised-response.md, "Binary chains in closed form".
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Idle = Callable[[], None]
    Fraction = tuple[int, int]
    Step = tuple[int, int, int, int]
    Pair = tuple[Fraction, Fraction]

__all__ = [
    "BITS",
    "MOST_NATS",
    "ONE",
    "beyond_one",
    "exp_up",
    "less",
    "losses",
    "odds_leakage",
    "ratio_up",
    "times_up",
    "worst_odds",
]

BITS = 128
ONE = 1 << BITS
MOST_NATS = 1000
"""The largest loss of a tick or a stretch that is computed."""
_MOST_STEPS = 10000
_MOST_TICKS = 1 << 40
_MAP_BITS = 192
_MOST_SHIFT = 64
"""Chains with steps rarer than 2^-64 get the bound by odds ratios: n would have too few digits."""
_NEAR = ONE + (ONE >> 100)
_STORED = 1 if sys.implementation.name == "micropython" else 64
"""Powers of a map that are stored: a board has little memory, and takes the time to compute them again."""


def losses(
    members: "Sequence[Fraction]", up: int, down: int, adversary: str, on_progress: "Idle" = lambda: None
) -> tuple[int, int]:
    """Bound the likelihood ratios of all outputs about a tick's state: of state 0 over 1, and of 1 over 0.

    `up` and `down` bound the ratios of the tick's own outputs. `members` of two-state chains are the lowest and highest
    q and the lowest and highest r. Of other classes they are one bound on the odds ratios of all steps. `on_progress`
    is called often.

    The map of a tick falls in q and r for u >= 1 and rises for u <= 1. So with q + r < 1 the lowest corner is the worst
    chain. With q + r > 1 the highest corner is, for an ignorant adversary; a class on both sides of 1 needs both. With
    q + r > 1 an informed adversary can gain most inside an interval: there odds ratios bound the class.
    Source: docs/proofs/randomised-response.md, "Worst corner".
    """
    ratio = max(up, down)
    if ratio == ONE:
        return ONE, ONE
    if len(members) == 1:
        return _odds_losses(members[0], up, down, (ratio, ratio))
    q_low, q_high, r_low, r_high = members
    is_alternating = beyond_one(q_high, r_high) > 0
    if adversary == "universal":  # where steps keep their sign, a direction needs its own ratio only
        return _odds_losses(worst_odds(members), up, down, (ratio, ratio) if is_alternating else (up, down))
    corners = [(q_low, r_low)] if beyond_one(q_low, r_low) < 0 else []
    is_single = not less(q_low, q_high) and not less(r_low, r_high)
    upward, downward = up, down
    if is_alternating and (is_single or adversary == "ignorant"):
        corners.append((q_high, r_high))
    elif is_alternating:
        upward, downward = _odds_losses(worst_odds((q_high, q_high, r_high, r_high)), up, down, (ratio, ratio))
    for q, r in corners:
        side_up = _side_loss(q, r, up, down, adversary, on_progress)
        side_down = _side_loss(r, q, down, up, adversary, on_progress)
        upward = max(upward, times_up(up, side_up, side_up))
        downward = max(downward, times_up(down, side_down, side_down))
    return upward, downward


def _odds_losses(odds: "Fraction", up: int, down: int, ratios: tuple[int, int]) -> tuple[int, int]:
    """Bound both losses by odds ratios alone; `ratios` are those of a side's outputs for each direction."""
    side_up = odds_leakage(odds, ratios[0])
    side_down = side_up if ratios[0] == ratios[1] else odds_leakage(odds, ratios[1])
    return times_up(up, side_up, side_up), times_up(down, side_down, side_down)


def odds_leakage(odds: "Fraction", ratio: int) -> int:
    """Bound what a side adds, whatever is known, by the odds ratio of its steps and the ratio of its outputs.

    The bound is the m with m = W(ratio m), where W(u) = ((sqrt(odds u) + 1) / (sqrt(odds) + sqrt(u)))^2. W is the
    largest ratio of two means of a function with values in [1, u] under two distributions. Their likelihood ratios
    differ by a factor of at most odds. Conditioning on side information reweights both rows of a transition matrix
    alike and does not change that factor. A linear-fractional maximum over a box puts u on a set; with probabilities a
    and p of that set, odds(a) / odds(p) is at most odds, and the best p gives W. So the bound holds for any number of
    states, any start, and steps that change. In w = sqrt(m) the fixed point is g w^2 - sqrt(odds) (g - 1) w - 1 = 0
    with g = sqrt(ratio).
    """
    root = _sqrt_up(ratio_up(odds[0], odds[1]))
    root_low, root_high = _isqrt(ratio << BITS), _sqrt_up(ratio)
    slope = times_up(root, root_high - ONE)
    w = max(ONE, -(-((slope + _sqrt_up(times_up(slope, slope) + 4 * root_high)) << BITS) // (2 * root_low)))
    return times_up(w, w)


def worst_odds(members: "Sequence[Fraction]") -> "Fraction":
    """Return the largest odds ratio of a step, or its inverse: that of a corner, as it is monotone in q and r."""
    if len(members) == 1:
        return members[0]
    worst_ratio = 1, 1
    for q in members[:2]:
        for r in members[2:]:
            top, bottom = (q[1] - q[0]) * (r[1] - r[0]), q[0] * r[0]
            for odds in ((top, bottom), (bottom, top)):
                if less(worst_ratio, odds):
                    worst_ratio = odds
    return worst_ratio


def beyond_one(q: "Fraction", r: "Fraction") -> int:
    """Return q + r - 1 times both denominators; it is above 0 where a chain alternates."""
    return q[0] * r[1] + r[0] * q[1] - q[1] * r[1]


def _side_loss(q: "Fraction", r: "Fraction", up: int, down: int, adversary: str, on_progress: "Idle") -> int:
    """Bound what a side adds in one direction, for the chain of q and r with q + r other than 1.

    With q + r > 1 the map of one tick falls, so the worst outputs alternate: the nearest tick has the smallest ratio,
    the next tick the largest. Over two ticks the map rises again.
    """
    # u -> f(ratio u), f(u) = ((1 - q) u + q) / (r u + 1 - r), with both sides of the fraction times q[1] r[1]
    plain_step = (q[1] - q[0]) * r[1], q[0] * r[1], r[0] * q[1], (r[1] - r[0]) * q[1]
    is_sticky = beyond_one(q, r) < 0
    if up == ONE and (is_sticky or down == ONE):
        return ONE
    a, b, c, d = plain_step
    loaded_step = a * up, b << BITS, c * up, d << BITS
    near_step = a << BITS, b * down, c << BITS, d * down
    if not is_sticky:
        loaded_step = _product(near_step, loaded_step)
    a, b, c, d = loaded_step  # the fixed point is the root of c u^2 + (d - a) u - b
    root = _isqrt((a - d) * (a - d) + 4 * b * c)
    limit = -(-((a - d + root + 1) << BITS) // (2 * c)) if a >= d else -(-(2 * b << BITS) // (root + d - a))
    limit = max(ONE, limit)
    if adversary == "ignorant":
        return limit
    cap = odds_leakage(worst_odds((q, q, r, r)), max(up, down))
    if min(plain_step) < q[1] * r[1] >> _MOST_SHIFT:
        return cap
    states = [((q[1] - q[0]) * r[1], q[1] * r[0]), (q[0] * r[1], q[1] * (r[1] - r[0]))]  # m and n after a known state
    starts = [(state, state) for state in states]
    if not is_sticky:
        starts += [(_mapped(near_step, state), _mapped(plain_step, state)) for state in states]
    bound = _known_loss(limit, starts, (plain_step, loaded_step), (q, r), (up, 0 if is_sticky else down), on_progress)
    return min(bound, cap)


def _known_loss(
    limit: int,
    starts: "list[Pair]",
    steps: "tuple[Step, Step]",
    chain: "Pair",
    ratios: tuple[int, int],
    on_progress: "Idle",
) -> int:
    """Bound what a side adds if one of its states is known; `limit` is the bound if none is.

    The ratio h = m / n is followed tick by tick from the known state, m with the worst outputs and n without outputs;
    `starts` has their first values. Both go monotonically to their limits, n to 1. So all later ratios are at most
    limit / n, or m, which proves the end. Stretches of 2^level steps that provably stay below the peak are skipped. A
    climb to a peak goes first, so that chains that hardly change are quick too.
    """
    plain, loaded = steps
    unloaded = _product(plain, plain) if ratios[1] else plain
    m_map, lower, upper = _Powers(loaded, True), _Powers(unloaded, False), _Powers(unloaded, True)
    peak = limit
    for m_start, n_start in starts:
        m, low, high = ratio_up(*m_start), (n_start[0] << BITS) // n_start[1], ratio_up(*n_start)
        peak = max(peak, _climb(m_map, lower, m, low, on_progress))
        is_rising, ticks, level, bound = n_start[0] < n_start[1], 0, 0, m
        for _ in range(_MOST_STEPS):
            on_progress()
            ratio = -(-(m << BITS) // low)
            peak = max(peak, ratio)
            bound = -(-(limit << BITS) // low) if is_rising else m
            if bound <= peak * _NEAR >> BITS or ticks > _MOST_TICKS:
                break
            while True:
                next_low, next_high = lower.image(low, level), upper.image(high, level)
                bounds = (low, next_high) if is_rising else (next_low, high)
                if not level or _Powers(_bridge(plain, chain, ratios, bounds), True).image(ratio, level) <= peak:
                    break
                level -= 1
            m, low, high = m_map.image(m, level), next_low, next_high
            ticks += 1 << level
            level += 1
        peak = max(peak, bound)
    return peak


def _climb(loaded: "_Powers", lower: "_Powers", m: int, low: int, on_progress: "Idle") -> int:
    """Follow a rising ratio in strides of powers of two. Return the largest ratio on the way."""
    peak = level = 0
    while 0 <= level <= 40:
        on_progress()
        next_m, next_low = loaded.image(m, level), lower.image(low, level)
        ratio = -(-(next_m << BITS) // next_low)
        peak = max(peak, ratio)
        if (loaded.image(next_m, 0) << BITS) // lower.image(next_low, 0) > ratio * _NEAR >> BITS:
            m, low, level = next_m, next_low, level + 1
        else:
            level -= 1
    return peak


def _bridge(plain: "Step", chain: "Pair", ratios: tuple[int, int], bounds: tuple[int, int]) -> "Step":
    """Return an increasing map that bounds a step of h while n stays in a range; repeated, it is monotone.

    A tick takes h to (x v + 1) (1 + y) / ((1 + x) (y v + 1)) with v = ratio h, x = n (1 - q) / q, y = n r / (1 - r).
    For v >= 1 it grows with x and falls with y; for v <= 1 it is the reverse. From h on, every ratio is at most the
    larger of h and its image under the map. A map that is nowhere below an increasing one stays so when both are
    applied twice: each rounding is outward by itself. Of two ticks, the first has the lowest image, as the second falls
    in it.
    """
    low, high = bounds
    up, down = ratios
    if not down:
        return _tick_map(chain, up, ONE, high, low)
    first_map = _tick_map(chain, up, ONE, low, high, False)
    return _product(_tick_map(chain, ONE, down, _image(plain, high, False), _image(plain, low, True), False), first_map)


def _tick_map(chain: "Pair", top: int, bottom: int, n_of_x: int, n_of_y: int, round_up: bool = True) -> "Step":
    """Return the map of h over a tick with outputs of ratio top / bottom; x is of `n_of_x`, and y of `n_of_y`.

    x is rounded up and y down, or the reverse.
    """
    q, r = chain
    x, y = n_of_x * (q[1] - q[0]), n_of_y * r[0]
    x, y = (-(-x // q[0]), y // (r[1] - r[0])) if round_up else (x // q[0], -(-y // (r[1] - r[0])))
    return top * x * (ONE + y), bottom * (ONE + y) << BITS, top * y * (ONE + x), bottom * (ONE + x) << BITS


class _Powers:
    """An increasing map u -> (a u + b) / (c u + d), applied 2^level times; every rounding goes to one side."""

    def __init__(self, step: "Step", round_up: bool) -> None:
        self._up = round_up
        self._squares = [self._rounded(step)]

    def image(self, value: int, level: int) -> int:
        """Apply the map 2^level times to a value."""
        squares = self._squares
        index = min(level, len(squares) - 1)
        step = squares[index]
        while index < level:
            a, b, c, d = step
            step = self._rounded((a * a + b * c, b * (a + d), c * (a + d), b * c + d * d))
            index += 1
            if index < _STORED:
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


def _mapped(step: "Step", value: "Fraction") -> "Fraction":
    a, b, c, d = step
    return a * value[0] + b * value[1], c * value[0] + d * value[1]


def _image(step: "Step", value: int, round_up: bool) -> int:
    top, bottom = _mapped(step, (value, ONE))
    return ratio_up(top, bottom) if round_up else (top << BITS) // bottom


def less(first: "Fraction", other: "Fraction") -> bool:
    """True if a fraction is below another."""
    return first[0] * other[1] < other[0] * first[1]


def ratio_up(top: int, bottom: int) -> int:
    """Return the fraction top / bottom as an integer over 2^128, rounded up."""
    return -(-(top << BITS) // bottom)


def times_up(*ratios: int) -> int:
    """Return the product of ratios over 2^128, rounded up."""
    product = ONE
    for ratio in ratios:
        product = -(-product * ratio // ONE)
    return product


def exp_up(top: int, bottom: int) -> int:
    """Return the ratio e^(top / bottom) of a loss in nats, over 2^128, rounded up; ValueError above 1000 nats."""
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
    total += 2  # for the later terms of the series: each is below half of the one before
    for _ in range(halvings):
        total = -(-total * total // unit)
    return (total >> (bits - BITS)) + 1


def _sqrt_up(value: int) -> int:
    root = _isqrt(value << BITS)
    return root if root * root == value << BITS else root + 1


def _isqrt(value: int) -> int:
    root = 1 << (2 * len("%x" % value) + 1)
    while True:
        new_root = (root + value // root) // 2
        if new_root >= root:
            return root
        root = new_root

"""The guarantee of a policy, derived anew on the board, in integers; every rounding goes outward.

A likelihood ratio is an integer over 2^128. The bounds are those of the agent's `fugu.contract.guarantee` (binary
chains in closed form, odds ratios), to 2^-100 or so; where the agent has one that the board has not, it takes a larger
one.
Source: docs/proofs/randomised-response.md, "Binary chains in closed form".
"""

from .policy import ADVERSARIES, BINARY, Policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Idle = Callable[[], None]
    Fraction = tuple[int, int]
    Claim = tuple[int, int, int]
    Map = tuple[int, int, int, int]
    Ends = tuple[Fraction, Fraction]

__all__ = ["BITS", "ONE", "GuaranteeError", "check", "check_ceilings", "keeps", "other_windows", "window_rate"]

BITS = 128
ONE = 1 << BITS
_MOST_STEPS = 5000
_MOST_TICKS = 1 << 40
_MAP_BITS = 192
_NEAR = ONE + (ONE >> 100)


class GuaranteeError(Exception):
    """A policy does not give what it claims, or gives less than what is burnt into the image."""


def check(policy: Policy, ceilings: "Sequence[tuple[int, int]]" = (), idle: "Idle" = lambda: None) -> int:
    """Bound the ratio of all that a stream says of its stretch; refuse claims that are not proven, or above a ceiling.

    The bound is over 2^128, `ceilings` as for `check_ceilings`. `idle` is called often, as this takes long.
    """
    if policy.windows_guarantee is not None and _proven(policy, (ONE, ONE), policy.windows_guarantee, idle) is None:
        raise GuaranteeError("the windows lose more than is claimed")
    ratios = [_ratio_up(*ratio) for ratio in _table_ratios(policy)]
    bound = _proven(policy, ratios, policy.guarantee, idle)
    if bound is None:
        raise GuaranteeError("the stream loses more than is claimed")
    check_ceilings(policy, ceilings)
    return bound


def check_ceilings(policy: Policy, ceilings: "Sequence[tuple[int, int]]") -> None:
    """Refuse a policy that claims less than is wanted; ceilings are ratios over 2^128, of a stretch of seconds."""
    for ceiling, seconds in ceilings:
        _, claimed, ticks = policy.guarantee
        wanted = _ticks(seconds, policy.period_us)
        if wanted > ticks:
            largest = max(_ratio_up(*ratio) for ratio in _table_ratios(policy))
            claimed = _grown(policy, claimed, largest, ticks, wanted, ceiling)
        if claimed > ceiling:
            raise GuaranteeError("above the ceiling")


def _ticks(seconds: int, period_us: int) -> int:
    """The most ticks of such a stretch, as one may be late; 0 seconds are a single tick."""
    if not seconds:
        return 1
    late = -(-max(period_us, 250000) // period_us)
    return min(-(-seconds * 1000000 // period_us) + late, -(-8 * seconds * 1000000 // (7 * period_us)))


def _proven(policy: Policy, symbols: "Sequence[int]", guarantee: "Claim", idle: "Idle") -> int | None:
    """A bound on the ratio of the windows beside symbols of these ratios, for the stretch of a guarantee; or none."""
    extra = _exp_up(*window_rate(policy))
    one, other = (-(-ratio * extra // ONE) for ratio in symbols)
    for bound in _bounds(policy, one, other, guarantee, idle):
        bound = _grown(policy, bound, max(symbols), 1, guarantee[2], guarantee[1])
        if bound <= guarantee[1]:
            return bound
    return None


def _grown(policy: Policy, bound: int, symbol: int, ticks: int, more: int, most: int) -> int:
    """A bound for a stretch of more ticks, each of which adds what its outputs tell; above `most`, any number."""
    square, left = symbol, more - ticks
    while left and bound <= most:
        if left & 1:
            bound = -(-bound * square // ONE)
        left >>= 1
        square = min(-(-square * square // ONE), most + 1)
    if bound > most:
        return bound
    top, bottom = window_rate(policy)
    top *= more - ticks
    return most + 1 if top > 200 * bottom else -(-bound * _exp_up(top, bottom) // ONE)


def keeps(policy: Policy, pinned: Policy) -> None:
    """Refuse a policy whose guarantee is about something else than that of the policy in the image."""
    if (policy.fleet, policy.device, policy.stream) != (pinned.fleet, pinned.device, pinned.stream):
        raise GuaranteeError("for somebody else")
    if policy.epoch_us != pinned.epoch_us or policy.period_us != pinned.period_us:
        raise GuaranteeError("another clock")
    if policy.discretiser != pinned.discretiser:
        raise GuaranteeError("another discretiser")
    if not _contains(policy, pinned):
        raise GuaranteeError("another class of chains")
    if policy.guarantee[0] < pinned.guarantee[0]:
        raise GuaranteeError("a weaker adversary")
    if other_windows([policy], pinned):
        raise GuaranteeError("a window of the same name with other ticks")
    mine, theirs = _alone(policy), _alone(pinned)
    if mine and theirs and (mine[0] < theirs[0] or mine[1] > theirs[1] or mine[2] < theirs[2]):
        raise GuaranteeError("windows that lose more")


def other_windows(policies: list[Policy], before: Policy) -> bool:
    """True if a window of a policy has the name of one before, of the same stream, and other ticks."""
    ticks = {window.name: (window.start, window.length, window.stride) for window in before.windows}
    for policy in policies:
        for window in policy.windows if policy.stream == before.stream else ():
            mine = window.start, window.length, window.stride
            if ticks.get(window.name, mine) != mine:
                return True
    return False


def window_rate(policy: Policy) -> tuple[int, int]:
    """The loss that all windows add to every tick, in nats, as a fraction."""
    top, bottom = 0, 1
    for window in policy.windows:
        more = window.overlap * (2 if window.histogram else 1) * window.denominator
        top, bottom = top * window.numerator + more * bottom, bottom * window.numerator
    return top, bottom


def _alone(policy: Policy) -> "Claim | None":
    if policy.windows_guarantee is not None:
        return policy.windows_guarantee
    return policy.guarantee if policy.windows else None


def _contains(wider: Policy, pinned: Policy) -> bool:
    if wider.chains == BINARY:
        if pinned.chains != BINARY:
            return False
        (a, b, c, d), (e, f, g, h) = wider.members, pinned.members
        return not (_less(e, a) or _less(b, f) or _less(g, c) or _less(d, h))
    return not _less(wider.members[0], _odds(pinned))


def _less(one: "Fraction", other: "Fraction") -> bool:
    return one[0] * other[1] < other[0] * one[1]


def _odds(policy: Policy) -> tuple[int, int]:
    """The largest odds ratio of a step, as a fraction."""
    if policy.chains != BINARY:
        return policy.members[0]
    worst = 1, 1
    q_low, q_high, r_low, r_high = policy.members
    for q in (q_low, q_high):
        for r in (r_low, r_high):
            top, bottom = (q[1] - q[0]) * (r[1] - r[0]), q[0] * r[0]
            for found in ((top, bottom), (bottom, top)):
                if _less(worst, found):
                    worst = found
    return worst


def _table_ratios(policy: Policy) -> tuple[tuple[int, int], tuple[int, int]]:
    """The largest ratios of the weights of a symbol, of state 0 to 1 and back; of any two states, for more of them."""
    if not policy.symbols:
        return (1, 1), (1, 1)
    ends = [(0,) + row + (1 << 32,) for row in policy.rows]
    one = other = (1, 1)
    for symbol in range(policy.symbols):
        weights = [row[symbol + 1] - row[symbol] for row in ends]
        if policy.states == 2:
            up, down = (weights[0], weights[1]), (weights[1], weights[0])
        else:
            up = down = (max(weights), min(weights))
        if _less(one, up):
            one = up
        if _less(other, down):
            other = down
    return one, other


def _bounds(policy: Policy, one: int, other: int, guarantee: "Claim", idle: "Idle") -> "Iterator[int]":
    """Bounds on the ratio of everything that is said of a tick, for ticks of these ratios; the last holds for all."""
    adversary, claimed, _ = guarantee
    largest = max(one, other)
    if policy.chains == BINARY:
        q_low, q_high, r_low, r_high = policy.members
        for top, bottom in policy.members:
            if top >= bottom:
                raise GuaranteeError("a probability of 1 or more")
        if _less(q_high, q_low) or _less(r_high, r_low):
            raise GuaranteeError("an interval that is empty")
        if ADVERSARIES[adversary] != "universal" and not _above_one(q_high, r_high):
            yield max(
                _sticky(q_low, r_low, one, adversary, claimed, idle),
                _sticky(r_low, q_low, other, adversary, claimed, idle),
            )
    elif _less(policy.members[0], (1, 1)):
        raise GuaranteeError("an odds ratio below 1")
    yield _universal(_odds(policy), largest)


def _above_one(q: "Fraction", r: "Fraction") -> bool:
    return q[0] * r[1] + r[0] * q[1] > q[1] * r[1]


def _universal(odds: "Fraction", ratio: int) -> int:
    """G w^4, where g w^2 - sqrt(odds) (g - 1) w - 1 = 0 and g = sqrt(G)."""
    root = _sqrt_up(_ratio_up(*odds))
    down = _isqrt(ratio << BITS)
    up = down if down * down == ratio << BITS else down + 1
    slope = -(-root * (up - ONE) // ONE)
    w = slope + _sqrt_up(-(-slope * slope // ONE) + 4 * up)
    w = max(ONE, -(-(w << BITS) // (2 * down)))
    leakage = -(-w * w // ONE)
    return -(-ratio * -(-leakage * leakage // ONE) // ONE)


def _sticky(q: "Fraction", r: "Fraction", ratio: int, adversary: int, claimed: int, idle: "Idle") -> int:
    """A bound for the chain of q and r, q + r <= 1, in one direction; more than is claimed where it is not found."""
    if ratio == ONE:
        return ONE
    if q[0] * r[1] + r[0] * q[1] == q[1] * r[1]:
        return ratio
    # u -> f(ratio u), f(u) = ((1 - q) u + q) / (r u + 1 - r), with both sides of the fraction times q[1] r[1]
    a, b = (q[1] - q[0]) * r[1], q[0] * r[1]
    c, d = r[0] * q[1], (r[1] - r[0]) * q[1]
    away = a * ratio - d * ONE
    square = away * away + 4 * b * ONE * c * ratio
    root = _isqrt(square)
    if away >= 0:
        limit = -(-((away + root + 1) << BITS) // (2 * c * ratio))
    else:
        limit = -(-(2 * b * ONE << BITS) // (root - away))
    best = limit = max(limit, ONE)
    if ADVERSARIES[adversary] == "informed":
        most = _walk(best, limit, (a, b, c, d), ratio, (q, r), idle)
        if most is None:
            return claimed + 1
        best = most
    return -(-ratio * -(-best * best // ONE) // ONE)


def _walk(best: int, limit: int, step: "Map", ratio: int, ends: "Ends", idle: "Idle") -> int | None:
    """The most that a side adds if a state of it is known, `best` at least; None if it is not found in time.

    h = m / n along the ticks after the known state, m with the worst symbols and n with none; both go monotonically to
    their limits, so what is left is at most limit / n, or m. Stretches that provably stay below the best are skipped.
    A map of ticks is (a, b, c, d) for u -> (a u + b) / (c u + d). A map that is nowhere below an increasing one stays
    so when both are applied twice: each rounding is outward by itself.
    Source: `fugu.contract.leakage`, which does the same in decimals; docs/proofs/randomised-response.md.
    """
    q, r = ends
    a, b, c, d = step
    loaded = a * ratio, b << BITS, c * ratio, d << BITS
    for start in ((q[1] - q[0], q[1], r[1], r[0]), (q[0], q[1], r[1], r[1] - r[0])):
        top, bottom = start[0] * start[2], start[1] * start[3]
        low = (top << BITS) // bottom
        high = m = _ratio_up(top, bottom)
        best = max(best, _climbed(loaded, step, m, low, idle))
        rising, ticks, level = top < bottom, 0, 0
        for _ in range(_MOST_STEPS):
            idle()
            here = -(-(m << BITS) // low)
            best = max(best, here)
            rest = -(-(limit << BITS) // low) if rising else m
            if rest <= best * _NEAR >> BITS:
                best = max(best, rest)
                break
            if ticks > _MOST_TICKS:
                return None
            while True:
                after, above = _image(step, low, level, False), _image(step, high, level, True)
                sides = (low, above) if rising else (after, high)
                if not level or _image(_bridge(ratio, ends, *sides), here, level, True) <= best:
                    break
                level -= 1
            m, low, high = _image(loaded, m, level, True), after, above
            ticks += 1 << level
            level += 1
        else:
            return None
    return best


def _climbed(loaded: "Map", step: "Map", m: int, low: int, idle: "Idle") -> int:
    """A ratio near the top of a rise, walked up in strides of powers of two."""
    top = level = 0
    while 0 <= level <= 40:
        idle()
        ahead, below = _image(loaded, m, level, True), _image(step, low, level, False)
        here = -(-(ahead << BITS) // below)
        top = max(top, here)
        if (_image(loaded, ahead, 0, True) << BITS) // _image(step, below, 0, False) > here * _NEAR >> BITS:
            m, low, level = ahead, below, level + 1
        else:
            level -= 1
    return top


def _bridge(ratio: int, ends: "Ends", low: int, high: int) -> "Map":
    """An increasing map that bounds what a tick does to h while n is between two ends; repeated, it is monotone.

    A tick takes h to (x v + 1)(1 + y) / ((1 + x)(y v + 1)) with v = ratio h, x = n (1 - q) / q, y = n r / (1 - r). It
    grows with x and falls with y. From h on, all is at most the larger of h and the map's image of it.
    """
    q, r = ends
    x = -(-high * (q[1] - q[0]) // q[0])
    y = low * r[0] // (r[1] - r[0])
    return ratio * x * (ONE + y), (ONE + y) << 2 * BITS, ratio * y * (ONE + x), (ONE + x) << 2 * BITS


def _image(step: "Map", value: int, level: int, up: bool) -> int:
    """The image of a value under a map that is applied 2^level times, rounded up or down."""
    a, b, c, d = step
    for _ in range(level):
        a, b, c, d = a * a + b * c, b * (a + d), c * (a + d), b * c + d * d
        shift = max(0, 4 * len("%x" % max(a, b, c, d)) - _MAP_BITS)
        if up:
            a, b, c, d = -(-a >> shift), -(-b >> shift), c >> shift, d >> shift
        else:
            a, b, c, d = a >> shift, b >> shift, -(-c >> shift), -(-d >> shift)
    top, bottom = (a * value + (b << BITS)) << BITS, c * value + (d << BITS)
    return -(-top // bottom) if up else top // bottom


def _ratio_up(top: int, bottom: int) -> int:
    return -(-(top << BITS) // bottom)


def _exp_up(top: int, bottom: int) -> int:
    if not top:
        return ONE
    if top > 200 * bottom:
        raise GuaranteeError("windows that lose more than 200 nats")
    bits, halvings = BITS + 64, 12  # below 200/4096; squared twelve times, an error of 2^-192 stays below 2^-170
    whole = 1 << bits
    x = -(-(top << bits) // (bottom << halvings))
    total, term, count = whole, whole, 1
    while term > 1:
        term = -(-term * x // (whole * count))
        total, count = total + term, count + 1
    total += 2  # what is left of the series: terms fall by more than half
    for _ in range(halvings):
        total = -(-total * total // whole)
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

"""The guarantee of a policy, derived anew in integers; every rounding goes outward.

It decides for agents, boards, signers and whoever checks a policy. A likelihood ratio is an integer over 2^128.
Source: docs/proofs/stretches.md, docs/proofs/joint-streams.md, and that of `fugu.core.leakage`.
"""

from .leakage import ONE, exp_up, less, losses, ratio_up, times_up
from .policy import ADVERSARIES, BINARY, JOINT, LATE_US, Policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Idle = Callable[[], None]
    Fraction = tuple[int, int]
    Claim = tuple[int, int, int]

__all__ = [
    "GuaranteeError",
    "check",
    "check_ceilings",
    "proven",
    "stretch_ticks",
    "stretched",
    "tick_ratios",
    "window_rate",
]


class GuaranteeError(Exception):
    """A policy does not give what it claims, or gives less than its owner wants."""


def check(policy: Policy, ceilings: "Sequence[tuple[int, int]]" = (), on_progress: "Idle" = lambda: None) -> int:
    """Bound the ratio of all that a stream says of its stretch; refuse claims that are not proven, or above a ceiling.

    The bound is over 2^128, `ceilings` as for `check_ceilings`. `on_progress` is called often, as this takes long.
    """
    if policy.windows_guarantee is not None:
        _prove(policy, policy.windows_guarantee, True, on_progress)
    bound = _prove(policy, policy.guarantee, False, on_progress)
    check_ceilings(policy, ceilings)
    return bound


def _prove(policy: Policy, claim: "Claim", windows_only: bool, on_progress: "Idle") -> int:
    up, down = tick_ratios(policy, windows_only)
    bound = proven(policy, losses(policy.members, up, down, ADVERSARIES[claim[0]], on_progress), claim, windows_only)
    if bound is None:
        raise GuaranteeError("the %s more than is claimed" % ("windows lose" if windows_only else "stream loses"))
    return bound


def proven(policy: Policy, bounds: tuple[int, int], claim: "Claim", windows_only: bool = False) -> int | None:
    """The bound of a claim's stretch from those of a tick; None if it is above the claim. 0 promises nothing."""
    _, claimed, ticks = claim
    if not claimed:
        return max(bounds)
    bound = stretched(policy, max(bounds), 1, ticks, claimed, windows_only)
    return bound if bound <= claimed else None


def check_ceilings(policy: Policy, ceilings: "Sequence[tuple[int, int]]") -> None:
    """Refuse a policy that claims less than is wanted; ceilings are ratios over 2^128, of a stretch of seconds."""
    for ceiling, seconds in ceilings:
        _, claimed, ticks = policy.guarantee
        ceiling_ticks = stretch_ticks(seconds, policy.period_us)
        if not claimed or stretched(policy, claimed, ticks, ceiling_ticks, ceiling) > ceiling:
            raise GuaranteeError("above the ceiling")


def stretch_ticks(seconds: int, period_us: int) -> int:
    """The most ticks that can fall into a time; 0 seconds are a single tick.

    A tick may be late, and the next ones then come sooner: by an eighth of a period each, until nothing is made up for.
    Source: docs/proofs/states-and-ticks.md, "Ticks that skip numbers".
    """
    if not seconds:
        return 1
    late = -(-max(period_us, LATE_US) // period_us)
    return min(-(-seconds * 1000000 // period_us) + late, -(-8 * seconds * 1000000 // (7 * period_us)))


def tick_ratios(policy: Policy, windows_only: bool = False) -> tuple[int, int]:
    """Bound the ratios of what is said of a tick itself, by a stream or by its windows `windows_only`; for `losses`.

    With q + r > 1, neighbouring ticks work in opposite directions. Two policies in turns lose more than either, unless
    each is held to the larger of its ratios twice. Of joint chains it is for all streams, as the class allows them.
    """
    _check_class(policy)
    up, down = (ONE, ONE) if windows_only else _table_ratios(policy)
    rate = window_rate(policy)
    if policy.chains == JOINT:
        allowed = policy.shared[policy.column][2]
        spare = allowed[0] * rate[1] - rate[0] * allowed[1]
        if spare < 0 or max(up, down) > max(ONE, _below(_exp(spare, allowed[1] * rate[1]), 100)):
            raise GuaranteeError("the stream tells more in a tick than its class of chains allows it")
        top, bottom = _shared_rate(policy, rate if windows_only else allowed)
        up = down = _exp(policy.steps * top, bottom)
    else:
        window_ratio = _exp(*rate)
        up, down = times_up(up, window_ratio), times_up(down, window_ratio)
        if policy.chains == BINARY and _above_one(policy.members[1], policy.members[3]):
            up = down = max(up, down)
    return up, down


def stretched(policy: Policy, bound: int, ticks: int, wanted: int, limit: int, windows_only: bool = False) -> int:
    """A bound for a stretch of `wanted` ticks from one for `ticks`; if it is above `limit`, any number above that.

    Each tick more, or less, has the largest ratio of what is said of it. Different states of joint chains may show the
    same. There the past and the future of a tick may tell most of different pairs of states.
    """
    if wanted == ticks:
        return bound
    symbol, rate, extra_ticks = ONE if windows_only else max(_table_ratios(policy)), window_rate(policy), wanted - ticks
    if policy.chains == JOINT:
        if len(policy.shared) > 1:
            symbol, rate = ONE, _shared_rate(policy, rate if windows_only else policy.shared[policy.column][2])
        if ticks == 1:
            bound, extra_ticks = times_up(bound, bound), wanted
    tick = times_up(symbol, _exp(*rate))
    if extra_ticks > 0:
        return times_up(bound, _power(tick, extra_ticks, limit)) if bound <= limit else bound
    return min(bound, ratio_up(bound, _below(_power(tick, -extra_ticks, bound), 64)))


def _power(ratio: int, count: int, limit: int) -> int:
    """A ratio so many times; above `limit`, any number above it."""
    product = ONE
    while count and product <= limit:
        if count & 1:
            product = times_up(product, ratio)
        ratio, count = min(times_up(ratio, ratio), limit + 1), count >> 1
    return product


def _below(ratio: int, digits: int) -> int:
    """A number that is not above what was rounded up to a ratio, which is right to so many binary digits."""
    return ratio - (ratio >> digits)


def _exp(top: int, bottom: int) -> int:
    try:
        return exp_up(top, bottom)
    except ValueError as error:
        raise GuaranteeError("a tick loses %s" % error) from None


def _shared_rate(policy: Policy, own_rate: "Fraction") -> "Fraction":
    """The loss of a tick to all streams of joint chains, in nats, with that of this one."""
    top, bottom = own_rate
    for column, (_, _, rate) in enumerate(policy.shared):
        if column != policy.column:
            top, bottom = top * rate[1] + rate[0] * bottom, bottom * rate[1]
    return top, bottom


def _check_class(policy: Policy) -> None:
    if policy.chains != BINARY:
        if less(policy.members[0], (1, 1)):
            raise GuaranteeError("an odds ratio below 1")
        return
    q_low, q_high, r_low, r_high = policy.members
    for top, bottom in policy.members:
        if top >= bottom:
            raise GuaranteeError("a probability of 1 or more")
    if less(q_high, q_low) or less(r_high, r_low):
        raise GuaranteeError("an interval that is empty")


def _above_one(q: "Fraction", r: "Fraction") -> bool:
    return q[0] * r[1] + r[0] * q[1] > q[1] * r[1]


def window_rate(policy: Policy) -> tuple[int, int]:
    """The loss that all windows and sums add to every tick, in nats, as a fraction."""
    top, bottom = 0, 1
    for window in list(policy.windows) + list(policy.sums):
        window_top, window_bottom = window.rate
        top, bottom = top * window_bottom + window_top * bottom, bottom * window_bottom
    return top, bottom


def _table_ratios(policy: Policy) -> tuple[int, int]:
    """The largest ratios of the weights of a symbol, of state 0 to 1 and back; of any two states, for more of them."""
    if not policy.symbols:
        return ONE, ONE
    ends = [(0,) + row + (1 << 32,) for row in policy.rows]
    upward = other = (1, 1)
    for symbol in range(policy.symbols):
        weights = [row[symbol + 1] - row[symbol] for row in ends]
        if policy.states == 2:
            up, down = (weights[0], weights[1]), (weights[1], weights[0])
        else:
            up = down = (max(weights), min(weights))
        if less(upward, up):
            upward = up
        if less(other, down):
            other = down
    return ratio_up(*upward), ratio_up(*other)

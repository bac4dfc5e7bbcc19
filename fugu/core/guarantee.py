"""The guarantee of a policy, derived again from its noise, in integers; every rounding goes outward.

Agents, boards, signers and `fugu check` all decide by this module. A likelihood ratio is an integer over 2^128.
Source: docs/proofs/stretches.md, docs/proofs/joint-streams.md, and the source of `fugu.core.leakage`.
"""

from .leakage import ONE, beyond_one, exp_up, less, losses, ratio_up, times_up
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
    "prove",
    "stretch_bound",
    "stretch_ticks",
    "table_ratios",
    "tick_ratios",
    "window_rate",
]


class GuaranteeError(Exception):
    """A policy does not give what it claims, or gives less than its owner wants."""


def check(policy: Policy, ceilings: "Sequence[tuple[int, int]]" = (), on_progress: "Idle" = lambda: None) -> int:
    """Refuse a policy whose claims are not proven or are above a ceiling. Return the proven ratio of its stretch.

    `ceilings` are as for `check_ceilings`. `on_progress` is called often, as this takes long.
    """
    if policy.windows_guarantee is not None:
        _check_claim(policy, policy.windows_guarantee, True, on_progress)
    bound = _check_claim(policy, policy.guarantee, False, on_progress)
    check_ceilings(policy, ceilings)
    return bound


def _check_claim(policy: Policy, claim: "Claim", windows_only: bool, on_progress: "Idle") -> int:
    up, down = tick_ratios(policy, windows_only)
    bounds = losses(policy.members, up, down, ADVERSARIES[claim[0]], on_progress)
    bound = prove(policy, bounds, claim, windows_only)
    if bound is None:
        raise GuaranteeError("the %s more than is claimed" % ("windows lose" if windows_only else "stream loses"))
    return bound


def prove(policy: Policy, bounds: tuple[int, int], claim: "Claim", windows_only: bool) -> int | None:
    """Return the bound of a claim's stretch, derived from a tick's bounds, or None if it is above the claim.

    A claimed ratio of 0 promises nothing: the larger bound of a tick is returned.
    """
    _, claimed, ticks = claim
    if not claimed:
        return max(bounds)
    bound = stretch_bound(policy, max(bounds), 1, ticks, claimed, windows_only)
    return bound if bound <= claimed else None


def check_ceilings(policy: Policy, ceilings: "Sequence[tuple[int, int]]") -> None:
    """Refuse a policy whose claim is above a ceiling; each is a ratio over 2^128 and its stretch in seconds."""
    for ceiling, seconds in ceilings:
        _, claimed, ticks = policy.guarantee
        ceiling_ticks = stretch_ticks(seconds, policy.period_us)
        if not claimed or stretch_bound(policy, claimed, ticks, ceiling_ticks, ceiling) > ceiling:
            raise GuaranteeError("above the ceiling")


def stretch_ticks(seconds: int, period_us: int) -> int:
    """Return the most ticks that can fall into a time in seconds; 0 seconds stand for a single tick.

    After a late tick the next ticks come sooner, each by an eighth of a period, until the delay is made up for.
    Source: docs/proofs/states-and-ticks.md, "Ticks that skip numbers".
    """
    if not seconds:
        return 1
    late_ticks = -(-max(period_us, LATE_US) // period_us)
    return min(-(-seconds * 1000000 // period_us) + late_ticks, -(-8 * seconds * 1000000 // (7 * period_us)))


def tick_ratios(policy: Policy, windows_only: bool = False) -> tuple[int, int]:
    """Bound the likelihood ratios of a tick's own outputs, or of its windows alone if `windows_only`.

    With q + r > 1, neighbouring ticks work in opposite directions. Two policies that take turns lose more than either,
    unless each is held to its larger ratio in both directions. The bounds of joint chains are for all their streams,
    with the rates that the class allows.
    """
    _check_class(policy)
    up, down = (ONE, ONE) if windows_only else _table_ratios(policy)
    rate = window_rate(policy)
    if policy.chains == JOINT:
        limit = policy.shared[policy.column][2]
        spare = limit[0] * rate[1] - rate[0] * limit[1]
        if spare < 0 or max(up, down) > max(ONE, _floor(_exp(spare, limit[1] * rate[1]), 100)):
            raise GuaranteeError("the stream tells more in a tick than its class of chains allows it")
        top, bottom = _shared_rate(policy, rate if windows_only else limit)
        up = down = _exp(policy.steps * top, bottom)
    else:
        window_ratio = _exp(*rate)
        up, down = times_up(up, window_ratio), times_up(down, window_ratio)
        if policy.chains == BINARY and beyond_one(policy.members[1], policy.members[3]) > 0:
            up = down = max(up, down)
    return up, down


def stretch_bound(policy: Policy, bound: int, ticks: int, length: int, limit: int, windows_only: bool = False) -> int:
    """Return a bound for stretches of `length` ticks from one for `ticks`; above `limit` any larger number will do.

    Each tick more, or less, counts with the largest ratio of its outputs. Different states of joint chains may show the
    same. There the past and the future of a tick may tell most about different pairs of states.
    """
    if length == ticks:
        return bound
    ratio, rate = ONE if windows_only else max(_table_ratios(policy)), window_rate(policy)
    extra_ticks = length - ticks
    if policy.chains == JOINT:
        if len(policy.shared) > 1:
            ratio, rate = ONE, _shared_rate(policy, rate if windows_only else policy.shared[policy.column][2])
        if ticks == 1:
            bound, extra_ticks = times_up(bound, bound), length
    ratio = times_up(ratio, _exp(*rate))
    if extra_ticks > 0:
        return times_up(bound, _power(ratio, extra_ticks, limit)) if bound <= limit else bound
    return min(bound, ratio_up(bound, _floor(_power(ratio, -extra_ticks, bound), 64)))


def _power(ratio: int, count: int, limit: int) -> int:
    """Return a ratio to the power of `count`, rounded up; above `limit` any larger number will do."""
    product = ONE
    while count and product <= limit:
        if count & 1:
            product = times_up(product, ratio)
        ratio, count = min(times_up(ratio, ratio), limit + 1), count >> 1
    return product


def _floor(ratio: int, digits: int) -> int:
    """Return a number not above the exact value of a ratio that was rounded up at `digits` binary digits."""
    return ratio - (ratio >> digits)


def _exp(top: int, bottom: int) -> int:
    try:
        return exp_up(top, bottom)
    except ValueError as error:
        raise GuaranteeError("a tick loses %s" % error) from None


def _shared_rate(policy: Policy, own_rate: "Fraction") -> "Fraction":
    """Return the loss of a tick by all streams of joint chains, in nats, as a fraction; `own_rate` is this stream's."""
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


def window_rate(policy: Policy) -> tuple[int, int]:
    """Return the loss that all windows and sums together add to every tick, in nats, as a fraction."""
    top, bottom = 0, 1
    for window in list(policy.windows) + list(policy.sums):
        window_top, window_bottom = window.rate
        top, bottom = top * window_bottom + window_top * bottom, bottom * window_bottom
    return top, bottom


def _table_ratios(policy: Policy) -> tuple[int, int]:
    up, down = table_ratios(policy.rows)
    return ratio_up(*up), ratio_up(*down)


def table_ratios(rows: "Sequence[Sequence[int]]") -> "tuple[Fraction, Fraction]":
    """Return the largest exact ratios of a symbol's weights: of state 0 over 1 and of 1 over 0.

    With more than two states, both are the largest ratio of any two states. Without a table, both are 1.
    """
    edges = [[0] + list(row) + [1 << 32] for row in rows]
    upward = downward = (1, 1)
    for symbol in range(len(rows[0]) + 1 if rows else 0):
        weights = [row[symbol + 1] - row[symbol] for row in edges]
        if len(weights) == 2:
            up, down = (weights[0], weights[1]), (weights[1], weights[0])
        else:
            up = down = (max(weights), min(weights))
        if less(upward, up):
            upward = up
        if less(downward, down):
            downward = down
    return upward, downward

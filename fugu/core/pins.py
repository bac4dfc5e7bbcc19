"""Comparison of a policy with the policy that the device's owner has pinned for its stream.

A board loads this after a guarantee has been derived, so that the two do not take its memory at the same time.
"""

from .guarantee import GuaranteeError, stretch_bound
from .leakage import less, worst_odds
from .policy import BINARY, JOINT, Policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .guarantee import Claim

__all__ = ["check_pins", "contains", "departures", "moves_window"]


def check_pins(policy: Policy, pinned: Policy) -> None:
    """Refuse a policy that gives less than the pinned policy of its stream, or is about something else.

    Whether its guarantee holds is not checked here.
    """
    for departure in departures(policy, pinned):
        raise GuaranteeError(departure)


def departures(policy: Policy, pinned: Policy) -> "Iterator[str]":
    """Yield each way in which a policy gives less than the pinned policy, or is about something else."""
    if policy.epoch_us != pinned.epoch_us or policy.period_us != pinned.period_us:
        yield "another clock"
    if policy.discretiser != pinned.discretiser:
        yield "another discretiser"
    if not contains(policy, pinned):
        yield "another class of chains"
    if policy.guarantee[0] < pinned.guarantee[0]:
        yield "a weaker adversary"
    if moves_window([policy], pinned):
        yield "a window of the same name with other ticks"
    claim, pinned_claim = _windows_claim(policy), _windows_claim(pinned)
    if claim and pinned_claim:
        if claim[0] < pinned_claim[0]:
            yield "windows with a weaker adversary"
        _, claimed_ratio, ticks = claim
        _, pinned_ratio, pinned_ticks = pinned_claim
        if pinned_ratio and (
            not claimed_ratio
            or stretch_bound(policy, claimed_ratio, ticks, pinned_ticks, pinned_ratio, True) > pinned_ratio
        ):
            yield "windows that lose more"


def moves_window(policies: list[Policy], earlier: Policy) -> bool:
    """True if a window has the name of a window of an earlier policy of its stream, but other ticks."""
    ticks = {window.name: (window.start, window.length, window.stride) for window in earlier.windows}
    for policy in policies:
        for window in policy.windows if policy.stream == earlier.stream else ():
            window_ticks = window.start, window.length, window.stride
            if ticks.get(window.name, window_ticks) != window_ticks:
                return True
    return False


def _windows_claim(policy: Policy) -> "Claim | None":
    """Return the claim about the windows and sums alone, or None if there are no windows and sums."""
    if policy.windows_guarantee is not None:
        return policy.windows_guarantee
    return policy.guarantee if policy.windows or policy.sums else None


def contains(policy: Policy, pinned: Policy) -> bool:
    """True if a policy's class of chains is shown, exactly, to contain the class of the pinned policy."""
    if policy.chains == JOINT or pinned.chains == JOINT:
        is_same = policy.chains == pinned.chains and policy.steps == pinned.steps and policy.shared == pinned.shared
        return is_same and not less(policy.members[0], pinned.members[0])
    if policy.chains == BINARY:
        if pinned.chains != BINARY:
            return False
        (q0, q1, r0, r1), (pin_q0, pin_q1, pin_r0, pin_r1) = policy.members, pinned.members
        return not (less(pin_q0, q0) or less(q1, pin_q1) or less(pin_r0, r0) or less(r1, pin_r1))
    return not less(policy.members[0], worst_odds(pinned.members))

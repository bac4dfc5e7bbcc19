"""Comparison of a policy with the one of its stream that the owner of the device has pinned.

A board loads this after a guarantee has been derived, so that the two do not take its memory at the same time.
"""

from .guarantee import GuaranteeError, stretched
from .leakage import less, worst_odds
from .policy import BINARY, JOINT, Policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .guarantee import Claim

__all__ = ["contains", "departures", "keeps", "other_windows"]


def keeps(policy: Policy, pinned: Policy) -> None:
    """Refuse a policy that gives less than a pinned one of its stream, or whose guarantee is about something else.

    Whether its guarantee holds is another question.
    """
    for departure in departures(policy, pinned):
        raise GuaranteeError(departure)


def departures(policy: Policy, pinned: Policy) -> "Iterator[str]":
    """Each way in which a policy gives less than a pinned one, or is about something else."""
    if policy.epoch_us != pinned.epoch_us or policy.period_us != pinned.period_us:
        yield "another clock"
    if policy.discretiser != pinned.discretiser:
        yield "another discretiser"
    if not contains(policy, pinned):
        yield "another class of chains"
    if policy.guarantee[0] < pinned.guarantee[0]:
        yield "a weaker adversary"
    if other_windows([policy], pinned):
        yield "a window of the same name with other ticks"
    claim, pinned_claim = _windows_claim(policy), _windows_claim(pinned)
    if claim and pinned_claim:
        if claim[0] < pinned_claim[0]:
            yield "windows with a weaker adversary"
        _, claimed_ratio, ticks = claim
        _, pinned_ratio, pinned_ticks = pinned_claim
        if pinned_ratio and (
            not claimed_ratio
            or stretched(policy, claimed_ratio, ticks, pinned_ticks, pinned_ratio, True) > pinned_ratio
        ):
            yield "windows that lose more"


def other_windows(policies: list[Policy], earlier: Policy) -> bool:
    """True if a window of a policy has the name of one before, of the same stream, and other ticks."""
    ticks = {window.name: (window.start, window.length, window.stride) for window in earlier.windows}
    for policy in policies:
        for window in policy.windows if policy.stream == earlier.stream else ():
            window_ticks = window.start, window.length, window.stride
            if ticks.get(window.name, window_ticks) != window_ticks:
                return True
    return False


def _windows_claim(policy: Policy) -> "Claim | None":
    if policy.windows_guarantee is not None:
        return policy.windows_guarantee
    return policy.guarantee if policy.windows or policy.sums else None


def contains(wider: Policy, pinned: Policy) -> bool:
    """True if the class of chains of a policy is shown to contain another's, exactly."""
    if wider.chains == JOINT or pinned.chains == JOINT:
        same = wider.chains == pinned.chains and wider.steps == pinned.steps and wider.shared == pinned.shared
        return same and not less(wider.members[0], pinned.members[0])
    if wider.chains == BINARY:
        if pinned.chains != BINARY:
            return False
        (a, b, c, d), (e, f, g, h) = wider.members, pinned.members
        return not (less(e, a) or less(b, f) or less(g, c) or less(d, h))
    return not less(wider.members[0], worst_odds(pinned.members))

"""Policies that may run; parts are loaded one after the other, as together they need more memory than a board has."""

from .loading import release
from .policy import Policy, PolicyError
from .trust import RefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["derived", "read"]


def derived(policies: list[bytes], image: "Any", idle: "Callable[[], None]") -> list[Policy]:
    """Read policies that are to run, and hold their derived guarantees against what is burnt in; or RefusedError."""
    stored = read(policies)
    pinned = {policy.stream: policy for policy in (stored if policies == image.POLICIES else read(image.POLICIES))}
    for policy in stored:
        if policy.stream not in pinned or len([other for other in stored if other.stream == policy.stream]) > 1:
            raise RefusedError("guarantee", "stream %s: no sensor, or two policies of a document" % policy.stream)
        policy.device = image.DEVICE
    from .guarantee import GuaranteeError, check, check_ceilings, keeps

    reason = "guarantee"
    try:
        for policy in stored:
            check(policy, (), idle)
        for policy in stored:
            reason = "pinned"
            keeps(policy, pinned[policy.stream])
            reason = "ceiling"
            check_ceilings(policy, image.CEILINGS)
    except GuaranteeError as error:
        raise RefusedError(reason, "stream %s: %s" % (policy.stream, error)) from None
    finally:
        GuaranteeError = check = check_ceilings = keeps = None  # type: ignore[assignment, misc]
        release("fugu.core.guarantee", "fugu.core.leakage")
    return stored


def read(policies: list[bytes]) -> list[Policy]:
    """Read compiled policies; RefusedError if one is none."""
    from .compiled import read_policy

    try:
        return [read_policy(data) for data in policies]
    except PolicyError as error:
        raise RefusedError("guarantee", "a compiled policy: %s" % error) from None
    finally:
        read_policy = None  # type: ignore[assignment]
        release("fugu.core.compiled")

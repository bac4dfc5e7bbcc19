"""Checks of the policies that a device may run.

Modules are loaded one after the other, because together they need more memory than a board has.
"""

from .loading import release
from .policy import Policy, PolicyError
from .trust import RefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .trust import TrustState

__all__ = ["accept", "check_limits", "check_policies"]


def accept(
    content: "tuple[dict[str, Any], list[bytes], int]",
    image: "Any",
    state: "TrustState",
    on_progress: "Callable[[], None]",
) -> "tuple[TrustState, list[Policy]]":
    """Check the content of a document that `judge` accepts. Return the trust that a board stores, and its policies.

    RefusedError if a policy is not for this board, does not keep its guarantee, or is outside the owner's limits.
    """
    changes, compiled, policy_count = content
    if len(compiled) != policy_count:
        raise RefusedError("guarantee", "not compiled for boards: sign it with --boards")
    policies = check_policies(compiled, image, on_progress)
    for policy in policies:
        if policy.version != changes["version"] or policy.fleet != image.FLEET:
            raise RefusedError("guarantee", "a compiled policy of another version than the document")
    running_policies = _read_policies(state.policies)
    from .pins import moves_window

    if any(moves_window(policies, policy) for policy in running_policies):
        raise RefusedError("outbox", "a window of the same name with other ticks")
    return state.with_changes(policies=compiled, **changes), policies


def check_policies(compiled: list[bytes], image: "Any", on_progress: "Callable[[], None]") -> list[Policy]:
    """Read compiled policies for a board, and check them against its image; RefusedError if one may not run."""
    policies = _read_policies(compiled)
    image_policies = policies if compiled == image.POLICIES else _read_policies(image.POLICIES)
    pinned = {policy.stream: policy for policy in image_policies}
    for policy in policies:
        if policy.stream not in pinned or len([other for other in policies if other.stream == policy.stream]) > 1:
            raise RefusedError("guarantee", "stream %s: no sensor, or two policies of a document" % policy.stream)
        policy.device = image.DEVICE
    check_limits(policies, pinned, image.CEILINGS, on_progress)
    return policies


def check_limits(
    policies: list[Policy],
    pinned: dict[str, Policy],
    ceilings: "Sequence[tuple[int, int]]",
    on_progress: "Callable[[], None]",
) -> None:
    """Refuse policies whose guarantees do not hold, or that break the owner's pins or ceilings, by a RefusedError.

    `pinned` has the pinned policies by stream; `ceilings` are as for `check_ceilings`.
    """
    from .guarantee import GuaranteeError, check, check_ceilings

    reason = "guarantee"
    try:
        for policy in policies:
            check(policy, (), on_progress)
        from .pins import check_pins

        for policy in policies:
            reason = "pinned"
            if policy.stream in pinned:
                check_pins(policy, pinned[policy.stream])
            reason = "ceiling"
            check_ceilings(policy, ceilings)
    except GuaranteeError as error:
        raise RefusedError(reason, "stream %s: %s" % (policy.stream, error)) from None
    finally:
        GuaranteeError = check = check_ceilings = check_pins = None  # type: ignore[assignment, misc]
        release("fugu.core.pins", "fugu.core.guarantee", "fugu.core.leakage")


def _read_policies(compiled: list[bytes]) -> list[Policy]:
    """Read compiled policies; RefusedError if bytes are no compiled policy."""
    from .compiled import read_policy

    try:
        return [read_policy(policy_bytes) for policy_bytes in compiled]
    except PolicyError as error:
        raise RefusedError("guarantee", "a compiled policy: %s" % error) from None
    finally:
        read_policy = None  # type: ignore[assignment]
        release("fugu.core.compiled")

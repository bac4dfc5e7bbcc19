"""Policies that may run; parts are loaded one after the other, as together they need more memory than a board has."""

from .loading import release
from .policy import Policy, PolicyError
from .trust import RefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .trust import TrustState

__all__ = ["derived", "of_boards", "within_limits"]


def of_boards(
    content: "tuple[dict[str, Any], list[bytes], int]",
    image: "Any",
    trusted: "TrustState",
    on_progress: "Callable[[], None]",
) -> "tuple[TrustState, list[Policy]]":
    """Trust that a board stores, and policies that it runs, after a policy document; or RefusedError."""
    changes, compiled, count = content
    if len(compiled) != count:
        raise RefusedError("guarantee", "not compiled for boards: sign it with --boards")
    policies = derived(compiled, image, on_progress)
    for policy in policies:
        if policy.version != changes["version"] or policy.fleet != image.FLEET:
            raise RefusedError("guarantee", "a compiled policy of another version than the document")
    running_policies = _read(trusted.policies)
    from .pins import other_windows

    if any(other_windows(policies, policy) for policy in running_policies):
        raise RefusedError("outbox", "a window of the same name with other ticks")
    return trusted.with_changes(policies=compiled, **changes), policies


def derived(policies: list[bytes], image: "Any", on_progress: "Callable[[], None]") -> list[Policy]:
    """Read a board's policies that are to run, and hold them against what is burnt in; or RefusedError."""
    checked = _read(policies)
    pinned = {policy.stream: policy for policy in (checked if policies == image.POLICIES else _read(image.POLICIES))}
    for policy in checked:
        if policy.stream not in pinned or len([other for other in checked if other.stream == policy.stream]) > 1:
            raise RefusedError("guarantee", "stream %s: no sensor, or two policies of a document" % policy.stream)
        policy.device = image.DEVICE
    within_limits(checked, pinned, image.CEILINGS, on_progress)
    return checked


def within_limits(
    policies: list[Policy],
    pinned: dict[str, Policy],
    ceilings: "Sequence[tuple[int, int]]",
    on_progress: "Callable[[], None]",
) -> None:
    """Derive guarantees anew, and hold them against pins and ceilings of the device's owner; or RefusedError."""
    from .guarantee import GuaranteeError, check, check_ceilings

    reason = "guarantee"
    try:
        for policy in policies:
            check(policy, (), on_progress)
        from .pins import keeps

        for policy in policies:
            reason = "pinned"
            if policy.stream in pinned:
                keeps(policy, pinned[policy.stream])
            reason = "ceiling"
            check_ceilings(policy, ceilings)
    except GuaranteeError as error:
        raise RefusedError(reason, "stream %s: %s" % (policy.stream, error)) from None
    finally:
        GuaranteeError = check = check_ceilings = keeps = None  # type: ignore[assignment, misc]
        release("fugu.core.pins", "fugu.core.guarantee", "fugu.core.leakage")


def _read(policies: list[bytes]) -> list[Policy]:
    """Read compiled policies; RefusedError if one is none."""
    from .compiled import read_policy

    try:
        return [read_policy(compiled) for compiled in policies]
    except PolicyError as error:
        raise RefusedError("guarantee", "a compiled policy: %s" % error) from None
    finally:
        read_policy = None  # type: ignore[assignment]
        release("fugu.core.compiled")

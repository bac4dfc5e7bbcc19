"""A policy from its file; check its promise, for a recording too; and attack it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fugu.contract.compiler import compile_policy
from fugu.contract.errors import PolicyError, UsageError
from fugu.contract.leakage import Loss
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.policies import AnyPolicy, read_policy
from fugu.contract.policy import Policy
from fugu.contract.stretches import Ceiling, Stretch
from fugu.host.arguments import epsilon_of

if TYPE_CHECKING:
    from fugu.library.recordings import Source
    from fugu.planning.attacked import Released, Trial
    from fugu.planning.true_class import RecordedClass

__all__ = ["Check", "attack", "check", "drawn", "load_policy"]


def load_policy(path: str | Path) -> AnyPolicy:
    """Read a policy file.

    Returns:
        A `Policy` of symbols and windows, or a `MeasurePolicy` of points.

    Raises:
        PolicyError: it is no policy; names the file and the first field that is wrong.
        OSError: it cannot be read.
    """
    try:
        return read_policy(Path(path).read_bytes())
    except PolicyError as error:
        raise PolicyError(f"{path}: {error}") from None


class Check(NamedTuple):
    """A policy whose promise holds.

    Attributes:
        policy: the policy that was checked.
        epsilon: what was derived for the stretch of the promise, in nats; `None` if a measured stream claims no bound.
        stretches: what longer stretches of time lose.
        recorded: the recording beside the class of the policy, if there was one; `inside` is the verdict.
        loss: the bound and how it was derived.
        windows: the same of the windows alone, where there are symbols too.
    """

    policy: AnyPolicy
    epsilon: float | None
    stretches: tuple[Stretch, ...]
    recorded: RecordedClass | None
    loss: Any
    windows: Loss | None


def _policy(policy: AnyPolicy | str | Path | None) -> AnyPolicy:
    if isinstance(policy, str | Path):
        return load_policy(policy)
    if not isinstance(policy, Policy | MeasurePolicy):
        raise UsageError("give a policy, or its file; a plan that recommends nothing has none")
    return policy


def check(
    policy: AnyPolicy | str | Path | None,
    recording: Source | None = None,
    *,
    ceiling: float | str | None = None,
    **read: Any,
) -> Check:
    """Check a policy as a device does: derive its guarantee anew.

    Args:
        policy: A policy, or its file.
        recording: Somebody's readings, as for `plan`: are they in the policy's class?
        ceiling: Largest epsilon that is accepted, of a tick (1), or about any stretch of a time ("1@1h").
        read: How the recording is read, as for `plan`: `time`, `column`, `only`, `zone`, `missing_values`, `rows`,
            `period`, `gap`, `as_it_is`. A log of changes is looked at once a tick of the policy.

    Raises:
        GuaranteeError: the promise does not hold, or is above the ceiling.
        FuguError: the policy or the recording cannot be read or compared.
    """
    accepted: Ceiling | None = None if ceiling is None else epsilon_of(str(ceiling))
    policy = _policy(policy)
    compile_policy(policy)
    if isinstance(policy, Policy):
        loss = policy.verify(accepted)
        alone = None if policy.table is None else policy.verify_windows()
        bound = policy.bound(loss)
        rows = bound.rows(policy.clock.period_us, policy.guarantee.epsilon)
        found = None
        if recording is not None:
            from fugu.library.recordings import recorded
            from fugu.planning.true_class import recorded_class
            from fugu.recordings.options import read_options

            options = read_options(**read)
            found = recorded_class(policy, recorded(recording, options)[0], options)
        return Check(policy, bound.epsilon(policy.guarantee.stretch_ticks), rows, found, loss, alone)
    policy.verify(None if accepted is None else accepted.epsilon)
    if recording is not None:
        raise UsageError("a recording is for streams of symbols and windows")
    if (claimed := policy.stream_loss.epsilon) is None:
        return Check(policy, None, (), None, None, None)
    from fugu.places.composition import measured_stretches, verify_stream

    derived = verify_stream(policy)
    rows = measured_stretches(policy.measurement, claimed, policy.clock.period_us)
    return Check(policy, derived.epsilon, rows, None, derived, None)


def attack(
    policy: AnyPolicy | str | Path | None,
    recording: Source,
    *,
    known: int | None = None,
    **read: Any,
) -> tuple[Trial, ...]:
    """Attack what a device with a policy would release of a recording, which is the truth that attackers are judged by.

    Args:
        policy: A policy, or its file.
        recording: Readings, as for `plan`; or a list of recordings.
        known: Attackers are told every so many states; 2: both neighbours of each.
        read: How a recording is read, as for `check`.

    Returns:
        A trial for each release and recording: its `attacks`, the most successful first.

    Raises:
        FuguError: the policy or a recording cannot be read, or measures points.
    """
    return tuple(trial for one in drawn(_policy(policy), recording, **read) for trial in one.attacked(known))


def drawn(policy: AnyPolicy, recording: Source, **read: Any) -> Iterator[Released]:
    """Draw what a device with a policy would release of each recording; arguments and errors as of `attack`."""
    from fugu.library.recordings import recorded, several
    from fugu.planning.attacked import released
    from fugu.recordings.options import read_options

    if not isinstance(policy, Policy):
        raise PolicyError("measured points are not attacked here: plan_places attacks them as it plans")
    options = read_options(**read)
    for one in several(recording):
        yield released(policy, recorded(one, options)[0], options)

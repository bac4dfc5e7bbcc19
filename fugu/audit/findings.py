"""What is wrong with a policy, or should be known of it, each by a name that is the same for all policies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from fugu.audit.alternatives import above, widened
from fugu.audit.exact import Claim, NotRecomputed, tick_ratios, window_rate
from fugu.audit.exact.chains.claims import recompute, stream_loss
from fugu.audit.exact.numbers import exp_up
from fugu.contract.errors import GuaranteeError
from fugu.contract.fleet_documents import Enrolment
from fugu.contract.pins import SymbolPins, contains, violations
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy

__all__ = ["Finding", "against_owner", "judged", "other_certificate", "slack"]

_SUSPECT = 1.1
_WIDEST = 64.0
_SEARCHES = 10
_HALVINGS = 20


class Finding(NamedTuple):
    """Something that a reviewer should know.

    Attributes:
        name: of what it is, the same for all policies.
        about: in a sentence.
        wrong: whether the policy must not be trusted; if not, what it promises is true all the same.
    """

    name: str
    about: str
    wrong: bool = True


def judged(given: Mapping[str, Any], claim: Claim) -> Iterator[Finding]:
    """What is to say of one claim."""
    if claim.loss is None:
        yield Finding(
            "not-recomputed", f"{claim.of}: epsilon {float(claim.stated):.10g} is NOT RECOMPUTED: {claim.why}"
        )
        return
    if claim.loss <= claim.stated:
        return
    yield Finding(
        "epsilon-understated",
        f"{claim.of}: epsilon {float(claim.stated):.10g} is stated for the {claim.adversary} adversary, and recomputed "
        f"it is {above(claim.loss):.10g}",
    )
    apart = [{**one, "stride": max(one["stride"], one["length"])} for one in given.get("windows") or ()]
    if apart and any(one.of == claim.of and _confirmed(one) for one in recompute({**given, "windows": apart})):
        shared = ", ".join(f"{one['name']} {-(-one['length'] // one['stride'])}" for one in given["windows"])
        yield Finding(
            "windows-overlap",
            f"{claim.of}: windows that share a tick ({shared}) add {float(window_rate(given)):.6g} nats to it, and "
            f"{_allowance(given, claim):.6g} are allowed: without overlap it would hold",
        )


def _confirmed(claim: Claim) -> bool:
    return claim.loss is not None and claim.loss <= claim.stated


def _allowance(given: Mapping[str, Any], claim: Claim) -> float:
    """The most that windows may add to a tick under a claim, in nats, rounded down."""
    beside = tick_ratios({**given, "windows": ()}) if claim.of != "windows alone" else (Fraction(1),) * 2
    low, high = 0.0, float(claim.stated)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        rate = exp_up(Fraction(middle))
        loss = stream_loss(given["chains"], (beside[0] * rate, beside[1] * rate), claim.adversary)
        low, high = (middle, high) if loss <= claim.stated else (low, middle)
    return low


def other_certificate(policy: AnyPolicy, claims: Sequence[Claim]) -> Iterator[Finding]:
    """Whether the certificate that devices compute says otherwise."""
    try:
        policy.verify(math.inf)
    except GuaranteeError as error:
        if all(_confirmed(claim) for claim in claims):
            yield Finding("devices-refuse", f"what devices compute is another number, and they refuse it: {error}")


def slack(given: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the noise would do for a wider class than the policy names; if by more than a tenth, that is wrong."""
    if given.get("kind") == "points" or not _wider_holds(given, 1.01):
        return
    low, high = 1.01, _WIDEST
    for _ in range(_SEARCHES):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _wider_holds(given, middle) else (low, middle)
    wider = widened(given["chains"], low)
    assert wider is not None
    limits = {name: wider[name] for name in ("q", "r", "odds_ratio") if wider.get(name) is not None}
    told = ", ".join(f"{name} {_rounded(value)}" for name, value in limits.items())
    about = f"the class is narrower than its noise allows: every epsilon also holds for {told}"
    yield Finding("class-narrower-than-noise-allows", about, wrong=_wider_holds(given, _SUSPECT))


def _rounded(value: float | tuple[float, float]) -> str:
    return f"in {value[0]:.4g}..{value[1]:.4g}" if isinstance(value, tuple) else f"up to {value:.4g}"


def _wider_holds(given: Mapping[str, Any], factor: float) -> bool:
    wider = widened(given["chains"], factor)
    try:
        return wider is not None and all(_confirmed(claim) for claim in recompute({**given, "chains": wider}))
    except NotRecomputed:
        return False


def against_owner(policy: AnyPolicy, enrolment: Enrolment) -> Iterator[Finding]:
    """What an owner of a device has said otherwise."""
    if isinstance(policy, Policy):
        epsilon, ceiling = policy.guarantee.epsilon, enrolment.ceiling
        if enrolment.adversaries is not None and policy.guarantee.adversary not in enrolment.adversaries:
            wanted = " or ".join(enrolment.adversaries)
            yield Finding("adversary-not-accepted", f"{policy.guarantee.adversary}: the owner accepts {wanted}")
    else:
        epsilon, ceiling = policy.epsilon, enrolment.measurement_ceiling or 0.0
    if epsilon > ceiling:
        yield Finding("above-ceiling", f"epsilon {epsilon:.10g} is above the owner's ceiling of {ceiling:.10g}")
    pins = enrolment.pins.get(policy.stream)
    if pins is None:
        if enrolment.pins:
            yield Finding("not-pinned", f"the owner has pinned other streams, and nothing of {policy.stream}")
        return
    for violation in violations(policy, pins):
        narrow = (
            isinstance(pins, SymbolPins) and isinstance(policy, Policy) and not contains(policy.chains, pins.chains)
        )
        named = "class-narrower-than-pinned" if narrow and "class of chains" in violation else "pins-violated"
        yield Finding(named, violation)

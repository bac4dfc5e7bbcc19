"""Faults of a policy, and notes on it, each by a name that is the same for all policies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from fugu.audit.exact import Claim, NotRecomputed, tick_ratios, window_rate
from fugu.audit.exact.chains.claims import recompute, stream_loss
from fugu.audit.exact.numbers import exp_up, log_up
from fugu.contract.errors import GuaranteeError
from fugu.contract.fleet_documents import Enrolment
from fugu.contract.pins import SymbolPins, contains, violations
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy

__all__ = [
    "Bound",
    "Finding",
    "above",
    "against_owner",
    "alternatives",
    "bound",
    "judged",
    "other_certificate",
    "slack",
]

_LASTING = (2, 10)


class Bound(NamedTuple):
    """Loss under an assumption, in nats, rounded up; `None` if no bound is known, and then `why`."""

    truth: str
    epsilon: float | None
    why: str = ""


def above(value: Fraction) -> float:
    """The least float that is not below."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def bound(truth: str, chains: Mapping[str, Any], ratios: tuple[Fraction, Fraction], adversary: str) -> Bound:
    """A bound for a class of chains, what a tick tells at most, and an adversary."""
    try:
        return Bound(truth, above(stream_loss(chains, ratios, adversary)))
    except NotRecomputed as error:
        return Bound(truth, None, str(error))


def widened(chains: Mapping[str, Any], factor: float) -> dict[str, Any] | None:
    """A class whose chains may keep a state, or change it, so many times more rarely; None for known chains.

    An odds ratio is of two such probabilities, and grows with the square of the factor, which is at least 1.
    """
    if chains["kind"] == "binary":
        wider = {name: (chains[name][0] / factor, 1 - (1 - chains[name][1]) / factor) for name in "qr"}
        return {**chains, **wider}
    if chains.get("odds_ratio") is not None:
        return {**chains, "odds_ratio": chains["odds_ratio"] * factor**2}
    return None


def alternatives(policy: Mapping[str, Any]) -> Iterator[Bound]:
    """Loss of all symbols and windows of a policy in other classes of chains, against its adversary."""
    chains, adversary, ratios = policy["chains"], policy["guarantee"]["adversary"], tick_ratios(policy)
    yield Bound("independent readings, which is what ordinary differential privacy assumes", above(log_up(max(ratios))))
    if (wider := widened(chains, 1.1)) is not None:
        yield bound("a class wider by 10 %: states kept longer, or changed more often", wider, ratios, adversary)
    yield bound("any start, and steps that change in time, within the class's odds ratios", chains, ratios, "universal")
    for ticks in _LASTING if chains["kind"] != "joint" else ():
        longer = (ratios[0] ** ticks, ratios[1] ** ticks)
        yield bound(f"longer memory: a state lasts {ticks} ticks before the chain moves", chains, longer, adversary)
    yield Bound("any chain at all", None, "no finite one: what a state that never changes adds to every tick adds up")


_SUSPECT = 1.1
_WIDEST = 64.0
_SEARCHES = 10
_HALVINGS = 20


class Finding(NamedTuple):
    """Notice to a reviewer: a name that is the same for all policies, and a sentence about it.

    `wrong` says whether the policy must not be trusted; if not, what it promises is true all the same.
    """

    name: str
    about: str
    wrong: bool = True


def judged(given: Mapping[str, Any], claim: Claim) -> Iterator[Finding]:
    """Findings about one claim."""
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
    """Check whether the certificate that devices compute says otherwise."""
    try:
        policy.verify()
    except GuaranteeError as error:
        if all(_confirmed(claim) for claim in claims):
            yield Finding("devices-refuse", f"what devices compute is another number, and they refuse it: {error}")


def slack(given: Mapping[str, Any]) -> Iterator[Finding]:
    """Check whether the noise would do for a wider class than the policy names; more than a tenth wider is wrong."""
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
    """Findings where a policy contradicts the owner of a device."""
    if not isinstance(policy, Policy):
        epsilon, most = policy.epsilon, enrolment.measurement_ceiling or 0.0
    else:
        most, ceiling = enrolment.ceiling.epsilon, enrolment.ceiling
        epsilon = policy.bound().epsilon(ceiling.ticks(policy.clock.period_us))
        if enrolment.adversaries is not None and policy.guarantee.adversary not in enrolment.adversaries:
            wanted = " or ".join(enrolment.adversaries)
            yield Finding("adversary-not-accepted", f"{policy.guarantee.adversary}: the owner accepts {wanted}")
    if epsilon > most:
        yield Finding("above-ceiling", f"epsilon {epsilon:.10g} is above the owner's ceiling of {most:.10g}")
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

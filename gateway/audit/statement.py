"""A statement about a policy: its outputs, their readers, the losses, and which claims were recomputed.

Losses come from the second certificate (`fugu.audit.exact`), and are compared with the first, which devices compute.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, get_args

from fugu.audit.exact import Claim, NotRecomputed, stream_loss, tick_ratios, window_rate
from fugu.audit.exact.chains.claims import recompute
from fugu.audit.exact.numbers import exp_up, log_up
from fugu.contract.descriptions import describe
from fugu.contract.errors import GuaranteeError, PolicyError
from fugu.contract.fleet_documents import Enrolment
from fugu.contract.history import History, history_alone
from fugu.contract.losses import Adversary, float_up
from fugu.contract.pins import SymbolPins, pins_of, violations
from fugu.contract.policies import AnyPolicy, read_policy
from fugu.contract.policy import Policy
from fugu.contract.sentences import class_sentence, protected_sentence
from fugu.contract.stretches import Stretch
from fugu.contract.topics import Kind, topic_of
from gateway.audit.access import AccessList, output_topics
from gateway.releases.setup import histories_in
from gateway.store.location import Location

__all__ = ["Bound", "Finding", "Statement", "policy_statement"]


_STATE_TICKS = (2, 10)
_SUSPECT_FACTOR = 1.1
_MAX_FACTOR = 64.0
_SEARCHES = 10
_HALVINGS = 20
ASSUMPTIONS = (
    "the sequence of states, after the discretiser, is a chain of the class",
    "ticks are a period apart or more, by a monotonic clock that is honest",
    "when ticks are absent, and when readings are missing without a state of their own, does not depend on readings",
    "the random generator of the device is uniform and nobody else's",
    "nothing else correlated with these states is released; other streams only if the class names them",
    "protected are stretches of as many ticks as each claim says, one if it says none",
)
"""Assumptions that no recomputation can check; docs/privacy.md, "What this rests on"."""


class Bound(NamedTuple):
    """Loss in nats, rounded up, under the assumption `truth`; `None` without a bound, for the reason `why`."""

    truth: str
    epsilon: float | None
    why: str = ""


class Finding(NamedTuple):
    """Notice to a reviewer: the kind of finding (`name`), and a sentence (`about`).

    `wrong` is True if the policy must not be trusted; otherwise its promises are still true.
    """

    name: str
    about: str
    wrong: bool = True


class When(NamedTuple):
    """When a promise (`of`) is true near changes of policy, as in `DescribedPromise`; `words` is '' for always."""

    of: str
    since: int | None
    until: int | None
    outside: float | None
    words: str


class Output(NamedTuple):
    """Messages of a stream in words, their topic, and the accounts that may read it; () without a broker's folder."""

    what: str
    topic: str
    readers: tuple[str, ...]


class StatedClaim(NamedTuple):
    """A claim about an output (`of`), and its recomputed loss in nats, rounded up; `None` for the reason `why`."""

    of: str
    epsilon: float
    adversary: str
    recomputed: float | None
    why: str


class Statement(NamedTuple):
    """Statement about a policy.

    Attributes:
        digest: SHA-256 of the policy's bytes, in hexadecimal digits.
        outputs: all that is published, for the audience `site`.
        adversaries: loss by symbols and windows together against each kind of adversary; () for points.
        windows: loss by windows alone, if the policy also has symbols.
        alternatives: loss by all outputs in other classes of chains.
        when: the time from and to which each promise is true; () if it is false.
    """

    policy: AnyPolicy
    digest: str
    outputs: tuple[Output, ...]
    claims: tuple[StatedClaim, ...]
    adversaries: tuple[Bound, ...]
    windows: tuple[Bound, ...]
    alternatives: tuple[Bound, ...]
    findings: tuple[Finding, ...]
    when: tuple[When, ...] = ()

    @property
    def confirmed(self) -> bool:
        """True if no finding is wrong; a claim that was not recomputed is such a finding."""
        return not any(finding.wrong for finding in self.findings)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Bounds on the loss of stretches by the policy's promise; () for points."""
        if not isinstance(self.policy, Policy):
            return ()
        return self.policy.bound().rows(self.policy.clock.period_us, self.policy.guarantee.epsilon)

    @property
    def conditions(self) -> tuple[str, ...]:
        """Conditions of all promises: a sentence for each sum of homes."""
        return tuple(shared.condition for shared in self.policy.sums) if isinstance(self.policy, Policy) else ()

    @property
    def summary(self) -> str:
        """Summary in one line that names every claim that was not recomputed."""
        missing_claims = [claim.of for claim in self.claims if claim.recomputed is None]
        if self.confirmed:
            return "Every epsilon that is stated was computed again, and holds."
        text = f"NOT CONFIRMED: {sum(finding.wrong for finding in self.findings)} wrong"
        if missing_claims:
            text += f"; NOT RECOMPUTED, so that only the first certificate vouches for it: {', '.join(missing_claims)}"
        return f"{text}."

    def document(self) -> dict[str, Any]:
        """Return the statement as an object for JSON."""
        policy = self.policy
        chains = policy.chains if isinstance(policy, Policy) else None
        return {
            "format": policy.format,
            "statement": "policy",
            "policy_sha256": self.digest,
            **{header: getattr(policy, header) for header in ("fleet", "device", "stream", "version", "kind")},
            "audience": "site",
            "outputs": [output._asdict() for output in self.outputs],
            "claims": [claim._asdict() for claim in self.claims],
            "stretch_ticks": policy.guarantee.stretch_ticks if isinstance(policy, Policy) else 1,
            "stretches": [
                {**stretch._asdict(), "epsilon": stretch.epsilon if math.isfinite(stretch.epsilon) else None}
                for stretch in self.stretches
            ],
            "when": [when._asdict() for when in self.when],
            "adversaries": [adversary._asdict() for adversary in self.adversaries],
            "windows_alone": [window._asdict() for window in self.windows],
            "protected": protected_sentence(policy.discretiser),
            "class": chains and class_sentence(chains),
            "chains": chains and chains.model_dump(mode="json"),
            "discretiser": policy.discretiser.model_dump(mode="json"),
            "pins": pins_of(policy).model_dump(mode="json"),
            "assumptions": [*ASSUMPTIONS, *self.conditions],
            "alternatives": [alternative._asdict() for alternative in self.alternatives],
            "findings": [finding._asdict() for finding in self.findings],
            "not_recomputed": [claim.of for claim in self.claims if claim.recomputed is None],
            "confirmed": self.confirmed,
            "summary": self.summary,
        }


def policy_statement(
    content: bytes, enrolment: Enrolment | None = None, broker: Path | None = None, store: Location | None = None
) -> Statement:
    """Examine a policy in JSON, with a device's ceilings and pins (`enrolment`) and the broker's access list.

    `store` is the gateway's store, with the policies before and after this one; `None` leaves them out.

    Raises PolicyError if the policy cannot be read; FuguError if the broker's folder or the store cannot be read.
    """
    policy, document = read_policy(content), json.loads(content)
    try:
        claims = recompute(document)
    except NotRecomputed as error:
        raise PolicyError(f"nothing of it can be recomputed: {error}") from None
    outputs = _outputs(policy)
    findings = [finding for claim in claims for finding in _claim_findings(document, claim)]
    findings += _device_findings(policy, claims)
    if not findings:
        findings += _class_findings(document)
    if enrolment is not None:
        findings += _owner_findings(policy, enrolment)
    if broker is not None:
        access_list = AccessList.of(broker)
        outputs = [output._replace(readers=access_list.readers(output.topic)) for output in outputs]
        findings += _reader_findings(policy, access_list)
    bounds = windows = alternatives = tuple[Bound, ...]()
    if isinstance(policy, Policy):
        bounds, alternatives = _bounds(document, tick_ratios(document)), tuple(_alternatives(document))
        if policy.windows_guarantee is not None:
            windows = _bounds(document, (exp_up(window_rate(document)),) * 2)
    stated_claims, digest, history = tuple(map(_stated_claim, claims)), hashlib.sha256(content).hexdigest(), None
    if store is not None:
        with histories_in(store, policy.fleet) as histories:
            history = histories(policy.device, policy.stream)
    statement_fields = (tuple(outputs), stated_claims, bounds, windows, alternatives, tuple(findings))
    return Statement(policy, digest, *statement_fields, _promise_periods(policy, history))


def _promise_periods(policy: AnyPolicy, history: History | None) -> tuple[When, ...]:
    if history is None or not history.spans:
        history = history_alone(policy)
    try:
        description = describe(policy, history=history)
    except GuaranteeError:  # findings say that the promise is false
        return ()
    promises = (("everything", description.guarantee), ("windows alone", description.windows_guarantee))
    return tuple(
        When(promise_name, promise.since, promise.until, promise.outside, promise.when_words)
        for promise_name, promise in promises
        if promise is not None
    )


def _reader_findings(policy: AnyPolicy, access_list: AccessList) -> list[Finding]:
    topics = [*output_topics(policy), topic_of("release", policy.fleet, "site", "any")]
    permissions = (f"{reader} may read {topic}" for topic in topics for reader in access_list.strangers(topic))
    reason = "it is told all that the site is, and not the epsilon of an audience"
    return [Finding("reads-the-site", f"{permission}: {reason}") for permission in permissions]


def _stated_claim(claim: Claim) -> StatedClaim:
    loss = None if claim.loss is None else float_up(claim.loss)
    return StatedClaim(claim.output, float(claim.stated), claim.adversary, loss, claim.reason)


def _outputs(policy: AnyPolicy) -> list[Output]:
    seconds, output_words = policy.clock.period_us / 1e6, dict[Kind, str]()
    if not isinstance(policy, Policy):
        output_words["symbols"] = f"a random point every {seconds:g} s"
    elif policy.table is not None:
        output_words["symbols"] = f"a random symbol of {policy.table.symbols} every {seconds:g} s"
    if isinstance(policy, Policy) and policy.windows:
        counts = (f"{window.name} ({window.length} ticks, noise of scale {window.scale})" for window in policy.windows)
        output_words["window"] = f"noisy counts: {', '.join(counts)}"
        output_words["count"] = "the same counts, as the gateway reports them"
    output_words |= {"estimate": "what the gateway makes of these", "description": "the policy's constants"}
    address = (policy.fleet, policy.device, policy.stream)
    return [Output(words, topic_of(kind, *address), ()) for kind, words in output_words.items()]


def _claim_findings(policy: Mapping[str, Any], claim: Claim) -> Iterator[Finding]:
    """Yield findings about a claim that is not recomputed or too small, and about overlapping windows as the cause."""
    stated_words = f"{claim.output}: epsilon {float(claim.stated):.10g} is"
    if claim.loss is None:
        yield Finding("not-recomputed", f"{stated_words} NOT RECOMPUTED: {claim.reason}")
        return
    if claim.loss <= claim.stated:
        return
    recomputed_words = f"recomputed it is {float_up(claim.loss):.10g}"
    stated_words += f" stated for the {claim.adversary} adversary, and {recomputed_words}"
    yield Finding("epsilon-understated", stated_words)
    windows = [{**window, "stride": max(window["stride"], window["length"])} for window in policy.get("windows") or ()]
    if windows and any(
        other.output == claim.output and _is_confirmed(other) for other in recompute({**policy, "windows": windows})
    ):
        shares = ((window["name"], -(-window["length"] // window["stride"])) for window in policy["windows"])
        overlaps = ", ".join(f"{name} {share}" for name, share in shares)
        yield Finding(
            "windows-overlap",
            f"{claim.output}: windows that share a tick ({overlaps}) add {float(window_rate(policy)):.6g} nats to it, "
            f"and {_allowance(policy, claim):.6g} are allowed: without overlap it would hold",
        )


def _is_confirmed(claim: Claim) -> bool:
    return claim.loss is not None and claim.loss <= claim.stated


def _allowance(document: Mapping[str, Any], claim: Claim) -> float:
    """Return the largest rate in nats that windows may add to a tick under a claim, rounded down."""
    symbol_ratios = tick_ratios({**document, "windows": ()}) if claim.output != "windows alone" else (Fraction(1),) * 2
    low_rate, high_rate = 0.0, float(claim.stated)
    for _ in range(_HALVINGS):
        middle_rate = (low_rate + high_rate) / 2
        rate = exp_up(Fraction(middle_rate))
        loss = stream_loss(document["chains"], (symbol_ratios[0] * rate, symbol_ratios[1] * rate), claim.adversary)
        low_rate, high_rate = (middle_rate, high_rate) if loss <= claim.stated else (low_rate, middle_rate)
    return low_rate


def _device_findings(policy: AnyPolicy, claims: Sequence[Claim]) -> Iterator[Finding]:
    """Yield a finding if devices refuse a policy whose claims all hold."""
    try:
        policy.verify()
    except GuaranteeError as error:
        if all(_is_confirmed(claim) for claim in claims):
            yield Finding("devices-refuse", f"what devices compute is another number, and they refuse it: {error}")


def _class_findings(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding if the noise is enough for a class wider than the policy's; from 10 % on the finding is wrong."""
    if document.get("kind") == "points" or not _wider_holds(document, 1.01):
        return
    low, high = 1.01, _MAX_FACTOR
    for _ in range(_SEARCHES):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _wider_holds(document, middle) else (low, middle)
    wider_class = _wider_class(document["chains"], low)
    assert wider_class is not None
    limits = {name: wider_class[name] for name in ("q", "r", "odds_ratio") if wider_class.get(name) is not None}
    limit_words = ", ".join(f"{name} {_limit_words(value)}" for name, value in limits.items())
    reason = f"the class is narrower than its noise allows: every epsilon also holds for {limit_words}"
    yield Finding("class-narrower-than-noise-allows", reason, wrong=_wider_holds(document, _SUSPECT_FACTOR))


def _limit_words(limit: float | tuple[float, float]) -> str:
    return f"in {limit[0]:.4g}..{limit[1]:.4g}" if isinstance(limit, tuple) else f"up to {limit:.4g}"


def _wider_holds(document: Mapping[str, Any], factor: float) -> bool:
    chains = _wider_class(document["chains"], factor)
    try:
        return chains is not None and all(_is_confirmed(claim) for claim in recompute({**document, "chains": chains}))
    except NotRecomputed:
        return False


def _owner_findings(policy: AnyPolicy, enrolment: Enrolment) -> Iterator[Finding]:
    """Yield findings where a policy breaks the ceilings, adversaries or pins of the device's owner."""
    if not isinstance(policy, Policy):
        epsilon, limit = policy.epsilon, enrolment.measurement_ceiling or 0.0
    else:
        limit, ceiling = enrolment.ceiling.epsilon, enrolment.ceiling
        epsilon = policy.bound().epsilon(ceiling.ticks(policy.clock.period_us))
        if enrolment.adversaries is not None and policy.guarantee.adversary not in enrolment.adversaries:
            accepted_words = " or ".join(enrolment.adversaries)
            yield Finding("adversary-not-accepted", f"{policy.guarantee.adversary}: the owner accepts {accepted_words}")
    if epsilon > limit:
        yield Finding("above-ceiling", f"epsilon {epsilon:.10g} is above the owner's ceiling of {limit:.10g}")
    pins = enrolment.pins.get(policy.stream)
    if pins is None:
        if enrolment.pins:
            yield Finding("not-pinned", f"the owner has pinned other streams, and nothing of {policy.stream}")
        return
    for violation in violations(policy, pins):
        is_narrow = (
            isinstance(pins, SymbolPins) and isinstance(policy, Policy) and not policy.chains.covers(pins.chains)
        )
        finding_name = "class-narrower-than-pinned" if is_narrow and "class of chains" in violation else "pins-violated"
        yield Finding(finding_name, violation)


def _bounds(document: Mapping[str, Any], ratios: tuple[Fraction, Fraction]) -> tuple[Bound, ...]:
    """Return a bound for each kind of adversary, from the largest likelihood ratios of a tick."""
    return tuple(_bound(adversary, document["chains"], ratios, adversary) for adversary in get_args(Adversary))


def _bound(assumption: str, chains: Mapping[str, Any], ratios: tuple[Fraction, Fraction], adversary: str) -> Bound:
    """Return the bound for a class of chains, the largest likelihood ratios of a tick, and an adversary."""
    try:
        return Bound(assumption, float_up(stream_loss(chains, ratios, adversary)))
    except NotRecomputed as error:
        return Bound(assumption, None, str(error))


def _wider_class(chains: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """Return a class wider by `factor` >= 1: its chains may keep or change a state `factor` times more rarely.

    An odds ratio has two such probabilities in its numerator and its denominator for each of its steps.
    """
    if chains["kind"] == "binary":
        limits = {name: (chains[name][0] / factor, 1 - (1 - chains[name][1]) / factor) for name in "qr"}
        return {**chains, **limits}
    return {**chains, "odds_ratio": chains["odds_ratio"] * factor ** (2 * chains.get("steps", 1))}


def _alternatives(document: Mapping[str, Any]) -> Iterator[Bound]:
    """Yield the loss by all symbols and windows of a policy in other classes of chains, against its adversary."""
    chains, adversary, ratios = document["chains"], document["guarantee"]["adversary"], tick_ratios(document)
    tick_epsilon = float_up(log_up(max(ratios)))
    yield Bound("independent readings, which is what ordinary differential privacy assumes", tick_epsilon)
    wider_class = _wider_class(chains, 1.1)
    yield _bound("a class wider by 10 %: states kept longer, or changed more often", wider_class, ratios, adversary)
    assumption = "any start, and steps that change in time, within the class's odds ratios"
    yield _bound(assumption, chains, ratios, "universal")
    for ticks in _STATE_TICKS if chains["kind"] != "joint" else ():
        powers = (ratios[0] ** ticks, ratios[1] ** ticks)
        yield _bound(f"longer memory: a state lasts {ticks} ticks before the chain moves", chains, powers, adversary)
    yield Bound("any chain at all", None, "no finite one: what a state that never changes adds to every tick adds up")

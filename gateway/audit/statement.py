"""A statement about a policy: what is released, to whom, what that loses, and what of it was recomputed.

Losses come from the second certificate (`fugu.audit.exact`); the first, which devices run, is asked whether it agrees.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, NamedTuple, get_args

from fugu.audit.exact import Claim, NotRecomputed, tick_ratios, window_rate
from fugu.audit.exact.chains.claims import recompute
from fugu.audit.exact.numbers import exp_up
from fugu.audit.findings import (
    Bound,
    Finding,
    above,
    against_owner,
    alternatives,
    bound,
    judged,
    other_certificate,
    slack,
)
from fugu.contract.errors import PolicyError
from fugu.contract.fleet_documents import Enrolment
from fugu.contract.leakage import Adversary
from fugu.contract.pins import pins_of
from fugu.contract.policies import AnyPolicy, read_policy
from fugu.contract.policy import Policy
from fugu.contract.sentences import class_sentence, protected_sentence
from fugu.contract.stretches import Stretch
from fugu.contract.topics import Kind, topic_of
from gateway.audit.access import Listed, listed

__all__ = ["Statement", "policy_statement"]


ASSUMPTIONS = (
    "the sequence of states, after the discretiser, is a chain of the class",
    "ticks are a period apart or more, by a monotonic clock that is honest",
    "when ticks are absent, and when readings are missing without a state of their own, does not depend on readings",
    "the random generator of the device is uniform and nobody else's",
    "nothing else correlated with these states is released; other streams only if the class names them",
    "protected are stretches of as many ticks as each claim says, one if it says none",
)
"""Assumptions that no recomputation can check; docs/privacy.md, "What this rests on"."""


class Output(NamedTuple):
    """Something that is published of a stream, and the accounts that may read it (none if the broker is not known)."""

    what: str
    topic: str
    readers: tuple[str, ...]


class Stated(NamedTuple):
    """A claim, and what was recomputed: a loss in nats, rounded up, or none and why."""

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
        adversaries: what symbols and windows in sum tell each kind of adversary; none of points.
        windows: what windows alone tell them, if there are symbols beside them.
        others: what all of it would lose in other classes.
    """

    policy: AnyPolicy
    digest: str
    outputs: tuple[Output, ...]
    claims: tuple[Stated, ...]
    adversaries: tuple[Bound, ...]
    windows: tuple[Bound, ...]
    others: tuple[Bound, ...]
    findings: tuple[Finding, ...]

    @property
    def confirmed(self) -> bool:
        """True if everything that is claimed was recomputed, and nothing is wrong."""
        return not any(finding.wrong for finding in self.findings)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Loss about stretches by the promise, and if all else is as it was; empty for points."""
        if not isinstance(self.policy, Policy):
            return ()
        return self.policy.bound().rows(self.policy.clock.period_us, self.policy.guarantee.epsilon)

    @property
    def summary(self) -> str:
        """Summary in a line: no reader may miss what was not recomputed."""
        missing = [one.of for one in self.claims if one.recomputed is None]
        if self.confirmed:
            return "Every epsilon that is stated was computed again, and holds."
        count = f"NOT CONFIRMED: {sum(finding.wrong for finding in self.findings)} wrong"
        if missing:
            count += f"; NOT RECOMPUTED, so that only the first certificate vouches for it: {', '.join(missing)}"
        return f"{count}."

    def document(self) -> dict[str, Any]:
        """The statement as an object for JSON."""
        policy = self.policy
        chains = policy.chains if isinstance(policy, Policy) else None
        return {
            "format": policy.format,
            "statement": "policy",
            "policy_sha256": self.digest,
            **{name: getattr(policy, name) for name in ("fleet", "device", "stream", "version", "kind")},
            "audience": "site",
            "outputs": [one._asdict() for one in self.outputs],
            "claims": [one._asdict() for one in self.claims],
            "stretch_ticks": policy.guarantee.stretch_ticks if isinstance(policy, Policy) else 1,
            "stretches": [
                {**one._asdict(), "epsilon": one.epsilon if math.isfinite(one.epsilon) else None}
                for one in self.stretches
            ],
            "adversaries": [one._asdict() for one in self.adversaries],
            "windows_alone": [one._asdict() for one in self.windows],
            "protected": protected_sentence(policy.discretiser),
            "class": chains and class_sentence(chains),
            "chains": chains and chains.model_dump(mode="json"),
            "discretiser": policy.discretiser.model_dump(mode="json"),
            "pins": pins_of(policy).model_dump(mode="json"),
            "assumptions": list(ASSUMPTIONS),
            "alternatives": [one._asdict() for one in self.others],
            "findings": [one._asdict() for one in self.findings],
            "not_recomputed": [one.of for one in self.claims if one.recomputed is None],
            "confirmed": self.confirmed,
            "summary": self.summary,
        }


def policy_statement(content: bytes, enrolment: Enrolment | None = None, broker: Path | None = None) -> Statement:
    """Look at a policy in JSON, with a device's ceilings and pins (enrolment), and the broker's access list.

    Raises PolicyError if it cannot be read; FuguError if the broker's folder cannot be read.
    """
    policy, given = read_policy(content), json.loads(content)
    try:
        claims = recompute(given)
    except NotRecomputed as error:
        raise PolicyError(f"nothing of it can be recomputed: {error}") from None
    outputs = _outputs(policy)
    found: list[Finding] = []
    for claim in claims:
        found += judged(given, claim)
    found += other_certificate(policy, claims)
    if not found:
        found += slack(given)
    if enrolment is not None:
        found += against_owner(policy, enrolment)
    if broker is not None:
        known = listed(broker)
        outputs = [one._replace(readers=known.readers(one.topic)) for one in outputs]
        found += _beyond_site(policy, known)
    told: tuple[Bound, ...] = ()
    windows: tuple[Bound, ...] = ()
    if isinstance(policy, Policy):
        who, rate = get_args(Adversary), (exp_up(window_rate(given)),) * 2
        told = tuple(bound(one, given["chains"], tick_ratios(given), one) for one in who)
        if policy.windows_guarantee is not None:
            windows = tuple(bound(one, given["chains"], rate, one) for one in who)
    stated = tuple(_stated(claim) for claim in claims)
    others = tuple(alternatives(given)) if isinstance(policy, Policy) else ()
    digest = hashlib.sha256(content).hexdigest()
    return Statement(policy, digest, tuple(outputs), stated, told, windows, others, tuple(found))


def _beyond_site(policy: AnyPolicy, known: Listed) -> list[Finding]:
    name = (policy.fleet, policy.device, policy.stream)
    kinds: tuple[Kind, ...] = ("symbols", "window", "estimate", "count")
    return [
        Finding(
            "reads-the-site",
            f"{who} may read {topic}: it is told all that the site is, and not the epsilon of an audience",
        )
        for topic in (*(topic_of(kind, *name) for kind in kinds), topic_of("release", policy.fleet, "site", "any"))
        for who in known.strangers(topic)
    ]


def _stated(claim: Claim) -> Stated:
    recomputed = None if claim.loss is None else above(claim.loss)
    return Stated(claim.of, float(claim.stated), claim.adversary, recomputed, claim.why)


def _outputs(policy: AnyPolicy) -> list[Output]:
    name = (policy.fleet, policy.device, policy.stream)
    seconds = policy.clock.period_us / 1e6
    found = []
    if not isinstance(policy, Policy):
        found.append(Output(f"a random point every {seconds:g} s", topic_of("symbols", *name), ()))
    elif policy.table is not None:
        found.append(
            Output(f"a random symbol of {policy.table.symbols} every {seconds:g} s", topic_of("symbols", *name), ())
        )
    if isinstance(policy, Policy) and policy.windows:
        each = ", ".join(f"{one.name} ({one.length} ticks, noise of scale {one.scale})" for one in policy.windows)
        found.append(Output(f"noisy counts: {each}", topic_of("window", *name), ()))
        found.append(Output("the same counts, as the gateway reports them", topic_of("count", *name), ()))
    found.append(Output("what the gateway makes of these", topic_of("estimate", *name), ()))
    found.append(Output("the policy's constants", topic_of("description", *name), ()))
    return found

"""Attacks on a stream: on all that each audience may read of it as it is configured, and on what was really published.

What was published is attacked if its truth is known: on the path that was read, every kind of output by itself and the
kinds together; and its draws, put on the paths of the chain that makes the class worst, for each audience.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fugu.audit.findings import Finding
from fugu.chains.arrays import Ints
from fugu.contract.chains import BinaryChains, FiniteChains
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.planning.attacked import Trial
from fugu.planning.readings import Readings
from fugu.privacy.class_watch import Bets, why_off
from gateway.audit.access import Audience, Listed, may_read
from gateway.audit.audiences import Attacked, attack_audiences
from gateway.audit.heard import Message, draws_of
from gateway.audit.points import attack_points
from gateway.audit.recorded import distribution_problems
from gateway.audit.scene import Scene, SceneError
from gateway.audit.told import Definition, released, windows
from gateway.audit.trials import attack_stream, refuted
from gateway.releases.config import ReleaseConfig

__all__ = ["StreamAudit", "audit_stream", "not_listed"]

_FALSE_ALARMS = 1e-3
"""How probable it is that symbols of the class are said to be of none."""


class StreamAudit(NamedTuple):
    """What was found of a stream.

    Attributes:
        audiences: attacks on the mechanism as it is configured, and on recorded draws.
        trials: attacks on what was published, on the path that was read; none without truth.
        findings: what is wrong.
        left: in words, what is released and not attacked.
    """

    audiences: tuple[Attacked, ...]
    trials: tuple[Trial, ...]
    findings: tuple[Finding, ...]
    left: tuple[str, ...]


def audit_stream(
    given: Sequence[AnyPolicy],
    audiences: Sequence[Audience],
    config: ReleaseConfig | None = None,
    *,
    messages: Sequence[Message] | None = None,
    readings: Readings | None = None,
    loop: bool = False,
    known: int | None = None,
    trials: int = 20_000,
    seed: int = 1,
) -> StreamAudit:
    """Attack a stream, and those that move together with it.

    Without messages the mechanism is attacked as it is configured, with simulated draws. With messages, what they show
    is also held against the configuration: whether noise is of its scale, as far as what was counted is known, and
    whether symbols can come from the class. With the truth, too, what was published is attacked.

    Args:
        given: the policy of the stream, and of other streams that its class of joint chains names. One of points is
            attacked as it is configured.
        audiences: who may read what: `gateway.audit.access`.
        config: of the gateway's releases.
        messages: topics and payloads that were heard; those of the first policy's stream are looked at.
        readings: the truth of that stream, as for `attack_stream`.
        loop, known: as for `attack_stream`.
        trials: simulated, of each of two states.
        seed: of all that is simulated.

    Raises:
        FuguError: a payload is no frame, nothing can be attacked, or the policies are not of one class of chains.
    """
    policies = [one for one in given if isinstance(one, Policy)]
    if not policies and len(given) == 1 and isinstance(given[0], MeasurePolicy) and messages is None:
        points = tuple(attack_points(given[0], audiences, seed=seed, trials=trials))
        return StreamAudit(points, (), tuple(_refutation(one) for one in points if one.refuted), ())
    if len(policies) < len(given):
        raise SceneError("measured points are attacked as their policy has them: alone, and not as they are heard")
    policy = policies[0]
    definitions, left = _definitions(policies, config)
    found: list[Attacked] = []
    findings: list[Finding] = []
    attacked: tuple[Trial, ...] = ()
    if messages is not None:
        mine = [one for one in definitions if one.source == 0]
        drawn, symbols = draws_of(policy, messages, [one for one in mine if one.release], readings, loop=loop)
        findings += [Finding("noise-not-as-stated", about) for about in distribution_problems(drawn.noises, mine)]
        findings += _class_findings(policy, symbols)
        if readings is not None:
            attacked = tuple(attack_stream(policy, messages, readings, loop=loop, known=known))
            found += attack_audiences(policies, audiences, definitions, seed=seed + 1, trials=10**9, recorded=drawn)
            findings += [_published(one) for one in refuted(attacked)]
    found = [*attack_audiences(policies, audiences, definitions, seed=seed, trials=trials), *found]
    findings += [_refutation(one) for one in found if one.refuted]
    return StreamAudit(tuple(found), attacked, tuple(findings), left)


def _definitions(
    policies: Sequence[Policy], config: ReleaseConfig | None
) -> tuple[tuple[Definition, ...], tuple[str, ...]]:
    """All counts of some streams, and, in words, what is left out."""
    found: list[Definition] = []
    left = [f"stream {name} moves together with these: give its policy, too" for name in Scene.of(policies).absent]
    for number, policy in enumerate(policies):
        made, more = released(policy, config)
        left += more
        for one in (*windows(policy), *made):
            if one.release and any(one.name == other.name and other.source != number for other in found):
                left.append(f"release {one.name}: of what it adds up, only the part of one stream is attacked")
            else:
                found.append(one._replace(source=number))
    return tuple(found), tuple(dict.fromkeys(left))


def not_listed(known: Listed, account: str, messages: Iterable[Message]) -> list[Finding]:
    """What a broker has delivered to an account that its access list does not grant."""
    topics = dict.fromkeys(topic for topic, _ in messages)
    return [
        Finding("delivered-not-listed", f"{account or 'whoever gives no name'} was told {topic}, which is not granted")
        for topic in topics
        if not may_read(known.rules, account, topic)
    ]


def _refutation(one: Attacked) -> Finding:
    least = max(one.least, one.extended or 0.0, one.witness or 0.0)
    how = ", if draws are independent" if least == one.extended else ", if draws are as stated"
    how = "" if one.least > one.promised else how
    promised = f"epsilon {one.promised:.6g} is promised" if one.promised else "nothing should be told"
    about = f"{one.audience}: {one.heard} ({one.draws} draws): {promised}, and it is at least {least:.4g}{how}"
    return Finding("epsilon-refuted", about)


def _published(trial: Trial) -> Finding:
    least = max(one.epsilon_low for one in trial.attacks)
    about = f"{trial.released}: epsilon {trial.epsilon:g} is promised, and it is at least {least:.3g}"
    return Finding("epsilon-refuted", about)


def _class_findings(policy: Policy, symbols: Ints) -> list[Finding]:
    """Whether symbols can come from the declared class."""
    chains = policy.chains
    watched = isinstance(chains, BinaryChains | FiniteChains) and not why_off(chains, policy.guarantee.adversary)
    if not watched or policy.table is None or not (symbols >= 0).any():
        return []
    assert isinstance(chains, BinaryChains | FiniteChains)
    weights = np.array(policy.table.weights(), dtype=np.float64)
    bets = Bets(chains, weights / weights.sum(axis=1, keepdims=True))
    bets.invest(1.0)
    bets.observe(symbols)
    if bets.most * _FALSE_ALARMS < 1:
        return []
    return [
        Finding("class-contradicted", f"the symbols are not of the class: a fair bet on it has lost {bets.most:.3g}")
    ]

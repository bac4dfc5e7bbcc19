"""Attacks on a stream: on all that each audience may read of it as it is configured, and on what was really published.

What was published is attacked if its truth is known: on the path that was read, every kind of output by itself and the
kinds together; and its draws, put on the paths of the chain that makes the class worst, for each audience.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from contract.chains import BinaryChains, FiniteChains, JointChains
from contract.policy import Policy
from gateway.audit.access import Audience, Listed, may_read
from gateway.audit.audiences import Attacked, attack_audiences
from gateway.audit.findings import Finding
from gateway.audit.heard import Message, draws_of
from gateway.audit.recorded import law_problems
from gateway.audit.told import released, windows
from gateway.audit.trials import attack_stream, refuted
from gateway.chain.arrays import Ints
from gateway.planning.attacked import Trial
from gateway.planning.readings import Readings
from gateway.privacy.class_watch import Bets, why_off
from gateway.service.release_config import ReleaseConfig

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
    policy: Policy,
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
    """Attack a stream.

    Without messages the mechanism is attacked as it is configured, with simulated draws. With messages, what they show
    is also held against the configuration: whether noise is of its scale, as far as what was counted is known, and
    whether symbols can come from the class. With the truth, too, what was published is attacked.

    Args:
        audiences: who may read what: `gateway.audit.access`.
        config: of the gateway's releases.
        messages: topics and payloads that were heard.
        readings: the truth, as for `attack_stream`.
        loop, known: as for `attack_stream`.
        trials: simulated, of each of two states.
        seed: of all that is simulated.

    Raises:
        FuguError: a payload is no frame, nothing can be attacked, or the class of chains is of several streams.
    """
    made, left = released(policy, config)
    definitions = (*windows(policy), *made)
    if isinstance(policy.chains, JointChains):
        audiences, left = (
            (),
            (*left, "what audiences may read: its chains are of several streams, or of a higher order"),
        )
    found = list(attack_audiences(policy, audiences, definitions, seed=seed, trials=trials))
    findings = [_refutation(one) for one in found if one.refuted]
    attacked: tuple[Trial, ...] = ()
    if messages is not None:
        drawn, symbols = draws_of(policy, messages, made, readings, loop=loop)
        findings += [Finding("noise-not-as-stated", about) for about in law_problems(drawn.noises, definitions)]
        findings += _class_findings(policy, symbols)
        if readings is not None:
            attacked = tuple(attack_stream(policy, messages, readings, loop=loop, known=known))
            again = attack_audiences(policy, audiences, definitions, seed=seed + 1, trials=10**9, recorded=drawn)
            recorded = list(again)
            findings += [_refutation(one) for one in recorded if one.refuted]
            findings += [_published(one) for one in refuted(attacked)]
            found += recorded
    return StreamAudit(tuple(found), attacked, tuple(findings), left)


def not_listed(known: Listed, account: str, messages: Iterable[Message]) -> list[Finding]:
    """What a broker has delivered to an account that its access list does not grant."""
    topics = dict.fromkeys(topic for topic, _ in messages)
    return [
        Finding("delivered-not-listed", f"{account or 'whoever gives no name'} was told {topic}, which is not granted")
        for topic in topics
        if not may_read(known.rules, account, topic)
    ]


def _refutation(one: Attacked) -> Finding:
    least = max(one.least, one.extended or 0.0)
    how = "" if one.least > one.promised else ", if draws are independent"
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

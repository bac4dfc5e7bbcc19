"""Releases of the sums of groups: an opened sum becomes an entry of the ledger, and from there a message.

What the homes' noise is, and whom it protects, is said with it: the helper and how many homes have to be honest. The
charge stands in each home's policy, as that of a window which a device releases itself does.
Source: docs/proofs/sums.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fugu.contract.dating import dated
from fugu.contract.group_frames import digits
from fugu.contract.groups import GroupDocument
from fugu.contract.policy import Clock, Policy
from fugu.contract.topics import topic_of
from gateway.estimates.models import SymbolModel
from gateway.releases.config import Scheduled
from gateway.releases.entries import CHARGED_BEFORE, SITE, Entry, Release
from gateway.releases.inputs import Addend, Inputs, Question
from gateway.releases.jobs import Counted, Job
from gateway.releases.maker import Maker, drawn_of
from gateway.releases.statistics import Query, noise_variance

__all__ = ["OpenedSum", "release_sum", "sum_names"]

_CONFIDENCE = 0.95


class OpenedSum(NamedTuple):
    """A number of a window of a group: over which members (device, policy version), how much, of how many ticks."""

    document: GroupDocument
    place: int
    number: int
    members: Sequence[tuple[str, int]]
    total: int
    observed: int

    @property
    def first(self) -> int:
        """First wall tick of the window."""
        return self.document.start + self.number * self.document.length


def sum_names(document: GroupDocument) -> tuple[str, ...]:
    """The releases of a group: one of its name, or one for each part of the day."""
    many = document.numbers > 1
    return tuple(f"{document.name}-{place}" if many else document.name for place in range(document.numbers))


def release_sum(maker: Maker, opened: OpenedSum) -> Entry | None:
    """Reserve the release of an opened sum, which is published from the ledger; `None` if it was reserved before.

    Raises LedgerError if the ledger refuses, ReleaseError if no epsilon is known beside a change of policy, or
    DatabaseError.
    """
    group, first, stream = opened.document, opened.first, opened.document.stream
    last = first + group.length - 1
    name = sum_names(group)[opened.place]
    if maker.ledger.released_as(name, first):
        return None
    policies = {
        device: maker.catalogue.recall(device, stream, version, SymbolModel).policy
        for device, version in opened.members
    }
    job = _job(group, name, policies)
    counted = [_counted(maker, policy, first, last) for policy in policies.values()]
    scale = 1 / group.rate
    variance = len(policies) / group.honest * noise_variance(scale)
    answer = Addend(np.array([float(opened.total)]), np.array([variance]), np.ones(1), opened.observed)
    noisy = Inputs((), (), answer, None, scale).with_noise(Fraction(1), lambda below: 0)
    release = Release(
        name=name,
        audience=SITE,
        stream=stream,
        first=first,
        last=last,
        since_us=group.begins_us(opened.number),
        charges=dict.fromkeys(policies, 0),
        mechanism="chain",
        noise=noisy.inputs.noise,
        scale=str(scale),
        topic=job.topic,
        reason=CHARGED_BEFORE,
    )
    promise = job.promise(counted)
    return maker.ledger.reserve(
        release,
        lambda number: drawn_of(job, release, promise, noisy, number),
        time_us=maker.now_us(),
        progress=last + 1,
    )


def _counted(maker: Maker, policy: Policy, first: int, last: int) -> Counted:
    """The window in a home's own tick numbers."""
    number = maker.store.stream_id(policy.device, policy.stream)
    shift, _ = maker.store.shifts(number).owner(first, last)
    ahead = shift or 0
    return Counted(policy, dated(policy, maker.history(policy.device, policy.stream)), first + ahead, last + ahead)


def _job(group: GroupDocument, name: str, policies: dict[str, Policy]) -> Job:
    plan = Scheduled(
        name=name, stream=group.stream, query="count", states=group.count, length=group.length, audience=SITE,
        scale="1", confidence=_CONFIDENCE,
    )  # fmt: skip
    query = Query("count", tuple(group.states.index(state) for state in group.count))
    question = Question(
        *(name, group.stream, tuple(policies), group.states, query, group.length, "windows", "chain", _CONFIDENCE),
        *({}, frozenset()),
    )
    useful = all(policy.useful_for == "share" for policy in policies.values())
    helper = digits(bytes.fromhex(group.helper))
    topic = topic_of("release", group.fleet, SITE, name)
    clock = Clock(epoch_us=group.epoch_us, period_us=group.period_us)
    return Job(plan, question, None, topic, clock, useful, honest=group.honest, helper=helper)

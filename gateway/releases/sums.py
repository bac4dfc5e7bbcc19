"""Releases of the sums of groups: an opened sum becomes entries of the ledger, and from there messages.

What the homes' noise is, and whom it protects, is said with it: the helper and how many homes have to be honest. The
charge stands in each home's policy, as that of a window which a device releases itself does: the base of an audience's
accounts holds it. The site is told each sum. Another audience is told those of its configured groups, while its
allowance leaves room for what all homes in a sum draw themselves. Source: docs/proofs/sums.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fugu.contract.errors import FuguError
from fugu.contract.groups import GroupDocument
from fugu.contract.policy import Clock, Policy
from fugu.contract.topics import topic_of
from gateway.estimates.beliefs import SymbolModel
from gateway.releases.config import Audience, Scheduled
from gateway.releases.entries import CHARGED_BEFORE, SITE, Drawn, Release
from gateway.releases.inputs import Addend, Inputs, Noisy, Question
from gateway.releases.jobs import Counted, Job
from gateway.releases.maker import Maker, drawn_of
from gateway.releases.statistics import Query, noise_variance
from gateway.store.engine import LedgerError

__all__ = ["SumReleases", "SumWindow"]

_CONFIDENCE = 0.95


class SumWindow(NamedTuple):
    """A window of a group, and the members of its set: device, and policy version."""

    group: GroupDocument
    number: int
    members: Sequence[tuple[str, int]]

    @property
    def first(self) -> int:
        """First wall tick of the window."""
        return self.group.start + self.number * self.group.length


class _Telling(NamedTuple):
    """A release of a part of a window to an audience that may be told of it."""

    job: Job
    release: Release
    promise: tuple[Audience, int]


class SumReleases:
    """Tells audiences the sums of groups.

    Args:
        audiences: all but the site.
        taken: names of other releases, which no sum has.

    Attributes:
        site_only: whether accounts wait for a policy that cannot be accounted for: nobody else is told anything.
    """

    def __init__(self, maker: Maker, audiences: Mapping[str, Audience], taken: Iterable[str] = ()) -> None:
        self._maker = maker
        self._audiences: dict[str, Audience | None] = {SITE: None, **audiences}
        self._taken = frozenset(taken)
        self.site_only = False

    def topics(self, groups: Iterable[GroupDocument]) -> frozenset[str]:
        """The topics of the sums of these groups."""
        return frozenset(
            topic_of("release", group.fleet, audience, name)
            for group in groups
            for audience in self._audiences_of(group)
            for name in group.release_names
        )

    def refusal(self, window: SumWindow) -> str:
        """Why nobody may be told of a window, so that it is not asked for; empty if somebody may. DatabaseError."""
        allowed, refused = self._tellings(window)
        return "" if allowed else next(iter(refused.values()))

    def reserve(self, window: SumWindow, numbers: Sequence[tuple[int, int]]) -> dict[str, str]:
        """Reserve the releases of a window in one transaction, unless they were before; why some are told nothing.

        Args:
            numbers: sum and observed ticks of each part of the day.

        Raises LedgerError if nobody may be told, or DatabaseError.
        """
        ledger, group = self._maker.ledger, window.group
        with ledger.transaction():
            if ledger.released_as(group.release_names[0], window.first):
                return {}
            allowed, refused = self._tellings(window)
            if not allowed:
                raise LedgerError(next(iter(refused.values())))
            for place, tellings in enumerate(allowed):
                progress = None if place else window.first + group.length  # once for each name
                for telling, number in zip(tellings, numbers, strict=True):
                    draw = self._draw(window, telling, *number)
                    ledger.reserve(telling.release, draw, time_us=self._maker.now_us(), progress=progress)
        return refused

    def _audiences_of(self, group: GroupDocument) -> list[str]:
        return [name for name, terms in self._audiences.items() if terms is None or group.name in terms.sums]

    def _tellings(self, window: SumWindow) -> tuple[list[list[_Telling]], dict[str, str]]:
        """The releases of a window to each audience that may be told, and why the others may not."""
        maker, group = self._maker, window.group
        if taken := self._taken.intersection(group.release_names):
            return [], {SITE: f"a release of releases.toml is called {min(taken)} as well: give it another name"}
        policies = {
            device: maker.catalogue.recall(device, group.stream, version, SymbolModel).policy
            for device, version in window.members
        }
        counted = [self._counted(policy, window) for policy in policies.values()]
        allowed, refused = list[list[_Telling]](), dict[str, str]()
        for audience in self._audiences_of(group):
            try:
                allowed.append([self._sum_release(audience, name, window, counted) for name in group.release_names])
            except FuguError as error:
                refused[audience] = str(error)
        return allowed, refused

    def _sum_release(self, audience: str, name: str, window: SumWindow, counted: Sequence[Counted]) -> _Telling:
        """A release to an audience that may be told. Raises FuguError if it may not be told."""
        group = window.group
        job = _job(group, audience, self._audiences[audience], name, [report.policy for report in counted])
        release = Release(
            name=name,
            audience=audience,
            stream=group.stream,
            first=window.first,
            last=window.first + group.length - 1,
            since_us=group.begins_us(window.number),
            charges={report.policy.device: 0 for report in counted},
            shifts={report.policy.device: report.first - window.first for report in counted},
            mechanism="chain",
            noise="device-windows",
            scale=str(1 / group.rate),
            topic=job.topic,
            reason=CHARGED_BEFORE,
        )
        if audience != SITE:
            if self.site_only:
                raise LedgerError(f"release {name}: audience {audience} waits for a policy that can be accounted for")
            self._maker.refuse_loud(job, release)
        self._maker.ledger.refuse(release)
        return _Telling(job, release, job.promise(counted))

    def _counted(self, policy: Policy, window: SumWindow) -> Counted:
        """The window in a home's own tick numbers."""
        maker, last = self._maker, window.first + window.group.length - 1
        number = maker.store.stream_id(policy.device, policy.stream)
        shift, _ = maker.store.shifts(number).owner(window.first, last)
        ahead = shift or 0
        return maker.counted(policy, window.first + ahead, last + ahead)

    def _draw(self, window: SumWindow, telling: _Telling, total: int, observed: int) -> Callable[[int], Drawn]:
        """Write a release of a sum: its noise is the homes'."""
        group, scale = window.group, Fraction(telling.release.scale)
        variance = len(window.members) / group.honest * noise_variance(scale)
        answer = Addend(np.array([float(total)]), np.array([variance]), np.ones(1), observed)
        noisy = Noisy(Inputs((), (), answer, None, scale), Fraction(1), ())
        return lambda number: drawn_of(telling.job, telling.release, telling.promise, noisy, number)


def _job(group: GroupDocument, audience: str, terms: Audience | None, name: str, policies: Sequence[Policy]) -> Job:
    plan = Scheduled(
        name=name, stream=group.stream, query="count", states=group.count, length=group.length, audience=audience,
        scale="1", confidence=_CONFIDENCE,
    )  # fmt: skip
    query = Query("count", tuple(group.states.index(state) for state in group.count))
    devices = tuple(policy.device for policy in policies)
    question = Question(
        *(name, group.stream, devices, group.states, query, group.length, "windows", "chain", _CONFIDENCE),
        *({}, frozenset()),
    )
    useful = all(policy.useful_for == "share" for policy in policies)
    helper = group.helper_digits
    topic = topic_of("release", group.fleet, audience, name)
    clock = Clock(epoch_us=group.epoch_us, period_us=group.period_us)
    return Job(plan, question, terms, topic, clock, useful, honest=group.honest, helper=helper)

"""Releases of the sums of groups: an opened sum becomes entries of the ledger, which are then published.

Each release states the homes' noise and whom it protects: the helper, and how many homes have to be honest. The charge
follows from each home's policy, like the charge of a window that a device releases itself: an account's base holds it.
The site is told each sum. Another audience is told the sums of its configured groups, as long as its allowance covers
the windows of all homes in a sum. Source: docs/proofs/sums.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

import numpy as np

from fugu.contract.errors import FuguError
from fugu.contract.groups import GroupDocument
from fugu.contract.policy import Clock, Policy
from fugu.contract.topics import topic_of
from gateway.estimates.beliefs import SymbolModel
from gateway.releases.config import Audience, ScheduledRelease
from gateway.releases.entries import CHARGED_BEFORE, SITE, Content, Release
from gateway.releases.inputs import Addend, Inputs, NoisyInputs, Question
from gateway.releases.jobs import CountedTicks, Job
from gateway.releases.maker import Maker, content_of
from gateway.releases.statistics import Query, noise_variance
from gateway.store.engine import LedgerError

__all__ = ["SumReleases", "SumWindow"]

_CONFIDENCE = 0.95


class SumWindow(NamedTuple):
    """A window of a group, and the homes in its sum: device and policy version of each."""

    group: GroupDocument
    number: int
    members: Sequence[tuple[str, int]]

    @property
    def first(self) -> int:
        """The first wall tick of the window."""
        return self.group.start + self.number * self.group.length


class _SumRelease(NamedTuple):
    """A release of a part of a window to an audience, with the promise and stretch that it states."""

    job: Job
    release: Release
    promise: tuple[Audience, int]


class SumReleases:
    """Makes the releases of sums of groups.

    Args:
        audiences: all audiences but the site, by name.
        taken_names: names of other releases, which no sum may have.

    Attributes:
        site_only: whether only the site is told anything, because a policy cannot be accounted for yet.
    """

    def __init__(self, maker: Maker, audiences: Mapping[str, Audience], taken_names: Iterable[str] = ()) -> None:
        self._maker = maker
        self._audiences: dict[str, Audience | None] = {SITE: None, **audiences}
        self._taken_names = frozenset(taken_names)
        self.site_only = False

    def topics(self, groups: Iterable[GroupDocument]) -> frozenset[str]:
        """The topics of the sums of groups, for all audiences."""
        return frozenset(
            topic_of("release", group.fleet, audience, name)
            for group in groups
            for audience in self._audiences_of(group)
            for name in group.release_names
        )

    def refusal(self, window: SumWindow) -> str:
        """Say why no audience may be told of a window, or ''. Raises DatabaseError."""
        releases, reasons = self._sum_releases(window)
        return "" if releases else next(iter(reasons.values()))

    def reserve(self, window: SumWindow, day_parts: Sequence[tuple[int, int]]) -> dict[str, str]:
        """Reserve the releases of a window in one transaction, unless they are in the ledger already.

        Args:
            day_parts: sum and observed ticks of each part of the day.

        Returns the reasons why audiences are told nothing, by audience. Raises LedgerError if no audience may be told,
        or DatabaseError.
        """
        ledger, group = self._maker.ledger, window.group
        with ledger.transaction():
            if ledger.window_entry(group.release_names[0], window.first):
                return {}
            releases, reasons = self._sum_releases(window)
            if not releases:
                raise LedgerError(next(iter(reasons.values())))
            for index, audience_releases in enumerate(releases):
                progress = None if index else window.first + group.length  # the first audience's release sets it
                for sum_release, day_part in zip(audience_releases, day_parts, strict=True):
                    make_content = self._content_writer(window, sum_release, *day_part)
                    ledger.reserve(sum_release.release, make_content, time_us=self._maker.now_us(), progress=progress)
        return reasons

    def _audiences_of(self, group: GroupDocument) -> list[str]:
        """The names of audiences that are configured to be told a group's sums."""
        return [audience for audience, terms in self._audiences.items() if terms is None or group.name in terms.sums]

    def _sum_releases(self, window: SumWindow) -> tuple[list[list[_SumRelease]], dict[str, str]]:
        """The releases of a window to each audience that may be told, and the reasons why other audiences may not."""
        maker, group = self._maker, window.group
        if clashes := self._taken_names.intersection(group.release_names):
            return [], {SITE: f"a release of releases.toml is called {min(clashes)} as well: give it another name"}
        policies = {
            device: maker.catalogue.recall(device, group.stream, version, SymbolModel).policy
            for device, version in window.members
        }
        members = [self._member_ticks(policy, window) for policy in policies.values()]
        releases, reasons = list[list[_SumRelease]](), dict[str, str]()
        for audience in self._audiences_of(group):
            try:
                releases.append([self._sum_release(audience, name, window, members) for name in group.release_names])
            except FuguError as error:
                reasons[audience] = str(error)
        return releases, reasons

    def _sum_release(
        self, audience: str, name: str, window: SumWindow, members: Sequence[Sequence[CountedTicks]]
    ) -> _SumRelease:
        """The release of a part of a window to an audience. Raises FuguError if the audience may not be told.

        `members` has the counted ticks of each home, by each number that the window may have.
        """
        group = window.group
        job = _sum_job(group, audience, self._audiences[audience], name, [ticks[0].policy for ticks in members])
        if audience != SITE and self.site_only:
            raise LedgerError(f"release {name}: audience {audience} waits for a policy that can be accounted for")
        for index in reversed(range(max(map(len, members)))):
            release = self._release_of(job, window, [ticks[min(index, len(ticks) - 1)] for ticks in members])
            if audience != SITE:
                self._maker.refuse_leaks(job, release)
            self._maker.ledger.refuse(release)
        return _SumRelease(job, release, job.promise([*chain.from_iterable(members)]))

    def _release_of(self, job: Job, window: SumWindow, member_ticks: Sequence[CountedTicks]) -> Release:
        group = window.group
        return Release(
            name=job.name,
            audience=job.plan.audience,
            stream=group.stream,
            first=window.first,
            last=window.first + group.length - 1,
            since_us=group.begins_us(window.number),
            charges={member.policy.device: 0 for member in member_ticks},
            shifts={member.policy.device: member.first - window.first for member in member_ticks},
            mechanism="chain",
            noise="device-windows",
            scale=str(1 / group.rate),
            topic=job.topic,
            reason=CHARGED_BEFORE,
        )

    def _member_ticks(self, policy: Policy, window: SumWindow) -> list[CountedTicks]:
        """The window in a home's own tick numbers, once for each shift that it may have had; 0 if none is known."""
        maker, last = self._maker, window.first + window.group.length - 1
        shifts = maker.store.shifts(maker.store.stream_id(policy.device, policy.stream))
        possible_shifts = shifts.possible(window.first, last)
        return [maker.counted_ticks(policy, window.first + shift, last + shift) for shift in possible_shifts]

    def _content_writer(
        self, window: SumWindow, sum_release: _SumRelease, total: int, observed: int
    ) -> Callable[[int], Content]:
        """Return a function that writes the release of a sum, given the entry's number; its noise is the homes'."""
        group, scale = window.group, Fraction(sum_release.release.scale)
        variance = len(window.members) / group.honest * noise_variance(scale)
        answer = Addend(np.array([float(total)]), np.array([variance]), np.ones(1), observed)
        inputs = NoisyInputs(Inputs((), (), answer, None, scale), Fraction(1), ())
        return lambda number: content_of(sum_release.job, sum_release.release, sum_release.promise, inputs, number)


def _sum_job(group: GroupDocument, audience: str, terms: Audience | None, name: str, policies: Sequence[Policy]) -> Job:
    """The job that releases a group's sum to an audience; `policies` are those of the homes."""
    plan = ScheduledRelease(
        name=name, stream=group.stream, query="count", states=group.count, length=group.length, audience=audience,
        scale="1", confidence=_CONFIDENCE,
    )  # fmt: skip
    query = Query("count", tuple(group.states.index(state) for state in group.count))
    devices = tuple(policy.device for policy in policies)
    question = Question(
        *(name, group.stream, devices, group.states, query, group.length, "windows", "chain", _CONFIDENCE),
        *({}, frozenset()),
    )
    is_useful = all(policy.useful_for == "share" for policy in policies)
    topic = topic_of("release", group.fleet, audience, name)
    clock = Clock(epoch_us=group.epoch_us, period_us=group.period_us)
    return Job(plan, question, terms, topic, clock, is_useful, honest=group.honest, helper=group.helper_digits)

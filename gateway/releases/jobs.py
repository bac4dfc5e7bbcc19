"""Configured releases, applied to the policies of a fleet: the devices, states and allowances of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import NamedTuple, get_args

import numpy as np

from fugu.chains.arrays import Ints
from fugu.contract.dating import PromiseDates, with_slack
from fugu.contract.errors import FuguError
from fugu.contract.losses import Adversary
from fugu.contract.policy import Clock, Policy
from fugu.contract.topics import topic_of
from fugu.contract.windows import ALONE, Composing, Mechanism, Window, has_bound
from fugu.privacy.chain_class import ChainClassError, ListedChains, ReleaseClass
from gateway.estimates.catalogue import Catalogue
from gateway.releases.allowance import allowance, counted_symbols
from gateway.releases.charges import units_above
from gateway.releases.config import Audience, Matrices, ReleaseConfig, ScheduledRelease
from gateway.releases.entries import (
    NO_PAST,
    SITE,
    AccountKey,
    Allowance,
    Stream,
    StreamPast,
    base_problem,
    named_streams,
    together_name,
)
from gateway.releases.inputs import Question, classes_of_release
from gateway.releases.statistics import Query, noise_variance

__all__ = ["CountedTicks", "Job", "allowances", "answer_rows", "jobs", "release_window", "streams_together"]


def streams_together(catalogue: Catalogue) -> list[frozenset[Stream]]:
    """The groups of streams that move together: those of a joint chain, or of several chains that share streams.

    Policies in force and retired ones count. A policy that was only sent does not: its device may refuse it, and the
    ledger lets streams share charges for ever. None of its ticks is released before its first frame.

    Raises FuguError if the streams of a group do not have one clock: nothing can be charged to their ticks then.
    """
    groups: dict[Stream, frozenset[Stream]] = {}
    clocks: dict[Stream, set[Clock]] = {}
    for device, stream in catalogue.symbol_streams():
        for policy in catalogue.running_policies(device, stream):
            if own_streams := named_streams(policy.chains, device):
                clocks.setdefault((device, stream), set()).add(policy.clock)
                group = own_streams.union(*(groups.get(member, ()) for member in own_streams))
                groups |= dict.fromkeys(group, group)
    moving_groups = list(dict.fromkeys(groups.values()))
    for members in moving_groups:
        if len(set[Clock]().union(*(clocks.get(member, set()) for member in members))) > 1:
            raise FuguError(
                f"streams {together_name(members)} move together and do not have one clock: plan them with one --epoch"
            )
    return moving_groups


_NAME_LENGTH = 64
_TIED = 1.0 + 1e-6


class CountedTicks(NamedTuple):
    """Ticks first..last of a stream, counted under one version of its policy, which `dated_version` dates."""

    policy: Policy
    dated_version: PromiseDates
    first: int
    last: int

    def epsilon(self, ticks: int) -> float:
        """Bound the loss in nats of every stretch of `ticks` that has one of these ticks; infinite without a bound."""
        return self.dated_version.epsilon(self.policy.bound(), max(0, self.first - ticks + 1), self.last, ticks)


class Job(NamedTuple):
    """A release of every window: a configured release, or one device's part of it.

    Attributes:
        audience: the audience's promise; `None` for the site, which has none of its own.
        is_useful: whether the planner found a share of each device worth knowing, and the query is for shares.
        allowances: the allowance of a tick by each mechanism, if the one with the least noise was chosen; else empty.
        helper: of a sum of homes, the digits of its helper.
        honest: of a sum of homes, how many honest homes its promise needs.
    """

    plan: ScheduledRelease
    question: Question
    audience: Audience | None
    topic: str
    clock: Clock
    is_useful: bool
    allowances: tuple[tuple[Mechanism, int], ...] = ()
    helper: str = ""
    honest: int = 0

    @property
    def name(self) -> str:
        """The release's name in its topic and in the ledger."""
        return self.question.name

    @property
    def taken_names(self) -> set[str]:
        """The names that no sum of a group may have: the release's own, and that of its configuration."""
        return {self.name, self.plan.name}

    @property
    def epsilon(self) -> float:
        """The epsilon that the audience is promised; only for another audience than the site."""
        assert self.audience is not None
        return self.audience.epsilon

    def promise(self, counted_ticks: Sequence[CountedTicks]) -> tuple[Audience, int]:
        """Return the promise that the release's frame states, and the number of ticks of a protected stretch.

        The site's promise is that of the policies of all counted ticks. Raises FuguError if one of these policies has
        no bound, next to a change of policy.
        """
        if self.audience is None:
            return _site_promise(self.name, counted_ticks)
        return self.audience, self.audience.promise.ticks(self.clock.period_us)


def jobs(config: ReleaseConfig, catalogue: Catalogue) -> list[Job]:
    """List the jobs of a configuration.

    Raises FuguError if a release names an unknown device or state, or its devices differ in states or
    clocks. Raises FuguError, too, if an audience is told sums of a group that no policy has, or a release has the name
    of such a sum.
    """
    _check_groups(config, catalogue)
    jobs: list[Job] = []
    for plan in config.releases:
        devices = _devices(plan, catalogue)
        if not devices:
            raise FuguError(f"release {plan.name}: no device has a stream {plan.stream}")
        for group in [(device,) for device in devices] if plan.per_device else [devices]:
            jobs.append(_job(plan, group, config, catalogue))
    if len({job.name for job in jobs}) != len(jobs):
        raise FuguError("two releases would have the same topic")
    _check_accounts(jobs)
    return jobs


def _check_groups(config: ReleaseConfig, catalogue: Catalogue) -> None:
    """Refuse audiences with sums of an unknown group, and releases with the name of a sum."""
    groups = catalogue.groups().values()
    for audience, terms in config.audiences.items():
        for group_name in set(terms.sums) - {group.name for group in groups}:
            raise FuguError(f"audience {audience}: no policy has a sum of a group {group_name}")
    names = {plan.name for plan in config.releases}
    names |= {plan.name_for(device) for plan in config.releases for device in _devices(plan, catalogue)}
    for name in names & {name for group in groups for name in group.release_names}:
        raise FuguError(f"release {name} is called like the sums of a group: give it another name")


def _devices(plan: ScheduledRelease, catalogue: Catalogue) -> tuple[str, ...]:
    return catalogue.devices(plan.stream) if plan.devices == "all" else tuple(plan.devices)


def _check_accounts(jobs: Iterable[Job]) -> None:
    """Refuse an account with two mechanisms, or with two releases by a mechanism that does not compose."""
    first_jobs: dict[tuple[str, str, str], Job] = {}
    for job in jobs:
        mechanism = job.question.mechanism
        for device in job.question.devices if job.plan.audience != SITE else ():
            other = first_jobs.setdefault((device, job.plan.stream, job.plan.audience), job)
            prefix = (
                f"releases {other.name} and {job.name} both tell {job.plan.audience} about {device}/{job.plan.stream}"
            )
            if other.question.mechanism != mechanism:
                raise FuguError(
                    f"{prefix}, by {other.question.mechanism} and by {mechanism}: give them one mechanism, or two "
                    "audiences"
                )
            if other is not job and mechanism in ALONE:
                raise FuguError(f"{prefix}, and mechanism {mechanism} does not compose with anything")


def _job(plan: ScheduledRelease, devices: tuple[str, ...], config: ReleaseConfig, catalogue: Catalogue) -> Job:
    """The job of a configured release about some devices. FuguError if their policies do not fit."""
    name = plan.name_for(devices[0])
    if len(name) > _NAME_LENGTH:
        raise FuguError(f"release {name}: its name is longer than {_NAME_LENGTH} characters")
    if len(set(devices)) != len(devices):
        raise FuguError(f"release {name} names a device twice")
    newest_policies: dict[str, Policy] = {}
    for device in devices:
        policies = catalogue.planned_policies(device, plan.stream)
        if not policies:
            raise FuguError(f"release {name}: no policy for stream {device}/{plan.stream}")
        newest_policies[device] = policies[-1]
    (labels, clock), *other_terms = {(policy.discretiser.states, policy.clock) for policy in newest_policies.values()}
    if other_terms:
        raise FuguError(f"release {name}: its devices do not have the same states and the same clock")
    for state in plan.states:
        if state not in labels:
            raise FuguError(f"release {name}: stream {plan.stream} has no state {state!r}")
    counted_states = plan.states or labels
    if plan.states and len(counted_states) == len(labels):
        raise FuguError(f"release {name} asks for all states together, which says nothing")
    query = Query(plan.query, tuple(labels.index(state) for state in counted_states))
    windows = {
        device: window
        for device, policy in newest_policies.items()
        if plan.source != "symbols" and (window := release_window(policy, plan, query)) is not None
    }
    silent = frozenset(device for device, policy in newest_policies.items() if policy.table is None)
    for device in devices:
        if device in silent and device not in windows:
            raise FuguError(
                f"release {name}: {device}/{plan.stream} has no symbols, and no windows that a {plan.query} of "
                f"{plan.length} ticks every {plan.step} can be put together from"
            )
    audience = None if plan.audience == SITE else config.audiences[plan.audience]
    topic = topic_of("release", catalogue.fleet, plan.audience, name)
    tick_allowances = _compare_mechanisms(plan, devices, audience, catalogue)
    mechanism = _quietest_mechanism(tick_allowances)
    is_useful = not query.definition.of_pairs and all(
        policy.useful_for == "share" for policy in newest_policies.values()
    )
    question = Question(
        *(name, plan.stream, devices, labels, query, plan.length, plan.source, mechanism, plan.confidence),
        *(windows, silent, plan.chains),
    )
    allowances = tuple(tick_allowances.items()) if plan.mechanism == "auto" else ()
    job = Job(plan, question, audience, topic, clock, is_useful, allowances)
    if mechanism in ALONE:
        _check_alone(job, catalogue)
    return job


def _compare_mechanisms(
    plan: ScheduledRelease, devices: tuple[str, ...], audience: Audience | None, catalogue: Catalogue
) -> dict[Mechanism, int]:
    """Return the least allowance of a tick of any device, by mechanism; FuguError if no mechanism protects.

    For the site, or with mechanism "chain" configured, there is nothing to compare: returns 0 for "chain".
    """
    if plan.mechanism == "chain" or audience is None:
        return {"chain": 0}
    comparison: dict[Mechanism, int] = {}
    for name in get_args(Composing) if plan.mechanism == "auto" else (plan.mechanism,):
        if has_bound(name, audience.adversary):
            try:
                classes = [_classes(plan.chains, catalogue.planned_policies(device, plan.stream)) for device in devices]
                comparison[name] = min(_allowance(device_classes, audience, name) for device_classes in classes)
            except ChainClassError as error:
                if plan.mechanism != "auto":
                    raise FuguError(f"release {plan.name}: mechanism {name}: {error}") from None
    if not comparison:
        raise FuguError(f"release {plan.name}: no mechanism protects these streams")
    return comparison


def _quietest_mechanism(tick_allowances: Mapping[Mechanism, int]) -> Mechanism:
    """Return the mechanism with the largest allowance of a tick; "chain" on a tie."""
    if "chain" in tick_allowances and tick_allowances["chain"] * _TIED >= max(tick_allowances.values()):
        return "chain"
    return max(tick_allowances, key=lambda mechanism: tick_allowances[mechanism])


def _classes(
    chains: Matrices, policies: Sequence[Policy], past: StreamPast = NO_PAST
) -> list[tuple[ReleaseClass, int]]:
    """Return the classes of chains that bound a release, each with a tick period in microseconds.

    They are its own `chains` or those of policies, and the past classes of the same kind.
    """
    classes: list[tuple[ReleaseClass, int]] = [(policy.chains, policy.clock.period_us) for policy in policies]
    if chains:
        period = min(period for _, period in classes)
        classes = [(chain, period) for chain in classes_of_release(chains, policies)]
    past_classes = [pair for pair in past.classes if isinstance(pair[0], ListedChains) == bool(chains)]
    return list(dict.fromkeys([*classes, *past_classes]))


def _allowance(
    classes: Sequence[tuple[ReleaseClass, int]], audience: Audience, mechanism: Mechanism, past: StreamPast = NO_PAST
) -> int:
    """Compute the least allowance by any class; a stretch has as many ticks as the shortest period gives.

    If classes have changed, a part of epsilon is kept for the leak over the change.
    """
    stretch_ticks = audience.promise.ticks(min(period for _, period in classes))

    def allowances(epsilon: float) -> set[int]:
        return {allowance(chains, epsilon, audience.adversary, mechanism, stretch_ticks) for chains, _ in classes}

    full_allowances = allowances(audience.epsilon)
    is_unchanged = len(full_allowances) == 1 and len({period for _, period in classes}) == 1 and not past.lost
    return min(full_allowances if is_unchanged else allowances(with_slack(audience.epsilon)))


def _check_alone(job: Job, catalogue: Catalogue) -> None:
    """Refuse a release that does not compose, if its streams have no bound or windows of their own."""
    for device in job.question.devices:
        policies = catalogue.planned_policies(device, job.plan.stream)
        prefix, stream = f"release {job.name}: mechanism {job.question.mechanism}", f"{device}/{job.plan.stream}"
        if any(policy.window_rate for policy in policies):
            raise FuguError(f"{prefix} composes with nothing, and {stream} releases windows of its own")
        if job.question.mechanism == "wasserstein":
            if any(
                policy.discretiser.kind == "baseline"
                or (policy.discretiser.missing is None and policy.missing_share != 0.0)
                for policy in policies
            ):  # a symbol without a state has another distribution
                raise FuguError(
                    f"{prefix} needs the distribution of every symbol, and a tick of {stream} without a reading has no "
                    "state. Declare a missing state, or, without a baseline, missing_share 0 if there are no such ticks"
                )
            try:
                ticks, chains = [True] * job.plan.length, job.question.classes(policies)
                for table in {policy.table for policy in policies if policy.table is not None}:
                    counted_symbols(chains, table, job.question.query.states, ticks).check()
            except FuguError as error:
                raise FuguError(f"{prefix}: {stream}: {error}") from None


def release_window(policy: Policy, plan: ScheduledRelease, query: Query) -> Window | None:
    """Choose the device window with the least noise that, repeated side by side, makes up a release's window.

    Returns `None` if the policy has no such window that answers the query.
    """
    windows = [
        window
        for window in policy.windows
        if answer_rows(window, policy.discretiser.states, query) is not None
        and plan.length % window.length == plan.step % window.length == 0
        and window.length % window.stride == window.start % window.stride == 0
    ]
    return min(windows, key=lambda window: noise_variance(Fraction(window.scale)) / window.length, default=None)


def answer_rows(window: Window, labels: Sequence[str], query: Query) -> Ints | None:
    """Return the matrix (answers, counts) that is 1 where a count of a window adds to a number of the answer, else 0.

    Returns `None` if the counts do not add up to the answer.
    """
    if not (query.definition.is_additive and window.query.is_additive):
        return None
    count_groups = window.groups(tuple(labels))
    rows = np.array([[set(group) <= set(states) for group in count_groups] for states in query.groups], dtype=np.int64)
    return rows if list(rows @ list(map(len, count_groups))) == list(map(len, query.groups)) else None


def _site_promise(name: str, counted_ticks: Sequence[CountedTicks]) -> tuple[Audience, int]:
    """The promise to the site: the weakest of the streams' guarantees, about the shortest stretch of any of them."""
    ranks: tuple[Adversary, ...] = get_args(Adversary)
    guarantees = [stream_ticks.policy.guarantee for stream_ticks in counted_ticks]
    weakest_adversary = min((guarantee.adversary for guarantee in guarantees), key=ranks.index)
    ticks = min(guarantee.stretch_ticks for guarantee in guarantees)
    worst = max(counted_ticks, key=lambda stream_ticks: stream_ticks.epsilon(ticks))
    if math.isinf(epsilon := worst.epsilon(ticks)):
        stream = f"{worst.policy.device}/{worst.policy.stream}"
        raise FuguError(
            f"release {name}: ticks {worst.first}..{worst.last} of {stream} are next to a change of its policy over "
            "which no epsilon is known: later windows have one"
        )
    return Audience(epsilon=epsilon, adversary=weakest_adversary), ticks


def allowances(
    config: ReleaseConfig,
    jobs: Iterable[Job],
    catalogue: Catalogue,
    past: Callable[[Iterable[Stream]], StreamPast] = lambda _streams: NO_PAST,
) -> tuple[list[Allowance], dict[str, str]]:
    """Compute the terms of each stream's account with each audience, and the reasons why jobs are impossible.

    The allowance is the least that any of the stream's policies allows. Streams that move together have one allowance,
    and the windows of all of them are in the base. Each reason says what to change, and is keyed by the name of a
    job that can never release anything. For sums of a group, the key is the group's name.
    """
    groups = {stream: group for group in streams_together(catalogue) for stream in group}
    requests_by_account: dict[tuple[str, str, str, Mechanism], list[tuple[str, Matrices]]] = {}
    for job in jobs:
        for device in job.question.devices if job.plan.audience != SITE else ():
            account = (device, job.plan.stream, job.plan.audience, job.question.mechanism)
            requests_by_account.setdefault(account, []).append((job.name, job.plan.chains))
    for audience_name, audience in config.audiences.items():
        for device, stream in catalogue.symbol_streams() if audience.sums else ():
            group_names = {window.group.name for policy in catalogue.policies(device, stream) for window in policy.sums}
            for group_name in sorted(group_names & set(audience.sums)):
                requests_by_account.setdefault((device, stream, audience_name, "chain"), []).append((group_name, ()))
    allowances: list[Allowance] = []
    impossible: dict[str, str] = {}
    for (device, stream, audience_name, mechanism), requests in sorted(requests_by_account.items()):
        key, request_names = AccountKey(device, stream, audience_name), [request_name for request_name, _ in requests]
        audience = config.audiences[audience_name]
        streams = sorted(groups.get((device, stream), [(device, stream)]))
        stream_versions = {member: versions for member in streams if (versions := catalogue.charged_policies(*member))}
        if (device, stream) not in stream_versions:  # no ticks to tell of, and none to charge
            continue
        policies = [policy for versions in stream_versions.values() for policy in versions]
        base = sum(max(units_above(policy.window_rate) for policy in versions) for versions in stream_versions.values())
        streams_past = past(stream_versions)
        try:
            request_classes = (_classes(own_chains, policies, streams_past) for _, own_chains in requests)
            classes = list(dict.fromkeys(chain.from_iterable(request_classes)))
            max_charge = _allowance(classes, audience, mechanism, streams_past)
        except ChainClassError as error:
            impossible |= dict.fromkeys(request_names, f"{key}: nothing can be released: {error}")
            continue
        if problem := base_problem(key, max_charge, base):
            impossible |= dict.fromkeys(request_names, problem)
        chains, period = tuple(dict.fromkeys(chains for chains, _ in classes)), min(period for _, period in classes)
        allowances.append(Allowance(key, max_charge, base, audience.promise, period, mechanism, chains))
    return allowances, impossible

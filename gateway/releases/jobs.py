"""Configured releases, applied to the policies of a fleet: whose symbols, which states, and what may be charged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple, get_args

import numpy as np

from fugu.chains.arrays import Ints
from fugu.contract.dating import Dated, with_slack
from fugu.contract.errors import FuguError
from fugu.contract.losses import Adversary
from fugu.contract.policy import Clock, Policy
from fugu.contract.topics import topic_of
from fugu.contract.windows import ALONE, Composing, Mechanism, Window, covers
from fugu.privacy.chain_class import ChainClassError, ListedChains, ReleaseClass
from gateway.estimates.catalogue import Catalogue
from gateway.releases.allowance import allowance, counted_symbols
from gateway.releases.charges import units_above
from gateway.releases.config import Audience, Matrices, ReleaseConfig, Scheduled
from gateway.releases.entries import (
    NO_PAST,
    SITE,
    Allowance,
    Key,
    Past,
    Stream,
    named_streams,
    standing_problem,
    together_name,
)
from gateway.releases.inputs import Question, classes_of_release
from gateway.releases.statistics import Query, noise_variance

__all__ = ["Counted", "Job", "allowances", "answers", "jobs", "release_window", "streams_together"]


def streams_together(catalogue: Catalogue) -> list[frozenset[Stream]]:
    """The streams of each joint chain, or of several chains that share some; of policies in force and retired.

    A document that was only sent ties none: its device may refuse it, and the ledger ties streams for ever. Nothing is
    released of its ticks before there are frames of it.

    Raises FuguError if such streams do not have one clock, so that nothing can be charged to their ticks.
    """
    groups: dict[Stream, frozenset[Stream]] = {}
    clocks: dict[Stream, set[Clock]] = {}
    for device, stream in catalogue.symbol_streams():
        for policy in catalogue.running(device, stream):
            if named := named_streams(policy.chains, device):
                clocks.setdefault((device, stream), set()).add(policy.clock)
                joined = named.union(*(groups.get(member, ()) for member in named))
                groups |= dict.fromkeys(joined, joined)
    streams = list(dict.fromkeys(groups.values()))
    for members in streams:
        if len(set[Clock]().union(*(clocks.get(member, set()) for member in members))) > 1:
            raise FuguError(
                f"streams {together_name(members)} move together and do not have one clock: plan them with one --epoch"
            )
    return streams


_NAME_LENGTH = 64
_TIED = 1.0 + 1e-6


class Counted(NamedTuple):
    """Ticks of a stream that are counted, first..last, of one version of its policy; `dated` has its promise."""

    policy: Policy
    dated: Dated
    first: int
    last: int

    def epsilon(self, ticks: int) -> float:
        """Bound every stretch of so many ticks that has one of these; infinite without a bound."""
        return self.dated.epsilon(self.policy.bound(), max(0, self.first - ticks + 1), self.last, ticks)


class Job(NamedTuple):
    """One release of every window.

    `name` is as in its topic and in the ledger. `audience`: what it is promised; None for the site, which has no
    promise of its own. `useful`: the plans of all devices found shares worth knowing, and one is asked for. `compared`:
    what each mechanism allows for a tick, where the least noise was chosen. `helper` and `honest`: of a sum of homes
    the digits of its helper, and how many of the homes its promise needs.
    """

    plan: Scheduled
    question: Question
    audience: Audience | None
    topic: str
    clock: Clock
    useful: bool
    compared: tuple[tuple[Mechanism, int], ...] = ()
    helper: str = ""
    honest: int = 0

    @property
    def name(self) -> str:
        """The release's."""
        return self.question.name

    @property
    def epsilon(self) -> float:
        """The audience's, which is not the site."""
        assert self.audience is not None
        return self.audience.epsilon

    def promise(self, counted: Sequence[Counted]) -> tuple[Audience, int]:
        """The audience's promise as a frame tells it, and how many ticks in a row it is about.

        To the site it is what the policies of all that is counted promise it anyway. Raises FuguError if, beside a
        change of policy, that has no bound.
        """
        if self.audience is None:
            return _site(self.name, counted)
        return self.audience, self.audience.promise.ticks(self.clock.period_us)


def jobs(config: ReleaseConfig, catalogue: Catalogue) -> list[Job]:
    """All jobs of a configuration.

    Raises FuguError if a release names an unknown device or state, or sums up what is not comparable. Raises it, too,
    if an audience is told sums of a group that no policy has, or a release has the name of such a sum.
    """
    _check_groups(config, catalogue)
    jobs: list[Job] = []
    for plan in config.releases:
        devices = catalogue.devices(plan.stream) if plan.devices == "all" else plan.devices
        if not devices:
            raise FuguError(f"release {plan.name}: no device has a stream {plan.stream}")
        for group in [(device,) for device in devices] if plan.per_device else [tuple(devices)]:
            jobs.append(_job(plan, group, config, catalogue))
    if len({job.name for job in jobs}) != len(jobs):
        raise FuguError("two releases would have the same topic")
    _check_accounts(jobs)
    return jobs


def _check_groups(config: ReleaseConfig, catalogue: Catalogue) -> None:
    """Refuse an audience that is told sums of a group that no policy has, and a release that is called like a sum."""
    groups = catalogue.groups().values()
    for audience, terms in config.audiences.items():
        for name in set(terms.sums) - {group.name for group in groups}:
            raise FuguError(f"audience {audience}: no policy has a sum of a group {name}")
    for name in {job.name for job in config.releases} & {name for group in groups for name in group.release_names}:
        raise FuguError(f"release {name} is called like the sums of a group: give it another name")


def _check_accounts(jobs: Iterable[Job]) -> None:
    """Refuse what the ledger would: an account has one mechanism, and one release if that does not compose."""
    first_jobs: dict[tuple[str, str, str], Job] = {}
    for job in jobs:
        mechanism = job.question.mechanism
        for device in job.question.devices if job.plan.audience != SITE else ():
            other = first_jobs.setdefault((device, job.plan.stream, job.plan.audience), job)
            what = (
                f"releases {other.name} and {job.name} both tell {job.plan.audience} about {device}/{job.plan.stream}"
            )
            if other.question.mechanism != mechanism:
                raise FuguError(
                    f"{what}, by {other.question.mechanism} and by {mechanism}: give them one mechanism, or two "
                    "audiences"
                )
            if other is not job and mechanism in ALONE:
                raise FuguError(f"{what}, and mechanism {mechanism} does not compose with anything")


def _job(plan: Scheduled, devices: tuple[str, ...], config: ReleaseConfig, catalogue: Catalogue) -> Job:
    name = f"{plan.name}-{devices[0]}" if plan.per_device else plan.name
    if len(name) > _NAME_LENGTH:
        raise FuguError(f"release {name}: its name is longer than {_NAME_LENGTH} characters")
    if len(set(devices)) != len(devices):
        raise FuguError(f"release {name} names a device twice")
    newest = []
    for device in devices:
        models = catalogue.planned(device, plan.stream)
        if not models:
            raise FuguError(f"release {name}: no policy for stream {device}/{plan.stream}")
        newest.append(models[-1])
    if len({(policy.discretiser.states, policy.clock) for policy in newest}) != 1:
        raise FuguError(f"release {name}: its devices do not have the same states and the same clock")
    labels = newest[0].discretiser.states
    for state in plan.states:
        if state not in labels:
            raise FuguError(f"release {name}: stream {plan.stream} has no state {state!r}")
    wanted = plan.states or labels
    if plan.states and len(wanted) == len(labels):
        raise FuguError(f"release {name} asks for all states together, which says nothing")
    query = Query(plan.query, tuple(labels.index(state) for state in wanted))
    windows = {
        device: window
        for device, policy in zip(devices, newest, strict=True)
        if plan.source != "symbols" and (window := release_window(policy, plan, query)) is not None
    }
    silent = frozenset(device for device, policy in zip(devices, newest, strict=True) if policy.table is None)
    for device in devices:
        if device in silent and device not in windows:
            raise FuguError(
                f"release {name}: {device}/{plan.stream} has no symbols, and no windows that a {plan.query} of "
                f"{plan.length} ticks every {plan.step} can be put together from"
            )
    audience = None if plan.audience == SITE else config.audiences[plan.audience]
    topic = topic_of("release", catalogue.fleet, plan.audience, name)
    allowed = _allowed(plan, devices, audience, catalogue)
    mechanism = _least_noise(allowed)
    useful = not query.asked.pairs and all(policy.useful_for == "share" for policy in newest)
    question = Question(
        *(name, plan.stream, devices, labels, query, plan.length, plan.source, mechanism, plan.confidence),
        *(windows, silent, plan.chains),
    )
    compared = tuple(allowed.items()) if plan.mechanism == "auto" else ()
    job = Job(plan, question, audience, topic, newest[0].clock, useful, compared)
    if mechanism in ALONE:
        _check_alone(job, catalogue)
    return job


def _allowed(
    plan: Scheduled, devices: tuple[str, ...], audience: Audience | None, catalogue: Catalogue
) -> dict[Mechanism, int]:
    """Allowances of a tick by each mechanism in question, for all devices; "chain" needs no comparison."""
    if plan.mechanism == "chain" or audience is None:
        return {"chain": 0}
    allowed: dict[Mechanism, int] = {}
    for name in get_args(Composing) if plan.mechanism == "auto" else (plan.mechanism,):
        if covers(name, audience.adversary):
            try:
                every = (catalogue.planned(device, plan.stream) for device in devices)
                allowed[name] = min(_allowance(_classes(plan.chains, policies), audience, name) for policies in every)
            except ChainClassError as error:
                if plan.mechanism != "auto":
                    raise FuguError(f"release {plan.name}: mechanism {name}: {error}") from None
    if not allowed:
        raise FuguError(f"release {plan.name}: no mechanism protects these streams")
    return allowed


def _least_noise(allowed: Mapping[Mechanism, int]) -> Mechanism:
    """The mechanism that allows most for a tick; the accountant, unless another allows more."""
    if "chain" in allowed and allowed["chain"] * _TIED >= max(allowed.values()):
        return "chain"
    return max(allowed, key=lambda name: allowed[name])


def _classes(chains: Matrices, policies: Sequence[Policy], past: Past = NO_PAST) -> list[tuple[ReleaseClass, int]]:
    """Classes with periods that a release is held to; those of its own or of policies, and such ones of the past."""
    period = min(policy.clock.period_us for policy in policies)
    own = classes_of_release(chains, policies)
    classes = (
        [(chain, period) for chain in own]
        if chains
        else [(policy.chains, policy.clock.period_us) for policy in policies]
    )
    before = [chain for chain in past.classes if isinstance(chain[0], ListedChains) == bool(chains)]
    return list(dict.fromkeys([*classes, *before]))


def _allowance(
    classes: Sequence[tuple[ReleaseClass, int]], audience: Audience, mechanism: Mechanism, past: Past = NO_PAST
) -> int:
    """The least that any class allows, for the most ticks that a stretch has by any of them.

    A part of epsilon is left to what leaks over a change, unless there was none.
    """
    ticks = audience.promise.ticks(min(period for _, period in classes))

    def allowed(epsilon: float) -> set[int]:
        return {allowance(chains, epsilon, audience.adversary, mechanism, ticks) for chains, _ in classes}

    every = allowed(audience.epsilon)
    unchanged = len(every) == 1 and len({period for _, period in classes}) == 1 and not past.lost
    return min(every if unchanged else allowed(with_slack(audience.epsilon)))


def _check_alone(job: Job, catalogue: Catalogue) -> None:
    """Refuse what no mechanism that does not compose can be right about, before anything is counted."""
    for device in job.question.devices:
        policies = catalogue.planned(device, job.plan.stream)
        what = f"release {job.name}: mechanism {job.question.mechanism}"
        if any(policy.window_rate for policy in policies):
            raise FuguError(f"{what} composes with nothing, and {device}/{job.plan.stream} releases windows of its own")
        if job.question.mechanism == "wasserstein":
            if any(
                policy.discretiser.kind == "baseline"
                or (policy.discretiser.missing is None and policy.missing_share != 0.0)
                for policy in policies
            ):  # a symbol without a state has another distribution
                raise FuguError(
                    f"{what} needs the distribution of every symbol, and a tick of {device}/{job.plan.stream} "
                    "without a reading has no state. Declare a missing state, or, without a baseline, missing_share 0 "
                    "if there are no such ticks"
                )
            try:
                ticks, chains = [True] * job.plan.length, job.question.classes(policies)
                for table in {policy.table for policy in policies if policy.table is not None}:
                    counted_symbols(chains, table, job.question.query.states, ticks).check()
            except FuguError as error:
                raise FuguError(f"{what}: {device}/{job.plan.stream}: {error}") from None


def release_window(policy: Policy, plan: Scheduled, query: Query) -> Window | None:
    """The window of which a whole number, side by side, is every window of a release; the one with the least noise."""
    fit = [
        window
        for window in policy.windows
        if answers(window, policy.discretiser.states, query) is not None
        and plan.length % window.length == plan.step % window.length == 0
        and window.length % window.stride == window.start % window.stride == 0
    ]
    return min(fit, key=lambda window: noise_variance(Fraction(window.scale)) / window.length, default=None)


def answers(window: Window, labels: Sequence[str], query: Query) -> Ints | None:
    """The counts of a window that add up to each answer, (answers, counts) of 0 and 1; `None` if they do not."""
    if not (query.asked.additive and window.query.additive):
        return None
    counts = window.groups(tuple(labels))
    rows = np.array([[set(counted) <= set(states) for counted in counts] for states in query.groups], dtype=np.int64)
    return rows if list(rows @ list(map(len, counts))) == list(map(len, query.groups)) else None


def _site(name: str, counted: Sequence[Counted]) -> tuple[Audience, int]:
    """Promise to the site: the weakest of the streams' guarantees, about the shortest stretch of any of them."""
    ranks: tuple[Adversary, ...] = get_args(Adversary)
    weakest = min((counted_stream.policy.guarantee.adversary for counted_stream in counted), key=ranks.index)
    ticks = min(counted_stream.policy.guarantee.stretch_ticks for counted_stream in counted)
    worst = max(counted, key=lambda counted_stream: counted_stream.epsilon(ticks))
    if math.isinf(epsilon := worst.epsilon(ticks)):
        stream = f"{worst.policy.device}/{worst.policy.stream}"
        raise FuguError(
            f"release {name}: ticks {worst.first}..{worst.last} of {stream} are next to a change of its policy over "
            "which no epsilon is known: later windows have one"
        )
    return Audience(epsilon=epsilon, adversary=weakest), ticks


def allowances(
    config: ReleaseConfig,
    jobs: Iterable[Job],
    catalogue: Catalogue,
    past: Callable[[Iterable[Stream]], Past] = lambda _streams: NO_PAST,
) -> tuple[list[Allowance], dict[str, str]]:
    """Largest charge to each stream for each audience, the least that any of its policies allows; and impossible jobs.

    Streams that move together have one allowance, and the windows of all of them stand against it. A job that can never
    release anything is there by its name, with the reason and what to change. For a sum that an audience is told, the
    name is its group's.
    """
    groups = {stream: group for group in streams_together(catalogue) for stream in group}
    asking: dict[tuple[str, str, str, Mechanism], list[tuple[str, Matrices]]] = {}
    for job in jobs:
        for device in job.question.devices if job.plan.audience != SITE else ():
            asked = (device, job.plan.stream, job.plan.audience, job.question.mechanism)
            asking.setdefault(asked, []).append((job.name, job.plan.chains))
    for name, audience in config.audiences.items():
        for device, stream in catalogue.symbol_streams() if audience.sums else ():
            sums = {shared.group.name for policy in catalogue.policies(device, stream) for shared in policy.sums}
            for shared_with in sorted(sums & set(audience.sums)):
                asking.setdefault((device, stream, name, "chain"), []).append((shared_with, ()))
    allowances: list[Allowance] = []
    impossible: dict[str, str] = {}
    for (device, stream, name, mechanism), asked_by in sorted(asking.items()):
        key, names = Key(device, stream, name), [asker for asker, _ in asked_by]
        audience = config.audiences[name]
        streams = sorted(groups.get((device, stream), [(device, stream)]))
        members = {row: charged for row in streams if (charged := catalogue.charged(*row))}
        if (device, stream) not in members:  # nothing that could be told, and no tick to be charged for it
            continue
        policies = [policy for charged in members.values() for policy in charged]
        base = sum(max(units_above(policy.window_rate) for policy in charged) for charged in members.values())
        before = past(members)
        try:
            classes = list(dict.fromkeys(row for _, own in asked_by for row in _classes(own, policies, before)))
            most = _allowance(classes, audience, mechanism, before)
        except ChainClassError as error:
            impossible |= dict.fromkeys(names, f"{key}: nothing can be released: {error}")
            continue
        if problem := standing_problem(key, most, base):
            impossible |= dict.fromkeys(names, problem)
        chains, period = tuple(dict.fromkeys(row for row, _ in classes)), min(row for _, row in classes)
        allowances.append(Allowance(key, most, base, audience.promise, period, mechanism, chains))
    return allowances, impossible

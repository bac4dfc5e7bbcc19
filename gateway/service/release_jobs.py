"""Configured releases, applied to the policies of a fleet: whose symbols, which states, and what may be charged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple, get_args

import numpy as np

from contract.guarantee import Adversary
from contract.policy import Policy
from contract.topics import release_topic
from contract.windows import Window
from gateway.chain.arrays import Ints
from gateway.release.allowance import allowance
from gateway.release.charges import units_above
from gateway.release.entries import SITE, Allowance, Key
from gateway.release.statistics import Query, noise_variance
from gateway.service.policies import Catalogue
from gateway.service.release_config import Audience, ReleaseConfig, ReleaseConfigError, Scheduled

__all__ = ["Job", "allowances", "answers", "jobs"]

_NAME_LENGTH = 64


class Job(NamedTuple):
    """One release of every window.

    Attributes:
        name: as in its topic and in the ledger.
        plan: how it is configured.
        devices: whose symbols are counted together.
        labels: of all states, in order; symbols of policies that mean other states are not counted with them.
        query: what is asked.
        audience: what its audience is promised.
        topic: where it is published.
        windows: by device, that of its windows which answers the query, if it is to be answered from them.
        silent: the devices that have windows only.
    """

    name: str
    plan: Scheduled
    devices: tuple[str, ...]
    labels: tuple[str, ...]
    query: Query
    audience: Audience
    topic: str
    windows: Mapping[str, Window]
    silent: frozenset[str]

    @property
    def states(self) -> tuple[str, ...]:
        """Labels of the states that are asked for."""
        return tuple(self.labels[state] for state in self.query.states)


def jobs(config: ReleaseConfig, catalogue: Catalogue) -> list[Job]:
    """All jobs of a configuration.

    Raises:
        ReleaseConfigError: a release names a device or a state that there is not, or sums up what is not comparable.
    """
    found: list[Job] = []
    for plan in config.releases:
        devices = catalogue.devices(plan.stream) if plan.devices == "all" else plan.devices
        if not devices:
            raise ReleaseConfigError(f"release {plan.name}: no device has a stream {plan.stream}")
        for group in [(device,) for device in devices] if plan.per_device else [tuple(devices)]:
            found.append(_job(plan, group, config, catalogue))
    if len({job.name for job in found}) != len(found):
        raise ReleaseConfigError("two releases would have the same topic")
    return found


def _job(plan: Scheduled, devices: tuple[str, ...], config: ReleaseConfig, catalogue: Catalogue) -> Job:
    name = f"{plan.name}-{devices[0]}" if plan.per_device else plan.name
    if len(name) > _NAME_LENGTH:
        raise ReleaseConfigError(f"release {name}: its name is longer than {_NAME_LENGTH} characters")
    if len(set(devices)) != len(devices):
        raise ReleaseConfigError(f"release {name} names a device twice")
    newest = []
    for device in devices:
        known = catalogue.policies(device, plan.stream)
        if not known:
            raise ReleaseConfigError(f"release {name}: no policy for stream {device}/{plan.stream}")
        newest.append(known[-1])
    if len({(policy.discretiser.states, policy.clock) for policy in newest}) != 1:
        raise ReleaseConfigError(f"release {name}: its devices do not have the same states and the same clock")
    labels = newest[0].discretiser.states
    for state in plan.states:
        if state not in labels:
            raise ReleaseConfigError(f"release {name}: stream {plan.stream} has no state {state!r}")
    wanted = plan.states or labels
    if plan.states and len(wanted) == len(labels):
        raise ReleaseConfigError(f"release {name} asks for all states together, which says nothing")
    query = Query(plan.query, tuple(labels.index(state) for state in wanted))
    windows = {
        device: window
        for device, policy in zip(devices, newest, strict=True)
        if plan.source != "symbols" and (window := _window(policy, plan, query)) is not None
    }
    silent = frozenset(device for device, policy in zip(devices, newest, strict=True) if policy.table is None)
    for device in devices:
        if device in silent and device not in windows:
            raise ReleaseConfigError(
                f"release {name}: {device}/{plan.stream} has no symbols, and no windows that a {plan.query} of "
                f"{plan.length} ticks every {plan.step} can be put together from"
            )
    audience = config.audiences.get(plan.audience) or _site(newest)
    topic = release_topic(catalogue.fleet, plan.audience, name)
    return Job(name, plan, devices, labels, query, audience, topic, windows, silent)


def _window(policy: Policy, plan: Scheduled, query: Query) -> Window | None:
    """The window of which a whole number, side by side, is every window of a release; the one with the least noise."""
    fit = [
        window
        for window in policy.windows
        if answers(window, policy.discretiser.states, query) is not None
        and plan.length % window.length == plan.step % window.length == 0
        and window.length % window.stride == window.start % window.stride == 0
    ]
    return min(fit, key=lambda one: noise_variance(Fraction(one.scale)) / one.length, default=None)


def answers(window: Window, labels: Sequence[str], query: Query) -> Ints | None:
    """Which of a window's counts add up to an answer, (answers, counts) of 0 and 1; none if they do not answer it."""
    if query.kind == "dwell":
        return None
    if query.kind == "histogram":
        return np.eye(len(labels), dtype=np.int64) if window.states == "histogram" else None
    asked = np.isin(np.arange(len(labels)), query.states)
    if window.states == "histogram":
        return asked.astype(np.int64)[np.newaxis]
    return np.ones((1, 1), dtype=np.int64) if set(window.counted(tuple(labels))) == set(query.states) else None


def _site(policies: Iterable[Policy]) -> Audience:
    """What the site is promised: the weakest of the streams' guarantees."""
    guarantees = [policy.guarantee for policy in policies]
    ranks: tuple[Adversary, ...] = get_args(Adversary)
    weakest = min((guarantee.adversary for guarantee in guarantees), key=ranks.index)
    return Audience(epsilon=max(guarantee.epsilon for guarantee in guarantees), adversary=weakest)


def allowances(config: ReleaseConfig, made: Iterable[Job], catalogue: Catalogue) -> list[Allowance]:
    """What may be charged to each stream for each audience: the least that any of its policies allows."""
    keys = {(device, job.plan.stream, job.plan.audience) for job in made for device in job.devices}
    found = []
    for device, stream, name in sorted(keys):
        if name != SITE:
            audience, policies = config.audiences[name], catalogue.policies(device, stream)
            most = min(allowance(policy.chains, audience.epsilon, audience.adversary) for policy in policies)
            base = max(units_above(policy.window_rate) for policy in policies)
            found.append(Allowance(Key(device, stream, name), most, base, audience.epsilon, audience.adversary))
    return found

"""What a document would change: for each version that devices have now, the promises and the worth of every stream."""

from __future__ import annotations

import json
import math
from collections.abc import Set
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fugu.contract.chains import BinaryChains, BoundedChains, FiniteChains, JointChains
from fugu.contract.errors import FuguError
from fugu.contract.fleet_documents import PolicyDocument
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.stretches import Stretch
from fugu.contract.windows import Window
from fugu.places.compiled import emission
from fugu.places.graphs import GraphError
from fugu.planning.answers import window_error
from fugu.privacy.utility import assess
from gateway.fleet import Registry
from gateway.fleet.documents import document_in, former_version, other_ticks, reached
from gateway.fleet.signing import policies_of

__all__ = ["Change", "StreamChange", "Worth", "changes"]

_TICKS = 50_000
_STEPS = 1 << 14


class Worth(NamedTuple):
    """What a policy promises of a stream, and what it leaves of it.

    Attributes:
        epsilon: in nats; of the whole stream, or of each point if it is measured.
        adversary: to whom; empty for measured streams.
        accuracy: share of ticks whose state the gateway's estimate finds, for a typical chain of the policy's class;
            none if the class has no typical chain, or without symbols.
        error: root-mean-square error of a released point in the unit, for a typical state, or of windows alone the mean
            error of the share that has the least; none for symbols.
        stretches: what is lost about whole stretches of time; empty for measured streams, for which `fugu check policy`
            finds it.
    """

    epsilon: float
    adversary: str
    accuracy: float | None = None
    error: float | None = None
    unit: str = ""
    stretches: tuple[Stretch, ...] = ()


class StreamChange(NamedTuple):
    """A stream before and after; `None` where it does not run.

    Attributes:
        other_ticks: in words, if ticks mean other moments, so that devices which run the stream refuse the document.
    """

    stream: str
    before: Worth | None
    after: Worth | None
    other_ticks: str = ""


class Change(NamedTuple):
    """What devices of one version would go through.

    Attributes:
        former: the version that they have now; `None` if they have none that is known.
        unknown: the former document is not in the registry, or cannot be read: what their streams are is not known.
        streams: by name; those that stay as they are included.
    """

    devices: tuple[str, ...]
    former: int | None
    unknown: bool
    streams: tuple[StreamChange, ...]


def changes(registry: Registry, document: PolicyDocument, only: Set[str] | None = None) -> list[Change]:
    """What a document would change on the devices that it is for, or on some of them.

    Raises:
        FuguError: the registry cannot be read.
    """
    by_version: dict[int | None, list[str]] = {}
    for device in reached(registry, document.to):
        if only is not None and device.name not in only:
            continue
        by_version.setdefault(former_version(device), []).append(device.name)
    known: dict[str, Worth] = {}
    after = _worths(document, known)
    found = []
    for former, names in sorted(by_version.items(), key=lambda entry: entry[0] or 0):
        before: dict[str, Worth] = {}
        ticks: dict[str, str] = {}
        unknown = False
        if former is not None:
            try:
                old = document_in(registry, former)
                before, ticks = _worths(old, known), other_ticks(old, document)
            except FuguError:
                unknown = True
        streams = (
            StreamChange(name, before.get(name), after.get(name), ticks.get(name, ""))
            for name in sorted({*before, *after})
        )
        found.append(Change(tuple(sorted(names)), former, unknown, tuple(streams)))
    return found


def _worths(document: PolicyDocument, known: dict[str, Worth]) -> dict[str, Worth]:
    """The worth of every stream; the same policy is not assessed twice."""
    found = {}
    for policy in policies_of(document):
        key = json.dumps({**json.loads(policy.to_json()), "version": 0, "device": "", "fallback": "", "tables": ""})
        if isinstance(policy, MeasurePolicy):
            key += repr([table.noise for table in policy.measure_tables])
        if key not in known:
            known[key] = worth(policy)
        found[policy.stream] = known[key]
    return found


def worth(policy: AnyPolicy) -> Worth:
    """What a policy promises, and what it leaves."""
    if isinstance(policy, Policy):
        promise = policy.guarantee
        told = policy.stretches(promise.epsilon)
        if policy.table is None:
            best = min(policy.windows, key=_share_error)
            error, unit = _share_error(best), f"of the share of {best.name}"
            return Worth(promise.epsilon, promise.adversary, error=error, unit=unit, stretches=told)
        return Worth(promise.epsilon, promise.adversary, accuracy=_accuracy(policy, policy.table), stretches=told)
    off, unit = _error(policy)
    return Worth(policy.epsilon, "", error=off, unit=unit)


def _share_error(window: Window) -> float:
    return window_error(Fraction(window.scale), window.length).share_mean


def _accuracy(policy: Policy, table: NoiseTable) -> float | None:
    """The accuracy of the gateway's estimate for a typical chain of the class, by simulation."""
    chains: BinaryChains | BoundedChains
    transition: tuple[tuple[float, ...], ...]
    match policy.chains:
        case BinaryChains() as binary:
            q, r = sum(binary.q) / 2.0, sum(binary.r) / 2.0
            transition, chains = ((1.0 - q, q), (r, 1.0 - r)), binary
        case BoundedChains(transition=None) | JointChains():
            return None
        case BoundedChains() as bounded:
            assert bounded.transition is not None
            transition, chains = bounded.transition, bounded
        case FiniteChains() as finite:
            transition = finite.transitions[0]
            chains = BoundedChains(states=finite.states, odds_ratio=1.0)
    return assess(table, np.array(transition), chains, _TICKS).accuracy


def _error(policy: MeasurePolicy) -> tuple[float | None, str]:
    """The error of a point of the last table, for the stationary distribution of the first chain, and its unit."""
    values = np.array(policy.coordinates, dtype=np.int64)
    transition = np.array(policy.matrix)
    try:
        distribution = emission(policy.measure_tables[-1].noise, values)
    except GraphError:
        return None, policy.unit
    points = np.array(list(distribution.points), dtype=np.float64)
    steps = np.array(policy.resolution)
    squares = np.zeros((len(values), len(points)))
    for axis, step in enumerate(steps):
        squares += (step * (values[:, axis, None] - points[None, :, axis])) ** 2
    # converges to the stationary distribution, also if the chain is periodic
    lazy = (np.eye(len(transition)) + transition) / 2.0
    stationary = np.array(policy.initial) @ np.linalg.matrix_power(lazy, _STEPS)
    stationary = np.bincount(policy.shows or range(len(values)), stationary, len(values))
    return math.sqrt(max(0.0, float(np.sum(stationary[:, None] * distribution.probabilities * squares)))), policy.unit

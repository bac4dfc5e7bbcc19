"""Documents and the fleet's registry: which devices a document is for, what it changes, and its entry."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fugu.contract.calendar import DAY
from fugu.contract.envelope import Envelope
from fugu.contract.errors import FuguError
from fugu.contract.fleet_documents import Address, Enrolment, PolicyDocument, read_document
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.stretches import Stretch
from fugu.host.files import file_errors
from fugu.places.graphs import GraphError
from fugu.places.tables import emission
from fugu.planning.answers import error_of
from fugu.privacy.randomised_response import assess
from gateway.fleet.entries import Document, FleetError, Target
from gateway.fleet.keys import Root
from gateway.fleet.registry import Device, Registry
from gateway.fleet.rollouts import Rollouts
from gateway.fleet.signing import Signed, StreamPromise, content_of, promise_of, promises, read_complete

__all__ = [
    "Change",
    "StreamChange",
    "Worth",
    "addressed_devices",
    "changes",
    "check_new",
    "document_in",
    "enter_document",
    "former_document",
    "read_checked",
    "refuse_other_ticks",
    "rollouts_at",
    "signed_document",
    "target_of",
]


def read_checked(path: Path, root_file: Path, now: int, enrolments: Sequence[Enrolment] = ()) -> tuple[Signed, bool]:
    """Read a document, and judge it at Unix time `now` as devices do, with the owners' limits of `enrolments`.

    Returns the document, and whether it is valid at `now`; if not, devices take it later. Raises FuguError, which names
    the file, if too few policy keys have signed it, or no device would ever accept it.
    """
    root = Root.read(root_file)
    with file_errors(path, "the document"):
        signed = Signed.read(path.read_bytes(), root)
        return signed, signed.check(root, now, enrolments)


def target_of(address: Address) -> Target:
    """Convert a document's address to the registry's form."""
    if address.device is not None:
        return Target("device", address.device)
    return Target("fleet") if address.group is None else Target("group", address.group)


def addressed_devices(registry: Registry, address: Address) -> list[Device]:
    """Return the devices that a document is for. Raises FuguError if there are none."""
    if not (devices := _addressed_devices(registry, address)):
        raise FuguError(f"no device of fleet {registry.fleet} is meant by {address}: enrol it first")
    return devices


def _addressed_devices(registry: Registry, address: Address) -> list[Device]:
    target = target_of(address)
    return [device for device in registry.devices() if target.covers(device.name, device.groups)]


def former_version(device: Device) -> int | None:
    """Return the version that a device has in force, else its desired version, else `None`."""
    if device.reported is not None and device.reported.in_force:
        return device.reported.in_force
    return None if device.desired is None else device.desired.version


def document_in(registry: Registry, version: int) -> PolicyDocument:
    """Return a document as the registry has it, its signatures unchecked. FuguError if missing or damaged."""
    return read_document(PolicyDocument, Envelope.decode(registry.document(version).payload).payload)


def signed_document(registry: Registry, version: int, roots: Sequence[Root]) -> PolicyDocument:
    """Return a document of the registry that enough policy keys of a root have signed: its file is no authority.

    FuguError if the document is missing. FleetError if too few keys have signed it, or it has another version.
    """
    try:
        document = read_complete(registry.document(version).payload, roots)
    except FleetError as error:
        raise FleetError(f"version {version} of the registry is not believed: {error}") from None
    if document.version != version:
        raise FleetError(f"the registry has version {document.version} in the place of version {version}")
    return document


def former_document(registry: Registry, document: PolicyDocument, roots: Sequence[Root]) -> PolicyDocument | None:
    """Return the newest validly signed document before a document, for some of the same devices; `None` without one."""
    device_names = {device.name for device in _addressed_devices(registry, document.to)}
    older_versions = [candidate.version for candidate in registry.documents() if candidate.version < document.version]
    for version in sorted(older_versions, reverse=True):
        with suppress(FuguError):
            candidate = signed_document(registry, version, roots)
            candidate_names = {device.name for device in _addressed_devices(registry, candidate.to)}
            if candidate.to == document.to or device_names & candidate_names:
                return candidate
    return None


def restored_by(registry: Registry, document: PolicyDocument) -> int | None:
    """Return the version whose content a document restores; `None` for none, or the version just before it."""
    content = content_of(document)
    target = target_of(document.to)
    versions = (stored.version for stored in registry.documents() if stored.target == target)
    older_versions = [version for version in versions if version < document.version]
    for version in reversed(older_versions):
        with suppress(FuguError):  # an unreadable document cannot be restored
            if content_of(document_in(registry, version)) == content:
                return None if version == older_versions[-1] else version
    return None


def other_ticks(old_document: PolicyDocument, new_document: PolicyDocument) -> dict[str, str]:
    """Return the reason why a new document moves a stream's ticks, by stream of both documents."""
    old_policies, reasons = {policy.stream: policy for policy in old_document.example_policies()}, {}
    for policy in new_document.example_policies():
        old_policy = old_policies.get(policy.stream, policy)
        old_ticks = _window_ticks(old_policy)
        moved_names = [name for name, ticks in _window_ticks(policy).items() if ticks != old_ticks.get(name, ticks)]
        if policy.clock != old_policy.clock:
            reasons[policy.stream] = "another epoch or period"
        elif moved_names:
            reasons[policy.stream] = f"other ticks for window {', '.join(sorted(moved_names))}"
    return reasons


def _window_ticks(policy: AnyPolicy) -> dict[str, tuple[int, int, int]]:
    windows = policy.windows if isinstance(policy, Policy) else ()
    return {window.name: (window.start, window.length, window.stride) for window in windows}


def refuse_other_ticks(registry: Registry, document: PolicyDocument) -> None:
    """Refuse a document that moves the ticks of a stream, because devices would refuse it.

    Raises FleetError, which names a version in force, and the streams.
    """
    for version in sorted({former_version(device) or 0 for device in _addressed_devices(registry, document.to)}):
        reasons: dict[str, str] = {}
        with suppress(FuguError):  # the document is missing or unreadable
            reasons = other_ticks(document_in(registry, version), document)
        if reasons:
            streams = "; ".join(f"{stream} has {reason}" for stream, reason in sorted(reasons.items()))
            raise FleetError(
                f"devices of version {version} would refuse version {document.version}: {streams}. Plan with the same "
                "ticks, or give the stream or the window a new name"
            )


def rollouts_at(registry: Registry, devices: Sequence[str]) -> list[int]:
    """Return the numbers of the active rollouts that one of the devices is in, which a push would overtake."""
    rollouts = Rollouts(registry)
    return [
        rollout
        for rollout in rollouts.active()
        if set(devices) & {name for stage in rollouts.show(rollout).state.stages for name in stage}
    ]


def check_new(registry: Registry, signed: Signed) -> None:
    """Refuse a document that `enter_document` would refuse, without entering it. Raises FleetError."""
    document, newest_version = signed.document, registry.newest_version()
    if document.fleet != registry.fleet:
        raise FleetError(f"a document of fleet {document.fleet}; the registry is that of fleet {registry.fleet}")
    payloads = [candidate.payload for candidate in registry.documents() if candidate.version == document.version]
    if document.version <= newest_version and signed.payload not in payloads:
        raise FleetError(f"version {document.version} is not newer than {newest_version}, which the registry has")


def enter_document(registry: Registry, signed: Signed, *, actor: str, time_us: int) -> Document:
    """Enter a checked document; the same document again is a no-op.

    Raises FleetError for another fleet's document, or a version that is not the highest.
    """
    check_new(registry, signed)
    document = signed.document
    stored_document = Document(
        version=document.version,
        target=target_of(document.to),
        digest=signed.envelope.digest,
        payload=signed.payload,
        description=", ".join(promise.stream for promise in promises(document)),
        restores=restored_by(registry, document),
    )
    registry.add_document(stored_document, actor=actor, time_us=time_us)
    return stored_document


_ASSESSED_TICKS = 50_000
_STATIONARY_STEPS = 1 << 14


class Worth(NamedTuple):
    """A policy's promise about a stream, and its usefulness.

    Attributes:
        accuracy: share of ticks whose state the gateway's estimate finds, for a typical chain of the policy's class.
        `None` without symbols, or if the class has no typical chain.
        error: root-mean-square error of a released point in the unit, for a typical state. With windows only, the
            smallest mean error of a window's share. `None` for symbols.
        stretches: the loss of whole stretches of time; empty for measured streams (`fugu check policy` has it).
        conditions: a sentence for each sum of homes, without which epsilon must not be shown.
    """

    promise: StreamPromise
    accuracy: float | None = None
    error: float | None = None
    unit: str = ""
    stretches: tuple[Stretch, ...] = ()
    conditions: tuple[str, ...] = ()


class StreamChange(NamedTuple):
    """A stream's worth before and after a document, `None` where the stream does not run.

    `other_ticks` says in words how ticks are other moments, so that devices which run the stream refuse the document.
    `open_profile` is the length in days of the old document's longest profile, or 0: its current window is never
    released.
    """

    stream: str
    before: Worth | None
    after: Worth | None
    other_ticks: str = ""
    open_profile: float = 0.0


class Change(NamedTuple):
    """The change for the devices that have one version now.

    Attributes:
        former: their version before the document; `None` if unknown.
        unknown: whether the former document is missing from the registry or unreadable, so that their streams are
            unknown.
        streams: by name, including unchanged ones.
    """

    devices: tuple[str, ...]
    former: int | None
    unknown: bool
    streams: tuple[StreamChange, ...]


def changes(registry: Registry, document: PolicyDocument, device_names: Set[str] | None = None) -> list[Change]:
    """Return the changes that a document makes to its devices, or only to the devices in `device_names`.

    FuguError if it is for no device, or the registry is unreadable.
    """
    by_version: dict[int | None, list[str]] = {}
    for device in addressed_devices(registry, document.to):
        if device_names is not None and device.name not in device_names:
            continue
        by_version.setdefault(former_version(device), []).append(device.name)
    cache: dict[str, Worth] = {}
    worths = _stream_worths(document, cache)
    changes = []
    for former, names in sorted(by_version.items(), key=lambda group: group[0] or 0):
        streams, unknown = {name: StreamChange(name, None, worth) for name, worth in worths.items()}, False
        try:
            streams |= {} if former is None else _stream_changes(document_in(registry, former), document, worths, cache)
        except FuguError:
            unknown = True
        changes.append(Change(tuple(sorted(names)), former, unknown, tuple(streams[name] for name in sorted(streams))))
    return changes


def _stream_changes(
    old_document: PolicyDocument, new_document: PolicyDocument, new_worths: dict[str, Worth], cache: dict[str, Worth]
) -> dict[str, StreamChange]:
    """Return the changes of an old document's streams, by stream name."""
    reasons, old_worths = other_ticks(old_document, new_document), _stream_worths(old_document, cache)
    return {
        name: StreamChange(name, old_worth, new_worths.get(name), reasons.get(name, ""), _profile_days(policy))
        for (name, old_worth), policy in zip(old_worths.items(), old_document.example_policies(), strict=True)
    }


def _profile_days(policy: AnyPolicy) -> float:
    windows = policy.windows if isinstance(policy, Policy) else ()
    lengths = (window.length * policy.clock.period_us / (DAY * 1_000_000) for window in windows if window.blocks)
    return max(lengths, default=0.0)


def _stream_worths(document: PolicyDocument, cache: dict[str, Worth]) -> dict[str, Worth]:
    worth_by_stream = {}
    for policy in document.example_policies():
        content = json.dumps({**json.loads(policy.to_json()), "version": 0, "device": "", "fallback": "", "tables": ""})
        if isinstance(policy, MeasurePolicy):
            content += repr([table.noise for table in policy.measure_tables])
        if content not in cache:
            cache[content] = worth(policy)
        worth_by_stream[policy.stream] = cache[content]
    return worth_by_stream


def worth(policy: AnyPolicy) -> Worth:
    """Return a policy's promise, and its usefulness."""
    promise, period = promise_of(policy), policy.clock.period_us
    if isinstance(policy, MeasurePolicy):
        return Worth(promise, error=_point_error(policy), unit=policy.unit)
    conditions = tuple(shared_window.condition for shared_window in policy.sums)
    stretches = policy.bound().rows(period, promise.epsilon)
    stream_worth = Worth(promise, stretches=stretches, conditions=conditions)
    if policy.table is not None:
        return stream_worth._replace(accuracy=_accuracy(policy, policy.table))
    if policy.windows:
        share_error, window_name = min((error_of(window, period).share_mean, window.name) for window in policy.windows)
        return stream_worth._replace(error=share_error, unit=f"of the share of {window_name}")
    groups = (group_window.group for group_window in policy.sums)
    group = max(groups, key=lambda group: group.rate * group.length)
    share_error = float(1 / (group.rate * group.length * group.quorum))
    return stream_worth._replace(error=share_error, unit=f"of the share of {group.name}, over its homes")


def _accuracy(policy: Policy, table: NoiseTable) -> float | None:
    chains = policy.chains
    if chains.named_streams or not chains.typical_matrices:
        return None
    return assess(table, np.array(chains.typical_matrices[0]), chains, _ASSESSED_TICKS).accuracy


def _point_error(policy: MeasurePolicy) -> float | None:
    """Return the error of a point of the last table, for the stationary distribution of the first chain."""
    coordinates = np.array(policy.coordinates, dtype=np.int64)
    transition = np.array(policy.matrix)
    try:
        distribution = emission(policy.measure_tables[-1].noise, coordinates)
    except GraphError:
        return None
    points = np.array(list(distribution.points), dtype=np.float64)
    squares = ((np.array(policy.resolution) * (coordinates[:, None] - points)) ** 2).sum(axis=2)
    # converges to the stationary distribution, also if the chain is periodic
    lazy_chain = (np.eye(len(transition)) + transition) / 2.0
    stationary = np.array(policy.initial) @ np.linalg.matrix_power(lazy_chain, _STATIONARY_STEPS)
    stationary = np.bincount(policy.shows or range(len(coordinates)), stationary, len(coordinates))
    return math.sqrt(max(0.0, float(np.sum(stationary[:, None] * distribution.probabilities * squares))))

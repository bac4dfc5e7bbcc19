"""Documents and the fleet's registry: who is meant, what they have, and entering what was signed."""

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
from fugu.contract.stretches import Stretch, StretchBound
from fugu.host.files import naming
from fugu.places.graphs import GraphError
from fugu.places.tables import emission
from fugu.planning.answers import error_of
from fugu.privacy.randomised_response import assess
from gateway.fleet.entries import Document, FleetError, Target
from gateway.fleet.keys import Root
from gateway.fleet.registry import Device, Registry
from gateway.fleet.rollouts import Rollouts
from gateway.fleet.signing import Signed, content_of, promises, read_complete

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
    """Read a document, and judge it at Unix time `now` as devices will, with the owners' limits of these enrolments.

    Returns the document, and whether it is valid by now; if not, devices take it later. Raises FuguError, which names
    the file, if too few policy keys have signed it, or no device would ever accept it.
    """
    root = Root.read(root_file)
    with naming(path, "the document"):
        signed = Signed.read(path.read_bytes(), root)
        return signed, signed.check(root, now, enrolments)


def target_of(address: Address) -> Target:
    """An address as the registry has it."""
    if address.device is not None:
        return Target("device", address.device)
    return Target("fleet") if address.group is None else Target("group", address.group)


def addressed_devices(registry: Registry, address: Address) -> list[Device]:
    """The devices that a document is for. Raises FuguError if there are none."""
    if not (devices := _addressed_devices(registry, address)):
        raise FuguError(f"no device of fleet {registry.fleet} is meant by {address}: enrol it first")
    return devices


def _addressed_devices(registry: Registry, address: Address) -> list[Device]:
    target = target_of(address)
    return [device for device in registry.devices() if target.covers(device.name, device.groups)]


def former_version(device: Device) -> int | None:
    """The version that a device has in force, or should have if it never said; `None` if there is none."""
    if device.reported is not None and device.reported.in_force:
        return device.reported.in_force
    return None if device.desired is None else device.desired.version


def document_in(registry: Registry, version: int) -> PolicyDocument:
    """A document of the registry, checked when entered. FuguError if missing, PolicyError if damaged."""
    return read_document(PolicyDocument, Envelope.decode(registry.document(version).payload).payload)


def signed_document(registry: Registry, version: int, roots: Sequence[Root]) -> PolicyDocument:
    """A document of the registry that enough policy keys of one of some roots have signed: its file is no authority.

    FuguError if missing, FleetError if too few have signed it, or it is in the place of another version.
    """
    try:
        document = read_complete(registry.document(version).payload, roots)
    except FleetError as error:
        raise FleetError(f"version {version} of the registry is not believed: {error}") from None
    if document.version != version:
        raise FleetError(f"the registry has version {document.version} in the place of version {version}")
    return document


def former_document(registry: Registry, document: PolicyDocument, roots: Sequence[Root]) -> PolicyDocument | None:
    """The newest document before one that is believed and for some of the same devices; `None` if there is none."""
    names = {device.name for device in _addressed_devices(registry, document.to)}
    older = [candidate.version for candidate in registry.documents() if candidate.version < document.version]
    for version in sorted(older, reverse=True):
        with suppress(FuguError):
            former = signed_document(registry, version, roots)
            if former.to == document.to or names & {device.name for device in _addressed_devices(registry, former.to)}:
                return former
    return None


def restored_by(registry: Registry, document: PolicyDocument) -> int | None:
    """The version whose content a document brings back; `None` if it has new content, or goes on with the newest."""
    content = content_of(document)
    target = target_of(document.to)
    stored = [stored for stored in registry.documents() if stored.target == target]
    older = [older_document.version for older_document in stored if older_document.version < document.version]
    for version in reversed(older):
        with suppress(FuguError):  # one that cannot be read is none that can be brought back
            if content_of(document_in(registry, version)) == content:
                return None if version == older[-1] else version
    return None


def other_ticks(old: PolicyDocument, new: PolicyDocument) -> dict[str, str]:
    """By stream of both documents what makes its ticks other moments in the new one; a device's outbox refuses that."""
    old_policies, reasons = {policy.stream: policy for policy in old.templates()}, {}
    for policy in new.templates():
        old_policy = old_policies.get(policy.stream, policy)
        old_ticks = _window_ticks(old_policy)
        names = [name for name, ticks in _window_ticks(policy).items() if ticks != old_ticks.get(name, ticks)]
        if policy.clock != old_policy.clock:
            reasons[policy.stream] = "another epoch or period"
        elif names:
            reasons[policy.stream] = f"other ticks for window {', '.join(sorted(names))}"
    return reasons


def _window_ticks(policy: AnyPolicy) -> dict[str, tuple[int, int, int]]:
    windows = policy.windows if isinstance(policy, Policy) else ()
    return {window.name: (window.start, window.length, window.stride) for window in windows}


def refuse_other_ticks(registry: Registry, document: PolicyDocument) -> None:
    """Refuse a document that devices would refuse because ticks of a stream mean other moments in it.

    Raises FleetError, which names a version that devices have now, and the streams.
    """
    for version in sorted({former_version(device) or 0 for device in _addressed_devices(registry, document.to)}):
        reasons: dict[str, str] = {}
        with suppress(FuguError):  # one that the registry has not, or that cannot be read
            reasons = other_ticks(document_in(registry, version), document)
        if reasons:
            streams = "; ".join(f"{stream} has {reason}" for stream, reason in sorted(reasons.items()))
            raise FleetError(
                f"devices of version {version} would refuse version {document.version}: {streams}. Plan with the same "
                "ticks, or give the stream or the window a new name"
            )


def rollouts_at(registry: Registry, devices: Sequence[str]) -> list[int]:
    """Rollouts under way at some of these devices, whose stages and gates a push does not wait for."""
    rollouts = Rollouts(registry)
    return [
        number
        for number in rollouts.active()
        if set(devices) & {name for stage in rollouts.show(number).state.stages for name in stage}
    ]


def check_new(registry: Registry, signed: Signed) -> None:
    """Refuse what `enter_document` would refuse, without entering it. Raises FleetError."""
    document, newest = signed.document, registry.newest_version()
    if document.fleet != registry.fleet:
        raise FleetError(f"a document of fleet {document.fleet}; the registry is that of fleet {registry.fleet}")
    payloads = [candidate.payload for candidate in registry.documents() if candidate.version == document.version]
    if document.version <= newest and signed.payload not in payloads:
        raise FleetError(f"version {document.version} is not newer than {newest}, which the registry has")


def enter_document(registry: Registry, signed: Signed, *, actor: str, time_us: int) -> Document:
    """Enter a document that was checked; the same again is a no-op.

    Raises FleetError if it is another fleet's, or its version is not higher than all others.
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


_TICKS = 50_000
_STEPS = 1 << 14


class Worth(NamedTuple):
    """Promise of a policy about a stream, and its usefulness.

    Attributes:
        epsilon: in nats; of the whole stream, or of each point if it is measured.
        adversary: to whom; empty for measured streams.
        accuracy: share of ticks whose state the gateway's estimate finds, for a typical chain of the policy's class.
            `None` without symbols, or if the class has no typical chain.
        error: root-mean-square error of a released point in the unit, for a typical state. Of windows alone, the mean
            error of the share that has the least. `None` for symbols.
        stretches: what is lost about whole stretches of time; empty for measured streams (`fugu check policy` has it).
        bound: the same of any stretch; none of measured streams.
        conditions: of each sum of homes, a sentence without which no epsilon is said.
    """

    epsilon: float
    adversary: str
    accuracy: float | None = None
    error: float | None = None
    unit: str = ""
    stretches: tuple[Stretch, ...] = ()
    bound: StretchBound | None = None
    conditions: tuple[str, ...] = ()

    @property
    def stretch_ticks(self) -> int:
        """How many ticks in a row epsilon is about."""
        return 1 if self.bound is None else self.bound.ticks

    def loses(self, ticks: int) -> float:
        """Loss of so many ticks in a row."""
        return self.epsilon if self.bound is None else self.bound.epsilon(ticks)


class StreamChange(NamedTuple):
    """A stream before and after; `None` where it does not run.

    `other_ticks` is in words, if ticks mean other moments, so that devices which run the stream refuse the document.
    `open_profile` is the days of the longest profile before, 0 without one: what of it is under way is never released.
    """

    stream: str
    before: Worth | None
    after: Worth | None
    other_ticks: str = ""
    open_profile: float = 0.0


class Change(NamedTuple):
    """Change for the devices of one version.

    Attributes:
        former: the version that they have now; `None` if they have none that is known.
        unknown: the former document is not in the registry, or cannot be read: what their streams are is not known.
        streams: by name; those that stay as they are included.
    """

    devices: tuple[str, ...]
    former: int | None
    unknown: bool
    streams: tuple[StreamChange, ...]


def changes(registry: Registry, document: PolicyDocument, device_names: Set[str] | None = None) -> list[Change]:
    """Changes by a document on the devices that it is for, or on some.

    FuguError if the registry is unreadable.
    """
    by_version: dict[int | None, list[str]] = {}
    for device in addressed_devices(registry, document.to):
        if device_names is not None and device.name not in device_names:
            continue
        by_version.setdefault(former_version(device), []).append(device.name)
    cache: dict[str, Worth] = {}
    worths = _worths(document, cache)
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
    old: PolicyDocument, new: PolicyDocument, worths: dict[str, Worth], cache: dict[str, Worth]
) -> dict[str, StreamChange]:
    """The streams of a document before another, by name."""
    reasons, old_worths, changes = other_ticks(old, new), _worths(old, cache), dict[str, StreamChange]()
    for policy in old.templates():
        name = policy.stream
        changes[name] = StreamChange(
            name, old_worths[name], worths.get(name), reasons.get(name, ""), _profile_days(policy)
        )
    return changes


def _profile_days(policy: AnyPolicy) -> float:
    windows = policy.windows if isinstance(policy, Policy) else ()
    lengths = (window.length * policy.clock.period_us / (DAY * 1_000_000) for window in windows if window.blocks)
    return max(lengths, default=0.0)


def _worths(document: PolicyDocument, cache: dict[str, Worth]) -> dict[str, Worth]:
    worth_by_stream = {}
    for policy in document.templates():
        key = json.dumps({**json.loads(policy.to_json()), "version": 0, "device": "", "fallback": "", "tables": ""})
        if isinstance(policy, MeasurePolicy):
            key += repr([table.noise for table in policy.measure_tables])
        if key not in cache:
            cache[key] = worth(policy)
        worth_by_stream[policy.stream] = cache[key]
    return worth_by_stream


def worth(policy: AnyPolicy) -> Worth:
    """Promise of a policy, and its usefulness."""
    if isinstance(policy, MeasurePolicy):
        return Worth(policy.epsilon, "", error=_point_error(policy), unit=policy.unit)
    promise, bound, period = policy.guarantee, policy.bound(), policy.clock.period_us
    conditions = tuple(shared_window.condition for shared_window in policy.sums)
    stretches = bound.rows(period, promise.epsilon)
    stream_worth = Worth(promise.epsilon, promise.adversary, stretches=stretches, bound=bound, conditions=conditions)
    if policy.table is not None:
        return stream_worth._replace(accuracy=_accuracy(policy, policy.table))
    if policy.windows:
        share_error, name = min((error_of(w, period).share_mean, w.name) for w in policy.windows)
        return stream_worth._replace(error=share_error, unit=f"of the share of {name}")
    largest = max((group_window.group for group_window in policy.sums), key=lambda group: group.rate * group.length)
    share_error = float(1 / (largest.rate * largest.length * largest.quorum))
    return stream_worth._replace(error=share_error, unit=f"of the share of {largest.name}, over its homes")


def _accuracy(policy: Policy, table: NoiseTable) -> float | None:
    chains = policy.chains
    if chains.named_streams or not chains.typical:
        return None
    return assess(table, np.array(chains.typical[0]), chains, _TICKS).accuracy


def _point_error(policy: MeasurePolicy) -> float | None:
    """The error of a point of the last table, for the stationary distribution of the first chain."""
    values = np.array(policy.coordinates, dtype=np.int64)
    transition = np.array(policy.matrix)
    try:
        distribution = emission(policy.measure_tables[-1].noise, values)
    except GraphError:
        return None
    points = np.array(list(distribution.points), dtype=np.float64)
    squares = ((np.array(policy.resolution) * (values[:, None] - points)) ** 2).sum(axis=2)
    # converges to the stationary distribution, also if the chain is periodic
    lazy_chain = (np.eye(len(transition)) + transition) / 2.0
    stationary = np.array(policy.initial) @ np.linalg.matrix_power(lazy_chain, _STEPS)
    stationary = np.bincount(policy.shows or range(len(values)), stationary, len(values))
    return math.sqrt(max(0.0, float(np.sum(stationary[:, None] * distribution.probabilities * squares))))

"""The policy that each stream has in force, and its description, retained at the broker.

A stream's version is the higher of two. One is the version that online statuses and frames name for the newest tick.
The other is the document's version in the device's answer on `policy/status`. A late frame has older ticks and undoes
no rollback. A last will names no version. After a restart, the broker's retained statuses and answers name versions
again, and so do stored frames.

After every connection the broker sends what it has retained. A description that differs from the policy in force is
published. Descriptions of unknown streams are deleted, whoever published them. Unchanged ones are not sent again.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence, Set
from itertools import filterfalse
from typing import TYPE_CHECKING, NamedTuple, Self

from fugu.contract.descriptions import MAX_DESCRIPTION_BYTES, MOST_OTHERS, Description, describe
from fugu.contract.errors import FuguError
from fugu.contract.frames import PolicyStatus, Status
from fugu.contract.history import UNCHANGED, History, NamedVersion, Noise, history_of
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.reports import AlarmCode
from fugu.contract.timeline import Drawn
from fugu.contract.topics import topic_of
from fugu.host.process import NOTICES, first_share
from gateway.parts import Loop, Message, Part

if TYPE_CHECKING:
    from gateway.estimates.catalogue import Catalogue
    from gateway.store.journal import NewestFrame

__all__ = ["Describer", "InForce", "digest", "share_due_us"]

_STORED = -1
"""The tick of a version that only stored policies name: before all ticks."""


class RunningPolicy(NamedTuple):
    """A stream's policy, and whether the device has named its version.

    `others` are the policies of other versions that the device has named, or stored frames have, the newest last. Some
    of their frames may still come. `history` has the ticks of all versions.
    """

    policy: AnyPolicy
    confirmed: bool
    others: tuple[AnyPolicy, ...] = ()
    history: History = UNCHANGED


class InForce:
    """The policies in force. `refusals` has by device the reason why it refused its newest document.

    Only streams of the catalogue are remembered. A device that `is_enrolled` may get a policy later: if its newest
    status names a stream without a policy, the status waits for `renew`. `rows_of` gives the stored intervals of a
    stream's ticks.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        is_enrolled: Callable[[str], bool] = lambda _device: False,
        rows_of: Callable[[str, str], Sequence[Drawn]] = lambda _device, _stream: (),
    ) -> None:
        self._catalogue = catalogue
        self._is_enrolled = is_enrolled
        self._rows_of = rows_of
        self._waiting_statuses: dict[str, Status] = {}
        self._named_versions: dict[tuple[str, str], tuple[int, int]] = {}
        self._used_versions: dict[tuple[str, str], set[int]] = {}
        self._version_starts: dict[tuple[str, str], tuple[int, int]] = {}
        self._documents: dict[str, int] = {}
        self.refusals: dict[str, str] = {}

    def take_status(self, device: str, status: Status) -> bool:
        """Take a device's status. Return whether a version has changed."""
        streams = status.streams if status.online else ()
        if self._is_enrolled(device) and not all(self._catalogue.has(device, stream.stream) for stream in streams):
            self._waiting_statuses[device] = status
        elif streams:
            self._waiting_statuses.pop(device, None)
        rows = [(stream.stream, stream.policy_version, stream.next_tick) for stream in streams]
        changes = [self.note_version(device, *row) for row in rows]  # notes all of them
        return any(changes)

    def renew(self) -> None:
        """Take again the statuses that waited for policies."""
        statuses, self._waiting_statuses = self._waiting_statuses, {}
        for device, status in statuses.items():
            self.take_status(device, status)

    def note_version(self, device: str, stream: str, version: int, tick: int) -> bool:
        """Note a stream's version at a tick. Return whether its newest version, or its set of versions, has changed."""
        if not self._catalogue.has(device, stream):
            return False
        self._catalogue.note_run(device, stream, version)
        old_version = self._named_versions.get((device, stream), (_STORED, 0))
        self._named_versions[device, stream] = newest_version = max(old_version, (tick, version))
        if newest_version[1] != old_version[1]:
            self._version_starts[device, stream] = version, tick
        if (used_versions := self._used_versions.get((device, stream))) is None:
            used_versions = self._used_versions[device, stream] = set(self._catalogue.stored_versions(device, stream))
        is_new_version = version not in used_versions and version in self._catalogue.policies_of(device, stream)
        if is_new_version:
            used_versions.add(version)
        return newest_version[1] != old_version[1] or is_new_version

    def take_answer(self, device: str, answer: PolicyStatus) -> bool:
        """Take a device's answer to a document. Return whether the version in force or the refusal has changed."""
        if not (self._catalogue.has(device) or self._is_enrolled(device)):
            return False
        old_answer = self._documents.get(device), self.refusals.get(device, "")
        self._documents[device] = answer.version
        if answer.reason:
            self.refusals[device] = answer.reason
        else:
            self.refusals.pop(device, None)
        return old_answer != (answer.version, answer.reason)

    def running_policy(self, device: str, stream: str) -> RunningPolicy | None:
        """Return the policy in force of a stream; `None` without one, or if the device refused it and runs none."""
        if (policy := self.policy(device, stream)) is None:
            return None
        if not (version := self._newest_version(device, stream)):
            return RunningPolicy(policy, False)
        policies = self._catalogue.policies_of(device, stream)
        other_versions = sorted(self._versions_used(device, stream) & (policies.keys() - {policy.version}))
        other_policies = tuple(policies[other_version] for other_version in other_versions[-MOST_OTHERS:])
        return RunningPolicy(policy, policy.version == version, other_policies, self.history(device, stream))

    def policy(self, device: str, stream: str) -> AnyPolicy | None:
        """Return the policy of `running_policy`, without a query to the store."""
        versions = self._catalogue.policies_of(device, stream)
        version = self._newest_version(device, stream)
        if not version and device in self.refusals:
            return None
        newest = max((other for other in versions if not version or other <= version), default=0)
        return versions.get(newest)

    def _newest_version(self, device: str, stream: str) -> int:
        """Return the newest version that a stream is known to run; 0 if none is known."""
        stored = max(self._versions_used(device, stream), default=0)
        return max(self._named_versions.get((device, stream), (_STORED, stored))[1], self._documents.get(device, 0))

    def _versions_used(self, device: str, stream: str) -> Set[int]:
        return self._used_versions.get((device, stream)) or self._catalogue.stored_versions(device, stream)

    def history(self, device: str, stream: str) -> History:
        """Return the ticks of all versions of a stream, and those of streams that move with it."""
        related_streams = self._catalogue.related(device, stream, self._own_history)
        return self._own_history(device, stream)._replace(related_streams=related_streams)

    def _own_history(self, device: str, stream: str) -> History:
        versions, drawn_rows = self._catalogue.policies_of(device, stream), self._rows_of(device, stream)
        noises = {
            version: Noise.of(policy) if isinstance(policy, Policy) else None
            for version, policy in versions.items()
            if self._catalogue.may_have_run(device, stream, version)
        }
        version, tick = self._version_starts.get((device, stream), (0, _STORED))
        document, named_version = self._documents.get(device, 0), None
        if document in versions and document > max([version, *(row.version for row in drawn_rows[-1:])]):
            named_version = NamedVersion(document, None)
        elif version and tick > (drawn_rows[-1].last if drawn_rows else _STORED):
            named_version = NamedVersion(version, tick)
        may_go_back = self._catalogue.may_go_back(device)
        return history_of(drawn_rows, noises, named_version, may_go_back=may_go_back, may_drop=True)


QUIET_SECONDS, REST_SECONDS, SLICE_SECONDS = 1.0, 0.25, 0.05
"""Wait after a connection for the broker's retained messages, pause between looks at marked devices, and a look's time.
"""
_RESTS = 20
"""Ratio of the time without a new description of a device to the time that its description took."""
_MOST_FOREIGN = 1000
"""Most descriptions of unknown streams that are deleted after a connection; further ones wait for the next."""

_Stream = tuple[str, str]


class Described(NamedTuple):
    """A policy's description, with its message and the message's digest."""

    running: RunningPolicy
    description: Description
    payload: bytes
    digest: bytes

    @classmethod
    def of(cls, running: RunningPolicy) -> Self:
        """Describe a policy, and as many other versions as one message has room for, the newest ones."""
        for skip in range(len(running.others) + 1):
            policy, confirmed, other_policies, history = running
            description = describe(policy, confirmed=confirmed, history=history, other_policies=other_policies[skip:])
            if len(payload := description.encode()) <= MAX_DESCRIPTION_BYTES:
                break
        return cls(running, description, payload, digest(payload))


def digest(payload: bytes) -> bytes:
    """Return the SHA-256 digest of a description's message, b"" for an empty one."""
    return hashlib.sha256(payload).digest() if payload else b""


class Describer(Part):
    """Publishes descriptions; used by the gateway's worker.

    A message only marks its device; the next `pump` looks at marked devices, and describes each stream once. With
    `shared`, shards store the frames, and therefore every status marks its device.

    The loop's counters count `descriptions`: messages, also those that clear a description. `on_changed` is called when
    descriptions have changed.
    """

    def __init__(self, loop: Loop, *, shared: bool = False) -> None:
        super().__init__(loop)
        catalogue, self._versions = loop.catalogue, loop.store.versions
        self._shared = shared
        self.in_force = InForce(
            catalogue, loop.registered.has, lambda device, stream: self._versions.timeline(device, stream).intervals
        )
        self._has_left = loop.registered.has_left
        self._described: dict[str, dict[str, Described]] = {}
        self._marked_devices: set[str] = set(catalogue.names())
        self._is_complete = False
        self._rest_ends: dict[str, float] = {}
        self._unsent_streams: set[_Stream] = set()
        self._broker_digests: dict[_Stream, bytes] = {}
        self._foreign_streams: set[_Stream] = set()
        self.due = self._quiet_at = math.inf
        self._rested_at = -math.inf
        self._greeted = False
        self._refusals_due = False
        self.on_changed: Callable[[], None] = lambda: None
        self.topics = topic_of("description", catalogue.fleet, "+", "+"), topic_of("status", catalogue.fleet, "+")

    def connected(self, *, begun_anew: bool) -> None:
        """Note a new connection, to a broker that may have lost its retained messages."""
        if not self._greeted:
            self._greeted = True
            NOTICES.info("connected; %s", self._first_share())
        self._broker_digests.clear()
        self._foreign_streams.clear()
        self._unsent_streams = {(device, stream) for device, streams in self._described.items() for stream in streams}
        self.due = self._quiet_at = time.monotonic() + QUIET_SECONDS

    def renew(self) -> None:
        """Mark all devices: the catalogue may have changed."""
        self.in_force.renew()
        self._marked_devices.update(self._catalogue.names(), self._described)
        self._refusals_due = True
        self._look_soon()

    def heard(self, message: Message) -> bool:
        """Note the digest of a description that the broker has, or the versions that a device names.

        Return whether the message is a description, whose payload is the digest.
        """
        try:
            parsed = message.parsed
            if parsed.kind == "description":
                if parsed.fleet == self._fleet and message.payload:
                    self._note_digest((parsed.device, parsed.stream), message.payload)
                return True
            is_changed = False
            if parsed.fleet == self._fleet and parsed.kind == "status":
                is_changed = self.in_force.take_status(parsed.device, message.decode(Status))
            elif parsed.fleet == self._fleet and parsed.kind == "policy_status":
                is_changed = self.in_force.take_answer(parsed.device, message.decode(PolicyStatus))
                self._refusals_due |= is_changed
        except FuguError:
            return False  # counted by another reader of the message
        if is_changed or (self._shared and parsed.kind == "status"):
            self._mark_device(parsed.device)
        return False

    def stored(self, newest_frames: Sequence[NewestFrame]) -> None:
        """Note the versions of stored frames."""
        for device, stream, version, last_tick, _ in newest_frames:
            if self.in_force.note_version(device, stream, version, last_tick):
                self._mark_device(device)
        while self._versions.changed_streams:
            self._mark_device(self._versions.changed_streams.pop()[0])

    def _note_digest(self, stream: _Stream, broker_digest: bytes) -> None:
        """Note the digest of the description that the broker has of a stream."""
        if self._catalogue.has(*stream):
            self._broker_digests[stream] = broker_digest
            self._unsent_streams.add(stream)
        elif len(self._foreign_streams) < _MOST_FOREIGN:
            self._foreign_streams.add(stream)
        self._look_soon()

    def _mark_device(self, device: str) -> None:
        """Mark a device and the devices with related streams, to be described."""
        self._marked_devices.update(filter(self._catalogue.has, {device, *self._catalogue.moving_devices(device)}))
        self._look_soon()

    def _look_soon(self) -> None:
        self.due = max(self._quiet_at, self._rested_at)

    def _first_share(self) -> str:
        """Return in words the time at which the first device will share something, if that device runs."""
        now = time.time_ns() // 1000
        due_times = [
            share_due_us(policy, now)
            for device in filterfalse(self._has_left, self._catalogue.names())
            for stream in self._catalogue.streams(device)
            if (policy := self.in_force.policy(device, stream)) is not None
        ]
        return first_share(due_times, now) if due_times else "there is no policy yet"

    def pump(self, *, idle: bool = False) -> None:
        """Publish and clear descriptions, as many as the connection takes."""
        if self._refusals_due:
            self._refusals_due = False
            refusing_devices = [device for device in self.in_force.refusals if not self._has_left(device)]
            self._monitor.hold(AlarmCode.POLICY_REFUSED, refusing_devices)
        if not self._link.connected:
            return
        if self._describe_marked():
            self.on_changed()
        is_resting = self._marked_devices <= self._rest_ends.keys()
        self._rested_at = time.monotonic() + (REST_SECONDS if is_resting else 0.0)
        for device, stream in sorted(self._unsent_streams):
            described = self._described.get(device, {}).get(stream)
            payload, payload_digest = (b"", b"") if described is None else (described.payload, described.digest)
            is_there = self._broker_digests.get((device, stream), b"") == payload_digest
            if not (is_there or self._publish((device, stream), payload)):
                return
            self._unsent_streams.discard((device, stream))
        for stream_key in sorted(self._foreign_streams):
            if not self._publish(stream_key, b""):
                return
            self._foreign_streams.discard(stream_key)
        ready = min((self._rest_ends.get(device, self._rested_at) for device in self._marked_devices), default=math.inf)
        self.due = max(ready, self._rested_at)

    @property
    def busy(self) -> bool:
        """True if devices wait to be described."""
        return self.due <= time.monotonic() and not self._marked_devices <= self._rest_ends.keys()

    def described(self) -> dict[str, list[Description]] | None:
        """Return by device the descriptions of its streams; `None` until all have been described once."""
        if not self._is_complete:
            return None
        stream_lists = ((device, streams.values()) for device, streams in self._described.items())
        return {device: [stream.description for stream in streams] for device, streams in stream_lists}

    def _describe_marked(self) -> bool:
        """Describe the streams of marked devices for a short while. Return whether a description has changed."""
        is_changed, now = False, time.monotonic()
        self._rest_ends = {device: rest_end for device, rest_end in self._rest_ends.items() if rest_end > now}
        slice_end = math.inf
        for device in sorted(self._marked_devices - self._rest_ends.keys()):
            if (start_time := time.perf_counter()) >= slice_end:
                break
            slice_end = min(slice_end, start_time + SLICE_SECONDS)
            old_streams = self._described.get(device, {})
            new_streams: dict[str, Described] = {}
            for stream in () if self._has_left(device) else self._catalogue.streams(device):
                if (running := self.in_force.running_policy(device, stream)) is not None:
                    old = old_streams.get(stream)
                    new_streams[stream] = old if old is not None and old.running == running else Described.of(running)
            if new_streams:
                self._described[device] = new_streams
            else:
                self._described.pop(device, None)
            changed_streams = [s for s in old_streams | new_streams if old_streams.get(s) is not new_streams.get(s)]
            self._unsent_streams.update((device, stream) for stream in changed_streams)
            is_changed |= bool(changed_streams)
            if changed_streams:
                self._rest_ends[device] = now + _RESTS * (time.perf_counter() - start_time)
            self._marked_devices.discard(device)
        if not (self._marked_devices or self._is_complete):
            self._is_complete = is_changed = True
        return is_changed

    def _publish(self, stream: _Stream, payload: bytes) -> bool:
        if self._link.publish(topic_of("description", self._fleet, *stream), payload, retain=True) is None:
            return False
        self._broker_digests[stream] = digest(payload)
        self._counters["descriptions"] += 1
        return True


def share_due_us(policy: AnyPolicy, now_us: int) -> int:
    """Return the Unix time, in microseconds, of the next tick that ends a window, or fills a frame that begins now."""
    from gateway.store.journal import tick_at

    clock, tick, end_ticks = policy.clock, max(tick_at(policy.clock, now_us) + 1, 0), []
    if isinstance(policy, Policy):
        for window in policy.windows:
            end_ticks.append(window.start + window.length - 1)  # the first window's; the others follow by the stride
            end_ticks[-1] += max(-((end_ticks[-1] - tick) // window.stride), 0) * window.stride
        for window_sum in policy.sums:
            group = window_sum.group
            end_ticks.append(group.start + max(-((group.start - tick - 1) // group.length), 1) * group.length - 1)
    if not isinstance(policy, Policy) or policy.table is not None:
        end_ticks.append(tick + policy.frame_ticks - 1)
    return clock.epoch_us + min(end_ticks) * clock.period_us

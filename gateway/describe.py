"""Which policy each stream has in force, and its description, retained at the broker.

A stream's version is the newest of two: that of the newest tick among online statuses and frames, and that of the
document in its answer on `policy/status`. A late frame has older ticks and undoes no rollback. A last will names
nothing. After a restart statuses and answers are retained at the broker, and stored frames name theirs.

After every connection the broker says what it has. A description that differs from the policy in force is published.
Descriptions of unknown streams are deleted, whoever published them. Unchanged ones are not sent again.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import filterfalse
from typing import TYPE_CHECKING, NamedTuple, Self

from fugu.contract.descriptions import MAX_DESCRIPTION_BYTES, MOST_OTHERS, Description, describe
from fugu.contract.errors import FuguError
from fugu.contract.frames import PolicyStatus, Status
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.topics import parse_topic, topic_of
from fugu.host.process import NOTICES, first_share
from fugu.mqtt import Link
from gateway.part import Part

if TYPE_CHECKING:
    from gateway.estimates.catalogue import Catalogue
    from gateway.journal import Heard

__all__ = ["Describing", "InForce", "digest"]

_STORED = -1
"""The tick of versions that are known from the store only: older than any other."""


class Running(NamedTuple):
    """A stream's policy, and whether the device has named its version.

    `others` are versions that it has named, or stored frames are of, the newest last: some frames may come yet.
    `first_tick` is the first that is known to be under a promise about stretches, since the version was another.
    """

    policy: AnyPolicy
    confirmed: bool
    others: tuple[AnyPolicy, ...] = ()
    first_tick: int | None = None


class InForce:
    """The policies in force; `refusals` are the reasons of devices that refused the newest document they judged."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._named: dict[tuple[str, str], tuple[int, int]] = {}
        self._used: dict[tuple[str, str], set[int]] = {}
        self._since: dict[tuple[str, str], tuple[int, int]] = {}
        self._documents: dict[str, int] = {}
        self.refusals: dict[str, str] = {}

    def status(self, device: str, status: Status) -> bool:
        """Take a device's status; whether a version has changed."""
        streams = status.streams if status.online else ()
        changed = [self.named(device, one.stream, one.policy_version, one.next_tick) for one in streams]
        return any(changed)

    def named(self, device: str, stream: str, version: int, tick: int) -> bool:
        """Take the version that a stream has at a tick; whether its newest one has changed, or the set of all."""
        self._catalogue.ran(device, stream, version)
        before = self._named.get((device, stream), (_STORED, 0))
        self._named[device, stream] = newest = max(before, (tick, version))
        if newest[1] != before[1]:
            self._since[device, stream] = version, tick
        if (used := self._used.get((device, stream))) is None:
            used = self._used[device, stream] = set(self._catalogue.stored_versions(device, stream))
        used_first = version not in used and version in self._catalogue.versions(device, stream)
        if used_first:
            used.add(version)
        return newest[1] != before[1] or used_first

    def answered(self, device: str, answer: PolicyStatus) -> bool:
        """Take a device's answer to a document; whether its document or its refusal has changed."""
        before = self._documents.get(device), self.refusals.get(device, "")
        self._documents[device] = answer.version
        self.refusals.pop(device, None)
        if answer.reason:
            self.refusals[device] = answer.reason
        return before != (answer.version, answer.reason)

    def running(self, device: str, stream: str) -> Running | None:
        """The policy of a stream; `None` if the device has refused a document and named no version."""
        versions = self._catalogue.versions(device, stream)
        document = self._documents.get(device, 0)
        used = self._used.get((device, stream)) or self._catalogue.stored_versions(device, stream)
        version = max(self._named.get((device, stream), (_STORED, max(used, default=0)))[1], document)
        if version:
            known = max((one for one in versions if one <= version), default=None)
            if known is None:
                return None
            others = sorted(one for one in used if one in versions and one != known)[-MOST_OTHERS:]
            return Running(
                versions[known],
                known == version,
                tuple(versions[one] for one in others),
                self._first_tick(device, stream, versions[known]),
            )
        return None if device in self.refusals or not versions else Running(versions[max(versions)], False)

    def _first_tick(self, device: str, stream: str, policy: AnyPolicy) -> int | None:
        version, tick = self._since.get((device, stream), (0, 0))
        lasting = isinstance(policy, Policy) and policy.guarantee.stretch_ticks > 1
        return tick if lasting and version == policy.version else None


QUIET_SECONDS = 1.0
"""Until the broker has said what it has, after a connection; what comes later is set right then."""

_Stream = tuple[str, str]


class Described(NamedTuple):
    """A policy's description, and the message that it is."""

    running: Running
    description: Description
    payload: bytes

    @classmethod
    def of(cls, running: Running) -> Self:
        """Describe a policy, and as many of the other versions, the newest first, as one message has room for."""
        for left in range(len(running.others) + 1):
            policy, confirmed, others, first = running
            description = describe(policy, confirmed=confirmed, first_tick=first, others=others[left:])
            if len(payload := description.encode()) <= MAX_DESCRIPTION_BYTES:
                break
        return cls(running, description, payload)


def digest(payload: bytes) -> bytes:
    """Digest of a description that the broker has; empty for one that it has not."""
    return hashlib.sha256(payload).digest() if payload else b""


class Describing(Part):
    """Publishes descriptions; used by the gateway's worker.

    `counters` counts `descriptions` (messages), also those that clear one. `left` is whether a device has left the
    fleet. `refusing` is told of all devices that refuse their newest document, `changed` called when a policy in force
    may be another.
    """

    def __init__(
        self,
        link: Link,
        catalogue: Catalogue,
        counters: Counter[str],
        left: Callable[[str], bool],
        refusing: Callable[[list[str]], None],
    ) -> None:
        self._link = link
        self._catalogue = catalogue
        self._in_force = InForce(catalogue)
        self._counters = counters
        self._left = left
        self._made: dict[_Stream, Described] = {}
        self._there: dict[_Stream, bytes] = {}
        self.due = self._quiet_at = math.inf
        self._greeted = False
        self._refusing = refusing
        self.changed: Callable[[], None] = lambda: None
        self.topics = topic_of("description", catalogue.fleet, "+", "+"), topic_of("status", catalogue.fleet, "+")

    def connected(self, *, begun_anew: bool) -> None:
        """Note a new connection, to a broker that may have forgotten everything."""
        if not self._greeted:
            self._greeted = True
            NOTICES.info("connected; %s", self._first_share())
        self._there.clear()
        self.due = self._quiet_at = time.monotonic() + QUIET_SECONDS

    def renew(self) -> None:
        """The catalogue may have changed."""
        self._change()
        self._hold_refusals()

    def heard(self, topic: str, payload: bytes) -> bool:
        """Take note of the digest of a description that the broker has, and of the versions that devices name."""
        try:
            parsed = parse_topic(topic)
            if parsed.kind == "description":
                if parsed.fleet == self._catalogue.fleet and payload:
                    self._there[parsed.device, parsed.stream] = payload
                    self.due = self._quiet_at
                return True
            changed = False
            if parsed.fleet == self._catalogue.fleet and parsed.kind == "status":
                changed = self._in_force.status(parsed.device, Status.decode(payload))
            elif parsed.fleet == self._catalogue.fleet and parsed.kind == "policy_status":
                changed = self._in_force.answered(parsed.device, PolicyStatus.decode(payload))
                self._hold_refusals()
        except FuguError:
            return False  # whoever else reads it counts it
        if changed:
            self._change()
        return False

    def stored(self, heard: Sequence[Heard]) -> None:
        """Note the versions of stored frames."""
        changed = [self._in_force.named(device, stream, version, last) for device, stream, version, last, _ in heard]
        if any(changed):
            self._change()

    def _change(self) -> None:
        self.due = self._quiet_at
        self.changed()

    def _hold_refusals(self) -> None:
        self._refusing([device for device in self._in_force.refusals if not self._left(device)])

    def _first_share(self) -> str:
        """When the first of all devices, if it runs, has shared something."""
        streams = [
            running.policy
            for device in filterfalse(self._left, self._catalogue.names())
            for stream in self._catalogue.streams(device)
            if (running := self._in_force.running(device, stream)) is not None
        ]
        now = time.time_ns() // 1000
        return (
            first_share([_share_due_us(policy, now) for policy in streams], now)
            if streams
            else "there is no policy yet"
        )

    def pump(self, *, idle: bool = False) -> None:
        """Publish and clear what has to be, as far as the connection takes it."""
        if not self._link.connected:
            return
        wanted = self._wanted()
        for stream, made in wanted.items():
            if self._there.get(stream) != digest(made.payload) and not self._publish(stream, made.payload):
                return
        for stream in [stream for stream in self._there if stream not in wanted]:
            if not self._publish(stream, b""):
                return
        self.due = math.inf

    def described(self) -> dict[str, list[Description]]:
        """By device, what its streams are."""
        found: dict[str, list[Description]] = {}
        for (device, _), made in self._wanted().items():
            found.setdefault(device, []).append(made.description)
        return found

    def _wanted(self) -> dict[_Stream, Described]:
        found: dict[_Stream, Described] = {}
        for device in filterfalse(self._left, self._catalogue.names()):
            for stream in self._catalogue.streams(device):
                if (running := self._in_force.running(device, stream)) is None:
                    continue
                made = self._made.get((device, stream))
                if made is None or made.running != running:
                    made = self._made[device, stream] = Described.of(running)
                found[device, stream] = made
        return found

    def _publish(self, stream: _Stream, payload: bytes) -> bool:
        if self._link.publish(topic_of("description", self._catalogue.fleet, *stream), payload, retain=True) is None:
            return False
        if payload:
            self._there[stream] = digest(payload)
        else:
            self._there.pop(stream, None)
        self._counters["descriptions"] += 1
        return True


def _share_due_us(policy: AnyPolicy, now_us: int) -> int:
    """Wall time at which a device that runs has shared something: the next end of a window, or a full frame."""
    from gateway.journal import tick_at

    clock, tick, ends = policy.clock, max(tick_at(policy.clock, now_us) + 1, 0), []
    if isinstance(policy, Policy):
        for one in policy.windows:
            ends.append(one.start + one.length - 1)  # the first window's; the others follow by the stride
            ends[-1] += max(-((ends[-1] - tick) // one.stride), 0) * one.stride
    if not isinstance(policy, Policy) or policy.table is not None:
        ends.append(tick + policy.frame_ticks - 1)
    return clock.epoch_us + min(ends) * clock.period_us

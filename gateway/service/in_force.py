"""The policy in force on each device, by the versions that the device has named; one that was only sent is not.

A stream's version is the newest of two: that of the newest tick among online statuses and frames, and that of the
document in its answer on `policy/status`. A late frame has older ticks and undoes no rollback. A last will names
nothing. After a restart statuses and answers are retained at the broker, and stored frames name theirs.
"""

from __future__ import annotations

from typing import NamedTuple

from fugu.contract.fleet_frames import PolicyStatus
from fugu.contract.frames import Status
from fugu.contract.policies import AnyPolicy
from gateway.service.policies import Catalogue

__all__ = ["InForce", "Running"]

_STORED = -1
"""The tick of versions that are known from the store only: older than any other."""


class Running(NamedTuple):
    """A stream's policy; `confirmed` if the device has named its version."""

    policy: AnyPolicy
    confirmed: bool


class InForce:
    """Used by the gateway's worker.

    Attributes:
        refusals: the reason of each device that has refused the newest document that it judged.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._named: dict[tuple[str, str], tuple[int, int]] = {}
        self._documents: dict[str, int] = {}
        self.refusals: dict[str, str] = {}

    def status(self, device: str, status: Status) -> bool:
        """Take a device's status; whether a version has changed."""
        streams = status.streams if status.online else ()
        changed = [self.named(device, one.stream, one.policy_version, one.next_tick) for one in streams]
        return any(changed)

    def named(self, device: str, stream: str, version: int, tick: int) -> bool:
        """Take the version that a stream has at a tick; whether its newest one has changed."""
        before = self._named.get((device, stream), (_STORED, 0))
        self._named[device, stream] = newest = max(before, (tick, version))
        return newest[1] != before[1]

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
        stored = self._catalogue.stored_version(device, stream)
        version = max(self._named.get((device, stream), (_STORED, stored))[1], document)
        if version:
            earlier = [one for one in versions if one <= version]
            return Running(versions[max(earlier)], max(earlier) == version) if earlier else None
        return None if device in self.refusals or not versions else Running(versions[max(versions)], False)

"""The policy in force on each device, by the versions that the device has named; one that was only sent is not.

A stream's version is the newest of two: that of the newest tick among online statuses and frames, and that of the
document in its answer on `policy/status`. A late frame has older ticks and undoes no rollback. A last will names
nothing. After a restart statuses and answers are retained at the broker, and stored frames name theirs.
"""

from __future__ import annotations

from typing import NamedTuple

from fugu.contract.descriptions import MOST_OTHERS
from fugu.contract.fleet_frames import PolicyStatus
from fugu.contract.frames import Status
from fugu.contract.policies import AnyPolicy
from gateway.service.policies import Catalogue

__all__ = ["InForce", "Running"]

_STORED = -1
"""The tick of versions that are known from the store only: older than any other."""


class Running(NamedTuple):
    """A stream's policy.

    Attributes:
        confirmed: whether the device has named its version.
        others: of other versions that it has named, or stored frames are of, the newest last: it may have frames of
            them that were not sent yet.
    """

    policy: AnyPolicy
    confirmed: bool
    others: tuple[AnyPolicy, ...] = ()


class InForce:
    """Used by the gateway's worker.

    Attributes:
        refusals: the reason of each device that has refused the newest document that it judged.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._named: dict[tuple[str, str], tuple[int, int]] = {}
        self._used: dict[tuple[str, str], set[int]] = {}
        self._documents: dict[str, int] = {}
        self.refusals: dict[str, str] = {}

    def status(self, device: str, status: Status) -> bool:
        """Take a device's status; whether a version has changed."""
        streams = status.streams if status.online else ()
        changed = [self.named(device, one.stream, one.policy_version, one.next_tick) for one in streams]
        return any(changed)

    def named(self, device: str, stream: str, version: int, tick: int) -> bool:
        """Take the version that a stream has at a tick; whether its newest one has changed, or the set of all."""
        before = self._named.get((device, stream), (_STORED, 0))
        self._named[device, stream] = newest = max(before, (tick, version))
        used = self._used.setdefault((device, stream), set(self._catalogue.stored_versions(device, stream)))
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
            return Running(versions[known], known == version, tuple(versions[one] for one in others))
        return None if device in self.refusals or not versions else Running(versions[max(versions)], False)

"""The state of the devices of a fleet, as they and the gateway report it, for the page of the fleet."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, NamedTuple, Self, get_args

import msgpack

from fugu.contract.envelope import Envelope
from fugu.contract.errors import FuguError, StatusCode
from fugu.contract.frames import PolicyStatus, Status
from fugu.contract.reports import Health, HealthAlarm
from fugu.contract.topics import Kind, Topic
from gateway.health.findings import KINDS
from gateway.page import Fields

__all__ = ["FleetQuery", "FleetView"]


Condition = Literal["sick", "away", "well"]
_CONDITIONS = get_args(Condition)
PAGE_ROWS = 50
MOST_DEVICES = 50_000
MOST_BYTES = 32 << 20
"""Most bytes of the newest messages of all devices; decoded, they take a few times as much memory."""
_MOST_WAVES = 5
_MOST_VERSION = 2**32 - 1
_NO_TROUBLE = {StatusCode.CONNECTION_LOST, StatusCode.PAUSED}


class FleetQuery(NamedTuple):
    """Devices to show: `search` is a part of the name, an empty `condition` means all, `page` counts from 0."""

    search: str = ""
    condition: str = ""
    page: int = 0

    @classmethod
    def of_request(cls, search: str, condition: str, page: int) -> Self:
        """Make a query from a request's unchecked parameters."""
        return cls(search[:64], condition if condition in _CONDITIONS else "", page)


@dataclass(slots=True)
class Member:
    """State of a device.

    Attributes:
        online: `None` until the device's status has come.
        streams: name and policy version of each stream.
        sent_digest: start of the digest of the document that the device was sent, in hex; `None` until it has come.
        sent_version: the version that this document states; `None` without a valid one.
        running: version of the document in force; `None` until the device's policy status has come.
        judged: start of the digest of the newest document that the device has judged, in hex.
        refusal: why the device refused the judged document; '' if it did not.
        seen: when the newest status came, in Unix seconds.
        messages: the newest status and policy status with their Unix times, by the topic's kind.
    """

    name: str
    online: bool | None = None
    agent: str = ""
    outbox: int = 0
    codes: tuple[str, ...] = ()
    streams: tuple[tuple[str, int], ...] = ()
    sent_digest: str | None = None
    sent_version: int | None = None
    running: int | None = None
    judged: str = ""
    refusal: str = ""
    stale: bool = False
    seen: float = 0.0
    messages: dict[Kind, tuple[bytes, float]] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Number of bytes of the device's newest messages."""
        return sum(len(payload) for payload, _ in self.messages.values())

    @property
    def waits(self) -> bool | None:
        """True if the device has not judged the document that it was sent; `None` if that is unknown."""
        return None if self.sent_digest is None or self.running is None else self.sent_digest != self.judged


Wave = Literal["runs", "refused", "silent", "away"]
WAVE = get_args(Wave)


class FleetView:
    """Takes messages of a fleet's devices, and keeps their states in bounded memory.

    `changes` grows with every message; `health` is the gateway's last report of its own health.
    """

    def __init__(self) -> None:
        self.changes = 0
        self.health: Health | None = None
        self.refused_count = 0
        self._versions: dict[str, int | None] = {}
        self._members: dict[str, Member] = {}
        self._bytes = 0
        self._cached_rows: tuple[int, list[tuple[Condition, Member]]] = (-1, [])

    def take(self, topic: Topic, payload: bytes, now: float) -> None:
        """Take a message, heard at a Unix time in seconds, of a status, a policy or the gateway's health."""
        try:
            if topic.kind == "health":
                self.health = Health.decode(payload)
            elif not payload:
                if topic.kind == "status" and (removed_member := self._members.pop(topic.device, None)) is not None:
                    self._bytes -= removed_member.bytes
            elif (member := self._find_or_add(topic.device)) is not None:
                self._note_message(member, topic.kind, payload, now)
        except FuguError:
            self.refused_count += 1
        self.changes += 1

    def member(self, name: str) -> Fields | None:
        """Return the state of a device; `None` if the device is unknown."""
        member = self._members.get(name)
        return None if member is None else _row_fields(self._condition(member, self._devices_with_alarm()), member)

    def names(self, limit: int) -> list[str]:
        """Return the names of the first `limit` devices that were heard of."""
        return list(islice(self._members, limit))

    def statuses(self, name: str) -> dict[Kind, tuple[bytes, float]]:
        """Return the newest status and policy status of a device with their Unix times, by the topic's kind."""
        return self._members[name].messages if name in self._members else {}

    def page(self, query: FleetQuery) -> Fields:
        """Return the rows of a page, unhealthy devices first, and the number of devices of each condition."""
        all_rows = self._sorted_rows()
        search = query.search.lower()
        rows = [row for row in all_rows if query.condition in ("", row[0]) and search in row[1].name.lower()]
        page_count = max(1, -(-len(rows) // PAGE_ROWS))
        page = min(max(query.page, 0), page_count - 1)
        condition_counts = Counter(condition for condition, _ in all_rows)
        policies = Counter(member.running for _, member in all_rows if member.running is not None)
        return {
            "total": len(all_rows),
            "counts": {condition: condition_counts[condition] for condition in _CONDITIONS},
            "matching": len(rows),
            "page": page,
            "pages": page_count,
            "rows": [_row_fields(*row) for row in rows[page * PAGE_ROWS : (page + 1) * PAGE_ROWS]],
            "policies": [{"version": version, "devices": count} for version, count in sorted(policies.items())],
            "waves": self._waves(),
            "waiting": sum(member.waits is True for _, member in all_rows),
            # Devices with an alarm that does not name them: a report names the first few only.
            "unnamed": max((alarm.others for alarm in self._alarms()), default=0),
            "gateway": self._gateway_fields(),
        }

    def _find_or_add(self, name: str) -> Member | None:
        if name not in self._members:
            if len(self._members) >= MOST_DEVICES:
                self.refused_count += 1
                return None
            self._members[name] = Member(name)
        return self._members[name]

    def _note_message(self, member: Member, kind: Kind, payload: bytes, now: float) -> None:
        old_payload, _ = member.messages.get(kind, (b"", 0.0))
        growth_bytes = 0 if kind == "policy_set" else len(payload) - len(old_payload)
        if self._bytes + growth_bytes > MOST_BYTES:
            self.refused_count += 1
            return
        if kind == "status":
            status = Status.decode(payload)
            member.online, member.seen = status.online, now
            member.codes, member.outbox = tuple(map(str, status.codes)), status.outbox_depth
            if status.online:
                member.agent = status.agent_version
                member.streams = tuple((stream.stream, stream.policy_version) for stream in status.streams)
        elif kind == "policy_status":
            policy_status = PolicyStatus.decode(payload)
            member.running, member.stale = policy_status.version, policy_status.stale
            member.judged = policy_status.judged.hex()
            member.refusal = policy_status.reason and f"{policy_status.reason}: {policy_status.detail}"
        elif kind == "policy_set":
            envelope = Envelope.decode(payload)
            member.sent_digest = hashlib.sha256(payload).digest()[:8].hex()
            if member.sent_digest not in self._versions:
                if len(self._versions) >= MOST_DEVICES:
                    self._versions.clear()
                self._versions[member.sent_digest] = _document_version(envelope.payload)
            member.sent_version = self._versions[member.sent_digest]
            return
        member.messages[kind] = payload, now
        self._bytes += growth_bytes

    def _sorted_rows(self) -> list[tuple[Condition, Member]]:
        if self._cached_rows[0] != self.changes:
            devices_with_alarm = self._devices_with_alarm()
            rows = [(self._condition(member, devices_with_alarm), member) for member in self._members.values()]
            rows.sort(key=lambda row: (_CONDITIONS.index(row[0]), row[1].name))
            self._cached_rows = (self.changes, rows)
        return self._cached_rows[1]

    def _alarms(self) -> list[HealthAlarm]:
        alarms = self.health.alarms if self.health is not None else ()
        return [alarm for alarm in alarms if KINDS[alarm.code].about == "device"]

    def _devices_with_alarm(self) -> set[str]:
        return {name for alarm in self._alarms() for name in alarm.names}

    def _waves(self) -> list[Fields]:
        """Count the devices of each sent policy version by their `Wave`, the newest version first."""
        counters = defaultdict[int, Counter[Wave]](Counter)
        for member in self._members.values():
            if member.sent_version is not None:
                counters[member.sent_version][_wave(member)] += 1
        newest_counters = sorted(counters.items(), reverse=True)[:_MOST_WAVES]
        return [
            {"version": version, "sent": counter.total(), **{name: counter[name] for name in WAVE}}
            for version, counter in newest_counters
        ]

    def _condition(self, member: Member, devices_with_alarm: set[str]) -> Condition:
        if set(member.codes) - _NO_TROUBLE or member.refusal or member.stale or member.name in devices_with_alarm:
            return "sick"
        return "well" if member.online else "away"

    def _gateway_fields(self) -> Fields | None:
        if (health := self.health) is None:
            return None
        alarms = [{"code": str(alarm.code), "names": alarm.names, "others": alarm.others, "advice": alarm.advice}
                  for alarm in health.alarms]  # fmt: skip
        return {"online": health.online, "frames": health.frames, "refused": health.refused, "alarms": alarms}


def _wave(member: Member) -> Wave:
    if member.running == member.sent_version:
        return "runs"
    if member.refusal and member.judged == member.sent_digest:
        return "refused"
    return "silent" if member.online else "away"


def _document_version(document: bytes) -> int | None:
    """Return the version that an unchecked policy document states; `None` if it states none."""
    try:
        version = msgpack.unpackb(document, raw=False, strict_map_key=True)["version"]
    except (ValueError, TypeError, KeyError, RecursionError, msgpack.UnpackException):
        return None
    return version if type(version) is int and 0 < version <= _MOST_VERSION else None


def _row_fields(condition: Condition, member: Member) -> Fields:
    names = ("name", "online", "agent", "outbox", "codes", "streams", "running", "waits", "refusal", "stale", "seen")
    fields = {name: getattr(member, name) for name in names}
    return {"condition": condition, "wanted": member.sent_version, **fields}

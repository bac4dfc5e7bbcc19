"""What a fleet's registry holds, as values, and the errors of this room; times are microseconds of Unix time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fugu.contract.errors import FuguError
from fugu.contract.topics import NAME_PATTERN, RESERVED_DEVICES

__all__ = [
    "Desired",
    "Device",
    "Document",
    "Due",
    "Event",
    "FleetError",
    "KeyStoreError",
    "Outcome",
    "PolicyReport",
    "Refusal",
    "RegistryError",
    "Reported",
    "Sighting",
    "Target",
    "UnknownNameError",
    "checked_name",
]

Outcome = Literal["accepted", "refused", "failed"]
"""What a device made of a document: `failed` is one that it accepted, and then could not put into force."""
_NAME = re.compile(NAME_PATTERN)
_MAX_VERSION = 2**32 - 1


class FleetError(FuguError):
    """A document, a root, a plan or a step of a rollout is refused; nothing has happened."""


class RegistryError(FuguError):
    """The registry's file cannot be used; nothing of what was asked for has happened."""


class UnknownNameError(FuguError):
    """There is no such device, document or rollout, or a name is none, or is taken."""


class KeyStoreError(FuguError):
    """Files of private keys or passphrases cannot be used, or the keys that are needed are not among them."""


class Target(NamedTuple):
    """Whom a document is addressed to; `name` is empty for the whole fleet."""

    kind: Literal["device", "group", "fleet"]
    name: str = ""

    def covers(self, device: str, groups: frozenset[str]) -> bool:
        """Whether a device is meant."""
        return self.name in groups if self.kind == "group" else self.kind == "fleet" or self.name == device

    def __str__(self) -> str:
        """As errors name it."""
        return f"{self.kind} {self.name}".strip()


@dataclass(frozen=True, slots=True)
class Document:
    """A signed policy document, opaque here.

    Attributes:
        version: its number in the fleet; every document has a higher one than all before it.
        target: whom it is addressed to, as its signed text says.
        digest: of its content, in hexadecimal.
        restores: the version whose content it brings back, `None` if it is no way back.
    """

    version: int
    target: Target
    digest: str
    payload: bytes
    description: str
    added_by: str = ""
    added_us: int = 0
    restores: int | None = None

    def __post_init__(self) -> None:
        """Refuse what no registry can hold."""
        if not 1 <= self.version <= _MAX_VERSION:
            raise FleetError(f"version {self.version} is not in 1..{_MAX_VERSION}")
        if not self.payload or not re.fullmatch("[0-9a-f]{8,128}", self.digest):
            raise FleetError(f"document {self.version} needs its bytes and their digest in hexadecimal")
        if self.restores is not None and self.restores >= self.version:
            raise FleetError(f"document {self.version} cannot restore version {self.restores}: it is not older")


class Desired(NamedTuple):
    """The version that a device should have, since when, and whether the broker has it."""

    version: int
    since_us: int
    published: bool


class Reported(NamedTuple):
    """What a device last said about documents.

    Attributes:
        in_force: the version that it says is in force, 0 for none; None if it never said so.
        version, outcome, reason: its newest answer; version 0 is a document that is none of this registry's, or, if
            accepted, no document at all.
        since_us: when this answer first came.
        stale: it says that it has not heard of anything new for too long.
    """

    in_force: int | None
    version: int
    outcome: Outcome
    reason: str
    since_us: int
    stale: bool


@dataclass(frozen=True, slots=True)
class Device:
    """A device, and what is known about it.

    Attributes:
        last_seen_us: when it was last known to be connected, 0 if never.
        outbox_depth, agent_version: from its newest status.
        codes: of that status, separated by spaces.
    """

    name: str
    groups: frozenset[str]
    enrolled_us: int
    last_seen_us: int
    online: bool
    outbox_depth: int
    codes: str
    agent_version: str
    desired: Desired | None
    reported: Reported | None


class Sighting(NamedTuple):
    """A device's status, or its last will (not online), as it arrived."""

    device: str
    online: bool
    outbox_depth: int
    codes: str
    agent_version: str
    time_us: int


class PolicyReport(NamedTuple):
    """A device's answer to a document, as it arrived.

    Attributes:
        version: that it judged; 0 if it is none of this registry's, or, if accepted, if there was none.
        in_force: the version that it says is in force, 0 for none; None if it does not say. An accepted one is.
    """

    device: str
    version: int
    outcome: Outcome
    reason: str
    time_us: int
    stale: bool = False
    in_force: int | None = None


class Refusal(NamedTuple):
    """One answer other than `accepted`, for ever."""

    number: int
    time_us: int
    device: str
    version: int
    outcome: Outcome
    reason: str


class Event(NamedTuple):
    """Something that an operator did, or a rollout by itself."""

    number: int
    time_us: int
    who: str
    what: str
    subject: str
    detail: str


class Due(NamedTuple):
    """A document that a device should get, and the broker has not acknowledged yet."""

    device: str
    version: int
    payload: bytes


def checked_name(name: str, what: str) -> str:
    """A name that can stand in a topic.

    Raises:
        UnknownNameError: it cannot.
    """
    if not _NAME.fullmatch(name) or name in RESERVED_DEVICES:
        raise UnknownNameError(f"{name[:80]!r} cannot be the name of a {what}: 1 to 64 letters, digits, '_' or '-'")
    return name

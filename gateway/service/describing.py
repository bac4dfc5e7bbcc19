"""Keeps the descriptions of a fleet's streams at the broker: retained, and those of no stream taken back.

After every connection the broker says what it has. A description that differs from the policy in force is published,
what is of no stream is cleared, whoever has left it there, and what is the same is left alone.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from itertools import filterfalse
from typing import NamedTuple, Self

from fugu.contract.descriptions import MAX_DESCRIPTION_BYTES, Description, describe, encode_description
from fugu.contract.errors import FuguError
from fugu.contract.topics import description_topic, parse_topic
from fugu.mqtt import Link
from gateway.service.in_force import InForce, Running
from gateway.service.policies import Catalogue

__all__ = ["Described", "Describing", "digest"]

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
            description = describe(running.policy, confirmed=running.confirmed, others=running.others[left:])
            if len(payload := encode_description(description)) <= MAX_DESCRIPTION_BYTES:
                break
        return cls(running, description, payload)


def digest(payload: bytes) -> bytes:
    """What stands for a description that the broker has; nothing for one that it has not."""
    return hashlib.sha256(payload).digest() if payload else b""


class Describing:
    """Used by the gateway's worker.

    Args:
        counters: counts `descriptions` (messages), also those that clear one.
        in_force: knows which policy each stream has.
        left: whether a device of the catalogue is in the fleet no more.
    """

    def __init__(
        self,
        link: Link,
        catalogue: Catalogue,
        in_force: InForce,
        counters: Counter[str],
        left: Callable[[str], bool],
    ) -> None:
        self._link = link
        self._catalogue = catalogue
        self._in_force = in_force
        self._counters = counters
        self._left = left
        self._made: dict[_Stream, Described] = {}
        self._there: dict[_Stream, bytes] = {}
        self._quiet_at: float | None = None
        self._due = False

    @staticmethod
    def topics(fleet: str) -> tuple[str, ...]:
        """What the gateway's connection subscribes to for this."""
        return (description_topic(fleet, "+", "+"),)

    def connected(self) -> None:
        """There is a new connection, to a broker that may have forgotten everything."""
        self._there.clear()
        self._quiet_at, self._due = time.monotonic() + QUIET_SECONDS, True

    def renew(self) -> None:
        """The catalogue, or a policy in force, may have changed."""
        self._due = True

    def heard(self, topic: str, what: bytes) -> bool:
        """Take note of the digest of what the broker has on a topic; whether that is one of descriptions."""
        try:
            parsed = parse_topic(topic)
        except FuguError:
            return False  # whoever else reads it counts it
        if parsed.kind != "description":
            return False
        if parsed.fleet == self._catalogue.fleet and what:
            self._there[parsed.device, parsed.stream] = what
            self._due = True
        return True

    def pump(self) -> None:
        """Publish and clear what has to be, as far as the connection takes it."""
        if not self._due or self._quiet_at is None or time.monotonic() < self._quiet_at or not self._link.connected:
            return
        wanted = self._wanted()
        for stream, made in wanted.items():
            if self._there.get(stream) != digest(made.payload) and not self._publish(stream, made.payload):
                return
        for stream in [stream for stream in self._there if stream not in wanted]:
            if not self._publish(stream, b""):
                return
        self._due = False

    def described(self) -> dict[str, list[Description]]:
        """By device, what its streams are."""
        found: dict[str, list[Description]] = {}
        for (device, _), made in self._wanted().items():
            found.setdefault(device, []).append(made.description)
        return found

    def _wanted(self) -> dict[_Stream, Described]:
        """The description of every stream with a policy in force."""
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
        if self._link.publish(description_topic(self._catalogue.fleet, *stream), payload, retain=True) is None:
            return False
        if payload:
            self._there[stream] = digest(payload)
        else:
            self._there.pop(stream, None)
        self._counters["descriptions"] += 1
        return True

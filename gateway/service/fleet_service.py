"""What a fleet of enrolled devices is told, and says: policy documents, what devices say of them, and the time."""

from __future__ import annotations

import time
from collections import Counter

from fugu.contract.envelope import encode_roots
from fugu.contract.errors import FuguError
from fugu.contract.frames import Status
from fugu.contract.topics import parse_topic, policy_status_topic, root_topic, time_topic
from fugu.mqtt import Link
from gateway.service.enrolled import Enrolled, FleetFiles
from gateway.service.fleet_link import FleetLink

__all__ = ["FleetService"]

_TIME_SECONDS = 300.0


class FleetService:
    """Used by the gateway's worker; made, started and stopped by the thread that starts the gateway.

    Args:
        link: the gateway's connection.
        enrolled: of the same files.

    Raises:
        FuguError: one line that says which file is wrong.
    """

    def __init__(self, fleet: str, files: FleetFiles, link: Link, enrolled: Enrolled, counters: Counter[str]) -> None:
        self._fleet = fleet
        self._link = link
        self._chain = encode_roots([payload for _, payload in enrolled.roots])
        self._signer = enrolled.signer
        self._operator = Link(files.operator, client_id=f"operator-{fleet}")
        self._messages = FleetLink(files.registry, self._operator, counters)
        self._time_at = 0.0
        self._rooted = 0

    @staticmethod
    def topics(fleet: str) -> tuple[str, ...]:
        """What the gateway's connection subscribes to for this."""
        return (policy_status_topic(fleet, "+"),)

    def start(self) -> None:
        """Connect as the operator, in the background."""
        self._messages.start()

    def stop(self) -> None:
        """Disconnect, and write down what has arrived."""
        self._messages.stop()

    def heard(self, topic: str, payload: bytes) -> bool:
        """Take note of what a device says of itself; whether the message was for nobody else."""
        try:
            parsed = parse_topic(topic)
            if parsed.kind == "status" and parsed.fleet == self._fleet:
                self._messages.seen(parsed.device, Status.decode(payload))
            elif parsed.kind == "policy_status" and parsed.fleet == self._fleet:
                self._messages.reported(parsed.device, payload)
                return True
        except FuguError:
            return False  # whoever else reads it counts it
        return False

    def connected(self) -> None:
        """The gateway has a new connection, to a broker that may have forgotten the time."""
        self._time_at = 0.0

    def pump(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        self._messages.pump(listening=self._link.connected)
        self._publish_root()
        if self._signer is not None and now >= self._time_at and self._link.connected:
            sent = self._link.publish(time_topic(self._fleet), self._signer.time(int(time.time())), retain=True)
            self._time_at = now + (_TIME_SECONDS if sent is not None else 1.0)

    def _publish_root(self) -> None:
        """Say which roots there are, after every new connection."""
        connections = self._messages.connections
        if connections != self._rooted and self._operator.publish(root_topic(self._fleet), self._chain, retain=True):
            self._rooted = connections

"""A device that contradicts itself: two devices have one identity, or one has forgotten what it has drawn.

A reader of two symbols of one tick learns more than one symbol tells. So an operator gets an alarm. If the gateway's
settings say so, the device is also stopped, by a signed document that can do nothing else. The stop reaches every
device with this identity. It holds until the device runs a newer policy document. Contradictions under a document up to
the stopped version stop no device again.
"""

from __future__ import annotations

import time

from fugu.contract.measure_frames import AnyFrame
from fugu.contract.reports import AlarmCode
from fugu.contract.topics import topic_of
from gateway.health.monitor import Monitor
from gateway.parts import Loop, Part, Stopping

__all__ = ["Contradictions"]


_LOOK_SECONDS = 1.0


class Contradictions(Part):
    """Notes conflicts, and stops devices for them; used by the worker. With `stopping` `None`, no device is stopped."""

    def __init__(self, loop: Loop, monitor: Monitor, stopping: Stopping | None) -> None:
        super().__init__(loop)
        self._conflicts = loop.store.conflicts
        self._stopping = stopping
        stops = self._conflicts.stops()
        self._stopped_versions = {device: version for device, (version, _) in stops.items()}
        self._stops = {device: version for device, (version, is_over) in stops.items() if not is_over}
        self._due_devices = set(self._stops)
        self._conflict_versions: dict[str, int] = {}
        self._next_look = 0.0
        for conflict in self._conflicts.all_conflicts():
            name, detail = _conflict_name_and_tick(conflict.device, conflict.sequence, conflict.first)
            monitor.remember(AlarmCode.CONFLICT, name, detail, conflict.times, since=conflict.since, last=conflict.last)

    def record(self, device: str, sequence: str, frame: AnyFrame) -> None:
        """Note a frame that contradicts a stored one, within the transaction that stores the other frames."""
        self._conflicts.note(device, sequence, frame.first, int(time.time()))
        self._monitor.note(AlarmCode.CONFLICT, *_conflict_name_and_tick(device, sequence, frame.first))
        if self._stopping is None or device not in self._stopping.in_force():
            return  # the device would refuse a stop
        if frame.policy_version > self._stopped_versions.get(device, 0):
            self._conflict_versions[device] = max(self._conflict_versions.get(device, 0), frame.policy_version)

    def connected(self, *, begun_anew: bool) -> None:
        """Publish all stops again: the broker may have lost them."""
        self._due_devices |= set(self._stops)

    def pump(self, *, idle: bool = False) -> None:
        """Stop devices, and end the stops of devices with a newer document. DatabaseError: a later call tries again."""
        if self._stopping is None:
            return
        for device, version in list(self._conflict_versions.items()):
            self._stopped_versions[device] = self._stops[device] = max(version, self._stopping.newest())
            self._conflicts.stop(device, self._stops[device])
            self._due_devices.add(device)
            del self._conflict_versions[device]
        if self._due_devices and self._link.connected:
            for device in sorted(self._due_devices):
                self._publish(device, self._stopping.sign(device, self._stops[device]))
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            in_force = self._stopping.in_force()
            for device in [stopped for stopped, version in self._stops.items() if in_force.get(stopped, 0) > version]:
                self._conflicts.end_stop(device)
                del self._stops[device]
                self._due_devices.discard(device)
                self._publish(device, b"")
        self._monitor.hold(AlarmCode.STOPPED, [*self._stops])

    def _publish(self, device: str, payload: bytes) -> None:
        if self._link.publish(topic_of("stop", self._fleet, device), payload, retain=True) is not None:
            self._due_devices.discard(device)


def _conflict_name_and_tick(device: str, sequence: str, first_tick: int) -> tuple[str, str]:
    return f"{device}/{sequence}", f"first at tick {first_tick}"

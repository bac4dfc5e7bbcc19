"""What an observer of the demo's broker sees, as a table that renews itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

from rich.table import Table

from fugu.cli.view.terminal import table as rich_table
from fugu.contract.errors import FuguError
from fugu.contract.frames import Status
from fugu.contract.topics import parse_topic, status_topic, window_topic
from fugu.contract.window_frames import WindowFrame
from fugu.mqtt import Broker, Link

__all__ = ["Observer"]

_BAR = 12


@dataclass
class _Device:
    """What was seen of one device, whose recording has so many heartbeats."""

    beats: int
    version: int = 0
    online: bool = False
    ticks: int = 0
    outbox_depth: int = 0
    error: str = ""
    windows: int = 0
    share: float | None = None


class Observer:
    """Subscribes to everything that the devices of a fleet publish; how many heartbeats each will see is known."""

    def __init__(self, broker: Broker, fleet: str, devices: Mapping[str, int]) -> None:
        self._devices = {device: _Device(beats) for device, beats in devices.items()}
        self._lock = Lock()
        self.link = Link(
            broker,
            client_id="demo-observer",
            subscriptions=(status_topic(fleet, "+"), window_topic(fleet, "+", "+")),
            on_message=self._received,
        )

    def _received(self, topic: str, payload: bytes, _retained: bool) -> None:
        try:
            parsed = parse_topic(topic)
            with self._lock:
                self._of_device(self._devices[parsed.device], parsed.kind, payload)
        except (FuguError, KeyError):
            return

    @staticmethod
    def _of_device(device: _Device, kind: str, payload: bytes) -> None:
        if kind == "status":
            status = Status.decode(payload)
            device.online, device.outbox_depth = status.online, status.outbox_depth
            device.error = " ".join(status.codes)
            for stream in status.streams:
                device.version, device.ticks = stream.policy_version, stream.next_tick
        elif kind == "window":
            window = WindowFrame.decode(payload)
            device.windows = max(device.windows, window.index + 1)
            device.share = min(max(window.counts[0] / window.length, 0.0), 1.0)

    def errors(self) -> dict[str, str]:
        """The problem that each device reports, if it does."""
        with self._lock:
            return {name: device.error for name, device in self._devices.items() if device.error}

    def online(self, version: int) -> bool:
        """Whether all devices are online with a version of their policies."""
        with self._lock:
            return all(device.online and device.version == version for device in self._devices.values())

    def table(self, title: str) -> Table:
        """What was seen so far."""
        table = rich_table(title, ("device", "heartbeats", "windows", "newest share above baseline", "outbox"))
        with self._lock:
            for name, device in self._devices.items():
                filled = round((device.share or 0.0) * _BAR)
                bar = "█" * filled + "·" * (_BAR - filled)
                share = "" if device.share is None else f"{100 * device.share:.0f} % {bar}"
                ticks = f"{min(device.ticks, device.beats)} of {device.beats}"
                table.add_row(name, ticks, f"{device.windows}", share, f"{device.outbox_depth}")
        return table

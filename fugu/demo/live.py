"""What an observer of the demo's broker sees, as a table that renews itself."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

from rich.table import Table

from contract.errors import FuguError
from contract.frames import decode_estimate, decode_status, decode_symbols
from contract.release_frames import ReleaseFrame, decode_release
from contract.topics import estimate_topic, parse_topic, release_topic, status_topic, symbols_topic, window_topic
from contract.window_frames import decode_window
from fugu.view.terminal import table as rich_table
from mqtt_link import Broker, Link

__all__ = ["Observer"]

_RATE_SECONDS = 3.0


@dataclass
class _Device:
    """What was seen of one device."""

    online: bool = False
    symbols: int = 0
    outbox_depth: int = 0
    error: str = ""
    current: float | None = None
    estimated: int = 0
    window: str = ""
    arrivals: deque[tuple[float, int]] = field(default_factory=deque)

    def rate(self, now: float) -> float:
        """Symbols a second, over the last few seconds."""
        while self.arrivals and self.arrivals[0][0] < now - _RATE_SECONDS:
            self.arrivals.popleft()
        return sum(count for _, count in self.arrivals) / _RATE_SECONDS


class Observer:
    """Subscribes to everything that a fleet and its gateway publish."""

    def __init__(self, broker: Broker, fleet: str, devices: Sequence[str]) -> None:
        self._devices = {device: _Device() for device in devices}
        self._release: ReleaseFrame | None = None
        self._lock = Lock()
        self.link = Link(
            broker,
            client_id="demo-observer",
            subscriptions=(
                status_topic(fleet, "+"),
                symbols_topic(fleet, "+", "+"),
                window_topic(fleet, "+", "+"),
                estimate_topic(fleet, "+", "+"),
                release_topic(fleet, "+", "+"),
            ),
            on_message=self._received,
        )

    def _received(self, topic: str, payload: bytes, _retained: bool) -> None:
        try:
            parsed = parse_topic(topic)
            with self._lock:
                if parsed.kind == "release":
                    self._release = decode_release(payload)
                else:
                    self._of_device(self._devices[parsed.device], parsed.kind, payload)
        except (FuguError, KeyError):
            return

    @staticmethod
    def _of_device(device: _Device, kind: str, payload: bytes) -> None:
        if kind == "status":
            status = decode_status(payload)
            device.online, device.outbox_depth = status.online, status.outbox_depth
            device.error = " ".join(status.codes)
        elif kind == "symbols":
            frame = decode_symbols(payload)
            device.symbols += len(frame.symbols)
            device.arrivals.append((time.monotonic(), len(frame.symbols)))
        elif kind == "window":
            window = decode_window(payload)
            device.window = f"{window.counts[0]} of {window.observed}"
        elif kind == "estimate":
            estimate = decode_estimate(payload)
            device.current = estimate.current[1]
            device.estimated += len(estimate.most_likely)

    def errors(self) -> dict[str, str]:
        """The problem that each device reports, if it does."""
        with self._lock:
            return {name: device.error for name, device in self._devices.items() if device.error}

    def online(self) -> int:
        """How many devices are online."""
        with self._lock:
            return sum(device.online for device in self._devices.values())

    def table(self, title: str) -> Table:
        """What was seen so far."""
        columns = ("device", "ticks sent", "symbols/s", "P(above)", "estimated", "newest count", "outbox")
        table = rich_table(title, columns)
        now = time.monotonic()
        with self._lock:
            for name, device in self._devices.items():
                current = "" if device.current is None else f"{device.current:.2f} {_bar(device.current)}"
                row = (f"{device.symbols}", f"{device.rate(now):.0f}", current, f"{device.estimated}", device.window)
                table.add_row(name, *row, f"{device.outbox_depth}")
            release = self._release
        table.caption = "gateway's release: none yet"
        if release is not None:
            value, low, high = release.values[0], release.low[0], release.high[0]
            table.caption = (
                f"gateway's release {release.entry}, ticks {release.first}..{release.last} of {release.devices} "
                f"devices: {value:.0f} above ({low:.0f}..{high:.0f})"
            )
        return table


def _bar(probability: float, width: int = 6) -> str:
    filled = round(probability * width)
    return "█" * filled + "·" * (width - filled)

"""A heart rate monitor that bleak connects to: a backend for its own client, in place of BlueZ and a radio."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import bleak
from bleak.backends.characteristic import BleakGATTCharacteristic
from bleak.backends.client import BaseBleakClient
from bleak.backends.service import BleakGATTService, BleakGATTServiceCollection
from bleak.exc import BleakError

__all__ = ["ADDRESS", "Monitor", "client_of"]

ADDRESS = "A0:9E:1A:00:00:01"
_SERVICE = "0000180d-0000-1000-8000-00805f9b34fb"


class Monitor:
    """A monitor in the hands of a test; `measurement` is the UUID of the characteristic that it has."""

    def __init__(self, measurement: str) -> None:
        self.measurement = measurement
        self.reachable = True
        self.connections = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._notify: Callable[[bytearray], None] | None = None
        self._lost: Callable[[], None] | None = None

    @property
    def notifies(self) -> bool:
        return self._notify is not None

    def say(self, measurement: bytes) -> None:
        """Notify whoever listens; in another thread's time nobody may any more."""
        notify, loop = self._notify, self._loop
        if notify is not None and loop is not None:
            loop.call_soon_threadsafe(notify, bytearray(measurement))

    def leave(self) -> None:
        """Go out of reach."""
        self.reachable, self._notify = False, None
        assert self._lost is not None
        self._loop.call_soon_threadsafe(self._lost)

    def came(self, lost: Callable[[], None] | None) -> None:
        """Somebody connects, in bleak's loop."""
        if not self.reachable:
            raise BleakError(f"no monitor, and 71 beats at {ADDRESS}")
        self.connections += 1
        self._loop, self._lost = asyncio.get_running_loop(), lost

    def listen(self, notify: Callable[[bytearray], None] | None) -> None:
        self._notify = notify


class _Backend(BaseBleakClient):
    """Calls that bleak's client makes of a platform."""

    monitor: ClassVar[Monitor]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._here = False

    @property
    def name(self) -> str:
        return "monitor"

    @property
    def mtu_size(self) -> int:
        return 23

    @property
    def is_connected(self) -> bool:
        return self._here

    async def connect(self, pair: bool, **_named: Any) -> None:
        assert not pair
        self.monitor.came(self._disconnected_callback)
        service = BleakGATTService(None, 1, _SERVICE)
        self.services = BleakGATTServiceCollection()
        self.services.add_service(service)
        self.services.add_characteristic(
            BleakGATTCharacteristic(None, 2, self.monitor.measurement, ["notify"], lambda: 20, service)
        )
        self._here = True

    async def disconnect(self) -> None:
        self._here = False
        self.monitor.listen(None)

    async def start_notify(self, _characteristic: Any, callback: Any, **_named: Any) -> None:
        self.monitor.listen(callback)

    async def _nothing(self, *_arguments: Any, **_named: Any) -> Any:
        raise AssertionError("nobody has to ask for that")

    pair = unpair = stop_notify = _nothing
    read_gatt_char = read_gatt_descriptor = write_gatt_char = write_gatt_descriptor = _nothing


def client_of(monitor: Monitor) -> Callable[..., bleak.BleakClient]:
    """bleak's own client, which connects to a monitor of a test."""
    backend = type("Backend", (_Backend,), {"monitor": monitor})
    return functools.partial(bleak.BleakClient, backend=backend)

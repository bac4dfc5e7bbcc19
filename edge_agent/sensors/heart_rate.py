"""Readings from a Bluetooth heart rate monitor: the standard's service 0x180D and its measurement 0x2A37.

A monitor notifies about once a second, some with every beat. A rule that waits for notifications would depend on the
heart. So a reading ends only with the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from collections.abc import Callable
from typing import Any

from edge_agent.sensors.source import LiveSensor, Reading, import_library

__all__ = ["HeartRateSensor"]

MEASUREMENT = "00002a37-0000-1000-8000-00805f9b34fb"
RETRY_SECONDS = 5.0
CONNECT_SECONDS = 60.0
LEAVE_SECONDS = 5.0
_WIDE, _CONTACT, _CONTACT_KNOWN = 1, 2, 4
_LOGGERS = ("bleak", "dbus_fast")


def heart_rate(measurement: bytes, *, needs_contact: bool) -> float:
    """Read the beats a minute in a measurement: a byte of flags, then 8 or 16 bits. NaN if there is no rate.

    With `needs_contact`, a rate that was measured without contact to the skin is none.
    """
    if not measurement:
        return math.nan
    flags = measurement[0]
    byte_count = 2 if flags & _WIDE else 1
    if len(measurement) < 1 + byte_count or (needs_contact and flags & _CONTACT_KNOWN and not flags & _CONTACT):
        return math.nan
    return float(int.from_bytes(measurement[1 : 1 + byte_count], "little"))


class HeartRateSensor(LiveSensor):
    """The newest heart rate of a monitor; a monitor that is not connected is looked for every few seconds.

    `address` has six bytes as `AA:BB:CC:DD:EE:FF`. `make_client`, by default bleak's `BleakClient`, makes a client of
    an address and a callback for the loss of the connection. Raises ConfigError without bleak.
    """

    def __init__(self, address: str, *, needs_contact: bool, make_client: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self._address = address
        self._needs_contact = needs_contact
        self._client = make_client or import_library("bleak", "bluetooth").BleakClient
        for logger_name in _LOGGERS:  # at level DEBUG they log the measurements
            logging.getLogger(logger_name).setLevel(logging.CRITICAL + 1)
        self._is_gone = True
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _loop, _context: None)
        self._task = self._loop.create_task(self._reconnect())
        self._thread = threading.Thread(target=self._run_loop, name="bluetooth", daemon=True)
        self._thread.start()

    def _run_loop(self) -> None:
        try:
            self._loop.run_until_complete(self._task)
        except BaseException:  # cancelled by `close`, or an error of the library, which must not be printed
            self._trouble = "its Bluetooth library has ended"
        self._is_gone = True
        self._loop.close()

    async def _reconnect(self) -> None:
        while True:
            try:
                await self._listen()
                self._trouble = "its monitor has gone; it is looked for"
            except Exception:
                self._trouble = "its monitor cannot be connected to; it is looked for"
            self._add_update(works=False)
            await asyncio.sleep(RETRY_SECONDS)

    async def _listen(self) -> None:
        connection_lost = asyncio.Event()
        client = self._client(self._address, lambda _client: connection_lost.set())
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.connect()
                await client.start_notify(MEASUREMENT, self._on_notification)
            self._is_gone, self._trouble = False, ""
            await connection_lost.wait()
        finally:
            self._is_gone = True
            async with asyncio.timeout(LEAVE_SECONDS):
                await client.disconnect()

    def _on_notification(self, _characteristic: Any, measurement: bytearray) -> None:
        try:
            rate = heart_rate(bytes(measurement), needs_contact=self._needs_contact)
        except Exception:
            rate = math.nan
        self._add_update(Reading(rate))

    def close(self) -> None:
        """Disconnect from the monitor."""
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(2 * LEAVE_SECONDS)

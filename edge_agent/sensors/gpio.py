"""Readings from a pin of a Raspberry Pi: a button, a motion detector, a contact.

A pin has a level at every moment, so every tick has a reading, unless the pin cannot be read.
"""

from __future__ import annotations

import contextlib
from typing import Any

from edge_agent.sensors.source import ConfigError, Reading, Sensor, SensorUpdate, import_library
from fugu.contract.errors import cause

__all__ = ["GpioSensor"]


class GpioSensor(Sensor):
    """The level of a pin, by Broadcom's number: 1 where it is active, else 0. Raises ConfigError.

    Args:
        pull_up: True: pulled up, active when low; False: pulled down, active when high; None: no resistor.
        active_state: of a pin without a resistor, whether it is active when high.
        since: a reading is 1 also if the pin was active at any moment since the tick before.
    """

    def __init__(self, pin: int, *, pull_up: bool | None, active_state: bool | None, since: bool) -> None:
        self._pulse_count = self._seen_count = 0  # each is written by one thread
        gpiozero = import_library("gpiozero", "gpio")
        try:
            self._pin: Any = gpiozero.DigitalInputDevice(pin, pull_up=pull_up, active_state=active_state)
            if since:
                self._pin.when_activated = self._count_pulse
        except Exception as error:  # the errors of the libraries and of the system have no common ancestor
            raise ConfigError(f"cannot open GPIO pin {pin}: {cause(error)}") from None

    def _count_pulse(self) -> None:
        """Count that the pin has become active; called in the library's thread."""
        self._pulse_count += 1

    def poll(self, tick: int) -> SensorUpdate:
        """Return the pin's level; an update without a reading if the pin cannot be read."""
        try:
            pulse_count = self._pulse_count
            is_active = bool(self._pin.value) or pulse_count != self._seen_count
            self._seen_count = pulse_count
        except Exception:
            self._trouble = "its pin cannot be read"
            return SensorUpdate(None, False)
        self._trouble = ""
        return SensorUpdate(Reading(int(is_active)), True)

    def close(self) -> None:
        """Release the pin."""
        with contextlib.suppress(Exception):
            self._pin.close()

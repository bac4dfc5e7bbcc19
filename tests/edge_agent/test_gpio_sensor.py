"""Pins, by gpiozero's own mock pins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gpiozero
import pytest
from gpiozero.pins.mock import MockFactory

from edge_agent.sensors.opening import open_sensor
from edge_agent.sensors.source import ConfigError, Sensor

SECRET = "71.53194726"


@pytest.fixture
def factory(monkeypatch: pytest.MonkeyPatch) -> Iterator[MockFactory]:
    """Pins that a test drives."""
    factory = MockFactory()
    monkeypatch.setattr(gpiozero.Device, "pin_factory", factory)
    yield factory
    factory.reset()


def pin_config(pin: int = 17, **options: Any) -> dict[str, Any]:
    wanted = {"pull_up": None, "active_state": None, "since": False, "silence": "samples"} | options
    return {"kind": "gpio", "pin": pin, **wanted}


def value(sensor: Sensor, tick: int) -> object:
    reading = sensor.read(tick)
    return None if reading is None else reading.reveal()


@pytest.mark.parametrize(
    ("options", "when_low", "when_high"),
    [
        ({"pull_up": True}, 1, 0),
        ({"pull_up": False}, 0, 1),
        ({"active_state": True}, 0, 1),
        ({"active_state": False}, 1, 0),
    ],
)
def test_a_tick_has_the_level_of_its_moment(
    factory: MockFactory, options: dict[str, bool], when_low: int, when_high: int
) -> None:
    sensor = open_sensor(pin_config(**options))
    pin = factory.pin(17)
    pin.drive_low()
    assert [value(sensor, 0), value(sensor, 1)] == [when_low, when_low]
    pin.drive_high()
    assert value(sensor, 2) == when_high
    sensor.close()


def test_short_pulses_count_where_that_is_wanted(factory: MockFactory) -> None:
    for since, expected in ((False, [0, 0, 1, 1, 0]), (True, [0, 1, 1, 1, 0])):
        sensor = open_sensor(pin_config(active_state=True, since=since))
        pin = factory.pin(17)
        pin.drive_low()
        values_read = [value(sensor, 0)]
        pin.drive_high()
        pin.drive_low()
        values_read.append(value(sensor, 1))
        pin.drive_high()
        values_read += [value(sensor, 2), value(sensor, 3)]
        pin.drive_low()
        value(sensor, 4)
        values_read.append(value(sensor, 5))
        assert values_read == expected
        sensor.close()


def test_a_pin_that_cannot_be_read_is_no_reading_and_nothing_of_the_error_is_kept(
    factory: MockFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor = open_sensor(pin_config(pull_up=True))

    def broken(_pin: object) -> int:
        raise OSError(SECRET)

    with monkeypatch.context() as patched:
        patched.setattr(gpiozero.DigitalInputDevice, "value", property(broken))
        assert sensor.poll(0) == (None, False)
        assert sensor.trouble == "its pin cannot be read"
    assert value(sensor, 1) == 0
    assert sensor.trouble == ""
    sensor.close()


def test_a_pin_that_is_in_use_is_one_line(factory: MockFactory) -> None:
    first = open_sensor(pin_config(pull_up=True))
    with pytest.raises(ConfigError, match=r"^cannot open GPIO pin 17: GPIOPinInUse$"):
        open_sensor(pin_config(pull_up=False))
    first.close()


def test_without_the_library_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, config, extra in (
        ("gpiozero", pin_config(pull_up=True), "gpio"),
        (
            "bleak",
            {"kind": "bluetooth-heart-rate", "address": "A0:9E:1A:00:00:01", "no_contact": "reading"},
            "bluetooth",
        ),
    ):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        with pytest.raises(ConfigError) as error:
            open_sensor({"silence": "samples", **config})
        assert str(error.value) == (
            f"this sensor needs {module}, and {module} is missing: pip install 'fugu-edge[{extra}]'"
        )

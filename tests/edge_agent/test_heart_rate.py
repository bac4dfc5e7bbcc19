"""Heart rate monitors: measurements of the standard, and bleak's client with a monitor of the test's own."""

from __future__ import annotations

import logging
import math
import sys

import bleak
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.sensors import heart_rate
from edge_agent.sensors.heart_rate import MEASUREMENT, HeartRateSensor
from edge_agent.sensors.opening import InterpretedSensor, open_sensor
from edge_agent.sensors.source import Reading
from tests.support.brokers import wait_until
from tests.support.heart_monitor import ADDRESS, Monitor, client_of

parse = heart_rate.heart_rate


@pytest.mark.parametrize(
    ("measurement", "rate", "with_contact"),
    [
        ("00 48", 72.0, 72.0),
        ("01 48 00", 72.0, 72.0),
        ("01 2c 01", 300.0, 300.0),
        ("06 48", 72.0, 72.0),
        ("04 48", 72.0, math.nan),
        ("05 48 00", 72.0, math.nan),
        ("02 48", 72.0, 72.0),  # a status of contact that is not supported says nothing
        ("1e 48 10 00 00 04", 72.0, 72.0),  # energy and intervals follow
        ("16 ff", 255.0, 255.0),
        ("00 00", 0.0, 0.0),
        ("", math.nan, math.nan),
        ("00", math.nan, math.nan),
        ("01 48", math.nan, math.nan),
    ],
)
def test_measurements_of_the_standard(measurement: str, rate: float, with_contact: float) -> None:
    sent = bytes.fromhex(measurement)
    assert parse(sent, needs_contact=False) == pytest.approx(rate, nan_ok=True)
    assert parse(sent, needs_contact=True) == pytest.approx(with_contact, nan_ok=True)


@given(st.binary(max_size=40), st.booleans())
def test_no_bytes_are_too_odd(measurement: bytes, needs_contact: bool) -> None:
    rate = parse(measurement, needs_contact=needs_contact)
    assert math.isnan(rate) or 0 <= rate <= 65535


@pytest.fixture
def monitor(monkeypatch: pytest.MonkeyPatch) -> Monitor:
    monkeypatch.setattr(heart_rate, "RETRY_SECONDS", 0.01)
    return Monitor(MEASUREMENT)


def value(reading: Reading | None) -> object:
    return None if reading is None else reading.reveal()


def test_a_rate_holds_while_the_monitor_is_connected_and_it_is_found_again(
    monitor: Monitor, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    source = HeartRateSensor(ADDRESS, needs_contact=False, make_client=client_of(monitor))
    sensor = InterpretedSensor(source, None)
    assert sensor.read(0) is None
    wait_until(lambda: monitor.notifies)
    monitor.say(b"\x06\x47")
    wait_until(lambda: value(sensor.read(0)) == 71.0)
    assert [value(sensor.read(tick)) for tick in range(1, 1000)] == [71.0] * 999
    monitor.say(b"\x04\x48")
    wait_until(lambda: value(sensor.read(1000)) == 72.0)
    monitor.say(b"\x00")
    wait_until(lambda: math.isnan(value(sensor.read(1001)) or 0.0))
    monitor.leave()
    wait_until(lambda: sensor.read(1002) is None and "cannot be connected to" in source.trouble)
    monitor.reachable = True
    wait_until(lambda: monitor.notifies)
    wait_until(lambda: source.trouble == "")
    assert sensor.read(1003) is None, "a rate of before the connection is none"
    monitor.say(b"\x06\x49")
    wait_until(lambda: value(sensor.read(1004)) == 73.0)
    sensor.close()
    wait_until(lambda: not monitor.notifies)
    assert monitor.connections == 2
    log = caplog.text + "".join(capfd.readouterr())
    assert "71 beats" not in log
    assert "Traceback" not in log


def test_of_samples_a_tick_has_what_came_since_the_one_before(monitor: Monitor) -> None:
    sensor = HeartRateSensor(ADDRESS, needs_contact=True, make_client=client_of(monitor))
    wait_until(lambda: monitor.notifies)
    monitor.say(b"\x06\x47")
    wait_until(lambda: value(sensor.read(0)) == 71.0)
    assert sensor.read(1) is None
    monitor.say(b"\x04\x48")
    wait_until(lambda: math.isnan(value(sensor.read(2)) or 0.0))
    sensor.close()


def test_a_device_without_the_service_is_no_monitor(monitor: Monitor) -> None:
    monitor.measurement = "00002a38-0000-1000-8000-00805f9b34fb"
    sensor = HeartRateSensor(ADDRESS, needs_contact=False, make_client=client_of(monitor))
    wait_until(lambda: monitor.connections > 2)
    assert sensor.trouble == "its monitor cannot be connected to; it is looked for"
    sensor.close()


def test_bleak_is_loaded_only_for_a_monitor_and_says_nothing(monitor: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["bleak"], "BleakClient", client_of(monitor))
    config = {"kind": "bluetooth-heart-rate", "address": ADDRESS, "no_contact": "reading", "silence": "changes"}
    sensor = open_sensor(config)
    wait_until(lambda: monitor.notifies)
    monitor.say(b"\x00\x47")
    wait_until(lambda: value(sensor.read(0)) == 71.0)
    assert not logging.getLogger("bleak.backends.bluezdbus.manager").isEnabledFor(logging.CRITICAL)
    assert not logging.getLogger("dbus_fast.message_bus").isEnabledFor(logging.CRITICAL)
    sensor.close()
    assert bleak is sys.modules["bleak"]

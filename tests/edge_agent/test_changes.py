"""A log of changes, as home automation exports it, is replayed as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_agent.config_schema import StreamConfig, sensor_values
from edge_agent.sensors.opening import open_sensor
from edge_agent.sensors.replay import read_changes
from edge_agent.sensors.source import ConfigError
from fugu.mqtt import Broker

CHANGES = """entity_id,state,last_changed
light.hall,on,2026-01-01T00:00:30Z
binary_sensor.hall,off,2026-01-01T00:00:00.500Z
binary_sensor.hall,unavailable,2026-01-01T00:03:50Z
binary_sensor.hall,on,2026-01-01T01:01:30+01:00
binary_sensor.hall,off,2026-01-01T00:01:40Z
binary_sensor.hall,on,2026-01-01T00:01:40Z
binary_sensor.hall,off,2026-01-01T00:05:00.500Z
"""


def test_a_log_of_changes_is_replayed_as_it_was_exported(tmp_path: Path) -> None:
    """Rows in any order; a value holds until the next, and of rows with one time the last one counts."""
    (tmp_path / "history.csv").write_text(CHANGES)
    config = {"kind": "replay", "file": "history.csv", "column": "state", "loop": False}
    config |= {"only": ("entity_id=binary_sensor.hall",)}
    checked = StreamConfig.model_validate({"policy": "x", "sensor": {**config, "time": "last_changed", "every": 60}})
    sensor = open_sensor(sensor_values(checked, tmp_path, Broker()))
    assert [reading.reveal() for tick in range(6) if (reading := sensor.read(tick))] == [
        *("off", "off", "on", "on", "unavailable", "off")
    ]
    assert sensor.finished(6)


def test_changes_of_numbers_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "changes.csv").write_text("t,value\n0,1.5\n25,3\n31,2\n")
    assert list(read_changes(tmp_path / "changes.csv", "value", "t", 10.0)) == [1.5, 1.5, 1.5, 3.0]


@pytest.mark.parametrize(
    ("only", "time", "every", "text"),
    [
        ("entity_id=binary_sensor.hall", "when", 60.0, "has no column 'when'"),
        ("entity=binary_sensor.hall", "last_changed", 60.0, "has no column 'entity'"),
        ("entity_id=binary_sensor.loft", "last_changed", 60.0, "has no rows"),
        ("entity_id=binary_sensor.hall", "entity_id", 60.0, "cells that are no time"),
        ("entity_id=binary_sensor.hall", "last_changed", 1e-6, "more than 5000000 ticks"),
    ],
)
def test_a_log_of_changes_that_cannot_be_replayed_is_one_line(
    tmp_path: Path, only: str, time: str, every: float, text: str
) -> None:
    (tmp_path / "history.csv").write_text(CHANGES)
    with pytest.raises(ConfigError, match=text):
        read_changes(tmp_path / "history.csv", "state", time, every, [only])


def test_codes_of_a_failed_sensor_are_no_readings(tmp_path: Path) -> None:
    """A cell is a code by its value; other rows stay rows."""
    (tmp_path / "bath.csv").write_text("sensor,value\nbath,20.5\nhall,19\nbath,-127.00\nbath,21\n")
    config = {"kind": "replay", "file": "bath.csv", "only": ("sensor=bath",), "missing_values": ("-127",)}
    checked = StreamConfig.model_validate({"policy": "x", "sensor": {**config, "loop": False}})
    sensor = open_sensor(sensor_values(checked, tmp_path, Broker()))
    assert [reading.reveal() for tick in range(3) if (reading := sensor.read(tick)) is not None] == [20.5, None, 21.0]
    assert sensor.finished(3)

"""Codes for no reading, as -127 of a sensor that failed: on sensors of every kind, live ones as well as replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from edge_agent.config_schema import StreamConfig, sensor_values
from edge_agent.sensors.opening import open_sensor
from edge_agent.sensors.source import Sensor
from fugu.host.codes import Codes
from fugu.mqtt import Broker
from tests.support.brokers import wait_until
from tests.support.classifiers import classifier_of

KINDS: dict[str, dict[str, Any]] = {
    "replay": {"file": "bath.csv"},
    "stdin": {},
    "call": {"target": "math:pi"},
    "command": {"command": ("true",)},
    "mqtt": {"topic": "bath/heat"},
    "gpio": {"pin": 4, "pull_up": True},
    "bluetooth-heart-rate": {"address": "00:11:22:33:44:55"},
}
SAID: list[object] = []


def ds18b20() -> object:
    """Return what the sensor says next, as its driver does; its last word for ever."""
    return SAID.pop(0) if len(SAID) > 1 else SAID[0]


def values(sensor: Sensor, at_least: int) -> list[object]:
    """The readings of so many ticks that have one; an empty reading counts."""
    tick, readings = -1, list[object]()

    def enough() -> bool:
        nonlocal tick
        tick += 1
        update = sensor.poll(tick)
        if update.reading is not None:
            readings.append(update.reading.reveal())
        return len(readings) >= at_least

    wait_until(enough)
    return readings


def checked(tmp_path: Path, **sensor: Any) -> dict[str, Any]:
    stream = StreamConfig.model_validate({"policy": "x", "sensor": sensor})
    return sensor_values(stream, tmp_path, Broker())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_sensor_takes_codes_as_texts_or_numbers(tmp_path: Path, kind: str) -> None:
    stream = checked(tmp_path, kind=kind, **KINDS[kind], missing_values=("-127", 85, 127.9))
    assert stream["missing_values"] == ["-127", "85", "127.9"]
    with pytest.raises(ValidationError, match="missing_values"):
        checked(tmp_path, kind=kind, **KINDS[kind], missing_values=(True,))


@pytest.mark.parametrize("silence", ["samples", "changes"])
def test_a_live_sensor_that_says_a_code_has_no_reading(tmp_path: Path, silence: str) -> None:
    target = f"{__name__}:ds18b20"
    seen: list[object] = []
    SAID[:] = [20.5]
    sensor = open_sensor(checked(tmp_path, kind="call", target=target, missing_values=(-127, 85), silence=silence))
    for reading in (20.5, -127.0, "85.00", 21.25):  # the next only once the one before may have been read
        SAID[:] = [reading]
        wanted = reading if reading in (20.5, 21.25) else None
        wait_until(lambda wanted=wanted: values(sensor, 1)[-1] == wanted)
        seen.append(values(sensor, 1)[-1])
    assert seen == [20.5, None, None, 21.25]


def test_a_command_that_prints_a_code_has_no_reading(tmp_path: Path) -> None:
    words = ("/bin/sh", "-c", "echo -127.000")
    sensor = open_sensor(checked(tmp_path, kind="command", command=words, missing_values=("-127",)))
    assert values(sensor, 1) == [None]


def test_an_empty_reading_is_absent_and_not_one_that_cannot_be_used() -> None:
    document = {"kind": "thresholds", "edges": [20.0], "hysteresis": 0.0, "hysteresis_ticks": 0}
    classifier = classifier_of(document | {"states": ["low", "high"], "missing": None})
    assert [classifier.observe(0, 21.0), classifier.observe(1, None)] == [1, None]
    assert classifier.unusable == 0


@pytest.mark.parametrize(
    ("code", "reading", "is_code"),
    [
        ("-127", -127, True),
        ("-127", "-127.00", True),
        ("-127", "-127,0", True),
        ("-127", "-127.1", False),
        ("-127", True, False),
        ("1", True, False),
        ("127.9", 127.9, True),
        ("Error", " error ", True),
        ("error", "errors", False),
        ("85", "21,85", False),
        ("-999", "48.1,-999", True),
        ("nan", "nan", True),
        ("-127", None, False),
    ],
)
def test_a_number_is_a_code_by_value_and_a_word_in_small_letters(code: str, reading: object, is_code: bool) -> None:
    assert (reading in Codes([code])) == is_code

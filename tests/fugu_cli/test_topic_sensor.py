"""The sensor of a plan on a live topic: it reads an open door as open, as the recording of the plan did."""

from __future__ import annotations

import json
import random
import tomllib
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edge_agent.config_schema import AgentConfig, Mqtt
from edge_agent.sensors.opening import open_sensor
from fugu.host.payload import value_at
from fugu.library.plans import Plan, plan
from fugu.mqtt import Link
from fugu_cli.demo.topic_sensor import column_path, topic_of_recording, topic_sensor
from tests.support.brokers import Mosquitto, wait_until


@pytest.mark.parametrize(
    ("column", "path"),
    [
        ("occupancy", "occupancy"),
        ("value", None),
        ("State", None),
        ("_value", None),
        ("payload", None),
        ("ENERGY.Power", "ENERGY.Power"),
        ("1.7.0", '"1.7.0"'),
        ("Power [W]", "Power [W]"),
        ("mean, max", '"mean, max"'),
    ],
)
def test_a_column_is_a_path_if_it_is_named_after_a_key(column: str, path: str | None) -> None:
    assert column_path(column) == path


def recording(folder: Path, *, changes: bool) -> Path:
    """An hour's door of four days: a row a change, or a row a minute."""
    rng, state, rows = random.Random(4), False, ["last_changed,contact" if changes else "time,contact"]
    for minute in range(5_760):
        moved = rng.random() < 0.2
        state ^= moved
        if moved or not changes:
            rows.append(f"{datetime.fromtimestamp(1_772_323_200 + 60 * minute, UTC).isoformat()},{str(state).lower()}")
    file = folder / ("changes.csv" if changes else "samples.csv")
    file.write_text("\n".join(rows) + "\n")
    return file


def planned(file: Path) -> Plan:
    return plan(file, "share", 4.0, protect="tick", window=60)


def sensor_of(plan: Plan) -> Mqtt:
    """The sensor that `fugu try` writes; tests/system/test_try.py pastes its block."""
    topic, path = topic_of_recording(plan)
    text = plan.configuration(sensor=topic_sensor(plan, Mqtt(kind="mqtt", port=1884, topic=topic, path=path)))
    sensor = AgentConfig.model_validate_json(json.dumps(tomllib.loads(text))).streams[0].sensor
    assert isinstance(sensor, Mqtt)
    assert tomllib.loads("\n".join(topic_sensor(plan, sensor))) == sensor.model_dump(exclude_defaults=True) | {
        "silence": sensor.silence
    }, "fugu start writes the same"
    return sensor


@pytest.mark.long
@pytest.mark.parametrize("deep", [True, False])
def test_of_a_log_of_mqtt_the_block_has_topic_and_path(tmp_path: Path, *, deep: bool) -> None:
    rows = recording(tmp_path, changes=False).read_text().splitlines()[1:]
    lines = []
    for place, row in enumerate(rows):
        value = row.rpartition(",")[2]
        payload = f'{{"door":{{"contact":{value}}}}}' if deep else value
        lines.append(f"{1_772_323_200 + 60 * place} zigbee2mqtt/hall {payload}")
    file = tmp_path / "mosquitto.log"
    file.write_text("\n".join(lines) + "\n")
    sensor = sensor_of(planned(file))
    assert (sensor.topic, sensor.path) == ("zigbee2mqtt/hall", "door.contact" if deep else None)
    assert value_at(payload.encode(), sensor.path) == value


@pytest.mark.long
def test_the_block_of_a_log_of_changes_holds_what_came_and_that_of_samples_does_not(tmp_path: Path) -> None:
    with Mosquitto(tmp_path, "allow_anonymous true\nlog_type all\n") as broker:
        for sensors, changes in enumerate((True, False), start=1):
            file = recording(tmp_path, changes=changes)
            sensor = sensor_of(planned(file))
            assert (sensor.path, sensor.silence) == ("contact", "changes" if changes else "samples")
            here = sensor.model_dump() | {"port": broker.port, "fleet_broker": ["127.0.0.1", broker.port ^ 1]}
            with closing(open_sensor(here)) as live:
                log = tmp_path / "mosquitto.log"
                wait_until(lambda: log.read_text().count("SUBSCRIBE") >= sensors)  # noqa: B023
                link = Link(broker.broker, f"door-{changes}")
                link.start()
                wait_until(lambda: link.connected)  # noqa: B023
                link.publish(sensor.topic, b'{"contact": true}')
                wait_until(lambda: live.read(0))
                assert sum(live.read(tick) is not None for tick in range(1, 60)) == (59 if changes else 0)
                link.stop()


@pytest.mark.long
def test_the_block_has_the_codes_that_the_plan_was_told(tmp_path: Path) -> None:
    file = recording(tmp_path, changes=False)
    lines = file.read_text().splitlines()
    for line in range(100, len(lines), 400):
        lines[line] = lines[line].rpartition(",")[0] + ",-127"
    file.write_text("\n".join(lines) + "\n")
    chosen = plan(file, "share", 4.0, protect="tick", window=60, missing_values=-127)
    block = tomllib.loads("\n".join(topic_sensor(chosen, Mqtt(kind="mqtt", topic="hall/door"))))
    assert block["missing_values"] == ["-127"]
    assert Mqtt.model_validate(block | {"missing_values": tuple(block["missing_values"])}).missing_values == ("-127",)

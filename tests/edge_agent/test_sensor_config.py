"""Sensors of a configuration, and that every example of the manual may be said."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from edge_agent.config import load
from edge_agent.config_schema import AgentConfig, Lines, StreamConfig
from edge_agent.sensors.opening import silence_warning
from edge_agent.sensors.source import ConfigError
from fugu.contract.discretisers import Thresholds
from tests.support.gateway_files import toml
from tests.support.processes import policy

ROOT = Path(__file__).parents[2]
MQTT = {"kind": "mqtt", "topic": "tele/washer/SENSOR"}
PIN = {"kind": "gpio", "pin": 17}
MONITOR = {"kind": "bluetooth-heart-rate", "address": "A0:9E:1A:00:00:01"}
RUN = {"kind": "command", "command": ["true"]}
LINES = {"kind": "stdin"}
CALL = {"kind": "call", "target": "a:b"}
REPLAY = {"kind": "replay", "file": "a.csv"}
CHANGES = {"silence": "changes"}


def stream(sensor: dict[str, Any]) -> StreamConfig:
    return StreamConfig.model_validate_json(json.dumps({"policy": "x.json", "sensor": sensor}))


def test_a_keep_alive_is_compared_without_spaces_around_it_as_lines_are() -> None:
    sensor = stream({**LINES, **CHANGES, "keep_alive": " alive ", "keep_alive_ticks": 3}).sensor
    assert isinstance(sensor, Lines)
    assert sensor.keep_alive == "alive"


@pytest.mark.parametrize(
    ("sensor", "text"),
    [
        ({**MQTT, "topic": "zigbee2mqtt/+"}, "String should match pattern"),
        ({**MQTT, "topic": "#"}, "String should match pattern"),
        ({**MQTT, "topic": "$share/a/b"}, "String should match pattern"),
        ({**MQTT, "topic": "a\0b"}, "String should match pattern"),
        ({**MQTT, "topic": ""}, "at least 1 character"),
        ({**MQTT, "path": '"1.7.0'}, 'a key with a dot, a comma or a quote is written as in JSON: "1.7.0"'),
        ({**MQTT, "host": "192.168.1.7"}, "192.168.1.7 is not this machine"),
        ({**MQTT, "host": "0.0.0.0"}, "0.0.0.0 is not this machine"),
        ({**MQTT, "host": "broker.local"}, "broker.local is not this machine"),
        ({**MQTT, "host": "localhost.example.org"}, "is not this machine"),
        ({**MQTT, "availability": "a/b"}, "of samples, every one is a sign of life"),
        ({**MQTT, **CHANGES, "availability": MQTT["topic"]}, "another topic than that of the readings"),
        ({**MQTT, **CHANGES, "availability_path": "state"}, "which is missing"),
        (PIN, "give pull_up, or active_state"),
        ({**PIN, "pull_up": True, "active_state": True}, "give pull_up, or active_state"),
        ({**PIN, "pull_up": True, **CHANGES}, "Input should be 'samples'"),
        ({**MONITOR, "address": "A0:9E:1A"}, "String should match pattern"),
        ({**RUN, "command": []}, "at least 1 item"),
        ({**RUN, "command": "echo 71; rm -rf x"}, "valid array"),
        ({**RUN, "timeout": 0.0}, "greater than 0"),
        ({**RUN, **CHANGES, "keep_alive": "alive", "keep_alive_ticks": 3}, 'for a command that runs "always"'),
        ({**RUN, "runs": "always", **CHANGES, "keep_alive": "alive"}, "belong together"),
        ({**RUN, "keep_alive_ticks": 3}, "a keep-alive is for"),
        ({**CALL, "keep_alive_ticks": 3}, "a keep-alive is for"),
        ({**CALL, **CHANGES, "keep_alive_ticks": 0}, "greater than or equal to 1"),
        ({**LINES, "keep_alive": "alive"}, "belong together"),
        ({**LINES, "keep_alive": "alive", "keep_alive_ticks": 3}, "a keep-alive is for"),
        ({**LINES, "silence": "guess"}, "Input should be 'samples' or 'changes'"),
        ({**REPLAY, "every": 60}, "time and every belong together"),
        ({**REPLAY, "time": "t", "every": 0}, "greater than 0"),
    ],
)
def test_a_sensor_that_makes_no_sense_is_refused(sensor: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        stream(sensor)


@pytest.mark.parametrize(
    ("sensor", "warned"),
    [
        (MQTT, ""),
        ({**MQTT, **CHANGES}, "the connection to its broker is lost"),
        ({**MQTT, **CHANGES, "availability": "a/b"}, ""),
        ({**PIN, "pull_up": True}, ""),
        (MONITOR, ""),
        (RUN, ""),
        ({**RUN, **CHANGES}, "its command fails"),
        ({**RUN, **CHANGES, "keep_alive_ticks": 3}, ""),
        ({**RUN, **CHANGES, "runs": "always", "keep_alive": "a", "keep_alive_ticks": 3}, ""),
        (LINES, ""),
        ({**LINES, **CHANGES}, "its last state is drawn from for ever"),
        ({**LINES, **CHANGES, "keep_alive": "alive", "keep_alive_ticks": 3}, ""),
        ({**CALL, **CHANGES}, "its last state is drawn from for ever"),
        ({**CALL, **CHANGES, "keep_alive_ticks": 3}, ""),
        ({**REPLAY, **CHANGES}, ""),
    ],
)
def test_a_reading_that_may_hold_for_ever_is_warned_of(sensor: dict[str, Any], warned: str) -> None:
    config = stream(sensor).sensor.model_dump()
    assert warned in silence_warning(config)
    assert bool(warned) == bool(silence_warning(config))


def device(folder: Path, sensor: dict[str, Any], *, broker: str = "", missing: str | None = None) -> Path:
    states = ("low", "high") if missing is None else ("low", missing)
    discretiser = Thresholds(edges=(0.5,), states=states, missing=missing)
    heart = policy(epoch_us=0, period_us=1_000_000).model_copy(update={"discretiser": discretiser})
    (folder / "policy.json").write_text(heart.to_json())
    path = folder / "agent.toml"
    path.write_text(
        'fleet = "home"\ndevice = "watch"\noutbox = "outbox.sqlite"\nceiling = 1.0\n'
        f'{broker}\n[[streams]]\npolicy = "policy.json"\nsensor = {toml(sensor)}\n'
    )
    return path


@pytest.mark.parametrize("fleet", ["127.0.0.1", "localhost", "127.9.9.9", "::1"])
def test_the_fleet_s_broker_is_no_broker_of_a_sensor(tmp_path: Path, fleet: str) -> None:
    broker = f'[broker]\nhost = "{fleet}"\nport = 1883'
    with pytest.raises(
        ConfigError, match="a sensor reads the broker of the fleet: raw readings need a broker of their"
    ):
        load(device(tmp_path, MQTT, broker=broker))
    (configured,) = load(device(tmp_path, {**MQTT, "port": 1884, "password_file": "secret"}, broker=broker)).streams
    assert configured.sensor["fleet_broker"] == [fleet, 1883]
    assert configured.sensor["password_file"] == str(tmp_path / "secret")
    assert load(device(tmp_path, MQTT, broker='[broker]\nhost = "gw.example"')).streams


def test_no_contact_is_missing_only_where_missing_is_a_state(tmp_path: Path) -> None:
    wanted = {**MONITOR, "no_contact": "missing"}
    with pytest.raises(ConfigError, match="needs a policy whose discretiser names a state for missing readings"):
        load(device(tmp_path, wanted))
    assert load(device(tmp_path, wanted, missing="high")).streams
    assert load(device(tmp_path, MONITOR)).streams


def examples() -> list[str]:
    text = (ROOT / "docs" / "sensors.md").read_text()
    return re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_every_example_of_the_manual_is_a_configuration() -> None:
    head = 'fleet = "home"\ndevice = "watch"\noutbox = "o.sqlite"\nceiling = 1.0\n[broker]\nhost = "gw.example"\n'
    kinds = set()
    for example in examples():
        document = tomllib.loads(f'{head}[[streams]]\npolicy = "x.json"\n{example}')
        config = AgentConfig.model_validate_json(json.dumps(document))
        kinds.add(config.streams[0].sensor.kind)
        assert silence_warning(config.streams[0].sensor.model_dump()) == ""
    assert kinds == {"mqtt", "gpio", "bluetooth-heart-rate", "command"}


def test_every_key_of_these_sensors_is_in_the_manual() -> None:
    text = (ROOT / "docs" / "sensors.md").read_text()
    for sensor in ({**MQTT, **CHANGES}, {**PIN, "pull_up": True}, MONITOR, RUN):
        for name in stream(sensor).sensor.model_dump():
            assert re.search(rf"\b{name}\b", text), name

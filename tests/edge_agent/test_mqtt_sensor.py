"""A topic of a broker on this machine, a real Mosquitto: what is read, what is refused, and that nothing is said."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_agent import local_broker
from edge_agent.local_broker import LocalBrokerError, dial
from edge_agent.sensors.opening import InterpretedSensor, open_sensor
from edge_agent.sensors.source import ConfigError, Sensor, SensorUpdate
from fugu.host.addresses import is_local
from fugu.mqtt import Link
from tests.support.brokers import Mosquitto, free_port, wait_until
from tests.support.wiretap import Wiretap

SECRET = "71.53194726"
TOPIC, AVAILABILITY = "zigbee2mqtt/hall", "zigbee2mqtt/hall/availability"


class Device:
    """A local publisher."""

    def __init__(self, broker: Mosquitto) -> None:
        self._answered: list[int] = []
        self._link = Link(broker.broker, "device", on_published=lambda mid, _ok: self._answered.append(mid))
        self._link.start()
        wait_until(lambda: self._link.connected)

    def say(self, payload: str | bytes, topic: str = TOPIC, *, retain: bool = False) -> None:
        """Publish, and wait until the broker has it."""
        sent = payload if isinstance(payload, bytes) else payload.encode()
        mid = self._link.publish(topic, sent, retain=retain)
        wait_until(lambda: mid in self._answered)

    def stop(self) -> None:
        self._link.stop()


@pytest.fixture
def device(broker: Mosquitto) -> Iterator[Device]:
    device = Device(broker)
    yield device
    device.stop()


def config(port: int, **options: Any) -> dict[str, Any]:
    fields = {"kind": "mqtt", "topic": TOPIC, "path": "occupancy", "host": "127.0.0.1", "port": port, "username": None}
    fields |= {"password_file": None, "silence": "samples", "availability": None, "availability_path": None}
    return fields | {"online": "online", "fleet_broker": ["127.0.0.1", port ^ 1]} | options


class Ticks:
    """A sensor that is read tick after tick."""

    def __init__(self, sensor: Sensor) -> None:
        self.sensor = sensor
        self.tick = -1

    def __call__(self) -> object:
        """The reading of the next tick."""
        self.tick += 1
        reading = self.sensor.read(self.tick)
        return None if reading is None else reading.reveal()


def subscribed(broker: Mosquitto, times: int = 1) -> bool:
    """True if Mosquitto has heard of so many subscriptions."""
    return (broker.folder / "mosquitto.log").read_text().count("SUBSCRIBE") >= times


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    folder = tmp_path_factory.mktemp("local")
    with Mosquitto(
        folder, f"allow_anonymous true\nlog_type all\nlistener 0 {folder}/socket\nallow_anonymous true\n"
    ) as mosquitto:
        yield mosquitto


@pytest.mark.long
def test_of_samples_each_message_is_one_and_a_retained_one_is_none(broker: Mosquitto, device: Device) -> None:
    device.say('{"occupancy": true}', retain=True)
    read = Ticks(open_sensor(config(broker.port)))
    wait_until(lambda: subscribed(broker))
    for written, expected in (("false", "false"), ('"ON"', "ON"), ("21.50", "21.50")):
        device.say(f'{{"battery": 90, "occupancy": {written}}}', retain=True)
        wait_until(lambda expected=expected: read() == expected)
        assert read() is None, "it was read once"
    read.sensor.close()
    sensor = open_sensor(config(broker.port, availability=AVAILABILITY))
    updates: list[SensorUpdate] = []

    def heard_of_the_device() -> bool:
        device.say("online", AVAILABILITY)
        updates.append(sensor.poll(0))
        return bool(updates[-1].works)

    wait_until(heard_of_the_device)
    assert [update.reading for update in updates] == [None] * len(updates), (
        "what was retained came first, and was no sample"
    )


@pytest.mark.parametrize("silence", ["samples", "changes"])
def test_what_a_bridge_sends_again_is_no_sample_but_the_state(broker: Mosquitto, device: Device, silence: str) -> None:
    sensor = open_sensor(config(broker.port, silence=silence, availability=AVAILABILITY))
    sensor = sensor._source if isinstance(sensor, InterpretedSensor) else sensor
    updates: list[SensorUpdate] = []

    def is_online() -> bool:
        updates.append(sensor.poll(0))
        return bool(updates[-1].works)

    wait_until(lambda: subscribed(broker))
    now = time.time()
    for seconds, written, again in (
        (now - 600, "1", True),  # of a cache, at the bridge's start
        (now, "2", False),
        (now, "3", True),  # something else of the device has changed
        (now + 1, "4", False),
    ):
        updates.clear()
        device.say(f'{{"occupancy": {written}, "last_seen": {round(seconds * 1000)}}}')
        device.say("online", AVAILABILITY)
        wait_until(is_online)
        is_online()
        values = [update.reading.reveal() for update in updates if update.reading is not None]
        assert values == ([] if again and silence == "samples" else [written])
        device.say("offline", AVAILABILITY)
        wait_until(lambda: not is_online())


@pytest.mark.long
def test_of_changes_a_retained_message_is_the_state_and_a_broker_that_is_lost_ends_it(
    broker: Mosquitto, device: Device
) -> None:
    device.say('{"occupancy": true}', retain=True)
    read = Ticks(open_sensor(config(broker.port, silence="changes")))
    wait_until(lambda: read() == "true")
    assert [read() for _ in range(3)] == ["true"] * 3
    device.say('{"battery": 90}')
    device.say('{"occupancy": false}', retain=True)
    wait_until(lambda: read() == "false")
    broker.stop()
    wait_until(lambda: read() is None)
    wait_until(lambda: bool(read.sensor.trouble) or read() is not None)
    assert read.sensor.trouble == "its broker cannot be reached, or refuses the connection"
    broker.start()
    wait_until(lambda: read() == "false")
    assert read.sensor.trouble == ""
    read.sensor.close()


def test_readings_hold_while_the_device_is_available_and_are_no_sign_that_it_is(
    broker: Mosquitto, device: Device
) -> None:
    options = {"silence": "changes", "availability": AVAILABILITY, "availability_path": "state"}
    device.say('{"occupancy": true}', retain=True)
    sensor = open_sensor(config(broker.port, **options))
    read = Ticks(sensor)
    wait_until(lambda: read() is None and sensor._held_reading is not None)
    assert read() is None, "nobody has said that it is there"
    device.say('{"state": "online"}', AVAILABILITY, retain=True)
    wait_until(lambda: read() == "true")
    for gone in ('{"state": "offline"}', "online", '{"state": null}', ""):
        device.say(gone, AVAILABILITY)
        wait_until(lambda: read() is None)
        device.say('{"occupancy": false}')
        device.say('{"occupancy": true}')
        assert read() is None
        device.say('{"state": "online"}', AVAILABILITY)
        wait_until(lambda: read() == "true")


def test_a_malformed_message_is_a_reading_of_no_use_and_nothing_of_it_is_told(
    broker: Mosquitto, device: Device, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    read = Ticks(open_sensor(config(broker.port, silence="changes")))
    device.say(f'{{"occupancy": {SECRET}}}', retain=True)
    wait_until(lambda: read() == SECRET)
    for payload in (
        *(
            f'{{"occupancy": {SECRET}',
            f'{{"occupancy": [{SECRET}]}}',
            f"{SECRET}\0",
            '{"occupancy": null}',
            "[" * 60000,
        ),
        *(b"\xff\xfe" + SECRET.encode(), SECRET.encode() * 20000, b""),
    ):
        device.say(payload)
        wait_until(lambda: str(read()) == "nan")
        assert read.sensor.trouble == "a message on its topic is malformed"
        device.say(f'{{"occupancy": {SECRET}}}')
        wait_until(lambda: read() == SECRET)
        assert read.sensor.trouble == ""
    device.say(f'{{"other": {SECRET}}}')
    wait_until(lambda: read() == SECRET and bool(read.sensor.trouble))
    assert read.sensor.trouble == "a message on its topic has nothing at its path"
    read.sensor.close()
    traces = caplog.text + "".join(capfd.readouterr()) + repr(vars(read.sensor))
    assert SECRET not in traces


def test_the_sensor_says_nothing_but_what_it_wants_to_hear(broker: Mosquitto, device: Device) -> None:
    """Bytes that it sends: CONNECT without a will, SUBSCRIBE, acknowledgements, pings, DISCONNECT."""
    with Wiretap(broker.port) as tap:
        options = {"silence": "changes", "availability": AVAILABILITY}
        read = Ticks(open_sensor(config(tap.port, **options)))
        device.say('{"occupancy": true}', retain=True)
        device.say("online", AVAILABILITY, retain=True)
        wait_until(lambda: read() == "true")
        read.sensor.close()
        wait_until(lambda: bytes(tap.upstream).endswith(b"\xe0\x00"))
        sent = bytes(tap.upstream)
    kinds = []
    while sent:
        kinds.append(sent[0] >> 4)
        assert sent[1] < 128
        if kinds[-1] == 1:
            assert sent[9] == 0b10, "a clean session, no will, nobody's name"
        sent = sent[2 + sent[1] :]
    connect, subscribe, acknowledge, ping, disconnect = 1, 8, 4, 12, 14
    assert kinds[:2] == [connect, subscribe]
    assert kinds[-1] == disconnect
    assert set(kinds[2:-1]) <= {acknowledge, ping}


def test_a_unix_socket_and_a_name_of_this_machine(broker: Mosquitto, device: Device) -> None:
    device.say('{"occupancy": true}', retain=True)
    for host in (f"{broker.folder}/socket", "localhost"):
        read = Ticks(open_sensor(config(broker.port, host=host, silence="changes")))
        wait_until(lambda read=read: read() == "true")
        read.sensor.close()


@pytest.mark.long
def test_a_broker_that_wants_a_password(tmp_path: Path) -> None:
    with Mosquitto(tmp_path, "allow_anonymous false\n") as broker:
        (tmp_path / "password").write_text("secret\n")
        options = {"username": "fugu", "password_file": str(tmp_path / "password")}
        read = Ticks(open_sensor(config(broker.port, **options)))
        wait_until(lambda: read() is None and "refuses the connection" in read.sensor.trouble)
        read.sensor.close()
    with pytest.raises(ConfigError, match="cannot read the password file") as error:
        open_sensor(config(broker.port, username="fugu", password_file=str(tmp_path / "none")))
    assert "\n" not in str(error.value)


@pytest.mark.long
def test_the_fleet_s_broker_is_refused_at_each_connection(broker: Mosquitto) -> None:
    """By whatever address of this machine the fleet's is named; another port is another broker."""
    refusal = "its broker is that of the fleet, where nothing raw may be"
    mine = socket.gethostname()
    for host in ("127.0.0.1", "localhost", "127.3.2.1", "0.0.0.0", "::1", *([mine] if is_local(mine) else [])):
        with pytest.raises(LocalBrokerError, match=refusal):
            dial("127.0.0.1", broker.port, (host, broker.port))
    read = Ticks(open_sensor(config(broker.port, fleet_broker=["127.0.0.1", broker.port])))
    wait_until(lambda: read() is None and bool(read.sensor.trouble))
    assert read.sensor.trouble == refusal
    read.sensor.close()
    assert "CONNECT" not in (broker.folder / "mosquitto.log").read_text()
    dial("127.0.0.1", broker.port, ("127.0.0.1", broker.port + 1)).close()
    dial("127.0.0.1", broker.port, ("192.0.2.1", broker.port)).close()
    dial("127.0.0.1", broker.port, ("no-such-host.invalid", broker.port)).close()


@pytest.mark.parametrize("addresses", [["192.0.2.1"], ["127.0.0.1", "192.0.2.1"], ["::1", "2001:db8::1"]])
def test_every_address_of_a_name_is_looked_at_before_any_connection(
    addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()

    def resolved(host: str, *_: object, **__: object) -> list[Any]:
        assert host == "localhost"
        return [
            (socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port))
            for address in addresses
        ]

    def connected(*_: object) -> socket.socket:
        raise AssertionError("it must not come to that")

    monkeypatch.setattr(local_broker.socket, "getaddrinfo", resolved)
    monkeypatch.setattr(local_broker, "_connect", connected)
    with pytest.raises(LocalBrokerError, match="not on this machine"):
        dial("localhost", port, ("192.0.2.1", 1))

"""`fugu subscribe` as a process of its own, at a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO

import pytest

from contract import Estimate, SymbolFrame, estimate_topic, release_topic, symbols_topic
from contract.frames import encode_estimate, encode_symbols
from contract.measure_frames import (
    MeasureEstimate,
    MeasureFrame,
    Released,
    encode_measure,
    encode_measure_estimate,
)
from contract.release_frames import encode_release
from mqtt_link import Link, Subscription
from tests.support.brokers import Mosquitto, wait_until
from tests.support.example_frames import RELEASE_FRAME

ROOT = Path(__file__).parents[2]


class Device:
    """Publishes one new frame, and one estimate, at each call of `publish`."""

    def __init__(self, broker: Mosquitto) -> None:
        self.link = Link(broker.broker, client_id="device")
        self._first = count(step=3)

    def publish(self) -> None:
        first = next(self._first)
        frame = SymbolFrame(policy_version=1, previous=first - 1, first=first, symbols=b"\x00\x01\x01")
        self.link.publish(symbols_topic("home", "wrist", "heart"), encode_symbols(frame))
        estimate = Estimate(
            lag=0,
            first=first,
            probabilities=((0.25, 0.75),),
            most_likely=b"\x01",
            current_tick=first,
            current=(0.25, 0.75),
        )
        self.link.publish(estimate_topic("home", "wrist", "heart"), encode_estimate(estimate))


@contextmanager
def device(broker: Mosquitto) -> Iterator[Device]:
    running = Device(broker)
    running.link.start()
    try:
        wait_until(lambda: running.link.connected, what="the device's connection")
        yield running
    finally:
        running.link.stop()


def start(broker: Mosquitto, *words: str, stdout: IO[bytes] | int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "fugu", "subscribe", "--fleet", "home", "--broker", f"127.0.0.1:{broker.port}"]
    return subprocess.Popen([*command, *words], cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE)


def publish_until(running: Device, condition: Callable[[], object]) -> None:
    def step() -> object:
        running.publish()
        return condition()

    wait_until(step, what="the subscriber")


def test_json_lines_until_a_count(broker: Mosquitto) -> None:
    with device(broker) as running:
        process = start(broker, "--json", "--count", "8")
        publish_until(running, lambda: process.poll() is not None)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    readings = [json.loads(line) for line in out.splitlines()]
    assert len(readings) == 8
    symbols = [reading for reading in readings if reading["kind"] == "symbol"]
    estimates = [reading for reading in readings if reading["kind"] == "estimate"]
    assert symbols
    assert estimates
    for reading in symbols:
        assert list(reading) == ["kind", "device", "stream", "tick", "symbol", "shift"]
        assert (reading["device"], reading["stream"]) == ("wrist", "heart")
        assert reading["symbol"] == (0 if reading["tick"] % 3 == 0 else 1)
    for reading in estimates:
        assert list(reading) == ["kind", "device", "stream", "tick", "probabilities", "most_likely", "shift"]
        assert (reading["probabilities"], reading["most_likely"]) == ([0.25, 0.75], 1)


def test_one_kind_for_people(broker: Mosquitto) -> None:
    with device(broker) as running:
        process = start(broker, "--device", "wrist", "--stream", "heart", "--estimates", "--count", "2")
        publish_until(running, lambda: process.poll() is not None)
    out, _ = process.communicate()
    lines = out.decode().splitlines()
    assert len(lines) == 2
    assert all(line.startswith("wrist/heart tick ") for line in lines)
    assert all(line.endswith("most likely state 1, probabilities 0.2500 0.7500") for line in lines)


def test_releases_come_with_everything_that_is_known_about_them(broker: Mosquitto) -> None:
    with device(broker) as running:
        mid = running.link.publish(
            release_topic("home", "public", "active"), encode_release(RELEASE_FRAME), retain=True
        )
        assert mid is not None
        json_lines = start(broker, "--releases", "--json", "--count", "1")
        people = start(broker, "--stream", "hr", "--count", "1")
        publish_until(running, lambda: None not in (json_lines.poll(), people.poll()))
    out, err = json_lines.communicate()
    assert (json_lines.returncode, err) == (0, b"")
    reading = json.loads(out)
    assert list(reading)[:4] == ["kind", "time", "since", "name"]
    assert (reading["value_low"], reading["value_high"], reading["scale"]) == (0.1 + 0.2, -4.5, "41/2")
    assert people.communicate()[0].decode() == (
        "release active, hr ticks 7200..10799, 3 device(s): low 0.3 (-3..4); high -4.5 (-9..1); "
        "epsilon 0.1 by mqm-exact, entry 12\n"
    )


def test_releases_of_one_device_are_a_contradiction() -> None:
    command = [sys.executable, "-m", "fugu", "subscribe", "--fleet", "home", "--releases", "--device", "watch"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "either --releases or --device" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(broker: Mosquitto, tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "out"
    with device(broker) as running, file.open("wb") as out:
        process = start(broker, "--json", stdout=out)
        publish_until(running, lambda: file.stat().st_size)
        process.send_signal(number)
        _, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert all(json.loads(line)["device"] == "wrist" for line in file.read_bytes().splitlines())


def test_a_reader_that_leaves_is_no_error(broker: Mosquitto) -> None:
    with device(broker) as running:
        process = start(broker)
        assert process.stdout is not None
        process.stdout.close()
        publish_until(running, lambda: process.poll() is not None)
    assert process.stderr is not None
    assert (process.returncode, process.stderr.read()) == (0, b"")


def test_a_broker_that_is_down_is_named_after_the_timeout() -> None:
    command = [sys.executable, "-m", "fugu", "subscribe", "--fleet", "home", "--broker", "127.0.0.1:1"]
    done = subprocess.run([*command, "--timeout", "5"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "",
        "fugu: no broker at 127.0.0.1:1: Connection refused\n",
    )


def test_points_and_their_estimates(broker: Mosquitto) -> None:
    frame = MeasureFrame(1, -1, 0, 2, (Released(3, (4, -1)), Released(0, (2, 2))))
    estimate = MeasureEstimate(0, 0, 2, ((1.5, 2.0),), ((1.0, 0.25, 2.0),), (4,), (-3.0,))
    lagged = MeasureEstimate(8, 0, 2, ((1.25, 2.0),), ((0.5, 0.25, 1.0),), (4,), (-3.0,))
    with device(broker) as running:
        process = start(broker, "--count", "4")

        def step() -> object:
            running.link.publish(symbols_topic("home", "wrist", "place"), encode_measure(frame))
            running.link.publish(estimate_topic("home", "wrist", "place"), encode_measure_estimate(estimate))
            running.link.publish(estimate_topic("home", "wrist", "place"), encode_measure_estimate(lagged))
            return process.poll() is not None

        wait_until(step, what="the subscriber")
    out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert {line.decode() for line in out.splitlines()} == {
        "wrist/place tick 0: point 4 -1, from table 3",
        "wrist/place tick 1: point 2 2, from table 0",
        "wrist/place tick 0: measurement 1.5 2, covariance 1 0.25 2",
        "wrist/place tick 0, 8 ticks later: measurement 1.25 2, covariance 0.5 0.25 1",
    }


def test_a_frame_of_points_counts_once(broker: Mosquitto) -> None:
    frame = encode_measure(MeasureFrame(1, -1, 0, 1, (Released(0, (4,)),)))
    topic = symbols_topic("home", "wrist", "place")
    subscription = Subscription(broker.broker, fleet="home")
    assert [reading.tick for reading in subscription.decode(topic, frame)] == [0]
    assert subscription.decode(topic, frame) == []
    assert subscription.decode(estimate_topic("home", "wrist", "place"), frame) == []
    assert subscription.rejected == {"unknown_schema": 1}

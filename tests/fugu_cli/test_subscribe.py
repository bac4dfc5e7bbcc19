"""`fugu subscribe` as a process of its own, at a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import IO

import pytest

from fugu.contract.chains import BoundedChains
from fugu.contract.descriptions import Description, describe
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.guarantee import Guarantee
from fugu.contract.history import History, Noise, Span
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.topics import topic_of
from fugu.contract.windows import Window
from fugu.mqtt import Link
from fugu.mqtt.readings import DescriptionReading
from fugu_cli.view.readings import ReadingLines, description_lines
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.example_frames import (
    COUNT,
    HISTOGRAM,
    PLACE_ESTIMATE,
    RELEASE_FRAME,
    STATE_ESTIMATE,
    VALUE_ESTIMATE,
    VECTOR_ESTIMATE,
)
from tests.support.scenes import policy

ROOT = Path(__file__).parents[2]


class Device:
    """Publishes one new frame, and one estimate, at each call of `publish`."""

    def __init__(self, broker: Mosquitto) -> None:
        self.link = Link(broker.broker, client_id="device")
        self._first = count(step=3)

    def publish(self) -> None:
        first = next(self._first)
        frame = SymbolFrame(policy_version=1, previous=first - 1, first=first, symbols=b"\x00\x01\x01")
        self.link.publish(topic_of("symbols", "home", "wrist", "heart"), frame.encode())
        self.link.publish(topic_of("estimate", "home", "wrist", "heart"), replace(STATE_ESTIMATE, tick=first).encode())


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
    environment = {**os.environ, "TZ": "XYZ-2"}  # two hours before Greenwich
    return subprocess.Popen([*command, *words], cwd=ROOT, env=environment, stdout=stdout, stderr=subprocess.PIPE)


def publish_until(running: Device, condition: Callable[[], object]) -> None:
    def step() -> object:
        running.publish()
        return condition()

    wait_until(step, what="the subscriber")


def test_json_lines_until_a_count(broker: Mosquitto) -> None:
    with device(broker) as running:
        process = start(broker, "--json", "--count", "8")
        publish_until(running, lambda: process.poll() is not None)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, b"")
    readings = [json.loads(line) for line in out.splitlines()]
    assert len(readings) == 8
    symbols = [reading for reading in readings if reading["kind"] == "symbol"]
    estimates = [reading for reading in readings if reading["kind"] == "estimate"]
    assert symbols
    assert estimates
    for reading in symbols:
        assert list(reading) == ["kind", "device", "stream", "tick", "symbol", "shift", "time", "label"]
        assert (reading["device"], reading["stream"]) == ("wrist", "heart")
        assert reading["symbol"] == (0 if reading["tick"] % 3 == 0 else 1)
        assert (reading["time"], reading["label"]) == (None, None)
    for reading in estimates:
        message = json.loads(replace(STATE_ESTIMATE, tick=reading["tick"]).encode())
        assert reading == {"kind": "estimate", "device": "wrist", "stream": "heart", **message}
        assert list(reading)[3:] == list(message)


def test_one_kind_for_people(broker: Mosquitto) -> None:
    with device(broker) as running:
        process = start(broker, "--device", "wrist", "--stream", "heart", "--only", "estimates", "--count", "2")
        publish_until(running, lambda: process.poll() is not None)
    out, _ = process.communicate(timeout=PATIENCE)
    line = "2026-03-01 09:30:00.250  wrist/heart: state on with probability 90 %; since 09:29:01.250 off 25 %, on 75 %"
    assert out.decode().splitlines() == [line] * 2


def test_releases_come_with_everything_that_is_known_about_them(broker: Mosquitto) -> None:
    with device(broker) as running:
        mid = running.link.publish(topic_of("release", "home", "public", "active"), RELEASE_FRAME.encode(), retain=True)
        assert mid is not None
        json_lines = start(broker, "--only", "releases", "--json", "--count", "1")
        people = start(broker, "--stream", "hr", "--count", "1")
        publish_until(running, lambda: None not in (json_lines.poll(), people.poll()))
    out, err = json_lines.communicate(timeout=PATIENCE)
    assert (json_lines.returncode, err) == (0, b"")
    reading = json.loads(out)
    assert list(reading)[:4] == ["kind", "time", "since", "name"]
    assert reading == {"kind": "release", **json.loads(RELEASE_FRAME.encode())}
    assert people.communicate(timeout=PATIENCE)[0].decode() == (
        "2026-03-01 04:00:00 to 05:00:00  release active, hr of 3 devices: low 0.3 (-3 to 4), high -4.5 (-9 to 1) "
        "ticks; epsilon 0.1 about any 61 ticks in a row for public, entry 12\n"
    )


def test_releases_of_one_device_are_a_contradiction() -> None:
    command = [sys.executable, "-m", "fugu", "subscribe", "--fleet", "home", "--only", "releases", "--device", "watch"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "either --only releases or --device" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(broker: Mosquitto, tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "out"
    with device(broker) as running, file.open("wb") as out:
        process = start(broker, "--json", stdout=out)
        publish_until(running, lambda: file.stat().st_size)
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, b"")
    assert all(json.loads(line)["device"] == "wrist" for line in file.read_bytes().splitlines())


def test_a_reader_that_leaves_is_no_error(broker: Mosquitto) -> None:
    with device(broker) as running:
        process = start(broker)
        process.stdout.close()
        publish_until(running, lambda: process.poll() is not None)
    assert (process.returncode, process.stderr.read()) == (0, b"")


@pytest.mark.long
def test_a_broker_that_is_down_is_named_and_waited_for() -> None:
    command = [sys.executable, "-m", "fugu", "subscribe", "--fleet", "home", "--broker", "127.0.0.1:1"]
    done = subprocess.run([*command, "--timeout", "3.5"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "fugu: no broker at 127.0.0.1:1: Connection refused; waiting for fleet home\n"
        "fugu: no broker at 127.0.0.1:1: Connection refused\n"
    )


def test_a_fleet_that_is_not_there_is_said_and_waited_for(broker: Mosquitto) -> None:
    process = start(broker, "--count", "1")
    line = process.stderr.readline().decode()
    assert line == f"fugu: nothing from 127.0.0.1:{broker.port} in 3 s; waiting for fleet home\n"
    with device(broker) as running:
        publish_until(running, lambda: process.poll() is not None)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err, len(out.splitlines())) == (0, b"", 1)


def described() -> Description:
    """A stream of two states with windows, on the same day as the other examples."""
    window = {"name": "hour", "length": 3600, "stride": 3600, "start": 0, "states": ["on"], "scale": "20"}
    document = json.loads(describe(policy(device="wrist", stream="door")).encode())
    shape = {"epoch": "2026-03-01T00:00:00Z", "states": ["off", "on"], "windows": [window], "kind": "both"}
    return Description.model_validate_json(json.dumps({**document, **shape}))


def test_descriptions_that_the_broker_keeps_date_and_name_what_comes_live(broker: Mosquitto) -> None:
    description = described()
    point = MeasureFrame(1, -1, 0, 2, (Released(3, (4, -1)),)).encode()
    symbols = SymbolFrame(1, 7199, 7200 + 64, b"\1", shift=64).encode()
    window = WindowFrame(1, "hour", -1, 0, 64, 3600, 3590, (1807,), 64).encode()
    messages = {
        topic_of("symbols", "home", "wrist", "door"): [symbols],
        topic_of("symbols", "home", "wrist", "place"): [point],
        topic_of("window", "home", "wrist", "door"): [window],
        topic_of("estimate", "home", "wrist", "place"): [PLACE_ESTIMATE.encode()],
        topic_of("estimate", "home", "wrist", "value"): [VALUE_ESTIMATE.encode()],
        topic_of("estimate", "home", "wrist", "vector"): [VECTOR_ESTIMATE.encode()],
        topic_of("count", "home", "wrist", "door"): [frame.encode() for frame in (COUNT, HISTOGRAM)],
    }
    expected = {
        "2026-03-01 04:00:00  wrist/door: symbol on (randomised)",
        "tick 0  wrist/place: point 4 -1 (randomised)",
        "2026-03-01 02:00:00 to 03:00:00  wrist/door: window hour: on 1807 of 3590 observed ticks (randomised)",
        "2026-03-01 09:30:00.250  wrist/place: place 46.050000, 14.500000 within 174 m, hidden among 12",
        "2026-03-01 09:30:00.250  wrist/value: measurement 20.5 (19 to 22) C, hidden among 3, "
        "maybe no better than a guess",
        "2026-03-01 09:30:00.250  wrist/vector: measurement 1.5 (0.5 to 2.5), 2 (1 to 3) m, hidden among 4, "
        "maybe no better than a guess",
        "2026-03-01 08:30:00.250 to 09:30:00.250  wrist/door: window hourly: on + opening -3 (-50 to 44) ticks "
        "in 3600 observed ticks, intervals of 95 %",
        "2026-03-01 08:30:00.250 to 09:30:00.250  wrist/door: window states: off 3000 (2950 to 3050), on 597 (547 to "
        "647) ticks in 3600 observed ticks, intervals of 95 %, maybe no better than a guess",
    }
    with device(broker) as running:
        running.link.publish(topic_of("description", "home", "wrist", "door"), description.encode(), retain=True)
        process = start(broker, "--count", str(len(expected)))

        def step() -> object:
            for topic, payloads in messages.items():
                for payload in payloads:
                    running.link.publish(topic, payload)
            return process.poll() is not None

        wait_until(step, what="the subscriber")
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, b"")
    assert set(out.decode().splitlines()) == expected


def test_descriptions_are_shown_to_people_and_to_programs(broker: Mosquitto) -> None:
    description = described()
    with device(broker) as running:
        running.link.publish(topic_of("description", "home", "wrist", "door"), description.encode(), retain=True)
        people, programs = (
            start(broker, "--only", "descriptions", "--count", "1", *words) for words in ([], ["--json"])
        )
        wait_until(lambda: None not in (people.poll(), programs.poll()))
    shown = json.loads(programs.communicate(timeout=PATIENCE)[0])
    assert {**shown, "description": ...} == {
        "kind": "description",
        "device": "wrist",
        "stream": "door",
        "description": ...,
    }
    assert shown["description"] == json.loads(description.encode())
    lines = people.communicate(timeout=PATIENCE)[0].decode().splitlines()
    assert lines[:3] == [
        "wrist/door, version 1: randomised symbols, noisy counts of windows",
        "  states: off, on; a tick every 1 s, tick 0 at 2026-03-01T00:00:00Z",
        "  window hour: ticks of on over 1 h, every 1 h, noise of scale 20",
    ]
    assert "  everything: not protected for a single tick, informed adversary" in "\n".join(lines)
    for words in (
        *("  rho0 = Pr(symbol 1 | state 0): 0.", "  rho1 = Pr(symbol 0 | state 1): 0."),
        *("    10 minutes: not protected", "    1 hour: not protected", "    8 hours: not protected"),
        *("  Protected: ", "  good for "),
    ):
        assert any(line.startswith(words) for line in lines), words


def test_what_a_description_says_as_another_device_s_did_is_one_line() -> None:
    lines = ReadingLines()
    shown = [
        lines(
            DescriptionReading(
                device, "door", described().model_copy(update={"device": device, "period_seconds": period})
            )
        )
        for device, period in (("wrist", 1.0), ("ring", 1.0), ("ring", 2.0), ("band", 2.0))
    ]
    assert [len(text.splitlines()) > 1 for text in shown] == [True, False, True, False]
    assert shown[3] == "band/door, version 1: randomised symbols, noisy counts of windows, as of ring"


def test_a_description_says_which_stretch_is_promised_since_when_and_both_numbers() -> None:
    window = Window(name="day", length=1440, stride=1440, states=("level 1",), scale="64")
    promise = Guarantee(epsilon=1.0, adversary="universal", stretch_ticks=61)
    changes = {"table": None, "windows": (window,), "guarantee": promise, "frame_ticks": 1}
    draft = policy(chains=BoundedChains(states=2, odds_ratio=9.0), period_us=60_000_000).model_copy(update=changes)
    description = describe(draft)
    assert description.guarantee.holds_always
    assert not any("change of policy" in line for line in description_lines(description))
    unknown = History((Span(2, Noise.of(draft), 1000),), complete=False)
    description = describe(draft.model_copy(update={"version": 2}), history=unknown)
    assert description.guarantee.since == 1007
    assert Description.decode(description.encode()) == description
    lines = [*description_lines(description)]
    assert any(
        line.startswith("  everything: epsilon 1 for any 61 ticks in a row, universal adversary") for line in lines
    )
    assert "    true of what begins from tick 1007 on, for changes of policy; elsewhere epsilon 3.1816" in lines
    rows = dict(line.strip().split(": ") for line in lines if line.startswith("    ") and ": " in line)
    assert rows["1 hour"] == "epsilon 1; 0.953125 if the attacker already knows the rest"
    assert rows["a single tick"] == "epsilon 0.0625; 0.015625 if the attacker already knows the rest"
    assert rows["the same hour on 14 days"] == "not protected"
    assert description.guarantee.tick_epsilon == pytest.approx(0.0625)


@pytest.mark.parametrize("name", ["\x1b[2J", "a\nb", "\u202eevil"])
def test_what_others_name_their_states_cannot_steer_a_terminal(broker: Mosquitto, name: str) -> None:
    fields = json.loads(STATE_ESTIMATE.encode())
    fields[f"share_{name}"] = fields.pop("share_on")
    evil = json.dumps({**fields, "state": name}).encode()
    with device(broker) as running:
        process = start(broker, "--only", "estimates", "--count", "1")

        def step() -> object:
            running.link.publish(topic_of("estimate", "home", "wrist", "door"), evil)
            running.publish()
            return process.poll() is not None

        wait_until(step, what="the subscriber")
    (line,) = process.communicate(timeout=PATIENCE)[0].decode().splitlines()
    assert line.isprintable()
    assert "heart" in line

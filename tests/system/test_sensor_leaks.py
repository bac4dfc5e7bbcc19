"""Nothing of a sensor's source, however it fails, is in a packet, a file, a log or a status."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from edge_agent.local_control import LocalStatusError, ask_status, status_words
from fugu.mqtt import Link
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.gateway_files import toml
from tests.support.heart_monitor import ADDRESS
from tests.support.processes import policy
from tests.support.wiretap import Wiretap

ROOT = Path(__file__).parents[2]
CANARIES = ("71.53194726", "canary-7f3a9c", "48879")
NUMBER, NAME, RATE = CANARIES
PROGRAM = f"""
import sys, threading, time
import bleak, gpiozero
from gpiozero.pins.mock import MockFactory
from edge_agent.__main__ import main
from edge_agent.sensors import heart_rate
from tests.support.heart_monitor import Monitor, client_of

class Odd(Monitor):
    def came(self, lost):
        super().came(lost)
        if self.connections % 2:
            raise ValueError("{NAME}", {NUMBER}, {RATE})

heart_rate.RETRY_SECONDS = 0.05
monitor = Odd(heart_rate.MEASUREMENT)
bleak.BleakClient = client_of(monitor)
gpiozero.Device.pin_factory = MockFactory()

class Pin(gpiozero.DigitalInputDevice):
    turn = 0

    @property
    def value(self):
        Pin.turn += 1
        if Pin.turn % 3 == 0:
            raise OSError("{NAME}", {NUMBER}, {RATE})
        return Pin.turn % 2

gpiozero.DigitalInputDevice = Pin

def beat():
    while True:
        for _ in range(50):
            time.sleep(0.005)
            if monitor.notifies:
                monitor.say(b"\\x01" + ({RATE}).to_bytes(2, "little"))
                monitor.say(b"\\x01")
        if monitor.notifies:
            monitor.leave()
            time.sleep(0.2)
            monitor.reachable = True

threading.Thread(target=beat, daemon=True).start()
sys.exit(main(sys.argv[1:]))
"""
FAILING = f"echo {NUMBER}; echo {NAME} >&2; test $(($(date +%s%N) / 1000000 % 2)) = 0"
PAYLOADS = (
    *(f'{{"v": {NUMBER}}}', f'{{"v": "{NAME}"}}', f'{{"v": ["{NAME}", {NUMBER}]}}', f'{{"v": {NUMBER}', NAME),
    *(f'{{"{NAME}": {NUMBER}}}', '{"v": null}', NUMBER * 10000, "[" * 50000 + NAME, ""),
)


def device(folder: Path, fleet: int, local: int) -> Path:
    topic = {"kind": "mqtt", "topic": "hall", "path": "v", "port": local}
    sensors: dict[str, dict[str, Any]] = {
        "samples": topic,
        "changes": {**topic, "silence": "changes"},
        "command": {"kind": "command", "command": ["/bin/sh", "-c", FAILING]},
        "lines": {
            **{"kind": "command", "runs": "always"},
            "command": ["/bin/sh", "-c", f"while echo {NUMBER}; do echo {NAME} >&2; sleep .01; done"],
        },
        "call": {"kind": "call", "target": "driver:read"},
        "pin": {"kind": "gpio", "pin": 17, "active_state": True},
        "heart": {"kind": "bluetooth-heart-rate", "address": ADDRESS},
    }
    driver = f"def read():\n    raise ValueError('{NAME}', {NUMBER})\n"
    (folder / "driver.py").write_text(driver)  # an exception often holds the value that could not be handled
    lines = ['fleet = "home"\ndevice = "watch"\noutbox = "outbox.sqlite"\nceiling = 1.0\nforget = "puback"']
    lines.append(f"status_seconds = 0.2\n[clock]\ntrusted = true\n[broker]\nport = {fleet}\nmax_backoff = 1")
    for name, sensor in sensors.items():
        document = policy(epoch_us=time.time_ns() // 1000, period_us=20_000).model_copy(update={"stream": name})
        (folder / f"{name}.json").write_text(document.to_json())
        lines.append(f'[[streams]]\npolicy = "{name}.json"\nsensor = {toml(sensor)}')
    (folder / "agent.toml").write_text("\n".join(lines) + "\n")
    return folder / "agent.toml"


def status(folder: Path) -> str:
    """Words of the agent to those at the device, as data and as lines; empty before it has any."""
    try:
        status = ask_status(folder / "outbox.sqlite")
    except LocalStatusError:
        return ""
    return json.dumps(status) + status_words(status, {})


@pytest.mark.long
def test_no_reading_of_any_sensor_leaves_the_process(
    broker: Mosquitto, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    statuses: list[str] = []
    with Mosquitto(tmp_path_factory.mktemp("local")) as local, Wiretap(broker.port) as tap:
        config = device(tmp_path, tap.port, local.port)
        log = tmp_path / "agent.log"
        with log.open("wb") as output:
            agent = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, "--verbose", str(config)],
                stdout=output,
                stderr=output,
                env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "BLEAK_LOGGING": "1"},
                cwd=tmp_path,
            )
        hall = Link(local.broker, "hall")
        hall.start()
        troubles = (b"malformed", b"nothing at its path", b"ends with an error", b"pin cannot be read", b"monitor")
        troubles += (b"its function raises an exception",)

        def all_told() -> bool:
            for payload in PAYLOADS:
                hall.publish("hall", payload.encode())
                time.sleep(0.03)
            statuses.append(status(tmp_path))
            return len(tap.upstream) > 5000 and all(trouble in log.read_bytes() for trouble in troubles)

        wait_until(all_told)
        local.kill()
        wait_until(lambda: b"its broker cannot be reached" in log.read_bytes())
        statuses.append(status(tmp_path))
        agent.terminate()
        assert agent.wait(PATIENCE) == 0
        hall.stop()
        places = {"what was sent": bytes(tap.upstream), "statuses": "".join(statuses).encode()}
    assert b"its broker cannot be reached" in places["statuses"]
    assert b"cannot be reached" not in places["what was sent"], "what troubles a sensor stays on the device"
    files = [file for file in tmp_path.rglob("*") if file.is_file() and file != config and "driver" not in file.name]
    places |= {str(file): file.read_bytes() for file in files}
    assert str(tmp_path / "outbox.sqlite") in places
    for canary in CANARIES:
        with_canary = [place for place, data in places.items() if canary.encode() in data]
        assert with_canary == [], f"{canary} in {with_canary}"
    for word in (b"Traceback", b"ValueError", b"OSError", b"Exception"):
        assert word not in log.read_bytes(), "even the type of an exception may tell of a reading"

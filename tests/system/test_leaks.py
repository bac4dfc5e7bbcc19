"""Nothing raw leaves: not in a packet, a file, a log or an error."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from fugu.contract.windows import Window
from fugu.mqtt import Broker
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.processes import AgentProcess, GatewayProcess, Recorder, policy, write_device
from tests.support.wiretap import CANARIES, Wiretap, traces


def test_no_reading_is_in_any_packet_file_log_or_error(broker: Mosquitto, tmp_path: Path) -> None:
    night = tmp_path / "night.csv"
    night.write_text("value\n" + "\n".join(CANARIES * 40) + "\n")
    windows = (
        Window(name="high", length=40, stride=10, states=("high",), scale="20"),
        Window(name="bars", length=30, stride=30, states="histogram", scale="7/3"),
    )
    device = policy(epoch_us=time.time_ns() // 1000, period_us=2000, windows=windows, epsilon=20.0)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "watch.json").write_text(device.to_json())
    gateway = GatewayProcess(tmp_path, broker.port)
    with Wiretap(broker.port) as tap:
        address = Broker(port=tap.port, max_backoff=1)
        config = write_device(tmp_path / "watch", device, night, "value", address, loop=True, drain_seconds=PATIENCE)
        agent = AgentProcess(config, tmp_path / "agent.log")
        wait_until(lambda: len(gateway.frames()) > 30)
        tap.cut()
        reached = len(gateway.frames())
        wait_until(lambda: len(gateway.frames()) > reached + 30)
        agent.process.kill()
        agent.process.wait(PATIENCE)
        during = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
        sent = len(tap.upstream)
        agent = AgentProcess(config, tmp_path / "agent.log")
        wait_until(lambda: len(tap.upstream) > sent + 1000)
        assert agent.stop(PATIENCE) == 0
        captured = bytes(tap.upstream), bytes(tap.downstream)
    assert {frame.window for _, frame in gateway.windows()} == {"high", "bars"}
    gateway.stop()
    after = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert len(captured[0]) > 2000
    assert any(file.name.endswith("-wal") for file in during)
    files = [data for file, data in during.items() if file.name == "outbox.sqlite.windows"]
    assert len(files) == 1, "the file of windows under way is searched"
    places = [("upstream", captured[0]), ("downstream", captured[1])]
    places += [(str(file), data) for files in (during, after) for file, data in files.items() if file != night]
    for canary in CANARIES:
        for trace in traces(canary):
            with_trace = [place for place, data in places if trace in data]
            assert with_trace == [], f"{canary} as {trace!r} in {with_trace}"


def test_the_search_for_canaries_finds_one_that_is_there() -> None:
    """The tests that search can fail."""
    for canary in CANARIES[:-1]:
        assert any(trace in canary.encode() + b" and more" for trace in traces(canary))


def test_a_sensor_function_that_raises_its_reading_does_not_print_it(broker: Mosquitto, tmp_path: Path) -> None:
    """A driver's exception often holds the value that it could not handle; its type, whether it was too large."""
    (tmp_path / "driver.py").write_text(
        "def read():\n    raise ValueError('cannot handle canary-7f3a9c', 71.53194726)\n"
    )
    device = policy(epoch_us=time.time_ns() // 1000, period_us=5000)
    recorder = Recorder(Broker(port=broker.port))
    with Wiretap(broker.port) as tap:
        config = write_device(
            tmp_path / "watch",
            device,
            tmp_path / "none",
            "value",
            Broker(port=tap.port),
            forget="puback",
            status_seconds=0.1,
        )
        lines = config.read_text().partition("[streams.sensor]")[0]
        config.write_text(lines + '[streams.sensor]\nkind = "call"\ntarget = "driver:read"\n[clock]\ntrusted = true\n')
        log = tmp_path / "agent.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "edge_agent", "--verbose", str(config)],
                stdout=output,
                stderr=output,
                env={"PYTHONPATH": f"{Path(__file__).parents[2]}:{tmp_path}", "PATH": ""},
            )
        wait_until(lambda: len(recorder.payloads) >= 3 and b"raises an exception" in log.read_bytes())
        process.terminate()
        assert process.wait(PATIENCE) == 0
        everything = bytes(tap.upstream) + log.read_bytes()
    recorder.link.stop()
    assert b"ValueError" not in everything, "even the type of an exception may tell of a reading"
    assert b"exception" not in bytes(tap.upstream), "what troubles a sensor stays on the device"
    for canary in ("canary-7f3a9c", "71.53194726"):
        assert not any(trace in everything for trace in traces(canary))

"""Nothing raw leaves: not in a packet, a file, a log or an error."""

from __future__ import annotations

import time
from pathlib import Path

from fugu.contract.windows import Window
from fugu.mqtt import Broker
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.processes import AgentProcess, GatewayProcess, policy, write_device
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
        assert agent.stop() == 0
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

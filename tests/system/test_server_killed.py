"""The database server is killed again and again: the gateway waits, devices send again, and nothing is lost."""

from __future__ import annotations

import random
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from edge_agent.outbox import Outbox
from firmware_sim.devices import simulate_recording
from fugu.mqtt import Broker
from gateway.loop.gateway import Gateway
from gateway.store.location import Server
from gateway.store.store import Store
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.gateway_files import gateway_config
from tests.support.postgres import Postgres
from tests.support.processes import AgentProcess, Recorder, by_tick, policy, write_device


def symbols_in(server: Server) -> dict[int, int]:
    """The symbol of every tick that is durable."""
    with closing(Store(server, create=False)) as store:
        number = store.stream_id("watch", "hr")
        return {} if number is None else by_tick(store.symbols.holding(number, 0, 1 << 40))


@pytest.mark.long
@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.soak)])
def test_a_server_killed_while_batches_are_written_loses_nothing(broker: Mosquitto, tmp_path: Path, kills: int) -> None:
    device = policy(epoch_us=time.time_ns() // 1000, period_us=2_000)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "watch.json").write_text(device.to_json())
    simulate_recording(tmp_path / "night.csv", device, [0, 0, 1] * 1000)
    moments, pause = random.Random(18), threading.Event()
    recorder = Recorder(Broker(port=broker.port))
    with Postgres() as postgres:
        settings = gateway_config("home", Broker(port=broker.port), postgres.server, tmp_path / "policies")
        gateway = Gateway(settings)
        gateway.start()
        link = Broker(port=broker.port, max_backoff=1)
        config = write_device(
            *(tmp_path / "watch", device, tmp_path / "night.csv", "value", link), loop=True, drain_seconds=PATIENCE
        )
        agent = AgentProcess(config, tmp_path / "agent.log")
        for _ in range(kills):
            stored, failed = gateway.counters["stored"], gateway.counters["not_stored"]
            wait_until(lambda stored=stored: gateway.counters["stored"] > stored + 10, "frames")
            pause.wait(moments.uniform(0.0, 0.2))
            postgres.kill()
            wait_until(lambda failed=failed: gateway.counters["not_stored"] > failed, "loss")
            postgres.start()
        stored = gateway.counters["stored"]
        wait_until(lambda: gateway.counters["stored"] > stored + 10, "frames after all")
        assert agent.stop() == 0, (tmp_path / "agent.log").read_text()
        with closing(Outbox(tmp_path / "watch" / "outbox.sqlite", "home", "watch")) as outbox:
            assert outbox.frames.depth() == 0
        ticks_stored = symbols_in(postgres.server)
        gateway.stop()
        assert not gateway.failed.is_set()
        assert sorted(ticks_stored) == list(range(min(ticks_stored), max(ticks_stored) + 1)), "ticks are missing"
        assert ticks_stored == by_tick(recorder.frames())

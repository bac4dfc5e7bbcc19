"""The gateway on a real broker, in real processes, through everything that can happen to them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fugu.chains.inference import fixed_lag_marginals
from fugu.contract.errors import Reason
from fugu.contract.reports import AlarmCode, Health
from fugu.contract.sentences import unix_us
from fugu.contract.windows import Window
from gateway.loop.gateway import Gateway
from gateway.loop.inbox import MAX_PAYLOAD_BYTES, MAX_POINTS_BYTES
from gateway.parts.describe import share_due_us
from gateway.store.store import StoreError
from tests.support.brokers import Mosquitto, wait_until
from tests.support.gateway_files import gateway_config
from tests.support.gateway_service import Device, GatewayProcess, gateway_here
from tests.support.processes import policy
from tests.support.scenes import MODELS, frames, laid_out, write_policies

LAG = 8


@pytest.fixture
def gateway(broker: Mosquitto, tmp_path: Path) -> Iterator[Gateway]:
    """A gateway in this process."""
    folder = write_policies(tmp_path / "policies")
    settings = gateway_config("home", broker.broker, tmp_path / "s.sqlite", folder, LAG)
    assert Gateway(settings).is_alive  # a part of a cluster is asked while it waits to start
    with gateway_here(settings) as running:
        yield running
    assert not running.failed.is_set()


def greeted(broker: Mosquitto) -> Device:
    """A device that knows that the gateway has subscribed: the broker throws away what is sent before."""
    device = Device(broker)
    device.say_birth()
    wait_until(device.answered_after(0))
    return device


def test_a_subscriber_gets_every_estimate_and_the_device_its_watermark(broker: Mosquitto, gateway: Gateway) -> None:
    sequence = frames([10, 3, 25, 1, 12], gaps=[0, 0, 2])
    device = greeted(broker)
    for sent, frame in enumerate(sequence, 1):  # one by one: of those that come together only the newest is told
        device.send([frame])
        wait_until(lambda sent=sent: not device.outbox and len(device.estimates) == sent)
    model, symbols = MODELS[1], laid_out(sequence)
    filtered = fixed_lag_marginals(symbols, model.initial, model.transition, model.emission, 0)
    for frame, estimate in zip(sequence, device.estimates, strict=True):
        seen = fixed_lag_marginals(symbols[: frame.last + 1], model.initial, model.transition, model.emission, LAG)
        share = seen[frame.first :].mean(axis=0)
        assert list(estimate.shares.values()) == pytest.approx(share, abs=1e-6)
        likely = int(np.argmax(filtered[frame.last]))
        assert (estimate.state, estimate.tick, estimate.ticks) == (f"level {likely}", frame.last, len(frame.symbols))
        assert estimate.probability == pytest.approx(filtered[frame.last][likely], abs=1e-6)
        assert (unix_us(estimate.since), unix_us(estimate.time)) == (frame.first * 1_000_000, frame.last * 1_000_000)
        assert (estimate.epsilon, estimate.adversary, estimate.useful) == (50.0, "informed", False)
    wait_until(lambda: gateway.counters["estimates"] == len(sequence))
    assert gateway.counters["stored"] == len(sequence)
    device.stop()


def test_what_is_too_large_is_an_alarm_with_its_device_and_an_invented_name_goes_nowhere(
    broker: Mosquitto, gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    def names() -> list[tuple[str, ...]]:
        return [alarm.names for alarm in gateway._monitor.latest.alarms if alarm.code == AlarmCode.MALFORMED]

    device = greeted(broker)
    for size in (MAX_PAYLOAD_BYTES + 1, MAX_POINTS_BYTES + 1):
        for name in ("\u202ered", "n" * 300):
            device.say(f"fugu/2/home/{name}/symbols/hr", bytes(size))
    wait_until(lambda: gateway.counters["oversized"] == 4)
    wait_until(lambda: names() == [()])
    device.say("fugu/2/home/ring/symbols/hr", bytes(MAX_POINTS_BYTES + 1))
    wait_until(lambda: names() == [("ring",)])
    device.say("fugu/2/home/watch/window/hr", bytes(MAX_PAYLOAD_BYTES + 1))
    wait_until(lambda: names() == [("ring", "watch")])
    Health.decode(gateway._monitor.latest.encode())
    gateway._note_refusal("fugu/2/home/n n/symbols/hr", Reason.OVERSIZED)
    assert "\u202e" not in caplog.text
    device.stop()


def test_sigterm_stores_what_has_arrived_and_tells_what_happened(broker: Mosquitto, tmp_path: Path) -> None:
    write_policies(tmp_path / "policies")
    device = Device(broker)
    device.say_birth()
    gateway = GatewayProcess(broker, tmp_path)
    wait_until(lambda: device.watermarks > 0)
    device.send(frames([10, 10]))
    wait_until(lambda: not device.outbox)
    assert gateway.stop() == 0
    (line,) = (line for line in gateway.log.splitlines() if "has stopped" in line)
    assert "stored=2" in line
    assert str(tmp_path) not in gateway.log
    device.stop()


def test_what_is_kept_no_longer_is_not_asked_for_again_and_not_taken_twice(
    broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symbols in the journal are taken note of when they are sealed, here at once; of a chunk an hour more is kept."""
    monkeypatch.setattr("gateway.loop.retention._REST_SECONDS", 0.1)
    monkeypatch.setattr("gateway.loop.recorder.SEAL_SECONDS", 0.1)
    store, policies = tmp_path / "s.sqlite", write_policies(tmp_path / "policies")
    gateway = Gateway(gateway_config("home", broker.broker, store, policies, keep={"symbols": "1h"}))
    gateway.start()

    def asked(query: str) -> int:
        with closing(sqlite3.connect(store)) as database:
            number: int | None = database.execute(query).fetchone()[0]
        return -1 if number is None else number

    def oldest_is_kept() -> bool:
        return 10_800 <= asked("SELECT MIN(first) FROM chunks") <= 14_400

    device, sequence = Device(broker), frames([600] * 30)
    device.say_birth()
    wait_until(device.answered_after(0))
    device.send(sequence)
    wait_until(lambda: not device.outbox)
    wait_until(lambda: gateway.counters["frames_removed"] > 0)
    wait_until(oldest_is_kept)
    assert asked("SELECT COUNT(*) FROM journal") == 0
    device.send_again(sequence)
    wait_until(lambda: not device.outbox and gateway.counters["duplicate"] == 30)
    assert oldest_is_kept()
    assert gateway.counters["stored"] == 30
    device.stop()
    gateway.stop()
    assert not gateway.failed.is_set()


def test_a_second_gateway_on_a_store_is_refused_in_one_line_and_the_first_goes_on(
    broker: Mosquitto, tmp_path: Path
) -> None:
    write_policies(tmp_path / "policies")
    first = GatewayProcess(broker, tmp_path)
    device = Device(broker)
    device.say_birth()
    wait_until(device.answered_after(0), "the gateway")
    settings = gateway_config("home", broker.broker, tmp_path / "s.sqlite", tmp_path / "policies")
    refused = rf"^another gateway runs with the store s\.sqlite \(process {first.process.pid}\): stop it, or use a"
    with pytest.raises(StoreError, match=refused):
        Gateway(settings).start()
    link = tmp_path / "link.sqlite"
    link.symlink_to(tmp_path / "s.sqlite")
    with pytest.raises(StoreError, match="another gateway runs"):
        Gateway(gateway_config("home", broker.broker, link, tmp_path / "policies")).start()
    seen = device.watermarks
    device.say_birth()
    wait_until(device.answered_after(seen), what="the first gateway")
    first.kill()  # the operating system gives the store back
    again = Gateway(settings)
    again.start()
    again.stop()
    device.stop()


def test_an_unreachable_broker_is_one_line_and_one_when_it_is_back(tmp_path: Path) -> None:
    write_policies(tmp_path / "policies")
    (tmp_path / "broker").mkdir()
    broker = Mosquitto(tmp_path / "broker")
    gateway = GatewayProcess(broker, tmp_path)
    absent = f"no connection to the broker: no broker at 127.0.0.1:{broker.port}: Connection refused"
    wait_until(lambda: absent in gateway.log, "the first line")
    with broker:
        wait_until(lambda: gateway.log.count("connected to the broker") == 1, "the second line")
        broker.kill()
        wait_until(lambda: gateway.log.count("no connection to the broker") == 2)
        broker.start()
        wait_until(lambda: gateway.log.count("connected to the broker") == 2)
        assert gateway.stop() == 0
    lines = [line for line in gateway.log.splitlines() if "to the broker" in line]
    assert len(lines) == 4
    (greeting,) = [line for line in gateway.log.splitlines() if "connected; " in line]
    assert re.search(r"^\S+ \S+ INFO .*connected; first share at (\d{4}-\d\d-\d\d )?\d\d:\d\d$", greeting)


@pytest.mark.parametrize("now_us", [-5_000_000, 0, 1, 3_999_999, 17_000_000, 23_400_000, 901_000_001])
def test_the_first_share_is_the_next_end_of_a_window_or_a_full_frame(now_us: int) -> None:
    counts = (("quick", 5, 7, 2), ("slow", 40, 3, 9))  # windows overlap, and have gaps
    windows = tuple(
        Window(name=name, length=length, stride=stride, start=start, states=("high",), scale="20")
        for name, length, stride, start in counts
    )
    both = policy(epoch_us=0, period_us=1_000_000, frame_ticks=30, windows=windows)
    ends = {start + n * stride + length - 1 for _, length, stride, start in counts for n in range(400)}
    next_tick = max(now_us // 1_000_000 + 1, 0)
    due = min(end for end in ends if end >= next_tick)
    assert share_due_us(both, now_us) == 1_000_000 * min(due, next_tick + 29)
    assert share_due_us(both.model_copy(update={"table": None}), now_us) == 1_000_000 * due

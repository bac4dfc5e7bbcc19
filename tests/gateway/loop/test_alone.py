"""One store has one gateway, and a gateway says when it has no broker, and when it has one again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fugu.contract.windows import Window
from gateway.loop.gateway import Gateway
from gateway.parts.describe import share_due_us
from gateway.store.store import StoreError
from tests.support.brokers import Mosquitto, wait_until
from tests.support.gateway_files import gateway_config
from tests.support.gateway_service import Device, GatewayProcess
from tests.support.processes import policy
from tests.support.scenes import write_policies


def test_a_second_gateway_on_a_store_is_refused_in_one_line_and_the_first_goes_on(
    broker: Mosquitto, tmp_path: Path
) -> None:
    write_policies(tmp_path / "policies")
    first = GatewayProcess(broker, tmp_path)
    device = Device(broker)
    device.say_birth()
    wait_until(device.answered_after(0), "the gateway")
    settings = gateway_config("home", broker.broker, tmp_path / "s.sqlite", tmp_path / "policies")
    refused = rf"^another gateway runs with the store s\.sqlite \(process {first.pid}\): stop it, or use another"
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
    assert re.search(r"^INFO:fugu.notices:connected; first share at (\d{4}-\d\d-\d\d )?\d\d:\d\d$", greeting)


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

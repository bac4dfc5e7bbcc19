"""Garbage of one device's account at the shipped broker: bounded by its topics, and cleared when it is removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fugu.contract.frames import (
    MAX_COUNTS,
    MAX_FRAME_TICKS,
    MAX_STREAMS,
    Status,
    StreamStatus,
    SymbolFrame,
    WindowFrame,
)
from fugu.contract.measure_frames import MAX_MEASURE_TICKS, MeasureFrame, Released
from fugu_cli.main import main
from gateway.deployment.broker_files import BrokerFolder
from gateway.deployment.mosquitto import LARGEST, MIN_LARGEST
from tests.support.brokers import wait_until
from tests.support.shipped import DENIED, Shipped

OWN = ("status", "policy/status", "symbols/hr", "window/hr")
OTHERS = (
    "symbols/other",
    "symbols/hr/more",
    "status/more",
    "window/hr/1/2",
    "garbage",
    "policy/status/x",
    "policy/set",
)
MEGABYTE = 1 << 20


def late(broker: Shipped) -> set[str]:
    """Topics of what the site gets that subscribes to everything, before what a device says after that."""
    with broker.client("site") as site, broker.client("ring") as ring:
        site.subscribe("fugu/#")
        assert ring.publish("fugu/2/home/ring/status", b"end") == 0
        site.wait_for("fugu/2/home/ring/status", b"end")
        return {topic for topic, payload in site.received if payload != b"end"}


def test_one_device_account_cannot_fill_the_broker_with_retained_garbage(fleet: Shipped) -> None:
    """22 messages of 4 MB, under any name below its own: none is kept, and the next subscriber gets none of them."""
    assert late(fleet) == set()
    before, payload = fleet.status("VmRSS"), bytes(4 * MEGABYTE)
    for number in range(22):
        topic = ("fugu/2/home/watch/" + (*OTHERS, *OWN)[number % 11]) + (f"/{number}" if number < 11 else "")
        with fleet.client("watch") as watch:
            assert watch.attempt(topic, payload) != 0
            assert watch.lost
    assert late(fleet) == set()
    assert fleet.status("VmRSS") - before < 8 * 1024
    fleet.stop()
    assert (fleet.folder / "mosquitto.db").stat().st_size < MEGABYTE


def test_what_a_device_account_can_leave_is_a_message_on_each_of_its_topics(fleet: Shipped) -> None:
    """The largest that the broker takes, again and again, with and without the names of its streams."""
    for number in range(3):
        for kind in OTHERS:
            with fleet.client("watch") as watch:
                assert watch.attempt(f"fugu/2/home/watch/{kind}", bytes(LARGEST)) in (DENIED, None)
        with fleet.client("watch") as watch:
            assert [watch.attempt(f"fugu/2/home/watch/{kind}", bytes([number]) * LARGEST) for kind in OWN] == [0] * 4
    assert late(fleet) == {f"fugu/2/home/watch/{kind}" for kind in OWN} - {"fugu/2/home/watch/policy/status"}
    fleet.stop()
    assert (fleet.folder / "mosquitto.db").stat().st_size < len(OWN) * (LARGEST + 4096) + 4096


def test_the_largest_frames_that_a_device_may_publish_fit_into_any_broker() -> None:
    most = 2**53 - 1
    symbols = SymbolFrame(1, -1, 0, bytes(MAX_FRAME_TICKS), bits=8)
    released = Released(15, (2**31 - 1,) * 3)
    points = MeasureFrame(1, -1, 0, 3, (released,) * MAX_MEASURE_TICKS)
    window = WindowFrame(1, "w" * 32, -1, 0, 0, 1, 1, (most,) * MAX_COUNTS)
    streams = tuple(StreamStatus("s" * 62 + f"{number:02}", 1, 1) for number in range(MAX_STREAMS))
    status = Status(True, "1.0", 1, (), streams).encode()
    assert max(map(len, (symbols.encode(), points.encode(), window.encode(), status))) < MIN_LARGEST


def test_the_streams_of_a_device_can_be_said_anew(tmp_path: Path) -> None:
    broker = Shipped(tmp_path)
    broker.add("device", "watch")
    with broker:
        assert broker.publish("watch", "fugu/2/home/watch/symbols/steps") == DENIED
        words = ["--broker", str(broker.folder), "watch", "--stream", "steps"]
        assert main(["deploy", "streams", *words]) == 0
        broker.reload()
        wait_until(lambda: broker.publish("watch", "fugu/2/home/watch/symbols/steps") == 0)
        assert broker.publish("watch", "fugu/2/home/watch/window/steps") == 0
        assert broker.publish("watch", "fugu/2/home/watch/symbols/hr") == DENIED


@pytest.mark.parametrize("mutual", [False, True])
def test_what_a_removed_device_has_left_is_cleared(tmp_path: Path, mutual: bool) -> None:
    broker = Shipped(tmp_path, mutual=mutual)
    for name in ("watch", "ring"):
        broker.add("device", name)
    broker.add("operator", "operator")
    broker.add("gateway", "gateway")
    broker.add("subscriber", "site", "--audience", "site")
    topics = {f"fugu/2/home/watch/{kind}" for kind in OWN}
    described = "fugu/2/home/description/watch/hr"
    with broker:
        with broker.client("watch") as watch:
            assert [watch.publish(topic, b"left", retain=True) for topic in sorted(topics)] == [0] * 4
        assert broker.publish("gateway", described, b"left", retain=True) == 0
        assert broker.publish("operator", "fugu/2/home/watch/policy/set", b"signed", retain=True) == 0
        assert late(broker) == {*topics, described} - {"fugu/2/home/watch/policy/status"}
        remove = ["deploy", "remove", "--broker", str(broker.folder), "watch"]
        operator = ["--operator", str(broker.root / "operator" / "broker.toml")]
        assert main([*remove, *operator]) == 1  # the broker has not read its accounts again, and denies it
        assert broker.publish("operator", "fugu/2/home/watch/status", b"", retain=True) == DENIED
        broker.reload()
        wait_until(lambda: main([*remove, *operator]) == 0)
        assert BrokerFolder.open(broker.folder).uncleared("watch") is None
        broker.reload()
        wait_until(lambda: broker.publish("operator", "fugu/2/home/watch/status", b"", retain=True) == DENIED)
        assert broker.publish("operator", "fugu/2/home/ring/status", b"", retain=True) == DENIED
    with broker:  # nothing is in its database either
        assert late(broker) == set()
    assert b"left" not in (broker.folder / "mosquitto.db").read_bytes()
    assert b"signed" not in (broker.folder / "mosquitto.db").read_bytes()


def test_a_name_that_was_removed_can_be_given_again_and_what_it_left_is_not_forgotten(tmp_path: Path) -> None:
    broker = Shipped(tmp_path)
    broker.add("device", "watch")
    assert main(["deploy", "remove", "--broker", str(broker.folder), "watch"]) == 0
    assert main(["deploy", "operator", "--broker", str(broker.folder), str(tmp_path / "o"), "--name", "watch"]) == 1
    broker.root = tmp_path / "again"
    broker.add("device", "watch", "--stream", "steps")
    account = BrokerFolder.open(broker.folder).account("watch")
    assert (account.streams, account.former, account.uncleared) == (("steps",), ("hr",), False)

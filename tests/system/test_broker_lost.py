"""The shipped broker is killed and has lost its database: everything retained is there again, and no symbol is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edge_agent.outbox import Outbox
from fugu.contract.topics import parse_topic
from fugu.mqtt import Link
from tests.support.brokers import wait_until
from tests.support.shipped import Shipped
from tests.support.stored import stored_symbols
from tests.support.whole_fleet import WholeFleet

READERS = {
    "dashboard": {"status", "release"},
    "ring": {"root", "time"},
    "operator": {"policy_set", "policy_status", "health"},
}


@pytest.fixture
def shipped(tmp_path: Path) -> Iterator[Shipped]:
    broker = Shipped(tmp_path / "deployed")
    for name in ("watch", "ring"):
        broker.add("device", name, "--stream", "hr", "--stream", "place")
    broker.add("gateway", "gateway", "--rollout")
    broker.add("operator", "operator")
    for name in ("site", "dashboard"):
        broker.add("subscriber", name, "--audience", "site")
    with broker:
        yield broker


def retained(broker: Shipped) -> dict[str, bytes]:
    """The newest retained message of each kind, once there is one of all."""
    payloads: dict[str, bytes] = {}

    def received(topic: str, payload: bytes, flag: bool) -> None:
        if flag:
            payloads[parse_topic(topic).kind] = payload

    def asked(name: str, kinds: set[str]) -> bool:
        """Ask anew, which a subscription to what is not there yet would not."""
        subscribed: list[bool] = []
        link = Link(broker.address(name), name, ("fugu/2/home/#",), on_message=received)
        link.on_connected = lambda: subscribed.append(True)
        link.start()
        wait_until(lambda: subscribed)
        deadline = time.monotonic() + 1.0
        while not kinds <= set(payloads) and time.monotonic() < deadline:
            time.sleep(0.01)
        link.stop()
        return kinds <= set(payloads)

    for name, kinds in READERS.items():
        wait_until(lambda name=name, kinds=kinds: asked(name, kinds), f"what {name} reads")
    return payloads


def test_a_killed_broker_without_its_database_has_everything_retained_again_and_nothing_is_lost(
    shipped: Shipped, tmp_path: Path
) -> None:
    with WholeFleet(shipped, tmp_path, [("0", "c0"), ("1", "c1"), ("0", "c1")]) as fleet:
        before = retained(shipped)
        shipped.kill()
        (shipped.folder / "mosquitto.db").unlink(missing_ok=True)
        shipped.start()
        after = retained(shipped)
        for kind in ("policy_set", "policy_status", "root"):
            assert after[kind] == before[kind]
        assert fleet.agent.stop() == 0
        with closing(Outbox(tmp_path / "outbox.sqlite", "home", "watch")) as outbox:
            assert outbox.frames.depth() == 0
        (frames,) = stored_symbols(fleet.gateway.store).values()
        assert [frame.previous for frame in frames] == [-1, *(frame.last for frame in frames[:-1])]

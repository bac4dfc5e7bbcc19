"""Messages that the page hears, and tabs that it wakes."""

from __future__ import annotations

import asyncio

from fugu.contract.descriptions import describe
from fugu.contract.frames import PolicyStatus, Status, SymbolFrame
from fugu.contract.topics import topic_of
from fugu.mqtt import Broker
from fugu.mqtt.packets import Message
from gateway.page.feed import Feed
from gateway.page.ledger_view import LedgerView
from tests.support.brokers import PATIENCE, free_port
from tests.support.processes import policy


def test_whoever_looks_at_a_device_is_woken_by_all_that_is_new() -> None:
    """By messages, what attackers make of them and what the ledger says, however often all has been taken."""
    described = describe(policy(epoch_us=0, period_us=1000)).encode()
    message: Message = (topic_of("description", "home", "watch", "hr"), described, True)

    def frame(number: int) -> Message:
        payload = SymbolFrame(1, 10 * number - 1, 10 * number, bytes(10)).encode()
        return topic_of("symbols", "home", "watch", "hr"), payload, False

    async def scene() -> list[list[str]]:
        feed, kinds = Feed("home", Broker(port=free_port()), LedgerView(None)), []
        watcher = feed.watch("watch")
        hears = (
            lambda: feed._received([message, frame(0)]),
            feed._attack,
            lambda: feed._received([frame(1)]),
            feed._attack,
            feed._account,
        )
        for hear in hears:
            await asyncio.to_thread(hear)
            await asyncio.wait_for(watcher.wake.wait(), PATIENCE)
            kinds.append([event["kind"] for event in feed.take(watcher)])
        for look in (feed._attack, feed._account):  # nothing is new
            await asyncio.to_thread(look)
        assert not watcher.wake.is_set()
        return kinds

    assert asyncio.run(scene()) == [["description", "frame"], ["attack"], ["frame"], ["attack"], ["budget"]]


def test_what_a_device_said_of_itself_before_anybody_looked_is_among_what_left_it() -> None:
    status = Status(True, "1.0", 0, (), ()).encode()
    policies = PolicyStatus(1, b"", "", "", 0, False).encode()

    async def scene() -> list[tuple[str, str]]:
        feed = Feed("home", Broker(port=free_port()), LedgerView(None))
        feed._received([(topic_of("status", "home", "watch"), status, True)])
        feed._received([(topic_of("policy_status", "home", "watch"), policies, True)])
        feed._received([(topic_of("status", "home", "ring"), status, True)])
        events = feed.take(feed.watch("watch"))
        feed._received([(topic_of("status", "home", "watch"), status, False)])
        return [
            (event["kind"], event["bytes"]) for event in (*events, *feed.take_and_show(feed._watchers["watch"][0])[0])
        ]

    expected = [("policy", policies.hex()), ("status", status.hex()), ("status", status.hex())]
    assert asyncio.run(scene()) == expected

"""Memory of the page: a week of each stream, bounded, and only of devices that somebody looks at."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from fugu.contract.descriptions import describe
from fugu.contract.reports import StateEstimate, WindowCount
from fugu.contract.topics import parse_topic, topic_of
from fugu.contract.windows import Window
from fugu.mqtt import Broker
from gateway.page import memory as memory_module
from gateway.page.feed import Feed, frame_topics, report_topics
from gateway.page.ledger_view import LedgerView
from gateway.page.memory import MOST_REMEMBERED, TIERS, Memory
from tests.support.brokers import free_port
from tests.support.example_frames import COUNT, PLACE_ESTIMATE, STATE_ESTIMATE
from tests.support.processes import policy

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
FIVE = timedelta(minutes=5)
TOLD = policy(epoch_us=0, period_us=5_000_000)


def count(end: datetime, value: float, *, observed: int = 60) -> WindowCount:
    return replace(
        COUNT, time=end, since=end - FIVE, window="high", states=("high",), values=(value,), low=(value - 6.0,),
        high=(value + 6.0,), observed=observed,
    )  # fmt: skip


def remembered(*counts: WindowCount) -> Memory:
    """One device that was described, and has said these."""
    window = Window(name="high", length=60, stride=60, states=("high",), scale="5")
    memory = Memory()
    memory.remember(["watch"])
    described = describe(TOLD.model_copy(update={"windows": (window,)})).encode()
    memory.take(parse_topic(topic_of("description", "home", "watch", "hr")), described)
    for count in counts:
        memory.take(parse_topic(topic_of("count", "home", "watch", "hr")), count.encode())
    return memory


@pytest.mark.long
def test_a_week_of_counts_is_remembered_as_shares_with_their_bands() -> None:
    memory = remembered(*(count(BEGIN + i * FIVE, float(i % 61)) for i in range(8 * 288)))
    (history,) = memory.histories("watch")
    day, week = history["tiers"]
    assert (history["of"], history["names"], history["unit"]) == ("high", ("high",), "share")
    for (step, span), rows in zip(TIERS, (day, week), strict=True):
        assert rows[-1][0] - rows[0][0] <= span
        assert len(rows) == span // step + 1
        assert all(row[0] // step != other[0] // step for row, other in pairwise(rows))
    last = (8 * 288 - 1) % 61
    assert day[-1][1:] == [float(f"{value:.4g}") for value in (last / 60, (last - 6) / 60, min(1.0, (last + 6) / 60))]
    assert json.loads(json.dumps(history, allow_nan=False))["stream"] == "hr"


def test_what_is_missing_is_not_made_up_and_shares_are_of_the_ticks_that_ran() -> None:
    memory = remembered(count(BEGIN, 15.0), count(BEGIN + 12 * FIVE, -3.0, observed=10))
    (history,) = memory.histories("watch")
    day = history["tiers"][0]
    assert [row[0] - day[0][0] for row in day] == [0.0, 3600.0]
    assert day[0][1:] == [0.25, 0.15, 0.35]
    assert day[1][1:] == [0.0, 0.0, 0.3]


def test_a_count_that_nothing_describes_is_not_drawn() -> None:
    memory = Memory()
    memory.remember(["watch"])
    memory.take(parse_topic(topic_of("count", "home", "watch", "hr")), count(BEGIN, 3.0).encode())
    assert memory.histories("watch") == []


def test_of_many_estimates_the_newest_is_read() -> None:
    memory = remembered()
    topic = parse_topic(topic_of("estimate", "home", "watch", "hr"))
    for second, shares in enumerate(({"low": 0.5, "high": 0.5}, {"low": 0.75, "high": 0.25})):
        estimate: StateEstimate = replace(
            STATE_ESTIMATE, time=BEGIN + timedelta(seconds=second), since=BEGIN, state="low", shares=shares
        )
        memory.take(topic, estimate.encode())
    memory.read()
    (history,) = memory.histories("watch")
    assert (history["names"], [row[1:] for row in history["tiers"][0]]) == (("high",), [[0.25, None, None]])
    (headline,) = memory.headlines("watch")
    assert headline["state"] == {"state": "low", "probability": STATE_ESTIMATE.probability}
    assert (headline["promise"]["epsilon"], headline["promise"]["ticks"]) == (1.0, 1)
    memory.take(topic, PLACE_ESTIMATE.encode())
    memory.read()
    assert memory.headlines("watch")[0]["place"]["accuracy"] == PLACE_ESTIMATE.accuracy


def test_devices_that_nobody_looks_at_give_way_and_what_is_not_remembered_is_not_taken() -> None:
    memory = remembered(count(BEGIN, 15.0))
    names = [f"ring-{i}" for i in range(MOST_REMEMBERED - 1)]
    assert memory.remember(names) == (names, [])
    assert memory.is_full
    assert memory.remember(["watch", "new"], ["ring-0"]) == (["new"], ["ring-1"])
    memory.take(parse_topic(topic_of("count", "home", "ring-1", "hr")), count(BEGIN, 1.0).encode())
    assert memory.headlines("ring-1") == []
    assert memory.histories("watch") != []


@pytest.mark.parametrize("looked_at", [(), ("band-0", "band-1"), tuple(f"band-{i}" for i in range(5))])
def test_numbers_have_a_bound_whoever_is_looked_at(monkeypatch: pytest.MonkeyPatch, looked_at: tuple[str, ...]) -> None:
    """Fleet and device pages ask for all; who is looked at stays, with what is newest."""
    monkeypatch.setattr(memory_module, "_MOST_NUMBERS", 300)
    memory, names = Memory(), [f"band-{i}" for i in range(5)]
    assert memory.remember(names) == (names, [])
    window = Window(name="high", length=60, stride=60, states=("high",), scale="5")
    for name in names:
        described = describe(TOLD.model_copy(update={"windows": (window,), "device": name})).encode()
        memory.take(parse_topic(topic_of("description", "home", name, "hr")), described)
    for i in range(20):  # 8 numbers each, of both tiers at first
        for name in names:
            memory.take(parse_topic(topic_of("count", "home", name, "hr")), count(BEGIN + i * FIVE, 3.0).encode())
    assert memory._size() > 300
    assert memory.is_full
    new, gone = memory.remember(names, looked_at)
    assert new == []
    assert 0 < memory._size() <= 300
    assert set(gone).isdisjoint(looked_at)
    assert all(memory.headlines(name)[0]["newest"]["row"][1] == 0.05 for name in names if name not in gone)
    assert memory.remember([], looked_at) == ([], [])
    assert memory.remember(gone, looked_at) == (gone, []), "it has forgotten them, and begins again"


def test_a_feed_asks_for_reports_of_what_it_remembers_and_for_frames_only_while_somebody_looks() -> None:
    async def scene() -> Iterable[set[str]]:
        feed = Feed("home", Broker(port=free_port()), LedgerView(None))
        begun = set(feed.link.subscriptions)
        watcher = feed.watch("watch")
        looked = set(feed.link.subscriptions) - begun
        payload = describe(TOLD).encode()
        feed._on_messages([(topic_of("description", "home", "watch", "hr"), payload, True)])
        feed.leave(watcher)
        subscriptions = set(feed.link.subscriptions) - begun
        again = feed.watch("watch")
        assert [event["kind"] for event in feed.take(again)] == ["description"]  # the broker does not say it again
        return looked, subscriptions

    looked, subscriptions = asyncio.run(scene())
    assert looked == {*report_topics("home", "watch"), *frame_topics("home", "watch")}
    assert subscriptions == set(report_topics("home", "watch"))


def test_subscriptions_follow_the_memory_if_two_threads_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first thread is slow to subscribe to a device, which the second forgets."""
    feed = Feed("home", Broker(port=free_port()), LedgerView(None))
    begun, steps = set(feed.link.subscriptions), iter([(["watch"], []), ([], ["watch"])])
    monkeypatch.setattr(Memory, "remember", lambda *_: next(steps))
    has_begun, is_forgotten, subscribe = threading.Event(), threading.Event(), feed.link.subscribe

    def slow_subscribe(topics: Iterable[str]) -> None:
        if topics := list(topics):
            has_begun.set()
            is_forgotten.wait(0.3)
        subscribe(topics)

    monkeypatch.setattr(feed.link, "subscribe", slow_subscribe)
    thread = threading.Thread(target=feed._remember_devices)
    thread.start()
    assert has_begun.wait(10.0)
    feed._remember_devices()
    is_forgotten.set()
    thread.join(10.0)
    assert set(feed.link.subscriptions) == begun

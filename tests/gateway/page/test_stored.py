"""Counts of a store: read when a device is looked at, drawn before what comes, and attacked; tabs that are woken."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fugu.contract.descriptions import describe
from fugu.contract.frames import PolicyStatus, Status, SymbolFrame, WindowFrame
from fugu.contract.policy import Policy
from fugu.contract.reports import WindowCount
from fugu.contract.topics import parse_topic, topic_of
from fugu.contract.windows import Window
from fugu.mqtt import Broker
from fugu.mqtt.packets import Message
from gateway.config import GatewayConfig
from gateway.estimates.kinds import window_count
from gateway.page.attackers import MOST_WINDOWS, answer, stored_counts
from gateway.page.device_view import DeviceView
from gateway.page.feed import Feed
from gateway.page.ledger_view import LedgerView
from gateway.page.memory import Memory
from gateway.store.store import Store
from tests.support.brokers import PATIENCE, free_port
from tests.support.processes import policy

LENGTH, PERIOD = 60, 5
NOW = 10_000 * LENGTH * PERIOD
"""Unix seconds: 10,000 windows of five minutes are over."""
PLACE = parse_topic(topic_of("window", "home", "watch", "hr"))


@pytest.fixture
def counted() -> Policy:
    window = Window(name="high", length=LENGTH, stride=LENGTH, states=("high",), scale="57/10")
    draft = policy(epoch_us=0, period_us=PERIOD * 1_000_000)
    return draft.model_copy(update={"table": None, "windows": (window,), "windows_guarantee": None})


def frame(index: int, count: int = 20, version: int = 1) -> WindowFrame:
    return WindowFrame(version, "high", index - 1, index, index * LENGTH, LENGTH, LENGTH, (count,))


def store_of(file: Path, frames: list[WindowFrame]) -> Path:
    with closing(Store(file)) as store, store.transaction():
        for window_frame in frames:
            store.windows.add(store.number_of("watch", "hr/high"), window_frame)
        store.windows.add(store.number_of("ring", "hr/high"), frame(9999, 60))
    return file


def view_of(counted: Policy) -> DeviceView:
    view = DeviceView()
    view.take(parse_topic(topic_of("description", "home", "watch", "hr")), describe(counted).encode())
    return view


def test_a_week_is_asked_for_once_for_each_version(counted: Policy) -> None:
    view = view_of(counted)
    [(key, tick)] = view.stored_due(NOW).items()
    assert key == ("hr", "high")
    assert 10_000 * LENGTH - tick == 7 * 86_400 // PERIOD
    assert view.stored_due(NOW) == {}
    view.take(
        parse_topic(topic_of("description", "home", "watch", "hr")),
        describe(counted.model_copy(update={"version": 2})).encode(),
    )
    assert view.stored_due(NOW) != {}
    fast = counted.model_copy(update={"clock": counted.clock.model_copy(update={"period_us": 1000})})
    [tick] = view_of(fast).stored_due(NOW).values()
    assert NOW * 1000 - tick == MOST_WINDOWS * LENGTH + LENGTH, "no more windows than attackers read"


def test_windows_of_a_device_are_read_from_a_store(tmp_path: Path) -> None:
    file = store_of(tmp_path / "store.db", [frame(index) for index in range(9990, 10_000)])
    counts = stored_counts(file, "watch", {("hr", "high"): 9995 * LENGTH})
    assert counts == {"frames": {"hr": [frame(index) for index in range(9995, 10_000)]}}
    assert stored_counts(file, "nobody", {("hr", "high"): 0}) == {"frames": {}}
    assert stored_counts(tmp_path / "other.db", "watch", {("hr", "high"): 0}) == {"none": "there is no store other.db"}


def test_stored_counts_are_what_the_gateway_would_say_and_their_bytes_are_what_left(counted: Policy) -> None:
    view = view_of(counted)
    frames = [frame(9998, 31), frame(9999, -3), frame(10_000, 70)]
    update, reports = view.take_stored(PLACE, [*frames, frame(10_001, 5, version=2)])
    assert [bytes.fromhex(message["bytes"]) for message in update["messages"]] == [frame.encode() for frame in frames]
    [counts] = update["counts"]
    newest = window_count(counted, frames[-1])
    assert {name: counts[name] for name in newest.json_fields()} == newest.json_fields()
    [series] = update["series"]
    assert [row[1] for row in series["rows"]] == pytest.approx([31 / 60, 0.0, 1.0], rel=1e-3)
    assert [report.time for report in reports] == [(frame.last + 1) * PERIOD for frame in frames]
    [due] = view.attacks_due()
    assert len(due(answer)["times"]) == 3, "attackers read them"


def test_what_is_stored_stands_before_what_came(counted: Policy) -> None:
    topic, memory = parse_topic(topic_of("count", "home", "watch", "hr")), Memory()
    memory.remember(["watch"])
    memory.take(parse_topic(topic_of("description", "home", "watch", "hr")), describe(counted).encode())

    def came(index: int, count: int) -> WindowCount:
        return window_count(counted, frame(index, count))

    for index in (9999, 10_000):
        memory.take(topic, came(index, 60).encode())
    _, reports = view_of(counted).take_stored(PLACE, [frame(index, 30) for index in range(9996, 10_000)])
    memory.prepend_stored("watch", "hr", reports)
    memory.prepend_stored("nobody", "hr", reports)
    [history] = memory.histories("watch")
    day, _ = history["tiers"]
    assert [row[1] for row in day] == [0.5, 0.5, 0.5, 0.5, 1.0]
    assert history["row"][1] == 1.0, "the newest is the newest"


def test_an_audience_s_page_reads_no_store(tmp_path: Path) -> None:
    page = {"listen": "127.0.0.1:1", "no_login": True}
    store = tmp_path / "store.db"

    def settings(**more: str) -> Any:
        document = {"fleet": "home", "store": str(store), "policies": str(tmp_path), "page": {**page, **more}}
        return GatewayConfig.model_validate(document).page_settings()

    assert settings().store == store
    assert settings(audience="lab").store is None


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
            lambda: feed._on_messages([message, frame(0)]),
            feed._run_attacks,
            lambda: feed._on_messages([frame(1)]),
            feed._run_attacks,
            feed._read_budgets,
        )
        for hear in hears:
            await asyncio.to_thread(hear)
            await asyncio.wait_for(watcher.wake.wait(), PATIENCE)
            kinds.append([event["kind"] for event in feed.take(watcher)])
        for look in (feed._run_attacks, feed._read_budgets):  # nothing is new
            await asyncio.to_thread(look)
        assert not watcher.wake.is_set()
        return kinds

    assert asyncio.run(scene()) == [["description", "frame"], ["attack"], ["frame"], ["attack"], ["budget"]]


def test_what_a_device_said_of_itself_before_anybody_looked_is_among_what_left_it() -> None:
    status = Status(True, "1.0", 0, (), ()).encode()
    policies = PolicyStatus(1, b"", "", "", 0, False).encode()

    async def scene() -> list[tuple[str, str]]:
        feed = Feed("home", Broker(port=free_port()), LedgerView(None))
        feed._on_messages([(topic_of("status", "home", "watch"), status, True)])
        feed._on_messages([(topic_of("policy_status", "home", "watch"), policies, True)])
        feed._on_messages([(topic_of("status", "home", "ring"), status, True)])
        watcher = feed.watch("watch")
        events = feed.take(watcher)
        feed._on_messages([(topic_of("status", "home", "watch"), status, False)])
        return [(event["kind"], event["bytes"]) for event in (*events, *feed.take_and_show(watcher)[0])]

    expected = [("policy", policies.hex()), ("status", status.hex()), ("status", status.hex())]
    assert asyncio.run(scene()) == expected

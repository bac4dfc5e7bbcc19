"""Streams of events: one source for all tabs of a view."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from fugu.mqtt import Broker
from gateway.page.application import Channels, application
from gateway.page.connections import Connections
from gateway.page.feed import Feed
from gateway.page.ledger_view import LedgerView
from tests.support.brokers import PATIENCE, free_port


class Counter:
    """A view that shows how far somebody has counted.

    Args:
        max_waiting: see `Source`.
    """

    def __init__(self, max_waiting: int = 10) -> None:
        self.max_waiting = max_waiting
        self.made = 0
        self.closed = False
        self._at = self._told = 0
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        """Until somebody has counted on."""
        await self._changed.wait()
        self._changed.clear()

    def new_events(self) -> str:
        """How far."""
        if self._at < 0:
            raise OverflowError
        if self._told == self._at:
            return ""
        self.made += 1
        self._told = self._at
        return f"{self._at};"

    def events_and_content(self) -> tuple[str, str]:
        """How far, as all of it."""
        return self.new_events(), f"all {self._at};"

    def close(self) -> None:
        """Nobody looks."""
        self.closed = True

    def count(self, at: int) -> None:
        """Say so, at the next turn of the loop."""
        self._at = at
        self._changed.set()


async def _said(tab: AsyncGenerator[bytes]) -> bytes:
    async with asyncio.timeout(PATIENCE):
        return await anext(event async for event in tab if event)


def test_what_is_new_is_made_once_for_all_tabs_of_a_view() -> None:
    async def scene() -> None:
        channels, source = Channels(), Counter()
        tabs = [channels.follow("view", lambda: source) for _ in range(3)]
        assert [await _said(tab) for tab in tabs] == [b"all 0;"] * 3
        source.count(1)
        events = [await _said(tab) for tab in tabs]
        assert events == [b"1;"] * 3
        assert source.made == 1

    asyncio.run(scene())


def test_who_joins_while_something_waits_is_told_it_once_and_so_are_the_others() -> None:
    async def scene() -> None:
        channels, source = Channels(), Counter()
        first = channels.follow("view", lambda: source)
        assert await _said(first) == b"all 0;"
        source.count(1)
        second = channels.follow("view", lambda: source)
        assert await _said(second) == b"all 1;"
        assert await _said(first) == b"1;"
        source.count(2)
        assert [await _said(first), await _said(second)] == [b"2;"] * 2

    asyncio.run(scene())


def test_a_view_ends_with_its_last_tab_and_begins_again_with_the_next() -> None:
    async def scene() -> None:
        channels, sources = Channels(), [Counter(), Counter()]
        first, second = (channels.follow("view", lambda: sources[0]) for _ in range(2))
        await _said(first)
        await _said(second)
        await first.aclose()
        assert not sources[0].closed
        await second.aclose()
        assert sources[0].closed
        sources[0].count(1)
        third, other = channels.follow("view", lambda: sources[1]), channels.follow("another", lambda: Counter(1))
        assert [await _said(third), await _said(other)] == [b"all 0;"] * 2
        sources[1].count(1)
        assert await _said(third) == b"1;"
        assert sources[0].made == 0

    asyncio.run(scene())


def test_a_tab_that_does_not_keep_up_is_told_the_newest() -> None:
    async def scene() -> None:
        channels, source = Channels(), Counter(max_waiting=2)
        slow, quick = (channels.follow("view", lambda: source) for _ in range(2))
        await _said(slow)
        await _said(quick)
        for number in range(1, 6):
            source.count(number)
            assert await _said(quick) == f"{number};".encode()
        assert await _said(slow) == b"4;5;"

    asyncio.run(scene())


def test_tabs_end_where_their_view_fails() -> None:
    """The browser asks again."""

    async def scene() -> None:
        channels, source = Channels(), Counter()
        tab = channels.follow("view", lambda: source)
        await _said(tab)
        source.count(-1)
        with pytest.raises(StopAsyncIteration):
            await _said(tab)
        assert source.closed
        again = channels.follow("view", Counter)
        assert await _said(again) == b"all 0;"

    asyncio.run(scene())


def test_a_search_for_a_word_of_another_view_shows_the_fleet() -> None:
    async def scene() -> None:
        feed = Feed("home", Broker(port=free_port()), LedgerView(None))
        with Connections(socket.create_server(("127.0.0.1", 0))) as connections:
            app = application(feed, connections, login=None, hosts=[], secure=False, stop_event=asyncio.Event())
            events: asyncio.Queue[bytes] = asyncio.Queue()

            async def send(message: Any) -> None:
                events.put_nowait(message.get("body", b""))

            async def content_of(view: str, query: bytes) -> dict[str, Any]:
                scope = {"type": "http", "method": "GET", "path": f"/events/{view}", "query_string": query}
                scope |= {"headers": [], "client": ("127.0.0.1", 1)}
                tabs.append(asyncio.create_task(app(scope, asyncio.Event().wait, send)))
                async with asyncio.timeout(PATIENCE):
                    while not (body := await events.get()).startswith(b"event: all"):
                        pass
                return json.loads(body.split(b"data: ")[1])

            tabs: list[asyncio.Task[None]] = []
            assert "problem" in await content_of("ledger", b"before=5")
            assert "rows" in await content_of("fleet", b"search=ledger&page=5")
            for tab in tabs:
                tab.cancel()

    asyncio.run(scene())

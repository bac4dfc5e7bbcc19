"""Streams of events: what the tabs of one view are told is made once for all of them, and only while there are some."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import suppress
from typing import Any

from gateway.page.feed import Feed

__all__ = ["Channels", "DeviceSource", "LedgerSource", "Source", "WholeSource"]

CHANGE_SECONDS, DEVICE_SECONDS, LEDGER_SECONDS, QUIET_SECONDS = 0.5, 0.015, 2.0, 5.0


class Source:
    """Makes the events of a view; a tab that does not keep up is still told the newest `most_waiting`."""

    most_waiting = 1

    async def wait(self) -> None:
        """Wait until there may be more; `CHANGE_SECONDS` at most, so that tabs that have gone are noticed."""
        await asyncio.sleep(CHANGE_SECONDS)

    def more(self) -> str:
        """News for those who follow; empty if there are none."""
        raise NotImplementedError

    def joined(self) -> tuple[str, str]:
        """News for those who follow, and all that is shown now, for one who begins to."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what the source holds: nobody follows any more."""


class WholeSource(Source):
    """The whole again whenever something has changed, twice a second at most; `state` then differs from the last."""

    def __init__(self, feed: Feed, state: Callable[[], object], make: Callable[[], dict[str, Any]]) -> None:
        self._feed = feed
        self._state = state
        self._make = make
        self._told: object = None
        self._whole = ""

    def more(self) -> str:
        """See `Source`."""
        about = self._feed.about
        state = (self._state(), about)
        if state == self._told:
            return ""
        self._told, self._whole = state, _event("all", {**self._make(), "about": about})
        return self._whole

    def joined(self) -> tuple[str, str]:
        """See `Source`."""
        return self.more(), self._whole


class DeviceSource(Source):
    """Events of a device, at once: everything that waits in one event; and the state of the device.

    Raises TopicError if it is no name of a device.
    """

    most_waiting = 100

    def __init__(self, feed: Feed, device: str) -> None:
        self._feed = feed
        self._watcher = feed.watch(device)
        self._told: object = None
        self._looked = 0.0

    async def wait(self) -> None:
        """See `Source`."""
        await asyncio.sleep(DEVICE_SECONDS)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._watcher.wake.wait(), CHANGE_SECONDS)

    def more(self) -> str:
        """See `Source`."""
        return self._changed() + _update(self._feed.take(self._watcher))

    def joined(self) -> tuple[str, str]:
        """See `Source`."""
        waited, shown = self._feed.take_and_show(self._watcher)
        return self._changed() + _update(waited), _event("state", self._state()) + _update(shown)

    def close(self) -> None:
        """See `Source`."""
        self._feed.leave(self._watcher)

    def _changed(self) -> str:
        now = time.monotonic()
        if now - self._looked < CHANGE_SECONDS:
            return ""
        self._looked, state = now, self._state()
        if state == self._told:
            return ""
        self._told = state
        return _event("state", state)

    def _state(self) -> dict[str, Any]:
        return {"member": self._feed.member(self._watcher.device), "about": self._feed.about}


class LedgerSource(WholeSource):
    """A page of the ledger, again whenever it has changed: looked at in a thread of its own.

    It has an audience's entries, or, if empty, those of all that are shown, below the number `before`.
    """

    def __init__(self, feed: Feed, audience: str, before: int) -> None:
        super().__init__(feed, lambda: self._page, lambda: self._page or {})
        self._asked = (audience, before)
        self._looked = -LEDGER_SECONDS
        self._page: dict[str, Any] | None = None

    async def wait(self) -> None:
        """See `Source`."""
        if self._page is not None:
            await super().wait()
        if (now := time.monotonic()) - self._looked >= LEDGER_SECONDS:
            self._looked, self._page = now, await asyncio.to_thread(self._feed.ledger.page, *self._asked)

    def more(self) -> str:
        """See `Source`."""
        return "" if self._page is None else super().more()


class Channels:
    """The views that are shown now, by what they show."""

    def __init__(self) -> None:
        self._open: dict[Hashable, _Channel] = {}

    async def follow(self, key: Hashable, make: Callable[[], Source]) -> AsyncGenerator[bytes]:
        """Events of a view, told apart by key, for one tab: first all that is shown, then what is new.

        `make` is called if nobody shows this view yet. Yields nothing, twice a second, for the caller to look whether
        the tab is still there.
        """
        channel = self._open.get(key)
        if channel is None:
            channel = self._open[key] = _Channel(make())
        tab = channel.join()
        try:
            while not channel.failed:
                await tab.wake.wait()
                tab.wake.clear()
                said = b"".join(tab.waiting)
                tab.waiting.clear()
                yield said
        finally:
            if channel.leave(tab) and self._open.get(key) is channel:
                del self._open[key]


class _Tab:
    def __init__(self, most_waiting: int) -> None:
        self.waiting: deque[bytes] = deque(maxlen=most_waiting)
        self.wake = asyncio.Event()


class _Channel:
    def __init__(self, source: Source) -> None:
        self.failed = False
        self._source = source
        self._tabs: list[_Tab] = []
        self._said = time.monotonic()
        self._task = asyncio.create_task(self._run())

    def join(self) -> _Tab:
        tab = _Tab(self._source.most_waiting)
        new, whole = self._source.joined()
        self._tell(new)
        tab.waiting.append(whole.encode())
        tab.wake.set()
        self._tabs.append(tab)
        return tab

    def leave(self, tab: _Tab) -> bool:
        """True if it was the last."""
        self._tabs.remove(tab)
        if not self._tabs:
            self._task.cancel()
            self._source.close()
        return not self._tabs

    async def _run(self) -> None:
        try:
            while True:
                await self._source.wait()
                self._tell(self._source.more())
        finally:
            self.failed = True
            self._tell("")

    def _tell(self, text: str) -> None:
        now, said = time.monotonic(), text.encode()
        quiet = not said and now - self._said > QUIET_SECONDS
        if said or quiet:
            self._said = now
        for tab in self._tabs:
            if said:
                tab.waiting.append(said)
            elif quiet and not tab.waiting:
                tab.waiting.append(b": \n\n")
            tab.wake.set()


def _update(all_new: list[dict[str, Any]]) -> str:
    return _event("update", all_new) if all_new else ""


def _event(name: str, data: object) -> str:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"

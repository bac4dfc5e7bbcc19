"""The demo's two pictures while the night goes on, with the truth drawn in.

The truth comes from the recordings, which the demo has. It goes from the demo to the process of its own page, and from
there to a browser on this machine: `gateway.page` has no place for it, and no message has it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from threading import Lock
from typing import Any

from rich.table import Table
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from fugu.cli.demo.evaluation import BEATS, FLEET, Person, night_so_far, summary
from fugu.cli.demo.pictures import private_picture, useful_picture
from fugu.cli.view.terminal import table as rich_table
from fugu.contract.errors import FuguError
from fugu.contract.frames import Status, WindowFrame
from fugu.contract.policy import Policy
from fugu.contract.topics import parse_topic, status_topic, window_topic
from fugu.mqtt import Broker, Link
from gateway.page.feed import Feed, Watcher
from gateway.page.login import PageError
from gateway.page.server import PageBeside, PageSettings

__all__ = ["Observer", "demo_page"]


_BAR = 12


@dataclass
class _Device:
    """Progress of one device, whose recording has so many heartbeats, and when it last was another than before."""

    beats: int
    moved: float = 0.0
    version: int = 0
    online: bool = False
    ticks: int = 0
    outbox_depth: int = 0
    error: str = ""
    windows: int = 0
    share: float | None = None


class Observer:
    """Subscribes to everything that the devices of a fleet publish; how many heartbeats each will see is known."""

    def __init__(self, broker: Broker, fleet: str, devices: Mapping[str, int]) -> None:
        self._devices = {device: _Device(beats) for device, beats in devices.items()}
        self._lock = Lock()
        self.link = Link(
            broker,
            client_id="demo-observer",
            subscriptions=(status_topic(fleet, "+"), window_topic(fleet, "+", "+")),
            on_message=self._received,
        )

    def _received(self, topic: str, payload: bytes, _retained: bool) -> None:
        try:
            parsed = parse_topic(topic)
            with self._lock:
                device = self._devices[parsed.device]
                before = replace(device)
                self._of_device(device, parsed.kind, payload)
                if device != before and device.online:  # a will is the broker's
                    device.moved = time.monotonic()
        except (FuguError, KeyError):
            return

    @staticmethod
    def _of_device(device: _Device, kind: str, payload: bytes) -> None:
        if kind == "status":
            status = Status.decode(payload)
            device.online, device.outbox_depth = status.online, status.outbox_depth
            device.error = " ".join(status.codes)
            for stream in status.streams:
                device.version, device.ticks = stream.policy_version, stream.next_tick
        elif kind == "window":
            window = WindowFrame.decode(payload)
            device.windows = max(device.windows, window.index + 1)
            device.share = min(max(window.counts[0] / window.length, 0.0), 1.0)

    def errors(self) -> dict[str, str]:
        """The problem that each device reports, if it does."""
        with self._lock:
            return {name: device.error for name, device in self._devices.items() if device.error}

    def online(self, version: int) -> bool:
        """True if all devices are online with a version of their policies."""
        with self._lock:
            return all(device.online and device.version == version for device in self._devices.values())

    def stands(self, device: str, since: float) -> tuple[float, str]:
        """How many seconds nothing of a device has changed, of those since a moment, and where it stands."""
        with self._lock:
            one = self._devices[device]
            where = f"heartbeat {min(one.ticks, one.beats)} of {one.beats}, {one.outbox_depth} messages waiting"
            return time.monotonic() - max(one.moved, since), where

    def table(self, title: str) -> Table:
        """Table of the progress so far."""
        table = rich_table(title, ("device", "heartbeats", "windows", "newest share above baseline", "outbox"))
        with self._lock:
            for name, device in self._devices.items():
                filled = round((device.share or 0.0) * _BAR)
                bar = "█" * filled + "·" * (_BAR - filled)
                share = "" if device.share is None else f"{100 * device.share:.0f} % {bar}"
                ticks = f"{min(device.ticks, device.beats)} of {device.beats}"
                table.add_row(name, ticks, f"{device.windows}", share, f"{device.outbox_depth}")
        return table


PORT = 8080
_HEADERS = {"cache-control": "no-store"}


def demo_page(people: Sequence[Person], policies: Mapping[str, Policy], broker: Broker) -> PageBeside:
    """The page on loopback, for as long as a context lasts: at port 8080, or any other if that is taken.

    Raises:
        PageError: it cannot be served.
    """
    additions = partial(_additions, people, policies)
    try:
        return PageBeside(PageSettings(FLEET, broker, ("127.0.0.1", PORT)), additions)
    except PageError:
        return PageBeside(PageSettings(FLEET, broker, ("127.0.0.1", 0)), additions)


def _additions(people: Sequence[Person], policies: Mapping[str, Policy], feed: Feed) -> Sequence[Route]:
    """Additional routes of the demo's page: itself, how far a night is, and its pictures."""
    nights = {person.device: _Live(person, policies[person.device], feed.watch(person.device)) for person in people}
    assets = {one.name: one.read_text() for one in (files("fugu.cli.demo") / "assets").iterdir()}

    async def page(_request: Request) -> Response:
        return Response(assets["demo.html"], media_type="text/html", headers=_HEADERS)

    async def script(_request: Request) -> Response:
        return Response(assets["demo.js"], media_type="text/javascript", headers=_HEADERS)

    async def state(request: Request) -> Response:
        live = nights.get(request.path_params["device"])
        if live is None:
            return PlainTextResponse("not found", 404)
        return JSONResponse(live.state(), headers=_HEADERS)

    async def picture(request: Request) -> Response:
        live = nights.get(request.path_params["device"])
        found = None if live is None else live.pictures.get(request.path_params["name"])
        if found is None:
            return PlainTextResponse("not found", 404)
        return Response(found, media_type="image/svg+xml", headers=_HEADERS)

    return [
        Route("/demo", page),
        Route("/demo/demo.js", script),
        Route("/demo/{device}", state),
        Route("/demo/{device}/{name}.svg", picture),
    ]


class _Live:
    """A night as far as it has come.

    Args:
        watcher: what has come of the device since the page began.

    Attributes:
        pictures: the newest, by name.
    """

    def __init__(self, person: Person, policy: Policy, watcher: Watcher) -> None:
        self.pictures: dict[str, str] = {}
        self._person = person
        self._policy = policy
        self._watcher = watcher
        self._windows: dict[int, Mapping[str, Any]] = {}
        self._drawn: dict[str, Any] = {"windows": 0, "of": person.states.size // BEATS - 1, "said": ()}
        self._drawing: asyncio.Task[None] | None = None

    def state(self) -> dict[str, Any]:
        """How many windows are in the pictures, of how many, and what these say; others are drawn if more have come."""
        while self._watcher.waiting:
            one = self._watcher.waiting.popleft()
            if one["kind"] == "window" and one["observed"] == one["length"] and one["first"] >= BEATS:
                self._windows[one["first"]] = one
        idle = self._drawing is None or self._drawing.done()
        if idle and len(self._windows) > self._drawn["windows"]:
            self._drawing = asyncio.create_task(self._draw(dict(self._windows)))
        return self._drawn

    async def _draw(self, windows: Mapping[int, Mapping[str, Any]]) -> None:
        night = await asyncio.to_thread(night_so_far, self._person, self._policy, windows)
        whole = float(self._person.hours[-1])
        self.pictures = {"useful": useful_picture(night, whole), "private": private_picture(night)}
        self._drawn = {**self._drawn, "windows": len(windows), "said": summary(night)}

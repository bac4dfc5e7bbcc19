"""The demo's two pictures while the night goes on, with the truth drawn in.

The truth comes from the recordings, which the demo has. It goes from the demo to the process of its own page, and from
there to a browser on this machine: `gateway.page` has no place for it, and no message has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from fugu.cli.demo.evaluation import night_so_far, summary
from fugu.cli.demo.people import BEATS, FLEET, Person
from fugu.cli.demo.pictures import private_picture, useful_picture
from fugu.contract.policy import Policy
from fugu.mqtt import Broker
from gateway.page.feed import Feed, Watcher
from gateway.page.login import PageError
from gateway.page.server import PageBeside, PageSettings

__all__ = ["demo_page"]

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
    """What the demo's page serves besides: itself, how far a night is, and its pictures."""
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

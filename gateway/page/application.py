"""The page's web server: a few files, and one stream of events for each tab. It answers GET, and POST for the login."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fugu.contract.errors import TopicError
from fugu.contract.topics import check_device_name
from gateway.page import Fields
from gateway.page.connections import Connections
from gateway.page.feed import Feed
from gateway.page.fleet_view import FleetQuery
from gateway.page.login import Login, network_of

__all__ = ["Channels", "application"]


CHANGE_SECONDS, DEVICE_SECONDS, LEDGER_SECONDS, QUIET_SECONDS = 0.5, 0.015, 2.0, 5.0


class _EventSource:
    """Makes the events of a view. `max_waiting` events wait for each tab; then the oldest of them is dropped."""

    max_waiting = 1

    async def wait(self) -> None:
        """Wait until there may be new events, at most about half a second, so that closed tabs are noticed."""
        await asyncio.sleep(CHANGE_SECONDS)

    def new_events(self) -> str:
        """Return new events for the tabs of the view, or ''."""
        raise NotImplementedError

    def events_and_content(self) -> tuple[str, str]:
        """Return new events for the view's present tabs, and the whole content for a tab that joins."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the source's watcher or other resources, after the last tab has left."""


_MakeSource = Callable[[], _EventSource]


class _FullSource(_EventSource):
    """Sends the whole content again when `state` returns another value, at most twice a second."""

    def __init__(self, feed: Feed, state: Callable[[], object], make_content: Callable[[], Fields]) -> None:
        self._feed = feed
        self._state = state
        self._make_content = make_content
        self._last_state: object = None
        self._last_event = ""

    def new_events(self) -> str:
        account_view = self._feed.about
        state = (self._state(), account_view)
        if state == self._last_state:
            return ""
        self._last_state, self._last_event = state, _event("all", {**self._make_content(), "about": account_view})
        return self._last_event

    def events_and_content(self) -> tuple[str, str]:
        return self.new_events(), self._last_event


class _DeviceSource(_EventSource):
    """Sends all waiting updates of a device in one event, and its state when that has changed.

    Raises TopicError if `device` is no device's name.
    """

    max_waiting = 100

    def __init__(self, feed: Feed, device: str) -> None:
        self._feed = feed
        self._watcher = feed.watch(device)
        self._last_state: object = None
        self._looked_at = 0.0

    async def wait(self) -> None:
        await asyncio.sleep(DEVICE_SECONDS)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._watcher.wake.wait(), CHANGE_SECONDS)

    def new_events(self) -> str:
        return self._state_event() + _updates_event(self._feed.take(self._watcher))

    def events_and_content(self) -> tuple[str, str]:
        updates, content = self._feed.take_and_show(self._watcher)
        return self._state_event() + _updates_event(updates), _event("state", self._state()) + _updates_event(content)

    def close(self) -> None:
        self._feed.leave(self._watcher)

    def _state_event(self) -> str:
        now = time.monotonic()
        if now - self._looked_at < CHANGE_SECONDS:
            return ""
        self._looked_at, state = now, self._state()
        if state == self._last_state:
            return ""
        self._last_state = state
        return _event("state", state)

    def _state(self) -> Fields:
        return {"member": self._feed.member(self._watcher.device), "about": self._feed.about}


class _LedgerSource(_FullSource):
    """Sends a page of the ledger whenever it has changed; a thread reads it every two seconds.

    The page has the entries below a number, of one audience, or of all shown audiences if `audience` is empty.
    """

    def __init__(self, feed: Feed, audience: str, below_number: int) -> None:
        super().__init__(feed, lambda: self._page, lambda: self._page or {})
        self._ledger_query = (audience, below_number)
        self._looked_at = -LEDGER_SECONDS
        self._page: Fields | None = None

    async def wait(self) -> None:
        if self._page is not None:
            await super().wait()
        if (now := time.monotonic()) - self._looked_at >= LEDGER_SECONDS:
            self._looked_at, self._page = now, await asyncio.to_thread(self._feed.ledger.page, *self._ledger_query)

    def new_events(self) -> str:
        return "" if self._page is None else super().new_events()


class Channels:
    """The channels of all views that tabs show now, by the key of the view."""

    def __init__(self) -> None:
        self._channels: dict[Hashable, _Channel] = {}

    async def follow(self, view_key: Hashable, make_source: _MakeSource) -> AsyncGenerator[bytes]:
        """Yield the events of the view `view_key` for one tab: first the whole content, then new events.

        `make_source` is called if no tab shows this view yet. Yields b"" when there is no event for half a second, so
        that the caller can check whether the tab is still there. Ends if the source fails.
        """
        channel = self._channels.get(view_key)
        if channel is None:
            channel = self._channels[view_key] = _Channel(make_source())
        tab = channel.join()
        try:
            while not channel.has_failed:
                await tab.wake.wait()
                tab.wake.clear()
                event_bytes = b"".join(tab.waiting_events)
                tab.waiting_events.clear()
                yield event_bytes
        finally:
            if channel.leave(tab) and self._channels.get(view_key) is channel:
                del self._channels[view_key]


class _Tab:
    def __init__(self, max_waiting: int) -> None:
        self.waiting_events: deque[bytes] = deque(maxlen=max_waiting)
        self.wake = asyncio.Event()


class _Channel:
    def __init__(self, source: _EventSource) -> None:
        self.has_failed = False
        self._source = source
        self._tabs: list[_Tab] = []
        self._sent_at = time.monotonic()
        self._task = asyncio.create_task(self._run())

    def join(self) -> _Tab:
        tab = _Tab(self._source.max_waiting)
        events, content = self._source.events_and_content()
        self._send(events)
        tab.waiting_events.append(content.encode())
        tab.wake.set()
        self._tabs.append(tab)
        return tab

    def leave(self, tab: _Tab) -> bool:
        """Remove a tab. Return True if it was the last."""
        self._tabs.remove(tab)
        if not self._tabs:
            self._task.cancel()
            self._source.close()
        return not self._tabs

    async def _run(self) -> None:
        try:
            while True:
                await self._source.wait()
                self._send(self._source.new_events())
        finally:
            self.has_failed = True
            self._send("")

    def _send(self, events: str) -> None:
        now, event_bytes = time.monotonic(), events.encode()
        is_quiet = not event_bytes and now - self._sent_at > QUIET_SECONDS
        if event_bytes or is_quiet:
            self._sent_at = now
        for tab in self._tabs:
            if event_bytes:
                tab.waiting_events.append(event_bytes)
            elif is_quiet and not tab.waiting_events:
                tab.waiting_events.append(b": \n\n")
            tab.wake.set()


def _updates_event(updates: list[Fields]) -> str:
    return _event("update", updates) if updates else ""


def _event(name: str, content: object) -> str:
    return f"event: {name}\ndata: {json.dumps(content, separators=(',', ':'))}\n\n"


COOKIE = "fugu_session"
_MAX_TABS = 200
"""Most streams of events at once."""
_MAX_FORM_BYTES, _FORM_SECONDS = 8192, 60.0
_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"base-uri 'none'; form-action 'self'; frame-ancestors ",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "txt": "text/plain"}
_PREFIX = re.compile(r"(?:/[A-Za-z0-9_-]+)+")
_PUBLIC = {"/login", "/assets/login.html", "/assets/page.css", "/assets/icon.svg"}


def application(
    feed: Feed,
    connections: Connections,
    *,
    login: Login | None,
    hosts: Sequence[str],
    secure: bool,
    stop_event: asyncio.Event,
    ingress: str | None = None,
) -> ASGIApp:
    """Return the page as an ASGI application.

    Args:
        feed: the state that the page shows.
        connections: the listening socket, which is told of each request.
        login: checks passwords and sessions; `None` for a page without a login.
        hosts: accepted `Host` headers, against pages of others that point their own name here; all if empty.
        secure: whether the page is served over TLS.
        stop_event: set when open streams are to end.
        ingress: the only address that may ask, Home Assistant's, which has logged its readers in; `None` for any. It
            shows the page in a frame, below a path that its requests name.
    """
    assets = {file.name: file.read_bytes() for file in (files("gateway.page") / "assets").iterdir() if file.is_file()}
    tabs = _Tabs(feed, login, stop_event)

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in assets:
            return PlainTextResponse("not found", 404)
        # An update of the package may change a file under the same address.
        return Response(assets[name], media_type=_KINDS[name.rpartition(".")[2]], headers={"cache-control": "no-cache"})

    def html_page(name: str, request: Request, status: int = 200) -> Response:
        prefix = request.headers.get("x-ingress-path", "") if ingress is not None else ""
        html = assets[name].replace(b'="/', f'="{prefix}/'.encode()) if _PREFIX.fullmatch(prefix) else assets[name]
        return Response(html, status, media_type="text/html", headers={"cache-control": "no-store"})

    async def page(request: Request) -> Response:
        return html_page("index.html", request)

    async def log_in(request: Request) -> Response:
        if login is None:
            return RedirectResponse("/", 303)
        if request.method == "GET":
            return html_page("login.html", request)
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return PlainTextResponse("from another page", 403)
        peer = request.client.host if request.client is not None else ""
        try:
            async with asyncio.timeout(_FORM_SECONDS):
                password = await _read_password(request)
        except TimeoutError:
            return PlainTextResponse("too slow", 408)
        async with login_lock:  # one at a time: a hash takes 16 MB
            if seconds := login.wait_seconds(peer):
                return _refusal(request, "/login#wait", 429, {"retry-after": str(int(seconds) + 1)})
            session = await asyncio.to_thread(login.enter, password, peer)
        if session is None:
            return _refusal(request, "/login#wrong", 403)
        response = RedirectResponse("/", 303)
        cookie_age = int(login.session_seconds) or 1
        response.set_cookie(COOKIE, session, max_age=cookie_age, httponly=True, samesite="strict", secure=secure)
        return response

    async def log_out(request: Request) -> Response:
        if login is not None and request.headers.get("sec-fetch-site", "same-origin") == "same-origin":
            login.end(request.cookies.get(COOKIE, ""))
        response = RedirectResponse("/login", 303)
        response.delete_cookie(COOKIE)
        return response

    async def not_found(request: Request, _error: Exception) -> Response:
        return html_page("index.html", request, 404) if _wants_html(request) else PlainTextResponse("not found", 404)

    login_lock = asyncio.Lock()
    pages = ("/", "/device/{name}", "/place/{name}", "/releases", "/ledger")
    routes = [
        *(Route(path, page) for path in pages),
        Route("/login", log_in, methods=["GET", "POST"]),
        Route("/logout", log_out, methods=["POST"]),
        Route("/assets/{name}", asset),
        Route("/events/{view}", tabs.answer),
        Route("/events/device/{device}", tabs.answer),
    ]

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(feed.run())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={404: not_found})
    return _guarded(app, connections, login, hosts, ingress)


def _refusal(request: Request, page: str, status: int, headers: dict[str, str] | None = None) -> Response:
    """Send a browser to a page, and answer any other program with a status."""
    if _wants_html(request):
        return RedirectResponse(page, 303, headers)
    return JSONResponse({"error": "refused"}, status, headers)


def _is_signed_in(request: Request, login: Login | None) -> bool:
    return login is None or login.knows(request.cookies.get(COOKIE, ""))


def _wants_html(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


async def _read_password(request: Request) -> str:
    form_bytes = b""
    async for chunk in request.stream():
        form_bytes += chunk
        if len(form_bytes) > _MAX_FORM_BYTES:
            return ""
    return parse_qs(form_bytes.decode("utf-8", "replace")).get("password", [""])[0]


def _guarded(
    app: ASGIApp, connections: Connections, login: Login | None, hosts: Sequence[str], ingress: str | None
) -> ASGIApp:
    """Add headers to every answer. Refuse requests without a session, to another host name, or from elsewhere."""
    (header_name, directives), *other_headers = _HEADERS
    headers = [(header_name, directives + (b"'none'" if ingress is None else b"'self'")), *other_headers]

    def why_refused(request: Request, *, may_ask: bool, is_signed_in: bool) -> Response | None:
        if not may_ask:
            return PlainTextResponse("not from here", 403)
        if hosts and request.headers.get("host", "") not in hosts:
            return PlainTextResponse("not a name of this page", 421)
        if is_signed_in or request.url.path in _PUBLIC:
            return None
        return _refusal(request, "/login", 401)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        request = Request(scope)
        may_ask = ingress in (None, scope["client"][0])
        is_signed_in = may_ask and _is_signed_in(request, login)
        with connections.answering(scope["client"], is_signed_in=is_signed_in):
            answering_app = why_refused(request, may_ask=may_ask, is_signed_in=is_signed_in) or app
            await answering_app(scope, receive, with_headers)

    return answer


class _Tabs:
    """At most `_MAX_TABS` streams of events. A network with few displaces the oldest of the network with most."""

    def __init__(self, feed: Feed, login: Login | None, stop_event: asyncio.Event) -> None:
        self._feed = feed
        self._login = login
        self._stop_event = stop_event
        self._networks: dict[Request, str] = {}  # by open stream, the oldest first
        self._channels = Channels()

    async def answer(self, request: Request) -> Response:
        """Answer with the events of a view, as long as its tab is there."""
        network = network_of(request.client.host if request.client is not None else "")
        if self._is_full_for(network):
            return PlainTextResponse("too many pages are open", 503)
        view = None
        with suppress(TopicError):
            view = self._view(request)
        if view is None:
            return PlainTextResponse("not found", 404)
        headers = {"content-type": "text/event-stream", "cache-control": "no-store"}
        return StreamingResponse(self._yield_events(request, network, *view), headers=headers)

    def _is_full_for(self, network: str) -> bool:
        """Return True if no stream of events is free, and no other network has two streams more than this one."""
        tab_counts = Counter(self._networks.values())
        return len(self._networks) >= _MAX_TABS and tab_counts[network] + 1 >= max(tab_counts.values())

    async def _yield_events(
        self, request: Request, network: str, view_key: Hashable, make_source: _MakeSource
    ) -> AsyncIterator[bytes]:
        if self._is_full_for(network):  # other streams may have begun since `answer`
            return
        if len(self._networks) >= _MAX_TABS:
            ((largest_network, _),) = Counter(self._networks.values()).most_common(1)
            oldest_tab = next(other_tab for other_tab, name in self._networks.items() if name == largest_network)
            del self._networks[oldest_tab]  # it ends before its next event, even an empty one
        self._networks[request] = network
        try:
            async with aclosing(self._channels.follow(view_key, make_source)) as events:
                async for event in events:
                    if self._stop_event.is_set() or request not in self._networks:
                        return
                    if not _is_signed_in(request, self._login):
                        yield b"event: expired\ndata: {}\n\n"
                        return
                    if event:
                        yield event
        finally:
            self._networks.pop(request, None)

    def _view(self, request: Request) -> tuple[Hashable, _MakeSource] | None:
        """Return the key of the requested view, and a function that makes its source; `None` if there is no such view.

        Raises TopicError for a view of a device with a name that no device can have.
        """
        feed = self._feed
        match request.path_params:
            case {"device": device}:
                check_device_name(device)
                return ("device", device), lambda: _DeviceSource(feed, device)
            case {"view": "fleet"}:
                params = request.query_params
                search, condition = params.get("search", ""), params.get("condition", "")
                query = FleetQuery.of_request(search, condition, _int_param(request, "page", 0))
                state, make_page = (lambda: feed.changes[0]), (lambda: feed.fleet_page(query))
                return ("fleet", *query), lambda: _FullSource(feed, state, make_page)
            case {"view": "releases"}:
                return "releases", lambda: _FullSource(
                    feed, lambda: feed.changes[1], lambda: {"releases": feed.releases()}
                )
            case {"view": "ledger"}:
                ledger_query = (request.query_params.get("audience", "")[:64], _int_param(request, "before", 2**62))
                return ("ledger", *ledger_query), lambda: _LedgerSource(feed, *ledger_query)
        return None


def _int_param(request: Request, name: str, default: int) -> int:
    query_param = request.query_params.get(name, "")
    return int(query_param) if query_param.isascii() and query_param.isdigit() and len(query_param) < 16 else default

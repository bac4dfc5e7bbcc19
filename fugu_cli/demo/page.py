"""The live page of a replay, for one browser on this machine.

The page shows the truth beside what leaves. The program that has the recording serves the page from memory, on
loopback. The browser needs the token in the page's address, which can be used once. No message and no file has the
truth.

Other accounts of the machine can read command lines, also that of a browser. So the browser is given a file of mode
0600 that leads to the address, and is deleted at the token's first use. If the token is used a second time, two had it,
and the program ends. A browser treats a page that was opened by a file, and a redirect, as coming from another site.
Only the request with the token may come from another site, and its answer leads on as a page of this site.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import tempfile
import threading
import traceback
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from io import BufferedIOBase
from pathlib import Path
from queue import Full, Queue
from typing import Any, Self, TypeVar
from urllib.parse import parse_qs, urlsplit

from fugu.contract.errors import FuguError
from fugu.lanes import Lane, lanes_document, lanes_svg
from fugu.library.report import JsonObject
from fugu_cli.view.terminal import say

__all__ = ["Page", "fault_text", "queue_request", "write_pictures"]

_COOKIE = "fugu_replay"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "json": "application/json"}
_SHARED = "dom.js", "lanes.js", "lanes.css"
"""Files of the gateway's page, which this page uses as well."""
_REPORT = "report.html"
_LAST_ANSWER_SECONDS = 5.0
_MOST_WORDS = 1 << 16
"""The most bytes of a form that is sent."""
_LEADS = (
    '<!doctype html><meta charset="utf-8"><title>Fugu</title><link rel="icon" href="data:,">'
    '<meta http-equiv="refresh" content="0; url={0}">'
)
_TAKEN = (
    "somebody else on this machine has used the address of the page, which is for one browser. Nothing is shown any "
    "more: see who is logged in, then start again"
)
_Request = TypeVar("_Request")
_Posted = Callable[[str, dict[str, str], BufferedIOBase, int], HTTPStatus]


class Page:
    """A server of the page, at a port of its own, while a context lasts.

    With `browser` it opens the page if there is a screen; its address is printed in any case. `handle_post` takes a
    path, a query, a body and its length that the page sends; without it nothing may be sent.
    """

    def __init__(self, *, browser: bool, handle_post: _Posted | None = None) -> None:
        self._state: JsonObject = {"replays": []}
        demo_assets, gateway_assets = files("fugu_cli.demo") / "assets", files("gateway.page") / "assets"
        assets = *demo_assets.iterdir(), *(gateway_assets / name for name in _SHARED)
        self._files = {f"/{asset.name}": asset.read_bytes() for asset in assets if asset.is_file()}
        self._browser = browser
        self._draw_count = 0
        self._posted = handle_post
        self._token, self._session = secrets.token_urlsafe(24), ""
        self._is_entered = self._is_taken = False
        self._session_lock, self._state_lock = threading.Lock(), threading.Lock()
        self._leading_path: Path | None = None
        self._answer_threads: set[threading.Thread] = set()
        self._server = _Server(("127.0.0.1", 0), self._handler_class())
        self._hosts = [f"{name}:{self._server.server_port}" for name in ("127.0.0.1", "localhost")]
        self.address = f"http://{self._hosts[0]}/?token={self._token}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="page", daemon=True).start()
        say(f"the page, for one browser: {self.address}")
        if self._browser and sys.stdout.isatty() and (os.name != "posix" or _has_screen()):
            webbrowser.open(self._leading_file().as_uri())
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for thread in [*self._answer_threads]:  # the request that ends the page is answered, too
            thread.join(_LAST_ANSWER_SECONDS)
        self._forget_file()
        if self._is_taken:
            raise FuguError(_TAKEN)

    def show(self, **fields: Any) -> None:
        """Change some fields of the page."""
        with self._state_lock:
            self._state = {**self._state, **fields}

    def show_replay(self, index: int, **fields: Any) -> None:
        """Change some fields of a replay; the next free index adds a replay."""
        replays = dict(enumerate(self._state["replays"]))
        replays[index] = {**replays.get(index, {}), **fields}
        self.show(replays=[*replays.values()])

    def draw(self, index: int, lanes: list[Lane], attackers: Mapping[str, Lane] | None = None, **fields: Any) -> None:
        """Replace the drawing of a replay.

        `lanes` are the readings, the released values, and the attacker who knows the habits. The lanes of other
        `attackers` are by name, and `fields` are further fields of the drawing.
        """
        *lane_documents, attacker_document = lanes_document(lanes)
        attacker_documents = {name: lanes_document([lane])[0] for name, lane in (attackers or {}).items()}
        attacker_documents = {"knows": attacker_document, **attacker_documents}
        document = {"lanes": lane_documents, "attackers": attacker_documents, **fields}
        self._files[f"/lanes-{index}.json"] = json.dumps(document, allow_nan=False).encode()
        self._draw_count += 1
        self.show_replay(index, drawn=self._draw_count)

    def link(self, report: str) -> None:
        """Serve a report, and link it on the page."""
        self._files[f"/{_REPORT}"] = report.encode(errors="backslashreplace")
        self.show(report=_REPORT)

    def stay(self, choices: Queue[int] | None = None) -> int | None:
        """Serve until the user chooses, and return the number; None after Ctrl-C, or at once without a terminal."""
        if sys.stdout.isatty():
            say("the page stays until Ctrl-C")
            with suppress(KeyboardInterrupt):
                return (choices or Queue[int]()).get()
        return None

    def enter(self, token: str, session: str = "") -> str | None:
        """Return a session for the token at its first use; None if the token is wrong or was used.

        A second use ends the program, unless it is by the session of the first use.
        """
        with self._session_lock:
            if not secrets.compare_digest(token.encode(), self._token.encode()):
                return None
            if not self._is_entered:
                self._is_entered, self._session = True, secrets.token_urlsafe(24)
                self._forget_file()
                return self._session
            if self._belongs(session):
                return self._session
            self._is_taken, self._session = True, ""
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        return None

    def _belongs(self, session: str) -> bool:
        """Return whether a session is the one of this page's browser."""
        return bool(self._session) and secrets.compare_digest(session.encode(), self._session.encode())

    def _leading_file(self) -> Path:
        """Write a file that leads to the address. Only this account may read it; the token's first use deletes it."""
        handle, name = tempfile.mkstemp(prefix="fugu-page-", suffix=".html")  # of mode 0600
        os.close(handle)
        self._leading_path = Path(name)
        self._leading_path.write_text(_LEADS.format(self.address))
        if self._is_entered:  # meanwhile
            self._forget_file()
        return self._leading_path

    def _forget_file(self) -> None:
        if self._leading_path is not None:
            self._leading_path.unlink(missing_ok=True)

    def _answer(
        self, path: str, headers: Any, posted_body: BufferedIOBase | None = None
    ) -> tuple[HTTPStatus, str, bytes, dict[str, str]]:
        """Answer a request: return the status, type, body and further headers. `posted_body` is None for GET."""
        url, host = urlsplit(path), headers.get("Host", "")
        if host not in self._hosts:
            return HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"not a name of this page", {}
        session = _session_cookie(headers)
        if posted_body is None and url.path == "/" and (token := parse_qs(url.query).get("token")):
            if (new_session := self.enter(token[0], session)) is None:
                return HTTPStatus.FORBIDDEN, "text/plain", b"this address has been used: it is for one browser", {}
            cookie = f"{_COOKIE}={new_session}; HttpOnly; SameSite=Lax; Path=/"
            return HTTPStatus.OK, "text/html", _LEADS.format("/").encode(), {"Set-Cookie": cookie}
        origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site", "none")
        if (origin is not None and origin != f"http://{host}") or site not in ("none", "same-origin"):
            return HTTPStatus.FORBIDDEN, "text/plain", b"asked from another page", {}
        if not self._belongs(session):
            return HTTPStatus.FORBIDDEN, "text/plain", b"open the address that the terminal shows", {}
        if posted_body is not None:
            length = headers.get("Content-Length", "")
            if origin is None:  # every browser names it, of what is sent
                return HTTPStatus.FORBIDDEN, "text/plain", b"sent from no page", {}
            if self._posted is None or not (length.isascii() and length.isdigit() and len(length) < 16):
                return HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"nothing may be sent here", {}
            query = {name: query_values[0] for name, query_values in parse_qs(url.query).items()}
            return self._posted(url.path, query, posted_body, int(length)), "text/plain", b"", {}
        if url.path == "/state":
            return HTTPStatus.OK, "application/json", json.dumps(self._state).encode(), {}
        name = "/page.html" if url.path == "/" else url.path
        if (file_bytes := self._files.get(name)) is None:
            return HTTPStatus.NOT_FOUND, "text/plain", b"not found", {}
        # A report has its style inside, and nothing that runs.
        policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"} if _REPORT in name else {}
        return HTTPStatus.OK, _KINDS[name.rpartition(".")[2]], file_bytes, policy

    def _handler_class(self) -> type[BaseHTTPRequestHandler]:
        """Make the class that handles requests to this page."""
        page = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 20.0

            def do_GET(self) -> None:
                page._answer_threads.add(thread := threading.current_thread())
                try:
                    self._reply()
                finally:
                    page._answer_threads.discard(thread)

            def _reply(self) -> None:
                posted_body = self.rfile if self.command == "POST" else None
                try:
                    status, mime, answer_body, extra_headers = page._answer(self.path, self.headers, posted_body)
                except Exception as error:  # of whatever kind: the program goes on with its recording
                    page.show(stalled=(fault := fault_text(error)))
                    status, mime = HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain"
                    answer_body, extra_headers = fault.encode(), {}
                self.send_response_only(status)
                headers = {"Content-Type": f"{mime}; charset=utf-8", "Content-Length": str(len(answer_body))}
                for name, header_value in (_HEADERS | headers | extra_headers).items():
                    self.send_header(name, header_value)
                self.end_headers()
                self.wfile.write(answer_body)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                """Log nothing: addresses have the token."""

        return Handler


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Print nothing: a traceback could show what was sent."""


def queue_request(
    requests: Queue[_Request], parse: Callable[[Any], _Request], posted_body: BufferedIOBase, length: int
) -> HTTPStatus:
    """Parse a request of the page from JSON, and queue it unless another request waits."""
    if length > _MOST_WORDS:
        return HTTPStatus.BAD_REQUEST
    try:
        requests.put_nowait(parse(json.loads(posted_body.read(length))))
    except Full:
        return HTTPStatus.CONFLICT
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return HTTPStatus.BAD_REQUEST
    return HTTPStatus.ACCEPTED


def write_pictures(folder: Path, name: str, title: str, lanes: Sequence[Lane]) -> None:
    """Write lanes as two SVG files, light and dark."""
    for suffix, dark in (("", False), ("-dark", True)):
        (folder / f"{name}{suffix}.svg").write_text(lanes_svg(title, lanes, dark=dark), encoding="utf-8")


def _has_screen() -> bool:
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _session_cookie(headers: Any) -> str:
    """Return the session in the cookie of a request, '' without one."""
    try:
        morsel = SimpleCookie(headers.get("Cookie", "")).get(_COOKIE)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value


def fault_text(error: Exception) -> str:
    """Describe an unexpected error by its type and place, without its message, which might contain a reading."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"a fault of the program, {type(error).__name__} at {Path(frame.filename).name}, line {frame.lineno}: nothing "
        "is lost; try other values, and report this line"
    )

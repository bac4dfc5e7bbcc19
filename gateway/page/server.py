"""The page in a process of its own."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fugu.contract.errors import FuguError
from fugu.mqtt import Broker
from gateway.page.login import SESSION_SECONDS, Login

if TYPE_CHECKING:
    from starlette.routing import Route

    from gateway.location import Location
    from gateway.page.feed import Feed

__all__ = ["Additions", "PageError", "PageSettings", "no_additions", "serve"]

Additions = Callable[["Feed"], "Sequence[Route]"]
"""Makes what a program that has a page beside it serves there besides."""
_MOST_CONNECTIONS = 400


class PageError(FuguError):
    """The page cannot be served as it is asked for."""


@dataclass(frozen=True, slots=True)
class PageSettings:
    """What is served to whom.

    Attributes:
        listen: host and port.
        password: file with the hash of the password; none to serve whoever can connect, on loopback only.
        certificate, key: files of TLS; needed where others than this machine can connect.
        session_seconds: how long a login lasts.
        ledger: where the gateway's ledger is; none if the page shows none.
        audience: whose entries and budgets are shown of it; none for all.
    """

    fleet: str
    broker: Broker
    listen: tuple[str, int]
    password: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    session_seconds: float = SESSION_SECONDS
    ledger: Location | None = None
    audience: str | None = None

    def __post_init__(self) -> None:
        """Refuse what would show the fleet to others, or a password to the network.

        Raises:
            PageError: it says what is missing.
        """
        if not self.session_seconds > 0.0:
            raise PageError("a session lasts more than 0 seconds")
        if (self.certificate is None) != (self.key is None):
            raise PageError("TLS needs a certificate and its key")
        if not _loopback(self.listen[0]):
            if self.password is None:
                raise PageError("the page can be reached from other machines: it needs a password")
            if self.certificate is None:
                raise PageError("the page can be reached from other machines: it needs a certificate and its key")

    @property
    def address(self) -> str:
        """Where it is, for a browser."""
        host, port = self.listen
        scheme = "http" if self.certificate is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"


def no_additions(_feed: Feed) -> Sequence[Route]:
    """Nothing."""
    return ()


def serve(
    settings: PageSettings,
    listener: socket.socket | None = None,
    parent: Connection | None = None,
    additions: Additions = no_additions,
) -> None:
    """Serve the page until SIGTERM, or SIGINT if nobody has it ignored.

    Args:
        listener: listens there already.
        parent: nothing comes from it but its end, which ends the page.
        additions: what else is served.

    Raises:
        FuguError: a file cannot be read, or nobody can listen there.
    """
    asyncio.run(_serve(settings, listener, parent, additions))


async def _serve(
    settings: PageSettings, listener: socket.socket | None, parent: Connection | None, additions: Additions
) -> None:
    # Not at the top: the command explains itself where the web server is not installed.
    import uvicorn

    from gateway.page.application import application
    from gateway.page.feed import Feed
    from gateway.page.ledger_view import LedgerView

    host, port = settings.listen
    login = None if settings.password is None else Login(settings.password, settings.session_seconds)
    names = {host, "localhost", "127.0.0.1", "[::1]"} if login is None else set[str]()
    stop = asyncio.Event()
    feed = Feed(settings.fleet, settings.broker, LedgerView(settings.ledger, settings.audience))
    app = application(
        feed,
        login=login,
        hosts=[f"{name}:{port}" for name in names],
        secure=settings.certificate is not None,
        stop=stop,
        additions=additions(feed),
    )
    tls: dict[str, Any] = {}
    if settings.certificate is not None:
        tls = {"ssl_certfile": settings.certificate, "ssl_keyfile": settings.key}
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=2,
        **tls,
    )
    server = uvicorn.Server(config)

    def end() -> None:
        stop.set()
        server.should_exit = True

    def ended() -> None:
        assert parent is not None
        loop.remove_reader(parent.fileno())
        end()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, end)
    if parent is not None:
        loop.add_reader(parent.fileno(), ended)
    try:
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        await server._serve(None if listener is None else [listener])
    except SystemExit:
        raise PageError(f"nobody can listen at {settings.address}") from None


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

"""The page's server, in this process or in a process of its own beside another program."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import ssl
import threading
from importlib.util import find_spec
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Self

from fugu.contract.errors import FuguError, cause
from fugu.host.process import end_with_parent
from fugu.host.terminal import LogSettings, log_settings, log_to_stderr
from gateway.config import PageSettings
from gateway.page.login import Login

__all__ = ["PageBeside", "serve"]


SUPERVISOR = "172.30.32.2"
"""The address of Home Assistant's ingress on the network of its add-ons. Its readers are logged in."""


def serve(settings: PageSettings, listener: socket.socket | None = None, parent: Connection | None = None) -> None:
    """Serve the page until SIGTERM, or until SIGINT unless the process ignores it.

    The page also ends when the other end of the pipe `parent` closes. Raises FuguError if a file cannot be read, the
    address cannot be used, or the web server is not installed.
    """
    _check_settings(settings)
    asyncio.run(_serve_page(settings, listener, parent))


async def _serve_page(settings: PageSettings, listener: socket.socket | None, parent: Connection | None) -> None:
    # Not imported at the top, so that `--help` works where the web server is not installed.
    import uvicorn

    from gateway.page.application import application
    from gateway.page.connections import Connections
    from gateway.page.feed import Feed
    from gateway.page.ledger_view import LedgerView

    host, port = settings.listen
    connections = Connections(listener or _listen(settings))
    login = None if settings.page.login_file is None else Login(settings.page.login_file, settings.page.session_seconds)
    hosts = {host, "localhost", "127.0.0.1", "[::1]"} if login is None and not settings.page.ingress else set[str]()
    stop_event = asyncio.Event()
    feed = Feed(settings.fleet, settings.broker, LedgerView(settings.ledger, settings.page.audience), settings.store)
    app = application(
        feed,
        connections,
        login=login,
        hosts=[*hosts, *(f"{name}:{port}" for name in hosts)],  # without the port if it is the scheme's own
        secure=settings.page.tls_cert is not None,
        stop_event=stop_event,
        ingress=SUPERVISOR if settings.page.ingress else None,
    )
    config = uvicorn.Config(
        app,
        http="h11",  # the other parser has no limit for a head
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=2,
        ssl_certfile=settings.page.tls_cert,
        ssl_keyfile=settings.page.tls_key,
    )
    server = uvicorn.Server(config)

    def stop_server() -> None:
        stop_event.set()
        server.should_exit = True
        if parent is not None:
            loop.remove_reader(parent.fileno())

    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(signal_number) is not signal.SIG_IGN:
            loop.add_signal_handler(signal_number, stop_server)
    if parent is not None:
        loop.add_reader(parent.fileno(), stop_server)
    await server._serve([connections])


_log = logging.getLogger(__name__)
_NICE = 10
"""The page yields the processor to the gateway."""
_STOP_SECONDS = 5.0
"""After that the page's process is killed: it stores nothing."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_PACKAGES = ("starlette", "uvicorn")


class PageBeside:
    """Serves the page in a process of its own while a context lasts. Port 0 stands for any free port.

    The address is bound at once and kept until the end. So no other program gets it while the page's process is started
    again after a failure. That process ends with this one, however this one ends.

    Raises FuguError if the address is in use, a file cannot be used, or the web server is not installed.
    """

    def __init__(self, settings: PageSettings) -> None:
        _check_settings(settings)
        self._listener = _listen(settings)
        self.settings = settings._replace(listen=(settings.listen[0], self._listener.getsockname()[1]))
        self._context = multiprocessing.get_context("spawn")
        self._logs = log_settings()
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._pipe: Connection | None = None
        self._process: SpawnProcess | None = None
        self._thread = threading.Thread(target=self._restart_page, name="page", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        with self._lock:
            self._ending.set()
            if self._pipe is not None:
                self._pipe.close()
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive() and self._process is not None:
            self._process.kill()
            self._thread.join()
        self._listener.close()

    def _restart_page(self) -> None:
        pause = _FIRST_PAUSE
        while (process := self._start_process()) is not None:
            process.join()
            if self._ending.is_set() or process.exitcode == 0:
                return
            _log.error("the page has ended with code %s: it is started again in %.0f s", process.exitcode, pause)
            if self._ending.wait(pause):
                return
            pause = min(2.0 * pause, _LONGEST_PAUSE)

    def _start_process(self) -> SpawnProcess | None:
        with self._lock:
            if self._ending.is_set():
                return None
            if self._pipe is not None:
                self._pipe.close()
            self._pipe, far_end = self._context.Pipe()
            arguments = (self.settings, self._listener, far_end, self._logs)
            self._process = self._context.Process(target=_serve_beside, args=arguments, name="fugu-page")
            self._process.start()
            far_end.close()  # only the child keeps that end
            return self._process


def _serve_beside(settings: PageSettings, listener: socket.socket, parent: Connection, logs: LogSettings) -> None:
    if (parent_process := multiprocessing.parent_process()) is not None and parent_process.pid is not None:
        end_with_parent(parent_process.pid)
    os.nice(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal the parent gets it, too
    log_to_stderr(logs.log_format, verbose=False)
    serve(settings, listener, parent)


def _check_settings(settings: PageSettings) -> None:
    missing_packages = [name for name in _PACKAGES if find_spec(name) is None]
    if missing_packages:
        raise FuguError(f"the page needs {missing_packages[0]}: pip install 'fugu-edge[gateway]'")
    settings.broker.tls_context()
    settings.broker.password()
    if settings.page.login_file is not None:
        Login(settings.page.login_file)
    if settings.page.tls_cert is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.page.tls_cert, settings.page.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise FuguError(f"the page's certificate or key cannot be used: {error.strerror or error}") from None


def _listen(settings: PageSettings) -> socket.socket:
    host, port = settings.listen
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise FuguError(f"nobody can listen at {settings.address}: {cause(error)}") from None

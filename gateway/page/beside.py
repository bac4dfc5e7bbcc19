"""The page beside another program: in a process of its own, until the program closes it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import ssl
import threading
from dataclasses import replace
from importlib.util import find_spec
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Self

from fugu.host.logs import LogSettings, log_settings, log_to_stderr
from gateway.page.login import Login
from gateway.page.server import Additions, PageError, PageSettings, no_additions, serve

__all__ = ["PageBeside", "PageSettings"]

_log = logging.getLogger(__name__)
_NICE = 10
"""The page waits for the gateway, and never the gateway for the page."""
_STOP_SECONDS = 5.0
"""Then it is killed: it has nothing to lose."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_NEEDED = ("starlette", "uvicorn")


class PageBeside:
    """Serves the page while a context lasts.

    The address is taken at once, before anything else starts, and kept until the end: no other program gets it while
    the page's process is started again, which happens when it ends by itself. That process ends with this one, however
    this one ends.

    Args:
        settings: what is served to whom; port 0 for any that is free.
        additions: what else the page's process serves; a function of a module, because the process is a new one.

    Raises:
        FuguError: the address is taken, a file cannot be used, or the web server is not installed.
    """

    def __init__(self, settings: PageSettings, additions: Additions = no_additions) -> None:
        _check(settings)
        self._listener = _listen(settings)
        self.settings = replace(settings, listen=(settings.listen[0], self._listener.getsockname()[1]))
        self._additions = additions
        self._context = multiprocessing.get_context("spawn")
        self._logs = log_settings()
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._pipe: Connection | None = None
        self._process: SpawnProcess | None = None
        self._thread = threading.Thread(target=self._watch, name="page", daemon=True)

    def __enter__(self) -> Self:
        """Start to serve."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, and give the address back."""
        with self._lock:
            self._ending.set()
            if self._pipe is not None:
                self._pipe.close()
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive() and self._process is not None:
            self._process.kill()
            self._thread.join()
        self._listener.close()

    def _watch(self) -> None:
        """Start the process, again if it fails, until the end."""
        pause = _FIRST_PAUSE
        while (process := self._started()) is not None:
            process.join()
            if self._ending.is_set() or process.exitcode == 0:
                return
            _log.error("the page has ended with code %s: it is started again in %.0f s", process.exitcode, pause)
            if self._ending.wait(pause):
                return
            pause = min(2.0 * pause, _LONGEST_PAUSE)

    def _started(self) -> SpawnProcess | None:
        """A new process; none at the end."""
        with self._lock:
            if self._ending.is_set():
                return None
            if self._pipe is not None:
                self._pipe.close()
            self._pipe, theirs = self._context.Pipe()
            self._process = self._context.Process(
                target=_serve_beside,
                args=(self.settings, self._listener, theirs, self._logs, self._additions),
                name="fugu-page",
            )
            self._process.start()
            theirs.close()  # so that its end is seen when it is gone
            return self._process


def _serve_beside(
    settings: PageSettings, listener: socket.socket, parent: Connection, logs: LogSettings, additions: Additions
) -> None:
    """Serve until the other side of a pipe is closed, or SIGTERM."""
    os.nice(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal the parent gets it, too
    log_to_stderr(logs.log_format, verbose=False)
    serve(settings, listener, parent, additions)


def _check(settings: PageSettings) -> None:
    """Refuse what the page's process could not begin with."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise PageError(f"the page needs {missing[0]}: pip install 'fugu-edge[gateway]'")
    if settings.password is not None:
        Login(settings.password)
    if settings.certificate is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.certificate, settings.key)
        except (OSError, ssl.SSLError) as error:
            raise PageError(f"the page's certificate or key cannot be used: {error.strerror or error}") from None


def _listen(settings: PageSettings) -> socket.socket:
    host, port = settings.listen
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise PageError(f"nobody can listen at {settings.address}: {error.strerror or error}") from None

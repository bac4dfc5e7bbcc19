"""A process as its machine sees it: command line, log, and what systemd is told."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, NoReturn, Self, TextIO, get_args

from fugu.contract.errors import UsageError

__all__ = [
    "LOG_FORMATS",
    "NOTICES",
    "LogSettings",
    "Notifier",
    "Parser",
    "add_version",
    "end_with_parent",
    "first_share",
    "log_settings",
    "log_to_stderr",
    "print_any_text",
    "version_line",
]


class Parser(argparse.ArgumentParser):
    """A parser that raises what is wrong instead of printing it, and takes no abbreviations."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **given})

    def error(self, message: str) -> NoReturn:
        """Refuse a command line; a `UsageError`."""
        raise UsageError(f"{message} (try '{self.prog} --help')")


def version_line(program: str) -> str:
    """Line that `--version` prints."""
    from importlib.metadata import version  # takes longer to load than all else here

    return f"{program} {version('fugu-edge')}\n"


def add_version(parser: argparse.ArgumentParser, program: str) -> None:
    """Give a program the option `--version`, which needs the version only when it is asked for."""

    class Version(argparse.Action):
        def __call__(self, parser: argparse.ArgumentParser, *_given: object, **_named: object) -> None:
            sys.stdout.write(version_line(program))
            parser.exit()

    parser.add_argument("--version", action=Version, nargs=0, help="print the version and stop")


LogFormat = Literal["text", "json"]
LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)
_USUAL = frozenset(vars(logging.makeLogRecord({})))
NOTICES = logging.getLogger("fugu.notices")
"""For the few lines that whoever started a service waits for though nothing is wrong: they come unasked, as INFO."""
NOTICES.setLevel(logging.INFO)


class _JsonLines(logging.Formatter):
    """Time, level, where it comes from, the message, and whatever was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "source": record.name,
            "message": record.getMessage(),
        }
        extra = {name: value for name, value in vars(record).items() if name not in _USUAL}
        return json.dumps(fields | extra, default=str)


class _ToStderr(logging.StreamHandler[TextIO]):
    """Writes to what is standard error by then: something that shows progress there may stand before it for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def log_to_stderr(log_format: LogFormat, *, verbose: bool) -> None:
    """Set up the process's log; `verbose` is for what happens, too, not only what goes wrong."""
    handler = _ToStderr(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(_JsonLines() if log_format == "json" else text)
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])


class LogSettings(NamedTuple):
    """Arguments of `log_to_stderr`."""

    log_format: LogFormat = "text"
    verbose: bool = False


def log_settings() -> LogSettings:
    """How this process logs, for another one that is to log in the same way."""
    root = logging.getLogger()
    json_lines = any(isinstance(handler.formatter, _JsonLines) for handler in root.handlers)
    return LogSettings("json" if json_lines else "text", root.isEnabledFor(logging.INFO))


def first_share(shares_us: Iterable[int], now_us: int) -> str:
    """When something is shared first, for whoever started a service and waits; of today the time alone."""
    if (at := min(shares_us, default=None)) is None:
        return "nothing is to be shared"
    local = time.localtime(at / 1e6)
    today = local[:3] == time.localtime(now_us / 1e6)[:3]
    return f"first share at {time.strftime('%H:%M' if today else '%Y-%m-%d %H:%M', local)}"


def print_any_text() -> None:
    """Let output and errors escape what their encoding cannot say, such as odd bytes in a file's name."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, of prctl(2)


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent, of that number, has ended, whatever either is doing then.

    So does the end of the parent's thread that has begun it. Other systems than Linux do not have this.
    """
    if sys.platform.startswith("linux"):
        import ctypes  # here, so that the agent does not load it

        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended already
            os._exit(1)


_MICROSECONDS = 1e6


class Notifier:
    """Messages to systemd at a socket's path, or `@name` if it is abstract; to nobody if that is empty."""

    def __init__(self, address: str = "", watchdog_seconds: float | None = None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._pause = None if watchdog_seconds is None else watchdog_seconds / 3
        self._next = float("-inf")
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    @classmethod
    def of_process(cls, environment: Mapping[str, str] | None = None, pid: int | None = None) -> Self:
        """The notifier that this process, unless others are given, was started with."""
        variables = os.environ if environment is None else environment
        address = variables.get("NOTIFY_SOCKET", "")
        time, whose = variables.get("WATCHDOG_USEC", ""), variables.get("WATCHDOG_PID", "")
        watched = time.isdecimal() and int(time) > 0 and whose in ("", str(os.getpid() if pid is None else pid))
        usable = address if address.startswith(("/", "@")) else ""
        return cls(usable, int(time) / _MICROSECONDS if usable and watched else None)

    def starting(self, seconds: float) -> None:
        """The start may take so long from now, if that is longer than the service manager waits."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * _MICROSECONDS)}")

    def ready(self) -> None:
        """The service has started: what waits for it may start too."""
        self._send("READY=1")

    def alive(self, now: float) -> None:
        """The service works; call it in every round of the main loop, and only there.

        What comes sooner than a third of the watchdog's time, by a steady clock in seconds, is not sent.
        """
        if self._pause is not None and now >= self._next:
            self._next = now + self._pause
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """The service has begun to stop."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto(message.encode(), self._address)

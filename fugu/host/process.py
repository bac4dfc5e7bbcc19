"""A process as its machine sees it: command line, log, what wakes it, what systemd and whoever asks is told."""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import signal
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, Self, TextIO, get_args

from fugu.contract.errors import FuguError, UsageError

__all__ = [
    "LOG_FORMATS",
    "NOTICES",
    "Answering",
    "LogSettings",
    "Notifier",
    "Parser",
    "StrangerError",
    "Wake",
    "add_version",
    "ask",
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
            with suppress(OSError):
                self._socket.sendto(message.encode(), self._address)


class Wake:
    """An event that a signal handler may set, and that is over once it has been waited for; one thread waits.

    A handler in the main thread would wait for the lock of a `threading.Event` for ever while this is about to wait, or
    to clear the event. Releasing a lock is safe at any moment. A SimpleQueue does not do: if `get` with a timeout is
    held up for longer than that at the wrong moment, CPython waits in it for ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the thread that waits, or the next one that will."""
        with suppress(RuntimeError):  # it is set
            self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Wait until it is set; whether it was, before the time was over."""
        return self._lock.acquire(timeout=seconds)


_PATIENCE_SECONDS = 5.0
_MOST_WAITING = 4
_MOST_BYTES = 1 << 20


class StrangerError(FuguError):
    """The process that answers is not one of those that may."""


class Answering:
    """The running process's end; without one, where the system has none or its path is too long, nobody is told.

    Its socket is of mode 0600, and replaces what a killed process left there: what it belongs to has one process at a
    time. With `own_folder` its folder is made, and there is no socket unless that is this account's alone.
    """

    def __init__(self, path: Path, *, own_folder: bool = False) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._node = 0
        try:
            if own_folder:
                _make_own(path.parent)
            if path.is_socket():
                path.unlink()
            made = socket.socket(socket.AF_UNIX)
            try:
                os.fchmod(made.fileno(), 0o600)  # Linux gives the file this mode, less the umask
                made.bind(str(path))
                self._node = path.stat().st_ino
                path.chmod(0o600)
                made.listen(_MOST_WAITING)  # until now nobody could connect
            except BaseException:
                made.close()
                raise
            self._socket = made
        except (OSError, AttributeError):
            pass

    def answer(self, text: Callable[[], str], seconds: float = 0.0) -> bool:
        """Tell one that waits, or comes within some seconds, and has as many to take it; whether anybody did.

        The text is of at most a megabyte.
        """
        if self._socket is None:
            return False
        self._socket.settimeout(seconds)
        try:
            asking, _ = self._socket.accept()
        except OSError:
            return False
        with asking, suppress(OSError):
            asking.settimeout(seconds)
            asking.sendall(text().encode()[:_MOST_BYTES])
        return True

    @property
    def is_open(self) -> bool:
        """True if anybody can ask."""
        return self._socket is not None

    def close(self) -> None:
        """Answer nobody any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            with suppress(OSError):
                if self._path.stat().st_ino == self._node:  # else it is that of a process that has this one's place
                    self._path.unlink()


def ask(path: Path, *, owner_of_folder: bool = True) -> str | None:
    """Answer of the process; `None` if there is no process, or this account may not ask it.

    Raises StrangerError unless the process is of this account, of root, or, with `owner_of_folder`, of the account
    whose folder the socket is in: in a folder that anybody may write to, anybody may have made the socket. Where only
    the folder's owner may write, the socket is the owner's, whatever the process's account: systemd 257 maps the folder
    of a service's passing account, which on the disk is another's.
    """
    found = b""
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(_PATIENCE_SECONDS)
            asking.connect(str(path))
            about = path.parent.stat()
            owners = {0, os.geteuid(), *([about.st_uid] if owner_of_folder else [])}
            owners_alone = owner_of_folder and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if (account := _account_of(asking)) not in {None, *owners} and not owners_alone:
                raise StrangerError(
                    f"what answers at {path} is a process of account {account}, and is not believed: end it, remove "
                    "the socket, and start the gateway or agent again"
                )
            while more := asking.recv(1 << 16):
                found += more
    except (OSError, AttributeError):
        return None
    return found.decode(errors="replace")


def _account_of(connection: socket.socket) -> int | None:
    """The number of the account at the other end; `None` on systems that do not tell it."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    credentials = struct.Struct("3i")
    _, account, _ = credentials.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size))
    return int(account)


def _make_own(folder: Path) -> None:
    """Make a folder for this account alone; a PermissionError if there is another thing of its name."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise PermissionError(f"{folder} is not of this account alone")

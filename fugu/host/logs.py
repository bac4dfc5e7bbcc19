"""The log of a service on standard error: lines for people, or one JSON object a line for machines; and its output."""

from __future__ import annotations

import io
import json
import logging
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal, NamedTuple, TextIO, get_args

__all__ = ["LOG_FORMATS", "NOTICES", "LogSettings", "first_share", "log_settings", "log_to_stderr", "print_any_text"]

LogFormat = Literal["text", "json"]
LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)
_USUAL = frozenset(vars(logging.makeLogRecord({})))

NOTICES = logging.getLogger("fugu.notices")
"""For the few lines that whoever started a service waits for though nothing is wrong: they come unasked, as INFO."""
NOTICES.setLevel(logging.INFO)


class _JsonLines(logging.Formatter):
    """Time, level, where it comes from, the message, and whatever was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
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
        """Write one line."""
        self.stream = sys.stderr
        super().emit(record)


def log_to_stderr(log_format: LogFormat, *, verbose: bool) -> None:
    """Set up the process's log.

    Args:
        verbose: what happens, too, not only what goes wrong.
    """
    handler = _ToStderr(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(_JsonLines() if log_format == "json" else text)
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])


class LogSettings(NamedTuple):
    """What `log_to_stderr` was asked for."""

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

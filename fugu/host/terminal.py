"""Command line, output and log of a program."""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, NoReturn, TextIO, get_args

from fugu.contract.errors import FuguError, UsageError

__all__ = [
    "LOG_FORMATS",
    "LogSettings",
    "Parser",
    "add_version",
    "exit_code",
    "log_settings",
    "log_to_stderr",
    "print_lines",
    "run_program",
    "version_line",
]


class Parser(argparse.ArgumentParser):
    """A parser that raises a UsageError in place of printing a message, and takes no abbreviations."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        """Raise a `UsageError` for a wrong command line."""
        raise UsageError(f"{message} (try '{self.prog} --help')")


def run_program(work: Callable[[], int]) -> int:
    """Run a program's work and return its exit code; 0 if the reader of its output has gone, as `head` does.

    Standard output and error that are closed become /dev/null.
    """
    sys.stdout, sys.stderr = (
        stream or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w") for stream in (sys.stdout, sys.stderr)
    )
    for stream in (sys.stdout, sys.stderr):  # characters that their encoding lacks, as in a file's name, are escaped
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            return work()
        finally:  # also if the parser ends the process, after --help
            sys.stdout.flush()
    except BrokenPipeError:  # nothing more may be written there
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def exit_code(program: str, work: Callable[[], int]) -> int:
    """Do some work and return its exit code; 1 for a FuguError, 2 for a UsageError, 130 if interrupted."""
    try:
        return work()
    except FuguError as error:
        print(f"{program}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 130


def version_line(program: str) -> str:
    """Return the line that `--version` prints."""
    from importlib.metadata import version  # takes longer to load than all else here

    return f"{program} {version('fugu-edge')}\n"


def add_version(parser: argparse.ArgumentParser, program: str) -> None:
    """Add the option `--version` to a program; the version is looked up only when the option is given."""

    class Version(argparse.Action):
        def __call__(self, parser: argparse.ArgumentParser, *_given: object, **_named: object) -> None:
            sys.stdout.write(version_line(program))
            parser.exit()

    parser.add_argument("--version", action=Version, nargs=0, help="print the version and stop")


LogFormat = Literal["text", "json"]
LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({})))


class _JsonLines(logging.Formatter):
    """A record as one JSON object: time, level, logger, message, and the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "source": record.name,
            "message": record.getMessage(),
        }
        extra_fields = {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
        return json.dumps(fields | extra_fields, default=str)


class _ToStderr(logging.StreamHandler[TextIO]):
    """Writes to the `sys.stderr` of the moment, which a display of progress replaces for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def log_to_stderr(log_format: LogFormat, *, verbose: bool) -> None:
    """Set up the process's log, from warnings on, or with `verbose` from INFO on."""
    handler = _ToStderr(sys.stderr)
    text_formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(_JsonLines() if log_format == "json" else text_formatter)
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])


class LogSettings(NamedTuple):
    """Arguments of `log_to_stderr`."""

    log_format: LogFormat = "text"
    verbose: bool = False


def log_settings() -> LogSettings:
    """Return the log settings of this process, for a child process that is to log in the same way."""
    root_logger = logging.getLogger()
    is_json = any(isinstance(handler.formatter, _JsonLines) for handler in root_logger.handlers)
    return LogSettings("json" if is_json else "text", root_logger.isEnabledFor(logging.INFO))


_INDENT = 5
"""Columns by which the continuation of a wrapped line is indented."""
_WIDTH = 80
"""Columns of a terminal that does not know its width."""


def print_lines(text: str) -> None:
    """Print lines; on a terminal, wrap them to its width."""
    if sys.stdout.isatty():
        width = os.get_terminal_size(sys.stdout.fileno()).columns or _WIDTH
        text = "\n".join(_wrapped(line, width) for line in text.splitlines())
    print(text)


def _wrapped(line: str, width: int) -> str:
    from textwrap import fill  # here, so that a running agent does not load it

    indent = len(line) - len(line.lstrip())
    return fill(
        line.lstrip(),
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + _INDENT),
        break_long_words=False,
        break_on_hyphens=False,
    )

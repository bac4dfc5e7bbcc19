"""The entry point: commands for devices and subscribers start at once, all others through the application.

`fugu agent run` and `fugu subscribe` are dispatched before the framework of the other commands is loaded, so that
they start fast and run where it is not installed. Whatever goes wrong is one line on stderr: exit code 1 for what
cannot be done, 2 for a command line that cannot be read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from contract.errors import FuguError, UsageError
from host.logs import print_any_text

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = ["main"]

_FRAMEWORK = ("typer", "rich", "numpy", "numba", "scipy")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: the words after `fugu`; those of the process if not given.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    print_any_text()
    try:
        code = _guarded(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does: not an error. Nothing more may be written there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _run(words: list[str]) -> int:
    """Run a command, loading as little as it needs."""
    match words:
        case ["--version", *_]:
            from importlib.metadata import version

            print(f"fugu {version('fugu-edge')}")
            return 0
        case ["agent", "run", *rest]:
            from edge_agent.__main__ import main as agent

            return agent(rest)
        case ["subscribe", *rest]:
            from fugu.commands.subscribe import main as subscribe

            return subscribe(rest)
        case _:
            from fugu.app import run

            return run(words)


def _guarded(words: list[str]) -> int:
    """Run a command; every expected failure becomes one line and an exit code."""
    try:
        return _run(words)
    except FuguError as error:
        return _fail(str(error), 2 if isinstance(error, UsageError) else 1)
    except BrokenPipeError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _FRAMEWORK:
            raise
        return _fail(f"this command needs {error.name}: pip install 'fugu-edge[gateway]'", 1)
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
    except KeyboardInterrupt:
        return 130
    except ValueError as error:
        # A document's own check; anything else is a programming error and keeps its traceback.
        if type(error).__name__ != "ValidationError":
            raise
        return _fail(_first_problem(cast("ValidationError", error)), 1)
    except Exception as error:
        databases = sys.modules.get("sqlite3")  # who has not loaded it has no error of it
        if databases is None or not isinstance(error, databases.Error):
            raise
        return _fail(f"a database cannot be used: {error}", 1)


def _first_problem(error: ValidationError) -> str:
    """The first line of a pydantic error that says what is wrong, without the value that was given."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    message = str(first["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message


def _fail(message: str, code: int) -> int:
    print(f"fugu: {' '.join(message.split())}", file=sys.stderr)
    return code

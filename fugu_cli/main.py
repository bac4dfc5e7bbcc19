"""The entry point: commands for devices, subscribers and files start at once, all others through the application.

`fugu agent`, `fugu subscribe`, `fugu helper` and usual lines of `fugu read` run before the framework of the other
commands is loaded. So they start fast, and run where it is not installed. Every error is one line on stderr.

Exit codes: 0 for success, 1 for a failure or a refusal, 130 for an interruption. 2 stands for a command line that
cannot be read, or a recording that can be read in more than one way; 3 for an answer that is no.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence

from fugu.contract.errors import FuguError, UsageError, cause, printable
from fugu.host.terminal import run_program, version_line
from fugu.recordings.errors import QuestionError
from fugu_cli import edge
from fugu_cli.reading import read_words

__all__ = ["main"]

_FRAMEWORK = ("typer", "rich", "numpy", "numba", "scipy", "starlette", "uvicorn")
_EXTRAS = {**dict.fromkeys(_FRAMEWORK, "gateway"), "pyarrow": "parquet", "ray": "cluster"}
"""The extra of `fugu-edge` that installs a package, by the name of the package."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, by default by the words after `fugu` of this process; return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return run_program(lambda: guarded(lambda: _run(words), as_json="--json" in words))


def _run(words: list[str]) -> int:
    """Run a command, and load only what it needs."""
    if words[:1] == ["--"]:
        del words[0]
    match words:
        case ["--version", *_]:
            print(version_line("fugu"), end="")
            return 0
        case ["agent", *rest]:
            return edge.agent(rest)
        case ["subscribe", *rest]:
            from fugu_cli.commands.subscribe import main as subscribe

            return subscribe(rest)
        case ["helper", *rest]:
            from fugu_helper.__main__ import main as helper

            return helper(rest)
        case ["read", *rest] if read_words(rest):
            return 0
    try:
        from fugu_cli.app import run
    except ModuleNotFoundError as error:
        if words not in ([], ["--help"], ["-h"]) or (error.name or "").partition(".")[0] not in _FRAMEWORK:
            raise
        print(edge.edge_help(), end="", file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    return run(words)


def guarded(command: Callable[[], int], *, as_json: bool = False) -> int:
    """Run a command and return its exit code. Print an expected error and its notes on stderr, one line each.

    With `as_json`, a question about a recording is printed on stdout, as JSON.
    """
    try:
        return command()
    except QuestionError as error:
        return _print_question(error, as_json=as_json)
    except FuguError as error:
        for note in getattr(error, "__notes__", ()):
            _print_failure(note, 1)
        return _print_failure(str(error), 2 if isinstance(error, UsageError) else 1)
    except BrokenPipeError:
        raise
    except ModuleNotFoundError as error:
        if (extra_name := _EXTRAS.get(package := (error.name or "").partition(".")[0])) is None:
            raise
        return _print_failure(f"this command needs {package}: pip install 'fugu-edge[{extra_name}]'", 1)
    except OSError as error:
        return _print_failure(f"{error.filename}: {cause(error)}" if error.filename else cause(error), 1)
    except KeyboardInterrupt:
        return 130
    except ValueError as error:
        from pydantic import ValidationError

        if not isinstance(error, ValidationError):
            raise  # an error of programming keeps its traceback
        from fugu.contract._document import first_problem

        return _print_failure(first_problem(error), 1)
    except Exception as error:
        databases = sys.modules.get("sqlite3")  # a module that is not loaded raised nothing
        if databases is None or not isinstance(error, databases.Error):
            raise
        return _print_failure(f"a database cannot be used: {error}", 1)


def _print_question(error: QuestionError, *, as_json: bool) -> int:
    """Print a question, with the options that answer it ready to paste; return exit code 2."""
    if as_json:
        print(json.dumps(error.document(), indent=2))
        return 2
    option_texts = [shlex.join(option.words) for option in error.options]
    width = max(map(len, option_texts))
    lines = [f"  {word:<{width}}  {option.meaning}" for word, option in zip(option_texts, error.options, strict=True)]
    print(f"fugu: {error.question}. Say which:", *map(printable, lines), sep="\n", file=sys.stderr)
    return 2


def _print_failure(message: str, code: int) -> int:
    print(f"fugu: {printable(' '.join(message.split()))}", file=sys.stderr)
    return code

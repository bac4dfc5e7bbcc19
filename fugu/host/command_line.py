"""Command lines that are read without a framework: one line for what is wrong, and the version."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from fugu.contract.errors import UsageError

__all__ = ["Parser", "add_version", "version_line"]


class Parser(argparse.ArgumentParser):
    """A parser that raises what is wrong instead of printing it, and takes no abbreviations."""

    def __init__(self, **given: Any) -> None:
        """As for `argparse`."""
        super().__init__(**{"allow_abbrev": False, **given})

    def error(self, message: str) -> NoReturn:
        """Refuse a command line; a `UsageError`."""
        raise UsageError(f"{message} (try '{self.prog} --help')")


def version_line(program: str) -> str:
    """What `--version` prints."""
    from importlib.metadata import version  # takes longer to load than all else here

    return f"{program} {version('fugu-edge')}\n"


def add_version(parser: argparse.ArgumentParser, program: str) -> None:
    """Give a program the option `--version`, which needs the version only when it is asked for."""

    class Version(argparse.Action):
        def __call__(self, parser: argparse.ArgumentParser, *_given: object, **_named: object) -> None:
            sys.stdout.write(version_line(program))
            parser.exit()

    parser.add_argument("--version", action=Version, nargs=0, help="print the version and stop")

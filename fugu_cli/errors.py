"""Errors of a command line itself."""

from __future__ import annotations

import traceback
from pathlib import Path

from fugu.contract.errors import FuguError, UsageError

__all__ = ["CommandError", "CommandLineError", "fault"]


class CommandError(FuguError):
    """A command cannot do what was asked; exit code 1."""


class CommandLineError(UsageError):
    """The command line does not say what is needed, or cannot be read; exit code 2."""


def fault(error: Exception) -> str:
    """An error that nobody thought of, in words that hold nothing of its message: that could have a reading."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"a fault of the program, {type(error).__name__} at {Path(frame.filename).name}, line {frame.lineno}: nothing "
        "is lost; try other values, and report this line"
    )

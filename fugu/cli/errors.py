"""Errors of a command line itself."""

from __future__ import annotations

from fugu.contract.errors import FuguError, UsageError

__all__ = ["NOTHING", "CommandError", "CommandLineError"]

NOTHING = 3
"""Exit code: the answer is no."""


class CommandError(FuguError):
    """A command cannot do what was asked; exit code 1."""


class CommandLineError(UsageError):
    """The command line does not say what is needed, or cannot be read; exit code 2."""

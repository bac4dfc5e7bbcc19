"""Lines for people: broken between words where a terminal is narrow, whole in a pipe."""

from __future__ import annotations

import os
import sys

__all__ = ["print_lines"]

_DEEPER = 5
"""Columns by which what is left of a broken line is set in."""
_WIDTH = 80
"""Of a terminal that does not know its own."""


def print_lines(text: str) -> None:
    """Print lines."""
    if sys.stdout.isatty():
        width = os.get_terminal_size(sys.stdout.fileno()).columns or _WIDTH
        text = "\n".join(_broken(line, width) for line in text.splitlines())
    print(text)


def _broken(line: str, width: int) -> str:
    from textwrap import fill  # no agent that runs needs it

    indent = len(line) - len(line.lstrip())
    return fill(
        line.lstrip(),
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + _DEEPER),
        break_long_words=False,
        break_on_hyphens=False,
    )

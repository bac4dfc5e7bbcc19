"""Showing what a benchmark has measured, and on what."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping

__all__ = ["machine", "say_machine", "show"]


def machine() -> str:
    """Name the Python, the kind of processor and how many there are."""
    return f"Python {platform.python_version()}, {os.cpu_count()} processors, {platform.machine()}"


def say_machine() -> None:
    """Print on what a benchmark runs, beside its table."""
    print(f"on {machine()}", file=sys.stderr)


def show(figures: Mapping[str, object], *, as_json: bool) -> None:
    """Print figures by name, a line each, or one JSON object; and on what they were measured."""
    if as_json:
        print(json.dumps({"machine": machine(), **figures}, indent=2))
        return
    for name, value in {"machine": machine(), **figures}.items():
        print(f"{name:70} {value!s:>10}")

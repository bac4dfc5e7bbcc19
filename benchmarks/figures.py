"""Showing what a benchmark has measured, and on what; and measuring times of functions."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping

__all__ = ["command_line", "machine", "say_machine", "seconds_of", "show", "table_head", "table_row", "times_in_turns"]


def command_line(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the option --json, to which a benchmark adds its own."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    return parser


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


def table_head(columns: Iterable[str]) -> str:
    """Return the two lines of Markdown above the rows of a table."""
    titles = list(columns)
    return f"{table_row(titles)}\n|{' --- |' * len(titles)}"


def table_row(cells: Iterable[str]) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def seconds_of(run: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def times_in_turns(tasks: Mapping[str, Callable[[], object]], turns: int, calls: int = 1) -> dict[str, list[float]]:
    """Return seconds of a call of each task, the tasks taking turns of some calls; one unmeasured turn first."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(turns + 1):
        for name, run in tasks.items():
            started = time.perf_counter()
            for _ in range(calls):
                run()
            if turn:
                times[name].append((time.perf_counter() - started) / calls)
    return times

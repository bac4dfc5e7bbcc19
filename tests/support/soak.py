"""List what of `make soak` ran last: a row of tests/soak.tsv for each of its tests, written as each ends."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Container, Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

__all__ = ["LAST", "LEFT_OUT", "list_all", "listed", "note", "only", "only_rows"]

ROOT = Path(__file__).parents[2]
LAST = ROOT / "tests" / "soak.tsv"
_HEADER = "test\tended\tcommit\tpython\tresult\tseconds\n"


LEFT_OUT = pytest.StashKey[set[str]]()
"""Tests of `make soak` that were collected and do not run."""


def only(shown: Container[Any], values: Iterable[Any]) -> list[Any]:
    """Values of one parameter of a test: what is not among those shown is of `make soak`."""
    return [value if value in shown else pytest.param(value, marks=pytest.mark.soak) for value in values]


def only_rows(shown: Container[Any], rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The same for several parameters: rows of one value for each."""
    return [row if row in shown else pytest.param(*row, marks=pytest.mark.soak) for row in rows]


def listed(file: Path = LAST) -> dict[str, str]:
    rows = file.read_text().splitlines(keepends=True)[1:] if file.exists() else []
    return {row.partition("\t")[0]: row for row in rows}


def list_all(names: Iterable[str], file: Path = LAST) -> None:
    """Give each soak test its row: one that has not run says so, and one that is gone has none."""
    rows = listed(file)
    every = {name: rows.get(name, "\t".join((name, "-", "-", "-", "not run", "-")) + "\n") for name in names}
    if every != rows:
        file.write_text(_HEADER + "".join(sorted(every.values())))


def note(report: pytest.TestReport, file: Path = LAST) -> None:
    """Replace the row of a soak test that has run; of others there is none, nor of one that was skipped."""
    if report.when != "call" or "soak" not in report.keywords or report.skipped:
        return
    rows = listed(file)
    ended = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    run = ended, _commit(), platform.python_version(), report.outcome, f"{report.duration:.0f}"
    rows[report.nodeid] = "\t".join((report.nodeid, *run)) + "\n"
    file.write_text(_HEADER + "".join(sorted(rows.values())))


@cache
def _commit() -> str:
    """Name the commit that is checked out, with a plus sign if files differ from it; a dash without a repository."""
    run = subprocess.run(
        ["git", "describe", "--always", "--abbrev=8", "--exclude", "*", "--dirty=+"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stdout.strip() or "-"

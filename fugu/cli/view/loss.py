"""What theorems say of several releases: as JSON, or as a table and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fugu.cli.view.terminal import say, show_table
from fugu.privacy.chain_class import Covered
from fugu.privacy.composition_theorems import Verdict
from fugu.privacy.window_releases import WindowRelease

__all__ = ["show_verdicts", "verdict_document"]

_COLUMNS = ("theorem", "epsilon", "standing", "why")


def verdict_document(releases: Sequence[WindowRelease], start: Covered, rows: Sequence[Verdict]) -> dict[str, Any]:
    """The verdicts as an object for JSON."""
    return {
        "releases": [
            {
                "first": release.first,
                "length": release.length,
                "mechanism": release.mechanism,
                "scale": release.scale,
                "query": release.query,
            }
            for release in releases
        ],
        "start": start,
        "theorems": [row._asdict() for row in rows],
    }


def show_verdicts(
    releases: Sequence[WindowRelease], start: Covered, rows: Sequence[Verdict], notes: Sequence[str]
) -> None:
    """Print the verdicts.

    Args:
        releases: that are made.
        start: the distributions of the first tick that are covered.
        rows: what the theorems say.
        notes: how the class of chains came about.
    """
    for note in notes:
        say(note)
    count = len(releases)
    title = f"What {count} release{'s' * (count > 1)} lose about a tick together, {start} start"
    show_table(title, _COLUMNS, [_row(row) for row in rows])
    say(
        "holds: a bound for every tick that a release reads, against the ignorant adversary where no other is named. "
        "false: a formula that releases can break. at least: what is really lost, so that no bound can be lower."
    )


def _row(row: Verdict) -> tuple[str, ...]:
    return row.name, "" if row.epsilon is None else f"{row.epsilon:.6g}", row.standing, row.note

"""The smoothed states of every stream of a history, as Parquet files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gateway.history.folder import ParquetFolder, parquet_folder
from gateway.history.pieces import HistoryError, Span
from gateway.history.rows import marginal_rows, policy_rows
from gateway.history.smoothing import SmoothedStream
from gateway.history.tasks import Group, Source, Tasks, open_tasks

__all__ = ["Source", "Span", "open_tasks", "smooth_history"]


def smooth_history(
    source: Source, folder: Path, *, tasks: Tasks | None = None, told: Callable[..., None] = lambda *_: None
) -> dict[str, int]:
    """Write what all symbols of each stream say of the states at each of its ticks.

    Args:
        source: a store or an exported folder, and which of its streams.
        folder: a new folder, as for `export_history`.
        tasks: where the work is done, in this process if not given; what is written is the same.
        told: called with what is done, and the share of it that is.

    Returns:
        How many rows each table has.

    Raises:
        FuguError: there is no such source, it holds nothing of that time, or the folder cannot be written.
    """
    groups = Group.all(source)
    with parquet_folder(folder) as made:
        arguments = [(group, made.path) for group in groups]
        done = (tasks or Tasks()).map(
            _smooth, arguments, lambda count: told(f"{count} of {len(groups)} groups", count / len(groups))
        )
        if not (rows := sum(done)):
            raise HistoryError(f"{source.path.name} has no symbols of that time")
        with source.open() as history:
            some = source.streams(history)
            made.add("policies", policy_rows(policy for one in some for policy in one.policies.values()))
        return {"smoothed": rows, **made.rows}


def _smooth(group: Group, folder: Path) -> int:
    """Smooth the streams of a group; returns how many rows there are."""
    with group.open() as (history, streams):
        made = ParquetFolder(folder, f"{group.number}-")
        smoothed = [(one, SmoothedStream(history, one, group.source.span)) for one in streams]
        days = sorted({day for _, one in smoothed for day in one.days})
        for day in reversed(days):
            for _, one in smoothed:
                one.look_back(day)
        for day in days:
            for stream, one in smoothed:
                for some in one.day(day):
                    made.add("smoothed", marginal_rows("smoothed", stream, some))
        made.close()
        return made.rows.get("smoothed", 0)

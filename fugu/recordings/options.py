"""The answers that settle how a recording is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from zoneinfo import ZoneInfo

__all__ = ["ReadOptions", "RowKind"]

RowKind = Literal["events", "samples", "changes"]
"""Events are a tick each; samples are on a clock, and may be absent; changes hold until the next."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Answers that settle how a recording is read; the others are found, or asked about.

    `time` is a column, with its unit if that is to be said (`time:days`); `column` the readings' column, or one of the
    series; `only` pairs of a column and the cell that wanted rows have there; `zone` of times that have none;
    `missing_values` cells that are no reading; `rows` what rows are; `period` seconds from tick to tick; no value holds
    longer than `gap` seconds; `as_it_is` names of rules that need not ask. `day_parts` is the
    zone in which parts of the day are asked for.
    """

    time: str | None = None
    column: str | None = None
    only: tuple[tuple[str, str], ...] = ()
    zone: ZoneInfo | None = None
    missing_values: tuple[str, ...] = ()
    rows: RowKind | None = None
    period: float | None = None
    gap: float | None = None
    as_it_is: frozenset[str] = frozenset()
    day_parts: str | None = None

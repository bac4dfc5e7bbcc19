"""Options of reading a recording, parsed from words of a command line or values of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo

from fugu.contract.errors import UsageError
from fugu.host import arguments
from fugu.recordings.rules import SILENT

__all__ = ["ReadOptions", "RowKind", "read_options"]

RowKind = Literal["events", "samples", "changes"]
"""Kinds of rows: an event is a tick, samples are on a clock (some absent), a change holds until the next."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of reading a recording; options that are not given are inferred from the file, or asked for.

    `time` is a column of times, perhaps with its unit (`time:days`). `column` is the column of readings, or the name of
    a series. `only` holds pairs of a column and a cell: rows with other cells are left out. `zone` is the zone of times
    without one. `missing_values` are cells without a reading. `rows` is the kind of rows, `period` the seconds from
    tick to tick. No value holds longer than `gap` seconds. `as_it_is` holds names of rules that must not ask.
    `day_parts` is the zone of the parts of the day that a plan distinguishes.
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


def read_options(**texts: Any) -> ReadOptions:
    """Parse options by the names of the fields of `ReadOptions`; options that are None are left out.

    `only` has the form sensor=hall. Commas separate missing values, and names of rules.

    Raises:
        UsageError: an option cannot be read.
    """
    return ReadOptions(**{name: _PARSERS.get(name, str)(value) for name, value in texts.items() if value is not None})


def _split_words(words: str | float | Sequence[str | float]) -> tuple[str, ...]:
    """Split a text at its commas, or take a sequence of words or numbers one by one."""
    texts = words.split(",") if isinstance(words, str) else [words] if isinstance(words, int | float) else words
    return tuple(text.strip() if isinstance(text, str) else f"{text:g}" for text in texts)


def _parse_filters(filters: str | Sequence[str] | Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    if isinstance(filters, Mapping):
        return tuple((str(column), str(cell)) for column, cell in filters.items())
    filter_parts = [text.partition("=") for text in ([filters] if isinstance(filters, str) else filters)]
    if malformed_filters := ["".join(parts) for parts in filter_parts if not parts[1] or not parts[0].strip()]:
        raise UsageError(f"rows are chosen as sensor=hall, got {malformed_filters[0][:80]!r}")
    return tuple((column.strip(), cell.strip()) for column, _, cell in filter_parts)


def _parse_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise UsageError(f"there is no zone {name[:80]!r}: it is like Europe/Berlin, or UTC") from None


def _parse_gap(gap_text: str | float) -> float:
    seconds, is_time = arguments.span(str(gap_text), "gap")
    if not is_time and isinstance(gap_text, str):
        raise UsageError("gap is a time, as 8h or 2d")
    return seconds


def _parse_rule_names(rule_words: str | Sequence[str]) -> frozenset[str]:
    rule_names = frozenset(_split_words(rule_words))
    if unknown_names := sorted(rule_names - {*SILENT}):
        raise UsageError(f"as-it-is takes {', '.join(SILENT)}, got {unknown_names[0][:80]!r}")
    return rule_names


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "only": _parse_filters,
    "zone": _parse_zone,
    "missing_values": _split_words,
    "rows": lambda words: arguments.one_of(words, "rows", get_args(RowKind)),
    "period": lambda words: arguments.period(float(words)),
    "gap": _parse_gap,
    "as_it_is": _parse_rule_names,
}
"""The parser of each option's value; other options are texts."""

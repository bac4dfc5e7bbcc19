"""The answers that settle how a recording is read, from words of a command line or of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args
from zoneinfo import ZoneInfo

from fugu.contract.errors import UsageError
from fugu.host import arguments
from fugu.recordings.options import ReadOptions, RowKind
from fugu.recordings.rules import RULES

__all__ = ["read_options"]

_ROWS: tuple[RowKind, ...] = get_args(RowKind)


def read_options(
    *,
    time: str | None = None,
    column: str | None = None,
    only: str | Sequence[str] | Mapping[str, str] | None = None,
    zone: str | None = None,
    missing_values: str | float | Sequence[str | float] | None = None,
    rows: str | None = None,
    period: str | float | None = None,
    gap: str | float | None = None,
    as_it_is: str | Sequence[str] | None = None,
    day_parts: str | None = None,
) -> ReadOptions:
    """Read options, as `ReadOptions` has them: `only` as sensor=hall, codes and names of rules with commas between.

    Raises:
        UsageError: one of them cannot be read.
    """
    rules = frozenset(_listed(as_it_is))
    if unknown := sorted(rules - RULES.keys()):
        raise UsageError(f"as-it-is takes {', '.join(RULES)}, got {unknown[0][:80]!r}")
    longest = None
    if gap is not None:
        longest, is_time = arguments.span(str(gap), "gap")
        if not is_time and isinstance(gap, str):
            raise UsageError("gap is a time, as 8h or 2d")
    return ReadOptions(
        time=time,
        column=column,
        only=_only(only),
        zone=None if zone is None else _zone(zone),
        missing_values=tuple(_listed(missing_values)),
        rows=None if rows is None else arguments.one_of(rows, "rows", _ROWS),
        period=None if period is None else arguments.period(float(period)),
        gap=longest,
        as_it_is=rules,
        day_parts=day_parts,
    )


def _listed(words: str | float | Sequence[str | float] | None) -> list[str]:
    """Words that have commas between, or come one by one."""
    if words is None:
        return []
    texts = words.split(",") if isinstance(words, str) else [words] if isinstance(words, int | float) else words
    return [text.strip() if isinstance(text, str) else f"{text:g}" for text in texts]


def _only(words: str | Sequence[str] | Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    if isinstance(words, Mapping):
        return tuple((str(column), str(cell)) for column, cell in words.items())
    texts = [words] if isinstance(words, str) else list(words or ())
    if wrong := [text for text in texts if "=" not in text or not text.partition("=")[0].strip()]:
        raise UsageError(f"rows are chosen as sensor=hall, got {wrong[0][:80]!r}")
    pairs = [text.partition("=") for text in texts]
    return tuple((column.strip(), cell.strip()) for column, _, cell in pairs)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise UsageError(f"there is no zone {name[:80]!r}: it is like Europe/Berlin, or UTC") from None

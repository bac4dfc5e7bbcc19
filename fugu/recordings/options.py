"""The answers that settle how a recording is read, also from words of a command line or of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo

from fugu.contract.errors import UsageError
from fugu.host import arguments
from fugu.recordings.rules import RULES

__all__ = ["ReadOptions", "RowKind", "read_options"]

RowKind = Literal["events", "samples", "changes"]
"""Events are a tick each; samples are on a clock, and may be absent; changes hold until the next."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Answers that settle how a recording is read; the others are found, or asked about.

    `time` is a column, with its unit if that is to be said (`time:days`). `column` is the readings' column, or one of
    the series. `only` has pairs of a column and the cell that wanted rows have there. `zone` is of times that have
    none. `missing_values` are cells that are no reading. `rows` says what rows are, and `period` how many seconds are
    from tick to tick. No value holds longer than `gap` seconds. `as_it_is` has names of rules that need not ask.
    `day_parts` is the zone in which parts of the day are asked for.
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
    """Read options, as `ReadOptions` has them: `only` as sensor=hall, codes and names of rules with commas between.

    Raises:
        UsageError: one of them cannot be read.
    """
    return ReadOptions(**{name: _READ.get(name, str)(value) for name, value in texts.items() if value is not None})


def _words(words: str | float | Sequence[str | float]) -> tuple[str, ...]:
    """Words that have commas between, or come one by one."""
    texts = words.split(",") if isinstance(words, str) else [words] if isinstance(words, int | float) else words
    return tuple(text.strip() if isinstance(text, str) else f"{text:g}" for text in texts)


def _row_filter(filters: str | Sequence[str] | Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    if isinstance(filters, Mapping):
        return tuple((str(column), str(cell)) for column, cell in filters.items())
    pairs = [text.partition("=") for text in ([filters] if isinstance(filters, str) else filters)]
    if malformed_pairs := ["".join(pair) for pair in pairs if not pair[1] or not pair[0].strip()]:
        raise UsageError(f"rows are chosen as sensor=hall, got {malformed_pairs[0][:80]!r}")
    return tuple((column.strip(), cell.strip()) for column, _, cell in pairs)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise UsageError(f"there is no zone {name[:80]!r}: it is like Europe/Berlin, or UTC") from None


def _gap(gap_text: str | float) -> float:
    seconds, is_time = arguments.span(str(gap_text), "gap")
    if not is_time and isinstance(gap_text, str):
        raise UsageError("gap is a time, as 8h or 2d")
    return seconds


def _rule_names(rule_words: str | Sequence[str]) -> frozenset[str]:
    rule_names = frozenset(_words(rule_words))
    if unknown_names := sorted(rule_names - RULES.keys()):
        raise UsageError(f"as-it-is takes {', '.join(RULES)}, got {unknown_names[0][:80]!r}")
    return rule_names


_READ: dict[str, Callable[[Any], Any]] = {
    "only": _row_filter,
    "zone": _zone,
    "missing_values": _words,
    "rows": lambda words: arguments.one_of(words, "rows", get_args(RowKind)),
    "period": lambda words: arguments.period(float(words)),
    "gap": _gap,
    "as_it_is": _rule_names,
}
"""How those are read that are no text."""

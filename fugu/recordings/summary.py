"""Describe a recording: sentences, numbers, a small picture, and a plain CSV file."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fugu.contract.errors import FuguError
from fugu.recordings.places import Traces
from fugu.recordings.readings import Facts, Readings

if TYPE_CHECKING:
    from fugu.chains.arrays import Floats, Ints
    from fugu.recordings.values import Cells

__all__ = ["Recording", "plain_csv", "summary", "time_text"]

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 64
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Recording(NamedTuple):
    """A recording that was read: either readings or places.

    Attributes:
        readings: the readings, tick by tick; None for places.
        traces: the places; None for readings.
        facts: how the recording is written.
        source: the name of the recording.
    """

    readings: Readings | None
    traces: Traces | None
    facts: Facts
    source: str

    @property
    def summary(self) -> tuple[str, str]:
        """Two sentences: the columns and rows that were read, and the times of rows."""
        return summary(self.source, self.facts)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about rows that were left out or assumptions that were made, and why."""
        return self.readings.notes if self.readings else self.traces.notes if self.traces else ()

    @property
    def picture(self) -> list[str]:
        """Two lines of text: a picture of readings over time, and its legend; for places a single line of words."""
        if self.readings is None:
            return ["Places are not drawn here."]
        ticks = len(self.readings.segments)
        draw = _name_letters if self.readings.has_names else _number_bars
        return draw(self.readings.values, np.arange(ticks) * min(_WIDTH, ticks) // max(ticks, 1))

    @property
    def lines(self) -> list[str]:
        """Lines for people: the summary, the picture, unused columns, and notes."""
        unused_line = [f"Not used: {', '.join(self.facts.unused)}."] if self.facts.unused else []
        return [*self.summary, "", *self.picture, "", *unused_line, *(f"- {note}" for note in self.notes)]

    def document(self) -> dict[str, Any]:
        """Return the facts, the summary and the notes as an object for JSON."""
        fields = self.facts._asdict() | {"source": self.source, "summary": self.summary, "notes": self.notes}
        if self.readings is None:
            return fields
        ticks, share = len(self.readings.segments), self.readings.missing_share
        return fields | {"kind": self.readings.kind, "ticks": ticks, "missing_share": share}

    def to_csv(self) -> str:
        """Return the text of a plain CSV file, as `plain_csv` does. FuguError: the recording holds places."""
        if self.readings is None:
            raise FuguError(f"{self.source} holds places: no plain file is made of them")
        return plain_csv(self.readings)


def summary(source: str, facts: Facts) -> tuple[str, str]:
    """Return two lines: the columns and rows that were read, and the times of rows."""
    filters = "".join(f", only {column}={cell}" for column, cell in facts.only)
    rows = f"{facts.rows} rows" if facts.rows == facts.rows_in_file else f"{facts.rows} of {facts.rows_in_file} rows"
    zone = f", {facts.zone}" if facts.zone else ""
    times = f"times in column {facts.time} ({facts.unit}{zone})" if facts.time else "no times"
    first_line = f"{source}: {facts.form}, {rows}{filters}; readings in column {facts.column}, {times}"
    return first_line, "; ".join(_row_phrases(facts))


def _row_phrases(facts: Facts) -> list[str]:
    """Describe rows and times in phrases: kind, range, missing readings, longest hold and gaps."""
    phrases = []
    period_words = "" if facts.period_seconds is None else f"one every {time_text(facts.period_seconds)}"
    match facts.row_kind:
        case "changes":
            phrases.append(f"rows are changes, as {facts.why}, and are looked at {period_words.removeprefix('one ')}")
        case "events":
            phrases.append(f"rows are events, as {facts.why}: typically {period_words}")
        case "samples":
            phrases.append(f"rows are samples, as {facts.why}: {period_words}")
        case None:
            phrases.append(f"each row is a tick{', ' + period_words if period_words else ''}")
    if facts.first is not None and facts.last is not None:
        phrases.append(f"from {_date_words(facts.first)} to {_date_words(facts.last)}")
    missing_rows = sum(facts.missing.values())
    phrases.append(f"{missing_rows / facts.rows:.1%} without a reading" if missing_rows else "none without a reading")
    if facts.longest_hold_seconds is not None:
        phrases.append(f"longest hold {time_text(facts.longest_hold_seconds)}")
    if facts.gaps:
        phrases.append(f"{facts.gaps} gaps")
    return phrases


def time_text(seconds: float) -> str:
    """Return a duration in its largest unit, with three digits."""
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), _UNITS[-1])
    return f"{seconds / size:.3g} {unit}"


def _date_words(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M}"


def _number_bars(values: Floats, cell_of_tick: Ints) -> list[str]:
    """Draw the mean of each cell's ticks as a bar; return the bars and their legend."""
    is_present = ~np.isnan(values)
    present_counts = np.bincount(cell_of_tick, is_present)
    with np.errstate(invalid="ignore"):
        means = np.bincount(cell_of_tick, np.where(is_present, values, 0.0)) / present_counts
    lowest_mean, highest_mean = float(np.nanmin(means)), float(np.nanmax(means))
    step = (highest_mean - lowest_mean) / len(_BARS) or 1.0
    bars = [" " if math.isnan(mean) else _BARS[min(int((mean - lowest_mean) / step), len(_BARS) - 1)] for mean in means]
    return ["".join(bars), f"means of {_cell_words(cell_of_tick)}, {lowest_mean:.4g} to {highest_mean:.4g}"]


def _name_letters(values: Cells, cell_of_tick: Ints) -> list[str]:
    """Draw the usual name of each cell's ticks as a letter, or two names as bars; return the line and its legend."""
    sorted_names = sorted({value.casefold() for value in {*values.tolist()} - {None}})
    number_of_name = {name: float(index) for index, name in enumerate(sorted_names)}
    codes = np.array([math.nan if value is None else number_of_name[value.casefold()] for value in values])
    if len(sorted_names) == 2:
        bars, _ = _number_bars(codes, cell_of_tick)
        return [bars, f"the share of {sorted_names[1]!r} in {_cell_words(cell_of_tick)}, by height"]
    line = ""
    for cell in range(cell_of_tick[-1] + 1):
        cell_codes = codes[(cell_of_tick == cell) & ~np.isnan(codes)].astype(np.int64)
        line += _LETTERS[min(int(np.bincount(cell_codes).argmax()), len(_LETTERS) - 1)] if cell_codes.size else " "
    legend = ", ".join(f"{letter} {name}" for letter, name in zip(_LETTERS, sorted_names, strict=False))
    return [line, f"the usual name of {_cell_words(cell_of_tick)}: {legend}"[:200]]


def _cell_words(cell_of_tick: Ints) -> str:
    """Return how many ticks a cell has, in words."""
    ticks = len(cell_of_tick) / (cell_of_tick[-1] + 1)
    return "1 tick" if ticks == 1 else f"{ticks:.3g} ticks"


def plain_csv(readings: Readings) -> str:
    """Return the text of a CSV file that an agent can replay, and that reads as the same ticks.

    Ticks of another kind or period than the file shows are read by the same --rows and --period.
    """
    facts, segments = readings.facts[0], readings.segments.tolist()
    cells = [
        _csv_cell(value) if is_present else ""
        for value, is_present in zip(readings.values.tolist(), readings.present.tolist(), strict=True)
    ]
    if readings.moments is None:
        return "\n".join(["value", *cells, ""])
    times = [f"{moment:.3f}".rstrip("0").rstrip(".") for moment in readings.moments.tolist()]
    if not readings.changes:
        columns = {"time": times, "value": cells}
        if facts.gaps:
            columns["seg"] = [*map(str, segments)]
        csv_rows = compress(zip(*columns.values(), strict=True), ~readings.absent)
        return "\n".join([",".join(columns), *map(",".join, csv_rows), ""])
    lines = ["last_changed,value"]
    for tick, (time, cell) in enumerate(zip(times, cells, strict=True)):
        is_start = tick == 0 or segments[tick] != segments[tick - 1]
        if is_start and tick:
            lines.append(f"{readings.moments[tick - 1] + readings.period:.3f},unavailable")
        if is_start or cell != cells[tick - 1] or tick == len(cells) - 1:
            lines.append(f"{time},{cell or 'unknown'}")
    return "\n".join([*lines, ""])


def _csv_cell(value: object) -> str:
    text = str(value) if isinstance(value, str) else f"{value!r}".removesuffix(".0")
    return '"{}"'.format(text.replace('"', '""')) if {*text} & {*',"\r\n'} else text

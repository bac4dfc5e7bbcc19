"""Rules that ask about an implausible or ambiguous recording, unless `--as-it-is` names the rule.

No rule knows what a recording measures. Each returns its question, or None; its docstring says when it asks. No
question contains a reading; an option may.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fugu.recordings.clock import ORDERS, UNITS, Clock
from fugu.recordings.errors import Option, QuestionError
from fugu.recordings.ticks import Steps, is_coarse
from fugu.recordings.values import are_names

if TYPE_CHECKING:
    from fugu.chains.arrays import Bools, Floats, Ints
    from fugu.recordings.columns import Key, TimeCells
    from fugu.recordings.options import ReadOptions, RowKind
    from fugu.recordings.values import Cells

__all__ = ["RULES", "SILENT", "Evidence", "raise_question", "run_starts"]

_DAY = 86_400.0
_LATEST = 4_102_444_800.0
"""The year 2100."""
_LARGE = ("microseconds", "nanoseconds")
_MOST_SHOWN, _MOST_CODES, _MOST_NAMES = 12, 8, 32
_DATE_DIGITS = re.compile(
    r"(\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])|([0-2]\d|3[01])(0[1-9]|1[0-2])\d\d)([01]\d|2[0-3])([0-5]\d){1,2}"
    r"|20\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])([01]\d|2[0-3])"
)
"""Dates in digits alone, with a year of two digits, or with hours alone."""
_MOST_ALIKE, _LOOKED_AT = 60, 1000
"""Of more different numbers in a row, some end in 60 to 99, or in 24 to 99."""


class Evidence(NamedTuple):
    """Evidence from a recording; fields that are not known yet are None.

    `readings`, `times`, `row_parts` and `is_up` are (n,), in the order of times. `goes_back` is (n - 1,): whether a row
    of the file is earlier than the row before. `kind` is None if rows may be of several kinds.
    """

    file: str
    column: str
    options: ReadOptions
    keys: list[Key]
    time: TimeCells | None
    clock: Clock | None
    readings: Cells | None = None
    times: Floats | None = None
    row_parts: Ints | None = None
    steps: Steps | None = None
    goes_back: Bools | None = None
    kind: RowKind | None = None
    is_up: Bools | None = None

    @property
    def numbers(self) -> Floats | None:
        """The readings if they are numbers, else None."""
        return None if self.readings is None or are_names(self.readings) else self.readings

    @property
    def names(self) -> set[str]:
        """The different names among the readings, in small letters; empty if readings are numbers."""
        if self.readings is None or not are_names(self.readings):
            return set()
        return {name.casefold() for name in {*self.readings.tolist()} - {None}}


_Question = tuple[str, list[Option]]
"""A question, and the options to answer it."""
_Rule = Callable[[Evidence], _Question | None]


def _keys_question(evidence: Evidence) -> _Question | None:
    """Ask if a column tells several series apart that would be read as one sensor."""
    if not evidence.keys:
        return None
    key = max(evidence.keys, key=lambda key: (key.named, len(key.counts)))
    # Names in a column that is called like no key may be readings.
    shown_names = sorted(key.counts.items(), key=lambda name_count: -name_count[1])[:_MOST_SHOWN] if key.named else []
    options = [Option(("--only", f"{key.column}={name}"), f"{row_count} rows") for name, row_count in shown_names]
    if len(shown_names) < len(key.counts):
        options.append(Option(("--only", f"{key.column}=NAME"), f"one of {len(key.counts) - len(shown_names)} names"))
    options.append(Option(("--as-it-is", "keys"), "all rows are of one sensor"))
    return f"column {key.column} has {len(key.counts)} names, whose rows are not of one sensor", options


def _dates_question(evidence: Evidence) -> _Question | None:
    """Ask if no date shows whether the day, the month or a year of two digits comes first."""
    if evidence.clock is None or evidence.time is None or not evidence.clock.orders:
        return None
    column = evidence.time.columns[0]
    options = [
        Option(("--time", f"{column}:{order}"), f"the {ORDERS[order]} comes first") for order in evidence.clock.orders
    ]
    return f"column {column} has dates whose day, month and year cannot be told apart", options


def _step_question(evidence: Evidence) -> _Question | None:
    """Ask if rows are less than a millisecond or more than a day apart, or times are of no plausible year or unit.

    Also ask if all numbers are dates in digits as well.
    """
    time, clock, times, steps = evidence.time, evidence.clock, evidence.times, evidence.steps
    if time is None or clock is None or times is None or steps is None or time.unit is not None:
        return None
    as_it_is = Option(("--as-it-is", "step"), f"they are {clock.unit}")
    cells = {cell.strip() for cell in time.cells[:_LOOKED_AT]}
    if len(cells) > _MOST_ALIKE and all(map(_DATE_DIGITS.fullmatch, cells)):
        return f"numbers in column {time.name} are also dates in digits: if they are dates, write ISO 8601", [as_it_is]
    are_days = clock.unit == "seconds" and times.min() > 20_000.0 and times.max() < 80_000.0 and steps.median <= 1.0
    is_far_off = np.median(times) > _LATEST or (clock.unit in _LARGE and not clock.dated)
    if not are_days and not is_far_off and 1e-3 <= steps.median <= _DAY:
        return None
    units = {unit: unit_words for unit, unit_words in UNITS.items() if unit != "ns"}
    if clock.unit not in units.values():
        units = {}
    options = [
        Option(("--time", f"{time.columns[0]}:{unit}"), f"they are {unit_words}")
        for unit, unit_words in units.items()
        if unit_words != clock.unit and (is_far_off or (unit == "days") == (steps.median <= 1.0))
    ]
    options.append(as_it_is)
    if is_far_off:
        return f"times in column {time.name} are in no years of ours, if they are {clock.unit}", options
    return f"by column {time.name} rows are {steps.median:.3g} s apart", options


def _order_question(evidence: Evidence) -> _Question | None:
    """Ask if 1 % to 99 % of the rows, and at least 5, are earlier than the row before."""
    goes_back, time = evidence.goes_back, evidence.time
    if time is None or goes_back is None or goes_back.sum() < 5 or not 0.01 <= goes_back.mean() <= 0.99:
        return None
    return (
        f"{goes_back.mean():.0%} of the rows are earlier than the row before: are they of one sensor, by column "
        f"{time.name}",
        [Option(("--as-it-is", "order"), "sort them"), Option(("--time", "COLUMN"), "another column has the times")],
    )


def _rows_question(evidence: Evidence) -> _Question | None:
    """Ask for the kind of rows if neither steps of time nor readings show the kind."""
    if evidence.kind is not None or evidence.steps is None:
        return None
    short_step, long_step = np.quantile(evidence.steps.seconds, [0.05, 0.95])
    return (
        f"rows are {short_step:.3g} to {long_step:.3g} s apart, which says not what they are",
        [
            Option(("--rows", "samples"), f"readings on a clock of {evidence.steps.median:g} s, some absent"),
            Option(("--rows", "changes"), "each value holds until the next"),
            Option(("--rows", "events"), "each row is a tick, as a heartbeat is"),
        ],
    )


def _codes_question(evidence: Evidence) -> _Question | None:
    """Ask if a value comes again and again, far from all others, as codes of failed sensors do."""
    if evidence.numbers is None:
        return None
    readings = evidence.numbers[~np.isnan(evidence.numbers)]
    if is_coarse(readings):
        return None
    levels, level_counts = np.unique(readings, return_counts=True)
    codes, steps = [], np.diff(levels)
    distances = np.minimum(np.append(np.inf, steps), np.append(steps, np.inf))
    for index in sorted(np.argsort(distances)[-_MOST_CODES:].tolist()):
        low, high = np.quantile(readings[readings != levels[index]], [0.25, 0.75], method="inverted_cdf")
        spread = max(high - low, np.subtract(*np.quantile(np.delete(levels, index), [0.75, 0.25])))
        if level_counts[index] >= 3 and distances[index] > 2.0 * spread > 0.0:
            codes.append(f"{levels[index]:g}")
    if not codes:
        return None
    return (
        f"column {evidence.column} has {len(codes)} value{'s' * (len(codes) > 1)} far from all others, again and again",
        [
            Option(("--missing-values", ",".join(codes)), "codes for no reading"),
            Option(("--as-it-is", "codes"), "readings"),
        ],
    )


def _names_question(evidence: Evidence) -> _Question | None:
    """Ask if there are over 32 different names, most of them with digits: they may be numbers that were not read."""
    names = evidence.names
    names_with_digits = sum(any(map(str.isdigit, name)) for name in names)
    if len(names) <= _MOST_NAMES or 2 * names_with_digits <= len(names):
        return None
    return (
        f"column {evidence.column} has {len(names)} different words with numbers in them",
        [Option(("--column", "NAME"), "another column"), Option(("--as-it-is", "names"), "they are names of states")],
    )


def run_starts(readings: Floats, row_parts: Ints) -> Ints:
    """Return the indices of rows that begin a part, or whose reading differs from that of the row before."""
    return np.flatnonzero(np.concatenate([[True], (np.diff(readings) != 0.0) | (np.diff(row_parts) != 0)]))


def unusual_holds(times: Floats, row_parts: Ints, is_up: Bools) -> tuple[Floats, float]:
    """Return the lengths of unusual holds, and of the longest other hold, in seconds.

    Unusual holds last at least a day, and 5 times as long as all others; without any, the lengths are empty and the
    other hold is 0. `is_up` is (n,): holds that begin at a broken source do not count.
    """
    in_part = (np.diff(row_parts) == 0) & is_up[:-1]
    hold_seconds = np.diff(times)[in_part]
    hold_seconds = np.sort(hold_seconds)[::-1] if hold_seconds.max(initial=0.0) >= _DAY else hold_seconds[:0]
    for hold_count in range(1, max(3, len(hold_seconds) // 100) + 1):
        if hold_count < len(hold_seconds) and hold_seconds[hold_count - 1] >= max(_DAY, 5.0 * hold_seconds[hold_count]):
            return hold_seconds[:hold_count], float(hold_seconds[hold_count])
    return hold_seconds[:0], 0.0


def _hold_question(evidence: Evidence) -> _Question | None:
    """Ask if a value holds for days, far longer than any other value: the sensor may have been off.

    A hold of samples is a run of equal numbers; programs that fill in absent readings write such runs.
    """
    times, row_parts, is_up = evidence.times, evidence.row_parts, evidence.is_up
    if evidence.options.gap is not None or times is None or row_parts is None or is_up is None:
        return None
    if evidence.kind == "samples" and evidence.numbers is not None and not is_coarse(evidence.numbers):
        run_firsts = run_starts(evidence.numbers, row_parts)
        times, row_parts, is_up = times[run_firsts], row_parts[run_firsts], is_up[run_firsts]
    elif evidence.kind != "changes":
        return None
    hold_seconds, next_longest = unusual_holds(times, row_parts, is_up)
    if not hold_seconds.size:
        return None
    subject = "a value holds" if hold_seconds.size == 1 else f"{hold_seconds.size} values hold"
    return (
        f"{subject} for {hold_seconds[-1] / _DAY:.1f} days, and no other for longer than {next_longest / 3600.0:.2g} h",
        [
            Option(("--gap", f"{max(math.ceil(next_longest / 3600.0), 1)}h"), "a gap: the sensor was off"),
            Option(("--as-it-is", "hold"), "it was so all the time"),
        ],
    )


def _zone_question(evidence: Evidence) -> _Question | None:
    """Ask if times have no zone, and a plan needs parts of the day."""
    clock, options = evidence.clock, evidence.options
    if evidence.time is None or not options.day_parts or options.zone is not None:
        return None
    if clock is None or not clock.naive or not clock.dated:
        return None
    zone = options.day_parts if options.day_parts != "UTC" else "Europe/Berlin"
    return (
        f"times in column {evidence.time.name} have no zone, and parts of the day are asked for",
        [Option(("--zone", zone), "they are of this zone"), Option(("--as-it-is", "zone"), "they are UTC")],
    )


RULES: dict[str, _Rule] = {
    "keys": _keys_question,
    "dates": _dates_question,
    "step": _step_question,
    "order": _order_question,
    "rows": _rows_question,
    "codes": _codes_question,
    "names": _names_question,
    "hold": _hold_question,
    "zone": _zone_question,
}
"""The rules in the order in which they ask."""
SILENT = tuple(name for name in RULES if name not in ("dates", "rows"))
"""Rules that `--as-it-is` can silence. Only another option answers the others."""


def raise_question(evidence: Evidence) -> None:
    """Apply the rules in order. QuestionError: a rule asks; it is the first question."""
    for name, rule in RULES.items():
        if name in evidence.options.as_it_is and name in SILENT:
            continue
        if (open_question := rule(evidence)) is not None:
            question, options = open_question
            raise QuestionError(name, f"{evidence.file}: {question}", options)

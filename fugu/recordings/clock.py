"""The times of rows: seconds and other units since 1970, Excel's days, ISO 8601, and dates as people write them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

if TYPE_CHECKING:
    from fugu.chains.arrays import Floats

__all__ = [
    "LEAST_DATED",
    "ORDERS",
    "UNITS",
    "Clock",
    "clock_of",
    "floats",
    "floats_if_any",
    "is_date",
    "is_time_of_day",
    "looks_like_time",
    "number_of",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAYS, _NOW_DAYS = (25_569.0, 719_529.0, 2_440_587.5), 20_000.0
"""Days from the epochs of Excel, MATLAB and astronomers to 1970; days from 1970 to about the present."""
UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds", "days": "days, as in Excel"}
_SIZES = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_SECONDS, _STEP = 1e11, 1e3
"""Seconds from 1970 to about 5100. Larger times are in milliseconds, and 1000 times larger ones in microseconds."""
LEAST_DATED = 946_684_800.0
"""The year 2000 as a Unix time. Smaller times count from an unknown start, or the clock was not set."""
ORDERS = {"dd/mm": "day", "mm/dd": "month", "yy/mm": "year"}
"""The part in front, by the order of a date's numbers."""
_PARTS = {"yy/mm": (1, 3, 4), "dd/mm": (4, 3, 1), "mm/dd": (4, 1, 3)}
_DAY = r"(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})"
_TIME = r"(\d{1,2}):(\d{2})(?::(\d{2})([.,]\d+)?)?(?:\s*([AaPp])\.?(?:[Mm]\.?)?)?"
_DATE = re.compile(rf"{_DAY}(?:[ T,]+{_TIME})?")
_DAY_ONLY, _TIME_OF_DAY = re.compile(_DAY), re.compile(_TIME)
_ZONE = re.compile(r"(?<=\d)(Z|[-+]\d\d:\d\d)$")
_OFFSET = re.compile(r"(?<!\s)\s++([-+]\d\d:?\d\d)(\s+[A-Z]{3,4})?$")
_SPELLED = re.compile(
    r"(?:[A-Za-z]{3,9},? +)?(?:(\d{1,2})[ -]([A-Za-z]{3})[a-z]*[ ,-]+|([A-Za-z]{3})[a-z]* +(\d{1,2}),? +)(\d{4})"
    r"(?:[ ,T]+(.*?)\s*(Z|GMT|UTC|[-+]\d\d:?\d\d)?)?"
)
_LONGEST = 100
"""The most characters of a date with a month's name."""
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_COMPACT = re.compile(r"((?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01]))((?:[01]\d|2[0-3])[0-5]\d(?:[0-5]\d)?)?")
"""Dates in digits alone; Unix times of these years do not match."""
_COMMA = re.compile(r"\d{9,},\d+")
"""Seconds or milliseconds since 1970 with a decimal comma."""
_LAST_MONTH, _FOUR, _HOUR, _DAY_SECONDS = 12, 4, 3600.0, 86_400
_RISES, _MOST, _LOOKED_AT = 0.9, 0.5, 200


class Clock(NamedTuple):
    """Times of rows.

    `times` are (n,) seconds since 1970, or since an unknown start; NaN where a cell is no time. `unit` describes their
    format. `dated` times have a date, `naive` times no zone. `offsets` are the offsets from UTC in the cells. `repeats`
    is the number of rows in hours that come twice. `orders` are those of `ORDERS` that dates may have, if several.
    """

    times: Floats
    unit: str
    dated: bool
    naive: bool
    offsets: tuple[str, ...] = ()
    repeats: int = 0
    orders: tuple[str, ...] = ()


def looks_like_time(cells: Sequence[str]) -> bool:
    """Return whether most cells are dates, or numbers that nearly always rise or nearly always fall."""
    filled_cells = [cell for cell in cells if cell.strip()]
    numbers = floats_if_any(filled_cells)
    is_finite = np.isfinite(numbers)
    if filled_cells and _COMMA.fullmatch(filled_cells[0]):
        return looks_like_time([cell.replace(",", ".") for cell in filled_cells])
    if is_finite.sum() >= _MOST * len(filled_cells):
        steps = np.diff(numbers[is_finite])
        return bool(max((steps >= 0.0).mean(), (steps <= 0.0).mean()) >= _RISES) if steps.size else bool(filled_cells)
    return sum(map(is_date, filled_cells[:20])) >= _MOST * len(filled_cells[:20])


def floats(cells: Sequence[str]) -> Floats:
    """Read cells as (n,) numbers, NaN where a cell is no number."""
    try:
        return np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        return np.array([*map(number_of, cells)], dtype=np.float64)  # NaN for None


def floats_if_any(cells: Sequence[str]) -> Floats:
    """Read cells as numbers, NaN for others; return only 200 NaN if none of the first 200 cells is a number."""
    sample = floats(cells[:_LOOKED_AT])
    return floats(cells) if np.isfinite(sample).any() else sample


def number_of(cell: str) -> float | None:
    """Read a cell as a number; None if the cell is no number."""
    try:
        return float(cell)
    except ValueError:
        return None


def is_date(cell: str) -> bool:
    """Return whether a cell is a date, with a time of day or without."""
    cell = cell.strip()
    if _DATE.fullmatch(cell) or _iso_of_words(cell):
        return True
    return any(sign in cell for sign in "-:T") and _iso_date(cell) is not None and not is_time_of_day(cell)


def is_time_of_day(cell: str) -> bool:
    """Return whether a cell is a time of day without a date."""
    return _TIME_OF_DAY.fullmatch(_ZONE.sub("", cell.strip())) is not None


def clock_of(cells: Sequence[str], unit: str | None, zone: ZoneInfo | None) -> Clock:
    """Read cells as times. `unit` is one of `UNITS` or `ORDERS`. Times without a zone are in `zone`, or in UTC."""
    if unit is None and (iso_cells := _iso_of_digits(cells)):
        return _iso_clock(iso_cells, zone)
    if unit is None or unit in UNITS:
        numbers = floats_if_any(cells) if unit is None else floats(cells)
        if unit is not None or np.isfinite(numbers).mean() >= _MOST:
            return _number_clock(numbers, unit)
    first_cell = next((cell.strip() for cell in cells if cell.strip()), "")
    if _COMMA.fullmatch(first_cell):
        clock = _number_clock(floats([cell.replace(",", ".") for cell in cells]), unit)
        return clock._replace(unit=f"{clock.unit} with a decimal comma")
    if _iso_of_words(first_cell):
        return _iso_clock([*map(_iso_of_words, cells)], zone)
    match = _DATE.fullmatch(first_cell)
    if match is None or (match[2] == "-" and len(match[1]) == _FOUR):
        return _iso_clock(cells, zone)
    dates, day_times = _split_at_space(cells)
    if not all(map(_DAY_ONLY.fullmatch, {*dates})):
        dates, day_times = _split_at_space([cell.strip().replace("T", " ").replace(",", " ", 1) for cell in cells])
    return _date_clock(dates, day_times, unit, zone, match)


def _iso_of_digits(cells: Sequence[str]) -> list[str]:
    """Rewrite dates of digits alone in ISO 8601. Return [] if a cell is neither such a date nor empty."""
    if not any(map(_COMPACT.fullmatch, cells[:_LOOKED_AT])):
        return []
    texts = [cell.strip() for cell in cells]
    if not all(map(_COMPACT.fullmatch, filter(None, texts))):
        return []
    return [cell and f"{cell[:8]}T{cell[8:] or '0000'}" for cell in texts]


def _number_clock(numbers: Floats, unit: str | None) -> Clock:
    """Convert numbers to times. Without a unit, infer the unit from the median number."""
    sizes = np.abs(numbers[np.isfinite(numbers)])
    median_size = float(np.median(sizes)) if sizes.size else 0.0
    if unit is None:
        unit = next((name for power, name in enumerate(_SIZES) if median_size < _SECONDS * _STEP**power), "ns")
    if unit == "days":  # days have fewer digits than times: to the millisecond
        epoch_day = min(_FIRST_DAYS, key=lambda epoch_day: abs(median_size - epoch_day - _NOW_DAYS))
        times = np.round((numbers - epoch_day) * _DAY_SECONDS, 3)
    else:
        times = numbers / _SIZES[unit]
    times = np.where(np.isfinite(times) & (np.abs(times) < _SECONDS), times, np.nan)
    is_dated = bool(np.nanmedian(times) > LEAST_DATED) if np.isfinite(times).any() else False
    return Clock(times, UNITS[unit], is_dated, unit == "days")


def _iso_date(cell: str) -> datetime | None:
    """Read a date in ISO 8601, also with UTC or a space before its offset; None if the cell is no date."""
    try:
        return datetime.fromisoformat(_OFFSET.sub(r"\1", cell.strip()).replace(" UTC", "Z").replace(" GMT", "Z"))
    except ValueError:
        return None


def _iso_clock(cells: Sequence[str], zone: ZoneInfo | None) -> Clock:
    """Read cells in ISO 8601 as times, NaN where a cell is no date."""
    try:
        dates: list[datetime | None] = [*map(datetime.fromisoformat, cells)]
    except ValueError:
        dates = [*map(_iso_date, cells)]
    zones = {date.tzinfo for date in dates if date is not None}
    if None not in zones and None not in dates:
        times = np.fromiter(map(datetime.timestamp, dates), np.float64, len(dates))  # type: ignore[arg-type]
        repeats = 0
    else:
        times = np.array([math.nan if date is None else _unix_time(date) for date in dates])
        is_naive = np.array([date is not None and date.tzinfo is None for date in dates])
        times[is_naive], repeats = _unix_times(times[is_naive], zone)
    offsets = tuple(sorted({str(tz).removeprefix("UTC") for tz in zones - {None, UTC}}))
    return Clock(np.where(np.abs(times) < _SECONDS, times, np.nan), "ISO 8601", True, None in zones, offsets, repeats)


def _unix_time(date: datetime) -> float:
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _iso_of_words(cell: str) -> str:
    """Rewrite a date with a month's name (01-Mar-2026 10:00, or Mar 1, 2026 10:00 AM) in ISO 8601; '' for others."""
    match = _SPELLED.fullmatch(cell.strip()) if len(cell) <= _LONGEST else None
    name = "" if match is None else (match[2] or match[3]).lower()
    if match is None or name not in _MONTHS:
        return ""
    day = _DAY_ONLY.fullmatch(f"{match[5]}-{_MONTHS.index(name) + 1}-{match[1] or match[4]}")
    seconds = _midnight(day, "yy/mm") + _seconds_of_day(match[6] or "")
    if not seconds < _SECONDS:  # no such time, or beyond the calendar
        return ""
    offset = "+00:00" if match[7] in ("Z", "GMT", "UTC") else match[7] or ""
    return (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat() + offset


def _date_clock(
    dates: Sequence[str], day_times: Sequence[str], unit: str | None, zone: ZoneInfo | None, first_match: re.Match[str]
) -> Clock:
    """Read dates as people write them; each different day and time of day is parsed once."""
    year_first, has_dots = len(first_match[1]) == _FOUR, first_match[2] == "."
    day_matches = {day: _DAY_ONLY.fullmatch(day) for day in {*dates}}
    seconds = {day_time: _seconds_of_day(day_time.strip(" ,")) for day_time in {*day_times}}
    matches = [match for match in day_matches.values() if match is not None]
    day_first, month_first = (any(int(match[group]) > _LAST_MONTH for match in matches) for group in (1, 3))
    order = "yy/mm" if year_first else unit if unit in ORDERS else "mm/dd" if month_first else "dd/mm"
    midnights = {day: _midnight(match, order) for day, match in day_matches.items()}
    local_times = np.array([*map(midnights.__getitem__, dates)]) + np.array([*map(seconds.__getitem__, day_times)])
    times, repeats = _unix_times(local_times, zone)
    orders = ["dd/mm", "mm/dd"] if not (day_first or month_first or has_dots) else [order]
    # Of years with two digits there are no more than of days.
    first_numbers, last_numbers = ({match[group] for match in matches} for group in (1, 4))
    has_short_years = max(map(len, first_numbers | last_numbers), default=_FOUR) < _FOUR
    surplus = len(first_numbers) - len(last_numbers)
    if has_short_years and (surplus < 0 or (surplus == 0 and first_match[2] == "-")):
        orders.append("yy/mm")
    unclear_orders = () if year_first or unit or len(orders) == 1 else tuple(orders)
    return Clock(times, f"dates with the {ORDERS[order]} first", True, True, (), repeats, unclear_orders)


def _split_at_space(cells: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Split cells at their first space: return the texts before and after it."""
    dates, _, day_times = zip(*map(str.partition, cells, repeat(" ")), strict=True)
    return dates, day_times


def _midnight(match: re.Match[str] | None, order: str) -> float:
    """Return the seconds from 1970 to the beginning of a day; NaN if there is no such day."""
    try:
        year, month, day = (int(match[group]) for group in _PARTS[order]) if match else (0, 0, 0)
        return (datetime(year + (2000 if year < 100 else 0), month, day, tzinfo=UTC) - _EPOCH).total_seconds()
    except ValueError:
        return math.nan


def _seconds_of_day(day_time: str) -> float:
    """Return the seconds since midnight of a time of day, 0 for an empty text, NaN if there is no such time."""
    match = _TIME_OF_DAY.fullmatch(day_time or "0:00")
    if match is None:
        return math.nan
    hour, minute, second = (int(match[group] or 0) for group in (1, 2, 3))
    if match[5]:
        hour = hour % 12 + (12 if match[5] in "Pp" else 0)
    seconds = _HOUR * hour + 60 * minute + second + float(f"0{(match[4] or '').replace(',', '.')}")
    return seconds if minute < 60 and second < 60 and seconds <= _DAY_SECONDS else math.nan


def _unix_times(local_times: Floats, zone: ZoneInfo | None) -> tuple[Floats, int]:
    """Convert local times (n,) to Unix times. Return the Unix times, and the number of rows in hours that come twice.

    By their order such rows belong to the hour's first occurrence until local time goes back within the hour. Files
    with the newest row first are taken from their end. Of two equal times the later is the second, if steps are as long
    as what comes twice. Times of other millennia, as of 9999, stay as they are.
    """
    is_set = np.abs(local_times) < _SECONDS / 2.0
    if zone is None or not is_set.any():
        return local_times, 0
    minutes, minute_index = np.unique(np.floor(local_times[is_set] / 60.0), return_inverse=True)  # an offset a minute
    dates = [(_EPOCH + timedelta(minutes=minute)).replace(tzinfo=zone) for minute in minutes.tolist()]
    times, fold_delays = local_times.copy(), np.zeros(len(local_times))
    steps = np.diff(local_times[is_set], prepend=local_times[is_set][:1])
    first_offsets, second_offsets = (
        np.array([(date.replace(fold=fold).utcoffset() or timedelta()).total_seconds() for date in dates])
        for fold in (0, 1)
    )
    times[is_set] -= first_offsets[minute_index.reshape(-1)]
    fold_delays[is_set] = np.maximum(first_offsets - second_offsets, 0.0)[minute_index.reshape(-1)]
    repeated_rows = np.flatnonzero(fold_delays)
    slack = 1.0 if np.median(np.abs(steps)) < fold_delays.max() else -1.0
    is_second, previous_time = False, -math.inf
    for row in repeated_rows.tolist()[:: -1 if np.median(steps) < 0.0 else 1]:
        # Hours of two years are far apart.
        is_second = times[row] - previous_time <= 2.0 * _HOUR and (is_second or times[row] < previous_time - slack)
        previous_time = times[row]
        times[row] += fold_delays[row] if is_second else 0.0
    return times, len(repeated_rows)

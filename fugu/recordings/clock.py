"""The times of rows: seconds and other units since 1970, Excel's days, ISO 8601, and dates as people write them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from fugu.chains.arrays import Floats

__all__ = ["UNITS", "Clock", "clock_of", "is_date", "is_time_of_day", "looks_like_time"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXCEL_DAYS = 25_569.0
"""Days from Excel's first day to 1970."""
UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds", "days": "days, as in Excel"}
_SIZES = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_SECONDS, _STEP = 1e11, 1e3
"""Seconds since 1970, in 3,000 years: a time beyond is in milliseconds; and so on."""
_ORDERS = {"dd/mm": "dates with the day first", "mm/dd": "dates with the month first"}
_DATE = re.compile(
    r"(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})"
    r"(?:[ T,]+(\d{1,2}):(\d{2})(?::(\d{2})([.,]\d+)?)?\s*([AaPp])?\.?(?:[Mm]\.?)?)?"
)
_COMPACT = re.compile(r"((?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01]))((?:[01]\d|2[0-3])[0-5]\d(?:[0-5]\d)?)?")
"""Dates in digits alone, which are no seconds or milliseconds of these years."""
_TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?(\s*[AaPp]\.?[Mm]\.?)?")
_LAST_MONTH, _FOUR = 12, 4
_RISES, _MOST = 0.9, 0.5
_HOUR = 3600.0


class Clock(NamedTuple):
    """Times of rows.

    `times` are (n,) seconds since 1970, or since some start; NaN where a cell is no time. `unit` says in words how they
    are written. `dated` times are of a day, `naive` ones have no zone of their own; `offsets` are those in the cells,
    other than none. `twice` counts rows in hours that come twice. In `ambiguous` dates the day or the month is first.
    """

    times: Floats
    unit: str
    dated: bool
    naive: bool
    offsets: tuple[str, ...] = ()
    twice: int = 0
    ambiguous: bool = False


def looks_like_time(cells: Sequence[str]) -> bool:
    """Return whether most cells are dates, or numbers that nearly always rise, or nearly always fall."""
    some = [cell for cell in cells if cell.strip()]
    numbers = np.array([_float(cell) for cell in some])
    usable = np.isfinite(numbers)
    if usable.sum() >= _MOST * len(some):
        steps = np.diff(numbers[usable])
        return bool(max((steps >= 0.0).mean(), (steps <= 0.0).mean()) >= _RISES) if steps.size else bool(some)
    return sum(map(is_date, some[:20])) >= _MOST * len(some[:20])


def _float(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def is_date(cell: str) -> bool:
    """Return whether a cell is a date, with a time of day or without."""
    cell = cell.strip()
    if _DATE.fullmatch(cell):
        return True
    if not any(sign in cell for sign in "-:T"):
        return False
    return not math.isnan(_iso(cell)[0]) and not _TIME_OF_DAY.fullmatch(cell)


def is_time_of_day(cell: str) -> bool:
    """Return whether a cell is a time of day without a date."""
    return bool(_TIME_OF_DAY.fullmatch(cell.strip()))


def clock_of(cells: Sequence[str], unit: str | None, zone: ZoneInfo | None) -> Clock:
    """Read cells as times. `unit` is one of `UNITS`, dd/mm or mm/dd; `zone` is of times that have none, else UTC."""
    if unit is None and (compact := _in_digits(cells)):
        cells = compact
    elif unit is None or unit in UNITS:
        try:
            return _numbers(np.array([*map(float, cells)]), unit)
        except ValueError:
            numbers = np.array([*map(_float, cells)])
            if unit is not None or np.isfinite(numbers).mean() >= _MOST:
                return _numbers(numbers, unit)
    read = _dates_by(cells, unit)
    if read is None:
        times, offsets = _all_iso(cells, zone)
        naive = "" in offsets
        words = tuple(sorted(offset for offset in offsets if offset and offset not in ("Z", "+00:00", "-00:00")))
        return Clock(times, "ISO 8601", True, naive, words, _twice(times, zone) if naive else 0)
    dates, order, ambiguous = read
    times = np.array([math.nan if date is None else _seconds(date, zone) for date in dates])
    times = _unfolded(times, zone)
    return Clock(times, _ORDERS.get(order, "dates"), True, True, (), _twice(times, zone), ambiguous)


def _in_digits(cells: Sequence[str]) -> list[str]:
    """Dates of digits alone as ISO 8601; none if any other cell is among them."""
    matches = [_COMPACT.fullmatch(cell.strip()) for cell in cells if cell.strip()]
    if not matches or None in matches:
        return []
    return [f"{cell.strip()[:8]}T{cell.strip()[8:] or '0000'}" if cell.strip() else "" for cell in cells]


def _numbers(numbers: Floats, unit: str | None) -> Clock:
    usable = np.abs(numbers[np.isfinite(numbers)])
    if unit is None:
        size = float(np.median(usable)) if usable.size else 0.0
        unit = next((name for place, name in enumerate(_SIZES) if size < _SECONDS * _STEP**place), "ns")
    times = (numbers - _EXCEL_DAYS) * 86_400.0 if unit == "days" else numbers / _SIZES[unit]
    times = np.where(np.isfinite(times) & (np.abs(times) < _SECONDS), times, np.nan)
    if unit == "days":  # days have fewer digits than times: to the millisecond
        times = np.round(times, 3)
    dated = bool(np.nanmedian(times) > _LEAST_DATED) if np.isfinite(times).any() else False
    return Clock(times, UNITS[unit], dated, unit == "days")


_LEAST_DATED = 946_684_800.0
"""The year 2000: smaller numbers are seconds since some start."""


def _iso(cell: str) -> tuple[float, str]:
    """Seconds of a cell as if it were UTC, and its offset, empty without one; NaN if it is no time."""
    try:
        date = datetime.fromisoformat(cell.strip())
    except ValueError:
        return math.nan, ""
    if date.tzinfo is None:
        return (date.replace(tzinfo=UTC) - _EPOCH).total_seconds(), ""
    offset = date.utcoffset() or timedelta()
    return (date - _EPOCH).total_seconds(), _offset_words(offset)


def _offset_words(offset: timedelta) -> str:
    minutes = round(offset.total_seconds() / 60.0)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def _all_iso(cells: Sequence[str], zone: ZoneInfo | None) -> tuple[Floats, set[str]]:
    parse, epoch = datetime.fromisoformat, _EPOCH
    seconds, offsets = np.full(len(cells), np.nan), set[timedelta | None]()
    naive = np.zeros(len(cells), dtype=bool)
    for place, cell in enumerate(cells):
        try:
            date = parse(cell)
        except ValueError:
            try:
                date = parse(cell.strip().replace(" UTC", "Z"))
            except ValueError:
                continue
        if date.tzinfo is None:
            naive[place] = True
            offsets.add(None)
            if zone is None:
                seconds[place] = (date.replace(tzinfo=UTC) - epoch).total_seconds()
            else:
                seconds[place] = _seconds(date, zone)
        else:
            offsets.add(date.utcoffset())
            seconds[place] = (date - epoch).total_seconds()
    seconds = np.where(np.abs(seconds) < _SECONDS, seconds, np.nan)
    if naive.any():
        seconds = _unfolded(seconds, zone)
    return seconds, {"" if offset is None else _offset_words(offset) for offset in offsets}


def _seconds(date: datetime, zone: ZoneInfo | None) -> float:
    return (date.replace(tzinfo=zone or UTC).astimezone(UTC) - _EPOCH).total_seconds()


def _unfolded(times: Floats, zone: ZoneInfo | None) -> Floats:
    """Put rows of an hour that comes twice into its second turn from where local time goes back within it."""
    if zone is None or not np.isfinite(times).any():
        return times
    doubled = _doubled(times, zone)
    if not doubled.any():
        return times
    times = times.copy()
    second, last = False, -math.inf
    for place in np.flatnonzero(doubled).tolist():
        if times[place] - last > 2.0 * _HOUR:  # another year's
            second = False
        second = second or times[place] < last - 1.0
        last = times[place]
        if second:
            times[place] += _HOUR
    return times


def _doubled(times: Floats, zone: ZoneInfo) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """(n,) whether a time, in the first turn of its local hour, has a second one."""
    found = np.zeros(len(times), dtype=bool)
    hours = np.floor(np.where(np.isfinite(times), times, 0.0) / _HOUR)
    for hour in np.unique(hours).tolist():
        local = datetime.fromtimestamp(hour * _HOUR, zone)
        if local.utcoffset() != local.replace(fold=1 - local.fold).utcoffset() and not local.fold:
            later = local.replace(fold=1)
            if (later.utcoffset() or timedelta()) < (local.utcoffset() or timedelta()):
                found |= hours == hour
    return found


def _twice(times: Floats, zone: ZoneInfo | None) -> int:
    """How many rows are in an hour that comes twice."""
    if zone is None or not np.isfinite(times).any():
        return 0
    return int((_doubled(times, zone) | _doubled(times - _HOUR, zone)).sum())


def _dates_by(cells: Sequence[str], unit: str | None) -> tuple[list[datetime | None], str, bool] | None:
    """Dates as people write them, which part comes first, and whether that is not clear; None if they are ISO 8601."""
    first = next((cell.strip() for cell in cells if cell.strip()), "")
    if (match := _DATE.fullmatch(first)) is None or (match[2] == "-" and len(match[1]) == _FOUR):
        return None
    matches = [_DATE.fullmatch(cell.strip()) for cell in cells]
    if len(match[1]) == _FOUR:
        return [_date(match, "yy/mm") for match in matches], "yy/mm", False
    some = [match for match in matches if match is not None]
    day_first = any(int(match[1]) > _LAST_MONTH for match in some)
    month_first = any(int(match[3]) > _LAST_MONTH for match in some)
    ambiguous = unit is None and not day_first and not month_first and match[2] != "."
    order = unit if unit in _ORDERS else ("mm/dd" if month_first else "dd/mm")
    return [_date(match, order) for match in matches], order, ambiguous


def _date(match: re.Match[str] | None, order: str) -> datetime | None:
    if match is None:
        return None
    parts = [int(match[1]), int(match[3]), int(match[4])]
    year, month, day = {
        "yy/mm": (parts[0], parts[1], parts[2]),
        "dd/mm": (parts[2], parts[1], parts[0]),
        "mm/dd": (parts[2], parts[0], parts[1]),
    }[order]
    hour, minute, second = (int(match[group] or 0) for group in (5, 6, 7))
    if match[9]:
        hour = hour % 12 + (12 if match[9] in "Pp" else 0)
    try:
        whole = datetime(year + (2000 if year < 100 else 0), month, day, hour, minute, second)
    except ValueError:
        return None
    return whole + timedelta(seconds=float("0" + match[8].replace(",", ".")) if match[8] else 0.0)

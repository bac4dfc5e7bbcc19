"""The times of rows: seconds and other units since 1970, Excel's days, ISO 8601, and dates as people write them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fugu.chains.arrays import Floats

__all__ = ["UNITS", "Clock", "clock_of", "floats", "is_date", "is_time_of_day", "looks_like_time", "some_floats"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAYS, _NOW_DAYS = (25_569.0, 719_529.0, 2_440_587.5), 20_000.0
"""Days from the first of Excel, of MATLAB and of astronomers to 1970, and from there to our years."""
UNITS = {
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "days": "days, as in Excel",
}
_SIZES = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_SECONDS, _STEP = 1e11, 1e3
"""Seconds since 1970, in 3,000 years: a time beyond is in milliseconds; and so on."""
_ORDERS = {"dd/mm": "dates with the day first", "mm/dd": "dates with the month first"}
_DAY = r"(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})"
_TIME = r"(\d{1,2}):(\d{2})(?::(\d{2})([.,]\d+)?)?(?:\s*([AaPp])\.?(?:[Mm]\.?)?)?"
_DATE = re.compile(rf"{_DAY}(?:[ T,]+{_TIME})?")
_DAY_ONLY, _TIME_OF_DAY = re.compile(_DAY), re.compile(_TIME)
_OFFSET = re.compile(r"\s+([-+]\d\d:?\d\d)(\s+[A-Z]{3,4})?$")
_SPELLED = re.compile(
    r"(?:[A-Za-z]{3,9},? +)?(?:(\d{1,2})[ -]([A-Za-z]{3})[a-z]*[ ,-]+|([A-Za-z]{3})[a-z]* +(\d{1,2}),? +)(\d{4})"
    r"(?:[ ,T]+(.*?)\s*(Z|GMT|UTC|[-+]\d\d:?\d\d)?)?"
)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_COMPACT = re.compile(r"((?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01]))((?:[01]\d|2[0-3])[0-5]\d(?:[0-5]\d)?)?")
"""Dates in digits alone, which are no seconds or milliseconds of these years."""
_LAST_MONTH, _FOUR, _DAY_SECONDS = 12, 4, 86_400
_RISES, _MOST = 0.9, 0.5
_LOOKED_AT = 200
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
    numbers = floats(some)
    usable = np.isfinite(numbers)
    if usable.sum() >= _MOST * len(some):
        steps = np.diff(numbers[usable])
        return bool(max((steps >= 0.0).mean(), (steps <= 0.0).mean()) >= _RISES) if steps.size else bool(some)
    return sum(map(is_date, some[:20])) >= _MOST * len(some[:20])


def floats(cells: Sequence[str]) -> Floats:
    """Read cells as numbers, NaN where a cell is none."""
    try:
        return np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        return np.array([*map(_float, cells)])


def some_floats(cells: Sequence[str]) -> Floats:
    """Read cells as numbers; only the first ones if none of these is a number."""
    some = floats(cells[:_LOOKED_AT])
    return floats(cells) if np.isfinite(some).any() else some


def _float(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def is_date(cell: str) -> bool:
    """Return whether a cell is a date, with a time of day or without."""
    cell = cell.strip()
    if _DATE.fullmatch(cell) or _spelled(cell):
        return True
    if not any(sign in cell for sign in "-:T"):
        return False
    return _iso_date(cell) is not None and not _TIME_OF_DAY.fullmatch(cell)


def is_time_of_day(cell: str) -> bool:
    """Return whether a cell is a time of day without a date."""
    return bool(_TIME_OF_DAY.fullmatch(cell.strip()))


def clock_of(cells: Sequence[str], unit: str | None, zone: ZoneInfo | None) -> Clock:
    """Read cells as times. `unit` is one of `UNITS`, dd/mm or mm/dd; `zone` is of times that have none, else UTC."""
    if unit is None and (compact := _in_digits(cells)):
        cells = compact
    elif unit is None or unit in UNITS:
        numbers = some_floats(cells) if unit is None else floats(cells)
        if unit is not None or np.isfinite(numbers).mean() >= _MOST:
            return _numbers(numbers, unit)
    if any(map(_spelled, cells[:1])):
        cells = [*map(_spelled, cells)]
    read = _dates_by(cells, unit)
    if read is None:
        times, offsets = _all_iso(cells, zone)
        naive = "" in offsets
        words = tuple(sorted(offset for offset in offsets if offset and offset not in ("Z", "+00:00", "-00:00")))
        return Clock(times, "ISO 8601", True, naive, words, _twice(times, zone) if naive else 0)
    local, order, ambiguous = read
    times = _unix_times(local, zone)
    return Clock(times, _ORDERS.get(order, "dates"), True, True, (), _twice(times, zone), ambiguous)


def _spelled(cell: str) -> str:
    """A date with its month's name as ISO 8601, empty if it is none: 01-Mar-2026 10:00, or Mar 1, 2026 10:00 AM."""
    match = _SPELLED.fullmatch(cell.strip())
    name = "" if match is None else (match[2] or match[3]).lower()
    if match is None or name not in _MONTHS:
        return ""
    seconds = _seconds_of_day(match[6] or "")
    day = _midnight(_DAY_ONLY.fullmatch(f"{match[5]}-{_MONTHS.index(name) + 1}-{match[1] or match[4]}"), "yy/mm")
    if math.isnan(day + seconds):
        return ""
    zone = {"Z": "+00:00", "GMT": "+00:00", "UTC": "+00:00"}.get(match[7], match[7]) or ""
    return (_EPOCH + timedelta(seconds=day + seconds)).replace(tzinfo=None).isoformat() + zone


def _in_digits(cells: Sequence[str]) -> list[str]:
    """Dates of digits alone as ISO 8601; none if any other cell is among them."""
    filled = (cell.strip() for cell in cells if cell.strip())
    if not any(map(_COMPACT.fullmatch, cells[:_LOOKED_AT])) or not all(map(_COMPACT.fullmatch, filled)):
        return []
    return [f"{cell.strip()[:8]}T{cell.strip()[8:] or '0000'}" if cell.strip() else "" for cell in cells]


def _numbers(numbers: Floats, unit: str | None) -> Clock:
    usable = np.abs(numbers[np.isfinite(numbers)])
    if unit is None:
        size = float(np.median(usable)) if usable.size else 0.0
        unit = next((name for place, name in enumerate(_SIZES) if size < _SECONDS * _STEP**place), "ns")
    if unit == "days":
        size = float(np.median(usable)) if usable.size else 0.0
        first = min(_FIRST_DAYS, key=lambda first: abs(size - first - _NOW_DAYS))
        times = (numbers - first) * 86_400.0
    else:
        times = numbers / _SIZES[unit]
    times = np.where(np.isfinite(times) & (np.abs(times) < _SECONDS), times, np.nan)
    if unit == "days":  # days have fewer digits than times: to the millisecond
        times = np.round(times, 3)
    dated = bool(np.nanmedian(times) > _LEAST_DATED) if np.isfinite(times).any() else False
    return Clock(times, UNITS[unit], dated, unit == "days")


_LEAST_DATED = 946_684_800.0
"""The year 2000: smaller numbers are seconds since some start."""


def _offset_words(offset: timedelta) -> str:
    minutes = round(offset.total_seconds() / 60.0)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def _all_iso(cells: Sequence[str], zone: ZoneInfo | None) -> tuple[Floats, set[str]]:
    """Unix times of cells in ISO 8601, NaN where one is none, and their offsets, empty where there is none."""
    try:
        dates: list[datetime] = [*map(datetime.fromisoformat, cells)]
        seconds = np.empty(len(cells))
        filled: NDArray[np.bool_] | slice = slice(None)
    except ValueError:
        some = [*map(_iso_date, cells)]
        dates = [date for date in some if date is not None]
        seconds = np.full(len(cells), np.nan)
        filled = np.array([date is not None for date in some])
    zones = {date.tzinfo for date in dates}
    if None in zones:
        naive = np.array([date.tzinfo is None for date in dates])
        dates = [date if date.tzinfo else date.replace(tzinfo=UTC) for date in dates]
    times = np.fromiter(map(datetime.timestamp, dates), np.float64, len(dates))
    if None in zones:
        times[naive] = _unix_times(times[naive], zone)
    seconds[filled] = times
    words = {"" if zone is None else _offset_words(zone.utcoffset(None) or timedelta()) for zone in zones}
    return np.where(np.abs(seconds) < _SECONDS, seconds, np.nan), words


def _iso_date(cell: str) -> datetime | None:
    """A date in ISO 8601, also with UTC or a space before its offset; None if it is none."""
    try:
        return datetime.fromisoformat(_OFFSET.sub(r"\1", cell.strip()).replace(" UTC", "Z").replace(" GMT", "Z"))
    except ValueError:
        return None


def _unix_times(local: Floats, zone: ZoneInfo | None) -> Floats:
    """Unix times of local ones (n,), of the first turn of an hour that comes twice, unless local time goes back."""
    usable = np.isfinite(local)
    if zone is None or not usable.any():
        return local
    minutes, which = np.unique(np.floor(local[usable] / 60.0), return_inverse=True)  # an offset changes at a minute
    dates = [(_EPOCH + timedelta(minutes=minute)).replace(tzinfo=zone) for minute in minutes.tolist()]
    offsets = np.array([(date.utcoffset() or timedelta()).total_seconds() for date in dates])
    times = local.copy()
    times[usable] -= offsets[which.reshape(-1)]
    return _unfolded(times, zone)


def _unfolded(times: Floats, zone: ZoneInfo) -> Floats:
    """Put rows of an hour that comes twice into its second turn from where local time goes back within it."""
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


def _dates_by(cells: Sequence[str], unit: str | None) -> tuple[Floats, str, bool] | None:
    """Local times of dates as people write them, which part comes first, and whether that is not clear.

    None if they are ISO 8601. Days and times of day come again and again: each is read once.
    """
    first = next((cell.strip() for cell in cells if cell.strip()), "")
    if (match := _DATE.fullmatch(first)) is None or (match[2] == "-" and len(match[1]) == _FOUR):
        return None
    parts = [cell.partition(" ") for cell in cells]
    days = {day: _DAY_ONLY.fullmatch(day.rstrip(",")) for day in {day for day, _, _ in parts}}
    if None in days.values():
        parts = [cell.strip().replace("T", " ").replace(",", " ", 1).partition(" ") for cell in cells]
        days = {day: _DAY_ONLY.fullmatch(day) for day in {day for day, _, _ in parts}}
    clocks = {clock: _seconds_of_day(clock.strip(" ,")) for clock in {clock for _, _, clock in parts}}
    some = [match for match in days.values() if match is not None]
    day_first = any(int(match[1]) > _LAST_MONTH for match in some)
    month_first = any(int(match[3]) > _LAST_MONTH for match in some)
    if len(match[1]) == _FOUR:
        order, ambiguous = "yy/mm", False
    else:
        order = unit if unit in _ORDERS else ("mm/dd" if month_first else "dd/mm")
        ambiguous = unit is None and not day_first and not month_first and match[2] != "."
    midnights = {day: _midnight(match, order) for day, match in days.items()}
    return np.array([midnights[day] + clocks[clock] for day, _, clock in parts]), order, ambiguous


_ORDER_PARTS = {"yy/mm": (1, 3, 4), "dd/mm": (4, 3, 1), "mm/dd": (4, 1, 3)}


def _midnight(match: re.Match[str] | None, order: str) -> float:
    """Seconds since 1970 of a day's beginning; NaN if there is no such day."""
    if match is None:
        return math.nan
    year, month, day = (int(match[group]) for group in _ORDER_PARTS[order])
    try:
        return (datetime(year + (2000 if year < 100 else 0), month, day, tzinfo=UTC) - _EPOCH).total_seconds()
    except ValueError:
        return math.nan


def _seconds_of_day(clock: str) -> float:
    """Seconds of a time of day, 0 of none; NaN if there is no such time. The end of a day is 24:00."""
    if not clock:
        return 0.0
    if (match := _TIME_OF_DAY.fullmatch(clock)) is None:
        return math.nan
    hour, minute, second = (int(match[group] or 0) for group in (1, 2, 3))
    if match[5]:
        hour = hour % 12 + (12 if match[5] in "Pp" else 0)
    seconds = 3600 * hour + 60 * minute + second + (float("0" + match[4].replace(",", ".")) if match[4] else 0.0)
    return seconds if minute < 60 and second < 60 and seconds <= _DAY_SECONDS else math.nan

"""Times as people and their tools read them: RFC 3339 in UTC, whole microseconds, no needless zeros."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from fugu.contract.errors import FrameRangeError, FrameTypeError

__all__ = ["LAST_US", "instant", "instant_text", "read_instant", "unix_us"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""The end of the year 9999 in microseconds of Unix time: RFC 3339 has no later time."""
_FORM = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?Z", re.ASCII)


def instant(unix_us: int) -> datetime:
    """The time of so many microseconds of Unix time.

    Raises:
        FrameRangeError: it is before 1970 or after 9999.
    """
    if not 0 <= unix_us <= LAST_US:
        raise FrameRangeError(f"{unix_us} microseconds of Unix time is before 1970 or after the year 9999")
    return _EPOCH + timedelta(microseconds=unix_us)


def unix_us(time: datetime) -> int:
    """Microseconds of Unix time.

    Raises:
        FrameTypeError: it is no time with a time zone.
        FrameRangeError: it is before 1970.
    """
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise FrameTypeError("a time is no datetime with a time zone")
    if time < _EPOCH:
        raise FrameRangeError("a time is before 1970")
    return (time - _EPOCH) // _MICROSECOND


def instant_text(time: datetime) -> str:
    """The form for people, such as `2026-03-01T07:30:00.25Z`; errors as for `unix_us`."""
    utc = instant(unix_us(time))
    fraction = f".{utc.microsecond:06}".rstrip("0").rstrip(".")
    return f"{utc.replace(microsecond=0, tzinfo=None).isoformat()}{fraction}Z"


def read_instant(text: object) -> datetime:
    """Parse that form, and no other.

    Raises:
        FrameTypeError: it is no string.
        FrameRangeError: it is of another form, or no time from 1970 to 9999.
    """
    if not isinstance(text, str):
        raise FrameTypeError(f"a time is {type(text).__name__}, not a string")
    found = _FORM.fullmatch(text)
    if found is None or (found[7] or "1").endswith("0"):
        raise FrameRangeError("a time is not of the form 2026-03-01T07:30:00.25Z")
    try:
        year, month, day, hour, minute, second = map(int, found.groups()[:6])
        time = datetime(year, month, day, hour, minute, second, int((found[7] or "").ljust(6, "0")), UTC)
    except ValueError:
        raise FrameRangeError("a time does not exist") from None
    return instant(unix_us(time))

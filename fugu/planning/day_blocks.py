"""Blocks of the local day for a policy: the transitions of a named time zone, as they are known when it is planned."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fugu.contract.calendar import DAY, DayBlocks
from fugu.contract.queries import Query
from fugu.host.clock import seconds_of
from fugu.planning.errors import PlanningError

__all__ = ["profile_query"]

YEARS = 10
"""How far transitions are compiled; a policy that runs longer keeps the last offset."""
_LEAST = 900


def profile_query(text: str, since: float | None = None) -> Query:
    """The query of a profile by "profile:4h/Europe/Berlin": a count for each block of the local day, of UTC by default.

    `since` is the Unix time in seconds from which the policy runs, by default now. PlanningError: blocks do not fill a
    day, or the zone is unknown here.
    """
    length, _, zone = text.removeprefix("profile:").partition("/")
    try:
        seconds, zone = seconds_of(length), zone or "UTC"
    except ValueError as error:
        raise PlanningError(f"a profile is profile:LENGTH[/ZONE], as profile:4h/Europe/Berlin: {error}") from None
    if seconds < _LEAST or DAY % seconds:
        raise PlanningError(f"blocks of {length} do not fill a day: 1h, 2h, 3h, 4h, 6h, 8h, 12h and 24h do")
    since = time.time() if since is None else since
    return Query("profile", blocks=DayBlocks(zone, round(seconds), transitions(zone, int(since))))


def transitions(zone: str, since: int) -> tuple[tuple[int, int], ...]:
    """Pairs of Unix seconds and the offset from UTC in seconds from then on, for ten years from `since`."""
    try:
        rules = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise PlanningError(f"no time zone {zone!r:.60} is known here; names are like Europe/Berlin") from None

    def offset(moment: int) -> int:
        difference = datetime.fromtimestamp(moment, UTC).astimezone(rules).utcoffset()
        assert difference is not None
        return round(difference.total_seconds())

    found = [(since, offset(since))]
    for day in range(since, since + YEARS * 366 * DAY, DAY):
        low, high = day, day + DAY
        if offset(high) == found[-1][1]:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if offset(middle) == found[-1][1] else (low, middle)
        found.append((high, offset(high)))
    return tuple(found)

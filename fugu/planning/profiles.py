"""Divide the local day into blocks, and count the shares of a profile: one for each block, over days.

Profiles are compared with guessing one share for all blocks, which needs no knowledge of the habit. A profile is useful
if it tells the parts of the day apart. A policy holds the transitions of a named time zone as they are known when it is
planned.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from fugu.chains.arrays import Ints
from fugu.contract.calendar import DAY, DayBlocks
from fugu.contract.frames import MAX_WINDOW_TICKS
from fugu.contract.queries import Query
from fugu.host.clock import seconds_of
from fugu.planning.answers import Shares, true_shares
from fugu.planning.errors import PlanningError
from fugu.planning.question import Cut, Question
from fugu.recordings.readings import Readings

__all__ = ["block_ticks", "blocks_of_ticks", "profile_blocks", "profile_lengths", "profile_shares"]

LENGTHS = ("4h", "6h", "8h")
"""The block lengths that are compared by default."""
YEARS = 10
"""The years for which transitions are compiled; a policy that runs longer keeps the last offset."""
_LEAST_SECONDS = 900


def profile_blocks(blocks_text: str, since: float | None = None) -> DayBlocks:
    """Read the blocks of the local day from a text such as "4h/Europe/Berlin"; the default zone is UTC.

    `since` is the Unix time in seconds from which the policy runs, by default now. PlanningError: blocks do not fill a
    day, or the zone is unknown.
    """
    length, _, zone = blocks_text.partition("/")
    try:
        seconds, zone = seconds_of(length), zone or "UTC"
    except ValueError as error:
        raise PlanningError(f"a profile is profile:LENGTH[/ZONE], as profile:4h/Europe/Berlin: {error}") from None
    if seconds < _LEAST_SECONDS or DAY % seconds:
        raise PlanningError(f"blocks of {length} do not fill a day: 1h, 2h, 3h, 4h, 6h, 8h, 12h and 24h do")
    since = time.time() if since is None else since
    return DayBlocks(zone, round(seconds), transitions(zone, int(since)))


def transitions(zone: str, since: int) -> tuple[tuple[int, int], ...]:
    """List the changes of a zone's offset for ten years, as pairs of a Unix time and an offset in seconds."""
    try:
        zone_info = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise PlanningError(f"no time zone {zone!r:.60} is known here; names are like Europe/Berlin") from None

    def offset_at(moment: int) -> int:
        difference = datetime.fromtimestamp(moment, UTC).astimezone(zone_info).utcoffset()
        assert difference is not None
        return round(difference.total_seconds())

    offset_steps = [(since, offset_at(since))]
    for day_start in range(since, since + YEARS * 366 * DAY, DAY):
        _, offset = offset_steps[-1]
        if offset_at(day_start + DAY) != offset:
            second = bisect_left(range(DAY), True, key=lambda second: offset_at(day_start + second) != offset)
            offset_steps.append((day_start + second, offset_at(day_start + second)))
    return tuple(offset_steps)


DAYS = (7, 14)
"""The numbers of days that are compared by default."""


def profile_lengths(question: Question, period_seconds: float) -> list[int]:
    """The lengths of profiles to compare, in ticks, up to the latency."""
    days = DAYS if question.days is None else (question.days,)
    lengths = [math.ceil(round(day * DAY / period_seconds, 6)) for day in days]
    max_ticks = min(question.max_latency / period_seconds, MAX_WINDOW_TICKS)
    return [length for length in lengths if length <= max_ticks]


def blocks_of_ticks(readings: Readings, question: Question) -> dict[DayBlocks, Ints]:
    """Find the block of each tick of a recording (n,), for the wanted division of the day or each default one.

    Blocks shorter than a tick are left out.

    Raises:
        PlanningError: the recording has no times, or the blocks of the day are impossible.
    """
    if not readings.timed or readings.moments is None:
        raise PlanningError(f"{readings.source} has no steady times: there are no parts of the day to count by")
    moments = [round(1e6 * moment) for moment in readings.moments.tolist()]
    length, _, zone = question.blocks.partition("/")
    since = float(readings.moments.min())
    divisions = [profile_blocks(f"{text}/{zone}", since) for text in ([length] if length else LENGTHS)]
    return {
        blocks: np.array([blocks.index_at(moment) for moment in moments], dtype=np.int64)
        for blocks in divisions
        if readings.period <= blocks.seconds
    }


def profile_shares(cut: Cut, blocks: DayBlocks, block_of_tick: Ints, counted: Sequence[int], length: int) -> Shares:
    """The true answers of profiles of `length` ticks: for each block of the day, the share of the states `counted`.

    `block_of_tick` (m,) is the block of each tick of the set. `Shares.length` is the divisor of a count: the ticks of a
    block in a profile.
    """
    block_count = len(blocks.labels)
    is_counted = np.isin(cut.states, counted)
    codes = np.where(cut.states < 0, -1, np.where(is_counted, block_of_tick, block_count + block_of_tick))
    block_shares = true_shares(codes, cut.segments, length, [(block,) for block in range(block_count)])
    block_pairs = [(block, block_count + block) for block in range(block_count)]
    ticks_with_state = true_shares(codes, cut.segments, length, block_pairs).counts
    truth = block_shares.counts / np.maximum(ticks_with_state, 1)
    return block_shares._replace(truth=truth, length=block_ticks(blocks, length))


def block_ticks(blocks: DayBlocks, length: int) -> int:
    """The ticks of one block within a profile of `length` ticks."""
    return Query("profile", blocks=blocks).usual_ticks(length)

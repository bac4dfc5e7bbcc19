"""Plan profiles as candidates: a share for each block of the local day, over days, judged like other windows.

Profiles are compared with guessing one share for all blocks, which needs no knowledge of the habit. A profile is useful
if it tells the parts of the day apart. A policy holds the transitions of a named time zone as they are known when it is
planned.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from fugu.chains.arrays import Ints
from fugu.contract.calendar import DAY, DayBlocks
from fugu.contract.frames import MAX_WINDOW_TICKS
from fugu.contract.queries import Query
from fugu.host.clock import seconds_of
from fugu.planning.answers import Shares, true_shares
from fugu.planning.candidates import Candidate, Task, traffic, window_message
from fugu.planning.errors import PlanningError
from fugu.planning.question import Cut, Part, Question, Sampled, ThreeSets
from fugu.planning.window_plan import WantedWindow
from fugu.privacy.covering_class import CoveringChains
from fugu.recordings.readings import Readings

__all__ = ["Profile", "block_ticks", "profile_blocks"]

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
    """Pairs of a Unix time and the zone's offset from UTC that holds from then on, in seconds, for ten years."""
    try:
        zone_info = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise PlanningError(f"no time zone {zone!r:.60} is known here; names are like Europe/Berlin") from None

    def offset_at(moment: int) -> int:
        difference = datetime.fromtimestamp(moment, UTC).astimezone(zone_info).utcoffset()
        assert difference is not None
        return round(difference.total_seconds())

    steps = [(since, offset_at(since))]
    for day in range(since, since + YEARS * 366 * DAY, DAY):
        _, offset = steps[-1]
        if offset_at(day + DAY) != offset:
            second = bisect_left(range(DAY), True, key=lambda second: offset_at(day + second) != offset)
            steps.append((day + second, offset_at(day + second)))
    return tuple(steps)


WINDOW = "profile"
"""The name of a profile in its policy."""
DAYS = (7, 14)
"""The numbers of days that are compared by default."""


class Profile(NamedTuple):
    """The block of each tick of a recording (n,), for each division of the day into blocks.

    The states `counted` are counted together.
    """

    block_of_ticks: Mapping[DayBlocks, Ints]
    counted: tuple[int, ...]

    def lengths(self, question: Question, period: float) -> list[int]:
        """The lengths of profiles to compare, in ticks, up to the latency; empty if all blocks are below a tick."""
        days = DAYS if question.days is None else (question.days,)
        lengths = [math.ceil(round(day * DAY / period, 6)) for day in days]
        max_ticks = min(question.max_latency / period, MAX_WINDOW_TICKS)
        return [length for length in lengths if self.block_of_ticks and length <= max_ticks]

    @classmethod
    def of_recording(cls, readings: Readings, question: Question, counted: Sequence[int]) -> Profile:
        """Find the block of each tick of a recording, for the wanted blocks or the default ones.

        Blocks shorter than a tick are left out. PlanningError: the blocks are impossible.
        """
        assert readings.moments is not None
        moments = [round(1e6 * moment) for moment in readings.moments.tolist()]
        length, _, zone = question.blocks.partition("/")
        since = float(readings.moments.min())
        block_lengths = [profile_blocks(f"{text}/{zone}", since) for text in ([length] if length else LENGTHS)]
        block_of_ticks = {
            blocks: np.array([blocks.at(moment) for moment in moments], dtype=np.int64)
            for blocks in block_lengths
            if readings.period <= blocks.seconds
        }
        return cls(block_of_ticks, tuple(counted))

    @staticmethod
    def window(candidate: Candidate, epoch: float | None) -> WantedWindow:
        """The window of a recommended profile, with its zone's transitions in the years from `epoch` (default: now)."""
        assert candidate.blocks is not None
        length = f"{candidate.blocks.seconds}s"
        query = Query("profile", blocks=profile_blocks(f"{length}/{candidate.blocks.zone}", epoch))
        return candidate.window._replace(name=WINDOW, query=query)

    def shares(self, blocks: DayBlocks, cut: Cut, set_rows: Part, length: int) -> Shares:
        """The true answers of profiles of `length` ticks in a set: a share for each block.

        `Shares.length` is the divisor of a count: the ticks of a block in a profile.
        """
        block_of_tick, block_count = self.block_of_ticks[blocks][set_rows.rows], len(blocks.labels)
        is_counted = np.isin(cut.states, self.counted)
        codes = np.where(cut.states < 0, -1, np.where(is_counted, block_of_tick, block_count + block_of_tick))
        block_shares = true_shares(codes, cut.segments, length, tuple((block,) for block in range(block_count)))
        block_pairs = tuple((block, block_count + block) for block in range(block_count))
        ticks_with_state = true_shares(codes, cut.segments, length, block_pairs).counts
        return block_shares._replace(
            truth=block_shares.counts / np.maximum(ticks_with_state, 1), length=block_ticks(blocks, length)
        )

    def candidates(
        self, task: Task, samples: Sampled, sets: ThreeSets, chains: CoveringChains, lengths: Sequence[int]
    ) -> list[Candidate]:
        """Profile candidates over several lengths. FuguError: no noise is enough."""
        release, candidates = replace(task.planned("windows", samples, chains), answers="profile"), []
        for length, blocks in product(lengths, self.block_of_ticks):
            fit, choice = (
                self.shares(blocks, cut, set_rows, length)
                for cut, set_rows in ((samples.fit, sets.fit), (samples.choose, sets.choose))
            )
            if not len(fit.counts):
                continue
            all_shares = fit.joined(choice)
            message = partial(window_message, WINDOW, length, len(blocks.labels))
            rng, answers = np.random.default_rng(length), all_shares.counts.size
            for devices in sorted({1, task.question.devices}):
                candidates.append(
                    replace(
                        release.judged_by(all_shares, all_shares, devices, rng, answers),
                        blocks=blocks,
                        window_ticks=length,
                        guess_error=float(np.abs(all_shares.truth - np.median(fit.truth)).mean()),
                        judged=answers,
                        **traffic(length * task.period, length * task.period, message, devices),
                    )
                )
        return candidates


def block_ticks(blocks: DayBlocks, length: int) -> int:
    """The ticks of one block within a profile of `length` ticks."""
    return Query("profile", blocks=blocks).usual_ticks(length)

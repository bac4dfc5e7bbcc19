"""A device that counts a profile: through a change of the clocks and restarts, as zoneinfo says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from edge_agent.plan import AgentPlan
from fugu.contract.calendar import DayBlocks
from fugu.contract.compiled import AgentWindow
from fugu.contract.frames import WindowFrame
from fugu.core.policy import NONE
from fugu.host.process import Wake
from fugu.planning.profiles import transitions
from tests.support.agents import SECOND, JumpingClock, nowhere, run, ticks_left, window_plan, windows_left

PERIOD = 600
BERLIN = ZoneInfo("Europe/Berlin")
LENGTH = 3 * 86_400 // PERIOD
SUMMER = int(datetime(2026, 3, 28, tzinfo=UTC).timestamp())
WINTER = int(datetime(2026, 10, 24, tzinfo=UTC).timestamp())


def plan(folder: Path, epoch: int, seconds: int) -> AgentPlan:
    """Ticks of ten minutes since a day before a change, three days a profile; next to no noise."""
    blocks = DayBlocks("Europe/Berlin", seconds, transitions("Europe/Berlin", epoch - 40 * 86_400))
    clock = {"epoch_us": epoch * SECOND, "period_us": PERIOD * SECOND}
    profile = window_plan(
        **{"name": "day", "length": LENGTH, "counts": 86_400 // seconds, "blocks": blocks, "places": (0, 0, NONE)},
        **clock,
    )
    return replace(nowhere(folder, profile, **clock), status_seconds=float(PERIOD))


def counted_states(run: list[int], window: AgentWindow, frame: WindowFrame, last: bool) -> list[int]:
    """The ticks of a run that are in a window: a run that is not the last keeps those up to its last record."""
    inside = [tick for tick in run if frame.first <= tick < frame.first + frame.length]
    if last or inside[-1:] != run[-1:]:
        return inside
    recorded = [tick for tick in inside if window.is_recorded(frame.index, tick)]
    return [tick for tick in inside if tick <= max(recorded, default=-1)]


class Minutes(JumpingClock):
    """A clock of which no wait is shorter than a minute: with ticks of ten, an agent has little to do in between."""

    def wait(self, wake: Wake, seconds: float) -> None:
        super().wait(wake, max(seconds, 60.0))


@pytest.mark.long
@pytest.mark.parametrize(
    ("epoch", "seconds"),
    [pytest.param(SUMMER, 4 * 3600, marks=pytest.mark.soak), (WINTER, 1800)],
    ids=["a day of 23 hours", "a day of 25 hours"],
)
def test_counts_are_of_local_times_across_a_change_and_restarts(tmp_path: Path, epoch: int, seconds: int) -> None:
    """Every tick is in the state that is counted: so what is compared is where each of them counts."""
    device_plan, now, runs = plan(tmp_path, epoch, seconds), epoch * SECOND, list[list[int]]()
    for ticks in (200, 70, 400):  # restarts around the change, and the last run begins another profile
        clock = Minutes(now)
        end = now + ticks * PERIOD * SECOND
        run(device_plan, clock, lambda clock=clock, end=end: clock.now > end)
        before = runs[-1][-1] if runs else -1
        runs.append([tick for tick in ticks_left(device_plan) if tick > before])
        now = clock.now
    (window,) = device_plan.streams[0].windows
    stored = windows_left(device_plan)
    assert stored
    for frame in stored:
        inside = [tick for ticks in runs for tick in counted_states(ticks, window, frame, ticks is runs[-1])]
        counts = [0] * (86_400 // seconds)
        for tick in inside:
            local = datetime.fromtimestamp(epoch + tick * PERIOD, BERLIN)
            counts[(local.hour * 3600 + local.minute * 60) // seconds] += 1
        assert (frame.observed, list(frame.counts)) == (len(inside), counts)

"""Blocks of the local day: every tick is in exactly one, days of 23 and 25 hours among them."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fugu.contract.calendar import DAY, DayBlocks
from fugu.contract.descriptions import Description, describe
from fugu.contract.errors import FrameError, PolicyError
from fugu.contract.policy import Policy
from fugu.contract.queries import Query
from fugu.contract.reports import WindowCount
from fugu.contract.windows import Blocks, Window
from fugu.mqtt.readings import CountReading
from fugu.planning.answers import error_of
from fugu.planning.errors import PlanningError
from fugu.planning.profiles import profile_blocks, transitions
from fugu_cli.view.readings import ReadingLines
from tests.support.example_frames import COUNT
from tests.support.scenes import policy

SINCE = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
BERLIN = DayBlocks("Europe/Berlin", 4 * 3600, transitions("Europe/Berlin", SINCE))
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia")
CHANGES = {zone: transitions(zone, SINCE) for zone in ZONES}


@given(st.sampled_from(ZONES), st.sampled_from([900, 3600, 4 * 3600, DAY]), st.integers(0, 9 * 365 * DAY))
def test_a_time_is_in_the_block_that_its_zone_says(zone: str, seconds: int, after: int) -> None:
    blocks = DayBlocks(zone, seconds, CHANGES[zone])
    local = datetime.fromtimestamp(SINCE + after, UTC).astimezone(ZoneInfo(zone))
    expected = (local.hour * 3600 + local.minute * 60 + local.second) // seconds
    assert blocks.index_at((SINCE + after) * 1_000_000) == expected


@pytest.mark.parametrize(("day", "hours"), [((2026, 3, 29), 23), ((2026, 10, 25), 25), ((2026, 7, 1), 24)])
def test_every_minute_of_a_short_and_a_long_day_is_in_one_block(day: tuple[int, int, int], hours: int) -> None:
    zone = ZoneInfo("Europe/Berlin")
    begin = int(datetime(*day, tzinfo=zone).timestamp())
    end = int((datetime(*day, tzinfo=zone) + timedelta(days=1)).timestamp())
    assert end - begin == hours * 3600
    counts = Counter(BERLIN.index_at(moment * 1_000_000) for moment in range(begin, end, 60))
    assert sum(counts.values()) == 60 * hours
    assert set(counts) == set(range(6))
    assert counts[0] == 60 * (hours - 20)  # the clock is changed in the first block
    assert all(counts[block] == 240 for block in range(1, 6))


def ticks_in_a_block(blocks: DayBlocks, begin: int, length: int, period: int) -> int:
    """The most that are in any one, of a window that begins then."""
    counts = Counter(blocks.index_at((begin + tick * period) * 1_000_000) for tick in range(length))
    return max(counts.values())


def test_a_block_may_hold_twice_as_many_ticks_on_a_day_of_25_hours() -> None:
    """Its count was cut off at 60, as if the day had 24."""
    hours = DayBlocks("Europe/Berlin", 3600, transitions("Europe/Berlin", SINCE))
    begin = int(datetime(2026, 10, 25, tzinfo=ZoneInfo("Europe/Berlin")).timestamp())
    profile = Query("profile", blocks=hours)
    assert ticks_in_a_block(hours, begin, 1440, 60) == 120 == profile.max_ticks(1440, 60_000_000)
    assert profile.usual_ticks(1440) == 60
    assert Query("profile", blocks=DayBlocks("UTC", 3600, ((0, 0),))).max_ticks(1440, 60_000_000) == 60
    assert profile.max_ticks(1440, None) == 1440
    error = error_of(profile_window(length=1440, stride=1440, scale="80", blocks=vars(hours)), 60_000_000)
    assert (error.count_95, error.share_95) == (120, 1.0)
    assert 60 < error.count_mean < 120


def test_ticks_that_come_earlier_every_day_meet_a_block_at_both_its_ends() -> None:
    """Of 35 ticks, 5,000 seconds apart, three are between 0:00 and 1:00, on three days; two were allowed for."""
    hours = DayBlocks("UTC", 3600, ((0, 0),))
    assert ticks_in_a_block(hours, 2800, 35, 5000) == 3 == hours.max_ticks(35, 5_000_000_000)


@pytest.mark.long
@pytest.mark.parametrize("zone", ZONES)
def test_no_window_has_more_ticks_in_a_block_than_its_most(zone: str) -> None:
    """Windows that begin around every change of the clocks, and at other times, of whole days and of others."""
    generator, closest = random.Random(zone), 0.0
    for seconds, period, length in product((900, 3600, 6 * 3600), (420, 600, 900), (7, 96, 150, 400)):
        blocks = DayBlocks(zone, seconds, CHANGES[zone])
        most = blocks.max_ticks(length, period * 1_000_000)
        around = [since for since, _ in CHANGES[zone][1:3]] or [SINCE]
        begins = [since - generator.randrange(-86_400, length * period + 86_400) for since in around for _ in range(12)]
        reached = max(ticks_in_a_block(blocks, begin, length, period) for begin in begins)
        assert reached <= most
        closest = max(closest, reached / most)
    assert closest == 1.0, "it is reached"


def test_blocks_are_named_by_local_times() -> None:
    assert BERLIN.labels == ("00:00-04:00", "04:00-08:00", "08:00-12:00", "12:00-16:00", "16:00-20:00", "20:00-24:00")
    assert DayBlocks("UTC", 900, ((0, 0),)).labels[-1] == "23:45-24:00"


@pytest.mark.parametrize("text", ["", "5h", "1m", "48h", "4h/Nowhere", "4h/../x"])
def test_what_is_no_profile_is_refused(text: str) -> None:
    with pytest.raises(PlanningError):
        profile_blocks(text)


@pytest.mark.parametrize(
    "fields",
    [
        {"seconds": 7 * 3600},
        {"seconds": 600},
        {"offsets": ()},
        {"offsets": ((5, 0), (5, 3600))},
        {"offsets": ((5, 0), (4, 3600))},
        {"offsets": ((0, DAY + 1),)},
        {"zone": "Euro\x1bpe"},
        {"more": 1},
    ],
)
def test_a_document_of_blocks_is_checked(fields: dict[str, object]) -> None:
    whole: dict[str, object] = {"zone": "UTC", "seconds": 3600, "offsets": ((0, 0),)}
    Blocks.model_validate(whole)
    with pytest.raises(ValidationError):
        Blocks.model_validate(whole | fields)


def profile_window(**changes: object) -> Window:
    fields: dict[str, object] = {"name": "day", "length": 1440 * 7, "stride": 1440 * 7, "states": (1,), "scale": "90"}
    return Window.model_validate(fields | {"blocks": vars(BERLIN)} | changes)


def test_blocks_stand_beside_whole_counts_only() -> None:
    with pytest.raises(ValidationError, match="a histogram or has blocks"):
        profile_window(states="histogram")


def with_profile(length: int) -> Policy:
    document = json.loads(policy().to_json())
    document["clock"]["period_us"] = 60_000_000
    document["windows"] = [profile_window(length=length, stride=length).model_dump(mode="json")]
    return Policy.from_json(json.dumps(document | {"windows_guarantee": document["guarantee"]}))


def test_a_profile_is_of_a_day_at_least_and_is_described() -> None:
    with pytest.raises(PolicyError, match="shorter than a day"):
        with_profile(1439)
    policy = with_profile(1440)
    described = Description.decode(describe(policy).encode()).windows[0]
    assert described.count_names(policy.discretiser.states) == BERLIN.labels
    assert described.query == policy.windows[0].query
    assert Policy.from_json(policy.to_json()) == policy
    assert policy.windows[0].query.description(("on",)) == "ticks of on, by 4 h of the day (Europe/Berlin)"


HALVES = {"blocks": ("00:00-12:00", "12:00-24:00"), "values": (1.0, 2.0), "low": (-3.0, -2.0), "high": (5.0, 6.0)}
DAY_COUNT = replace(COUNT, states=("on",), **HALVES)


def test_a_report_of_a_profile_has_a_number_for_each_block() -> None:
    assert DAY_COUNT.flat()["value_12:00-24:00"] == 2.0
    assert WindowCount.decode(DAY_COUNT.encode()) == DAY_COUNT
    with pytest.raises(FrameError, match="2 values of 6 blocks"):
        replace(DAY_COUNT, blocks=BERLIN.labels)


def test_a_line_names_each_part_of_the_day_with_its_interval() -> None:
    line = ReadingLines()(CountReading("watch", "hr", DAY_COUNT))
    assert "window hourly: 00:00-12:00 1 (-3 to 5), 12:00-24:00 2 (-2 to 6) ticks in 3600 observed" in line
    assert line.endswith("on by parts of the day")

"""Profiles as candidates: shares of parts of the day, by the times of the recording, and their policies."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from fugu.library.auto_words import auto_document, verdict
from fugu.library.plan_page import plan_page
from fugu.library.plans import Plan
from fugu.planning.auto import AutoPlan, auto_policy, plan_auto
from fugu.planning.errors import PlanningError
from fugu.planning.policy_builder import Target
from fugu.planning.profiles import blocks_of_ticks, profile_shares
from fugu.planning.question import Cut, Question
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import Readings, join_readings, read_readings

pytestmark = pytest.mark.usefixtures("planned_once")

SINCE = datetime(2026, 3, 1, tzinfo=UTC).timestamp()


def habit(days: int = 70) -> Readings:
    """On in 14 of the 16 half hours from 8 to 16 o'clock UTC, in 2 of the others of each 8 hours; each day alike."""
    rng, ticks = np.random.default_rng(1), 48 * days
    parts = [(rng.permutation(16) < (14 if part % 3 == 1 else 2)).astype(np.float64) for part in range(3 * days)]
    return Readings(
        *(np.concatenate(parts), np.zeros(ticks, dtype=np.int64), 1800.0, True, False, "on/off"),
        *("value", "habit.csv", 0.0, ()),
        moments=SINCE + 1800.0 * np.arange(ticks),
    )


def test_shares_of_blocks_are_those_of_the_local_times() -> None:
    """By zoneinfo, over weeks in which the clock changes; a tick without a state is in no share."""
    readings, zone = habit(), ZoneInfo("Europe/Berlin")
    assert readings.moments is not None
    [(parts, block_of_tick)] = blocks_of_ticks(readings, Question(blocks="6h/Europe/Berlin")).items()
    states = np.where(np.arange(len(readings.segments)) % 50 == 7, -1, np.asarray(readings.values)).astype(np.int64)
    rows = np.arange(100, 3000)
    cut = Cut(states[rows], readings.segments[rows])
    shares = profile_shares(cut, parts, block_of_tick[rows], (1,), 48 * 20)
    blocks = [datetime.fromtimestamp(moment, zone).hour // 6 for moment in readings.moments.tolist()]
    assert shares.counts.shape == (3, 4)
    assert shares.length == 240
    for number, first in enumerate((100, 1060, 2020)):
        inside = [(blocks[tick], states[tick]) for tick in range(first, first + 960)]
        counts = [sum(state == 1 for block, state in inside if block == wanted) for wanted in range(4)]
        stated = [sum(state >= 0 for block, state in inside if block == wanted) for wanted in range(4)]
        assert shares.counts[number].tolist() == counts
        assert shares.truth[number] == pytest.approx(np.divide(counts, stated))


@pytest.fixture(scope="module")
def profile_plan() -> AutoPlan:
    """Nobody asked for a profile: no share of these few ticks is useful."""
    return plan_auto(habit(), Question(), np.random.default_rng(1))


@pytest.mark.long
def test_a_profile_is_recommended_where_nothing_else_is_useful(profile_plan: AutoPlan) -> None:
    recommended = profile_plan.recommended
    assert (recommended.kind, recommended.answers, recommended.window_ticks) == ("windows", "profile", 14 * 48)
    assert 2.0 * recommended.expected_error <= recommended.guess_error
    assert recommended.held_back_error <= recommended.error_95
    assert {other.answers for other in profile_plan.candidates} == {"share", "profile"}
    assert not any(2.0 * o.expected_error <= o.guess_error for o in profile_plan.candidates if o.answers == "share")
    assert "share of 'on' in each 4 h of the day (UTC) over 14 d" in next(verdict(profile_plan))
    assert any("No other answer is useful at epsilon 1" in sentence for sentence in verdict(profile_plan))


@pytest.mark.long
def test_its_policy_is_that_of_a_profile_and_passes_a_devices_check(profile_plan: AutoPlan) -> None:
    policy = auto_policy(profile_plan, Target(epoch=SINCE))
    (window,) = policy.windows
    assert (window.blocks.zone, window.blocks.seconds) == ("UTC", 4 * 3600)
    assert (Fraction(window.scale), window.length) == (profile_plan.recommended.scale, 14 * 48)
    assert policy.verify(1.0).epsilon <= 1.0
    assert policy.useful_for == "share"
    rows = auto_document(profile_plan, policy)["stretches"]
    assert "the same hour on 14 days" in [row["stretch"] for row in rows]


@pytest.mark.long
def test_parts_of_the_day_are_of_the_zone_that_is_asked_for() -> None:
    question = Question(want="profile", blocks="12h/America/New_York", days=10, protect=0)
    plan = plan_auto(habit(), question, np.random.default_rng(1))
    assert [candidate.window_ticks for candidate in plan.candidates] == [480]
    assert plan.candidates[0].blocks.labels == ("00:00-12:00", "12:00-24:00")
    if plan.recommended.kind != "none":
        assert auto_policy(plan, Target(epoch=SINCE)).windows[0].blocks is not None


@pytest.mark.long
def test_coarser_parts_are_tried_where_parts_of_four_hours_are_of_no_use() -> None:
    plan = plan_auto(habit(), Question(want="profile", epsilon=0.535), np.random.default_rng(1))
    by_hours = {candidate.blocks.seconds // 3600: candidate for candidate in plan.candidates if candidate.blocks}
    assert [(hours, by_hour.useful) for hours, by_hour in by_hours.items()] == [(4, False), (6, True)]
    assert plan.recommended.blocks == by_hours[6].blocks
    assert "in each 6 h of the day (UTC)" in next(verdict(plan))
    assert any("For another zone, add it as in --blocks 6h/Europe/Berlin" in sentence for sentence in verdict(plan))
    assert {curve.candidate.blocks.seconds // 3600 for curve in plan.curves if curve.candidate.blocks} == {4, 6}
    [window] = auto_policy(plan, Target(epoch=SINCE)).windows
    assert (window.blocks.seconds, window.blocks.zone) == (6 * 3600, "UTC")


def test_parts_of_a_zone_are_those_of_every_usual_length() -> None:
    block_of_ticks = blocks_of_ticks(habit(2), Question(blocks="/Europe/Berlin"))
    assert [(place.seconds // 3600, place.zone) for place in block_of_ticks] == [
        (h, "Europe/Berlin") for h in (4, 6, 8)
    ]
    assert {len(ticks) for ticks in block_of_ticks.values()} == {96}


@pytest.mark.long
def test_a_picture_of_a_profile_has_a_line_for_each_part_of_the_day(profile_plan: AutoPlan) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    assert profile_plan.recommended.blocks is not None
    labels = [line.get_label() for line in Plan(profile_plan, None, Target()).plot().lines]
    assert labels == [f"released: {label}" for label in profile_plan.recommended.blocks.labels]


def test_a_profile_of_several_states_counts_them_together_in_its_pictures() -> None:
    """Nobody asked for a profile: without it the answer is the share of each state."""
    levels = np.asarray(habit().values) * (1 + np.random.default_rng(2).integers(0, 2, len(habit().values)))
    readings = habit()._replace(values=levels, kind="levels")
    plan = plan_auto(readings, Question(epsilon=3.0), np.random.default_rng(1))
    assert plan.recommended.blocks is not None
    assert plan.bins == ((1, 2),)
    assert plan_page(plan).count("the share of 0") == 0


def test_a_recording_without_times_has_no_parts_of_the_day() -> None:
    timeless = habit()._replace(moments=None)
    with pytest.raises(PlanningError, match="no steady times"):
        plan_auto(timeless, Question(want="profile"), np.random.default_rng(1))


def test_ticks_have_the_times_of_their_rows(tmp_path: Path) -> None:
    """An absent row is a tick at its own time, a log of changes is looked at once a period, donors follow another."""
    rows = tmp_path / "rows.csv"
    rows.write_text("t,value\n" + "".join(f"{1000 + 60 * n},{n % 2}\n" for n in range(40) if n != 7))
    even = read_readings(rows)
    assert even.moments.tolist() == [1000 + 60 * n for n in range(40)]
    changes = tmp_path / "changes.csv"
    changes.write_text(
        "last_changed,state\n2026-03-01T00:00:00+01:00,on\n2026-03-01T00:02:30+01:00,off\n2026-03-01T00:04:10+01:00,on\n"
    )
    log = read_readings(changes, ReadOptions(period=60.0))
    assert log.moments.tolist() == [SINCE - 3600 + 60 * n for n in range(len(log.segments))]
    assert (even.offsets, log.offsets) == ((), ("+01:00",))
    both = join_readings([even, even])
    assert both.moments.tolist() == 2 * even.moments.tolist()
    assert join_readings([even, even._replace(moments=None)]).moments is None


@pytest.mark.long
def test_what_is_released_alike_has_the_same_blocks(profile_plan: AutoPlan) -> None:
    recommended = profile_plan.recommended
    assert recommended.blocks is not None
    assert not recommended.same_release(replace(recommended, blocks=replace(recommended.blocks, seconds=6 * 3600)))


def test_the_plan_says_whose_day_has_these_parts(profile_plan: AutoPlan) -> None:
    assert any("in UTC. For another zone, add it as in --blocks 4h/" in sentence for sentence in verdict(profile_plan))
    abroad = profile_plan._replace(readings=profile_plan.readings._replace(offsets=("+01:00", "+02:00")))
    assert any("UTC, while the recording's times are at +01:00 and +02:00" in sentence for sentence in verdict(abroad))
    named = profile_plan._replace(question=replace(profile_plan.question, blocks="4h/Europe/Berlin"))
    assert "Times of day are in Europe/Berlin." in verdict(named)


def test_the_picture_of_a_profile_has_every_part_of_the_day(profile_plan: AutoPlan) -> None:
    """The last profile: its shares by parts, each with a band, and when they begin."""
    picture = plan_page(profile_plan).partition("The last stretch")[2]
    assert re.findall(r">(\d\d:00)</text>", picture) == [f"{hour:02}:00" for hour in range(0, 24, 4)]
    for look in ("bar", "reach", "truth"):
        [path] = re.findall(rf'class="shape {look}" d="(.*?)"', picture)
        assert path.count("Z") == 6
    assert "the share in each 4 h of the day (UTC)" in picture

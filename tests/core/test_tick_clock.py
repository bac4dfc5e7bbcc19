"""The ticks of one epoch and period: numbers and shifts never go back, and no tick comes within a period of another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fugu.core.clocks import TickClock
from fugu.core.ticks import Pace, find_place, restart

PERIOD = 1_000_000
HOUR = 3600 * PERIOD


@pytest.mark.parametrize(
    ("ahead", "due"), [(0, 11_000_000), (900_000, 11_000_000), (HOUR, 11_000_000), (-1, 11_000_001)]
)
def test_a_tick_comes_at_its_time_and_a_period_after_the_one_before(ahead: int, due: int) -> None:
    ticks = TickClock(0, PERIOD)
    ticks.begin(10, 0)
    assert ticks.due(11, ahead) == due
    ticks.begin(11, ahead)
    assert ticks.due(12, ahead + HOUR) == due + PERIOD


def test_a_tick_that_has_come_keeps_its_time_and_so_do_those_before_it() -> None:
    ticks = TickClock(0, PERIOD)
    ticks.begin(10, 0)
    ticks.begin(9, -HOUR)
    assert [ticks.due(tick, HOUR) for tick in (8, 9, 10)] == [10 * PERIOD] * 3


@pytest.mark.parametrize("ahead", [0, 1, 100_000, 999_999, HOUR, HOUR + 1, -HOUR, -HOUR + 400_000])
def test_the_next_wall_tick_is_the_first_that_lies_a_period_after_what_was_drawn(ahead: int) -> None:
    ticks = TickClock(0, PERIOD)
    ticks.begin(4000, 0)
    now = 4000 * PERIOD + 1
    wall = ticks.next_wall(now + ahead, ahead)
    assert wall * PERIOD - ahead >= 4001 * PERIOD > (wall - 1) * PERIOD - ahead
    assert TickClock(0, PERIOD).next_wall(now + ahead, ahead) == (now + ahead) // PERIOD + 1, "nothing was drawn"


def test_what_may_have_been_drawn_before_a_start_counts_as_drawn_at_the_start() -> None:
    ticks = TickClock(0, PERIOD)
    ticks.restart(5_300_000)
    assert ticks.next_wall(5_300_000, 0) == 7
    assert ticks.due(6, 0) == 6_300_000


def test_a_shift_never_falls() -> None:
    ticks = TickClock(0, PERIOD)
    for shift, since in ((5, 100), (3, 200), (5, 300), (0, 400)):
        ticks.follow(shift, since)
        assert (ticks.shift, ticks.since) == (5, 100)
    ticks.follow(7, 500)
    assert (ticks.shift, ticks.since) == (7, 500)


@pytest.mark.parametrize("shift", [0, 2, 5])
@pytest.mark.parametrize("multiple", [1, 4, 60])
@pytest.mark.parametrize("last", [9, 10, 12, 71])
def test_a_raised_shift_is_the_least_that_brings_a_wall_tick_above_all_numbers(
    shift: int, multiple: int, last: int
) -> None:
    ticks = TickClock(0, PERIOD)
    ticks.follow(shift, 0)
    raised, since, first = ticks.place(10, last, -1_000 * PERIOD, multiple)
    assert (since, first) == (first if raised > shift else 0, 10 + raised)
    assert raised >= shift
    assert raised % multiple == 0
    assert 10 + raised > last
    less = raised - multiple
    assert less < shift or 10 + less <= last


def pace(clock: TickClock, last_tick: int = -1, **fields: object) -> Pace:
    """A stream of frames of ten ticks, whose policy is valid from second 100 until second 200."""
    rules = {"period_us": PERIOD, "frame_ticks": 10, "repeats": (1,), "valid_from": 100, "valid_until": 200}
    return Pace(SimpleNamespace(**(rules | fields)), clock, last_tick)


def anchored(elapsed_us: int, patience_us: int = 1000 * PERIOD) -> Any:
    """A device's clock at a moment, by which the wall clock began with it."""
    times = {"elapsed_us": lambda: elapsed_us, "now_us": lambda: elapsed_us}
    return SimpleNamespace(**times, offset_us=0, patience_us=patience_us)


@pytest.mark.parametrize(("second", "valid"), [(99, None), (100, True), (199, True), (200, None)])
def test_a_policy_is_valid_from_its_first_second_until_before_its_last(second: int, valid: bool | None) -> None:
    stream = pace(TickClock(0, PERIOD))
    assert stream.comes(anchored(second * PERIOD), lambda _seconds: None) is valid
    assert (stream.next_tick, stream.trouble) == ((second, None) if valid else (second + 1, "policy-inactive"))


def test_after_a_silence_the_next_tick_is_one_that_has_not_come_yet() -> None:
    stream = pace(TickClock(0, PERIOD))
    stream.late_us = 5 * PERIOD
    assert stream.comes(anchored(150 * PERIOD), lambda _seconds: "paused") is None
    assert (stream.next_tick, stream.trouble) == (151, "paused")


def test_a_number_that_no_message_holds_is_not_drawn_for() -> None:
    clock = TickClock(0, PERIOD)
    clock.follow(1 << 53, 0)
    stream = pace(clock)
    assert stream.comes(anchored(150 * PERIOD), lambda _seconds: None) is None
    assert stream.trouble == "clock"


def test_after_a_start_all_streams_of_a_clock_wait_for_what_one_of_them_may_have_drawn() -> None:
    clock, other = TickClock(0, PERIOD), TickClock(0, PERIOD)
    streams = [pace(clock, 149), pace(clock), pace(other)]
    restart(streams, anchored(150 * PERIOD + 1))
    assert [stream.drawn_us for stream in streams] == [150 * PERIOD + 1, 150 * PERIOD + 1, None]


def test_after_a_start_a_silence_may_last_as_long_as_the_longest_frame_that_was_reserved() -> None:
    """A shift would be for ever, and those ticks are past soon."""
    streams = [pace(clock := TickClock(0, PERIOD), 150 + 9, frame_ticks=size) for size in (2, 10)]
    assert find_place(streams, anchored(150 * PERIOD), started=False) == (0, 0, 160)
    for started, patience in ((True, 1000), (False, 5)):
        assert find_place(streams, anchored(150 * PERIOD, patience * PERIOD), started)[0] == 9
    assert clock.shift == 0


def test_a_shift_is_a_multiple_of_what_repeats_in_any_stream_of_a_clock() -> None:
    streams = [pace(clock := TickClock(0, PERIOD), 1000, repeats=repeats) for repeats in ((1,), (4, 6), (10,))]
    shift, since, first = find_place(streams, anchored(150 * PERIOD), started=True)
    assert (shift, since, first) == (900, 1051, 1051)
    assert clock.shift == 0

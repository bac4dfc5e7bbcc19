"""The ticks of one epoch and period: numbers and shifts never go back, and no tick comes within a period of another."""

from __future__ import annotations

import pytest

from fugu.core.clocks import TickClock

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
    ticks.rested(5_300_000)
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

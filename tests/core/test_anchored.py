"""Jumps of a wall clock: which count, when, and what they leave to be followed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fugu.core.clocks import Anchored

SECOND = 1_000_000
HOUR = 3600 * SECOND


class Clocks:
    """A machine's clocks, and what is anchored to them from second 1000 on."""

    def __init__(self) -> None:
        self.elapsed, self.offset = 1000 * SECOND, 0
        times = {"elapsed_us": lambda: self.elapsed, "now_us": lambda: self.elapsed + self.offset}
        machine: Any = SimpleNamespace(**times)
        self.anchored = Anchored(machine, lambda _wall: True, 600 * SECOND)
        self.anchored.follow()

    def look(self, seconds: int, offset: int, signed: int | None = None) -> int:
        """How many anchors there are when some seconds more have passed, with the wall clock ahead by so much."""
        self.elapsed, self.offset = self.elapsed + seconds * SECOND, offset
        self.anchored.follow(signed)
        return self.anchored.anchors


def test_a_clock_that_jumps_again_has_to_stay_where_it_is_then() -> None:
    clocks = Clocks()
    assert [clocks.look(0, HOUR), clocks.look(500, 2 * HOUR), clocks.look(599, 2 * HOUR)] == [1, 1, 1]
    assert clocks.look(1, 2 * HOUR) == 2
    assert clocks.anchored.offset_us == 2 * HOUR


@pytest.mark.parametrize(("away", "anchors"), [(4, 2), (5, 1), (200, 1)])
def test_a_signed_time_confirms_a_jump_that_is_more_than_twice_as_far(away: int, anchors: int) -> None:
    assert Clocks().look(0, 10 * SECOND, signed=1010 + away) == anchors


def test_nothing_is_made_up_for_while_a_clock_is_elsewhere() -> None:
    clocks = Clocks()
    clocks.look(0, HOUR)
    clocks.look(400, HOUR)
    clocks.look(0, SECOND)
    assert (clocks.anchored.offset_us, clocks.anchored.jump) == (0, None)
    clocks.look(2, SECOND)
    assert clocks.anchored.offset_us == 1000

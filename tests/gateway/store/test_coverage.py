"""The interval logic against plain sets of ticks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fugu.contract.frames import MAX_GAPS
from gateway.store.coverage import Coverage, Shifts

INTERVALS = st.lists(st.tuples(st.integers(-1, 300), st.integers(1, 9)).map(lambda pair: (pair[0], sum(pair))))


@given(INTERVALS)
def test_holds_exactly_the_ticks_that_were_added_and_follows_them_row_by_row(intervals: list[tuple[int, int]]) -> None:
    coverage, rows, ticks = Coverage(), dict[int, int](), set[int]()
    for after, through in intervals:
        merge = coverage.add(after, through)
        new = set(range(after + 1, through + 1)) - ticks
        assert (merge is None) == (not new)
        ticks |= new
        if merge is not None:
            for absorbed in merge.absorbed:
                del rows[absorbed]
            rows[merge.after] = merge.through
    assert coverage.intervals == sorted(rows.items())
    assert {tick for after, through in rows.items() for tick in range(after + 1, through + 1)} == ticks
    assert all(end < start for (_, end), (start, _) in zip(coverage.intervals, coverage.intervals[1:], strict=False))
    assert Coverage(coverage.intervals).intervals == coverage.intervals


@given(INTERVALS, st.integers(1, 60))
def test_a_watermark_claims_no_tick_that_is_missing(intervals: list[tuple[int, int]], spread: int) -> None:
    wide = [(after * spread, through * spread) if after >= 0 else (after, through) for after, through in intervals]
    coverage = Coverage(wide)
    ticks = {tick for after, through in wide for tick in range(after + 1, through + 1)}
    commit = coverage.commit("hr")
    gaps = {tick for gap in commit.gaps for tick in range(gap.after + 1, gap.through + 1)}
    claimed = set(range(commit.through + 1)) - gaps
    assert claimed <= ticks
    assert not gaps & ticks
    assert list(commit.gaps) == sorted(commit.gaps, key=lambda gap: gap.after)
    if len(commit.gaps) < MAX_GAPS:
        assert claimed == ticks
    else:
        assert claimed == {tick for tick in ticks if tick <= commit.through}


def test_with_more_gaps_than_a_message_holds_the_watermark_ends_before_the_first_unlisted_one() -> None:
    coverage = Coverage((10 * i, 10 * i + 5) for i in range(40))
    commit = coverage.commit("hr")
    assert len(commit.gaps) == MAX_GAPS
    assert (commit.gaps[0].after, commit.gaps[0].through) == (-1, 0)
    assert (commit.gaps[-1].after, commit.gaps[-1].through) == (10 * 30 + 5, 10 * 31)
    assert commit.through == 10 * 31 + 5


def test_exactly_as_many_gaps_as_a_message_holds_are_all_listed() -> None:
    commit = Coverage((10 * i, 10 * i + 5) for i in range(MAX_GAPS)).commit("hr")
    assert (len(commit.gaps), commit.through) == (MAX_GAPS, 10 * (MAX_GAPS - 1) + 5)


def test_nothing_is_the_watermark_of_an_empty_set() -> None:
    assert (Coverage().commit("hr").through, Coverage().commit("hr").gaps) == (-1, ())


def test_wall_ticks_that_came_twice_may_have_either_number() -> None:
    shifts = Shifts([(0, 0, 59), (40, 60, 99)])
    cases = {(10, 19): [0], (20, 29): [0, 40], (19, 28): [0], (50, 59): [0, 40], (51, 60): [40], (90, 99): [40]}
    assert {ticks: shifts.possible(*ticks) for ticks in cases} == cases
    assert shifts.possible(19, 60) == [0, 40], "under none of them as a whole"
    assert Shifts().possible(0, 9) == [0]

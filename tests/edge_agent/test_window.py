"""Window counts on a device: what is counted where, once, with noise from the start, and what cannot be seen of it."""

from __future__ import annotations

import copy
import pickle
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.outbox import Outbox, OutboxError
from edge_agent.plan import StreamPlan
from edge_agent.randomiser import system_entropy
from fugu.contract.calendar import DayBlocks
from fugu.contract.chains import BoundedChains
from fugu.contract.compiled import AgentWindow
from fugu.contract.discretisers import Thresholds
from fugu.contract.frames import Gap, WindowFrame
from fugu.contract.windows import Window
from fugu.core.frames import COUNT_HIGH, COUNT_LOW
from fugu.core.noise import uniform_below
from fugu.core.policy import NONE
from fugu.core.windows import Counter, NoisyCounts
from tests.support.agents import plan_of, stream_plan, window_plan
from tests.support.entropy import seeded
from tests.support.outboxes import symbol_frames, window_frames
from tests.support.processes import policy

Closed = tuple[int, int, list[int]]


def counter(window: AgentWindow, last: int = -1, seed: int = 1, since: int = 0) -> Counter:
    return Counter(window, uniform_below(seeded(seed)), last, since)


def run(windows: Counter, ticks: list[tuple[int, int]]) -> list[Closed]:
    """Observe (tick, state) one after the other; what was closed on the way."""
    closed = []
    for tick, state in ticks:
        windows.observe(tick, state)
        closed += windows.close(tick)
    return closed


def rows(closed: list[Closed]) -> list[tuple[int, int, tuple[int, ...]]]:
    return [(index, observed, tuple(counts)) for index, observed, counts in closed]


# Which ticks count where; the noise of these plans is 0 (a value other than 0 has a probability below e^-99)


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    outbox = Outbox(tmp_path / "outbox.sqlite", "home", "watch")
    outbox.register(PLAN)
    for window in PLAN.windows:
        outbox.register_window("hr", window)
    return outbox


def test_tumbling_windows_count_the_states_that_they_name() -> None:
    states = [(tick, tick % 3) for tick in range(20)]
    assert rows(run(counter(window_plan(length=6)), states)) == [(0, 6, (2,)), (1, 6, (2,)), (2, 6, (2,))]
    two = window_plan(length=6, places=(NONE, 0, 0))
    assert rows(run(counter(two), states)) == [(0, 6, (4,)), (1, 6, (4,)), (2, 6, (4,))]
    histogram = window_plan(length=4, stride=4, counts=3, places=(0, 1, 2))
    assert rows(run(counter(histogram), states))[:2] == [(0, 4, (2, 1, 1)), (1, 4, (1, 2, 1))]


def test_a_tick_without_a_state_is_observed_and_counts_nowhere() -> None:
    """How many ticks a window says it has observed must not tell which of them had a reading."""
    windows = counter(window_plan(length=4))
    for tick, state in enumerate((1, None, 0, None)):
        windows.observe(tick, state)
    assert rows(windows.close(3)) == [(0, 4, (1,))]


@pytest.mark.parametrize("profile", [False, True])
def test_a_tick_counts_in_a_place_elsewhere_or_has_none(profile: bool) -> None:
    blocks = {"blocks": DayBlocks("UTC", 43_200, ((0, 0),)), "counts": 2} if profile else {}
    plan = window_plan(**blocks, places=(NONE, NONE, 0), epoch_us=0, period_us=43_200_000_000)
    assert [plan.place(3, state) for state in (2, 0, None)] == [int(profile), NONE, None]


def test_every_place_of_a_histogram_and_every_window_has_noise_of_its_own() -> None:
    """With noise in common, differences of counts would be the true ones."""
    plan = window_plan(length=4, stride=4, counts=3, places=(0, 1, 2), numerator=10**6, denominator=1)
    closed = rows(run(counter(plan), [(tick, 0) for tick in range(16)]))
    assert len({count for _, _, counts in closed for count in counts}) == 4 * 3


def test_a_window_whose_end_was_missed_is_released_at_the_next_tick_and_one_that_saw_nothing_never() -> None:
    windows = counter(window_plan(length=10))
    assert run(windows, [(tick, 1) for tick in range(8)]) == []
    assert rows(run(windows, [(45, 1)])) == [(0, 8, (8,))]
    assert rows(run(windows, [(50, 1)])) == [(4, 1, (1,))]


def test_an_unobserved_tick_ends_a_window_too() -> None:
    """As when the symbol of the last tick could not be made durable."""
    windows = counter(window_plan(length=3))
    run(windows, [(0, 1), (1, 1)])
    assert rows(windows.close(2)) == [(0, 2, (2,))]
    assert windows.close(2) == []


def test_no_window_begins_before_the_clock_was_set_and_none_is_handed_out_twice() -> None:
    """It would hold ticks of both clocks; and a second copy of a count has noise of its own."""
    windows = counter(window_plan(length=6), since=7)
    assert rows(run(windows, [(tick, 1) for tick in range(3, 20)])) == [(2, 6, (6,))]
    windows.observe(17, 1)
    assert windows.close(17) == []


def test_a_window_that_was_released_before_a_restart_is_not_begun_again() -> None:
    closed = run(counter(window_plan(length=10), last=1), [(tick, 1) for tick in range(15, 31)])
    assert rows(closed) == [(2, 10, (10,))]


@pytest.mark.long
@given(
    length=st.integers(1, 12),
    stride=st.integers(1, 12),
    start=st.integers(0, 15),
    ticks=st.lists(st.integers(1, 9), min_size=1, max_size=60),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None)
def test_every_observed_tick_is_in_exactly_its_windows(
    length: int, stride: int, start: int, ticks: list[int], seed: int
) -> None:
    """Overlapping, tumbling and spaced windows, and ticks that are missing, against counting from the definition."""
    generator = random.Random(seed)
    tick, seen = -1, {}
    for jump in ticks:
        tick += jump if generator.random() < 0.2 else 1
        seen[tick] = generator.randrange(3)
    plan = window_plan(length=length, stride=stride, start=start, counts=3, places=(0, 1, 2))
    expected = []
    for index in range(tick + 1):
        inside = [state for t, state in seen.items() if plan.first(index) <= t <= plan.last(index)]
        if inside and plan.last(index) <= tick:
            expected.append((index, len(inside), tuple(inside.count(state) for state in range(3))))
    windows = counter(plan)
    closed = []
    for t, state in seen.items():
        windows.prepare(t)
        closed += run(windows, [(t, state)])
    assert rows(closed) == expected


def planned(window: Window) -> AgentWindow:
    whole = policy(epoch_us=7, period_us=1_000_000, windows=(window,))
    chains = BoundedChains(states=3, odds_ratio=2.0)
    named = Thresholds(edges=(0.0, 1.0), states=("low", "middle", "high"))
    (plan,) = plan_of(whole.model_copy(update={"table": None, "chains": chains, "discretiser": named})).windows
    return plan


def fields(window: AgentWindow) -> tuple[object, ...]:
    ticks = window.name, window.start, window.length, window.stride
    return (*ticks, window.counts, tuple(window.places), window.numerator, window.denominator)


def test_a_plan_is_what_the_policy_says() -> None:
    window = Window(name="w", length=9, stride=3, start=2, states=("high", 0), scale="7/3")
    assert fields(planned(window)) == ("w", 2, 9, 3, 1, (0, NONE, 0), 7, 3)
    many = Window(name="w", length=9, stride=9, states="histogram", scale="20")
    assert fields(planned(many)) == ("w", 0, 9, 9, 3, (0, 1, 2), 20, 1)


# Noise


def test_noise_does_not_depend_on_how_much_was_observed() -> None:
    """The same randomness gives the same noise, whether one tick was observed or all of them."""
    plan = window_plan(length=10, numerator=50, denominator=1)
    full = run(counter(plan, seed=5), [(tick, 1) for tick in range(10)])
    short = run(counter(plan, seed=5), [(9, 1)])
    assert full[0][2][0] - 10 == short[0][2][0] - 1


def test_noise_is_drawn_before_the_first_tick_of_a_window() -> None:
    """So the time that drawing takes, which depends on the noise, is not between a tick and its release."""
    drawn = []

    def count(buffer: memoryview) -> None:
        drawn.append(len(buffer))
        system_entropy()(buffer)

    windows = Counter(window_plan(length=5, numerator=20, denominator=1), uniform_below(count), -1, 0)
    windows.prepare(0)
    assert drawn
    drawn.clear()
    closed = run(windows, [(tick, 1) for tick in range(5)])
    assert len(closed) == 1
    assert drawn == []


def test_counts_stay_within_64_bits() -> None:
    count = NoisyCounts([2**70, -(2**70), COUNT_HIGH, COUNT_LOW])
    for place in (0, 1, 2, 3):
        count.add(place)
    assert count.take() == [COUNT_HIGH, COUNT_LOW, COUNT_HIGH, COUNT_LOW + 1]


def test_without_randomness_nothing_is_counted() -> None:
    def broken(_buffer: memoryview) -> None:
        raise OSError("no entropy")

    windows = Counter(window_plan(numerator=20, denominator=1), uniform_below(broken), -1, 0)
    with pytest.raises(OSError, match="no entropy"):
        windows.observe(0, 1)
    assert windows.close(1000) == []


# What cannot be seen


def test_a_count_shows_nothing_and_is_gone_once_it_was_taken() -> None:
    count = NoisyCounts([0])
    for _ in range(77_777):
        count.add(0)
    shown = [repr(count), str(count), f"{count}", f"{count:>20}", repr([count]), repr(vars(NoisyCounts))]
    assert not any("77777" in text for text in shown)
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="does not leave the process"):
            leave(count)
    assert count.take() == [77_777]
    assert count.take() == []


def test_windows_that_observe_nothing_do_not_pile_up() -> None:
    windows = counter(window_plan(length=5, stride=1))
    for tick in range(3_000):
        windows.prepare(tick)
    assert len(windows.counts) <= 5
    assert windows.close(20_000) == []


# The outbox


def closed(
    index: int, *counts: int, window: AgentWindow | None = None
) -> tuple[AgentWindow, int, int, tuple[int, ...]]:
    return window or window_plan(), index, 1, counts or (5,)


PLAN: StreamPlan = stream_plan(windows=(window_plan(), window_plan(name="other", stride=3)))


def test_windows_are_committed_once_and_know_the_one_before(outbox: Outbox, tmp_path: Path) -> None:
    outbox.append_windows(PLAN, [closed(4, -2), closed(7, window=PLAN.windows[1])])
    outbox.append_windows(PLAN, [closed(9)])
    assert window_frames(outbox) == [
        WindowFrame(1, "high", -1, 4, 40, 10, 1, (-2,)),
        WindowFrame(1, "other", -1, 7, 21, 10, 1, (5,)),
        WindowFrame(1, "high", 4, 9, 90, 10, 1, (5,)),
    ]
    assert symbol_frames(outbox) == []
    for index in (9, 4, 0):
        with pytest.raises(OutboxError, match=f"window {index} of hr/high was committed before"):
            outbox.append_windows(PLAN, [closed(index)])
    outbox.close()
    outbox = Outbox(tmp_path / "outbox.sqlite", "home", "watch")
    assert [outbox.register_window("hr", window) for window in PLAN.windows] == [9, 7]
    assert outbox.frames.depth() == 3


def test_several_windows_are_committed_together_or_not_at_all(outbox: Outbox) -> None:
    outbox.append_windows(PLAN, [closed(5)])
    with pytest.raises(OutboxError):
        outbox.append_windows(PLAN, [closed(8, window=PLAN.windows[1]), closed(5)])
    assert [outbox.register_window("hr", window) for window in PLAN.windows] == [5, -1]


def test_windows_are_forgotten_by_index_and_symbols_by_tick(outbox: Outbox) -> None:
    for tick in range(20):
        outbox.append(PLAN, tick, b"\0")
    for index in (0, 1, 4):
        outbox.append_windows(PLAN, [closed(index)])
    assert outbox.frames.forget_committed("hr/high", 3, (), sent_through=100, grace_seconds=0.0) == (2, [])
    assert outbox.frames.forget_committed("hr/high", 4, (Gap(1, 4),), sent_through=100, grace_seconds=0.0) == (0, [5])
    assert outbox.frames.forget_committed("hr/other", 100, (), sent_through=100, grace_seconds=0.0) == (0, [])
    assert outbox.frames.depth() == 3
    assert outbox.frames.forget_committed("hr/high", 4, (), sent_through=100, grace_seconds=0.0) == (1, [])
    assert outbox.frames.forget_committed("hr", 9, (), sent_through=100, grace_seconds=0.0) == (1, [])
    assert [frame.first for frame in symbol_frames(outbox)] == [10]


@pytest.mark.parametrize("change", [{"length": 11}, {"stride": 9}, {"start": 1}])
def test_a_window_whose_ticks_have_changed_is_refused(outbox: Outbox, change: dict[str, int]) -> None:
    with pytest.raises(OutboxError, match="the ticks of window hr/high have changed: give the window a new name"):
        outbox.register_window("hr", window_plan(**change))
    assert outbox.register_window("hr", window_plan(numerator=3, places=(0, NONE, NONE))) == -1
    assert outbox.register_window("power", window_plan(**change)) == -1


def test_the_outbox_holds_no_count_that_is_not_in_a_frame(outbox: Outbox) -> None:
    columns = [row[1] for row in outbox._db.execute("PRAGMA table_info(windows)")]
    assert columns == ["stream", "window", "start", "length", "stride", "last_index"]
    outbox.append_windows(PLAN, [closed(3, 123456789)])
    (payload,) = outbox._db.execute("SELECT payload FROM frames").fetchone()
    assert payload == window_frames(outbox)[0].encode()

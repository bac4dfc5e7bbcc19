"""The device's clock and its ticks, whatever is done to the wall clock: attacks, and any sequence of jumps."""

from __future__ import annotations

import logging
import sqlite3
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.agent import Agent
from edge_agent.device_clock import Anchor, DeviceClock, SystemClock
from edge_agent.outbox import Outbox, OutboxError
from edge_agent.plan import ClockSettings, StreamPlan
from edge_agent.randomiser import system_entropy
from fugu.contract.calendar import DayBlocks
from fugu.contract.errors import StatusCode
from fugu.contract.stretches import stretch_ticks
from fugu.core.clocks import SMALL_US
from fugu.core.policy import NONE
from fugu.host.process import Wake
from fugu.mqtt import Broker
from tests.support.agents import agent_plan, plan_of, stream_plan, window_plan
from tests.support.clocked_device import Device, Live, check
from tests.support.clocks import SECOND, TwoClocks
from tests.support.groups import member_policy, shared
from tests.support.measured import measure_policy
from tests.support.outboxes import measure_frames, symbol_frames, window_frames

NOW = 1_800_000_000.25
YEAR = 365 * 86400 * SECOND
HOUR = 3600 * SECOND
CONFIRM = 600 * SECOND


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path, TwoClocks(NOW))


def test_a_clock_one_year_ahead_for_3_seconds_silences_no_device(device: Device) -> None:
    device.run(10)
    device.clocks.wall += YEAR
    device.run(3)
    assert device.time.is_uncertain
    device.clocks.wall -= YEAR
    device.run(10)
    assert not device.time.is_uncertain
    assert device.numbers == list(range(device.numbers[0], device.numbers[0] + 23)), "nothing has happened"
    assert {shift for _, shift, _ in device.drawn} == {0}


@pytest.mark.parametrize("again", ["same", "other", ""])
def test_a_clock_one_year_ahead_silences_no_device_across_a_restart(tmp_path: Path, again: str) -> None:
    """Restarted while the clock is ahead, and again once it is right; after a reboot, without one, or who knows."""
    device = Device(tmp_path, TwoClocks(NOW, boot="same"))
    device.run(10)
    device.clocks.wall += YEAR
    for change in (0, -YEAR):
        device.stop()
        device.clocks.wall += change
        device.clocks._boot = again
        before = len(device.drawn)
        device.start()
        device.run(5)
        assert len(device.drawn) >= before + 3, "no silence"
        again += again and "again" if again != "same" else ""
    check(device.drawn, SECOND)
    assert (device.drawn[-1][1] > 0) == (again != "same")
    wall = device.numbers[-1] - device.drawn[-1][1]
    assert wall == device.clocks.wall // SECOND


def test_a_clock_set_back_by_an_hour_goes_on_above_every_number(tmp_path: Path) -> None:
    plan = stream_plan(windows=(window_plan(length=120, stride=60), window_plan(name="low", length=90)))
    device = Device(tmp_path, TwoClocks(NOW), plan)
    device.run(200)
    device.clocks.wall -= HOUR
    device.run(500)
    assert {shift for _, shift, _ in device.drawn} == {0}, "not confirmed yet"
    device.run(400)
    device.stop()
    check(device.drawn, SECOND, 180)
    assert len(device.drawn) >= 1095, "and is not silent"
    first = next(tick for tick, shift, _ in device.drawn if shift)
    assert device.drawn[-1][0] - device.drawn[-1][1] == device.clocks.wall // SECOND
    device.start()
    counted = window_frames(device.outbox)
    frames = symbol_frames(device.outbox)
    assert {frame.shift for frame in frames} == {frame.shift for frame in counted} == {0, device.drawn[-1][1]}
    for frame in counted:
        assert frame.first >= first if frame.shift else frame.last < first, "no window holds ticks of two shifts"
        assert (frame.first - frame.shift) % 10 == 0, "and each is at its time of day"
    for own_frame in frames:
        assert own_frame.first >= first if own_frame.shift else own_frame.last < first, (
            "frames end where the shift changes"
        )


def test_a_profile_counts_by_the_wall_clock_although_the_shift_is_no_whole_day(tmp_path: Path) -> None:
    """Blocks went by the numbers of ticks: after this an hour and a half too late, for good."""
    blocks = DayBlocks("UTC", 900, ((0, 0),))
    changes = {"counts": 96, "blocks": blocks, "places": (0, 0, NONE), "epoch_us": 0, "period_us": SECOND}
    device = Device(tmp_path, TwoClocks(NOW), stream_plan(windows=(window_plan(length=60, **changes),)))
    device.run(20)
    device.clocks.wall -= HOUR + HOUR // 2
    device.run(800)
    device.restart()
    device.run(130)
    counted = [frame for frame in window_frames(device.outbox) if frame.shift]
    assert len(counted) >= 3
    for frame in counted:
        begin = frame.first - frame.shift
        assert (
            blocks.index_at(begin * SECOND)
            == blocks.index_at((begin + 59) * SECOND)
            != blocks.index_at(frame.first * SECOND)
        )
        assert frame.counts[blocks.index_at(begin * SECOND)] == frame.observed == sum(frame.counts)


def test_a_jump_counts_once_the_clock_has_stayed_there_for_a_while_and_not_on_its_way(device: Device) -> None:
    for _ in range(2):
        device.clocks.wall += HOUR
        device.run(400, step=1.0)
        assert device.time.is_uncertain
    device.run(210, step=1.0)
    assert not device.time.is_uncertain


@pytest.mark.long
def test_a_wobbling_clock_raises_no_shift(device: Device) -> None:
    for _ in range(10):
        device.clocks.wall -= HOUR
        device.run(300, step=1.0)
        device.clocks.wall += HOUR
        device.run(5, step=1.0)
    assert device.numbers == list(range(device.numbers[0], device.numbers[0] + len(device.numbers)))
    assert len(device.numbers) >= 10 * 305 - 2


def test_a_clock_that_stands_still_silences_no_device(device: Device) -> None:
    """A wall clock that is set back all the time; so would be one that is followed blindly by small steps."""
    stood = device.clocks.wall
    for _ in range(4 * 1000):
        device.run(0.25)
        device.clocks.wall = stood
    assert len(device.drawn) >= 995
    check(device.drawn, SECOND)


def test_a_clock_that_is_nudged_forward_makes_no_ticks_come_sooner(device: Device) -> None:
    """By almost a second ten times a second: nine ticks of wall time in one."""
    for _ in range(3000):
        device.run(0.1, step=0.1)
        device.clocks.wall += 800_000
    assert len(device.drawn) <= 301
    assert all(later[2] - earlier[2] >= SECOND for earlier, later in pairwise(device.drawn))
    assert device.numbers[-1] - device.numbers[0] <= 302


def test_a_board_that_boots_in_1970_draws_nothing_until_it_knows_the_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clocks = TwoClocks(0.5, synchronised=False)
    with caplog.at_level(logging.WARNING):
        device = Device(tmp_path, clocks)
        device.run(60)
    assert device.drawn == []
    assert device.time.is_uncertain
    assert device.time.now_us() == clocks.wall
    (line,) = [record.getMessage() for record in caplog.records]
    assert "not synchronised" in line
    assert "timedatectl set-ntp true" in line
    assert "trusted = true" in line
    clocks.wall, clocks.known = round(NOW * SECOND), True
    device.run(10)
    assert device.numbers == list(range(clocks.wall // SECOND - 9, clocks.wall // SECOND + 1))
    device.stop()
    (tmp_path / "trusted").mkdir()
    trusted = Device(tmp_path / "trusted", TwoClocks(NOW, synchronised=False), settings=ClockSettings(trusted=True))
    trusted.run(5)
    assert len(trusted.drawn) == 5


@pytest.mark.parametrize(("ahead", "believed"), [(299, True), (-299, True), (301, False), (-YEAR // SECOND, False)])
def test_the_gateway_s_signed_time_is_as_good_as_ntp(tmp_path: Path, ahead: int, believed: bool) -> None:
    device = Device(tmp_path, TwoClocks(NOW, synchronised=False))
    device.time.follow(int(NOW) + ahead)
    device.run(5)
    assert bool(device.drawn) == believed


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 200 * SECOND, -200 * SECOND])
def test_the_gateway_s_signed_time_confirms_a_jump_and_no_other_does(device: Device, jump: int) -> None:
    device.run(10)
    device.clocks.wall += jump
    device.run(10)
    device.time.follow((device.clocks.wall - jump) // SECOND)
    device.run(10)
    assert device.time.is_uncertain, "the time before the jump is not the one after it"
    device.time.follow(device.clocks.wall // SECOND)
    device.run(10)
    assert not device.time.is_uncertain
    assert len(device.drawn) >= 37
    tick, shift, _ = device.drawn[-1]
    assert tick - shift == device.clocks.wall // SECOND
    assert (shift > 0) == (jump < 0)
    check(device.drawn, SECOND)


def test_streams_of_one_clock_keep_common_ticks_and_one_shift(tmp_path: Path) -> None:
    plan, other = stream_plan(windows=(window_plan(),)), stream_plan(stream="power", windows=(window_plan(length=7),))
    device = Device(tmp_path, TwoClocks(NOW), plan, other)
    device.run(20)
    device.clocks.wall -= HOUR
    device.run(620)
    pairs = list(zip(device.drawn[::2], device.drawn[1::2], strict=True))
    assert all(a == b for a, b in pairs)
    assert device.drawn[-1][1] > 0
    check([a for a, _ in pairs], SECOND, 70)
    later = stream_plan(stream="third", windows=(window_plan(length=11),))
    device.ticks.switch(
        [plan, other, replace(later, sensor={"kind": "call", "target": "time:time"} | SAMPLES)], lambda: None
    )
    device.run(3)
    assert [stream.clock.shift for stream in device.ticks.streams] == [device.drawn[-1][1]] * 3
    assert len({stream.last_tick for stream in device.ticks.streams}) == 1
    assert device.drawn[-1][1] % 770 == 0, "all windows keep their time of day"


SAMPLES = {"silence": "samples", "keep_alive_ticks": None}


def test_a_stalled_machine_draws_for_no_burst_of_ticks(tmp_path: Path) -> None:
    """Ten ticks in a moment would be ten draws for one state."""
    device = Device(tmp_path, TwoClocks(NOW), stream_plan(period_us=20_000))
    for late in (0, 200_000):
        device.clocks.pass_us(late)
        until = device.clocks.elapsed + 15 * SECOND
        while device.clocks.elapsed < until:
            device.ticks.catch_up()
            device.clocks.wait(Wake(), device.ticks.seconds_to_tick())
    check(device.drawn, 20_000)
    assert device.clocks.wall // 20_000 - device.numbers[-1] <= 1, "and what it was late for has been made up"
    assert len(device.numbers) >= (device.clocks.wall // 20_000 - device.numbers[0]) - 1


def test_a_late_tick_brings_no_more_ticks_into_a_minute_than_stretches_count(tmp_path: Path) -> None:
    period = 60 * SECOND
    device = Device(tmp_path, TwoClocks(NOW), stream_plan(period_us=period))
    device.run(600, step=0.5)
    while device.clocks.elapsed - device.drawn[-1][2] < period - SECOND // 2:
        device.run(0.25, step=0.25)
    begin = len(device.drawn)
    device.clocks.pass_us(59 * SECOND)  # the machine is busy: a tick is late, and still drawn
    device.run(1200, step=0.25)
    times = [time for *_, time in device.drawn[begin:]]
    assert max(sum(first <= time < first + period for time in times) for first in times) == 2
    assert stretch_ticks(60, period) == 2


def test_a_restart_after_a_late_tick_draws_for_the_next_one_no_sooner(device: Device) -> None:
    """A machine that was late, and started its agent anew at once: two draws a moment apart would be for one state."""
    device.run(5)
    device.clocks.pass_us(SECOND + 400_000)
    device.ticks.catch_up()
    device.restart()
    device.run(5, step=0.05)
    check(device.drawn, SECOND)
    assert device.clocks.elapsed - device.drawn[-1][2] < SECOND, "and it goes on"


def test_a_clock_that_is_set_forward_brings_the_next_tick_no_sooner(device: Device) -> None:
    """Its new seconds begin a tenth earlier: the next tick would come .9 s after the one before."""
    device.run(5, step=0.05)
    device.clocks.wall += HOUR + SECOND // 10
    device.time.follow(device.clocks.wall // SECOND)
    device.run(5, step=0.05)
    assert device.numbers[-1] - device.numbers[0] > 3600
    assert min(later[2] - earlier[2] for earlier, later in pairwise(device.drawn)) >= SECOND


@pytest.mark.parametrize("boot", ["first", "second"])
def test_after_a_reboot_the_first_tick_is_a_period_after_the_start(tmp_path: Path, boot: str) -> None:
    """When the last one was drawn, this clock does not know: perhaps a moment before. After a restart ticks go on."""
    device = Device(tmp_path, TwoClocks(NOW, boot="first"))
    device.run(5.85, step=0.05)
    device.stop()
    device.clocks._boot = boot
    device.start()
    began, count = device.clocks.elapsed, len(device.drawn)
    device.run(3, step=0.05)
    assert began % SECOND == 850_000, "the next second begins in .9 s"
    assert (device.drawn[count][2] - began >= SECOND) == (boot == "second")
    check(device.drawn, SECOND)


@pytest.mark.parametrize("slept", [7, 400 * 60])
def test_ticks_during_a_sleep_are_absent_and_none_is_made_up_for(device: Device, slept: int) -> None:
    """Their readings are gone, and many draws in a row would be for one state."""
    device.run(10)
    asleep = device.clocks.wall // SECOND
    device.clocks.pass_us(slept * SECOND)
    device.run(10)
    before, after = device.numbers[:10], device.numbers[10:]
    assert before == list(range(asleep - 9, asleep + 1))
    assert after == list(range(asleep + slept, asleep + slept + 10))


def test_nothing_is_read_or_drawn_while_the_device_is_to_be_silent(device: Device) -> None:
    silent: list[float] = []

    def stopped(seconds: float) -> StatusCode | None:
        if not silent:
            return None
        silent.append(seconds)
        return StatusCode.STOPPED

    device.ticks._silence_code = stopped
    device.run(10)
    (stream,) = device.ticks.streams
    newest = stream.sensor.newest
    silent.append(0.0)
    device.run(10)
    assert len(device.drawn) == 10
    assert (stream.sensor.newest, stream.trouble) == (newest, StatusCode.STOPPED)
    assert silent[-1] * SECOND == pytest.approx(device.clocks.wall, abs=SECOND)
    silent.clear()
    device.run(10)
    assert device.numbers[10:] == list(range(device.numbers[9] + 11, device.numbers[9] + 21)), "and nothing is made up"
    device.ticks.stopping = True
    device.run(5)
    assert len(device.drawn) == 20


def test_points_go_by_what_is_possible_at_the_time_of_their_tick(tmp_path: Path) -> None:
    """The clock went back to the first ticks, where few states are possible; the numbers went on."""
    policy = measure_policy(3, start=0)
    device = Device(tmp_path, TwoClocks(1000.25), plan_of(policy))
    device.run(20)
    device.clocks.wall = SECOND // 4
    device.time.follow(0)
    device.run(8)
    device.ticks.close_frames()
    drawn = {f.first + i: p.table for f in measure_frames(device.outbox) for i, p in enumerate(f.released)}
    shift = device.drawn[-1][1]
    assert shift > 900
    assert {tick - shift: drawn[tick] for tick, is_drawn, _ in device.drawn if is_drawn} == {
        tick: int(tick >= 4) for tick in range(1, 9)
    }
    assert {drawn[tick] for tick, is_drawn, _ in device.drawn if not is_drawn} == {1}


def test_a_stream_that_joins_after_a_late_tick_reads_their_sensor_no_sooner(tmp_path: Path) -> None:
    sensor = {"kind": "call", "target": "time:time"} | SAMPLES
    plan, other = stream_plan(sensor=sensor), stream_plan(stream="power", sensor=sensor)
    device = Device(tmp_path, TwoClocks(NOW), plan)
    device.run(5)
    device.clocks.pass_us(SECOND + 400_000)
    device.ticks.catch_up()
    device.ticks.switch([replace(other, version=2), replace(plan, version=2)], lambda: None)
    device.run(5, step=0.05)
    drawn = {tick: at for tick, _, at in reversed(device.drawn)}  # when each was read
    assert [stream.last_tick for stream in device.ticks.streams] == [max(drawn)] * 2
    check([(tick, 0, at) for tick, at in sorted(drawn.items())], SECOND)


def test_a_stream_of_before_brings_a_larger_shift_and_all_of_its_clock_have_it(tmp_path: Path) -> None:
    """The clock went back while only one of them ran; later both do, in any order."""
    sensor = {"kind": "call", "target": "time:time"} | SAMPLES
    plan = stream_plan(sensor=sensor, windows=(window_plan(length=60),))
    other = stream_plan(stream="power", sensor=sensor)
    device = Device(tmp_path, TwoClocks(NOW), other)
    device.run(20)
    device.clocks.wall -= HOUR
    device.run(620)
    before = device.drawn[-1][1]
    assert before > 0
    device.stop()
    device.plans = (plan,)
    device.start()
    device.run(5)
    assert device.drawn[-1][1] == 0
    new = [replace(plan, version=2), replace(other, version=2)]

    def full() -> None:
        raise OSError(28, "No space left on device")

    for store in (full, lambda: None):
        try:
            device.ticks.switch(new, store)
        except OSError:
            assert len(device.ticks.streams) == 1
        count = len(device.drawn)
        device.run(90)
        assert len(device.drawn) >= count + 88, "no silence"
        for tick, shift, _ in device.drawn[count:]:
            assert tick - shift <= device.clocks.wall // SECOND, "none is from the future"
        assert {shift % 60 for _, shift, _ in device.drawn[count:]} == {0}
    assert {stream.clock.shift for stream in device.ticks.streams} == {device.drawn[-1][1]}
    first = next(tick for tick, shift, _ in device.drawn if shift == device.drawn[-1][1])
    assert all(frame.first >= first for frame in window_frames(device.outbox) if frame.shift), "no window of two shifts"


class Begun:
    """Sums of homes that are only begun: the shifts that they were begun with."""

    def __init__(self) -> None:
        self.shifts: list[int] = []

    def follow(self, _plans: object) -> None: ...

    def begin_sums(self, _plan: StreamPlan, _entropy: object, shift: int) -> Begun:
        self.shifts.append(shift)
        return self

    def observe(self, _tick: int, _state: int | None) -> None: ...


def test_a_clock_that_was_set_begins_the_sums_of_homes_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of before is over, and later ones are those of the wall clock that all homes have."""
    begun = Begun()
    monkeypatch.setattr(Device, "helpers", begun)
    device = Device(tmp_path, TwoClocks(NOW), plan_of(member_policy("watch", shared())))
    device.run(5)
    for jump in (HOUR, -HOUR):
        before = len(begun.shifts)
        device.clocks.wall += jump
        device.run(CONFIRM / SECOND + 5)
        assert begun.shifts[before:] == [device.drawn[-1][1]]
    assert begun.shifts[-1] > 0


def test_other_windows_lift_no_shift_before_the_time_is_known(tmp_path: Path) -> None:
    """By a clock of 1970 every number would seem to be of half a century ahead."""
    plan = stream_plan(windows=(window_plan(),), sensor={"kind": "call", "target": "time:time"} | SAMPLES)
    device = Device(tmp_path, TwoClocks(NOW), plan)
    device.run(20)
    device.clocks.wall -= HOUR
    device.run(620)
    device.stop()
    right, before = device.clocks.wall, device.drawn[-1][1]
    device.clocks.wall, device.clocks.known, device.clocks._boot = SECOND // 2, False, "second"
    device.start()
    device.run(5)
    device.ticks.switch([replace(plan, version=2, windows=(window_plan(name="x", length=1234),))], lambda: None)
    device.run(5)
    assert device.outbox.shift("hr")[0] == before
    device.clocks.wall, device.clocks.known = right, True
    device.run(5)
    assert device.drawn[-1][1] % 1234 == 0
    assert before < device.drawn[-1][1] < before + 2 * 1234 * 10
    check(device.drawn, SECOND)


@pytest.mark.parametrize("what", ["gone", "another file"])
def test_an_agent_whose_outbox_is_lost_says_so_and_one_that_starts_draws_no_tick_again(
    device: Device, tmp_path: Path, what: str
) -> None:
    device.run(15)
    lost = tmp_path / "outbox.sqlite"
    lost.rename(tmp_path / "before.sqlite")
    if what != "gone":
        lost.write_bytes((tmp_path / "before.sqlite").read_bytes())
    with pytest.raises(OutboxError, match=f"outbox is lost.*{what}") as lost_error:
        device.run(15)
    assert lost_error.value.reason == "storage", "so its path does not leave with a refused policy"
    device.crash()
    for file in tmp_path.glob("outbox.sqlite*"):
        file.unlink()
    device.start()
    device.run(15)
    check(device.drawn, SECOND)


@pytest.mark.long
@pytest.mark.parametrize("after", ["goes on", "crash", "clock is right again"])
def test_a_disk_that_takes_the_shift_of_one_stream_only(
    tmp_path: Path, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is drawn until all streams of a clock have it, and no frame says another one than its ticks had."""
    plans = (stream_plan(windows=(window_plan(),)), stream_plan(stream="power", windows=(window_plan(length=7),)))
    device = Device(tmp_path, TwoClocks(NOW), *plans)
    device.run(20)
    change = Outbox.set_shift

    def full(outbox: Outbox, plan: StreamPlan, shift: int, since: int) -> None:
        if plan.stream == "power":
            raise sqlite3.OperationalError("database or disk is full")
        change(outbox, plan, shift, since)

    monkeypatch.setattr(Outbox, "set_shift", full)
    device.clocks.wall -= HOUR
    device.run(620)
    drawn = len(device.drawn)
    assert device.outbox.shift("hr")[0] > device.outbox.shift("power")[0] == 0
    device.run(20)
    assert len(device.drawn) == drawn
    if after == "clock is right again":
        device.clocks.wall += HOUR
        device.run(CONFIRM / SECOND + 1)
    monkeypatch.undo()
    if after == "crash":
        device.crash()
        device.start()
    device.run(20)
    pairs = list(zip(device.drawn[::2], device.drawn[1::2], strict=True))
    assert all(a == b for a, b in pairs)
    assert len(device.drawn) >= drawn + 20
    check([a for a, _ in pairs], SECOND, 70)
    assert device.drawn[-1][0] - device.drawn[-1][1] == device.clocks.wall // SECOND
    device.restart()
    shifts = {frame.first + i: frame.shift for frame in symbol_frames(device.outbox) for i in range(len(frame.symbols))}
    assert shifts.items() <= {tick: shift for tick, shift, _ in device.drawn}.items()


def test_validity_goes_by_the_device_s_clock_and_not_by_what_somebody_sets(tmp_path: Path) -> None:
    plan = stream_plan(valid_until=int(NOW) + 100)
    device = Device(tmp_path, TwoClocks(NOW), plan)
    device.run(10)
    device.clocks.wall += HOUR
    device.run(10)
    assert len(device.drawn) == 20, "a clock that is set forward for a while ends no policy"
    device.clocks.wall -= 2 * HOUR
    device.run(200)
    assert device.numbers[-1] <= int(NOW) + 100, "nor does one that is set back renew it"
    assert device.ticks.streams[0].trouble == StatusCode.POLICY_INACTIVE


def test_a_shift_is_never_one_of_a_frame_before_it(device: Device) -> None:
    """A frame that was drawn before the power went has the shift that it was drawn under."""
    device.run(15)
    device.stop()
    device.clocks._boot = "second"
    device.clocks.wall -= HOUR
    device.start()
    device.run(20)
    device.restart()
    shifts = {frame.first + i: frame.shift for frame in symbol_frames(device.outbox) for i in range(len(frame.symbols))}
    assert shifts == {tick: shift for tick, shift, _ in device.drawn}


def test_the_status_says_that_the_clock_is_not_known(tmp_path: Path) -> None:
    clocks = TwoClocks(NOW, synchronised=False)
    plan = agent_plan(tmp_path, Broker(port=9), clock=ClockSettings())
    agent = Agent(plan, [Live()], system_entropy(), clocks)
    assert agent._trouble_codes() == (StatusCode.CLOCK,)
    clocks.known = True
    agent._ticker.catch_up()
    assert agent._trouble_codes() == ()
    clocks.wall += HOUR
    agent._ticker.catch_up()
    assert agent._trouble_codes() == (StatusCode.CLOCK,)


def test_the_operating_system_s_clocks() -> None:
    clock = SystemClock()
    first = clock.elapsed_us()
    assert clock.elapsed_us() >= first > 0
    assert clock.synchronised() in (True, False)
    assert clock.boot() == SystemClock().boot()


def test_small_steps_are_followed_little_by_little_and_kept() -> None:
    clocks, anchors = TwoClocks(NOW), list[Anchor]()
    time = DeviceClock(clocks, ClockSettings(), None, anchors.append)
    time.follow()
    clocks.wall += SMALL_US
    for _ in range(1000):
        clocks.pass_us(SECOND)
        time.follow()
    assert clocks.wall - time.now_us() == pytest.approx(SMALL_US // 2, abs=1000), "500 millionths"
    assert not time.is_uncertain
    ahead = clocks.wall - time.now_us()
    for _ in range(1000):
        clocks.pass_us(SECOND // 1000)
        time.follow()
    assert ahead - (clocks.wall - time.now_us()) == pytest.approx(500, abs=1), "however often it is asked"
    for _ in range(1100):
        clocks.pass_us(SECOND)
        time.follow()
    assert time.now_us() == clocks.wall
    assert len(anchors) == 2
    assert abs(anchors[-1].offset_us - time.offset_us) <= SMALL_US // 2


step = st.one_of(
    st.tuples(st.just("pass"), st.integers(1, 900)),
    st.tuples(st.just("set"), st.sampled_from([-YEAR, -HOUR, -30, -1, 1, 30, HOUR, YEAR]).map(lambda x: x * 1)),
    st.tuples(st.just("nudge"), st.integers(-3 * SECOND, 3 * SECOND)),
    st.tuples(st.just("signed"), st.integers(-400, 400)),
    st.tuples(st.sampled_from(["crash", "stop", "boot"]), st.just(0)),
)


@pytest.mark.long
@settings(max_examples=7, deadline=None)
@given(st.lists(step, min_size=1, max_size=12), st.sampled_from([SECOND, 7 * SECOND]))
def test_any_jumps_and_restarts(steps: list[tuple[str, int]], period: int) -> None:
    """Numbers ascend, a period apart; no silence is longer than what confirms a jump; the shift fits every window."""
    plan = stream_plan(period_us=period, windows=(window_plan(length=6, stride=4), window_plan(name="low", length=9)))
    with TemporaryDirectory() as folder:
        device = Device(Path(folder), TwoClocks(NOW), plan)
        device.run(30, step=0.5)
        for what, amount in (*steps, ("pass", 800)):
            match what:
                case "pass":
                    device.run(amount, step=1.0)
                case "set" | "nudge":
                    device.clocks.wall += amount
                case "signed":
                    device.time.follow(device.clocks.wall // SECOND + amount)
                case "crash" | "boot":
                    device.crash()
                    device.clocks._boot += "+" if what == "boot" else ""
                    device.start()
                case _:
                    device.restart()
        check(device.drawn, period, 36)
        silences = [later[2] - earlier[2] for earlier, later in pairwise(device.drawn)]
        assert max(silences) <= CONFIRM + 3 * period
        assert device.clocks.elapsed - device.drawn[-1][2] <= 3 * period
        device.crash()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_stream_that_was_withdrawn_comes_back_no_sooner_than_if_it_had_stayed(
    tmp_path: Path, restarted: bool
) -> None:
    """Meanwhile no stream had its clock: its next tick came ten seconds after a late one, at a period of a minute."""
    sensor = {"kind": "call", "target": "time:time"} | SAMPLES
    plan, other = stream_plan(period_us=60 * SECOND, sensor=sensor), stream_plan(stream="power", sensor=sensor)
    device = Device(tmp_path, TwoClocks(NOW), plan)
    device.run(120)
    device.clocks.pass_us(110 * SECOND)
    device.ticks.catch_up()
    device.ticks.switch([replace(other, version=2)], lambda: None)
    device.run(2)
    if restarted:
        device.plans = [replace(other, version=2)]
        device.restart()
        device.run(2)
    device.ticks.switch([replace(plan, version=3)], lambda: None)
    device.run(300, step=0.25)
    check([row for row in device.drawn if row[0] < NOW // 2], 60 * SECOND)
    assert device.numbers[-1] - device.numbers[0] > 5

"""The rules of a rollout, each from both sides."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gateway.fleet.entries import FleetError, Outcome, RolloutPlan, Stage
from gateway.fleet.rollouts import RolloutState as State
from gateway.fleet.rollouts import advance, operated, tally
from tests.support.simulated_fleets import PERCENT, SECOND, START, Pretended, names, plan, started

HUNDRED = names(100)


def after(
    some: RolloutPlan, state: State, devices: Pretended, seconds: int, *, every: int = 1
) -> tuple[list[str], State]:
    """Who is offered the document in so many seconds of calls, and the state then."""
    seen: list[str] = []
    for _ in range(0, seconds, every):
        actions, state = advance(some, state, devices.reports, state.seen_us + every * SECOND)
        seen += actions
    return seen, state


def all_offered(some: RolloutPlan, devices: Pretended, state: State | None = None) -> State:
    """The state when the stage under way has been offered to all its devices."""
    state = state or started(some, sorted(devices.reports))
    while any(name not in state.offers for name in state.stages[state.stage]):
        _, state = advance(some, state, devices.reports, state.seen_us + SECOND)
    return state


@pytest.mark.parametrize("kind", ["refused", "failed"])
@pytest.mark.parametrize(("errors", "phase"), [(6, "running"), (7, "stopped"), (8, "stopped")])
def test_it_stops_exactly_at_the_error_threshold(errors: int, phase: str, kind: Outcome) -> None:
    some, devices = plan(error=7), Pretended.of(HUNDRED)
    state = all_offered(some, devices)
    devices.say(kind, *HUNDRED[:errors])
    actions, state = advance(some, state, devices.reports, state.seen_us + SECOND)
    assert state.phase == phase
    assert not actions


@pytest.mark.parametrize(("accepted", "stage"), [(79, 0), (80, 1)])
def test_the_next_stage_begins_exactly_at_the_success_threshold(accepted: int, stage: int) -> None:
    some, devices = plan(50, 100), Pretended.of(names(200))
    state = all_offered(some, devices)
    devices.say("accepted", *state.stages[0][:accepted])
    actions, state = advance(some, state, devices.reports, state.seen_us + SECOND)
    assert state.stage == stage
    assert set(actions) <= set(state.stages[1])
    assert bool(actions) == bool(stage)


def test_a_stage_is_not_done_before_the_pace_has_let_it_have_all_its_devices() -> None:
    some, devices = plan(50, 100, success=50, pace=60), Pretended.of(names(20))
    state = started(some, names(20))
    for _ in range(8):
        actions, state = advance(some, state, devices.reports, state.seen_us + SECOND)
        devices.say("accepted", *actions)
    assert len(state.offers) == 9  # one at the start, and one a second
    assert state.stage == 0


def test_it_stops_when_errors_put_the_success_out_of_reach() -> None:
    some, devices = plan(success=95, error=50), Pretended.of(HUNDRED)
    state = all_offered(some, devices)
    devices.say("refused", *HUNDRED[:5])
    _, state = advance(some, state, devices.reports, state.seen_us + SECOND)
    assert state.phase == "running"
    devices.say("refused", HUNDRED[5])
    _, state = advance(some, state, devices.reports, state.seen_us + SECOND)
    assert state.phase == "stopped"
    assert "out of reach" in state.cause


def test_each_stage_has_its_own_errors() -> None:
    some, devices = plan(50, 100, error=10), Pretended.of(HUNDRED)
    state = all_offered(some, devices)
    devices.say("accepted", *state.stages[0])
    devices.say("refused", *state.stages[0][:4])  # 8 % of the first stage
    state = all_offered(some, devices, advance(some, state, devices.reports, state.seen_us + SECOND)[1])
    devices.say("refused", *state.stages[1][:4])
    _, state = advance(some, state, devices.reports, state.seen_us + SECOND)
    assert (state.phase, state.stage) == ("running", 1)
    devices.say("refused", state.stages[1][4])
    _, state = advance(some, state, devices.reports, state.seen_us + SECOND)
    assert state.phase == "stopped"
    assert state.cause.startswith("stage 2: 5 of 50 devices")


def test_late_errors_of_an_earlier_stage_stop_it_too() -> None:
    some, devices = plan(50, 100, error=10), Pretended.of(HUNDRED)
    state = all_offered(some, devices)
    canaries = state.stages[0]
    devices.say("accepted", *canaries)
    _, state = advance(some, state, devices.reports, state.seen_us + SECOND)
    assert state.stage == 1
    devices.say("failed", *canaries[:5])
    _, state = advance(some, state, devices.reports, state.seen_us + SECOND)
    assert state.phase == "stopped"
    assert state.cause.startswith("stage 1: 5 of 50 devices")


def test_devices_that_are_off_hold_a_stage_up_for_no_longer_than_the_patience() -> None:
    some, devices = plan(success=90, patience_seconds=60), Pretended.of(HUNDRED)
    devices.go(False, *HUNDRED[:15])
    state = all_offered(some, devices)
    devices.say("accepted", *HUNDRED[15:])
    _, state = after(some, state, devices, 58)
    assert state.phase == "running"  # 85 of 100
    _, state = after(some, state, devices, 5)
    assert state.phase == "completed"  # 85 of 85
    (tally_,) = tally(some, state, devices.reports)
    assert (tally_.accepted, tally_.absent, tally_.errors) == (85, 15, 0)


def test_devices_that_are_off_hold_nothing_up_if_the_others_suffice() -> None:
    some, devices = plan(success=85), Pretended.of(HUNDRED)
    devices.go(False, *HUNDRED[:15])
    state = all_offered(some, devices)
    assert len(state.offers) == 100  # those that are off get it, too: the broker keeps it for them
    devices.say("accepted", *HUNDRED[15:])
    assert advance(some, state, devices.reports, state.seen_us)[1].phase == "completed"


def test_it_waits_for_devices_that_are_off_while_they_can_still_bring_the_success() -> None:
    some, devices = plan(success=98, error=50, patience_seconds=60), Pretended.of(HUNDRED)
    devices.go(False, *HUNDRED[:15])
    state = all_offered(some, devices)
    devices.say("refused", *HUNDRED[98:])
    devices.say("accepted", *HUNDRED[15:98])
    _, state = after(some, state, devices, 86_400, every=60)
    assert state.phase == "running"  # 83 of the 85 that answer are too few, 98 of 100 would do
    devices.go(True, *HUNDRED[:15])
    devices.say("accepted", *HUNDRED[:15])
    assert advance(some, state, devices.reports, state.seen_us)[1].phase == "completed"


def test_a_stage_where_nobody_answers_is_never_done() -> None:
    some, devices = plan(1, 100), Pretended.of(HUNDRED, online=False)
    seen, state = after(some, started(some, HUNDRED), devices, 86_400, every=60)
    assert len(seen) == 1
    assert (state.phase, state.stage) == ("running", 0)
    devices.say("accepted", *seen)
    assert advance(some, state, devices.reports, state.seen_us)[1].stage == 1


@pytest.mark.parametrize("vanishes", [False, True])
def test_a_device_that_was_there_and_keeps_silent_is_an_error_even_if_it_goes_off(vanishes: bool) -> None:
    """A document that takes devices down does not pass for devices that are off."""
    some, devices = plan(patience_seconds=60, error=20), Pretended.of(HUNDRED)
    state = all_offered(some, devices)
    devices.say("accepted", *HUNDRED[:80])
    begun = state.clock_us
    devices.reports = {name: report._replace(newest=1) for name, report in devices.reports.items()}
    if vanishes:
        devices.go(False, *HUNDRED[79:], at_us=state.seen_us)
    some = plan(patience_seconds=60, error=20, success=81)
    while state.phase == "running" and state.clock_us - begun < 120 * SECOND:
        _, state = advance(some, state, devices.reports, state.seen_us + SECOND)
    assert state.phase == "stopped"
    assert 57 * SECOND <= state.clock_us - begun <= 60 * SECOND


def test_a_device_that_dies_of_the_document_when_it_comes_back_is_an_error() -> None:
    some, devices = plan(patience_seconds=60), Pretended.of(names(1), online=False)
    _, state = after(some, started(some, names(1)), devices, 600)
    assert tally(some, state, devices.reports)[0].absent == 1
    for i in range(70):  # it comes and goes: every birth is a new start for it, and none for the patience
        devices.go(i % 2 == 0, *names(1), at_us=state.seen_us)
        _, state = after(some, state, devices, 1)
    assert state.phase == "stopped"
    assert "keep silent (1)" in state.cause


def test_a_device_that_came_and_went_between_two_calls_has_had_the_document() -> None:
    some, devices = plan(patience_seconds=60), Pretended.of(names(1), online=False)
    _, state = after(some, started(some, names(1)), devices, 600)
    devices.go(False, *names(1), at_us=state.seen_us + 1)
    _, state = after(some, state, devices, 60)
    assert state.phase == "running"
    _, state = after(some, state, devices, 1)
    assert state.phase == "stopped"


def test_nobody_keeps_silent_while_nobody_listens() -> None:
    some, devices = plan(patience_seconds=90), Pretended.of(names(1))
    _, state = after(some, started(some, names(1)), devices, 2)
    _, state = advance(some, state, devices.reports, state.seen_us + 86_400 * SECOND)
    assert state.phase == "running"  # the day without a gateway counts as a minute
    _, state = after(some, state, devices, 28)
    assert state.phase == "running"
    _, state = after(some, state, devices, 1)
    assert state.phase == "stopped"


def test_a_clock_that_is_set_back_is_no_reason_for_anything() -> None:
    some, devices = plan(pace=60), Pretended.of(HUNDRED)
    seen, state = after(some, started(some, HUNDRED), devices, 10)
    actions, state = advance(some, state, devices.reports, START - 86_400 * SECOND)
    assert actions == ()
    more, state = after(some, state, devices, 10)
    assert (len(seen), len(more)) == (11, 10)


def test_devices_that_have_something_newer_or_are_gone_count_nowhere() -> None:
    some, devices = plan(), Pretended.of(HUNDRED)
    devices.reports[HUNDRED[0]] = devices.reports[HUNDRED[0]]._replace(newest=2, answer="refused")
    del devices.reports[HUNDRED[1]]
    state = started(some, HUNDRED)
    seen, state = after(some, state, devices, 2)
    assert sorted(seen) == HUNDRED[2:]
    (tally_,) = tally(some, state, devices.reports)
    assert (tally_.size, tally_.out, tally_.pending, tally_.errors) == (98, 2, 98, 0)
    some = plan(50, 100)
    devices.reports = {name: report._replace(newest=2) for name, report in devices.reports.items()}
    _, state = advance(some, started(some, HUNDRED), devices.reports, START)
    assert (state.phase, state.stage) == ("completed", 1)


def test_gates_wait_for_approval_and_open_once() -> None:
    some = plan(10, Stage(50 * PERCENT, gate=True), Stage(Fraction(1), gate=True))
    devices = Pretended.of(HUNDRED)
    state = all_offered(some, devices)
    devices.say("accepted", *HUNDRED)
    for stage, size in ((1, 50), (2, 100)):
        before = set(state.offers)
        _, state = after(some, state, devices, 100)
        assert (state.phase, state.stage, set(state.offers)) == ("waiting", stage - 1, before)
        state = operated(operated(state, "pause", 0), "resume", state.seen_us)
        _, state = advance(some, state, devices.reports, state.seen_us + SECOND)
        assert state.phase == "waiting"  # a pause is no approval
        state = operated(state, "approve", 0)
        state = all_offered(some, devices, advance(some, state, devices.reports, state.seen_us + SECOND)[1])
        assert len(state.offers) == size
    assert advance(some, state, devices.reports, state.seen_us)[1].phase == "completed"


def test_errors_stop_it_while_it_waits_for_approval() -> None:
    some, devices = plan(50, Stage(Fraction(1), gate=True)), Pretended.of(HUNDRED)
    state = all_offered(some, devices)
    devices.say("accepted", *HUNDRED)
    _, state = after(some, state, devices, 1)
    assert state.phase == "waiting"
    devices.say("failed", *state.stages[0][:10])
    assert advance(some, state, devices.reports, state.seen_us)[1].phase == "stopped"


def test_what_the_pace_missed_is_made_up_for_by_no_more_than_a_few_seconds() -> None:
    some, devices = plan(pace=60, patience_seconds=3600), Pretended.of(HUNDRED)
    _, state = after(some, started(some, HUNDRED), devices, 1)
    seen, _ = after(some, state, devices, 30, every=30)
    assert len(seen) == 6


def test_while_it_is_paused_nothing_happens_and_no_time_passes() -> None:
    some, devices = plan(pace=60, patience_seconds=90), Pretended.of(HUNDRED)
    seen, state = after(some, started(some, HUNDRED), devices, 10)
    paused = operated(state, "pause", 0)
    for hours in range(5):
        now = paused.seen_us + hours * 3600 * SECOND
        assert advance(some, paused, devices.reports, now) == ((), paused)
    state = operated(paused, "resume", now)
    more, state = after(some, state, devices, 50)
    assert (len(seen), len(more)) == (11, 49)  # sixty in the rollout's first minute
    assert state.phase == "running"


def test_an_aborted_rollout_leaves_devices_where_they_are_and_names_the_way_back() -> None:
    some, devices = plan(pace=60, patience_seconds=600), Pretended.of(HUNDRED)
    devices.reports["d001"] = devices.reports["d001"]._replace(former=7)
    seen, state = after(some, started(some, HUNDRED), devices, 100)
    assert len(seen) == 100
    state = operated(state, "abort", 0)
    assert advance(some, state, devices.reports, state.seen_us + SECOND) == ((), state)
    assert state.way_back() == {7: ("d001",), None: tuple(name for name in HUNDRED if name != "d001")}


def test_what_cannot_be_done_is_refused() -> None:
    draft = State()
    running = operated(draft, "start", START, (("a",),))
    paused, ended = operated(running, "pause", 0), operated(running, "abort", 0)
    steps = [(running, "start"), (draft, "pause"), (paused, "pause"), (running, "resume"), (running, "approve")]
    for state, what in [*steps, (paused, "approve"), (ended, "abort"), (ended, "resume"), (ended, "start")]:
        with pytest.raises(FleetError, match=r"cannot \w+ a rollout that is \w+"):
            operated(state, what, START, (("a",),))
    assert operated(draft, "abort", 0).phase == "aborted"
    assert advance(plan(), draft, {}, START) == ((), draft)

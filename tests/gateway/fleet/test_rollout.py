"""The rules of a rollout, each from both sides and for every plan; and who gets a document by it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.fleet.entries import FleetError, Outcome, RolloutPlan, Stage, Target, parse_share, stages_of
from gateway.fleet.rollouts import ACTIVE, advance, operate, tally
from gateway.fleet.rollouts import DeviceReport as Report
from gateway.fleet.rollouts import RolloutState as State
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


@pytest.mark.parametrize(("errors", "phase"), [(6, "running"), (7, "stopped"), (8, "stopped")])
def test_it_stops_exactly_at_the_error_threshold(errors: int, phase: str) -> None:
    some, devices = plan(error=7), Pretended.of(HUNDRED)
    state = all_offered(some, devices)
    devices.say("refused", *HUNDRED[:errors])
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
    devices.say("refused", *canaries[:5])
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
    (stage,) = tally(some, state, devices.reports)
    assert (stage.accepted, stage.absent, stage.errors) == (85, 15, 0)


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
    (stage,) = tally(some, state, devices.reports)
    assert (stage.size, stage.out, stage.pending, stage.errors) == (98, 2, 98, 0)
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
        state = operate(operate(state, "pause", 0), "resume", state.seen_us)
        _, state = advance(some, state, devices.reports, state.seen_us + SECOND)
        assert state.phase == "waiting"  # a pause is no approval
        state = operate(state, "approve", 0)
        state = all_offered(some, devices, advance(some, state, devices.reports, state.seen_us + SECOND)[1])
        assert len(state.offers) == size
    assert advance(some, state, devices.reports, state.seen_us)[1].phase == "completed"


def test_errors_stop_it_while_it_waits_for_approval() -> None:
    some, devices = plan(50, Stage(Fraction(1), gate=True)), Pretended.of(HUNDRED)
    state = all_offered(some, devices)
    devices.say("accepted", *HUNDRED)
    _, state = after(some, state, devices, 1)
    assert state.phase == "waiting"
    devices.say("refused", *state.stages[0][:10])
    assert advance(some, state, devices.reports, state.seen_us)[1].phase == "stopped"


def test_what_the_pace_missed_is_made_up_for_by_no_more_than_a_few_seconds() -> None:
    some, devices = plan(pace=60, patience_seconds=3600), Pretended.of(HUNDRED)
    _, state = after(some, started(some, HUNDRED), devices, 1)
    seen, _ = after(some, state, devices, 30, every=30)
    assert len(seen) == 6


def test_while_it_is_paused_nothing_happens_and_no_time_passes() -> None:
    some, devices = plan(pace=60, patience_seconds=90), Pretended.of(HUNDRED)
    seen, state = after(some, started(some, HUNDRED), devices, 10)
    paused = operate(state, "pause", 0)
    for hours in range(5):
        now = paused.seen_us + hours * 3600 * SECOND
        assert advance(some, paused, devices.reports, now) == ((), paused)
    state = operate(paused, "resume", now)
    more, state = after(some, state, devices, 50)
    assert (len(seen), len(more)) == (11, 49)  # sixty in the rollout's first minute
    assert state.phase == "running"


def test_an_aborted_rollout_leaves_devices_where_they_are_and_names_the_way_back() -> None:
    some, devices = plan(pace=60, patience_seconds=600), Pretended.of(HUNDRED)
    devices.reports["d001"] = devices.reports["d001"]._replace(former=7)
    seen, state = after(some, started(some, HUNDRED), devices, 100)
    assert len(seen) == 100
    state = operate(state, "abort", 0)
    assert advance(some, state, devices.reports, state.seen_us + SECOND) == ((), state)
    assert state.way_back() == {7: ("d001",), None: tuple(name for name in HUNDRED if name != "d001")}


def test_what_cannot_be_done_is_refused() -> None:
    draft = State()
    running = operate(draft, "start", START, (("a",),))
    paused, ended = operate(running, "pause", 0), operate(running, "abort", 0)
    steps = [(running, "start"), (draft, "pause"), (paused, "pause"), (running, "resume"), (running, "approve")]
    for state, what in [*steps, (paused, "approve"), (ended, "abort"), (ended, "resume"), (ended, "start")]:
        with pytest.raises(FleetError, match=r"cannot \w+ a rollout that is \w+"):
            operate(state, what, START, (("a",),))
    assert operate(draft, "abort", 0).phase == "aborted"
    assert advance(plan(), draft, {}, START) == ((), draft)


@dataclass(frozen=True)
class Step:
    """Time passes, some devices do something, and the rollout is called."""

    micros: int
    device: int
    change: Outcome | None
    online: bool
    operator: str


PLANS = st.builds(
    lambda shares, success, error, pace, patience, gates: plan(
        *(
            Stage(part * PERCENT, success=success * PERCENT, gate=bool(i) and gates)
            for i, part in enumerate([*sorted(shares), 100])
        ),
        error=error,
        pace=pace,
        patience_seconds=patience,
    ),
    st.lists(st.integers(1, 99), unique=True, max_size=3),
    st.integers(1, 100),
    st.integers(1, 100),
    st.sampled_from([1, 7, 60, 999, 60_000]),
    st.integers(1, 300),
    st.booleans(),
)
STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from([0, 1, 400_000, 1_000_000, 1_000_000, 7_000_000, 90_000_000, -5_000_000]),
        st.integers(0, 29),
        st.sampled_from(["accepted", "accepted", "accepted", "accepted", "refused", "refused", None]),
        st.booleans(),
        st.sampled_from(["", "", "", "", "", "", "pause", "resume", "approve"]),
    ),
    max_size=80,
)


def played(some: RolloutPlan, steps: list[Step], count: int) -> list[tuple[int, State, list[str], dict[str, Report]]]:
    """Every step: when, the state after it, who was offered the document, and the reports."""
    devices, state, now = Pretended.of(names(count)), started(some, names(count)), START
    record = []
    for step in steps:
        now += step.micros
        name = names(count)[step.device % count]
        devices.go(step.online, name, at_us=now)
        if step.change and name in state.offers:
            devices.say(step.change, name)
        match (step.operator, state.phase):
            case ("pause", "running" | "waiting"):
                state = operate(state, "pause", 0)
            case ("resume", "paused"):
                state = operate(state, "resume", now)
            case ("approve", "waiting"):
                state = operate(state, "approve", 0)
        actions, state = advance(some, state, devices.reports, now)
        record.append((now, state, list(actions), dict(devices.reports)))
        for action in actions:
            devices.reports[action] = devices.reports[action]._replace(newest=some.version)
    return record


@pytest.mark.long
@settings(max_examples=80, deadline=None)
@given(PLANS, STEPS, st.integers(1, 30))
def test_the_rules_hold(some: RolloutPlan, steps: list[Step], count: int) -> None:
    before, given_at = started(some, names(count)), {}
    for now, state, offered, reports in played(some, steps, count):
        # nobody gets it twice, and only devices of stages that are under way
        assert not given_at.keys() & set(offered)
        assert set(offered) <= {name for stage in state.stages[before.stage : state.stage + 1] for name in stage}
        assert not offered or before.phase in ACTIVE
        given_at |= dict.fromkeys(offered, state.clock_us)
        # the pace, in every minute of the rollout's clock; this never runs faster than time
        assert sum(at > state.clock_us - 60 * SECOND for at in given_at.values()) <= some.pace
        assert 0 <= state.clock_us - before.clock_us <= max(0, now - before.seen_us)
        # a stage ends only when it has had all its devices and its success, and at its gate only with approval
        assert before.stage <= state.stage
        for i in range(before.stage, state.stage):
            tallied = tally(some, state, reports)[i]
            assert not tallied.unoffered
            assert tallied.size == 0 or 0 < tallied.accepted >= some.stages[i].success * (tallied.size - tallied.absent)
            assert not some.stages[i + 1].gate or state.approved == i + 1
        # it goes on only below the error threshold, and stops only at or above it or when success is out of reach
        errors = [(count.errors, count.size) for count in tally(some, state, reports)[: state.stage + 1]]
        at_threshold = any(count and count >= some.error * size for count, size in errors)
        final, size = errors[-1]
        lost = final > 0 and size - final < some.stages[state.stage].success * size
        if state.phase in ("running", "waiting", "completed") and before.phase != "completed":
            assert not at_threshold
        if state.phase == "stopped" and before.phase != "stopped":
            assert at_threshold or lost
        before = state


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(PLANS, STEPS, st.integers(1, 30))
def test_the_same_call_again_does_nothing(some: RolloutPlan, steps: list[Step], count: int) -> None:
    for now, state, _, reports in played(some, steps, count):
        again, same = advance(some, state, reports, now)
        assert again == ()
        assert same == state
        caught_up = {
            name: report._replace(newest=max(report.newest, int(name in state.offers)))
            for name, report in reports.items()
        }
        assert advance(some, state, caught_up, now)[0] == ()


SHARES = st.fractions(min_value=Fraction(1, 1000), max_value=1, max_denominator=1000)
EVERYBODY = {name: frozenset[str]() for name in names(40)}
HALL = {
    name: frozenset({"hall"} if i < 10 else {"yard", "canary"} if i < 12 else ()) for i, name in enumerate(names(40))
}


@pytest.mark.long
@settings(max_examples=40)
@given(SHARES, SHARES, st.text(max_size=5), st.integers(1, 60))
def test_the_smaller_share_of_a_seed_is_contained_in_the_larger(
    a: Fraction, b: Fraction, seed: str, count: int
) -> None:
    devices = {name: frozenset[str]() for name in names(count)}
    (smaller,), (larger,) = (stages_of(plan(share=part, seed=seed), devices) for part in sorted((a, b)))
    assert larger[: len(smaller)] == smaller
    assert len(smaller) == ceil(min(a, b) * count) >= 1


def test_the_choice_depends_on_the_seed_and_not_on_the_order_of_devices() -> None:
    first, other = (stages_of(plan(share=10 * PERCENT, seed=seed), EVERYBODY) for seed in "ab")
    assert first != other
    assert stages_of(plan(share=10 * PERCENT, seed="a"), dict(reversed(EVERYBODY.items()))) == first
    # a fact of SHA-256, so that a later version chooses the same devices
    assert first == (("d001", "d037", "d002", "d000"),)


@pytest.mark.long
@given(st.lists(st.integers(1, 99), unique=True, max_size=5), st.integers(1, 60))
def test_stages_share_out_every_device_once_and_reach_their_shares(shares: list[int], count: int) -> None:
    devices = {name: frozenset[str]() for name in names(count)}
    wanted = [*sorted(shares), 100]
    stages = stages_of(plan(*wanted), devices)
    assert sorted(name for stage in stages for name in stage) == names(count)
    reached = 0
    for stage, part in zip(stages, wanted, strict=True):
        reached += len(stage)
        assert reached == ceil(Fraction(part, 100) * count)


def test_groups_canaries_and_targets() -> None:
    canary = Stage(group="canary")
    stages = stages_of(plan(canary, 10, 100), HALL)
    assert set(stages[0]) == {"d010", "d011"}
    assert len(stages[1]) in (2, 3, 4)
    assert sum(map(len, stages)) == 40
    (hall,) = stages_of(plan(groups=("hall",)), HALL)
    assert set(hall) == set(names(10))
    (yard,) = stages_of(plan(), HALL, Target("group", "yard"))
    assert set(yard) == {"d010", "d011"}
    assert stages_of(plan(), HALL, Target("device", "d030")) == (("d030",),)
    with pytest.raises(FleetError, match="none of the devices"):
        stages_of(plan(groups=("hall",)), HALL, Target("group", "yard"))
    with pytest.raises(FleetError, match="stage 1 has no device"):
        stages_of(plan(canary, 100, groups=("hall",)), HALL)


@pytest.mark.parametrize(
    ("text", "value"),
    [("3%", Fraction(3, 100)), (" 0.07 ", Fraction(7, 100)), ("1/3", Fraction(1, 3)), ("12.5 %", Fraction(1, 8))],
)
def test_shares_are_exact(text: str, value: Fraction) -> None:
    assert parse_share(text) == value


@pytest.mark.parametrize("text", ["", "%", "three", "1/0", "nan", "inf", "1e-300%", "-5%", "1/2/3", "0." + 30 * "1"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(FleetError, match="is no share"):
        parse_share(text)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: plan(50), "last stage"),
        (lambda: plan(50, 50, 100), "larger than the one before"),
        (lambda: plan(Stage(Fraction(1), gate=True)), "no gate"),
        (lambda: plan(error=0), "error threshold"),
        (lambda: plan(error=101), "error threshold"),
        (lambda: plan(success=0), "success threshold"),
        (lambda: plan(pace=0), "pace"),
        (lambda: plan(patience_seconds=0), "patience"),
        (lambda: plan(share=Fraction(0)), "share of 0"),
        (lambda: RolloutPlan(1, (), Fraction(1), 1, 1), "1 to 100 stages"),
        (lambda: Stage(), "either a share or a group"),
        (lambda: Stage(Fraction(1), "canary"), "either a share or a group"),
        (lambda: Stage(Fraction(3, 2)), "at most 1"),
    ],
)
def test_plans_that_contradict_themselves_are_refused(make: object, text: str) -> None:
    with pytest.raises(FleetError, match=text):
        make()


def test_a_plan_survives_being_written_down() -> None:
    rollout = plan(Stage(group="canary"), Stage(Fraction(1, 3), gate=True), 100, groups=("hall", "yard"), seed="x")
    assert RolloutPlan.from_json(rollout.to_json()) == rollout

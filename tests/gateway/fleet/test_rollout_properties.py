"""Rules for every plan, every behaviour of the devices, and every rhythm of calls."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.fleet.entries import Outcome, RolloutPlan, Stage
from gateway.fleet.rollouts import ACTIVE, advance, operated, tally
from gateway.fleet.rollouts import DeviceReport as Report
from gateway.fleet.rollouts import RolloutState as State
from tests.support.simulated_fleets import PERCENT, SECOND, START, Pretended, names, plan, started


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
        st.sampled_from(["accepted", "accepted", "accepted", "accepted", "refused", "failed", None]),
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
                state = operated(state, "pause", 0)
            case ("resume", "paused"):
                state = operated(state, "resume", now)
            case ("approve", "waiting"):
                state = operated(state, "approve", 0)
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
    for now, state, state_, reports in played(some, steps, count):
        # nobody gets it twice, and only devices of stages that are under way
        assert not given_at.keys() & set(state_)
        assert set(state_) <= {name for stage in state.stages[before.stage : state.stage + 1] for name in stage}
        assert not state_ or before.phase in ACTIVE
        given_at |= dict.fromkeys(state_, state.clock_us)
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

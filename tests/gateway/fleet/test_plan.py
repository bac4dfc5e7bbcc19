"""Who gets a document is a matter of the plan and the names alone, and a larger share holds the smaller."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.fleet.entries import FleetError, RolloutPlan, Stage, Target, share, stages_of
from tests.support.simulated_fleets import PERCENT, names, plan

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
    assert share(text) == value


@pytest.mark.parametrize("text", ["", "%", "three", "1/0", "nan", "inf"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(FleetError, match="is no share"):
        share(text)


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
        make()  # type: ignore[operator]


def test_a_plan_survives_being_written_down() -> None:
    rollout = plan(Stage(group="canary"), Stage(Fraction(1, 3), gate=True), 100, groups=("hall", "yard"), seed="x")
    assert RolloutPlan.from_json(rollout.to_json()) == rollout

"""A rollout to 500 simulated devices, 3 % refusing and 10 % offline: it ends exactly as its thresholds say."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gateway.fleet.entries import Stage
from tests.support.simulated_fleets import PERCENT, SECOND, START, SimulatedFleet, names, new_registry, plan

EVERYBODY = names(500)
CANARIES = EVERYBODY[:5]
_TROUBLED = random.Random(2026).sample(EVERYBODY[5:], 65)
OFFLINE, REFUSING = frozenset(_TROUBLED[:50]), frozenset(_TROUBLED[50:])


@pytest.mark.long
@pytest.mark.parametrize(
    ("success", "error", "patience", "phase", "stage"),
    [
        # 435 of 500 accept: enough without those that are off
        pytest.param(85, 10, 300, "completed", 3, marks=pytest.mark.soak),
        (95, 10, 60, "completed", 3),  # 435 of the 450 that could answer
        # the eighth of the last 247 refuses
        pytest.param(85, 3, 60, "stopped", 3, marks=pytest.mark.soak),
        (99, 10, 60, "stopped", 1),  # one of the first 50 refuses: 99 % will never accept
    ],
)
def test_it_completes_or_stops_exactly_as_its_thresholds_say(
    tmp_path: Path, success: int, error: int, patience: int, phase: str, stage: int
) -> None:
    path = tmp_path / "fleet.sqlite"
    registry = new_registry(path, EVERYBODY, canaries=CANARIES, versions=1)
    back_us = START + 3600 * SECOND
    fleet = SimulatedFleet(registry, refusing=REFUSING, offline=OFFLINE, back_us=back_us)
    canary = Stage(group="canary", success=100 * PERCENT)
    some = plan(canary, 10, 50, 100, success=success, error=error, pace=200, patience_seconds=patience, seed="2026")
    number = fleet.rollouts.draft(some, who="ann", time_us=START)
    fleet.rollouts.start(number, who="ann", time_us=START)
    for _ in range(3):  # the gateway is killed in the middle, thrice
        fleet.run(number, 40)
        fleet.reopen(path)
    ended = fleet.run(number, 3000)
    shown = fleet.rollouts.show(number)
    counts = {name: sum(getattr(tally, name) for tally in shown.tallies) for name in shown.tallies[0]._fields}
    print(
        f"success {success} %, error {error} %, patience {patience} s: {phase} in stage {shown.state.stage + 1} after "
        f"{ended['seconds']} s; {len(fleet.given)} documents; messages {dict(fleet.messages)}; {counts}; "
        f"{shown.state.cause}"
    )
    assert (shown.state.phase, shown.state.stage) == (phase, stage)
    assert len({device for _, device, _ in fleet.given}) == len(fleet.given)  # nobody was sent it twice
    times = [at for at, _, _ in fleet.given]
    assert all(later - earlier >= 60 * SECOND for earlier, later in zip(times, times[200:], strict=False))
    if phase == "stopped":
        last = shown.tallies[shown.state.stage]
        below_error = last.errors - 1 < some.error * last.size
        below_success = last.size - last.errors + 1 >= some.stages[stage].success * last.size
        assert below_error  # one fewer would not have stopped it
        assert below_success
        assert len(fleet.given) < 500
        before = len(fleet.given)
        fleet.now = back_us
        fleet.step()
        assert len(fleet.given) == before
        return
    assert len(fleet.given) == 500
    for _ in range(3):  # the last answers
        fleet.step()
    answers = [device.reported.outcome for device in fleet.registry.devices() if device.reported is not None]
    assert (answers.count("accepted"), answers.count("refused")) == (435, 15)
    while fleet.now < back_us + 10 * SECOND:  # those that were off catch up by the retained message
        fleet.step(60 if fleet.now < back_us - 60 * SECOND else 1)
    assert (
        sum(device.reported is not None and device.reported.in_force == 1 for device in fleet.registry.devices()) == 485
    )
    assert len(fleet.given) == 500

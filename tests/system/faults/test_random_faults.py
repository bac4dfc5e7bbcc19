"""Deaths, stops, full disks, wrong clocks and repetitions: nothing is lost, and nothing is told twice."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.support.fault_oracle import judge
from tests.support.fault_schedule import draw, failing, inflict
from tests.support.fault_world import World


@pytest.mark.long
def test_eight_random_faults_lose_nothing_and_tell_nothing_twice(tmp_path: Path) -> None:
    """All of different kinds, in the order and with the extent that chance gave them once."""
    run(tmp_path, 20373756, devices=2, period_us=40_000, faults=8, seconds=3.0, frame_ticks=10, window_ticks=50)


@pytest.mark.soak
def test_four_hundred_random_faults_of_ten_devices(tmp_path: Path) -> None:
    """Of every kind, power loss too; ticks are so slow that two cores keep up with all that starts again."""
    seed = int(os.environ.get("FAULTS_SEED", random.SystemRandom().randrange(2**32)))
    run(tmp_path, seed, devices=10, period_us=200_000, faults=400, seconds=300.0)


def run(folder: Path, seed: int, *, devices: int, period_us: int, faults: int, seconds: float, **ticks: int) -> None:
    """Build a fleet, let the faults of a seed happen to it, and judge what is left."""
    world = World(folder, devices=devices, period_us=period_us, **ticks)
    drawn = draw(seed, faults, world.names, seconds)
    if not drawn:
        pytest.skip("this machine permits none of these faults")
    print(f"FAULTS_SEED={seed}: {len(drawn)} faults in {seconds:.0f} s; time factor {world.time_factor:g}")
    world.clocks &= any("clock" in fault.kind for fault in drawn)  # asking one that can be set takes half of all time
    world.failing = failing(drawn)
    with world:
        world.wait_for_policies()
        inflict(world, drawn, print)
        world.recover()
        verdict = judge(world)
    print(verdict)
    assert not verdict.problems, str(verdict)
    assert verdict.figures["ticks"] > seconds * 1e6 / period_us * devices / 4, f"hardly anything happened: {verdict}"
    assert verdict.figures["releases published"] > 0, str(verdict)

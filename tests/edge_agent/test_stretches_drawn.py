"""Releases of a device at ticks drawn one after another, beside its policies' claims about such a stretch.

The class has no leakage (q = r = 0.5), so that a stretch loses what the windows around its own ticks tell, and no more.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.errors import GuaranteeError
from fugu.contract.guarantee import Guarantee
from fugu.contract.policy import Clock, Policy
from fugu.contract.stretches import Ceiling
from fugu.contract.windows import Window
from tests.support.agents import plan_of
from tests.support.clocked_device import Device
from tests.support.clocks import SECOND, TwoClocks
from tests.support.outboxes import window_frames
from tests.support.windows import policy

HOUR = 60
PERIOD = 60 * SECOND


def promising(epsilon: float, ticks: int, **changes: object) -> Policy:
    """Some ticks of every so many, counted with noise."""
    window = Window.model_validate({"name": "part", "states": ("high",), "scale": "10"} | changes)
    return policy(
        window,
        table=None,
        frame_ticks=1,
        windows_guarantee=None,
        clock=Clock(epoch_us=0, period_us=PERIOD),
        chains=BinaryChains(q=(0.5, 0.5), r=(0.5, 0.5)),
        guarantee=Guarantee(epsilon=epsilon, adversary="universal", stretch_ticks=ticks),
    )


def lost(device: Device, policies: list[Policy], ticks: int, switched: int = 1 << 60) -> Fraction:
    """The most that so many ticks in a row lose, at the worst output, by the frames that the device made."""
    scale = {window.name: Fraction(window.scale) for policy in policies for window in policy.windows}
    numbers = device.numbers
    released = [
        ([t for t in numbers if frame.first <= t < frame.first + frame.length], scale[frame.window])
        for frame in window_frames(device.outbox)
    ]
    assert all(len({t >= switched for t in inside}) < 2 for inside, _ in released)
    return max(
        sum(
            (Fraction(len(set(inside) & set(numbers[i : i + ticks]))) / noise for inside, noise in released), Fraction()
        )
        for i in range(len(numbers) - ticks + 1)
    )


@pytest.mark.parametrize("signed", [True, False])
def test_a_clock_that_is_set_forward_takes_no_stretch_beyond_what_is_said(tmp_path: Path, *, signed: bool) -> None:
    """Three jumps, at once by signed time or after the ten minutes that an unsigned one has to stay."""
    policy = promising(10.0, HOUR, length=10, stride=1440)
    bound = policy.bound(policy.verify())
    clocks = TwoClocks(20_000 * 86_400 + 43_200)
    device = Device(tmp_path, clocks, plan_of(policy))
    device.run(600, step=30)
    for _ in range(3):
        ahead = (clocks.wall // PERIOD // 1440 + 2) * 1440 * PERIOD - PERIOD // 2
        clocks.wall = ahead - ahead % SECOND - (0 if signed else 600 * SECOND)
        if signed:
            device.time.follow(clocks.wall // SECOND)
        device.run((0 if signed else 600) + 11 * 60, step=30)
    device.run(40 * 60, step=30)
    loss = lost(device, [policy], HOUR)
    device.stop()
    assert loss > 1  # ten ticks with noise of scale 10 are what one grid has of an hour
    assert loss <= bound.epsilon(HOUR)


def test_a_change_of_policy_takes_no_stretch_beyond_what_the_larger_bound_says(tmp_path: Path) -> None:
    policies = [
        promising(2.1, 20, length=10, stride=100),
        promising(2.1, 20, length=10, stride=100, start=10, name="next"),
    ]
    bounds = [policy.bound(policy.verify()) for policy in policies]
    plans = [plan_of(policy) for policy in policies]
    switch = 300_010
    clocks = TwoClocks((switch - 15) * 60)
    device = Device(tmp_path, clocks, plans[0])
    while not device.numbers or device.numbers[-1] < switch - 1:
        device.run(30, step=30)
    device.ticks.switch([replace(plans[1], version=2)], lambda: None)
    device.run(25 * 60, step=30)
    loss = lost(device, policies, 20, switch)
    device.stop()
    assert loss == 2  # ten ticks by each policy
    assert loss <= max(bound.epsilon(20) for bound in bounds)


def test_documents_one_after_another_are_held_to_a_ceiling_as_if_each_counted_every_tick() -> None:
    """Each counts another tick of an hour: so many told 51 nats of fifty minutes under a ceiling of 1.01."""
    policy = promising(1.01, HOUR, length=1, stride=3600, scale="1")
    with pytest.raises(GuaranteeError, match="about 60 ticks in a row"):
        policy.verify()
    every = promising(60.001, HOUR, length=1, stride=3600, scale="1")
    every.verify(Ceiling(epsilon=51.01, seconds=50 * 60))
    with pytest.raises(GuaranteeError, match="above this device's ceiling"):
        every.verify(Ceiling(epsilon=50.99, seconds=50 * 60))

"""A device's randomness, from the bytes that it publishes: each output against the distribution that it should have."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fugu.audit.distributions import count_cells, point_cells, symbol_distribution
from fugu.audit.draws import Alarm, Tested, checked, related
from fugu.contract.measure_frames import Point
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.measure_table import StaircaseNoise
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy

__all__ = ["device_tests"]

_Sample = tuple[str, NDArray[np.integer], NDArray[np.float64]]


def device_tests(
    policy: AnyPolicy,
    symbols: Mapping[int, bytes | bytearray],
    noise: Mapping[tuple[int, str], array[int]],
    points: Mapping[tuple[int, int], Sequence[Point]],
    false_alarms: float,
) -> list[Tested]:
    """Test all outputs of a device whose readings stayed the same: each by itself, and every two of them.

    Args:
        policy: that it ran.
        symbols: by state.
        noise: of counts, by state and window.
        points: by state and number of the table.
        false_alarms: probability of any alarm at all, if the device is as it should be.
    """
    samples = [sample for sample in _samples(policy, symbols, noise, points) if sample[1].size]
    tested = [checked(of, cells, distribution, false_alarms / 2 / len(samples)) for of, cells, distribution in samples]
    pairs = list(combinations(samples, 2))
    for (of, one, distribution), (also, other, other_distribution) in pairs:
        if alarms := related((one, distribution), (other, other_distribution), false_alarms / 2 / len(pairs)):
            tested.append(Tested(f"{of}, and {also}", min(one.size, other.size), tuple(alarms), 1.0, None))
    for (_, number), released in points.items():
        if isinstance(policy, MeasurePolicy) and policy.table(number) is None:
            alarm = Alarm("tables", "the policy has no such table")
            tested.append(Tested(f"points of table {number}", len(released), (alarm,), 1.0, None))
    return tested


def _samples(
    policy: AnyPolicy,
    symbols: Mapping[int, bytes | bytearray],
    noise: Mapping[tuple[int, str], array[int]],
    points: Mapping[tuple[int, int], Sequence[Point]],
) -> Iterator[_Sample]:
    names = policy.discretiser.states
    for state, drawn in symbols.items():
        assert isinstance(policy, Policy)
        assert policy.table is not None
        cells = np.frombuffer(drawn, dtype=np.uint8)
        yield f"symbols of {names[state]}", cells, symbol_distribution(policy.table, state)
    for (state, name), counts in noise.items():
        assert isinstance(policy, Policy)
        window = policy.window(name)
        assert window is not None
        yield f"window {name} of {names[state]}", *count_cells(counts, Fraction(window.scale))
    for (state, number), released in points.items():
        assert isinstance(policy, MeasurePolicy)
        if (table := policy.table(number)) is None:
            continue
        likely = table.noise.likely if isinstance(table.noise, StaircaseNoise) else 1
        centre = policy.measurement.centres(likely)[state]
        yield f"points of {names[state]}, table {number}", *point_cells(released, table.noise, state, centre)

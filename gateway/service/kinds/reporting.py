"""What a stored frame says for people: its reports, made of what is known about its newest ticks.

All of it is computed from what the device has published, and from its policy.
"""

from __future__ import annotations

import math
from datetime import datetime
from fractions import Fraction

import numpy as np

from fugu.chains.arrays import Floats
from fugu.contract.descriptions import PlaceGrid
from fugu.contract.frames import WindowFrame
from fugu.contract.policy import Policy, PolicyHeader
from fugu.contract.reports import PlaceEstimate, StateEstimate, ValueEstimate, WindowCount, ellipse
from fugu.contract.sentences import instant
from gateway.service.kinds.point_model import MeasureModel

__all__ = ["measured_estimate", "state_estimate", "window_count"]

CONFIDENCE = 0.95
_DIGITS, _DEGREE_DIGITS, _METRE_DIGITS, _ANGLE_DIGITS = 6, 7, 1, 4


def state_estimate(policy: Policy, first: int, last: int, shift: int, shares: Floats, now: Floats) -> StateEstimate:
    """The report of a frame of symbols.

    Args:
        first, last, shift: of the frame.
        shares: (k,), the means over its ticks of the probabilities of the states.
        now: (k,), those of its last tick.
    """
    labels = policy.discretiser.states
    likely = int(now.argmax())
    return StateEstimate(
        time=_time(policy, last, shift),
        since=_time(policy, first, shift),
        tick=last,
        ticks=last - first + 1,
        state=labels[likely],
        probability=round(float(now[likely]), _DIGITS),
        shares={label: round(share, _DIGITS) for label, share in zip(labels, shares.tolist(), strict=True)},
        epsilon=policy.guarantee.epsilon,
        adversary=policy.guarantee.adversary,
        useful=policy.useful_for == "state",
    )


def measured_estimate(
    model: MeasureModel, tick: int, shift: int, distribution: Floats, protection: int
) -> PlaceEstimate | ValueEstimate:
    """The report of the newest tick of a frame of points: a place if the policy says where its states are.

    Args:
        shift: of the frame.
        distribution: (N,), the probabilities of the measured states.
        protection: as `MeasureModel.degree`.
    """
    policy = model.policy
    values = model.values * np.array(policy.resolution)
    mean = distribution @ values
    time, promise = _time(policy, tick, shift), policy.stream_loss
    told = (protection, promise.epsilon, promise.adversary)
    if model.grid is not None:
        latitude, longitude = model.grid.located(float(mean[0]), float(mean[1]))
        accuracy = round(_accuracy(model.grid, latitude, values - mean, distribution), _METRE_DIGITS)
        outline = _outline(model.grid, latitude, values, distribution)
        degrees = round(latitude, _DEGREE_DIGITS), round(longitude, _DEGREE_DIGITS)
        place = (*degrees, accuracy, *outline)
        useful = policy.useful_for == "place"
        return PlaceEstimate(time, tick, *place, *told, useful)
    columns = [_interval(values[:, axis], distribution, float(mean[axis])) for axis in range(values.shape[1])]
    low, middle, high = zip(*columns, strict=True)
    return ValueEstimate(time, tick, middle, low, high, policy.unit or None, *told, False)


def window_count(policy: Policy, frame: WindowFrame) -> WindowCount:
    """The report of a window that a device has counted."""
    window = policy.window(frame.window)
    assert window is not None
    labels = policy.discretiser.states
    off = noise_within(Fraction(window.scale), CONFIDENCE)
    return WindowCount(
        time=_time(policy, frame.last + 1, frame.shift),
        since=_time(policy, frame.first, frame.shift),
        window=frame.window,
        states=tuple(labels[state] for state in window.counted(labels)),
        values=tuple(float(count) for count in frame.counts),
        low=tuple(float(count - off) for count in frame.counts),
        high=tuple(float(count + off) for count in frame.counts),
        confidence=CONFIDENCE,
        observed=frame.observed,
        epsilon=policy.guarantee.epsilon,
        adversary=policy.guarantee.adversary,
        useful=policy.useful_for == "share",
    )


def noise_within(scale: Fraction, confidence: float) -> int:
    """The least h >= 0 such that discrete Laplace noise of a scale is in -h..h with this probability.

    Outside of -h..h it is with probability 2 a^(h+1) / (1 + a), where a = e^(-1/scale).
    """
    spread = float(scale)
    most = (1.0 - confidence) * (1.0 + math.exp(-1.0 / spread)) / 2.0
    return max(0, math.ceil(-spread * math.log(most)) - 1)


def _time(policy: PolicyHeader, tick: int, shift: int) -> datetime:
    """When a tick was, by the wall clock; a `FrameRangeError` after the year 9999."""
    return instant(policy.clock.epoch_us + (tick - shift) * policy.clock.period_us)


def _accuracy(grid: PlaceGrid, latitude: float, away: Floats, distribution: Floats) -> float:
    """Metres that the true place is within with probability .95, wherever in its cell it is.

    Args:
        away: (N, 2), of each state, to the east and to the north, in the unit of the measurement.
    """
    metres = np.array(grid.metres(latitude))
    distance = np.hypot(*(away * metres).T)
    assert grid.cell_size is not None
    corner = math.hypot(*(metres * np.array(grid.cell_size))) / 2.0
    return _quantile(distance, distribution, CONFIDENCE) + corner


def _outline(grid: PlaceGrid, latitude: float, values: Floats, distribution: Floats) -> tuple[float, float, float]:
    """Half-axes in metres, rounded up, and orientation of the ellipse that holds the true place likewise.

    Args:
        values: (N, 2), of each state, in the unit of the measurement.
    """
    east, north = grid.metres(latitude)
    assert grid.cell_size is not None
    cell = grid.cell_size[0] * east, grid.cell_size[1] * north
    found = ellipse((values * np.array((east, north))).tolist(), distribution.tolist(), cell, CONFIDENCE)
    major, minor = (math.ceil(axis * 10.0**_METRE_DIGITS) / 10.0**_METRE_DIGITS for axis in found[2:4])
    return major, minor, round(found.orientation, _ANGLE_DIGITS) % 180.0


def _interval(values: Floats, distribution: Floats, mean: float) -> tuple[float, float, float]:
    """Low end, mean and high end of what holds a number with probability .95."""
    low, high = (_quantile(values, distribution, tail) for tail in ((1.0 - CONFIDENCE) / 2.0, (1.0 + CONFIDENCE) / 2.0))
    return round(min(low, mean), _DIGITS), round(mean, _DIGITS), round(max(high, mean), _DIGITS)


def _quantile(values: Floats, distribution: Floats, probability: float) -> float:
    """The least of some values that is not exceeded with a probability."""
    order = values.argsort(kind="stable")
    place = int(np.searchsorted(distribution[order].cumsum(), probability))
    return float(values[order[min(place, len(order) - 1)]])

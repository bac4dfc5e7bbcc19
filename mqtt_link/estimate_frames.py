"""Readings of estimates in msgpack (schemas 4 and 9), as gateways publish them that do not yet publish reports."""

from __future__ import annotations

from typing import NamedTuple

from contract.frames import decode_estimate
from contract.measure_frames import MEASURE_ESTIMATE, decode_measure_estimate

__all__ = ["MeasureEstimateReading", "TickEstimateReading", "estimate_readings"]


class TickEstimateReading(NamedTuple):
    """The gateway's belief about one tick.

    Attributes:
        shift: as for symbols.
    """

    device: str
    stream: str
    tick: int
    probabilities: tuple[float, ...]
    most_likely: int
    shift: int = 0


class MeasureEstimateReading(NamedTuple):
    """The gateway's estimate of a measurement at one tick.

    Attributes:
        mean: d numbers, in the policy's unit.
        covariance: the entries on and above the diagonal of the covariance, row by row.
        protection: the least number of possible states that any one is hidden among; 0 if nothing was released.
        lag: ticks of later points that it has seen; each tick is told with and without.
        shift: as for symbols.
    """

    device: str
    stream: str
    tick: int
    mean: tuple[float, ...]
    covariance: tuple[float, ...]
    protection: int
    lag: int
    shift: int = 0


def estimate_readings(
    device: str, stream: str, payload: bytes
) -> list[TickEstimateReading] | list[MeasureEstimateReading]:
    """The readings in a message about a stream of a device.

    Raises:
        FuguError: it is no valid estimate.
    """
    if payload[:1] == bytes([MEASURE_ESTIMATE]):
        measured = decode_measure_estimate(payload)
        rows = zip(measured.means, measured.covariances, measured.protection, strict=True)
        first, lag = measured.first, measured.lag
        seen = (lag, measured.shift)
        return [MeasureEstimateReading(device, stream, tick, *row, *seen) for tick, row in enumerate(rows, first)]
    estimate = decode_estimate(payload)
    return [
        TickEstimateReading(device, stream, estimate.first + i, row, estimate.most_likely[i], estimate.shift)
        for i, row in enumerate(estimate.probabilities)
    ]

"""Measured streams for tests: walks on small grids, their policies, and frames of points."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fugu.contract.discretisers import Categories
from fugu.contract.frames import MAX_TICK
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.measure_policy import MeasurePolicy, StreamLoss, sparse_rows
from fugu.contract.measure_table import TimedTable, set_of
from fugu.contract.measurement import Measurement
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Clock
from fugu.places.hull import complete_hull
from fugu.places.protection import protect
from fugu.places.tables import compile_noise, fallback_noise


def grid(side: int, *, stay: bool = True) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The cells of a square grid, and a walk that stays or steps to a neighbour, all equally likely."""
    values = np.array([(i % side, i // side) for i in range(side * side)], dtype=np.int64)
    away = np.abs(values[:, None, :] - values[None, :, :]).sum(axis=2)
    steps = (away == 1) | (stay & (away == 0))
    return values, steps / steps.sum(axis=1, keepdims=True)


def measure_policy(
    side: int = 4,
    *,
    graph: dict[str, Any] | None = None,
    epsilon: float = 1.0,
    factor: int = 4,
    start: int | None = None,
    tables: bool = True,
    **fields: Any,
) -> MeasurePolicy:
    """The policy of a walk on a grid, one step at a time; `tables`: with the table for "every state is possible"."""
    values, transition = grid(side)
    count = len(values)
    distribution = np.full(count, 1.0 / count) if start is None else np.eye(count)[start]
    document: dict[str, Any] = {
        "fleet": "home",
        "device": "watch",
        "stream": "place",
        "version": 1,
        "clock": Clock(epoch_us=0, period_us=1_000_000),
        "frame_ticks": 10,
        "discretiser": Categories(
            categories={f"c{x}": x for x in range(count)}, states=tuple(f"c{x}" for x in range(count))
        ),
        "coordinates": tuple(map(tuple, values.tolist())),
        "resolution": (1.0, 1.0),
        "transition": sparse_rows(transition.tolist()),
        "initial": tuple(distribution.tolist()),
        "graph": {kind: _tuples(value) for kind, value in (graph or {"radius": 1.0}).items()},
        "epsilon": epsilon,
        "factor": factor,
        "degree": 2,
        "stream_loss": StreamLoss(epsilon=None, adversary="ignorant"),
        **fields,
    }
    version = document["version"]
    fallback = TimedTable(version, 0, 0, 0, MAX_TICK + 1, fallback_noise(values, epsilon))
    encoded = []
    if tables:
        everywhere = np.ones(count, dtype=np.bool_)
        measurement = Measurement.of({**document, "transition": document["transition"]})
        neighbours = np.array([[bool(others >> y & 1) for y in range(count)] for others in measurement.neighbours])
        protection = protect(values, neighbours, everywhere)
        hull = protection.hull if protection.factor <= factor else protection.hull.capped(complete_hull(values), factor)
        noise = compile_noise(hull, values, everywhere, epsilon)
        encoded = [TimedTable(version, 1, set_of(range(count)), 0, MAX_TICK + 1, noise).text]
    return MeasurePolicy.model_validate({**document, "fallback": fallback.text, "tables": tuple(encoded)})


def measure_frames(
    policy: MeasurePolicy,
    sizes: Sequence[int],
    *,
    gaps: Sequence[int] = (),
    tables: Sequence[int] = (1,),
    seed: int = 1,
) -> list[MeasureFrame]:
    """A device's frames: so many ticks each, so many ticks without a frame before each, drawn for a simulated walk."""
    generator = random.Random(seed)
    ticks = sum(sizes) + sum(gaps[i % len(gaps)] for i in range(len(sizes)) if gaps)
    states = generator.choices(range(len(policy.coordinates)), policy.initial)
    for _ in range(ticks - 1):
        following, weights = zip(*policy.transition[states[-1]], strict=True)
        states += generator.choices(following, weights)
    frames, previous = [], -1
    for i, size in enumerate(sizes):
        first = previous + 1 + (gaps[i % len(gaps)] if gaps else 0)
        released = []
        for tick in range(first, first + size):
            table = policy.table(tables[tick % len(tables)])
            assert table is not None
            assert isinstance(table.noise, NoiseTable)
            output = table.noise.draw(states[tick], generator.randrange(SCALE))
            released.append(Released(table.number, table.noise.points[output]))
        frames.append(MeasureFrame(policy.version, previous, first, 2, tuple(released)))
        previous = frames[-1].last
    return frames


def _tuples(value: Any) -> Any:
    """Lists, as JSON has them, as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def decoded_covariance(entries: Sequence[float]) -> NDArray[np.float64]:
    """A covariance matrix from the entries on and above its diagonal."""
    size = (math.isqrt(8 * len(entries) + 1) - 1) // 2
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = entries
    return matrix + np.triu(matrix, 1).T

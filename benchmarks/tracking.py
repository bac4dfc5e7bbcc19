"""Tracking of places: compiled kernels beside numpy and scipy, in one run: python benchmarks/tracking.py.

A walk over a grid of cells, 100 ticks, each with a release; the forward pass, and the smoother with a lag of 8 ticks.
Sparse: a step leads to a neighbouring cell. Dense: to any cell. Medians of turns; both give the same to 1e-12.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from fugu.chains.arrays import Floats
from fugu.chains.tracking import fixed_lag, follow, moves_of

sys.path.insert(0, str(Path(__file__).parents[1]))

from figures import say_machine, times_in_turns

from tests.support import naive_tracking

SIDES, TICKS, LAG, TURNS = (6, 20, 50), 100, 8, 7


def transition(side: int, *, sparse: bool) -> Floats:
    """A walk over side x side cells."""
    generator = np.random.default_rng(side)
    x, y = np.arange(side**2) % side, np.arange(side**2) // side
    away = np.maximum(abs(x[:, None] - x), abs(y[:, None] - y))
    steps = (away <= 1 if sparse else np.exp(-away / 4.0)) * generator.random((side**2, side**2))
    return np.asarray(steps / steps.sum(axis=1, keepdims=True))


def compare(side: int, *, sparse: bool) -> None:
    """Print milliseconds of both, and their ratio."""
    generator, matrix = np.random.default_rng(1), transition(side, sparse=sparse)
    states = len(matrix)
    seen: list[Floats | None] = [generator.random(states) for _ in range(TICKS)]
    distribution = np.full(states, 1.0 / states)
    moves, kinds = moves_of([matrix]), np.zeros(TICKS - 1, dtype=np.int64)
    steps = [naive_tracking.stepping(matrix)] * (TICKS - 1)
    ours, twin = follow(distribution, moves, kinds, seen), naive_tracking.follow(distribution, steps, seen)
    assert np.allclose(ours.beliefs, twin.beliefs, rtol=0, atol=1e-12)
    tasks: dict[str, dict[str, Callable[[], object]]] = {
        "filter": {
            "kernels": lambda: follow(distribution, moves, kinds, seen),
            "numpy": lambda: naive_tracking.follow(distribution, steps, seen),
        },
        "smoother": {
            "kernels": lambda: fixed_lag(ours, moves, kinds, LAG),
            "numpy": lambda: naive_tracking.fixed_lag(twin, steps, LAG),
        },
    }
    for name, pair in tasks.items():
        kernel, numpy = (1e3 * statistics.median(times) for times in times_in_turns(pair, TURNS).values())
        form = "sparse" if len(moves.dense) == 0 else "dense"
        print(f"  {states:5d} cells, {form:7s}{name:10s}{kernel:10.2f}{numpy:10.2f}{numpy / kernel:8.2f}")


def main() -> None:
    """Compare all sizes."""
    say_machine()
    print(f"{TICKS} ticks, lag {LAG}; milliseconds")
    print(f"  {'':29s}{'kernels':>10s}{'numpy':>10s}{'ratio':>8s}")
    for side in SIDES:
        for sparse in (True, False):
            compare(side, sparse=sparse)


if __name__ == "__main__":
    main()

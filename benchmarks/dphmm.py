"""Private measurements: how long a tick takes, and what a policy costs in error: python benchmarks/dphmm.py.

Times are for one stream on one thread, medians of several runs in turns with a peer. The peer is the obvious pipeline
in floating point, with every edge's difference and scipy.spatial.ConvexHull (qhull). Ours decides in integers. The
second part is the check that a device makes before it uses a table, in plain Python.

The third part is the evaluation of Xiao et al. (DPHMM, figures 11 to 13) in kind, on a walk over a grid, over time,
against epsilon, and against the radius. They are the degree of protection, averaged over the possible states, and two
errors. These are of the released point and of the gateway's estimate (root mean squares, in steps of the grid).
"""

from __future__ import annotations

import math
import os
import sys
from functools import partial
from pathlib import Path
from statistics import median

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from fugu.chains.arrays import Bools, Ints
from fugu.chains.tracking import reachable
from fugu.contract.measure_table import set_of
from fugu.contract.measurement import Measurement, check_noise
from fugu.places.graphs import complete, delta_set, lattice
from fugu.places.protection import protect
from fugu.places.tables import build_table, noise_table

sys.path.insert(0, str(Path(__file__).parents[1]))

from figures import times_in_turns

from papers.graphs import one_step, within_radius
from papers.walks import Series, Step, Walk, evaluate, grid, overall, paths, schedule, step_of, walk_over

FloatArray = NDArray[np.float64]

RUNS = 9
CALLS = {100: 10, 1000: 2}
"""In a row, by number of states."""
DELTA = 0.05
SIDE = 10
TICKS = 24
FEWEST_TICKS = 6  # before that the walk has not spread far
WALKS = 400
FEW_WALKS = 25
TARGETS = {100: 1e-3, 1000: 50e-3}
"""Seconds for a tick whose constraint set is new."""


def naive_step(values: Ints, graph: Bools, transition: FloatArray, before: Bools) -> tuple[Bools, NDArray[np.int64]]:
    """A tick of the obvious pipeline: the constraint set that follows `before`, and the degrees of protection in it."""
    constraint: Bools = np.asarray(transition[before].any(axis=0))
    first, second = np.nonzero(graph & constraint[:, None] & constraint[None, :])
    hull = ConvexHull((values[first] - values[second]).astype(np.float64))
    states = values[constraint].astype(np.float64)
    within = np.ones((len(states), len(states)), dtype=np.bool_)
    for *normal, offset in hull.equations:
        heights = states @ np.array(normal)
        within &= heights[:, None] - heights[None, :] <= 1e-9 - offset
    return constraint, within.sum(axis=1)


def beliefs(walk: Walk, count: int) -> list[FloatArray]:
    """Beliefs as a filter might have them when the whole walk is possible: a bump around some state."""
    generator = np.random.default_rng(5)
    arrays = []
    for centre in generator.choice(len(walk.values), count):
        away = np.sum((walk.values - walk.values[centre]) ** 2, axis=1)
        bump = np.exp(-away / (0.05 * away.max())) * generator.random(len(away))
        arrays.append(bump / bump.sum())
    return arrays


def time_ticks(name: str, walk: Walk, graph: Bools) -> None:
    """Print the times of a tick, for the widest constraint sets of a walk, and for delta-location sets."""
    count = len(walk.values)
    plan = schedule(walk.initial, walk.transition)
    tick = max(1, len(plan.constraints) - 3)  # nearly full: more to do than at any other tick
    calls = CALLS[count]
    waiting = iter(beliefs(walk, (RUNS + 1) * calls))
    before, possible = plan.at(tick - 1), walk.transition > 0.0
    everywhere = np.ones(count, dtype=np.bool_)

    def new() -> Step:
        constraint = reachable(before, possible)
        return step_of(walk.values, graph, constraint, constraint)

    def delta() -> Step:
        return step_of(walk.values, graph, everywhere, delta_set(next(waiting), DELTA))

    constraint, degrees = naive_step(walk.values, graph, walk.transition, before)
    apart = int(np.sum(new().degrees[constraint] != degrees))
    peer = partial(naive_step, walk.values, graph, walk.transition, before)
    times = times_in_turns({"new": new, "peer": peer, "delta": delta}, RUNS, calls)
    own_ms, peer_ms, delta_ms = (1e3 * median(seconds) for seconds in times.values())
    late = "   LATE" if own_ms > 1e3 * TARGETS[count] else ""
    differs = f"   qhull differs for {apart} states" if apart else ""
    print(f"  {name:28s}{own_ms:10.2f}{peer_ms:12.2f}{peer_ms / own_ms:10.1f}{delta_ms:12.2f}{late}{differs}")


def show_times() -> None:
    """Time ticks on grids and on random places."""
    print("One tick: constraint set, graph, hull, degrees of protection")
    print(f"  {'':28s}{'new, ms':>10s}{'qhull, ms':>12s}{'/new':>10s}{'delta, ms':>12s}")
    generator = np.random.default_rng(0)
    for count, (rows, columns) in ((100, (10, 10)), (1000, (25, 40))):
        span = int(30 * math.sqrt(count))
        places = {
            "grid": (grid(rows, columns), 1.0),
            "random": (lattice(generator.integers(0, span, (count, 2))), 30.0),
        }
        for place, (values, unit) in places.items():
            walk = walk_over(values, 1.5 * unit, count // 2)
            graphs = {
                "radius 2": within_radius(values, 2 * unit),
                "one step": one_step(walk.transition),
                "complete": complete(count),
            }
            for kind, graph in graphs.items():
                time_ticks(f"{count} states, {place}, {kind}", walk, graph)
    print(f"  wanted: {TARGETS[100] * 1e3:g} ms for 100 states, {TARGETS[1000] * 1e3:g} ms for 1000")


def show_certification() -> None:
    """Time the device's check of a table, in plain Python."""
    print("\nA device checks a table before it draws from it: 36 states, epsilon 1, plain Python")
    print(f"  {'':28s}{'outputs':>10s}{'pairs':>10s}{'ms':>10s}")
    values = grid(6, 6)
    everywhere = np.ones(36, dtype=np.bool_)
    for name, graph in (("radius 2", within_radius(values, 2)), ("complete", complete(36))):
        protection = protect(values, graph, everywhere)
        noise = noise_table(build_table(protection.hull, values, everywhere, 1))
        measurement = Measurement(
            coordinates=tuple((int(x), int(y)) for x, y in values),
            neighbours=tuple(set_of(np.flatnonzero(row).tolist()) for row in graph),
            successors=(set_of(range(36)),) * 36,
            initial=set_of(range(36)),
            epsilon=1.0,
            factor=math.ceil(protection.factor),
        )
        check = partial(check_noise, measurement, noise, measurement.initial)
        seconds = median(times_in_turns({name: check}, RUNS)[name])
        print(f"  {name:28s}{len(noise.points):10d}{int(graph.sum()) // 2:10d}{seconds * 1e3:10.2f}")


def evaluated(walk: Walk, graph: Bools, epsilon: float, delta: float = 0.0) -> Series:
    """Simulate a policy, with fewer runs where every belief has a delta-location set of its own, and so a table."""
    truth = paths(walk, FEW_WALKS if delta else WALKS, TICKS, np.random.default_rng(11))
    return evaluate(walk, graph, epsilon, truth, delta)


def show_evaluation() -> None:
    """Print the evaluation over time, against epsilon, and against the radius."""
    values, centre = grid(SIDE, SIDE), SIDE // 2 * SIDE + SIDE // 2
    names = "G_util", "G_trs", f"G_util, delta {DELTA:g}"
    print(
        f"\nA walk on {SIDE} x {SIDE} cells from the middle. G_util joins cells within radius r, G_trs those that one"
    )
    print(
        f"step of at most r can lead to. {WALKS} runs; {FEW_WALKS} with delta-location sets. In each column: degree of"
    )
    print("protection, error of the released point, error of the estimate")
    print("\n  " + f"{'':12s}" + "".join(f"{name:>24s}" for name in names))

    def row(label: str, numbers: list[tuple[float, float, float]]) -> None:
        print(f"  {label:12s}" + "".join(f"{a:10.1f}{b:7.2f}{c:7.2f}" for a, b, c in numbers))

    def policies(radius: float, epsilon: float) -> list[Series]:
        walk = walk_over(values, radius, centre)
        util, trs = within_radius(values, radius), one_step(walk.transition)
        return [evaluated(walk, util, epsilon), evaluated(walk, trs, epsilon), evaluated(walk, util, epsilon, DELTA)]

    def late_row(label: str, evaluations: list[Series]) -> None:
        row(label, [overall(evaluation, FEWEST_TICKS) for evaluation in evaluations])

    base = policies(1.5, 1.0)
    for tick in (0, 1, 2, 3, 5, 8, 12, 18, TICKS - 1):
        row(f"tick {tick}", [(each.protection[tick], each.released[tick], each.estimated[tick]) for each in base])
    print(f"\n  from tick {FEWEST_TICKS} on, r = 1.5")
    for epsilon in (0.3, 1.0, 3.0):
        late_row(f"epsilon {epsilon:g}", base if epsilon == 1.0 else policies(1.5, epsilon))
    print(f"\n  from tick {FEWEST_TICKS} on, epsilon 1")
    for radius in (1.0, 1.5, 2.0, 3.0):
        late_row(f"r = {radius:g}", base if radius == 1.5 else policies(radius, 1.0))


def main() -> None:
    """Run everything and print it."""
    show_times()
    show_certification()
    show_evaluation()


if __name__ == "__main__":
    main()

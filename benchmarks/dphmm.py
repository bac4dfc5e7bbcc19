"""Private measurements: how long a tick takes, and what a policy costs in error: python benchmarks/dphmm.py.

Times are for one stream on one thread, medians of several runs in turns with a peer: the obvious pipeline in floating
point, with every edge's difference and scipy.spatial.ConvexHull (qhull). Ours decides in integers. The second part is
the check that a device makes before it uses a table, in plain Python.

The third part is a tick of ten thousand devices of a hundred cells, each with a point of its own: reachable sets, and
the forward, backward and fixed-lag laws. Times there are processor time, the least of several runs in turns, beside a
copy of the same arrays (or, for a full transition, the product of matrices by BLAS), and beside a loop in numpy over
the devices, which is what the gateway did before.

The fourth part is the evaluation of Xiao et al. (DPHMM, figures 11 to 13) in kind, on a walk over a grid: the degree of
protection, averaged over the possible states, and the errors of the released point and of the gateway's estimate
(root mean squares, in steps of the grid), over time, against epsilon, and against the radius.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from contract.measure_check import check_noise
from contract.measure_table import set_of
from contract.measurement import Measurement
from gateway.chain.arrays import Bools, Ints
from gateway.chain.moves import Transition, reached
from gateway.chain.tracking import Seen, advance, fixed_lag, follow, smoothed
from gateway.dphmm.compiled import noise_table
from gateway.dphmm.constraints import delta_set, schedule, successors, surrogates
from gateway.dphmm.graphs import complete, lattice, one_step, within_radius
from gateway.dphmm.protection import Protection, degree_of_protection, protect, protect_kept
from gateway.dphmm.tables import TableWeights, build_table, fallback_table

FloatArray = NDArray[np.float64]

RUNS = 9
CALLS = {100: 10, 1000: 2}
"""In a row, by number of states."""
DELTA = 0.05
SIDE = 10
TICKS = 24
FEWEST_TICKS = 6  # before that the walk has not spread far
WALKS = 400
FEW_WALKS = 25  # every belief has a delta-location set of its own, and so a table
TARGETS = {100: 1e-3, 1000: 50e-3}
"""Seconds for a tick whose constraint set is new."""


DEVICES, TURNS = 10_000, 80
MOST = {"eight neighbours": 6.0, "full": 2.0}
"""Times a copy of the arrays, and times the product by BLAS, that a tick may take."""


class Walk(NamedTuple):
    """A hidden state that moves over measured places.

    Attributes:
        values: f, N x d.
        transition: N x N: a step to itself or to any neighbour is as likely as any other.
        start: the state at tick 0.
    """

    values: Ints
    transition: FloatArray
    start: int

    @property
    def initial(self) -> Bools:
        """The states possible at tick 0, N booleans."""
        return np.asarray(np.arange(len(self.values)) == self.start)


class Step(NamedTuple):
    """What holds while some states are possible and some of them have rows of their own: hull and degrees."""

    protection: Protection
    degrees: NDArray[np.int64]


class Series(NamedTuple):
    """What a policy costs, tick by tick.

    Attributes:
        protection: degree of protection, averaged over the possible states and the runs.
        released: root mean square error of the released point.
        estimated: of the forward filter's posterior mean.
    """

    protection: FloatArray
    released: FloatArray
    estimated: FloatArray


def walk_over(values: Ints, reach: float, start: int) -> Walk:
    """A walk with steps up to a radius."""
    steps = within_radius(values, reach) | np.eye(len(values), dtype=np.bool_)
    return Walk(values, steps / steps.sum(axis=1, keepdims=True), start)


def grid(rows: int, columns: int) -> Ints:
    """The cells of a grid, row by row."""
    return lattice(np.indices((rows, columns)).reshape(2, -1).T)


def median_times(tasks: dict[str, Callable[[], object]], calls: int = 1) -> dict[str, float]:
    """Median seconds of a call of each task, the tasks taking turns of some calls; one unmeasured turn first."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(RUNS + 1):
        for name, run in tasks.items():
            started = time.perf_counter()
            for _ in range(calls):
                run()
            if turn:
                times[name].append((time.perf_counter() - started) / calls)
    return {name: statistics.median(values) for name, values in times.items()}


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


def step_of(values: Ints, graph: Bools, reachable: Bools, kept: Bools) -> Step:
    """The same by this library."""
    found = protect_kept(values, graph, reachable, kept)
    return Step(found, degree_of_protection(found.hull, values[surrogates(values, kept)], reachable))


def table_of(values: Ints, step: Step, kept: Bools, epsilon: float) -> TableWeights:
    """The table that the device draws from."""
    if not np.any(values[kept] != values[kept][0]):
        return fallback_table(values, epsilon)
    return build_table(step.protection.hull, values, kept, epsilon)


def beliefs(walk: Walk, count: int) -> list[FloatArray]:
    """Beliefs as a filter might have them when the whole walk is possible: a bump around some state."""
    generator = np.random.default_rng(5)
    found = []
    for centre in generator.choice(len(walk.values), count):
        away = np.sum((walk.values - walk.values[centre]) ** 2, axis=1)
        bump = np.exp(-away / (0.05 * away.max())) * generator.random(len(away))
        found.append(bump / bump.sum())
    return found


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
        reachable = successors(before, possible)
        return step_of(walk.values, graph, reachable, reachable)

    def delta() -> Step:
        return step_of(walk.values, graph, everywhere, delta_set(next(waiting), DELTA))

    constraint, degrees = naive_step(walk.values, graph, walk.transition, before)
    apart = int(np.sum(new().degrees[constraint] != degrees))
    peer = partial(naive_step, walk.values, graph, walk.transition, before)
    times = median_times({"new": new, "peer": peer, "delta": delta}, calls)
    late = "   LATE" if times["new"] > TARGETS[count] else ""
    differs = f"   qhull differs for {apart} states" if apart else ""
    print(
        f"  {name:28s}{times['new'] * 1e3:10.2f}{times['peer'] * 1e3:12.2f}{times['peer'] / times['new']:10.1f}"
        f"{times['delta'] * 1e3:12.2f}{late}{differs}"
    )


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
        found = protect(values, graph, everywhere)
        noise = noise_table(build_table(found.hull, values, everywhere, 1))
        measurement = Measurement(
            coordinates=tuple((int(x), int(y)) for x, y in values),
            neighbours=tuple(set_of(np.flatnonzero(row).tolist()) for row in graph),
            successors=(set_of(range(36)),) * 36,
            initial=set_of(range(36)),
            epsilon=1.0,
            factor=math.ceil(found.factor),
        )
        check = partial(check_noise, measurement, noise, measurement.initial)
        seconds = median_times({name: check})[name]
        print(f"  {name:28s}{len(noise.points):10d}{int(graph.sum()) // 2:10d}{seconds * 1e3:10.2f}")


def least_times(tasks: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Least seconds of processor time of each task, the tasks taking turns; one unmeasured turn first."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(TURNS + 1):
        for name, run in tasks.items():
            started = time.process_time()
            run()
            if turn:
                times[name].append(time.process_time() - started)
    return {name: min(values) for name, values in times.items()}


def loop_tick(laws: FloatArray, transition: FloatArray, seen: Seen, out: FloatArray) -> None:
    """The peer: a tick, device by device."""
    for device in range(len(laws)):
        joint = laws[device] @ transition * seen.rows[seen.which[device]]
        out[device] = joint / joint.sum()


def show_devices() -> None:
    """Time a tick of many devices."""
    print(f"\nA tick of {DEVICES} devices of {SIDE * SIDE} cells, each with a point of its own, ms of processor time")
    head = ("kind", "copy", "BLAS", "tick", "/copy", "/BLAS", "loop", "loop/", "reach", "back", "lag 8")
    print("  " + f"{head[0]:20s}" + "".join(f"{name:>9s}" for name in head[1:]))
    generator = np.random.default_rng(3)
    values = grid(SIDE, SIDE)
    near = within_radius(values, 1.5) | np.eye(len(values), dtype=np.bool_)
    laws = generator.dirichlet(np.ones(len(values)), DEVICES)
    seen = Seen(generator.random((121, len(values))), generator.integers(0, 121, DEVICES))
    out, sets = np.empty_like(laws), laws > 0.03
    for name, steps in (("eight neighbours", near), ("full", np.ones_like(near))):
        matrix = steps * generator.random(steps.shape)
        matrix /= matrix.sum(axis=1, keepdims=True)
        moves = Transition.of(matrix)
        few = slice(0, DEVICES // 100)
        some = [Seen(seen.rows, seen.which[few])] * 9
        between = [moves] * 8
        known = follow(laws[few], between, some)
        times = least_times(
            {
                "copy": partial(np.copyto, out, laws),
                "blas": partial(np.matmul, laws, matrix, out=out),
                "tick": partial(advance, laws, moves, seen, out),
                "back": partial(moves.backward.carry, laws, out),
                "reach": partial(reached, sets, moves),
                "loop": partial(loop_tick, laws[few], matrix, Seen(seen.rows, seen.which[few]), out[few]),
                "lag": partial(fixed_lag, known, between, some, 8),
            }
        )
        copy, blas, tick = times["copy"], times["blas"], times["tick"]
        loop, lag = 100 * times["loop"], times["lag"] / 9 * 100
        ratio = tick / (copy if name != "full" else blas)
        numbers = (copy, blas, tick, None, None, loop, None, times["reach"], times["back"], lag)
        ratios = iter((tick / copy, tick / blas, loop / tick))
        cells = (f"{next(ratios):9.1f}" if cell is None else f"{cell * 1e3:9.2f}" for cell in numbers)
        print(f"  {name:20s}" + "".join(cells) + ("   LATE" if ratio > MOST[name] else ""))
        apart = float(np.max(np.abs(smoothed(laws[few], between, some) - fixed_lag(known, between, some, 8))[0]))
        assert apart < 1e-12, "the first of nine ticks sees all of them either way"
    print(
        "  wanted: eight neighbours at most 6 copies, full at most 2 products. loop and lag 8: from 100 devices, times"
    )
    print("  100; lag 8 is the law of a tick given the eight after it")


def paths(walk: Walk, runs: int) -> NDArray[np.int64]:
    """True states of simulated runs, runs x ticks."""
    generator = np.random.default_rng(11)
    rising = np.cumsum(walk.transition, axis=1)
    states = np.full((runs, TICKS), walk.start)
    for tick in range(1, TICKS):
        drawn = generator.random(runs)[:, None]
        following = np.sum(rising[states[:, tick - 1]] <= drawn, axis=1)
        states[:, tick] = np.minimum(following, len(rising) - 1)
    return states


def evaluate(walk: Walk, graph: Bools, epsilon: float, delta: float = 0.0) -> Series:
    """Simulate a policy: draw from certified tables, filter, and compare with the truth."""
    generator = np.random.default_rng(7)
    plan = schedule(walk.initial, walk.transition)
    runs = FEW_WALKS if delta else WALKS
    truth = paths(walk, runs)
    belief = np.tile(walk.initial.astype(np.float64), (runs, 1))
    errors: FloatArray = np.zeros((3, TICKS))
    for tick in range(TICKS):
        for group in np.arange(runs)[:, None] if delta else [np.arange(runs)]:
            reachable = plan.at(tick)
            kept = delta_set(belief[group[0]], delta) & reachable if delta else reachable
            step = step_of(walk.values, graph, reachable, kept)
            table = table_of(walk.values, step, kept, epsilon)
            rising = np.cumsum(table.weights, axis=1)[truth[group, tick]]
            outputs = np.sum(rising <= generator.integers(0, rising[:, -1:]), axis=1)
            belief[group] *= table.weights[:, outputs].T
            belief[group] /= belief[group].sum(axis=1, keepdims=True)
            true = walk.values[truth[group, tick]]
            errors[0, tick] += len(group) * step.degrees[reachable].mean()
            errors[1, tick] += np.sum((table.outputs[outputs] - true) ** 2)
            errors[2, tick] += np.sum((belief[group] @ walk.values - true) ** 2)
        belief = belief @ walk.transition
    errors /= runs
    return Series(errors[0], np.sqrt(errors[1]), np.sqrt(errors[2]))


def overall(series: Series) -> tuple[float, float, float]:
    """The mean degree of protection and the root mean square errors of the later ticks."""
    late = [numbers[FEWEST_TICKS:] for numbers in series]
    return float(late[0].mean()), math.sqrt(np.mean(late[1] ** 2)), math.sqrt(np.mean(late[2] ** 2))


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
        return [evaluate(walk, util, epsilon), evaluate(walk, trs, epsilon), evaluate(walk, util, epsilon, DELTA)]

    base = policies(1.5, 1.0)
    for tick in (0, 1, 2, 3, 5, 8, 12, 18, TICKS - 1):
        row(f"tick {tick}", [(one.protection[tick], one.released[tick], one.estimated[tick]) for one in base])
    print(f"\n  from tick {FEWEST_TICKS} on, r = 1.5")
    for epsilon in (0.3, 1.0, 3.0):
        row(f"epsilon {epsilon:g}", [overall(one) for one in (base if epsilon == 1.0 else policies(1.5, epsilon))])
    print(f"\n  from tick {FEWEST_TICKS} on, epsilon 1")
    for radius in (1.0, 1.5, 2.0, 3.0):
        row(f"r = {radius:g}", [overall(one) for one in (base if radius == 1.5 else policies(radius, 1.0))])


def main() -> None:
    """Run everything and print it."""
    show_times()
    show_certification()
    show_devices()
    show_evaluation()


if __name__ == "__main__":
    main()

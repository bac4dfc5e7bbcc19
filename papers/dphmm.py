"""The DPHMM paper: examples 5.1 to 10.8, and figures 10 to 13 in kind on a walk over a grid.

Xiao, Shen, Liu, Xiong, Jin, Xu: DPHMM: Customizable Data Release with Differential Privacy via Hidden Markov Model.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import numpy as np

from fugu.chains.arrays import Bools, Ints
from fugu.lanes import lanes_svg
from fugu.places.graphs import complete, lattice
from fugu.places.hull import complete_hull, difference_hull, graph_hull
from fugu.places.noise import noise_error
from fugu.places.protection import Objective, degree_of_protection, list_exposed, protect, unbounded_factors
from fugu.planning.errors import PlanningError
from fugu.planning.grid_model import GridModel, fit_grid
from fugu.recordings.places import Traces, read_traces
from fugu.recordings.readings import AS_FOUND
from fugu_cli.view.measure_plan import graph_lanes
from papers.facts import printed
from papers.graphs import explicit, one_step, within_radius
from papers.mqm import seconds
from papers.neighbour_noise import l1_sensitivity, laplace_error
from papers.rows import Chart, Drawing, Found, Line, Row, Setting, lines_through
from papers.walks import Series, Walk, evaluate, grid, overall, paths, step_of, table_of, walk_over

__all__ = [
    "GRAPH",
    "TRIANGLE",
    "VALUES",
    "chosen",
    "edge_names",
    "examples",
    "figure_10",
    "figure_11",
    "figure_12",
    "figure_13",
    "traces",
]

VALUES = lattice([(1, 0), (2, 1), (3, 0), (0, 1), (4, 2), (1, 2)])
"""f of example 3.2."""
GRAPH = explicit(6, [(1, 2), (3, 4), (3, 5), (4, 5)])
"""The policy graph of example 5.1: s2s3, s4s5, s4s6, s5s6."""
TRIANGLE = explicit(6, [(3, 4), (3, 5), (4, 5)])
_OBJECTIVES: tuple[Objective, ...] = ("nearest", "area", "error")
_NAMES = tuple(f"s{state}" for state in range(1, 7))


def chosen(*states: int) -> Bools:
    """A constraint set, from states counted from 1 as in the paper; all of them by default."""
    constraint = np.zeros(6, dtype=np.bool_)
    constraint[[state - 1 for state in states or range(1, 7)]] = True
    return constraint


def _words(numbers: Sequence[object]) -> str:
    return " ".join(str(number) for number in numbers)


def examples(setting: Setting) -> Found:
    """Examples 5.1 to 10.8: hulls, degrees of protection, factors, and edges that are added."""
    hull = graph_hull(VALUES, GRAPH)
    corners = {tuple(corner) for corner in hull.vertices.tolist()}
    printed = {(-4, -1), (1, -1), (3, 0), (4, 1), (-1, 1), (-3, 0)}
    degrees = degree_of_protection(hull, VALUES, chosen())
    laplace, error = "example 5.1: Laplace error, epsilon 1", math.sqrt(laplace_error(VALUES, GRAPH, 1.0))
    why = "Laplace noise of scale S / epsilon has variance 2 S^2 / epsilon^2, in each of two coordinates"
    case = "erratum-dphmm-variance"
    rows = [
        Row("example 5.1: L1 sensitivity", float(l1_sensitivity(VALUES, GRAPH)), 5.0, "printed"),
        Row("example 5.1: corners of the hull", _words(sorted(corners)), _words(sorted(printed)), "printed"),
        Row("example 5.1: area of the hull", float(hull.area), 11.0, "formula"),
        Row("example 5.1: degrees of protection of s1 to s6", _words(degrees.tolist()), "4 6 3 5 4 4", "formula"),
        Row("example 5.1: K-norm error, epsilon 1", math.sqrt(noise_error(hull)), 6.55050310350975, "formula", 1e-12),
        Row(laplace, error, 5 * math.sqrt(2.0), "claim", 1e-9, why=why, counterexample=case, computed=True),
    ]
    rows += _example_5_2() + _example_5_3() + _figure_9() + _example_6_1() + _example_10_8()
    protection = protect(VALUES, GRAPH, chosen())
    drawing = lanes_svg("Example 5.1", graph_lanes(VALUES, GRAPH, chosen(), protection, names=_NAMES))
    alone = chosen(3, 4, 5, 6)
    repaired = protect(VALUES, TRIANGLE, alone)
    second = lanes_svg("Example 6.1", graph_lanes(VALUES, TRIANGLE, alone, repaired, names=_NAMES))
    pictures = (Drawing("Example 5.1: graph and hull", drawing), Drawing("Example 6.1: s3, protected by s5", second))
    return Found(rows, pictures)


def _example_5_2() -> list[Row]:
    graph, constraint = explicit(6, [(1, 2)]), chosen(2, 3, 5)
    hull, ball = graph_hull(VALUES, graph), difference_hull([[2, 0], [0, 2]])
    gauge = ball.gauge((VALUES[4] - VALUES[2]).tolist())
    alone = [_NAMES[state] for state in list_exposed(hull, VALUES, constraint)]
    inside = hull.largest_gauge(VALUES[constraint])
    added = protect(VALUES, graph, constraint, objective="nearest").added_edges
    about = "example 5.2: Laplace noise, ln of the ratio between s5 and s3, over epsilon"
    return [
        Row(about, float(gauge), 1.5, "printed"),
        Row("example 5.2: exposed states", _words(alone), "s5", "printed"),
        Row("example 5.2: factor of theorem 6.3", str(inside), "inf", "formula"),
        Row("example 5.2: edge added by algorithm 1", edge_names(added), "s5s2", "formula"),
    ]


def edge_names(added: Sequence[tuple[int, int]]) -> str:
    """Edges by the names of their states, such as s5s2."""
    return _words([_NAMES[state] + _NAMES[partner] for state, partner in added])


def _example_5_3() -> list[Row]:
    answers = lattice([(1, 0), (0, 0), (1, 0), (0, 1), (1, 0), (0, 1)])  # absence answers (0, 0), as s2 does
    factors = [str(factor) for factor in unbounded_factors(graph_hull(answers, GRAPH), answers)]
    return [Row("example 5.3: factors when a person may be absent", _words(factors), "1 0 1 2 1 2", "printed")]


def _figure_9() -> list[Row]:
    hull, constraint = graph_hull(VALUES, TRIANGLE), chosen(2, 4, 5, 6)
    degrees = degree_of_protection(hull, VALUES, constraint).tolist()
    gauges = [hull.gauge((VALUES[1] - VALUES[other]).tolist()) for other in (3, 4, 5)]
    return [
        Row("figure 9(a): degrees of protection", _words(degrees), "0 3 0 4 4 3", "formula"),
        Row("figure 9(a): gauges of s2 to s4, s5, s6", _words(gauges), "2/3 1 5/3", "formula"),
    ]


def _example_6_1() -> list[Row]:
    constraint = chosen(3, 4, 5, 6)
    alone = [_NAMES[state] for state in list_exposed(graph_hull(VALUES, TRIANGLE), VALUES, constraint)]
    rows = [Row("example 6.1: exposed states", _words(alone), "s3", "printed")]
    for partner, size in ((4, 14.0), (6, 20.0), (5, 16.0)):
        hull = graph_hull(VALUES, TRIANGLE | explicit(6, [(2, partner - 1)]))
        rows.append(Row(f"example 6.1: area with s3s{partner}", float(hull.area), size, "formula"))
        rows.append(Row(f"example 6.1: error with s3s{partner}, epsilon 1", math.sqrt(noise_error(hull))))
    nearest, smallest, best = (
        edge_names(protect(VALUES, TRIANGLE, constraint, objective=objective).added_edges) for objective in _OBJECTIVES
    )
    edge = printed(("DPHMM", "example 6.1", "optimal edge PRINTED")).partition(" ")[0]
    return [
        *rows,
        Row("example 6.1: edge with the smallest hull (algorithm 3)", smallest, edge, "printed"),
        Row("example 6.1: edge added by algorithm 1", nearest),
        Row("example 6.1: edge with the least error, which ours takes", best),
    ]


def _example_10_8() -> list[Row]:
    about = "example 10.8, path s4-s6-s5: rank of the noise of the neighbours of"
    neighbours = (("s4", (4, 6), 1), ("s5", (5, 6), 1), ("s6", (4, 5, 6), 2))
    return [
        Row(f"{about} {state}", complete_hull(VALUES[chosen(*near)]).rank, rank, "formula")
        for state, near, rank in neighbours
    ]


_REACH, _FROM, _DELTA = 1.5, 6, 0.01
_KIND = (
    "In kind: a walk on a grid from its middle, a step of at most r as likely as any other. G_util joins cells within "
    "radius r, G_trs those that one step can lead to; DPLS is planar isotropic noise for the delta-location set, delta "
    "0.01: the complete graph on it. The paper's are on GeoLife and Gowalla, of which it prints two numbers, the "
    "degrees of G_trs: 100 and 70. What it says of the order is judged. Errors are root mean squares, in steps of the "
    "grid."
)


def _policies(walk: Walk, reach: float, epsilon: float, truth: Ints, few: int) -> dict[str, Series]:
    """The three policies on true states, runs x ticks; DPLS on the first few runs."""
    return {
        "G_util": evaluate(walk, within_radius(walk.values, reach), epsilon, truth),
        "G_trs": evaluate(walk, one_step(walk.transition), epsilon, truth),
        "DPLS": evaluate(walk, complete(len(walk.values)), epsilon, truth[:few], _DELTA),
    }


def _grid_policies(setting: Setting, reach: float, epsilon: float) -> dict[str, Series]:
    """The three policies of figures 11 to 13 on walks over a grid: what each costs, by name."""
    side, ticks, runs, few = (6, 10, 60, 2) if setting.quick else (10, 24, 400, 6)
    walk = walk_over(grid(side, side), reach, side // 2 * side + side // 2)
    return _policies(walk, reach, epsilon, paths(walk, runs, ticks, np.random.default_rng(11)), few)


def figure_10(setting: Setting) -> Found:
    """Figure 10 in kind: seconds for a tick's graph and hull, for its table, and for a point, epsilon 1."""
    rows: list[Row] = []
    points = defaultdict[str, list[tuple[float, float]]](list)
    runs = 1 if setting.quick else 5
    for side in (4, 6) if setting.quick else (4, 6, 8, 10):
        values = grid(side, side)
        walk = walk_over(values, _REACH, 0)
        everything = np.ones(len(values), dtype=np.bool_)
        graphs = {"G_util": within_radius(values, 1.0), "G_trs": one_step(walk.transition), "DPLS": complete(side**2)}
        whole = defaultdict[str, float](float)
        for policy, graph in graphs.items():
            setting.progress(f"{side**2} states, {policy}")
            step = step_of(values, graph, everything, everything)
            rising = np.cumsum(table_of(values, step, everything, 1.0).weights, axis=1)
            tasks: dict[str, Callable[[], object]] = {
                "graph and hull": partial(step_of, values, graph, everything, everything),
                "table": partial(table_of, values, step, everything, 1.0),
                "point": partial(np.searchsorted, rising[0], 2**31),
            }
            for task, run in tasks.items():
                took = seconds(run, runs)
                rows.append(Row(f"{side**2} states, {policy}: {task}", took))
                whole[policy] += took
                points[f"{policy}, {task}"].append((float(side**2), took))
        for policy in ("G_util", "G_trs"):
            about = f"{side**2} states: seconds of {policy} over those of DPLS"
            why = "ours joins fewer pairs of states for a graph than for the complete one"
            rows.append(Row(about, whole[policy] / whole["DPLS"], 1.0, "in kind", 0.0, "at least", why=why))
    title = "Seconds for a tick, by the number of possible states"
    chart = Chart(title, "states", "seconds", lines_through(points), log_y=True)
    note = (
        "A tick on which every cell of a grid is possible. The paper draws runtimes on GeoLife and Gowalla without "
        "numbers, and says that both graphs take a little longer than DPLS. Ours makes all but the point once for a "
        "constraint set."
    )
    return Found(rows, [chart], [note])


def figure_11(setting: Setting) -> Found:
    """Figure 11 in kind: possible states, degrees of protection and errors over time, epsilon 1."""
    policies = _grid_policies(setting, _REACH, 1.0)
    ticks = [float(tick) for tick in range(len(policies["G_util"].possible))]
    charts = []
    for name, axis, at in (
        ("Possible states over time", "states", 0),
        ("Degree of protection over time", "degree of protection", 1),
        ("Error of the released point over time", "error", 2),
        ("Error of the gateway's estimate over time", "error", 3),
    ):
        lines = [Line(policy, ticks, series[at].tolist()) for policy, series in policies.items()]
        charts.append(Chart(f"{name}, r = {_REACH:g}", "tick", axis, lines))
    rows = _costs("from tick 6 on", policies)
    for policy, series in policies.items():
        rows.append(Row(f"{policy}: possible states at the last tick", float(series.possible[-1])))
    return Found(rows, charts, [_KIND])


def _costs(about: str, policies: dict[str, Series]) -> list[Row]:
    """Rows for every policy, and the paper's word on their order."""
    late = {policy: overall(series, _FROM) for policy, series in policies.items()}
    rows = [
        Row(f"{about}, {policy}: {what}", number)
        for policy, numbers in late.items()
        for what, number in zip(_COSTS, numbers, strict=True)
    ]
    inside = float(policies["DPLS"].possible[_FROM:].mean())
    rows.append(Row(f"{about}, DPLS: degree of protection, counted inside its set alone", inside))
    for at, first, second in _ORDER:
        claim = f"{about}: {_COSTS[at]} of {first} over that of {second}"
        ratio, why = late[first][at] / late[second][at], _RANKING.format(late["DPLS"][0], inside)
        rows.append(Row(claim, ratio, 1.0, "in kind", 0.0, "at least", why=why))
    ranked = " > ".join(sorted(late, key=lambda policy: late[policy][0], reverse=True))
    return [*rows, Row(f"{about}: order by degree of protection", ranked)]


_COSTS = ("degree of protection", "error of the point", "error of the estimate")
_ORDER = (
    (0, "G_trs", "G_util"),
    (0, "G_trs", "DPLS"),
    (0, "G_util", "DPLS"),
    (1, "G_trs", "G_util"),
    (1, "DPLS", "G_util"),
)
"""Claims of section 8.2: G_trs protects most; G_util has the least error, and protects more than DPLS."""


_RANKING = (
    "{:.4g} counts states outside the delta-location set, where the nearest inside stands for them; {:.4g} are inside. "
    "These are walks at random, the paper's are recorded traces; whether that makes the rest was not tried"
)


def figure_12(setting: Setting) -> Found:
    """Figure 12 in kind: degrees of protection and errors against epsilon."""
    return _swept(setting, "epsilon", {e: (_REACH, e) for e in ((0.5, 2.0) if setting.quick else (0.3, 1.0, 3.0))})


def figure_13(setting: Setting) -> Found:
    """Figure 13 in kind: degrees of protection and errors against the radius r, epsilon 1."""
    series = _swept(setting, "r", {r: (r, 1.0) for r in ((1.0, 1.5) if setting.quick else (1.0, 1.5, 2.0, 3.0))})
    rows = list(series.rows)
    for chart in series.pictures[:2]:
        assert isinstance(chart, Chart)
        for line in chart.lines[:2]:
            what = f"{line.name}: {chart.y_axis} at the largest r over that at the smallest"
            rows.append(Row(what, line.y[-1] / line.y[0], 1.0, "in kind", 0.0, "at least"))
    return series._replace(rows=rows)


def _swept(setting: Setting, axis: str, points: dict[float, tuple[float, float]]) -> Found:
    rows: list[Row] = []
    columns = defaultdict[str, list[tuple[float, float, float]]](list)
    for value, (reach, epsilon) in points.items():
        setting.progress(f"{axis} {value:g}")
        policies = _grid_policies(setting, reach, epsilon)
        rows += _costs(f"{axis} {value:g}", policies)
        for policy, series in policies.items():
            columns[policy].append(overall(series, _FROM))
    charts = []
    for at, what in enumerate(_COSTS):
        lines = [Line(policy, [*points], [costs[at] for costs in column]) for policy, column in columns.items()]
        charts.append(Chart(f"{what[0].upper()}{what[1:]} against {axis}", axis, what, lines))
    return Found(rows, charts, [_KIND])


_MOST_CELLS, _FINEST, _RUNGS = 100, 50.0, 12
_TRACE_TICKS, _FEW_TRACES = 24, 4


def traces(setting: Setting) -> Found:
    """Figures 11 to 13 on location traces that the user gives (--traces), such as GeoLife's or Gowalla's."""
    if setting.traces is None:
        return Found((Row("location traces", "none given: python -m papers dphmm-traces --traces FILE"),))
    walks = read_traces(setting.traces, AS_FOUND)
    model = _cells(walks)
    place = {tuple(cell): number for number, cell in enumerate(model.cells.tolist())}
    cells = np.floor((walks.places - np.array(model.origin)) / np.array(model.step))[:, ::-1]
    at = np.array([place.get(tuple(cell), -1) for cell in cells.tolist()], dtype=np.int64)
    truth = _runs(at, walks.trace)
    walk = Walk(lattice(model.cells), model.transition, np.ones(len(model.cells), dtype=np.bool_))
    rows = [
        Row("cells", len(model.cells)),
        Row("side of a cell, metres", model.metres),
        Row(f"runs of {_TRACE_TICKS} places inside the cells", len(truth)),
    ]
    if not len(truth):
        return Found(rows)
    for epsilon in (1.0,) if setting.quick else (0.3, 1.0, 3.0):
        setting.progress(f"epsilon {epsilon:g}")
        rows += _costs(f"epsilon {epsilon:g}", _policies(walk, _REACH, epsilon, truth, _FEW_TRACES))
    return Found(rows, notes=["Errors are in cells. The chain is fitted to the same traces."])


def _cells(walks: Traces) -> GridModel:
    """The chain over the most cells, up to a hundred, that hold nine tenths of all places; of equals the largest cells.

    Raises:
        PlanningError: no cells do.
    """
    cells = []
    for rung in range(_RUNGS):
        with suppress(PlanningError):
            model = fit_grid(walks, _FINEST * 2.0**rung)
            if len(model.cells) <= _MOST_CELLS and model.outside <= 0.1 * model.visits.sum():
                cells.append(model)
    if not cells:
        raise PlanningError(f"{walks.source}: no {_MOST_CELLS} cells hold nine tenths of all places")
    return max(cells, key=lambda model: (len(model.cells), model.metres))


def _runs(at: Ints, trace: Ints) -> Ints:
    """Cells of consecutive places of one trace, runs x ticks; at most 200 runs, none that leaves the cells."""
    runs = []
    for first in range(0, len(at) - _TRACE_TICKS + 1, _TRACE_TICKS):
        some = slice(first, first + _TRACE_TICKS)
        if (at[some] >= 0).all() and (trace[some] == trace[first]).all():
            runs.append(at[some])
    return np.array(runs[:200], dtype=np.int64).reshape(-1, _TRACE_TICKS)

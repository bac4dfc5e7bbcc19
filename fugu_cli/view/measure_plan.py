"""A planned measurement as JSON, or as tables and sentences.

A picture of a policy graph under a constraint set, and of its sensitivity hull, as SVG text for the operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from fugu.chains.arrays import Bools, Ints
from fugu.library.guarantee import promise_document, promise_words, stretch_documents, stretch_table
from fugu.places.graphs import GraphError, restrict
from fugu.places.hull import Hull, graph_hull
from fugu.places.noise import noise_error
from fugu.places.protection import Protection, exposed
from fugu.planning.measure_planner import Errors, MeasurePlan, SetPlan
from fugu.planning.network_plan import NetworkPlan, NetworkSpec
from fugu.svg import points, svg
from fugu_cli.view.terminal import answer, say, show_table

__all__ = ["draw_measure_plan", "tell_measure_plan", "tell_network_plan"]


SIDE = 440
MARGIN = 34
HEAD = 30
FOOT = 62
MOST_NAMES = 60
"""Names of more states than this would cover the picture: they are shown when the mouse rests on a state."""
Points = NDArray[np.float64]
Place = Callable[[Points], Points]
_STYLE = """<style>
text{font:13px system-ui,sans-serif;fill:#222}
.small{font-size:11px;fill:#666}
.edge{fill:none;stroke:#2f6fb3;stroke-width:1.2;stroke-opacity:.55}
.outside{fill:none;stroke:#d5dae0;stroke-width:1}
.added{fill:none;stroke:#c0392b;stroke-width:2;stroke-dasharray:6 3}
.state{fill:#2f6fb3}.gone{fill:#d5dae0}
.exposed{fill:#fff;stroke:#c0392b;stroke-width:2.5}
.hull{fill:#0a7d5a;fill-opacity:.12;stroke:#0a7d5a;stroke-width:1.5;stroke-linejoin:round}
.axis{stroke:#b9c1c8;stroke-width:1}
</style>"""


def graph_svg(
    values: Ints,
    graph: Bools,
    constraint: Bools,
    protection: Protection,
    *,
    names: Sequence[str] | None = None,
    title: str = "Policy graph",
) -> str:
    """Draw states at their measurements, the user's edges, those that were added, and the hull, as an SVG element.

    Three dimensions are drawn in oblique projection. States outside the constraint set are grey, and so are edges that
    lead there; one that the user's own edges leave exposed is a hollow circle. Names are numbers from 0 by default.

    Raises:
        GraphError: There is not one name per state.
    """
    labels = [str(state) for state in range(len(values))] if names is None else list(names)
    if len(labels) != len(values):
        raise GraphError(f"{len(values)} states need as many names, got {len(labels)}")
    inside = restrict(graph, constraint)
    alone = set(exposed(graph_hull(values, inside), values, constraint))
    spots = _fitted(_flat(values.astype(np.float64)), 0)(_flat(values.astype(np.float64)))
    width, height = 2 * SIDE, HEAD + SIDE + FOOT
    parts = [f'<text x="12" y="20">{escape(title)}</text>']
    bent = values.shape[1] == 1  # on a line straight edges would hide one another
    parts += [_edge("outside", spots, pair, bent) for pair in _edge_list(graph & ~inside)]
    parts += [_edge("edge", spots, pair, bent) for pair in _edge_list(inside)]
    parts += [_edge("added", spots, pair, bent) for pair in protection.added]
    radius = max(2.5, min(7.0, 70.0 / math.sqrt(len(values))))
    for state, (x, y) in enumerate(spots.tolist()):
        kind = "exposed" if state in alone else "state" if constraint[state] else "gone"
        name = escape(labels[state])
        parts.append(
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"><title>{name}</title></circle>'
        )
        if len(values) <= MOST_NAMES:
            parts.append(f'<text class="small" x="{x + radius + 2:.1f}" y="{y - radius:.1f}">{name}</text>')
    parts += _hull(protection.hull)
    notes = (
        f"{int(constraint.sum())} of {len(values)} states possible, {len(_edge_list(inside))} edges between them, "
        f"{len(protection.added)} added (dashed)",
        f"{len(alone)} exposed without added edges (hollow)" if alone else "no state is exposed",
    )
    kind = "capped, " if protection.capped else ""
    error = math.sqrt(noise_error(protection.hull))
    beside = (
        f"sensitivity hull, {kind}rank {protection.hull.rank}; noise at epsilon 1: {error:.3g} steps",
        f"any two possible states: {_number(protection.factor)} times epsilon",
    )
    for left, lines in ((12, notes), (SIDE + 12, beside)):
        parts += [
            f'<text class="small" x="{left}" y="{HEAD + SIDE + 22 + 17 * row}">{line}</text>'
            for row, line in enumerate(lines)
        ]
    return svg(title, (width, height), parts, style=_STYLE, shown='width="100%"')


def _hull(hull: Hull) -> list[str]:
    """The hull in the right half: an outline, or all its facets in three dimensions; 0 is where the axes cross."""
    vertices = _flat(hull.vertices / hull.scale)
    place = _fitted(np.concatenate([vertices, np.zeros((1, 2))]), SIDE)
    x, y = place(np.zeros((1, 2)))[0].tolist()
    parts = [
        f'<path class="axis" d="M{SIDE + MARGIN} {y:.1f}H{2 * SIDE - MARGIN}M{x:.1f} {HEAD + MARGIN}'
        f'V{HEAD + SIDE - MARGIN}"/>'
    ]
    corners = place(vertices)
    for face in hull.faces if hull.rank == 3 else [tuple(range(len(corners)))] if len(corners) else []:
        parts.append(f'<polygon class="hull" points="{points(corners[list(face)].tolist())}"/>')
    return parts


def _edge(kind: str, spots: Points, pair: tuple[int, int], bent: bool) -> str:
    (a, b), (c, d) = spots[list(pair)].tolist()
    way = f"Q{(a + c) / 2:.1f} {b - abs(c - a) / 2:.1f} {c:.1f} {d:.1f}" if bent else f"L{c:.1f} {d:.1f}"
    return f'<path class="{kind}" d="M{a:.1f} {b:.1f}{way}"/>'


def _flat(points: Points) -> Points:
    """Points in the plane of the picture, n x 2: one coordinate to the right, a third one obliquely backwards."""
    across, up = points[:, 0], points[:, 1] if points.shape[1] > 1 else np.zeros(len(points))
    back = points[:, 2] if points.shape[1] > 2 else np.zeros(len(points))
    return np.stack([across + 0.45 * back, up + 0.3 * back], axis=1)


def _fitted(points: Points, left: float) -> Place:
    low, high = points.min(axis=0), points.max(axis=0)
    scale = (SIDE - 2 * MARGIN) / max(float((high - low).max()), 1e-9)
    middle = (low + high) / 2.0
    centre = np.array([left + SIDE / 2.0, HEAD + SIDE / 2.0])
    return lambda given: centre + (given - middle) * np.array([scale, -scale])


def _number(value: Fraction | float) -> str:
    return str(value) if isinstance(value, Fraction) and value.denominator < 100 else f"{float(value):.3g}"


_MECHANISMS = ("staircase", "optimal")
_MOST_NAMED = 12
_MOST_ROWS = 24
_UNKNOWN = Errors(None, None, None, None)
_MUCH = 1.05
_MOST_CORNERS = 8


def tell_measure_plan(as_json: bool, plan: MeasurePlan) -> None:
    """Print a plan; in JSON errors are in lattice steps, and a number that is not known is null."""
    answer(as_json, lambda: _measure_document(plan), lambda: _show_measure_plan(plan), indent=2)


def _measure_document(plan: MeasurePlan) -> dict[str, Any]:
    spec, stream = plan.spec, plan.stream
    return {
        "states": spec.states,
        "names": list(spec.names),
        "resolution": list(spec.resolution),
        "unit": spec.unit,
        "graph": spec.rule,
        "edges": len(_edge_list(spec.graph)),
        "objective": spec.objective,
        **_set_document(plan.worst),
        "rmse": {name: plan.errors.get(name, _UNKNOWN)._asdict() for name in _MECHANISMS},
        "rmse_missing": plan.reasons,
        "unbounded_factors": [None if factor == math.inf else float(factor) for factor in plan.unbounded_factors],
        "attack": None if plan.named is None else {"guess": float(plan.prior.max()), "named": plan.named},
        "prior": plan.prior_name,
        **promise_document(stream.epsilon, 0, 1, stream.stretches),
        "epsilon_tick": spec.epsilon,
        "epsilon_any": plan.epsilon_any,
        "epsilon_stream": stream.epsilon,
        "epsilon_stream_reason": stream.reason,
        "start": spec.start,
        "stretches": stretch_documents(stream.stretches),
        "adversary": stream.adversary,
        "bound": stream.bound,
        "run_in": plan.schedule.ticks[plan.schedule.start],
        "period": plan.schedule.period,
        "different_sets": len(set(map(bytes, plan.schedule.constraints))),
        "sets": [_set_document(each) for each in plan.sets],
        "delta_set": None if plan.delta is None else _set_document(plan.delta),
        "notes": _notes(plan),
    }


def _set_document(each: SetPlan) -> dict[str, Any]:
    protection = each.protection
    return {
        "first_tick": each.first,
        "repeats": each.repeats,
        "possible": np.flatnonzero(each.possible).tolist(),
        "likely": np.flatnonzero(each.likely).tolist(),
        "hull": _vertices(each.hull),
        "area": float(each.area),
        "degree_of_protection": each.degrees.tolist(),
        "exposed": list(each.exposed),
        "added_edges": [list(edge) for edge in protection.added],
        "capped": protection.capped,
        "factor": 1.0 if each.fallback else float(protection.factor),
        "fallback": each.fallback,
        "knorm_rmse_at_epsilon_1": math.sqrt(noise_error(each.hull)),
    }


def _notes(plan: MeasurePlan) -> list[str]:
    """The meaning of the numbers, in plain sentences."""
    spec, worst, stream = plan.spec, plan.worst, plan.stream
    notes = _requirement(plan)
    if worst.fallback:
        notes.append(
            "The states that remain possible would all be measured the same: only the fallback table is used, and an "
            "adversary who knows the chain knows the measurement without it."
        )
    if worst.protection.capped:
        notes.append(
            "The hull of the graph is flat: points would have told for certain which part of the states it was. It was "
            f"widened, so that no two possible states are further apart than {float(plan.factor):g} epsilon."
        )
    if stream.epsilon is not None and stream.epsilon > _MUCH * plan.epsilon_any:
        notes.append(
            f"Each point loses {spec.epsilon:g}, but neighbouring ticks tell of one another: all points together lose "
            f"up to {stream.epsilon:.10g} about one tick. Measuring less often, or a smaller epsilon, brings that down."
        )
    if plan.delta is not None:
        notes.append(
            "Delta-location sets depend on what was released; an example is that of the distribution before the first "
            f"point: "
            f"{int(plan.delta.likely.sum())} of {int(plan.delta.possible.sum())} states likely."
        )
    return [*notes, *spec.notes]


def _requirement(plan: MeasurePlan) -> list[str]:
    """Say what a graph in names protects, and what it leaves to be told."""
    spec = plan.spec
    least, most = (f"by a factor of up to {math.exp(epsilon):.3g}" for epsilon in (spec.epsilon, plan.epsilon_any))
    if groups := spec.wording.get("apart"):
        rest = [name for name in spec.names if not any(name in group for group in groups)]
        listed = "; ".join(_listed(group) for group in (*groups, rest) if group)
        return [
            f"Hidden: which state of its group it is ({listed}). One point changes the odds of two of a group {least}.",
            f"May be told: which group it is; one point changes those odds {most}, and all together may tell it. To "
            f"hide that as well: --hide {','.join(groups[0])}",
        ]
    if hidden := spec.wording.get("hidden"):
        return [
            f"Hidden: whether it is {', and whether it is '.join(hidden)}. One point changes the odds of such a state "
            f"and any other {least}.",
            f"May be told: which of the others it is; one point changes those odds {most}.",
        ]
    return []


def draw_measure_plan(plan: MeasurePlan) -> str:
    """Return the states, the policy graph and the hull of a plan as SVG."""
    spec, worst = plan.spec, plan.worst
    title = f"Policy graph and sensitivity hull, epsilon {spec.epsilon:g}"
    drawn = graph_svg(spec.values, spec.graph, worst.possible, worst.protection, names=spec.names, title=title)
    return drawn + "\n"


def _show_measure_plan(plan: MeasurePlan) -> None:
    say(promise_words(plan.stream.epsilon, 0, plan.stream.stretches), style="bold")
    say("The epsilons below are of one point, and of all points about one tick.")
    spec = plan.spec
    dimensions = spec.values.shape[1]
    ((kind, value),) = spec.rule.items()
    how = f"{kind} {value:g}" if kind == "radius" else kind
    say(
        f"{spec.states} states measured in {dimensions} dimension{'s' if dimensions > 1 else ''}; policy graph: {how}, "
        f"{len(_edge_list(spec.graph))} pairs that must not be told apart"
    )
    if spec.wording:
        number, group_of = connected_components(spec.graph, directed=False)
        pairs = [[(a, b) for a, b in _edge_list(spec.graph) if group_of[a] == group] for group in range(number)]
        rows = [
            (
                _listed([name for name, own in zip(spec.names, group_of, strict=True) if own == group]),
                _listed([f"{spec.names[a]} - {spec.names[b]}" for a, b in pairs[group]]),
            )
            for group in range(number)
        ]
        show_table("Policy graph", ("states", "edges"), rows)
    show_table("Possible states", ("", ""), _constraint(plan))
    show_table("Protection" + ("" if len(plan.sets) == 1 else " once it repeats"), ("", ""), _facts(plan))
    show_table("Epsilon", ("", ""), _epsilons(plan))
    if stream := plan.stream.stretches:
        show_table(*stretch_table(stream))
    _show_errors(plan)
    if plan.named is not None:
        say(
            f"After one point an attacker names the state rightly {plan.named:.1%} of the time, without any "
            f"{plan.prior.max():.1%}."
        )
    if len(plan.sets) > 1:
        _show_sets(plan)
    for note in _notes(plan):
        say(note, style="bold")


def _edge_list(graph: Bools) -> list[tuple[int, int]]:
    """The edges (i, j) with i < j, in ascending order."""
    first, second = np.nonzero(np.triu(graph, 1))
    return list(zip(first.tolist(), second.tolist(), strict=True))


def _constraint(plan: MeasurePlan) -> list[tuple[str, str]]:
    found, states = plan.schedule, plan.spec.states
    sizes = [int(possible.sum()) for possible in found.constraints]
    if len({possible.tobytes() for possible in found.constraints}) == 1:
        return [("at every tick", "all states" if sizes[0] == states else f"the same {sizes[0]} of {states} states")]
    first = [("at tick 0", f"{sizes[0]} of {states} states")] if found.start else []
    later, begin = sizes[found.start :], found.ticks[found.start]
    sets = f"{found.period} sets in turn, of {min(later)} to {max(later)} states"
    return [*first, (f"from tick {begin} on", f"{later[0]} of {states} states" if found.period == 1 else sets)]


def _facts(plan: MeasurePlan) -> list[tuple[str, str]]:
    spec, each = plan.spec, plan.worst
    shape = ("a point", "a segment", "a polygon", "a solid")[each.hull.rank]
    size = "flat" if each.hull.rank < each.hull.dimensions else f"{float(each.area):g}"
    corners = _vertices(each.hull)
    listed = " ".join(f"({', '.join(f'{x:g}' for x in corner)})" for corner in corners[:_MOST_CORNERS])
    more = "" if len(corners) <= _MOST_CORNERS else f" and {len(corners) - _MOST_CORNERS} more"
    inside = each.degrees[each.possible]
    rows = [
        ("sensitivity hull", f"{shape} with {len(corners)} corners"),
        ("its corners", listed + more),
        (("its size", "its length", "its area", "its volume")[each.hull.dimensions], size),
        ("exposed by the graph alone", _listed([spec.names[state] for state in each.exposed])),
        ("edges added for them", _listed([f"{spec.names[a]} - {spec.names[b]}" for a, b in each.protection.added])),
    ]
    if spec.states <= _MOST_NAMED:
        degrees = "  ".join(f"{spec.names[x]}: {count}" for x, count in enumerate(each.degrees.tolist()) if count)
        factors = zip(spec.names, each.possible.tolist(), plan.unbounded_factors, strict=True)
        told = "  ".join(f"{name}: {float(factor):.4g}" for name, possible, factor in factors if possible)
        rows += [("degree of protection", degrees), ("factor against absence (unbounded)", told)]
    else:
        low, middle, high = int(inside.min()), float(np.median(inside)), int(inside.max())
        rows.append(("degree of protection", f"{low} to {high} states, median {middle:g}"))
        most = max(factor for factor, possible in zip(plan.unbounded_factors, each.possible, strict=True) if possible)
        rows.append(("factor against absence (unbounded)", f"up to {float(most):.4g}"))
    return rows


def _epsilons(plan: MeasurePlan) -> list[tuple[str, str]]:
    spec, stream = plan.spec, plan.stream
    whole = stream.reason or "" if stream.epsilon is None else f"{stream.epsilon:.10g}"
    how = "" if stream.epsilon is None else f"  ({stream.adversary} adversary; {stream.bound})"
    return [
        ("one point, protected pairs", f"{spec.epsilon:g}"),
        ("one point, any two possible states", f"{plan.epsilon_any:.6g}  (factor {float(plan.factor):g})"),
        ("all points, about one tick", whole + how),
    ]


def _show_errors(plan: MeasurePlan) -> None:
    worth, unit = _unit(plan)
    rows = [
        (name, *("-" if value is None else f"{value * worth:.4g}" for value in plan.errors.get(name, _UNKNOWN)))
        for name in _MECHANISMS
    ]
    columns = ("", "noise alone", "released point", "estimate from it alone", "gateway's estimate")
    show_table(f"Root-mean-square error, {unit}", columns, rows)
    for name, reason in plan.reasons.items():
        say(f"{name}: {reason}", style="dim")
    say(
        f"Estimates are posterior means: from a single point and {plan.prior_name}, and from all points so far as the "
        "gateway publishes them (simulated)."
    )


def _show_sets(plan: MeasurePlan) -> None:
    shown = plan.sets[:_MOST_ROWS]
    worth, unit = _unit(plan)
    show_table(
        f"Sets of possible states, in the order in which they come (error of K-norm noise: {unit})",
        ("from tick", "states", "exposed", "edges added", "least protection", "area", "factor", "error"),
        [
            (
                str(each.first) + (" *" if each.repeats else ""),
                str(int(each.possible.sum())),
                str(len(each.exposed)),
                str(len(each.protection.added)),
                "fallback" if each.fallback else str(int(each.degrees[each.possible].min())),
                f"{float(each.area):g}",
                "1" if each.fallback else f"{float(each.protection.factor):g}",
                f"{math.sqrt(noise_error(each.hull)) / plan.spec.epsilon * worth:.4g}",
            )
            for each in shown
        ],
    )
    hidden = len(plan.schedule.constraints) - len(shown)
    say("* comes back for ever." + (f" {hidden} more sets are not shown." if hidden > 0 else ""))


def _unit(plan: MeasurePlan) -> tuple[float, str]:
    """Factor that converts errors, and their unit after that."""
    resolution, unit = plan.spec.resolution, plan.spec.unit
    if len(set(resolution)) > 1 or (resolution[0] == 1.0 and not unit):
        return 1.0, "lattice steps"
    return resolution[0], unit or "in the unit of the coordinates"


def _vertices(hull: Hull) -> list[list[float]]:
    vertices: list[list[int]] = hull.vertices.tolist()
    return [[value / hull.scale for value in vertex] if hull.scale > 1 else list(vertex) for vertex in vertices]


def _listed(names: Sequence[str]) -> str:
    more = "" if len(names) <= _MOST_NAMED else f" and {len(names) - _MOST_NAMED} more"
    return ", ".join(names[:_MOST_NAMED]) + more if names else "none"


def tell_network_plan(as_json: bool, spec: NetworkSpec, plan: NetworkPlan) -> None:
    """Print the plan, the least noise first."""
    answer(as_json, lambda: _network_document(spec, plan), lambda: _show_network_plan(spec, plan), indent=2)


def _network_document(spec: NetworkSpec, plan: NetworkPlan) -> dict[str, Any]:
    return {
        "epsilon": spec.epsilon,
        "adversary": "ignorant",
        "variables": len(spec.values),
        "secrets": {
            name: [[spec.values[name][a], spec.values[name][b]] for a, b in pairs]
            for name, pairs in spec.secrets.items()
        },
        "least": plan.least.mechanism,
        "mechanisms": [
            {
                "mechanism": each.mechanism,
                "scale": each.scale,
                "protects_correlated": each.protects,
                "reason": each.reason,
            }
            for each in plan.found
        ],
        "refused": plan.refused,
    }


def _show_network_plan(spec: NetworkSpec, plan: NetworkPlan) -> None:
    count = len(spec.values)
    rows = [
        (
            each.mechanism + (" (least)" if each is plan.least else ""),
            f"{each.scale:.6g}",
            "yes" if each.protects else "no",
            each.reason,
        )
        for each in plan.found
    ]
    title = f"Noise for one answer about {count} variable{'s' * (count > 1)} at epsilon {spec.epsilon:g}"
    show_table(title, ("mechanism", "scale", "protects", "determined by"), rows)
    for mechanism, why in plan.refused.items():
        say(f"{mechanism}: {why}", style="dim")
    say(
        "scale: of the Laplace noise on the answer, in its own unit. It protects the secrets against somebody who "
        "believes this network and knows no variable for certain, for one release."
    )

"""A picture of a policy graph under a constraint set, and of its sensitivity hull, as SVG text for the operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from html import escape

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Bools, Ints
from fugu.places.graphs import GraphError, edge_list, restrict
from fugu.places.hull import Hull, graph_hull
from fugu.places.noise import noise_error
from fugu.places.protection import Protection, exposed
from fugu.planning.measure_planner import MeasurePlan
from fugu.svg import points, svg

__all__ = ["draw_measure_plan", "graph_svg"]


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
    parts += [_edge("outside", spots, pair, bent) for pair in edge_list(graph & ~inside)]
    parts += [_edge("edge", spots, pair, bent) for pair in edge_list(inside)]
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
        f"{int(constraint.sum())} of {len(values)} states possible, {len(edge_list(inside))} edges between them, "
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


def draw_measure_plan(plan: MeasurePlan) -> str:
    """Return the states, the policy graph and the hull of a plan as SVG."""
    spec, worst = plan.spec, plan.worst
    title = f"Policy graph and sensitivity hull, epsilon {spec.epsilon:g}"
    drawn = graph_svg(spec.values, spec.graph, worst.possible, worst.protection, names=spec.names, title=title)
    return drawn + "\n"

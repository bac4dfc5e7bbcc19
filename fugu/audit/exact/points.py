"""Recompute the losses of single measured points between states that must be alike, for tables and staircases.

A table's weights W[x][z] sum to 2^32 in every row. A staircase has P(v) proportional to q^ceil(gauge(v)): moving its
centre by d changes a likelihood by at most q^-ceil(gauge(d)). Rules: docs/proofs/private-points.md.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

import msgpack

from fugu.audit.exact.numbers import NotRecomputed

__all__ = ["joined_states", "point_losses"]

Ratio = Callable[[int, int], Fraction]


def point_losses(policy: Mapping[str, Any]) -> tuple[Fraction, Fraction]:
    """The largest likelihood ratios of any table, for pairs that must be alike, and for any two possible states.

    Joined possible states must be alike. A state with fewer of them than its degree demands must also be like the
    nearest others. The fallback holds for any set of states, and all its pairs count as joined.
    """
    graph, states = joined_states(policy), set(range(len(policy["coordinates"])))
    alike_ratio = possible_ratio = Fraction(1)
    for table_text in (policy["fallback"], *policy.get("tables", ())):
        *_, set_bits, _first, _until, kind, table_body = msgpack.unpackb(base64.b64decode(table_text)[1:], raw=False)
        candidates = _states_of_set(set_bits) or states
        ratio = (_staircase_ratio if kind else _table_ratio)(policy["coordinates"], table_body)
        possible_ratio = max([possible_ratio, *(ratio(x, y) for x in candidates for y in candidates if x < y)])
        for x in states:
            other_states = candidates - {x}
            alike_states = other_states & (graph[x] if x in candidates else set()) if set_bits else other_states
            alike_ratio = max([alike_ratio, *(ratio(x, y) for y in alike_states)])
            if len(alike_states) < (min_alike := min(policy.get("degree", 2) - 1, len(other_states))):
                alike_ratio = max(alike_ratio, sorted(ratio(x, y) for y in other_states)[min_alike - 1])
    return alike_ratio, possible_ratio


def _states_of_set(bits: bytes) -> set[int]:
    """Decode a set of states: bit x stands for state x."""
    return {x for x in range(8 * len(bits)) if int.from_bytes(bits, "little") >> x & 1}


def _table_ratio(_coordinates: list[Any], body: list[Any]) -> Ratio:
    """The ratio of a table: the maximum over z of W[x][z] / W[y][z] or its inverse, W from cumulative thresholds."""
    points, row_count, packed = body
    width = 4 * (len(points) - 1)
    rows = [[packed[i * width + j : i * width + j + 4] for j in range(0, width, 4)] for i in range(row_count)]
    weights = [[b - a for a, b in pairwise([0, *(int.from_bytes(t, "big") for t in row), 1 << 32])] for row in rows]

    return lambda x, y: max(Fraction(max(pair), min(pair)) for pair in zip(weights[x], weights[y], strict=True))


def _staircase_ratio(coordinates: list[Any], body: list[Any]) -> Ratio:
    """The ratio of a staircase, q^-ceil(gauge(centres' difference)); unlikely states have the nearest likely centre."""
    likely_bits, corners, p, r, *_ = body
    likely_states = _states_of_set(likely_bits)
    nearest = [min((sum(v * v for v in _minus(x, coordinates[k])), k) for k in likely_states)[1] for x in coordinates]

    centres = [coordinates[k] for k in nearest]
    power = cache(lambda v: Fraction(r, p) ** max(-(-top // bottom) for top, bottom in _gauges(corners, v)))
    return lambda x, y: power(_minus(centres[x], centres[y]))


def _gauges(corners: list[Any], v: tuple[int, ...]) -> list[tuple[int, int]]:
    """The quotients whose maximum is the gauge of v: cross(v, b - a) / cross(a, b) over the edges a b of the hull."""
    half = len(corners) // 2
    if [[-value for value in corner] for corner in corners] != [*corners[half:], *corners[:half]]:
        raise NotRecomputed("a hull that is not symmetric about 0")
    if half == 1:
        if any(a * w != b * u for a, u in zip(v, corners[0], strict=True) for b, w in zip(v, corners[0], strict=True)):
            raise NotRecomputed("a flat hull, which reveals where the state is")
        return [(max(map(abs, v)), max(map(abs, corners[0])))]
    edges = list(pairwise([*corners, corners[0]]))
    turns = [_cross(_minus(b, a), _minus(d, c)) for (a, b), (c, d) in pairwise([*edges, edges[0]])]
    if min(turns) <= 0 or any(_cross(corners[0], corner) <= 0 for corner in corners[1:half]):
        raise NotRecomputed("a hull that is no convex polygon")
    return [(_cross(v, _minus(b, a)), _cross(a, b)) for a, b in edges]


def joined_states(policy: Mapping[str, Any]) -> list[set[int]]:
    """For each state, the states that the policy graph joins to it."""
    ((kind, definition),) = policy["graph"].items()
    coordinates, states = policy["coordinates"], range(len(policy["coordinates"]))
    transitions = (policy["transition"], *(change["transition"] for change in policy.get("changes", ())))
    successor_sets = [{(policy.get("shows") or states)[y] for y, _ in row} for rows in transitions for row in rows]
    join_rules: dict[str, Callable[[int, int], bool]] = {
        "complete": lambda x, y: True,
        "categories": lambda x, y: definition[x] == definition[y],
        "radius": lambda x, y: sum(v * v for v in _minus(coordinates[x], coordinates[y])) <= Fraction(definition) ** 2,
        "transition": lambda x, y: any(x in successors and y in successors for successors in successor_sets),
        "edges": lambda x, y: [x, y] in definition or [y, x] in definition,
    }
    return [{y for y in states if y != x and join_rules[kind](x, y)} for x in states]


def _minus(a: Any, b: Any) -> tuple[int, ...]:
    return tuple(s - t for s, t in zip(a, b, strict=True))


def _cross(a: Any, b: Any) -> int:
    return int(a[0] * b[1] - a[1] * b[0])

"""The specification of a private measurement, a TOML or JSON file, as `fugu plan measure` reads it."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.contract.errors import PolicyError
from fugu.contract.measure_policy import MAX_CHANGES, MAX_CYCLE, StreamStart, sparse_rows
from fugu.contract.measure_table import set_of
from fugu.contract.measurement import neighbours_of
from fugu.places.graphs import GraphError, lattice, scale_points
from fugu.places.protection import Objective
from fugu.planning.errors import PlanningError
from fugu.privacy.chain_class import ChainClassError, MarkovChain

__all__ = ["MeasureSpec", "read_spec", "read_specification", "refuse_unknown"]

Mechanism = Literal["staircase", "optimal"]

_KEYS = ("coordinates", "grid", "transition", "graph", "epsilon", "initial", "names", "resolution", "unit")
_CHOICES = ("objective", "delta", "mechanism", "cells", "shows", "cycle", "changes")
_POLICY = ("fleet", "device", "stream", "period", "latency", "version", "epoch", "valid_until", "discretiser")
_GRAPHS = (
    '{"complete": true}, {"categories": [a label for each state]}, {"radius": in lattice steps}, '
    '{"transition": true}, {"edges": [[0, 1], ...]}, {"apart": [[names of a group], ...]} or {"hidden": [names]}'
)
_PLACES = ("coordinates", "resolution", "unit", "cells")
_MOST_EPSILON = 20.0
_MOST_STATES = 1024
_MOST_DELTA = 0.999
_LARGEST_RADIUS = 1 << 18
_SUM_TOLERANCE = 1e-5


@dataclass(frozen=True)
class MeasureSpec:
    """Specification of a measurement and its protection.

    `values` are f, (N, d) lattice points, with a `resolution` of so many of `unit` for each dimension; `transition` is
    (N, N). Where the chain's states show others, `shows` names the state that each one shows; it is empty if they are
    the same. `rule` is the policy graph as devices read it, `wording` as it is written in names, or empty. `graph` is
    the same as N x N booleans. `objective` is by which edges are added for exposed states. `epsilon` is of each
    released point. Without `initial` any state is possible at tick 0. `start` is what the stream's epsilon is for: that
    distribution ("given"), any, or the stationary one. `delta` is the mass that a delta-location set leaves out.
    `cells` are origin and step of the grid of latitudes and longitudes. `header` has the fields of a policy that the
    file gives. Steps repeat after `cycle` ticks; `changes` say from which tick of it which other transition holds.
    `notes` are about the model that was read.
    """

    values: Ints
    transition: Floats
    rule: dict[str, Any]
    graph: Bools
    epsilon: float
    names: tuple[str, ...]
    resolution: tuple[float, ...]
    unit: str
    cells: dict[str, Any] | None
    header: dict[str, Any]
    initial: Floats | None = None
    start: StreamStart = "any"
    objective: Objective = "error"
    mechanism: Mechanism = "staircase"
    delta: float | None = None
    notes: tuple[str, ...] = ()
    shows: tuple[int, ...] = ()
    cycle: int = 1
    changes: tuple[tuple[int, Floats], ...] = ()
    wording: dict[str, Any] = field(default_factory=dict)

    @property
    def states(self) -> int:
        """N."""
        return len(self.values)

    @property
    def is_plain(self) -> bool:
        """True if the chain's states are those that are measured, and its steps always the same."""
        return not (self.shows or self.changes)

    def fields(self, initial: Floats) -> dict[str, Any]:
        """The measurement as a policy has it, with the distribution of its chain at tick 0."""
        return {
            "coordinates": self.values.tolist(),
            "transition": sparse_rows(self.transition.tolist()),
            "initial": initial.tolist(),
            "shows": self.shows,
            "cycle": self.cycle,
            "changes": [{"tick": tick, "transition": sparse_rows(steps.tolist())} for tick, steps in self.changes],
            "graph": self.rule,
            "epsilon": self.epsilon,
        }

    def measured(self, distribution: Floats) -> Floats:
        """The distribution of the state that is measured (N,), of that of the chain."""
        return np.asarray(np.bincount(self.shows or range(self.states), distribution, self.states), dtype=np.float64)

    def within(self, states: Bools) -> Bools:
        """The states that are measured (N,) in some states of the chain."""
        return self.measured(states.astype(np.float64)) > 0.0


def read_specification(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    """Read a file, JSON if it is named so or begins with a brace, else TOML; PlanningError if it is neither.

    `keys` are some that it has, for the message if it is no object.
    """
    content = path.read_bytes()
    json_first = path.suffix == ".json" or content.lstrip()[:1] == b"{"
    try:
        document = json.loads(content) if json_first else tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        kind = "JSON" if json_first else "TOML"
        raise PlanningError(f"{path} is not {kind}: {error}") from None
    if not isinstance(document, dict):
        raise PlanningError(f"{path}: a specification is an object with the keys {', '.join(keys)}")
    return document


def refuse_unknown(keys: dict[str, Any], allowed: Sequence[str], where: str = "") -> None:
    """Refuse an object with an unknown key, with a PlanningError."""
    for key in keys:
        if key not in allowed:
            raise PlanningError(f"{where}unknown key {key!r:.60}; known are {', '.join(allowed)}")


def read_spec(path: Path, graph: dict[str, Any] | None = None) -> MeasureSpec:
    """Read a specification, with another graph if one is given.

    PlanningError with one line that says what is wrong, and in which file.
    """
    document = read_specification(path, _KEYS)
    if graph is not None:
        document["graph"] = graph
    try:
        return _spec(document, path.parent)
    except (PlanningError, GraphError, PolicyError) as error:
        raise PlanningError(f"{path}: {error}") from None


def _spec(fields: dict[str, Any], folder: Path) -> MeasureSpec:
    refuse_unknown(fields, (*_KEYS, *_CHOICES, *_POLICY))
    for key in ("graph", "epsilon"):
        if key not in fields:
            raise PlanningError(f"{key} is missing" + (f": give {_GRAPHS}" if key == "graph" else ""))
    model = _model(fields.get("transition"), folder)
    if "coordinates" in fields:  # the chain is the model's, what is measured is not
        model = {key: value for key, value in model.items() if key not in _PLACES}
    fields = {**model, **fields, "transition": model["transition"] if model else fields.get("transition")}
    values, resolution = _coordinates(fields, fitted="coordinates" in model)
    count = len(values)
    shows = _shows(fields.get("shows"), count)
    transition = _transition(fields, len(shows) or count)
    cycle, changes = _changes(fields, folder, len(transition))
    names = _names(fields.get("names"), count)
    rule = _rule(fields["graph"], names)
    if changes and fields.get("initial") == "stationary":
        raise PlanningError(
            "initial: steps that change with time have no stationary distribution; give probabilities, or any"
        )
    initial, start = _initial(fields.get("initial"), transition)
    notes = [f"About the fitted chain: {model['warning']}."] if "warning" in model else []
    if shows:
        notes.append(f"The chain has {len(shows)} states; what is promised is about the {count} that they show.")
    if changes:
        notes.append(f"Steps change {len(changes)} times in each cycle of {cycle} ticks.")
    followers = np.concatenate([transition, *(matrix for _, matrix in changes)])
    if shows:
        followers = followers @ np.eye(count)[list(shows)]
    return MeasureSpec(
        values=values,
        transition=transition,
        rule=rule,
        wording={} if rule is fields["graph"] else fields["graph"],
        graph=_graph(rule, values, followers),
        epsilon=_number(fields["epsilon"], "epsilon", 0.0, _MOST_EPSILON),
        initial=initial,
        start=start,
        names=names,
        resolution=resolution,
        unit=_text(fields.get("unit", ""), "unit"),
        objective=_one_of(fields.get("objective", "error"), "objective", get_args(Objective)),
        mechanism=_one_of(fields.get("mechanism", "staircase"), "mechanism", get_args(Mechanism)),
        delta=None if fields.get("delta") is None else _number(fields["delta"], "delta", 0.0, _MOST_DELTA),
        cells=_cells(fields.get("cells"), values),
        header={key: fields[key] for key in _POLICY if fields.get(key) is not None},
        notes=tuple(notes),
        shows=shows,
        cycle=cycle,
        changes=changes,
    )


def _model(transition: Any, folder: Path) -> dict[str, Any]:
    """Content of a file of `fugu plan model --grid`, under the keys of a specification; empty without a file."""
    if not isinstance(transition, str):
        return {}
    path = folder / transition
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise PlanningError(f"transition: {path} is not JSON") from None
    if not isinstance(document, dict) or "transition" not in document:
        raise PlanningError(
            f"transition: {path} holds no transition matrix; 'fugu plan model --grid' writes such files"
        )
    keys = ("coordinates", "transition", "initial", "names", "resolution", "warning", "shows")
    model = {key: document[key] for key in keys if document.get(key) is not None}
    if isinstance(document.get("grid"), dict):
        model |= {"cells": document["grid"], "unit": "m"}
    if document.get("period_seconds") is not None:
        model["period"] = document["period_seconds"]
    return model


def _coordinates(fields: dict[str, Any], *, fitted: bool) -> tuple[Ints, tuple[float, ...]]:
    """Lattice points, and what their steps are worth; those of a grid or a fitted model are on the lattice already."""
    points, size = fields.get("coordinates"), fields.get("grid")
    if (points is None) == (size is None):
        raise PlanningError('give either coordinates, a point for each state, or a grid such as "10x10"')
    if size is not None:
        columns, rows = _grid_size(size)
        table = np.array([(x, y) for y in range(rows) for x in range(columns)], dtype=np.float64)
    else:
        table = _table(points, "coordinates", "a point for each state")
    dimensions = table.shape[1]
    steps = fields.get("resolution", 1.0)
    parts = steps if isinstance(steps, list) else [steps] * dimensions
    resolution = tuple(_number(part, "resolution", 0.0, math.inf) for part in parts)
    if len(resolution) != dimensions:
        raise PlanningError(f"{len(resolution)} resolutions for coordinates in {dimensions} dimensions")
    on_lattice = fitted or size is not None or "resolution" not in fields
    values = lattice(table) if on_lattice else scale_points(table, resolution)
    if not 2 <= len(values) <= _MOST_STATES:
        raise PlanningError(f"{len(values)} states; from 2 to {_MOST_STATES} can be measured")
    if not np.any(values - values[0]):
        raise PlanningError("all states measure the same: there is nothing to release")
    return values, resolution


def _grid_size(size: Any) -> tuple[int, int]:
    match = re.fullmatch(r"\s*(\d{1,4})\s*[xX×]\s*(\d{1,4})\s*", size) if isinstance(size, str) else None
    if match is None or not 2 <= int(match[1]) * int(match[2]) <= _MOST_STATES:
        raise PlanningError(f'grid must be "COLUMNSxROWS" with 2 to {_MOST_STATES} cells, such as "10x10"')
    return int(match[1]), int(match[2])


def _transition(fields: dict[str, Any], count: int) -> Floats:
    if fields.get("transition") is None:
        if fields.get("grid") is None:
            raise PlanningError("transition is missing: a matrix, or the name of a file of 'fugu plan model --grid'")
        return _walk(*_grid_size(fields["grid"]))
    matrix = _table(fields["transition"], "transition", "a matrix with a row for each state")
    if matrix.shape != (count, count):
        raise PlanningError(f"transition is {matrix.shape[0]} x {matrix.shape[1]} for {count} states")
    if matrix.min() < 0.0:
        raise PlanningError("transition holds a negative probability")
    sums = matrix.sum(axis=1)
    for state in np.flatnonzero(np.abs(sums - 1.0) > _SUM_TOLERANCE):
        raise PlanningError(f"transition row {state} sums to {sums[state]:.9g}, not to 1")
    return np.asarray(matrix / sums[:, None], dtype=np.float64)


def _shows(shows: Any, count: int) -> tuple[int, ...]:
    if shows is None:
        return ()
    if not isinstance(shows, list) or not all(type(state) is int for state in shows):
        raise PlanningError("shows must be a list of states, counted from 0: what each state of the chain shows")
    if set(shows) != set(range(count)) or len(shows) > _MOST_STATES:
        raise PlanningError(f"shows must name all of the {count} states, for at most {_MOST_STATES} of the chain")
    return tuple(shows)


def _changes(fields: dict[str, Any], folder: Path, count: int) -> tuple[int, tuple[tuple[int, Floats], ...]]:
    cycle, changes = fields.get("cycle", 1), fields.get("changes", [])
    if type(cycle) is not int or not 1 <= cycle <= MAX_CYCLE:
        raise PlanningError(f"cycle must be a number of ticks from 1 to {MAX_CYCLE}")
    wrong = PlanningError(
        f"changes must be a list of at most {MAX_CHANGES}, such as [{{ tick = 480, transition = a matrix or a file "
        f"}}], in ascending order of ticks, above 0 and below {cycle}"
    )
    if not isinstance(changes, list) or len(changes) > MAX_CHANGES:
        raise wrong
    steps, before = [], 0
    for change in changes:
        if not isinstance(change, dict) or set(change) != {"tick", "transition"} or type(change["tick"]) is not int:
            raise wrong
        if not before < change["tick"] < cycle:
            raise wrong
        before = change["tick"]
        model = _model(change["transition"], folder)
        steps.append((before, _transition(model or change, count)))
    return cycle, tuple(steps)


def _walk(columns: int, rows: int) -> Floats:
    """A random walk over a grid, row by row: stay, or step to a cell beside, all equally likely."""
    place = np.arange(columns * rows).reshape(rows, columns)
    steps = np.eye(columns * rows)
    for before, after in ((place[:, :-1], place[:, 1:]), (place[:-1], place[1:])):
        steps[before.ravel(), after.ravel()] = steps[after.ravel(), before.ravel()] = 1.0
    return np.asarray(steps / steps.sum(axis=1, keepdims=True), dtype=np.float64)


def _rule(graph: Any, names: tuple[str, ...]) -> Any:
    """A graph as devices read it, of one in names; any other as it is.

    `apart` makes groups, with the rest as one more, and joins all pairs within each: which group it is may be told.
    `hidden` joins each of its states to every other one.
    """
    if not isinstance(graph, dict) or not graph.keys() & {"apart", "hidden"}:
        return graph
    (kind, value), *others = graph.items()
    groups = value if kind == "apart" else [value]
    if others or not (
        isinstance(groups, list) and groups and all(isinstance(group, list) and group for group in groups)
    ):
        raise PlanningError('graph: give either apart = [["kitchen", "bath"], ...] or hidden = ["kitchen", ...]')
    listed = [name for group in groups for name in group]
    for name in listed:
        if name not in names:
            raise PlanningError(f"graph: {kind}: no state is called {name!r:.60}; names are {', '.join(names):.200}")
        if listed.count(name) > 1:
            raise PlanningError(f"graph: {kind} names {name} twice")
    if kind == "hidden":
        states = [names.index(name) for name in value]
        return {"edges": [[a, b] for a in states for b in range(len(names)) if b not in states or a < b]}
    number = {name: 1 + index for index, group in enumerate(groups) for name in group}
    labels = [number.get(name, 0) for name in names]
    for label in labels:
        if labels.count(label) == 1:
            single_state = names[labels.index(label)]
            raise PlanningError(
                f"graph: apart: {single_state} would be alone, and told: put it into a group, or hide it"
            )
    return {"categories": labels}


def _graph(rule: Any, values: Ints, followers: Floats) -> Bools:
    """The pairs that devices will take a rule for; `followers` are rows with what can follow some one state."""
    if not isinstance(rule, dict) or len(rule) != 1:
        raise PlanningError(f"graph must be one of {_GRAPHS}")
    ((kind, value),) = rule.items()
    if kind in ("complete", "transition"):
        if value is not True:
            raise PlanningError(f"graph: {kind} must be true")
    elif kind == "radius":
        if (radius := _number(value, "graph: radius", -math.inf, math.inf)) > _LARGEST_RADIUS:
            raise PlanningError('graph: the radius is beyond all coordinates: give {"complete": true}')
        if radius < 0.0:
            raise PlanningError(f"graph: a radius is at least 0 and finite, got {radius:g}")
    elif kind == "categories":
        if not isinstance(value, list) or not all(type(label) in (str, int) for label in value):
            raise PlanningError("graph: categories must be a list of labels, one for each state")
    elif kind == "edges":
        if not isinstance(value, list) or not all(
            isinstance(edge, list) and len(edge) == 2 and all(type(end) is int for end in edge) for edge in value
        ):
            raise PlanningError("graph: edges must be pairs of states, such as [[0, 1], [1, 2]], counted from 0")
    else:
        raise PlanningError(f"graph: unknown kind {kind!r}; it must be one of {_GRAPHS}")
    successors = {set_of(np.flatnonzero(row).tolist()) for row in followers > 0.0} if kind == "transition" else ()
    sets = neighbours_of(rule, [tuple(point) for point in values.tolist()], [*successors])
    return np.array(
        [[bool(neighbours >> state & 1) for state in range(len(values))] for neighbours in sets], dtype=np.bool_
    )


def _initial(distribution: Any, transition: Floats) -> tuple[Floats | None, StreamStart]:
    if distribution is None or distribution == "any":
        return None, "any"
    count = len(transition)
    if distribution == "stationary":
        try:
            return MarkovChain.stationary(transition).initial, "stationary"
        except ChainClassError as error:
            raise PlanningError(f"initial: {error}") from None
    if isinstance(distribution, str):
        raise PlanningError(f'initial must be {count} probabilities, "stationary" or "any", got {distribution!r:.40}')
    row = _table([distribution], "initial", "a probability for each state")[0]
    if len(row) != count or row.min() < 0.0 or abs(math.fsum(row) - 1.0) > _SUM_TOLERANCE:
        raise PlanningError(f"initial must be {count} probabilities that sum to 1")
    return np.asarray(row / row.sum(), dtype=np.float64), "given"


def _names(names: Any, count: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"s{state}" for state in range(count))
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise PlanningError("names must be a list of texts, one for each state")
    if not all(name.isprintable() for name in names):
        raise PlanningError("names must be printable: no line breaks, no control characters")
    if len(names) != count or len(set(names)) != count:
        raise PlanningError(f"names must be {count} different ones, one for each state")
    return tuple(names)


def _cells(cells: Any, values: Ints) -> dict[str, Any] | None:
    if cells is None:
        return None
    if (
        not isinstance(cells, dict)
        or not {"origin", "step"} <= set(cells) <= {"origin", "step", "missing"}
        or values.shape[1] != 2
    ):
        raise PlanningError("cells must be the origin and step of a grid in two dimensions, in degrees")
    return cells


def _table(rows: Any, name: str, content: str) -> Floats:
    wrong = PlanningError(f"{name} must be {content}, of finite numbers")
    if not isinstance(rows, list) or not rows:
        raise wrong
    lists = [row if isinstance(row, list) else [row] for row in rows]
    if len({len(row) for row in lists}) != 1 or not all(type(cell) in (int, float) for row in lists for cell in row):
        raise wrong
    try:
        table = np.array(lists, dtype=np.float64)
    except OverflowError:
        raise wrong from None
    if not table.size or not np.all(np.isfinite(table)):
        raise wrong
    return table


def _number(value: Any, name: str, above: float, most: float) -> float:
    if type(value) not in (int, float) or not -1e300 < value < 1e300:
        raise PlanningError(f"{name} must be a finite number")
    if not above < value <= most:
        upper = "" if most == math.inf else f" and at most {most:g}"
        raise PlanningError(f"{name} must be above {above:g}{upper}, got {value:g}")
    return float(value)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise PlanningError(f"{name} must be a text")
    return value


def _one_of(value: Any, name: str, allowed: Sequence[Any]) -> Any:
    if value not in allowed:
        raise PlanningError(f"{name} must be one of {', '.join(allowed)}")
    return value

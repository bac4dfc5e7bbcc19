"""Read the specification of a private measurement from a TOML or JSON file, as `fugu plan measure` does."""

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

__all__ = ["MeasureSpec", "mask_of", "read_spec", "read_specification", "refuse_unknown_keys"]

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
_Changes = tuple[tuple[int, Floats], ...]


@dataclass(frozen=True)
class MeasureSpec:
    """The specification of a measurement and its protection.

    `values` holds the lattice points f, (N, d), and `resolution` the length of a lattice step in each dimension, in
    `unit`. `transition` is the matrix of the chain. If the chain's states differ from the measured ones, `shows` names
    the measured state of each; otherwise it is empty. `rule` is the policy graph as devices read it, `wording` the
    graph as written in names, or empty, and `graph` the graph as N x N booleans. `objective` chooses the edges that are
    added for exposed states. `epsilon` is that of each released point. Without `initial` any state is possible at tick
    0. `start` says for which distribution at tick 0 the stream's epsilon holds: "given", "any" or "stationary".
    `delta` is the mass that a delta-location set leaves out. `cells` holds origin and step of a grid of latitudes and
    longitudes. `header` holds the policy's fields that the file gives. Transitions repeat after `cycle` ticks;
    `changes` lists from which tick of the cycle which other matrix holds. `notes` are about the fitted chain.
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
    changes: _Changes = ()
    wording: dict[str, Any] = field(default_factory=dict)

    @property
    def states(self) -> int:
        """The number N of measured states."""
        return len(self.values)

    def fields(self, initial: Floats) -> dict[str, Any]:
        """The fields of the measurement in a policy; `initial` is the distribution of the chain at tick 0."""
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

    def measured_distribution(self, distribution: Floats) -> Floats:
        """Turn a distribution of the chain's state into that (N,) of the measured state."""
        return np.asarray(np.bincount(self.shows or range(self.states), distribution, self.states), dtype=np.float64)


def read_specification(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    """Read a specification file: JSON if its name or first character says so, else TOML.

    `keys` lists keys of a specification, for the message if the file holds no object.

    Raises:
        PlanningError: the file is not valid, or holds no object.
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


def refuse_unknown_keys(document: dict[str, Any], allowed_keys: Sequence[str], message_prefix: str = "") -> None:
    """Raise a PlanningError if an object has an unknown key; `message_prefix` begins the message."""
    for key in document:
        if key not in allowed_keys:
            raise PlanningError(f"{message_prefix}unknown key {key!r:.60}; known are {', '.join(allowed_keys)}")


def read_spec(path: Path, graph: dict[str, Any] | None = None) -> MeasureSpec:
    """Read a specification; `graph`, if given, replaces the policy graph of the file.

    Raises:
        PlanningError: the specification is wrong; one line says why, and in which file.
    """
    document = read_specification(path, _KEYS)
    if graph is not None:
        document["graph"] = graph
    try:
        return _parse_spec(document, path.parent)
    except (PlanningError, GraphError, PolicyError) as error:
        raise PlanningError(f"{path}: {error}") from None


def _parse_spec(fields: dict[str, Any], folder: Path) -> MeasureSpec:
    refuse_unknown_keys(fields, (*_KEYS, *_CHOICES, *_POLICY))
    for key in ("graph", "epsilon"):
        if key not in fields:
            raise PlanningError(f"{key} is missing" + (f": give {_GRAPHS}" if key == "graph" else ""))
    model = _read_model(fields.get("transition"), folder)
    if "coordinates" in fields:  # the chain is the model's, what is measured is not
        model = {key: value for key, value in model.items() if key not in _PLACES}
    fields = {**model, **fields, "transition": model["transition"] if model else fields.get("transition")}
    values, resolution = _parse_coordinates(fields, fitted="coordinates" in model)
    state_count = len(values)
    shows = _parse_shows(fields.get("shows"), state_count)
    transition = _parse_transition(fields, len(shows) or state_count)
    cycle, changes = _parse_changes(fields, folder, len(transition))
    names = _parse_names(fields.get("names"), state_count)
    graph, delta, unit = fields["graph"], fields.get("delta"), fields.get("unit", "")
    if not isinstance(unit, str):
        raise PlanningError("unit must be a text")
    rule = _parse_rule(graph, names)
    if changes and fields.get("initial") == "stationary":
        raise PlanningError(
            "initial: steps that change with time have no stationary distribution; give probabilities, or any"
        )
    initial, start_kind = _parse_initial(fields.get("initial"), transition)
    notes = [f"About the fitted chain: {model['warning']}."] if "warning" in model else []
    if shows:
        notes.append(f"The chain has {len(shows)} states; what is promised is about the {state_count} that they show.")
    if changes:
        notes.append(f"Steps change {len(changes)} times in each cycle of {cycle} ticks.")
    next_states = np.concatenate([transition, *(matrix for _, matrix in changes)])
    if shows:
        next_states = next_states @ np.eye(state_count)[list(shows)]
    return MeasureSpec(
        values=values,
        transition=transition,
        rule=rule,
        wording={} if rule is graph else graph,
        graph=_parse_graph(rule, values, next_states),
        epsilon=_parse_number(fields["epsilon"], "epsilon", 0.0, _MOST_EPSILON),
        initial=initial,
        start=start_kind,
        names=names,
        resolution=resolution,
        unit=unit,
        objective=_one_of(fields.get("objective", "error"), "objective", get_args(Objective)),
        mechanism=_one_of(fields.get("mechanism", "staircase"), "mechanism", get_args(Mechanism)),
        delta=None if delta is None else _parse_number(delta, "delta", 0.0, _MOST_DELTA),
        cells=_parse_cells(fields.get("cells"), values),
        header={key: fields[key] for key in _POLICY if fields.get(key) is not None},
        notes=tuple(notes),
        shows=shows,
        cycle=cycle,
        changes=changes,
    )


def _read_model(transition: Any, folder: Path) -> dict[str, Any]:
    """Read a file of `fugu plan model --grid` as fields of a specification; empty if `transition` names no file."""
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
    model_keys = ("coordinates", "transition", "initial", "names", "resolution", "warning", "shows")
    model = {key: document[key] for key in model_keys if document.get(key) is not None}
    if isinstance(document.get("grid"), dict):
        model |= {"cells": document["grid"], "unit": "m"}
    if document.get("period_seconds") is not None:
        model["period"] = document["period_seconds"]
    return model


def _parse_coordinates(fields: dict[str, Any], *, fitted: bool) -> tuple[Ints, tuple[float, ...]]:
    """Read the lattice points (N, d) and the resolution of each dimension; a grid or fitted model needs no scaling."""
    points, grid_text = fields.get("coordinates"), fields.get("grid")
    if (points is None) == (grid_text is None):
        raise PlanningError('give either coordinates, a point for each state, or a grid such as "10x10"')
    if grid_text is not None:
        columns, rows = _grid_size(grid_text)
        table = np.array([(x, y) for y in range(rows) for x in range(columns)], dtype=np.float64)
    else:
        table = _parse_table(points, "coordinates", "a point for each state")
    dimensions, step_lengths = table.shape[1], fields.get("resolution", 1.0)
    resolution = tuple(
        _parse_number(step, "resolution", 0.0, math.inf)
        for step in (step_lengths if isinstance(step_lengths, list) else [step_lengths] * dimensions)
    )
    if len(resolution) != dimensions:
        raise PlanningError(f"{len(resolution)} resolutions for coordinates in {dimensions} dimensions")
    on_lattice = fitted or grid_text is not None or "resolution" not in fields
    values = lattice(table) if on_lattice else scale_points(table, resolution)
    if not 2 <= len(values) <= _MOST_STATES:
        raise PlanningError(f"{len(values)} states; from 2 to {_MOST_STATES} can be measured")
    if not np.any(values - values[0]):
        raise PlanningError("all states measure the same: there is nothing to release")
    return values, resolution


def _grid_size(grid_text: Any) -> tuple[int, int]:
    match = re.fullmatch(r"\s*(\d{1,4})\s*[xX×]\s*(\d{1,4})\s*", grid_text) if isinstance(grid_text, str) else None
    columns, rows = (0, 0) if match is None else map(int, match.groups())
    if not 2 <= columns * rows <= _MOST_STATES:
        raise PlanningError(f'grid must be "COLUMNSxROWS" with 2 to {_MOST_STATES} cells, such as "10x10"')
    return columns, rows


def _parse_transition(fields: dict[str, Any], state_count: int) -> Floats:
    if fields.get("transition") is None:
        if fields.get("grid") is None:
            raise PlanningError("transition is missing: a matrix, or the name of a file of 'fugu plan model --grid'")
        return _random_walk(*_grid_size(fields["grid"]))
    matrix = _parse_table(fields["transition"], "transition", "a matrix with a row for each state")
    if matrix.shape != (state_count, state_count):
        raise PlanningError(f"transition is {matrix.shape[0]} x {matrix.shape[1]} for {state_count} states")
    if matrix.min() < 0.0:
        raise PlanningError("transition holds a negative probability")
    sums = matrix.sum(axis=1)
    for state in np.flatnonzero(np.abs(sums - 1.0) > _SUM_TOLERANCE):
        raise PlanningError(f"transition row {state} sums to {sums[state]:.9g}, not to 1")
    return np.asarray(matrix / sums[:, None], dtype=np.float64)


def _parse_shows(shows: Any, state_count: int) -> tuple[int, ...]:
    if shows is None:
        return ()
    if not isinstance(shows, list) or not all(type(state) is int for state in shows):
        raise PlanningError("shows must be a list of states, counted from 0: what each state of the chain shows")
    if set(shows) != set(range(state_count)) or len(shows) > _MOST_STATES:
        raise PlanningError(f"shows must name all of the {state_count} states, for at most {_MOST_STATES} of the chain")
    return tuple(shows)


def _parse_changes(fields: dict[str, Any], folder: Path, state_count: int) -> tuple[int, _Changes]:
    cycle, changes = fields.get("cycle", 1), fields.get("changes", [])
    if type(cycle) is not int or not 1 <= cycle <= MAX_CYCLE:
        raise PlanningError(f"cycle must be a number of ticks from 1 to {MAX_CYCLE}")
    error = PlanningError(
        f"changes must be a list of at most {MAX_CHANGES}, such as [{{ tick = 480, transition = a matrix or a file "
        f"}}], in ascending order of ticks, above 0 and below {cycle}"
    )
    if not isinstance(changes, list) or len(changes) > MAX_CHANGES:
        raise error
    matrices, last_tick = [], 0
    for change in changes:
        if not isinstance(change, dict) or change.keys() != {"tick", "transition"}:
            raise error
        tick = change["tick"]
        if type(tick) is not int or not last_tick < tick < cycle:
            raise error
        last_tick = tick
        matrices.append((tick, _parse_transition(_read_model(change["transition"], folder) or change, state_count)))
    return cycle, tuple(matrices)


def _random_walk(columns: int, rows: int) -> Floats:
    """The matrix of a random walk over the cells of a grid: staying and each step to a neighbour are equally likely."""
    y, x = np.divmod(np.arange(columns * rows), columns)
    is_step = np.abs(x[:, None] - x) + np.abs(y[:, None] - y) <= 1
    return np.asarray(is_step / is_step.sum(axis=1, keepdims=True), dtype=np.float64)


def _parse_rule(graph: Any, names: tuple[str, ...]) -> Any:
    """Translate a graph that is written in names for devices; return any other graph unchanged.

    `apart` joins all pairs within each group, and all other states form one more group: the group may be told.
    `hidden` joins each of its states to every other state.
    """
    if not isinstance(graph, dict) or not graph.keys() & {"apart", "hidden"}:
        return graph
    (kind, rule_value), *other_rules = graph.items()
    groups = rule_value if kind == "apart" else [rule_value]
    if other_rules or not (
        isinstance(groups, list) and groups and all(isinstance(group, list) and group for group in groups)
    ):
        raise PlanningError('graph: give either apart = [["kitchen", "bath"], ...] or hidden = ["kitchen", ...]')
    group_names = [name for group in groups for name in group]
    for name in group_names:
        if name not in names:
            raise PlanningError(f"graph: {kind}: no state is called {name!r:.60}; names are {', '.join(names):.200}")
        if group_names.count(name) > 1:
            raise PlanningError(f"graph: {kind} names {name} twice")
    if kind == "hidden":
        states = [names.index(name) for name in rule_value]
        return {"edges": [[a, b] for a in states for b in range(len(names)) if b not in states or a < b]}
    group_of = {name: 1 + index for index, group in enumerate(groups) for name in group}
    labels = [group_of.get(name, 0) for name in names]
    for name, label in zip(names, labels, strict=True):
        if labels.count(label) == 1:
            raise PlanningError(f"graph: apart: {name} would be alone, and told: put it into a group, or hide it")
    return {"categories": labels}


def _parse_graph(rule: Any, values: Ints, next_states: Floats) -> Bools:
    """The graph (N, N) that devices read from a rule; each row of `next_states` marks successors of one state."""
    if not isinstance(rule, dict) or len(rule) != 1:
        raise PlanningError(f"graph must be one of {_GRAPHS}")
    ((kind, rule_value),) = rule.items()
    rule_items = rule_value if isinstance(rule_value, list) else [None]
    match kind:
        case "complete" | "transition":
            if rule_value is not True:
                raise PlanningError(f"graph: {kind} must be true")
        case "radius":
            if (radius := _parse_number(rule_value, "graph: radius", -math.inf, math.inf)) > _LARGEST_RADIUS:
                raise PlanningError('graph: the radius is beyond all coordinates: give {"complete": true}')
            if radius < 0.0:
                raise PlanningError(f"graph: a radius is at least 0 and finite, got {radius:g}")
        case "categories":
            if not all(type(label) in (str, int) for label in rule_items):
                raise PlanningError("graph: categories must be a list of labels, one for each state")
        case "edges":
            if not all(isinstance(edge, list) and [*map(type, edge)] == [int, int] for edge in rule_items):
                raise PlanningError("graph: edges must be pairs of states, such as [[0, 1], [1, 2]], counted from 0")
        case _:
            raise PlanningError(f"graph: unknown kind {kind!r}; it must be one of {_GRAPHS}")
    successors = {set_of(np.flatnonzero(row)) for row in next_states > 0.0} if kind == "transition" else ()
    neighbour_sets = neighbours_of(rule, [tuple(point) for point in values.tolist()], [*successors])
    return np.array([mask_of(neighbours, len(values)) for neighbours in neighbour_sets])


def mask_of(state_bits: int, state_count: int) -> Bools:
    """Make a mask (n,) of the states whose bits are set, for n = `state_count`."""
    return np.array([bool(state_bits >> state & 1) for state in range(state_count)])


def _parse_initial(distribution: Any, transition: Floats) -> tuple[Floats | None, StreamStart]:
    if distribution is None or distribution == "any":
        return None, "any"
    states = len(transition)
    if distribution == "stationary":
        try:
            return MarkovChain.stationary(transition).initial, "stationary"
        except ChainClassError as error:
            raise PlanningError(f"initial: {error}") from None
    if isinstance(distribution, str):
        raise PlanningError(f'initial must be {states} probabilities, "stationary" or "any", got {distribution!r:.40}')
    row = _parse_table([distribution], "initial", "a probability for each state")[0]
    if len(row) != states or row.min() < 0.0 or abs(math.fsum(row) - 1.0) > _SUM_TOLERANCE:
        raise PlanningError(f"initial must be {states} probabilities that sum to 1")
    return np.asarray(row / row.sum(), dtype=np.float64), "given"


def _parse_names(names: Any, state_count: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"s{state}" for state in range(state_count))
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise PlanningError("names must be a list of texts, one for each state")
    if not all(name.isprintable() for name in names):
        raise PlanningError("names must be printable: no line breaks, no control characters")
    if len(names) != state_count or len(set(names)) != state_count:
        raise PlanningError(f"names must be {state_count} different ones, one for each state")
    return tuple(names)


def _parse_cells(cells: Any, values: Ints) -> dict[str, Any] | None:
    if cells is None:
        return None
    if (
        not isinstance(cells, dict)
        or not {"origin", "step"} <= set(cells) <= {"origin", "step", "missing"}
        or values.shape[1] != 2
    ):
        raise PlanningError("cells must be the origin and step of a grid in two dimensions, in degrees")
    return cells


def _parse_table(rows: Any, name: str, content_words: str) -> Floats:
    error = PlanningError(f"{name} must be {content_words}, of finite numbers")
    if not isinstance(rows, list) or not rows:
        raise error
    points = [row if isinstance(row, list) else [row] for row in rows]
    if len({len(row) for row in points}) != 1 or not all(type(cell) in (int, float) for row in points for cell in row):
        raise error
    try:
        table = np.array(points, dtype=np.float64)
    except OverflowError:
        raise error from None
    if not table.size or not np.all(np.isfinite(table)):
        raise error
    return table


def _parse_number(value: Any, name: str, lower: float, limit: float) -> float:
    if type(value) not in (int, float) or not -1e300 < value < 1e300:
        raise PlanningError(f"{name} must be a finite number")
    if not lower < value <= limit:
        upper = "" if limit == math.inf else f" and at most {limit:g}"
        raise PlanningError(f"{name} must be above {lower:g}{upper}, got {value:g}")
    return float(value)


def _one_of(value: Any, name: str, allowed: Sequence[Any]) -> Any:
    if value not in allowed:
        raise PlanningError(f"{name} must be one of {', '.join(allowed)}")
    return value

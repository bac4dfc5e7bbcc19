"""Describe a planned measurement, or a release over a network, as the result of a command."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.sparse.csgraph import connected_components

from fugu.library.guarantee import promise_document, promise_words, stretch_documents, stretch_table
from fugu.library.report import JsonObject, Line, Report, Result, Table
from fugu.places.graphs import edge_list
from fugu.places.hull import Hull
from fugu.places.noise import noise_error
from fugu.planning.measure_planner import Errors, MeasurePlan, SetPlan
from fugu.planning.network_plan import NetworkPlan, NetworkSpec

__all__ = ["measure_result", "network_result"]

_MECHANISMS = ("staircase", "optimal")
_MOST_NAMED = 12
_MOST_ROWS = 24
_UNKNOWN = Errors(None, None, None, None)
_NOTABLE = 1.05
_MOST_CORNERS = 8


def measure_result(plan: MeasurePlan) -> Result:
    """Describe a plan of points; in JSON errors are in lattice steps, and an unknown number is null."""
    spec, stream, constraints = plan.spec, plan.stream, plan.constraints
    document = {
        "states": spec.states,
        "names": list(spec.names),
        "resolution": list(spec.resolution),
        "unit": spec.unit,
        "graph": spec.rule,
        "edges": len(edge_list(spec.graph)),
        "objective": spec.objective,
        **_set_document(plan.worst),
        "rmse": {name: plan.errors.get(name, _UNKNOWN)._asdict() for name in _MECHANISMS},
        "rmse_missing": plan.reasons,
        "unbounded_factors": [None if factor == math.inf else float(factor) for factor in plan.unbounded_factors],
        "attack": None if plan.named_share is None else {"guess": float(plan.prior.max()), "named": plan.named_share},
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
        "run_in": constraints.cycle_tick,
        "period": len(constraints.all_sets()) - constraints.cycle_index,
        "different_sets": len(set(constraints.all_sets())),
        "sets": [_set_document(set_plan) for set_plan in plan.sets],
        "delta_set": None if plan.delta is None else _set_document(plan.delta),
        "notes": [*_notes(plan)],
    }
    return Result(document, _measure_report(plan))


def _set_document(set_plan: SetPlan) -> JsonObject:
    protection = set_plan.protection
    return {
        "first_tick": set_plan.first,
        "repeats": set_plan.repeats,
        "possible": np.flatnonzero(set_plan.possible).tolist(),
        "likely": np.flatnonzero(set_plan.likely).tolist(),
        "hull": _vertices(set_plan.hull),
        "area": float(set_plan.hull.area),
        "degree_of_protection": set_plan.degrees.tolist(),
        "exposed": list(set_plan.exposed),
        "added_edges": [list(edge) for edge in protection.added_edges],
        "capped": protection.is_capped,
        "factor": 1.0 if set_plan.fallback else float(protection.factor),
        "fallback": set_plan.fallback,
        "knorm_rmse_at_epsilon_1": math.sqrt(noise_error(set_plan.hull)),
    }


def _notes(plan: MeasurePlan) -> Iterator[str]:
    """Yield sentences on what the numbers of a plan mean."""
    spec, worst_set, stream = plan.spec, plan.worst, plan.stream
    yield from _graph_sentences(plan)
    if worst_set.fallback:
        yield (
            "The states that remain possible would all be measured the same, so only the fallback table is used. An "
            "adversary who knows the chain knows the measurement without it."
        )
    if worst_set.protection.is_capped:
        yield (
            "The hull of the graph is flat: points would have told for certain which part of the states it was. It was "
            f"widened, so that no two possible states are further apart than {float(plan.factor):g} epsilon."
        )
    if stream.epsilon is not None and stream.epsilon > _NOTABLE * plan.epsilon_any:
        yield (
            f"Each point loses {spec.epsilon:g}, but neighbouring ticks tell of one another: all points together lose "
            f"up to {stream.epsilon:.10g} about one tick. Measuring less often, or a smaller epsilon, brings that down."
        )
    if plan.delta is not None:
        yield (
            "Delta-location sets depend on what was released; an example is that of the distribution before the first "
            f"point: {int(plan.delta.likely.sum())} of {int(plan.delta.possible.sum())} states likely."
        )
    yield from spec.notes


def _graph_sentences(plan: MeasurePlan) -> Iterator[str]:
    """Yield sentences on hidden states and on states that points may tell apart; nothing without names."""
    spec = plan.spec
    pair_words, any_words = (f"by a factor of up to {math.exp(loss):.3g}" for loss in (spec.epsilon, plan.epsilon_any))
    if groups := spec.wording.get("apart"):
        other_states = [name for name in spec.names if not any(name in group for group in groups)]
        group_words = "; ".join(_name_list(group) for group in (*groups, other_states) if group)
        yield (
            f"Hidden: which state of its group it is ({group_words}). One point changes the odds of two of a group "
            f"{pair_words}."
        )
        yield (
            f"May be told: which group it is; one point changes those odds {any_words}, and all together may tell it. "
            f"To hide that as well: --hide {','.join(groups[0])}"
        )
    elif hidden := spec.wording.get("hidden"):
        yield (
            f"Hidden: whether it is {', and whether it is '.join(hidden)}. One point changes the odds of such a state "
            f"and any other {pair_words}."
        )
        yield f"May be told: which of the others it is; one point changes those odds {any_words}."


def _measure_report(plan: MeasurePlan) -> Report:
    yield Line(promise_words(plan.stream.epsilon, 0, plan.stream.stretches), bold=True)
    yield Line("The epsilons below are of one point, and of all points about one tick.")
    spec = plan.spec
    dimensions = spec.values.shape[1]
    ((kind, rule_value),) = spec.rule.items()
    rule_words = f"{kind} {rule_value:g}" if kind == "radius" else kind
    yield Line(
        f"{spec.states} states measured in {dimensions} dimension{'s' if dimensions > 1 else ''}; policy graph: "
        f"{rule_words}, {len(edge_list(spec.graph))} pairs that must not be told apart"
    )
    if spec.wording:
        group_count, group_of = connected_components(spec.graph, directed=False)
        edges = [[(a, b) for a, b in edge_list(spec.graph) if group_of[a] == group] for group in range(group_count)]
        group_rows = [
            (
                _name_list([name for name, number in zip(spec.names, group_of, strict=True) if number == group]),
                _name_list([f"{spec.names[a]} - {spec.names[b]}" for a, b in edges[group]]),
            )
            for group in range(group_count)
        ]
        yield Table("Policy graph", ("states", "edges"), group_rows)
    yield Table("Possible states", ("", ""), _possible_rows(plan))
    yield Table("Protection" + ("" if len(plan.sets) == 1 else " once it repeats"), ("", ""), _protection_rows(plan))
    yield Table("Epsilon", ("", ""), _epsilon_rows(plan))
    if stretches := plan.stream.stretches:
        yield stretch_table(stretches)
    yield from _error_parts(plan)
    if plan.named_share is not None:
        yield Line(
            f"After one point an attacker names the state rightly {plan.named_share:.1%} of the time, without any "
            f"{plan.prior.max():.1%}."
        )
    if len(plan.sets) > 1:
        yield from _set_parts(plan)
    for note in _notes(plan):
        yield Line(note, bold=True)


def _possible_rows(plan: MeasurePlan) -> list[tuple[str, str]]:
    constraints, states = plan.constraints, plan.spec.states
    set_sizes = [possible_set.bit_count() for possible_set in constraints.all_sets()]
    if len(set(constraints.all_sets())) == 1:
        return [
            ("at every tick", "all states" if set_sizes[0] == states else f"the same {set_sizes[0]} of {states} states")
        ]
    start_rows = [("at tick 0", f"{set_sizes[0]} of {states} states")] if constraints.cycle_index else []
    cycle_sizes, cycle_tick = set_sizes[constraints.cycle_index :], constraints.cycle_tick
    cycle_words = f"{len(cycle_sizes)} sets in turn, of {min(cycle_sizes)} to {max(cycle_sizes)} states"
    later_words = f"{cycle_sizes[0]} of {states} states" if len(cycle_sizes) == 1 else cycle_words
    return [*start_rows, (f"from tick {cycle_tick} on", later_words)]


def _protection_rows(plan: MeasurePlan) -> list[tuple[str, str]]:
    spec, set_plan = plan.spec, plan.worst
    shape_words = ("a point", "a segment", "a polygon", "a solid")[set_plan.hull.rank]
    hull_size = "flat" if set_plan.hull.rank < set_plan.hull.dimensions else f"{float(set_plan.hull.area):g}"
    corners = _vertices(set_plan.hull)
    corner_words = " ".join(f"({', '.join(f'{x:g}' for x in corner)})" for corner in corners[:_MOST_CORNERS])
    omission = "" if len(corners) <= _MOST_CORNERS else f" and {len(corners) - _MOST_CORNERS} more"
    possible_degrees = set_plan.degrees[set_plan.possible]
    rows = [
        ("sensitivity hull", f"{shape_words} with {len(corners)} corners"),
        ("its corners", corner_words + omission),
        (("its size", "its length", "its area", "its volume")[set_plan.hull.dimensions], hull_size),
        ("exposed by the graph alone", _name_list([spec.names[state] for state in set_plan.exposed])),
        (
            "edges added for them",
            _name_list([f"{spec.names[a]} - {spec.names[b]}" for a, b in set_plan.protection.added_edges]),
        ),
    ]
    if spec.states <= _MOST_NAMED:
        named_degrees = zip(spec.names, set_plan.degrees.tolist(), strict=True)
        degrees_text = "  ".join(f"{name}: {degree}" for name, degree in named_degrees if degree)
        factors = zip(spec.names, set_plan.possible.tolist(), plan.unbounded_factors, strict=True)
        factors_text = "  ".join(f"{name}: {float(factor):.4g}" for name, is_possible, factor in factors if is_possible)
        rows += [("degree of protection", degrees_text), ("factor against absence (unbounded)", factors_text)]
    else:
        degree_range = f"{possible_degrees.min()} to {possible_degrees.max()}"
        rows.append(("degree of protection", f"{degree_range} states, median {np.median(possible_degrees):g}"))
        largest_factor = max(
            factor for factor, is_possible in zip(plan.unbounded_factors, set_plan.possible, strict=True) if is_possible
        )
        rows.append(("factor against absence (unbounded)", f"up to {float(largest_factor):.4g}"))
    return rows


def _epsilon_rows(plan: MeasurePlan) -> list[tuple[str, str]]:
    spec, stream = plan.spec, plan.stream
    points_text = stream.reason or "" if stream.epsilon is None else f"{stream.epsilon:.10g}"
    bound_words = "" if stream.epsilon is None else f"  ({stream.adversary} adversary; {stream.bound})"
    return [
        ("one point, protected pairs", f"{spec.epsilon:g}"),
        ("one point, any two possible states", f"{plan.epsilon_any:.6g}  (factor {float(plan.factor):g})"),
        ("all points, about one tick", points_text + bound_words),
    ]


def _error_parts(plan: MeasurePlan) -> Report:
    factor, unit = _unit(plan)
    error_rows = [
        (name, *("-" if error is None else f"{error * factor:.4g}" for error in plan.errors.get(name, _UNKNOWN)))
        for name in _MECHANISMS
    ]
    columns = ("", "noise alone", "released point", "estimate from it alone", "gateway's estimate")
    yield Table(f"Root-mean-square error, {unit}", columns, error_rows)
    for name, reason in plan.reasons.items():
        yield Line(f"{name}: {reason}")
    yield Line(
        f"Estimates are posterior means: from a single point and {plan.prior_name}, and from all points so far as the "
        "gateway publishes them (simulated)."
    )


def _set_parts(plan: MeasurePlan) -> Report:
    listed_sets = plan.sets[:_MOST_ROWS]
    factor, unit = _unit(plan)
    yield Table(
        f"Sets of possible states, in the order in which they come (error of K-norm noise: {unit})",
        ("from tick", "states", "exposed", "edges added", "least protection", "area", "factor", "error"),
        [
            (
                str(set_plan.first) + (" *" if set_plan.repeats else ""),
                str(int(set_plan.possible.sum())),
                str(len(set_plan.exposed)),
                str(len(set_plan.protection.added_edges)),
                "fallback" if set_plan.fallback else str(int(set_plan.degrees[set_plan.possible].min())),
                f"{float(set_plan.hull.area):g}",
                "1" if set_plan.fallback else f"{float(set_plan.protection.factor):g}",
                f"{math.sqrt(noise_error(set_plan.hull)) / plan.spec.epsilon * factor:.4g}",
            )
            for set_plan in listed_sets
        ],
    )
    unlisted_count = len(plan.constraints.all_sets()) - len(listed_sets)
    yield Line("* comes back for ever." + (f" {unlisted_count} more sets are not shown." if unlisted_count > 0 else ""))


def _unit(plan: MeasurePlan) -> tuple[float, str]:
    """The factor from lattice steps to the unit in which errors are shown, and the name of that unit."""
    resolution, unit = plan.spec.resolution, plan.spec.unit
    if len(set(resolution)) > 1 or (resolution[0] == 1.0 and not unit):
        return 1.0, "lattice steps"
    return resolution[0], unit or "in the unit of the coordinates"


def _vertices(hull: Hull) -> list[list[float]]:
    vertices: list[list[int]] = hull.vertices.tolist()
    return [[value / hull.scale for value in vertex] if hull.scale > 1 else list(vertex) for vertex in vertices]


def _name_list(names: Sequence[str]) -> str:
    omission = "" if len(names) <= _MOST_NAMED else f" and {len(names) - _MOST_NAMED} more"
    return ", ".join(names[:_MOST_NAMED]) + omission if names else "none"


def network_result(spec: NetworkSpec, plan: NetworkPlan) -> Result:
    """Describe the noise of each mechanism for a release over a network, with the least noise marked."""
    document = {
        "epsilon": spec.epsilon,
        "adversary": "ignorant",
        "variables": len(spec.values),
        "secrets": {
            name: [[spec.values[name][a], spec.values[name][b]] for a, b in secret_pairs]
            for name, secret_pairs in spec.secrets.items()
        },
        "least": plan.least_noise.mechanism,
        "mechanisms": [
            {
                "mechanism": noise.mechanism,
                "scale": noise.scale,
                "protects_correlated": noise.protects,
                "reason": noise.reason,
            }
            for noise in plan.noises
        ],
        "refused": plan.refused,
    }
    return Result(document, _network_report(spec, plan))


def _network_report(spec: NetworkSpec, plan: NetworkPlan) -> Report:
    variable_count = len(spec.values)
    noise_rows = [
        (
            noise.mechanism + (" (least)" if noise is plan.least_noise else ""),
            f"{noise.scale:.6g}",
            "yes" if noise.protects else "no",
            noise.reason,
        )
        for noise in plan.noises
    ]
    variable_words = f"{variable_count} variable{'s' * (variable_count > 1)}"
    title = f"Noise for one answer about {variable_words} at epsilon {spec.epsilon:g}"
    yield Table(title, ("mechanism", "scale", "protects", "determined by"), noise_rows)
    for mechanism, reason in plan.refused.items():
        yield Line(f"{mechanism}: {reason}")
    yield Line(
        "scale: of the Laplace noise on the answer, in its own unit. It protects the secrets against somebody who "
        "believes this network and knows no variable for certain, for one release."
    )

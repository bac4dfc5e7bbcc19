"""The sets of states that are possible while a measurement runs, and what protects them."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.contract.noise_table import MAX_TABLE_STATES
from fugu.places.constraints import ConstraintSchedule
from fugu.places.graphs import restrict
from fugu.places.hull import Hull, complete_hull, graph_hull
from fugu.places.moments import area
from fugu.places.optimal import optimal_table
from fugu.places.protection import Protection, degree_of_protection, exposed, protect_likely
from fugu.places.tables import TableWeights
from fugu.planning.measure_spec import MeasureSpec

__all__ = ["SetPlan", "optimum", "prior_within", "set_plan", "set_plans"]

_MOST_SETS = 64
_CAP = 4
_SOLVER_SECONDS = 30.0


class SetPlan(NamedTuple):
    """What holds while one set of states is possible.

    Attributes:
        first: the first tick with this set.
        until: the first tick from which the set never comes back; none if it does for ever.
        possible: N booleans.
        likely: N booleans, the states with noise of their own; fewer than the possible ones in a delta-location set.
        exposed: states that the policy graph alone leaves unprotected.
        protection: the graph with edges added, its hull and its factor.
        hull: of the noise: the protection's, or the fallback's.
        degrees: degree of protection of each state; 0 for a state that is not possible.
        fallback: whether only the fallback table may be used, because nothing else would hide anything.
    """

    first: int
    until: int | None
    possible: Bools
    likely: Bools
    exposed: tuple[int, ...]
    protection: Protection
    hull: Hull
    degrees: Ints
    fallback: bool

    @property
    def repeats(self) -> bool:
        """Whether the set comes back for ever."""
        return self.until is None

    @property
    def area(self) -> Fraction:
        """Of the hull; 0 if it is flat."""
        return area(self.hull)


def set_plans(spec: MeasureSpec, found: ConstraintSchedule) -> tuple[SetPlan, ...]:
    """The different sets of a schedule in the order of their first ticks; if they are many, the cycle goes first."""
    places: dict[bytes, list[int]] = {}  # what is possible may come again before the chain's own states do
    for place, possible in enumerate(found.constraints):
        places.setdefault(possible.tobytes(), []).append(place)
    chosen = sorted(places.values(), key=lambda own: (own[-1] < found.start, own[0]))[:_MOST_SETS]
    return tuple(
        set_plan(
            spec,
            found.first(own[0]),
            None if own[-1] >= found.start else found.first(own[-1] + 1),
            found.constraints[own[0]],
            found.constraints[own[0]],
        )
        for own in sorted(chosen)
    )


def set_plan(spec: MeasureSpec, first: int, until: int | None, possible: Bools, likely: Bools) -> SetPlan:
    """What protects the states that are possible from one tick until another, when only some have rows of their own."""
    values = spec.values
    # above the size of tables a device draws staircases of whole hulls: those of a cap above 1 are no lattice polygons
    cap = _CAP if spec.states <= MAX_TABLE_STATES else 1
    protection = protect_likely(values, spec.graph, possible, likely, objective=spec.objective, cap=cap)
    alone = exposed(graph_hull(values, restrict(spec.graph, possible)), values, possible)
    inside = values[likely]
    fallback = not np.any(inside != inside[0])
    hull = complete_hull(values) if fallback else protection.hull
    degrees = degree_of_protection(protection.hull, values, possible)
    return SetPlan(first, until, possible, likely, tuple(alone), protection, hull, degrees, fallback)


def prior_within(distribution: Floats, name: str, worst: SetPlan) -> tuple[Floats, str]:
    """The long-run distribution within a set of states."""
    inside = np.where(worst.possible, distribution, 0.0)
    if inside.sum() <= 0.0:
        return worst.possible / worst.possible.sum(), "the uniform distribution over the possible states"
    return inside / inside.sum(), name + ("" if worst.possible.all() else " within the possible states")


def optimum(spec: MeasureSpec, each: SetPlan, prior: Floats) -> TableWeights:
    """The table of least expected error for the states of a set."""
    within = np.ones(spec.states, dtype=np.bool_) if each.fallback else each.likely
    return optimal_table(each.hull, spec.values, within, spec.epsilon, prior=prior, seconds=_SOLVER_SECONDS)

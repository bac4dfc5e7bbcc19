"""Tables for the sets of states that are possible at coming ticks, made from a policy and nothing secret."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contract.errors import FuguError
from contract.measure_check import check_noise
from contract.measure_table import Noise, set_of
from gateway.chain.arrays import Bools
from gateway.dphmm.compiled import compile_noise
from gateway.dphmm.constraints import surrogates
from gateway.dphmm.graphs import GraphError
from gateway.dphmm.hull import capped, complete_hull
from gateway.dphmm.protection import protect_kept
from gateway.dphmm.tables import TableError
from gateway.service.kinds.point_model import MeasureModel

__all__ = ["Made", "make_noise", "policy_graph"]


class Made(NamedTuple):
    """Noise for a set of possible states.

    Attributes:
        noise: none if the fallback has to do.
        added: pairs (exposed state, partner) that were joined.
        reason: why there is none.
    """

    noise: Noise | None
    added: tuple[tuple[int, int], ...] = ()
    reason: str = ""


def make_noise(model: MeasureModel, possible: Bools, kept: Bools) -> Made:
    """Make what the device may draw from while some states are possible.

    Args:
        model: of the policy.
        possible: N booleans, at least two true.
        kept: N booleans within them; the others are stood in for by the nearest of these.

    Returns:
        Noise that passes the device's check, or why there is none.
    """
    policy, values = model.policy, model.values
    try:
        found = protect_kept(values, policy_graph(model), possible, kept, objective=policy.objective, cap=policy.factor)
        hull = found.hull
        if found.factor > policy.factor:
            hull = capped(hull, complete_hull(values[surrogates(values, kept)][possible]), policy.factor)
        noise = compile_noise(hull, values, possible, policy.epsilon, kept)
        check_noise(model.measurement, noise, set_of(np.flatnonzero(possible).tolist()))
    except (TableError, GraphError, FuguError) as error:
        return Made(None, reason=str(error))
    return Made(noise, found.added)


def policy_graph(model: MeasureModel) -> NDArray[np.bool_]:
    """The policy graph as an N x N matrix."""
    count = len(model.values)
    return np.array([[bool(others >> y & 1) for y in range(count)] for others in model.measurement.neighbours])

"""What others would release in place of a planned measurement: noise of delta-location sets, of true neighbourhoods.

DPLS is differential privacy on delta-location sets with the planar isotropic mechanism, which is K-norm noise of the
hull of all differences in the set (Xiao, Xiong: Protecting Locations with Differential Privacy under Temporal
Correlations, CCS 2015; the comparison of the DPHMM paper). LocalDP is noise for the neighbours of the true state alone.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fugu.attack.outputs import attack_points
from fugu.chains.arrays import Bools, Floats
from fugu.places.constraints import delta_set, surrogates
from fugu.places.graphs import restrict
from fugu.places.hull import Hull, complete_hull
from fugu.places.local_noise import float_gauge, local_hulls, local_points, planes, point_densities
from fugu.places.moments import draw_knorm, noise_error
from fugu.planning.measure_errors import Errors, draws, rms, walk_of
from fugu.planning.measure_sets import SetPlan
from fugu.planning.measure_spec import MeasureSpec

__all__ = ["LocalAttack", "location_set_errors", "neighbourhood_attack"]

_SEED = 30303
_MOST_TICKS = 1_000
_MOST_STATES = 256


class LocalAttack(NamedTuple):
    """The share of points after which an attacker names the state.

    Attributes:
        guess: without any point: that of the likeliest state.
        knorm: after a point with the planned hull's noise, alike in every state.
        local: after a point with noise for the neighbours of the true state alone.
        certain: the probability of being in a state that such a point names for certain.
    """

    guess: float
    knorm: float
    local: float
    certain: float


def location_set_errors(spec: MeasureSpec, worst: SetPlan, prior: Floats, *, endless: bool, quick: bool) -> Errors:
    """The errors of DPLS, by simulation but for the set of the prior.

    Args:
        spec: what was asked for; without a delta every possible state is in the set.
        worst: the states that are possible.
        prior: N probabilities.
        endless: whether the same states are possible for ever.
        quick: leave out the walk.

    Returns:
        Of the set that the prior has, and of the gateway's estimate where the set follows its belief.
    """
    generator = np.random.default_rng(_SEED)
    hulls: dict[bytes, Hull] = {}
    values, epsilon = spec.values, spec.epsilon

    def release(belief: Floats, state: int) -> tuple[Floats, Hull]:
        """The posterior after a point of a state, and the hull of its noise."""
        likely = delta_set(belief, spec.delta or 0.0) & worst.possible
        if not likely.any():
            likely = worst.possible
        hull = hulls.setdefault(likely.tobytes(), complete_hull(values[likely]))
        rows = values[surrogates(values, likely)]
        point = rows[state] + draw_knorm(hull, epsilon, 1, generator)[0]
        costs = epsilon * float_gauge(hull, point - rows)
        posterior = belief * np.exp(costs[belief > 0.0].min() - costs)
        return posterior / posterior.sum(), hull

    states = generator.choice(spec.states, size=min(draws(spec.states), _MOST_TICKS), p=prior).tolist()
    found = [release(prior, state) for state in states]
    raw = math.sqrt(noise_error(found[0][1], Fraction(epsilon)))
    single = rms(np.array([posterior for posterior, _ in found]) @ values - values[states])
    if quick or not endless:
        return Errors(raw, None, single, None)
    walk = walk_of(spec.transition, prior, generator)[:_MOST_TICKS]
    belief, beliefs = prior, []
    for state in walk.tolist():
        posterior, _ = release(belief, state)
        beliefs.append(posterior)
        belief = posterior @ spec.transition
    begun = len(walk) // 20
    return Errors(raw, None, single, rms(np.array(beliefs[begun:]) @ values - values[walk[begun:]]))


def neighbourhood_attack(spec: MeasureSpec, possible: Bools, hull: Hull, prior: Floats) -> LocalAttack | None:
    """What an attacker makes of one point of LocalDP (example 10.8), beside the planned noise.

    Args:
        spec: with the policy graph.
        possible: N booleans.
        hull: of the planned noise.
        prior: N probabilities within the possible states.

    Returns:
        None for too many states.
    """
    if np.count_nonzero(possible) > _MOST_STATES:
        return None
    generator = np.random.default_rng(_SEED)
    values, distribution = spec.values[possible], prior[possible]
    distribution = distribution / distribution.sum()
    path = generator.choice(len(values), size=draws(len(values)) // 4, p=distribution)
    local = local_hulls(values, restrict(spec.graph, possible)[np.ix_(possible, possible)])

    def named(hulls: tuple[Hull, ...]) -> float:
        points = local_points(values, hulls, spec.epsilon, path, generator)
        return attack_points(distribution, path, point_densities(values, hulls, spec.epsilon, path, points)).named

    plane = planes(values, local)
    alone = np.bincount(plane)[plane] == 1
    common = (hull,) * len(values)
    return LocalAttack(float(distribution.max()), named(common), named(local), float(distribution[alone].sum()))

"""Policy graphs of the papers as matrices, beside those that devices read as sets: `fugu.contract.measurement`."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Bools
from fugu.places.graphs import GraphError, lattice

__all__ = ["explicit", "one_step", "within_radius"]


def within_radius(coordinates: ArrayLike, radius: int | float | Fraction) -> Bools:
    """The utility graph, N x N: pairs of states at a Euclidean distance of at most a radius, in lattice steps.

    Raises:
        GraphError: The radius is negative or not finite, or a coordinate is refused by `lattice`.
    """
    points = lattice(coordinates)
    if not 0 <= radius < float("inf"):
        raise GraphError(f"a radius is at least 0 and finite, got {radius}")
    difference = points[:, None, :] - points[None, :, :]
    # squared distances are whole, so flooring the squared radius loses no pair
    return _loopless(np.sum(difference * difference, axis=2) <= min(int(Fraction(radius) ** 2), 2**62))


def one_step(transition: ArrayLike) -> Bools:
    """The transition graph, N x N: pairs of states that can both follow from some one state, by entries above 0.

    The paper's definition does not say "exists i": the common predecessor is any state. Of a chain whose states show
    others, or change their steps, every row is that of a predecessor.
    """
    possible = np.asarray(transition) > 0
    if possible.ndim != 2 or len(possible) < possible.shape[1]:
        raise GraphError(f"a transition matrix is square, or has more rows, got shape {possible.shape}")
    steps = possible.astype(np.float32)  # counts up to 2^24 are exact, and products of floats are fast
    return _loopless(steps.T @ steps > 0.5)


def explicit(states: int, edges: Iterable[tuple[int, int]]) -> Bools:
    """A graph, N x N, of pairs of different states in 0..N-1, in either order.

    Raises:
        GraphError: An edge names a state that is not there, or joins a state to itself.
    """
    graph = np.zeros((states, states), dtype=np.bool_)
    for first, second in edges:
        if not (0 <= first < states and 0 <= second < states) or first == second:
            raise GraphError(f"edge ({first}, {second}) does not join two different states of 0..{states - 1}")
        graph[first, second] = graph[second, first] = True
    return graph


def _loopless(related: Bools) -> Bools:
    related = related.copy()
    np.fill_diagonal(related, False)
    return related

"""The check of a table against its policy graph, in integers: what a device does before it draws from one.

For a set C of possible states, with at least two of them:

1. every edge of the policy graph inside C is protected: no point is more than e^epsilon times likelier under the one
   state than under the other;
2. every state of C is protected together with degree - 1 other states of C (with all of them if there are no more),
   the same for every point (definition 4.4 of the DPHMM paper, which as printed allows the state itself);
3. no point is more than e^(factor epsilon) times likelier under any state of C than under any other.

4. a state outside C, in which a device can be only if the chain is wrong, is protected together with so many, too.
   Whoever sends tables could otherwise mark such states.

Ratios are compared as W[i,z] 2^24 <= floor(e^epsilon 2^24) W[j,z], staircases by the gauge of differences; both without
rounding.

Source: docs/proofs/private-points.md, "Private measurements".
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import islice
from operator import le

from fugu.contract.errors import GuaranteeError
from fugu.contract.exponential import exp_up
from fugu.contract.measure_frames import Point
from fugu.contract.measure_table import Noise, StaircaseNoise, members
from fugu.contract.measurement import Measurement
from fugu.contract.noise_table import NoiseTable

__all__ = ["RATIO_BITS", "check_noise", "floor_exp"]

RATIO_BITS = 24
MOST_EPSILON = 20
_SEPARATES_ALL = Fraction(2219, 100)
"""Above the logarithm of 2^32: no two weights are further apart."""

# exp_up is above e^x by less than 1e-30 of it: what is left after this is below.
_BELOW = 1 - Fraction(1, 10**30)

Within = Callable[[int, int], bool]


def floor_exp(epsilon: Fraction | int | float, bits: int = RATIO_BITS) -> int:
    """floor(e^epsilon * 2^bits), never above it.

    Args:
        epsilon: above 0 and at most 20, in nats.

    Raises:
        GuaranteeError: epsilon is out of range.
    """
    if not 0 < epsilon <= MOST_EPSILON:
        raise GuaranteeError(f"epsilon of a table must be above 0 and at most {MOST_EPSILON}, got {epsilon}")
    return int(exp_up(Fraction(epsilon)) * _BELOW * (1 << bits))


def check_noise(measurement: Measurement, noise: Noise, constraint: int) -> None:
    """Refuse noise that tells apart what must not be told apart while the states of a set are possible.

    Args:
        constraint: the set C; 0 for any set with at least two states, which takes every pair to be protected.

    Raises:
        GuaranteeError: the noise does not keep the promise.
    """
    everywhere = (1 << measurement.states) - 1
    if constraint & ~everywhere:
        raise GuaranteeError("the table is for states that the policy does not have")
    states = members(constraint or everywhere)
    if len(states) < 2:
        raise GuaranteeError("a table for one possible state protects nothing: only the fallback may be used then")
    bound = floor_exp(measurement.epsilon)
    if isinstance(noise, NoiseTable):
        if noise.states != measurement.states:
            raise GuaranteeError(f"the table has {noise.states} states, the policy {measurement.states}")
        together, within = _weights(measurement, noise, states, bound)
    else:
        together, within = _staircase(measurement, noise, states, bound)
    if len(noise.points[0] if isinstance(noise, NoiseTable) else noise.low) != len(measurement.coordinates[0]):
        raise GuaranteeError("the table's points have other dimensions than the policy's measurements")
    if not constraint and not together:
        raise GuaranteeError("a fallback table has to protect every pair of states")
    if not together:
        _check_pairs(measurement, states, constraint, within)
    for state in members(everywhere & ~constraint) if constraint else ():
        if (hidden := _hidden(measurement, state, states, within)) is not None:
            among = "none that is" if hidden == 0 else f"only {hidden} that are"
            raise GuaranteeError(f"state {state}, which should not be possible, is hidden together with {among}")


def _check_pairs(measurement: Measurement, states: list[int], constraint: int, within: Within) -> None:
    for state in states:
        joined = members(measurement.neighbours[state] & constraint)
        for other in joined:
            if other > state and not within(state, other):
                raise GuaranteeError(f"some point tells state {state} from state {other}, which the policy graph joins")
        if len(joined) < measurement.degree - 1 and (hidden := _hidden(measurement, state, states, within)) is not None:
            if hidden == 0:
                raise GuaranteeError(f"state {state} is exposed: no other possible state is hidden together with it")
            raise GuaranteeError(
                f"state {state} is hidden among {hidden + 1} possible states: a degree of protection of "
                f"{measurement.degree} is promised"
            )


def _hidden(measurement: Measurement, state: int, states: list[int], within: Within) -> int | None:
    """How many other states of a set a state is hidden together with, if that is less than its policy promises."""
    others = [other for other in states if other != state]
    least = min(measurement.degree - 1, len(others))
    hidden = sum(1 for _ in islice((other for other in others if within(state, other)), least))
    return hidden if hidden < least else None


def _weights(measurement: Measurement, noise: NoiseTable, states: list[int], bound: int) -> tuple[bool, Within]:
    """Whether a table protects every pair of the states; and the test of one pair."""
    row_of: dict[tuple[int, ...], int] = {}
    place = [row_of.setdefault(tuple(row), len(row_of)) for row in noise.rows]
    weights = {index: noise.row_weights(state) for state, index in enumerate(place)}
    columns = list(zip(*(weights[index] for index in {place[state] for state in states}), strict=True))
    low, high = [min(column) for column in columns], [max(column) for column in columns]
    _check_factor(measurement, low, high)

    @cache
    def most(index: int) -> list[int]:
        return [bound * weight >> RATIO_BITS for weight in weights[index]]

    def within(a: int, b: int) -> bool:
        i, j = place[a], place[b]
        return i == j or (all(map(le, weights[i], most(j))) and all(map(le, weights[j], most(i))))

    return all(a << RATIO_BITS <= bound * b for a, b in zip(high, low, strict=True)), within


def _check_factor(measurement: Measurement, low: list[int], high: list[int]) -> None:
    far = Fraction(measurement.epsilon) * measurement.factor
    if far >= _SEPARATES_ALL:
        return
    bits = RATIO_BITS
    bound = int(exp_up(far) * _BELOW * (1 << bits))
    if any(a << bits > bound * b for a, b in zip(high, low, strict=True)):
        raise GuaranteeError(f"some point tells two possible states apart by more than {measurement.factor} epsilon")


def _staircase(measurement: Measurement, noise: StaircaseNoise, states: list[int], bound: int) -> tuple[bool, Within]:
    """Whether a staircase protects every pair of the states; and the test of one pair."""
    if noise.likely >> measurement.states:
        raise GuaranteeError("the table keeps states that the policy does not have")
    hull = noise.noise
    if hull.ratio.denominator << RATIO_BITS > bound * hull.ratio.numerator:
        raise GuaranteeError("the steps of the staircase are higher than e^epsilon")
    centres = measurement.centres(noise.likely)
    if len(hull.vertices[0]) != len(measurement.coordinates[0]):
        raise GuaranteeError("the table's points have other dimensions than the policy's measurements")
    if not all(hull.spans(_minus(point, centres[0])) for point in centres):
        raise GuaranteeError("the hull is flat: points would reveal for certain where the state is")
    facets = hull.facets()[: len(hull.vertices) // 2]  # the others are their negatives
    columns = [[_height(normal, centres[state]) for state in states] for normal, _ in facets]
    widths = [max(column) - min(column) for column in columns]
    offsets = [offset for _, offset in facets]
    if any(width > measurement.factor * offset for width, offset in zip(widths, offsets, strict=True)):
        raise GuaranteeError(f"some point tells two possible states apart by more than {measurement.factor} epsilon")

    @cache  # many pairs of a lattice have the same difference
    def inside(difference: Point) -> bool:
        return all(abs(_height(normal, difference)) <= offset for normal, offset in facets)

    def within(a: int, b: int) -> bool:
        return inside(_minus(centres[a], centres[b]))

    return all(width <= offset for width, offset in zip(widths, offsets, strict=True)), within


def _height(normal: Point, point: Point) -> int:
    return sum(a * b for a, b in zip(normal, point, strict=True))


def _minus(a: Point, b: Point) -> Point:
    return tuple(x - y for x, y in zip(a, b, strict=True))

"""The Wasserstein mechanism: noise for the largest distance that a secret can move the distribution of the answer.

Song, Wang, Chaudhuri: Pufferfish Privacy Mechanisms for Correlated Data (SIGMOD 2017), algorithm 1: add Laplace noise
of scale W / epsilon. It is for one scalar answer and does not compose: a second release voids it.

Everything is exact. Whether a quantile belongs to one value or to the next can hang on the last digit of a tail, and
the distance then jumps. Distributions are polynomials with whole coefficients, kept in one long integer each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate, combinations, permutations
from typing import NamedTuple, TypeAlias

from fugu.chains.arrays import Floats
from fugu.privacy.chain_class import ChainClassError, MarkovChain, stationary_distribution_of

__all__ = ["check_symbols", "infinity_wasserstein", "integer_weights", "wasserstein_states", "wasserstein_symbols"]

Number: TypeAlias = int | float | Fraction
Exact: TypeAlias = int | Fraction
Distribution: TypeAlias = Sequence[tuple[Exact, Exact]]
"""(value, weight) in rising order of the values; weights need not sum to 1."""
_Adds: TypeAlias = Sequence[Sequence[tuple[int, int]]]
"""Contribution of a tick to the sum in each state: (value, weight), values at least 0."""

_LARGEST_DENOMINATOR = 10**6
_SIMPLE = 2.0**-51
_MOST_STATES = 8
_MOST_BYTES = 2**29
_MOST_SYMBOL_BYTES = 2**25
_TOO_LONG = "the exact distribution of so long a window does not fit: use MQMExact or the chain accountant"


class WassersteinBound(NamedTuple):
    """W in units of the answer (Laplace scale W / epsilon): its node 1..T, its two states, index of its chain."""

    distance: Fraction
    node: int
    states: tuple[int, int]
    chain: int


class CountBound(NamedTuple):
    """W of a count of ticks, and what is counted.

    The states are those that were named; or a set whose count needs the most noise, as its complement's does.
    """

    bound: WassersteinBound
    states: tuple[int, ...]


def wasserstein_states(chains: tuple[MarkovChain, ...], length: int, states: Sequence[int] | None = None) -> CountBound:
    """W of the number of a window's ticks in some states; `None`: the worst set, so that the noise does for any.

    Raises ChainClassError for no such state, too many sets to try, or as `wasserstein_count`.
    """
    k = chains[0].states if chains else 0
    if states is None and k > _MOST_STATES:
        raise ChainClassError(
            f"{k} states have too many sets to try for the one whose count needs the most noise. Up to {_MOST_STATES} "
            "states are tried: name the states that are counted"
        )
    if states is not None and not (states and set(states) <= set(range(k))):
        raise ChainClassError(f"states to count are some of 0 to {k - 1}, got {list(states)}")
    # A set and its complement: the counts add up to T, so that one distribution is the other's mirror image.
    sets = [group for size in range(1, k) for group in combinations(range(1, k), size)]
    sets = sets if states is None else [tuple(sorted(set(states)))]
    bounds = [
        CountBound(wasserstein_count(chains, length, [int(x in group) for x in range(k)]), group) for group in sets
    ]
    return max(bounds, key=lambda bound: bound.bound.distance)


def wasserstein_count(
    chains: tuple[MarkovChain, ...], length: int, weights: Sequence[int] = (0, 1)
) -> WassersteinBound:
    """W of a window's weighted sum of states: the largest distance over chains, nodes, and pairs of possible states.

    Args:
        chains: a finite class, each chain with its initial distribution. Probabilities are read as the simple fraction
            that they are within rounding, or else as the floats that they are. The largest float is then what the
            others leave of 1.
        weights: (k,) what a tick in each state adds, from 0 on; by default, the count of state 1 of two.

    Raises:
        ChainClassError: no initial distribution, weights that do not fit, or too long a window.
    """
    if length < 1 or not chains or min(weights) < 0:
        raise ChainClassError("the Wasserstein mechanism needs a chain, a window of at least one tick, and weights")
    return _worst(chains, [tuple(((weight, 1),) for weight in weights)] * length, _MOST_BYTES)


def wasserstein_symbols(
    chains: tuple[MarkovChain, ...], hits: Sequence[int], total: int, observed: Sequence[bool]
) -> WassersteinBound:
    """W of the number of a window's symbols that lie in a set; chains and result as for `wasserstein_count`.

    Args:
        hits: (k,) how often, out of `total`, the symbol of each state lies in the set.
        observed: (T,) which ticks have a symbol; those without one are secrets too.

    Raises:
        ChainClassError: no initial distribution, chances that do not fit, or a window that is too long for the exact
            distribution, which takes some seconds at most.
    """
    ticks = _symbol_ticks(hits, total, observed)
    return _worst(chains, ticks, _MOST_SYMBOL_BYTES)


def check_symbols(chains: tuple[MarkovChain, ...], hits: Sequence[int], total: int, length: int) -> None:
    """Refuse what `wasserstein_symbols` would refuse of a window in which every tick has a symbol."""
    adds = _symbol_ticks(hits, total, [True] * length)
    for chain in chains:
        _Whole.of(chain).size(adds, _MOST_SYMBOL_BYTES)


def _symbol_ticks(hits: Sequence[int], total: int, observed: Sequence[bool]) -> list[_Adds]:
    if not observed or not all(0 <= hit <= total for hit in hits):
        raise ChainClassError("the Wasserstein mechanism needs a window, and a chance for every state")
    common = math.gcd(total, *hits)
    symbol = tuple(tuple((n, p // common) for n, p in enumerate((total - hit, hit)) if p) for hit in hits)
    silent = (((0, 1),),) * len(hits)
    return [symbol if seen else silent for seen in observed]


def _worst(chains: tuple[MarkovChain, ...], adds: Sequence[_Adds], most_bytes: int) -> WassersteinBound:
    worst = WassersteinBound(Fraction(0), 1, (0, 0), 0)
    for index, chain in enumerate(chains):
        if chain.initial is None:
            raise ChainClassError(
                "the Wasserstein mechanism needs an initial distribution: for all of them, use MQMExact"
            )
        if chain.states != len(adds[0]):
            raise ChainClassError(f"{chain.states} states need as many weights, got {len(adds[0])}")
        for node, distributions in enumerate(_sums(chain, adds, most_bytes), 1):
            for (a, distribution), (b, other) in permutations(distributions.items(), 2):
                distance = Fraction(_one_way(distribution, other))
                if distance > worst.distance:
                    worst = WassersteinBound(distance, node, (min(a, b), max(a, b)), index)
    return worst


def infinity_wasserstein(
    distribution: Iterable[tuple[Number, Number]], other: Iterable[tuple[Number, Number]]
) -> Fraction:
    """The infinity-Wasserstein distance of two distributions on the line, by the quantile coupling.

    Each distribution is (value, weight) in any order, with some positive weight, and is normalised. The distance is the
    smallest d such that mass can be moved from one to the other with no piece going further than d.
    """
    first, second = _sorted(distribution), _sorted(other)
    return Fraction(max(_one_way(first, second), _one_way(second, first)))


def _one_way(distribution: Distribution, other: Distribution) -> Exact:
    """The furthest that mass goes up from `distribution` to `other`, at least 0.

    The mass of a value, in rising order, goes at most to the other's first value whose running sum is no smaller.
    """
    total, other_total = sum(weight for _, weight in distribution), sum(weight for _, weight in other)
    running = [weight * total for weight in accumulate(weight for _, weight in other)]
    furthest: Exact = 0
    upto: Exact = 0
    place = 0
    for value, weight in distribution:
        upto += weight
        while running[place] < upto * other_total:
            place += 1
        furthest = max(furthest, other[place][0] - value)
    return furthest


def _sorted(distribution: Iterable[tuple[Number, Number]]) -> Distribution:
    weights: dict[Exact, Exact] = {}
    for value, weight in distribution:
        place = _exact(value)
        weights[place] = weights.get(place, 0) + _exact(weight)
    return sorted((value, weight) for value, weight in weights.items() if weight)


class _Whole(NamedTuple):
    """A chain in whole numbers: weights of the first state out of `start`, and of steps, each row out of `scale`."""

    initial: list[int]
    start: int
    transition: list[list[int]]
    scale: int

    @classmethod
    def of(cls, chain: MarkovChain) -> _Whole:
        assert chain.initial is not None
        initial, start = integer_weights(stationary_distribution_of(chain) if chain.is_stationary else chain.initial)
        rows = [integer_weights(row) for row in chain.transition]
        scale = math.lcm(*(total for _, total in rows))
        return cls(initial, start, [[p * (scale // total) for p in row] for row, total in rows], scale)

    def size(self, adds: Sequence[_Adds], most_bytes: int) -> int:
        """Bytes of a coefficient of a distribution of the sum of what all ticks add."""
        chances = math.prod(max(sum(weight for _, weight in distribution) for distribution in tick) for tick in adds)
        size: int = (self.start * self.scale ** len(adds) * chances).bit_length() // 8 + 1
        terms = sum(max(power for distribution in tick for power, _ in distribution) for tick in adds) + 1
        if len(self.initial) * len(adds) * terms * size > most_bytes:
            raise ChainClassError(_TOO_LONG)
        return size


def _sums(chain: MarkovChain, adds: Sequence[_Adds], most_bytes: int) -> Iterable[dict[int, Distribution]]:
    """For each node, the distribution of the sum of what all ticks add, given each possible state there.

    A polynomial sum of c_s z^s is held as the integer that it is at z = 256^size, with room for every coefficient.
    """
    initial, _, transition, _ = integer_chain = _Whole.of(chain)
    k, length, size = len(initial), len(adds), integer_chain.size(adds, most_bytes)

    def added(value: int, distribution: Sequence[tuple[int, int]]) -> int:
        return sum((value if weight == 1 else value * weight) << (8 * size * power) for power, weight in distribution)

    after = [[1] * k]
    for tick in reversed(adds[1:]):
        ahead = [added(value, tick[y]) for y, value in enumerate(after[-1])]
        after.append([sum(transition[x][y] * ahead[y] for y in range(k) if transition[x][y]) for x in range(k)])
    before = [added(initial[x], adds[0][x]) for x in range(k)]
    for node in range(length):
        if node:
            before = [added(sum(before[x] * transition[x][y] for x in range(k)), adds[node][y]) for y in range(k)]
        yield {x: _coefficients(before[x] * after[length - 1 - node][x], size) for x in range(k) if before[x]}


def _coefficients(packed: int, size: int) -> Distribution:
    """(power, coefficient) of a packed polynomial, where the coefficient is positive."""
    terms = packed.bit_length() // (8 * size) + 1
    raw = packed.to_bytes(terms * size, "little")
    all_terms = ((power, int.from_bytes(raw[power * size : (power + 1) * size], "little")) for power in range(terms))
    return [(power, coefficient) for power, coefficient in all_terms if coefficient]


def integer_weights(distribution: Floats) -> tuple[list[int], int]:
    """Probabilities over a common denominator, each to within its rounding, however small."""
    row = [Fraction(float(p)).limit_denominator(_LARGEST_DENOMINATOR) for p in distribution]
    if sum(row) != 1 or any(abs(float(s) - p) > _SIMPLE * p for s, p in zip(row, distribution, strict=True)):
        row = [Fraction(float(p)) for p in distribution]
        row[int(distribution.argmax())] += 1 - sum(row)
    denominator = math.lcm(*(p.denominator for p in row))
    return [int(p * denominator) for p in row], denominator


def _exact(value: Number) -> Exact:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ChainClassError(f"{value} is no number to add up")
        return Fraction(repr(value))
    return value
